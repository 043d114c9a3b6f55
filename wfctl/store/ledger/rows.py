"""Reading rows that may have been damaged: what a row cannot say is an error that names it, never a guess (contract 7.4)."""

from __future__ import annotations

import contextlib
import functools
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from wfctl.core.instants import from_micros
from wfctl.core.json_text import loads
from wfctl.errors import Blocked

Value = TypeVar("Value")
LONGEST = 1000 * 366 * 86_400_000_000  #: microseconds: a thousand years
_TYPES: dict[str, tuple[type, ...]] = {
    "i": (int,),
    "I": (int, type(None)),
    "t": (str,),
    "T": (str, type(None)),
    "*": (object,),
}


class UnreadableRow(Blocked):
    """A row of the ledger says what no row can say. `data` has the table, the row's key and what is wrong with it."""

    @classmethod
    def of(cls, table: str, key: str, problem: str, *, schedule: int | None = None) -> UnreadableRow:
        """Return the error for one row; `schedule` is the number of the schedule that it belongs to, where that is known."""
        error = cls(
            f"row {key} of {table} cannot be trusted: {problem}; see `wfctl store verify`",
            {"table": table, "row": key, "problem": problem},
        )
        error.schedule = schedule
        return error

    schedule: int | None = None


def guarded(
    table: str, columns: str, kinds: str, key: Sequence[str], *, schedule: str | None = None
) -> Callable[[Callable[[tuple[Any, ...]], Value]], Callable[[tuple[Any, ...]], Value]]:
    """Have a function that makes a value of a row raise UnreadableRow for one that says what no row can say.

    Given: the columns as they are selected; a letter each for what they hold (i integer, t text, capitals also NULL, * is
    checked by the function itself); the columns that name the row, and the one that says which schedule it belongs to.
    """
    names = [name.strip().rpartition(".")[2] for name in columns.split(",")]
    places = [names.index(name) for name in key]
    owner = None if schedule is None else names.index(schedule)
    types = [_TYPES[letter] for letter in kinds]
    assert len(types) == len(names), f"{table}: {len(types)} kinds for {len(names)} columns"
    good: set[tuple[type, ...]] = set()  # most rows hold what others held before them: those need no look at each column

    def decorate(make: Callable[[tuple[Any, ...]], Value]) -> Callable[[tuple[Any, ...]], Value]:
        @functools.wraps(make)
        def read(values: tuple[Any, ...]) -> Value:
            try:
                held = tuple(map(type, values))
                if held not in good:
                    if not all(issubclass(kind, allowed) for kind, allowed in zip(held, types, strict=True)):
                        raise TypeError
                    good.add(held)
                return make(values)
            except (LookupError, ValueError, TypeError, OverflowError, AttributeError) as error:
                row = "/".join(str(values[place]) for place in places)
                found = None if owner is None else values[owner]
                problem = _problem(names, types, values) or str(error) or type(error).__name__
                raise UnreadableRow.of(table, row, problem, schedule=found if isinstance(found, int) else None) from error

        return read

    return decorate


def _problem(names: Sequence[str], types: Sequence[tuple[type, ...]], values: Sequence[Any]) -> str | None:
    wrong = [f"{name} is {shown(value)}" for name, kinds, value in zip(names, types, values, strict=False)
             if not isinstance(value, kinds)]  # fmt: skip
    return ", ".join(wrong) or None


def shown(value: object) -> str:
    """Return a value of a row as a message shows it: short, and as it was written."""
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


@contextlib.contextmanager
def savepoint(connection: sqlite3.Connection) -> Iterator[None]:
    """Within a transaction: what is written is taken back where the body raises, and the rest of the transaction stands."""
    if not connection.in_transaction:
        yield
        return
    connection.execute("SAVEPOINT part")
    try:
        yield
    except BaseException:
        with contextlib.suppress(sqlite3.Error):  # a failed transaction is gone as a whole already
            connection.execute("ROLLBACK TO part")
            connection.execute("RELEASE part")
        raise
    connection.execute("RELEASE part")


def merged_by(key: Callable[[Value], Any], parts: Sequence[Iterator[Value]], *, reverse: bool = False) -> Iterator[Value]:
    """Give the rows of several parts, each in the order of a key, in that order."""
    if len(parts) == 1:
        return parts[0]
    import heapq

    return heapq.merge(*parts, key=key, reverse=reverse)


def known(table: Mapping[int, Value], number: Any, name: str) -> Value:
    """Return what a number of a column stands for. Raise ValueError naming the number when it stands for nothing."""
    found = table.get(number) if isinstance(number, int) else None
    if found is None:
        raise ValueError(f"{name} is {shown(number)}, which stands for nothing")
    return found


def try_micros(micros: Any) -> datetime | None:
    """Return the instant that a column holds; None where it holds none that is one."""
    try:
        return from_micros(micros) if isinstance(micros, int) else None
    except (ValueError, OverflowError):
        return None


def check_span(micros: int | None, name: str) -> int | None:
    """Return what a column holds as a duration. Raise ValueError for one that no definition can name."""
    if micros is not None and not 0 <= micros <= LONGEST:
        raise ValueError(f"{name} is {micros}, which is no duration")
    return micros


def json_object(text: str | None, name: str) -> Mapping[str, Any] | None:
    """Return the object that a column holds as JSON; None for none. Raise ValueError for anything else."""
    if text is None or text == "":
        return None
    try:
        found = loads(text)
    except (ValueError, RecursionError):
        raise ValueError(f"{name} is no JSON: {shown(text)}") from None
    if not isinstance(found, dict):
        raise ValueError(f"{name} is no JSON object: {shown(text)}")
    return found

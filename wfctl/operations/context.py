"""What every operation works on: one store, opened by one process, seen through one clock."""

from __future__ import annotations

import contextlib
import os
import pwd
import sqlite3
from collections import OrderedDict
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from weakref import WeakValueDictionary

from wfctl.errors import InvalidDefinition
from wfctl.store.ledger.definitions import RevisionRow, RevisionText, revision, text_of
from wfctl.store.ledger.rows import UnreadableRow

if TYPE_CHECKING:
    from wfctl.clock import Clock
    from wfctl.core.model import DeploymentDefinition, Notify, ScheduleDefinition
    from wfctl.operations.known import Known
    from wfctl.store.disk import Disk
    from wfctl.store.layout import Kind, Layout
    from wfctl.store.ledger import Ledger

Entry = TypeVar("Entry")
_KEPT = 4096  #: parsed revisions held in memory
_KEPT_BYTES = 4 << 20  #: of their texts


class Context:
    """One open store. Not shared between threads."""

    def __init__(
        self,
        *,
        layout: Layout,
        ledger: Ledger,
        disk: Disk,
        clock: Clock,
        actor: str,
        notify: Callable[[], Notify | None] | None = None,
    ) -> None:
        self.layout = layout
        self.ledger = ledger
        self.disk = disk
        self.clock = clock
        self.actor = actor
        self.notify = notify  #: what the settings say of notifying; None: not read yet (7.8)
        self.is_trial = False  #: a change is only tried out: it ends with `Tried` once found valid, and nothing is written
        self._schedules: _Kept[tuple[ScheduleDefinition, RevisionRow]] = _Kept()
        self._deployments: _Kept[tuple[DeploymentDefinition, RevisionRow]] = _Kept()
        self._definitions: _Kept[tuple[ScheduleDefinition, int | None]] = _Kept()
        self._by_digest: WeakValueDictionary[tuple[Kind, str], Any] = WeakValueDictionary()  #: the same text is parsed once
        self._known: Known | None = None

    def now(self) -> datetime:
        """Return the store's wall clock."""
        return self.clock.now()

    @property
    def known(self) -> Known:
        """What decides about each schedule, for rounds."""
        if self._known is None:
            from wfctl.operations.known import Known

            self._known = Known()
        return self._known

    def schedule(self, number: int, which: int) -> tuple[ScheduleDefinition, RevisionRow]:
        """Return one revision of a schedule, parsed. Raise UnreadableRow when its content is not there or not what it was."""
        return self._schedules.get((number, which)) or self._parsed(self._schedules, "schedule", number, which)

    def deployment(self, number: int, which: int) -> tuple[DeploymentDefinition, RevisionRow]:
        """Return one revision of a deployment, parsed. Raise UnreadableRow when its content is not there or not what it was."""
        return self._deployments.get((number, which)) or self._parsed(self._deployments, "deployment", number, which)

    def definition(self, number: int, which: int) -> tuple[ScheduleDefinition, int | None]:
        """Return what one revision of a schedule says, and its resolved limit in microseconds: `schedule`, and nothing more.

        Raise UnreadableRow when its content is not there or not what it was.
        """
        whole = self._schedules.get((number, which))
        if whole is not None:
            return whole[0], whole[1].max_run
        kept = self._definitions.get((number, which))
        if kept is None:
            saved = text_of(self.ledger.connection, number, which)
            kept = (self._read("schedule", number, which, saved), saved.max_run if saved is not None else None)
            if saved is not None and not self.ledger.is_writing:
                self._definitions.put((number, which), kept, len(saved.content))
        return kept

    def _parsed(self, cache: _Kept[tuple[Any, RevisionRow]], kind: Kind, number: int, which: int) -> Any:
        row = revision(self.ledger.connection, number, which)
        entry = (self._read(kind, number, which, row), row)
        if row is not None and not self.ledger.is_writing:  # else it may yet be rolled back, and its number given to another
            cache.put((number, which), entry, len(row.content))  # type: ignore[arg-type]
        return entry

    def _read(self, kind: Kind, number: int, which: int, saved: RevisionRow | RevisionText | None) -> Any:
        """Return what a saved text says. Raise UnreadableRow."""
        from wfctl.operations.memo import remembered_text
        from wfctl.store.definitions import PARSERS, digest

        key = f"{number}/{which}"
        if saved is None:
            raise UnreadableRow.of("revisions", key, "it is not there")
        content = saved.content.encode()
        if digest(content) != saved.digest:  # what is run is what was saved, or nothing is (7.4)
            raise UnreadableRow.of("revisions", key, "its content is not that of its digest")
        known = self._by_digest.get((kind, saved.digest))
        if known is not None:
            return known
        parse = PARSERS[kind]
        try:
            read = remembered_text(parse.__name__, saved.digest, len(content), lambda: parse(content))
        except InvalidDefinition as error:
            raise UnreadableRow.of("revisions", key, error.message) from error
        self._by_digest[(kind, saved.digest)] = read
        return read

    @contextlib.contextmanager
    def changing(self) -> Iterator[sqlite3.Connection]:
        """Give the connection for a change of a definition: within a transaction, or for a trial one consistent view."""
        with self.ledger.reading() if self.is_trial else self.ledger.transaction() as connection:
            yield connection

    def end_trial(self, parse: Callable[[bytes], object], content: bytes) -> None:
        """A change was found valid: raise Tried if that is all that was asked, with what was read of its text kept."""
        if self.is_trial:
            from wfctl.operations.memo import remembered_text
            from wfctl.store.definitions import digest

            remembered_text(parse.__name__, digest(content), len(content), lambda: parse(content))
            raise Tried


class _Kept(Generic[Entry]):
    """What was read of the last few revisions, bounded by how many they are and by the size of their texts."""

    def __init__(self) -> None:
        self._found: OrderedDict[tuple[int, int], tuple[Entry, int]] = OrderedDict()
        self._bytes = 0

    def get(self, key: tuple[int, int]) -> Entry | None:
        """Return what is kept of a revision of a definition, by number."""
        found = self._found.get(key)
        return None if found is None else found[0]

    def put(self, key: tuple[int, int], entry: Entry, size: int) -> None:
        """Keep what was read of a text of that size; what was read first gives way."""
        self._found[key] = (entry, size)
        self._bytes += size
        while len(self._found) > _KEPT or (self._bytes > _KEPT_BYTES and len(self._found) > 1):
            self._bytes -= self._found.popitem(last=False)[1][1]


class Tried(Exception):
    """Ends the trial of a change that was found valid."""


class DryRun(Exception):
    """Ends a transaction of which nothing is to be kept, with the view of what it would have made."""

    def __init__(self, result: Any) -> None:
        super().__init__("nothing is to be kept")
        self.result = result


def actor_name() -> str:
    """Return who acts, as revisions, pauses and stops record it: the user, and behind sudo the one who asked."""
    named = (os.environ.get(name) for name in ("LOGNAME", "USER", "LNAME", "USERNAME"))
    try:
        user = next(filter(None, named), None) or pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        user = f"uid {os.getuid()}"
    asked = os.environ.get("SUDO_USER")
    return f"{asked} (as {user})" if asked and asked != user else user

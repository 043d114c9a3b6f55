"""Putting readable values where a row has none, for an operator who asked for it (contract 7.4).

What other records tell is taken from there. What only explains, or is worked out anew, is cleared. What decides whether
something was admitted or ended is never invented: such a row stays as it is.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from datetime import datetime

from wfctl.core.instants import to_micros
from wfctl.core.model import Json
from wfctl.core.steps import Ended
from wfctl.store.ledger import runs
from wfctl.store.ledger.numbers import ENDED_NUMBER, ENDED_OF
from wfctl.store.ledger.rows import LONGEST, UnreadableRow

_INT, _TEXT = "integer", "text"


def _wrong(column: str, kind: str, *, or_null: bool) -> str:
    allowed = f"'{kind}', 'null'" if or_null else f"'{kind}'"
    far = f" OR ({column} NOT BETWEEN -62135596800000000 AND 253402300799999999)" if kind == _INT else ""
    return f"(typeof({column}) NOT IN ({allowed}){far})"


def _is_no_object(column: str) -> str:
    return f"CASE WHEN {column} IS NULL THEN 0 WHEN json_valid({column}) THEN json_type({column}) <> 'object' ELSE 1 END"


def _is_no_json(column: str) -> str:
    return f"CASE WHEN {column} IS NULL THEN 0 ELSE NOT json_valid({column}) END"


def _put(
    connection: sqlite3.Connection, table: str, where: str, key: Iterable[int], changes: Iterable[tuple[str, str, str]]
) -> None:
    """Set each column to what it says (SQL) where its condition holds."""
    for column, value, condition in changes:
        connection.execute(f"UPDATE {table} SET {column} = {value} WHERE {where} AND {condition}", tuple(key))


def _cleared(columns: str, kind: str = _INT) -> list[tuple[str, str, str]]:
    return [(column, "NULL", _wrong(column, kind, or_null=True)) for column in columns.split()]


def mend_executions(connection: sqlite3.Connection, run: int) -> None:
    """Clear what only explains an execution. How it ended, and that it did, stays as it is written."""
    changes = [(column, "NULL", _is_no_object(column)) for column in ("detail", "stop")]
    changes += [(column, "NULL", "how IS NOT NULL") for column in ("mark", "origin")]
    changes += _cleared("started_at ended_at exit_status signal cpu max_rss left_behind")
    _put(connection, "executions", "run = ?", [run], changes)


def settle_unknown_ends(connection: sqlite3.Connection, run: int) -> None:
    """Let executions whose end stands for nothing be ends that nobody knows of."""
    known = ", ".join(map(str, sorted(ENDED_OF)))
    connection.execute(
        f"UPDATE executions SET how = {ENDED_NUMBER[Ended.UNKNOWN]} WHERE run = ? AND how IS NOT NULL AND how NOT IN ({known})",
        (run,),
    )


def mend_run(connection: sqlite3.Connection, run: int) -> bool:
    """Clear what only explains a run; return whether it can be read then."""
    changes = [(column, "NULL", _is_no_object(column)) for column in ("reason", "interrupt", "stop")]
    changes += [(column, "NULL", _is_no_json(column)) for column in ("input", "output", "resume")]
    changes += [("max_run", "NULL", f"max_run NOT BETWEEN 0 AND {LONGEST}")]
    changes += _cleared("output_k is_overdue max_steps max_run started_at attempt_at ended_at")
    of_executions = "(SELECT {0} FROM executions e WHERE e.run = runs.number{1})"
    of_row = "(SELECT {0} FROM occurrences o WHERE o.schedule = runs.schedule AND o.instant = runs.instant)"
    attempt = of_executions.format("max(e.attempt)", "")
    step = of_executions.format("e.step", " AND e.attempt = runs.attempt ORDER BY e.k LIMIT 1")
    changes += [
        ("attempt", f"coalesce({attempt}, 1)", _wrong("attempt", _INT, or_null=False)),
        ("resumed_step", f"coalesce({step}, 0)", _wrong("resumed_step", _INT, or_null=False)),
        ("revision", of_row.format("o.revision"), f"schedule IS NOT NULL AND {_wrong('revision', _INT, or_null=False)}"),
        ("admitted_at", f"coalesce({of_row.format('o.recorded_at')}, 0)", _wrong("admitted_at", _INT, or_null=False)),
    ]
    _put(connection, "runs", "number = ?", [run], changes)
    try:
        return runs.find(connection, run) is not None
    except UnreadableRow:
        return False


def mend_occurrences(connection: sqlite3.Connection, schedule: int, *, now: datetime) -> None:
    """Clear what only explains an occurrence, and take its instant and run from its run where that knows them."""
    of_run = "(SELECT {0} FROM runs r WHERE r.number = occurrences.run AND r.schedule = occurrences.schedule)"
    changes = [
        ("reason", "NULL", _is_no_object("reason")),
        ("run", "(SELECT r.number FROM runs r WHERE r.schedule = occurrences.schedule AND r.instant = occurrences.instant)",
         f"({_wrong('run', _INT, or_null=True)} OR run < 1)"),
        ("instant", f"coalesce({of_run.format('r.instant')}, instant)", _wrong("instant", _INT, or_null=False)),
        ("revision", "(SELECT d.revision FROM definitions d WHERE d.number = occurrences.schedule)",
         _wrong("revision", _INT, or_null=False)),
        ("recorded_at", str(to_micros(now)), _wrong("recorded_at", _INT, or_null=False)),
        *_cleared("lateness span_first span_count"),
    ]  # fmt: skip
    _put(connection, "occurrences", "schedule = ?", [schedule], changes)


def mend_definition(connection: sqlite3.Connection, number: int, *, now: datetime) -> None:
    """Take what a definition's row cannot say from its newest revision, and clear what is found out anew."""
    newest = "(SELECT {0} FROM revisions r WHERE r.definition = definitions.number ORDER BY r.revision DESC LIMIT 1)"
    revision, digest = newest.format("r.revision"), newest.format("r.digest")
    changes = [
        ("revision", f"coalesce({revision}, 0)", _wrong("revision", _INT, or_null=False)),
        ("digest", digest, _wrong("digest", _TEXT, or_null=True)),
        ("diagnostic", "NULL", _is_no_object("diagnostic")),
        ("written", "1", _wrong("written", _INT, or_null=False)),
        ("created_at", str(to_micros(now)), _wrong("created_at", _INT, or_null=False)),
        *_cleared("prior_digest", _TEXT),
        *_cleared("mtime_ns ctime_ns size inode"),
    ]
    _put(connection, "definitions", "number = ?", [number], changes)


def mend_schedule(connection: sqlite3.Connection, number: int) -> None:
    """Take a schedule's state from its history and its pauses; a candidate that cannot be read is dropped."""
    last = "(SELECT max(instant) FROM occurrences o WHERE o.schedule = schedules.number AND typeof(instant) = 'integer')"
    created = "(SELECT created_at FROM definitions d WHERE d.number = schedules.number)"
    paused = "(SELECT max(paused_at) FROM pauses p WHERE p.schedule = schedules.number AND p.resumed_at IS NULL)"
    held = " OR ".join(_wrong(column, _INT, or_null=False) for column in ("held_since", "can_expire"))
    is_broken = f"({_wrong('candidate', _INT, or_null=True)} OR (candidate IS NOT NULL AND ({held}"
    is_broken += f" OR held_reason IS NULL OR ({_is_no_object('held_reason')})"
    is_broken += " OR coalesce(json_type(held_reason, '$.code'), '') <> 'text')))"
    connection.execute(
        "UPDATE schedules SET candidate = NULL, held_since = NULL, can_expire = NULL, waits_for = NULL, held_reason = NULL"
        f" WHERE number = ? AND {is_broken}",
        (number,),
    )
    changes = [
        ("watermark", f"max(coalesce({last}, {created}), coalesce(candidate, 0))", _wrong("watermark", _INT, or_null=False)),
        ("effective_from", "watermark", _wrong("effective_from", _INT, or_null=False)),
        ("anchor", f"{created} / 1000000 * 1000000", _wrong("anchor", _INT, or_null=False)),
        ("paused_at", paused, _wrong("paused_at", _INT, or_null=True)),
        ("is_disordered", "1", _wrong("is_disordered", _INT, or_null=False)),
        ("held_reason", "NULL", f"candidate IS NULL AND {_is_no_object('held_reason')}"),
        *_cleared("next_instant wake_at last_admission passing_until held_since can_expire waits_for horizon"),
    ]
    _put(connection, "schedules", "number = ?", [number], changes)


def restore_revision(
    connection: sqlite3.Connection,
    number: int,
    revision: int,
    *,
    digest: str,
    content: str,
    plain: Mapping[str, Json],
    max_run: int | None,
) -> bool:
    """Write a content whose digest is the one recorded into a saved revision; return False where that is not there."""
    changed = connection.execute(
        "UPDATE revisions SET content = ?, digest = ?, plain = ? WHERE definition = ? AND revision = ?",
        (content, digest, json.dumps(plain, ensure_ascii=False, separators=(",", ":")), number, revision),
    )
    key, where = [number, revision], "definition = ? AND revision = ?"
    texts = [(column, "'unknown'", _wrong(column, _TEXT, or_null=False)) for column in ("actor", "croniter", "tz_database")]
    created = "(SELECT created_at FROM definitions d WHERE d.number = revisions.definition)"
    limit = "NULL" if max_run is None else str(max_run)
    changes = [
        *texts,
        ("recorded_at", created, _wrong("recorded_at", _INT, or_null=False)),
        ("max_run", limit, f"({_wrong('max_run', _INT, or_null=True)} OR max_run NOT BETWEEN 0 AND {LONGEST})"),
        ("begins", "NULL", _wrong("begins", _INT, or_null=True)),
    ]
    _put(connection, "revisions", where, key, changes)
    return changed.rowcount == 1

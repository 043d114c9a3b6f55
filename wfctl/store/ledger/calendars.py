"""What is asked of cron schedules whose calendars may be others by now: many at a time, and nothing parsed that need not be."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from wfctl.value import Value


class CronRow(Value):
    """One cron schedule. Times are microseconds."""

    number: int
    revision: int
    trigger: tuple[str, str] | None  #: expression and zone; None: not to be told without reading all of it
    floor: int
    next_instant: int | None
    wake_at: int | None
    is_paused: bool


_EXPRESSION, _ZONE, _KIND = (
    f"CASE WHEN json_valid(r.plain) THEN json_extract(r.plain, '$.trigger.{name}') END"
    for name in ("expression", "timezone", "kind")
)
_ROWS = f"""
SELECT s.number AS number, d.revision AS revision, s.watermark AS watermark, s.effective_from AS effective_from,
  s.next_instant AS next_instant, s.wake_at AS wake_at, s.paused_at IS NOT NULL AS is_paused, s.candidate AS candidate,
  r.content AS content, {_EXPRESSION} AS expression, {_ZONE} AS zone
FROM schedules s JOIN definitions d ON d.number = s.number JOIN definitions p ON p.number = s.deployment
LEFT JOIN revisions r ON r.definition = d.number AND r.revision = d.revision
WHERE s.number > ? AND d.deleted_at IS NULL AND d.diagnostic IS NULL AND p.diagnostic IS NULL
  AND ({_KIND} IN ('interval', 'oneshot')) IS NOT TRUE
ORDER BY s.number LIMIT ?
"""
_IS_PLAIN = """
candidate IS NULL AND typeof(watermark) = 'integer' AND typeof(effective_from) = 'integer'
AND typeof(expression) = 'text' AND instr(content, '"' || expression || '"') > 0
AND typeof(zone) = 'text' AND (instr(content, '"' || zone || '"') > 0 OR (zone = 'UTC' AND instr(content, 'timezone') = 0))
"""


def cron_rows(connection: sqlite3.Connection, *, after: int, limit: int) -> list[CronRow]:
    """Return the live, unblocked cron schedules with higher numbers, ascending.

    The parsed form of a revision is taken at its word where its text has the same words, and where no candidate is held.
    """
    found = connection.execute(
        "SELECT number, revision, expression, zone, max(watermark, effective_from), next_instant, wake_at, is_paused,"
        f" {_IS_PLAIN} FROM ({_ROWS})",
        (after, limit),
    )
    return [
        CronRow(
            number=number,
            revision=revision,
            trigger=(expression, zone) if is_plain else None,
            floor=floor,
            next_instant=next_instant,
            wake_at=wake_at,
            is_paused=bool(is_paused),
        )
        for number, revision, expression, zone, floor, next_instant, wake_at, is_paused, is_plain in found
    ]


def renew_wakes(connection: sqlite3.Connection, changed: Iterable[tuple[CronRow, int, int | None]]) -> None:
    """Write next instant, and when attention is due, of schedules that still stand where they stood."""
    connection.executemany(
        "UPDATE schedules SET next_instant = ?, wake_at = ? WHERE number = ? AND max(watermark, effective_from) = ?"
        " AND wake_at IS ? AND candidate IS NULL AND (paused_at IS NOT NULL) = ?"
        " AND EXISTS (SELECT 1 FROM definitions d WHERE d.number = schedules.number AND d.revision = ?)",
        [
            (coming, wake_at, row.number, row.floor, row.wake_at, row.is_paused, row.revision)
            for row, coming, wake_at in changed
        ],
    )

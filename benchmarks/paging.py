#!/usr/bin/env python3
"""A long history read page by page: is the last page as fast as the first, warm, cold, and as a whole command?

python benchmarks/paging.py [--rows 1000000] [--schedules 1000] [--runs 30] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import many
import startup

if TYPE_CHECKING:
    from wfctl import Store

PAGE = 100
COMPARED = 100  #: pages at each end
COLD = 7  #: pages at each end that are read from the disk
BEGIN = datetime(2020, 1, 1, tzinfo=UTC)


def main() -> int:
    """Measure, print, and return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--schedules", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=30, help="of the whole command, and of what it is held against")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.rows < 2 * PAGE * COMPARED:
        parser.error(f"--rows must be at least {2 * PAGE * COMPARED}")
    with tempfile.TemporaryDirectory(prefix="wfctl-paging-") as directory:
        result = measure(Path(directory), options.rows, options.schedules, options.runs)
    if options.json:
        print(json.dumps(result, indent=2))
        return 0
    print(f"{options.rows} occurrences of {options.schedules} schedules, {PAGE} a page; medians in milliseconds")
    for name, value in result["ms"].items():
        print(f"  {name.replace('_', ' '):<32}{value:>10.3f}")
    for name, value in result["ratio"].items():
        print(f"  {name.replace('_', ' '):<32}{value:>9.2f}x")
    return 0


def measure(directory: Path, rows: int, schedules: int, runs: int) -> dict[str, Any]:
    """Return the median times of pages at both ends, in milliseconds, and their ratios."""
    from wfctl import open_store

    root = directory / "store"
    many.make(root, schedules)
    fill_many(root / "ledger.db", rows, schedules)
    ms: dict[str, float] = {}
    with open_store(root) as store:
        cursors = Cursors(store)
        some = many.name_of(schedules // 2)
        for what, name, count in (("all", None, rows), ("one_schedule", some, rows // schedules)):
            pages = min(COMPARED, count // PAGE // 2)
            for end, start in (("first", 0), ("last", count - pages * PAGE)):
                after = start if name is None else start * schedules + schedules // 2 + 1 - schedules
                ms[f"{what}_{end}"] = middle(time_pages(store, name, cursors.at(name, max(0, after)), pages))
    for end, after in (("first", 0), ("last", rows - PAGE * COMPARED)):
        ms[f"all_{end}_cold"] = middle([time_cold(root, after) for _ in range(COLD)])
    ms["all_last_plain_sql"] = time_sql(root / "ledger.db", rows, "place > ? ORDER BY place LIMIT ?")
    ms["all_last_by_offset"] = time_sql(root / "ledger.db", rows, "1 ORDER BY place LIMIT ?2 OFFSET ?1")
    command = startup.beside_hello(directory, {"occurrences": ["wfctl", "occurrences", "--limit", str(PAGE)]}, runs)
    ratio = {
        "all_last_to_first": ms["all_last"] / ms["all_first"],
        "all_last_to_first_cold": ms["all_last_cold"] / ms["all_first_cold"],
        "one_schedule_last_to_first": ms["one_schedule_last"] / ms["one_schedule_first"],
        "all_last_to_plain_sql": ms["all_last"] / ms["all_last_plain_sql"],
        "offset_to_all_last": ms["all_last_by_offset"] / ms["all_last"],
        "whole_command_to_hello_world": command["occurrences"]["ratio"],
    }
    return {"rows": rows, "schedules": schedules, "page": PAGE, "ms": ms, "ratio": ratio}


class Cursors:
    """Cursors to any place of a listing: as the listing itself makes them."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def at(self, schedule: str | None, place: int) -> str | None:
        """Return the cursor behind a place."""
        from wfctl.operations import cursors, listing

        scopes: list[Any] = []
        listing.make_cursor = lambda scope, position: scopes.append(scope) or cursors.make_cursor(scope, position)
        try:
            self._store.list_schedule_occurrences(schedule_id=schedule, limit=1)
        finally:
            listing.make_cursor = cursors.make_cursor
        return cursors.make_cursor(scopes[0], {"place": place}) if place else None


def fill_many(path: Path, rows: int, schedules: int) -> None:
    """Give each schedule its part of so many settled occurrences, recorded in turn. Indexes are made when all is there."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("PRAGMA cache_size = -400000")
    indexes = connection.execute(
        "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND tbl_name = 'occurrences' AND sql IS NOT NULL"
    ).fetchall()
    connection.execute("BEGIN")
    for name, _ in indexes:
        connection.execute(f"DROP INDEX {name}")
    first = connection.execute("SELECT min(number) FROM schedules").fetchone()[0]
    begin = int(BEGIN.timestamp()) * 1_000_000
    for number in range(schedules):
        connection.execute(
            "WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < :count)"
            " INSERT INTO occurrences (schedule, place, instant, status, revision, recorded_at, lateness, run, reason)"
            " SELECT :schedule, i * :schedules + :number + 1, :begin + i * 60000000, iif(i % 4, 1, 2), 1,"
            " :begin + i * 60000000 + 3000, iif(i % 4, 3000, 0), iif(i % 4, i * :schedules + :number + 1, NULL),"
            ' iif(i % 4, NULL, \'{"code":"overlap","runs":["run-000001"],"limit":1}\') FROM n',
            {"count": rows // schedules, "schedule": first + number, "schedules": schedules, "number": number, "begin": begin},
        )
    connection.execute("UPDATE counters SET occurrence = ?, run = ?", (rows, rows))
    for _, sql in indexes:
        connection.execute(sql)
    connection.execute("COMMIT")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


def time_pages(store: Store, schedule: str | None, cursor: str | None, count: int) -> list[float]:
    """Read so many pages from a cursor on, and return how many seconds each took."""
    times: list[float] = []
    for _ in range(count):
        seconds, page = timed(lambda at=cursor: store.list_schedule_occurrences(schedule_id=schedule, limit=PAGE, cursor=at))
        times.append(seconds)
        cursor = page.next_cursor
    return times


def time_cold(root: Path, after: int) -> float:
    """Read one page by a connection that knows nothing of a file that is not in memory; return the seconds."""
    from wfctl import open_store

    with open_store(root) as store:
        cursor = Cursors(store).at(None, after)
    with (root / "ledger.db").open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    with open_store(root) as store:
        return timed(lambda: store.list_schedule_occurrences(limit=PAGE, cursor=cursor))[0]


def middle(seconds: list[float]) -> float:
    """Return the median in milliseconds."""
    return 1000 * statistics.median(seconds)


def time_sql(path: Path, rows: int, condition: str) -> float:
    """Fetch the last pages by plain SQL, from their places on, and return the median in milliseconds."""
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    sql = f"SELECT * FROM occurrences WHERE {condition}"
    starts = [rows - PAGE * number for number in range(COMPARED, 0, -1)]
    if "OFFSET" in condition:
        starts = starts[:: COMPARED // 10]  # each of them reads everything before it
    times = [timed(lambda at=start: connection.execute(sql, (at, PAGE)).fetchall())[0] for start in starts]
    connection.close()
    return 1000 * statistics.median(times)


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Return how many seconds a call took, and what it gave."""
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    sys.exit(main())

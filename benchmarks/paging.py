#!/usr/bin/env python3
"""A long history read page by page: is the last page as fast as the first?

python benchmarks/paging.py [--rows 1000000] [--json]
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wfctl import Store

PAGE = 100
COMPARED = 100  #: pages at each end
BATCH = 20_000
MINUTE = timedelta(minutes=1)
BEGIN = datetime(2020, 1, 1, tzinfo=UTC)


def main() -> int:
    """Measure, print, and return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.rows < 2 * PAGE * COMPARED:
        parser.error(f"--rows must be at least {2 * PAGE * COMPARED}")
    with tempfile.TemporaryDirectory(prefix="wfctl-paging-") as directory:
        result = measure(Path(directory) / "store", options.rows)
    if options.json:
        print(json.dumps(result, indent=2))
        return 0
    print(f"{options.rows} occurrences, {PAGE} a page; median of {COMPARED} pages in milliseconds")
    for name, value in result["ms"].items():
        print(f"  {name.replace('_', ' '):<24}{value:>10.3f}")
    for name, value in result["ratio"].items():
        print(f"  {name.replace('_', ' '):<24}{value:>9.2f}x")
    return 0


def measure(root: Path, rows: int) -> dict[str, Any]:
    """Return the median times of pages at both ends, in milliseconds, and what they are beside plain SQL."""
    from wfctl import init_store

    with init_store(root) as store:
        fill(store, rows)
        times = time_pages(store)
    ms = {
        "first_pages": 1000 * statistics.median(times[:COMPARED]),
        "last_pages": 1000 * statistics.median(times[-COMPARED:]),
        "last_pages_plain_sql": time_sql(root / "ledger.db", rows, "place > ? ORDER BY place LIMIT ?"),
        "last_pages_by_offset": time_sql(root / "ledger.db", rows, "1 ORDER BY place LIMIT ?2 OFFSET ?1"),
    }
    ratio = {
        "last_to_first": ms["last_pages"] / ms["first_pages"],
        "last_to_plain_sql": ms["last_pages"] / ms["last_pages_plain_sql"],
        "offset_to_last": ms["last_pages_by_offset"] / ms["last_pages"],
    }
    return {"rows": rows, "page": PAGE, "ms": ms, "ratio": ratio}


def fill(store: Store, rows: int) -> None:
    """Give the store a schedule with that many settled occurrences, in the proportions of a busy one."""
    from wfctl.core.model import Settlement, Status
    from wfctl.store.ledger import definitions, occurrences

    store.create_deployment(deployment_id="nothing", command=["/bin/true"])
    trigger = {"kind": "cron", "expression": "* * * * *"}
    store.create_schedule(schedule_id="each-minute", deployment_id="nothing", trigger=trigger)
    overlap = {"code": "overlap", "runs": ["run-000001"], "limit": 1}
    ledger = store.context.ledger
    row = definitions.find(ledger.connection, "schedule", "each-minute")
    assert row is not None
    for start in range(0, rows, BATCH):
        numbers = range(start, min(start + BATCH, rows))
        settled = [
            Settlement(instant=BEGIN + i * MINUTE, status=Status.COMPLETED, run=i + 1, lateness=timedelta(milliseconds=3))
            if i % 4
            else Settlement(instant=BEGIN + i * MINUTE, status=Status.SKIPPED_OVERLAP, reason=overlap, lateness=timedelta())
            for i in numbers
        ]
        with ledger.transaction() as connection:
            first = occurrences.reserve_places(connection, len(settled))
            places = range(first, first + len(settled))
            occurrences.append(connection, row.number, settled, revision=1, recorded_at=BEGIN, places=places)


def time_pages(store: Store) -> list[float]:
    """Read the whole history with cursors and return how many seconds each page took."""
    times: list[float] = []
    cursor = None
    while True:
        seconds, page = timed(lambda at=cursor: store.list_schedule_occurrences(limit=PAGE, cursor=at))
        times.append(seconds)
        cursor = page.next_cursor
        if cursor is None:
            return times


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

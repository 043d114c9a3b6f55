#!/usr/bin/env python3
"""How large is the ledger beside bare tables of integers, and does `store gc` hold an admission up?

python benchmarks/ledger.py [--rows 1000000] [--schedules 1000] [--directories 20000] [--only size|gc] [--json FILE]
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import live
import many
import watched

SIZE_BOUND = 1.5
LATE_BOUND_MS = 50.0
ADMITTING = 10  #: schedules that come due each second
ALONE_S = 30.0  #: watched without gc before it, and after it at least
MINUTE = 60_000_000
NOTE = "[123456789012345]"  #: of a mark, as long as a real one
PROCESS = "[123456789012345,1234567,123456789]"  #: with what makes its process known


def main() -> int:
    """Measure, print, and return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--rows", type=int, default=1_000_000, help="completed occurrences, each with its run and one execution"
    )
    parser.add_argument("--schedules", type=int, default=1000, help="that they are of, in turn")
    parser.add_argument("--directories", type=int, default=20_000, help="how many of the oldest runs have a directory")
    parser.add_argument("--only", choices=["size", "gc"])
    parser.add_argument("--directory", type=Path, help="where the stores are made (default: the folder for temporary files)")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="wfctl-ledger-", dir=options.directory) as directory:
        result = measure(
            Path(directory),
            rows=options.rows,
            schedules=options.schedules,
            directories=options.directories,
            with_size=options.only != "gc",
            with_gc=options.only != "size",
        )
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    return show(result)


def measure(
    directory: Path,
    *,
    rows: int = 1_000_000,
    schedules: int = 1000,
    directories: int = 20_000,
    with_size: bool = True,
    with_gc: bool = True,
) -> dict[str, Any]:
    """Return sizes in megabytes by table and index, and lateness in milliseconds beside gc and without."""
    root, (job, stamps) = directory / "store", live.stamping(directory)
    many.make(root, schedules)
    before = megabytes(root / "ledger.db")
    history = History(rows // schedules, schedules)
    fill(root / "ledger.db", history, schedules)
    result: dict[str, Any] = {"rows": rows, "schedules": schedules}
    if with_size:
        bare = directory / "bare.db"
        run_rounds(bare, BARE, history, [BARE_ROWS], first=1)
        result["size"] = {"ledger_mb": megabytes(root / "ledger.db") - before, "bare_mb": megabytes(bare)}
        result["size"]["ratio"] = result["size"]["ledger_mb"] / result["size"]["bare_mb"]
        result["tables"] = {"ledger": by_name(root / "ledger.db"), "bare": by_name(bare)}
        bare.unlink()
    if with_gc:
        result["gc"] = measure_gc(root, history, job, stamps, directories)
    return result


def show(result: dict[str, Any]) -> int:
    """Print what was found, and return the exit status."""
    print(f"{result['rows']} completed occurrences of {result['schedules']} schedules, each with its run and one execution")
    verdicts = []
    if "size" in result:
        print(f"\n{'megabytes':<34}{'ledger':>10}{'bare':>10}")
        tables = result["tables"]
        for name, size in tables["ledger"].items():
            bare = tables["bare"].get(name)
            print(f"{name:<34}{size:>10.1f}{'' if bare is None else f'{bare:.1f}':>10}")
        size = result["size"]
        print(f"{'all':<34}{size['ledger_mb']:>10.1f}{size['bare_mb']:>10.1f}")
        verdicts.append(("10 size", size["ratio"], SIZE_BOUND, "ratio"))
    if "gc" in result:
        found = result["gc"]
        print(
            f"\ngc let {found['occurrences']} occurrences and {found['runs']} runs go in {found['seconds']:.1f} s;"
            f" the file had {found['file_before_mb']:.1f} MB, and {found['file_after_mb']:.1f} MB after it"
        )
        print(f"{'lateness, milliseconds':<34}{'median':>10}{'p99':>10}{'most':>10}{'runs':>10}")
        for name in ("alone", "beside_gc"):
            side = found[name]
            print(
                f"{name.replace('_', ' '):<34}{side['median']:>10.1f}{side['p99']:>10.1f}"
                f"{side['most']:>10.1f}{side['count']:>10}"
            )
        verdicts.append(("10 gc", found["beside_gc"]["most"], LATE_BOUND_MS, "most ms"))
    print()
    for name, value, bound, what in verdicts:
        print(f"row {name}: {what} {value:.2f}, bound {bound:g}: {'met' if value <= bound else 'missed'}")
    return int(any(value > bound for _, value, bound, _ in verdicts))


# A history --------------------------------------------------------------------------------------------------------------


class History:
    """Schedules that come due together each minute until now; each instant has a run that completed."""

    def __init__(self, rounds: int, schedules: int) -> None:
        self.rounds = rounds
        self.schedules = schedules
        self.begin = (int(time.time()) // 60 - rounds) * MINUTE

    @property
    def middle(self) -> datetime:
        """When half of it was over."""
        return datetime.fromtimestamp((self.begin + self.rounds // 2 * MINUTE - MINUTE // 2) / 1e6, UTC)

    def values(self, first: int) -> Iterator[dict[str, int]]:
        """Give the values of each round; `first` is the number of the first schedule."""
        for number in range(self.rounds):
            low = number * self.schedules + 1
            yield {"at": self.begin + number * MINUTE, "low": low, "high": low + self.schedules - 1, "first": first - low}


#: As the ledger's own code writes them: admitted together, seen to run, completed.
ADMITTED = (
    """INSERT INTO occurrences (schedule, place, instant, status, revision, recorded_at, lateness, run) SELECT :first +
    i, i, :at, 11, 1, :at + 300 + i % 700, 300 + i % 700, i FROM numbers WHERE i BETWEEN :low AND :high""",
    """INSERT INTO runs (number, schedule, instant, revision, deployment, deployment_revision, status, attempt,
    admitted_at, max_run) SELECT i, :first + i, :at, 1, 1, 1, 11, 1, :at + 300 + i % 700, 300000000 FROM numbers
    WHERE i BETWEEN :low AND :high""",
    f"""INSERT INTO executions (run, k, step, attempt, mark, origin) SELECT i, 1, 0, 1, '{NOTE}', 1 FROM numbers WHERE i
    BETWEEN :low AND :high""",
)
RUNNING = (
    """UPDATE runs SET status = 12, started_at = :at + 9000 + number % 5000 WHERE number BETWEEN :low AND :high""",
    f"""UPDATE executions SET started_at = :at + 9000 + run % 5000, mark = '{PROCESS}' WHERE run BETWEEN :low AND :high""",
    """UPDATE occurrences SET status = 12 WHERE place BETWEEN :low AND :high""",
)
COMPLETED = (
    """UPDATE runs SET status = 1, ended_at = :at + 20000 + number % 5000 WHERE number BETWEEN :low AND :high""",
    """UPDATE executions SET how = 1, ended_at = :at + 20000 + run % 5000, exit_status = 0, cpu = 500 + run % 400,
    max_rss = 13578240, left_behind = 0, mark = NULL, origin = NULL WHERE run BETWEEN :low AND :high""",
    """UPDATE occurrences SET status = 1 WHERE place BETWEEN :low AND :high""",
)

#: The same facts in tables of nothing but integers, with the same keys and the same ways to list them. Left out is what
#: such a history never needs: reasons, spans, outputs, interrupts, stops, inputs of resumes, marks, statuses that are rare.
BARE = """
CREATE TABLE occurrences (
  schedule INTEGER NOT NULL, place INTEGER NOT NULL, instant INTEGER NOT NULL, status INTEGER NOT NULL,
  revision INTEGER NOT NULL, recorded_at INTEGER NOT NULL, lateness INTEGER, run INTEGER, PRIMARY KEY (schedule, place)
) WITHOUT ROWID;
CREATE UNIQUE INDEX occurrences_by_instant ON occurrences (schedule, instant);
CREATE UNIQUE INDEX occurrences_by_place ON occurrences (place);
CREATE TABLE runs (
  number INTEGER PRIMARY KEY, schedule INTEGER, instant INTEGER, revision INTEGER, deployment INTEGER NOT NULL,
  deployment_revision INTEGER NOT NULL, status INTEGER NOT NULL, attempt INTEGER NOT NULL, admitted_at INTEGER NOT NULL,
  started_at INTEGER, ended_at INTEGER, max_run INTEGER
);
CREATE UNIQUE INDEX runs_by_occurrence ON runs (instant, schedule);
CREATE INDEX runs_by_schedule ON runs (schedule, number);
CREATE INDEX runs_by_deployment ON runs (deployment, number);
CREATE TABLE executions (
  run INTEGER NOT NULL, k INTEGER NOT NULL, step INTEGER NOT NULL, attempt INTEGER NOT NULL, how INTEGER, started_at INTEGER,
  ended_at INTEGER, exit_status INTEGER, signal INTEGER, cpu INTEGER, max_rss INTEGER, left_behind INTEGER,
  PRIMARY KEY (run, k)
) WITHOUT ROWID;
"""
BARE_ROWS = (
    """INSERT INTO occurrences SELECT :first + i, i, :at, 1, 1, :at + 300 + i % 700, 300 + i % 700, i FROM numbers
    WHERE i BETWEEN :low AND :high""",
    """INSERT INTO runs SELECT i, :first + i, :at, 1, 1, 1, 1, 1, :at + 300 + i % 700, :at + 9000 + i % 5000, :at +
    20000 + i % 5000, 300000000 FROM numbers WHERE i BETWEEN :low AND :high""",
    """INSERT INTO executions SELECT i, 1, 0, 1, 1, :at + 9000 + i % 5000, :at + 20000 + i % 5000, 0, NULL, 500 + i %
    400, 13578240, 0 FROM numbers WHERE i BETWEEN :low AND :high""",
)


def fill(path: Path, history: History, schedules: int) -> None:
    """Give the schedules of a store that history, in the order in which it would have come about."""
    connection = sqlite3.connect(path)
    first = connection.execute("SELECT min(number) FROM schedules").fetchone()[0]
    connection.close()
    run_rounds(path, "", history, [ADMITTED, RUNNING, COMPLETED], first=first)
    connection = sqlite3.connect(path)
    count = history.rounds * history.schedules
    connection.execute("UPDATE counters SET occurrence = ?, run = ?", (count, count))
    connection.commit()
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


def run_rounds(path: Path, tables: str, history: History, steps: Sequence[Sequence[str]], *, first: int) -> None:
    """Write a history round by round, each step of a round in a transaction of its own."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("PRAGMA cache_size = -1000000")
    connection.executescript(tables)
    connection.execute("CREATE TEMP TABLE numbers (i INTEGER PRIMARY KEY)")
    for values in history.values(first):
        connection.execute("DELETE FROM numbers")
        connection.execute(
            "WITH RECURSIVE n (i) AS (SELECT :low UNION ALL SELECT i + 1 FROM n WHERE i < :high)"
            " INSERT INTO numbers SELECT i FROM n",
            values,
        )
        for step in steps:
            connection.execute("BEGIN")
            for statement in step:
                connection.execute(statement, values)
            connection.execute("COMMIT")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


def megabytes(path: Path) -> float:
    """Return the size of a database, what is still in its write-ahead log included."""
    connection = sqlite3.connect(path)
    pages, size = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
    connection.close()
    return float(pages * size / 1e6)


def by_name(path: Path) -> dict[str, float]:
    """Return how many megabytes each table and index takes, the largest first; nothing where SQLite cannot tell."""
    connection = sqlite3.connect(path)
    try:
        found = connection.execute(
            "SELECT name, sum(pgsize) / 1e6 FROM dbstat GROUP BY name HAVING sum(pgsize) > 1000000 ORDER BY 2 DESC"
        )
        return dict(found.fetchall())
    except sqlite3.OperationalError:  # a library without `dbstat`
        return {}
    finally:
        connection.close()


# Letting half of it go --------------------------------------------------------------------------------------------------


def measure_gc(root: Path, history: History, job: list[str], stamps: Path, directories: int) -> dict[str, Any]:
    """Let half of the history go beside a supervisor that admits each second; return how late it was meanwhile and before."""
    from wfctl import open_store

    with open_store(root) as store:
        store.create_deployment(deployment_id="stamp", command=job)
        for number in range(ADMITTING):
            trigger = {"kind": "interval", "every": "1s"}
            store.create_schedule(schedule_id=f"each-second-{number}", deployment_id="stamp", trigger=trigger)
    make_directories(root, directories)
    before = megabytes(root / "ledger.db")
    with watched.supervised(root, "--max-concurrent-runs", "100"):
        time.sleep(3)
        times = [time.time()]
        time.sleep(ALONE_S)
        times.append(time.time())
        keep = int(time.time() - history.middle.timestamp())
        command = [
            sys.executable,
            "-m",
            "wfctl",
            "--store",
            str(root),
            "store",
            "gc",
            "--keep",
            f"{keep}s",
            "--yes",
            "-o",
            "json",
        ]
        environment = {**os.environ, "PYTHONPATH": str(watched.TREE)}
        said = subprocess.run(command, check=True, capture_output=True, env=environment).stdout
        times.append(time.time())
        # Alone for as long as beside it: the worst of a few is not that bad.
        time.sleep(max(ALONE_S, times[2] - times[1] - ALONE_S))
        times.append(time.time())
        time.sleep(1)
    after = megabytes(root / "ledger.db")
    check_shapes(root / "ledger.db", history.rounds * history.schedules)
    sides = [late(stamps, since, until) for since, until in itertools.pairwise(times)]
    view = json.loads(said)
    return {
        "occurrences": view["occurrences"],
        "runs": view["runs"],
        "seconds": times[2] - times[1],
        "alone": figures(sides[0] + sides[2]),
        "beside_gc": figures(sides[1]),
        "most_more_ms": max(sides[1], default=0.0) - max(sides[0] + sides[2], default=0.0),
        "file_before_mb": before,
        "file_after_mb": after,
    }


def make_directories(root: Path, count: int) -> None:
    """Give the oldest runs a directory, as a run leaves it."""
    for number in range(1, count + 1):
        directory = root / "runs" / f"run-{number:06d}"
        for part in ("1", "files", "work"):
            (directory / part).mkdir(mode=0o700, parents=True)
        for name, size in (("input.json", 3), ("run.json", 133), ("stdout.log", 40), ("stderr.log", 0), ("1/exit", 256)):
            (directory / name).write_bytes(b"x" * size)


def late(stamps: Path, since: float, until: float) -> list[float]:
    """Return how late each run was that came due meanwhile, in milliseconds."""
    return [each.lateness_ms for each in live.read_stamps(stamps, since=since, until=until)]


def figures(lateness: list[float]) -> dict[str, float]:
    """Return what is compared."""
    return {
        "count": len(lateness),
        "median": live.share(lateness, 0.5),
        "p99": live.share(lateness, 0.99),
        "most": max(lateness, default=0.0),
    }


def check_shapes(path: Path, made: int) -> None:
    """See that the rows made here are what a supervisor writes: each column of the same kind and nearly of its size."""
    connection = sqlite3.connect(path)
    connection.row_factory = sqlite3.Row
    for table, key in (("occurrences", "place"), ("runs", "number"), ("executions", "run")):
        query = f"SELECT * FROM {table} WHERE {key} <= ? ORDER BY {key} DESC LIMIT 1"
        one = connection.execute(query, (made,)).fetchone()
        real = connection.execute(
            f"SELECT * FROM {table} WHERE {key} > ? AND {'how' if table == 'executions' else 'status'} = 1 LIMIT 1", (made,)
        ).fetchone()
        for name in one.keys():  # noqa: SIM118
            if type(one[name]) is not type(real[name]):
                raise SystemExit(f"{table}.{name} is {one[name]!r} here, and {real[name]!r} where a supervisor wrote it")
    connection.close()


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    sys.exit(main())

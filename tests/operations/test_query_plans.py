"""What reading and stepping asks of SQLite: no statement reads through a table that grows (contract 5.2, 6.3, 8.1)."""

from __future__ import annotations

import itertools
import re
import sqlite3
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from tests.support.schedules import add, at
from tests.support.story import World
from wfctl.core.model import Settlement, Status
from wfctl.store.ledger import Ledger, occurrences, runs
from wfctl.store.ledger.numbers import STATUS_NUMBER
from wfctl.store.ledger.runs import NewRun

MINUTE = timedelta(minutes=1)
GROWING = {"occurrences", "runs", "executions", "revisions", "foreseen"}
SMALL = {"schedules", "definitions", "meta", "counters", "sessions", "pauses", "clock_events", "health", "notices"}
ALIASES = {"s": "schedules", "d": "definitions", "p": "definitions", "n": "notices"}
BOUNDED = {"runs_unfinished", "executions_unsettled"}  #: partial indexes over what is at work


class Recorder:
    """A connection that remembers each statement with one set of its values."""

    def __init__(self, real: sqlite3.Connection, seen: dict[str, Any]) -> None:
        self.real = real
        self.seen = seen

    def execute(self, statement: str, values: Any = ()) -> sqlite3.Cursor:
        self.seen.setdefault(statement, values)
        return self.real.execute(statement, values)

    def executemany(self, statement: str, rows: Any) -> sqlite3.Cursor:
        listed = list(rows)
        if listed:
            self.seen.setdefault(statement, listed[0])
        return self.real.executemany(statement, listed)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)


def record(ledger: Ledger, seen: dict[str, Any]) -> None:
    ledger._connection = Recorder(ledger.connection, seen)  # type: ignore[assignment]


STATUSES: list[Any] = [
    None,
    "pending",
    "completed",
    "failed",
    "running,failed",
    "completed,failed",
    "skipped-misfire,completed",
]
TIMES: list[dict[str, Any]] = [
    {},
    {"since": at("09:02")},
    {"until": at("09:30")},
    {"since": at("09:02"), "until": at("09:30")},
]


def read_everything(world: World) -> None:
    """Every listing with every kind of filter, a first and a following page, and every single thing."""
    store = world.store
    for name, since in itertools.product(("a", "b"), (None, at("09:02"))):
        assert store.audit_schedule(schedule_id=name, since=since).is_balanced
    for schedule, status, times, reverse in itertools.product((None, "a", ["a", "b"]), STATUSES, TIMES, (False, True)):
        asked = {**times, "reverse": reverse}
        page = store.list_schedule_occurrences(schedule_id=schedule, status=status, limit=1, **asked)
        if page.next_cursor:
            store.list_schedule_occurrences(schedule_id=schedule, status=status, limit=1, cursor=page.next_cursor, **asked)
        for deployment in (None, "d"):
            named = {"schedule_id": schedule, "deployment_id": deployment, "status": None if status == "pending" else status}
            if status is None or not {"pending", "skipped-misfire"} & set(status.split(",")):
                following = store.list_runs(limit=1, **named, **asked)
                if following.next_cursor:
                    store.list_runs(limit=1, cursor=following.next_cursor, **named, **asked)
    store.get_occurrence(schedule_id="a", instant=at("09:01"))
    store.get_occurrence(schedule_id="b", instant=at("10:30"))
    for run in store.list_runs(limit=100):
        store.inspect_run(run_id=run.run_id)
    store.list_revisions(schedule_id="a", limit=1)
    store.get_schedule(schedule_id="a")
    store.list_schedules(include_deleted=True)
    store.get_deployment(deployment_id="d")
    store.list_deployments()


def tell_a_story(world: World, seen: dict[str, Any]) -> None:
    """Candidates, retries, catching up, edits, pauses, a clock event, a restart: whatever a supervisor does."""
    add(world.store, "a", overlap="queue")
    add(world.store, "b", misfire="latest", overlap="parallel", max_active_runs=2)
    record(world.store.context.ledger, seen)
    world.step()
    record(world._service.context.ledger, seen)  # type: ignore[union-attr]
    for _ in range(3):
        world.clock.advance(MINUTE)
        world.step()
    world.end(exit_status=3)
    world.step()
    world.store.update_schedule(schedule_id="a", expected_revision=1, lateness="5m")
    world.store.update_schedule(schedule_id="a", expected_revision=2, trigger={"kind": "interval", "every": "1m"})
    world.clock.advance(timedelta(hours=9))
    world.step()
    world.end()
    world.step()
    for name in ("a", "b"):
        world.store.pause_schedule(schedule_id=name)
        world.store.resume_schedule(schedule_id=name)
    world.clock.set(at("13:00:30"))  # five hours back: begun anew, spans cut
    world.step()
    world.clock.set(at("20:00:30"))  # and over what was admitted
    world.step()
    read_everything(world)
    (world.root / "schedules" / "b.toml").unlink()
    world.store.list_schedules()
    world.store.cancel_run(run_id=world.store.list_runs(status="running", limit=1).items[0].run_id)
    world.step()
    world.store.delete_schedule(schedule_id="a")
    world.die()
    record(world.store.context.ledger, seen)
    world.step()


@pytest.fixture(scope="module")
def statements(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[sqlite3.Connection, dict[str, Any]]]:
    from wfctl.operations.store import init_store

    root = tmp_path_factory.mktemp("plans") / "store"
    init_store(root).close()
    world = World(root)
    seen: dict[str, Any] = {}
    tell_a_story(world, seen)
    connection = sqlite3.connect(root / "ledger.db")
    yield connection, seen
    connection.close()
    world.die()


def plan_of(connection: sqlite3.Connection, statement: str, values: Any) -> list[str]:
    return [detail for *_, detail in connection.execute(f"EXPLAIN QUERY PLAN {statement}", values)]


def _scanned(detail: str) -> str | None:
    """The table that a line of a plan reads through, unless by a small partial index."""
    match = re.match(r"SCAN (\w+)(?: USING (?:COVERING )?INDEX (\w+))?", detail)
    if match is None or match[2] in BOUNDED:
        return None
    return ALIASES.get(match[1], match[1])


def _queries(seen: dict[str, Any]) -> dict[str, Any]:
    return {text: values for text, values in seen.items() if re.match(r"\s*(SELECT|UPDATE|DELETE|INSERT)", text)}


def test_the_story_reaches_every_table(statements: tuple[sqlite3.Connection, dict[str, Any]]) -> None:
    _, seen = statements
    asked = " ".join(_queries(seen))
    assert all(f" {table}" in asked for table in GROWING | {"pauses", "clock_events"})
    assert len(_queries(seen)) > 60


def test_no_statement_reads_through_a_table_that_grows(statements: tuple[sqlite3.Connection, dict[str, Any]]) -> None:
    connection, seen = statements
    bad = []
    for text, values in _queries(seen).items():
        scanned = {table for detail in plan_of(connection, text, values) if (table := _scanned(detail))}
        if scanned & GROWING:
            bad.append((text, plan_of(connection, text, values)))
        unknown = {table for table in scanned - GROWING - SMALL if not table.isdigit() and table != "CONSTANT"}
        assert not unknown, (text, unknown)
    assert not bad, "\n".join(f"{text}\n    {detail}" for text, detail in bad)


def test_no_page_is_sorted(statements: tuple[sqlite3.Connection, dict[str, Any]]) -> None:
    """A page comes in the order of an index: nothing is gathered first and sorted then."""
    connection, seen = statements
    paged = {
        text: values for text, values in _queries(seen).items() if re.search(r"FROM (occurrences|runs|revisions).* LIMIT", text)
    }
    assert len(paged) > 10
    for text, values in paged.items():
        assert not [detail for detail in plan_of(connection, text, values) if "TEMP B-TREE" in detail], text


# The work itself, counted --------------------------------------------------------------------------------------------------

ROWS = 12_000
_TICK = 100


def work(ledger: Ledger, act: Callable[[], object]) -> int:
    """Return about how many instructions of SQLite's machine an act takes."""
    ticks = itertools.count()
    ledger.connection.set_progress_handler(lambda: next(ticks) and 0, _TICK)
    try:
        act()
    finally:
        ledger.connection.set_progress_handler(None, 0)
    return next(ticks) * _TICK


@pytest.fixture(scope="module")
def years(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Three schedules with thousands of rows and runs; `rare` has few."""
    from wfctl.operations.store import init_store

    root = tmp_path_factory.mktemp("years") / "store"
    init_store(root).close()
    world = World(root)
    for name in ("a", "b", "rare"):
        add(world.store, name)
    first = world.clock.now() - ROWS * MINUTE
    with world.store.context.ledger.transaction() as connection:
        place, number = 0, 0
        for schedule, count in ((2, ROWS), (3, ROWS), (4, 40)):
            rows, new = [], []
            for i in range(count):
                instant = first + i * MINUTE
                number += i % 4 == 0
                run = number if i % 4 == 0 else None
                status = (Status.FAILED if i % 2000 == 0 else Status.COMPLETED) if run else Status.SKIPPED_OVERLAP
                rows.append(Settlement(instant=instant, status=status, run=run))
                if run:
                    new.append(
                        NewRun(
                            number=run,
                            schedule=schedule,
                            instant=instant,
                            revision=1,
                            deployment=1,
                            deployment_revision=1,
                            admitted_at=instant,
                            max_run=None,
                            max_steps=None,
                            input=None,
                        )
                    )
            places = range(place + 1, place + 1 + count)
            place += count
            occurrences.append(connection, schedule, rows, revision=1, recorded_at=first, places=places)
            runs.insert(connection, new)
        occurrences.reserve_places(connection, place)
        connection.execute("UPDATE runs SET status = ?", (STATUS_NUMBER[Status.COMPLETED],))
        connection.execute("UPDATE runs SET status = ? WHERE number % 500 = 1", (STATUS_NUMBER[Status.FAILED],))
    yield world
    world.die()


MIDDLE = {"since": at("09:00") - 4000 * MINUTE, "until": at("09:00") - 3000 * MINUTE}


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"schedule_id": "a"},
        {"schedule_id": ["a", "b", "rare"]},
        {"schedule_id": "b", "status": "failed"},
        {"status": "failed,cancelled"},
        {"status": "running"},
        {"schedule_id": "a", **MIDDLE},
        {"schedule_id": "a", "status": "completed", **MIDDLE},
        MIDDLE,
        {"since": at("09:00") - MINUTE},
        {"until": at("09:00") - (ROWS - 10) * MINUTE},
        {"since": at("10:00", day=2)},
    ],
    ids=str,
)
def test_8_1_a_page_costs_its_rows_wherever_it_lies(years: World, asked: dict[str, Any]) -> None:
    ledger, cursors = years.store.context.ledger, [None]

    def page() -> None:
        found = years.store.list_schedule_occurrences(limit=20, cursor=cursors[-1], **asked)
        cursors.append(found.next_cursor)  # type: ignore[arg-type]

    assert work(ledger, page) < 20_000
    if cursors[-1]:
        assert work(ledger, page) < 20_000


@pytest.mark.parametrize(
    "asked",
    [{}, {"schedule_id": "a"}, {"status": "failed"}, {"schedule_id": "b", "status": "failed"}, {"status": "running"}],
    ids=str,
)
def test_8_1_a_page_of_runs_costs_its_rows(years: World, asked: dict[str, Any]) -> None:
    assert work(years.store.context.ledger, lambda: years.store.list_runs(limit=20, **asked)) < 20_000


def test_a_step_costs_what_is_due_however_long_the_history_is(years: World) -> None:
    years.step()
    years.clock.advance(MINUTE)
    ledger = years._service.context.ledger  # type: ignore[union-attr]
    assert work(ledger, years.step) < 20_000
    years.end()
    assert work(ledger, years.step) < 20_000
    assert work(ledger, years.step) < 5_000, "a step with nothing to do"
    found = years.store.context.ledger
    assert work(found, lambda: years.store.inspect_run(run_id="run-000100")) < 2_000
    assert work(found, lambda: years.store.get_occurrence(schedule_id="a", instant=at("09:01"))) < 2_000

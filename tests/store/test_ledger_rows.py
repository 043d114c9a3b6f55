"""What the ledger itself holds to: one run an occurrence, compare-and-set, numbers that only grow (2.8, 6.1, 6.2, 6.6)."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from wfctl.core.model import Candidate, Settlement, Span, Status
from wfctl.core.steps import Ended
from wfctl.errors import DamagedStore
from wfctl.store.ledger import Ledger, admissions, definitions, executions, occurrences, runs, schedules, sessions
from wfctl.store.ledger.numbers import ENDED_NUMBER, RARE, STATUS_NUMBER
from wfctl.store.ledger.rows import UnreadableRow
from wfctl.store.ledger.runs import NewRun

NOON = datetime(2027, 3, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    """A ledger with deployment 1 and schedule 2."""
    Ledger.create(tmp_path / "ledger.db")
    found = Ledger(tmp_path / "ledger.db")
    with found.transaction() as connection:
        assert definitions.insert(connection, "deployment", "d", created_at=0) == 1
        assert definitions.insert(connection, "schedule", "s", created_at=0) == 2
        schedules.insert(connection, 2, deployment=1, now=NOON, anchor=NOON, next_instant=None)
    yield found
    found.close()


def new_run(number: int, instant: datetime | None = NOON, schedule: int | None = 2) -> NewRun:
    return NewRun(
        number=number, schedule=schedule, instant=instant, revision=1, deployment=1, deployment_revision=1,
        admitted_at=NOON, max_run=None, max_steps=None, input=None,
    )  # fmt: skip


def record(ledger: Ledger, *rows: Settlement) -> None:
    with ledger.transaction() as connection:
        first = occurrences.reserve_places(connection, len(rows))
        places = range(first, first + len(rows))
        occurrences.append(connection, 2, rows, revision=1, recorded_at=NOON, places=places)


def settled(minutes: int, status: Status = Status.SKIPPED_MISFIRE, **more: object) -> Settlement:
    return Settlement(instant=NOON + minutes * MINUTE, status=status, **more)  # type: ignore[arg-type]


def test_6_1_one_run_an_occurrence_by_constraint(ledger: Ledger) -> None:
    with ledger.transaction() as connection:
        runs.insert(connection, [new_run(1)])
    with pytest.raises(DamagedStore), ledger.transaction() as connection:
        runs.insert(connection, [new_run(2)])
    with pytest.raises(sqlite3.IntegrityError):  # the ledger's own, whoever writes
        ledger.connection.execute(
            "INSERT INTO runs (number, schedule, instant, deployment, deployment_revision, status, attempt, admitted_at)"
            " SELECT 9, schedule, instant, deployment, deployment_revision, status, attempt, admitted_at FROM runs"
        )
    assert [run.number for run in runs.unfinished(ledger.connection)] == [1]


def test_6_12_manual_runs_have_no_occurrence_to_clash_over(ledger: Ledger) -> None:
    with ledger.transaction() as connection:
        runs.insert(connection, [new_run(1, None, None), new_run(2, None, None)])
    assert runs.active_of(ledger.connection, 2) == () and runs.slots_used(ledger.connection) == 0


def test_1_one_row_an_occurrence_by_constraint(ledger: Ledger) -> None:
    record(ledger, settled(1))
    with pytest.raises(DamagedStore):
        record(ledger, settled(1, Status.COALESCED))


def test_6_2_a_mark_is_unique(ledger: Ledger) -> None:
    with ledger.transaction() as connection:
        runs.insert(connection, [new_run(1)])
        executions.mark(connection, [(1, 1, 0, 1)], {})
    with pytest.raises(DamagedStore), ledger.transaction() as connection:
        executions.mark(connection, [(1, 1, 1, 1)], {})


def test_2_8_ids_are_never_reused_by_constraint(ledger: Ledger) -> None:
    with ledger.transaction() as connection:
        definitions.mark_deleted(connection, 2, at=1)
    with pytest.raises(DamagedStore), ledger.transaction() as connection:
        definitions.insert(connection, "schedule", "s", created_at=2)
    with ledger.transaction() as connection:
        assert definitions.insert(connection, "deployment", "s", created_at=2) == 3, "the kinds have names of their own"


def test_2_5_foreign_keys_hold(ledger: Ledger) -> None:
    with pytest.raises(DamagedStore), ledger.transaction() as connection:
        schedules.insert(connection, 77, deployment=1, now=NOON, anchor=NOON, next_instant=None)
    with pytest.raises(DamagedStore), ledger.transaction() as connection:
        schedules.set_deployment(connection, 2, 99)


def test_6_1_run_numbers_only_grow(ledger: Ledger) -> None:
    with ledger.transaction() as connection:
        runs.insert(connection, [new_run(1), new_run(2, NOON + MINUTE)])
        assert runs.next_number(connection) == 3
        connection.execute("DELETE FROM runs")
        assert runs.next_number(connection) == 3


def test_8_2_places_only_grow(ledger: Ledger) -> None:
    with ledger.transaction() as connection:
        assert occurrences.reserve_places(connection, 3) == 1
        assert occurrences.reserve_places(connection, 1) == 4


def test_6_6_of_cancel_and_end_one_wins(ledger: Ledger) -> None:
    with ledger.transaction() as connection:
        runs.insert(connection, [new_run(1)])
    read = runs.find(ledger.connection, 1)
    assert read is not None
    with ledger.transaction() as connection:
        assert runs.change_status(connection, read, Status.COMPLETED, ended_at=NOON)
        assert not runs.change_status(connection, read, Status.CANCELLED, ended_at=NOON + MINUTE)
    found = runs.find(ledger.connection, 1)
    assert found is not None and (found.status, found.ended_at) == (Status.COMPLETED, NOON)


def test_6_11_the_first_recorded_stop_stays_and_none_is_recorded_after_the_end(ledger: Ledger) -> None:
    with ledger.transaction() as connection:
        runs.insert(connection, [new_run(1)])
        assert runs.record_stop(connection, 1, {"code": "deadline"})
        assert not runs.record_stop(connection, 1, {"code": "cancelled"})
        row = runs.find(connection, 1)
        assert row is not None and row.stop == {"code": "deadline"}
        runs.change_status(connection, row, Status.FAILED)
        connection.execute("UPDATE runs SET stop = NULL")
        assert not runs.record_stop(connection, 1, {"code": "cancelled"})


def test_6_11_of_two_who_know_an_end_the_first_wins(ledger: Ledger) -> None:
    with ledger.transaction() as connection:
        runs.insert(connection, [new_run(1)])
        executions.mark(connection, [(1, 1, 0, 1)], {"boot": "b"})
        row = executions.find(connection, 1, 1)
        assert row is not None and [each.k for each in executions.unsettled(connection)] == [1]
        assert executions.settle(connection, row, how=Ended.EXITED, started_at=NOON, ended_at=NOON, exit_status=0)
        assert not executions.settle(connection, row, how=Ended.ABANDONED, started_at=None, ended_at=NOON)
        assert not executions.record_stop(connection, row, {"code": "timeout"})
        found = executions.find(connection, 1, 1)
    assert found is not None and found.how is Ended.EXITED and found.mark == {}
    assert executions.unsettled(ledger.connection) == []


NOTE = {"boot": "0a1b2c3d-0a1b-4a1b-8a1b-0a1b2c3d4e5f", "since_ns": 123_456_789_012_345, "keeper": "store", "protocol": 2}
PROCESS = {"pid": 4_194_303, "start_time": 123_456_789, "boot": NOTE["boot"]}


@pytest.mark.parametrize(
    ("note", "more", "is_short"),
    [
        pytest.param(NOTE, PROCESS, True, id="of a process"),
        pytest.param({**NOTE, "job": "17"}, {"node": "n1"}, False, id="with what only another version writes"),
        pytest.param({}, PROCESS, False, id="without the time of the mark"),
    ],
)
def test_6_2_a_mark_keeps_its_note_until_it_is_settled(
    ledger: Ledger, note: dict[str, Any], more: dict[str, Any], is_short: bool
) -> None:
    with ledger.transaction() as connection:
        executions.mark(connection, [(1, 1, 0, 1), (2, 1, 0, 1)], note)
        row = executions.find(connection, 1, 1)
        assert row is not None and row.mark == note and executions.unsettled(connection)[1].mark == note
        executions.note_started(connection, row, started_at=NOON, identity=more)
        row = executions.find(connection, 1, 1)
        assert row is not None and row.mark == {**note, **more}
        written = connection.execute("SELECT length(mark) FROM executions ORDER BY run").fetchall()
        assert not is_short or (written[0][0] < 40 and written[1][0] < 20), "settled it is gone, and its room stays empty"
        assert connection.execute("SELECT count(*) FROM origins").fetchone()[0] == is_short
        executions.settle(connection, row, how=Ended.EXITED, started_at=NOON, ended_at=NOON, exit_status=0)
        assert connection.execute("SELECT mark, origin FROM executions WHERE run = 1").fetchone() == (None, None)


def test_a_mark_that_is_no_note_is_named(ledger: Ledger) -> None:
    with ledger.transaction() as connection:
        executions.mark(connection, [(1, 1, 0, 1)], NOTE)
        for mark in ("[1", "[1,2", "{"):
            connection.execute("UPDATE executions SET mark = ?", (mark,))
            with pytest.raises(UnreadableRow, match="mark is no JSON"):
                executions.find(connection, 1, 1)
        connection.execute("UPDATE executions SET mark = '[7]'")
        connection.execute("UPDATE origins SET note = 'x'")
        with pytest.raises(UnreadableRow, match="origin is no JSON"):
            executions.find(connection, 1, 1)


def test_the_first_attempt_begins_with_its_run(ledger: Ledger) -> None:
    with ledger.transaction() as connection:
        runs.insert(connection, [new_run(1)])
        row = runs.find(connection, 1)
        assert row is not None and row.attempt_at is None
        runs.change_status(connection, row, Status.RUNNING, started_at=NOON, attempt_at=NOON)
        row = runs.find(connection, 1)
        assert row is not None and row.attempt_at == row.started_at == NOON
        assert connection.execute("SELECT attempt_at FROM runs").fetchone() == (None,)
        runs.change_status(connection, row, Status.RUNNING, attempt=2, attempt_at=None)
        assert (found := runs.find(connection, 1)) is not None and found.attempt_at is None
        runs.set_fields(connection, 1, started_at=NOON, attempt_at=NOON + MINUTE)
        assert (found := runs.find(connection, 1)) is not None and found.attempt_at == NOON + MINUTE


def test_5_3_and_5_4_only_scheduled_unfinished_runs_hold_slots(ledger: Ledger) -> None:
    with ledger.transaction() as connection:
        for number, status in enumerate(sorted(Status), start=1):
            if status in STATUS_NUMBER and status is not Status.PENDING:
                runs.insert(connection, [new_run(number, NOON + number * MINUTE)])
                connection.execute("UPDATE runs SET status = ? WHERE number = ?", (STATUS_NUMBER[status], number))
        names = {Status.ADMITTED, Status.RUNNING, Status.INTERRUPTED}
        held = [runs.find(connection, run.number) for run in runs.unfinished(connection)]
        assert {run.status for run in held if run} == names
        assert len(runs.active_of(connection, 2)) == 3
        assert runs.slots_used(connection) == 2


def test_5_7_a_candidate_comes_back_as_it_was(ledger: Ledger) -> None:
    held = Candidate(
        instant=NOON, held_since=NOON - MINUTE, can_expire=False, reason={"code": "overlap", "runs": ["run-000001"]}
    )
    with ledger.transaction() as connection:
        schedules.hold(connection, 2, held)
        assert admissions.waiting_for_capacity(connection, limit=9) == []
        found = schedules.find(connection, 2)
        assert found is not None and found.candidate == held
        schedules.hold(connection, 2, replace(held, reason={"code": "capacity", "limit": 4}))
        assert [row.number for row in admissions.waiting_for_capacity(connection, limit=9)] == [2]
        schedules.hold(connection, 2, None)
        assert schedules.with_candidate(connection, None) == []


def test_5_2_a_span_row_answers_for_every_instant_within(ledger: Ledger) -> None:
    record(ledger, settled(10, span=Span(NOON, NOON + 10 * MINUTE, 11)), settled(11))
    for minutes in (0, 3, 10):
        row = occurrences.find(ledger.connection, 2, NOON + minutes * MINUTE)
        assert row is not None and row.span == Span(NOON, NOON + 10 * MINUTE, 11)
    assert occurrences.find(ledger.connection, 2, NOON - MINUTE) is None
    assert occurrences.find(ledger.connection, 2, NOON + 10 * MINUTE + timedelta(seconds=1)) is None
    found = occurrences.find(ledger.connection, 2, NOON + 11 * MINUTE)
    assert found is not None and found.span is None


def test_5_14_a_span_row_is_found_behind_an_admitted_occurrence_within_it(ledger: Ledger) -> None:
    record(ledger, settled(5, Status.COMPLETED, run=1))
    record(ledger, settled(10, span=Span(NOON, NOON + 10 * MINUTE, 10)))
    row = occurrences.find(ledger.connection, 2, NOON + 3 * MINUTE)
    assert row is not None and row.span is not None
    row = occurrences.find(ledger.connection, 2, NOON + 5 * MINUTE)
    assert row is not None and row.run == 1


def test_8_2_a_row_out_of_order_is_noted(ledger: Ledger) -> None:
    def is_disordered() -> int:
        return int(ledger.connection.execute("SELECT is_disordered FROM schedules").fetchone()[0])

    record(ledger, settled(1), settled(2))
    record(ledger, settled(3))
    assert not is_disordered()
    record(ledger, settled(0))
    assert is_disordered()


@pytest.mark.parametrize("gaps", [0, 1])
def test_5_11_a_pause_within_one_microsecond_gives_way_to_the_next(ledger: Ledger, gaps: int) -> None:
    with ledger.transaction() as connection:
        schedules.pause(connection, 2, at=NOON, reason="first", actor="me")
        schedules.resume(connection, 2, at=NOON + gaps * MINUTE, actor="me")
        schedules.pause(connection, 2, at=NOON + gaps * MINUTE, reason="second", actor="me")
        assert schedules.current_pause(connection, 2) == (NOON + gaps * MINUTE, "second", "me")
        assert connection.execute("SELECT count(*) FROM pauses").fetchone() == (1 + gaps,)


def test_5_14_pauses_are_cut_at_the_new_now(ledger: Ledger) -> None:
    def pause(first: int, last: int | None) -> None:
        schedules.pause(connection, 2, at=NOON + first * MINUTE, reason=None, actor="me")
        if last is not None:
            schedules.resume(connection, 2, at=NOON + last * MINUTE, actor="me")

    with ledger.transaction() as connection:
        for first, last in ((0, 2), (5, 20), (30, 40), (50, None)):
            pause(first, last)
        taken = schedules.cut_pauses(connection, 2, NOON + 10 * MINUTE)
        assert taken == [
            (NOON + 10 * MINUTE, NOON + 20 * MINUTE),
            (NOON + 30 * MINUTE, NOON + 40 * MINUTE),
            (NOON + 50 * MINUTE, None),
        ]
        kept = connection.execute("SELECT paused_at, resumed_at FROM pauses ORDER BY paused_at").fetchall()
        minutes = [tuple(None if at is None else (at - kept[0][0]) // 60_000_000 for at in each) for each in kept]
        assert minutes == [(0, 2), (5, 10), (10, None)]
        row = schedules.find(connection, 2)
        assert row is not None and row.paused_at == NOON + 10 * MINUTE


def test_5_14_the_noted_clock_only_grows_but_for_an_event(ledger: Ledger) -> None:
    with ledger.transaction() as connection:
        sessions.note_clock(connection, NOON)
        sessions.note_clock(connection, NOON - MINUTE)
        assert sessions.clock(connection) == NOON
        sessions.add_clock_event(connection, 2, recorded_at=NOON - MINUTE, floor=NOON, withdrawn=[])
        sessions.add_clock_event(connection, 2, recorded_at=NOON - 2 * MINUTE, floor=NOON, withdrawn=[{"instant": "x"}])
        assert sessions.clock(connection) == NOON - 2 * MINUTE
        assert connection.execute("SELECT number FROM clock_events").fetchall() == [(1,), (2,)]


def test_words_have_one_number_each() -> None:
    assert len(set(STATUS_NUMBER.values())) == len(STATUS_NUMBER) and set(STATUS_NUMBER) == set(Status) - {Status.PENDING}
    assert set(ENDED_NUMBER) == set(Ended)
    frequent = {Status.COMPLETED, Status.SKIPPED_OVERLAP, Status.SKIPPED_MISFIRE, Status.COALESCED}
    assert {status for status, number in STATUS_NUMBER.items() if number < RARE} == frequent

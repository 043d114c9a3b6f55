"""What every keeper promises a driver, whether it has processes or not (contract 6.2, 6.9, 6.10)."""

from __future__ import annotations

import select
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Protocol

import pytest

from tests.support.waiting import wait_for
from wfctl.keeper.protocol import Ended, Holding, Keeper, LaunchRequest, Refused, RefusedAt, Report, Started
from wfctl.keeper.records import read_record, record_path

GRACE = timedelta(seconds=5)


class Stage(Protocol):
    """Sets the scene: makes drivers, requests, and ends."""

    root: Path

    def driver(self) -> Keeper:
        """Return a new connection to the one keeper of this stage."""
        ...

    def hang_up(self, keeper: Keeper) -> None: ...

    def request(self, run: str, k: int) -> LaunchRequest:
        """Return a launch of a job that runs until `finish`."""
        ...

    def missing(self, run: str, k: int) -> LaunchRequest:
        """Return a launch of a program that is not there."""
        ...

    def finish(self, run: str, k: int, exit_status: int) -> None: ...


def reports_until(keeper: Keeper, count: int) -> list[Report]:
    """Return the next `count` reports, waiting for them.

    What was over before anybody could be told of its start is told of once: here it counts as both, as it does for a driver.
    """
    reports: list[Report] = []

    def enough() -> bool:
        select.select([keeper], [], [], 0.05)
        for report in keeper.poll():
            reports.extend(_told_apart(keeper, report))
        return len(reports) >= count

    wait_for(enough, f"{count} reports")
    assert len(reports) == count, reports
    return reports


_BEGUN: dict[tuple[int, int], set[tuple[str, int]]] = {}  # by keeper: its pid, and since when it lives


def _told_apart(keeper: Keeper, report: Report) -> list[Report]:
    begun = _BEGUN.setdefault((keeper.hello.pid, keeper.hello.since_ns), set())
    is_new = (report.run, report.k) not in begun
    begun.add((report.run, report.k))
    if not isinstance(report, Ended) or not is_new:
        return [report]
    boot = keeper.hello.boot_id
    return [Started(run=report.run, k=report.k, pid=report.pid, start_time=0, boot_id=boot, at=report.started_at), report]


def next_report(keeper: Keeper) -> Report:
    return reports_until(keeper, 1)[0]


class KeeperContract:
    """Subclasses give the fixture `stage`."""

    @pytest.fixture
    def keeper(self, stage: Stage) -> Iterator[Keeper]:
        keeper = stage.driver()
        yield keeper
        stage.hang_up(keeper)

    def test_a_launch_is_reported_and_so_is_its_end(self, stage: Stage, keeper: Keeper) -> None:
        request = stage.request("run-000001", 1)
        keeper.launch([request])
        started = next_report(keeper)
        assert isinstance(started, Started)
        assert (started.run, started.k) == ("run-000001", 1)
        assert started.boot_id == keeper.hello.boot_id
        stage.finish("run-000001", 1, 3)
        ended = next_report(keeper)
        assert isinstance(ended, Ended)
        assert (ended.run, ended.k, ended.pid) == ("run-000001", 1, started.pid)
        assert (ended.exit_status, ended.signal, ended.left_behind) == (3, None, 0)
        assert ended.started_at == started.at
        assert ended.ended_at >= started.at

    def test_the_exit_record_says_what_the_report_says(self, stage: Stage, keeper: Keeper) -> None:
        request = stage.request("run-000001", 2)
        keeper.launch([request])
        next_report(keeper)
        assert read_record(record_path(request.directory)) is None
        stage.finish("run-000001", 2, 0)
        ended = next_report(keeper)
        record = read_record(record_path(request.directory))
        assert record is not None
        assert (record.run, record.k, record.outcome) == ("run-000001", 2, ended)

    def test_a_refused_launch_is_reported_and_recorded(self, stage: Stage, keeper: Keeper) -> None:
        request = stage.missing("run-000001", 1)
        keeper.launch([request])
        refused = next_report(keeper)
        assert isinstance(refused, Refused)
        assert (refused.run, refused.k, refused.errno, refused.what) == ("run-000001", 1, 2, RefusedAt.PROGRAM)
        record = read_record(record_path(request.directory))
        assert record is not None
        assert record.outcome == refused

    def test_a_batch_is_launched_in_order(self, stage: Stage, keeper: Keeper) -> None:
        keeper.launch([stage.request(f"run-{n:06d}", 1) for n in range(1, 6)])
        assert [report.run for report in reports_until(keeper, 5)] == [f"run-{n:06d}" for n in range(1, 6)]

    def test_the_same_execution_is_never_launched_twice(self, stage: Stage, keeper: Keeper) -> None:  # contract 6.2
        request = stage.request("run-000001", 1)
        keeper.launch([request, request])
        next_report(keeper)
        keeper.launch([request])
        assert [standing.k for standing in keeper.list()] == [1]
        stage.finish("run-000001", 1, 0)
        next_report(keeper)
        keeper.launch([request])
        assert keeper.list() == []
        assert keeper.poll() == []

    def test_what_was_forbidden_is_never_launched(self, stage: Stage, keeper: Keeper) -> None:  # contract 6.10
        assert keeper.forbid("run-000001", 1).state is Holding.FORBIDDEN
        keeper.launch([stage.request("run-000001", 1)])
        assert keeper.forbid("run-000001", 1).state is Holding.FORBIDDEN
        assert keeper.list() == []
        assert keeper.poll() == []

    def test_forbidding_one_execution_forbids_no_other(self, stage: Stage, keeper: Keeper) -> None:
        keeper.forbid("run-000001", 1)
        keeper.launch([stage.request("run-000001", 2)])
        assert next_report(keeper).k == 2

    def test_forbid_says_what_runs_and_what_ended(self, stage: Stage, keeper: Keeper) -> None:  # contract 6.10
        keeper.launch([stage.request("run-000001", 1)])
        started = next_report(keeper)
        standing = keeper.forbid("run-000001", 1)
        assert (standing.state, standing.started) == (Holding.RUNNING, started)
        stage.finish("run-000001", 1, 0)
        next_report(keeper)
        assert keeper.forbid("run-000001", 1).state is Holding.ENDED

    def test_a_report_that_comes_while_an_answer_is_waited_for_is_kept(self, stage: Stage, keeper: Keeper) -> None:
        keeper.launch([stage.request("run-000001", 1)])
        keeper.list()
        assert isinstance(next_report(keeper), Started)

    def test_every_driver_is_told(self, stage: Stage, keeper: Keeper) -> None:
        other = stage.driver()
        keeper.launch([stage.request("run-000001", 1)])
        assert next_report(keeper) == next_report(other)
        stage.finish("run-000001", 1, 0)
        assert next_report(keeper) == next_report(other)
        stage.hang_up(other)

    def test_the_next_driver_finds_what_runs_and_what_nobody_was_told(self, stage: Stage, keeper: Keeper) -> None:
        keeper.launch([stage.request("run-000001", 1), stage.request("run-000002", 1)])
        one, two = reports_until(keeper, 2)
        stage.hang_up(keeper)
        stage.hang_up(stage.driver())  # greeted: by now it has noticed that the other is gone
        stage.finish("run-000002", 1, 7)
        following = stage.driver()
        held = {held.run: held for held in following.list()}
        assert held["run-000001"].started == one
        ended = held["run-000002"].ended or next_report(following)  # it may not have ended yet when asked
        assert isinstance(ended, Ended)
        assert isinstance(two, Started)
        assert (ended.run, ended.exit_status, ended.started_at) == ("run-000002", 7, two.at)
        stage.finish("run-000001", 1, 0)
        assert next_report(following).run == "run-000001"
        stage.hang_up(following)

    def test_a_stop_ends_it_by_term(self, stage: Stage, keeper: Keeper) -> None:  # contract 6.11
        keeper.launch([stage.request("run-000001", 1)])
        next_report(keeper)
        keeper.stop("run-000001", 1, GRACE)
        keeper.stop("run-000001", 1, GRACE)
        ended = next_report(keeper)
        assert isinstance(ended, Ended)
        assert (ended.exit_status, ended.signal) == (None, 15)
        assert keeper.poll() == []

    def test_a_stop_of_what_is_not_there_does_nothing(self, stage: Stage, keeper: Keeper) -> None:
        keeper.stop("run-000009", 1, GRACE)
        assert keeper.list() == []
        assert not keeper.closed

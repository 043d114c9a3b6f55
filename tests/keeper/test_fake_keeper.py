"""The fake keeper keeps the contract, and its strings work."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.keeper.contract import KeeperContract, next_report
from tests.support.fake_keeper import FakeKeeper
from wfctl.errors import IoError
from wfctl.keeper.protocol import Holding, Keeper, LaunchRequest
from wfctl.keeper.records import read_record, record_path


class FakeStage:
    def __init__(self, root: Path) -> None:
        self.root = root
        self._first = FakeKeeper()
        self._first.refuse("/nowhere", 2)

    def driver(self) -> FakeKeeper:
        return FakeKeeper(world=self._first.world)

    def hang_up(self, keeper: Keeper) -> None:
        keeper.close()

    def request(self, run: str, k: int) -> LaunchRequest:
        return self._request(run, k, "/bin/job")

    def missing(self, run: str, k: int) -> LaunchRequest:
        return self._request(run, k, "/nowhere")

    def finish(self, run: str, k: int, exit_status: int) -> None:
        self._first.end(run, k, exit_status=exit_status)

    def _request(self, run: str, k: int, program: str) -> LaunchRequest:
        directory = self.root / run / str(k)
        directory.mkdir(parents=True, exist_ok=True)
        where = str(directory)
        return LaunchRequest(
            run=run,
            k=k,
            program=program,
            argv=[program],
            environment={},
            cwd="/",
            umask=0o22,
            stdout=f"{where}/out",
            stderr=f"{where}/err",
            directory=where,
        )


@pytest.fixture
def stage(tmp_path: Path) -> FakeStage:
    stage = FakeStage(tmp_path)
    stage._first.close()  # only the drivers of the test count as told
    return stage


class TestFakeKeeper(KeeperContract):
    pass


def test_a_scripted_launch_ends_at_once(stage: FakeStage) -> None:
    keeper = stage.driver()
    keeper.world.script = lambda request: request.k
    keeper.launch([stage.request("run-000001", 4)])
    _, ended = keeper.poll()
    assert ended.run == "run-000001"
    assert read_record(record_path(stage.root / "run-000001/4")) is not None


def test_a_launch_it_has_not_read_is_fenced(stage: FakeStage) -> None:  # contract 6.10
    keeper = stage.driver()
    keeper.world.stalls = True
    keeper.launch([stage.request("run-000001", 1), stage.request("run-000002", 1)])
    following = keeper.reconnect()
    assert following.forbid("run-000001", 1).state is Holding.FORBIDDEN
    following.read()
    assert next_report(following).run == "run-000002"
    assert [request.run for request in following.world.launches] == ["run-000002"]


def test_a_dead_one_answers_nothing_and_records_nothing(stage: FakeStage) -> None:
    keeper = stage.driver()
    request = stage.request("run-000001", 1)
    keeper.launch([request])
    keeper.die()
    assert keeper.closed
    with pytest.raises(IoError):
        keeper.list()
    keeper.end("run-000001", 1)
    assert read_record(record_path(request.directory)) is None


@pytest.mark.parametrize("stopping", [True, False], ids=["heeds a stop", "ignores a stop"])
def test_stops_are_kept(stage: FakeStage, stopping: bool) -> None:
    from datetime import timedelta

    keeper = stage.driver()
    keeper.world.obeys_stop = stopping
    keeper.launch([stage.request("run-000001", 1)])
    keeper.stop("run-000001", 1, timedelta(seconds=3))
    assert keeper.world.stops == [("run-000001", 1, timedelta(seconds=3))]
    assert keeper.running == ([] if stopping else [("run-000001", 1)])

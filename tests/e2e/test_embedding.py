"""The supervisor as a value of the Python API, in a thread of the test's own process (contract 9.4, 5.9, 7.7, 2.10)."""

from __future__ import annotations

import os
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.jobs import read_side, recording_job
from tests.support.place import FINAL, Place, is_alive
from tests.support.processes import wait_for
from wfctl import NoSupervisor, PreflightFailed, StoreLocked, SupervisorService, WrongState, open_store
from wfctl.core.admission import Verdict
from wfctl.errors import IoError
from wfctl.operations import preflight, rounds
from wfctl.operations.store import open_store as open_private_store
from wfctl.rpc.door import ControlDoor
from wfctl.store.disk import Disk
from wfctl.supervisor import preflighter
from wfctl.supervisor import service as service_module

QUICK = {"supervisor": {"drain_grace_s": 0.0, "poll_interval_s": 0.1}}
HELD = "echo $$ >$NOTES/pid; while :; do sleep 0.02; done"


def test_9_4_a_service_in_a_thread_does_what_the_main_thread_asks(tmp_path: Path) -> None:
    with Place(tmp_path) as place, SupervisorService(place.store, QUICK) as service:
        place.job(HELD, kill_grace="100ms")
        place.job("exit 0", "quick")
        service.start()
        with pytest.raises(WrongState):
            service.start()
        with pytest.raises(WrongState):
            service.step()
        assert place.store.server_status().pid == os.getpid()
        run = place.store.start_run(deployment_id="d")
        pid = place.pid("pid")
        place.store.cancel_run(run_id=run.run_id)
        assert place.until(run.run_id, *FINAL).status == "cancelled"
        assert not is_alive(pid)
        place.once("s", "quick", in_s=3600)
        at = datetime.now(UTC) + timedelta(seconds=0.3)
        place.store.update_schedule(schedule_id="s", expected_revision=1, trigger={"kind": "oneshot", "at": at.isoformat()})
        ended = place.until(place.run(1).run_id, "completed")
        assert ended.revision == 2
        assert ended.started_at is not None
        assert ended.started_at - at < timedelta(seconds=0.5)
        service.stop()
        service.stop()
        with pytest.raises(NoSupervisor):
            place.store.server_status()
        service.start()
        assert place.store.server_status().state == "ready"


def test_2_6_of_two_services_one_owns_the_store(tmp_path: Path) -> None:
    with Place(tmp_path) as place, open_store(place.root) as other:
        with SupervisorService(place.store, QUICK) as first:
            first.start()
            for attempt in (SupervisorService(other).start, SupervisorService(other).step):
                with pytest.raises(StoreLocked) as raised:
                    attempt()
                assert raised.value.data["pid"] == os.getpid()
                assert {"host", "started_at"} <= set(raised.value.data)
        with SupervisorService(other, QUICK) as second:
            assert second.step() is None


def test_9_4_a_failure_in_the_thread_surfaces_and_frees_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise ZeroDivisionError("a bug")

    with Place(tmp_path) as place:
        service = SupervisorService(place.store, QUICK)
        service.start()
        monkeypatch.setattr(rounds, "settle_round", fail)
        place.job("exit 0")
        wait_for(lambda: not (place.root / "control.sock").exists(), what="the end of the thread")
        with pytest.raises(ZeroDivisionError):
            service.stop()
        monkeypatch.undo()
        with SupervisorService(place.store, QUICK) as next_one:
            next_one.start()
            assert place.store.server_status().state == "ready"


def test_9_4_a_start_that_fails_leaves_nothing_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: SupervisorService) -> None:
        raise IoError("no keeper can be started")

    with Place(tmp_path) as place:
        service = SupervisorService(place.store, QUICK)
        monkeypatch.setattr(SupervisorService, "_find_keeper", fail)
        counts = []
        for _ in range(3):
            with pytest.raises(IoError):
                service.start()
            counts.append(len(list(Path("/proc/self/fd").iterdir())))
        assert counts == counts[:1] * 3, "descriptors stay open"
        assert not (place.root / "control.sock").exists()
        monkeypatch.undo()
        service.start()
        service.stop()


def test_5_14_an_idle_loop_has_no_timed_wake_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float | None] = []
    with Place(tmp_path) as place:
        place.job("exit 0")
        place.once(in_s=3600)
        with SupervisorService(place.store) as service:
            service.start()
            selector = service._waiter.selector
            select = selector.select

            def counted(timeout: float | None = None) -> Any:
                waits.append(timeout)
                return select(timeout)

            monkeypatch.setattr(selector, "select", counted)
            place.store.server_status()  # so that the loop comes round to the counted one
            quiet = _Quiet(lambda: len(waits), for_s=1.5)
            wait_for(quiet, timeout_s=5, what="1.5 s without a wake-up")
            assert waits[-1] is None or waits[-1] >= 60


class _Quiet:
    """True once a count has stood still for a while."""

    def __init__(self, count: Any, *, for_s: float) -> None:
        self._count, self._for = count, timedelta(seconds=for_s)
        self._seen, self._since = -1, datetime.now(UTC)

    def __call__(self) -> bool:
        if self._count() != self._seen:
            self._seen, self._since = self._count(), datetime.now(UTC)
        return datetime.now(UTC) - self._since >= self._for


def test_5_9_a_dead_check_delays_no_other_schedule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is shortened; the check hangs until the test is over, and costs one thread however often it is asked."""
    check, mounted = preflight.check_preflight, threading.Event()

    def dead(deployment: Any, *others: Any) -> Any:
        if deployment.description == "dead":
            mounted.wait(30)
        return check(deployment, *others)

    monkeypatch.setattr(preflight, "check_preflight", dead)
    monkeypatch.setattr(preflighter, "TIMEOUT_S", 0.7)
    with Place(tmp_path) as place:
        place.job("exit 0", "dead", description="dead")
        place.job("exit 0", "fine")
        at = datetime.now(UTC) + timedelta(seconds=0.4)
        trigger = {"kind": "oneshot", "at": at.isoformat()}
        with SupervisorService(place.store, QUICK) as service:
            service.start()
            place.every_second("a-dead", "dead")
            place.store.create_schedule(schedule_id="b-fine", deployment_id="fine", trigger=trigger)
            ended = place.until(place.run().run_id, "completed")
            assert ended.started_at is not None
            assert ended.started_at - at < timedelta(seconds=0.5)
            wait_for(lambda: place.statuses("a-dead").count("preflight-rejected") >= 2, what="two rejections")
            row = place.store.list_schedule_occurrences(schedule_id="a-dead", status="preflight-rejected").items[0]
            assert row.reason is not None
            assert row.reason["code"] == "preflight-timeout"
            assert sum(thread.name == "preflight" for thread in threading.enumerate()) <= 2
            place.store.pause_schedule(schedule_id="a-dead")
        mounted.set()
        assert [run.schedule_id for run in place.store.list_runs().items] == ["b-fine"]


def test_5_9_step_waits_for_its_preflight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When `step` returns everything due is settled, a check that is never answered included."""
    mounted = threading.Event()
    monkeypatch.setattr(preflight, "check_preflight", lambda *arguments: mounted.wait(30) and None)
    monkeypatch.setattr(preflighter, "TIMEOUT_S", 0.3)
    monkeypatch.setattr(service_module, "_PATIENT_S", 0.4)
    with Place(tmp_path) as place:
        place.job("exit 0")
        at = place.once(in_s=0.1)
        with SupervisorService(place.store, QUICK) as service:
            service.step()
            wait_for(lambda: datetime.now(UTC) > at, what="the instant")
            service.step()
            assert place.statuses() == ["preflight-rejected"]
        mounted.set()


def test_5_9_a_start_by_hand_on_a_dead_mount_holds_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check, mounted = preflight.preflight_problems, threading.Event()

    def dead(deployment: Any, *others: Any) -> Any:
        if deployment.description == "dead":
            mounted.wait(30)
        return check(deployment, *others)

    monkeypatch.setattr(preflight, "preflight_problems", dead)
    monkeypatch.setattr(preflighter, "TIMEOUT_S", 1.0)
    with Place(tmp_path) as place, open_store(place.root) as other, SupervisorService(place.store, QUICK) as service:
        place.job("exit 0", "dead", description="dead")
        place.job("exit 0", "fine")
        service.start()
        refused: list[PreflightFailed] = []

        def start() -> None:
            with pytest.raises(PreflightFailed) as raised:
                other.start_run(deployment_id="dead")
            refused.append(raised.value)

        asking = threading.Thread(target=start)
        asking.start()
        at = place.once("s", "fine", in_s=0.3)
        ended = place.until(place.run().run_id, "completed")
        assert ended.started_at is not None
        assert ended.started_at - at < timedelta(seconds=0.5)
        assert place.until(place.store.start_run(deployment_id="fine").run_id, "completed").kind == "manual"
        assert asking.is_alive()
        asking.join(10)
        assert refused[0].data["reason"]["code"] == "preflight-timeout"
        mounted.set()
        assert other.start_run(deployment_id="dead").status in ("admitted", "running", "completed")


class _FailingDisk(Disk):
    """Refuses so many commits of the supervisor's thread, once told to."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.left = 0

    def point(self, name: str) -> None:
        if name == self.where and self.left and threading.current_thread().name == "wfctl-supervisor":
            self.left -= 1
            raise IoError("cannot use the ledger: database or disk is full")


@pytest.mark.parametrize("where", ["commit", "committed"])
def test_7_7_a_ledger_that_refuses_stops_admission_until_it_is_over(tmp_path: Path, where: str) -> None:
    """2.10, 5.15, 6.2: shown by `status`; then it goes on by itself, nothing lost and nothing twice."""
    side, disk = tmp_path / "side", _FailingDisk(where)
    with Place(tmp_path) as place, open_private_store(place.root, door=ControlDoor, disk=disk) as store:
        place.store.create_deployment(deployment_id="d", command=recording_job(side, 0.25))
        place.every_second("s", overlap="queue", misfire="latest")
        with SupervisorService(store, QUICK) as service:
            service.start()
            place.until(place.run().run_id, "running")
            disk.left = 1 << 30
            status = wait_for(lambda: (status := place.store.server_status()).problems and status, what="the problem")
            assert [problem["code"] for problem in status.problems] == ["ledger"]
            assert status.state == "degraded"
            disk.left = 0
            wait_for(lambda: not place.store.server_status().problems, what="the end of the problem")
            place.until(place.run(1).run_id, "completed")
            place.store.pause_schedule(schedule_id="s")
            wait_for(lambda: not place.store.list_runs(status="admitted,running").items, what="the end of all runs")
        runs, stretches = place.store.list_runs(limit=100).items, read_side(side)
        assert [run.status for run in runs] == ["completed"] * len(runs)
        assert sorted(stretch.run for stretch in stretches) == [run.run_id for run in runs], "lost, or twice"
        rows = place.store.list_schedule_occurrences(schedule_id="s", limit=100).items
        assert len({row.instant for row in rows}) == len(rows)


def test_7_7_too_little_room_pauses_admission_and_says_so(tmp_path: Path) -> None:
    with Place(tmp_path) as place:
        place.settings('[runs]\nmin_free = "900TiB"\n')
        place.job("exit 0")
        place.once(misfire="latest")
        with SupervisorService(place.store, QUICK) as service:
            service.start()
            problems = wait_for(lambda: place.store.server_status().problems, what="the problem")
            assert [problem["code"] for problem in problems] == ["disk"]
            place.settings('[runs]\nmin_free = "0"\n')
            place.store.reload()
            assert place.until(place.run().run_id, "completed").status == "completed"
            assert place.store.server_status().problems == ()


def test_5_10_verdicts_are_those_of_the_core() -> None:
    assert Verdict({"code": "preflight-timeout", "limit_s": 5.0}) == preflighter.TIMED_OUT

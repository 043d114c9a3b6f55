"""How soon a supervisor does things, and that it does nothing where there is nothing to do (contract 2.3, 5.14, 7.7, 11.5)."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.support.place import Place
from tests.support.processes import wait_for, wfctl
from wfctl.core.instants import format_instant

LATE_S = 0.5  #: generous: a busy machine


def test_5_14_due_instants_start_within_milliseconds(tmp_path: Path) -> None:
    with Place(tmp_path) as place:
        place.job("exit 0")
        place.every_second()
        place.supervisor()
        runs = [place.run(index) for index in range(1, 3)]  # the first may have waited for the supervisor to be there
        for run in runs:
            ended = place.until(run.run_id, "completed")
            assert ended.started_at is not None
            assert ended.instant is not None
            assert timedelta(0) <= ended.started_at - ended.instant < timedelta(seconds=LATE_S)


@pytest.mark.parametrize("door", ["API", "command"])
def test_5_14_a_change_by_another_process_is_taken_up_at_once(tmp_path: Path, door: str) -> None:
    """The supervisor sleeps without a timer; only a poke can tell it."""
    with Place(tmp_path) as place:
        place.job("exit 0")
        place.supervisor("--poll-interval-s", "60")
        at = datetime.now(UTC) + timedelta(seconds=0.3 if door == "API" else 2.0)
        if door == "API":
            trigger = {"kind": "oneshot", "at": format_instant(at)}
            place.store.create_schedule(schedule_id="s", deployment_id="d", trigger=trigger)
        else:
            wfctl(place.root, "schedule", "add", "s", "--deployment", "d", "--at", format_instant(at))
        ended = place.until(place.run().run_id, "completed")
        assert ended.started_at is not None
        assert ended.started_at - at < timedelta(seconds=LATE_S)


def test_5_13_a_pause_and_a_new_limit_are_taken_up_at_once(tmp_path: Path) -> None:
    with Place(tmp_path) as place:
        place.job("echo >>$NOTES/$WFCTL_RUN_ID; while [ ! -e $NOTES/go ]; do sleep 0.02; done")
        place.every_second(overlap="parallel", max_active_runs=1, misfire="latest")
        place.supervisor("--poll-interval-s", "60")
        place.note("run-000001")
        wait_for(lambda: place.store.get_schedule(schedule_id="s").candidate, what="a held candidate")
        place.store.update_schedule(schedule_id="s", expected_revision=1, max_active_runs=2)
        place.note("run-000002", timeout_s=2)
        place.store.pause_schedule(schedule_id="s")
        (place.notes / "go").touch()
        place.until("run-000002", "completed")
        assert len(place.store.list_runs().items) == 2
        assert place.store.get_schedule(schedule_id="s").candidate is None


def test_2_4_a_hand_edit_is_taken_up_once_it_is_a_second_old(tmp_path: Path) -> None:
    with Place(tmp_path) as place:
        place.job("exit 0")
        place.once(in_s=3600)
        place.supervisor("--poll-interval-s", "60")
        path = place.root / "schedules" / "s.toml"
        at = datetime.now(UTC) + timedelta(seconds=1.8)
        text = path.read_text()
        before = text.partition('at = "')[2].partition('"')[0]
        path.write_text(text.replace(before, format_instant(at)))
        ended = place.until(place.run().run_id, "completed")
        assert (ended.revision, ended.instant) == (2, at)
        assert ended.started_at is not None
        assert ended.started_at - at < timedelta(seconds=LATE_S)


def test_2_3_a_broken_file_blocks_its_schedule_alone_until_it_is_good_again(tmp_path: Path) -> None:
    with Place(tmp_path) as place:
        place.job("exit 0")
        place.once("broken", in_s=3600)
        supervisor = place.supervisor("--poll-interval-s", "60")
        path = place.root / "schedules" / "broken.toml"
        good = path.read_text()
        path.write_text(good.replace("format = 1", "format = ["))
        blocked = wait_for(lambda: place.store.server_status().blocked, timeout_s=4, what="the blocked schedule")
        assert [each["id"] for each in blocked] == ["broken"]
        place.once("other", in_s=0.2)
        place.until(place.run().run_id, "completed")
        path.write_text(good)
        wait_for(lambda: not place.store.server_status().blocked, timeout_s=4, what="the unblocked schedule")
        assert place.store.get_schedule(schedule_id="broken").revision == 1
        assert supervisor.process.poll() is None


def test_11_5_until_idle_ends_when_no_one_shot_lies_ahead(tmp_path: Path) -> None:
    """Cron and interval schedules, and interrupted runs, do not keep it; a run at work does."""
    with Place(tmp_path) as place:
        place.job("sleep 0.3")
        place.job('echo \'{"message": "yes?"}\' >$WFCTL_INTERRUPT; exit 75', "asks")
        place.store.create_schedule(schedule_id="daily", deployment_id="d", trigger={"kind": "cron", "expression": "0 0 1 1 *"})
        place.once("one", in_s=0.6)
        place.once("two", "asks", in_s=0.6)
        supervisor = place.supervisor("--until-idle")
        assert supervisor.process.wait(20) == 0
        assert place.statuses("one") == ["completed"]
        assert place.statuses("two") == ["interrupted"]
        assert place.supervisor("--until-idle").process.wait(20) == 0, "an interrupted run kept it"


def test_5_14_an_idle_supervisor_does_not_wake_up(tmp_path: Path) -> None:
    """By the kernel's count of how often its threads gave up the processor."""
    with Place(tmp_path) as place:
        place.job("exit 0")
        place.once(in_s=3600)
        supervisor = place.supervisor()
        tasks = Path(f"/proc/{supervisor.process.pid}/task")

        def switches() -> int:
            lines: list[str] = []
            for task in tasks.iterdir():
                with contextlib.suppress(FileNotFoundError):  # a thread that has just ended
                    lines += (task / "status").read_text().splitlines()
            return sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))

        wait_for(lambda: _is_still(switches, 1.2), timeout_s=5, what="1.2 s without a wake-up")


def _is_still(count: Callable[[], int], for_s: float) -> bool:
    before, until = count(), time.monotonic() + for_s
    wait_for(lambda: time.monotonic() >= until or count() != before, what="time passing")
    return count() == before

"""A schedule whose run outlasts it: what `overlap` makes of the instants that find the last run unfinished (contract 5.3, 5.5).

Three schedules come due every second, and none of their runs ends before we let it:

- `skip` drops what comes due meanwhile,
- `queue` keeps one start for later, the newest,
- `parallel` lets two run side by side, and drops what comes due when both are at work.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import wfctl

# Ends when a file named like the run appears on the desk.
JOB = """until [ -e "$DESK/$WFCTL_RUN_ID.may-end" ]; do sleep 0.02; done"""
EVERY_SECOND = {"kind": "interval", "every": "1s"}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[wfctl.Store]:
    """A store with the job, and a supervisor at work on it."""
    with wfctl.init_store(tmp_path / "store") as store:
        store.create_deployment(deployment_id="slow", command=["/bin/sh", "-c", JOB], environment={"DESK": str(tmp_path)})
        with wfctl.SupervisorService(store) as service:
            service.start()
            yield store
            for schedule in store.list_schedules():
                store.pause_schedule(schedule_id=schedule.id)
            for run in store.list_runs(status="admitted,running").items:
                store.cancel_run(run_id=run.run_id, reason="the example is over")


def test_skip_drops_what_comes_due_meanwhile(store: wfctl.Store) -> None:
    store.create_schedule(schedule_id="s", deployment_id="slow", trigger=EVERY_SECOND, overlap="skip")
    wait_until(lambda: statuses(store)["skipped-overlap"] >= 2)
    (run,) = store.list_runs(schedule_id="s").items
    assert run.status == "running"
    skipped = store.list_schedule_occurrences(schedule_id="s", status="skipped-overlap").items[0]
    assert skipped.run_id is None
    assert skipped.reason == {"code": "overlap", "runs": [run.run_id], "limit": 1}, "the reason names the run in the way"


def test_queue_starts_exactly_one_deferred_run(store: wfctl.Store, tmp_path: Path) -> None:
    store.create_schedule(schedule_id="q", deployment_id="slow", trigger=EVERY_SECOND, overlap="queue")
    # The newest start is held, the ones before it are coalesced into it; so however long the run takes, one start waits.
    wait_until(lambda: statuses(store)["coalesced"] >= 2)
    assert statuses(store)["pending"] == 1
    (first,) = store.list_runs(schedule_id="q").items
    held = store.get_schedule(schedule_id="q").candidate
    assert held is not None
    assert not held.can_expire, "waiting for its own schedule, it may wait as long as that takes"

    # When the run has ended the held start becomes a run at once, though its instant is long past. It is the only one.
    (tmp_path / f"{first.run_id}.may-end").touch()
    wait_until(lambda: len(store.list_runs(schedule_id="q").items) == 2)
    first, second = store.list_runs(schedule_id="q").items
    assert first.status == "completed"
    assert second.instant is not None
    assert second.instant >= held.instant
    wait_until(lambda: statuses(store)["pending"] == 1)  # what comes due now is held in turn: no third run
    assert len(store.list_runs(schedule_id="q").items) == 2


def test_parallel_with_two_permits_two(store: wfctl.Store) -> None:
    store.create_schedule(schedule_id="p", deployment_id="slow", trigger=EVERY_SECOND, overlap="parallel", max_active_runs=2)
    wait_until(lambda: statuses(store)["skipped-overlap"] >= 1)
    one, two = store.list_runs(schedule_id="p").items
    assert (one.status, two.status) == ("running", "running")
    assert store.get_schedule(schedule_id="p").active_runs == (one.run_id, two.run_id)
    skipped = store.list_schedule_occurrences(schedule_id="p", status="skipped-overlap").items[0]
    assert skipped.reason == {"code": "overlap", "runs": [one.run_id, two.run_id], "limit": 2}


# Helpers ------------------------------------------------------------------------------------------------------------------


def statuses(store: wfctl.Store) -> Counter[str | None]:
    """Return how many occurrences have which status."""
    return Counter(occurrence.status for occurrence in store.list_schedule_occurrences(limit=100))


def wait_until(condition: Callable[[], object], within_s: float = 20.0) -> None:
    """Return once the condition is true."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)

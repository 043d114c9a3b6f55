"""From nothing to a result: a deployment, a schedule, a supervisor, and what it did (contract 9.4).

A *store* is a directory that holds everything. A *deployment* says what to run, a *schedule* says when. The *supervisor* admits
what comes due: the occurrence becomes a run, and both can be looked at for as long as the store is kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import wfctl

# A run hands on its result by writing JSON to the file that $WFCTL_OUTPUT names.
HELLO = """printf '{"result": "hello on a schedule"}' > "$WFCTL_OUTPUT" """


def test_a_deployment_runs_on_its_schedule(tmp_path: Path) -> None:
    with wfctl.init_store(tmp_path / "store") as store:
        # What to run: an argument vector. Nothing is given to a shell unless the command names one, as here.
        store.create_deployment(deployment_id="hello", command=["/bin/sh", "-c", HELLO])

        # When: once, half a second from now. `cron` and `interval` are the other kinds of trigger.
        at = datetime.now(UTC) + timedelta(seconds=0.5)
        schedule = store.create_schedule(
            schedule_id="hello-once", deployment_id="hello", trigger={"kind": "oneshot", "at": at.isoformat()}
        )
        assert schedule.state == "active"
        assert schedule.next_instant == at

        # Who does it: a supervisor, here in a thread of this very process. Leaving the block drains and stops it.
        with wfctl.SupervisorService(store) as service:
            service.start()
            assert store.server_status().state == "ready"
            wait_until(lambda: store.list_runs(status="completed").items)

        # What became of it. Every instant of a calendar ends as one occurrence that says what happened.
        page = store.list_schedule_occurrences(schedule_id="hello-once", limit=10)
        (occurrence,) = page.items
        assert (occurrence.instant, occurrence.status, occurrence.run_id) == (at, "completed", "run-000001")
        assert page.next_cursor is None, "this was the last page"

        # The run: when, how it ended, and what it gave.
        run = store.inspect_run(run_id="run-000001")
        assert run.status == "completed"
        assert run.output == {"result": "hello on a schedule"}
        assert [execution.exit_status for execution in run.trace] == [0]
        assert run.started_at is not None
        assert run.started_at >= at

        # A one-shot that has had its instant is finished, and the supervisor is gone.
        assert store.get_schedule(schedule_id="hello-once").state == "finished"
        with pytest.raises(wfctl.NoSupervisor):
            store.server_status()


def test_a_history_is_read_page_by_page(tmp_path: Path) -> None:
    with wfctl.init_store(tmp_path / "store") as store:
        store.create_deployment(deployment_id="hello", command=["/bin/true"])
        store.create_schedule(schedule_id="often", deployment_id="hello", trigger={"kind": "interval", "every": "1s"})
        with wfctl.SupervisorService(store) as service:
            service.start()
            wait_until(lambda: len(store.list_schedule_occurrences(schedule_id="often", status="completed").items) >= 3)
            store.pause_schedule(schedule_id="often", reason="enough has been seen")

        # A page of two, then the rest: the cursor says where the page before ended. Oldest first.
        first = store.list_schedule_occurrences(schedule_id="often", limit=2)
        assert first.next_cursor is not None
        rest = store.list_schedule_occurrences(schedule_id="often", limit=100, cursor=first.next_cursor)
        assert rest.next_cursor is None
        instants = [occurrence.instant for occurrence in (*first, *rest)]
        assert len(first) == 2
        assert instants == sorted(set(instants)), "ascending, none repeated, none skipped"


def wait_until(condition: Callable[[], object], within_s: float = 20.0) -> None:
    """Return once the condition is true."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)

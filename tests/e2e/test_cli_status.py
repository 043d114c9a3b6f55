"""`wfctl status` for people at 80 columns, for probes, and where the supervisor does not answer (contract 6.8, 7.2, 11.6)."""

from __future__ import annotations

import os
import signal
from datetime import timedelta
from pathlib import Path

import pytest

from tests.support.commands import Wfctl
from tests.support.place import Place
from tests.support.processes import wait_for
from wfctl import open_store
from wfctl.cli.status_text import ask
from wfctl.errors import NoSupervisor, TimedOut

ASKS = 'echo \'{"message": "deploy to all?"}\' > "$WFCTL_INTERRUPT"; exit 75'


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_one_line_says_it_all_in_a_pipe_and_q_the_word_alone(place: Place, tmp_path: Path) -> None:
    wfctl = Wfctl(place.root, tmp_path)
    with place:
        place.job(ASKS)
        place.once("waits")
        place.store.create_schedule(
            schedule_id="a-schedule-with-quite-a-long-name", deployment_id="d", trigger={"kind": "interval", "every": "1d"}
        )
        place.supervisor()
        place.until(place.run().run_id, "interrupted")
        done = wfctl.ok("status")
        first = done.out.splitlines()[0]
        assert first.startswith("supervisor: ready (pid ")
        for part in ("slots 0/4", "next a-schedule-with-quite-a-long-name in ", "interrupted 1, oldest "):
            assert part in first
        assert "deploy to all?" in done.out
        assert wfctl.ok("status", "-q").out == "ready\n"
        view = wfctl.ok("status", "-o", "json").json
        assert view["interrupted"][0]["run_id"] == "run-000001"
        assert view["interrupted"][0]["schedule_id"] == "waits"
        assert view["interrupted"][0]["message"] == "deploy to all?"
        assert view["overdue"] == []
        seen = wfctl.at_terminal("status", columns=80)
        assert seen.status == 0
        assert all(len(line) <= 80 for line in seen.lines[:3]), seen.text
        (place.root / "schedules" / "waits.toml").write_text("not TOML [")
        wait_for(lambda: wfctl("status").status == 1, what="the blocked schedule")
        done = wfctl("status")
        assert "supervisor: degraded" in done.out.splitlines()[0]
        assert "blocked 1" in done.out.splitlines()[0]
        assert wfctl("status", "-q").out == "degraded\n"
    assert wfctl("status", "-q").status == 69


def test_one_that_hangs_or_starts_is_told_from_none(place: Place) -> None:
    with place:
        supervisor = place.supervisor()
        with open_store(place.root) as store:
            assert ask(store).pid == supervisor.process.pid
            os.kill(supervisor.process.pid, signal.SIGSTOP)
            try:
                with pytest.raises(TimedOut, match=f"the supervisor with pid {supervisor.process.pid} on .* has not answered"):
                    ask(store, 0.3)
            finally:
                os.kill(supervisor.process.pid, signal.SIGCONT)
            (place.root / "control.sock").unlink()
            with pytest.raises(TimedOut, match="takes no connection"):
                ask(store, 0.3)
            supervisor.stop()
            with pytest.raises(NoSupervisor):
                ask(store, 0.3)


def test_6_8_an_overdue_run_degrades_it(tmp_path: Path) -> None:
    from tests.support.story import World
    from wfctl.operations.store import init_store

    init_store(tmp_path / "store").close()
    world = World(tmp_path / "store")
    world.store.create_deployment(deployment_id="d", command=["/bin/true"])
    world.store.create_schedule(
        schedule_id="s", deployment_id="d", trigger={"kind": "cron", "expression": "* * * * *"}, max_run="10m"
    )
    world.step()
    world.clock.advance(timedelta(minutes=1))
    world.step()
    world.step()
    assert world.store.server_status().state == "ready"
    world.clock.advance(timedelta(minutes=9))
    world.step()
    view = world.store.server_status()
    assert view.state == "degraded"
    assert [(each["run_id"], each["schedule_id"], each["max_run_s"]) for each in view.overdue] == [("run-000001", "s", 600.0)]
    world.die()

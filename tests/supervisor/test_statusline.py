"""The line that `systemctl status` shows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.support.story import START, World
from wfctl import init_store
from wfctl.supervisor.statusline import StatusLine, clock_time, compose

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
COUNTS = {"total": 41, "paused": 2, "blocked": 1}


def test_it_answers_the_first_question() -> None:
    coming = ("hourly-report", NOW + timedelta(hours=2))
    said = compose(problems=[], drain=None, slots=(3, 4), coming=coming, counts=COUNTS, now=NOW)
    assert said == "3/4 slots · next hourly-report at 14:00Z · 41 schedules, 2 paused, 1 BLOCKED"


def test_what_is_wrong_comes_first_and_on_one_line() -> None:
    quiet = {"total": 1, "paused": 0, "blocked": 0}
    said = compose(problems=["settings:\n  bad"], drain=None, slots=(0, 4), coming=None, counts=quiet, now=NOW)
    assert said == "settings: bad · 0/4 slots · 1 schedule"
    held = compose(problems=[], drain="held by drain", slots=(0, 4), coming=("s", NOW), counts=quiet, now=NOW)
    assert held == "held by drain · 0/4 slots · 1 schedule", "nothing comes next"


@pytest.mark.parametrize(
    ("instant", "shown"),
    [
        pytest.param(NOW + timedelta(minutes=5), "12:05Z", id="whole minutes"),
        pytest.param(NOW + timedelta(seconds=5), "12:00:05Z", id="seconds"),
        pytest.param(NOW + timedelta(hours=23, minutes=59), "11:59Z", id="tomorrow, within a day"),
        pytest.param(NOW + timedelta(days=1), "2026-12-01 12:00Z", id="a day away"),
    ],
)
def test_times_stay_true_while_nobody_refreshes_them(instant: datetime, shown: str) -> None:
    assert clock_time(instant, NOW) == shown


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A store with a schedule at each minute."""
    init_store(tmp_path / "store").close()
    world = World(tmp_path / "store")
    world.store.create_deployment(deployment_id="d", command=["/bin/true"])
    for name in ("a", "b", "c"):
        trigger = {"kind": "cron", "expression": "* * * * *"}
        world.store.create_schedule(schedule_id=name, deployment_id="d", trigger=trigger)
    return world


def test_it_is_made_anew_when_something_changed_and_not_for_each_of_many(world: World) -> None:
    world.step()
    assert world._service is not None
    line = StatusLine(world._service)
    assert line.refresh() is None
    assert line.text == "0/4 slots · next a at 09:01Z · 3 schedules"
    world.store.pause_schedule(schedule_id="a")
    world.step()
    again = line.refresh()
    assert again is not None and 0 < again <= 1.0, "that was only just"
    world.clock.advance(timedelta(seconds=again))
    assert line.refresh() is None
    assert line.text == "0/4 slots · next b at 09:01Z · 3 schedules, 1 paused"
    made = line.text
    world.clock.advance(timedelta(seconds=5))
    assert line.refresh() is None
    assert line.text is made, "nothing changed"
    world._service.drain(undo=False)
    assert line.refresh() is None, "a drain is shown at once"
    assert line.text == "held by drain · 0/4 slots · 3 schedules, 1 paused"
    world.stop()


def test_7_4_a_blocked_schedule_and_a_file_that_never_was_valid_are_counted(world: World) -> None:
    (world.root / "schedules" / "new.toml").write_text("nonsense")
    (world.root / "schedules" / "new.toml").chmod(0o600)
    (world.root / "schedules" / "b.toml").unlink()
    world.step()
    world.clock.advance(timedelta(seconds=30) - (world.clock.now() - START))
    world.step()
    assert world._service is not None
    line = StatusLine(world._service)
    line.refresh()
    assert line.text.endswith("4 schedules, 2 BLOCKED")
    world.stop()

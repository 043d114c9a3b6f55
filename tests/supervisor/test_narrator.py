"""What the log tells of occurrences and runs, and of a clock that jumped (contract 5.10, 5.14, 6.6)."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.story import START, FakeClock, World
from wfctl import init_store
from wfctl.core.instants import format_instant
from wfctl.supervisor import narrator
from wfctl.supervisor.clockwatch import ClockWatch

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


class Lines(logging.Handler):
    """Keeps every record."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[Any] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def take(self, action: str) -> list[Any]:
        """Return the records of an action, and forget all that were kept."""
        found, self.records = [each for each in self.records if getattr(each, "action", "") == action], []
        return found

    def actions(self) -> list[str]:
        """Return the actions in their order."""
        return [getattr(each, "action", "") for each in self.records]


@pytest.fixture
def lines() -> Iterator[Lines]:
    logger = logging.getLogger("wfctl.supervisor")
    kept, level = Lines(), logger.level
    logger.addHandler(kept)
    logger.setLevel(logging.INFO)
    yield kept
    logger.removeHandler(kept)
    logger.setLevel(level)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    init_store(tmp_path / "store").close()
    world = World(tmp_path / "store")
    world.store.create_deployment(deployment_id="d", command=["/bin/true"])
    yield world
    world.end()
    world.stop()


def minutely(world: World, name: str = "s", **fields: Any) -> None:
    trigger = {"kind": "cron", "expression": "* * * * *"}
    world.store.create_schedule(schedule_id=name, deployment_id="d", trigger=trigger, **fields)
    world.step()


def to(world: World, seconds: float) -> None:
    """Go to so many seconds after the next full minute, and step."""
    world.clock.advance(START + timedelta(seconds=30 + seconds) - world.clock.now())
    world.step()


def test_an_occurrence_that_is_skipped_has_a_line_with_its_ids(world: World, lines: Lines) -> None:
    minutely(world)
    to(world, 0)
    (admitted,) = lines.take("occurrence_admitted")
    first, second = format_instant(START + MINUTE / 2), format_instant(START + MINUTE * 1.5)
    assert (admitted.schedule, admitted.occurrence, admitted.run, admitted.revision) == ("s", first, "run-000001", 1)
    assert admitted.to == "admitted"
    to(world, 60)
    (skipped,) = lines.take("occurrence_skipped-overlap")
    assert (skipped.schedule, skipped.occurrence, skipped.revision) == ("s", second, 1)
    assert (skipped.to, skipped.reason) == ("skipped-overlap", "overlap")
    assert skipped.getMessage() == f"s@{second} skipped-overlap: overlap: run-000001 held the slot"


def test_a_run_tells_its_schedule_its_change_and_why_it_failed(world: World, lines: Lines) -> None:
    minutely(world)
    to(world, 0)
    world.end(exit_status=2)
    world.step()
    (failed,) = lines.take("run_failed")
    assert (failed.schedule, failed.occurrence, failed.run) == ("s", format_instant(START + MINUTE / 2), "run-000001")
    assert (vars(failed)["from"], failed.to, failed.reason) == ("running", "failed", "exit")
    assert failed.getMessage() == "run-000001 is failed: exit 2"
    assert failed.levelno == logging.WARNING


def test_what_a_command_settled_is_told_too(world: World, lines: Lines) -> None:
    """A pause settles what was due before it, in the process of the command; the log is the supervisor's."""
    minutely(world, misfire="latest")
    to(world, 0)
    to(world, 60)  # held
    lines.records.clear()
    world.store.pause_schedule(schedule_id="s", reason="maintenance")
    world.step()
    (coalesced,) = lines.take("occurrence_coalesced")
    assert (coalesced.to, coalesced.reason) == ("coalesced", "paused")
    world.step()
    assert lines.actions() == [], "once"


def test_5_2_catching_up_has_a_line_an_occurrence_and_one_for_the_span(world: World, lines: Lines) -> None:
    minutely(world)
    lines.records.clear()
    to(world, 600 * 60 + 30)
    assert lines.actions()[0] == "occurrence_admitted", "first the launches, then the lines"
    missed = lines.take("occurrence_skipped-misfire")
    assert len(missed) == 100, "99 rows and a span"
    assert missed[0].getMessage().startswith(f"s from {format_instant(START + MINUTE / 2)} to ")


def test_a_great_many_are_only_counted(world: World, lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(narrator, "AT_ONCE", 10)
    minutely(world)
    to(world, 50 * 60 + 30)
    assert sum(action == "occurrence_skipped-misfire" for action in lines.actions()) == 10
    (more,) = lines.take("occurrences_settled")
    assert more.getMessage().startswith("40 more occurrences were settled")
    to(world, 51 * 60)
    assert lines.actions() == ["run_running", "occurrence_skipped-overlap"], "and it goes on from there"


def test_5_14_a_jump_of_the_clock_says_how_many_instants_it_passed_by(world: World, lines: Lines) -> None:
    minutely(world)
    lines.records.clear()
    world.clock.set(world.clock.now() + timedelta(minutes=4))
    world.step()
    (jumped,) = lines.take("clock_jumped")
    assert jumped.getMessage() == "clock jumped +4m (set), 3 instants missed"
    to(world, 5 * 60)
    assert "clock_jumped" not in lines.actions(), "time that passes is no jump"


@pytest.mark.parametrize(
    ("wall", "monotonic", "boottime", "said"),
    [
        pytest.param(7380, 0, 7380, "+2h 03m (suspend)", id="a suspend"),
        pytest.param(7380, 0, 0, "+2h 03m (set)", id="set forward"),
        pytest.param(-600, 0, 0, "-10m (set)", id="set back"),
        pytest.param(3600, 3600, 3600, None, id="time that passes"),
        pytest.param(3601.5, 3600, 3600, None, id="steered"),
        pytest.param(90, 90, 90, None, id="a loop that stood still"),
    ],
)
def test_5_14_how_the_clock_jumped(wall: float, monotonic: float, boottime: float, said: str | None) -> None:
    clock = FakeClock()
    offset = 0.0
    watch = ClockWatch(clock, lambda: clock.monotonic() + offset)  # type: ignore[arg-type]
    assert watch.look(clock.now()) is None
    clock.advance(timedelta(seconds=monotonic))
    clock.set(START + timedelta(seconds=wall))
    offset = boottime - monotonic
    assert watch.look(clock.now()) == said
    assert watch.look(clock.now()) is None, "once"

"""FR-01: the hour that happens twice, the hour that is missing, and the days after (contract 4.2, 4.6)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import Wfctl
from tests.support.drive import DAY, HOUR, MINUTE, Drive, moment
from tests.support.witness import Witness

DAILY, HALF, ZONE = "30 2 * * *", "*/30 * * * *", "Europe/Berlin"


def _fold() -> list[datetime]:
    times = ["10-31T00:30", "10-31T01:30", *(f"11-0{day}T01:30" for day in range(1, 7))]
    return [moment(f"2027-{each}") for each in times]


def _gap() -> list[datetime]:
    times = ["03-28T01:00", *(f"03-{day}T00:30" for day in (29, 30, 31)), *(f"04-0{day}T00:30" for day in range(1, 5))]
    return [moment(f"2027-{each}") for each in times]


@pytest.mark.parametrize(
    ("begin", "night", "expected"),
    [
        pytest.param("2027-10-30T12:00", "2027-10-30T23:00", _fold(), id="the fold of 31 October"),
        pytest.param("2027-03-27T12:00", "2027-03-28T00:00", _gap(), id="the gap of 28 March"),
    ],
)
def test_fr_01_next_is_what_is_admitted_and_nothing_runs_twice(
    tmp_path: Path, witness: Witness, ledger_check: Callable[..., None], begin: str, night: str, expected: list[datetime]
) -> None:
    """The job is a witnessed `true`. The four hours of the change are driven minute by minute, the other days from one wake-up
    to the next: a step at a minute at which nothing is due does nothing."""
    bare = Wfctl(tmp_path / "store", tmp_path)
    with Drive(tmp_path / "store", moment(begin)) as drive:
        drive.deployment(witness.command("true"))
        drive.cron("daily", DAILY, ZONE)
        drive.cron("half", HALF, ZONE, paused=True)
        page = bare.ok("schedule", "next", "daily", "-n", "8", "--from", f"{begin}Z", "-o", "json").json
        announced = [datetime.fromisoformat(each["instant"]) for each in page["items"]]
        assert announced == expected
        _to_each_wake_up(drive, moment(night) - timedelta(seconds=30))
        drive.store.resume_schedule(schedule_id="half")
        drive.to(moment(night) + 3 * HOUR + timedelta(seconds=30))
        drive.store.pause_schedule(schedule_id="half")
        _to_each_wake_up(drive, expected[-1] + HOUR)
        assert drive.admitted("daily") == announced, "next is what is admitted, exactly"
        assert drive.admitted("half") == [moment(night) + i * 30 * MINUTE for i in range(7)], "each half hour of real time"
        assert {row.status for row in drive.rows("daily") + drive.rows("half")} == {"completed"}
        ledger_check(drive.store, witness)


def test_fr_01_two_runs_of_one_night_are_announced(tmp_path: Path) -> None:
    """4.6: `add` says so, and that the gap moves it. The command takes the machine's clock: whichever change comes."""
    wfctl = Wfctl(tmp_path / "store", tmp_path)
    wfctl.ok("init", "-q")
    wfctl.ok("deployment", "add", "d", "--", "true")
    said = wfctl.ok("schedule", "add", "daily", "--deployment", "d", "--cron", DAILY, "--timezone", ZONE)
    words = said.out + said.err
    assert "runs twice" in words and "moved" in words, words
    assert "daily" in wfctl.ok("schedules").out


def _to_each_wake_up(drive: Drive, until: datetime) -> None:
    while drive.clock.now() < until:
        wake: Any = drive.step()
        drive.clock.advance(min(wake or until, until, drive.clock.now() + DAY) - drive.clock.now())
        drive.step()
        drive.settle()

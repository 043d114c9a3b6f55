"""Where an axis has its ticks, and how stretches are laid side by side."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from wfctl.core.axis import STEPS, step_of, ticks
from wfctl.core.tracks import assign_tracks

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("length", "most", "step"),
    [
        (10 * timedelta(seconds=1), 10, timedelta(seconds=1)),
        (HOUR, 8, 10 * MINUTE),
        (HOUR, 12, 5 * MINUTE),
        (14 * HOUR, 7, 2 * HOUR),
        (14 * HOUR, 6, 3 * HOUR),
        (7 * DAY, 8, DAY),
        (90 * DAY, 8, 14 * DAY),
        (100 * 365 * DAY, 8, 13 * STEPS[-1]),
    ],
    ids=str,
)
def test_the_step_is_the_shortest_that_fits(length: timedelta, most: int, step: timedelta) -> None:
    assert step_of(length, most) == step


def test_ticks_stand_at_whole_steps_of_the_zone_and_a_new_day_is_named() -> None:
    found = ticks(moment("2027-03-01T21:10"), moment("2027-03-02T00:10"), ZoneInfo("Asia/Kolkata"), step=HOUR)
    assert [(tick.label, tick.day) for tick in found] == [("03:00", "Tue 02 Mar"), ("04:00", ""), ("05:00", "")]
    assert found[0].at == moment("2027-03-01T21:30")
    found = ticks(moment("2027-03-01T20:00"), moment("2027-03-02T04:00"), ZoneInfo("UTC"), step=2 * HOUR)
    assert [(tick.label, tick.day) for tick in found] == [
        ("20:00", "Mon 01 Mar"), ("22:00", ""), ("00:00", "Tue 02 Mar"), ("02:00", ""), ("04:00", ""),
    ]  # fmt: skip


def test_a_time_that_does_not_exist_has_no_tick_and_one_that_comes_twice_has_one() -> None:
    new_york = ZoneInfo("America/New_York")
    spring = ticks(moment("2026-03-08T05:30"), moment("2026-03-08T08:30"), new_york, step=HOUR)
    assert [tick.label for tick in spring] == ["01:00", "03:00", "04:00"]
    autumn = ticks(moment("2026-11-01T04:30"), moment("2026-11-01T08:30"), new_york, step=HOUR)
    assert [tick.label for tick in autumn] == ["01:00", "02:00", "03:00"]
    assert all(first.at < second.at for first, second in pairwise(autumn))


def test_weeks_begin_on_a_monday() -> None:
    found = ticks(moment("2027-03-01T00:00"), moment("2027-04-01T00:00"), ZoneInfo("UTC"), step=7 * DAY)
    assert [tick.label for tick in found] == ["Mon 01", "Mon 08", "Mon 15", "Mon 22", "Mon 29"]


def test_stretches_that_meet_share_a_track_and_those_that_overlap_do_not() -> None:
    at = [moment("2027-03-01T00:00") + n * HOUR for n in range(10)]
    assert assign_tracks([(at[0], at[2]), (at[1], at[3]), (at[2], at[4]), (at[3], at[5]), (at[6], at[7])]) == [0, 1, 0, 1, 0]
    assert assign_tracks([]) == []
    assert assign_tracks([(at[1], at[1]), (at[1], at[5]), (at[1], at[2])]) == [2, 0, 1]

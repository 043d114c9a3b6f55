"""What a revision keeps of its calendar, and what it tells when croniter or the tz database has become another one."""

from __future__ import annotations

import json
import struct
import zoneinfo
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path

import pytest

from wfctl.core import drift
from wfctl.core.drift import Moved, RecordedZone, drift_of, from_text, record, to_text
from wfctl.core.model import CronTrigger, IntervalTrigger, OneshotTrigger
from wfctl.core.trigger import CronCalendar, clear_caches, instants_after, zone_of

NOW = datetime(2026, 6, 15, 10, 0, 30, tzinfo=UTC)
HOUR = timedelta(hours=1)
ZONES = [
    "Europe/Paris",
    "America/New_York",
    "Africa/Casablanca",
    "Australia/Lord_Howe",
    "Asia/Kathmandu",
    "UTC",
    "Africa/Cairo",
]


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def recorded(trigger: CronTrigger) -> drift.Recorded:
    found = record(trigger, NOW)
    assert found is not None
    assert from_text(to_text(found)) == found
    return found


def tzif(changes: list[tuple[datetime, timedelta, str]], first: tuple[timedelta, str]) -> bytes:
    """A tz file (RFC 9636) of the given offsets: one before the first change, then one from each change on."""
    kinds = [first, *((offset, name) for _, offset, name in changes)]
    names = "".join(f"{name}\0" for _, name in kinds).encode()
    places = [sum(len(name) + 1 for _, name in kinds[:number]) for number in range(len(kinds))]
    block = b"".join(struct.pack(">q", round(when.timestamp())) for when, _, _ in changes)
    block += bytes(range(1, len(kinds)))
    block += b"".join(
        struct.pack(">lbb", round(offset.total_seconds()), 0, place) for (offset, _), place in zip(kinds, places, strict=True)
    )
    counts = struct.pack(">6l", 0, 0, 0, len(changes), len(kinds), len(names))
    empty = struct.pack(">6l", 0, 0, 0, 0, 1, 1) + struct.pack(">lbb", 0, 0, 0) + b"\0"
    return b"TZif2" + bytes(15) + empty + b"TZif2" + bytes(15) + counts + block + names + b"\n\n"


@pytest.fixture
def other_database(tmp_path: Path) -> Iterator[Path]:
    """An empty tz database of another version, which this machine has from now on; the zones go into it."""
    (tmp_path / "Europe").mkdir()
    (tmp_path / "tzdata.zi").write_text("# version 2031z\n")
    before = zoneinfo.TZPATH
    yield tmp_path
    zoneinfo.reset_tzpath(before)
    clear_caches()


def install(folder: Path) -> None:
    zoneinfo.reset_tzpath([str(folder)])
    clear_caches()


# The zone ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ZONES)
def test_a_recorded_zone_is_the_zone(name: str) -> None:
    zone = zone_of(name)
    kept = RecordedZone(recorded(CronTrigger("0 0 * * *", name)).offsets)
    for number in range(0, 5 * 366 * 24 * 2, 13):
        instant = NOW + number * timedelta(minutes=30)
        here, there = instant.astimezone(zone), instant.astimezone(kept)
        assert (there.replace(tzinfo=None), there.fold) == (here.replace(tzinfo=None), here.fold)
        for fold in (0, 1):
            local = here.replace(tzinfo=None, fold=fold)
            assert local.replace(tzinfo=kept).utcoffset() == local.replace(tzinfo=zone).utcoffset(), local
        assert there.astimezone(UTC) == instant


@pytest.mark.parametrize("name", ZONES)
@pytest.mark.parametrize("expression", ["30 2 * * *", "*/20 0-4 * * *", "0 0 31 * 0"])
def test_a_calendar_by_a_recorded_zone_names_the_same_instants(name: str, expression: str) -> None:
    trigger = CronTrigger(expression, name)
    kept = CronCalendar(trigger, RecordedZone(recorded(trigger).offsets))
    theirs, ours = instants_after(kept, NOW), instants_after(CronCalendar(trigger), NOW)
    for there, here in islice(zip(theirs, ours, strict=False), 400):
        if here > NOW + drift.KEPT:
            break
        assert there == here


# What is kept -----------------------------------------------------------------------------------------------------------


def test_nothing_is_kept_of_what_asks_neither_croniter_nor_the_tz_database() -> None:
    assert record(IntervalTrigger(HOUR), NOW) is None
    assert record(OneshotTrigger(NOW + HOUR), NOW) is None


def test_what_is_kept_is_small_and_holds_the_changes_of_the_coming_years() -> None:
    found = recorded(CronTrigger("30 2 * * *", "Europe/Paris"))
    assert len(to_text(found)) < 1000
    assert [f"{start:%Y-%m}" for start, _ in found.offsets][:3] == ["2026-06", "2026-10", "2027-03"]
    assert len(found.offsets) == 11  # two a year, and where it begins
    assert len(found.samples[0].instants) == drift.SAMPLED


def json_record(**changes: object) -> str:
    return json.dumps({"source": "x", "until": 1, "offsets": [[0, 0]], "samples": [], **changes})


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", "{}", "[" * 100_000),
        json_record(until="x"),
        json_record(until=1e99),
        json_record(offsets=[]),
        json_record(offsets=[[0, 0], [0, 0]]),
        json_record(offsets=[[0, 99_999_999]]),
        json_record(samples=[[1]]),
        json_record(samples=5),
    ],
)
def test_a_damaged_record_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        from_text(text)


# Drift ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("expression", ["30 2 * * *", "*/5 9-17 * * 1-5", "* * * * *", "0 0 29 2 *"])
@pytest.mark.parametrize("zone", ["Europe/Paris", "UTC", "Africa/Casablanca"])
def test_nothing_has_drifted_by_the_same_versions(expression: str, zone: str) -> None:
    trigger = CronTrigger(expression, zone)
    found = drift_of(trigger, recorded(trigger), NOW + timedelta(days=40))
    assert (found.croniter, found.zone, found.stretches, found.gone, found.new) == (None, None, (), 0, 0)
    assert found.is_complete
    assert found.until - found.since == timedelta(days=366)


def test_a_country_that_gives_up_summer_time_moves_half_a_year(other_database: Path) -> None:
    trigger = CronTrigger("30 2 * * *", "Europe/Paris")
    before = recorded(trigger)
    (other_database / "Europe" / "Paris").write_bytes(tzif([(at("2026-10-25T01:00"), HOUR, "CET")], (2 * HOUR, "CEST")))
    install(other_database)
    found = drift_of(trigger, before, NOW)
    assert [(f"{each.since:%Y-%m-%d}", each.then, each.now) for each in found.stretches] == [("2027-03-28", 2 * HOUR, HOUR)]
    assert found.zone == Moved(at("2027-03-28T01:00"), at("2027-03-28T01:30"))  # the gap is gone
    assert found.croniter is None, "croniter is asked by the clock that was recorded"
    days = (NOW + timedelta(days=366) - at("2027-03-28T00:00")).days
    assert (found.gone, found.is_complete) == (days + 1, True)


def test_whole_hours_move_nothing_that_runs_each_hour_of_each_day(other_database: Path) -> None:
    quarterly = CronTrigger("*/15 * * * *", "Europe/Paris")
    mondays = CronTrigger("*/15 * * * mon", "Europe/Paris")
    kept = {trigger: recorded(trigger) for trigger in (quarterly, mondays)}
    (other_database / "Europe" / "Paris").write_bytes(tzif([], (3 * HOUR, "X")))
    install(other_database)
    even, uneven = (drift_of(trigger, kept[trigger], NOW) for trigger in (quarterly, mondays))
    assert even.stretches
    assert (even.zone, even.is_complete) == (None, True)
    assert uneven.zone == Moved(
        at("2026-06-15T21:00"), at("2026-06-21T21:00")
    )  # the end of Monday, 15 June comes an hour sooner


def test_half_hours_move_everything(other_database: Path) -> None:
    trigger = CronTrigger("0 * * * *", "Europe/Paris")
    before = recorded(trigger)
    (other_database / "Europe" / "Paris").write_bytes(tzif([], (HOUR / 2, "X")))
    install(other_database)
    found = drift_of(trigger, before, NOW)
    assert found.zone == Moved(at("2026-06-15T11:00"), at("2026-06-15T10:30"))
    assert not found.is_complete, "bounded: it is said that there are more"
    assert found.gone <= drift.COMPARED * len(found.stretches)


def test_a_sample_that_is_named_differently_is_croniter_s() -> None:
    trigger = CronTrigger("30 2 * * *", "Europe/Paris")
    before = recorded(trigger)
    first = before.samples[0]
    altered = replace(first, instants=(first.instants[0], first.instants[1] + timedelta(minutes=5), *first.instants[2:]))
    found = drift_of(trigger, replace(before, samples=(altered, *before.samples[1:])), NOW)
    assert found.croniter == Moved(altered.instants[1], first.instants[1])
    assert found.zone is None


def test_a_record_of_long_ago_covers_what_it_reaches() -> None:
    trigger = CronTrigger("30 2 * * *", "Europe/Paris")
    before = recorded(trigger)
    later = drift_of(trigger, before, NOW + drift.KEPT - timedelta(days=100))
    assert later.until == before.until
    assert later.zone is None
    over = drift_of(trigger, before, NOW + drift.KEPT + timedelta(days=1))
    assert (over.since >= over.until, over.zone) == (True, None)

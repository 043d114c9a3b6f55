"""Calendars: what comes next and what is due, whatever the start (contract 4.2, 4.4, 4.5, 5.1, 5.2, 6.8)."""

from __future__ import annotations

import random
import threading
import time
from datetime import UTC, datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

import pytest

from tests.support.chance import times
from wfctl.core import trigger as module
from wfctl.core.cron import parse_expression
from wfctl.core.instants import parse_instant
from wfctl.core.model import CronTrigger, DueInstants, IntervalTrigger, OneshotTrigger, Span
from wfctl.core.trigger import (
    CalendarError,
    calendar_of,
    changes_of,
    check_fires,
    instants_after,
    next_instants,
    resolve_max_run,
    stamps,
    valid_zones,
)
from wfctl.errors import InvalidArgument, InvalidDefinition

NOW = datetime(2026, 6, 15, 10, 0, 30, tzinfo=UTC)
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
ODD_ZONES = [  # with a year in which their clock does something odd
    ("America/New_York", 2026), ("Europe/Budapest", 2026), ("Australia/Lord_Howe", 2026), ("Antarctica/Troll", 2026),
    ("Africa/Casablanca", 2025), ("Europe/Dublin", 2026), ("America/Sao_Paulo", 2018), ("Pacific/Apia", 2011),
    ("Asia/Gaza", 2026), ("America/Havana", 2026), ("America/Caracas", 2016), ("Asia/Pyongyang", 2015),
    ("America/Nuuk", 2026), ("Asia/Beirut", 2026), ("Pacific/Chatham", 2026), ("America/Asuncion", 2024),
    ("Europe/Lisbon", 1996), ("Antarctica/Casey", 2018), ("America/St_Johns", 2008),
    ("Europe/Volgograd", 2018),
]  # fmt: skip


def at(text: str) -> datetime:
    return parse_instant(text)


def obvious_instants(expression: str, zone: str, after: datetime, until: datetime) -> list[datetime]:
    """The model: every minute of the zone's clock; a repeated one counts twice, a missing one moves to the end of the gap."""
    fields, place, found = parse_expression(expression), ZoneInfo(zone), set()

    def is_named(wall: datetime) -> bool:
        day, weekday = wall.day in fields.day.values, wall.isoweekday() % 7 in fields.weekday.values
        days = (day or weekday) if fields.has_both_days else (day and weekday)
        return days and all(
            value in field.values
            for value, field in ((wall.minute, fields.minute), (wall.hour, fields.hour), (wall.month, fields.month))
        )

    def readings(wall: datetime) -> set[datetime]:
        both = {wall.replace(tzinfo=place, fold=fold).astimezone(UTC) for fold in (0, 1)}
        return {instant for instant in both if instant.astimezone(place).replace(tzinfo=None) == wall}

    wall = after.astimezone(place).replace(tzinfo=None, second=0, microsecond=0) - DAY
    end = until.astimezone(place).replace(tzinfo=None) + DAY
    while wall <= end:
        if is_named(wall):
            instants, moved = readings(wall), wall
            while not instants and len(fields.hour.values) < 24:
                moved += MINUTE
                instants = readings(moved)
            found |= instants
        wall += MINUTE
    return sorted(instant for instant in found if after < instant <= until)


def random_expression(rng: random.Random, wall: datetime) -> str:
    """One that names times near the given one on the clock."""
    wall += rng.choice([-120, -61, -60, -46, -30, -15, -1, 0, 0, 1, 15, 30, 45, 59, 60, 90]) * MINUTE
    minute = rng.choice([str(wall.minute), f"{wall.minute},{(wall.minute + 30) % 60}", "*/15", "*/7", "0,30", "*"])
    hour = rng.choice([str(wall.hour), f"{wall.hour},{(wall.hour + 1) % 24}", "*/2", "*/3", "*", "22-3"])
    day = rng.choice(["*", "*", "*", str(wall.day), "*/2"])
    month = rng.choice(["*", "*", str(wall.month)])
    weekday = rng.choice(["*", "*", "*", str(wall.isoweekday()), "*/2", "0-6", "fri-mon"])
    return f"{minute} {hour} {day} {month} {weekday}"


@pytest.mark.parametrize("seed", range(times(60)))
def test_clock_changes_are_met_whatever_the_start(seed):  # contract 4.2, 5.1, 5.2
    rng = random.Random(seed)
    zone, year = rng.choice(ODD_ZONES) if seed % 3 else (rng.choice(sorted(valid_zones())), rng.randint(2025, 2037))
    first_of_year = datetime(year, 1, 1, tzinfo=UTC)
    changes = [
        found for found in changes_of(ZoneInfo(zone), first_of_year, first_of_year + 365 * DAY) if found[2] - found[1] < DAY / 2
    ]
    change, before, _ = rng.choice(changes) if changes else (first_of_year + rng.random() * 365 * DAY, timedelta(0), None)
    expression = random_expression(rng, (change + before).replace(tzinfo=None))
    calendar = calendar_of(CronTrigger(expression, zone))
    after, until = change - 30 * HOUR, change + 30 * HOUR
    obvious = obvious_instants(expression, zone, after, until)

    assert list(instants_between(calendar, after, until)) == obvious
    for _ in range(20):
        start = change + timedelta(seconds=rng.randint(-20_000, 20_000), microseconds=rng.choice([0, 1, 999_999]))
        following = [instant for instant in obvious if instant > start]
        assert list(instants_between(calendar, start, until)) == following, (expression, zone, start)
        limit = rng.choice([1, 3, 100])
        assert_due(calendar.due(start, until, limit=limit), following, limit)


@pytest.mark.parametrize("seed", range(times(12)))
def test_a_year_of_days(seed):  # contract 4.1: OR of the day fields, months, leap days
    rng = random.Random(seed)
    days = ["*", "29", "30,31", "*/10", "1-7", "31", "*/2", "13"]
    day, month = rng.choice(days), rng.choice(["*", "*", "2", "*/5", "jan-mar", "11-2"])
    expression = (
        f"{rng.randint(0, 59)} {rng.randint(3, 22)} {day} {month} {rng.choice(['*', 'sun', '5-7', '*/2', '7', 'fri-mon'])}"
    )
    after = datetime(rng.choice([2027, 2028, 2099]), 1, 1, tzinfo=UTC) + rng.random() * 300 * DAY
    obvious = obvious_instants(expression, "Asia/Kolkata", after, after + 150 * DAY)
    try:
        check_fires(CronTrigger(expression, "Asia/Kolkata"), after)
    except InvalidDefinition:
        assert not obvious
        return
    calendar = calendar_of(CronTrigger(expression, "Asia/Kolkata"))
    assert list(instants_between(calendar, after, after + 150 * DAY)) == obvious


def instants_between(calendar, after, until):
    for instant in instants_after(calendar, after):
        if instant > until:
            return
        yield instant


def assert_due(due: DueInstants, expected: list[datetime], limit: int) -> None:
    assert list(due.instants) == expected[-limit:]
    older = expected[:-limit]
    assert due.older == (Span(older[0], older[-1], None) if older else None)


@pytest.mark.parametrize(
    ("start", "following"),
    [
        pytest.param("2026-11-01T05:44:00Z", "2026-11-01T05:45:00Z", id="before the first pass"),
        pytest.param("2026-11-01T05:45:00Z", "2026-11-01T06:45:00Z", id="at the first pass, where croniter says 2027"),
        pytest.param("2026-11-01T06:00:00Z", "2026-11-01T06:45:00Z", id="where the second pass begins"),
        pytest.param("2026-11-01T06:44:59.999999Z", "2026-11-01T06:45:00Z", id="a microsecond before the second"),
        pytest.param("2026-11-01T06:45:00Z", "2027-11-01T05:45:00Z", id="at the second pass"),
    ],
)
def test_a_yearly_time_in_a_fold(start, following):  # contract 4.2
    calendar = calendar_of(CronTrigger("45 1 1 11 *", "America/New_York"))
    assert calendar.next_after(at(start)) == at(following)


@pytest.mark.parametrize(
    ("expression", "following"),
    [
        pytest.param("0 * * * *", "2011-12-30T10:00:00Z", id="what runs every hour goes on"),
        pytest.param("0 12 * * *", "2011-12-30T10:00:00Z", id="noon of the missing day moves to the end of it"),
        pytest.param("0 12 29,31 * *", "2011-12-30T22:00:00Z", id="noon of the day after stays"),
    ],
)
def test_a_civil_day_that_does_not_exist(expression, following):  # contract 4.2: Apia had no 30 December 2011
    # croniter 7.0.0 walks such a day minute by minute for each time it names: seconds for `* * * * *`, so none of that here.
    assert calendar_of(CronTrigger(expression, "Pacific/Apia")).next_after(at("2011-12-30T09:30:00Z")) == at(following)


def test_a_time_exactly_where_the_second_pass_begins():
    instants = next_instants({"kind": "cron", "expression": "0,30 1 1 11 *", "timezone": "America/New_York"}, NOW, 5)
    assert [f"{instant:%H:%M}" for instant in instants] == ["05:00", "05:30", "06:00", "06:30", "05:00"]


@pytest.mark.parametrize("limit", [1, 9, 10, 11, 100])
def test_due_is_half_open_and_keeps_the_newest(limit):  # contract 5.1, 5.2
    calendar = calendar_of(CronTrigger("* * * * *", "UTC"))
    after = at("2026-06-15T10:00:00Z")
    due = calendar.due(after, after + 10 * MINUTE, limit=limit)
    assert_due(due, [after + number * MINUTE for number in range(1, 11)], limit)


@pytest.mark.parametrize("minutes", [-5, 0])
def test_nothing_is_due_before_the_floor(minutes):
    for trigger in (CronTrigger("* * * * *", "UTC"), IntervalTrigger(MINUTE), OneshotTrigger(NOW)):
        assert calendar_of(trigger, NOW - DAY).due(NOW, NOW + minutes * MINUTE) == DueInstants()


@pytest.mark.parametrize(
    "expression", ["* * * * *", "*/5 9-17 * * mon-fri", "* * * jan *", "0 0 13 * 5", "* 0 1 1 *", "30 2 * * *", "0 0 1 1 *"]
)
def test_ten_years_of_missed_instants_are_not_enumerated(expression):  # contract 5.2: 50 ms
    calendar = calendar_of(CronTrigger(expression, "Europe/Budapest"))
    calendar.next_after(NOW)
    asked: list[float] = []
    for attempt in range(3):
        until = NOW + attempt * timedelta(seconds=1)
        started = time.perf_counter()
        due = calendar.due(NOW - 3650 * DAY, until)
        asked.append(time.perf_counter() - started)
    assert min(asked) < 0.05
    assert len(due.instants) == 100 or due.older is None
    assert list(due.instants) == sorted(set(due.instants))
    assert calendar.next_after(due.instants[-1]) > until
    if due.older:
        assert calendar.next_after(due.older.last) == due.instants[0]
        assert due.older.first == calendar.next_after(NOW - 3650 * DAY)


def test_due_finds_a_start_where_croniter_knows_no_step_back(monkeypatch):  # contract 4.2
    calendar = calendar_of(CronTrigger("*/5 * * * *", "Europe/Budapest"))
    expected = calendar.due(NOW - 30 * DAY, NOW)
    monkeypatch.setattr(module, "_earlier_of_cron", lambda *_: None)
    assert calendar.due(NOW - 30 * DAY, NOW) == expected


@pytest.mark.parametrize(("limit", "count"), [(1000, 241), (241, 241), (100, 100)])
def test_count(limit, count):  # contract 5.2
    first, last = at("2026-06-15T06:00:00Z"), at("2026-06-15T10:00:00Z")
    assert calendar_of(CronTrigger("* * * * *", "UTC")).count(first, last, limit=limit) == count
    assert calendar_of(IntervalTrigger(MINUTE), first - DAY).count(first, last, limit=limit) == count


def test_one_calendar_asked_by_many_threads():
    calendar = calendar_of(CronTrigger("*/3 * * * *", "Europe/Budapest"))
    wrong: list[datetime] = []

    def ask(offset: int) -> None:
        for number in range(100):
            start = NOW + timedelta(days=offset * 200, minutes=3 * number)
            if calendar.next_after(start) - start != timedelta(minutes=2, seconds=30):
                wrong.append(start)

    threads = [threading.Thread(target=ask, args=(offset,)) for offset in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("name", ["UTC", "Asia/Tokyo", "America/New_York"])
def test_the_machines_zone_is_never_used(monkeypatch, name):  # field report 19
    monkeypatch.setenv("TZ", name)
    time.tzset()
    try:
        module.clear_caches()
        instants = next_instants({"kind": "cron", "expression": "30 2 * * *", "timezone": "Europe/Budapest"}, NOW, 1)
    finally:
        monkeypatch.undo()
        time.tzset()
    assert instants == (at("2026-06-16T00:30:00Z"),)


def test_a_zone_that_vanished(monkeypatch):  # contract 4.3
    trigger = CronTrigger("0 0 * * *", "Europe/Budapest")
    calendar_of(trigger)
    monkeypatch.setattr(module, "_load", lambda name: None)
    module.clear_caches()
    with pytest.raises(CalendarError, match="Europe/Budapest"):
        calendar_of(trigger)


@pytest.mark.parametrize("answer", [RuntimeError("boom"), AssertionError(), NOW, NOW - DAY])
def test_no_answer_of_croniter_is_trusted_blindly(monkeypatch, answer):  # contract 4.2
    class Broken:
        expanded = [["*"]] * 5

        def get_next(self, ret_type, start_time):
            if isinstance(answer, Exception):
                raise answer
            return answer

    module.clear_caches()
    monkeypatch.setattr(module, "_make_croniter", lambda expression, zone: Broken())
    trigger = CronTrigger("* * * * *", "UTC")
    with pytest.raises(CalendarError):
        calendar_of(trigger).next_after(NOW)
    with pytest.raises(InvalidDefinition):
        check_fires(trigger, NOW)
    monkeypatch.undo()
    module.clear_caches()


def test_another_croniter_is_refused_at_creation(monkeypatch):  # contract 4.2: croniter is 7.x
    monkeypatch.setattr(module, "stamps", lambda: ("8.0.0", "2026b"))
    with pytest.raises(InvalidDefinition, match="install croniter>=7,<8"):
        check_fires(CronTrigger("* * * * *", "UTC"), NOW)


def test_stamps():  # contract 3.2
    croniter_version, tz_version = stamps()
    assert croniter_version.startswith("7.")
    assert tz_version == "unknown" or tz_version[:2] == "20"


# Intervals and one-shots


def test_the_grid_of_an_interval():  # contract 4.4
    anchor = at("2026-06-15T10:00:00.900000Z")
    calendar = calendar_of(IntervalTrigger(timedelta(minutes=10)), anchor)
    assert calendar.next_after(anchor - DAY) == at("2026-06-15T10:10:00Z")
    assert calendar.next_after(at("2026-06-15T10:09:59.999999Z")) == at("2026-06-15T10:10:00Z")
    assert calendar.next_after(at("2026-06-15T10:10:00Z")) == at("2026-06-15T10:20:00Z")
    assert calendar.due(anchor - DAY, at("2026-06-15T10:20:00Z")).instants == (
        at("2026-06-15T10:10:00Z"),
        at("2026-06-15T10:20:00Z"),
    )


def test_a_span_of_an_interval_is_counted_exactly():  # contract 5.2
    calendar = calendar_of(IntervalTrigger(timedelta(seconds=1)), NOW - 365 * DAY)
    due = calendar.due(NOW - 365 * DAY, NOW)
    assert len(due.instants) == 100
    assert due.instants[-1] == NOW
    assert due.older == Span(NOW - 365 * DAY + timedelta(seconds=1), NOW - timedelta(seconds=100), 365 * 86_400 - 100)


def test_an_interval_ends_with_the_calendar():
    calendar = calendar_of(IntervalTrigger(36_500 * DAY), NOW)
    assert len(list(islice(instants_after(calendar, NOW), 1000))) == 79


def test_an_interval_needs_its_anchor():
    with pytest.raises(ValueError, match="anchor"):
        calendar_of(IntervalTrigger(MINUTE))


def test_a_oneshot_comes_once():  # contract 4.5
    calendar = calendar_of(OneshotTrigger(NOW))
    assert calendar.next_after(NOW - MINUTE) == NOW
    assert calendar.next_after(NOW) is None
    assert calendar.due(NOW - MINUTE, NOW) == DueInstants((NOW,))
    assert calendar.due(NOW, NOW + MINUTE) == DueInstants()
    assert calendar.count(NOW, NOW) == 1


# The public function


def test_next_instants_of_each_kind():  # contract 9.4
    assert next_instants(CronTrigger("0 * * * *", "UTC"), NOW, 1) == (at("2026-06-15T11:00:00Z"),)
    assert next_instants({"kind": "interval", "every": "10m"}, NOW, 2) == (NOW + 10 * MINUTE, NOW + 20 * MINUTE)
    assert next_instants({"kind": "oneshot", "at": "2026-12-01T09:00:00+01:00"}, NOW, 5) == (at("2026-12-01T08:00:00Z"),)
    assert next_instants({"kind": "oneshot", "at": "2025-12-01T09:00:00+01:00"}, NOW, 5) == ()
    (instant,) = next_instants({"kind": "cron", "expression": "0 * * * *"}, NOW.astimezone(ZoneInfo("Asia/Tokyo")), 1)
    assert instant.tzinfo is UTC


@pytest.mark.parametrize(
    ("after", "count"), [(NOW.replace(tzinfo=None), 1), ("2026-06-15", 1), (NOW, 0), (NOW, -1), (NOW, 1.0), (NOW, True)]
)
def test_wrong_arguments(after, count):
    with pytest.raises(InvalidArgument):
        next_instants(CronTrigger("* * * * *", "UTC"), after, count)


@pytest.mark.parametrize("expression", ["0 0 30 2 *", "* * * * * *", "5-5 * * * *"])
def test_a_wrong_trigger(expression):
    with pytest.raises(InvalidDefinition):
        next_instants({"kind": "cron", "expression": expression, "timezone": "UTC"}, NOW, 1)


def test_naive_times_are_refused():
    naive = NOW.replace(tzinfo=None)
    for trigger in (CronTrigger("* * * * *", "UTC"), IntervalTrigger(MINUTE), OneshotTrigger(NOW)):
        calendar = calendar_of(trigger, NOW)
        for call in (lambda c=calendar: c.next_after(naive), lambda c=calendar: c.due(naive, NOW)):
            with pytest.raises(ValueError, match="naive"):
                call()


# The limit of a run


@pytest.mark.parametrize(
    ("trigger", "max_run", "limit"),
    [
        pytest.param(CronTrigger("* * * * *", "UTC"), "auto", 5 * MINUTE, id="five minutes at least"),
        pytest.param(CronTrigger("*/10 * * * *", "UTC"), "auto", 50 * MINUTE, id="five times ten minutes"),
        pytest.param(CronTrigger("0,1 12 * * *", "UTC"), "auto", 5 * MINUTE, id="the smallest gap counts"),
        pytest.param(
            CronTrigger("30 2 * * *", "Europe/Budapest"), "auto", 5 * DAY, id="the repeated hour makes no gap of an hour"
        ),
        pytest.param(CronTrigger("0 0 * * 1", "UTC"), "auto", 7 * DAY, id="seven days at most"),
        pytest.param(CronTrigger("0 0 29 2 *", "UTC"), "auto", 7 * DAY, id="one instant or none within 366 days"),
        pytest.param(IntervalTrigger(timedelta(seconds=30)), "auto", 5 * MINUTE, id="a short interval"),
        pytest.param(IntervalTrigger(HOUR), "auto", 5 * HOUR, id="an interval"),
        pytest.param(IntervalTrigger(30 * DAY), "auto", 7 * DAY, id="a long interval"),
        pytest.param(OneshotTrigger(NOW), "auto", None, id="a one-shot has none"),
        pytest.param(OneshotTrigger(NOW), MINUTE, MINUTE, id="unless it says one"),
        pytest.param(CronTrigger("* * * * *", "UTC"), "none", None, id="none"),
        pytest.param(
            CronTrigger("* * * * *", "UTC"), timedelta(seconds=3), timedelta(seconds=3), id="a duration is taken as it is"
        ),
    ],
)
def test_resolve_max_run(trigger, max_run, limit):  # contract 6.8
    assert resolve_max_run(max_run, trigger, NOW, at("2026-10-20T00:00:00Z")) == limit

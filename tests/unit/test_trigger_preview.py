"""What is shown of a trigger: its reading, the next instants and the warnings (contract 4.6)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from wfctl.core.cron import parse_expression
from wfctl.core.model import CronTrigger, IntervalTrigger, OneshotTrigger
from wfctl.core.preview import preview, warnings_of
from wfctl.core.reading import field_readings, reading_of

NOW = datetime(2026, 10, 20, 12, 0, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("expression", "reading"),
    [
        ("30 2 * * 1-5", "02:30 on Monday to Friday, UTC"),
        ("0 0 13 * 5", "00:00 on day 13 of the month OR on Friday, UTC"),
        ("30 2 * * *", "02:30 every day, UTC"),
        ("* * * * *", "every minute, UTC"),
        ("*/15 * * * *", "every 15 minutes, UTC"),
        ("0 * * * *", "every hour, on the hour, UTC"),
        ("5,35 * * * *", "every 30 minutes from :05, UTC"),
        ("*/7 9-17 * * *", "every 7 minutes from :00 to :56 of hours 9 to 17 every day, UTC"),
        ("*/10 2 * * 5-7", "every 10 minutes from 02:00 to 02:50 on Friday to Sunday, UTC"),
        ("* 5 * * *", "every minute from 05:00 to 05:59 every day, UTC"),
        ("0 6,18 1,15 jan,jul *", "06:00 and 18:00 on days 1 and 15 of the month in January and July, UTC"),
        ("0 12 * 1-3 sun", "12:00 on Sunday from January to March, UTC"),
        ("0 0 * * fri-mon", "00:00 on Friday to Monday, UTC"),
        ("0 0 1-31 * 1", "00:00 on every day of the month OR on Monday, UTC"),
        ("0 0 1 * 0-6", "00:00 on day 1 of the month OR on every day of the week, UTC"),
        ("0 6 1 mar fri", "06:00 in March, on day 1 of the month OR on Friday, UTC"),
        ("*/7 * * * *", "every 7 minutes from :00 to :56 of every hour, UTC"),
        ("0 8-11,20 * * *", "every hour from 08:00 to 11:00 and at 20:00 every day, UTC"),
        ("0 0 */2 * *", "00:00 on every 2nd day of the month from 1 to 31, UTC"),
    ],
)
def test_the_reading_of_cron(expression, reading):
    assert reading_of(CronTrigger(expression, "UTC")) == reading


def test_the_reading_of_the_others():
    assert reading_of(IntervalTrigger(timedelta(minutes=90))) == "every 1h30m"
    assert reading_of(IntervalTrigger(timedelta(minutes=10)), NOW) == "every 10m, counted from 2026-10-20T12:00:30Z"
    assert reading_of(OneshotTrigger(NOW)) == "once, at 2026-10-20T12:00:30Z"


def test_the_reading_of_fields():
    fields = field_readings(parse_expression("0 0 13 * 5"))
    assert fields == ("minute 0", "hour 0", "day 13", "every month", "Friday")
    assert field_readings(parse_expression("* * * * *"))[3:] == ("every month", "every day of the week")


def test_a_preview_shows_both_passes_of_a_repeated_hour():
    rows = preview(CronTrigger("30 2 * * *", "Europe/Budapest"), None, datetime(2026, 10, 24, 12, tzinfo=UTC), 3)
    assert [(f"{row.instant:%dT%H:%MZ}", f"{row.local:%H:%M %Z}", row.note) for row in rows] == [
        ("25T00:30Z", "02:30 CEST", "fold-first"),
        ("25T01:30Z", "02:30 CET", "fold-second"),
        ("26T01:30Z", "02:30 CET", None),
    ]


@pytest.mark.parametrize(
    ("expression", "note"), [("30 2 * * *", "gap"), ("0 3 * * *", None), ("0 2,3 * * *", None), ("0 * * * *", None)]
)
def test_a_preview_marks_what_a_gap_moved(expression, note):
    rows = preview(CronTrigger(expression, "Europe/Budapest"), None, datetime(2027, 3, 28, 0, 30, tzinfo=UTC), 1)
    assert [(f"{row.instant:%H:%MZ}", f"{row.local:%H:%M %Z}", row.note) for row in rows] == [("01:00Z", "03:00 CEST", note)]


def test_a_preview_of_a_day_that_does_not_exist():
    (row,) = preview(CronTrigger("0 12 30 12 *", "Pacific/Apia"), None, datetime(2011, 12, 1, tzinfo=UTC), 1)
    assert (f"{row.local:%Y-%m-%d %H:%M}", row.note) == ("2011-12-31 00:00", "gap")


def test_a_preview_of_the_others():
    assert [row.instant for row in preview(IntervalTrigger(timedelta(hours=1)), NOW, NOW, 2)] == [
        NOW + timedelta(hours=1),
        NOW + timedelta(hours=2),
    ]
    assert preview(OneshotTrigger(NOW), None, NOW) == ()


@pytest.mark.parametrize(
    ("expression", "zone", "warned"),
    [
        ("0 9 * * *", "Europe/Budapest", []),
        ("*/30 * * * *", "Europe/Budapest", []),
        ("0 0 13 * 5", "UTC", [("day-fields-or", "either matches")]),
        ("0 0 */2 * 1", "UTC", [("day-fields-or", "either"), ("step-beside-day-field", "'*/2' in the day of month")]),
        ("0 0 1 * */2", "UTC", [("day-fields-or", "either"), ("step-beside-day-field", "'*/2' in the day of week")]),
        ("0 0 */2 * *", "UTC", []),
        ("0 0 31 * *", "UTC", [("never-in-some-months", "February, April, June, September, November")]),
        ("0 0 30,31 * *", "UTC", [("never-in-some-months", "never in February: too short for day 30")]),
        ("0 0 15,31 * *", "UTC", []),
        ("0 0 31 jan,mar *", "UTC", []),
        ("0 0 31 2 0", "UTC", [("day-fields-or", "either")]),
        ("0 0 29 * *", "UTC", [("never-in-some-months", "only in leap years")]),
        ("0 22-2 * * *", "UTC", [("wrapped-range", "'0 0,1,2,22,23 * * *'")]),
        (
            "30 2 * * *",
            "Europe/Budapest",
            [("dst-twice", "2026-10-25"), ("dst-moved", "2027-03-28"), ("dst-twice", "2027-10-31")],
        ),
        ("30 2 * * 1-5", "Europe/Paris", []),
        (
            "30 2 * * sun",
            "Europe/Paris",
            [("dst-twice", "2026-10-25"), ("dst-moved", "2027-03-28"), ("dst-twice", "2027-10-31")],
        ),
        ("45 1 1 11 *", "America/New_York", [("dst-twice", "2026-11-01T06:45:00Z")]),
        ("0 1 1 11 *", "America/New_York", [("dst-twice", "2026-11-01T06:00:00Z")]),
        ("0 2,3 * * *", "America/New_York", [("dst-moved", "2027-03-14, when the clock goes forward: 02:00 does not exist")]),
        ("15 2 * * *", "Australia/Lord_Howe", [("dst-moved", "runs at 02:30 +11 (2027-10-02T15:30:00Z)")]),
    ],
)
def test_warnings(expression, zone, warned):
    warnings = warnings_of(CronTrigger(expression, zone), NOW)
    assert [warning.code for warning in warnings] == [code for code, _ in warned]
    for warning, (_, said) in zip(warnings, warned, strict=True):
        assert said in warning.message


def test_only_cron_has_surprises():
    assert warnings_of(IntervalTrigger(timedelta(hours=1)), NOW) == ()
    assert warnings_of(OneshotTrigger(NOW), NOW) == ()

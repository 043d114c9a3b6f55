"""What lint says of a definition, of how a schedule stands, and of its calendar's drift (contract 4.6, 3.2)."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from wfctl.cli.help_texts import WARNINGS
from wfctl.core import lint
from wfctl.core.definition import schedule_from_plain
from wfctl.core.drift import Drift, Moved, Stretch
from wfctl.core.lint import Finding, Stamps, Stand, of_definition, of_drift, of_gap, of_stand
from wfctl.core.model import CronTrigger, ScheduleDefinition
from wfctl.core.trigger import zone_of

NOW = datetime(2026, 10, 20, 12, 0, 30, tzinfo=UTC)
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


def definition(expression: str = "0 12 * * *", zone: str = "UTC", **fields: Any) -> ScheduleDefinition:
    return schedule_from_plain(
        {"deployment": "d", "trigger": {"kind": "cron", "expression": expression, "timezone": zone}, **fields}
    )


def interval(every: str, **fields: Any) -> ScheduleDefinition:
    return schedule_from_plain({"deployment": "d", "trigger": {"kind": "interval", "every": every}, **fields})


ONCE = schedule_from_plain({"deployment": "d", "max_run": "none", "trigger": {"kind": "oneshot", "at": "2027-01-01T00:00:00Z"}})


def told(found: Any) -> list[tuple[str, str]]:
    return [(each.code, each.severity) for each in found]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param(definition(), [], id="nothing to say"),
        pytest.param(definition("30 2 * * *", "Europe/Paris"), ["dst-twice", "dst-moved", "dst-twice"], id="clock changes"),
        pytest.param(definition("0 0 13 * 5"), ["day-fields-or"], id="both day fields"),
        pytest.param(definition("0 0 */2 * 5"), ["day-fields-or", "step-beside-day-field"], id="a step beside a day field"),
        pytest.param(definition("0 0 31 * *"), ["never-in-some-months"], id="day 31"),
        pytest.param(definition("0 22-2 * * *"), ["note wrapped-range"], id="a wrapped range"),
        pytest.param(definition("*/7 * * * *"), ["note uneven-step"], id="seven minutes"),
        pytest.param(definition("0 */5 * * *"), ["note uneven-step"], id="five hours"),
        pytest.param(definition("*/15 */6 * * *"), [], id="steps that divide"),
        pytest.param(definition("*/60 * * * *"), [], id="a step beyond the field is one value"),
        pytest.param(definition("0 12 * * *", "Etc/GMT-2"), ["note zone-sign"], id="a zone with a sign"),
        pytest.param(definition("0 12 * * *", "Etc/GMT"), [], id="no sign"),
        pytest.param(definition("0 12 * * *", "EST"), ["note zone-fixed"], id="a zone without summer time"),
        pytest.param(interval("10m"), [], id="an interval that divides the day"),
        pytest.param(interval("7h"), ["note interval-drifts"], id="one that does not"),
        pytest.param(interval("36h"), ["note interval-drifts"], id="one and a half days"),
        pytest.param(interval("2w"), [], id="whole days"),
        pytest.param(interval("7s"), [], id="seconds, of which nobody counts the time of day"),
        pytest.param(definition(max_run="none"), ["note no-max-run"], id="no limit"),
        pytest.param(ONCE, [], id="a one-shot has none anyway"),
        pytest.param(
            definition(overlap="parallel", max_active_runs=2, misfire="latest"), ["note latest-parallel"], id="contract 5.6"
        ),
    ],
)
def test_what_is_said_of_a_definition(given: ScheduleDefinition, expected: list[str]) -> None:
    said = [each.code if each.severity == "warning" else f"note {each.code}" for each in of_definition(given, NOW)]
    assert said == expected


def test_an_uneven_step_says_where_it_is_uneven() -> None:
    (found,) = of_definition(definition("*/7 * * * *"), NOW)
    assert "after minute 56 the next is 4 minutes later, not 7" in found.message
    assert 'every = "7m"' in (found.hint or "")


@pytest.mark.parametrize(("zone", "said"), [("Etc/GMT-2", "2 h ahead of UTC"), ("Etc/GMT+5", "5 h behind UTC")])
def test_the_sign_of_a_zone_is_told_as_it_is(zone: str, said: str) -> None:
    (found,) = of_definition(definition("0 12 * * *", zone), NOW)
    assert said in found.message
    offset = NOW.astimezone(zone_of(zone)).utcoffset()
    assert offset is not None
    assert (offset > timedelta(0)) == ("ahead" in said), "and so it is"


@pytest.mark.parametrize(("lateness", "is_said"), [("10m", False), ("10m1s", True)])
def test_a_lateness_beyond_the_gap(lateness: str, is_said: bool) -> None:
    assert told(of_gap(definition("*/10 * * * *", lateness=lateness), 10 * MINUTE)) == [("lateness-over-gap", "note")] * is_said
    assert not list(of_gap(definition("*/10 * * * *", lateness=lateness, misfire="latest"), 10 * MINUTE))


# How it stands ----------------------------------------------------------------------------------------------------------


def stand(**changes: Any) -> Stand:
    return Stand(
        **{
            "since": NOW - 100 * DAY,
            "shortest_gap": None,
            "passed": 2,
            "has_run": True,
            "is_finished": False,
            "paused_at": None,
            "diagnostic": None,
            "input_problems": (),
            **changes,
        }
    )


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        pytest.param(stand(), [], id="as it should be"),
        pytest.param(stand(diagnostic={"code": "missing-file", "message": "gone"}), ["blocked-schedule"], id="blocked"),
        pytest.param(stand(input_problems=["input.a: wrong", "input.b: wrong"]), ["input-refused"] * 2, id="input refused"),
        pytest.param(stand(has_run=False), ["never-ran"], id="instants passed, no run"),
        pytest.param(stand(has_run=False, passed=0), [], id="new"),
        pytest.param(stand(has_run=False, paused_at=NOW - DAY), [], id="paused is why"),
        pytest.param(stand(is_finished=True, has_run=False), ["note finished"], id="finished"),
        pytest.param(stand(paused_at=NOW - 30 * DAY), ["note long-paused"], id="paused for 30 days"),
        pytest.param(stand(paused_at=NOW - 30 * DAY + MINUTE), [], id="not yet 30 days"),
    ],
)
def test_what_is_said_of_how_it_stands(state: Stand, expected: list[str]) -> None:
    found = of_stand(definition(), state, NOW)
    assert [each.code if each.severity == "warning" else f"note {each.code}" for each in found] == expected


# Drift ------------------------------------------------------------------------------------------------------------------

TRIGGER = CronTrigger("30 2 * * *", "Europe/Paris")
SAVED, TODAY = Stamps("7.0.0", "2026a", "/usr/share/zoneinfo"), Stamps("7.0.0", "2026b", "/usr/share/zoneinfo")
STRETCH = Stretch(since=NOW, until=NOW + DAY, then=HOUR, now=2 * HOUR)


def drift(**changes: Any) -> Drift:
    return Drift(
        **{
            "since": NOW,
            "until": NOW + 366 * DAY,
            "sampled": 46,
            "croniter": None,
            "stretches": (),
            "zone": None,
            "gone": 0,
            "new": 0,
            "is_complete": True,
            **changes,
        }
    )


def of(found: Drift | None, saved: Stamps = SAVED, today: Stamps = TODAY) -> list[Finding]:
    return list(of_drift(TRIGGER, 3, saved, today, found))


def test_no_word_where_nothing_differs() -> None:
    assert of(drift(), saved=TODAY) == []


@pytest.mark.parametrize(
    ("found", "expected", "says"),
    [
        pytest.param(
            None,
            "note not-recorded",
            "only the versions can be compared: saved by croniter 7.0.0 with tz 2026a",
            id="no record",
        ),
        pytest.param(drift(), "note stamps-differ", "46 sampled instants", id="other stamps, same instants"),
        pytest.param(drift(until=NOW), "note not-recorded", "ended at", id="a record that is over"),
        pytest.param(
            drift(stretches=(STRETCH,)), "note stamps-differ", "at UTC+02:00, not at UTC+01:00", id="a clock that moves nothing"
        ),
        pytest.param(
            drift(stretches=(STRETCH,), zone=Moved(NOW, NOW + HOUR), gone=154, new=155),
            "calendar-drift",
            "154 instants of the coming year move, the first: 2026-10-20T12:00:30Z -> 2026-10-20T13:00:30Z",
            id="a clock that moves instants",
        ),
        pytest.param(
            drift(stretches=(STRETCH,), zone=Moved(None, NOW), new=1, is_complete=False),
            "calendar-drift",
            "at least 1 instant of the coming year is new, the first: 2026-10-20T12:00:30Z is new",
            id="an instant more",
        ),
        pytest.param(
            drift(stretches=(STRETCH,), is_complete=False), "calendar-drift", "not all were", id="too many to compare"
        ),
        pytest.param(drift(croniter=Moved(NOW, None)), "calendar-drift", "is none any more", id="croniter"),
    ],
)
def test_what_is_said_of_drift(found: Drift | None, expected: str, says: str) -> None:
    (finding,) = of(found)
    assert (finding.code if finding.severity == "warning" else f"note {finding.code}") == expected
    assert says in finding.message
    assert "2026b" in finding.message or "ended" in finding.message


def test_another_source_of_the_same_version_is_told() -> None:
    (finding,) = of(drift(), saved=Stamps("7.0.0", "2026b", "the package tzdata"))
    assert "from the package tzdata" in finding.message
    assert "from /usr/share/zoneinfo" in finding.message


def test_every_code_is_explained() -> None:  # `wfctl help CODE`
    codes = set(re.findall(r'Finding\(\s*"([a-z-]+)"', Path(lint.__file__).read_text("utf-8")))
    assert len(codes) > 12
    assert codes <= set(WARNINGS)

"""What a change changes: fields and instants."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from wfctl.core import difference
from wfctl.core.difference import calendar_difference, field_changes
from wfctl.core.model import CronTrigger, IntervalTrigger, OneshotTrigger
from wfctl.core.trigger import calendar_of, instants_after

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)


def test_fields_by_their_dotted_keys() -> None:
    before = {"overlap": "skip", "notes": None, "trigger": {"kind": "cron", "expression": "0 * * * *"}, "input": {}}
    after = {"overlap": "queue", "trigger": {"kind": "interval", "every": "10m"}, "input": {"region": "eu"}}
    changes = {change.path: (change.before, change.after) for change in field_changes(before, after)}
    assert changes == {
        "overlap": ("skip", "queue"),
        "trigger.kind": ("cron", "interval"),
        "trigger.expression": ("0 * * * *", None),
        "trigger.every": (None, "10m"),
        "input.region": (None, "eu"),
    }
    assert field_changes(before, before) == ()


def test_the_first_difference_names_both_sides() -> None:
    hourly, half = CronTrigger("0 * * * *"), CronTrigger("0,30 * * * *")
    found = calendar_difference((hourly, None), (half, None), NOON, NOON + DAY)
    assert (found.before, found.after, found.common) == (24, 48, 24)
    assert found.first_new == NOON + timedelta(minutes=30)
    assert found.first_old == NOON + timedelta(hours=1)
    assert not found.is_same


def test_a_calendar_that_has_no_more_instants() -> None:
    once = OneshotTrigger(NOON + timedelta(hours=1))
    found = calendar_difference((CronTrigger("0 * * * *"), None), (once, None), NOON, NOON + DAY)
    assert (found.before, found.after, found.common) == (24, 1, 1)
    assert (found.first_old, found.first_new) == (NOON + timedelta(hours=2), None)


def test_what_is_compared_is_bounded() -> None:
    second, minute = IntervalTrigger(timedelta(seconds=1)), IntervalTrigger(timedelta(minutes=1))
    found = calendar_difference((second, NOON), (minute, NOON), NOON, NOON + 30 * DAY)
    assert found.before == difference.MOST_INSTANTS
    assert found.until == NOON + timedelta(seconds=difference.MOST_INSTANTS)
    assert found.after == found.common == difference.MOST_INSTANTS // 60


@settings(max_examples=60, deadline=None)
@given(every=st.tuples(st.integers(60, 4000), st.integers(60, 4000)), hours=st.integers(1, 48))
def test_counts_are_those_of_the_two_sets(every: tuple[int, int], hours: int) -> None:
    until = NOON + timedelta(hours=hours)
    triggers = [IntervalTrigger(timedelta(seconds=each)) for each in every]
    sets = []
    for trigger in triggers:
        listed = instants_after(calendar_of(trigger, NOON), NOON)
        sets.append({instant for instant, _ in zip(listed, range(4000), strict=False) if instant <= until})
    found = calendar_difference((triggers[0], NOON), (triggers[1], NOON), NOON, until)
    assert (found.before, found.after, found.common) == (len(sets[0]), len(sets[1]), len(sets[0] & sets[1]))
    assert found.is_same == (sets[0] == sets[1])

"""Slots in use, bucket by bucket."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wfctl.core.load import Stretch, buckets_of, peak_of

START = datetime(2026, 12, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


def at(minutes: float) -> datetime:
    return START + timedelta(minutes=minutes)


def stretch(begins: float, ends: float, name: str = "s") -> Stretch:
    return Stretch(at(begins), at(ends), name)


def test_a_bucket_has_a_mean_and_a_peak() -> None:
    found = buckets_of([stretch(0, 30), stretch(15, 30), stretch(50, 70)], START, at(120), HOUR)
    assert [(each.begins, round(each.mean, 6), each.peak) for each in found] == [
        (at(0), round(55 / 60, 6), 2),
        (at(60), round(10 / 60, 6), 1),
    ]


def test_one_that_ends_as_another_begins_takes_no_second_slot() -> None:
    assert buckets_of([stretch(0, 30), stretch(30, 60)], START, at(60), HOUR)[0].peak == 1
    peak = peak_of([stretch(0, 30), stretch(30, 60)])
    assert peak is not None
    assert peak.used == 1


def test_the_first_bucket_counts_only_what_lies_ahead() -> None:
    (first, _) = buckets_of([stretch(30, 45)], at(30), at(90), HOUR)
    assert (first.begins, first.mean) == (at(0), 0.5)


def test_the_tightest_moment_names_the_longest_run_first() -> None:
    peak = peak_of([stretch(0, 240, "vacuum"), stretch(30, 125, "dump"), stretch(300, 400, "later")])
    assert peak is not None
    assert (peak.at, peak.used, [each.schedule_id for each in peak.stretches]) == (at(30), 2, ["vacuum", "dump"])
    assert peak_of([]) is None


def test_a_bucket_has_a_width() -> None:
    with pytest.raises(ValueError, match="width"):
        buckets_of([], START, at(60), timedelta(0))


@settings(max_examples=100, deadline=None)
@given(
    pairs=st.lists(st.tuples(st.integers(-100, 400), st.integers(0, 300)), max_size=20),
    width=st.sampled_from([15, 60, 45]),
)
def test_the_buckets_hold_what_the_stretches_hold(pairs: list[tuple[int, int]], width: int) -> None:
    """Against counting minute by minute."""
    stretches = [stretch(begins, begins + length) for begins, length in pairs]
    minutes = [sum(each.begins <= at(minute) < each.ends for each in stretches) for minute in range(360)]
    for bucket in buckets_of(stretches, START, at(360), timedelta(minutes=width)):
        first = (bucket.begins - START) // timedelta(minutes=1)
        inside = minutes[max(0, first) : first + width]
        assert bucket.mean == pytest.approx(sum(inside) / len(inside))
        assert bucket.peak == max(inside)

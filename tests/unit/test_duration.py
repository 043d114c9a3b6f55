"""Contract 3.10: durations are `250ms 5s 10m 1h30m 2d 1w`; a trailing bare number is refused with a suggestion."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wfctl.core.duration import LONGEST, format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds", "canonical"),
    [
        ("250ms", 0.25, "250ms"),
        ("5s", 5, "5s"),
        ("10m", 600, "10m"),
        ("1h30m", 5400, "1h30m"),
        ("2d", 172_800, "2d"),
        ("1w", 604_800, "1w"),
        ("7d", 604_800, "1w"),
        ("60s", 60, "1m"),
        ("90s", 90, "1m30s"),
        ("90m", 5400, "1h30m"),
        ("1500ms", 1.5, "1s500ms"),
        ("1m5ms", 60.005, "1m5ms"),
        ("1w2d3h4m5s6ms", 604_800 + 2 * 86_400 + 3 * 3600 + 245.006, "1w2d3h4m5s6ms"),
        ("0s", 0, "0s"),
        ("0ms", 0, "0s"),
        ("007s", 7, "7s"),
        ("36525d", 36_525 * 86_400, "5217w6d"),
        ("5min", 300, "5m"),
        ("2 weeks", 1_209_600, "2w"),
        ("1 hour 30 minutes", 5400, "1h30m"),
        ("5 s", 5, "5s"),
        ("PT5M", 300, "5m"),
        ("P1DT12H", 129_600, "1d12h"),
    ],
)
def test_a_duration_and_its_canonical_text(text, seconds, canonical):  # contract 3.10
    assert parse_duration(text) == timedelta(seconds=seconds)
    assert format_duration(parse_duration(text)) == canonical


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1h30", "did you mean 1h30m?"),
        ("1h30", "without a unit"),
        ("2d12", "did you mean 2d12h?"),
        ("1w1", "did you mean 1w1d?"),
        ("5m30", "did you mean 5m30s?"),
        ("90", "did you mean 1m30s?"),
        ("0", "did you mean 0s?"),
        (" 5s", "did you mean 5s?"),
        ("5s\n", "did you mean 5s?"),
        ("1.5h", "did you mean 1h30m?"),
        ("10M", "did you mean 10m?"),
        ("30m1h", "did you mean 1h30m?"),
        ("1h1h", "did you mean 2h?"),
        ("P", "write 250ms, 5s"),
        ("PT", "write 250ms, 5s"),
        ("P1M", "write 250ms, 5s"),
        ("1 hour and 30 min", "did you mean 1h30m?"),
        ("-5s", "negative"),
        ("", "write 250ms, 5s"),
        ("   ", "write 250ms, 5s"),
        ("soon", "write 250ms, 5s"),
        ("1y", "write 250ms, 5s"),
        ("1h30ms5", "write 250ms, 5s"),
        ("\u0665s", "write 250ms, 5s"),
        ("5\u017f", "write 250ms, 5s"),
        ("1e3s", "write 250ms, 5s"),
        ("36525d1ms", "longest duration"),
        ("999999999999w", "longest duration"),
        ("9" * 4000 + "s", "write 250ms, 5s"),
        (5, "as text with a unit"),
        (True, "as text with a unit"),
        (None, "as text with a unit"),
    ],
)
def test_a_refused_duration_says_what_to_write(text, said):  # contract 3.10
    with pytest.raises(ValueError) as caught:
        parse_duration(text)
    assert said in str(caught.value)
    assert len(str(caught.value)) < 250


@given(st.integers(0, LONGEST // timedelta(milliseconds=1)))
def test_the_canonical_text_reads_back(milliseconds):
    duration = timedelta(milliseconds=milliseconds)
    assert parse_duration(format_duration(duration)) == duration


def test_what_only_arises_between_clock_readings_still_has_a_text():
    assert format_duration(timedelta(seconds=-90)) == "-1m30s"
    assert format_duration(timedelta(microseconds=1_999)) == "1ms"

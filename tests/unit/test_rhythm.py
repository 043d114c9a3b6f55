"""How often an expression fires is what its instants say: counted and measured over the same days."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise

import pytest

from wfctl.core.cron import parse_expression
from wfctl.core.model import CronTrigger
from wfctl.core.rhythm import rhythm_of
from wfctl.core.trigger import CronCalendar, instants_after

SINCE = date(2026, 7, 1)


@pytest.mark.parametrize(
    "text",
    ["0 0 13 * 5", "30 2 * * 1-5", "0 0 29 2 *", "0 0 31 * *", "0 0 1 1 *", "*/7 9-10 * * mon", "0 0 13 * fri-mon",
     "5 4,20 1-7 */2 *", "59 23 31 12 *", "0 0 */2 * 1"],
)  # fmt: skip
def test_a_rhythm_is_that_of_the_instants(text: str) -> None:
    found = rhythm_of(parse_expression(text), SINCE)
    start = datetime(SINCE.year, SINCE.month, SINCE.day, tzinfo=UTC)
    instants: list[datetime] = []
    for instant in instants_after(CronCalendar(CronTrigger(text, "UTC")), start - timedelta(seconds=1)):
        instants.append(instant)
        if instant >= start + timedelta(days=found.days):
            break
    gaps = [later - earlier for earlier, later in pairwise(instants)]
    if text == "0 0 29 2 *":
        gaps.pop()  # the third one lies beyond the eight years
    assert (found.fires, found.shortest, found.longest) == (len(instants) - 1, min(gaps), max(gaps))


@pytest.mark.parametrize(
    ("since", "days", "fires"),
    [
        pytest.param(date(2027, 3, 1), 366, 366, id="a year with a 29 February"),
        pytest.param(date(2028, 2, 29), 366, 366, id="it begins on one"),
        pytest.param(date(2028, 3, 1), 365, 365, id="it is over"),
        pytest.param(date(2099, 3, 1), 365, 365, id="2100 has none"),
    ],
)
def test_a_year_is_as_long_as_it_is(since: date, days: int, fires: int) -> None:
    found = rhythm_of(parse_expression("0 0 * * *"), since)
    assert (found.days, found.fires) == (days, fires)


def test_what_fires_once_in_eight_years_has_no_gap() -> None:
    found = rhythm_of(parse_expression("0 0 29 2 *"), date(2097, 1, 1))  # contract 4.2: 2096 to 2104
    assert (found.fires, found.shortest) == (1, None)
    last = rhythm_of(parse_expression("0 0 29 2 *"), date(9997, 1, 1))
    assert (last.fires, last.shortest, last.days > 0) == (0, None, True)

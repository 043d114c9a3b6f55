"""FR-19: leap days, year ends, renamed and unknown zones, and no influence of TZ (contract 4.2, 4.3)."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from tests.support.commands import Wfctl
from tests.support.drive import MINUTE, moment
from wfctl import InvalidDefinition, next_instants, open_store

ZONES = ["UTC", "America/New_York", "Pacific/Kiritimati"]


def cron(expression: str, timezone: str = "UTC") -> dict[str, str]:
    return {"kind": "cron", "expression": expression, "timezone": timezone}


@pytest.fixture(params=ZONES)
def host_zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The TZ of this process and of the commands that it starts."""
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


def command(tmp_path: Path, zone: str) -> Wfctl:
    found = Wfctl(tmp_path / "store", tmp_path)
    found.environ["TZ"] = zone
    return found


def instants(wfctl: Wfctl, expression: str, begin: str, timezone: str = "UTC", count: int = 1) -> list[datetime]:
    """What `cron next` says."""
    said = wfctl.ok("cron", "next", expression, "--timezone", timezone, "--from", f"{begin}Z", "-n", str(count), "-o", "json")
    return [datetime.fromisoformat(item["instant"]) for item in said.json["items"]]


def test_fr_19_leap_days_and_year_ends(tmp_path: Path, host_zone: str) -> None:
    """Eight years on from 2096: the bound of 4.2 includes it."""
    wfctl = command(tmp_path, host_zone)
    assert instants(wfctl, "0 9 29 2 *", "2028-02-29T09:00") == [moment("2032-02-29T09:00")]
    assert instants(wfctl, "0 9 29 2 *", "2096-02-29T09:00") == [moment("2104-02-29T09:00")]
    ends = instants(wfctl, "59 23 31 12 *", "2027-12-30T00:00", "Pacific/Kiritimati", 2)
    assert ends == [moment("2027-12-31T09:59"), moment("2028-12-31T09:59")]
    never = wfctl("cron", "next", "0 0 30 2 *")
    assert never.status == 65 and "never fires" in never.err


def test_fr_19_new_year_is_never_skipped(host_zone: str) -> None:
    """From each minute of two days of December; in the other zones of the host from each tenth."""
    trigger, step = cron("0 0 1 1 *"), 1 if host_zone == ZONES[0] else 10
    for day in ("2027-12-01T00:00", "2027-12-31T00:00"):
        for minute in range(0, 1440, step):
            assert next_instants(trigger, moment(day) + minute * MINUTE, 1) == (moment("2028-01-01T00:00"),)


@pytest.mark.parametrize("zone", ["Mars/Base", "localtime"])
def test_fr_19_unknown_zones_are_refused_by_name(host_zone: str, zone: str) -> None:
    with pytest.raises(InvalidDefinition, match=zone):
        next_instants(cron("* * * * *", zone), moment("2027-01-01T00:00"), 1)


def test_fr_19_both_spellings_of_kyiv_are_one_place(host_zone: str) -> None:
    """Or the one that this machine's tz database lacks is refused by name."""
    found = []
    for zone in ("Europe/Kiev", "Europe/Kyiv"):
        try:
            found.append(next_instants(cron("30 2 * * *", zone), moment("2027-03-27T12:00"), 400))
        except InvalidDefinition as refused:
            assert zone in refused.message
    assert len(found) in (1, 2) and found[0] == found[-1]
    assert found[0][0] == moment("2027-03-28T00:30")


def test_fr_19_add_sees_the_same(tmp_path: Path, ledger_check: Callable[..., None]) -> None:
    """`schedule add --dry-run` writes nothing; what it refuses, `add` refuses."""
    wfctl = command(tmp_path, "America/New_York")
    wfctl.ok("init", "-q")
    wfctl.ok("deployment", "add", "d", "--", "true")
    add = ("schedule", "add", "x", "--deployment", "d", "--dry-run", "--cron")
    assert "2028-02-29T09:00:00Z" in wfctl.ok(*add, "0 9 29 2 *", "-o", "json").out
    for words in (["0 0 30 2 *"], ["* * * * *", "--timezone", "Mars/Base"], ["* * * * *", "--timezone", "localtime"]):
        refused = wfctl(*add, *words)
        assert refused.status == 65 and (words[-1] in refused.err), refused
    assert wfctl.ok("schedules", "-o", "name").out == ""
    with open_store(tmp_path / "store") as store:
        ledger_check(store)


def test_fr_19_the_bound_is_eight_years(host_zone: str) -> None:
    """Nothing is skipped in between either: one leap day after another."""
    found = next_instants(cron("0 9 29 2 *"), moment("2092-02-29T08:59"), 4)
    assert [each.year for each in found] == [2092, 2096, 2104, 2108]
    assert all(later - earlier >= timedelta(days=1461) for earlier, later in itertools.pairwise(found))

"""The calendar rows that croniter 7.0.0 must keep giving (contract 4.1 to 4.3), so that an upgrade cannot move one unseen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from wfctl.core.instants import format_instant, parse_instant
from wfctl.core.trigger import next_instants
from wfctl.errors import InvalidDefinition

CASES = Path(__file__).parent.parent / "cases"
WRAPS_TAKEN = {"d052", "d053", "dr044", "dr045"}  # contract 4.1: wrapped ranges without a step are taken
ALIASES_TAKEN = {"dr031", "dr032"}  # contract 4.1: `@hourly` ... `@yearly` are taken


def rows(name: str) -> list[Any]:
    listed = json.loads((CASES / name).read_text("utf-8"))
    return [pytest.param(row, id=f"{row['id']} {row.get('note') or row.get('why')}") for row in listed]


def trigger_of(row: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "cron", "expression": row["expr"], "timezone": row["tz"]}


@pytest.mark.parametrize("row", rows("cron_cases.json"))
def test_next_instants(row):
    after, count = parse_instant(row["after"]), len(row["expect"])
    if row.get("accept_reject") and row["id"] not in WRAPS_TAKEN:
        with pytest.raises(InvalidDefinition, match="write '"):
            next_instants(trigger_of(row), after, count)
        return
    got = [format_instant(instant) for instant in next_instants(trigger_of(row), after, count)]
    # Stricter than `accept_also`: what croniter loses in a fold is asked for again, so that no answer depends on the start.
    assert got == row["expect"]


@pytest.mark.parametrize("row", rows("cron_rejects.json"))
def test_refusals(row):
    after = parse_instant("2026-01-01T00:00:00Z")
    if row["id"] in WRAPS_TAKEN | ALIASES_TAKEN:
        assert len(next_instants(trigger_of(row), after, 3)) == 3
        return
    with pytest.raises(InvalidDefinition) as caught:
        next_instants(trigger_of(row), after, 3)
    where = "trigger.timezone" if row["croniter_is_valid"] is None else "trigger.expression"
    assert {problem.path for problem in caught.value.problems} == {where}
    assert all(len(problem.message) < 300 and problem.message.isprintable() for problem in caught.value.problems)

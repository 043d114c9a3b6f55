"""What a round costs, counted: four rows an admission, whatever else a round takes once, and one commit (contract 6.1, 6.3)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.rounds import Rounds, preflight
from tests.support.schedules import add, at
from tests.support.story import World
from wfctl.core import trigger as module
from wfctl.operations import preflight as preflight_operations
from wfctl.operations.rounds import commit_prepared, prepare_round, settle_round

DUE = at("09:02")
KINDS = {
    "oneshot": {"kind": "oneshot", "at": DUE.isoformat()},
    "cron": {"kind": "cron", "expression": "*/2 * * * *", "timezone": "Europe/Budapest"},
    "interval": {"kind": "interval", "every": "90s"},
}


#: What an admission writes: its occurrence, its run, the mark of its first execution, where the schedule stands.
ROWS_OF_ONE = {"INSERT INTO occurrences", "INSERT INTO runs", "INSERT INTO executions", "UPDATE schedules"}


def make(root: Path, count: int, kind: str, *, slots: int = 1000) -> Rounds:
    rounds = Rounds.new(root, slots=slots)
    for number in range(count):
        rounds.store.create_schedule(schedule_id=f"s{number}", deployment_id="d", trigger=KINDS[kind])
    settle_round(rounds.context, rounds.plan, preflight, DUE - timedelta(seconds=30))  # all definitions are known from now on
    rounds.finish(*rounds.unfinished())
    return rounds


def statements(rounds: Rounds, act: Callable[[], Any]) -> Counter[str]:
    """Return how often each statement was begun, without its values."""
    seen: Counter[str] = Counter()

    def note(statement: str) -> None:
        seen[re.sub(r"'(?:[^']|'')*'|-?\d+|NULL", "?", statement)] += 1

    connection = rounds.context.ledger.connection
    connection.set_trace_callback(note)
    try:
        act()
    finally:
        connection.set_trace_callback(None)
    return seen


@pytest.mark.parametrize("kind", KINDS)
def test_an_admission_is_four_rows_and_no_question(tmp_path: Path, kind: str) -> None:
    found = {}
    for count in (10, 60):
        rounds = make(tmp_path / str(count), count, kind)
        commits = rounds.context.ledger.commits
        found[count] = statements(rounds, lambda: settle_round(rounds.context, rounds.plan, preflight, DUE))  # noqa: B023
        assert rounds.context.ledger.commits == commits + 1 and len(rounds.unfinished()) == count
        rounds.close()
    more = found[60] - found[10]
    assert set(found[60]) == set(found[10]), "a statement that only larger rounds need"
    assert set(more.values()) == {50}, more
    assert {" ".join(each.split()[:3]).removesuffix(" SET") for each in more} == ROWS_OF_ONE


def test_an_instant_that_is_skipped_for_overlap_is_two_rows(tmp_path: Path) -> None:
    found = {}
    for count in (10, 60):
        rounds = make(tmp_path / str(count), count, "cron")
        settle_round(rounds.context, rounds.plan, preflight, DUE)
        later = DUE + timedelta(minutes=2)
        found[count] = statements(rounds, lambda: settle_round(rounds.context, rounds.plan, preflight, later))  # noqa: B023
        assert rounds.store.get_occurrence(schedule_id="s7", instant=later).status == "skipped-overlap"
        rounds.close()
    assert sorted((found[60] - found[10]).values()) == [50, 50]


def test_instants_that_are_held_are_two_rows_each(tmp_path: Path) -> None:
    rounds = make(tmp_path / "store", 60, "cron", slots=10)
    seen = statements(rounds, lambda: settle_round(rounds.context, rounds.plan, preflight, DUE))
    assert len(rounds.unfinished()) == 10, "and fifty are held"
    assert sum(count for each, count in seen.items() if each.startswith("UPDATE schedules")) == 60 + 50
    assert sum(count for each, count in seen.items() if each.startswith("SELECT")) < 10
    rounds.close()


def test_what_was_prepared_is_written_and_nothing_is_read(tmp_path: Path) -> None:
    rounds = make(tmp_path / "store", 20, "cron")
    prepared = prepare_round(rounds.context, rounds.plan, preflight, DUE)
    assert prepared is not None
    seen = statements(rounds, lambda: commit_prepared(rounds.context, rounds.plan, prepared, DUE))
    asked = [each for each in seen if each.startswith(("SELECT", "PRAGMA"))]
    assert asked == ["PRAGMA data_version", "SELECT schedule FROM health WHERE is_missed = ?"], asked
    rounds.close()


def test_croniter_is_asked_once_a_decision_and_once_for_all_of_an_expression(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = make(tmp_path / "store", 20, "cron")
    module.clear_caches()  # what was looked at when they were made
    settle_round(rounds.context, rounds.plan, preflight, DUE)
    asked: list[Any] = []
    real = module._Asker.next
    monkeypatch.setattr(module._Asker, "next", lambda self, instant: asked.append(instant) or real(self, instant))
    for number in range(1, 6):
        rounds.finish(*rounds.unfinished())
        assert len(settle_round(rounds.context, rounds.plan, preflight, DUE + number * timedelta(minutes=2))) == 20
    assert len(asked) == 5
    rounds.close()


@pytest.mark.parametrize("schema", [None, {"type": "object"}], ids=["no schema", "a schema"])
@pytest.mark.parametrize("program", ["/bin/true", "/no/such/program"])
def test_5_9_schedules_of_one_deployment_are_one_check(
    world: World, monkeypatch: pytest.MonkeyPatch, schema: dict[str, Any] | None, program: str
) -> None:
    checked: list[Any] = []
    real = preflight_operations.check_preflight
    monkeypatch.setattr(preflight_operations, "check_preflight", lambda *given: checked.append(given) or real(*given))
    world.store.create_deployment(deployment_id="d", command=[program], input_schema=schema)
    world.store.create_deployment(deployment_id="e", command=["/bin/true"])
    for number in range(3):
        add(world.store, f"s{number}")
    add(world.store, "other", deployment_id="e")
    world.step()
    world.clock.advance(timedelta(minutes=1))
    world.step()
    assert len(checked) == (2 if schema is None else 4)
    expected = "admitted" if program == "/bin/true" else "preflight-rejected"
    assert {row.status for number in range(3) for row in world.occurrences(f"s{number}")} == {expected}
    assert [row.status for row in world.occurrences("other")] == ["admitted"]

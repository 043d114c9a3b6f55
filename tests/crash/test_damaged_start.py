"""A start lets SQLite clear what is sound. What contradicts itself is found all the same (contract 7.4)."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.crash.test_damaged_records import Base
from tests.support.damage import damage, execute
from tests.support.story import World
from wfctl.operations import consistency

SEEDS, CHUNK = 160, 40  #: in every run of the suite; many more with `-m soak`
#: What only a look at everything finds: how a revision was recorded, and a row that no run has any more.
NOT_OF_A_START = (
    "revisions.plain", "revisions.croniter", "revisions.tz_database", "revisions.actor", "revisions.max_run",
    "revisions.begins", "revisions.recorded_at", "definitions.deleted_at", "definitions.revision", "executions.run",
)  # fmt: skip


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Base:
    return Base(tmp_path_factory.mktemp("base"))


def compare(world: World, what: str) -> bool:
    """See that a start finds what a look at everything finds; return whether there was anything."""
    context = world.store.context
    with context.ledger.reading() as connection:
        everything = {(each.code, each.rows) for each in consistency.look(context, connection) if not each.is_history}
    found = {(each.code, each.rows) for each in consistency.look_at_start(context).found}
    if not what.startswith(NOT_OF_A_START):
        assert everything <= found, f"{what}: a start does not see {everything - found}"
    return bool(found)


def _chunks(total: int) -> list[range]:
    return [range(first, first + CHUNK) for first in range(0, total, CHUNK)]


@pytest.mark.parametrize("seeds", _chunks(SEEDS), ids=lambda seeds: f"seeds {seeds[0]} to {seeds[-1]}")
def test_7_4_what_is_damaged_is_found_at_the_start(base: Base, tmp_path: Path, seeds: range) -> None:
    found = 0
    for seed in seeds:
        world = base.copy(tmp_path / str(seed))
        what = damage(world.root, "b", random.Random(seed))
        if what is not None:
            found += compare(world, what)
        world.die()
        shutil.rmtree(tmp_path / str(seed))
    assert found > CHUNK // 4


@pytest.mark.soak
@pytest.mark.parametrize("seeds", _chunks(2000)[SEEDS // CHUNK :], ids=lambda seeds: f"seeds {seeds[0]} to {seeds[-1]}")
def test_7_4_what_is_damaged_is_found_at_the_start_at_length(base: Base, tmp_path: Path, seeds: range) -> None:
    test_7_4_what_is_damaged_is_found_at_the_start(base, tmp_path, seeds)


def test_7_4_of_a_sound_ledger_only_what_goes_on_is_judged_row_by_row(
    base: Base, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = base.copy(tmp_path / "copy")
    judged: Counter[str] = Counter()

    def counted(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def judge(*given: Any, **named: Any) -> Any:
            judged[name] += 1
            return real(*given, **named)

        return judge

    for name in ("_of_state", "_of_occurrence", "_of_snapshot"):
        monkeypatch.setattr(consistency, name, counted(name, getattr(consistency, name)))
    assert consistency.look_at_start(world.store.context).found == ()
    going = sum(run.status in ("admitted", "running") for run in world.runs())
    assert judged == {"_of_occurrence": going, "_of_snapshot": 2 * going} and going < len(world.runs())
    world.die()


def test_7_4_text_that_is_no_utf_8_is_a_contradiction_and_no_failure(base: Base, tmp_path: Path) -> None:
    world = base.copy(tmp_path / "copy")
    execute(world.root, "UPDATE revisions SET content = CAST(x'ff' AS TEXT) || content WHERE definition = 3")
    assert {each.code for each in consistency.look_at_start(world.store.context).found} == {"revision-digest"}
    world.die()

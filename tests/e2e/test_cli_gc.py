"""`wfctl store gc`: what it says, what it asks, and that it is harmless beside a supervisor (contract 10, 11.7)."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from tests.support.commands import Wfctl
from tests.support.history import world_with_history
from tests.support.place import Place
from tests.support.processes import Supervisor, wait_for, wfctl
from tests.support.story import START, FakeClock


@pytest.fixture
def old(tmp_path: Path) -> Wfctl:
    """A store with five occurrences of March 2027, each with its run."""
    world_with_history(tmp_path / "store", 5).die()
    (tmp_path / "home").mkdir()
    return Wfctl(tmp_path / "store", tmp_path / "home")


def left(old: Wfctl) -> int:
    return len(old.ok("occurrences", "a", "-o", "json").json["items"])


def test_11_7_dry_run_says_what_would_go_and_changes_nothing(old: Wfctl) -> None:
    done = old.ok("store", "gc", "--keep-runs", "2", "--dry-run")
    assert done.out == "would remove 3 occurrences and 3 runs older than the newest 2 runs of each schedule\n"
    assert "nothing was changed" in done.err
    assert left(old) == 5


def test_11_7_it_asks_at_a_terminal_and_yes_answers(old: Wfctl) -> None:
    assert old("store", "gc", "--keep-runs", "2").status == 2, "no terminal to ask at"
    with old.terminal("store", "gc", "--keep-runs", "2") as terminal:
        terminal.wait_for("Remove 3 occurrences and 3 runs for good? [y/N]")
        terminal.type("n\n")
        assert terminal.end().status == 1
    assert left(old) == 5
    done = old.ok("store", "gc", "--keep-runs", "2", "--yes", "-o", "json").json
    assert (done["schema"], done["occurrences"], done["runs"], done["keep_runs"]) == ("wfctl/gc.v1", 3, 3, 2)
    assert left(old) == 2
    assert "nothing is old enough to go" in old.ok("store", "gc", "--keep-runs", "2").out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["store", "gc"], "nothing says what to keep"),
        (["store", "gc", "--keep", "1h30"], "--keep"),
        (["store", "gc", "--keep-runs", "0"], "keep-runs"),
    ],
    ids=["no rule", "no duration", "no run"],
)
def test_11_what_is_no_rule_is_a_usage_error(old: Wfctl, words: list[str], said: str) -> None:
    done = old(*words)
    assert done.status == 2
    assert said.removeprefix("--") in done.err


def test_11_beside_a_supervisor_no_instant_is_late(tmp_path: Path) -> None:
    with Place(tmp_path) as place:
        place.job("exit 0")
        place.every_second("s")
        place.supervisor()
        place.until(place.run(1).run_id, "completed")
        for _ in range(3):
            wfctl(place.root, "store", "gc", "--keep-runs", "1", "--yes")
        begun = datetime.now().astimezone()
        wait_for(lambda: any(run.admitted_at > begun for run in place.store.list_runs(limit=100).items), what="another run")
        rows = place.store.list_schedule_occurrences(schedule_id="s", limit=100).items
        assert all(row.lateness_s is None or row.lateness_s < 0.5 for row in rows)
        assert place.store.audit_schedule(schedule_id="s").is_balanced


def test_10_the_supervisor_does_it_by_the_settings(tmp_path: Path) -> None:
    world_with_history(tmp_path / "store", 12, clock=FakeClock(START.replace(year=2025))).die()
    (tmp_path / "store" / "wfctl.toml").write_text("[history]\nkeep_runs = 3\n")
    done = wfctl(tmp_path / "store", "schedule", "pause", "a")
    assert done.returncode == 0
    with Supervisor(tmp_path / "store") as supervisor:
        supervisor.wait_ready()
        wait_for(lambda: "let go of" in supervisor.text(), what="the word of it")
        wait_for(lambda: len(list((tmp_path / "store" / "runs").iterdir())) == 3, what="the directories being gone")
        supervisor.stop()

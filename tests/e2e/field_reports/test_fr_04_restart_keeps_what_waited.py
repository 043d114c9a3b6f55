"""FR-04: what one supervisor held is there for the next one (contract 5.5 to 5.7, 6.9, 7.1)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.support.drive import MINUTE, Driven, moment, rows_of
from tests.support.place import Place
from tests.support.processes import wait_for
from tests.support.story import FakeClock
from tests.support.witness import Witness
from wfctl import open_store

Check = Callable[..., None]
HOLDS = "while [ -e '%s' ]; do sleep .02; done"


def test_fr_04_a_held_candidate_outlives_a_killed_supervisor(tmp_path: Path, witness: Witness, ledger_check: Check) -> None:
    """A supervisor of its own process, killed for real, at a clock that the test moves."""
    hold = tmp_path / "HOLD"
    hold.touch()
    begin = moment("2027-03-01T09:00:30")
    clock = FakeClock(begin)
    with Place(tmp_path) as place, open_store(place.root, clock=clock) as store, Driven(place.root, clock) as driven:
        store.create_deployment(deployment_id="d", command=witness.command(HOLDS % hold))
        trigger = {"kind": "cron", "expression": "* * * * *"}
        store.create_schedule(schedule_id="q", deployment_id="d", trigger=trigger, overlap="skip", misfire="latest")
        first = begin + MINUTE / 2
        for at in (begin, first, first + MINUTE, first + 2 * MINUTE):
            clock.set(at)
            driven.step()
        wait_for(lambda: witness.runs("q") == ["run-000001"], what="the first run")
        held = store.list_schedule_occurrences(schedule_id="q").items[0]
        assert (held.instant, held.status) == (first + 2 * MINUTE, "pending")
        driven.kill()
        assert len(witness.alive("q")) == 1, "the run survives its supervisor"

        clock.set(first + 5 * MINUTE)
        driven.step()
        assert store.inspect_run(run_id="run-000001").status == "running", "adopted"
        held = store.list_schedule_occurrences(schedule_id="q").items[0]
        assert (held.instant, held.status) == (first + 5 * MINUTE, "pending")
        older = [row for row in rows_of(store, "q") if row.status == "coalesced"]
        assert [row.instant for row in older] == [first + i * MINUTE for i in (1, 2, 3, 4)], "the absence is accounted for"
        assert older[1].reason is not None and older[1].reason["by"] is not None, "naming a later one"

        hold.unlink()
        wait_for(lambda: driven.step() and store.list_runs().items[-1].run_id == "run-000002", what="the catch-up run")
        wait_for(
            lambda: driven.step() and all(run.status == "completed" for run in store.list_runs().items), what="the end of both"
        )
        clock.set(first + 5.5 * MINUTE)
        driven.step()
        assert [run.instant for run in store.list_runs().items] == [first, first + 5 * MINUTE], "exactly one"
        assert witness.runs("q") == ["run-000001", "run-000002"]
        ledger_check(store, witness)

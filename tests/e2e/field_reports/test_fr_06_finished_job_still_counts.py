"""FR-06: whatever way a job ends, its slot comes back (contract 5.3, 6.5, 6.8, 6.9)."""

from __future__ import annotations

import signal
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from tests.support.drive import MINUTE, Driven, moment
from tests.support.place import Place, eventually, is_alive
from tests.support.story import FakeClock
from tests.support.witness import Witness
from wfctl import open_store
from wfctl.linux import process_stat
from wfctl.operations.views import RunView

ROUNDS, KILLED_IN, STUBBORN_IN = 50, 25, (1, 26)
SCRIPT = """
case $(cat $NOTES/what) in
a) exit 0;;
b) kill -9 $$;;
c) while :; do sleep 0.02; done;;
stubborn) sh -c 'trap "" TERM; echo $$ >$NOTES/child.pid; while :; do sleep 0.02; done' & while :; do sleep 0.02; done;;
d) sleep 600 >/dev/null 2>&1 & echo $! >$NOTES/$WFCTL_RUN_ID.pid; exit 0;;
hold) while [ ! -e $NOTES/go ]; do sleep 0.02; done;;
esac
"""


def test_fr_06_fifty_rounds_of_four_ends(tmp_path: Path, witness: Witness, ledger_check: Callable[..., None]) -> None:
    """A supervisor of its own process at a clock that the test moves; real jobs, real kills. A child of (c) ignores SIGTERM in
    two of the rounds: `kill_grace` passes for real."""
    clock = FakeClock(moment("2027-03-01T09:00:30"))
    with Place(tmp_path) as place, open_store(place.root, clock=clock) as store, Driven(place.root, clock) as driven:
        environment = {"NOTES": str(place.notes)}
        command = witness.command(SCRIPT)
        store.create_deployment(deployment_id="d", command=command, environment=environment, kill_grace="200ms")
        trigger = {"kind": "cron", "expression": "* * * * *"}
        store.create_schedule(
            schedule_id="g", deployment_id="d", trigger=trigger, overlap="parallel", max_active_runs=2, max_run="3s"
        )
        driven.step()
        runs: list[str] = []
        keeper = 0

        def begin(what: str) -> str:
            (place.notes / "what").write_text(what)
            clock.advance(clock.now().replace(second=30) + MINUTE - clock.now())
            driven.step()
            runs.append(f"run-{len(runs) + 1:06d}")
            return runs[-1]

        def is_running(run_id: str) -> bool:
            return run_id in witness.runs("g") and store.inspect_run(run_id=run_id).status == "running"

        def over(run_id: str) -> RunView:
            def is_over() -> bool:
                driven.step()
                return not store.list_runs(status="admitted,running,interrupted").items

            eventually(is_over, "the end of everything unfinished")
            return store.inspect_run(run_id=run_id)

        for number in range(1, ROUNDS + 1):
            fine = over(begin("a"))
            assert (fine.status, fine.exit_status) == ("completed", 0)
            suicide = over(begin("b"))
            assert (suicide.status, suicide.signal) == ("failed", signal.SIGKILL)

            slow = begin("stubborn" if number in STUBBORN_IN else "c")
            eventually(lambda slow=slow: driven.step() and is_running(slow), "the start of (c)")  # type: ignore[misc]
            child = place.pid("child.pid") if number in STUBBORN_IN else None
            if number == KILLED_IN:
                driven.kill()
            clock.advance(timedelta(seconds=3))
            ended = over(slow)
            assert ended.status == "failed" and ended.reason is not None
            assert (ended.reason["code"], ended.reason["limit_s"]) == ("deadline", 3.0)
            assert not witness.alive("g")
            if child is not None:
                assert not is_alive(child), "the slot was freed over a living process of the group"
                (place.notes / "child.pid").unlink()

            leaves = over(begin("d"))
            assert (leaves.status, leaves.trace[0].left_behind) == ("completed", 1)
            if number in (1, KILLED_IN):
                keeper = place.keeper()
            parents = (driven.pid, keeper)
            eventually(lambda parents=parents: not zombies_of(*parents), "no zombie")  # type: ignore[misc]

        sleepers = [int(path.read_text()) for path in place.notes.glob("run-*.pid")]
        assert len(sleepers) == ROUNDS and all(is_alive(pid) for pid in sleepers), "what is left behind is left alone"

        store.update_schedule(schedule_id="g", expected_revision=1, max_run="none")
        for _ in range(2):
            begin("hold")
        eventually(lambda: len(witness.alive("g")) == 2, "two at once, still")
        clock.advance(MINUTE)
        driven.step()
        third = store.get_occurrence(schedule_id="g", instant=clock.now().replace(second=0))
        assert third.status == "skipped-overlap"
        (place.notes / "go").touch()
        over(runs[-1])
        assert sorted(witness.runs("g")) == runs
        ledger_check(store, witness)


def zombies_of(*parents: int) -> list[int]:
    """Return the zombies among the children of these processes."""
    children = [pid for each in parents for pid in Path(f"/proc/{each}/task/{each}/children").read_text().split()]
    stats = {int(pid): process_stat(int(pid)) for pid in children}
    return [pid for pid, stat in stats.items() if stat is not None and stat.state == "Z"]

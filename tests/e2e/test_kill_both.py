"""SIGKILL of supervisor, keeper or both at random moments and in every phase of runs of several steps.

The jobs' own record judges, and `audit`. A killed keeper takes what it knew with it: a run of which nobody saw an end is failed
as `outcome-unknown` or `abandoned`, or as `not-started` where it was proved that nothing was launched. What holds all the same:
no execution and no step twice, no step before the one before it has ended, the overlap limit and the slots never exceeded,
everything that ran is recorded, every instant is accounted for.
"""

from __future__ import annotations

import os
import random
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.place import FINAL, Place, is_alive
from tests.support.processes import WFCTL, Supervisor, clean_environment, wait_for, wfctl
from tests.support.steps_side import (
    Law,
    by_run,
    check_laws,
    keepers_of,
    kill_keepers,
    noting_command,
    noting_steps,
    read_notes,
)
from wfctl import Store, open_store

SLOTS = 6
POLICIES: dict[str, dict[str, Any]] = {
    "skip": {"overlap": "skip", "deployment_id": "pipeline"},
    "queue": {"overlap": "queue", "deployment_id": "pipeline"},
    "pair": {"overlap": "parallel", "max_active_runs": 2, "deployment_id": "pipeline"},
    "latest": {"overlap": "skip", "misfire": "latest", "deployment_id": "pipeline"},
    "brisk": {"overlap": "skip", "deployment_id": "brisk"},
}
THREE, TWO = ("step-1", "step-2", "step-3"), ("step-1", "step-2")
LAWS = {name: Law(steps=TWO if name == "brisk" else THREE, limit=2 if name == "pair" else 1) for name in POLICIES}
RETRY = {"retries": 1, "retry_delay": "2s"}
VICTIMS = ("supervisor", "keeper", "both")
NOBODY_SAW = frozenset({"outcome-unknown", "abandoned", "not-started"})  #: what a run may fail for here
SEED = int(os.environ.get("WFCTL_TEST_SEED", "11"))
MANY = int(os.environ.get("WFCTL_TEST_KILLS_MANY", "10000"))


@pytest.mark.parametrize(
    ("rounds", "seed"),
    [
        pytest.param(int(os.environ.get("WFCTL_TEST_KILLS", "12")), SEED, id="some-kills"),
        pytest.param(300, 12, id="300-kills", marks=pytest.mark.kills),
        pytest.param(MANY, 13, id="many-kills", marks=pytest.mark.kills),
    ],
)
def test_6_9_killed_supervisors_and_keepers_repeat_nothing_and_exceed_nothing(tmp_path: Path, rounds: int, seed: int) -> None:
    """Contract 5.3, 5.4, 5.15, 6.1, 6.2, 6.9, 6.10, 7.1."""
    store, side = tmp_path / "store", tmp_path / "side"
    wfctl(store, "init")
    with open_store(store) as api:
        api.create_deployment(deployment_id="pipeline", steps=noting_steps(side, (0.15, 0.5, 0.15)))
        api.create_deployment(deployment_id="brisk", steps=noting_steps(side, (0.05, 0.05)))
        for name, policy in POLICIES.items():
            api.create_schedule(schedule_id=name, trigger={"kind": "interval", "every": "1s"}, **policy)
    chance = random.Random(seed)
    left = rounds
    try:
        while left > 0:
            with Supervisor(store, "--max-concurrent-runs", str(SLOTS)) as supervisor:
                supervisor.wait_ready()
                while left > 0 and supervisor.process.poll() is None:
                    left -= 1
                    wait_until(time.monotonic() + chance.uniform(0.0, 0.6))
                    strike(store, supervisor, chance.choice(VICTIMS), chance)
        with Supervisor(store, "--max-concurrent-runs", str(SLOTS)) as supervisor:
            supervisor.wait_ready()
            with open_store(store) as api:
                for name in POLICIES:
                    api.pause_schedule(schedule_id=name)
                wait_for(lambda: not api.list_runs(status="admitted,running").items, timeout_s=30, what="the end of all runs")
                assert not [problem for problem in api.server_status().to_json().get("problems", []) if problem]
            assert supervisor.stop() == 0
        notes = read_notes(side)
        wait_for(lambda: not [n for n in notes if n.what == "start" and is_alive(n.pid)], what="the end of all jobs")
        check_laws(store, read_notes(side), LAWS, slots=SLOTS, may_fail_for=NOBODY_SAW, when=f"seed {seed}")
    finally:
        kill_keepers(store)


def wait_until(moment: float) -> None:
    """Return at a monotonic time."""
    wait_for(lambda: time.monotonic() >= moment, what="the moment of the kill")


def strike(store: Path, supervisor: Supervisor, victim: str, chance: random.Random) -> None:
    """Kill, the two of both in either order."""
    if victim == "both" and chance.random() < 0.5:
        supervisor.kill()
        kill_keepers(store)
        return
    if victim != "supervisor":
        kill_keepers(store)
    if victim != "keeper":
        supervisor.kill()


@pytest.mark.parametrize("victim", VICTIMS)
def test_7_1_a_kill_in_every_phase_of_a_run_of_several_steps(tmp_path: Path, victim: str) -> None:
    """One run in each phase, one kill, and what becomes of each (contract 6.5, 6.9, 6.11, 6.13, 7.1)."""
    with Place(tmp_path) as place:
        api, side = place.store, tmp_path / "side"
        gate = place.notes / "go"
        waits = f'echo "start - - $WFCTL_RUN_ID $WFCTL_EXECUTION $WFCTL_STEP $$" >>{side}; {{}}'
        until_gate = waits.format(f"while [ ! -e {gate} ]; do sleep 0.02; done")
        at_once = waits.format(":")

        def shell(name: str, script: str, **more: Any) -> dict[str, Any]:
            return {"name": name, "command": ["/bin/sh", "-c", script], **more}

        last = shell("last", at_once)
        api.create_deployment(deployment_id="first-step", steps=[shell("first", until_gate), last])
        api.create_deployment(deployment_id="last-step", steps=[shell("first", at_once), shell("last", until_gate)])
        fails_once = waits.format('[ "$WFCTL_EXECUTION" -gt 1 ]')
        api.create_deployment(deployment_id="retry", steps=[shell("first", fails_once, retries=1, retry_delay="3s"), last])
        asks = waits.format('[ -n "$WFCTL_RESUME" ] || { echo "{}" >"$WFCTL_INTERRUPT"; exit 75; }')
        api.create_deployment(deployment_id="interrupted", steps=[shell("first", asks), last])
        stubborn = 'trap "" TERM; ' + until_gate
        api.create_deployment(deployment_id="stopped", kill_grace="5s", steps=[shell("first", stubborn), last])
        for name in ("first-step", "last-step", "retry", "interrupted", "stopped"):
            place.once(name, name, in_s=0.3)
        first = place.supervisor("--max-concurrent-runs", "8")

        def run_of(name: str) -> Any:
            found = api.list_runs(schedule_id=name, limit=10).items
            return found[0] if found else None

        def inspected(name: str) -> Any:
            found = run_of(name)
            return None if found is None else api.inspect_run(run_id=found.run_id)

        wait_for(lambda: (run := run_of("stopped")) and run.status == "running", what="stopped at work")
        stopped = run_of("stopped").run_id
        wait_for(lambda: any(note.run == stopped for note in read_notes(side)), what="the trap being set")
        api.cancel_run(run_id=stopped)
        wait_for(lambda: (run := inspected("first-step")) and run.trace, what="the first step at work")
        wait_for(lambda: (run := inspected("last-step")) and len(run.trace) == 2, what="the last step at work")
        wait_for(
            lambda: (run := inspected("retry")) and run.trace and run.trace[0].exit_status == 1, what="the wait for a retry"
        )
        wait_for(lambda: (run := run_of("interrupted")) and run.status == "interrupted", what="the question")
        keeper_was = keepers_of(place.root)
        if victim != "supervisor":
            kill_keepers(place.root)
        if victim != "keeper":
            first.kill()
            place.supervisor("--max-concurrent-runs", "8")
        wait_for(lambda: len(keepers_of(place.root)) == 1, what="one keeper")
        assert (keepers_of(place.root) == keeper_was) == (victim == "supervisor")
        gate.touch()
        names = ("first-step", "last-step", "retry", "stopped")
        wait_for(lambda: all(run_of(name).status in FINAL for name in names), what="the ends of the runs")
        seen = victim == "supervisor"  # by a keeper that saw the processes end
        for name in ("first-step", "last-step"):
            run = run_of(name)
            assert run.status == ("completed" if seen else "failed"), (name, run)
            assert seen or run.reason["code"] == "outcome-unknown", (name, run)
        assert run_of("retry").status == "completed", run_of("retry")
        assert (run_of("stopped").status, run_of("stopped").reason["code"]) == ("cancelled", "cancelled")
        assert run_of("interrupted").status == "interrupted"
        wait_for(lambda: resumed(api, run_of("interrupted").run_id), what="a free slot for the resume")
        place.until(run_of("interrupted").run_id, "completed")
        expected = {
            "first-step": ["first", "last"] if seen else ["first"],
            "last-step": ["first", "last"],
            "retry": ["first", "first", "last"],
            "interrupted": ["first", "first", "last"],
            "stopped": ["first"],
        }
        ran = by_run(read_notes(side))
        assert {name: [note.step for note in ran[run_of(name).run_id]] for name in expected} == expected
        for name in expected:
            keys = [note.k for note in ran[run_of(name).run_id]]
            assert len(set(keys)) == len(keys), f"{name}: an execution was launched twice"
            assert api.audit_schedule(schedule_id=name).is_balanced


def resumed(api: Store, run_id: str) -> bool:
    """Resume a run; False while there is no slot for it."""
    from wfctl.errors import Saturated

    try:
        api.resume_run(run_id=run_id, input={})
    except Saturated:
        return False
    return True


@pytest.mark.parametrize("victim", ["keeper", "both"])
def test_6_8_a_slot_is_not_freed_over_a_process_that_was_never_reported(tmp_path: Path, victim: str) -> None:
    """The keeper is killed after the launch and before it says so: the job lives, and its slot with it."""
    with Place(tmp_path) as place:
        side = tmp_path / "side"
        place.store.create_deployment(deployment_id="d", command=noting_command(side, 2.5))
        place.once("s", "d", in_s=0.5, overlap="skip")
        supervisor = place.supervisor()
        (keeper,) = keepers_of(place.root)
        os.kill(keeper, 19)  # SIGSTOP: what it was asked for lies unread
        wait_for(lambda: "admitted run-000001" in supervisor.text(), what="the launch being asked for, which is told after it")
        if victim == "both":
            supervisor.kill()
        kill_after_first_spawn(keeper, side)
        if victim == "both":
            place.supervisor()
        run = place.until("run-000001", "failed")
        notes = read_notes(side)
        assert [note.what for note in notes] == ["start", "end"], "failed while its process lived"
        assert run.reason is not None
        assert run.reason["code"] in NOBODY_SAW - {"not-started"}


def kill_after_first_spawn(keeper: int, side: Path) -> None:
    """Let a stopped keeper go on until the job has begun, then kill it at once: mostly before it could tell anybody."""
    os.kill(keeper, 18)
    deadline = time.monotonic() + 10
    while not side.exists() and time.monotonic() < deadline:
        pass
    os.kill(keeper, 9)


def test_6_12_a_command_without_supervisor_gets_over_the_end_of_its_keeper(tmp_path: Path) -> None:
    """Killed while the run waits for a retry: nothing of it was at work, so nothing is unknown."""
    with Place(tmp_path) as place:
        steps = [{"name": "main", "command": ["/bin/sh", "-c", 'echo x >>$NOTES/ran; [ "$WFCTL_EXECUTION" -gt 1 ]'], **RETRY}]
        place.store.create_deployment(deployment_id="r", steps=steps, environment={"NOTES": str(place.notes)})
        command = subprocess.Popen(
            [*WFCTL, "--store", str(place.root), "run", "start", "r"], env=clean_environment(), stderr=subprocess.DEVNULL
        )
        try:
            run_id = place.run().run_id
            wait_for(
                lambda: [each.exit_status for each in place.store.inspect_run(run_id=run_id).trace] == [1], what="a failure"
            )
            assert kill_keepers(place.root / "runs" / run_id) == 1
            assert command.wait(20) == 0
        finally:
            command.kill()
            command.wait()
        assert place.store.inspect_run(run_id=run_id).status == "completed"
        assert (place.notes / "ran").read_text() == "x\nx\n"

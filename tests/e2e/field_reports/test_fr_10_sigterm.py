"""FR-10: SIGTERM ends the scheduler, not the jobs, unless told so (contract 7.6, 6.9, 6.11)."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from tests.support.place import Place, is_alive
from tests.support.processes import wait_for
from tests.support.witness import Witness
from wfctl import open_store
from wfctl.errors import Draining

Check = Callable[..., None]
HELD = 'trap "echo got TERM >$NOTES/term" TERM; echo $$ >$NOTES/pid; while [ ! -e $NOTES/go ]; do sleep 0.02; done; exit 3'


STUBBORN = 'trap "echo TERM >$NOTES/term" TERM; echo $$ >$NOTES/pid; while :; do sleep 0.05; done'


def job(place: Place, witness: Witness, script: str = HELD, **fields: str) -> None:
    environment = {"NOTES": str(place.notes)}
    place.store.create_deployment(deployment_id="d", command=witness.command(script), environment=environment, **fields)


def test_fr_10_a_short_job_ends_by_itself(place: Place, witness: Witness, ledger_check: Check) -> None:
    """An instant falls due after the signal, SIGTERM comes again, and the job ends when the test tells it, within the grace."""
    job(place, witness, HELD.replace("exit 3", "exit 0"))
    place.once()
    supervisor = place.supervisor("--drain-grace-s", "10")
    place.pid("pid")
    run = place.run()
    at = place.once("late", in_s=0.3)
    supervisor.process.send_signal(signal.SIGTERM)
    wait_for(lambda: "draining" in supervisor.text(), what="the drain")
    supervisor.process.send_signal(signal.SIGTERM)
    with pytest.raises(Draining):
        place.store.start_run(deployment_id="d")
    assert place.store.server_status().state == "draining"
    wait_for(lambda: place.store.context.now() > at, what="the instant")
    (place.notes / "go").touch()
    assert supervisor.process.wait(20) == 0
    with open_store(place.root) as anew:  # exit 0 only once the record is durable
        ended = anew.inspect_run(run_id=run.run_id)
    assert (ended.status, ended.exit_status) == ("completed", 0)
    assert not (place.notes / "term").exists(), "the job was signalled"
    assert witness.runs("late") == [] and witness.runs("s") == [run.run_id], "no admission after the signal"
    ledger_check(place.store, witness)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_fr_10_a_long_job_is_left_and_adopted(place: Place, witness: Witness, ledger_check: Check, number: int) -> None:
    """`leave`: it outlasts the grace (2 s in the case, here 0.2 s); the next supervisor records its true exit."""
    job(place, witness)
    place.once()
    first = place.supervisor("--drain-grace-s", "0.2")
    pid, run = place.pid("pid"), place.run()
    assert first.stop(number) == 0
    assert is_alive(pid)
    assert place.store.inspect_run(run_id=run.run_id).status == "running", "its mark stays"
    second = place.supervisor()
    assert "1 adopted" in second.text()
    (place.notes / "go").touch()
    ended = place.until(run.run_id, "failed")
    assert (ended.exit_status, len(ended.trace)) == (3, 1)
    assert ended.reason is not None and ended.reason["code"] == "exit"
    assert not (place.notes / "term").exists(), "the job was signalled"
    assert second.stop() == 0
    assert witness.runs("s") == [run.run_id], "never run again"
    ledger_check(place.store, witness)


def test_fr_10_on_shutdown_stop_ends_the_group_before_the_exit(place: Place, witness: Witness, ledger_check: Check) -> None:
    """TERM, KILL after `kill_grace`, and the end on record before the exit. Meanwhile the supervisor sleeps."""
    place.settings('[supervisor]\non_shutdown = "stop"\ndrain_grace_s = 0.1\n')
    job(
        place, witness, 'trap "echo TERM >$NOTES/term" TERM; echo $$ >$NOTES/pid; while :; do sleep 0.05; done', kill_grace="1s"
    )
    place.once()
    supervisor = place.supervisor()
    pid, run = place.pid("pid"), place.run()
    supervisor.process.terminate()
    place.note("term")
    before = supervisor.cpu_s()
    assert is_alive(pid)
    wait_for(lambda: not is_alive(pid), what="SIGKILL")
    assert supervisor.process.poll() is not None or supervisor.cpu_s() - before < 0.4, "it spun while it waited"
    assert supervisor.process.wait(20) == 0
    with open_store(place.root) as anew:
        ended = anew.inspect_run(run_id=run.run_id)
    assert (ended.status, ended.signal) == ("failed", signal.SIGKILL)
    assert ended.reason is not None and ended.reason["code"] == "shutdown"
    assert place.supervisor().stop() == 0
    assert witness.runs("s") == [run.run_id], "never run again"
    ledger_check(place.store, witness)

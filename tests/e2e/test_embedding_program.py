"""A supervisor inside somebody else's program: threads, signals, forks, and ends that nobody planned (contract 9.4, 2.6)."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.place import FINAL, Place
from tests.support.processes import clean_environment, wait_for
from wfctl import InvalidArgument, MissingExtra, NoSupervisor, SupervisorService, open_store

QUICK = {"supervisor": {"drain_grace_s": 0.0, "poll_interval_s": 0.1}}


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with Place(tmp_path) as made:
        made.job("exit 0")
        yield made


def handlers() -> dict[int, object]:
    """Return what this process does on each signal."""
    return {number: signal.getsignal(number) for number in signal.valid_signals()}


def threads() -> set[str]:
    """Return the names of the threads of a supervisor in this process."""
    return {thread.name for thread in threading.enumerate()} & {"wfctl-supervisor", "preflight", "asides"}


def test_9_4_signals_stay_the_program_s_own(place: Place) -> None:
    before = handlers()
    wakeup = signal.set_wakeup_fd(-1)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        with SupervisorService(place.store, QUICK) as service:
            service.start()
            place.until(place.store.start_run(deployment_id="d").run_id, "completed")
            assert handlers() == before
            assert signal.set_wakeup_fd(-1) == -1
            assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == mask
        assert handlers() == before
    finally:
        signal.set_wakeup_fd(wakeup)


@pytest.mark.parametrize("given", ["path", None])
def test_9_1_what_is_no_open_store_is_refused(place: Place, given: str | None) -> None:
    with pytest.raises(InvalidArgument, match="open_store"):
        SupervisorService(place.store.root if given else None)  # type: ignore[arg-type]


@pytest.mark.parametrize("given", [[], "", 0, False])
def test_9_4_settings_that_are_no_dict_are_refused_though_they_are_empty(place: Place, given: object) -> None:
    with pytest.raises(MissingExtra, match="must be tables of settings"):
        SupervisorService(place.store, given)  # type: ignore[arg-type]


def test_9_4_any_thread_may_start_and_any_other_stop(place: Place) -> None:
    """So it may live in a worker of a server, where no signal handler could be installed."""
    failures: list[BaseException] = []
    service = SupervisorService(place.store, QUICK)

    def in_thread(what: str) -> None:
        def call() -> None:
            try:
                getattr(service, what)()
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=call)
        thread.start()
        thread.join(20)
        assert not thread.is_alive()

    in_thread("start")
    place.once(in_s=0.1)
    assert place.until(place.run().run_id, *FINAL).status == "completed"
    in_thread("stop")
    in_thread("step")  # rounds, too, and it is not the thread that goes on
    in_thread("stop")
    assert failures == []


def test_9_4_two_stores_in_one_program_know_nothing_of_each_other(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    with Place(tmp_path / "one") as one, Place(tmp_path / "two") as two:
        one.job("exit 0")
        two.job("exit 3")
        with SupervisorService(one.store, QUICK) as first, SupervisorService(two.store, QUICK) as second:
            first.start()
            second.start()
            for place in (one, two):
                place.once(in_s=0.2)
            assert one.until(one.run().run_id, *FINAL).status == "completed"
            assert two.until(two.run().run_id, *FINAL).exit_status == 3
            first.stop()
            assert two.store.server_status().store == str(two.root)
            with pytest.raises(NoSupervisor):
                one.store.server_status()


def test_9_4_leaving_the_block_stops_it_whatever_happened_inside(place: Place) -> None:
    class Accident(Exception):
        pass

    with pytest.raises(Accident), SupervisorService(place.store, QUICK) as service:
        service.start()
        raise Accident
    assert threads() == set()
    with SupervisorService(place.store, QUICK):
        pass  # never started: nothing to stop


def test_9_4_starting_and_stopping_leaves_nothing_behind(place: Place) -> None:
    counts = []
    for _ in range(4):
        with SupervisorService(place.store, QUICK) as service:
            service.start()
            place.until(place.store.start_run(deployment_id="d").run_id, "completed")
        wait_for(lambda: not threads(), what="the end of the threads")
        counts.append(len(list(Path("/proc/self/fd").iterdir())))
    assert counts[1:] == [counts[1]] * 3, "descriptors stay open"


def test_2_6_a_fork_of_the_program_does_not_keep_the_lock(place: Place) -> None:
    """A child without exec, as multiprocessing makes it, has a copy of every descriptor; it owns nothing all the same."""
    reading, writing = os.pipe()
    with SupervisorService(place.store, QUICK) as service:
        service.start()
        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException):
                service.stop()  # as a `with` would at its end: without effect here
                os.close(writing)
                os.read(reading, 1)
            os._exit(0)
        os.close(reading)
        assert place.store.server_status().pid == os.getpid()
        place.until(place.store.start_run(deployment_id="d").run_id, "completed")
    with open_store(place.root) as other, SupervisorService(other, QUICK) as next_one:
        next_one.start()
        assert other.server_status().state == "ready"
    os.close(writing)
    assert os.waitpid(child, 0)[1] == 0


FORGETFUL = """
import sys, time, wfctl
store = wfctl.open_store(sys.argv[1])
wfctl.SupervisorService(store, {"supervisor": {"poll_interval_s": 0.1}}).start()
run = store.start_run(deployment_id="long")
while store.inspect_run(run_id=run.run_id).status != "running":
    time.sleep(0.01)
print(run.run_id, flush=True)
"""


def test_6_9_a_program_that_just_ends_ends_no_run(place: Place) -> None:
    """Nobody called `stop`: the interpreter ends without a word, the lock is free, and the next supervisor adopts the run."""
    place.job("echo $$ >$NOTES/pid; until [ -e $NOTES/go ]; do sleep 0.02; done", "long")
    argv = [sys.executable, "-c", FORGETFUL, str(place.root)]
    done = subprocess.run(argv, env=clean_environment(), capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    run_id = done.stdout.strip()
    place.pid("pid")
    with SupervisorService(place.store, QUICK) as service:
        service.start()
        assert place.store.inspect_run(run_id=run_id).status == "running"
        (place.notes / "go").touch()
        assert place.until(run_id, *FINAL).status == "completed"

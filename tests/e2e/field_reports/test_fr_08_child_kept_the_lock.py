"""FR-08: what a job leaves behind holds nothing of the store, so the next supervisor starts at once (contract 2.6, 6.4)."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.place import Place, is_alive
from tests.support.witness import Witness

LEAVES = "setsid sh -c 'echo $$ >$NOTES/pid; exec sleep 600' >/dev/null 2>&1 & while [ ! -s $NOTES/pid ]; do sleep 0.01; done"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["SIGTERM", "SIGKILL"])
def test_fr_08_a_sleeper_holds_no_descriptor_of_the_store(
    place: Place, witness: Witness, ledger_check: Callable[..., None], number: int
) -> None:
    place.store.create_deployment(deployment_id="d", command=witness.command(LEAVES), environment={"NOTES": str(place.notes)})
    place.once()
    first = place.supervisor()
    run = place.until(place.run().run_id, "completed")
    assert run.trace[0].left_behind == 1
    pid = place.pid("pid")
    opened = [str(path.readlink()) for path in Path(f"/proc/{pid}/fd").iterdir()]
    assert not [path for path in opened if path.startswith(str(place.root)) or "socket" in path or "pipe" in path], opened
    first.stop(number)
    assert (place.root / "scheduler.lock").exists(), "a file that is left is harmless"
    began = time.monotonic()
    second = place.supervisor()
    assert time.monotonic() - began < 2 * 2, "within 2 s, and as much again for a machine that is busy with other tests"
    assert is_alive(pid)
    assert second.stop() == 0
    ledger_check(place.store, witness)

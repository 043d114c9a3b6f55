"""FR-09: what a job prints neither stops it nor fills memory, ledger or disk (contract 6.4, 6.9, 6.15)."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.support.place import Place
from tests.support.processes import wait_for, wfctl
from wfctl.store.logs import lost_bytes

Check = Callable[..., None]
MIB = 1 << 20
MAX_OUTPUT = 64 * MIB
ALTERNATING = """
import os
for _ in range(256):
    os.write(1, b"o" * 4095 + b"\\n")
    os.write(2, b"e" * 4095 + b"\\n")
raise SystemExit(3)
"""
ONE_LINE = """
import os
block = b"x" * (1 << 20)
os.write(1, b"HEAD")
for _ in range(2048):
    os.write(1, block)
os.write(1, b"TAIL")
"""


def job(place: Place, deployment_id: str, script: str) -> None:
    place.store.create_deployment(deployment_id=deployment_id, command=[sys.executable, "-S", "-c", script])


def test_fr_09_a_both_streams_are_complete(place: Place, ledger_check: Check) -> None:
    job(place, "d", ALTERNATING)
    place.once()
    place.supervisor()
    begun = time.monotonic()
    ended = place.until(place.run().run_id, "failed")
    assert time.monotonic() - begun < 5
    assert ended.exit_status == 3
    out, err = place.store.run_log_paths(ended.run_id)
    assert out.read_bytes() == (b"o" * 4095 + b"\n") * 256
    assert err.read_bytes() == (b"e" * 4095 + b"\n") * 256
    ledger_check(place.store)


def _memory(pid: int) -> int:
    """Return the most memory that a process ever had, in bytes."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)
    assert found
    return int(found[1]) * 1024


def test_fr_09_b_two_gigabytes_of_one_line(place: Place, ledger_check: Check) -> None:
    job(place, "d", ONE_LINE)
    supervisor = place.supervisor()
    before = _memory(supervisor.process.pid)
    place.once()
    ended = place.until(place.run().run_id, "completed", timeout_s=120)
    out, _ = place.store.run_log_paths(ended.run_id)
    wait_for(lambda: out.stat().st_blocks * 512 <= MAX_OUTPUT, what="the middle being released")
    assert out.stat().st_size == 2048 * MIB + 8
    assert lost_bytes(out) >= 2048 * MIB - MAX_OUTPUT
    assert _memory(supervisor.process.pid) - before < 32 * MIB
    assert sum(path.stat().st_size for path in place.root.glob("ledger.db*")) < 8 * MIB
    with out.open("rb") as file:
        assert file.read(5) == b"HEADx"
    begun = time.monotonic()
    shown = wfctl(place.root, "run", "logs", ended.run_id, "-n", "1")
    assert time.monotonic() - begun < 1 + 1  # the second is that of the interpreter on a busy machine
    assert shown.stdout.endswith("xTAIL")
    assert len(shown.stdout) <= MAX_OUTPUT
    assert re.search(r"1\.9 GiB of this log are gone", shown.stderr), shown.stderr
    whole = wfctl(place.root, "run", "logs", ended.run_id)
    assert whole.stdout.startswith("HEADx")
    assert whole.stdout.endswith("xTAIL")
    assert len(whole.stdout) <= MAX_OUTPUT
    assert "1.9 GiB of this log are gone" in whole.stderr
    ledger_check(place.store)


def test_fr_09_c_what_keeps_the_output_open_holds_nothing_up(place: Place, ledger_check: Check) -> None:
    place.job("sleep 600 & echo $! >$NOTES/pid; exit 0")
    place.once()
    place.supervisor()
    begun = time.monotonic()
    ended = place.until(place.run().run_id, "completed")
    assert time.monotonic() - begun < 2 + 0.5
    assert ended.trace[0].left_behind == 1
    ledger_check(place.store)


def test_6_15_without_a_supervisor_the_command_bounds_it(place: Place) -> None:
    place.settings('[runs]\nmax_output = "1MiB"\n')
    job(place, "d", ONE_LINE.replace("2048", "64"))
    done = wfctl(place.root, "run", "start", "d", "-o", "json")
    assert done.returncode == 0
    out, _ = place.store.run_log_paths("run-000001")
    assert out.stat().st_size == 64 * MIB + 8
    assert out.stat().st_size - lost_bytes(out) <= MIB


def test_6_15_what_ended_while_nobody_bounded_it_is_bounded_by_the_next_supervisor(place: Place) -> None:
    place.settings('[runs]\nmax_output = "1MiB"\n')
    job(place, "d", "pass")
    supervisor = place.supervisor()
    place.once()
    ended = place.until(place.run().run_id, "completed")
    supervisor.kill()
    out, _ = place.store.run_log_paths(ended.run_id)
    out.write_bytes(b"x" * (8 * MIB))
    place.supervisor()
    wait_for(lambda: out.stat().st_size - lost_bytes(out) <= MIB, what="the middle being released")

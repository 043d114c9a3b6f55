"""The bare limits as small C programs (limit/), compiled on the spot, and the processor time of whole groups of processes."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SOURCES = Path(__file__).with_name("limit")
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_END_WITHIN_S = 15.0


@dataclass(frozen=True, slots=True)
class Programs:
    """Where the compiled programs are. Their sources say what they do."""

    spawnloop: Path
    stamp: Path
    lastword: Path
    exitloop: Path
    laterclock: Path


def compile_all(directory: Path) -> Programs:
    """Compile the programs into a directory. Raise SystemExit where there is no compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise SystemExit("no C compiler, and this is held against C programs. On Debian: apt-get install gcc libc6-dev")
    flags = {"stamp": ["-static"], "lastword": ["-static"], "laterclock": ["-shared", "-fPIC"]}
    made = {}
    for name in Programs.__dataclass_fields__:
        made[name] = directory / name
        command = [compiler, "-O2", *flags.get(name, []), "-o", str(made[name]), str(SOURCES / f"{name}.c")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"{name}.c cannot be compiled (static programs need libc6-dev):\n{done.stderr[-2000:]}")
    return Programs(**made)


def machine(directory: Path) -> dict[str, Any]:
    """Return what is to be known of the machine, and of the file system of a directory: on a tmpfs no sync costs anything."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    place = str(directory.resolve())
    above = [(len(words[1]), words[2]) for words in mounts if f"{place}/".startswith(f"{words[1].rstrip('/')}/")]
    return {
        "processors": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "file_system": max(above, default=(0, "unknown"))[1],
    }


class Group:
    """Processes that are accounted for together: all that come from those that `enter`, whatever becomes of their parents.

    By a control group of their own where one can be made (root, or a delegated one), else by /proc: then the time of
    processes counts that are named, and of their children once these were reaped.
    """

    _made = 0

    def __init__(self) -> None:
        Group._made += 1
        self._usage: Path | None = None
        self._directory: Path | None = None
        for base, usage in _places():
            directory = base / f"wfctl-bench-{os.getpid()}-{Group._made}"
            with contextlib.suppress(OSError):
                directory.mkdir()
                if (directory / usage).exists():
                    self._directory, self._usage = directory, directory / usage
                    return
                directory.rmdir()

    @property
    def is_exact(self) -> bool:
        """Whether every process counts, and to the microsecond."""
        return self._usage is not None

    def enter(self) -> None:
        """Join it: to be called in the child, between its fork and its exec."""
        if self._directory is not None:
            (self._directory / "cgroup.procs").write_text("0")

    def processor_s(self, pids: Iterable[int] = ()) -> float:
        """Return the processor time so far; `pids` are the roots to count where there is no control group."""
        if self._usage is None:
            return sum(tree_processor_s(pid) for pid in pids)
        text = self._usage.read_text()
        return int(text) / 1e9 if self._usage.name == "cpuacct.usage" else int(text.split()[1]) / 1e6

    def pids(self) -> list[int]:
        """Return its living processes; none where there is no control group."""
        if self._directory is None:
            return []
        numbers = map(int, (self._directory / "cgroup.procs").read_text().split())
        return [
            number for number in numbers if number > 0
        ]  # 0: one that is just dying, and to `kill` it means the caller's group

    def close(self) -> None:
        """Wait until its processes have ended, and take it away; what goes on for long is killed."""
        deadline = time.monotonic() + _END_WITHIN_S
        while self._directory is not None:
            with contextlib.suppress(OSError):
                self._directory.rmdir()
                return
            if time.monotonic() > deadline:
                for pid in self.pids():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, 9)
            time.sleep(0.02)


def _places() -> list[tuple[Path, str]]:
    """Return where a control group may be made, and the file in it that says what its processes used."""
    root = Path("/sys/fs/cgroup")
    own = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    unified = next((path for number, _, path in own if number == "0"), "/").lstrip("/")
    places = [(root / "cpuacct", "cpuacct.usage"), (root / unified, "cpu.stat"), (root, "cpu.stat")]
    return [(base, usage) for base, usage in places if (base / "cgroup.procs").exists()]


def tree_processor_s(pid: int) -> float:
    """Return the processor time of a process and of its reaped children; 0 once it has gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) * _TICK_S

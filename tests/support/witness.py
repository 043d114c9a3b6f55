"""What jobs say of themselves and what the process table says of them, so that a test need not believe the ledger.

A witnessed job appends `start|end SCHEDULE OCCURRENCE RUN K NS` to a side file (its start also with pid and start time of the
process). The witness reads it along and looks at those processes the whole time: a job that is killed writes no end.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from wfctl.linux import process_stat

_LOOKS_EVERY_S = 0.01
_PRELUDE = """
note() {
    read -r stat </proc/$$/stat; set -- "$1" ${stat##*) }
    echo "$1 $WFCTL_SCHEDULE_ID $WFCTL_OCCURRENCE $WFCTL_RUN_ID $WFCTL_EXECUTION $(date +%s%N) $$ ${21}" >>"$SIDE"
}
trap 'note end' EXIT
note start
"""


@dataclass
class Seen:
    """One process of a job. Times are nanoseconds; it lived from `start` to `until` at least."""

    schedule: str
    occurrence: str
    run: str
    k: int
    start: int
    until: int
    pid: int | None = None
    start_time: int | None = None
    is_over: bool = False  #: it said so, or is gone from the process table


class Witness:
    """Reads a side file along, and watches the processes that it names. A context manager."""

    def __init__(self, side: Path) -> None:
        self.side = side
        self.seen: dict[tuple[str, int], Seen] = {}
        self.twice: list[str] = []  #: lines of executions that had started before
        self._read_to = 0
        self._lock = threading.Lock()
        self._is_ending = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="witness", daemon=True)

    def command(self, script: str) -> list[str]:
        """Return the command of a shell job that is witnessed. `exec` and death by a signal leave no end."""
        return ["/bin/sh", "-c", f"SIDE='{self.side}'{_PRELUDE}{script}"]

    def look(self) -> None:
        """Take in the side file and the process table as they are now."""
        with self._lock:
            now = time.time_ns()
            for each in self.seen.values():
                self._look_at(each, now)
            with self.side.open() as file:
                file.seek(self._read_to)
                text = file.read()
            whole = text[: text.rfind("\n") + 1]
            self._read_to += len(whole.encode())
            for line in whole.splitlines():
                self._take_in(line)

    def _look_at(self, each: Seen, now: int) -> None:
        if each.is_over or each.pid is None:
            return
        stat = process_stat(each.pid)
        if stat is not None and stat.start_time == each.start_time and stat.is_alive:
            each.until = max(each.until, now)
        else:
            each.is_over = True

    def _take_in(self, line: str) -> None:
        what, schedule, occurrence, run, k, at, *process = line.split(" ")
        if what == "end":
            ended = self.seen[run, int(k)]
            ended.until, ended.is_over = int(at), True
            return
        if (run, int(k)) in self.seen:
            self.twice.append(line)
        pid, start_time = (int(each) for each in process) if process else (None, None)
        self.seen[run, int(k)] = Seen(schedule, occurrence, run, int(k), int(at), int(at), pid, start_time)

    def runs(self, schedule_id: str) -> list[str]:
        """Return the runs of a schedule that started, in that order."""
        self.look()
        return [each.run for each in self.seen.values() if each.schedule == schedule_id]

    def alive(self, schedule_id: str) -> list[Seen]:
        """Return the processes of a schedule that live now."""
        self.look()
        return [each for each in self.seen.values() if each.schedule == schedule_id and not each.is_over]

    def most_at_once(self) -> Counter[str]:
        """Return how many processes of each schedule lived at the same time, at most."""
        moments = [(at, step, each.schedule) for each in self.seen.values() for at, step in ((each.start, 1), (each.until, -1))]
        running: Counter[str] = Counter()
        most: Counter[str] = Counter()
        for _, step, schedule in sorted(moments):  # at one moment the ends come first
            running[schedule] += step
            most[schedule] = max(most[schedule], running[schedule])
        return most

    def _watch(self) -> None:
        while not self._is_ending.wait(_LOOKS_EVERY_S):
            self.look()

    def __enter__(self) -> Witness:
        self.side.touch()
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._is_ending.set()
        self._thread.join()

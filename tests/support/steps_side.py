"""Pipelines whose steps keep their own record, and what that record must never show.

All steps append to one file, so the order of its lines is the order in which things happened.
"""

from __future__ import annotations

import itertools
import os
import signal
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from wfctl import Store, open_store
from wfctl.linux import living_pids, process_stat

_SCRIPT = """
note() { echo "$1 $WFCTL_SCHEDULE_ID $WFCTL_OCCURRENCE $WFCTL_RUN_ID $WFCTL_EXECUTION $WFCTL_STEP $$" >>"$0"; }
note start; sleep "$1"; note end
"""


def noting_command(side: Path, lasts_s: float) -> list[str]:
    """Return a command that notes its start and its end, and takes so long."""
    return ["/bin/sh", "-c", _SCRIPT, str(side), str(lasts_s)]


def noting_steps(side: Path, lasts: Sequence[float]) -> list[dict[str, Any]]:
    """Return the steps of a pipeline that note their starts and ends, and take so long each."""
    return [{"name": f"step-{n}", "command": noting_command(side, lasts_s)} for n, lasts_s in enumerate(lasts, 1)]


@dataclass(frozen=True)
class Note:
    """One line of the record, `at` its place."""

    at: int
    what: str
    schedule: str
    occurrence: str
    run: str
    k: int
    step: str
    pid: int


def read_notes(side: Path) -> list[Note]:
    """Return the record, oldest first."""
    lines = side.read_text().splitlines() if side.exists() else []
    found = []
    for at, line in enumerate(lines):
        what, schedule, occurrence, run, k, step, pid = line.split(" ")
        found.append(Note(at, what, schedule, occurrence, run, int(k), step, int(pid)))
    return found


def by_run(notes: Iterable[Note]) -> dict[str, list[Note]]:
    """Return the notes of each run."""
    found: dict[str, list[Note]] = defaultdict(list)
    for note in notes:
        found[note.run].append(note)
    return found


def check_run(notes: Sequence[Note], names: Sequence[str]) -> None:
    """Hold one run against what a run may do: each step once, after the one before it has ended, each execution once."""
    starts = [note for note in notes if note.what == "start"]
    run = notes[0].run
    assert len({note.k for note in starts}) == len(starts), f"{run}: an execution was launched twice"
    assert [note.step for note in starts] == list(names[: len(starts)]), f"{run}: a step was repeated or left out"
    assert [note.k for note in starts] == sorted(note.k for note in starts)
    for earlier, later in itertools.pairwise(starts):
        ends = [note.at for note in notes if note.what == "end" and note.k == earlier.k]
        assert ends, f"{run}: {later.step} began though {earlier.step} never ended"
        assert ends[0] < later.at, f"{run}: {later.step} began before {earlier.step} had ended"
    assert len({note.occurrence for note in notes}) == 1


def most_runs_at_once(notes: Iterable[Note]) -> int:
    """Return how many runs were at work at the same time, at most: each from its first start to its last end.

    A run of which a step never ended is at work to the end of the record.
    """
    moments: list[tuple[int, int]] = []
    for mine in by_run(notes).values():
        moments.append((mine[0].at, 1))
        if mine[-1].what == "end":
            moments.append((mine[-1].at, -1))
    running = most = 0
    for _, step in sorted(moments):
        running += step
        most = max(most, running)
    return most


# The laws -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Law:
    """What holds for one schedule: the steps of its runs, and how many may be at work at once."""

    steps: Sequence[str]
    limit: int = 1


def check_laws(
    root: Path, notes: list[Note], laws: Mapping[str, Law], *, slots: int, may_fail_for: Set[str], when: str
) -> dict[str, list[str]]:
    """Hold the ledger against what the steps wrote down themselves; return the statuses of each schedule's runs.

    No execution, step or occurrence twice; neither limits nor slots exceeded; all that ran is recorded; every instant is
    accounted for; a run is completed exactly where all its steps came to their ends, and failed for the reasons allowed.
    """
    told = by_run(notes)
    assert most_runs_at_once(notes) <= slots, f"{when}: more runs at once than slots"
    found: dict[str, list[str]] = {}
    with open_store(root) as api:
        for name, law in laws.items():
            mine = [note for note in notes if note.schedule == name]
            runs = by_run(mine)
            occurrences = {run[0].occurrence for run in runs.values()}
            assert len(occurrences) == len(runs), f"{when}: an occurrence of {name} ran twice"
            assert most_runs_at_once(mine) <= law.limit, f"{when}: {name} exceeded its overlap limit"
            audit = api.audit_schedule(schedule_id=name)
            assert audit.is_balanced, f"{when}: {name}: {audit.problems}"
            rows = {row.run_id: row for row in all_occurrences(api, name) if row.run_id is not None}
            for run_id, run in runs.items():
                check_run(run, law.steps)
                assert run_id in rows, f"{when}: {run_id} ran and is not recorded"
                assert datetime.fromisoformat(run[0].occurrence) == rows[run_id].instant
            for run_id, row in rows.items():
                who = f"{when}: {run_id} of {name}"
                check_outcome(row.status, row.reason, told.get(run_id, []), law.steps, may_fail_for, who)
            found[name] = [row.status for row in rows.values()]
    return found


def check_outcome(
    status: str, reason: Any, notes: Sequence[Note], names: Sequence[str], may_fail_for: Set[str], who: str
) -> None:
    """Hold the end of one run against what its steps noted."""
    starts = [note.step for note in notes if note.what == "start"]
    ends = [note.step for note in notes if note.what == "end"]
    if status == "completed":
        assert starts == list(names), f"{who} is completed, and ran {starts}"
        assert ends == list(names), f"{who} is completed, and {ends} ended"
        return
    assert status == "failed", f"{who} is {status}: {reason}"
    assert reason["code"] in may_fail_for, f"{who} failed for {reason}"
    if reason["code"] == "not-started":
        assert not starts, f"{who} is not-started, and ran {starts}"
    if reason["code"] == "outcome-unknown":
        assert starts, f"{who} has an unknown outcome, and never ran"


def all_occurrences(api: Store, name: str) -> list[Any]:
    """Return every recorded occurrence of a schedule."""
    rows: list[Any] = []
    cursor = None
    while True:
        page = api.list_schedule_occurrences(schedule_id=name, limit=100, cursor=cursor)
        rows += page.items
        cursor = page.next_cursor
        if cursor is None:
            return rows


# Keepers ------------------------------------------------------------------------------------------------------------------


def keepers_of(root: Path) -> list[int]:
    """Return the pids of the keepers of a store, or of one of its runs."""
    found: dict[int, int] = {}
    for pid in living_pids():
        stat = process_stat(pid)
        if stat is None or not stat.is_alive:
            continue
        try:
            name = Path(f"/proc/{pid}/comm").read_text().strip()
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if name == "wfctl-keeper" and os.fsencode(root) in words:  # by its name it is no more the process that started it
            found[pid] = stat.parent
    return sorted(pid for pid, parent in found.items() if parent not in found)  # else it is just about to be a job


def kill_keepers(root: Path) -> int:
    """SIGKILL the keepers of a store; return how many there were."""
    found = keepers_of(root)
    for pid in found:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    return len(found)

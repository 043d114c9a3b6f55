"""What of an execution lives on after its own process has ended: its group while it is stopped, and what it left behind (6.9).

A process belongs to an execution by its session, by its group, or, where it left both, by the marks in its environment.
"""

from __future__ import annotations

import os
import time
from collections.abc import Container, Iterable, Sized
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Protocol

from wfctl.keeper.spawn import MARKS, Execution
from wfctl.linux import boottime_ns, living_pids, own_children, process_stat

_LOOKS, _LOOK_AGAIN_S = 2, 0.01  # a process that is just being executed shows no environment yet


class Group(Enum):
    """What is left of a group."""

    GONE = "gone"  #: nothing; the kernel does not know it
    SILENT = "silent"  #: nobody alive was seen: zombies that nobody reaps, or one that was born while we looked
    ALIVE = "alive"


class _Pids(Container[int], Sized, Protocol):
    """The pids of all executions whose own process has not been reaped."""


def count_left_behind(ended: Iterable[Execution], running: _Pids) -> None:
    """Given executions that just ended, set `left_behind` of each to the number of its processes that still live.

    Where the kernel lists children, the usual answer, nobody, costs one read: what is left behind is our child, or below one.
    """
    children = own_children()
    if children is not None and len(children) == len(running):
        return
    by_pid = {execution.pid: execution for execution in ended if execution.pid not in running}
    by_marks = {execution.marks: execution for execution in by_pid.values() if execution.marks[1]}
    for pid in living_pids():
        if pid in running:
            continue
        owner = _owner(pid, by_pid, by_marks, running)
        if owner is not None and _lives_below(pid, os.getpid()):
            owner.left_behind += 1


@dataclass(frozen=True, slots=True)
class Found:
    """A process that carries the marks of an execution."""

    pid: int
    start_time: int  #: clock ticks since boot
    age_ns: int


def find_process(marks: tuple[str, ...], since_ns: int) -> Found | None:
    """Given the values of an execution's `MARKS`, return its own process where it lives and began after `since_ns` of
    CLOCK_BOOTTIME: the oldest of those that lead a session. For a driver whose keeper went before it could tell of it.
    """
    tick_ns = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    for look in range(_LOOKS):
        if look:
            time.sleep(_LOOK_AGAIN_S)
        found = []
        for pid in living_pids():
            stat = process_stat(pid)
            if stat is None or not stat.is_alive or stat.session != pid or (stat.start_time + 1) * tick_ns < since_ns:
                continue
            if _marks(pid) == marks:
                found.append(Found(pid, stat.start_time, max(0, boottime_ns() - stat.start_time * tick_ns)))
        if found:
            return min(found, key=lambda each: each.start_time)
    return None


def look_at_group(group: int, running: Container[int]) -> Group:
    """Given the group of an execution whose own process was reaped, say whether any process of it is left."""
    if group in running:  # the number was free, and given again
        return Group.GONE
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return Group.GONE
    except PermissionError:  # all of it changed its user
        pass
    alive = any(_group(pid) == group and _is_alive(pid) for pid in living_pids())
    return Group.ALIVE if alive else Group.SILENT


def _owner(
    pid: int, by_pid: dict[int, Execution], by_marks: dict[tuple[str, ...], Execution], running: Container[int]
) -> Execution | None:
    try:
        session = os.getsid(pid)
    except OSError:
        return None
    owner = by_pid.get(session) or by_pid.get(_group(pid))
    if owner is None and by_marks and session != 0 and session not in running:  # 0: threads of the kernel
        owner = by_marks.get(_marks(pid))
    return owner


def _group(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except OSError:
        return -1


def _is_alive(pid: int) -> bool:
    stat = process_stat(pid)
    return stat is not None and stat.is_alive


def _marks(pid: int) -> tuple[str, ...]:
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return ()
    if b"WFCTL_RUN_ID=" not in environment:
        return ()
    pairs = dict(entry.partition("=")[::2] for entry in environment.decode("utf-8", "surrogateescape").split("\0"))
    return tuple(pairs.get(name, "") for name in MARKS)


def _lives_below(pid: int, ancestor: int) -> bool:
    """Tell whether it is alive and descends from us: the same marks may stand in the jobs of a restored copy of the store."""
    stat = process_stat(pid)
    if stat is None or not stat.is_alive:
        return False
    while stat is not None and stat.parent > 0:
        if stat.parent == ancestor:
            return True
        stat = process_stat(stat.parent)
    return False

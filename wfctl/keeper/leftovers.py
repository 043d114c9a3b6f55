"""What of an execution lives on after its own process has ended: its group while it is stopped, and what it left behind (6.9).

A process belongs to an execution by its session, by its group, or, where it left both, by the marks in its environment.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterable, Sized
from enum import Enum
from pathlib import Path
from typing import Protocol

from wfctl.keeper.spawn import MARKS, Execution
from wfctl.linux import living_pids, own_children, process_stat


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

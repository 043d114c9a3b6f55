"""A disk that dies: crash tests cut a story at every durable write."""

from __future__ import annotations

from wfctl.store.disk import Disk


class SimulatedCrash(BaseException):
    """The process is gone. No handler of ours catches it."""


class CrashingDisk(Disk):
    """Lets `budget` primitives pass and dies at the next; `seen` lists those that were reached."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.seen: list[str] = []

    def point(self, name: str) -> None:
        self.seen.append(name)
        if len(self.seen) > self.budget:
            raise SimulatedCrash(name)

"""Where a store has runs for a cluster and no cluster in its settings: nothing is launched, and what is at work stays so."""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from wfctl.keeper.protocol import (
    PROTOCOL,
    Holding,
    KeeperHello,
    LaunchRequest,
    Origin,
    Refused,
    RefusedAt,
    Reports,
    Standing,
    Standings,
)

PLACE = "slurm"  #: what stands in marks and reports where one of this machine has its boot
MISSING = "there is no cluster: [executors.slurm] is not in the settings"


class NoCluster:
    """Stands for the executor that is not there. What is held by it goes on when the settings name one again."""

    closed = False
    wants_write = False

    def __init__(self) -> None:
        self._reports: Reports = []

    @property
    def hello(self) -> KeeperHello:
        return KeeperHello(protocol=PROTOCOL, pid=os.getpid(), since_ns=0, boot_id=PLACE, origin=Origin.SUPERVISOR)

    def fileno(self) -> int:
        return -1

    def prepare(self, requests: Iterable[LaunchRequest]) -> None:
        """Nothing will be launched."""

    def launch(self, requests: Iterable[LaunchRequest]) -> None:
        """Refuse them, saying why."""
        at = datetime.now(UTC)
        self._reports += [
            Refused(run=each.run, k=each.k, errno=0, what=RefusedAt.SUBMISSION, at=at, message=MISSING) for each in requests
        ]

    def flush(self) -> None:
        """Nothing is queued."""

    def stop(self, run: str, k: int, grace: timedelta) -> None:
        """Nobody can be told; the stop is recorded, and carried out by the executor that is there later."""

    def forbid(self, run: str, k: int, timeout: timedelta = timedelta(0)) -> Standing:
        """Take it for running: nobody here can know better."""
        return Standing(run=run, k=k, state=Holding.RUNNING)

    def list(self, timeout: timedelta = timedelta(0)) -> Standings:
        return []

    def poll(self) -> Reports:
        reports, self._reports = self._reports, []
        return reports

    def close(self) -> None:
        """Nothing is open."""

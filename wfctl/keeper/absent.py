"""Where there is no keeper: nothing can be launched or asked."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from wfctl.errors import IoError
from wfctl.keeper.protocol import (
    KeeperHello,
    LaunchRequest,
    Reports,
    Standing,
    Standings,
)


class NoKeeper:
    """Stands where nothing is to be launched: a keeper that is gone."""

    closed = True
    wants_write = False

    @property
    def hello(self) -> KeeperHello:
        raise IoError("there is no keeper")

    def fileno(self) -> int:
        return -1

    def prepare(self, requests: Iterable[LaunchRequest]) -> None:
        """Nothing will be launched."""

    def launch(self, requests: Iterable[LaunchRequest]) -> None:
        """Nothing is launched."""

    def flush(self) -> None:
        """Nothing is queued."""

    def stop(self, run: str, k: int, grace: timedelta) -> None:
        """Nobody is told."""

    def forbid(self, run: str, k: int, timeout: timedelta = timedelta(0)) -> Standing:
        raise IoError("there is no keeper")

    def list(self, timeout: timedelta = timedelta(0)) -> Standings:
        raise IoError("there is no keeper")

    def poll(self) -> Reports:
        return []

    def close(self) -> None:
        """Nothing is open."""

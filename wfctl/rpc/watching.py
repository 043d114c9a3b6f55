"""Watching a store through whoever serves it, over a connection of its own (contract 9)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from wfctl.operations.views import TransitionView
from wfctl.operations.watching import Watch
from wfctl.rpc.client import RpcClient, Stream
from wfctl.rpc.results import read_result
from wfctl.rpc.subscriptions import TRANSITION, WATCH

_LONGEST_S = 3600.0  #: of one wait, so that no arithmetic of a socket overflows


class RemoteWatch(Watch):
    """A watch that a server answers. Once its connection is lost it raises: what changed since is not told by anybody."""

    def __init__(self, client: RpcClient, timeout: float | None) -> None:
        super().__init__(timeout, time.monotonic)
        self._client = client

    def _more(self, seconds: float | None) -> Sequence[TransitionView]:
        told = self._client.told(_LONGEST_S if seconds is None else min(seconds, _LONGEST_S))
        if told is None or told.method != TRANSITION:
            return ()
        view: TransitionView = read_result(TransitionView, TRANSITION, told.result)
        return (view,)

    def close(self) -> None:
        """End the watch, and its connection."""
        super().close()
        self._client.close()


def watch(
    connect: Callable[[float], Stream],
    *,
    schedule_id: str | Sequence[str] | None = None,
    run_id: str | Sequence[str] | None = None,
    status: str | Sequence[str] | None = None,
    timeout: float | None = None,
) -> Watch:
    """Watch what changes from now on, as `Store.watch` does, over the stream that `connect(seconds)` gives.

    The watch raises the server's reason where it hung up with one (Saturated for a reader that does not keep up, NoSupervisor
    at its end), IoError where the connection was lost: look, and watch again. Raise InvalidArgument, NotFound, Saturated where
    too many watch, NoSupervisor, IoError, TimedOut.
    """
    client = RpcClient("", connect=connect)
    given: dict[str, Any] = {"schedule_id": schedule_id, "run_id": run_id, "status": status}
    try:
        made = RemoteWatch(client, timeout)
        client.call(WATCH.name, **{name: _listed(value) for name, value in given.items() if value is not None})
    except BaseException:
        client.close()
        raise
    return made


def _listed(value: Any) -> Any:
    """Several names are an array in JSON, whatever holds them here."""
    return value if isinstance(value, (str, list)) or not hasattr(value, "__iter__") else list(value)

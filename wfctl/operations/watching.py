"""Watching a store: transitions as they happen, by looking at the ledger again and again (contract 9, 9.3)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from wfctl.clock import Clock, pause
from wfctl.errors import InvalidArgument
from wfctl.operations.context import Context
from wfctl.operations.transitions import Feed, choose
from wfctl.operations.views import TransitionView

if TYPE_CHECKING:
    from wfctl.operations.store import Store

LOOK_EVERY_S = 0.1
Look = TypeVar("Look")


class Watch:
    """Transitions as they happen: an iterator, and a context manager that ends it.

    It begins when it is made, not when it is first read: who watches first and then looks misses nothing, and may be told
    again what the look showed already. The iteration ends once its `timeout`, in seconds, is over; without one it goes on.
    """

    def __init__(self, timeout: float | None, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._ends_at = None if timeout is None else monotonic() + check_timeout(timeout)
        self._ready: deque[TransitionView] = deque()
        self._is_closed = False

    def __iter__(self) -> Watch:
        return self

    def __next__(self) -> TransitionView:
        found = self.wait()
        if found is None:
            raise StopIteration
        return found

    def wait(self, seconds: float | None = None) -> TransitionView | None:
        """Return the next transition; None when there is none within `seconds`, or before the watch is over.

        With 0 it only looks. Raise what keeps it from being watched on: what happens from then on is not told.
        """
        until = None if seconds is None else self._monotonic() + seconds
        if self._ends_at is not None:
            until = self._ends_at if until is None else min(until, self._ends_at)
        while not self._ready:
            left = None if until is None else max(0.0, until - self._monotonic())
            found = () if self._is_closed else self._more(left)
            self._ready.extend(found)
            if not found and (self._is_closed or left == 0.0):
                return None
        return self._ready.popleft()

    def _more(self, seconds: float | None) -> Sequence[TransitionView]:
        """Return what there is by now; where there is nothing, wait for it, `seconds` at most, and perhaps in vain."""
        raise NotImplementedError

    @property
    def is_over(self) -> bool:
        """Whether nothing more is told, however long one waits."""
        return self._is_closed or (self._ends_at is not None and self._monotonic() >= self._ends_at)

    def close(self) -> None:
        """End the watch. What was not read yet is dropped."""
        self._is_closed = True
        self._ready.clear()

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class LedgerWatch(Watch):
    """A watch of the ledger itself, with a supervisor or without. What happens within a tenth of a second is told together."""

    def __init__(
        self, context: Context, lock: AbstractContextManager[Any], *, timeout: float | None = None, **chosen: Any
    ) -> None:
        """`chosen`: as `choose` takes it. Raise InvalidArgument, NotFound."""
        super().__init__(timeout, context.clock.monotonic)
        self._lock = lock
        with lock:
            self._chosen = choose(context, **chosen)
            self._feed = Feed(context)

    def _more(self, seconds: float | None) -> Sequence[TransitionView]:
        with self._lock:
            found = self._feed.look()
        wanted = [view for view in found if self._chosen.takes(view)]
        if not found and seconds != 0.0:
            pause(LOOK_EVERY_S if seconds is None else min(seconds, LOOK_EVERY_S))
        return wanted


def check_timeout(given: Any) -> float:
    """Return a timeout in seconds. Raise InvalidArgument for what is none."""
    if isinstance(given, bool) or not isinstance(given, (int, float)) or not 0 <= given < float("inf"):
        raise InvalidArgument(f"timeout must be a number of seconds, 0 or more, not {given!r}", {"argument": "timeout"})
    return float(given)


def from_now_on(store: Store, look: Callable[[Context], Look], **chosen: Any) -> tuple[Look, Watch]:
    """Look at a store and watch it from that very moment on: nothing falls between the two, nothing is told twice.

    `chosen`: as `Store.watch` takes it.
    """
    with store.context.ledger.reading():  # one state of the ledger for both
        return look(store.context), store.watch(**chosen)


def seconds_left(clock: Clock, deadline: float | None) -> float | None:
    """Return how long it is until a monotonic deadline; None for none."""
    return None if deadline is None else max(0.0, deadline - clock.monotonic())

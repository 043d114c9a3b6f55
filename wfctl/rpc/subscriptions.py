"""Those who watch over a connection: each transition is encoded once and sent to all who want it (contract 9, 9.2).

It costs nothing while nobody watches. A reader that does not keep up is cut off by its session's bound, with the reason.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from wfctl.errors import Blocked, Saturated, WfctlError, WrongState
from wfctl.operations.context import Context
from wfctl.operations.store import Store
from wfctl.operations.transitions import Chosen, Feed, choose, shown
from wfctl.operations.views import TransitionView, WatchView
from wfctl.rpc.framing import MAX_FRAME, encode_frame
from wfctl.rpc.messages import notification
from wfctl.rpc.methods import BY_OPERATION, check_params
from wfctl.rpc.session import Session

TRANSITION = "workflow.server.transition"  #: the notification
WATCH = BY_OPERATION["watch"]
MOST = 32  #: connections that watch at once: they are never dropped for being silent
LOOK_EVERY_S = 0.5  #: for what is written by others who tell nobody

_log = logging.getLogger(__name__)


class Subscriptions:
    """The watches of one server. For the thread that runs it; `tell` is to be called after whatever may have written."""

    def __init__(self, context: Context, *, most: int = MOST) -> None:
        self._context = context
        self._most = most
        self._chosen: dict[Session, Chosen] = {}
        self._feed: Feed | None = None

    def __len__(self) -> int:
        return len(self._chosen)

    def answer(self, params: Mapping[str, Any], session: Session) -> dict[str, Any]:
        """Answer a `watch` of that session: from now on it is told, until its connection is closed.

        Raise InvalidArgument, NotFound, WrongState where it watches already, Saturated where too many do.
        """
        check_params(Store.watch, WATCH, params)
        return self._add(session, **params).to_json()

    def _add(self, session: Session, *, schedule_id: Any = None, run_id: Any = None, status: Any = None) -> WatchView:
        self._forget_gone()
        if session in self._chosen:
            raise WrongState("this connection watches already; open another one for another watch, or close it to end this one")
        if len(self._chosen) >= self._most:
            why = f"{len(self._chosen)} connections watch already, and no more are taken; end one of them, or look again later"
            raise Saturated(why, {"limit": self._most})
        chosen = choose(self._context, schedule_id=schedule_id, run_id=run_id, status=status)
        self.tell()  # what was before is for the others alone
        if self._feed is None:
            self._feed = Feed(self._context)
        self._chosen[session] = chosen
        session.is_kept = True
        since = self._context.now()
        return WatchView(
            schedule_id=shown(chosen.schedules), run_id=shown(chosen.runs), status=shown(chosen.words), since=since
        )

    def tell(self) -> None:
        """Tell what changed, a piece of it at most: `wait_s` says whether there is more.

        Raise what keeps the ledger from being read; who watches is told so and let go, because something may be missed.
        """
        self._forget_gone()
        if self._feed is None:
            return
        try:
            views = self._feed.look()
        except Blocked as error:  # a row that cannot be read: `store verify` tells of it, and the server goes on
            _log.error("nobody can watch: %s", error.message, extra={"action": "watch_failed"})
            self._end(error)
            return
        except WfctlError as error:
            self._end(error)
            raise
        if views:
            self._send(views)

    def wait_s(self) -> float | None:
        """Return in how many seconds to call `tell` again; None: not before somebody watches."""
        if self._feed is None:
            return None
        return 0.0 if self._feed.has_more else LOOK_EVERY_S

    def close(self, error: WfctlError) -> None:
        """Tell what there still is, and why nothing more is told."""
        try:
            self.tell()
        except WfctlError:
            return  # they were told
        self._end(error)

    def _forget_gone(self) -> None:
        for session in [each for each in self._chosen if each.is_closing or each.has_ended]:
            del self._chosen[session]
        if not self._chosen:
            self._feed = None

    def _end(self, error: WfctlError) -> None:
        for session in self._chosen:
            session.end(error)
        self._chosen.clear()
        self._feed = None

    def _send(self, views: Sequence[TransitionView]) -> None:
        frames: dict[int, bytes] = {}
        pieces: dict[Chosen, bytes] = {}
        for session, chosen in list(self._chosen.items()):
            if chosen not in pieces:
                pieces[chosen] = b"".join(_frame(view, frames) for view in views if chosen.takes(view))
            if pieces[chosen] and not session.send_frames(pieces[chosen]):
                _say_dropped(session)


def _frame(view: TransitionView, made: dict[int, bytes]) -> bytes:
    """Return a transition as a frame with its newline, encoded once for all who are told."""
    frame = made.get(id(view))
    if frame is None:
        frame = made[id(view)] = _encode(view)
    return frame


def _encode(view: TransitionView) -> bytes:
    plain = view.to_json()
    frame = encode_frame(notification(TRANSITION, plain), lenient=True)
    if len(frame) > MAX_FRAME:  # a reason of that size is for those who look
        plain["reason"] = {"code": (view.reason or {}).get("code")}
        frame = encode_frame(notification(TRANSITION, plain), lenient=True)
    return frame + b"\n"


def _say_dropped(session: Session) -> None:
    pid = session.peer.pid if session.peer else None
    _log.warning("pid %s watches and does not read what it is told: it was cut off", pid, extra={"action": "watcher_dropped"})

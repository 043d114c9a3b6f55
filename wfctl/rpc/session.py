"""One peer's conversation without a socket: bytes come in, requests go to a handler, frames go out.

The server runs one over each connection; whatever else carries bytes (stdio) can run one too. Everything held is bounded: one
frame of input, `MAX_OUTPUT` bytes of output, `MAX_OUTSTANDING` answers that are still to come.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from wfctl.errors import Internal, IoError, Saturated, WfctlError
from wfctl.rpc.framing import MAX_FRAME, MAX_VALUES, MalformedFrame, Splitter, decode_frame, encode_frame
from wfctl.rpc.messages import (
    InvalidRequest,
    Request,
    RequestId,
    failure,
    id_of,
    notification,
    parse_batch,
    parse_request,
    shown,
    success,
)
from wfctl.rpc.methods import as_json
from wfctl.rpc.unix import Peer

MAX_OUTPUT = 4 * MAX_FRAME  #: bytes waiting for a slow reader; more ends its connection
MAX_OUTSTANDING = 64  #: requests of one peer that wait for a deferred answer
LARGE_FRAME = 16 << 10  #: bytes of a frame that is read aside, where that is offered: a whole MiB can take 200 ms
_SHORT = 4096  # an error that stands for an answer without room: a message of 200 characters and an id of 256, escaped

_log = logging.getLogger(__name__)


class Handler(Protocol):
    """What answers a request: a result, a WfctlError raised, or a `Deferred` to be completed later.

    `session` is the asking peer's, for `notify` and `peer`.
    """

    def __call__(self, method: str, params: Mapping[str, Any], session: Session, /) -> Any: ...


class Encoded:
    """A result that is written as JSON already, by whoever made it and so not by the thread that runs the server."""

    def __init__(self, result: Any) -> None:
        """Raise ValueError, TypeError for what is no JSON."""
        plain = as_json(result)
        is_page = isinstance(plain, dict) and "items" in plain
        self._parts = _parts_of_page(plain) if is_page else [_encode_below(2, plain)]

    def answer(self, request_id: RequestId) -> bytes:
        """Return the whole answer to a request."""
        return b"".join((b'{"jsonrpc":"2.0","id":', encode_frame(request_id), b',"result":', *self._parts, b"}"))


def _parts_of_page(page: Mapping[str, Any]) -> list[bytes]:
    """A page is written item by item: Python's lock is held for as long as the JSON of one thing takes."""
    items = [_encode_below(4, item) for item in page["items"]]
    rest = {key: value for key, value in page.items() if key != "items"}
    return [_encode_below(2, rest)[:-1], b',"items":[' if rest else b'"items":[', b",".join(items), b"]}"]


def _encode_below(levels: int, plain: Any) -> bytes:
    """Write what will stand so many levels deep in a frame: a batch holds an answer, which holds the result."""
    for _ in range(levels):
        plain = [plain]
    return encode_frame(plain, lenient=True)[levels:-levels]


class Deferred:
    """An answer that comes later. Complete it once, from the thread that runs the server; nobody may be waiting any more.

    `in_turn`: its peer's next request is not looked at before, so that requests are done in the order in which they came.
    """

    def __init__(self, *, in_turn: bool = False) -> None:
        self.in_turn = in_turn
        self.is_wanted = True  #: its peer may still be there
        self._outcome: tuple[Any, WfctlError | None] | None = None
        self._then: Callable[[Any, WfctlError | None], None] | None = None

    @property
    def is_done(self) -> bool:
        """Whether the answer was given."""
        return self._outcome is not None

    def complete(self, result: Any) -> None:
        """Answer with a result: JSON, a view or a page."""
        self._settle(result, None)

    def fail(self, error: WfctlError) -> None:
        """Answer with an error."""
        self._settle(None, error)

    def when_done(self, then: Callable[[Any, WfctlError | None], None]) -> None:
        """Call `then(result, error)` once the answer is there, at once if it is."""
        self._then = then
        if self._outcome is not None:
            then(*self._outcome)

    def _settle(self, result: Any, error: WfctlError | None) -> None:
        if self._outcome is not None:
            raise ValueError("a deferred answer is given once")
        self._outcome = (result, error)
        if self._then is not None:
            self._then(result, error)


class _Sink(Protocol):
    """Where the answer to one request goes; None when it wants none."""

    @property
    def room(self) -> int: ...

    def add(self, answer: bytes | None) -> None: ...


class _Batch:
    """The members of one batch still to be handled, and the answers so far; they leave together, in one frame."""

    def __init__(self, members: list[Any], send: Callable[[bytes], None]) -> None:
        self.todo = deque(members)
        self._waiting = len(members)
        self._send = send
        self._answers: list[bytes] = []
        self._length = 2

    @property
    def room(self) -> int:
        """How long the next answer may be, so that each later one can at least say that it is too long."""
        return MAX_FRAME - self._length - self._waiting * _SHORT

    def add(self, answer: bytes | None) -> None:
        self._waiting -= 1
        if answer is not None:
            self._answers.append(answer)
            self._length += len(answer) + 1
        if not self._waiting and self._answers:
            self._send(b"[" + b",".join(self._answers) + b"]")


class _Single:
    """The answer to a request that stands for itself."""

    room = MAX_FRAME

    def __init__(self, send: Callable[[bytes], None]) -> None:
        self._send = send

    def add(self, answer: bytes | None) -> None:
        if answer is not None:
            self._send(answer)


class Session:
    """The state of one conversation. Whoever owns the bytes calls `receive`, `work_one`, and takes from `output`."""

    def __init__(
        self,
        handler: Handler,
        *,
        peer: Peer | None = None,
        on_output: Callable[[], None] | None = None,
        aside: Callable[[Callable[[], Any]], Deferred] | None = None,
    ) -> None:
        """`aside`: where large frames are read; it takes what is to be done and answers with what that returned or raised."""
        self.peer = peer
        self.output: deque[bytes] = deque()  #: what is to be sent; `sent` takes from it
        self.output_bytes = 0
        self.is_closing = False  #: nothing more is taken in; what is in `output` is the last
        self.ended_by: WfctlError | None = None  #: what the peer did wrong, where that ended the conversation
        self.is_kept = False  #: set by a handler that will notify: the peer may be silent without being idle
        self._handler = handler
        self._on_output = on_output
        self._aside = aside
        self._splitter = Splitter()
        self._batch: _Batch | None = None
        self._awaited: set[Deferred] = set()
        self._has_ended = False
        self._is_working = False
        self._is_head_begun = False

    # Input -------------------------------------------------------------------------------------------------------------

    def receive(self, data: bytes) -> None:
        """Take in bytes of the peer; empty means that it will send no more."""
        if not data:
            self._has_ended = True
        elif not self.is_closing:
            self._splitter.feed(data)

    @property
    def has_ended(self) -> bool:
        """Whether the peer will send no more."""
        return self._has_ended

    @property
    def wants_input(self) -> bool:
        """Whether more bytes may be read: not while a request waits, so that a flood stays in the kernel's buffer."""
        return not (self._has_ended or self.is_closing or self._has_request)

    @property
    def has_work(self) -> bool:
        """Whether `work_one` would do something now: a request is there and there is room for its answer."""
        has_room = self.output_bytes + MAX_FRAME <= MAX_OUTPUT and len(self._awaited) < MAX_OUTSTANDING
        is_its_turn = not any(deferred.in_turn for deferred in self._awaited)
        return not self.is_closing and has_room and is_its_turn and self._has_request

    @property
    def is_idle(self) -> bool:
        """Whether closing now would lose nothing that was asked in full."""
        return self.is_closing or not (self.output or self.is_kept or self._is_busy)

    @property
    def is_finished(self) -> bool:
        """Whether everything has been said, and sent."""
        if self.output:
            return False
        return self.is_closing or (self._has_ended and not self._is_busy)

    @property
    def _is_busy(self) -> bool:
        return self._is_working or bool(self._awaited) or self._has_request

    @property
    def _has_request(self) -> bool:
        if self._batch is not None and self._batch.todo:
            return True
        return self._splitter.ready or (self._has_ended and self._splitter.has_partial)

    # Work --------------------------------------------------------------------------------------------------------------

    def work_one(self) -> None:
        """Handle one request, of a batch one member; a frame that is none ends the conversation, after its error is sent."""
        self._is_working = True
        try:
            if self._batch is not None and self._batch.todo:
                self._handle(self._batch.todo.popleft(), self._batch)
            else:
                self._take_frame()
        finally:
            self._is_working = False

    def _take_frame(self) -> None:
        try:
            frame = self._splitter.pop()
            if frame is None:
                raise MalformedFrame("the last frame has no newline: it may have been cut off")
            if self._aside is not None and len(frame) > LARGE_FRAME:
                self._await(self._aside(lambda: decode_frame(frame, most_values=MAX_VALUES)), self._take_decoded)
                return
            value = decode_frame(frame, most_values=MAX_VALUES)
        except WfctlError as error:
            self.end(error)
            return
        self._take_value(value)

    def _take_decoded(self, value: Any, error: WfctlError | None) -> None:
        if self.is_closing:
            return
        if error is not None:
            self.end(error)
        else:
            self._take_value(value)

    def _take_value(self, value: Any) -> None:
        if isinstance(value, list):
            self._begin_batch(value)
        else:
            self._handle(value, _Single(self._send))

    def _begin_batch(self, value: list[Any]) -> None:
        try:
            self._batch = _Batch(parse_batch(value), self._send)
        except InvalidRequest as error:
            self._send(_encode(failure(None, error)))
            return
        self._handle(self._batch.todo.popleft(), self._batch)

    def _handle(self, value: Any, sink: _Sink) -> None:
        """Handle one request and give its answer to `sink`, now or later."""
        try:
            request = parse_request(value)
        except InvalidRequest as invalid:
            sink.add(_encode(failure(id_of(value), invalid)))
            return
        result, error = self._call(request)

        def answer(result: Any, error: WfctlError | None) -> None:
            sink.add(None if request.is_notification else _answer(request, result, error, sink.room))

        if isinstance(result, Deferred):
            self._await(result, answer)
        else:
            answer(result, error)

    def _await(self, deferred: Deferred, answer: Callable[[Any, WfctlError | None], None]) -> None:
        self._awaited.add(deferred)

        def arrived(result: Any, error: WfctlError | None) -> None:
            self._awaited.discard(deferred)
            before, self._is_working = self._is_working, True  # what is said on the way does not end the conversation
            try:
                answer(result, error)
            finally:
                self._is_working = before
            self._announce()  # also when nothing is sent: there is room for another request

        deferred.when_done(arrived)

    def _call(self, request: Request) -> tuple[Any, WfctlError | None]:
        try:
            return self._handler(request.method, request.named_params(), self), None
        except WfctlError as error:
            return None, error
        except Exception:
            name = shown(request.method)
            _log.exception("%s failed", name, extra={"action": "rpc_internal_error"})
            return None, Internal(f"{name} failed by a bug of wfctl; the log of the process that answered says more")

    # Output ------------------------------------------------------------------------------------------------------------

    def notify(self, method: str, params: Mapping[str, Any]) -> bool:
        """Tell the peer something it did not ask for. False when it is gone, or reads so slowly that it is now cut off.

        Raise ValueError for what fits no frame.
        """
        text = _encode(notification(method, params))
        if len(text) > MAX_FRAME:
            raise ValueError(f"a notification of {len(text)} bytes fits no frame")
        self._send(text)
        return not self.is_closing

    def send_frames(self, frames: bytes) -> bool:
        """Send notifications that are encoded already, each with its newline, in one piece. False as `notify` has it."""
        if not self.is_closing:
            if self.output_bytes + len(frames) > MAX_OUTPUT:
                self._cut_off()
            else:
                self.output.append(frames)
                self.output_bytes += len(frames)
            self._announce()
        return not self.is_closing

    def end(self, error: WfctlError | None = None) -> None:
        """Say nothing more but `error`, and take nothing more in."""
        if self.is_closing:
            return
        if error is not None:
            self._append(_encode(failure(None, error)))
        self.ended_by = error
        self._stop()
        self._announce()

    def abandon(self) -> None:
        """The peer is gone: drop everything; answers still to come go nowhere."""
        self._stop()
        for deferred in self._awaited:
            deferred.is_wanted = False
        self.output.clear()
        self.output_bytes = 0

    def sent(self, count: int) -> None:
        """Take `count` bytes, which the peer's side has accepted, off the head of `output`."""
        self.output_bytes -= count
        while self.output and count >= len(self.output[0]):
            count -= len(self.output.popleft())
            self._is_head_begun = False
        if count:
            self.output[0] = self.output[0][count:]
            self._is_head_begun = True

    def _send(self, text: bytes) -> None:
        if self.is_closing:
            return
        if self.output_bytes + len(text) + 1 > MAX_OUTPUT:
            self._cut_off()
        else:
            self._append(text)
        self._announce()

    def _announce(self) -> None:
        if self._on_output is not None:
            self._on_output()

    def _append(self, text: bytes) -> None:
        self.output.append(text + b"\n")
        self.output_bytes += len(text) + 1

    def _cut_off(self) -> None:
        """The peer does not read: drop all but the frame it is in the middle of, say why, and end."""
        head = self.output[0] if self._is_head_begun else b""
        self.output.clear()
        if head:
            self.output.append(head)
        self.output_bytes = len(head)
        error = Saturated(f"more than {MAX_OUTPUT} bytes of answers were not read in time", {"limit": MAX_OUTPUT})
        self._append(_encode(failure(None, error)))
        self.ended_by = error
        self._stop()

    def _stop(self) -> None:
        self.is_closing = True
        self._splitter.clear()
        self._batch = None


def _answer(request: Request, result: Any, error: WfctlError | None, room: int) -> bytes:
    """Return the encoded answer, or the error that stands for one that cannot be sent."""
    try:
        if isinstance(result, Encoded):
            text = result.answer(request.id)
        else:
            text = _encode(success(request.id, as_json(result)) if error is None else failure(request.id, error))
    except (TypeError, ValueError, RecursionError):
        name = shown(request.method)
        _log.exception("the answer to %s is no JSON", name, extra={"action": "rpc_internal_error"})
        return _encode(failure(request.id, Internal(f"the answer to {name} cannot be written as JSON")))
    if len(text) <= room:
        return text
    return _encode(failure(request.id, _too_long(len(text), room) if error is None else type(error)(shown(error.message, 200))))


def _too_long(length: int, room: int) -> IoError:
    """The operation was done; only its answer is lost, so this is not an error of the arguments."""
    why = f"it was done, but its answer of {length} bytes does not fit the {room} bytes left of a frame"
    return IoError(f"{why}; ask for less, such as a lower `limit`", {"bytes": length, "limit": room, "outcome": "done"})


def _encode(message: dict[str, Any]) -> bytes:
    return encode_frame(message, lenient=True)

"""Every failure that an operator can act on, with its stable code, exit status and JSON-RPC number.

The table is contract 9.1: the same word travels over the command line, JSON-RPC and the Python API. Codes are only added.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from wfctl.value import Value


class Problem(Value, kw_only=False):
    """One thing that is wrong with a definition: where it stands, what it is, and what to write instead.

    Two are equal where place and message are: what only helps to mend it does not count.
    """

    path: str  #: dotted key path, such as `trigger.expression`; empty for the whole
    message: str
    line: int | None = None  #: counted from 1, where the text is known
    near: tuple[str, ...] = ()  #: what was perhaps meant instead
    is_key: bool = False  #: whether the key itself is wrong, rather than its value
    mark: tuple[int, int] | None = None  #: which characters of the value are wrong: first, after last

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Problem):
            return NotImplemented
        return (self.path, self.message, self.line) == (other.path, other.message, other.line)

    def __hash__(self) -> int:
        return hash((self.path, self.message, self.line))

    def __str__(self) -> str:
        where = f"line {self.line}: " if self.line else ""
        return f"{where}{self.path}: {self.message}" if self.path else f"{where}{self.message}"

    def to_json(self) -> dict[str, Any]:
        start, end = self.mark or (None, None)
        return {
            "path": self.path,
            "message": self.message,
            "line": self.line,
            "near": list(self.near),
            "is_key": self.is_key,
            "start": start,
            "end": end,
        }

    @classmethod
    def all_from_json(cls, listed: Any) -> tuple[Problem, ...]:
        """Given `problems` of an error's data, return them; what does not look like one is left out."""
        items = [item for item in listed if isinstance(item, Mapping)] if isinstance(listed, (list, tuple)) else []
        return tuple(map(cls._from_json, items))

    @classmethod
    def _from_json(cls, item: Mapping[str, Any]) -> Problem:
        near, start, end = item.get("near"), item.get("start"), item.get("end")
        return cls(
            str(item.get("path", "")),
            str(item.get("message", "")),
            item.get("line"),
            near=tuple(map(str, near)) if isinstance(near, (list, tuple)) else (),
            is_key=item.get("is_key") is True,
            mark=(start, end) if isinstance(start, int) and isinstance(end, int) else None,
        )


class WfctlError(Exception):
    """Base of every failure an operator can act on. The message names the thing, the cause and the next step."""

    code: ClassVar[str] = "internal"  #: every subclass sets the three, as the table of contract 9.1 says
    exit_status: ClassVar[int] = 70
    rpc_number: ClassVar[int] = -32603

    def __init__(self, message: str, data: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.data: dict[str, Any] = dict(data or {})

    def to_json(self) -> dict[str, Any]:
        """Return the error as contract 9.1 writes it: `code`, `message`, `data`."""
        return {"code": self.code, "message": self.message, "data": self.data}


class InvalidDefinition(WfctlError):
    """A definition breaks a rule; `problems` lists every one of them, with key paths."""

    code, exit_status, rpc_number = "invalid-definition", 65, -32001

    def __init__(self, message: str, data: Mapping[str, Any] | None = None, *, problems: Iterable[Problem] = ()) -> None:
        details = dict(data or {})
        self.problems = tuple(problems) or Problem.all_from_json(details.get("problems"))
        if self.problems:
            details.setdefault("problems", [problem.to_json() for problem in self.problems])
        super().__init__(message, details)

    @classmethod
    def of(cls, subject: str, problems: Iterable[Problem]) -> InvalidDefinition:
        """Given what is described and its problems, return one error whose message lists them all."""
        listed = tuple(problems)
        if len(listed) == 1:
            return cls(f"{subject}: {listed[0]}", problems=listed)
        lines = "".join(f"\n  {problem}" for problem in listed)
        return cls(f"{subject}: {len(listed)} problems{lines}", problems=listed)


class InvalidArgument(WfctlError):
    """An argument of a call is wrong in itself: a limit of 0, an instant without an offset."""

    code, exit_status, rpc_number = "invalid-argument", 2, -32602


class BadCursor(WfctlError):
    """A cursor that is damaged, or belongs to another listing."""

    code, exit_status, rpc_number = "bad-cursor", 65, -32003


class NotFound(WfctlError):
    """No such schedule, deployment, occurrence or run."""

    code, exit_status, rpc_number = "not-found", 66, -32004


class Deleted(WfctlError):
    """The thing was deleted; it can be read but no more changed."""

    code, exit_status, rpc_number = "deleted", 66, -32005


class Exists(WfctlError):
    """The id is taken, or was taken once: ids are never reused."""

    code, exit_status, rpc_number = "exists", 81, -32006


class RevisionConflict(WfctlError):
    """Somebody saved a newer revision than the one this change was made for."""

    code, exit_status, rpc_number = "revision-conflict", 80, -32009


class WrongState(WfctlError):
    """The thing is in a state in which this cannot be done."""

    code, exit_status, rpc_number = "wrong-state", 75, -32010


class InUse(WfctlError):
    """Something else still needs it."""

    code, exit_status, rpc_number = "in-use", 75, -32011


class Saturated(WfctlError):
    """Every execution slot is taken."""

    code, exit_status, rpc_number = "saturated", 75, -32012


class Draining(WfctlError):
    """The supervisor is draining and takes nothing new."""

    code, exit_status, rpc_number = "draining", 75, -32013


class StoreLocked(WfctlError):
    """Another supervisor owns this store."""

    code, exit_status, rpc_number = "store-locked", 75, -32014


class NoSupervisor(WfctlError):
    """This needs a running supervisor, and there is none."""

    code, exit_status, rpc_number = "no-supervisor", 69, -32015


class NoStore(WfctlError):
    """There is no store where one was looked for."""

    code, exit_status, rpc_number = "no-store", 66, -32016


class DamagedStore(WfctlError):
    """The ledger cannot be read; it is left as it is."""

    code, exit_status, rpc_number = "damaged-store", 65, -32017


class Blocked(WfctlError):
    """The schedule admits nothing because its records cannot be trusted."""

    code, exit_status, rpc_number = "blocked", 75, -32018


class NotAllowed(WfctlError):
    """The owner, a mode or a place forbids it."""

    code, exit_status, rpc_number = "not-allowed", 77, -32019


class MissingExtra(WfctlError):
    """An optional part is not installed, or a setting is wrong."""

    code, exit_status, rpc_number = "missing-extra", 78, -32020


class CannotCreate(WfctlError):
    """A file or directory could not be made."""

    code, exit_status, rpc_number = "cannot-create", 73, -32021


class IoError(WfctlError):
    """Reading or writing failed."""

    code, exit_status, rpc_number = "io-error", 74, -32022


class TimedOut(WfctlError):
    """The time given for it ran out."""

    code, exit_status, rpc_number = "timed-out", 75, -32023


class ApiVersion(WfctlError):
    """The other side speaks another version."""

    code, exit_status, rpc_number = "api-version", 76, -32024


class PreflightFailed(WfctlError):
    """What a run needs is not there: program, directory, input or files."""

    code, exit_status, rpc_number = "preflight-failed", 65, -32025


class Internal(WfctlError):
    """A bug of wfctl."""

    code, exit_status, rpc_number = "internal", 70, -32603


ERRORS: tuple[type[WfctlError], ...] = (
    InvalidDefinition, InvalidArgument, BadCursor, NotFound, Deleted, Exists, RevisionConflict, WrongState, InUse, Saturated,
    Draining, StoreLocked, NoSupervisor, NoStore, DamagedStore, Blocked, NotAllowed, MissingExtra, CannotCreate, IoError,
    TimedOut, ApiVersion, PreflightFailed, Internal,
)  # fmt: skip

BY_CODE: dict[str, type[WfctlError]] = {error.code: error for error in ERRORS}


def error_from_json(code: str, message: str, data: Mapping[str, Any] | None = None) -> WfctlError:
    """Given the three parts of an error's JSON, return the same error as an exception of the same class."""
    return BY_CODE.get(code, Internal)(message, data)

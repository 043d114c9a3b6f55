"""The Python client: the operations of a store by way of a server, with the same arguments, results and errors (contract 9)."""

from __future__ import annotations

import functools
import os
import shlex
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from inspect import Signature, signature
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from wfctl.core.instants import format_instant
from wfctl.errors import InvalidArgument
from wfctl.operations.store import Store
from wfctl.operations.views import RunView
from wfctl.rpc.client import TIMEOUT_S, RpcClient, Stream, UnixStream, check_timeout
from wfctl.rpc.methods import BY_OPERATION
from wfctl.rpc.results import hints_of, read_result
from wfctl.rpc.unix import connect_control

if TYPE_CHECKING:
    from wfctl.operations.watching import Watch

P = ParamSpec("P")
Result = TypeVar("Result")
Connect = Callable[[float], Stream]  #: given seconds, return a connected stream


def _remote(operation: Callable[Concatenate[Store, P], Result]) -> Callable[Concatenate[Client, P], Result]:
    """Given a method of a store, return the method of a client that has it done elsewhere: same arguments, same result."""

    @functools.wraps(operation)
    def ask(self: Client, /, *args: P.args, **given: P.kwargs) -> Result:
        if args:
            raise TypeError(f"{operation.__name__}() takes its arguments by name")
        result: Result = self._ask(operation, given)
        return result

    return ask


class Client:
    """A store seen through the process that serves it: the supervisor, or `wfctl rpc serve` here or on another machine.

    A context manager. It connects when first needed. When a connection is lost a read is asked once more, over a new one; a
    change never is: IoError or TimedOut then has `data["outcome"] == "unknown"`, and who asked must look. May be used from
    several threads, one call at a time.
    """

    def __init__(self, store_path: str | os.PathLike[str], *, timeout: float = TIMEOUT_S) -> None:
        """Talk to the supervisor of a store on this machine. `timeout`: seconds that one call may take, connecting included.

        The first call raises NoSupervisor where none runs, NoStore where there is no store.
        """
        self._set_up(lambda limit: UnixStream(connect_control(store_path, limit)), timeout)

    @classmethod
    def over_command(cls, argv: Sequence[str], *, timeout: float = TIMEOUT_S) -> Client:
        """Talk to what a command serves on its stdin and stdout, such as `["wfctl", "--store", S, "rpc", "serve"]`.

        The first call starts the command, and raises IoError with what it said where it does not serve; `close` ends it.
        """
        from wfctl.rpc.pipes import check_argv, open_command

        command = check_argv(argv)
        client = cls.__new__(cls)
        client._set_up(lambda limit: open_command(command, limit), timeout)
        return client

    @classmethod
    def over_ssh(
        cls,
        host: str,
        *,
        store: str | os.PathLike[str] | None = None,
        timeout: float = TIMEOUT_S,
        ssh: Sequence[str] = ("ssh",),
    ) -> Client:
        """Talk to a store on another machine through `ssh HOST wfctl rpc serve`; no password is ever asked for.

        `store`: its path there, else the one that wfctl finds there itself. `ssh`: the command with its options, such as
        `["ssh", "-p", "2222"]`. For a wfctl that is not on the PATH there, or behind sudo, use `over_command`.
        """
        return cls.over_command(ssh_command(host, store, ssh), timeout=timeout)

    def _set_up(self, connect: Connect, timeout: float) -> None:
        self._connect = connect
        self._rpc = RpcClient("", timeout=timeout, connect=connect)
        self._lock = threading.RLock()

    @property
    def timeout(self) -> float:
        """Seconds that one call may take."""
        return self._rpc.timeout

    @timeout.setter
    def timeout(self, seconds: float) -> None:
        self._rpc.timeout = check_timeout(seconds)

    def close(self) -> None:
        """Disconnect; a command that was started for it is ended. The next call connects again."""
        with self._lock:
            self._rpc.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    create_schedule = _remote(Store.create_schedule)
    get_schedule = _remote(Store.get_schedule)
    list_schedules = _remote(Store.list_schedules)
    update_schedule = _remote(Store.update_schedule)
    pause_schedule = _remote(Store.pause_schedule)
    resume_schedule = _remote(Store.resume_schedule)
    delete_schedule = _remote(Store.delete_schedule)
    list_revisions = _remote(Store.list_revisions)
    audit_schedule = _remote(Store.audit_schedule)

    list_schedule_occurrences = _remote(Store.list_schedule_occurrences)
    get_occurrence = _remote(Store.get_occurrence)
    explain_occurrence = _remote(Store.explain_occurrence)

    create_deployment = _remote(Store.create_deployment)
    get_deployment = _remote(Store.get_deployment)
    list_deployments = _remote(Store.list_deployments)
    update_deployment = _remote(Store.update_deployment)
    delete_deployment = _remote(Store.delete_deployment)

    cancel_run = _remote(Store.cancel_run)
    inspect_run = _remote(Store.inspect_run)
    list_runs = _remote(Store.list_runs)

    server_status = _remote(Store.server_status)
    reload = _remote(Store.reload)
    drain = _remote(Store.drain)

    def start_run(self, *, deployment_id: str, input: Mapping[str, Any] | None = None) -> RunView:
        """Have a run started by hand, beside overlap and capacity (6.12); return it as it then is, without waiting for its end.

        Raise NotFound, Deleted, Blocked, PreflightFailed, Draining, IoError.
        """
        view: RunView = self._ask(Store.start_run, {"deployment_id": deployment_id, "input": input})
        return view

    def resume_run(self, *, run_id: str, input: Mapping[str, Any] | None = None) -> RunView:
        """Give input to an interrupted run; the interrupted step runs again, in a new attempt (6.13).

        Raise NotFound, WrongState, InvalidDefinition for an input that the job does not accept, NoSupervisor, Saturated,
        Draining.
        """
        view: RunView = self._ask(Store.resume_run, {"run_id": run_id, "input": input})
        return view

    def watch(
        self,
        *,
        schedule_id: str | Sequence[str] | None = None,
        run_id: str | Sequence[str] | None = None,
        status: str | Sequence[str] | None = None,
        timeout: float | None = None,
    ) -> Watch:
        """Watch what changes from now on, over a connection of its own: an iterator and a context manager.

        Given names choose: what is of these schedules, of these runs, comes to these statuses or states. It ends after
        `timeout` seconds, and by IoError when the connection is lost: what changed since is not told, so look and watch again.
        Raise InvalidArgument, NotFound, Saturated.
        """
        from wfctl.rpc.watching import watch

        return watch(self._connect, schedule_id=schedule_id, run_id=run_id, status=status, timeout=timeout)

    def _ask(self, operation: Callable[..., Any], given: Mapping[str, Any]) -> Any:
        method = BY_OPERATION[operation.__name__].name
        _signature_of(operation).bind(None, **given)  # a wrong name is a TypeError, as it is with the store itself
        try:
            params = {name: sendable(name, value) for name, value in given.items()}
        except RecursionError as error:
            raise InvalidArgument(f"{method}: the parameters cannot be written as JSON: they are nested too deep") from error
        with self._lock:
            answer = self._rpc.call(method, **params)
        return read_result(_result_of(operation), method, answer)


def ssh_command(host: str, store: str | os.PathLike[str] | None = None, ssh: Sequence[str] = ("ssh",)) -> list[str]:
    """Given a host, return the command that serves a store of it. Raise InvalidArgument for what ssh would not take as a host.

    ssh joins its words with blanks for a shell over there, so the words for that shell are quoted here.
    """
    from wfctl.rpc.pipes import check_argv

    if not isinstance(host, str) or not host or host.startswith("-") or " " in host or not host.isprintable():
        raise InvalidArgument(f"{host!r} is no host; write NAME, USER@NAME or a host of your ssh configuration")
    words = ["wfctl", *(["--store", os.fspath(store)] if store is not None else []), "rpc", "serve"]
    if any("\0" in word for word in words):
        raise InvalidArgument(f"{store!r} is no path: it has a NUL character")
    return [*check_argv(ssh), "-T", "-o", "BatchMode=yes", "--", host, shlex.join(words)]


def sendable(name: str, value: Any) -> Any:
    """Given an argument, return it as JSON says it: instants as text, tables as objects, what is several as an array.

    A naive datetime keeps having no offset, so that it is refused as the operation refuses it.
    """
    if isinstance(value, datetime):
        return value.isoformat() if value.tzinfo is None else format_instant(value)
    if isinstance(value, Mapping):
        return {key: sendable(key, item) if name == "trigger" else _within(item) for key, item in value.items()}
    return _within(value)


def _within(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _within(item) for key, item in value.items()}
    if isinstance(value, Collection) and not isinstance(value, (str, bytes, bytearray)):
        return [_within(item) for item in value]
    return value


@functools.cache
def _signature_of(operation: Callable[..., Any]) -> Signature:
    return signature(operation)


@functools.cache
def _result_of(operation: Callable[..., Any]) -> Any:
    return hints_of(operation)["return"]

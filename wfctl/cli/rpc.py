"""`wfctl rpc serve`, `rpc call` and `rpc schema`: the operations as JSON-RPC, for programs and for ssh."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from wfctl.cli import parse, render, streams
from wfctl.cli.base import Common, command, quieten_logs
from wfctl.cli.completing import METHOD
from wfctl.errors import InvalidArgument, NoSupervisor

if TYPE_CHECKING:
    from wfctl.operations.watching import Watch
    from wfctl.rpc.stdio import StdioServer

_WATCH = "workflow.server.watch"


# rpc serve --------------------------------------------------------------------------------------------------------------


@command()
def serve(common: Common) -> int:
    """Serve JSON-RPC 2.0 on stdin and stdout: `ssh HOST wfctl rpc serve`.

    One JSON text a line, in both directions; `wfctl rpc schema` prints what can be asked. It serves the store with or without
    a supervisor. Exit status: 0 at the end of the input, once all is answered; 2 after a line that is no frame, which ends the
    conversation; 66 where there is no store; 130 and 143 after a signal, once the request at hand is answered.
    """
    from wfctl.rpc.stdio import OutputClosed, StdioServer, StoreDesk

    with common.open() as store:
        server = StdioServer(StoreDesk(store))
        try:
            with _ended_by_signals(server) as received:
                wrong = server.serve()
        except OutputClosed:
            raise streams.ClosedPipe from None
        finally:
            server.close()
    if wrong is not None:
        raise wrong
    return 128 + received[0] if received else 0


@contextmanager
def _ended_by_signals(server: StdioServer) -> Iterator[list[int]]:
    """Have INT and TERM end a server in order; what came is in the list."""
    import signal

    received: list[int] = []

    def note(number: int, frame: Any) -> None:
        received.append(number)
        server.stop()

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# rpc call ---------------------------------------------------------------------------------------------------------------


@command()
@click.argument(
    "method",
    metavar="METHOD",
    type=METHOD,
    help="Its name, such as workflow.schedules.get; `wfctl rpc schema` has them all.",
)
@click.argument("params", metavar="[JSON|-]", required=False, help="The parameters as a JSON object; - reads them from stdin.")
@click.option("--timeout", metavar="DURATION", help="Give up after so long. Default: 30s; a watch goes on until it is ended.")
def call(common: Common, method: str, params: str | None, timeout: str | None) -> None:
    """Call one JSON-RPC method and print its result as JSON.

    The supervisor answers; where none runs, this command does so itself (-v says which). An error goes to stderr, with the
    exit status that it has everywhere. workflow.server.watch prints one change a line until Ctrl-C.
    """
    if common.format not in ("table", "plain", "json", "jsonl"):
        raise click.UsageError("the result of a call is JSON: -o json or -o jsonl")
    given = _read_params(params)
    seconds = None if timeout is None else _seconds(timeout)
    if method == _WATCH:
        _watch(common, given, seconds)
        return
    result = _answer(common, method, given, seconds)
    is_wide = common.format == "json" or (common.output is None and sys.stdout.isatty())
    streams.answer(render.json_text(result, indent=2 if is_wide else None))


def _seconds(text: str) -> float:
    found = parse.seconds(text, "--timeout")
    if not found:
        raise InvalidArgument("--timeout must be longer than zero")
    return found


def _read_params(text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    found = parse.json_document("@-" if text == "-" else text, "the parameters")
    if not isinstance(found, dict):
        raise InvalidArgument('the parameters are a JSON object, by name: \'{"schedule_id": "nightly"}\'')
    return found


def _answer(common: Common, method: str, params: Mapping[str, Any], seconds: float | None) -> Any:
    """Have the supervisor answer; do it here where none runs."""
    from wfctl.rpc.client import TIMEOUT_S, RpcClient

    root = common.own_root()
    try:
        with RpcClient(root, timeout=TIMEOUT_S if seconds is None else seconds) as client:
            result = client.call(method, **params)
    except NoSupervisor:
        result = _answer_here(common, method, params)
    else:
        _say(common, "answered by the supervisor")
    return result


def _answer_here(common: Common, method: str, params: Mapping[str, Any]) -> Any:
    from wfctl.rpc.stdio import StoreDesk

    with common.open() as store:
        _say(common, "no supervisor runs: answered from the store itself")
        return StoreDesk(store).answer(method, params)


def _say(common: Common, text: str) -> None:
    if common.verbose:
        streams.talk(text)


def _watch(common: Common, params: Mapping[str, Any], seconds: float | None) -> None:
    from wfctl.operations.store import Store
    from wfctl.rpc.client import UnixStream
    from wfctl.rpc.methods import BY_NAME, check_params
    from wfctl.rpc.unix import connect_control
    from wfctl.rpc.watching import watch

    check_params(Store.watch, BY_NAME[_WATCH], params)
    root = common.own_root()
    try:
        changes = watch(lambda limit: UnixStream(connect_control(root, limit)), timeout=seconds, **params)
    except NoSupervisor:
        with common.open() as store:
            _say(common, "no supervisor runs: the store itself is watched")
            _print_changes(store.watch(timeout=seconds, **params))
    else:
        _say(common, "the supervisor tells")
        _print_changes(changes)


def _print_changes(changes: Watch) -> None:
    with changes:
        for change in changes:
            streams.answer(render.json_text(change.to_json()))
            streams.flush()


# rpc schema -------------------------------------------------------------------------------------------------------------


@command()
@click.option("--method", metavar="METHOD", type=METHOD, help="Only this method, and what it refers to.")
def schema(common: Common, method: str | None) -> None:
    """Print what can be asked as an OpenRPC document: methods, parameters, results, errors.

    Its components also describe every document that -o json prints. No store is needed.
    """
    from wfctl.rpc.schema import openrpc_document

    quieten_logs(common.verbose)
    document = openrpc_document(method)
    streams.answer(render.json_text(document, indent=None if common.format == "jsonl" else 2))

"""JSON-RPC names -> operations: the one table (contract 9). What an operation means is not known here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import Parameter, signature
from typing import Any, Literal

from wfctl.core.near import near
from wfctl.errors import InvalidArgument
from wfctl.rpc.messages import MethodNotFound, shown
from wfctl.value import Value

Kind = Literal["read", "write", "notification"]


class Method(Value, kw_only=False):
    """One operation as JSON-RPC calls it. Only a `read` may be asked again when a connection is lost."""

    name: str
    operation: str
    kind: Kind
    local: tuple[str, ...] = ()  #: arguments that only the Python API takes: they say what becomes of the calling process


METHODS: tuple[Method, ...] = (
    Method("workflow.schedules.create", "create_schedule", "write"),
    Method("workflow.schedules.get", "get_schedule", "read"),
    Method("workflow.schedules.list", "list_schedules", "read"),
    Method("workflow.schedules.update", "update_schedule", "write"),
    Method("workflow.schedules.pause", "pause_schedule", "write"),
    Method("workflow.schedules.resume", "resume_schedule", "write"),
    Method("workflow.schedules.delete", "delete_schedule", "write"),
    Method("workflow.schedules.revisions", "list_revisions", "read"),
    Method("workflow.schedules.audit", "audit_schedule", "read"),
    Method("workflow.schedules.occurrences.list", "list_schedule_occurrences", "read"),
    Method("workflow.schedules.occurrences.get", "get_occurrence", "read"),
    Method("workflow.schedules.occurrences.explain", "explain_occurrence", "read"),
    Method("workflow.deployments.create", "create_deployment", "write"),
    Method("workflow.deployments.get", "get_deployment", "read"),
    Method("workflow.deployments.list", "list_deployments", "read"),
    Method("workflow.deployments.update", "update_deployment", "write"),
    Method("workflow.deployments.delete", "delete_deployment", "write"),
    Method("workflow.runs.start", "start_run", "write", local=("detach",)),
    Method("workflow.runs.resume", "resume_run", "write", local=("detach",)),
    Method("workflow.runs.cancel", "cancel_run", "write"),
    Method("workflow.runs.inspect", "inspect_run", "read"),
    Method("workflow.runs.list", "list_runs", "read"),
    Method("workflow.server.status", "server_status", "read"),
    Method("workflow.server.reload", "reload", "write"),
    Method("workflow.server.drain", "drain", "write"),
    Method("workflow.server.watch", "watch", "read", local=("timeout",)),
    Method("workflow.server.poke", "poke", "notification"),
)
BY_NAME: dict[str, Method] = {method.name: method for method in METHODS}
BY_OPERATION: dict[str, Method] = {method.operation: method for method in METHODS}


def dispatch(target: object, method: str, params: Mapping[str, Any]) -> Any:
    """Given an object with the operations as methods, call the one that `method` names and return what it gave, as JSON.

    Raise MethodNotFound when table or target lack it, InvalidArgument naming parameters that are unknown or missing,
    else what the operation raises. A result that is no view or page (a reply that comes later) is handed on as it is.
    """
    known = BY_NAME.get(method)
    operation = getattr(target, known.operation, None) if known else None
    if known is None or operation is None:
        raise method_not_found(method, known)
    check_params(operation, known, params)
    return as_json(operation(**params))


def as_json(result: Any) -> Any:
    """Given a result, return its `to_json()` if it has one, also within a list."""
    if isinstance(result, (list, tuple)):
        return [as_json(item) for item in result]
    return result.to_json() if hasattr(result, "to_json") else result


def named_params(operation: Callable[..., Any], method: Method) -> list[Parameter]:
    """Return the parameters that a method takes by name: those of its operation, less what only the Python API takes."""
    takes = [item for item in signature(operation).parameters.values() if item.name not in ("self", *method.local)]
    return [item for item in takes if item.kind in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)]


def check_params(operation: Callable[..., Any], method: Method, params: Mapping[str, Any]) -> None:
    """Check the names of `params` against what `operation` takes. Raise InvalidArgument naming all that do not fit."""
    named = named_params(operation, method)
    takes = signature(operation).parameters.values()
    takes_any = any(item.kind is Parameter.VAR_KEYWORD for item in takes)  # the operation itself refuses unknown names
    names = [item.name for item in named]
    unknown = [] if takes_any else [given for given in params if given not in names]
    missing = [item.name for item in named if item.default is Parameter.empty and item.name not in params]
    if unknown or missing:
        raise _wrong_params(method.name, names, unknown, missing)


def _wrong_params(method: str, names: list[str], unknown: list[str], missing: list[str]) -> InvalidArgument:
    hints = {given: close for given in unknown[:20] if (close := _closest(given, names))}
    says = [f"unknown parameter `{shown(given)}`" + _did_you_mean(hints.get(given)) for given in unknown[:20]]
    says += [f"parameter `{given}` is missing" for given in missing]
    if unknown and not hints:
        says.append(f"it takes {', '.join(names)}" if names else "it takes none")
    data = {"method": method, "unknown": [shown(given) for given in unknown[:20]], "missing": missing, "suggestions": hints}
    return InvalidArgument(f"{method}: {'; '.join(says)}", data)


def method_not_found(method: str, known: Method | None = None) -> MethodNotFound:
    """Return the error for a name that is no method, or, where the table knows it, is not offered here."""
    close = None if known else _closest(method, list(BY_NAME))
    why = "is not offered here" if known else "is no method of this version"
    return MethodNotFound(f"`{shown(method)}` {why}{_did_you_mean(close)}", {"method": shown(method), "suggestion": close})


def _did_you_mean(close: str | None) -> str:
    return f", did you mean `{close}`?" if close else ""


def _closest(word: str, words: list[str]) -> str | None:
    return next(iter(near(word, words, 1)), None)

"""The OpenRPC document: what can be asked, generated from the table that dispatches and the operations' own signatures."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable
from inspect import Parameter
from types import NoneType
from typing import Any, get_args

from wfctl.core.model import Status
from wfctl.errors import ERRORS, WfctlError
from wfctl.operations import deployments, schedules
from wfctl.operations.listing_schedules import STATES
from wfctl.operations.store import Store
from wfctl.operations.views import WatchView
from wfctl.rpc.documents import all_components
from wfctl.rpc.examples import EXAMPLES, TOLD
from wfctl.rpc.framing import MAX_DEPTH, MAX_FRAME, MAX_VALUES
from wfctl.rpc.messages import MAX_BATCH, MAX_ID
from wfctl.rpc.methods import BY_NAME, METHODS, Method, method_not_found, named_params
from wfctl.rpc.results import hints_of
from wfctl.rpc.shapes import (
    DEPLOYMENT_FIELDS,
    NUMBERS_OF_JSON_RPC,
    SCHEDULE_FIELDS,
    Schema,
    either,
    nullable,
    ref,
    result_schema,
    several,
    type_schema,
    words,
)
from wfctl.rpc.subscriptions import TRANSITION

OPENRPC = "1.3.2"
_ABOUT = f"""The operations of a wfctl store as JSON-RPC 2.0.

Where: the unix socket `control.sock` in the store's directory, while a supervisor runs; or the stdin and stdout of
`wfctl rpc serve`, with or without one (`ssh HOST wfctl rpc serve`). The socket takes connections of the store's owner and root.

How: UTF-8, one JSON text a line, in both directions, each ended by a newline; at most {MAX_FRAME} bytes a line and {MAX_DEPTH}
levels of nesting, and in a request {MAX_VALUES} values. Parameters go by name. NaN and duplicate keys are refused. An `id` is a
number, null, or a string of at most {MAX_ID} characters. A batch has at most {MAX_BATCH} requests and is answered in one line.
What has no `id` is a notification: it is done and never answered, nor is a batch of such. A line that is no frame is answered
by an error with `"id": null`, and ends the connection; so does any other error that belongs to no request, such as that a
reader does not keep up. Answers to different requests may come in another order than they were asked, and between them what a
watch is told.

Null stands for an optional parameter that is not given, where the schema allows it. Changes return the new view of the thing.
When a connection is lost, ask again only what does not change anything.

Lists: follow `next_cursor` until it is null. Results may hold more keys than are described here, and errors more data: pass
over what you do not know. An error's `data.code` is a word with one meaning everywhere; `wfctl help WORD` explains it."""

_SECTIONS = re.compile(r"\s*\((?:contract )?\d+(?:\.\d+)?(?:(?:,| to| and) \d+(?:\.\d+)?)*\)")
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")
_ERROR_NAMES = {error.__name__: error for error in ERRORS}
_ALWAYS = ("InvalidArgument", "Blocked", "NotAllowed", "DamagedStore", "IoError", "TimedOut", "Internal")
_ON_CHANGE = ("CannotCreate",)
_BY_CONNECTION = {"watch": ("WrongState", "Saturated")}  #: what only a server raises

_BOTH: dict[str, tuple[Schema, str]] = {
    "schedule_id": (ref("Id"), "The schedule."),
    "deployment_id": (ref("Id"), "The deployment."),
    "run_id": (ref("RunId"), "The run."),
    "instant": (ref("Instant"), "The instant of the occurrence."),
    "since": (ref("Instant"), "Not before this instant."),
    "until": (ref("Instant"), "Before this instant."),
    "limit": ({"type": "integer", "minimum": 1, "maximum": 100}, "How many at most."),
    "cursor": (ref("Cursor"), "Go on where the page before ended."),
    "expected_revision": (
        {"type": "integer", "minimum": 1},
        "The revision that the change is made for. Where it is no more the current one nothing is changed: revision-conflict.",
    ),
    "dry_run": ({"type": "boolean", "default": False}, "Check all and answer what would be, change nothing."),
    "include_deleted": ({"type": "boolean", "default": False}, "Deleted ones, too."),
    "paused": ({"type": "boolean", "default": False}, "Begin paused."),
    "reverse": ({"type": "boolean", "default": False}, "The newest first; the pages after it lead back in time."),
    "reason": ({"type": "string"}, "Why; it is recorded."),
    "input": (ref("Input"), "What the run or the interrupted step is given."),
    "grace": (ref("Duration"), "How long its processes get between TERM and KILL."),
    "undo": ({"type": "boolean", "default": False}, "Open admission again."),
}
_OF_ONE: dict[tuple[str, str], tuple[Schema, str]] = {
    ("list_schedules", "status"): (several(words(*STATES)), "Only those in these states."),
    ("list_schedules", "limit"): (_BOTH["limit"][0], "How many at most; all when absent."),
    ("list_deployments", "limit"): (_BOTH["limit"][0], "How many at most; all when absent."),
    ("list_schedule_occurrences", "status"): (several(ref("OccurrenceStatus")), "Only those with these statuses."),
    ("list_schedule_occurrences", "schedule_id"): (several(ref("Id")), "Only those of these schedules."),
    ("list_runs", "status"): (several(ref("RunStatus")), "Only those with these statuses."),
    ("list_runs", "schedule_id"): (several(ref("Id")), "Only those of these schedules."),
    ("watch", "status"): (several(words(*Status, *STATES)), "Only what comes to these statuses or states."),
    ("watch", "schedule_id"): (several(ref("Id")), "Only what is of these schedules."),
    ("watch", "run_id"): (several(ref("RunId")), "Only what is of these runs."),
    ("watch", "timeout"): ({"type": "number", "minimum": 0}, "After so many seconds nothing more is told."),
}
_SAID = {  #: instead of a docstring that speaks of the calling process
    "start_run": "Start a run by hand, beside overlap and capacity; return it as it then is.\n\n"
    "It is not waited for: inspect it, or watch. A supervisor drives it; without one, a process in the background does.",
    "watch": "Tell what changes from now on, with a supervisor or without: occurrences, runs and schedules.\n\n"
    "Given names choose: what is of these schedules, of these runs, comes to these statuses or states. To miss nothing, watch "
    "first and look then. A connection has one watch; close it to end that.",
}
_FIELDS = {"schedule": SCHEDULE_FIELDS, "deployment": DEPLOYMENT_FIELDS}
_UNSETTABLE = {
    "schedule": [name for name in schedules.FIELDS if name not in ("deployment", "trigger", "max_steps")],
    "deployment": list(deployments.FIELDS),
}


def openrpc_document(name: str | None = None) -> dict[str, Any]:
    """Return the document; given a method's name, with that one alone and what it refers to. Raise MethodNotFound."""
    from wfctl import __version__

    if name is not None and name not in BY_NAME:
        raise method_not_found(name)
    chosen = [method for method in METHODS if method.kind != "notification" and name in (None, method.name)]
    described = [_describe(method) for method in chosen if hasattr(Store, method.operation)]
    components: dict[str, Any] = {"schemas": all_components(), "errors": _errors()}
    document = {
        "openrpc": OPENRPC,
        "info": {"title": "wfctl", "version": __version__, "description": _ABOUT, "license": {"name": "Apache-2.0"}},
        "methods": described,
        "components": components,
    }
    if name is not None:
        components["schemas"] = _needed(described, components["schemas"])
        used = {error["$ref"].rpartition("/")[2] for method in described for error in method["errors"]}
        components["errors"] = {key: error for key, error in components["errors"].items() if key in used}
    return document


def _describe(method: Method) -> dict[str, Any]:
    operation = getattr(Store, method.operation)
    text, raised = _reading(operation)
    described: dict[str, Any] = {
        "name": method.name,
        "summary": _SENTENCE.split(text.partition("\n")[0])[0].removesuffix("."),
        "description": text + _more_about(method),
        "tags": [{"name": method.name.split(".")[1]}, {"name": "change" if method.kind == "write" else "read"}],
        "paramStructure": "by-name",
        "params": _params(method, operation),
        "result": {"name": "result", "schema": _result(method, operation)},
        "errors": [{"$ref": f"#/components/errors/{error}"} for error in _raised(method, raised)],
        "x-operation": method.operation,
    }
    if method.operation in EXAMPLES:
        described["examples"] = [_example(method.operation)]
    if method.operation == "watch":
        described["x-notifications"] = [_notification()]
    return described


def _reading(operation: Callable[..., Any]) -> tuple[str, str]:
    """Return an operation's docstring without what it raises and without section numbers, and the part about raising."""
    text = _SECTIONS.sub("", inspect.getdoc(operation) or "")
    said, _, raised = text.partition("Raise ")
    said = _SAID.get(operation.__name__, said)
    return "\n".join(line.rstrip() for line in said.strip().splitlines()), raised


def _more_about(method: Method) -> str:
    if method.operation != "watch":
        return ""
    return (
        f"\n\nAfter the result the server sends a notification `{TRANSITION}` for each change, until the connection is closed: "
        "a frame without `id`, whose params are a Transition."
    )


# Parameters ---------------------------------------------------------------------------------------------------------------


def _params(method: Method, operation: Callable[..., Any]) -> list[dict[str, Any]]:
    """The required ones first, as by-name parameters may come in any order anyway."""
    hints = hints_of(operation)
    found = [_param(method.operation, item, hints[item.name]) for item in named_params(operation, method)]
    found += _patched_fields(method.operation)
    return sorted(found, key=lambda each: not each.get("required", False))


def _param(operation: str, item: Parameter, hint: Any) -> dict[str, Any]:
    noun = operation.rpartition("_")[2]
    schema, said = _OF_ONE.get((operation, item.name)) or (None, "")
    if schema is None and operation.startswith("create_") and item.name in _FIELDS[noun]:
        schema = _FIELDS[noun][item.name]
        said = schema.get("description", "")
    if schema is None and item.name == "unset":
        schema, said = _unset(noun), "Fields to clear, so that their default holds again."
    if schema is None:
        schema, said = _BOTH.get(item.name, (type_schema(hint), ""))
    if NoneType in get_args(hint):
        schema = nullable(schema)
    if type(item.default) is int:  # what stands for a limit that is not given
        schema = {**schema, "default": item.default}
    described: dict[str, Any] = {"name": item.name, "required": item.default is Parameter.empty, "schema": schema}
    return {**described, "description": said} if said else described


def _patched_fields(operation: str) -> Iterable[dict[str, Any]]:
    """An update takes the fields of what it changes; null, as absent, leaves one as it is."""
    verb, _, noun = operation.partition("_")
    for name, schema in _FIELDS[noun].items() if verb == "update" else ():
        yield {
            "name": name,
            "required": False,
            "description": f"{schema.get('description', 'The new value.')} Absent or null leaves it as it is.",
            "schema": nullable(schema),
        }


def _unset(noun: str) -> Schema:
    return either({"type": "array", "items": words(*_UNSETTABLE[noun])}, {"type": "null"})


# Results and errors -------------------------------------------------------------------------------------------------------


def _result(method: Method, operation: Callable[..., Any]) -> Schema:
    return result_schema(WatchView if method.operation == "watch" else hints_of(operation)["return"])


def _raised(method: Method, said: str) -> list[str]:
    named = [name for name in re.findall(r"[A-Z][A-Za-z]+", said) if name in _ERROR_NAMES]
    changes = _ON_CHANGE if method.kind == "write" else ()
    more = _BY_CONNECTION.get(method.operation, ())
    return list(dict.fromkeys([*named, *changes, *more, *_ALWAYS, "MethodNotFound", "InvalidRequest", "ParseError"]))


def _errors() -> dict[str, Any]:
    """The errors by name: those of the table, and those of JSON-RPC itself, which carry one of its words."""
    found = {error.__name__: _error(error.rpc_number, error) for error in ERRORS}
    by_word = {error.code: error for error in ERRORS}
    names = {-32700: "ParseError", -32600: "InvalidRequest", -32601: "MethodNotFound"}
    says = {
        -32700: "What came is no frame; it ends the connection.",
        -32600: "The frame is no request.",
        -32601: "There is no such method, or not at this server.",
    }
    for number, word in NUMBERS_OF_JSON_RPC.items():
        found[names[number]] = {**_error(number, by_word[word]), "message": says[number]}
    return found


def _error(number: int, error: type[WfctlError]) -> dict[str, Any]:
    said = (inspect.getdoc(error) or "").partition("\n")[0]
    return {"code": number, "message": said, "data": {"code": error.code}}


# Examples, notifications, choice ------------------------------------------------------------------------------------------


def _example(operation: str) -> dict[str, Any]:
    said, params, result = EXAMPLES[operation]
    return {
        "name": operation,
        "description": said,
        "params": [{"name": name, "value": value} for name, value in params.items()],
        "result": {"name": "result", "value": result},
    }


def _notification() -> dict[str, Any]:
    return {"name": TRANSITION, "paramStructure": "by-name", "params": ref("Transition"), "examples": [TOLD]}


def _needed(described: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    """Return the schemas that are referred to, by what is described or by one another, and that of errors."""
    found: dict[str, Any] = {}
    todo = ["Error", *_references(described)]
    while todo:
        name = todo.pop()
        if name in schemas and name not in found:
            found[name] = schemas[name]
            todo += _references(schemas[name])
    return {name: schema for name, schema in schemas.items() if name in found}


def _references(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"].rpartition("/")[2]] if isinstance(value.get("$ref"), str) else []
        return own + [name for item in value.values() for name in _references(item)]
    return [name for item in value for name in _references(item)] if isinstance(value, list) else []

"""JSON Schemas of what travels: results, from the types of their fields, and the tables that people write (contract 3, 8.7).

The schemas are for readers of other versions too: what an answer holds beyond them is to be passed over.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from datetime import datetime
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, is_typeddict

from wfctl.core.model import EXECUTORS, RUN_STATUSES, Misfire, Overlap, Status
from wfctl.core.reasons import PHRASES
from wfctl.errors import ERRORS
from wfctl.operations import shown, views
from wfctl.operations.listing import OCCURRENCES, RUNS
from wfctl.operations.listing_deployments import DEPLOYMENTS
from wfctl.operations.listing_schedules import SCHEDULES, STATES
from wfctl.operations.store import REVISIONS
from wfctl.operations.views import Page, View, hints_of, key_of

Schema = dict[str, Any]
Components = dict[str, Schema]
NUMBERS_OF_JSON_RPC = {-32700: "invalid-argument", -32600: "invalid-argument", -32601: "api-version"}  #: number -> our word
_LISTS = {  #: what a list of a view calls itself
    "OccurrenceView": OCCURRENCES, "RunView": RUNS, "ScheduleView": SCHEDULES, "DeploymentView": DEPLOYMENTS,
    "RevisionView": REVISIONS,
}  # fmt: skip
_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null"}


def ref(name: str) -> Schema:
    """Return a reference to a component."""
    return {"$ref": f"#/components/schemas/{name}"}


def words(*known: str) -> Schema:
    """Return the schema of one of these words."""
    return {"type": "string", "enum": [str(word) for word in known]}


def either(*schemas: Schema) -> Schema:
    """Return the schema of what satisfies one of several."""
    return {"anyOf": list(schemas)}


def nullable(schema: Schema) -> Schema:
    """Return the schema of the same or null."""
    if isinstance(schema.get("type"), str):
        with_null = {**schema, "type": [schema["type"], "null"]}
        return {**with_null, "enum": [*schema["enum"], None]} if "enum" in schema else with_null
    return schema if not schema else either(*schema.get("anyOf", [schema]), {"type": "null"})


def several(schema: Schema) -> Schema:
    """Return the schema of one such value, or an array of them."""
    return either(schema, {"type": "array", "items": schema})


def table(description: str, required: tuple[str, ...], **properties: Schema) -> Schema:
    """Return the schema of an object in which nothing else may stand, as of a table that people write."""
    return {
        "type": "object",
        "description": description,
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


# What people write --------------------------------------------------------------------------------------------------------

_COUNT = {"type": "integer", "minimum": 1, "maximum": 2**31 - 1}
_RETRIES = {"type": "integer", "minimum": 0, "maximum": 2**31 - 1}
_TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}

WRITTEN: Components = {
    "Id": {
        "type": "string",
        "pattern": "^[a-z0-9][a-z0-9._-]{0,127}$",
        "description": "Names a schedule or a deployment; has no `..`. An id is never used again, not after deletion either.",
    },
    "RunId": {"type": "string", "pattern": "^run-[0-9]{6,}$", "description": "Names a run. Ids ascend."},
    "Instant": {
        "type": "string",
        "format": "date-time",
        "description": "A point of time as RFC 3339 says it. Given, it has any offset; answered, it is UTC with `Z`, and no "
        "fraction or one of six digits.",
    },
    "Duration": {
        "type": "string",
        "description": "Whole numbers with units, largest first: `250ms`, `5s`, `10m`, `1h30m`, `2d`, `1w`.",
        "examples": ["60s", "1h30m"],
    },
    "Cursor": {"type": "string", "description": "The `next_cursor` of the page before, unchanged, with the same filters."},
    "CronTrigger": table(
        "Five Unix fields in a time zone.",
        ("kind", "expression"),
        kind={"const": "cron"},
        expression={"type": "string", "maxLength": 256, "examples": ["30 2 * * *", "*/15 9-17 * * mon-fri"]},
        timezone={"type": ["string", "null"], "description": "An IANA zone; UTC by default.", "examples": ["Europe/Budapest"]},
    ),
    "IntervalTrigger": table(
        "Each so often, counted from the second of creation or of the last trigger change; at least `1s`.",
        ("kind", "every"),
        kind={"const": "interval"},
        every=ref("Duration"),
    ),
    "OneshotTrigger": table("Once, later than now.", ("kind", "at"), kind={"const": "oneshot"}, at=ref("Instant")),
    "Trigger": {
        "description": "The calendar rule of a schedule.",
        "oneOf": [ref("CronTrigger"), ref("IntervalTrigger"), ref("OneshotTrigger")],
    },
    "Overlap": words(*Overlap)
    | {
        "description": "What to do when an instant finds unfinished runs: skip it, hold the newest, or run beside them up to "
        "`max_active_runs`.",
    },
    "Misfire": words(*Misfire) | {"description": "What to do with missed instants: skip them, or run the newest of them once."},
    "MaxRun": {
        **either(words("auto", "none"), ref("Duration")),
        "description": "How long an attempt may execute; `auto` is five times the interval.",
    },
    "Timeout": {**either(words("none"), ref("Duration")), "description": "How long an execution of the step may take."},
    "Notify": table(
        "A command that is told of changes of the schedule's health, after so many failures in a row.",
        ("command",),
        command=ref("Command"),
        after={**_COUNT, "type": ["integer", "null"]},
    ),
    "Input": {
        "type": "object",
        "description": "Names and values: what the deployment's input schema takes. At most 64 KiB; whole numbers of 64 bits.",
    },
    "Command": {
        "type": "array",
        "items": {"type": "string"},
        "minItems": 1,
        "maxItems": 1000,
        "description": "A program and its arguments. No shell reads it, unless it names one.",
    },
    "Step": table(
        "One command of a run.",
        ("name", "command"),
        name={"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"},
        command=ref("Command"),
        retries={**_RETRIES, "type": ["integer", "null"]},
        retry_delay=nullable(ref("Duration")),
        timeout=nullable(ref("Timeout")),
    ),
    "Steps": {"type": "array", "items": ref("Step"), "minItems": 1, "maxItems": 100},
    "Environment": {**_TEXTS, "description": "Variables of the runs; names that begin with WFCTL_ are wfctl's own."},
    "EnvironmentFiles": {"type": "array", "items": {"type": "string", "pattern": "^/"}},
    "Files": {
        "type": "object",
        "additionalProperties": {"type": "string", "pattern": "^sha256:[0-9a-f]{64}$"},
        "description": "Pinned files by name, with the digest of their content, which must be in the store already: "
        "`wfctl deployment set ID --file PATH` puts it there.",
    },
    "InputSchema": {
        "type": ["object", "boolean"],
        "description": "A JSON Schema, draft 2020-12, for the input; at most 64 KiB.",
    },
    "SlurmNeeds": table(
        "What runs of a deployment ask of a Slurm cluster; what is absent is the cluster's own default.",
        (),
        partition={"type": ["string", "null"]},
        account={"type": ["string", "null"]},
        cpus={**_COUNT, "type": ["integer", "null"], "description": "Of the one task."},
        memory={"type": ["string", "null"], "examples": ["4G"], "description": "Of each node: a number and K, M, G or T."},
        time_limit={**nullable(ref("Duration")), "description": "Slurm's own limit, in whole minutes."},
        nodes={"type": ["integer", "string", "null"], "examples": [2, "2-4"]},
        options={"type": ["array", "null"], "items": {"type": "string", "pattern": "^--"}, "maxItems": 50},
    ),
    "Umask": {"type": "string", "pattern": "^0?[0-7]{3}$", "examples": ["022"]},
    "OccurrenceStatus": words(*Status) | {"description": "Where an occurrence stands."},
    "RunStatus": words(*(status for status in Status if status in RUN_STATUSES))
    | {
        "description": "Where a run stands; completed, failed, exhausted and cancelled are final.",
    },
    "ScheduleState": words(*STATES) | {"description": "The first that applies of deleted, blocked, paused, finished, active."},
    "DeploymentState": words("deleted", "blocked", "active"),
    "Reason": {
        "type": "object",
        "properties": {"code": {"type": "string", "examples": sorted(PHRASES)}},
        "required": ["code"],
        "description": "Why, as data: a code, to which others may be added, and what belongs to it. Nothing must be parsed.",
    },
    "Diagnostic": {
        "type": "object",
        "properties": {"code": {"type": "string"}, "message": {"type": "string"}},
        "description": "Why something is blocked.",
    },
}

SCHEDULE_FIELDS: Components = {
    "deployment_id": ref("Id"),
    "trigger": ref("Trigger"),
    "input": ref("Input"),
    "notes": {"type": "string", "description": "Free text."},
    "overlap": {**either(ref("Overlap"), words("allow")), "description": "`allow` is read as `parallel`."},
    "max_active_runs": {
        **_COUNT,
        "description": "Required with `parallel`, refused with the others; leaving `parallel` drops it.",
    },
    "misfire": ref("Misfire"),
    "lateness": {**either(ref("Duration")), "description": "How late an instant still counts as on time; `60s` by default."},
    "max_run": ref("MaxRun"),
    "max_steps": {**_COUNT, "description": "How many executions a run may have; once set it cannot be cleared."},
    "notify": ref("Notify"),
}
DEPLOYMENT_FIELDS: Components = {
    "command": ref("Command"),
    "steps": {**either(ref("Steps")), "description": "A pipeline, instead of `command`, `retries`, `retry_delay`, `timeout`."},
    "description": {"type": "string", "description": "Free text."},
    "working_directory": {"type": "string", "pattern": "^/", "description": "Absolute; the run's own directory by default."},
    "environment": ref("Environment"),
    "environment_files": {**either(ref("EnvironmentFiles")), "description": "Read at launch; their values are never recorded."},
    "kill_grace": {**either(ref("Duration")), "description": "Between TERM and KILL; `10s` by default."},
    "umask": ref("Umask"),
    "executor": {**words(*EXECUTORS), "description": "Who runs its commands; `local` by default: this machine."},
    "slurm": {**either(ref("SlurmNeeds")), "description": "What its runs ask of the cluster, with `executor` = `slurm`."},
    "files": ref("Files"),
    "input_schema": ref("InputSchema"),
    "retries": {**_RETRIES, "description": "More executions of the step after a known failure."},
    "retry_delay": {**either(ref("Duration")), "description": "Doubles each time, at most 10m; `10s` by default."},
    "timeout": ref("Timeout"),
}


def _definition(description: str, fields: Components, **own: Schema) -> Schema:
    """The schema of a definition as it is shown: fields that are not set may stand as null."""
    properties = {name: nullable(schema) for name, schema in fields.items()} | own
    return {
        "type": "object",
        "description": description,
        "properties": {"format": {"type": "integer"}, **properties},
        "required": ["format", *own],
    }


WRITTEN["ScheduleDefinition"] = _definition(
    "A schedule as its file says it.",
    {name: schema for name, schema in SCHEDULE_FIELDS.items() if name not in ("deployment_id", "trigger")},
    deployment=ref("Id"),
    trigger=ref("Trigger"),
)
WRITTEN["DeploymentDefinition"] = _definition("A deployment as its file says it.", DEPLOYMENT_FIELDS)


# What is answered ---------------------------------------------------------------------------------------------------------

#: More than the type of a field says, by view and field; `*` for any view.
_PRECISE: dict[tuple[str, str], Schema] = {
    ("*", "schedule_id"): ref("Id"),
    ("*", "deployment_id"): ref("Id"),
    ("*", "run_id"): ref("RunId"),
    ("*", "reason"): ref("Reason"),
    ("*", "diagnostic"): ref("Diagnostic"),
    ("*", "revision"): {"type": "integer", "minimum": 1},
    ("ExplanationView", "status"): ref("OccurrenceStatus"),
    ("OccurrenceView", "status"): ref("OccurrenceStatus"),
    ("RunView", "status"): ref("RunStatus"),
    ("RunView", "kind"): words("scheduled", "manual"),
    ("ScheduleView", "id"): ref("Id"),
    ("ScheduleView", "state"): ref("ScheduleState"),
    ("ScheduleView", "active_runs"): {"type": "array", "items": ref("RunId")},
    ("ScheduleView", "definition"): ref("ScheduleDefinition"),
    ("DeploymentView", "id"): ref("Id"),
    ("DeploymentView", "state"): ref("DeploymentState"),
    ("DeploymentView", "schedules"): {"type": "array", "items": ref("Id")},
    ("DeploymentView", "definition"): ref("DeploymentDefinition"),
    ("StatusView", "state"): words("ready", "draining", "degraded"),
    ("TransitionView", "kind"): words("occurrence", "run", "schedule"),
    ("TransitionView", "from_"): words(*Status, *STATES),
    ("TransitionView", "to"): words(*Status, *STATES),
}
_NULL_MEANS = {
    ("OccurrenceView", "span"): "Set where one row stands for many instants, of which `instant` is the last.",
    ("RunView", "trace"): "Every process that was started for it, oldest first.",
    ("RunView", "interrupt"): "What an interrupted run asks for: `message`, and perhaps a `schema` of the answer.",
    ("ScheduleView", "candidate"): "The one instant that is due and held until there is room.",
    ("ScheduleView", "watermark"): "Everything up to it is consumed for good.",
}


def name_of_view(kind: Any) -> str:
    """Return the name of the component that describes a result type."""
    if get_origin(kind) is Page:
        return f"{name_of_view(get_args(kind)[0])}Page"
    return str(kind.__name__).removesuffix("View")


def result_schema(kind: Any) -> Schema:
    """Given the type that an operation returns, return the schema of its JSON."""
    if get_origin(kind) is Page:
        return ref(name_of_view(kind))
    if isinstance(kind, type) and issubclass(kind, View) and kind.schema:
        return {"allOf": [ref(name_of_view(kind)), {"required": ["schema"]}]}
    return type_schema(kind)


def type_schema(kind: Any) -> Schema:
    """Given a type of Python, return the schema of its JSON; views are referred to."""
    origin = get_origin(kind)
    if kind is Any or isinstance(kind, TypeVar):
        return {}
    if origin in (Union, UnionType):
        rest = [type_schema(each) for each in get_args(kind) if each is not NoneType]
        schema = rest[0] if len(rest) == 1 else either(*_without_repeats(rest))
        return nullable(schema) if NoneType in get_args(kind) else schema
    if kind is datetime:
        return ref("Instant")
    if isinstance(kind, type) and (issubclass(kind, View) or is_typeddict(kind)):
        return ref(name_of_view(kind))
    if origin is not None and issubclass(origin, Mapping):
        values = type_schema(get_args(kind)[1])
        return {"type": "object", "additionalProperties": values} if values else {"type": "object"}
    if origin is not None:
        return {"type": "array", "items": type_schema(get_args(kind)[0])}
    return {"type": _PLAIN.get(kind, "object")}


def _without_repeats(schemas: list[Schema]) -> list[Schema]:
    return [schema for number, schema in enumerate(schemas) if schema not in schemas[:number]]


def _view_schema(kind: Any) -> Schema:
    hints = hints_of(kind)
    properties: Components = {}
    if getattr(kind, "schema", ""):
        properties["schema"] = {"const": kind.schema, "description": "In a document of its own, not in an item of a list."}
    for name, hint in hints.items():
        properties[key_of(name)] = _field_schema(kind.__name__, name, hint)
    return {
        "type": "object",
        "description": inspect.cleandoc(kind.__doc__ or ""),
        "properties": properties,
        "required": [key_of(name) for name in hints],
    }


def _field_schema(view: str, name: str, hint: Any) -> Schema:
    is_nullable = NoneType in get_args(hint)
    base = next((each for each in get_args(hint) if each is not NoneType), hint) if is_nullable else hint
    precise = _PRECISE.get((view, name))
    if precise is None and hint is not Any and (of_any := _PRECISE.get(("*", name))) is not None:
        precise = {"type": "array", "items": of_any} if get_origin(base) is tuple else of_any
    schema = type_schema(hint) if precise is None else nullable(precise) if is_nullable else precise
    said = _NULL_MEANS.get((view, name))
    return schema if said is None else {**(either(schema) if "$ref" in schema else schema), "description": said}


def _page_schema(item: str, name: str) -> Schema:
    return {
        "type": "object",
        "description": "A page of a list, with what gets the next one.",
        "properties": {
            "schema": {"const": name},
            "items": {"type": "array", "items": ref(item)},
            "next_cursor": {"type": ["string", "null"], "description": "Null on the last page."},
        },
        "required": ["schema", "items", "next_cursor"],
    }


def error_schema() -> Schema:
    """Return the schema of the `error` of a response: each number goes with one word."""
    pairs = [(error.rpc_number, error.code) for error in ERRORS] + list(NUMBERS_OF_JSON_RPC.items())
    return {
        "type": "object",
        "description": "The `error` of a response. `code` is the number, `data.code` the word; to both others may be added.",
        "properties": {
            "code": {"type": "integer"},
            "message": {"type": "string", "description": "What is wrong and what to do, for people."},
            "data": {"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]},
        },
        "required": ["code", "message", "data"],
        "oneOf": [
            {"properties": {"code": {"const": number}, "data": {"properties": {"code": {"const": word}}}}}
            for number, word in pairs
        ],
    }


def answered_components() -> Components:
    """Return the schemas of all results, and of their lists."""
    found: Components = {}
    for kind in _view_kinds():
        name = name_of_view(kind)
        assert name not in found, f"two results are called {name}"
        found[name] = _view_schema(kind)
        if kind.__name__ in _LISTS:
            found[f"{name}Page"] = _page_schema(name, _LISTS[kind.__name__])
    found["Error"] = error_schema()
    return found


def _view_kinds() -> list[Any]:
    """Return the types that results are made of, wherever the operations define them."""
    from importlib import import_module
    from pkgutil import iter_modules

    package = import_module("wfctl.operations")
    modules = [shown, views, *(import_module(f"{package.__name__}.{found.name}") for found in iter_modules(package.__path__))]
    kinds = {kind: None for module in modules for kind in vars(module).values() if isinstance(kind, type)}
    return [kind for kind in kinds if (issubclass(kind, View) and kind not in (View, Page)) or is_typeddict(kind)]

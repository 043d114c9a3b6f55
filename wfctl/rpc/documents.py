"""Documents that only the command line prints, with `-o json`: they are described beside the results (contract 8.5, 8.7)."""

from __future__ import annotations

from wfctl.rpc.shapes import WRITTEN, Components, Schema, answered_components, ref

_TEXT: Schema = {"type": "string"}
_WORD_OR_NULL: Schema = {"type": ["string", "null"]}
_NUMBER_OR_NULL: Schema = {"type": ["number", "null"]}


def _items(schema: Schema) -> Components:
    """A list that has no further pages."""
    return {"items": {"type": "array", "items": schema}, "next_cursor": {"type": "null"}}


def _object(**properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": list(properties)}


_INSTANT = _object(
    instant=ref("Instant"), local=_TEXT, timezone=_TEXT, note=_WORD_OR_NULL, left_s={"type": "number"}
)  # fmt: skip
_FIELD = _object(text=_TEXT, reading=_TEXT, values={"type": "array", "items": {"type": "integer"}})
_CALENDAR = _object(
    since=ref("Instant"),
    until=ref("Instant"),
    before={"type": ["integer", "null"]},
    after={"type": ["integer", "null"]},
    common={"type": ["integer", "null"]},
    first_before=_WORD_OR_NULL,
    first_after=_WORD_OR_NULL,
)

#: By the name that stands in their `schema`: what the component is called, what it is, what it holds.
DOCUMENTS: dict[str, tuple[str, str, Components]] = {
    "wfctl/checks.v1": (
        "Checks",
        "What a run needs, and whether it is there (`wfctl deployment check`).",
        _items(ref("Check")),
    ),
    "wfctl/instants.v1": ("Instants", "Coming instants (`wfctl schedule next`, `wfctl cron next`).", _items(_INSTANT)),
    "wfctl/findings.v1": ("Findings", "What is odd about schedules (`wfctl schedule lint`).", _items(ref("Finding"))),
    "wfctl/config.v1": (
        "Config",
        "Every setting, and where its value comes from (`wfctl config show`).",
        _items(_object(key=_TEXT, value={}, origin=_TEXT)),
    ),
    "wfctl/diff.v1": (
        "Difference",
        "Two definitions side by side (`wfctl schedule diff`); counts of instants in the time that was compared.",
        {
            "before": _TEXT,
            "after": _TEXT,
            "fields": {"type": "array", "items": _object(path=_TEXT, before={}, after={})},
            "calendar": {"anyOf": [_CALENDAR, {"type": "null"}]},
        },
    ),
    "wfctl/cron-explain.v1": (
        "CronExplanation",
        "A cron expression taken apart (`wfctl cron explain`).",
        {
            "expression": _TEXT,
            "expanded": _TEXT,
            "timezone": _TEXT,
            "reading": _TEXT,
            "fields": _object(minute=_FIELD, hour=_FIELD, day=_FIELD, month=_FIELD, weekday=_FIELD),
            "either_day": {"type": "boolean", "description": "Both day fields are restricted: either suffices."},
            "fires": {"type": ["integer", "null"]},
            "days": _NUMBER_OR_NULL,
            "fires_a_month": _NUMBER_OR_NULL,
            "shortest_gap_s": _NUMBER_OR_NULL,
            "longest_gap_s": _NUMBER_OR_NULL,
            "next": {"type": "array", "items": _INSTANT},
            "warnings": {"type": "array", "items": _object(code=_TEXT, message=_TEXT)},
        },
    ),
    "wfctl/unit.v1": ("Unit", "A unit of systemd (`wfctl systemd unit`).", {"unit": _TEXT, "store": _TEXT, "text": _TEXT}),
    "wfctl/store.v1": (
        "StoreMade",
        "A store that was made (`wfctl init`).",
        {"path": _TEXT, "created": {"type": "boolean"}},
    ),
    "wfctl/demo.v1": (
        "Demo",
        "What the demonstration saw (`wfctl demo`).",
        {
            "as_expected": {"type": "boolean"},
            "problems": {"type": "array", "items": _TEXT},
            "occurrences": {"type": "array", "items": ref("Occurrence")},
            "runs": {"type": "array", "items": ref("Run")},
        },
    ),
    "wfctl/version.v1": ("Version", "Versions of wfctl and of what it stands on (`wfctl version`).", {}),
}


def all_components() -> Components:
    """Return every schema by its name: what people write, what is answered, and what only the command line prints."""
    answered = answered_components()
    documents = {title: _document(name, said, properties) for name, (title, said, properties) in DOCUMENTS.items()}
    names = [*WRITTEN, *answered, *documents]
    assert len(names) == len(set(names)), f"called twice: {sorted(name for name in set(names) if names.count(name) > 1)}"
    return {**WRITTEN, **answered, **documents}


def _document(name: str, description: str, properties: Components) -> Schema:
    return {
        "type": "object",
        "description": description,
        "properties": {"schema": {"const": name}, **properties},
        "required": ["schema", *properties],
    }

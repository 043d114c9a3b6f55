"""`wfctl schedule …` and `wfctl schedules`: when to run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from wfctl.cli import difference, paging, parse, preview, render, streams, values
from wfctl.cli.base import Common, StoredId, command, dry_run_option
from wfctl.cli.completing import ZONE, words
from wfctl.cli.paging import page_options
from wfctl.cli.render import Column
from wfctl.cli.schedules import columns
from wfctl.cli.style import Paint
from wfctl.cli.text import count_of, escape
from wfctl.core import reasons
from wfctl.errors import InvalidArgument, WfctlError

if TYPE_CHECKING:
    from wfctl.operations.store import Store
    from wfctl.operations.views import RevisionView, ScheduleView

REVISIONS = "wfctl/revisions.v1"
#: keys whose value is text even where it looks like a number
_TEXTS = frozenset(
    {
        "deployment",
        "notes",
        "overlap",
        "misfire",
        "lateness",
        "max_run",
        *(f"trigger.{key}" for key in ("kind", "expression", "timezone", "every", "at")),
    }
)
_KIND_OF = {"expression": "cron", "timezone": "cron", "every": "interval", "at": "oneshot"}
_schedule_id = click.argument("schedule_id", metavar="ID", type=StoredId("schedule"), help="The id of the schedule.")
_LISTED, _LISTED_UNTIL = 5, 100  #: coming instants that `next` shows, without and with --until
_OFTEN = 12  #: of one schedule among others, from which on people see the first and a count


# Looking ----------------------------------------------------------------------------------------------------------------


@command()
@_schedule_id
def show(common: Common, schedule_id: str) -> None:
    """Show a schedule and what comes next."""
    now = common.now()
    with common.open() as store:
        view = store.get_schedule(schedule_id=schedule_id)
    render.item(common, view, details=lambda paint: details(view, paint, now), name=view.id, columns=columns(now))
    if common.is_human:
        preview.say(common, preview.warning_lines(view, now))


def details(view: ScheduleView, paint: Paint, now: datetime) -> str:
    """Return a schedule for people: its card, and everything that is known of its state."""
    definition = view.definition or {}
    facts = [
        ("diagnostic", _diagnostic(view)),
        ("paused", _paused(view)),
        ("waits until", _waits(view)),
        ("held", _held(view)),
        ("active runs", escape(", ".join(view.active_runs))),
        ("input", escape(values.json_cell(definition.get("input") or None))),
        ("notes", escape(definition.get("notes") or "")),
        ("notify", escape(values.json_cell(definition.get("notify")))),
        ("effective from", values.instant(view.effective_from)),
        ("consumed up to", values.instant(view.watermark)),
    ]
    rest = render.pairs(facts, paint, indent=2)
    return preview.card(view, paint, now) + (f"\n\n{rest}" if rest else "")


def _diagnostic(view: ScheduleView) -> str:
    """What blocks a schedule, and the command that mends it."""
    from wfctl.cli.server import mended_by

    if not view.diagnostic:
        return ""
    return escape(reasons.phrase(view.diagnostic)) + mended_by({"id": view.id, "diagnostic": view.diagnostic})


def _waits(view: ScheduleView) -> str:
    at = values.instant(view.waits_until)
    return f"{at}: the clock stands before what is already consumed" if at else ""


def _held(view: ScheduleView) -> str:
    held = view.candidate
    if held is None:
        return ""
    return f"{values.instant(held.instant)} since {values.instant(held.held_since)}, {escape(reasons.phrase(held.reason))}"


def _paused(view: ScheduleView) -> str:
    if not view.paused_at:
        return ""
    who = f" by {escape(view.pause_actor)}" if view.pause_actor else ""
    return f"since {values.instant(view.paused_at)}{who}" + (f": {escape(view.pause_reason)}" if view.pause_reason else "")


@command(name="next")
@click.argument(
    "schedule_ids", metavar="[ID...]", nargs=-1, type=StoredId("schedule"),
    help="Ids of schedules; none for all that are active.",
)  # fmt: skip
@click.option("-n", "count", type=int, metavar="N", help="How many instants (default 5, with --until at most 100).")
@click.option("--from", "start", metavar="TIME", help="Begin after this instant, or this long from now: 12h.")
@click.option("--until", "end", metavar="TIME", help="End with this instant, or this long from now: 36h.")
@click.option("--dst", is_flag=True, help="Also the instants that clock changes of the coming 400 days touch.")
def next_instants(
    common: Common, schedule_ids: Sequence[str], count: int | None, start: str | None, end: str | None, dst: bool
) -> None:
    """Show the coming instants of schedules.

    wfctl schedule next --from 2026-12-01T20:00:00Z --until 2026-12-02T06:00:00Z

    Several schedules are merged into one list, in the order of their instants. Without an ID all active ones are shown. With
    --until one that comes due often takes one line among others; programs get every instant.
    """
    from wfctl.cli import cron

    most = count if count is not None else _LISTED if end is None else _LISTED_UNTIL
    cron.check_count(most)
    now = common.now()
    after = parse.ahead(start, "--from", now) if start else now
    last = parse.ahead(end, "--until", now) if end else None
    if last is not None and last <= after:
        raise InvalidArgument("--until must be later than where the list begins")
    with common.open() as store:
        views = [store.get_schedule(schedule_id=name) for name in dict.fromkeys(schedule_ids)]
        views = views if schedule_ids else list(store.list_schedules(status="active").items)
    is_short = last is not None and count is None and common.is_human and len(views) > 1
    rows: list[dict[str, Any]] = []
    for view in views:
        trigger = preview.trigger_of(view)
        if trigger is not None:
            found = cron.instant_rows(trigger, view.anchor, after, now, most + 1, with_changes=dst, schedule_id=view.id)
            found = [row for row in found if last is None or _when(row) <= last]
            rows += _shortened(found, most) if is_short and len(found) > _OFTEN else found
        if view.state != "active" and not common.quiet:
            streams.talk(f"{escape(view.id)} is {view.state}: nothing of it is admitted now")
    rows.sort(key=lambda row: (_when(row), row["schedule_id"]))
    shown = rows[:most] + [row for row in rows[most:] if dst and row["note"]]
    cron.write_instants(common, shown, now, with_schedule=True)
    if last is not None and len(rows) > most and not common.quiet:
        streams.talk(f"these are the first {most}; there are more: -n N shows them")


def _when(row: Mapping[str, Any]) -> datetime:
    return parse.instant(row["instant"], "instant")


def _shortened(rows: list[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    """Of a schedule that comes due often, the first instant, how many follow, and what clock changes touch."""
    many = f"over {most - 1}" if len(rows) > most else str(len(rows) - 1)
    return [{**rows[0], "more": many}, *(row for row in rows[1:] if row["note"])]


@command()
@_schedule_id
@page_options
def revisions(common: Common, schedule_id: str, limit: int | None, cursor: str | None, everything: bool) -> None:
    """List every saved state of a schedule."""
    shown: dict[int, RevisionView] = {}  # so that each can be held against the one before it
    with common.open() as store:

        def fetch(size: int, place: str | None) -> Any:
            page = store.list_revisions(schedule_id=schedule_id, limit=size, cursor=place)
            shown.update((view.revision, view) for view in page.items)
            return page

        paging.write(
            common,
            fetch,
            _revision_columns(shown),
            schema=REVISIONS,
            name=lambda it: str(it.revision),
            limit=limit,
            cursor=cursor,
            everything=everything,
            command=paging.line(common, "schedule", "revisions", schedule_id),
        )


def _revision_columns(shown: Mapping[int, RevisionView]) -> list[Column]:
    return [
        Column(key="revision", title="REV", raw=lambda it: it.revision, right=True, keep=True),
        render.instants("recorded_at", "WHEN (UTC)", lambda it: it.recorded_at, keep=True),
        Column(key="actor", title="WHO", raw=lambda it: it.actor),
        Column(key="change", title="CHANGE", raw=lambda it: _change(shown.get(it.revision - 1), it), free=True),
        Column(key="croniter", title="CRONITER", raw=lambda it: it.croniter),
        Column(key="tz_database", title="TZDB", raw=lambda it: it.tz_database),
        Column(key="content", title="CONTENT", raw=lambda it: it.content, extra=True),
    ]


def _change(old: RevisionView | None, new: RevisionView) -> str | None:
    if old is None:
        return "created" if new.revision == 1 else None  # the one before stands on another page
    before, after = _flat(old.definition), _flat(new.definition)
    changed = [key for key in dict.fromkeys([*before, *after]) if before.get(key) != after.get(key)]
    return ", ".join(f"{key}: {_shown(before.get(key))} -> {_shown(after.get(key))}" for key in changed)


def _flat(table: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """The values of a table by their dotted keys."""
    found: dict[str, Any] = {}
    for key, item in table.items():
        found |= _flat(item, f"{path}{key}.") if isinstance(item, Mapping) else {f"{path}{key}": item}
    return found


def _shown(found: Any) -> str:
    return values.json_cell(found) or "unset"


# Adding -----------------------------------------------------------------------------------------------------------------


@command()
@click.argument("schedule_id", metavar="ID", help="The id: lower-case letters, digits, '.', '_' and '-'.")
@click.option("--deployment", "deployment_id", metavar="ID", type=StoredId("deployment"), help="What to run.")
@click.option("--cron", "expression", metavar="EXPRESSION", help="Five cron fields in one argument: '30 2 * * 1-5'.")
@click.option("--every", metavar="DURATION", help="An interval, such as 10m; one second or more.")
@click.option("--at", metavar="INSTANT", help="Once, at an instant with an offset: 2026-12-01T09:00:00+01:00.")
@click.option("--timezone", metavar="ZONE", type=ZONE, help="The zone that a cron expression is read in (default UTC).")
@click.option("-f", "file", metavar="FILE|-", type=click.Path(), help="Read the definition from a TOML file, or from stdin.")
@click.option(
    "--input", "given", metavar="NAME=VALUE", multiple=True, help="A part of the input of every run; may be repeated."
)
@click.option("--input-json", "document", metavar="TEXT|@FILE|@-", help="The input of every run, as JSON.")
@click.option(
    "--overlap",
    metavar="POLICY",
    type=words("skip", "queue", "parallel"),
    help="When a run is still going: skip, queue or parallel.",
)
@click.option("--max-active-runs", metavar="N", type=int, help="How many at once; required with parallel.")
@click.option(
    "--misfire",
    metavar="POLICY",
    type=words("skip", "latest"),
    help="When an instant was missed: skip, or latest to catch up with the newest.",
)
@click.option("--lateness", metavar="DURATION", help="How late still counts as on time (default 60s).")
@click.option(
    "--max-run",
    metavar="auto|none|DURATION",
    type=words("auto", "none"),
    help="When a run is ended (auto: five times the shortest gap).",
)
@click.option("--max-steps", metavar="N", type=int, help="How many executions a run may have.")
@click.option("--notes", metavar="TEXT", help="Free text.")
@click.option("--paused", is_flag=True, help="Begin paused.")
@dry_run_option
def add(
    common: Common, schedule_id: str, file: str | None, given: Sequence[str], document: str | None, paused: bool, dry_run: bool,
    **options: Any,
) -> None:  # fmt: skip
    """Add a schedule: when to run a deployment.

    wfctl schedule add nightly --deployment dump --cron '30 2 * * 1-5' --timezone Europe/Paris

    Nothing is backfilled: the first instant is the next one.
    """
    fields = parse.definition_file(file, "schedule", f"schedule {schedule_id}") if file is not None else {}
    if "deployment" in fields:
        fields["deployment_id"] = fields.pop("deployment")
    names = ("deployment_id", "overlap", "max_active_runs", "misfire", "lateness", "max_run", "max_steps", "notes")
    fields |= {name: options[name] for name in names if options[name] is not None}
    trigger = _trigger(options)
    if trigger is not None:
        fields["trigger"] = trigger
    bound = parse.bound_input(given, document)
    if bound is not None:
        fields["input"] = bound
    if not fields.get("deployment_id"):
        raise click.UsageError("say what to run: --deployment ID")
    if "trigger" not in fields:
        raise click.UsageError("say when to run: --cron EXPRESSION, --every DURATION or --at INSTANT")
    with common.open() as store:
        view = store.create_schedule(schedule_id=schedule_id, paused=paused, dry_run=dry_run, **fields)
    _saved(common, view, dry_run)


def _trigger(options: dict[str, Any]) -> dict[str, Any] | None:
    given = [(key, options[key]) for key in ("expression", "every", "at") if options[key] is not None]
    if len(given) > 1:
        raise click.UsageError("give one of --cron, --every and --at")
    if not given:
        if options["timezone"] is not None:
            raise click.UsageError("--timezone goes with --cron")
        return None
    key, text = given[0]
    trigger = {"kind": _KIND_OF[key], key: text}
    if options["timezone"] is not None:
        if key != "expression":
            raise click.UsageError("--timezone goes with --cron; an interval has no zone, and an instant has its offset")
        trigger["timezone"] = options["timezone"]
    return trigger


def _saved(common: Common, view: ScheduleView, dry_run: bool) -> None:
    """Show what a change made of a schedule: its card and the warnings (contract 4.6)."""
    now = common.now()
    render.item(common, view, details=lambda paint: preview.card(view, paint, now), name=view.id, columns=columns(now))
    preview.say(common, preview.warning_lines(view, now))
    if dry_run and not common.quiet:
        streams.talk("dry run: nothing was changed")


# Changing ---------------------------------------------------------------------------------------------------------------


@command(name="set")
@_schedule_id
@click.argument(
    "assignments", metavar="[KEY=VALUE]...", nargs=-1, help="Fields, dotted below tables: trigger.expression='0 2 * * *'."
)
@click.option("--unset", metavar="KEY", multiple=True, help="Clear this field; may be repeated.")
@click.option(
    "--expected-revision", metavar="N", type=int, help="Refuse if another revision is current (default: the one read now)."
)
@dry_run_option
def set_fields(
    common: Common,
    schedule_id: str,
    assignments: Sequence[str],
    unset: Sequence[str],
    expected_revision: int | None,
    dry_run: bool,
) -> None:
    """Change fields of a schedule.

    wfctl schedule set nightly trigger.expression='0 3 * * *' input.region=eu --unset notes

    A VALUE is JSON when it parses as JSON, else text. Runs that were admitted before keep what they were admitted with.
    """
    if not (assignments or unset):
        raise click.UsageError("say what to change: KEY=VALUE or --unset KEY")
    with common.open() as store:
        current = store.get_schedule(schedule_id=schedule_id)
        changes = _changes(current, [parse.split_pair(text) for text in assignments], unset)
        past = replayed(store, current, changes.fields, common.now()) if common.is_human and not common.quiet else []
        view = store.update_schedule(
            schedule_id=schedule_id,
            expected_revision=(current.revision or 0) if expected_revision is None else expected_revision,
            unset=changes.unset,
            dry_run=dry_run,
            **changes.fields,
        )
    if common.is_human:
        said_of_change(common, current, view, past)
    _saved(common, view, dry_run)


def said_of_change(common: Common, before: ScheduleView, after: ScheduleView, replayed: Sequence[str] = ()) -> None:
    """Say on stderr what a change changes: revision, fields, instants that come and go, and the runs it leaves alone."""
    if common.quiet:
        return
    if after.revision == before.revision:
        streams.talk(f"revision {before.revision} stays: nothing differs")
        return
    fields = difference.field_lines(before.definition or {}, after.definition or {})
    lines = [f"revision {before.revision} -> {after.revision}" + ("" if fields else ": nothing differs")]
    lines += [f"  {line}" for line in fields]
    anchors = (before.anchor, after.anchor)
    found = difference.calendars(before.definition or {}, after.definition or {}, anchors, common.now())
    if found is not None:
        zone = ((after.definition or {}).get("trigger") or {}).get("timezone") or "UTC"
        lines += [f"  {line}" for line in difference.calendar_line(found, zone).splitlines()]
    lines += [f"  {line}" for line in replayed]
    if after.active_runs:
        going = count_of(len(after.active_runs), "run")
        lines.append(f"  {going} in progress not affected (revision {before.revision})")
    streams.talk("\n".join(lines))


def replayed(store: Store, before: ScheduleView, fields: Mapping[str, Any], now: datetime) -> list[str]:
    """Return what the past would have looked like with some fields changed; nothing where that cannot be told."""
    from wfctl.core.definition import schedule_from_plain
    from wfctl.operations.simulating import replay_change

    if not {"overlap", "max_active_runs", "misfire", "lateness"} & set(fields):
        return []
    named = {("deployment" if key == "deployment_id" else key): value for key, value in fields.items()}
    plain = {**(before.definition or {}), **named}
    if plain.get("overlap") not in ("parallel", "allow"):
        plain["max_active_runs"] = None
    try:
        found = replay_change(store.context, before.id, schedule_from_plain(plain))
    except (WfctlError, ValueError):  # what is wrong with the change is for the change itself to say
        return []
    return [] if found is None else difference.replay_lines(*found, now)


def _changes(current: ScheduleView, assignments: Sequence[tuple[str, str]], unset: Sequence[str]) -> parse.Changes:
    definition = dict(current.definition or {})
    kind = _kind_asked(assignments)
    if kind is not None and kind != (definition.get("trigger") or {}).get("kind"):
        definition["trigger"] = {"kind": kind}  # another kind begins with nothing of the old one
    changes = parse.Changes(definition, _TEXTS)
    for key, text in assignments:
        changes.assign(key, text)
    for key in unset:
        changes.remove(key)
    if "deployment" in changes.fields:
        changes.fields["deployment_id"] = changes.fields.pop("deployment")
    return changes


def _kind_asked(assignments: Sequence[tuple[str, str]]) -> str | None:
    """The kind of trigger that KEY=VALUE ask for, by name or by a key that only one kind has."""
    below = [(key.removeprefix("trigger."), text) for key, text in assignments if key.startswith("trigger.")]
    named = [text for key, text in below if key == "kind"]
    if named:
        return named[-1]
    kinds = {_KIND_OF[key] for key, _ in below if key in _KIND_OF and key != "timezone"}
    return kinds.pop() if len(kinds) == 1 else None

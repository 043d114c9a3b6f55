"""`wfctl occurrence show`, `occurrence audit` and `wfctl occurrences`: what became of instants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from wfctl.cli import paging, parse, render, streams, values
from wfctl.cli.base import Common, StoredId, command
from wfctl.cli.paging import paging_options, watch_option
from wfctl.cli.render import Column
from wfctl.cli.style import Paint
from wfctl.cli.text import escape
from wfctl.core import reasons

if TYPE_CHECKING:
    from wfctl.operations.views import AuditView, OccurrenceView

SCHEMA = "wfctl/occurrences.v1"


def name_of(view: OccurrenceView) -> str:
    """Return the name of an occurrence: SCHEDULE@INSTANT."""
    return f"{view.schedule_id}@{values.instant(view.instant)}"


def _span(view: OccurrenceView) -> str:
    if view.span is None:
        return ""
    count = "many" if view.span.count is None else f"{view.span.count:,}"
    return f"{count} instants from {values.instant(view.span.first)} to {values.instant(view.span.last)}"


def why(view: OccurrenceView) -> str:
    """Return why an occurrence stands as it does, in a phrase; empty where there is nothing to say."""
    return "; ".join(part for part in (_span(view), reasons.phrase(view.reason)) if part)


COLUMNS = [
    Column(key="schedule_id", title="SCHEDULE", raw=lambda it: it.schedule_id, keep=True),
    render.instants("instant", "INSTANT (UTC)", lambda it: it.instant, keep=True),
    Column(key="status", title="STATUS", raw=lambda it: it.status, status=True, keep=True),
    Column(key="run_id", title="RUN", raw=lambda it: it.run_id),
    render.durations("lateness_s", "LATE", lambda it: it.lateness_s),
    Column(key="revision", title="REV", raw=lambda it: it.revision, right=True),
    # Where a terminal is narrow, REV and LATE give way: what is not in a list elsewhere is why.
    Column(key="reason", title="WHY", raw=lambda it: it.reason, show=why, free=True, keep=True),
    Column(key="span", title="SPAN", raw=lambda it: it.span and it.span.to_json(), show=_span, extra=True),
    render.instants("recorded_at", "RECORDED (UTC)", lambda it: it.recorded_at, extra=True),
]


@command()
@click.argument("schedule_ids", metavar="[SCHEDULE]...", nargs=-1, type=StoredId("schedule"), help="Only of these schedules.")
@paging_options
@watch_option
def occurrences(
    common: Common, schedule_ids: Sequence[str], limit: int | None, cursor: str | None, everything: bool, status: str | None,
    since: str | None, until: str | None, reverse: bool, is_watching: bool,
) -> None:  # fmt: skip
    """List occurrences, oldest first.

    The one that a schedule holds back stands on top of the first page, as pending. `wfctl help states` explains the statuses.
    With --watch the newest are listed, what is held back last, and then a row is added for each change of an occurrence, with a
    supervisor or without; -o jsonl is the form for programs.
    """
    now = common.now()
    first, last = parse.moment(since, "--since", now), parse.moment(until, "--until", now)
    if is_watching:
        from wfctl.cli import watching

        watching.refuse_paging(cursor, everything, until, reverse)
        _watch(common, schedule_ids, limit, status, first)
        return
    chosen: dict[str, Any] = {"schedule_id": list(schedule_ids) or None, "status": status, "since": first, "until": last}
    from wfctl.operations.listing import list_occurrences

    with common.listing() as context:
        paging.write(
            common,
            lambda size, place: list_occurrences(context, limit=size, cursor=place, reverse=reverse, **chosen),
            COLUMNS,
            schema=SCHEMA,
            name=name_of,
            limit=limit,
            cursor=cursor,
            everything=everything,
            command=paging.line(
                common,
                "occurrences",
                *schedule_ids,
                *(["--reverse"] if reverse else []),
                status=status,
                since=values.instant(first) or None,
                until=values.instant(last) or None,
            ),
        )


def _watch(common: Common, schedule_ids: Sequence[str], limit: int | None, status: str | None, since: Any) -> None:
    from wfctl.cli import watching
    from wfctl.operations.listing import newest_occurrences
    from wfctl.operations.watching import from_now_on

    least = watching.least_widths(common, schedule_ids, longest_status="skipped-overlap")
    rows = render.Growing(common, COLUMNS, schema=SCHEMA, name=name_of, least=least)
    chosen = {"schedule_id": list(schedule_ids) or None, "status": status}
    with common.open() as store:
        newest, changes = from_now_on(
            store,
            lambda context: newest_occurrences(context, since=since, limit=watching.limit_of(limit), **chosen),
            **chosen,
        )
        watching.follow(rows, newest, changes, lambda change: watching.occurrence_row(store, change))


@command()
@click.argument(
    "occurrence", metavar="SCHEDULE@INSTANT", type=StoredId("schedule"), help="Its name, as lists with -o name print it."
)
def show(common: Common, occurrence: str) -> None:
    """Show one occurrence: SCHEDULE@INSTANT.

    It shows what is recorded. `wfctl occurrence explain` says why, for any instant, recorded or not.
    """
    from wfctl.cli import naming

    with common.open() as store:
        schedule_id, at = naming.occurrence(store, occurrence, common.now())
        view = store.get_occurrence(schedule_id=schedule_id, instant=at)
    render.item(common, view, details=lambda paint: _details(view, paint), name=name_of(view), columns=COLUMNS)
    if common.is_human and not common.quiet and view.instant is not None:
        streams.talk(f"why: wfctl occurrence explain {escape(name_of(view))}")


def _details(view: OccurrenceView, paint: Paint) -> str:
    facts = [
        ("why", escape(why(view))),
        ("run", escape(view.run_id or "")),
        ("late", values.duration(view.lateness_s)),
        ("revision", "" if view.revision is None else str(view.revision)),
        ("recorded", values.instant(view.recorded_at)),
    ]
    rest = render.pairs(facts, paint, indent=2)
    return f"{paint(escape(name_of(view)), 'bold')}  {paint.status(view.status)}" + (f"\n{rest}" if rest else "")


@command()
@click.argument("schedule_id", metavar="SCHEDULE", type=StoredId("schedule"), help="The schedule.")
@click.option("--since", metavar="TIME", help="Not before this instant, or this long ago: 2h, 7d.")
@click.option("--strict", is_flag=True, help="Also fail where a part could not be recounted.")
def audit(common: Common, schedule_id: str, since: str | None, strict: bool) -> int:
    """Check that each instant is accounted for once.

    The instants of the calendar, from the schedule's beginning up to what is consumed, are counted anew and held against the
    records. What a clock event withdrew is not counted. Exit status 1: they do not balance; what is wrong is listed.
    """
    first = parse.moment(since, "--since", common.now())
    with common.open() as store:
        view = store.audit_schedule(schedule_id=schedule_id, since=first)
    render.item(common, view, details=lambda paint: _balance(view, paint), name=schedule_id)
    return 0 if view.is_balanced and not (strict and view.unchecked) else 1


def _balance(view: AuditView, paint: Paint) -> str:
    if view.since is None or view.until is None:
        return f"{escape(view.schedule_id)} never was valid: it has no instants"
    lines = [
        ("calendar instants", _number(view.instants)),
        ("from", values.instant(view.since)),
        ("to", values.instant(view.until)),
    ]
    lines += [(status, _number(count)) for status, count in view.counts.items() if count != 0]
    if view.kept:
        lines.append(("kept", f"{view.kept:,} runs of before the clock stepped back, not counted"))
    if view.withdrawn:
        lines.append(("withdrawn", f"{view.withdrawn:,} entries by clock events, not counted"))
    if view.horizon is not None:
        lines.append(("pruned", f"what lies before {values.instant(view.horizon)}, not counted"))
    lines += [
        ("not recounted", f"{values.instant(each.since)} to {values.instant(each.until)}: {escape(each.reason)}")
        for each in view.unchecked
    ]
    lines += [(f"{problem.code}", escape(problem.message)) for problem in view.problems]
    if view.problems_left_out:
        lines.append(("", f"and {view.problems_left_out:,} problems more"))
    verdict = paint("balanced", "green") if view.is_balanced else paint("not balanced", "red")
    return f"{paint(escape(view.schedule_id), 'bold')}  {verdict}\n{render.pairs(lines, paint, indent=2)}"


def _number(count: int | None) -> str:
    return "more than are counted" if count is None else f"{count:,}"

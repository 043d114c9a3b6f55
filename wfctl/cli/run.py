"""`wfctl run show|start|resume|cancel`. The list is in `runs`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from wfctl.cli import parse, prompt, render, streams, values
from wfctl.cli.base import Common, StoredId, command, dry_run_option
from wfctl.cli.logs import Echo, pump_all
from wfctl.cli.runs import FINAL, SCHEMA, columns, ended, occurrence, why
from wfctl.cli.style import Paint, paint_for
from wfctl.cli.text import count_of, escape
from wfctl.core import reasons
from wfctl.errors import InvalidDefinition, PreflightFailed, WfctlError

if TYPE_CHECKING:
    from wfctl.operations.store import Store
    from wfctl.operations.views import ExecutionView, RunView

_RARE = ("LEFT BEHIND", "WHY")  #: columns of the executions of a run that are there only where something stands in them
_run_id = click.argument("run_id", metavar="RUN", type=StoredId("run"), help="The id of the run: run-000001.")


# Looking ----------------------------------------------------------------------------------------------------------------


@command()
@_run_id
def show(common: Common, run_id: str) -> None:
    """Show a run and its executions."""
    now = common.now()
    with common.open() as store:
        view = store.inspect_run(run_id=run_id)
    render.item(common, view, details=lambda paint: _details(view, paint, now), name=view.run_id, columns=columns(now))


def _details(view: RunView, paint: Paint, now: datetime) -> str:
    took = values.elapsed(view.started_at, view.ended_at, None if view.status in FINAL else now)
    facts = [
        ("occurrence", escape(occurrence(view)) if view.schedule_id else ""),
        ("deployment", f"{escape(view.deployment_id)} revision {view.deployment_revision}" if view.deployment_id else ""),
        ("why", escape(why(view))),
        ("attempt", str(view.attempt) if (view.attempt or 1) > 1 else ""),
        ("runs on", escape(_place(view))),
        ("admitted", values.instant(view.admitted_at)),
        ("started", values.instant(view.started_at)),
        ("ended", values.instant(view.ended_at)),
        ("took", values.duration(took)),
        ("exit", ended(view)),
        ("ended after", "" if view.max_run_s is None else values.duration(view.max_run_s)),
        ("input", escape(values.json_cell(view.input or None))),
        ("output", escape(values.json_cell(view.output))),
        ("checkpoint", escape(values.json_cell(view.checkpoint))),
        ("interrupt", escape(values.json_cell(view.interrupt))),
        ("go on with", answer_line(view) if view.status == "interrupted" else ""),
    ]
    head = f"{paint(escape(view.run_id), 'bold')}  {paint.status(view.status)}  {view.kind or ''}"
    trace = [f"  {line}" for line in render.aligned(_trace_rows(view.trace, now))]
    return "\n".join([head, render.pairs(facts, paint, indent=2), *(["", *trace] if view.trace else [])])


def _place(view: RunView) -> str:
    """Where on a cluster it is, and what the cluster says of it."""
    place = view.place
    if place is None:
        return ""
    parts = [str(place["executor"]), *(f"{name} {place[name]}" for name in ("job", "node") if place.get(name))]
    said = place.get("state") or ""
    return " ".join(parts) + (f": {said}" if said else "") + (f" ({place['reason']})" if said and place.get("reason") else "")


def _trace_rows(trace: Sequence[ExecutionView], now: datetime) -> list[list[str]]:
    header = ["K", "STEP", "ATTEMPT", "STARTED (UTC)", "TOOK", "EXIT", "CPU", "PEAK", "LEFT BEHIND", "WHY"]
    rows = [
        [
            str(it.k),
            escape(it.step),
            str(it.attempt),
            values.instant(it.started_at) or "-",
            values.duration(values.elapsed(it.started_at, it.ended_at, now)) or "-",
            ended(it) or "-",
            values.duration(it.cpu_s) or "-",
            values.size(it.max_rss_bytes) or "-",
            str(it.left_behind or "-"),
            escape(reasons.phrase(it.reason)),
        ]
        for it in trace
    ]
    told = [any(row[index] not in ("", "-") for row in rows) or title not in _RARE for index, title in enumerate(header)]
    return [[cell for cell, is_told in zip(row, told, strict=True) if is_told] for row in (header, *rows)]


# Starting ---------------------------------------------------------------------------------------------------------------


@command()
@click.argument("deployment_id", metavar="DEPLOYMENT", type=StoredId("deployment"), help="What to run.")
@click.option("--input", "given", metavar="NAME=VALUE", multiple=True, help="A part of the input; may be repeated.")
@click.option("--input-json", "document", metavar="TEXT|@FILE|@-", help="The input, as JSON.")
@click.option("--detach", is_flag=True, help="Print the run's id and return at once.")
@dry_run_option
def start(common: Common, deployment_id: str, given: Sequence[str], document: str | None, detach: bool, dry_run: bool) -> int:
    """Start a run by hand and follow it.

    What the run writes is passed on, stdout to stdout and stderr to stderr. Exit status 0 when it completed, 1 when it did
    not. Overlap and capacity do not apply to runs started by hand. Ctrl-C stops following, not the run.
    """
    bound = parse.bound_input(given, document)
    with common.open() as store:
        if dry_run:
            return _try_start(common, store, deployment_id, bound)
        view = store.start_run(deployment_id=deployment_id, input=bound, detach=detach)
        if detach:
            _write_run(common, view)
            return 0
        return _stay(common, store, view, "started (by hand: overlap and capacity do not apply)")


def _stay(common: Common, store: Store, view: RunView, began: str, skipped: Sequence[int] = (0, 0)) -> int:
    """Follow a run to its end; whoever leaves earlier leaves it going on."""
    try:
        return _follow(common, store, view, began, skipped)
    except KeyboardInterrupt:
        return _leave(store, view.run_id)
    except streams.ClosedPipe:
        store.hand_over(run_id=view.run_id)
        raise


def _write_run(common: Common, view: RunView) -> None:
    render.item(common, view, details=lambda _: escape(view.run_id), name=view.run_id, columns=columns(common.now()))


def _try_start(common: Common, store: Store, deployment_id: str, bound: dict[str, Any] | None) -> int:
    checks = list(store.check_deployment(deployment_id=deployment_id, input=bound))
    wrong = [it for it in checks if not it.ok]
    if wrong:
        said = "; ".join(f"{it.name}: {it.detail}" for it in wrong)
        raise PreflightFailed(f"a run of {deployment_id} could not start: {said}", {"checks": [it.to_json() for it in wrong]})
    if common.is_program:
        from wfctl.cli.deployment import write_checks

        write_checks(common, checks)
    if not common.quiet:
        streams.talk(f"dry run: a run of {escape(deployment_id)} could start; nothing was changed")
    return 0


def _follow(common: Common, store: Store, view: RunView, began: str, skipped: Sequence[int]) -> int:
    from wfctl.operations.follow import follow

    if not common.quiet:
        streams.talk(f"{view.run_id} {began}")
    out, err = store.run_log_paths(view.run_id)
    # With an answer for programs stdout is taken: what the run writes is left to `run logs`.
    echoes = [] if common.is_program else [Echo(out, start=skipped[0]), Echo(err, to_stderr=True, start=skipped[1])]
    try:
        ended = follow(store, view.run_id, on_idle=lambda: pump_all(echoes))
    finally:
        for echo in echoes:
            echo.finish()
    if common.is_program:
        _write_run(common, ended)
    if not common.quiet:
        streams.talk(outcome(ended))
    return 0 if ended.status == "completed" else 1


def _leave(store: Store, run_id: str) -> int:
    """Ctrl-C ends the following, not the run: a supervisor drives it on, or from here a background process does."""
    where = "under the supervisor" if store.driver_of(run_id) is None else "in the background"
    store.hand_over(run_id=run_id)
    streams.talk(f"\n{run_id} goes on {where}; `wfctl run logs -f {run_id}` follows it, `wfctl run cancel {run_id}` ends it")
    return streams.INTERRUPTED


def outcome(view: RunView) -> str:
    """Return how a run ended, or that it waits, in one line."""
    took = values.duration(values.elapsed(view.started_at, view.ended_at))
    said = f"{view.run_id} {view.status}" + (f" after {took}" if took else "")
    reason = why(view)
    if view.status == "interrupted":
        return f"{escape(said)}: {escape(reason)}; go on with `{answer_line(view)}`"
    return escape(f"{said}: {reason}" if reason else said)


def answer_line(view: RunView) -> str:
    """Return the command that answers a run that waits, with the names that its question requires."""
    schema = (view.interrupt or {}).get("schema") if isinstance(view.interrupt, dict) else None
    known = schema if isinstance(schema, dict) else {}
    required, fields = known.get("required"), known.get("properties")
    kinds = {"boolean": "true", "integer": "0", "number": "0"}
    words = ["wfctl", "run", "resume", view.run_id]
    for name in required if isinstance(required, list) else ():
        field = fields.get(name) if isinstance(fields, dict) else None
        kind = field.get("type") if isinstance(field, dict) else None
        words += ["--input", f"{name}={kinds.get(kind, 'VALUE') if isinstance(kind, str) else 'VALUE'}"]
    return escape(values.command(words))


# Resuming ---------------------------------------------------------------------------------------------------------------


@command()
@click.argument("run_id", metavar="RUN", type=StoredId("run"), help="A run that waits for input.")
@click.option("--input", "given", metavar="NAME=VALUE", multiple=True, help="A part of the input; may be repeated.")
@click.option("--input-json", "document", metavar="TEXT|@FILE|@-", help="The input, as JSON.")
@click.option("--detach", is_flag=True, help="Print the run's id and return at once.")
def resume(common: Common, run_id: str, given: Sequence[str], document: str | None, detach: bool) -> int:
    """Give input to a run that waits for it, and follow it.

    The step that asked runs again, in a new attempt, and finds the input in the file that WFCTL_RESUME names. A scheduled run
    needs the supervisor and a free execution slot. Exit status 0 when the run completed, 1 when it did not.
    """
    bound = parse.bound_input(given, document)
    with common.open() as store:
        before = store.inspect_run(run_id=run_id)
        skipped = [path.stat().st_size if path.exists() else 0 for path in store.run_log_paths(run_id)]
        try:
            view = store.resume_run(run_id=run_id, input=bound, detach=detach)
        except InvalidDefinition:
            if common.is_human and not common.quiet:
                asked = before.interrupt.get("message") if isinstance(before.interrupt, dict) else None
                said = f"{before.run_id} asks: {asked or 'it waits for input'}"
                streams.talk(f"{escape(said)}; answer with `{answer_line(before)}`")
            raise
        if detach:
            _write_run(common, view)
            return 0
        return _stay(common, store, view, f"resumed: attempt {(before.attempt or 0) + 1}", skipped)


# Cancelling -------------------------------------------------------------------------------------------------------------


@command()
@click.argument("run_ids", metavar="RUN...", nargs=-1, required=True, type=StoredId("run"), help="Ids of runs.")
@click.option("--reason", metavar="TEXT", help="Why; it is kept and shown.")
@click.option("--grace", metavar="DURATION", help="How long between TERM and KILL (default: the deployment's kill_grace).")
@dry_run_option
def cancel(common: Common, run_ids: Sequence[str], reason: str | None, grace: str | None, dry_run: bool) -> int:
    """End a run in any unfinished state.

    Its processes get SIGTERM and, after the deployment's kill grace, SIGKILL.
    """
    from wfctl.cli.failure import report

    status = 0
    with common.open() as store:
        views = [store.inspect_run(run_id=name) for name in dict.fromkeys(run_ids)]
        if dry_run:
            return _would_cancel(common, views)
        what = views[0].run_id if len(views) == 1 else count_of(len(views), "run")
        if not prompt.confirm(common, f"Cancel {what}?"):
            return 1
        done: list[RunView] = []
        for view in views:
            try:
                done.append(store.cancel_run(run_id=view.run_id, reason=reason, grace=grace))
            except WfctlError as error:
                if len(views) == 1:
                    raise
                failed = report(error, common, [])
                status = status or failed
    _write_cancelled(common, done)
    return status


def _would_cancel(common: Common, views: Sequence[RunView]) -> int:
    if not common.is_human:
        _write_cancelled(common, views)  # as they stand: nothing was changed
    for view in views if common.is_human else ():
        verb = "is over already:" if view.status in FINAL else "would be cancelled, it is"
        streams.answer(f"{escape(view.run_id)} {verb} {view.status}")
    if not common.quiet:
        streams.talk("dry run: nothing was changed")
    return 0


def _write_cancelled(common: Common, views: Sequence[RunView]) -> None:
    listed = columns(common.now())
    if len(views) == 1:
        render.item(common, views[0], details=lambda paint: _cancelled(views[0], paint), name=views[0].run_id, columns=listed)
    elif common.is_human:
        for view in views:
            streams.answer(_cancelled(view, paint_for(common)))
    else:
        render.page(common, listed, views, schema=SCHEMA, name=lambda it: it.run_id)


def _cancelled(view: RunView, paint: Paint) -> str:
    if view.status == "cancelled":
        return f"{escape(view.run_id)} {paint.status(view.status)}"
    later = "the stop is recorded; it is cancelled once its processes have ended"
    return f"{escape(view.run_id)} {paint.status(view.status)}: {later}"

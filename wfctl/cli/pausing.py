"""`wfctl schedule pause|resume|delete`: whether schedules admit, one or many at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import click

from wfctl.cli import preview, prompt, render, streams, values
from wfctl.cli.base import Common, StoredId, command, dry_run_option
from wfctl.cli.schedules import SCHEMA, columns, remark
from wfctl.cli.style import Paint, paint_for
from wfctl.cli.text import count_of, escape
from wfctl.errors import WfctlError

if TYPE_CHECKING:
    from wfctl.operations.store import Store
    from wfctl.operations.views import ScheduleView

_schedule_ids = click.argument(
    "schedule_ids", metavar="ID...", nargs=-1, required=True, type=StoredId("schedule"), help="Ids of schedules."
)
_ids_or_all = click.argument("schedule_ids", metavar="[ID...]", nargs=-1, type=StoredId("schedule"), help="Ids of schedules.")


@command()
@_ids_or_all
@click.option("--all", "everything", is_flag=True, help="Every schedule that is not paused or finished.")
@click.option("--reason", metavar="TEXT", help="Why; it is kept and shown.")
@dry_run_option
def pause(common: Common, schedule_ids: Sequence[str], everything: bool, reason: str | None, dry_run: bool) -> int:
    """Stop admitting; active runs go on.

    wfctl schedule pause --all --reason maintenance

    What comes due while a schedule is paused is consumed: it is never replayed. Pausing twice is once. Unlike `wfctl drain` a
    pause outlasts the supervisor.
    """
    if everything or not schedule_ids:
        schedule_ids = _all_of(common, schedule_ids, everything, lambda it: it.paused_at is None and it.state != "finished")
        if not schedule_ids:
            return _nothing(common, "no schedule is left to pause")
    is_bulk = everything or len(schedule_ids) > 1
    if is_bulk and not dry_run and not prompt.confirm(common, f"Pause {count_of(len(schedule_ids), 'schedule')}?"):
        return 1

    def said(view: ScheduleView, paint: Paint) -> str:
        trigger = (view.definition or {}).get("trigger") or {}
        if trigger.get("kind") == "oneshot" and view.state == "paused":
            lost = f"{view.id}: a one-shot that passes while it is paused is finished on resume; its instant is {trigger['at']}"
            preview.say(common, [f"warning oneshot-paused: {lost}"])
        going = f"; {count_of(len(view.active_runs), 'run')} going on" if view.active_runs else ""
        done = "would pause" if dry_run else "paused"
        return f"{done} {escape(view.id)} since {values.instant(view.paused_at)}{going}"

    return _each(
        common,
        schedule_ids,
        lambda store, name: store.pause_schedule(schedule_id=name, reason=reason, dry_run=dry_run),
        said,
        dry_run,
    )


@command()
@_ids_or_all
@click.option("--all", "everything", is_flag=True, help="Every schedule that is paused.")
@click.option("--reason", metavar="TEXT", help="With --all: only those that were paused with this reason.")
@dry_run_option
def resume(common: Common, schedule_ids: Sequence[str], everything: bool, reason: str | None, dry_run: bool) -> int:
    """Admit again from now on; nothing is replayed.

    wfctl schedule resume --all --reason maintenance

    Shows the next instants, as `add` does. Resuming twice is once. With --all those to be resumed are listed with the reason
    of their pause; with --reason what somebody else paused stays paused.
    """
    if reason is not None and not everything:
        raise click.UsageError("--reason goes with --all: it chooses by the reason of the pause")

    def is_meant(view: ScheduleView) -> bool:
        return view.paused_at is not None and reason in (None, view.pause_reason)

    if everything or not schedule_ids:
        schedule_ids = _all_of(common, schedule_ids, everything, is_meant)
        if not schedule_ids:
            return _nothing(common, "no schedule is paused" + (f" with the reason {reason!r}" if reason is not None else ""))
    is_bulk = everything or len(schedule_ids) > 1
    if is_bulk and not dry_run and not prompt.confirm(common, f"Resume {count_of(len(schedule_ids), 'schedule')}?"):
        return 1
    now = common.now()
    shown: list[ScheduleView] = []

    def said(view: ScheduleView, paint: Paint) -> str:
        if everything:
            return f"{'would resume' if dry_run else 'resumed'} {escape(view.id)}, {_coming(view, now)}"
        shown.append(view)
        return preview.card(view, paint, now)

    status = _each(
        common, schedule_ids, lambda store, name: store.resume_schedule(schedule_id=name, dry_run=dry_run), said, dry_run
    )
    for view in shown:
        preview.say(common, preview.warning_lines(view, now))
    return status


def _all_of(common: Common, named: Sequence[str], everything: bool, is_meant: Callable[[ScheduleView], bool]) -> list[str]:
    """The ids that --all stands for; for people they are listed on stderr, for a question about them follows."""
    if named:
        raise click.UsageError("give ids or --all, not both")
    if not everything:
        raise click.UsageError("name schedules, or --all")
    with common.open() as store:
        found = [view for view in store.list_schedules().items if is_meant(view)]
    if common.is_human and not common.quiet:
        width = max((len(view.id) for view in found), default=0)
        for view in found:
            streams.talk(f"  {escape(view.id).ljust(width)}  {escape(remark(view)) if view.paused_at else view.state}")
    return [view.id for view in found]


def _nothing(common: Common, said: str) -> int:
    if not common.is_human:
        render.page(common, columns(common.now()), [], schema=SCHEMA, name=lambda it: it.id)
    elif not common.quiet:
        streams.talk(escape(said))
    return 0


def _coming(view: ScheduleView, now: datetime) -> str:
    if view.next_instant is None:
        return f"{view.state}: nothing comes"
    return f"next {values.relative(view.next_instant, now)} ({values.instant(view.next_instant)})"


@command()
@_schedule_ids
@dry_run_option
def delete(common: Common, schedule_ids: Sequence[str], dry_run: bool) -> int:
    """Delete a schedule; its history stays.

    Active runs go on, runs and occurrences stay readable, and the id can never be used again. Deleting twice is once.
    """
    with common.open() as store:
        for name in schedule_ids:
            store.get_schedule(schedule_id=name)
    what = f"schedule {schedule_ids[0]}" if len(schedule_ids) == 1 else count_of(len(schedule_ids), "schedule")
    if not dry_run and not prompt.confirm(common, f"Delete {what}? Its history stays, its id cannot be used again."):
        return 1

    def said(view: ScheduleView, paint: Paint) -> str:
        going = f"; {count_of(len(view.active_runs), 'run')} going on" if view.active_runs else ""
        done = "would delete" if dry_run else "deleted"
        return f"{done} {escape(view.id)}; its history is kept, its id is retired{going}"

    return _each(
        common, schedule_ids, lambda store, name: store.delete_schedule(schedule_id=name, dry_run=dry_run), said, dry_run
    )


def _each(
    common: Common,
    names: Sequence[str],
    change: Callable[[Store, str], ScheduleView],
    said: Callable[[ScheduleView, Paint], str],
    dry_run: bool,
) -> int:
    """Change several schedules; what fails is reported and the others are done. Return the first failure's exit status."""
    from wfctl.cli.failure import report

    done: list[ScheduleView] = []
    status = 0
    with common.open() as store:
        for name in dict.fromkeys(names):
            try:
                done.append(change(store, name))
            except WfctlError as error:
                if len(names) == 1:
                    raise
                failed = report(error, common, [])
                status = status or failed
    if common.is_human:
        for view in done:
            streams.answer(said(view, paint_for(common)))
    elif len(names) == 1:
        view = done[0]
        render.item(common, view, details=lambda paint: said(view, paint), name=view.id, columns=columns(common.now()))
    else:
        render.page(common, columns(common.now()), done, schema=SCHEMA, name=lambda it: it.id)
    if dry_run and not common.quiet:
        streams.talk("dry run: nothing was changed")
    return status

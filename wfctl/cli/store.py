"""`wfctl store info` and `wfctl store verify`: what is in a store, and whether all of it agrees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from wfctl.cli import render, streams, values
from wfctl.cli.base import Common, StoredId, command, dry_run_option
from wfctl.cli.completing import CONTRADICTION
from wfctl.cli.style import Paint
from wfctl.cli.text import count_of, escape

if TYPE_CHECKING:
    from wfctl.operations.views import ContradictionView, InfoView, RecordsView, VerifyView


@command()
def info(common: Common) -> None:
    """Show what the store holds, how large it is, and who owns it."""
    with common.open() as store:
        view = store.store_info()
    render.item(common, view, details=lambda paint: _info(view, paint), name=view.path)


def _info(view: InfoView, paint: Paint) -> str:
    owner = view.owner
    facts = [
        ("store", escape(view.path)),
        ("id", escape(view.store_id)),
        ("format", str(view.format)),
        ("holds", f"{count_of(view.schedules, 'schedule')}, {count_of(view.deployments, 'deployment')}"),
        ("history", f"{count_of(view.occurrences, 'occurrence')}, {count_of(view.runs, 'run')}"),
        ("ledger", values.size(view.ledger_bytes)),
        ("runs", values.size(view.runs_bytes)),
        ("artifacts", values.size(view.artifacts_bytes)),
        ("replaced", f"{values.size(view.replaced_bytes)}, in before-restore-*" if view.replaced_bytes else ""),
        ("owner", "none" if owner is None else f"the supervisor with pid {owner['pid']} on {escape(str(owner['host']))}"),
        ("oldest", values.instant(view.oldest)),
    ]
    return render.pairs(facts, paint)


@command()
@click.argument(
    "names",
    metavar="[SCHEDULE|RUN]...",
    nargs=-1,
    type=StoredId("schedule", "run"),
    help="Only what is about these schedules and runs.",
)
@click.option("--deep", is_flag=True, help="Check every saved revision and pinned file by its digest, too.")
@click.option(
    "--fix",
    metavar="CODE",
    type=CONTRADICTION,
    multiple=True,
    help="Carry out the remedy of this code for what is named. May be repeated.",
)
@click.option(
    "--fix-safe", is_flag=True, help="Carry out the remedies that admit nothing and free no slot; unblock what agrees."
)
@dry_run_option
def verify(common: Common, names: Sequence[str], deep: bool, fix: Sequence[str], fix_safe: bool, dry_run: bool) -> int:
    """Check that all records agree, and say what to do where they do not.

    Records that contradict each other block their schedule, and only it. Each contradiction has one remedy, which is carried
    out only when it is asked for: --fix CODE NAME. A damaged ledger is left as it is. Exit status 1: something does not agree.
    """
    with common.open() as store:
        view = store.verify_store(names=names, deep=deep, fix=fix, fix_safe=fix_safe, dry_run=dry_run)
    render.item(common, view, details=lambda paint: _verified(view, paint), name="ok" if view.ok else "not-ok")
    if dry_run and not common.quiet:
        streams.talk("dry run: nothing was changed")
    return 0 if view.ok and all(each.ok for each in view.fixed) else 1


def _verified(view: VerifyView, paint: Paint) -> str:
    lines = [_record_line(each, paint) for each in view.records]
    for fixed in view.fixed:
        lines.append(f"{paint.mark(fixed.ok)} {escape(fixed.code)}: {escape(fixed.detail)}")
    for each in view.contradictions:
        lines += _contradiction_lines(each, paint)
    lines += [f"{paint.mark(False)} {escape(said)}" for said in view.problems]
    lines += [f"{paint('NOTE', 'yellow')} {escape(said)}" for said in view.notes]
    if not lines:
        lines = [f"{paint.mark(True)} all records agree"]
    return "\n".join(lines)


def _record_line(each: RecordsView, paint: Paint) -> str:
    wrong = f", {count_of(each.problems, 'contradiction')}" if each.problems else ""
    return f"{paint.mark(not each.problems)} {escape(each.name)}: {each.count}{wrong}"


def _contradiction_lines(each: ContradictionView, paint: Paint) -> list[str]:
    where = (
        f"schedule {each.schedule_id}" if each.schedule_id else f"deployment {each.deployment_id}" if each.deployment_id else ""
    )
    head = f"{paint.mark(False)} {paint(escape(each.code), 'bold')}" + (f" {escape(where)}" if where else "")
    lines = [f"{head}: {escape(each.message)}", f"    rows: {escape(', '.join(each.rows))}"]
    if each.command is None:
        return [*lines, "    nothing is decided by it any more; a backup has it as it was"]
    return [*lines, f"    remedy: {escape(each.command)}", f"            {escape(each.remedy)}"]

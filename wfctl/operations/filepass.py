"""Whether the definition files are as the ledger knows them (contract 2.3).

For a list they nearly always are, so this is one pass over the names; what takes a changed file up is loaded for one alone.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from wfctl.operations.context import Context
from wfctl.store.filescan import Signature, compare
from wfctl.store.layout import Kind
from wfctl.store.ledger import definitions
from wfctl.value import Value

KINDS: tuple[Kind, ...] = ("deployment", "schedule")  #: deployments first: schedules name them

Progress = Callable[[], None]


class Pass(Value):
    """What one pass over the files of a kind found."""

    changed: dict[str, Signature]  #: by id: files that are not as the ledger noted them, or are to be looked at anyway
    gone: list[str]
    foreign: list[str]  #: names that no definition can have


def look(context: Context, kind: Kind) -> Pass:
    """Compare the files of a kind with what the ledger noted of them; nothing is opened."""
    noted = definitions.noted_files(context.ledger.connection, kind)
    try:
        changed, foreign = compare(context.layout, kind, noted)
    except FileNotFoundError:  # the whole directory is gone: every file of it is
        changed, foreign = {}, []
    return Pass(changed=changed, gone=[name.removesuffix(".toml") for name in noted], foreign=foreign)


def everything(context: Context, *, settled_for: timedelta | None = None, on_progress: Progress | None = None) -> list[str]:
    """Bring ledger and files of all definitions together; return what is to be reported and was ignored.

    Only files whose signature changed are opened. `settled_for`: leave files alone that changed more recently than this.
    `on_progress` is called again and again while there is much to take up.
    """
    return look_over(context, settled_for, on_progress)[1]


def look_over(
    context: Context, settled_for: timedelta | None, on_progress: Progress | None = None
) -> tuple[timedelta | None, list[str]]:
    """As `everything`; return also how long ago the youngest of the files changed that were left alone, None where none was."""
    ignored: list[str] = []
    ages: list[timedelta] = []
    for kind in KINDS:
        seen = look(context, kind)
        ignored += [
            f"{context.layout.definitions(kind) / name} is ignored: no definition can have that name" for name in seen.foreign
        ]
        if seen.changed or seen.gone:
            from wfctl.operations import reconcile

            youngest, reports = reconcile.take_up(context, kind, seen, settled_for, on_progress)
            ignored += reports
            ages += [] if youngest is None else [youngest]
    return min(ages, default=None), ignored

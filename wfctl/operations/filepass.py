"""Whether the definition files are as the ledger knows them (contract 2.3).

For a list they nearly always are, so this is one pass over the names; what takes a changed file up is loaded for one alone.
"""

from __future__ import annotations

from datetime import timedelta

from wfctl.operations.context import Context
from wfctl.store.filescan import Signature, scan
from wfctl.store.layout import Kind
from wfctl.store.ledger import definitions
from wfctl.value import Value

KINDS: tuple[Kind, ...] = ("deployment", "schedule")  #: deployments first: schedules name them


class Pass(Value):
    """What one pass over the files of a kind found."""

    changed: dict[str, Signature]  #: by id: files that are not as the ledger noted them, or are to be looked at anyway
    gone: list[str]
    foreign: list[str]  #: names that no definition can have


def look(context: Context, kind: Kind) -> Pass:
    """Compare the files of a kind with what the ledger noted of them; nothing is opened."""
    try:
        found, foreign = scan(context.layout, kind)
    except FileNotFoundError:  # the whole directory is gone: every file of it is
        found, foreign = {}, []
    known = definitions.signatures(context.ledger.connection, kind)
    return Pass(
        changed={
            name: signature
            for name, signature in found.items()
            if (seen := known.get(name)) is None or seen[1] or seen[0] != signature
        },
        gone=[name for name, (noted, needs_look) in known.items() if name not in found and (noted is not None or needs_look)],
        foreign=foreign,
    )


def everything(context: Context, *, settled_for: timedelta | None = None) -> list[str]:
    """Bring ledger and files of all definitions together; return what is to be reported and was ignored.

    Only files whose signature changed are opened. `settled_for`: leave files alone that changed more recently than this.
    """
    ignored: list[str] = []
    for kind in KINDS:
        seen = look(context, kind)
        ignored += [
            f"{context.layout.definitions(kind) / name} is ignored: no definition can have that name" for name in seen.foreign
        ]
        if seen.changed or seen.gone:
            from wfctl.operations import reconcile

            ignored += reconcile.take_up(context, kind, seen, settled_for)
    return ignored

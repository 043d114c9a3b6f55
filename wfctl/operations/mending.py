"""The file of a definition that blocks it: what somebody starts from who mends it, and taking the text (contract 2.3)."""

from __future__ import annotations

from dataclasses import dataclass

from wfctl.errors import InvalidDefinition, Problem, RevisionConflict
from wfctl.operations import reconcile
from wfctl.operations.context import Context
from wfctl.store.definitions import read_definition_file
from wfctl.store.layout import Kind
from wfctl.store.ledger import definitions


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenFile:
    """A definition's file that cannot be taken up, or is gone."""

    text: str  #: what stands in it; of one that is gone the last revision
    is_gone: bool
    error: InvalidDefinition  #: what is wrong, with lines where they are known
    seen: bytes | None  #: its content


def broken_file(context: Context, kind: Kind, name: str) -> BrokenFile | None:
    """Return the file that blocks a definition; None where none does, or where it is no file that a text could mend."""
    row = definitions.find(context.ledger.connection, kind, name)
    found = None if row is None else row.diagnostic
    if row is None or found is None or row.deleted_at is not None or definitions.is_contradicted(found):
        return None
    state = read_definition_file(context.layout, kind, name)
    if state.problem is not None or found.get("code") == "calendar":
        return None
    if state.content is None:
        last = definitions.revision(context.ledger.connection, row.number, row.revision)
        if last is None:
            return None
        said = f"the file of {kind} {name} is gone; below is revision {row.revision}: save it to put it back"
        return BrokenFile(text=last.content, is_gone=True, error=InvalidDefinition(said), seen=None)
    listed = found.get("problems")
    problems = [
        Problem(str(it.get("path") or ""), str(it.get("message")), it.get("line"))
        for it in (listed if isinstance(listed, list) else [])
        if isinstance(it, dict)
    ]
    error = InvalidDefinition(str(found.get("message")), problems=problems)
    text = state.content.decode("utf-8", "surrogateescape")
    return BrokenFile(text=text, is_gone=False, error=error, seen=state.content)


def mend(context: Context, kind: Kind, name: str, broken: BrokenFile, content: bytes, *, dry_run: bool = False) -> None:
    """Put a text into the file in place of what is broken there, and take it up as an edit by hand.

    Raise what is wrong with the text, or RevisionConflict where the file was changed meanwhile; nothing is changed then.
    """
    reconcile.try_out(context, kind, name, content)
    if dry_run:
        return
    with context.ledger.transaction():  # held, so that no other command writes the file in between
        if read_definition_file(context.layout, kind, name).content != broken.seen:
            path = context.layout.definition(kind, name)
            raise RevisionConflict(f"somebody changed {path} meanwhile; nothing was changed", {"path": str(path)})
        context.disk.write_file(context.layout.definition(kind, name), content)
    reconcile.one(context, kind, name)

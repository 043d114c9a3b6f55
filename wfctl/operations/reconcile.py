"""Taking up what was done to definition files by hand (contract 2.3, 2.4, 2.9, 3.5).

Whoever looks first records it: any command on that definition at once, a supervisor once the file has been left alone for a
second. What cannot be read, parsed or trusted blocks that one schedule and says why; nothing is repaired silently.
"""

from __future__ import annotations

import contextlib
import errno
import time
from collections.abc import Iterable, Sequence
from datetime import timedelta

from wfctl.core.definition import is_valid_id
from wfctl.errors import IoError
from wfctl.operations import takeup
from wfctl.operations.context import Context, DryRun
from wfctl.operations.filepass import KINDS as KINDS
from wfctl.operations.filepass import Pass, Progress
from wfctl.operations.filepass import everything as everything
from wfctl.operations.filepass import look_over as look_over
from wfctl.operations.saving import finish_write, remove_leftover
from wfctl.operations.takeup import File
from wfctl.store import definitions as files
from wfctl.store.definitions import FileState
from wfctl.store.layout import Kind
from wfctl.store.ledger import definitions

Named = tuple[Kind, str]
SETTLED_AFTER = timedelta(seconds=1)  #: a supervisor takes a file once it has been unchanged for so long


def one(context: Context, kind: Kind, name: str) -> None:
    """Bring ledger and file of one definition together, whatever the file's age. Raise IoError when a write is refused."""
    if not is_valid_id(name):
        return
    file = takeup.read(context, kind, name, definitions.find(context.ledger.connection, kind, name))
    if file.is_half_written:
        _finish(context, file)
    elif not file.is_as_noted and not file.is_closed:
        takeup.take_up(context, [file])


def _finish(context: Context, file: File) -> None:
    """Finish the write of a change that is committed. Raise IoError when it is refused."""
    finish_write(context, file.kind, file.name)
    if file.row is not None and file.row.diagnostic is not None:  # it was blocked before the write could be finished
        with context.ledger.transaction() as connection:
            takeup.unblock(context, connection, file.row)


def these(context: Context, named: Iterable[Named], *, settled_for: timedelta) -> tuple[timedelta | None, list[str]]:
    """As `everything`, for some definitions, and for all that are blocked, whatever they lacked, or whose write is unfinished.

    Return how long ago the youngest of the files changed that are not taken up, None where there is none, and what is to be
    reported.
    """
    ages: list[timedelta] = []
    chosen: dict[Kind, list[str]] = {kind: [] for kind in KINDS}  # deployments first: schedules name them
    blocked = {(row.kind, row.id) for row in definitions.blocked(context.ledger.connection)}
    unfinished = definitions.unwritten(context.ledger.connection)
    for kind, name in sorted({*named, *blocked, *unfinished}):
        row = definitions.find(context.ledger.connection, kind, name)
        signature = files.signature_at(context.layout.definition(kind, name))
        is_as_noted = row is not None and row.signature == signature and row.is_written and row.diagnostic is None
        if is_as_noted and row is not None and row.deleted_at is None:
            continue
        if signature is not None and (row is None or row.deleted_at is None):
            age = _age(signature)
            if row is None or row.signature != signature:
                ages.append(age)
            if age < settled_for:
                continue
        if row is not None or signature is not None:
            chosen[kind].append(name)
    ignored = [report for kind, names in chosen.items() for report in _look_again(context, kind, names)]
    return min(ages) if ages else None, ignored


def take_up(
    context: Context, kind: Kind, seen: Pass, settled_for: timedelta | None, on_progress: Progress | None
) -> tuple[timedelta | None, list[str]]:
    """Look at the files that a pass found changed or gone, as `look_over` says; return the youngest age and the reports."""
    ages: list[timedelta] = []
    chosen: list[str] = []
    deleted = definitions.deleted_ids(context.ledger.connection, kind) if settled_for is not None else frozenset()
    for name, signature in seen.changed.items():
        if settled_for is not None and name not in deleted and (age := _age(signature)) < settled_for:
            ages.append(age)
        else:
            chosen.append(name)
    return min(ages, default=None), _look_again(context, kind, [*chosen, *seen.gone], on_progress)


def _look_again(context: Context, kind: Kind, names: Sequence[str], on_progress: Progress | None = None) -> list[str]:
    """Take up these files, many at a time; return what is to be reported and was ignored."""
    ignored: list[str] = []
    seen_at, foresee = context.now(), takeup.Foreseen()
    for batch in takeup.read_all(context, kind, names):
        taken = []
        for file in batch:
            if file.row is not None and file.row.deleted_at is not None:
                report = remove_leftover(context, kind, file.row)
            elif file.is_half_written:
                report = _finish_or_report(context, file)
            else:
                report = None
                taken.append(file)
            ignored += [] if report is None else [report]
        takeup.take_up(context, taken, seen_at=seen_at, foresee=foresee)
        if on_progress is not None:
            on_progress()
    return ignored


def _finish_or_report(context: Context, file: File) -> str | None:
    try:
        _finish(context, file)
    except IoError as error:
        if error.data.get("errno") not in _REFUSED:
            raise
        return f"{error.message}; the change is saved, and its file is written as soon as that can be"  # the others go on
    return None


_REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT)


def _age(signature: files.Signature) -> timedelta:
    """Return how long ago a file was changed, replaced or renamed: what its owner says of it does not count."""
    changed_ns = signature[1]
    return timedelta(microseconds=max(0, time.time_ns() - changed_ns) // 1000)  # of the file system, not of the store's clock


def clear_deleted(context: Context, kind: Kind, name: str) -> str | None:
    """Remove the file of a deleted definition; return what to report when it is not the one that was deleted."""
    row = definitions.find(context.ledger.connection, kind, name)
    return remove_leftover(context, kind, row) if row is not None and row.deleted_at is not None else None


def try_out(context: Context, kind: Kind, name: str, content: bytes) -> None:
    """Raise what would be wrong with a content as the file of a definition that is there; nothing is kept."""
    with contextlib.suppress(DryRun), context.ledger.transaction() as connection:
        row = definitions.find(connection, kind, name)
        if row is not None:
            file = takeup.file_of(kind, name, None, FileState(content=content))  # read whatever was known
            takeup.save_edit(context, connection, row, file, context.now())
        raise DryRun(None)

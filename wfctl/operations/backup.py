"""`store backup`: a store as it is at one moment, while its supervisor goes on (contract 11).

The ledger is copied first, by SQLite's own online backup; what follows is read after that moment, and chosen so that it fits
it. Nothing is locked and nothing written in the store, so no admission waits for this.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import socket
import sqlite3
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from wfctl.core.definition import is_valid_id
from wfctl.core.model import run_name, run_number
from wfctl.errors import DamagedStore
from wfctl.operations.context import Context
from wfctl.operations.manifest import MANIFEST, Manifest
from wfctl.operations.views import BackupView
from wfctl.store import definitions as files
from wfctl.store.archive import ArchiveWriter
from wfctl.store.definitions import FileState
from wfctl.store.layout import Kind
from wfctl.store.ledger import copies, definitions
from wfctl.store.ledger.copies import CopyFacts
from wfctl.store.ledger.definitions import DefinitionRow
from wfctl.store.ledger.rows import UnreadableRow

KINDS: tuple[Kind, ...] = ("schedule", "deployment")
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER = _READ | os.O_DIRECTORY
_OF_PROCESSES = re.compile(r"driver|keeper\.\d+\.(?:lock|sock)", re.ASCII)  #: of a run directory: what only the living need
_HEX = re.compile(r"[0-9a-f]{64}", re.ASCII)
_NAMED = 5  #: of what was left out, so many are named
_DEEPEST = 100  #: directories within each other that a job's are followed into


@dataclass(slots=True)
class _Task:
    context: Context
    copy: sqlite3.Connection  #: of the ledger as it was
    writer: ArchiveWriter
    left_out: list[str] = field(default_factory=list)
    count_left_out: int = 0

    def leave_out(self, name: str, why: str) -> None:
        """Note what is not in the backup; of many, the first few are named."""
        self.count_left_out += 1
        if len(self.left_out) < _NAMED:
            self.left_out.append(f"left out: {name}, {why}")

    def notes(self) -> tuple[str, ...]:
        """Return what to tell."""
        more = self.count_left_out - len(self.left_out)
        return (*self.left_out, *((f"left out: {more} more of that kind",) if more else ()))


def write_backup(context: Context, target: IO[bytes], scratch: Path, *, name: str, is_compressed: bool) -> BackupView:
    """Write a backup of an open store into an open file; return what it shows.

    `scratch`: a directory for the copy of the ledger, whose name is gone before anything is written. `name`: what the file is
    called, `-` for a pipe. Raise DamagedStore for a ledger of which no sound copy can be made, IoError, OSError.
    """
    taken_at = context.now()
    with _snapshot(context, scratch / "ledger.db") as (descriptor, copy, facts):
        manifest = Manifest(
            store_id=facts.store_id or "",
            path=str(context.layout.root),
            host=socket.gethostname(),
            version=_version(),
            ledger_format=facts.format,
            taken_at=taken_at,
            ledger_bytes=os.fstat(descriptor).st_size,
            ledger_sha256=_sha256(descriptor),
            schedules=len(facts.schedules),
            deployments=len(facts.deployments),
            occurrences=facts.occurrences,
            runs=facts.runs,
        )
        writer = ArchiveWriter(target, is_compressed=is_compressed, is_synced=name != "-")
        task = _Task(context, copy, writer)
        try:
            writer.add_bytes(MANIFEST, manifest.to_bytes(), mtime=taken_at.timestamp())
            writer.add_file("ledger.db", descriptor)
            _add_everything(task)
            writer.finish()
        except BaseException:
            writer.give_up()
            raise
    return BackupView(
        backup=name,
        bytes=None,
        is_compressed=is_compressed,
        path=manifest.path,
        store_id=manifest.store_id,
        taken_at=taken_at,
        schedules=manifest.schedules,
        deployments=manifest.deployments,
        occurrences=manifest.occurrences,
        runs=manifest.runs,
        notes=task.notes(),
    )


@contextlib.contextmanager
def _snapshot(context: Context, path: Path) -> Iterator[tuple[int, sqlite3.Connection, CopyFacts]]:
    """Give a sound copy of the ledger: open to be read, as a connection, and what it holds."""
    try:
        copies.take_snapshot(context.ledger.path, path)
        try:
            copies.check_copy(path)
            facts = copies.facts_of(path)
        except DamagedStore as error:
            raise DamagedStore(f"{context.ledger.path}: {error.message}; no backup was made", error.data) from error
        with _opened(path, _READ) as descriptor, copies.opened(path) as copy:
            path.unlink()  # both have it open: whatever ends us from here on leaves nothing behind
            yield descriptor, copy, facts
    finally:
        path.unlink(missing_ok=True)


def _version() -> str:
    from wfctl import __version__

    return __version__


def _sha256(descriptor: int) -> str:
    with open(os.dup(descriptor), "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# Definitions ------------------------------------------------------------------------------------------------------------


def _add_everything(task: _Task) -> None:
    _add_settings(task)
    for kind in KINDS:
        _add_definitions(task, kind)
    _add_artifacts(task)
    _add_runs(task)


def _add_settings(task: _Task) -> None:
    if os.path.lexists(task.context.layout.settings):
        with _opened(task.context.layout.root, _FOLDER) as folder:
            _add_entry(task, folder, "wfctl.toml", "wfctl.toml")


def _add_definitions(task: _Task, kind: Kind) -> None:
    """Add the files of a kind as they belong to the copy of the ledger."""
    rows = {row.id: row for row in definitions.list_all(task.copy, kind)}
    try:
        there = set(files.scan_definitions(task.context.layout, kind))
        foreign = files.foreign_files(task.context.layout, kind)
    except FileNotFoundError:
        there, foreign = set(), []
    for name in foreign:
        task.leave_out(f"{kind}s/{name}", "which is no definition")
    for name in sorted(there | rows.keys()):
        if not is_valid_id(name):
            continue
        content = _content_of(task, kind, name, rows.get(name))
        if content is not None:
            task.writer.add_bytes(f"{kind}s/{name}.toml", content)


def _content_of(task: _Task, kind: Kind, name: str, row: DefinitionRow | None) -> bytes | None:
    """Return what a definition's file is to hold, so that a store put back stands where the ledger's copy does (2.4).

    A file that holds any revision, of before or after, gives way to the one of the copy; an edit by hand that nobody has seen
    yet stays one.
    """
    state = files.read_definition_file(task.context.layout, kind, name)
    wanted = None
    if row is not None and row.deleted_at is None and row.revision:
        with contextlib.suppress(UnreadableRow):
            found = definitions.revision(task.copy, row.number, row.revision)
            wanted = None if found is None else found.content.encode()
    live = _live_row(task, kind, name)
    if state.content is None:
        return _content_for_missing(task, state, row, wanted, live, f"{kind}s/{name}.toml")
    if row is None and live is not None:
        return None  # made since
    if row is not None and _is_revision(task, row, state.content):
        return wanted
    return state.content


def _content_for_missing(
    task: _Task, state: FileState, row: DefinitionRow | None, wanted: bytes | None, live: DefinitionRow | None, name: str
) -> bytes | None:
    """A file that is not there was deleted since, or is still to be written; or it was taken away by hand, and that blocks."""
    if not state.is_missing:
        task.leave_out(name, "which cannot be trusted or read")
        return None
    is_deleted_since = live is not None and live.deleted_at is not None
    return wanted if is_deleted_since or (row is not None and not row.is_written) else None


def _live_row(task: _Task, kind: Kind, name: str) -> DefinitionRow | None:
    with contextlib.suppress(UnreadableRow), task.context.ledger.reading() as connection:
        return definitions.find(connection, kind, name)
    return None


def _is_revision(task: _Task, row: DefinitionRow, content: bytes) -> bool:
    """Tell whether a content was ever saved under that id, by the copy or since: a save is committed before it is written."""
    digest = files.digest(content)
    query = "SELECT 1 FROM revisions WHERE definition = ? AND digest = ? LIMIT 1"
    with task.context.ledger.reading() as live:
        return any(each.execute(query, (row.number, digest)).fetchone() is not None for each in (task.copy, live))


# Artifacts and runs -----------------------------------------------------------------------------------------------------


def _add_artifacts(task: _Task) -> None:
    with contextlib.suppress(FileNotFoundError), _opened(task.context.layout.artifacts, _FOLDER) as folder:
        for name in sorted(os.listdir(folder)):  # noqa: PTH208 - by descriptor
            if _HEX.fullmatch(name):
                _add_entry(task, folder, name, f"artifacts/{name}")


def _add_runs(task: _Task) -> None:
    """Add the directories of the runs that the ledger's copy knows; one that is let go meanwhile is none any more."""
    with contextlib.suppress(FileNotFoundError), _opened(task.context.layout.runs, _FOLDER) as folder:
        there = {number for name in os.listdir(folder) if (number := run_number(name)) is not None}  # noqa: PTH208
        for number in copies.run_numbers(task.copy):
            if number in there:
                _add_entry(task, folder, run_name(number), f"runs/{run_name(number)}")


def _add_entry(task: _Task, folder: int, name: str, path: str) -> None:
    """Add what has that name in an open directory: a file, a directory with all in it, or a job's link; nothing is followed."""
    depth = path.count("/")
    try:
        kind = stat.S_IFMT(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
        if kind == stat.S_IFLNK and depth > 2 and path.split("/")[2] == "work":
            target = os.readlink(name, dir_fd=folder)
        elif kind not in (stat.S_IFREG, stat.S_IFDIR) or depth > _DEEPEST:
            task.leave_out(path, "which is no file, or lies too deep")
            return
        else:
            descriptor = os.open(name, _FOLDER if kind == stat.S_IFDIR else _READ, dir_fd=folder)
    except FileNotFoundError:
        return  # gone meanwhile
    except OSError as error:
        task.leave_out(path, f"which cannot be read: {error.strerror}")
        return
    if kind == stat.S_IFLNK:
        task.writer.add_link(path, target)
        return
    with _closing(descriptor):
        if kind == stat.S_IFREG and stat.S_ISREG(os.fstat(descriptor).st_mode):
            task.writer.add_file(path, descriptor)
        elif kind == stat.S_IFDIR:
            task.writer.add_directory(path, stat.S_IMODE(os.fstat(descriptor).st_mode) & 0o777)
            for each in sorted(os.listdir(descriptor)):  # noqa: PTH208
                if not (depth == 1 and _OF_PROCESSES.fullmatch(each)):
                    _add_entry(task, descriptor, each, f"{path}/{each}")


@contextlib.contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    descriptor = os.open(path, flags)
    with _closing(descriptor):
        yield descriptor


@contextlib.contextmanager
def _closing(descriptor: int) -> Iterator[None]:
    try:
        yield
    finally:
        os.close(descriptor)

"""`wfctl store backup` and `wfctl store restore`: a store as one file, and back."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from wfctl.cli import prompt, render, streams, values
from wfctl.cli.base import Common, DirectoryPath, command, dry_run_option, quieten_logs
from wfctl.cli.text import count_of, escape
from wfctl.errors import CannotCreate, InvalidArgument, IoError, NotAllowed, NotFound

if TYPE_CHECKING:
    from wfctl.operations.views import BackupView, RestoreView

_COMPRESSED = (".gz", ".tgz")


@command()
@click.argument("file", metavar="FILE|-", type=click.Path(), help="The file to write, or - for stdout.")
@click.option("--gzip", "is_compressed", is_flag=True, help="Compress it; a FILE that ends in .gz or .tgz always is.")
def backup(common: Common, file: str, is_compressed: bool) -> None:
    """Write everything that the store holds into one file.

    It shows one moment, and the supervisor may run meanwhile: no admission waits for it. In it are the ledger, the definitions,
    pinned files, settings, and what runs wrote: a tar of mode 0600. `wfctl store restore FILE --dry-run` checks it.
    """
    is_compressed = is_compressed or file.endswith(_COMPRESSED)
    with _ended_in_order():
        if file == "-":
            _backup_to_stdout(common, is_compressed=is_compressed)
            return
        view = _backup_to_file(common, Path(file), is_compressed=is_compressed)
    render.item(common, view, details=lambda _: _backed_up(view), name=file)


def _backup_to_stdout(common: Common, *, is_compressed: bool) -> None:
    """stdout is the backup; what is said of it goes to stderr."""
    if sys.stdout.isatty():
        raise InvalidArgument("a backup is not for a terminal; send it on: `wfctl store backup - | ssh HOST 'cat > FILE'`")
    common.own_root()  # root is that user before anything is made (2.7)
    with tempfile.TemporaryDirectory(prefix="wfctl-backup-") as scratch:
        try:
            view = _take(common, sys.stdout.buffer, Path(scratch), name="-", is_compressed=is_compressed)
        except BrokenPipeError:
            raise streams.ClosedPipe from None
    if common.output in ("json", "jsonl"):
        streams.talk(render.json_text(view.to_json()))
    elif not common.quiet:
        streams.talk(_backed_up(view))


def _backup_to_file(common: Common, path: Path, *, is_compressed: bool) -> BackupView:
    from dataclasses import replace

    _check_new(path, common)
    root = common.root()
    with _written_beside(path, is_replacing=common.yes) as target:
        if os.geteuid() == 0 and _owner_of(root) not in (0, None):
            view = _taken_by_owner(root, target, is_compressed=is_compressed)
        else:
            with tempfile.TemporaryDirectory(prefix=".wfctl-backup-", dir=path.absolute().parent) as scratch:
                view = _take(common, target, Path(scratch), name=str(path), is_compressed=is_compressed)
        target.flush()
        size = os.fstat(target.fileno()).st_size
    return replace(view, backup=str(path), bytes=size)


def _take(common: Common, target: IO[bytes], scratch: Path, *, name: str, is_compressed: bool) -> BackupView:
    from wfctl.operations.backup import write_backup

    with common.open() as store:
        try:
            return write_backup(store.context, target, scratch, name=name, is_compressed=is_compressed)
        except BrokenPipeError:
            raise
        except OSError as error:
            said = f"cannot write the backup {name}: {error.strerror or error}; none was made"
            raise IoError(said, {"errno": error.errno, "path": name}) from error


def _taken_by_owner(root: Path, target: IO[bytes], *, is_compressed: bool) -> BackupView:
    """As root, for a store of another user: that user reads it, in a process that is nothing else (2.7); the file is root's."""
    from wfctl.errors import error_from_json
    from wfctl.operations.views import BackupView, from_json

    words = [sys.executable, "-P", "-m", "wfctl", "--store", str(root), "store", "backup", "-", "-o", "json"]
    words += ["--gzip"] if is_compressed else []
    own = str(Path(__file__).parents[2])  # this very wfctl, and never one of the working directory
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([own, *filter(None, [os.environ.get("PYTHONPATH")])])}
    done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=target, stderr=subprocess.PIPE, env=environ, check=False)
    last = (done.stderr.decode("utf-8", "replace").strip().splitlines() or [""])[-1]
    try:
        plain = json.loads(last)
        if done.returncode:
            raise error_from_json(plain["code"], plain["message"], plain.get("data"))
        view: BackupView = from_json(BackupView, plain)
    except (ValueError, KeyError, TypeError) as error:
        raise IoError(f"the backup of {root} could not be taken as its owner: {last or done.returncode}", {}) from error
    return view


def _owner_of(root: Path) -> int | None:
    try:
        return root.stat().st_uid
    except OSError:
        return None


def _backed_up(view: BackupView) -> str:
    size = "" if view.bytes is None else f", {values.size(view.bytes)}"
    head = f"backup of {escape(view.path)} as of {_moment(view)}: {escape(view.backup)}{size}"
    return "\n".join([head, f"  {_held(view)}", *(f"  NOTE {escape(said)}" for said in view.notes)])


def _moment(view: BackupView | RestoreView) -> str:
    return values.instant(view.taken_at.replace(microsecond=0))


def _held(view: BackupView | RestoreView) -> str:
    counts = (
        (view.schedules, "schedule"),
        (view.deployments, "deployment"),
        (view.occurrences, "occurrence"),
        (view.runs, "run"),
    )
    return ", ".join(count_of(number, noun) for number, noun in counts)


# The file ---------------------------------------------------------------------------------------------------------------


def _check_new(path: Path, common: Common) -> None:
    try:
        status = path.lstat()
    except FileNotFoundError:
        return
    except OSError as error:
        raise CannotCreate(f"cannot make {path}: {error.strerror}", {"errno": error.errno, "path": str(path)}) from error
    if stat.S_ISDIR(status.st_mode):
        raise CannotCreate(f"{path} is a directory; name a file in it, such as {path / 'wfctl.tgz'}")
    if not stat.S_ISREG(status.st_mode):
        raise CannotCreate(f"{path} is no regular file; for a pipe write -")
    if not common.yes:
        raise CannotCreate(f"{path} is there already; name another file, or add --yes to replace it")


@contextlib.contextmanager
def _written_beside(path: Path, *, is_replacing: bool) -> Iterator[IO[bytes]]:
    """Give a new file, mode 0600, that takes the name once it is whole and on the disk, and else is no more."""
    from wfctl.store.disk import CREATE, FILE_MODE, Disk

    temporary = path.with_name(f".{path.name[:200]}.{os.urandom(6).hex()}.tmp")
    try:
        descriptor = os.open(temporary, CREATE, FILE_MODE)
    except OSError as error:
        raise CannotCreate(f"cannot make {path}: {error.strerror}", {"errno": error.errno, "path": str(path)}) from error
    try:
        with open(descriptor, "wb") as target:
            os.fchmod(descriptor, FILE_MODE)
            yield target
            target.flush()
            os.fsync(descriptor)
        _give_name(temporary, path, is_replacing=is_replacing)
    except OSError as error:
        said = f"cannot write {path}: {error.strerror or error}; no backup was made"
        raise IoError(said, {"errno": error.errno, "path": str(path)}) from error
    finally:
        temporary.unlink(missing_ok=True)
    Disk().sync_directory(path.absolute().parent)


def _give_name(temporary: Path, path: Path, *, is_replacing: bool) -> None:
    if not is_replacing:
        try:
            path.hardlink_to(temporary)  # nothing that came there meanwhile is replaced
            return
        except FileExistsError as error:
            raise CannotCreate(f"{path} is there by now; name another file, or add --yes to replace it") from error
        except OSError:  # a file system without such links
            pass
    temporary.replace(path)


@contextlib.contextmanager
def _ended_in_order() -> Iterator[None]:
    """Let SIGTERM and a closed terminal clean up as Ctrl-C does."""

    def end(number: int, frame: Any) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# Back -------------------------------------------------------------------------------------------------------------------


@command()
@click.argument("file", metavar="FILE|-", type=click.Path(), help="The backup, or - for stdin.")
@click.option("--into", metavar="DIR", type=DirectoryPath(), help="Put it there, rather than into the store that is meant.")
@dry_run_option
def restore(common: Common, file: str, into: str | None, dry_run: bool) -> int:
    """Put a backup in the place of the store, or where there is none.

    The supervisor must be stopped, and nothing may run. All of the backup is checked first; a store that is there is asked
    about, and what is replaced is kept in its before-restore-* directory. Run directories stay: runs that the backup does not
    know are entered as failed at the next start, so that nothing runs twice. Cut short, it is finished by running it again.
    """
    from wfctl.clock import SystemClock
    from wfctl.operations.restore import restore as put_back
    from wfctl.store.disk import Disk
    from wfctl.store.layout import find_store
    from wfctl.store.place import assume_owner

    quieten_logs(common.verbose)
    root = common.root() if into is None else find_store(into, common.environ)

    def agree(view: RestoreView) -> bool:
        if not common.yes and not common.quiet:
            _tell(view)
        question = f"Replace the store {view.path} with the backup of {_moment(view)}?"
        return prompt.confirm(common, question)

    with _ended_in_order(), _source(file) as source:
        assume_owner(root)  # the file is open by then: it may be root's own
        found = put_back(root, source, _name_of(file), disk=Disk(), clock=SystemClock(), agree=agree, dry_run=dry_run)
    if found is None:
        return 1
    render.item(common, found, details=lambda _: _restored(found), name=found.path)
    if common.is_human and not common.quiet:
        streams.talk("dry run: nothing was changed" if dry_run else f"next: {_start_command(common, root)}")
    return 0


@contextlib.contextmanager
def _source(file: str) -> Iterator[IO[bytes]]:
    if file == "-":
        if sys.stdin.isatty():
            raise InvalidArgument("stdin is a terminal; name the backup's file, or send it: `ssh HOST cat FILE | ...`")
        yield sys.stdin.buffer
        return
    kinds = {FileNotFoundError: NotFound, NotADirectoryError: NotFound, PermissionError: NotAllowed}
    try:
        opened = open(file, "rb")  # noqa: SIM115 - closed below
    except OSError as error:
        kind = kinds.get(type(error), IoError)
        raise kind(f"cannot read {file}: {error.strerror or error}", {"path": file, "errno": error.errno}) from error
    with opened:
        yield opened


def _name_of(file: str) -> str:
    return "stdin" if file == "-" else file


def _tell(view: RestoreView) -> None:
    for line in (
        f"the backup of {_moment(view)} holds {_held(view)}",
        *(f"NOTE {each}" for each in view.notes),
    ):
        streams.talk(escape(line))
    if view.kept is not None:
        streams.talk(f"what is there now is kept in {escape(view.kept)}")


def _restored(view: RestoreView) -> str:
    verb = "would restore" if view.is_dry_run else "restored"
    lines = [f"{verb} {escape(view.path)} as of {_moment(view)}", f"  {_held(view)}"]
    if view.kept is not None:
        lines.append(f"  what was there {'would be' if view.is_dry_run else 'is'} kept in {escape(view.kept)}")
    return "\n".join([*lines, *(f"  NOTE {escape(said)}" for said in view.notes)])


def _start_command(common: Common, root: Path) -> str:
    from wfctl.operations.installed_unit import find

    unit = find(root, common.environ)
    if unit is not None:
        return f"systemctl{' --user' if unit.is_user else ''} start {unit.name}"
    return escape(f"wfctl --store {shlex.quote(str(root))} supervise")

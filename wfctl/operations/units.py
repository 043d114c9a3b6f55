"""The systemd units that come with wfctl: their texts, where they go, and what is installed already (contract 11).

The texts are files of the package. What is installed is one of them with the path of this wfctl in it, below a line that holds
a digest of the rest: so a file that somebody changed since is known, and not overwritten unasked.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import stat
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from wfctl.errors import CannotCreate, InvalidArgument, IoError, NotAllowed
from wfctl.operations.views import View
from wfctl.store.disk import Disk

SHIPPED = Path(__file__).parents[1] / "systemd"
SYSTEM_UNITS = Path("/etc/systemd/system")
SYSUSERS_FILE = Path("/etc/sysusers.d/wfctl.conf")
ACCOUNT = "wfctl"
_PROGRAM = "/usr/bin/wfctl"  #: as the shipped texts have it
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,127}", re.ASCII)
_DIGEST = re.compile(r"# Written by `wfctl systemd install`, digest ([0-9a-f]{16})\..*\n")
_FILE_MODE, _DIRECTORY_MODE = 0o644, 0o755
_DENIED = (errno.EACCES, errno.EPERM, errno.EROFS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which unit is meant, and with which drop-ins."""

    is_user: bool = False
    name: str | None = None  #: of an instance; None: the one supervisor of this machine or user
    is_hardened: bool = False
    stops_runs: bool = False

    @property
    def unit(self) -> str:
        """The unit that is started."""
        return f"wfctl@{self.name}.service" if self.name else "wfctl.service"

    @property
    def unit_file(self) -> str:
        """The name of its file."""
        return "wfctl@.service" if self.name else "wfctl.service"

    @property
    def shipped(self) -> str:
        """The file of the package that it is made from."""
        return self.unit_file.replace("wfctl", "wfctl-user", 1) if self.is_user else self.unit_file

    @property
    def drop_ins(self) -> tuple[str, ...]:
        """The files of the package that change it."""
        wanted = (("10-hardened.conf", self.is_hardened), ("20-stop.conf", self.stops_runs))
        return tuple(name for name, is_wanted in wanted if is_wanted)

    @property
    def store(self) -> str:
        """Where its store is, as an operator would write it."""
        base = "~/.local/state/wfctl" if self.is_user else "/var/lib/wfctl"
        return f"{base}-{self.name}" if self.name else base


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitFileView(View):
    """One file of a unit, and what became of it."""

    path: str
    state: str  #: created, updated, unchanged; replaced: it had been changed by hand
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitsView(View):
    """The files of a unit, and the commands that put them into effect."""

    schema: ClassVar[str] = "wfctl/systemd.v1"

    unit: str
    store: str
    files: tuple[UnitFileView, ...]
    commands: tuple[str, ...]


def check_choice(choice: Choice) -> None:
    """Raise InvalidArgument for what cannot be."""
    if choice.name is not None and (not _NAME.fullmatch(choice.name) or ".." in choice.name):
        raise InvalidArgument(
            f"--name {choice.name!r} cannot name an instance; it may hold a-z, 0-9, dots, underscores and hyphens, and begins "
            "with a letter or a digit"
        )
    if choice.is_user and choice.is_hardened:
        raise InvalidArgument("--hardened needs a system service: a user's own systemd cannot set such a sandbox up")


# Texts ------------------------------------------------------------------------------------------------------------------


def shipped(name: str) -> str:
    """Return the text of a file of the package."""
    return (SHIPPED / name).read_text("utf-8")


def unit_text(choice: Choice, program: Sequence[str]) -> str:
    """Return the unit with that program, its drop-ins after it: what `systemctl cat` would show, and a unit in itself."""
    parts = [with_program(shipped(choice.shipped), program)]
    parts += [f"# {name}\n{shipped(name)}" for name in choice.drop_ins]
    return "\n".join(parts)


def with_program(text: str, program: Sequence[str]) -> str:
    """Given the text of a unit, return it with that program and its first arguments, written as systemd reads them."""
    return text.replace(_PROGRAM, " ".join(map(quoted, program)))


def quoted(word: str) -> str:
    """Given a word of a command line, return it as it stands in a unit (systemd.service(5), COMMAND LINES)."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"' if re.search(r"[\s\"'\\;]", word) else escaped


def own_program(argv0: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return how a service calls this wfctl: its script where there is one, else the interpreter with `-m wfctl`.

    systemd takes absolute paths only. Links are kept: they outlast the next upgrade.
    """
    called, beside = Path(argv0), Path(sys.executable).parent / "wfctl"
    searched = shutil.which("wfctl", path=environ.get("PATH"))
    candidates = [called] if called.name == "wfctl" and os.sep in argv0 else []
    for found in [*candidates, beside, *([Path(searched)] if searched else [])]:
        if os.access(found, os.X_OK) and found.is_file():
            return (str(found.absolute()),)
    return (sys.executable, "-m", "wfctl")


def closed_to_others(path: str) -> str | None:
    """Return the directory or file that keeps other users from running a program, or None where they may."""
    real = Path(path).resolve()
    for each in (*reversed(real.parents), real):
        try:
            if not each.stat().st_mode & stat.S_IXOTH:
                return str(each)
        except OSError:
            return str(each)
    return None


# Installing -------------------------------------------------------------------------------------------------------------


def user_units(environ: Mapping[str, str]) -> Path:
    """Return where a user's own units are. Raise InvalidArgument where that cannot be told."""
    config = environ.get("XDG_CONFIG_HOME", "")
    if config.startswith("/"):
        return Path(config, "systemd/user")
    if not environ.get("HOME", "").startswith("/"):
        raise InvalidArgument("HOME is not set, so there is no place for a user's units")
    return Path(environ["HOME"], ".config/systemd/user")


def plan(choice: Choice, program: Sequence[str], environ: Mapping[str, str], below: Path | None) -> list[tuple[Path, str]]:
    """Return the files to write, each with its content; below a directory that stands for `/` where one is given."""
    folder = user_units(environ) if choice.is_user else SYSTEM_UNITS
    texts = [(folder / choice.unit_file, with_program(shipped(choice.shipped), program))]
    texts += [(folder / f"{choice.unit}.d" / name, shipped(name)) for name in choice.drop_ins]
    if not choice.is_user:
        texts.append((SYSUSERS_FILE, shipped("wfctl.sysusers.conf")))
    return [(path if below is None else below / path.relative_to("/"), _signed(text)) for path, text in texts]


def _signed(text: str) -> str:
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return f"# Written by `wfctl systemd install`, digest {digest}. Change it by a drop-in: `systemctl edit`.\n{text}"


def _state_of(path: Path, wanted: str) -> str:
    """Return what writing a file will do: created, updated, unchanged, or replaced where a person changed it."""
    try:
        there = path.read_text("utf-8", "surrogateescape")
    except FileNotFoundError:
        return "created"
    except IsADirectoryError:
        raise CannotCreate(f"{path} is a directory", {"path": str(path)}) from None
    except OSError as error:
        raise _refused(path, error) from error
    if there == wanted:
        return "unchanged"
    return "updated" if _is_ours(there) else "replaced"


def _is_ours(text: str) -> bool:
    found = _DIGEST.match(text)
    if found is None:
        return False
    rest = text[found.end() :].encode("utf-8", "surrogateescape")
    return hashlib.sha256(rest).hexdigest()[:16] == found.group(1)


def install(
    choice: Choice,
    program: Sequence[str],
    environ: Mapping[str, str],
    *,
    below: Path | None = None,
    may_replace: bool = False,
    dry_run: bool = False,
) -> UnitsView:
    """Write a unit, its drop-ins and, for the system's, the file of its account; return them with what to run next.

    Nothing is started, and with `dry_run` nothing written. A file that was changed by hand is replaced only where
    `may_replace`; else no file is written. Raise InvalidArgument, NotAllowed for want of permission, CannotCreate.
    """
    check_choice(choice)
    if not choice.is_user and below is None and os.geteuid() != 0:
        raise NotAllowed(f"only root may write {SYSTEM_UNITS}; use sudo, or --user for a service of your own")
    files = [(path, text, _state_of(path, text)) for path, text in plan(choice, program, environ, below)]
    edited = [str(path) for path, _, state in files if state == "replaced"]
    if edited and not may_replace:
        raise CannotCreate(
            f"{', '.join(edited)} was not written by this command, or was changed since; --yes replaces it, and a drop-in made "
            f"by `systemctl {'--user ' if choice.is_user else ''}edit {choice.unit}` would keep your changes",
            {"paths": edited},
        )
    if not dry_run:
        for path, text, state in files:
            if state != "unchanged":
                _write(path, text)
    return UnitsView(
        unit=choice.unit,
        store=choice.store,
        files=tuple(UnitFileView(path=str(path), state=state, content=text) for path, text, state in files),
        commands=_commands(choice, environ),
    )


def _write(path: Path, text: str) -> None:
    disk = Disk()
    try:
        for missing in reversed([folder for folder in path.parents if not folder.exists()]):
            disk.make_directory(missing, _DIRECTORY_MODE)
        disk.write_file(path, text.encode(), _FILE_MODE)
    except (IoError, OSError) as error:
        raise _refused(path, error) from error


def _refused(path: Path, error: Exception) -> CannotCreate | NotAllowed:
    number = error.data.get("errno") if isinstance(error, IoError) else getattr(error, "errno", None)
    said = os.strerror(number) if isinstance(number, int) else str(error)
    kind = NotAllowed if number in _DENIED else CannotCreate
    return kind(f"cannot write {path}: {said}", {"path": str(path), "errno": number})


def _commands(choice: Choice, environ: Mapping[str, str]) -> tuple[str, ...]:
    if choice.is_user:
        return (
            "systemctl --user daemon-reload",
            f"systemctl --user enable --now {choice.unit}",
            f"loginctl enable-linger {environ.get('USER') or environ.get('LOGNAME') or '$USER'}",
        )
    return ("systemd-sysusers wfctl.conf", "systemctl daemon-reload", f"systemctl enable --now {choice.unit}")

"""Settings, merged from five places, each with the place it came from (contract 10)."""

from __future__ import annotations

import json
import os
import re
import stat
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wfctl.core.definition import notify_from_plain
from wfctl.core.model import Notify
from wfctl.core.plain import name_of, suggestion
from wfctl.errors import MissingExtra, Problem
from wfctl.value import Value

SYSTEM_FILE = Path("/etc/wfctl/wfctl.toml")
BUILT_IN = "built-in"
LARGEST_FILE = 256 * 1024
MIB = 1024 * 1024
_SIZE = re.compile(r"(\d{1,15})\s?(B|kB|KiB|MB|MiB|GB|GiB|TB|TiB)?", re.ASCII)
_UNITS = {"B": 1, "kB": 10**3, "KiB": 2**10, "MB": 10**6, "MiB": 2**20, "GB": 10**9, "GiB": 2**30, "TB": 10**12, "TiB": 2**40}


class SlurmSettings(Value):
    """What `[executors.slurm]` says: where runs on a cluster find their files, and how the cluster is asked (contract 10)."""

    shared: Path  #: a folder that this machine and the nodes see under the same path
    max_concurrent_runs: int = 100
    bin: Path = Path("/usr/bin")  #: where Slurm's commands are
    python: str = "/usr/bin/python3"  #: on the nodes
    conf: str | None = None  #: the path of slurm.conf; None: where Slurm looks itself
    poll_interval_s: float = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of one supervisor. Names and units are those of the settings file."""

    poll_interval_s: float = 1.0
    max_concurrent_runs: int = 4
    drain_grace_s: float = 30.0
    on_shutdown: str = "leave"  #: or "stop"
    max_output: int = 64 * MIB  #: bytes of one stream of a run that are kept (contract 6.15)
    min_free: int | None = None  #: bytes; None: the smaller of 256 MiB and 5 % of the file system
    notify: Notify | None = None
    keep_days: int | None = None  #: None: all
    keep_runs: int | None = None  #: None: all
    slurm: SlurmSettings | None = None  #: None: there is no cluster
    origins: Mapping[str, str] = field(default_factory=dict)  #: by key, such as `supervisor.poll_interval_s`

    def free_needed(self, size: int) -> int:
        """Given the size of a file system in bytes, return how much of it must be free for an admission."""
        return min(256 * MIB, size // 20) if self.min_free is None else self.min_free

    def items(self) -> list[tuple[str, Any, str]]:
        """Return every setting as (key, plain value or None where unset, origin), in the order of the contract."""
        return [(key, self._plain(key), self.origins.get(key, BUILT_IN)) for key in _READERS]

    def _plain(self, key: str) -> Any:
        if key == "notify.command":
            return list(self.notify.command) if self.notify else None
        if key == "notify.after":
            return self.notify.after if self.notify else 1
        if key.startswith(_SLURM):
            value = getattr(self.slurm or _NO_CLUSTER, key.removeprefix(_SLURM))
            return (str(value) if value != _NOWHERE else None) if isinstance(value, Path) else value
        return getattr(self, key.partition(".")[2])


def load_settings(
    store_root: Path | None,
    environ: Mapping[str, str],
    flags: Mapping[str, Any] | None = None,
    *,
    tables: Mapping[str, Any] | None = None,
    system_file: Path = SYSTEM_FILE,
    is_root: bool | None = None,
) -> Settings:
    """Merge the settings: flags, `WFCTL_…`, the store's file, the system's or the user's file, built-in.

    `flags` are by key (`supervisor.poll_interval_s`), None for one not given; `tables`, for `SupervisorService(settings=…)`,
    stand above the environment. Raise MissingExtra, exit status 78, that lists every problem with its place.
    """
    merged = _Merged()
    for path in (_common_file(environ, system_file, is_root), None if store_root is None else store_root / "wfctl.toml"):
        if path is not None:
            merged.add_tables(_read_file(path), str(path))
    for key in _READERS:
        variable = variable_of(key)
        if environ.get(variable):
            merged.add(key, _from_text(key, environ[variable]), variable)
    merged.add_tables({} if tables is None else tables, "settings")
    for key, value in (flags or {}).items():
        if value is not None:
            merged.add(key, value, "--" + key.partition(".")[2].replace("_", "-"))
    return merged.finish()


def settings_from_plain(plain: Mapping[str, Any]) -> Settings:
    """Given a dict of the tables of contract 10, return those settings over the built-in ones. Raise MissingExtra."""
    merged = _Merged()
    merged.add_tables(plain, "settings")
    return merged.finish()


def variable_of(key: str) -> str:
    """Given a setting's key, return its environment variable: `WFCTL_POLL_INTERVAL_S`, `WFCTL_NOTIFY_COMMAND`."""
    table, _, name = key.partition(".")
    return f"WFCTL_{key.replace('.', '_') if table in ('notify', 'executors') else name}".upper()


class _Merged:
    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.origins: dict[str, str] = {}
        self.problems: list[str] = []
        self.has_cluster = False  #: somewhere stands a table [executors.slurm]

    def add(self, key: str, value: Any, origin: str) -> None:
        if key not in _READERS:
            self.problems.append(f"{origin}: {key} is not a known setting{suggestion(key, _READERS)}")
            return
        try:
            self.values[key], self.origins[key] = _READERS[key](value), origin
        except ValueError as error:
            self.problems.append(f"{origin}: {key} {error}")

    def add_tables(self, tables: Any, origin: str) -> None:
        if not isinstance(tables, Mapping):
            self.problems.append(f"{origin}: must be tables of settings, not {name_of(tables)}")
            return
        names = list(dict.fromkeys(key.partition(".")[0] for key in _READERS))
        for table, settings in tables.items():
            if table not in names:
                self.problems.append(f"{origin}: [{table}] is not a known table{suggestion(str(table), names)}")
            elif not isinstance(settings, Mapping):
                self.problems.append(f"{origin}: {table} must be a table, not {name_of(settings)}")
            elif table == "executors":
                self._add_executors(settings, origin)
            else:
                self._add_table(table, settings, origin)

    def _add_executors(self, executors: Mapping[Any, Any], origin: str) -> None:
        for name, settings in executors.items():
            if name != "slurm":
                self.problems.append(f"{origin}: [executors.{name}] is not a known table{suggestion(str(name), ['slurm'])}")
            elif not isinstance(settings, Mapping):
                self.problems.append(f"{origin}: executors.slurm must be a table, not {name_of(settings)}")
            else:
                self.has_cluster = True
                self._add_table("executors.slurm", settings, origin)

    def _add_table(self, table: str, settings: Mapping[Any, Any], origin: str) -> None:
        names = [key.removeprefix(table + ".") for key in _READERS if key.startswith(table + ".")]
        for name, value in settings.items():
            if name not in names:
                self.problems.append(f"{origin}: {table}.{name} is not a known setting{suggestion(str(name), names)}")
            elif value is not None:
                self.add(f"{table}.{name}", value, origin)

    def finish(self) -> Settings:
        slurm = self._slurm()
        if self.problems:
            listed = self.problems[0] if len(self.problems) == 1 else "".join(f"\n  {problem}" for problem in self.problems)
            raise MissingExtra(f"settings: {listed}", {"problems": self.problems})
        apart = ("notify.", _SLURM)
        values = {key.partition(".")[2]: value for key, value in self.values.items() if not key.startswith(apart)}
        return Settings(**values, notify=self._notify(), slurm=slurm, origins=self.origins)

    def _slurm(self) -> SlurmSettings | None:
        values = {key.removeprefix(_SLURM): value for key, value in self.values.items() if key.startswith(_SLURM)}
        if "shared" in values:
            return SlurmSettings(**values)
        if (self.has_cluster or values) and not self.problems:
            self.problems.append("executors.slurm.shared is missing; name the folder that this machine and the nodes share")
        return None

    def _notify(self) -> Notify | None:
        command = self.values.get("notify.command")
        return Notify(command=command, after=self.values.get("notify.after", 1)) if command else None


def _common_file(environ: Mapping[str, str], system_file: Path, is_root: bool | None) -> Path | None:
    """The user's own file, where there is one; else the system's. Root has only the system's."""
    if not (os.geteuid() == 0 if is_root is None else is_root):
        home = environ.get("XDG_CONFIG_HOME", "")
        if not home.startswith("/"):
            home = f"{environ['HOME']}/.config" if environ.get("HOME", "").startswith("/") else ""
        if home and os.path.lexists(path := Path(home, "wfctl/wfctl.toml")):
            return path
    return system_file


def _read_file(path: Path) -> dict[str, Any]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ValueError("is no regular file")
            content = file.read(LARGEST_FILE + 1)
        if len(content) > LARGEST_FILE:
            raise ValueError(f"is larger than {LARGEST_FILE} bytes")
        return tomllib.loads(content.decode())
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise MissingExtra(f"settings: {path} cannot be read: {error.strerror}", {"path": str(path)}) from error
    except UnicodeDecodeError as error:
        raise MissingExtra(f"settings: {path} is not UTF-8 text", {"path": str(path)}) from error
    except (ValueError, RecursionError) as error:
        raise MissingExtra(f"settings: {path}: {error}", {"path": str(path)}) from error


def _from_text(key: str, text: str) -> Any:
    """The value that the text of a variable stands for; text that stands for none is left to the reader to refuse."""
    if _READERS[key] in (_read_size, _read_shutdown):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


# One reader a kind of value: it returns the value or raises ValueError with the rest of the sentence "KEY …" -------------


def _number(least: float, most: float) -> Callable[[Any], float]:
    def read(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ValueError(f"must be a number of seconds, not {name_of(value)}")
        if not least <= value <= most:
            raise ValueError(f"must be from {least:g} to {most:g} seconds, not {value:g}")
        return float(value)

    return read


def _integer(least: int, most: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(f"must be a whole number, not {name_of(value)}")
        if not least <= value <= most:
            raise ValueError(f"must be from {least} to {most}, not {value}")
        return int(value)

    return read


def _read_size(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return int(value)
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f'must be a number of bytes or text such as "64MiB", not {name_of(value)}')
    return int(match.group(1)) * _UNITS[match.group(2) or "B"]


def _read_output(value: Any) -> int:
    size = _read_size(value)
    if size < 16 * 1024:
        raise ValueError(f"must be at least 16KiB, not {size} bytes: a head and a tail are kept")
    return size


def _read_shutdown(value: Any) -> str:
    if value not in ("leave", "stop"):
        raise ValueError(f'must be "leave" or "stop", not {name_of(value)}')
    return str(value)


def _read_path(value: Any) -> str:
    if not isinstance(value, str) or not value.startswith("/") or any(ord(letter) < 32 for letter in value):
        raise ValueError(f"must be a whole path, beginning with /, not {name_of(value)}")
    return value.rstrip("/") or "/"


def _read_shared(value: Any) -> Path:
    path = _read_path(value)
    if "%" in path or "\\" in path:
        raise ValueError("must be a path without % and \\, which Slurm reads as something else")
    return Path(path)


def _read_notify_command(value: Any) -> tuple[str, ...]:
    problems: list[Problem] = []
    notify = notify_from_plain({"command": value}, "", problems)
    if notify is None:
        raise ValueError("; ".join(problem.message for problem in problems))
    return notify.command


_READERS: dict[str, Callable[[Any], Any]] = {
    "supervisor.poll_interval_s": _number(0.01, 3600),
    "supervisor.max_concurrent_runs": _integer(1, 100_000),
    "supervisor.drain_grace_s": _number(0, 86_400),
    "supervisor.on_shutdown": _read_shutdown,
    "runs.max_output": _read_output,
    "runs.min_free": _read_size,
    "notify.command": _read_notify_command,
    "notify.after": _integer(1, 2**31 - 1),
    "history.keep_days": _integer(1, 1_000_000),
    "history.keep_runs": _integer(1, 2**31 - 1),
    "executors.slurm.shared": _read_shared,
    "executors.slurm.max_concurrent_runs": _integer(1, 100_000),
    "executors.slurm.bin": lambda value: Path(_read_path(value)),
    "executors.slurm.python": _read_path,
    "executors.slurm.conf": _read_path,
    "executors.slurm.poll_interval_s": _number(0.05, 3600),
}  #: every setting, in the order in which it is shown
_SLURM = "executors.slurm."
_NOWHERE = Path("/nowhere")
_NO_CLUSTER = SlurmSettings(shared=_NOWHERE)

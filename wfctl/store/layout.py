"""Every path of a store, and which store a command means (contract 2, 2.1).

Commands that only list something name their few files by text: `pathlib` takes as long to load as half of what they do.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from wfctl.errors import InvalidArgument

if TYPE_CHECKING:
    from pathlib import Path

Kind = Literal["schedule", "deployment"]
_ASIDE, _CHECKPOINT = ".gone.", "checkpoint.json"
_NAMES = {
    "settings": "wfctl.toml",
    "schedules": "schedules",
    "deployments": "deployments",
    "artifacts": "artifacts",
    "runs": "runs",
    "notices": "notices",
    "ledger": "ledger.db",
    "restoring": "restoring",
    "scheduler_lock": "scheduler.lock",
    "control_socket": "control.sock",
}


class Layout:
    """The paths below one store's root. Ids and names that reach a path were checked before (contract 2.8)."""

    if TYPE_CHECKING:
        root: Path
        settings: Path
        schedules: Path
        deployments: Path
        artifacts: Path
        runs: Path
        notices: Path
        ledger: Path
        restoring: Path
        scheduler_lock: Path
        control_socket: Path

    def __init__(self, root: Path | str) -> None:
        self.place = os.fspath(root)  #: the root, as text

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Path:
            """Make a path when it is first asked for, and keep it."""
            from pathlib import Path

            if name != "root" and name not in _NAMES:
                raise AttributeError(f"a store has no {name}")
            made = Path(self.place) if name == "root" else self.root / _NAMES[name]
            self.__dict__[name] = made
            return made

    def __repr__(self) -> str:
        return f"Layout({self.place!r})"

    def path_of(self, name: str) -> str:
        """Return the path of what an attribute names, as text."""
        return f"{self.place}/{_NAMES[name]}"

    def directories(self) -> tuple[Path, ...]:
        """Return the directories that `init` makes below the root."""
        return (self.schedules, self.deployments, self.artifacts, self.runs)

    def definitions(self, kind: Kind) -> Path:
        """Return the directory of the definitions of that kind."""
        return self.schedules if kind == "schedule" else self.deployments

    def definition(self, kind: Kind, name: str) -> Path:
        """Return the TOML file of one definition."""
        return self.definitions(kind) / f"{name}.toml"

    def artifact(self, digest: str) -> Path:
        """Given the hex SHA-256 of a content, return where it is kept."""
        return self.artifacts / digest

    def keeper_socket(self, protocol: int) -> Path:
        """Return the socket of the store's keeper of that protocol."""
        return self.root / f"keeper.{protocol}.sock"

    def keeper_lock(self, protocol: int) -> Path:
        """Return the lock of the store's keeper of that protocol."""
        return self.root / f"keeper.{protocol}.lock"

    def aside(self, run_id: str) -> Path:
        """Return where a run's directory waits for its removal, once the run is let go."""
        return self.runs / f"{_ASIDE}{run_id}"

    def is_aside(self, name: str) -> bool:
        """Tell whether that name below `runs` is of a directory that waits for its removal."""
        return name.startswith(_ASIDE)

    def run(self, run_id: str) -> RunPaths:
        """Return the paths of one run."""
        return RunPaths(self.runs / run_id)

    def has_checkpoint(self, run_id: str) -> bool:
        """Tell whether there is a checkpoint of a run, legible or not: few have one, and lists look at many."""
        return os.path.lexists(f"{self.path_of('runs')}/{run_id}/{_CHECKPOINT}")


class RunPaths:
    """The paths below one run's directory, made when they are asked for: a thousand runs may be launched at once."""

    __slots__ = ("root",)

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def identity(self) -> Path:
        """Whose run it is, for a ledger that does not know (contract 2.8)."""
        return self.root / "run.json"

    @property
    def input(self) -> Path:
        """The bound input, `$WFCTL_INPUT`."""
        return self.root / "input.json"

    @property
    def checkpoint(self) -> Path:
        """wfctl's own record of how far a stopped run had come."""
        return self.root / _CHECKPOINT

    @property
    def stdout(self) -> Path:
        """What the run's executions wrote to their standard output."""
        return self.root / "stdout.log"

    @property
    def stderr(self) -> Path:
        """What the run's executions wrote to their standard error."""
        return self.root / "stderr.log"

    @property
    def files(self) -> Path:
        """The pinned files, `$WFCTL_FILES`."""
        return self.root / "files"

    @property
    def work(self) -> Path:
        """The default working directory."""
        return self.root / "work"

    @property
    def driver_lock(self) -> Path:
        """The lock of a command that drives the run itself (contract 6.12)."""
        return self.root / "driver"

    def execution(self, k: int) -> ExecutionPaths:
        """Return the paths of execution k."""
        return ExecutionPaths(self.root / str(k))


class ExecutionPaths:
    """The paths of one execution: what its process may write, and what it was resumed with."""

    __slots__ = ("root",)

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def output(self) -> Path:
        """`$WFCTL_OUTPUT`."""
        return self.root / "output"

    @property
    def checkpoint(self) -> Path:
        """`$WFCTL_CHECKPOINT`."""
        return self.root / "checkpoint"

    @property
    def interrupt(self) -> Path:
        """`$WFCTL_INTERRUPT`."""
        return self.root / "interrupt"

    @property
    def resume(self) -> Path:
        """`$WFCTL_RESUME`: the input a person gave."""
        return self.root / "resume.json"


def find_store(flag: str | Path | None, environ: Mapping[str, str], *, is_root: bool | None = None) -> Path:
    """Given `--store` and the environment, return the absolute path of the store that is meant (contract 2.1).

    The path need not exist. Raise InvalidArgument for an empty one, and where neither XDG_STATE_HOME nor HOME is set.
    """
    from pathlib import Path

    return Path(find_place(flag, environ, is_root=is_root))


def find_place(flag: str | Path | None, environ: Mapping[str, str], *, is_root: bool | None = None) -> str:
    """Return what `find_store` does, as text. Raise InvalidArgument as it does."""
    if flag is not None:
        return _absolute(str(flag), "--store")
    if environ.get("WFCTL_STORE"):
        return _absolute(environ["WFCTL_STORE"], "WFCTL_STORE")
    if environ.get("STATE_DIRECTORY"):
        return _absolute(environ["STATE_DIRECTORY"].split(":")[0], "STATE_DIRECTORY")  # systemd lists several with colons
    if os.geteuid() == 0 if is_root is None else is_root:
        return "/var/lib/wfctl"
    state = environ.get("XDG_STATE_HOME", "")
    if state.startswith("/"):  # the XDG specification: a relative one is ignored
        return _absolute(f"{state}/wfctl", "XDG_STATE_HOME")
    if not environ.get("HOME"):
        raise InvalidArgument("no store is named and HOME is not set; name one with --store DIR or WFCTL_STORE")
    return _absolute(f"{environ['HOME']}/.local/state/wfctl", "HOME")


def _absolute(text: str, source: str) -> str:
    """Return a path from the root on, without what says nothing; `..` stays, for it may lead through a link."""
    if not text or "\0" in text:
        raise InvalidArgument(f"{source} names no directory; write --store DIR")
    whole = text if text.startswith("/") else f"{os.getcwd()}/{text}"  # noqa: PTH109
    return "/" + "/".join(part for part in whole.split("/") if part not in ("", "."))

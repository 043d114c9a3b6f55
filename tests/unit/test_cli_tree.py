"""The command tree: everything has help, common options stand anywhere, and nothing heavy is loaded for it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tests.support.history import world_with_history
from wfctl.cli.app import root
from wfctl.cli.base import COMMON_OPTIONS, Group
from wfctl.cli.help import text_of
from wfctl.cli.help_texts import ADVICE, TOPICS, WARNINGS
from wfctl.errors import BY_CODE, NotFound

PROJECT = Path(__file__).parents[2]
HEAVY = (
    "rich",
    "croniter",
    "portalocker",
    "jsonschema_rs",
    "asyncio",
    "importlib.metadata",
    "sqlite3",
    "zoneinfo",
    "logging",
    "json",
    "dataclasses",
    "pathlib",
    "urllib.parse",
    "tomllib",
    "hashlib",
    "socket",
    "subprocess",
    "shutil",
)


def walk(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    yield " ".join(("wfctl", *path)), command
    if isinstance(command, Group):
        for name in command.entries:
            found = command.get_command(click.Context(command), name)
            assert found is not None
            yield from walk(found, (*path, name))


COMMANDS = dict(walk(root))


@pytest.mark.parametrize("path", COMMANDS)
def test_every_command_and_every_parameter_has_help(path: str) -> None:
    command = COMMANDS[path]
    assert command.help
    assert command.help.strip()
    for param in command.params:
        assert getattr(param, "help", None), param.name


@pytest.mark.parametrize("path", [path for path, command in COMMANDS.items() if isinstance(command, Group)])
def test_the_line_that_a_list_of_commands_shows_is_the_command_s_own(path: str) -> None:
    group = COMMANDS[path]
    assert isinstance(group, Group)
    for name, entry in group.entries.items():
        command = COMMANDS[f"{path} {name}"]
        assert (command.help or "").strip().splitlines()[0] == entry.help, name
        assert command.name == name


@pytest.mark.parametrize("path", COMMANDS)
def test_common_options_stand_on_every_command(path: str) -> None:
    assert [option for option in COMMANDS[path].params if option in COMMON_OPTIONS] == COMMON_OPTIONS


def test_the_commands_of_the_contract_are_there() -> None:
    named = [
        "demo",
        "init",
        "deployment",
        "deployments",
        "schedule",
        "schedules",
        "occurrence",
        "occurrences",
        "run",
        "runs",
        "timeline",
        "cron",
        "supervise",
        "status",
        "reload",
        "drain",
        "doctor",
        "load",
        "simulate",
        "config",
        "store",
        "systemd",
        "rpc",
        "completion",
        "help",
        "version",
    ]
    assert set(root.entries) == set(named)  # contract 11, what there is of it


def test_every_error_code_is_explained() -> None:
    assert set(ADVICE) == set(BY_CODE)  # contract 9.1: `wfctl help CODE`
    for code in (*BY_CODE, *WARNINGS, *TOPICS):
        assert text_of([code]).strip()
    assert "exit status 81" in text_of(["exists"])
    assert "Usage: wfctl schedule add" in text_of(["schedule", "add"])
    with pytest.raises(NotFound):
        text_of(["nonsense"])


def loaded_by(*words: str, **environ: str) -> tuple[str, set[str]]:
    """Run a command line in an interpreter of its own; return what it printed and every module that it loaded itself."""
    program = (
        "import atexit, sys\n"
        "before = set(sys.modules)\n"  # an editable installation may load modules into every interpreter
        "atexit.register(lambda: print('loaded:', *(set(sys.modules) - before), file=sys.stderr))\n"  # completion ends itself
        f"from wfctl.cli.app import run\nrun({list(words)!r})"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(PROJECT), **environ},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout, set(done.stderr.rpartition("loaded:")[2].split())


@pytest.mark.parametrize("imported", ["wfctl", "wfctl.cli", "wfctl.cli.app", "wfctl.cli.schedules", "wfctl.operations.store"])
def test_importing_loads_nothing_heavy(imported: str) -> None:
    program = f"import sys; before = set(sys.modules); import {imported}; print(*(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", program], cwd=PROJECT, capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert imported in loaded
    assert loaded.intersection(HEAVY) <= ({"sqlite3"} if imported == "wfctl.operations.store" else set())


@pytest.mark.parametrize(
    ("words", "environ"),
    [
        pytest.param(["--version"], {}, id="--version"),
        pytest.param(["--help"], {}, id="--help"),
        pytest.param(["schedule", "--help"], {}, id="help of a group"),
        pytest.param(["schedule", "add", "--help"], {}, id="help of a command"),
        pytest.param(
            ["x"],
            {"_WFCTL_COMPLETE": "bash_complete", "COMP_WORDS": "wfctl sch", "COMP_CWORD": "1"},
            id="completion of a command",
        ),
    ],
)
def test_nothing_heavy_is_loaded_to_say_what_there_is(words: list[str], environ: dict[str, str]) -> None:
    printed, loaded = loaded_by(*words, **environ)
    assert printed
    assert "wfctl.cli.app" in loaded
    assert not loaded.intersection(HEAVY)


#: what a list in a pipe has no use for: calendars, files that did not change, networks, hashes, and whatever writes.
NOT_FOR_LISTS = {
    *HEAVY,
    "base64",
    "heapq",
    "shlex",
    "tomli_w",
    "wfctl.core.definition",
    "wfctl.core.trigger",
    "wfctl.core.admission",
    "wfctl.cli.watching",
    "wfctl.operations.schedules",
    "wfctl.operations.reconcile",
    "wfctl.operations.views",
    "wfctl.rpc.client",
    "wfctl.rpc.door",
    "wfctl.store.definitions",
    "wfctl.keeper",
    "wfctl.supervisor",
} - {"sqlite3"}
#: what a list of schedules does not even load of itself
NOT_FOR_SCHEDULES = {
    *NOT_FOR_LISTS,
    "wfctl.core.model",
    "wfctl.operations.cursors",
    "wfctl.operations.describe",
    "wfctl.cli.style",
}


@pytest.fixture(scope="module")
def listed_store(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = tmp_path_factory.mktemp("lists") / "store"
    world_with_history(root, 3, schedules=("a", "b")).stop()
    return str(root)


@pytest.mark.parametrize(
    "words",
    [["schedules"], ["deployments"], ["occurrences", "--limit", "2"], ["occurrences", "a"], ["runs"], ["runs", "--limit", "1"]],
    ids=lambda words: " ".join(words),
)
def test_a_list_loads_what_it_shows_and_no_more(words: list[str], listed_store: str) -> None:
    printed, loaded = loaded_by("--store", listed_store, *words)
    assert len(printed.splitlines()) > 1
    assert not loaded.intersection(NOT_FOR_SCHEDULES if words == ["schedules"] else NOT_FOR_LISTS)


def test_schedules_that_are_paused_are_listed_without_calendars_too(tmp_path: Path) -> None:
    world = world_with_history(tmp_path / "store", 1, schedules=("a", "b"))
    world.store.pause_schedule(schedule_id="a", reason="for a while")
    world.stop()
    printed, loaded = loaded_by("--store", str(tmp_path / "store"), "schedules")
    assert "paused" in printed
    assert not loaded.intersection(NOT_FOR_LISTS)


def test_nobody_is_there_is_said_without_what_would_talk_to_somebody(listed_store: str) -> None:
    printed, loaded = loaded_by("--store", listed_store, "status")
    assert printed == ""
    assert "wfctl.cli.failure" in loaded
    assert not loaded.intersection({*HEAVY, "wfctl.rpc.client", "wfctl.operations.views", "wfctl.core.model"} - {"sqlite3"})


def test_completion_of_ids_reads_file_names_alone(tmp_path: Path) -> None:
    (tmp_path / "schedules").mkdir()
    for name in ("nightly", "noon", "weekly"):
        (tmp_path / "schedules" / f"{name}.toml").write_text("not even TOML [")
    (tmp_path / "schedules" / ".tmp-x.toml").write_text("")
    asked = {"_WFCTL_COMPLETE": "bash_complete", "COMP_WORDS": "wfctl schedule show n", "COMP_CWORD": "3"}
    printed, loaded = loaded_by(**asked, WFCTL_STORE=str(tmp_path))
    assert printed.split() == ["plain,nightly", "plain,noon"]
    assert not loaded.intersection((*HEAVY, "tomllib"))


@pytest.mark.parametrize("is_alone", [True, False], ids=["alone", "beside another thread"])
def test_at_its_end_a_command_calls_what_asked_to_be_called_and_waits_for_its_threads(is_alone: bool) -> None:
    thread = "" if is_alone else "threading.Thread(target=lambda: (time.sleep(0.2), print('thread', flush=True))).start()\n"
    program = (
        "import atexit, sys, threading, time\nfrom wfctl.__main__ import main\n"
        f"atexit.register(lambda: print('called', flush=True))\n{thread}sys.argv = ['wfctl', '--nonsense']\nmain()"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.stdout.split() == (["called"] if is_alone else ["thread", "called"])
    assert done.returncode == 2

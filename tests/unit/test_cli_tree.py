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
    """Run a command line in an interpreter of its own; return what it printed and every module it loaded."""
    program = (
        "import atexit, sys\n"
        "atexit.register(lambda: print(*sys.modules, file=sys.stderr))\n"  # completion ends the process itself
        f"from wfctl.cli.app import run\nrun({list(words)!r})"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(PROJECT), **environ},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout, done.stderr
    return done.stdout, set(done.stderr.split())


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
    _, loaded = loaded_by(*words, **environ)
    assert not loaded.intersection(HEAVY)


#: what a list in a pipe has no use for: calendars, files that did not change, networks, hashes, and whatever writes.
NOT_FOR_LISTS = (
    "rich",
    "croniter",
    "portalocker",
    "jsonschema_rs",
    "asyncio",
    "importlib.metadata",
    "tomllib",
    "tomli_w",
    "zoneinfo",
    "logging",
    "hashlib",
    "socket",
    "subprocess",
    "shutil",
    "wfctl.core.trigger",
    "wfctl.core.admission",
    "wfctl.operations.schedules",
    "wfctl.operations.reconcile",
    "wfctl.rpc.client",
    "wfctl.keeper",
    "wfctl.supervisor",
)


@pytest.mark.parametrize(
    "words", [["schedules"], ["occurrences", "--limit", "2"], ["occurrences", "a"], ["runs"]], ids=lambda words: " ".join(words)
)
def test_a_list_loads_what_it_shows_and_no_more(words: list[str], tmp_path: Path) -> None:
    world_with_history(tmp_path / "store", 3, schedules=("a", "b")).stop()
    printed, loaded = loaded_by("--store", str(tmp_path / "store"), *words)
    assert len(printed.splitlines()) > 2
    assert not loaded.intersection(NOT_FOR_LISTS)


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

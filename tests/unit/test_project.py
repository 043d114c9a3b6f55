"""What stands around the code: README, manual pages, examples, and the rules that hold for every file (style guide 3, 8, 9)."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

from tools import generate, manpages
from wfctl.cli.app import root as command_tree
from wfctl.cli.base import COMMON_OPTIONS
from wfctl.cli.help_codes import words as words_of_answers
from wfctl.cli.help_texts import TOPICS, WARNINGS
from wfctl.core.definition import deployment_from_plain, deployment_to_plain, schedule_from_plain, schedule_to_plain
from wfctl.core.model import Status
from wfctl.errors import BY_CODE
from wfctl.operations.inputs import check_input
from wfctl.settings import Settings, settings_from_plain, variable_of
from wfctl.store.definitions import deployment_from_toml, schedule_from_toml

PROJECT = Path(__file__).parents[2]
PACKAGE = PROJECT / "wfctl"
PAGES = sorted(path.name for path in (PROJECT / "man").glob("*.[1-8]"))
REASONS = {  # contract 8.7
    "overlap", "capacity", "missed", "outlived", "newer", "edited", "paused", "deleted", "clock", "preflight",
    "preflight-timeout", "exit", "signal", "timeout", "deadline", "cancelled", "drained", "shutdown", "abandoned",
    "outcome-unknown", "not-started", "launch-failed", "output-invalid", "max-steps", "ledger-restored", "ambiguous",
    "time-limit", "out-of-memory", "preempted", "node-failed", "cancelled-outside",
}  # fmt: skip


def text_of(name: str) -> str:
    return (PROJECT / name).read_text("utf-8")


def page(name: str) -> str:
    """Return a manual page with its macros for emphasis taken out, so that words are found as they are read."""
    return re.sub(r"\b(?:Nm|Cm|Ar|Ic|Sy|Em|Ql|Ev|Pa) ", "", text_of(f"man/{name}"))


def section(name: str, heading: str) -> str:
    found = re.search(rf"^\.Sh {heading}\n(.*?)(?=^\.Sh |\Z)", text_of(f"man/{name}"), re.MULTILINE | re.DOTALL)
    assert found, f"{name} has no section {heading}"
    return found.group(1)


# README -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        "python3 -m venv .venv && .venv/bin/pip install -q . && .venv/bin/wfctl demo",
        "python3 -m venv .venv && .venv/bin/pip install -q -e '.[test]' && .venv/bin/python -m pytest -q",
    ],
)
def test_readme_has_the_two_commands_on_lines_of_their_own(line: str) -> None:
    assert text_of("README.md").splitlines().count(line) == 1


def test_readme_names_every_folder_of_the_code() -> None:
    readme = text_of("README.md")
    parts = {path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert [part for part in sorted(parts) if f"{part}/" not in readme] == []


def test_the_files_readme_points_to_exist() -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", text_of("README.md"))
    assert links
    assert [link for link in links if not (PROJECT / link).exists()] == []


def test_the_licence_is_the_one_declared() -> None:
    assert tomllib.loads(text_of("pyproject.toml"))["project"]["license"] == "Apache-2.0"
    assert "Apache License\n                           Version 2.0, January 2004" in text_of("LICENSE")
    assert "END OF TERMS AND CONDITIONS" in text_of("LICENSE")


# Manual pages -------------------------------------------------------------------------------------------------------------


def plain(roff: str) -> str:
    """Return roff text with its escapes for typed letters undone."""
    return roff.replace(r"\-", "-").replace(r"\(aq", "'").replace(r"\(dq", '"').replace(r"\&", "").replace(r"\e", "\\")


def test_what_is_generated_equals_a_fresh_generation() -> None:
    wanted = generate.files()
    differs = [name for name, text in wanted.items() if not (PROJECT / name).exists() or text_of(name) != text]
    assert differs == [], "generate them anew: python -m tools.generate"
    assert {name.removeprefix("man/") for name in wanted if name.startswith("man/")} == set(PAGES)


@pytest.mark.parametrize("name", PAGES)
def test_a_page_points_only_to_pages_that_exist(name: str) -> None:
    found = re.findall(r"^\.Xr (wfctl\S*) (\d)", plain(text_of(f"man/{name}")), re.MULTILINE)
    pointed = {f"{page_name}.{number}" for page_name, number in found}
    assert pointed <= set(PAGES)
    assert pointed


def test_every_exit_code_stands_under_exit_status() -> None:
    listed = {int(code) for code in re.findall(r"^\.It (\d+)$", section("wfctl.1", "EXIT STATUS"), re.MULTILINE)}
    contract = {0, 1, 2, 65, 66, 69, 70, 73, 74, 75, 76, 77, 78, 80, 81, 130, 143}  # contract 11.6
    assert contract <= listed
    assert {error.exit_status for error in BY_CODE.values()} <= listed
    assert set(manpages.known_statuses(text_of("man/wfctl.1"))) == listed


def commands(group: click.Group, above: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    """Give every command that is no group, by its words."""
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        assert found is not None
        if isinstance(found, click.Group):
            yield from commands(found, (*above, name))
        else:
            yield " ".join((*above, name)), found


COMMANDS = dict(commands(command_tree))


def page_of(words: str) -> str:
    """Return the name of the page of a command."""
    return f"wfctl-{words.replace(' ', '-')}.{8 if words in manpages.BY_HAND else 1}"


@pytest.mark.parametrize("words", COMMANDS)
def test_every_command_is_in_the_overview_and_has_a_page_with_every_option_and_its_ends(words: str) -> None:
    command = COMMANDS[words]
    assert command.help
    assert f".It Cm {words}\n" in plain(text_of("man/wfctl.1"))
    written = plain(text_of(f"man/{page_of(words)}"))
    for heading in ("SYNOPSIS", "DESCRIPTION", "EXIT STATUS", "EXAMPLES", "SEE ALSO"):
        assert section(page_of(words), heading).strip()
    named = set(re.findall(r"Fl (-?[A-Za-z][\w-]*)", written))
    for param in command.params:
        if isinstance(param, click.Option) and param not in COMMON_OPTIONS and not param.hidden:
            assert param.help
            assert [name for name in param.opts if name[1:] not in named] == []


def test_the_common_options_are_in_the_overview() -> None:
    named = set(re.findall(r"Fl (-?[A-Za-z][\w-]*)", section("wfctl.1", "COMMON OPTIONS").replace(" , -", " Fl -")))
    missing = [name for option in COMMON_OPTIONS for name in option.opts if name[1:] not in named]
    assert missing == []


def test_the_file_of_examples_says_nothing_of_what_is_not_there() -> None:
    extras = tomllib.loads(text_of("man/examples.toml"))
    assert set(extras) <= set(COMMANDS)
    keys = {"store", "begin", "setup", "own", "more", "exit", "environment", "files", "see", "examples"}
    assert {key for extra in extras.values() for key in extra} <= keys
    of_examples = {key for extra in extras.values() for example in extra.get("examples", []) for key in example}
    assert of_examples <= {"text", "line", "status", "statuses", "how"}


def test_a_line_of_an_example_fits_a_page_of_80_columns() -> None:
    lines = [line for page in manpages.pages() for example in page.examples() for line in example["line"].splitlines()]
    assert [line for line in lines if len(line) > 72] == []


@pytest.mark.parametrize(
    ("topic", "name", "heading"),
    [
        ("exit-codes", "wfctl.1", "EXIT STATUS"),
        ("environment", "wfctl.1", "ENVIRONMENT"),
        ("formats", "wfctl.1", "OUTPUT"),
        ("time", "wfctl.1", "TIMES"),
        ("states", "wfctl-occurrences.7", "DESCRIPTION"),
    ],
)
def test_what_a_topic_lists_is_in_the_page_about_it(topic: str, name: str, heading: str) -> None:
    """Each word that begins a line of the topic stands in its section."""
    written = plain(section(name, heading))
    words = re.findall(r"^(?:-o )?([A-Za-z_]*[a-z_-]+|[A-Z_]+|\d+)  +", TOPICS[topic], re.MULTILINE)
    assert [word for word in words if word not in written] == []


def test_every_topic_is_in_the_page_of_topics() -> None:
    written = plain(text_of("man/wfctl-topics.7"))
    assert [topic for topic in TOPICS if f".Ss {topic}\n" not in written] == []


def test_every_code_is_in_its_page() -> None:
    written = plain(text_of("man/wfctl-codes.7"))
    assert [code for code in (*BY_CODE, *WARNINGS, *words_of_answers()) if f".It Sy {code}\n" not in written] == []


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("wfctl-schedule.5", lambda text: schedule_from_toml(text.encode())),
        ("wfctl-deployment.5", lambda text: deployment_from_toml(text.encode())),
        ("wfctl.toml.5", lambda text: settings_from_plain(tomllib.loads(text))),
    ],
)
def test_the_example_of_a_file_is_valid(name: str, read: Callable[[str], object]) -> None:
    found = re.search(r"^\.Bd -literal.*\n((?:(?!\.Ed).*\n)+)\.Ed", section(name, "EXAMPLES"), re.MULTILINE)
    assert found
    assert read(plain(found[1]))


def test_the_pages_of_definitions_name_every_field() -> None:
    trigger = {"kind": "interval", "every": "1m"}
    needs = {
        "partition": "p",
        "account": "a",
        "cpus": 1,
        "memory": "1G",
        "time_limit": "1m",
        "nodes": 1,
        "options": ["--qos=b"],
    }
    one_command = deployment_to_plain(deployment_from_plain({"command": ["/bin/true"], "executor": "slurm", "slurm": needs}))
    fields = {
        "wfctl-schedule.5": {*schedule_to_plain(schedule_from_plain({"deployment": "d", "trigger": trigger})), "every", "at"},
        "wfctl-deployment.5": {*one_command, "steps", "name", *needs},
    }
    for name, expected in fields.items():
        words = set(re.findall(r"[a-z_]+", " ".join(re.findall(r"\.(?:It )?Ic (.*)", text_of(f"man/{name}")))))
        assert expected <= words, name


def test_the_pages_of_settings_name_every_setting() -> None:
    for key, _, _ in Settings().items():
        table, _, name = key.rpartition(".")
        assert f".Ss Table {table}\n" in text_of("man/wfctl.toml.5")
        assert name in page("wfctl.toml.5")
        assert variable_of(key) in page("wfctl.toml.5")
        assert re.search(rf"^# {name} = ", text_of("config/wfctl.toml"), re.MULTILINE)


def test_the_page_of_occurrences_names_every_status_and_reason() -> None:
    written = text_of("man/wfctl-occurrences.7")
    assert all(f".It Sy {status}\n" in written for status in Status)
    found = re.search(r"^\.Ss Reasons\n(.*?)^\.S", written, re.MULTILINE | re.DOTALL)
    assert found
    assert set(re.split(r"[\s,.:]+", found.group(1))) >= REASONS
    assert ".Sh DESIGN\n" in written


@pytest.mark.skipif(shutil.which("mandoc") is None, reason="mandoc is not installed")
def test_mandoc_finds_nothing_in_the_pages() -> None:
    pages = [str(PROJECT / "man" / name) for name in PAGES]
    answer = subprocess.run(["mandoc", "-Tlint", "-Wwarning", *pages], capture_output=True, text=True, check=False)
    assert answer.stdout + answer.stderr == ""


@pytest.mark.skipif(not (shutil.which("man") and shutil.which("groff")), reason="man-db and groff are not installed")
@pytest.mark.parametrize("part", range(4), ids=lambda part: f"part {part + 1} of 4")  # for as many workers
def test_man_warns_of_nothing_in_the_pages(part: int) -> None:
    pages = [str(PROJECT / "man" / name) for name in PAGES[part::4]]
    answer = subprocess.run(
        ["man", "--warnings", "-E", "UTF-8", "-l", "-Z", *pages],
        env={**os.environ, "LC_ALL": "C.UTF-8", "MANROFFOPT": "", "MANWIDTH": "80"},
        capture_output=True,
        check=False,
    )
    assert (answer.returncode, answer.stderr.decode()) == (0, "")
    assert answer.stdout.count(b"wfctl") > len(pages)


# Examples -----------------------------------------------------------------------------------------------------------------

DEPLOYMENTS = sorted((PROJECT / "config/deployments").glob("*.toml"))
SCHEDULES = sorted((PROJECT / "config/schedules").glob("*.toml"))


@pytest.mark.parametrize("path", DEPLOYMENTS, ids=lambda path: path.stem)
def test_example_deployment_is_valid(path: Path) -> None:
    assert deployment_from_toml(path.read_bytes()).description


@pytest.mark.parametrize("path", SCHEDULES, ids=lambda path: path.stem)
def test_example_schedule_is_valid_for_its_deployment(path: Path) -> None:
    schedule = schedule_from_toml(path.read_bytes())
    deployment = deployment_from_toml((PROJECT / f"config/deployments/{schedule.deployment}.toml").read_bytes())
    assert check_input(deployment.input_schema, schedule.input) == []


def test_there_are_examples() -> None:
    assert len(DEPLOYMENTS) >= 3
    assert {schedule_from_toml(path.read_bytes()).trigger.kind for path in SCHEDULES} == {"cron", "interval", "oneshot"}


def test_example_settings_are_valid_as_they_are_and_with_every_line_in_effect() -> None:
    written = text_of("config/wfctl.toml")
    assert settings_from_plain(tomllib.loads(written)) == Settings()
    in_effect = re.sub(r"^# (?=(\[[\w.]+\]|\w+ = ))", "", written, flags=re.MULTILINE)
    shown = settings_from_plain(tomllib.loads(in_effect))
    assert {key for key, _, origin in shown.items() if origin == "built-in"} == set()
    assert (shown.poll_interval_s, shown.max_concurrent_runs, shown.drain_grace_s, shown.on_shutdown, shown.max_output) == (
        Settings().poll_interval_s,
        Settings().max_concurrent_runs,
        Settings().drain_grace_s,
        Settings().on_shutdown,
        Settings().max_output,
    ), "a default in config/wfctl.toml is not the default"


def test_the_unit_asks_for_a_watchdog_only_where_the_supervisor_feeds_it() -> None:
    feeds = any("WATCHDOG=1" in path.read_text("utf-8") for path in (PACKAGE / "supervisor").glob("*.py"))
    assert ("WatchdogSec=" in text_of("wfctl/systemd/wfctl.service")) == feeds


# Rules for every file -----------------------------------------------------------------------------------------------------

RUNG = {
    "value": -1, "errors": 0, "linux": 0, "core": 1, "clock": 2, "settings": 2, "store": 3, "keeper": 3,
    "slurm": 4, "operations": 5, "rpc": 6, "supervisor": 7, "cli": 8, "__init__": 9, "__main__": 9,
}  # fmt: skip
HEAVY = ("rich", "croniter", "portalocker", "jsonschema_rs", "asyncio", "importlib.metadata")


def parts_imported_by(path: Path) -> set[str]:
    nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
    plain = [alias.name for n in nodes if isinstance(n, ast.Import) for alias in n.names]
    froms = [n for n in nodes if isinstance(n, ast.ImportFrom)]
    odd = [n for n in plain if n.split(".")[0] == "wfctl"]
    odd += [str(n.module) for n in froms if n.level or (n.module == "wfctl" and {a.name for a in n.names} != {"__version__"})]
    assert not odd, "write `from wfctl.part import name`"
    return {n.module.split(".")[1] for n in froms if n.module and n.module.startswith("wfctl.")}


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_only_go_left(path: Path) -> None:
    own = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    assert all(RUNG[part] < RUNG[own] for part in parts_imported_by(path) - {own})


@pytest.mark.parametrize("module", ["wfctl", "wfctl.cli", "wfctl.cli.app", "wfctl.__main__"])
def test_import_loads_nothing_heavy(module: str) -> None:
    code = f"import sys, {module}; print(*[name for name in {HEAVY!r} if name in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == ""


def project_files() -> list[Path]:
    folders = ("wfctl", "tests", "tools", "config", "man", "completions", "benchmarks", ".ci")
    tops = [path for path in PROJECT.iterdir() if path.suffix in (".md", ".toml")]
    below = [path for folder in folders for path in (PROJECT / folder).rglob("*") if path.is_file()]
    return sorted(path for path in [*tops, *below] if path.suffix != ".pyc")


def test_no_file_leaves_work_for_later_or_names_a_place_of_one_machine() -> None:
    words = [rf"\b{'TO'}{'DO'}\b", rf"\b{'FIX'}{'ME'}\b"]
    places = [r"(?<![\w.$])/(?:root|work)/", r"/tmp/\w+/bin"]
    unwanted = re.compile("|".join([*words, *places]))
    found = [
        f"{path.relative_to(PROJECT)}: {match.group()}"
        for path in project_files()
        for match in unwanted.finditer(path.read_text("utf-8", errors="replace"))
    ]
    assert found == []

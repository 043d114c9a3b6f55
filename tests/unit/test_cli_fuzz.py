"""Whatever is typed: an answer or a refusal, never a traceback and never the exit status of a bug (contract 11.6)."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.doors import command_line
from wfctl import init_store
from wfctl.cli.app import root as tree
from wfctl.cli.base import Group

DOCUMENTED = {0, 1, 2, 65, 66, 69, 73, 74, 75, 76, 77, 78, 80, 81}
HOSTILE = (
    "",
    " ",
    "-",
    "--",
    "-1",
    "0",
    "1",
    "2",
    "999999999999999999999999",
    "1e400",
    "nan",
    "x",
    "null",
    "true",
    "{}",
    "[]",
    "[[[",
    '{"a": 1}',
    "{" * 200,
    "a=b",
    "=",
    "a=",
    "=b",
    "a.b.c=1",
    'input."a.b"=1',
    "trigger.kind=cron",
    "overlap=que",
    "\n",
    "\r\n",
    "a\nb",
    "\t",
    "\x1b[2J",
    "\x7f",
    "\udcff",
    "a\udcffb",
    "żółw",
    "👩‍👩‍👧",
    "\u202egnp.exe",
    "\u017f",
    "İ",
    "x" * 5000,
    "../..",
    "..",
    ".",
    "a/b",
    "/",
    "/dev/null",
    "/nonexistent/x",
    "nightly",
    "NIGHTLY",
    "nightly@",
    "@",
    "nightly@now",
    "nightly@02:30",
    "nightly@2",
    "nightly@2026-12-01",
    "nightly@2027-01-01T02:30:00Z",
    "dump",
    "run-000001",
    "run-1",
    "run-",
    "run-000000",
    "run-9" + "9" * 30,
    "* * * * *",
    "30 25 * * *",
    "@reboot",
    "0 0 31 2 *",
    "1-",
    "Europe/Paris",
    "Europe/Pariss",
    "../../etc/passwd",
    "1h30",
    "5m",
    "-5m",
    "9999999w",
    "250ms",
    "now",
    "yesterday",
    "2026-12-01T09:00:00Z",
    "2026-12-01T09:00:00",
    "9999-12-31T23:59:59Z",
    "0001-01-01T00:00:00Z",
    "0001-01-01T00:00:00+14:00",
    "completed",
    "skiped",
    "id,state",
    "id,,id",
    ",",
    "json",
    "jsonl",
    "csv",
    "name",
    "table",
    "plain",
    "workflow.schedules.list",
    "workflow.server.watch",
    "@-",
    "@/dev/null",
    "@",
    "%s",
    "{0}",
    "$(id)",
    "`id`",
)
#: what would not come back, would act outside of the store, or starts what the operator names
LEFT_OUT = {"supervise", "demo", "rpc serve", "systemd install", "schedule edit", "deployment edit"}
LEFT_OUT_OPTIONS = {"--watch", "--follow", "--editor", "--store", "--wait"}
GOOD = {
    "schedule_id": ("nightly",),
    "schedule_ids": ("nightly",),
    "deployment_id": ("dump",),
    "run_id": ("run-000001",),
    "run_ids": ("run-000001",),
    "occurrence": ("nightly@2027-01-01T02:30:00Z",),
    "assignments": ("overlap=queue", "notes=x", "trigger.expression=0 3 * * *", "description=x"),
    "given": ("a=1",),
    "expression": ("30 2 * * *",),
}
ADDED = {
    "run start": ["--dry-run"],
    "run resume": ["--detach"],
    "run wait": ["--timeout", "1ms"],
    "occurrence wait": ["--timeout", "1ms"],
    "drain": [],
}


def leaves(group: Group = tree, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name in group.entries:
        found = group.get_command(click.Context(group), name)
        assert found is not None
        if isinstance(found, Group):
            yield from leaves(found, (*path, name))
        elif " ".join((*path, name)) not in LEFT_OUT:
            yield (*path, name), found


LEAVES = list(leaves())
values = st.one_of(
    st.sampled_from(HOSTILE),
    st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=20),
)


def value_of(param: click.Parameter) -> st.SearchStrategy[str]:
    """Most of the values are fit for the parameter, so that what lies behind the reading of them is reached too."""
    good = GOOD.get(param.name or "", ("1", "5m", "2027-01-01T02:30:00Z"))
    fit = tuple(map(str, param.type.choices)) if isinstance(param.type, click.Choice) else good
    return st.one_of(st.sampled_from(fit), st.sampled_from(fit), st.sampled_from(fit), values)


@st.composite
def lines(draw: st.DrawFn) -> list[str]:
    path, command = draw(st.sampled_from(LEAVES))
    words: list[str] = []
    for param in command.params:
        if LEFT_OUT_OPTIONS.intersection(param.opts) or not isinstance(param, click.Option) or draw(st.integers(0, 3)):
            continue
        name = draw(st.sampled_from(param.opts))
        words += [name] if param.is_flag or param.count else [name, draw(value_of(param))]
    for param in command.params:
        if isinstance(param, click.Argument):
            count = param.nargs if param.nargs > 0 else draw(st.integers(0, 3))
            words += [draw(value_of(param)) for _ in range(count)]
    if draw(st.integers(0, 9)) == 0:
        words.insert(draw(st.integers(0, len(words))), draw(values))
    return [*path, *words, *ADDED.get(" ".join(path), [])]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A store of its own, in a folder where anything may be written."""
    folder = tmp_path_factory.mktemp("fuzz")
    with init_store(folder / "store") as store:
        store.create_deployment(deployment_id="dump", command=["/bin/true"])
        store.create_schedule(schedule_id="nightly", deployment_id="dump", trigger={"kind": "cron", "expression": "30 2 * * *"})
        store.start_run(deployment_id="dump")
    before, stdin, environ = Path.cwd(), sys.stdin, dict(os.environ)
    (folder / "cwd").mkdir()
    os.chdir(folder / "cwd")
    os.environ.update(WFCTL_STORE=str(folder / "store"), HOME=str(folder), XDG_STATE_HOME=str(folder / "state"))
    yield folder
    os.chdir(before)
    sys.stdin = stdin
    os.environ.clear()
    os.environ.update(environ)


@given(words=lines())
@settings(
    max_examples=int(os.environ.get("WFCTL_FUZZ", "250")),
    deadline=None,
    derandomize="WFCTL_FUZZ" not in os.environ,
    suppress_health_check=list(HealthCheck),
)
def test_11_6_any_line_is_answered_or_refused(place: Path, words: list[str]) -> None:
    sys.stdin = io.TextIOWrapper(io.BytesIO(b"nonsense\n"))
    said = command_line(*words)
    assert "Traceback" not in said.out + said.err, words
    assert said.status in DOCUMENTED, (words, said)
    assert "a bug of wfctl" not in said.err
    if said.status in DOCUMENTED - {0, 1} and "json" not in words and "jsonl" not in words and "-q" not in words:
        assert said.err.startswith("wfctl: ") or "\nwfctl: " in said.err or said.err.startswith("Usage: "), (words, said)
    assert "\x1b" not in said.err
    assert not (place / "state/wfctl/reports").exists()

"""A failure as people see it: what, where, how to mend it, and its code word (contract 8.5, 8.6, 9.1, 11.6)."""

from __future__ import annotations

import errno
import json
import os
import shlex
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.doors import Said, command_line
from wfctl import init_store
from wfctl.cli import blame, bug, failure, version
from wfctl.cli.base import Common
from wfctl.cli.help import text_of
from wfctl.cli.help_codes import STATUSES, words
from wfctl.cli.words import Change, read_line
from wfctl.core.contradictions import REMEDIES
from wfctl.core.model import Status
from wfctl.core.reasons import PHRASES
from wfctl.errors import ERRORS, InvalidArgument, NotFound, WfctlError


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("failure") / "store"
    with init_store(path) as store:
        store.create_deployment(deployment_id="dump", command=["/bin/true"])
        store.create_schedule(schedule_id="nightly", deployment_id="dump", trigger={"kind": "cron", "expression": "30 2 * * *"})
    return path


@pytest.fixture
def at(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("WFCTL_STORE", str(root))
    yield


# The parts --------------------------------------------------------------------------------------------------------------


def test_one_problem_takes_five_lines(at: None) -> None:
    said = command_line("schedule", "add", "n", "--deployment", "dump", "--cron", "30 2 * * *", "--timezone", "Europe/Pariss")
    assert said == Said(
        65,
        "",
        "wfctl: schedule n: trigger.timezone: 'Europe/Pariss' is unknown to this machine's tz database; "
        "did you mean Europe/Paris?\n"
        "  --timezone Europe/Pariss\n"
        "             ^^^^^^^^^^^^^\n"
        "  fix: wfctl schedule add n --deployment dump --cron '30 2 * * *' --timezone Europe/Paris\n"
        "  code: invalid-definition (wfctl help invalid-definition)\n",
    )


def test_several_problems_each_have_their_place_and_one_fix(at: None) -> None:
    line = ["schedule", "add", "n", "--deployment", "dump", "--cron", "30 2 * * *", "--overlap=que", "--lateness", "1h30"]
    assert command_line(*line).err.splitlines() == [
        "wfctl: schedule n: 2 problems",
        '  overlap: cannot be "que"; did you mean "queue"?',
        "    --overlap=que",
        "              ^^^",
        "  lateness: '1h30' ends in a number without a unit; did you mean 1h30m?",
        "    --lateness 1h30",
        "               ^^^^",
        "  fix: wfctl schedule add n --deployment dump --cron '30 2 * * *' --overlap=queue --lateness 1h30m",
        "  code: invalid-definition (wfctl help invalid-definition)",
    ]


def test_one_wrong_thing_without_a_suggestion_is_not_written_anew_in_part(at: None) -> None:
    line = ["schedule", "add", "n", "--deployment", "dump", "--cron", "30 25 * * *", "--overlap", "que"]
    assert "\n  fix: wfctl schedule add --help\n" in command_line(*line).err


@pytest.mark.parametrize(
    "more", [["-q"], ["-o", "json"], ["-o", "jsonl"], ["-o", "csv"], ["-o", "name"]], ids=lambda words: " ".join(words)
)
def test_8_5_programs_and_quiet_ones_get_one_line(at: None, more: list[str]) -> None:
    said = command_line("schedule", "show", "nigthly", *more)
    assert (said.status, said.out, said.err.count("\n")) == (66, "", 1)
    if "json" in more[-1]:
        assert set(json.loads(said.err)) == {"code", "message", "data"}
    else:
        assert said.err == "wfctl: no schedule 'nigthly'; did you mean nightly?\n"


def test_the_commands_to_run_name_the_store_that_the_line_names(tmp_path: Path) -> None:
    said = command_line("--store", f"{tmp_path}/no store", "schedules")
    assert said.status == 66
    assert f"\n  fix: wfctl --store '{tmp_path}/no store' init\n" in said.err


@pytest.mark.parametrize(
    ("line", "fix"),
    [
        (["schedule", "add", "nightly", "--deployment", "dump", "--every", "1h"], "wfctl schedule show nightly"),
        (["schedule", "set", "nightly", "notes=x", "--expected-revision", "9"], "wfctl schedule show nightly"),
        (["deployment", "delete", "dump", "--yes"], "wfctl deployment show dump"),
        (["schedule", "delete", "nightly", "--no-input"], "wfctl schedule delete nightly --no-input --yes"),
        (["occurrences", "--cursor", "x", "--limit", "5"], "wfctl occurrences --limit 5"),
        (["occurrences", "--cursor=x"], "wfctl occurrences"),
        (["schedules", "--limit", "ten"], "wfctl schedules --help"),
        (["schedule", "add", "x"], "wfctl schedule add --help"),
        (["init"], "wfctl init --if-absent"),
        (["occurrence", "show", "nightly"], "wfctl help time"),
        (["run", "show", "run-000077"], "wfctl runs"),
        (["nonsense"], "wfctl --help"),
        (["rpc", "call", "zzz"], "wfctl rpc schema"),
        (["status"], "wfctl supervise"),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, list) else "",
)
def test_the_nearest_command_to_run(at: None, monkeypatch: pytest.MonkeyPatch, line: list[str], fix: str) -> None:
    monkeypatch.setattr(blame, "_UNITS", ())
    assert f"\n  fix: {fix}\n" in command_line(*line).err


_ADD = ["schedule", "add", "x", "--deployment", "dump"]
_SET = ["schedule", "set", "nightly"]


@pytest.mark.parametrize(
    ("line", "fix"),
    [
        ([*_ADD, "--cron", "30", "2", "*", "*", "*"], "wfctl schedule add x --deployment dump --cron '30 2 * * *'"),
        ([*_ADD, "--cron=0", "2", "a.txt", "b", "c", "1-5"], "wfctl schedule add x --deployment dump '--cron=0 2 * * 1-5'"),
        ([*_ADD, "--cron", "0", "2", "a.txt", "5", "b"], "wfctl schedule add --help"),
        (
            ["schedule", "add", "--deployment", "dump", "--cron", "0", "2", "*", "*", "*", "x", "--paused"],
            "wfctl schedule add --deployment dump --cron '0 2 * * *' x --paused",
        ),
        ([*_ADD, "y", "--cron", "0 2 * * *"], "wfctl schedule add --help"),
        (["init", "/srv/my store"], "wfctl --store '/srv/my store' init"),
        (["init", "--if-absent", "--", "/srv/x"], "wfctl --store /srv/x init --if-absent"),
        ([*_SET, "--timezone", "UTC"], "wfctl schedule set nightly trigger.timezone=UTC"),
        ([*_SET, "--cron", "0 3 * * *"], "wfctl schedule set nightly 'trigger.expression=0 3 * * *'"),
        ([*_SET, "--every=2h", "--dry-run"], "wfctl schedule set nightly trigger.every=2h --dry-run"),
        ([*_SET, "--at", "2030-01-01T00:00:00Z"], "wfctl schedule set nightly trigger.at=2030-01-01T00:00:00Z"),
        ([*_SET, "--overlap", "queue", "a=b"], "wfctl schedule set nightly overlap=queue a=b"),
        ([*_SET, "--misfire", "latest", "--max-run", "none"], "wfctl schedule set nightly misfire=latest max_run=none"),
        ([*_SET, "--lateness", "5m", "--notes=x"], "wfctl schedule set nightly lateness=5m notes=x"),
        ([*_SET, "--max-active-runs", "2", "--max-steps", "3"], "wfctl schedule set nightly max_active_runs=2 max_steps=3"),
        ([*_SET, "--deployment", "dump"], "wfctl schedule set nightly deployment=dump"),
        ([*_SET, "--timezone"], "wfctl schedule set --help"),
        ([*_SET, "--zzz", "1", "--timezone", "UTC"], "wfctl schedule set --help"),
        (["deployment", "set", "dump", "--cwd", "/srv"], "wfctl deployment set dump working_directory=/srv"),
        ([*_SET, "input.version=1.2"], "the same line with 'input.version=\"1.2\"'"),
        (["run", "start", "dump", "--input", "version=1.2"], "the same line with --input 'version=\"1.2\"'"),
        (["run", "start", "dump", "--input=version=null", "--dry-run"], "the same line with --input='version=\"null\"'"),
        (["run", "start", "dump", "--input", "count=1.5"], "wfctl deployment check dump"),
        (["store", "backup", "old.tar"], "wfctl store backup old.tar --yes"),
        (["schedule", "edit", "nightly"], "wfctl schedule edit nightly"),
        (["deployment", "edit", "dump"], "wfctl deployment edit dump"),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, list) else "",
)
def test_the_line_as_it_was_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: list[str], fix: str) -> None:
    root = tmp_path / "store"
    monkeypatch.setenv("WFCTL_STORE", str(root))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old.tar").touch()
    monkeypatch.setenv("WFCTL_EDITOR", "sh -c 'echo overlap = 7 >\"$0\"'")
    schema = {"properties": {"version": {"type": "string"}, "count": {"type": "integer"}}}
    with init_store(root) as store:
        store.create_deployment(deployment_id="dump", command=["/bin/true"], input_schema=schema)
        store.create_schedule(schedule_id="nightly", deployment_id="dump", trigger={"kind": "cron", "expression": "30 2 * * *"})
    assert f"\n  fix: {fix}\n" in command_line(*line).err


def test_a_shell_may_have_put_the_names_of_files_for_a_star(at: None) -> None:
    first = command_line(*_ADD, "--cron", "30", "2", *(f"file{number}" for number in range(300))).err.splitlines()[0]
    assert first == (
        "wfctl: got 301 unexpected extra arguments (2 file0 file1 file2 ...); "
        "quote the cron expression, or the shell puts the names of files for each *"
    )


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        (["occurrences", "--since", "x"], "--since and --until also count back from now: 2h, 7d"),
        (["schedule", "next", "nightly", "--until", "x"], "--from and --until also count ahead: 12h, 36h"),
        (["schedule", "next", "nightly", "--from", "x"], "--from and --until also count ahead: 12h, 36h"),
        (["simulate", "nightly", "--until", "x"], None),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, list) else "",
)
def test_how_a_time_counts_is_said_as_this_command_counts(at: None, line: list[str], hint: str | None) -> None:
    said = command_line(*line).err
    assert [row.strip() for row in said.splitlines() if " also count" in row] == ([hint] if hint else [])


@pytest.mark.parametrize(
    ("code", "message", "data", "line", "fix"),
    [
        ("no-store", "x", {"path": "/srv/my store"}, ["status"], "wfctl --store '/srv/my store' init"),
        ("no-store", "x", {"path": "/srv/s"}, ["--store", "s", "status"], "wfctl --store /srv/s init"),
        ("damaged-store", "put a backup back", {}, ["status"], "wfctl store restore FILE"),
        ("damaged-store", "see `wfctl store verify`", {}, ["status"], "wfctl store verify"),
        ("damaged-store", "has format 9: use a newer wfctl", {}, ["status"], "wfctl help damaged-store"),
        ("damaged-store", "restoring.json cannot be read", {}, ["status"], "wfctl help damaged-store"),
        ("damaged-store", "is no backup", {}, ["store", "restore", "f"], "wfctl help damaged-store"),
        ("blocked", "x", {"kind": "schedule", "id": "n", "diagnostic": {"file": "/f"}}, _SET, "wfctl schedule edit n"),
        ("blocked", "x", {"kind": "deployment", "id": "d", "diagnostic": {"file": "/f"}}, _SET, "wfctl deployment edit d"),
        ("invalid-definition", "x", {}, ["run", "resume", "run-000003", "--input", "a=1"], "wfctl run show run-000003"),
    ],
)
def test_the_nearest_command_to_an_error(code: str, message: str, data: dict[str, object], line: list[str], fix: str) -> None:
    kind = next(kind for kind in ERRORS if kind.code == code)
    store = line[1] if line[0] == "--store" else None
    assert f"  fix: {fix}" in blame.lines(kind(message, data), message, read_line(line), store)


def test_2_3_what_blocks_is_shown_in_its_file(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with init_store(root) as store:
        store.create_deployment(deployment_id="dump", command=["/bin/true"])
        store.create_schedule(schedule_id="nightly", deployment_id="dump", trigger={"kind": "interval", "every": "1h"})
    file = root / "schedules/nightly.toml"
    file.write_text(file.read_text().replace("overlap =", "overlp ="))
    said = command_line("--store", str(root), "schedule", "set", "nightly", "notes=x")
    number = next(index for index, row in enumerate(file.read_text().splitlines(), 1) if row.startswith("overlp"))
    row = next(row for row in said.err.splitlines() if f'nightly.toml:{number}: overlp = "skip"' in row)
    carets = said.err.splitlines()[said.err.splitlines().index(row) + 1]
    assert (said.status, row[carets.index("^") : len(carets)]) == (75, "overlp")
    assert f"\n  fix: wfctl --store {root} schedule edit nightly\n" in said.err


def test_without_a_supervisor_the_service_is_started_where_there_is_one(
    at: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "wfctl.service").touch()
    monkeypatch.setattr(blame, "_UNITS", (str(tmp_path / "wfctl.service"),))
    assert "\n  fix: wfctl supervise\n" in command_line("status").err, "another store is not the service's"


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.code)
def test_every_error_ends_with_its_code(kind: type[WfctlError]) -> None:
    for data in ({}, {"id": "a\x1b[31m b", "kind": "schedule", "near": ["b"]}, {"run_id": "run-000001"}, {"near": None}):
        lines = blame.lines(kind("what", data), "what", read_line(["schedule", "show", "a\x1b[31m b"]), None)
        assert lines[0] == "wfctl: what"
        assert lines[-1] == f"  code: {kind.code} (wfctl help {kind.code})"
        assert text_of([kind.code]).startswith(f"{kind.code}: exit status {kind.exit_status}")
        assert "\x1b" not in "".join(lines)


def test_8_6_what_was_typed_is_shown_and_never_interpreted(at: None) -> None:
    said = command_line("schedule", "show", "x\x1b[2J\nwfctl: all is well")
    assert "\x1b" not in said.err
    assert not any(row.startswith("wfctl: all") for row in said.err.splitlines())
    wide = command_line("schedule", "set", "nightly", "overlap=日本語que").err.splitlines()
    assert (wide[1], wide[2]) == ("  overlap=日本語que", "          ^^^^^^^^^"), "a caret below each cell"
    long = command_line("schedule", "set", "nightly", "notes=" + "x" * 300, "overlap=" + "y" * 300).err.splitlines()
    assert all(len(row) <= 80 for row in long[1:3])


def test_what_may_be_secret_is_not_repeated(at: None) -> None:
    line = ["run", "start", "dmup", "--input", "password=hunter2", "--dry-run"]
    said = command_line(*line)
    assert "hunter2" not in said.err
    assert "\n  fix: the same line with dump\n" in said.err
    assert "hunter2" not in command_line("schedule", "set", "nigthly", "input.token=hunter2").err


# The line ---------------------------------------------------------------------------------------------------------------


def test_a_line_is_read_as_click_reads_it() -> None:
    line = read_line(["--store", "/s", "schedule", "-v", "set", "nightly", "a=1", "--unset=notes", "b=2", "--", "--c=3"])
    assert line.path == ["schedule", "set"]
    assert [(word.param, word.text) for word in line.values if word.param not in ("command", "store")] == [
        ("unset", "notes"),
        ("schedule_id", "nightly"),
        ("assignments", "a=1"),
        ("assignments", "b=2"),
        ("assignments", "--c=3"),
    ]
    (word,) = line.of("unset")
    again = line.again([Change(word, 0, 5, "lateness"), Change(line.of("assignments")[0], 2, 3, "a b")])
    assert again == "wfctl --store /s schedule -v set nightly 'a=a b' --unset=lateness b=2 -- --c=3"
    assert shlex.split(again)[1:3] == ["--store", "/s"]


def test_a_value_that_may_be_left_out_takes_no_option_for_it() -> None:
    line = read_line(["status", "--watch", "-o", "jsn"])
    assert [(word.param, word.text) for word in line.values] == [("command", "status"), ("output", "jsn")]


# Help -------------------------------------------------------------------------------------------------------------------


def test_every_word_of_lists_and_answers_is_explained() -> None:  # contract 8.3, 8.7
    assert set(STATUSES) == {status.value for status in Status}
    for word in (*words(), *PHRASES, *(code.value for code in REMEDIES)):
        assert text_of([word]).strip()
    assert "status skipped-misfire\n" in text_of(["skipped-misfire"])
    assert "reason outlived\n" in text_of(["outlived"])
    both = text_of(["paused"])
    assert "state paused\n" in both and "reason paused\n" in both
    assert "wfctl store verify --fix candidate-settled" in text_of(["candidate-settled"])


# Bugs -------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    return tmp_path


def failing(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(version, "_sqlite_version", fail)


@pytest.mark.parametrize(
    "error", [RuntimeError("seven"), RecursionError("deep"), MemoryError(), AssertionError(), KeyError("x")], ids=repr
)
def test_11_6_a_bug_is_one_line_and_a_report(home: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    failing(monkeypatch, error)
    said = command_line("version", "-v")
    assert (said.status, said.out, said.err.count("\n")) == (70, "", 1)
    assert said.err.startswith(f"wfctl: a bug of wfctl: {type(error).__name__}")
    (report,) = (home / "state/wfctl/reports").iterdir()
    assert str(report) in said.err
    assert stat.S_IMODE(report.stat().st_mode) == 0o600
    text = report.read_text()
    assert "Traceback" in text and "\ncommand: wfctl version -v\n" in text and text.startswith("wfctl ")


def test_an_endless_recursion_is_reported(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def deeper(*_: object) -> None:
        deeper()

    monkeypatch.setattr(version, "_sqlite_version", deeper)
    said = command_line("version")
    assert said.status == 70
    assert "RecursionError" in said.err and "Traceback" not in said.err


def test_where_no_file_can_be_made_the_line_says_so(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk, or nothing that may be written to."""
    real = os.open

    def full(path: object, flags: int, *more: object, **other: object) -> int:
        if flags & os.O_CREAT:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(path, flags, *more, **other)  # type: ignore[call-overload,no-any-return]

    failing(monkeypatch, RuntimeError("seven"))
    monkeypatch.setattr(os, "open", full)
    said = command_line("version")
    assert said.err == "wfctl: a bug of wfctl: RuntimeError: seven; no place was found for a file with the details\n"
    assert said.status == 70


def test_half_a_report_is_not_left_on_a_full_disk(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = home / "full"
    full.mkdir()
    real = bug._write

    def write(folder: str, data: bytes) -> str:
        if folder.startswith(str(home / "state")):
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(folder, data)

    monkeypatch.setattr(bug, "_write", write)
    path = bug.keep_report(ValueError("x"), ["version"], os.environ)
    assert path is not None and Path(path).parent == home / "tmp"


def test_a_report_holds_nothing_secret(home: Path) -> None:
    arguments = [
        "run", "start", "dump", "--input", "password=hunter2", "--input=token=hunter2", "--input-json", '{"a": "hunter2"}',
        "--env", "KEY=hunter2", "environment.PASSWORD=hunter2", '{"input": "hunter2"}', "--overlap", "skip",
        "--", "curl", "hunter2",
    ]  # fmt: skip
    text = bug.report_text(ValueError("x"), arguments)
    assert "hunter2" not in text
    assert "command: wfctl run start dump --input password=... --input=token=... --input-json ... --env KEY=..." in text
    assert "--overlap skip -- ..." in text


def test_a_failure_of_the_report_is_no_traceback(at: None, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Unspeakable(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    failing(monkeypatch, Unspeakable())
    said = command_line("version")
    assert (said.status, said.err.count("\n")) == (70, 1)
    assert said.err.startswith("wfctl: a bug of wfctl: Unspeakable: (without a text)")
    monkeypatch.setattr(failure, "said", lambda error: error.nothing)
    broken = command_line("schedule", "show", "nigthly")
    assert (broken.status, broken.err) == (70, "wfctl: a bug of wfctl: AttributeError\n")


def test_where_the_place_cannot_be_found_out_the_error_is_told(at: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blame, "lines", lambda *_: 1 / 0)
    said = command_line("schedule", "show", "nigthly")
    assert said.status == 66
    assert said.err == "wfctl: no schedule 'nigthly'; did you mean nightly?\n  code: not-found (wfctl help not-found)\n"


def test_errors_of_others_are_reported_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert failure.report(NotFound("no x", {"near": ["y"]}), Common(), []) == 66
    assert failure.report(InvalidArgument("since: x", {"argument": "since"}), Common(), ["occurrences", "--since", "x"]) == 2
    err = capsys.readouterr().err
    assert "no x; did you mean y?" in err
    assert "  --since and --until also count back from now: 2h, 7d\n" in err

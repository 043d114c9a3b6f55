"""TOML text and files: canonical, with lines, and never trusted (contract 2.2, 2.3, 2.9, 3.6)."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wfctl.core.definition import deployment_to_plain, schedule_from_plain, schedule_to_plain
from wfctl.errors import InvalidDefinition
from wfctl.store.definitions import (
    LARGEST_DEFINITION,
    deployment_from_toml,
    digest,
    foreign_files,
    parse_toml,
    read_definition_file,
    scan_definitions,
    schedule_from_toml,
    to_toml,
)
from wfctl.store.layout import Layout

SCHEDULE = {
    "deployment": "report.default",
    "trigger": {"kind": "cron", "expression": "0 * * * *", "timezone": "Europe/Budapest"},
}


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    (tmp_path / "schedules").mkdir()
    return Layout(tmp_path)


def lines_of(content: str, read: Any = schedule_from_toml) -> dict[str, int | None]:
    with pytest.raises(InvalidDefinition) as caught:
        read(content.encode())
    return {problem.path: problem.line for problem in caught.value.problems}


def test_the_canonical_text_is_in_the_contracts_order_without_what_is_unset() -> None:
    content = to_toml(schedule_to_plain(schedule_from_plain(SCHEDULE | {"input": {"region": "eu"}})))
    assert content.decode() == (
        'format = 1\ndeployment = "report.default"\noverlap = "skip"\nmisfire = "skip"\nlateness = "1m"\nmax_run = "auto"\n\n'
        '[trigger]\nkind = "cron"\nexpression = "0 * * * *"\ntimezone = "Europe/Budapest"\n\n[input]\nregion = "eu"\n'
    )
    assert to_toml(schedule_to_plain(schedule_from_toml(content))) == content  # contract 2.2
    assert len(digest(content)) == 64


def test_the_examples_of_the_contract_are_read() -> None:
    schedule = schedule_from_toml(
        b'format = 1\ndeployment = "report.default"\nnotes = "For the finance team"   # free text\noverlap = "skip"\n'
        b'misfire = "skip"\nlateness = "60s"\nmax_run = "auto"\nnotify = { command = ["x"], after = 3 }\n[trigger]\n'
        b'kind = "cron"\nexpression = "0 * * * *"\ntimezone = "Europe/Budapest"\n[input]\nregion = "eu"\n'
    )
    assert schedule.input == {"region": "eu"}
    deployment = deployment_from_toml(
        b'format = 1\ndescription = "Hourly sales report"\nworking_directory = "/srv/report"\n'
        b'environment = { LANG = "C.UTF-8" }\n'
        b'umask = "022"\nexecutor = "local"\n[files]\n"report.py" = "sha256:' + b"9f" * 32 + b'"\n[input_schema]\n[[steps]]\n'
        b'name = "extract"\ncommand = ["python3", "report.py", "extract"]\nretries = 0\nretry_delay = "10s"\ntimeout = "none"\n'
    )
    assert deployment.steps[0].name == "extract"
    assert deployment.input_schema == {}
    assert deployment_from_toml(to_toml(deployment_to_plain(deployment))) == deployment


JSON = st.recursive(
    st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=4), below, max_size=3),
    max_leaves=8,
)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.text(max_size=4), JSON, max_size=4), st.text(max_size=10))
def test_inputs_and_texts_survive_the_file(bound: dict[str, Any], notes: str) -> None:
    plain = SCHEDULE | {"input": bound, "notes": notes}
    try:
        definition = schedule_from_plain(plain)
    except InvalidDefinition:
        assert "\\u0000" in repr(plain) or "\\x00" in repr(plain)
        return
    assert schedule_from_toml(to_toml(schedule_to_plain(definition))) == definition


def test_every_problem_has_the_line_of_its_key() -> None:
    content = """\
# a remark
format = 1
deployment = "Bad Id"
notes = '''
overlap = "not this one"
'''
overlap = "skp"
trigger.kind = "cron"
trigger . "expression" = "5-5 * * * *"

[input]
when = 2026-01-01

[input.deep]
a = [nan]

[zzz]
b = 1
"""
    assert lines_of(content) == {
        "deployment": 3,
        "overlap": 7,
        "trigger.expression": 9,
        "input.when": 12,
        "input.deep.a[0]": 15,
        "zzz": 17,
    }  # contract 2.3


def test_steps_are_found_by_their_number_and_a_missing_key_by_its_table() -> None:
    content = (
        'format = 1\n[[steps]]\nname = "a"\ncommand = ["x"]\n[[steps]]\nname = "b"\n\n[[steps]]\ncommand = [\n  "x",\n  5,\n]\n'
    )
    assert lines_of(content, deployment_from_toml) == {"steps[1].command": 5, "steps[2].command[1]": 9}


@pytest.mark.parametrize(
    ("content", "line", "hint"),
    [
        pytest.param(b"a = 1\nb = \n", 2, "Invalid value", id="a value that is missing"),
        pytest.param(b"a = 1\na = 2\n", 2, "overwrite", id="a key that is there twice"),
        pytest.param(b'a = 1\nb = "x', 2, "Unterminated", id="a text without an end"),
        pytest.param(b"\xef\xbb\xbfa = 1\n", 1, "byte order mark", id="a byte order mark"),
        pytest.param(b"a = 1\nb = '\xff'\n", 2, "UTF-8", id="not UTF-8"),
        pytest.param(b"a = 1\n\0\0\0", 2, "NUL", id="the zeros of a crash"),
        pytest.param(b"a = " + b"[" * 10_000, None, "nested", id="nested without end"),
        pytest.param(b"a" + b".a" * 100_000 + b" = 1", None, "64 parts", id="a key that would take all memory"),
        pytest.param(b"a = {b" + b" . 'a.b'" * 64 + b" = 1}", None, "64 parts", id="65 parts in an inline table"),
        pytest.param(b"a = 1" + b"0" * 10_000, None, "digits", id="a number of 10,000 digits"),
    ],
)
def test_what_is_no_toml_is_refused_with_its_line(content: bytes, line: int | None, hint: str) -> None:
    with pytest.raises(InvalidDefinition, match=hint) as caught:
        parse_toml(content, "schedules/x.toml")
    assert caught.value.problems[0].line == line
    assert caught.value.message.startswith("schedules/x.toml: ")


def test_a_definition_has_at_most_256_kib() -> None:
    filler = b"#" * (LARGEST_DEFINITION - 1) + b"\n"
    assert parse_toml(filler) == {}
    with pytest.raises(InvalidDefinition, match="262145 bytes"):
        parse_toml(b"#" + filler)
    with pytest.raises(InvalidDefinition, match="at most 262144"):
        to_toml({"notes": "x" * LARGEST_DEFINITION})


def test_an_instant_of_toml_is_an_instant() -> None:
    head = b'format = 1\ndeployment = "x"\n[trigger]\nkind = "oneshot"\nat = '
    assert schedule_from_toml(head + b"2026-12-01T09:00:00+01:00\n") == schedule_from_toml(head + b'"2026-12-01T08:00:00Z"\n')


def test_64_parts_of_a_key_are_taken_and_dots_in_texts_and_remarks_are_no_keys() -> None:
    assert "a" in parse_toml(b"a" + b".a" * 63 + b" = 1")
    dots = "x" + ".x" * 1000
    content = f'# {dots}\na = "{dots}"\n' + f"b = '''\n{dots}\n'''\n" + f'c = """\\""\n{dots}"""\n'
    assert parse_toml(content.encode())["a"] == dots


# Files


def test_a_file_that_is_there_and_one_that_is_not_are_different_things(layout: Layout) -> None:
    assert read_definition_file(layout, "schedule", "a").is_missing
    path = layout.definition("schedule", "a")
    path.write_bytes(b"x = 1\n")
    path.chmod(0o600)
    found = read_definition_file(layout, "schedule", "a")
    assert (found.content, found.problem) == (b"x = 1\n", None)
    assert found.signature == scan_definitions(layout, "schedule")["a"]


def fifo(path: Path) -> None:
    os.mkfifo(path, 0o600)


def link(path: Path) -> None:
    target = path.with_name("target")
    target.write_bytes(b"x = 1\n")
    path.symlink_to(target)


def named_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


def shared(path: Path) -> None:
    path.touch()
    path.chmod(0o620)


def large(path: Path) -> None:
    path.touch()
    path.chmod(0o600)
    os.truncate(path, LARGEST_DEFINITION + 1)


@pytest.mark.parametrize(
    ("make", "hint"),
    [
        pytest.param(fifo, "no regular file", id="a fifo does not hang"),
        pytest.param(link, "no regular file", id="a link is not followed"),
        pytest.param(named_socket, "no regular file", id="a socket"),
        pytest.param(lambda path: path.mkdir(), "no regular file", id="a directory"),
        pytest.param(shared, "chmod 600", id="others may write it"),
        pytest.param(large, "at most 262144", id="too large"),
    ],
)
def test_what_cannot_be_trusted_is_neither_read_nor_missing(layout: Layout, make: Any, hint: str) -> None:
    make(layout.definition("schedule", "a"))
    found = read_definition_file(layout, "schedule", "a")  # contract 2.9
    assert found.content is None
    assert not found.is_missing
    assert found.problem is not None
    assert hint in found.problem.message


def test_the_file_of_another_user_is_not_trusted(layout: Layout) -> None:
    path = layout.definition("schedule", "a")
    path.touch(0o600)
    found = read_definition_file(layout, "schedule", "a", owner=os.geteuid() + 1)
    assert found.problem is not None
    assert "belongs to" in found.problem.message


def test_a_directory_holds_definitions_and_foreign_files(layout: Layout) -> None:
    for name in ("a.toml", "b.default.toml", "Bad.toml", "notes.txt", ".a.toml.0011.tmp", "a.toml~"):
        (layout.schedules / name).touch()
    assert set(scan_definitions(layout, "schedule")) == {"a", "b.default"}
    assert foreign_files(layout, "schedule") == ["Bad.toml", "a.toml~", "notes.txt"]

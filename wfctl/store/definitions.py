"""Definition files: TOML text to values and back, and reading the files without trusting them (contract 2.2, 2.3, 2.9)."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from wfctl.core.definition import deployment_from_plain, schedule_from_plain
from wfctl.core.model import DeploymentDefinition, Json, ScheduleDefinition
from wfctl.errors import InvalidDefinition, Problem
from wfctl.store.filescan import Signature as Signature
from wfctl.store.filescan import foreign_files as foreign_files
from wfctl.store.filescan import scan_definitions as scan_definitions
from wfctl.store.filescan import signature_at as signature_at
from wfctl.store.filescan import signature_of
from wfctl.store.layout import Kind, Layout

LARGEST_DEFINITION = 256 * 1024  #: bytes (contract 3.6)

Definition = TypeVar("Definition", ScheduleDefinition, DeploymentDefinition)
_AT_LINE = re.compile(r" \(at line (\d+), column (\d+)\)$")
_PATH_PART = re.compile(r'"(?:[^"\\]|\\.)*"|\[(\d+)\]|[^.\[\]"]+')
_KEY = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"|'[^']*')"""
_KEYS = rf"{_KEY}(?:\s*\.\s*{_KEY})*"
_DEEP_KEY = re.compile(
    r"""(?<![\w-])(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')(?:[ \t]*+\.[ \t]*+(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')){64}"""
)
_TEXT_OR_REMARK = re.compile(
    r'''"""(?:[^"\\]|\\.|"(?!""))*+"""|\'{3}(?:[^\']|\'(?!\'\'))*+\'{3}|"(?:[^"\\\n]|\\.)*+"|\'[^\'\n]*+\'|\#[^\n]*+''',
    re.DOTALL,
)
_HEADER = re.compile(rf"\s*(\[\[?)\s*({_KEYS})\s*\]")
_ASSIGNMENT = re.compile(rf"\s*({_KEYS})\s*=")


# Text ---------------------------------------------------------------------------------------------------------------------


def digest(content: bytes) -> str:
    """Return the SHA-256 of a file's content, in hex."""
    return hashlib.sha256(content).hexdigest()


def to_toml(plain: Mapping[str, Json], subject: str = "definition") -> bytes:
    """Given the plain form of a definition, return its one canonical TOML text: the contract's order, nothing that is unset.

    Raise InvalidDefinition when it is larger than 256 KiB, or says something that TOML cannot.
    """
    import tomli_w

    kept = _without_unset(plain)
    try:
        content = tomli_w.dumps(kept).encode()
        is_faithful = tomllib.loads(content.decode()) == kept
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidDefinition(f"{subject}: cannot be written as TOML: {error}") from error
    if not is_faithful:
        raise InvalidDefinition(f"{subject}: has a value that TOML does not give back as it was")
    _check_size(len(content), subject)
    return content


def parse_toml(content: bytes, subject: str = "definition") -> dict[str, Any]:
    """Given the bytes of a file, return its plain form. Raise InvalidDefinition, with the line, for what is no TOML."""
    _check_size(len(content), subject)
    text = _decode(content, subject)
    if _has_deep_key(text):
        raise InvalidDefinition.of(subject, [Problem("", "has a dotted key of more than 64 parts")])
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidDefinition.of(subject, [_syntax_problem(str(error), content)]) from error
    except RecursionError as error:
        raise InvalidDefinition.of(subject, [Problem("", "is nested too deep")]) from error
    except ValueError as error:  # a number of thousands of digits
        raise InvalidDefinition.of(subject, [Problem("", str(error))]) from error


def schedule_from_toml(content: bytes, subject: str = "schedule") -> ScheduleDefinition:
    """Given the bytes of a schedule's file, return its value. Raise InvalidDefinition: every problem, with path and line."""
    return _from_toml(schedule_from_plain, content, subject)


def deployment_from_toml(content: bytes, subject: str = "deployment") -> DeploymentDefinition:
    """Given the bytes of a deployment's file, return its value. Raise InvalidDefinition: every problem, with path and line."""
    return _from_toml(deployment_from_plain, content, subject)


def read_schedule(content: bytes, subject: str = "schedule") -> tuple[dict[str, Any], ScheduleDefinition]:
    """As `schedule_from_toml`, with the plain form that the file gives."""
    return _read(schedule_from_plain, content, subject)


def read_deployment(content: bytes, subject: str = "deployment") -> tuple[dict[str, Any], DeploymentDefinition]:
    """As `deployment_from_toml`, with the plain form that the file gives."""
    return _read(deployment_from_plain, content, subject)


PARSERS: dict[Kind, Callable[..., Any]] = {"schedule": schedule_from_toml, "deployment": deployment_from_toml}


def add_lines(problems: tuple[Problem, ...], content: bytes) -> list[Problem]:
    """Given problems and the text they are about, return them with the line of each key path that stands there."""
    places = list(_places(content.decode("utf-8", "replace")))
    return [replace(problem, line=_line_of(problem.path, places)) for problem in problems]


def _from_toml(read: Callable[..., Definition], content: bytes, subject: str) -> Definition:
    return _read(read, content, subject)[1]


def _read(read: Callable[..., Definition], content: bytes, subject: str) -> tuple[dict[str, Any], Definition]:
    plain = parse_toml(content, subject)
    try:
        return plain, read(plain, subject=subject, format_required=True)
    except InvalidDefinition as error:
        raise InvalidDefinition.of(subject, add_lines(error.problems, content)) from error


def _without_unset(plain: Mapping[str, Json]) -> dict[str, Json]:
    kept: dict[str, Json] = {}
    for key, value in plain.items():
        if key == "steps":
            kept[key] = [_without_unset(step) for step in value]
        elif value is not None and (value not in ({}, []) or key == "input_schema"):
            kept[key] = value
    return kept


def _check_size(size: int, subject: str) -> None:
    if size > LARGEST_DEFINITION:
        raise InvalidDefinition.of(subject, [Problem("", f"is {size} bytes; a definition has at most {LARGEST_DEFINITION}")])


def _decode(content: bytes, subject: str) -> str:
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        problem = Problem("", "is not UTF-8 text; save the file as UTF-8", content.count(b"\n", 0, error.start) + 1)
        raise InvalidDefinition.of(subject, [problem]) from error
    if text.startswith("\ufeff"):
        raise InvalidDefinition.of(
            subject, [Problem("", "begins with a byte order mark; save the file as UTF-8 without one", 1)]
        )
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise InvalidDefinition.of(
            subject, [Problem("", "has a NUL character, as a file has that was cut off by a crash", line)]
        )
    return text


def _has_deep_key(text: str) -> bool:
    """Whether some key has more parts than anybody needs. Python 3.11's tomllib takes memory by the square of their number."""
    if not _DEEP_KEY.search(text):
        return False
    return _DEEP_KEY.search(_TEXT_OR_REMARK.sub('""', text)) is not None


def _syntax_problem(message: str, content: bytes) -> Problem:
    match = _AT_LINE.search(message)
    if match is None:
        return Problem("", message.removesuffix(" (at end of document)") + " at the end", content.count(b"\n") + 1)
    return Problem("", f"{message[: match.start()]} (column {match.group(2)})", int(match.group(1)))


# Lines --------------------------------------------------------------------------------------------------------------------

_Path = tuple[str | int, ...]


def _line_of(path: str, places: list[tuple[_Path, int]]) -> int | None:
    """The line of the longest beginning of the path that stands somewhere."""
    wanted = _split(path)
    best, line = 0, None
    for found, number in places:
        if best <= len(found) <= len(wanted) and wanted[: len(found)] == found:
            best, line = len(found), number
    return line


def _split(path: str) -> _Path:
    import json

    parts: list[str | int] = []
    for match in _PATH_PART.finditer(path):
        if match.group(1) is not None:
            parts.append(int(match.group(1)))
        else:
            parts.append(json.loads(match.group()) if match.group().startswith('"') else match.group())
    return tuple(parts)


def _places(text: str) -> Iterator[tuple[_Path, int]]:
    """Where headers and keys stand. Good enough to point at a line; what it does not see is found by its table's header."""
    table: _Path = ()
    counts: dict[_Path, int] = {}
    closing: str | None = None
    for number, line in enumerate(text.splitlines(), 1):
        if closing is not None:
            closing = None if closing in line else closing
            continue
        if header := _HEADER.match(line):
            table = _keys(header.group(2))
            if header.group(1) == "[[":
                counts[table] = counts.get(table, -1) + 1
            table = _with_counts(table, counts)
            yield table, number
        elif assignment := _ASSIGNMENT.match(line):
            yield table + _keys(assignment.group(1)), number
            closing = next((mark for mark in ('"""', "'''") if line.count(mark) == 1), None)


def _keys(text: str) -> _Path:
    return tuple(key.strip("\"'") for key in re.findall(_KEY, text))


def _with_counts(table: _Path, counts: Mapping[_Path, int]) -> _Path:
    found: list[str | int] = []
    for length, key in enumerate(table, 1):
        found.append(key)
        if table[:length] in counts:
            found.append(counts[table[:length]])
    return tuple(found)


# Files --------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FileState:
    """What stands under a definition's name: nothing, something that cannot be trusted, or a content."""

    signature: Signature | None = None  #: None where nothing stands there
    content: bytes | None = None
    problem: Problem | None = None  #: why it cannot be trusted or read

    @property
    def is_missing(self) -> bool:
        """Return whether there is no file."""
        return self.signature is None and self.problem is None


def read_definition_file(layout: Layout, kind: Kind, name: str, *, owner: int | None = None) -> FileState:
    """Read one definition's file without following links or waiting for anything (contract 2.9).

    `owner` is the uid of the store's owner, by default ours. Whatever stands there, the answer is a FileState.
    """
    path = layout.definition(kind, name)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return FileState()
    except OSError as error:
        return _unopened(layout, kind, name, error)
    try:
        status = os.fstat(descriptor)
        wrong = _distrust(status, os.geteuid() if owner is None else owner)
        if wrong:
            return FileState(signature_of(status), problem=Problem("", f"{path}: {wrong}"))
        return FileState(signature_of(status), _read_all(descriptor))
    except OSError as error:
        return FileState(problem=Problem("", f"{path}: cannot be read: {error.strerror}"))
    finally:
        os.close(descriptor)


def _unopened(layout: Layout, kind: Kind, name: str, error: OSError) -> FileState:
    path = layout.definition(kind, name)
    try:
        status = path.lstat()
    except OSError:
        return FileState(problem=Problem("", f"{path}: cannot be read: {error.strerror}"))
    if stat.S_ISREG(status.st_mode):
        return FileState(signature_of(status), problem=Problem("", f"{path}: cannot be read: {error.strerror}"))
    return FileState(signature_of(status), problem=Problem("", f"{path}: {_NOT_REGULAR}"))


_NOT_REGULAR = "is no regular file; put the definition itself there, not a link, pipe or device"


def _distrust(status: os.stat_result, owner: int) -> str | None:
    if not stat.S_ISREG(status.st_mode):
        return _NOT_REGULAR
    if status.st_uid != owner:
        return f"belongs to uid {status.st_uid}, not to the store's owner; run `chown {owner}` on it"
    if status.st_mode & 0o022:
        return f"others may write it (mode {stat.S_IMODE(status.st_mode):04o}); run `chmod 600` on it"
    if status.st_size > LARGEST_DEFINITION:
        return f"is {status.st_size} bytes; a definition has at most {LARGEST_DEFINITION}"
    return None


def _read_all(descriptor: int) -> bytes:
    parts = []
    left = LARGEST_DEFINITION + 1  # one more, so that a file that grew meanwhile is refused by its size
    while left and (part := os.read(descriptor, left)):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)

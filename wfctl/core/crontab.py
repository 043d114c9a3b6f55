"""Reading a crontab: the lines that become schedules, and those that cannot be kept, each with what to do (contract 11.8).

The format is that of crontab(5) as Debian's cron and cronie read it: variables above the lines they hold for, `%` as the
beginning of the input, `\\%` as a percent sign, and in system files a user before the command.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from wfctl.core.cron import ALIASES

LARGEST_CRONTAB = 1 << 20  #: bytes
SHELL = "/bin/sh"
_VARIABLE = re.compile(r"""\s*("[^"]+"|'[^']+'|[A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*?)\s*""", re.DOTALL)
_PERCENT = re.compile(r"(?<!\\)%")
_MAIL = ("MAILTO", "MAILFROM", "CONTENT_TYPE", "CONTENT_TRANSFER_ENCODING")
_NOTES = 3  #: lines of a remark that are taken along
_WRAPPERS = frozenset(
    {
        "nice",
        "ionice",
        "chronic",
        "sudo",
        "env",
        "exec",
        "time",
        "nohup",
        "flock",
        "timeout",
        "command",
        "then",
        "do",
        "{",
        "if",
    }
)
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "python", "python3", "perl", "ruby", "php", "node", "run-parts"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line that can be kept, if its expression is one of ours."""

    number: int  #: counted from 1
    text: str
    expression: str
    timezone: str | None  #: of CRON_TZ; None: the machine's
    user: str | None  #: of a system crontab
    command: str  #: for the shell, percent signs unescaped
    shell: str
    environment: Mapping[str, str]
    remark: str | None  #: the comment just above


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A line, or a part of its meaning, that cannot be kept: why, and what to do instead."""

    number: int
    text: str
    why: str
    instead: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Crontab:
    """What stands in a crontab."""

    lines: tuple[Line, ...]
    left_out: tuple[LeftOut, ...]
    problems: tuple[tuple[int, str], ...]  #: lines that are none of a crontab's, by number


@dataclass(slots=True)
class _Reader:
    user_column: bool
    variables: dict[str, str] = field(default_factory=dict)
    remark: list[str] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    problems: list[tuple[int, str]] = field(default_factory=list)


def read_crontab(text: str, *, user_column: bool = False) -> Crontab:
    """Given the text of a crontab, return its lines; `user_column`: a user stands before each command.

    Shape: nothing is lost: each line is kept, left out with a reason, or a problem. Expressions are not looked into.
    Source: crontab(5) of Debian 12, and of cronie for CRON_TZ and RANDOM_DELAY.
    """
    reader = _Reader(user_column)
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped:
            reader.remark.clear()
        elif stripped.startswith("#"):
            reader.remark.append(stripped.lstrip("#").strip())
        elif (found := _VARIABLE.fullmatch(line)) and not stripped.startswith(("*", "@")):
            _take_variable(reader, number, stripped, _unquoted(found[1]), _unquoted(found[2]))
            reader.remark.clear()
        else:
            _take_entry(reader, number, stripped)
            reader.remark.clear()
    return Crontab(lines=tuple(reader.lines), left_out=tuple(reader.left_out), problems=tuple(reader.problems))


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] in "\"'" and text[-1] == text[0] else text


def _take_variable(reader: _Reader, number: int, text: str, name: str, value: str) -> None:
    if name in _MAIL:
        if value and name == "MAILTO":
            why = "wfctl mails nothing; the output of each run is kept: `wfctl run logs RUN`"
            instead = "to be told of failures, set [notify] in wfctl.toml or `notify` in the schedule"
            reader.left_out.append(LeftOut(number, text, why, instead))
        return
    if name == "RANDOM_DELAY":
        why, instead = "wfctl starts at the instant, without a random delay", "spread the minutes of the expressions"
        reader.left_out.append(LeftOut(number, text, why, instead))
        return
    if name.startswith("WFCTL_"):
        why, instead = "names that begin with WFCTL_ are wfctl's own", "rename the variable"
        reader.left_out.append(LeftOut(number, text, why, instead))
        return
    reader.variables[name] = value


def _take_entry(reader: _Reader, number: int, text: str) -> None:
    words = text.split(None, 1 if text.startswith("@") else 5)
    count = 1 if text.startswith("@") else 5
    if len(words) <= count:
        reader.problems.append((number, f"neither a variable nor five fields and a command: {text[:60]!r}"))
        return
    expression, rest, user = " ".join(words[:count]), words[count], None
    if reader.user_column:
        parts = words[count].split(None, 1)
        if len(parts) < 2:
            reader.problems.append((number, "a user but no command; is this a user's crontab? then leave out --user-column"))
            return
        user, rest = parts
    if expression.lower() == "@reboot":
        why = "@reboot is no time: nothing comes due when the machine starts"
        instead = (
            "make it a systemd unit with WantedBy=multi-user.target, or a command that the supervisor's unit orders after it"
        )
        reader.left_out.append(LeftOut(number, text, why, instead))
        return
    if _PERCENT.search(rest):
        why = "a % without a backslash begins the input of the command, and runs read from /dev/null"
        instead = "write the input into a file, and the command as `command < FILE`; for a plain percent sign write \\%"
        reader.left_out.append(LeftOut(number, text, why, instead))
        return
    variables = {name: value for name, value in reader.variables.items() if name not in ("SHELL", "CRON_TZ", "LOGNAME", "USER")}
    reader.lines.append(
        Line(
            number=number,
            text=text,
            expression=ALIASES.get(expression.lower(), expression),
            timezone=reader.variables.get("CRON_TZ") or None,
            user=user,
            command=rest.replace("\\%", "%"),
            shell=reader.variables.get("SHELL") or SHELL,
            environment=variables,
            remark=_remark(reader.remark),
        )
    )


def _remark(lines: list[str]) -> str | None:
    """Return the comment above a line, unless it is a heading or a line that was commented out."""
    said = [line for line in lines[-_NOTES:] if line[:1].isalnum() and not _looks_like_an_entry(line)]
    return " ".join(said) or None


def _looks_like_an_entry(text: str) -> bool:
    words = text.split()
    is_heading = [word.lower() for word in words[:3]] in (["m", "h", "dom"], ["minute", "hour", "dom"], ["min", "hour", "day"])
    is_entry = len(words) > 5 and all(word[0].isdigit() or word[0] == "*" for word in words[:2])
    return is_heading or is_entry


# Names ------------------------------------------------------------------------------------------------------------------


def id_for(command: str) -> str:
    """Given a command line, return an id that says what it runs: the name of its program, or of the file it is about."""
    for name in _candidates(command):
        slug = re.sub(r"[^a-z0-9._-]+", "-", name.lower()).strip("-._")
        slug = re.sub(r"\.{2,}", ".", slug)
        slug = re.sub(r"\.(?:sh|bash|py|pl|rb|php|js)$", "", slug)
        if slug and slug[0].isalnum():
            return slug[:100]
    return "job"


def _candidates(command: str) -> Iterator[str]:
    """Give what a command may be named by, the best first."""
    try:
        lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words = list(lexer)
    except ValueError:
        words = command.split()
    fallback: list[str] = []
    for part in _parts(words):
        program, *rest = part
        name = PurePosixPath(program).name
        if name in ("cd", "test", "[", "echo", "true", ":", "sleep", ".", "source", "export", "umask"):
            continue
        files = [PurePosixPath(word).name for word in rest if not word.startswith("-") and "/" in word]
        if name in _SHELLS and files:
            yield files[0]
        elif name in _SHELLS or name in ("fi", "done", "}", "esac", "else"):
            fallback.append(name)
        else:
            yield name
    yield from fallback


def _parts(words: list[str]) -> Iterator[list[str]]:
    """Give the simple commands of a shell line, without what only wraps them, redirections and assignments."""
    part: list[str] = []
    is_target = False
    for word in [*words, ";"]:
        if set(word) <= set(";&|(){}"):
            if part:
                yield part
            part = []
        elif set(word) <= set("<>&"):
            is_target = True
        elif is_target:
            is_target = False
        elif not part and (word in _WRAPPERS or word[0] in "-0123456789" or re.match(r"[A-Za-z_]\w*=", word)):
            continue
        else:
            part.append(word)

"""Sessions shown in a document: the blocks with `$ ` prompts, run again in a shell and compared with what is shown.

What differs each time (instants, durations, pids, digests, sizes) is compared by its kind alone. An instant in a command is
the one that stands in its place in what was seen before. A line `...` stands for any lines; `^C` is typed once the lines above
it were seen and nothing more came for a moment.
"""

from __future__ import annotations

import os
import re
import selectors
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:\.\d+)?)?Z")
_DURATION = r"(?:\d+d(?: \d\dh)?|\d+h(?: \d\dm)?|\d+m(?: \d\ds)?|\d+(?:\.\d+)?(?:s|ms|us))(?![\w.])"
#: kinds of text that differ each time, and what stands for them
_KINDS = (
    (INSTANT, "INSTANT"),
    (re.compile(r"\b\d{8}T\d{6}Z"), "STAMP"),
    (re.compile(r"[A-Z][a-z]{2} \d{4}-\d\d-\d\d \d\d:\d\d(?::\d\d)? [A-Z]{3,4}"), "LOCAL"),
    (re.compile(r"\d\d:\d\d:\d\d(?:\.\d+)?Z"), "TIME"),
    (re.compile(r"\d+ instants -> \d+ +\(\+\d+ -\d+, \d+ in common\)"), "CALENDAR"),
    (re.compile(r"\d+ occurrences"), "OCCURRENCES"),
    (re.compile(r"supervisor \S+ pid \d+"), "SUPERVISOR"),
    (re.compile(_DURATION), "DURATION"),
    (re.compile(r"\bpid \d+"), "PID"),
    (re.compile(r"sha256 [0-9a-f]{12}"), "DIGEST"),
    (re.compile(r"croniter \S+, (?:tz|tz database) \S+"), "VERSIONS"),
    (re.compile(r"\d+(?:\.\d+)? (?:[KMG]i)?B\b"), "SIZE"),
    (re.compile(r"\s+"), " "),
)
_CTRL_C = "^C"
_QUIET_S = 0.2  #: a person types when nothing moves
_END = "=== the end of a command ==="


@dataclass(frozen=True)
class Step:
    """A command of a session, and what it shows."""

    command: str
    shown: tuple[str, ...]
    line: int  #: where it stands in the document


def blocks(document: str) -> list[list[Step]]:
    """Return the sessions of a document, each as its commands."""
    found = []
    for match in re.finditer(r"^```\n(.*?)^```$", document, re.MULTILINE | re.DOTALL):
        steps = list(_steps(match.group(1).splitlines(), document[: match.start(1)].count("\n") + 1))
        if steps:
            found.append(steps)
    return found


def _steps(lines: Sequence[str], first: int) -> Iterator[Step]:
    at = 0
    while at < len(lines):
        if not lines[at].startswith("$ "):
            at += 1
            continue
        begin, words = at, [lines[at][2:]]
        at += 1
        while at < len(lines) and lines[at].startswith("> "):
            words.append(lines[at][2:])
            at += 1
        shown = []
        while at < len(lines) and not lines[at].startswith("$ "):
            shown.append(lines[at])
            at += 1
        yield Step("\n".join(words), tuple(shown), first + begin)


def normal(line: str) -> str:
    """Return a line with what differs each time replaced by its kind, and each gap by one blank."""
    for pattern, kind in _KINDS:
        line = pattern.sub(kind, line)
    return line.strip()


def differs(shown: Sequence[str], seen: Sequence[str]) -> str | None:
    """Return where what was seen is not what is shown, or None."""
    wanted, found = [normal(it) for it in shown if it.strip() and it != _CTRL_C], [normal(it) for it in seen if it.strip()]
    at = 0
    for number, line in enumerate(wanted):
        if line == "...":
            rest = wanted[number + 1 :]
            while at < len(found) and (not rest or found[at] != rest[0]):
                at += 1
        elif at >= len(found) or found[at] != line:
            return f"shown: {line}\nseen:  {found[at] if at < len(found) else '(nothing)'}"
        else:
            at += 1
    return None if at == len(found) else f"not shown: {found[at]}"


class Shell:
    """A shell that a session is typed into. A context manager; what runs in its background is ended with it."""

    def __init__(self, folder: Path, environ: Mapping[str, str], places: Mapping[str, str]) -> None:
        self._folder, self._environ = folder, dict(environ)
        self._places = dict(places)  #: paths as the document has them, to where they are here
        self._instants: dict[str, str] = {}

    def __enter__(self) -> Shell:
        self._bash = subprocess.Popen(
            ["bash", "--norc", "--noprofile"], cwd=self._folder, env=self._environ, bufsize=0,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for child in self._children():
            os.kill(child, signal.SIGTERM)
        self._bash.kill()
        self._bash.wait()
        for pipe in (self._bash.stdin, self._bash.stdout):
            assert pipe is not None
            pipe.close()

    def run(self, step: Step, within_s: float = 60.0) -> list[str]:
        """Type a command, and Ctrl-C where the session has it; return the lines seen, with places as in the document."""
        command = INSTANT.sub(lambda found: self._instants.get(found.group(), found.group()), step.command)
        for there, here in self._places.items():
            command = command.replace(there, here)
        assert self._bash.stdin is not None
        self._bash.stdin.write(f"{{ {command}\n}} </dev/null\nprintf '\\n%s\\n' '{_END}'\n".encode())
        upto = step.shown.index(_CTRL_C) if _CTRL_C in step.shown else None
        seen = self._read(within_s, None if upto is None else step.shown[:upto])
        for there, here in self._places.items():
            seen = seen.replace(here, there)
        lines = seen.splitlines()
        self._remember(step.shown, lines)
        return lines

    def _read(self, within_s: float, before_ctrl_c: Sequence[str] | None) -> str:
        text, deadline = "", time.monotonic() + within_s
        assert self._bash.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._bash.stdout, selectors.EVENT_READ)
            while _END not in text:
                assert time.monotonic() < deadline, f"no end came; seen: {text}"
                if selector.select(_QUIET_S):
                    text += os.read(self._bash.stdout.fileno(), 65536).decode("utf-8", "backslashreplace")
                elif before_ctrl_c is not None and len(text.splitlines()) >= len(before_ctrl_c):
                    before_ctrl_c = None
                    for child in self._children():
                        os.kill(child, signal.SIGINT)
        return text.partition(_END)[0]

    def _children(self) -> list[int]:
        try:
            return [int(it) for it in Path(f"/proc/{self._bash.pid}/task/{self._bash.pid}/children").read_text().split()]
        except OSError:
            return []

    def _remember(self, shown: Sequence[str], seen: Sequence[str]) -> None:
        """Keep which instant of now stands for one of the document: the one in its place when it is first shown."""
        pairs = zip([it for it in shown if it.strip() and it != _CTRL_C], [it for it in seen if it.strip()], strict=False)
        for was, now in pairs:
            if normal(was) != normal(now):
                return
            for there, here in zip(INSTANT.findall(was), INSTANT.findall(now), strict=True):
                self._instants.setdefault(there, here)

"""The edit loop: a definition as text in the operator's editor, until it is valid, unchanged or given up (contract 11.3)."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wfctl.cli import streams
from wfctl.cli.base import Common
from wfctl.cli.text import escape, escape_lines
from wfctl.errors import CannotCreate, InvalidDefinition, IoError, Problem, RevisionConflict, WfctlError

OURS = "# wfctl:"  #: begins a line of ours that says what to do
HELP = "#:"  #: begins a line of ours that explains a field
MARK = ">>> "  #: stands before a line that is wrong
_AT_ONCE_S = 0.3  #: an editor that is gone so soon did not wait for its window


@dataclass(frozen=True, slots=True)
class Subject:
    """What is edited: its name, and its text as it stands."""

    kind: str
    name: str
    text: str  #: TOML
    error: InvalidDefinition | None = None  #: what is wrong with it, where that is why it is edited
    may_stay: bool = False  #: whether it is worth saving as it stands


@dataclass(slots=True)
class Edited:
    """A text that was found valid, and what was read from it."""

    text: str
    plain: Mapping[str, Any]


class Given(Exception):
    """Nothing is to be saved; the message says why."""


@dataclass(slots=True)
class EditLoop:
    """Opens the editor until `check` accepts the text.

    `check(plain, text)` raises InvalidDefinition, or any other WfctlError that a further edit may mend.
    """

    common: Common
    subject: Subject
    help: Mapping[str, str]
    editor: str
    check: Callable[[Mapping[str, Any], str], None]
    _path: Path = field(init=False, default=Path(os.devnull))

    def run(self) -> Edited:
        """Return what was edited. Raise Given when it was left unchanged or emptied; the error when it is given up.

        A text that was not accepted is kept in a file, which the error names.
        """
        shown = self._first_text()
        original = stripped(self.subject.text)
        self._path = _new_file(f"{self.subject.kind}-{self.subject.name}", shown)
        text = original
        while True:
            took = self._open()
            before, text = text, stripped(self._read())
            if not text.strip():
                self._path.unlink(missing_ok=True)
                raise Given("the text is empty: nothing was saved")
            if text == original and not self.subject.may_stay:
                self._path.unlink(missing_ok=True)
                hint = f"; if `{self.editor}` returns before you are done, give it an option to wait, such as `code --wait`"
                raise Given("unchanged: nothing was saved" + (hint if took < _AT_ONCE_S else ""))
            try:
                plain = _parsed(text, self.subject)
                self.check(plain, text)
            except WfctlError as error:
                if isinstance(error, RevisionConflict) or text == before:
                    raise self.keep(str(error.data.pop("text", text)), error) from error
                self._write(_with_errors(text, error))
                continue
            self._path.unlink(missing_ok=True)
            return Edited(text, plain)

    def keep(self, text: str, error: WfctlError) -> WfctlError:
        """Write a text that is not saved to a file of its own, and return the error with the file's name."""
        try:
            path = _new_file(f"{self.subject.kind}-{self.subject.name}", text)
        except CannotCreate:
            path = self._path  # where no new file can be written, the one that was edited stays
        else:
            self._path.unlink(missing_ok=True)
        return type(error)(f"{error.message}; your text is kept in {path}", {**error.data, "kept": str(path)})

    def _first_text(self) -> str:
        if self.subject.error is not None:
            begins = f"{self.subject.kind} {self.subject.name} is blocked"
            shown = _with_errors(self.subject.text, self.subject.error, begins)
            return "\n".join([shown, *self._help_lines(), ""])
        head = [
            f"{OURS} {self.subject.kind} {self.subject.name}. Save and leave the editor; empty the file, or change nothing, to",
            f"{OURS} cancel. Lines that begin with `{OURS}` or `{HELP}` are not kept; remarks go into `notes`"
            + (" or `description`." if self.subject.kind == "deployment" else "."),
        ]
        return "\n".join([*head, "", self.subject.text.rstrip("\n"), "", *self._help_lines(), ""])

    def _help_lines(self) -> list[str]:
        width = max(len(key) for key in self.help)
        return [f"{HELP} {key.ljust(width)}  {text}" for key, text in self.help.items()]

    def _open(self) -> float:
        """Run the editor and wait for it; return how many seconds it took. Raise IoError where it fails."""
        try:
            words = [*shlex.split(self.editor), str(self._path)]
        except ValueError as error:
            raise self._failed(IoError(f"the editor {self.editor!r} cannot be understood: {error}")) from error
        begun = time.monotonic()
        old = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the editor's
        try:
            status = subprocess.call(words, preexec_fn=_default_signals)
        except OSError as error:
            why = f"the editor {words[0]!r} cannot be started: {error.strerror}; name one with --editor, or in VISUAL or EDITOR"
            raise self._failed(IoError(why, {"editor": words[0], "errno": error.errno})) from error
        finally:
            signal.signal(signal.SIGINT, old)
        if status:
            how = f"was ended by signal {-status}" if status < 0 else f"ended with exit status {status}"
            raise self._failed(IoError(f"the editor {how}; nothing was saved", {"editor": words[0], "status": status}))
        return time.monotonic() - begun

    def _failed(self, error: IoError) -> WfctlError:
        """Return the error of an editor that did not do its work; what was changed all the same is kept."""
        text = stripped(self._read())
        if text != stripped(self.subject.text):
            return self.keep(text, error)
        self._path.unlink(missing_ok=True)
        return error

    def _read(self) -> str:
        try:
            return self._path.read_bytes().decode("utf-8", "surrogateescape")
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise IoError(f"cannot read {self._path}: {error.strerror}", {"path": str(self._path)}) from error

    def _write(self, text: str) -> None:
        try:
            self._path.write_bytes(text.encode("utf-8", "surrogateescape"))
        except OSError as error:
            raise IoError(f"cannot write {self._path}: {error.strerror}", {"path": str(self._path)}) from error


def _default_signals() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def stripped(text: str) -> str:
    """Return a text without the lines and marks that are ours."""
    lines = [line for line in text.splitlines() if not line.startswith((OURS, HELP))]
    kept = "\n".join(line.removeprefix(MARK) if line.startswith(MARK) else line for line in lines).strip("\n")
    return f"{kept}\n" if kept.strip() else ""


def _parsed(text: str, subject: Subject) -> Mapping[str, Any]:
    from wfctl.store.definitions import parse_toml

    return parse_toml(text.encode("utf-8", "surrogateescape"), f"{subject.kind} {subject.name}")


def located(error: WfctlError, text: str) -> list[Problem]:
    """Return what is wrong with a text, each with its line where that can be told."""
    from wfctl.store.definitions import add_lines

    problems = list(error.problems) if isinstance(error, InvalidDefinition) else []
    if not problems:
        return [Problem("", error.message)]
    placed = add_lines(tuple(problems), text.encode("utf-8", "replace"))
    return [now if was.line is None else was for was, now in zip(problems, placed, strict=True)]


def _with_errors(text: str, error: WfctlError, begins: str = "nothing was saved") -> str:
    """Return the text to be opened again: what is wrong on top, and a mark before each wrong line."""
    problems = located(error, text)
    marked = {problem.line for problem in problems if problem.line}
    where = f"Mend the lines marked {MARK.strip()}" if marked else "Mend it"
    head = [f"{OURS} {begins}. {where}, or empty the file to cancel."]
    for problem in problems:
        said = f"{problem.path}: {problem.message}" if problem.path else problem.message
        head += [f"{OURS} {error.code}: {line}" for line in escape_lines(said).splitlines()]
    body = [f"{MARK}{line}" if number in marked else line for number, line in enumerate(text.splitlines(), 1)]
    return "\n".join([*head, "", *body, ""])


def _new_file(name: str, text: str) -> Path:
    """Write a text to a new file that only the user can read. Raise CannotCreate."""
    try:
        descriptor, path = tempfile.mkstemp(prefix=f"wfctl-{name}-", suffix=".toml")
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.encode("utf-8", "surrogateescape"))
    except OSError as error:
        raise CannotCreate(f"cannot write a file to edit in {tempfile.gettempdir()}: {error.strerror}") from error
    return Path(path)


def editor_of(environ: Mapping[str, str], given: str | None) -> str:
    """Return the editor that is meant: the one given, else WFCTL_EDITOR, VISUAL, EDITOR, sensible-editor, vi."""
    named = [given, *(environ.get(name) for name in ("WFCTL_EDITOR", "VISUAL", "EDITOR"))]
    found = next((each for each in named if each and each.strip()), None)
    return found or shutil.which("sensible-editor") or "vi"


def patch_of(fields: Sequence[str], before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Given the definition before and after, return the fields to set and those to clear."""
    absent = [name for name in fields if before.get(name) is not None and after.get(name) is None]
    changed = {name: after[name] for name in fields if after.get(name) is not None and after[name] != before.get(name)}
    return changed, absent


def three_way(base: str, theirs: str, yours: str, revisions: tuple[int, int]) -> str:
    """Return the text to be kept when somebody saved meanwhile: what you began with, what stands now, and yours."""
    parts = [
        (f"base: revision {revisions[0]}, which you began with", base),
        (f"theirs: revision {revisions[1]}, which was saved meanwhile", theirs),
    ]
    lines = [
        f"{OURS} somebody saved while you were editing. Below is your text; above it, as comments, are the two others.",
    ]
    for title, text in parts:
        lines += ["", f"{OURS} {title}", *(f"# {line}".rstrip() for line in text.rstrip("\n").splitlines())]
    return "\n".join([*lines, "", f"{OURS} yours", yours.rstrip("\n"), ""])


def say_given(common: Common, given: Given) -> int:
    """Say that nothing was saved; return the exit status."""
    if not common.quiet:
        streams.talk(escape(str(given)))
    return 1

"""What stands below the first line of a failure: where it was written, how to mend it, and where to read more.

Everything here is drawn from the error's data and from the command line; the message itself is the same at every door.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import click

from wfctl.cli import values
from wfctl.cli.text import cells, escape
from wfctl.cli.words import Change, Line, Word
from wfctl.core.json_text import dumps, loads
from wfctl.errors import InvalidDefinition, NoSupervisor, Problem, WfctlError
from wfctl.value import Value

WIDEST = 70  #: cells of a line of which a part is marked
_MOST = 12  #: problems that are shown with their place
_LARGEST_FILE = 1024 * 1024
#: key path -> parameter, where the two differ
_PARAMS = {
    "deployment": "deployment_id",
    "trigger.expression": "expression",
    "trigger.timezone": "timezone",
    "trigger.every": "every",
    "trigger.at": "at",
    "working_directory": "cwd",
    "command": "arguments",
    "status": "state",
}
_KEYS = {param: key for key, param in _PARAMS.items()}
_NOT_FIELDS = ("file", "files", "given", "document", "environment", "environment_files", "input_schema")  #: of `add`
_PAIRS = {"input": "given", "environment": "environment"}  #: table -> the option of its NAME=VALUE
_UNITS = ("/etc/systemd/system/wfctl.service", "/usr/lib/systemd/system/wfctl.service", "/lib/systemd/system/wfctl.service")


class Place(Value, kw_only=False):
    """Where something wrong was written: the text around it and which part of it is meant."""

    text: str
    start: int
    end: int
    word: Word | None = None  #: the word of the command line that it is a part of
    offset: int = 0  #: where in the value of that word the wrong part begins
    file: str = ""  #: the file that it is a line of, and which one
    line: int = 0


class Fault(Value, kw_only=False):
    """One thing that is wrong: what is said of it, where it was written, and what was perhaps meant."""

    place: Place | None
    near: tuple[str, ...] = ()
    said: str | None = None


def lines(error: WfctlError, message: str, line: Line, store: str | None) -> list[str]:
    """Given an error, its message and the command line, return all that is to be said, the message first.

    `store` is the store that the command line names, which the commands to run next must name too.
    """
    faults = list(_faults(error, message, line))
    first, *more = message.split("\n")
    if len(faults) > 1 and all(fault.said is not None for fault in faults) and len(faults) <= _MOST:
        told = [f"wfctl: {escape(first)}"]
        for fault in faults:
            told.append(f"  {escape(fault.said)}")
            told += [f"    {each}" for each in _drawn(fault.place)]
    else:
        told = [f"wfctl: {escape(first)}", *(f"  {escape(each.strip())}" for each in more)]
        for fault in faults[:1]:
            told += [f"  {each}" for each in _drawn(fault.place)]
    told += [f"  {each}" for each in _fixes(error, faults, line, store)]
    return [*told, f"  code: {error.code} (wfctl help {error.code})"]


# Where --------------------------------------------------------------------------------------------------------------------


def _faults(error: WfctlError, message: str, line: Line) -> Iterator[Fault]:
    if (fault := _unquoted_text(error, line)) is not None:
        yield fault
        return
    diagnostic = error.data.get("diagnostic")
    problems = error.problems if isinstance(error, InvalidDefinition) else ()
    if not problems and isinstance(diagnostic, Mapping):  # why a definition is blocked, with the lines of its file
        problems = Problem.all_from_json(diagnostic.get("problems"))
    if problems:
        said: Sequence[str | None] = message.split("\n")[1:]
        if len(said) != len(problems):
            said = [None] * len(problems)
        file = _file_of(error, line)
        for problem, text in zip(problems, said, strict=True):
            yield Fault(_place_of_problem(problem, line, file), problem.near, text and text.strip())
        return
    yield _fault_of_data(error.data, line)


def _unquoted_text(error: WfctlError, line: Line) -> Fault | None:
    """Return the value of an input that is a number, true, false or null where its schema asks for a text."""
    problems = [(each.path, each.message) for each in Problem.all_from_json(error.data.get("problems"))]
    checks = error.data.get("checks")
    for check in checks if isinstance(checks, list) else ():
        if isinstance(check, Mapping) and check.get("name") == "input":
            problems.append(("input", str(check.get("detail"))))
    if len(problems) != 1:
        return None
    ((path, said),) = problems
    found = []
    for word in line.of("given", "assignments"):
        name, _, value = word.text.partition("=")
        key = f"input.{name.strip()}" if word.param == "given" else name.strip()
        plain = _plain_scalar(value)
        if plain is not None and path in (key, "input") and said == f'{plain} is not of type "string"':
            found.append(Fault(_within(word, word.text.index("=") + 1, len(word.text)), (f'"{value}"',)))
    return found[0] if len(found) == 1 else None


def _plain_scalar(text: str) -> str | None:
    """Return a number, true, false or null as JSON has it; None for any other text."""
    try:
        value = loads(text)
    except ValueError:
        return None
    return dumps(value) if value is None or isinstance(value, bool | int | float) else None


def _fault_of_data(data: Mapping[str, Any], line: Line) -> Fault:
    """Where it stands that the data of an error is about: a value, a parameter, an id."""
    near = tuple(str(each) for each in data.get("near") or data.get("fixes") or ())
    hints = data.get("suggestions")
    if isinstance(hints, Mapping):  # names of JSON-RPC parameters
        for given, meant in hints.items():
            if place := _part_of(line.of("params"), f'"{given}"', 1):
                return Fault(place, (str(meant),))
    if data.get("suggestion"):
        near = (str(data["suggestion"]),)
    argument = str(data.get("argument") or "")
    params = {argument, _PARAMS.get(argument, argument), str(data.get("param") or argument)} - {""}
    for name in ("value", "occurrence", "expected_revision", "run_id", "id", "method", "path"):
        text = str(data[name]) if isinstance(data.get(name), (str, int)) else ""
        if not text:
            continue
        given = [word for word in line.values if word.param in params] or line.values
        place = _whole(word) if (word := line.with_text(text, params)) else _part_of(given, text)
        if place is not None:
            return Fault(place, near)
    found = [word for word in line.values if word.param in params]
    if found:
        return Fault(_whole(found[-1]), near)
    is_named = bool(near) or argument == "instant"
    return Fault(next((_whole(word) for word in line.of("occurrence") if is_named), None), near)


def _part_of(words: Iterable[Word], text: str, inside: int = 0) -> Place | None:
    """Return where a text stands as one item of a value: of a list `A,B`, or as the key of KEY=VALUE."""
    for word in words:
        if word.param in ("command", "option"):
            continue
        bounds = " ,={}:\t" if inside else " ,="
        at = word.text.find(text) if text else -1
        if at >= 0 and (at == 0 or word.text[at - 1] in bounds) and (word.text[at + len(text) :][:1] or ",") in bounds:
            return _within(word, at + inside, at + len(text) - inside)
    return None


def _place_of_problem(problem: Problem, line: Line, file: str | None) -> Place | None:
    for word in reversed(line.of("assignments")):
        key, equals, _ = word.text.partition("=")
        key = key.strip()
        if equals and key and (problem.path == key or problem.path.startswith((f"{key}.", f"{key}["))):
            end = word.text.index("=")
            last = key.rpartition(".")[2]
            at = word.text.rindex(last, 0, end)
            return _within(word, at, at + len(last)) if problem.is_key else _within(word, end + 1, len(word.text))
    if place := next((_whole(word) for word in line.of("unset") if word.text == problem.path), None):
        return place
    table, dot, name = problem.path.partition(".")
    for word in reversed(line.of(_PAIRS.get(table, ""))) if dot else ():
        if word.text.partition("=")[0].strip() == name.partition(".")[0].partition("[")[0].strip('"'):
            return _within(word, word.text.index("=") + 1, len(word.text))
    if problem.line is not None and file is not None and (place := _line_of_file(problem, file)):
        return place
    param = _PARAMS.get(problem.path, problem.path)
    if (given := line.of(param)) and param != "arguments":
        start, end = problem.mark or (0, len(given[-1].text))
        return _within(given[-1], start, end)
    if table == "input" and (given := line.of("document")):
        return _whole(given[-1])
    return None


def _whole(word: Word) -> Place:
    return _within(word, 0, len(word.text))


def _within(word: Word, start: int, end: int) -> Place:
    return Place(word.shown, word.at + start, word.at + end, word, start)


def _file_of(error: WfctlError, line: Line) -> str | None:
    """Return the file whose lines an error counts: the one given with -f, or the store's own."""
    given = [word.text for word in line.of("file") if word.text != "-"]
    if given:
        return given[-1]
    diagnostic = error.data.get("diagnostic")
    path = diagnostic.get("file") if isinstance(diagnostic, Mapping) else None
    return path if isinstance(path, str) else None


def _line_of_file(problem: Problem, file: str) -> Place | None:
    import stat

    assert problem.line is not None
    try:
        with open(file, "rb", opener=lambda path, flags: os.open(path, flags | os.O_NONBLOCK)) as opened:
            if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
                return None
            rows = opened.read(_LARGEST_FILE).decode("utf-8", "replace").splitlines()
    except (OSError, ValueError):
        return None
    if not 1 <= problem.line <= len(rows):
        return None
    row = rows[problem.line - 1]
    text = row.strip()
    before = f"{file}:{problem.line}: "
    key, equals, value = text.partition("=")
    start, end = 0, len(text)
    if equals and problem.path:
        start, end = (0, len(key.rstrip())) if problem.is_key else (len(text) - len(value.lstrip()), len(text))
    return Place(before + text, len(before) + start, len(before) + end, file=file, line=problem.line)


def _drawn(place: Place | None) -> list[str]:
    """Return the text with carets below the part that is meant; of a long text the piece around it."""
    if place is None:
        return []
    shown = "".join(letter if letter.isprintable() else " " if letter == "\t" else "?" for letter in place.text)
    start = min(place.start, len(shown))
    end = max(start, min(place.end, len(shown)))
    first = 0
    if cells(shown) > WIDEST:
        first = max(0, min(start - WIDEST // 3, len(shown) - WIDEST))
    before = "..." if first else ""
    piece = shown[first:]
    while cells(piece) > WIDEST:
        piece = piece[: min(len(piece) - 1, WIDEST)]
    after = "..." if first + len(piece) < len(shown) else ""
    end = min(end, first + len(piece))
    blanks = " " * cells(before + shown[first:start])
    return [f"{before}{piece}{after}", blanks + "^" * max(1, cells(shown[start:end]))]


# How to mend it -----------------------------------------------------------------------------------------------------------


def _fixes(error: WfctlError, faults: Sequence[Fault], line: Line, store: str | None) -> list[str]:
    """Return the nearest commands to run: the line with what was meant, else one to look with."""
    otherwise = _otherwise(error, line)
    changes = [] if otherwise else [_changes(fault, line) for fault in faults]
    if changes and all(len(each) == 1 for each in changes):
        return [_retyped("fix: ", line, [each[0] for each in changes])]
    if len(changes) == 1 and 2 <= len(changes[0]) <= 3:
        return [_retyped("or:  " if index else "fix: ", line, [each]) for index, each in enumerate(changes[0][:2])]
    words = otherwise or _longer(error, line) or _edit(error, faults, line) or next_command(error, line)
    if words is None:
        return []
    has_store = any(word == "--store" or word.startswith("--store=") for word in words)
    named = ["--store", store] if store and words[0] == "wfctl" and not has_store else []
    return [f"fix: {escape(values.command([words[0], *named, *words[1:]]))}"]


def _longer(error: WfctlError, line: Line) -> list[str] | None:
    """Return the line with the options that the error says are missing."""
    more = ["--yes"] if error.code == "cannot-create" and "add --yes" in error.message else error.data.get("add")
    if not isinstance(more, list) or not line.path or not line.is_open():
        return None
    at = line.words.index("--") if "--" in line.words else len(line.words)
    return ["wfctl", *line.words[:at], *map(str, more), *line.words[at:]]


def _otherwise(error: WfctlError, line: Line) -> list[str] | None:
    """Return a line that click could not read as it is to be written."""
    if error.code != "invalid-argument" or not line.is_open():
        return None
    extra = line.of("extra")
    words = None
    if line.path == ["init"] and len(extra) == 1 and not line.of("store"):
        before, behind = line.words[: extra[0].index], line.words[extra[0].index + 1 :]
        words = ["--store", extra[0].text, *(word for word in (*before, *behind) if word != "--")]
    elif extra:
        words = line.cron_in_quotes()
    elif error.data.get("argument") == "option" and line.path in (["schedule", "set"], ["deployment", "set"]):
        words = _assigned(line)
    return ["wfctl", *words] if words else None


def _assigned(line: Line) -> list[str] | None:
    """Return the words of a `set` with KEY=VALUE for each option of `add`; None where there is an option of neither."""
    from wfctl.cli.app import root

    keys = {}
    context = click.Context(root)
    group = root.get_command(context, line.path[0])
    add = group.get_command(context, "add") if isinstance(group, click.Group) else None
    for param in add.params if add is not None else ():
        name = param.name or ""
        if isinstance(param, click.Option) and not param.is_flag and name not in _NOT_FIELDS:
            keys.update(dict.fromkeys(param.opts, _KEYS.get(name, name)))
    wrong = {word.index: word.text for word in line.of("option")}
    words: list[str] = []
    rest = enumerate(line.words)
    for index, word in rest:
        if index not in wrong:
            words.append(word)
            continue
        key, (_, equals, value) = keys.get(wrong[index]), word.partition("=")
        if not equals:
            _, value = next(rest, (0, "-"))
            if value.startswith("-"):
                return None
        if key is None:
            return None
        words.append(f"{key}={value}")
    return words


def _edit(error: WfctlError, faults: Sequence[Fault], line: Line) -> list[str] | None:
    """Return the command that opens the file in which something is wrong."""
    places = [fault.place for fault in faults if fault.place is not None and fault.place.file]
    if not places:
        return None
    found = min(places, key=lambda place: place.line)
    kind, name = error.data.get("kind"), error.data.get("id")
    if not line.of("file") and kind in ("schedule", "deployment") and isinstance(name, str):
        return ["wfctl", kind, "edit", name]
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    return [*editor.split(), f"+{found.line}", found.file]


def _changes(fault: Fault, line: Line) -> list[Change]:
    place = fault.place
    if place is None or place.word is None:
        return []
    length = place.end - place.start
    near = _that_fit(fault.near, place.word, line)
    return [Change(place.word, place.offset, place.offset + length, each) for each in near]


def _that_fit(near: Sequence[str], word: Word, line: Line) -> Sequence[str]:
    """Of commands that were perhaps meant, those that the next word goes with: a group by its commands, else none of them."""
    if word.param != "command" or len(near) < 2:
        return near
    after = next((each for each in line.words[word.index + 1 :] if not each.startswith("-")), None)
    context = click.Context(line.command)
    fits = []
    for name in near:
        found = line.command.get_command(context, name) if isinstance(line.command, click.Group) else None
        if after is not None and isinstance(found, click.Group) and found.get_command(context, after) is not None:
            return [name]
        if not (after is None and isinstance(found, click.Group)):
            fits.append(name)
    return fits or near


def _retyped(title: str, line: Line, changes: Sequence[Change]) -> str:
    """Return the whole line again; where it is too long, or may hold what is secret, only what is to be written anew."""
    if line.is_open():
        return f"{title}{escape(line.again(changes))}"
    parts = []
    for change in changes:
        option = change.word.shown[: change.word.at]
        old = change.word.text[change.start : change.end]
        whole = f"{option}{values.command([change.value])}"
        is_hidden = change.word.is_secret and change.new != f'"{old}"'  # a number that is to be a text was told already
        parts.append(f"{values.command([change.new])} for {values.command([old])}" if is_hidden else whole)
    return f"{title}the same line with {escape(' '.join(parts))}"


def next_command(error: WfctlError, line: Line) -> list[str] | None:
    """Return the command to look with, or to run, after an error of this code; None where the message says it all."""
    data = error.data
    named = data.get("id") if isinstance(data.get("id"), str) else None
    kind = data.get("kind") if data.get("kind") in ("schedule", "deployment", "run") else None
    kind = kind or (line.path[0] if line.path[:1] in (["schedule"], ["deployment"]) else None)
    run = data.get("run_id") or next(iter(data.get("run_ids") or ()), None)
    if "kept" in data and "editor" not in data and line.path[1:] == ["edit"] and error.code != "revision-conflict":
        return ["wfctl", *line.path, *(word.text for word in line.of(f"{kind}_id"))]
    match error.code:
        case "invalid-definition" if line.path == ["run", "resume"]:
            words = ["run", "show", *(word.text for word in line.of("run_id"))]
        case "invalid-argument" | "invalid-definition":
            is_instant = data.get("argument") in ("since", "until", "instant", "from")
            words = ["help", "time"] if is_instant else [*line.path, "--help"]
        case "not-found":
            words = _listing(data, kind, line)
        case "deleted" if kind:
            words = [f"{kind}s", "--include-deleted"]
        case "exists" | "revision-conflict" | "in-use" if kind and named:
            words = [kind, "show", named]
        case "wrong-state" | "timed-out" | "blocked" if isinstance(run, str):
            words = ["run", "show", run]
        case "timed-out" if isinstance(data.get("occurrence"), str):
            words = ["occurrence", "explain", data["occurrence"]]
        case "blocked" if kind and named and _file_of(error, Line([], line.command, [])):
            words = [kind, "edit", named]
        case "wrong-state" | "blocked" if kind and named:
            words = [kind, "show", named]
        case "blocked":
            words = ["store", "verify"]
        case "damaged-store":
            words = _put_back(error, line)
        case "bad-cursor":
            return _without(line, "cursor")
        case "saturated":
            words = ["runs", "--status", "admitted,running"]
        case "draining":
            words = ["drain", "--undo"]
        case "store-locked" | "timed-out":
            words = ["status"]
        case "no-supervisor":
            return _start_words(error)
        case "no-store":
            path = data.get("path")
            words = ["--store", path, "init"] if isinstance(path, str) else ["init"]
        case "not-allowed" | "cannot-create" | "io-error":
            words = ["doctor"] if line.path != ["doctor"] and "editor" not in data else []
        case "missing-extra":
            words = ["help", "missing-extra"]
        case "api-version":
            words = ["rpc", "schema"] if line.path[:2] == ["rpc", "call"] else ["version"]
        case "preflight-failed":
            deployment = next((word.text for word in line.of("deployment_id")), named)
            words = ["deployment", "check", deployment] if deployment else []
        case _:
            words = []
    return ["wfctl", *words] if words else None


def _listing(data: Mapping[str, Any], kind: Any, line: Line) -> list[str]:
    """Return what lists the things of which one was not found."""
    if "topics" in data:
        return ["help"]
    occurrence = data.get("occurrence")
    if isinstance(occurrence, str):
        return ["occurrences", occurrence.partition("@")[0]]
    if data.get("kind") in ("schedule", "deployment", "run"):
        return [f"{data['kind']}s"]
    return [] if "path" in data else [f"{kind}s"] if kind else [*line.path, "--help"]


def _put_back(error: WfctlError, line: Line) -> list[str]:
    """Return what to run on a damaged store: most often only a backup helps, but not in the middle of its restore."""
    if "`wfctl store verify`" in error.message and line.path != ["store", "verify"]:
        return ["store", "verify"]
    is_backup_wanted = any(word in error.message for word in ("backup", " is damaged", " lacks ", " refused "))
    if line.path == ["store", "restore"] or not is_backup_wanted:
        return ["help", "damaged-store"]
    return ["store", "restore", "FILE"]


def _start_words(error: WfctlError) -> list[str]:
    has_unit = isinstance(error, NoSupervisor) and any(map(os.path.exists, _UNITS))
    is_its_store = error.data.get("path") in ("/var/lib/wfctl", None)
    return ["systemctl", "start", "wfctl"] if has_unit and is_its_store else ["wfctl", "supervise"]


def _without(line: Line, param: str) -> list[str] | None:
    """Return the line without an option and its value."""
    gone = set()
    for word in line.of(param):
        gone |= {word.index} if word.start else {word.index - 1, word.index}
    left = [word for index, word in enumerate(line.words) if index not in gone]
    return ["wfctl", *left] if gone and line.is_open() else None

"""Reading what is written on the command line: K=V values, dotted keys, instants, files."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, tzinfo
from typing import Any, Literal

from wfctl.core.instants import parse_instant
from wfctl.errors import InvalidArgument, InvalidDefinition, IoError, NotAllowed, NotFound, Problem

LARGEST_FILE = 64 * 1024 * 1024  #: bytes read of a file or of stdin
_UNREADABLE = {"FileNotFoundError": NotFound, "NotADirectoryError": NotFound, "PermissionError": NotAllowed}


# Values -----------------------------------------------------------------------------------------------------------------


def value(text: str) -> Any:
    """Given the V of a K=V, return it as JSON when it parses as JSON, else as the text it is (contract 11.2)."""
    from wfctl.core.strict_json import parse_json

    try:
        return parse_json(text)
    except ValueError:
        return text


def split_pair(text: str, what: str = "KEY=VALUE") -> tuple[str, str]:
    """Given `K=V`, return both parts. Raise InvalidArgument for anything else."""
    key, equals, rest = text.partition("=")
    if not equals or not key.strip():
        raise InvalidArgument(f"{text!r} is not {what}", {"value": text})
    return key.strip(), rest


def pairs(texts: Iterable[str], what: str = "KEY=VALUE") -> dict[str, Any]:
    """Given several `K=V`, return their values by key; of a key given twice the later holds."""
    return {key: value(rest) for key, rest in (split_pair(text, what) for text in texts)}


def environment(texts: Iterable[str]) -> dict[str, str]:
    """Given several `NAME=TEXT`, return the texts by name."""
    return dict(split_pair(text, "NAME=TEXT") for text in texts)


def bound_input(given: Sequence[str], document: str | None) -> Any:
    """Given `--input K=V …` and `--input-json TEXT|@FILE|@-`, return the input, None where none is given.

    The pairs go over the document.
    """
    if not given and document is None:
        return None
    base = {} if document is None else json_document(document, "--input-json")
    if isinstance(base, dict):
        return {**base, **pairs(given, "NAME=VALUE")}
    if given:
        raise InvalidDefinition.of("--input-json", [Problem("input", "must be a table: a JSON object of names and values")])
    return base  # the operation says what is wrong with it, as it does at every door


def json_document(text: str, what: str) -> Any:
    """Given JSON text, or `@FILE` or `@-` that holds it, return its value. Raise InvalidDefinition, naming the place."""
    from wfctl.core.strict_json import parse_json

    content = read_file(text[1:]) if text.startswith("@") else text.encode("utf-8", "surrogateescape")
    try:
        return parse_json(content)
    except ValueError as error:
        raise InvalidDefinition.of(
            what if text[:1] != "@" else f"{what} {text}", [Problem("", f"is not JSON: {error}")]
        ) from error


# Files ------------------------------------------------------------------------------------------------------------------


def read_file(name: str) -> bytes:
    """Given a path, or `-` for stdin, return the content.

    Raise NotFound, NotAllowed or IoError where it cannot be read, InvalidArgument where it is too large.
    """
    try:
        if name == "-":
            _take_stdin()
            content = sys.stdin.buffer.read(LARGEST_FILE + 1)
        else:
            with open(name, "rb") as file:
                content = file.read(LARGEST_FILE + 1)
    except OSError as error:
        kind = _UNREADABLE.get(type(error).__name__, IoError)
        raise kind(f"cannot read {name}: {error.strerror or error}", {"path": name, "errno": error.errno}) from error
    if len(content) > LARGEST_FILE:
        raise InvalidArgument(f"{name} is larger than {LARGEST_FILE} bytes")
    return content


def _take_stdin() -> None:
    """Raise InvalidArgument where the line has read stdin already: of two `-` the second would find nothing."""
    import click

    context = click.get_current_context(silent=True)
    if context is None:
        return
    if context.meta.get("wfctl.stdin"):
        raise InvalidArgument("two of these read stdin, which can be read once; put one of them into a file")
    context.meta["wfctl.stdin"] = True


def definition_file(name: str, kind: Literal["schedule", "deployment"], subject: str) -> dict[str, Any]:
    """Given a TOML file, or `-`, return the plain form of the definition in it, checked, without its `format`.

    Raise InvalidDefinition that lists every problem with its line.
    """
    from wfctl.store.definitions import deployment_from_toml, parse_toml, schedule_from_toml

    content = read_file(name)
    (schedule_from_toml if kind == "schedule" else deployment_from_toml)(content, subject)
    plain = parse_toml(content, subject)
    plain.pop("format", None)
    return plain


def absolute(path: str) -> str:
    """Return a path of the command line as an absolute one."""
    return os.path.abspath(os.path.expanduser(path))  # noqa: PTH100, PTH111 - `..` is taken as text, as the shell shows it


# Instants ---------------------------------------------------------------------------------------------------------------


def instant(text: str, option: str) -> datetime:
    """Given RFC 3339 text with an offset, return the instant. Raise InvalidArgument."""
    try:
        return parse_instant(text)
    except ValueError as error:
        raise InvalidArgument(f"{option}: {error}", {"argument": _param(option), "value": text}) from error


def argument(text: str, name: str) -> datetime:
    """Given the instant that is an operation's argument, return it. Raise InvalidArgument as every door does (contract 9)."""
    try:
        return parse_instant(text)
    except ValueError as error:
        raise InvalidArgument(f"{name}: {error}", {"argument": name}) from error


def _param(option: str) -> str:
    return option.removeprefix("--").replace("-", "_")


def _refused(option: str, text: str, error: Exception, more: str = "") -> InvalidArgument:
    """Return the error for an option whose value is no duration."""
    data = {"argument": _param(option), "value": text, "near": list(getattr(error, "near", ()))}
    return InvalidArgument(f"{option}: {error}{more}", data)


def seconds(text: str, option: str) -> float:
    """Given a duration, return its seconds. Raise InvalidArgument."""
    from wfctl.core.duration import parse_duration

    try:
        return parse_duration(text).total_seconds()
    except ValueError as error:
        raise _refused(option, text, error) from error


def moment(text: str | None, option: str, now: datetime) -> datetime | None:
    """Given an instant, or a duration that counts back from now (`2h`, `7d`), return the instant; None for None.

    Raise InvalidArgument: for a word that looks like no duration the one that the operation would raise.
    """
    from wfctl.core.duration import parse_duration

    if text is None:
        return None
    if text == "now":
        return now
    try:
        return now - parse_duration(text.removesuffix(" ago"))
    except (ValueError, OverflowError) as refused:
        if not text[:1].isdigit() or "-" in text:
            return argument(text, option.removeprefix("--"))
        raise _refused(option, text, refused, ", or an instant such as 2026-12-01T09:00:00Z") from refused


def ahead(text: str, option: str, now: datetime) -> datetime:
    """Given an instant, or a duration that counts from now on (`12h`, `7d`), return the instant. Raise InvalidArgument."""
    from wfctl.core.duration import parse_duration

    try:
        return now + parse_duration(text)
    except (ValueError, OverflowError) as refused:
        try:
            return parse_instant(text)
        except ValueError as error:
            why = refused if text[:1].isdigit() and "-" not in text else error
            raise _refused(option, text, why, "; write a duration such as 12h, or an instant") from error


def zone(text: str, option: str) -> tzinfo:
    """Given the name of a zone, return it. Raise InvalidArgument, with what was perhaps meant."""
    from wfctl.core.near import did_you_mean
    from wfctl.core.trigger import CalendarError, similar_zones, zone_of

    try:
        return zone_of(text)
    except CalendarError as error:
        meant = similar_zones(text)
        hint = did_you_mean(meant) or "; write a name such as Europe/Budapest, or UTC"
        data = {"argument": _param(option), "value": text, "near": meant}
        raise InvalidArgument(f"{option}: there is no zone {text[:100]!r}{hint}", data) from error


def occurrence_name(text: str) -> tuple[str, datetime]:
    """Given `SCHEDULE@INSTANT`, return both parts. Raise InvalidArgument."""
    schedule_id, at, when = text.rpartition("@")
    if not at or not schedule_id:
        said = f"{text!r} names no occurrence; write SCHEDULE@INSTANT, such as hourly@2026-12-01T09:00:00Z"
        raise InvalidArgument(said, {"argument": "instant", "value": text})
    return schedule_id, argument(when, "instant")


def words(text: str | None, known: Iterable[str], option: str) -> list[str] | None:
    """Given a list `A,B`, return its words, each known. Raise InvalidArgument, with what was perhaps meant."""
    from wfctl.core.near import near_data
    from wfctl.core.plain import suggestion

    if text is None:
        return None
    listed = list(known)
    found = [word.strip().lower() for word in text.split(",") if word.strip()]
    if not found:
        raise InvalidArgument(f"{option} names nothing; it takes {', '.join(listed)}")
    for word in found:
        if word not in listed:
            data = {"argument": _param(option), **near_data(word, listed)}
            raise InvalidArgument(f"{option}: {word!r} is none of them{suggestion(word, listed)}", data)
    return found


# Changes ----------------------------------------------------------------------------------------------------------------


def split_path(path: str) -> list[str]:
    """Given a dotted key, return its parts; a part in quotes may hold dots: `input."a.b"`. Raise InvalidArgument."""
    parts, rest = [], path
    while True:
        if rest.startswith('"'):
            part, closed, rest = rest[1:].partition('"')
            if not closed or (rest and not rest.startswith(".")):
                raise InvalidArgument(f"{path!r} is not a key: a quote is not closed")
        else:
            part, dot, after = rest.partition(".")
            rest = dot + after
        if not part:
            raise InvalidArgument(f"{path!r} is not a key: a part of it is empty")
        parts.append(part)
        if not rest:
            return parts
        rest = rest[1:]


class Changes:
    """KEY=VALUE and --unset of a `set` command, merged into the current definition where tables are replaced whole (3.2)."""

    def __init__(self, current: Mapping[str, Any], texts: frozenset[str]) -> None:
        self._current = current
        self._texts = texts  #: top-level and dotted keys that always hold text
        self.fields: dict[str, Any] = {}
        self.unset: list[str] = []

    def assign(self, key: str, text: str) -> None:
        """Take in one KEY=VALUE."""
        parts = split_path(key)
        found = value(text)
        if ".".join(parts) in self._texts and isinstance(found, bool | int | float):
            found = text
        if len(parts) == 1:
            self.fields[parts[0]] = found
            return
        self._replace(parts, found)

    def remove(self, key: str) -> None:
        """Take in one --unset KEY."""
        parts = split_path(key)
        if len(parts) == 1:
            self.unset.append(parts[0])
            return
        self._replace(parts, None, remove=True)

    def _replace(self, parts: list[str], found: Any, *, remove: bool = False) -> None:
        top = parts[0]
        if top not in self.fields:
            self.fields[top] = _copy(self._current.get(top))
        if self.fields[top] is None:
            self.fields[top] = {}
        holder: Any = self.fields[top]
        for index, part in enumerate(parts[1:-1], 1):
            holder = _below(holder, part, ".".join(parts[: index + 1]), create=not remove)
        _put(holder, parts[-1], found, ".".join(parts), remove=remove)


def _copy(found: Any) -> Any:
    if isinstance(found, Mapping):
        return {key: _copy(item) for key, item in found.items()}
    if isinstance(found, list | tuple):
        return [_copy(item) for item in found]
    return found


def _below(holder: Any, part: str, path: str, *, create: bool) -> Any:
    if isinstance(holder, dict):
        if part not in holder or holder[part] is None:
            if not create:
                raise InvalidArgument(f"{path} is not set")
            holder[part] = {}
        return holder[part]
    if isinstance(holder, list):
        return holder[_index(holder, part, path)]
    raise InvalidArgument(f"{path}: there is no table to look into")


def _put(holder: Any, part: str, found: Any, path: str, *, remove: bool) -> None:
    if isinstance(holder, list):
        index = _index(holder, part, path)
        if remove:
            del holder[index]
        else:
            holder[index] = found
    elif not isinstance(holder, dict):
        raise InvalidArgument(f"{path}: there is no table to change")
    elif not remove:
        holder[part] = found
    elif part in holder:
        del holder[part]
    else:
        raise InvalidArgument(f"{path} is not set")


def _index(items: list[Any], part: str, path: str) -> int:
    """An item of a list by its number, counted from 0, or by its `name`."""
    from wfctl.core.near import near_data
    from wfctl.core.plain import suggestion

    names = [item.get("name") if isinstance(item, dict) else None for item in items]
    if part in names:
        return names.index(part)
    if part.isdigit() and int(part) < len(items):
        return int(part)
    known = [str(name) for name in names if name]
    raise InvalidArgument(f"{path}: there is no item {part!r}{suggestion(part, known)}", near_data(part, known))

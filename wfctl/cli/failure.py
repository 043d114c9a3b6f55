"""A failure becomes one message on stderr and an exit status (contract 9.1, 11.6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from wfctl.cli import bug, streams
from wfctl.cli.base import Common
from wfctl.cli.text import escape_message
from wfctl.errors import Internal, InvalidArgument, IoError, WfctlError

if TYPE_CHECKING:
    from wfctl.cli.words import Line

#: what is said of a time in the help of an option -> how it counts
_COUNTS = {"ago": ("back from now", "2h, 7d"), "from now": ("ahead", "12h, 36h")}
_LONGEST_EXTRA = 4  #: words that go nowhere that are shown


def report(error: Exception, common: Common, arguments: list[str]) -> int:
    """Given what ended a command line, say it on stderr and return the exit status.

    In text it is `wfctl: message`, and for people what is wrong where, the nearest command that mends it, and the code to ask
    help about. With `-o json` or `jsonl` it is one line with the error's JSON. A failure that is no WfctlError is a bug: its
    traceback goes to a file, which the message names.
    """
    try:
        return _report(error, common, arguments)
    except Exception as second:  # whatever goes wrong here, the operator gets a line and the right status
        bug.last_words(second)
        return Internal.exit_status


def _report(error: Exception, common: Common, arguments: list[str]) -> int:
    if isinstance(error, click.Abort):
        return streams.INTERRUPTED
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        streams.talk(error.format_message())
        return error.exit_code
    known = _as_known(error, common, arguments)
    form = common.output or _asked_format(arguments)
    if form in ("json", "jsonl"):
        import json

        streams.talk(json.dumps(known.to_json(), default=str))
    elif form in ("csv", "name") or common.quiet or isinstance(known, Internal):
        streams.talk(escape_message(f"wfctl: {said(known)}"))
    else:
        streams.talk("\n".join(_told(known, common, arguments)))
    return known.exit_status


def said(error: WfctlError) -> str:
    """Return an error's message, with the ids that are near the one that was not found."""
    near = [str(name) for name in error.data.get("near") or ()]
    if not near or any(name in error.message for name in near):
        return error.message
    return f"{error.message}; did you mean {' or '.join(near[:3])}?"


def _told(error: WfctlError, common: Common, arguments: list[str]) -> list[str]:
    """Return all that people are told; where that cannot be found out, the message."""
    from wfctl.cli import blame, words

    message = said(error)
    try:
        line = words.read_line(arguments)
        lines = blame.lines(error, message, line, common.store)
        hint = _counting(error, line)
    except Exception:  # the error that happened is more important than how it is shown
        return [escape_message(f"wfctl: {message}"), f"  code: {error.code} (wfctl help {error.code})"]
    if hint:
        lines.insert(-2, f"  {hint}")
    if isinstance(error, IoError) and common.verbose and error.__cause__ is not None:
        path = bug.keep_report(error.__cause__, arguments, common.environ)
        lines += [f"  the details are in {path}"] if path else []
    return lines


def _counting(error: WfctlError, line: Line) -> str | None:
    """Return which options of this command also take how long ago, or from now, where a time is wrong."""
    if not isinstance(error, InvalidArgument) or error.data.get("argument") not in ("from", "since", "until"):
        return None
    options = [param for param in line.command.params if isinstance(param, click.Option) and param.help]
    times = [each for each in options if each.opts[0] in ("--from", "--since", "--until")]
    for word, (how, examples) in _COUNTS.items():
        names = [each.opts[0] for each in times if f" {word}" in (each.help or "")]
        if f"--{error.data['argument']}" in names:
            return f"{' and '.join(names)} also count{'' if len(names) > 1 else 's'} {how}: {examples}"
    return None


def _as_known(error: Exception, common: Common, arguments: list[str]) -> WfctlError:
    if isinstance(error, WfctlError):
        return error
    if isinstance(error, click.ClickException):
        return _usage(error, arguments)
    if isinstance(error, OSError) and error.errno is not None:
        name = f"{error.filename}: " if error.filename is not None else ""
        found = IoError(f"{name}{error.strerror}", {"errno": error.errno})
        found.__cause__ = error
        return found
    path = bug.keep_report(error, arguments, common.environ)
    kept = f"; the details are in {path}" if path else "; no place was found for a file with the details"
    return Internal(f"a bug of wfctl: {type(error).__name__}: {_text_of(error)}{kept}", {"report": path})


def _text_of(error: Exception) -> str:
    try:
        text = str(error)
    except Exception:
        return "(without a text)"
    return text if len(text) <= 500 else f"{text[:500]}..."


# Usage --------------------------------------------------------------------------------------------------------------------


def _usage(error: click.ClickException, arguments: list[str]) -> InvalidArgument:
    """Return what click found wrong with a line as an error of ours, with what was perhaps meant."""
    from wfctl.core.near import did_you_mean, near

    data: dict[str, Any] = {}
    message = error.format_message()
    if isinstance(error, click.exceptions.NoSuchCommand | click.exceptions.NoSuchOption):
        is_command = isinstance(error, click.exceptions.NoSuchCommand)
        name = error.command_name if isinstance(error, click.exceptions.NoSuchCommand) else error.option_name
        known = _commands(error.ctx) if is_command else _options(error.ctx)
        meant = near(name, known)
        data = {"argument": "command" if is_command else "option", "value": name, "near": meant}
        message = f"no such {'command' if is_command else 'option'} {name!r}{did_you_mean(meant)}"
    elif isinstance(error, click.BadParameter) and error.param is not None and error.param.name is not None:
        data = _bad_value(error.param, arguments)
        message = message.rstrip(".") + did_you_mean(data.get("near", ()))
    elif message.startswith("Got unexpected extra argument"):
        message = _extra(message, arguments)
    return InvalidArgument(message[:1].lower() + message[1:], data)


def _extra(message: str, arguments: list[str]) -> str:
    """Return what is said of words that go nowhere, with why they perhaps do not."""
    from wfctl.cli.words import read_line

    line = read_line(arguments)
    extra = [word.text for word in line.of("extra")]
    if len(extra) > _LONGEST_EXTRA:  # such as the names of all files here, which the shell put for a `*`
        message = f"Got {len(extra)} unexpected extra arguments ({' '.join(extra[:_LONGEST_EXTRA])} ...)"
    if line.is_cron_unquoted():
        return f"{message}; quote the cron expression, or the shell puts the names of files for each *"
    if line.path == ["init"]:
        return f"{message}; the store is named with --store, before or behind `init`"
    return message


def _commands(context: click.Context | None) -> list[str]:
    command = context and context.command
    return command.list_commands(context) if isinstance(command, click.Group) and context is not None else []


def _options(context: click.Context | None) -> list[str]:
    return [] if context is None else [name for param in context.command.get_params(context) for name in _names(param)]


def _names(param: click.Parameter) -> list[str]:
    return [*param.opts, *param.secondary_opts] if isinstance(param, click.Option) else []


def _bad_value(param: click.Parameter, arguments: list[str]) -> dict[str, Any]:
    from wfctl.cli.words import read_line
    from wfctl.core.near import near

    assert param.name is not None
    data: dict[str, Any] = {"argument": param.name}
    given = read_line(arguments).of(param.name)
    if given:
        data["value"] = given[-1].text
        if isinstance(param.type, click.Choice):
            data["near"] = near(given[-1].text, [str(each) for each in param.type.choices])
    return data


def _asked_format(arguments: list[str]) -> str | None:
    """Return the output format of a line that could not be parsed."""
    for index, word in enumerate(arguments):
        if word in ("-o", "--output"):
            return arguments[index + 1] if index + 1 < len(arguments) else None
        if word.startswith("--output="):
            return word.partition("=")[2]
        if word.startswith("-o") and not word.startswith("--"):
            return word[2:]
        if word == "--":
            return None
    return None

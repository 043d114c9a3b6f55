"""A failure becomes one message on stderr and an exit status (contract 9.1, 11.6)."""

from __future__ import annotations

import json
import os

import click

from wfctl.cli import streams
from wfctl.cli.base import Common
from wfctl.cli.text import escape_message
from wfctl.errors import Internal, InvalidArgument, IoError, WfctlError


def report(error: Exception, common: Common, arguments: list[str]) -> int:
    """Given what ended a command line, say it on stderr and return the exit status.

    In text it is `wfctl: message`; with `-o json` or `jsonl` it is one line with the error's JSON. A failure that is no
    WfctlError is a bug: its traceback goes to a file, which the message names.
    """
    if isinstance(error, click.Abort):
        return streams.INTERRUPTED
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        streams.talk(error.format_message())
        return error.exit_code
    known, hint = _as_known(error, common)
    if (common.output or _asked_format(arguments)) in ("json", "jsonl"):
        streams.talk(json.dumps(known.to_json(), default=str))
    else:
        streams.talk(escape_message(f"wfctl: {said(known)}"))
        if hint and not common.quiet:
            streams.talk(hint)
    return known.exit_status


def said(error: WfctlError) -> str:
    """Return an error's message, with the ids that are near the one that was not found."""
    near = [str(name) for name in error.data.get("near") or ()]
    if not near or any(name in error.message.partition("did you mean")[2] for name in near):
        return error.message
    return f"{error.message}; did you mean {' or '.join(near[:3])}?"


def _as_known(error: Exception, common: Common) -> tuple[WfctlError, str]:
    if isinstance(error, WfctlError):
        return error, _hint(error, common)
    if isinstance(error, click.ClickException):
        command = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "wfctl"
        message = error.format_message()
        return InvalidArgument(message[:1].lower() + message[1:]), f"try: {command} --help"
    if isinstance(error, OSError) and error.errno is not None:
        name = f"{error.filename}: " if error.filename is not None else ""
        return IoError(f"{name}{error.strerror}", {"errno": error.errno}), _traceback_hint(error) if common.verbose else ""
    path = _keep_traceback(error)
    kept = f"; the details are in {path}" if path else ""
    return Internal(f"a bug of wfctl: {type(error).__name__}: {error}{kept}", {"report": path}), ""


def _hint(error: WfctlError, common: Common) -> str:
    return f"see: wfctl help {error.code}" if common.verbose else ""


def _traceback_hint(error: Exception) -> str:
    path = _keep_traceback(error)
    return f"the details are in {path}" if path else ""


def _keep_traceback(error: Exception) -> str | None:
    """Write the traceback to a new file that only the user can read; return its path, or None where that fails."""
    import platform
    import tempfile
    import traceback

    from wfctl import __version__

    lines = traceback.format_exception(error)
    text = f"wfctl {__version__}, python {platform.python_version()}, {platform.platform()}\n\n{''.join(lines)}"
    try:
        descriptor, path = tempfile.mkstemp(prefix="wfctl-bug-", suffix=".txt")  # mode 0600
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
    except OSError:
        return None
    return path


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

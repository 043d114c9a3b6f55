"""The report of a bug: a file with what is needed to find it, and nothing secret (contract 9.1, `internal`)."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence

_SECRET = ("--input", "--env", "--input-json")  #: options whose values are left out
_LONGEST = 200  #: characters of a word of the command line
_MOST_WORDS = 200
_MOST_TRACEBACK = 256 * 1024  #: characters; of an endless recursion the end is enough


def keep_report(error: BaseException, arguments: Sequence[str], environ: Mapping[str, str]) -> str | None:
    """Write a report to a new file that only the user can read; return its path, or None where that fails.

    It goes to `$XDG_STATE_HOME/wfctl/reports`, else where temporary files go. Nothing is raised: this is the last resort.
    """
    try:
        text = report_text(error, arguments)
    except Exception:  # an error whose text cannot be made must not hide that there was one
        text = f"{type(error).__name__}\n"
    data = text.encode("utf-8", "backslashreplace")
    for folder in _folders(environ):
        try:
            return _write(folder, data)
        except (OSError, ValueError):
            continue
    return None


def report_text(error: BaseException, arguments: Sequence[str]) -> str:
    """Return what a report holds: versions, the command line without what may be secret, and the traceback."""
    import platform
    import shlex
    import traceback

    from wfctl import __version__

    trace = "".join(traceback.format_exception(error))
    if len(trace) > _MOST_TRACEBACK:
        trace = f"...\n{trace[-_MOST_TRACEBACK:]}"
    return (
        f"wfctl {__version__}, python {platform.python_version()}, {platform.platform()}\n"
        f"command: {shlex.join(['wfctl', *redacted(arguments)])}\n\n{trace}"
    )


def redacted(arguments: Sequence[str]) -> list[str]:
    """Return a command line without what may be secret: values of inputs and environments, and a deployment's command."""
    shown: list[str] = []
    is_value = False
    for word in arguments[:_MOST_WORDS]:
        option, equals, _ = word.partition("=")
        if is_value:
            shown.append(_without_value(word))
        elif option in _SECRET and equals:
            shown.append(f"{option}={_without_value(word[len(option) + 1 :])}")
        elif not word.startswith("-") and equals:  # KEY=VALUE of `set`
            shown.append(_without_value(word))
        elif word == "--":
            shown += [word, *(["..."] if arguments[-1] != "--" else [])]
            break
        elif word.lstrip().startswith(("{", "[")):  # the parameters of `rpc call`
            shown.append("...")
        else:
            shown.append(word if len(word) <= _LONGEST else f"{word[:_LONGEST]}...")
        is_value = not is_value and word in _SECRET
    return shown


def _without_value(word: str) -> str:
    key, equals, _ = word.partition("=")
    return f"{key[:_LONGEST]}=..." if equals and key.replace(".", "_").replace("-", "_").isidentifier() else "..."


def _folders(environ: Mapping[str, str]) -> Iterator[str]:
    home = environ.get("HOME", "")
    state = environ.get("XDG_STATE_HOME") or (f"{home}/.local/state" if home else "")
    if os.path.isabs(state):  # noqa: PTH117 - as light as can be
        yield f"{state}/wfctl/reports"
    for folder in (environ.get("TMPDIR"), "/tmp", "/var/tmp", "/dev/shm"):
        if folder:
            yield folder


def _write(folder: str, data: bytes) -> str:
    if folder.endswith("/wfctl/reports"):
        os.makedirs(folder, mode=0o700, exist_ok=True)  # noqa: PTH103
    for number in range(100):
        name = f"{folder}/wfctl-bug-{os.getpid()}-{number}.txt"
        try:
            descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            continue
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
        except OSError:
            os.unlink(name)  # noqa: PTH108 - half a report on a full disk helps nobody; the next folder may have room
            raise
        return name
    raise FileExistsError(folder)


def last_words(error: BaseException) -> None:
    """Say that there was a bug where even that could not be said properly."""
    try:
        sys.stderr.write(f"wfctl: a bug of wfctl: {type(error).__name__}\n")
        sys.stderr.flush()
    except Exception:  # nobody can be told
        return

"""Questions: only at a terminal, and only where a thing is lost or many are changed (contract 11.7)."""

from __future__ import annotations

import sys

from wfctl.cli import streams
from wfctl.cli.base import Common
from wfctl.cli.text import escape_message
from wfctl.errors import InvalidArgument


def confirm(common: Common, question: str) -> bool:
    """Return whether the operator agrees. Without a terminal, or with --no-input, raise InvalidArgument that names --yes."""
    if common.yes:
        return True
    if common.no_input or common.environ.get("WFCTL_NO_INPUT") or not (sys.stdin.isatty() and sys.stderr.isatty()):
        said = f"{question} This needs an answer, and there is no terminal to ask at; add --yes"
        raise InvalidArgument(said, {"add": ["--yes"]})
    sys.stderr.write(f"{escape_message(question)} [y/N] ")
    sys.stderr.flush()
    answer = sys.stdin.readline()
    if not answer.endswith("\n"):
        streams.talk("")
    if answer.strip().lower() in ("y", "yes"):
        return True
    streams.talk("nothing was changed")
    return False

"""`wfctl help`: commands, error codes and topics."""

from __future__ import annotations

from collections.abc import Sequence

import click

from wfctl.cli import streams
from wfctl.cli.base import Common, command
from wfctl.cli.help_texts import ADVICE, TOPICS, WARNINGS

_WIDTH = 96  #: of prose


@command(name="help")
@click.argument(
    "topic", metavar="[COMMAND... | CODE | TOPIC]", nargs=-1, help="A command, an error or warning code, or a topic."
)
def help_(common: Common, topic: Sequence[str]) -> None:
    """Explain a command, an error code or a topic.

    Topics: exit-codes, environment, formats, states, time. Codes are the words that errors carry, such as not-found.
    """
    streams.answer(text_of(list(topic)))


def text_of(words: list[str]) -> str:
    """Given what is asked about, return the text. Raise NotFound, with what was perhaps meant."""
    from wfctl.errors import BY_CODE, NotFound

    word = words[0].lower() if len(words) == 1 else ""
    if word in TOPICS:
        return TOPICS[word].strip()
    if word in WARNINGS:
        return f"warning {word}\n\n{_prose(WARNINGS[word])}"
    if word in BY_CODE:
        found = BY_CODE[word]
        meaning = (found.__doc__ or "").strip()
        return (
            f"{word}: exit status {found.exit_status}, JSON-RPC error {found.rpc_number}\n\n{meaning}\n\n{_prose(ADVICE[word])}"
        )
    help_text = _command_help(words)
    if help_text is not None:
        return help_text
    from difflib import get_close_matches

    from wfctl.cli.app import ROOT

    near = get_close_matches(" ".join(words), [*TOPICS, *WARNINGS, *BY_CODE, *ROOT], n=3)
    raise NotFound(f"there is no help on {' '.join(words)!r}", {"near": near, "topics": [*TOPICS]})


def _prose(text: str) -> str:
    import textwrap

    return textwrap.fill(" ".join(text.split()), _WIDTH)


def _command_help(words: Sequence[str]) -> str | None:
    from wfctl.cli.app import root
    from wfctl.cli.base import SETTINGS

    context = click.Context(root, info_name="wfctl", **SETTINGS)
    for word in words:
        if not isinstance(context.command, click.Group):
            return None
        found = context.command.get_command(context, word)
        if found is None:
            return None
        context = click.Context(found, info_name=word, parent=context, **SETTINGS)
    return context.command.get_help(context)

"""`wfctl help`: commands, error codes and topics."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import click

from wfctl.cli import render, streams
from wfctl.cli.base import Common, command
from wfctl.cli.completing import HELP
from wfctl.cli.help_texts import ADVICE, TOPICS, WARNINGS

_WIDTH = 96  #: of prose
_NARROWEST = 40  #: terminals are not taken for narrower


@command(name="help")
@click.argument(
    "topic",
    metavar="[COMMAND... | CODE | TOPIC]",
    nargs=-1,
    type=HELP,
    help="A command, a code, a status, a reason, or a topic.",
)
def help_(common: Common, topic: Sequence[str]) -> None:
    """Explain a command, an error code or a topic.

    Topics: exit-codes, environment, formats, other-users, states, time. Codes are the words that errors carry, such as
    not-found, that warnings and findings carry, and the statuses and reasons that lists show, such as skipped-misfire.
    """
    width = render.terminal_width()
    text = text_of(list(topic))
    streams.answer(text if width is None else narrowed(text, max(width, _NARROWEST)))


def narrowed(text: str, width: int) -> str:
    """Return a text whose lines fit a width: prose is filled anew, what stands in columns keeps them."""
    return "\n\n".join(_narrowed_part(part.split("\n"), width) for part in text.split("\n\n"))


def _narrowed_part(lines: Sequence[str], width: int) -> str:
    import re
    import textwrap

    if max(map(len, lines)) <= width:
        return "\n".join(lines)
    if not any(line.startswith(" ") or "  " in line for line in lines):
        return textwrap.fill(" ".join(lines), width, break_long_words=False, break_on_hyphens=False)
    told = []
    for line in lines:
        begins = re.match(r" *\S.*?  +(?=\S)| *", line)
        indent = " " * (begins.end() if begins else 0)
        told.append(textwrap.fill(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False))
    return "\n".join(told)


def text_of(words: list[str]) -> str:
    """Given what is asked about, return the text. Raise NotFound, with what was perhaps meant."""
    from wfctl.errors import NotFound

    word = words[0].lower() if len(words) == 1 else ""
    if word in TOPICS:
        return TOPICS[word].strip()
    parts = _parts(word)
    if parts:
        return "\n\n".join(parts)
    help_text = _command_help(words)
    if help_text is not None:
        return help_text
    from wfctl.cli.app import ROOT
    from wfctl.core.near import did_you_mean, near

    asked = " ".join(words)
    data = {"value": asked, "near": near(asked, known(ROOT)), "topics": [*TOPICS]}
    raise NotFound(f"there is no help on {asked!r}{did_you_mean(data['near'])}", data)


def _parts(word: str) -> list[str]:
    """Return what a word means, once for each kind of word that it is: `paused` is a state, and a reason."""
    from wfctl.cli.help_codes import meanings
    from wfctl.errors import BY_CODE

    found = []
    if word in BY_CODE:
        error = BY_CODE[word]
        head = f"{word}: exit status {error.exit_status}, JSON-RPC error {error.rpc_number}"
        found.append(f"{head}\n\n{(error.__doc__ or '').strip()}\n\n{_prose(ADVICE[word])}")
    if word in WARNINGS:
        found.append(f"warning {word}\n\n{_prose(WARNINGS[word])}")
    return found + [f"{kind} {word}\n\n{_prose(text)}" for kind, text in meanings(word)]


def known(commands: Iterable[str]) -> list[str]:
    """Return every word that there is help on, these commands among them."""
    from wfctl.cli.help_codes import words
    from wfctl.errors import BY_CODE

    return [*dict.fromkeys([*TOPICS, *WARNINGS, *BY_CODE, *commands, *words()])]


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

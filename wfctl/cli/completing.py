"""What a shell may complete beside ids: words that are known, and time zones. Nothing is checked here.

What a value may be is for the operation to say, with its own message; these types only offer. The words come from a function,
so that a command pays for them when a shell asks, not when it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_ZONES = "/usr/share/zoneinfo/zone.tab"


class Words(click.ParamType[str, str]):
    """Text for which words are known; with `is_list` several of them, with commas between."""

    name = "text"

    def __init__(self, words: Callable[[], Iterable[str]], *, is_list: bool = False) -> None:
        self._words = words
        self._is_list = is_list

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        given, comma, begun = incomplete.rpartition(",") if self._is_list else ("", "", incomplete)
        taken = given.split(",")
        try:
            found = [word for word in self._words() if word.startswith(begun) and word not in taken]
        except Exception:  # a completion that fails must not disturb the line being typed
            return []
        return [CompletionItem(f"{given}{comma}{word}") for word in found]


def words(*known: str, is_list: bool = False) -> Words:
    """Return the type of text for which these words are known."""
    return Words(lambda: known, is_list=is_list)


def _zones() -> list[str]:
    with open(_ZONES, encoding="utf-8") as table:
        named = [line.split("\t")[2].strip() for line in table if not line.startswith("#")]
    return sorted([*named, "UTC"])


def _statuses() -> list[str]:
    from wfctl.core.model import Status

    return [status.value for status in Status]


def _methods() -> list[str]:
    from wfctl.rpc.methods import METHODS

    return [method.name for method in METHODS]


def _contradictions() -> list[str]:
    from wfctl.core.contradictions import Code

    return [code.value for code in Code]


def _help_words() -> list[str]:
    from wfctl.cli.app import ROOT
    from wfctl.cli.help import known

    return known(ROOT)


ZONE = Words(_zones)
STATUS = Words(_statuses)
STATUSES = Words(_statuses, is_list=True)
METHOD = Words(_methods)
CONTRADICTION = Words(_contradictions)
HELP = Words(_help_words)

"""What click lacks where an option and its value are one word, as in `--overlap=queue`. Loaded when a shell asks."""

from __future__ import annotations

from typing import Any

from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
)


class _Whole(ShellComplete):
    """For shells that replace the whole word: what is offered begins with the name of the option."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem[Any]]:
        name, equals, _ = incomplete.partition("=")
        found = super().get_completions(args, incomplete)
        if equals and name.startswith("--"):
            return [CompletionItem(f"{name}={item.value}", item.type, item.help) for item in found]
        return found


class _Zsh(_Whole, ZshComplete):
    """zsh."""


class _Fish(_Whole, FishComplete):
    """fish."""


class _Bash(BashComplete):
    """bash makes three words of it, and replaces the last."""

    def get_completion_args(self) -> tuple[list[str], str]:
        args, incomplete = super().get_completion_args()
        if len(args) > 1 and args[-1] == "=" and args[-2].startswith("--"):
            args.pop()
        return args, incomplete


def register() -> None:
    """Have click answer by these classes."""
    for each in (_Bash, _Zsh, _Fish):
        add_completion_class(each)

"""`wfctl completion SHELL`: click's own scripts."""

from __future__ import annotations

import click

from wfctl.cli import streams
from wfctl.cli.base import Common, command


def script(shell: str) -> str:
    """Return the completion script for a shell."""
    from click.shell_completion import get_completion_class

    from wfctl.cli.app import root

    found = get_completion_class(shell)
    if found is None:
        raise click.UsageError(f"there is no completion for {shell}")
    complete = found(root, {}, "wfctl", "_WFCTL_COMPLETE")
    return complete.source_template % complete.source_vars()


@command()
def bash(common: Common) -> None:
    """Print the completion script for bash.

    Put it into effect with: source <(wfctl completion bash)
    """
    streams.answer(script("bash").strip())


@command()
def zsh(common: Common) -> None:
    """Print the completion script for zsh.

    Put it into effect with: source <(wfctl completion zsh)
    """
    streams.answer(script("zsh").strip())


@command()
def fish(common: Common) -> None:
    """Print the completion script for fish.

    Put it into effect with: wfctl completion fish | source
    """
    streams.answer(script("fish").strip())

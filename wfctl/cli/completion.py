"""`wfctl completion SHELL`: click's own scripts, mended in two places."""

from __future__ import annotations

import click

from wfctl.cli import streams
from wfctl.cli.base import Common, command

#: What differs from click 8.5's own scripts.
_CHANGES = {
    # Autoloaded from fpath, the second completion of a session offers nothing: by then the file is a function, no longer being
    # loaded, and only registers what it should call. So it registers that at once.
    "zsh": [('    _wfctl_completion "$@"', '    compdef _wfctl_completion wfctl\n    _wfctl_completion "$@"')],
    # fish sorts what it is offered unless it is told that the order says something: run ids stand newest first.
    "fish": [("complete --no-files", "complete --keep-order --no-files")],
}


def script(shell: str) -> str:
    """Return the completion script for a shell."""
    from click.shell_completion import get_completion_class

    from wfctl.cli.app import root

    found = get_completion_class(shell)
    if found is None:
        raise click.UsageError(f"there is no completion for {shell}")
    complete = found(root, {}, "wfctl", "_WFCTL_COMPLETE")
    source = complete.source_template % complete.source_vars()
    for before, after in _CHANGES.get(shell, ()):
        source = source.replace(before, after)
    return source


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

"""Write the generated files anew: manual pages of commands and completion scripts.

Run it from the project's folder, where wfctl's dependencies are installed: python -m tools.generate
"""

from __future__ import annotations

from pathlib import Path

from tools import manpages
from wfctl.cli.completion import script

PROJECT = Path(__file__).parents[1]
SHELLS = {"bash": "wfctl.bash", "zsh": "_wfctl", "fish": "wfctl.fish"}


def files() -> dict[str, str]:
    """Return the text of every generated file by its path in the project."""
    completions = {f"completions/{name}": script(shell).strip() + "\n" for shell, name in SHELLS.items()}
    return {**completions, **{f"man/{name}": text for name, text in manpages.files().items()}}


def main() -> None:
    """Write what differs, and remove generated pages of commands that are gone."""
    wanted = files()
    for name, text in wanted.items():
        path = PROJECT / name
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")
            print(f"wrote {name}")
    for path in manpages.MAN.glob("*.[1-8]"):
        if f"man/{path.name}" not in wanted:
            path.unlink()
            print(f"removed man/{path.name}")


if __name__ == "__main__":
    main()

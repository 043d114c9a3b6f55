"""`python -m wfctl.keeper DIR --origin supervisor|command`: start a keeper in the background; done once it serves (6.9).

A driver runs this file itself, isolated (`-I -S`), so that neither its working directory
nor its environment says what is loaded.
"""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:
    sys.path.append(str(Path(__file__).parents[2]))

from wfctl.keeper.daemon import start
from wfctl.keeper.protocol import Origin

_USAGE = "usage: python -m wfctl.keeper DIR --origin supervisor|command"


def main(arguments: list[str]) -> int:
    match arguments:
        case [directory, "--origin", ("supervisor" | "command") as origin]:
            failure = start(directory, Origin(origin))
        case _:
            print(_USAGE, file=sys.stderr)
            return 2
    if failure:
        print(f"wfctl keeper: {failure}", file=sys.stderr)
    return 74 if failure else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

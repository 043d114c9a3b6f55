"""`python -m wfctl` and the `wfctl` command."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and end the process with its exit status."""
    from wfctl.cli.app import run

    sys.exit(run())


if __name__ == "__main__":
    main()

"""`python -m wfctl` and the `wfctl` command."""

from __future__ import annotations

import gc
import sys

_NEW_OBJECTS = 20_000  #: made before garbage is looked for; most commands never make so many


def main() -> None:
    """Run the command line and end the process with its exit status."""
    gc.set_threshold(_NEW_OBJECTS)
    from wfctl.cli.app import run

    end(run())


def end(status: int) -> None:
    """End the process, once its streams are flushed and everything is closed.

    The interpreter is not taken apart piece by piece, which would take as long as a tenth of a short command; what asked to be
    called at the end is called. Where another thread still runs, the end is the usual one, which waits for it.
    """
    import atexit
    import os
    import threading

    if threading.active_count() > 1:
        sys.exit(status)
    atexit._run_exitfuncs()
    os._exit(status)


if __name__ == "__main__":
    main()

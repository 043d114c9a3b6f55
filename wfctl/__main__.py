"""`python -m wfctl` and the `wfctl` command."""

from __future__ import annotations

_NEW_OBJECTS = 100_000  #: made before garbage is looked for; most commands never make so many
_INTERRUPTED = 130


def main() -> None:
    """Run the command line and end the process with its exit status, also when Ctrl-C comes while the code is loaded."""
    try:
        import gc

        gc.set_threshold(_NEW_OBJECTS)
        from wfctl.cli.app import run

        status = run()
        gc.freeze()  # the interpreter looks for garbage once more as it ends, which takes a tenth of a short command
    except KeyboardInterrupt:
        status = _INTERRUPTED
    if status == _INTERRUPTED:
        _end(status)
    raise SystemExit(status)


def _end(status: int) -> None:
    """End at once. Where Ctrl-C came while a text was executed, as `dataclasses` does, CPython would end by SIGINT instead."""
    import os
    import sys

    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            continue
    os._exit(status)


if __name__ == "__main__":
    main()

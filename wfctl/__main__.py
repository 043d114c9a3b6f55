"""`python -m wfctl` and the `wfctl` command."""

from __future__ import annotations

_NEW_OBJECTS = 20_000  #: made before garbage is looked for; most commands never make so many
_INTERRUPTED = 130


def main() -> None:
    """Run the command line and end the process with its exit status, also when Ctrl-C comes while the code is loaded."""
    try:
        import gc

        gc.set_threshold(_NEW_OBJECTS)
        from wfctl.cli.app import run

        status = run()
    except KeyboardInterrupt:
        status = _INTERRUPTED
    raise SystemExit(status)


if __name__ == "__main__":
    main()

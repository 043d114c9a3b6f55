"""What runs wrote: followed as it grows, escaped on a terminal, byte for byte elsewhere (contract 8.6)."""

from __future__ import annotations

import codecs
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import click

from wfctl.cli import streams, values
from wfctl.cli.base import Common, StoredId, command
from wfctl.cli.runs import FINAL
from wfctl.cli.text import escape, escape_lines

if TYPE_CHECKING:
    from pathlib import Path

    from wfctl.operations.store import Store

_POLL = 0.2  #: seconds between two looks at a run that is followed


class Echo:
    """Writes one log, from an offset on, to stdout or stderr: as it is, or escaped line by line for a terminal."""

    def __init__(self, path: Path, *, to_stderr: bool = False, raw: bool = False, start: int = 0) -> None:
        self._path = path
        self._offset = start
        self._to_stderr = to_stderr
        stream = sys.stderr if to_stderr else sys.stdout
        self._is_raw = raw or not stream.isatty()
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._ends_line = True

    def pump(self) -> bool:
        """Write what was added since the last time. Return whether there was anything."""
        from wfctl.store.logs import read_log

        before = self._offset
        for chunk in read_log(self._path, self._offset):
            self._offset = chunk.offset + chunk.size
            if chunk.data is None:
                self._say_gap(chunk.size)
            else:
                self._write(chunk.data)
        return self._offset > before

    def finish(self) -> None:
        """Write what is left, and on a terminal end a last line that has no newline."""
        while self.pump():
            pass
        if not self._is_raw:
            self._write_text(self._decoder.decode(b"", final=True))
            if not self._ends_line:
                self._write_text("\n")

    def _write(self, data: bytes) -> None:
        if self._is_raw:
            streams.raw_bytes(data, to_stderr=self._to_stderr)
        else:
            self._write_text(self._decoder.decode(data))

    def _write_text(self, text: str) -> None:
        if text:
            self._ends_line = text.endswith("\n")
            shown = escape_lines(text.replace("\r\n", "\n"))
            encoding = getattr(sys.stderr if self._to_stderr else sys.stdout, "encoding", None) or "utf-8"
            streams.raw_bytes(shown.encode(encoding, "backslashreplace"), to_stderr=self._to_stderr)

    def _say_gap(self, size: int) -> None:
        if not self._ends_line and not self._is_raw:
            self._write_text("\n")
        say_gone(size)


def say_gone(size: int) -> None:
    """Say that so many bytes of a log were released (6.15)."""
    streams.talk(f"[{values.size(size)} of this log are gone: it grew past max_output]")


def pump_all(echoes: list[Echo]) -> None:
    """Write what was added to any of the logs."""
    for echo in echoes:
        echo.pump()


@command()
@click.argument("run_id", metavar="RUN", type=StoredId("run"), help="The id of the run: run-000001.")
@click.option("-f", "--follow", is_flag=True, help="Go on until the run has ended.")
@click.option("-n", "lines", type=click.IntRange(min=0), metavar="N", help="Only the last N lines of each stream.")
@click.option(
    "--stream",
    type=click.Choice(("out", "err", "both")),
    default="both",
    show_default=True,
    metavar="WHICH",
    help="out, err or both: first what stands in stdout, then stderr.",
)
@click.option("--raw", is_flag=True, help="On a terminal too: every byte as it is.")
def logs(common: Common, run_id: str, follow: bool, lines: int | None, stream: str, raw: bool) -> None:
    """Print what a run wrote.

    On a terminal control characters are shown, not obeyed; in a pipe every byte comes through as the run wrote it. Both streams
    go to stdout. What was released from the middle of a long log is reported on stderr.
    """
    from wfctl.store.logs import lost_bytes, tail_start

    with common.open() as store:
        view = store.inspect_run(run_id=run_id)
        out, err = store.run_log_paths(run_id)
        paths = [path for path, which in ((out, "out"), (err, "err")) if stream in (which, "both")]
        echoes = [Echo(path, raw=raw, start=0 if lines is None else tail_start(path, lines)) for path in paths]
        if lines is not None:  # what is printed begins behind the gap
            for gone in filter(None, map(lost_bytes, paths)):
                say_gone(gone)
        if not follow or view.status is None or view.status in FINAL:
            for echo in echoes:
                echo.finish()
            return
        status = follow_logs(store, run_id, echoes)
    if not common.quiet:
        streams.talk(f"{escape(run_id)} {status}")


def follow_logs(store: Store, run_id: str, echoes: list[Echo]) -> str:
    """Write logs as they grow until the run is final or waits for input; return its status then."""
    for status in _statuses(lambda: store.inspect_run(run_id=run_id).status or "unreadable"):
        pump_all(echoes)
        if status in FINAL or status in ("interrupted", "unreadable"):
            for echo in echoes:
                echo.finish()
            return status
    raise AssertionError("a run's statuses do not end")


def _statuses(look: Callable[[], str]) -> Iterator[str]:
    while True:
        yield look()
        time.sleep(_POLL)

"""The supervisor's log: text, JSON, and what journald reads (contract 8.6, 11.5)."""

from __future__ import annotations

import errno
import io
import json
import logging
import re
import sys
from collections.abc import Iterator

import pytest

from wfctl.supervisor.logs import FORMATS, JournalFormatter, JsonFormatter, LineHandler, TextFormatter, tell, together


def _record(message: str, level: int = logging.INFO, **extra: str) -> logging.LogRecord:
    record = logging.LogRecord("wfctl.supervisor", level, __file__, 1, "%s", (message,), None)
    vars(record).update(extra)
    return record


def test_text_has_the_time_and_the_level_where_it_matters() -> None:
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ run-000001 is running", TextFormatter().format(_record("run-000001 is running"))
    )
    assert TextFormatter().format(_record("lost", logging.WARNING)).endswith("Z warning: lost")


def test_json_is_one_object_a_line_with_its_ids() -> None:
    line = JsonFormatter().format(_record("two\nlines", action="occurrence_admitted", schedule="s", occurrence="t"))
    assert "\n" not in line
    found = json.loads(line)
    assert (found["level"], found["message"], found["action"], found["schedule"]) == (
        "info",
        "two\nlines",
        "occurrence_admitted",
        "s",
    )


@pytest.mark.parametrize(
    ("level", "prefix"),
    [
        (logging.DEBUG, "<7>"),
        (logging.INFO, "<6>"),
        (logging.WARNING, "<4>"),
        (logging.ERROR, "<3>"),
        (logging.CRITICAL, "<2>"),
    ],
)
def test_journal_lines_begin_with_their_priority(level: int, prefix: str) -> None:
    assert JournalFormatter().format(_record("said", level)) == f"{prefix}said"


@pytest.mark.parametrize("formatter", [TextFormatter(), JournalFormatter(), JsonFormatter()], ids=["text", "journal", "json"])
def test_8_6_what_others_wrote_never_acts_on_a_terminal(formatter: logging.Formatter) -> None:
    said = formatter.format(_record("a\x1b[2Jb\nc"))
    assert "\x1b" not in said
    assert "\n" not in said


@pytest.mark.parametrize("formatter", [TextFormatter(), JournalFormatter(), JsonFormatter()], ids=["text", "journal", "json"])
def test_a_failure_keeps_its_trace_on_one_line(formatter: logging.Formatter) -> None:
    record = _record("it failed", logging.ERROR)
    try:
        raise ZeroDivisionError("a bug")
    except ZeroDivisionError:
        record.exc_info = sys.exc_info()
    said = formatter.format(record)
    assert "ZeroDivisionError: a bug" in said
    assert "\n" not in said


def test_11_5_the_formats_are_those_of_the_command() -> None:
    assert FORMATS == ("text", "json", "journal")


@pytest.fixture
def bare_log() -> Iterator[logging.Logger]:
    """The logger of this package without the handlers of a test run, and as it was afterwards."""
    root = logging.getLogger("wfctl")
    before = root.handlers[:], root.propagate, root.level
    root.handlers[:], root.propagate = [], False
    root.setLevel(logging.INFO)
    yield logging.getLogger("wfctl.supervisor")
    root.handlers[:], root.propagate = before[:2]
    root.setLevel(before[2])


def _fields() -> dict[str, str]:
    return {"action": "run_running", "run": "run-000001"}


@pytest.mark.parametrize("log_format", ["text", "json", "journal"])
def test_what_is_told_reads_as_what_is_logged(bare_log: logging.Logger, log_format: str) -> None:
    said = {}
    for way in ("told", "logged"):
        stream = io.StringIO()
        logging.getLogger("wfctl").handlers[:] = [LineHandler(stream, log_format)]
        if way == "told":
            tell(bare_log, "a\x1b[2J is running", _fields)
        else:
            bare_log.info("%s is %s", "a\x1b[2J", "running", extra=_fields())
        said[way] = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "NOW", stream.getvalue())
    assert said["told"] == said["logged"] and "is running" in said["told"]


def test_a_plain_line_does_not_ask_for_what_it_does_not_show(bare_log: logging.Logger) -> None:
    stream = io.StringIO()
    logging.getLogger("wfctl").handlers[:] = [LineHandler(stream, "text")]
    tell(bare_log, "said", lambda: pytest.fail("asked"))
    logging.getLogger("wfctl").setLevel(logging.WARNING)
    tell(bare_log, "not said", lambda: pytest.fail("asked"))
    assert stream.getvalue().endswith("Z said\n") and stream.getvalue().count("\n") == 1


def test_other_handlers_hear_what_is_told(bare_log: logging.Logger) -> None:
    heard: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = heard.append  # type: ignore[method-assign]
    logging.getLogger("wfctl").handlers[:] = [LineHandler(io.StringIO(), "text"), handler]
    tell(bare_log, "said", _fields)
    assert [(each.getMessage(), each.__dict__["run"]) for each in heard] == [("said", "run-000001")]


def test_lines_that_belong_together_are_written_at_once_and_in_order(bare_log: logging.Logger) -> None:
    writes: list[str] = []
    stream = io.StringIO()
    stream.write = lambda text: writes.append(text) or len(text)  # type: ignore[method-assign,func-returns-value]
    logging.getLogger("wfctl").handlers[:] = [LineHandler(stream, "text")]
    with together(), together():
        for number in range(150):
            tell(bare_log, f"line {number}", _fields)
        bare_log.warning("the last")
    tell(bare_log, "after", _fields)
    assert [text.count("\n") for text in writes] == [100, 51, 1]
    assert [line.split(" ", 1)[1] for line in "".join(writes).splitlines()] == [
        *(f"line {number}" for number in range(150)),
        "warning: the last",
        "after",
    ]


def test_an_error_meanwhile_loses_no_line(bare_log: logging.Logger) -> None:
    stream = io.StringIO()
    logging.getLogger("wfctl").handlers[:] = [LineHandler(stream, "text")]
    with pytest.raises(RuntimeError), together():
        tell(bare_log, "before it", _fields)
        raise RuntimeError
    assert "before it" in stream.getvalue()


def test_a_log_that_cannot_be_written_ends_nothing(bare_log: logging.Logger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)
    stream = io.StringIO()
    stream.write = _no_room  # type: ignore[method-assign]
    logging.getLogger("wfctl").handlers[:] = [LineHandler(stream, "text")]
    with together():
        tell(bare_log, "lost", _fields)
    tell(bare_log, "lost", _fields)
    bare_log.info("lost")


def _no_room(text: str) -> int:
    raise OSError(errno.ENOSPC, "no room")

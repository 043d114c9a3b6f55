"""The supervisor's log: text, JSON, and what journald reads (contract 8.6, 11.5)."""

from __future__ import annotations

import json
import logging
import re
import sys

import pytest

from wfctl.supervisor.logs import FORMATS, JournalFormatter, JsonFormatter, TextFormatter


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

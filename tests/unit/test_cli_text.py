"""What users and runs wrote is shown, never interpreted (contract 8.5, 8.6)."""

from __future__ import annotations

import io
import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wfctl.cli.render import csv_cell, json_text
from wfctl.cli.text import cells, escape, escape_lines, escape_message, pad


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param("plain [red]text[/] 100%", "plain [red]text[/] 100%", id="markup of rich is text"),
        pytest.param("żółw 😀 café", "żółw 😀 café", id="letters of any script stay"),
        pytest.param("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m", id="a terminal escape is shown"),
        pytest.param("\x9b31m", r"\x9b31m", id="a C1 escape is shown"),
        pytest.param("a\nb\tc\rd", r"a\nb\tc\rd", id="a newline cannot begin a row of its own"),
        pytest.param("\x00\x07\x7f", r"\x00\x07\x7f", id="NUL, bell and DEL are shown"),
        pytest.param("\u202egnp.exe\u2066", r"\u202egnp.exe\u2066", id="bidi marks cannot turn text around"),
        pytest.param("a\u2028b\u2029c\x85d", r"a\u2028b\u2029c\x85d", id="line separators are no lines"),
        pytest.param("caf\udce9", r"caf\xe9", id="a byte that is not UTF-8 is shown as that byte"),
        pytest.param("\ud800", r"\ud800", id="a lone surrogate is shown"),
    ],
)
def test_escape(text: str, shown: str) -> None:
    assert escape(text) == shown


@given(st.text(alphabet=st.characters(codec=None, categories=None)))
def test_an_escaped_text_has_nothing_to_interpret(text: str) -> None:
    shown = escape(text)
    assert not any(ord(letter) < 32 or 127 <= ord(letter) < 160 for letter in shown)
    assert not any(letter in "\u061c\u200e\u200f\u2028\u2029\u202a\u202e\u2066\u2069\ufeff" for letter in shown)
    shown.encode()  # and can be written


def test_lines_of_a_log_keep_their_newlines_and_tabs() -> None:
    assert escape_lines("a\tb\n\x1b[2Jc\r") == "a\tb\n\\x1b[2Jc\\x0d".replace("\\x0d", "\\r")


def test_no_line_of_a_message_passes_for_another_message() -> None:
    assert escape_message("3 problems\nwfctl: all is well\n\x1b[A") == "3 problems\n  wfctl: all is well\n  \\x1b[A"


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        pytest.param("=1+1", "'=1+1", id="a formula"),
        pytest.param("+1", "'+1", id="plus"),
        pytest.param("-1", "'-1", id="minus in a text"),
        pytest.param("@sum(a)", "'@sum(a)", id="at"),
        pytest.param("\tx", r"'\tx", id="tab"),
        pytest.param("\rx", r"'\rx", id="carriage return"),
        pytest.param(-1, "-1", id="a number is a number"),
        pytest.param(0.25, "0.25", id="seconds"),
        pytest.param(None, "", id="nothing"),
        pytest.param(True, "true", id="a claim"),
        pytest.param("a-b", "a-b", id="an id"),
        pytest.param("\x1b]0;x\x07", r"\x1b]0;x\x07", id="a terminal escape"),
        pytest.param({"code": "exit"}, '{"code": "exit"}', id="a table as JSON"),
    ],
)
def test_csv_cells_start_no_formula_and_no_escape(value: object, cell: str) -> None:
    assert csv_cell(value) == cell  # contract 8.6


class Encoded(io.TextIOWrapper):
    """A stdout with an encoding of its own."""

    def __init__(self, encoding: str) -> None:
        super().__init__(io.BytesIO(), encoding=encoding)


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
@given(value=st.text(alphabet=st.characters(codec=None, categories=None)))
def test_json_says_the_same_in_every_encoding(encoding: str, value: str) -> None:
    before, sys.stdout = sys.stdout, Encoded(encoding)
    try:
        text = json_text({"notes": value})
    finally:
        sys.stdout = before
    text.encode(encoding)
    assert json.loads(text) == {"notes": json.loads(json.dumps(value))}
    assert not any(ord(letter) < 32 or 127 <= ord(letter) < 160 or letter in "\u202e\u2066\u2028" for letter in text)


def test_widths_count_cells() -> None:
    assert [cells("abc"), cells("żółw"), cells("😀"), cells("日本"), cells("e\u0301")] == [3, 4, 2, 4, 1]
    assert pad("日本", 6) == "日本  "
    assert pad("7", 3, right=True) == "  7"

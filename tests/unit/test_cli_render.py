"""Which columns fit a terminal, and what colour and glyphs depend on."""

from __future__ import annotations

import io

import pytest

from wfctl.cli.base import Common
from wfctl.cli.render import Column, aligned, cells_of, fit
from wfctl.cli.style import is_coloured, is_unicode


def columns(kinds: str) -> list[Column]:
    """`k` an id, `f` free text, `.` another."""
    return [Column(key=f"c{n}", title="C", raw=str, keep=kind == "k", free=kind == "f") for n, kind in enumerate(kinds)]


@pytest.mark.parametrize(
    ("kinds", "natural", "width", "shown", "widths"),
    [
        pytest.param("k..f", [10, 5, 5, 40], None, (0, 1, 2, 3), (10, 5, 5, 40), id="no terminal: nothing is cut"),
        pytest.param("k..f", [10, 5, 5, 40], 66, (0, 1, 2, 3), (10, 5, 5, 40), id="it fits exactly"),
        pytest.param("k..f", [10, 5, 5, 40], 65, (0, 1, 2, 3), (10, 5, 5, 39), id="free text shrinks first"),
        pytest.param("k..f", [10, 5, 5, 40], 40, (0, 1, 2, 3), (10, 5, 5, 14), id="down to the narrowest"),
        pytest.param("k..f", [10, 5, 5, 40], 39, (0, 1, 2), (10, 5, 5), id="then the rightmost column is hidden"),
        pytest.param("kk..", [20, 27, 9, 9], 60, (0, 1, 2), (20, 27, 9), id="one after the other"),
        pytest.param("k.k", [30, 5, 30], 20, (0, 2), (30, 30), id="ids are never hidden and never cut"),
    ],
)
def test_fit(kinds: str, natural: list[int], width: int | None, shown: tuple[int, ...], widths: tuple[int, ...]) -> None:
    fitted = fit(columns(kinds), natural, width)
    assert (fitted.shown, fitted.widths) == (shown, widths)


def test_plain_columns_are_aligned_by_cells_and_have_no_blanks_at_the_end() -> None:
    assert aligned([["A", "N"], ["日本", "5"], ["x", "123"]], [False, True]) == ["A       N", "日本    5", "x     123"]


class Stream(io.StringIO):
    """A stream that says whether it is a terminal."""

    def __init__(self, *, is_terminal: bool, encoding: str = "utf-8") -> None:
        super().__init__()
        self._is_terminal = is_terminal
        self._encoding = encoding

    def isatty(self) -> bool:
        return self._is_terminal

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._encoding


@pytest.mark.parametrize(
    ("color", "environ", "is_terminal", "answer"),
    [
        pytest.param("auto", {"TERM": "xterm"}, True, True, id="a terminal"),
        pytest.param("auto", {"TERM": "dumb"}, True, False, id="a dumb one"),
        pytest.param("auto", {}, True, False, id="one that says nothing"),
        pytest.param("auto", {"TERM": "xterm"}, False, False, id="a pipe"),
        pytest.param("auto", {"TERM": "xterm", "NO_COLOR": "1"}, True, False, id="NO_COLOR"),
        pytest.param("auto", {"TERM": "xterm", "NO_COLOR": ""}, True, True, id="NO_COLOR that is empty says nothing"),
        pytest.param("auto", {"FORCE_COLOR": "1"}, False, True, id="FORCE_COLOR in a pipe"),
        pytest.param("auto", {"FORCE_COLOR": "0", "TERM": "xterm"}, False, False, id="FORCE_COLOR of 0"),
        pytest.param("auto", {"NO_COLOR": "1", "FORCE_COLOR": "1"}, True, False, id="NO_COLOR goes over FORCE_COLOR"),
        pytest.param("always", {"NO_COLOR": "1"}, False, True, id="--color goes over NO_COLOR"),
        pytest.param("never", {"FORCE_COLOR": "1"}, True, False, id="--color never"),
    ],
)
def test_colour(color: str, environ: dict[str, str], is_terminal: bool, answer: bool) -> None:
    assert is_coloured(Common(color=color, environ=environ), Stream(is_terminal=is_terminal)) is answer  # contract 8.5


@pytest.mark.parametrize(
    ("environ", "encoding", "answer"),
    [
        pytest.param({"LANG": "en_US.UTF-8"}, "utf-8", True, id="a UTF-8 locale"),
        pytest.param({"LANG": "C"}, "utf-8", False, id="the C locale"),
        pytest.param({"LANG": "C", "LC_CTYPE": "C.UTF-8"}, "utf-8", False, id="the C locale, as Python corrects it"),
        pytest.param({"LANG": "C.UTF-8"}, "utf-8", True, id="C.UTF-8 asked for"),
        pytest.param({"LC_ALL": "POSIX", "LANG": "en_US.UTF-8"}, "utf-8", False, id="LC_ALL goes over LANG"),
        pytest.param({"LANG": "en_US.UTF-8"}, "ascii", False, id="a stream of ASCII"),
    ],
)
def test_glyphs(environ: dict[str, str], encoding: str, answer: bool) -> None:
    assert is_unicode(Common(environ=environ), Stream(is_terminal=True, encoding=encoding)) is answer


def test_ascii_is_obeyed() -> None:
    assert not is_unicode(Common(ascii=True, environ={"LANG": "en_US.UTF-8"}), Stream(is_terminal=True))


def test_what_is_equal_in_a_column_is_written_once_and_as_it_is_alone() -> None:
    written: list[float] = []
    column = Column(key="x", title="X", raw=lambda it: it, write=lambda value: written.append(value) or f"<{value}\x1b>")
    items = [1.5, None, 2.5, 1.5, 2.5]
    held = [cells for (cells,) in map(cells_of([column]), items)]
    assert column.texts(held) == ["<1.5\\x1b>", "", "<2.5\\x1b>", "<1.5\\x1b>", "<2.5\\x1b>"]
    assert written == [1.5, 2.5]
    assert column.texts(held) == [column.text(item) for item in items]

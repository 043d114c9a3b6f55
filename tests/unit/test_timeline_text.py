"""A timeline in letters: what stands where, who wins a cell, and how it fits (contract 8.5, 8.6)."""

from __future__ import annotations

from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tests.support.pictures import expected, lane, mark, minute, pause, picture, run, span
from wfctl.cli.style import Paint
from wfctl.cli.text import cells
from wfctl.cli.timeline_text import LOOKS, lines_of
from wfctl.cli.timeline_words import KINDS
from wfctl.operations.timeline_views import ClockEventView, LaneView, StretchView, TimelineView

UTC = ZoneInfo("UTC")
ASCII, UTF8, COLOUR = Paint(False, False), Paint(False, True), Paint(True, True)
WIDTH = 65  #: of which names leave 60 cells: two minutes a cell


def text_of(view: TimelineView, paint: Paint = ASCII, width: int = WIDTH, zone: ZoneInfo = UTC) -> list[str]:
    return lines_of(view, zone, paint, width)


def cells_of(*items: Any, paint: Paint = ASCII, **more: Any) -> str:
    """The cells of one lane of two hours, two minutes a cell, up to the last one used."""
    lines = lines_of(picture(lane(*items), **{"now": 200, "expected_until": None, **more}), UTC, paint, 65)
    return next(line[5:] for line in lines if line.startswith("s"))


# A whole picture --------------------------------------------------------------------------------------------------------


GOLDEN = """\
UTC  Mon 01 Mar
     09:00          09:30          10:00          10:30
     |              |              |              |
s    [========]     [====x====!    [==============>.....    .....
t  *   =                                :::::     ?
                                                  ^ now 10:30 UTC

! failed   x skipped: overlap   ? held: waits to be admitted
> running   [=] or = completed   . expected   : no supervisor
2 completed, 1 failed, 1 skipped-overlap, 1 held, 1 running, 1
  expected
* t holds 10:30
no supervisor from 10:10 to 10:18 (8m)"""


def test_a_small_picture_in_ascii() -> None:
    view = picture(
        lane(run(0, 20), run(30, 52, "failed"), run(60, None, "running", expected_end=minute(100)), mark(40, "skipped-overlap"),
             expected(110, 118)),
        lane(run(4, 5), mark(90, "pending", held_since=minute(90), schedule_id="t"), name="t"),
        absences=[(70, 78)],
    )  # fmt: skip
    assert "\n".join(text_of(view)) == GOLDEN


GOLDEN_ITEMS = (
    run(0, 20),
    run(30, 52, "failed"),
    mark(40, "skipped-overlap"),
    run(60, None, "running"),
)


def test_runs_marks_and_now() -> None:
    assert cells_of(*GOLDEN_ITEMS, now=90) == "[========]     [====x====!    [==============>"
    assert cells_of(*GOLDEN_ITEMS, now=90, paint=UTF8) == "▐████████▌     ▐████⊘████✗    ▐██████████████▶"


# Pieces -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("items", "shown"),
    [
        pytest.param([run(10, 11)], "     =", id="shorter than a cell: one mark"),
        pytest.param([run(11, 12.5)], "     =", id="shorter than a cell, over an edge: one mark"),
        pytest.param([run(10, 14)], "     []", id="two cells"),
        pytest.param([run(0, 10), run(10, 20)], "[===][===]", id="one begins where another ends"),
        pytest.param([run(10, 11, "failed")], "     !", id="a short failure"),
        pytest.param([run(10, 11), run(11, 12, "failed")], "     !", id="the worst of a cell is shown"),
        pytest.param([run(10, 11, "failed"), run(11, 12)], "     !", id="the worst of a cell is shown, whatever came last"),
        pytest.param([run(0, 20, "failed"), mark(19, "skipped-overlap")], "[========!", id="a failure wins over a skip"),
        pytest.param(
            [mark(10, "skipped-misfire"), mark(11, "coalesced")], "     m", id="of two marks the worse, that came first"
        ),
        pytest.param([mark(10, "coalesced"), mark(11, "skipped-misfire")], "     m", id="of two marks the worse"),
        pytest.param([run(0, 20, "cancelled")], "[========c", id="cancelled"),
        pytest.param([run(0, 20, "exhausted")], "[========E", id="exhausted"),
        pytest.param([run(10, 30, instant=minute(2))], " ____[========]", id="it waited to start"),
        pytest.param(
            [run(0, 30, waits=(StretchView(begins=minute(10), ends=minute(20)),))], "[====~~~~~~===]", id="it waited for input"
        ),
        pytest.param([pause(10, 20), mark(14, "paused")], "     --p---", id="a pause, and what it consumed"),
        pytest.param([span(4, 12, "skipped-misfire", 5)], "  mmmmm", id="a span"),
        pytest.param([run(-30, 8)], "===]", id="it began before the window"),
    ],
)
def test_a_lane(items: list[Any], shown: str) -> None:
    assert cells_of(*items) == shown


@pytest.mark.parametrize(
    ("items", "shown"),
    [
        pytest.param([run(80, None, "running", overdue=True)], " " * 40 + "[====O", id="overdue"),
        pytest.param([run(90, None, "admitted")], " " * 45 + "a", id="admitted"),
        pytest.param([run(80, None, "running", expected_end=minute(98))], " " * 40 + "[====>....", id="expected to end"),
        pytest.param(
            [run(60, None, "interrupted", waits=(StretchView(begins=minute(70), ends=None),))],
            " " * 30 + "[====~~~~~~~~~~~",
            id="waits for input now",
        ),
        pytest.param([mark(80, "pending", held_since=minute(80))], " " * 40 + "_____?", id="the held candidate stands at now"),
        pytest.param([expected(100, 110)], " " * 45 + "|    ......", id="expected"),
        pytest.param([expected(100, 100, "skipped-overlap")], " " * 45 + "|    ,", id="expected not to run"),
    ],
)
def test_a_lane_at_half_past_ten(items: list[Any], shown: str) -> None:
    assert cells_of(*items, now=90, expected_until=minute(120)) == shown


def test_runs_at_once_have_a_line_each_and_one_name() -> None:
    lines = text_of(picture(lane(run(0, 40), run(20, 60, track=1)), now=200))
    first = next(number for number, line in enumerate(lines) if line.startswith("s "))
    assert lines[first + 1].startswith(" " * 15 + "[") and lines[first + 2].strip() == ""


def test_an_absence_shades_every_lane() -> None:
    lines = text_of(picture(lane(), lane(name="t"), absences=[(20, 30)], now=200))
    shaded = [line for line in lines if ":::::" in line]
    assert len(shaded) == 2 and {line.index(":::::") for line in shaded} == {15}
    assert "no supervisor from 09:20 to 09:30 (10m)" in lines


def test_a_step_of_the_clock_is_marked_and_told() -> None:
    event = ClockEventView(at=minute(30), floor=minute(330), schedules=("s",), withdrawn=2)
    lines = text_of(picture(lane(), clock_events=(event,), now=200))
    assert any(line.strip() == "C" for line in lines)
    assert "the clock was set back by 5h, to 09:30: 1 schedule began anew" in lines


def test_the_zone_is_named_and_its_clock_is_at_the_axis() -> None:
    lines = text_of(picture(lane(), timezone="Asia/Kolkata"), zone=ZoneInfo("Asia/Kolkata"), width=100)
    assert lines[0].split()[0] == "IST" and "14:30" in lines[1]
    assert any("^ now 16:00 IST" in line for line in lines)


def test_only_what_is_shown_is_in_the_legend() -> None:
    lines = "\n".join(text_of(picture(lane(run(0, 20), mark(30, "skipped-overlap")), now=200)))
    assert "x skipped: overlap" in lines and "[=] or = completed" in lines
    assert "failed" not in lines and "paused" not in lines


# What it must never do ----------------------------------------------------------------------------------------------------

HOSTILE = "\x1b[31mred\u202e"


@pytest.mark.parametrize("paint", [ASCII, UTF8, COLOUR], ids=["ascii", "utf-8", "colour"])
@pytest.mark.parametrize("width", [20, 80, 100, 200])
def test_no_line_is_wider_than_asked(paint: Paint, width: int) -> None:
    lanes = [_everything(name=name) for name in ("a", "hourly-report", "x" * 40, "y" * 128)]
    view = picture(*lanes, absences=[(10, 20)], idle=tuple(f"idle-{n}" for n in range(40)))
    lines = [_bare(line) for line in text_of(view, paint, width)]
    names = {lane.name for lane in lanes}
    assert max(cells(line) for line in lines if line.rstrip(" *") not in names) <= max(width, 50)
    assert names <= {word for line in lines for word in line.split()}, "no name is ever cut"


def test_in_ascii_there_is_nothing_else() -> None:
    assert "\n".join(text_of(picture(_everything(), absences=[(10, 20)]))).isascii()


def test_every_kind_has_a_look_of_its_own_one_cell_wide() -> None:
    assert set(KINDS) <= set(LOOKS)
    for look in LOOKS.values():
        assert cells(look.unicode) == cells(look.ascii) == 1 and look.ascii.isascii()
    for charset in ("ascii", "unicode"):
        drawn = [getattr(LOOKS[kind], charset) for kind in [*KINDS, "late", "pause", "away", "now"]]
        assert len(set(drawn)) == len(drawn)


def test_8_6_what_users_wrote_is_shown_not_interpreted() -> None:
    view = picture(
        lane(mark(80, "pending", held_since=minute(80), why=HOSTILE), name=HOSTILE),
        lane(pause(10, None, why=HOSTILE, actor=HOSTILE), name="p", state="paused"),
        lane(name="b", state="blocked", diagnostic={"message": HOSTILE}),
    )
    out = "\n".join(text_of(view, UTF8, 100))
    assert "\x1b" not in out and "\u202e" not in out and "\\x1b[31mred\\u202e" in out


def test_colour_only_repeats_what_is_there_without_it() -> None:
    view = picture(_everything(), absences=[(10, 20)])
    assert [_bare(line) for line in text_of(view, COLOUR, 80)] == text_of(view, UTF8, 80)


def test_without_schedules_or_without_anything_it_says_so() -> None:
    assert text_of(picture())[0].startswith("there are no schedules, and nothing ran:")
    assert text_of(picture(idle=("weekly",)))[0].startswith("nothing happened in this time:")
    assert "nothing in this time: weekly" in text_of(picture(idle=("weekly",)))


def test_what_is_left_out_is_said() -> None:
    lines = "\n".join(text_of(picture(lane(drawn_from=minute(30), unreadable=2), left_out=True), width=100))
    assert "* s is drawn from 09:30 on: there is more than fits" in lines
    assert "* s has 2 rows that cannot be read; see wfctl store verify" in lines
    assert "more than 5,000 runs and marks: older ones are left out" in lines


def _everything(**more: Any) -> LaneView:
    marks = [mark(3 * number, kind) for number, kind in enumerate(KINDS) if kind not in ("unlikely", "expected", "overdue")]
    runs = [run(50, 60), run(62, 66, "failed"), run(80, None, "running", overdue=True, expected_end=minute(110))]
    return lane(*marks, *runs, pause(40, 48), expected(112, None), expected(114, 114, "skipped-overlap"), **more)


def _bare(line: str) -> str:
    import re

    return re.sub(r"\x1b\[\d*m", "", line)

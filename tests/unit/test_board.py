"""The live board laid out: what is shown on which screen, in which order it gives way (contract 8.5, 8.6)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from wfctl.cli.board import Board, brief, layout
from wfctl.cli.style import PLAIN, Paint
from wfctl.cli.text import cells
from wfctl.core.model import Status
from wfctl.operations.glance import Glance, Going, Told
from wfctl.operations.views import StatusView

NOW = datetime(2027, 3, 1, 12, 8, 31, tzinfo=UTC)
UTF8 = Paint(colour=False, unicode=True)
SCREENS = [(80, 24), (40, 12), (200, 60)]


def ago(**span: float) -> datetime:
    return NOW - timedelta(**span)


def going(number: int, name: str, **given: Any) -> Going:
    known: dict[str, Any] = {"is_manual": False, "status": Status.RUNNING, "is_overdue": False, "message": None}
    return Going(run_id=f"run-{number:06d}", name=name, **{**known, **given})


SUPERVISOR = StatusView(
    state="degraded",
    pid=812,
    host="host-a",
    started_at=ago(days=3, hours=4),
    version="0.4.0",
    store="/var/lib/wfctl",
    slots_used=3,
    slots_total=4,
    next_schedule_id="etl-orders",
    next_instant=NOW + timedelta(minutes=12),
    schedules={"active": 38, "paused": 2, "blocked": 1},
    blocked=(),
    waiting=(),
    problems=({"code": "disk", "message": "less than 256 MiB are free: nothing is admitted"},),
)
GLANCE = Glance(
    going=(
        going(118, "etl-orders", since=ago(hours=2, minutes=5), is_overdue=True),
        going(131, "hourly-report", since=ago(minutes=8, seconds=31)),
        going(132, "vacuum.default", since=ago(seconds=41), is_manual=True),
    ),
    asking=(going(99, "deploy-site", since=ago(days=2), status=Status.INTERRUPTED, message="approve the release?"),),
    unnamed=0,
    slots_used=2,
    coming=tuple((f"schedule-{number}", NOW + timedelta(seconds=29 + 400 * number**2)) for number in range(10)),
    blocked=(("nightly-dump", "trigger.expression: minute 75 is outside 0-59"),),
    held_up=(),
    counts={"active": 38, "paused": 2, "blocked": 1, "finished": 0},
)
LATELY = tuple(
    Told(
        at=ago(seconds=40 * number**2),
        name=f"schedule-{number}",
        run_id=None if status.startswith("skipped") else f"run-{132 - number:06d}",
        to=status,
        reason=reason,
    )
    for number, (status, reason) in enumerate(
        [
            ("running", None),
            ("completed", None),
            ("skipped-overlap", {"code": "overlap", "runs": ["run-000118"], "limit": 1}),
            ("failed", {"code": "exit", "exit_status": 2}),
            ("completed", None),
            ("skipped-misfire", {"code": "missed", "allowed_s": 60}),
            ("completed", None),
            ("failed", {"code": "deadline", "limit_s": 3600, "change_with": "wfctl schedule set schedule-7 max_run=2h"}),
            ("completed", None),
            ("completed", None),
        ]
    )
)
BOARD = Board(now=NOW, store="/var/lib/wfctl", supervisor=SUPERVISOR, absence=None, glance=GLANCE, lately=LATELY, every="2s")
EMPTY = Glance(
    going=(), asking=(), unnamed=0, slots_used=0, coming=(), blocked=(), held_up=(), counts=dict.fromkeys(GLANCE.counts, 0)
)
TITLES = ["NEEDS ATTENTION", "WAITING FOR INPUT", "RUNNING", "NEXT (UTC)", "LATELY (UTC)"]


def titles(lines: list[str]) -> list[str]:
    return [title for line in lines for title in TITLES if line.startswith(title)]


@pytest.mark.parametrize("paint", [pytest.param(UTF8, id="utf-8"), pytest.param(PLAIN, id="ascii")])
@pytest.mark.parametrize(("width", "height"), SCREENS, ids=lambda size: str(size))
def test_a_board_looks_as_it_did(width: int, height: int, paint: Paint) -> None:
    """The golden pages; a change of them is meant, or a mistake."""
    name = f"board-{width}x{height}-{'utf-8' if paint.unicode else 'ascii'}.txt"
    golden = Path(__file__).parent / "board" / name
    shown = "\n".join(layout(BOARD, width, height, paint)) + "\n"
    assert shown == golden.read_text("utf-8")
    assert paint.unicode or shown.isascii()


@pytest.mark.parametrize("width", [1, 7, 39, 80, 400])
@pytest.mark.parametrize("height", [1, 2, 3, 5, 9, 24, 70])
def test_nothing_is_ever_larger_than_the_screen(width: int, height: int) -> None:
    wide = replace(GLANCE, blocked=(("全角" * 30, "x" * 5000),), going=(going(1, "あ" * 90, since=ago(days=400)),) * 80)
    for board in (BOARD, replace(BOARD, glance=EMPTY, lately=()), replace(BOARD, glance=wide, supervisor=None)):
        for paint in (UTF8, PLAIN):
            lines = layout(board, width, height, paint)
            assert 1 <= len(lines) <= height
            assert max(map(cells, lines)) <= width


def test_sections_give_way_in_a_fixed_order_and_what_is_wrong_stays_longest() -> None:
    seen = [titles(layout(BOARD, 80, height, PLAIN)) for height in range(40, 2, -1)]
    assert seen[0] == TITLES
    stages = [each for at, each in enumerate(seen) if each != seen[at - 1] or at == 0]
    gone = ["NEXT (UTC)", "LATELY (UTC)", "RUNNING", "WAITING FOR INPUT", "NEEDS ATTENTION"]
    assert stages == [[title for title in TITLES if title not in gone[:number]] for number in range(len(stages))]
    assert len(stages) == 6


def test_a_title_says_what_is_left_out() -> None:
    lines = layout(BOARD, 80, 20, PLAIN)
    shown = next(line for line in lines if line.startswith("LATELY"))
    at = lines.index(shown)
    assert shown == f"LATELY (UTC)  {len(lines) - at - 2} of 10"
    assert "of" not in next(line for line in layout(BOARD, 80, 60, PLAIN) if line.startswith("LATELY"))
    many = replace(BOARD, glance=replace(GLANCE, unnamed=40))
    assert "RUNNING  3 of 43" in layout(many, 80, 60, PLAIN)


def test_without_a_supervisor_it_says_so_and_shows_the_rest() -> None:
    lines = layout(replace(BOARD, supervisor=None, absence="no supervisor runs; waiting for one"), 80, 24, PLAIN)
    assert lines[0] == "wfctl  no supervisor runs; waiting for one"
    assert lines[1].startswith("slots 2 used  41 schedules: 38 active, 2 paused, 1 blocked")
    assert titles(lines) == TITLES


def test_an_empty_store_has_a_quiet_board() -> None:
    board = replace(BOARD, glance=EMPTY, lately=(), supervisor=replace(SUPERVISOR, problems=(), state="ready", slots_used=0))
    lines = layout(board, 80, 24, PLAIN)
    assert lines[1] == "slots [....] 0/4  0 schedules  /var/lib/wfctl"
    assert [line for line in lines[2:] if line] == [
        "RUNNING",
        "nothing runs",
        "NEXT (UTC)",
        "nothing to come",
        "LATELY (UTC)",
        "nothing yet",
        "12:08Z | every 2s, p pauses | q quits",
    ]


def test_what_users_wrote_is_shown_and_never_interpreted() -> None:
    """Contract 8.6: reasons, messages and ids of a ledger that somebody wrote to."""
    evil = "\x1b]0;owned\x07[red]\u202e\n"
    hostile = Board(
        now=NOW,
        store=f"/srv/{evil}",
        supervisor=replace(SUPERVISOR, host=evil, problems=({"code": "x", "message": evil},)),
        absence=None,
        glance=replace(
            GLANCE,
            going=(going(1, evil, since=ago(hours=1)),),
            asking=(going(2, evil, since=ago(hours=1), message=evil),),
            coming=((evil, NOW),),
            blocked=((evil, evil),),
            held_up=((evil, NOW),),
        ),
        lately=(Told(NOW, evil, None, "failed", {"code": "exit", "message": evil}),),
        every="2s",
    )
    shown = "\n".join(layout(hostile, 200, 60, UTF8))
    assert not {"\x1b", "\x07", "\u202e"} & set(shown)
    assert "\\x1b]0;owned\\x07[red]\\u202e\\n" in shown


def test_colour_only_repeats_what_a_word_says() -> None:
    import re

    coloured = layout(BOARD, 80, 24, Paint(colour=True, unicode=True))
    assert [re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip() for line in coloured] == layout(BOARD, 80, 24, UTF8)
    assert any("\x1b[31m" in line for line in coloured)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-3, "0s"), (59.9, "59s"), (60, "1m"), (3599, "59m"), (3600, "1h"), (7500, "2h 05m"), (86_400, "1d"), (180_000, "2d 02h")],
)
def test_a_span_changes_no_more_often_than_it_must(seconds: float, text: str) -> None:
    assert brief(seconds) == text

"""A timeline as SVG and as a page: well-formed, one piece, safe whatever users wrote, and in words for who does not see it."""

from __future__ import annotations

import base64
import hashlib
import re
import stat
from pathlib import Path
from typing import Any
from xml.etree import ElementTree
from zoneinfo import ZoneInfo

import pytest

from tests.support.pictures import expected, lane, mark, minute, pause, picture, run, span
from wfctl.cli.exporting import write_export
from wfctl.cli.html import page_of
from wfctl.cli.svg import NAMESPACE, SHAPES, page_file, svg_of
from wfctl.cli.timeline_words import KINDS, Words
from wfctl.errors import CannotCreate
from wfctl.operations.timeline_views import ClockEventView, StretchView, TimelineView
from wfctl.operations.views import LoadBucketView, LoadView, PeakView

UTC = ZoneInfo("UTC")
HOSTILE = "</script></svg><script>alert(1)</script>\"'&\x00\x1b[31m\u202e\ud800\uffff]]>"
#: kinds that are a bar, whose shape is its own
BARS = {"completed", "expected"}


def everything(words: str = "why") -> TimelineView:
    """A picture with every kind of thing, and the same text wherever users can put theirs."""
    waits = (StretchView(begins=minute(12), ends=minute(15)),)
    runs = [
        run(3 * number, 3 * number + 2, kind, why=words, overdue=kind == "failed")
        for number, kind in enumerate(("completed", "failed", "exhausted", "cancelled"))
    ]
    runs += [
        run(10, None, "interrupted", waits=(*waits, StretchView(begins=minute(30), ends=None)), track=1),
        run(60, None, "running", expected_end=minute(110), instant=minute(20), track=2),
        run(61, None, "running", overdue=True, track=3),
        run(90, None, "admitted", track=4),
    ]
    without = ("preflight-rejected", "skipped-misfire", "skipped-overlap", "coalesced", "paused")
    marks = [mark(5 * number, kind, why=words, reason={"code": words}) for number, kind in enumerate(without)]
    marks += [mark(88, "pending", held_since=minute(88), why=words), span(40, 50, "skipped-misfire", 11)]
    event = ClockEventView(at=minute(33), floor=minute(333), schedules=("s",), withdrawn=None)
    return picture(
        lane(*runs, *marks, pause(70, 80, why=words, actor=words), expected(100, None), expected(112, 112, "coalesced"),
             reading=words),
        lane(name=words, state="blocked", diagnostic={"message": words}),
        absences=[(20, 30), (85, None)],
        clock_events=(event,),
        idle=(words,),
        timezone="UTC",
    )  # fmt: skip


def load() -> LoadView:
    buckets = tuple(LoadBucketView(begins=minute(60 * hour), mean=hour / 4, peak=hour) for hour in range(30))
    peak = PeakView(at=minute(60), used=9, schedules=({"schedule_id": "<b>", "duration_s": 60.0},) * 5)
    return LoadView(since=minute(0), until=minute(1800), slots=4, bucket_s=3600.0, buckets=buckets, peak=peak, assumed=())


def page(view: TimelineView) -> str:
    return page_of(view, UTC, load=load())


def parsed(text: str) -> ElementTree.Element:
    return ElementTree.fromstring(text)


@pytest.mark.parametrize("words", ["plain", HOSTILE, "x" * 500, "日本語 и ε"], ids=["plain", "hostile", "long", "foreign"])
def test_it_is_well_formed_xml_whatever_users_wrote(words: str) -> None:
    root = parsed(svg_of(everything(words), UTC))
    assert root.tag == f"{{{NAMESPACE}}}svg"
    assert not root.findall(f".//{{{NAMESPACE}}}script")


def test_every_kind_is_drawn_by_a_shape_of_its_own_never_by_a_letter() -> None:
    assert set(KINDS) - BARS <= set(SHAPES)
    assert len(set(SHAPES.values())) == len(SHAPES)
    text = svg_of(everything(), UTC)
    for kind in set(KINDS) - BARS:
        assert f'class="m k-{kind}' in text and f'href="#s-{kind}"' in text, kind
    shown = "".join(node.text or "" for node in parsed(text).iter(f"{{{NAMESPACE}}}text"))
    assert shown.replace("\u2026", "").isascii(), "no glyph that a font may lack"


def test_each_bar_and_mark_says_in_words_what_it_is() -> None:
    root = parsed(svg_of(everything(), UTC))
    marks = [node for node in root.iter(f"{{{NAMESPACE}}}g") if (node.get("class") or "").startswith("m ")]
    assert len(marks) > 15
    for node in marks:
        title = node.find(f"{{{NAMESPACE}}}title")
        assert node.get("role") == "img"
        assert title is not None
        assert title.text and title.text == node.get("aria-label")
    said = {node.get("aria-label") for node in marks}
    assert "s of 09:03: failed; it was overdue, 09:03 to 09:05 (2m), run-000004: why" in said
    assert "s of 09:40 to 09:50: skipped, too late, 11 instants" in said
    assert "s of 10:28: held, waits to be admitted since 10:28: why" in said
    assert any(text and text.startswith("s of 09:20: running; started 40m after its instant; expected to end") for text in said)


@pytest.mark.parametrize("draw", [lambda view: svg_of(view, UTC), page], ids=["svg", "html"])
def test_nothing_in_a_file_points_outside_of_it(draw: Any) -> None:
    text = draw(everything()).replace(NAMESPACE, "").replace('http-equiv="Content-Security-Policy"', "")
    assert "http" not in text and "//" not in re.sub(r"//  ?[\w(].*", "", text)
    assert re.findall(r"url\((?!#)", text) == [] and "@import" not in text and '<link rel="stylesheet"' not in text
    assert set(re.findall(r'(?:src|href)="([^"#][^"]*)"', text)) <= {"data:,"}


@pytest.mark.parametrize("words", [HOSTILE, "<img src=x onerror=alert(1)>", "--><!--", "&lt;"])
def test_8_6_what_users_wrote_is_no_markup_of_the_page(words: str) -> None:
    clean, text = page(everything("plain")), page(everything(words))
    tags = [sorted(re.findall(r"<[/!a-zA-Z][\w-]*", each)) for each in (clean, text)]
    assert set(tags[0]) == set(tags[1])
    assert text.count("<script>") == 1 and "onerror=alert(1)>" not in text
    assert "\x1b" not in text and "\x00" not in text and "\u202e" not in text
    text.encode("utf-8")


def test_the_page_allows_its_own_script_and_style_and_nothing_else() -> None:
    text = page(everything())
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy and policy[1].startswith("default-src 'none';") and "unsafe" not in policy[1]
    for tag in ("script", "style"):
        (body,) = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy[1]
    assert not re.search(r"\sstyle=|\son\w+=", re.sub(r"<(script|style)>.*?</\1>", "", text, flags=re.DOTALL))


def test_the_page_has_a_row_for_each_bar_a_legend_and_the_load_ahead() -> None:
    view = everything()
    text = page(view)
    assert text.count("<tr>") == len(list(Words(view, UTC).all())) + 1 + 1 + 2
    assert "rejected by preflight</li>" in text and "no supervisor</li>" in text
    assert "Execution slots wanted, the next 1d 06h" in text
    assert "The most is 9 at once, Mon 01 Mar 10:00: &lt;b&gt; (1m)" in text
    assert 'class="l5" title="Tue 02 Mar 14:00: 7.25 of 4 slots on average, at most 29"' in text
    assert "Execution slots" not in page_of(view, UTC, load=None)


def test_dark_and_light_and_paper() -> None:
    for text in (svg_of(everything(), UTC), page(everything())):
        assert "@media screen and (prefers-color-scheme: dark)" in text
    assert "@media print" in page(everything())


def test_the_script_is_small_and_plain() -> None:
    script = page_file("timeline.js")
    assert len(script) < 16_000 and script.isascii()
    assert not re.search(r"\b(eval|innerHTML|outerHTML|document\.write|fetch|XMLHttpRequest|import|localStorage)\b", script)


def test_an_empty_picture_is_a_page_too() -> None:
    parsed(svg_of(picture(), UTC))
    assert "nothing happened in it" in page_of(picture(), UTC, load=None)


# The file ---------------------------------------------------------------------------------------------------------------


def test_a_file_is_written_whole_and_an_older_one_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "a.svg"
    path.write_text("old")
    path.chmod(0o640)
    write_export(str(path), b"new")
    assert path.read_bytes() == b"new" and stat.S_IMODE(path.stat().st_mode) == 0o640
    assert list(tmp_path.iterdir()) == [path]


def test_what_a_link_points_to_is_written_not_the_link(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    write_export(str(tmp_path / "link"), b"new")
    assert (tmp_path / "real").read_bytes() == b"new" and (tmp_path / "link").is_symlink()


@pytest.mark.parametrize("name", ["nowhere/a.svg", "."])
def test_a_file_that_cannot_be_made_is_73(tmp_path: Path, name: str) -> None:
    with pytest.raises(CannotCreate):
        write_export(str(tmp_path / name), b"new")

"""The page of a timeline in a real browser: what hovers, zooms, walks by keys, prints, and asks nobody for anything."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tests.support import browser as browsers
from tests.support.browser import Page
from tests.support.rich_history import History
from tests.support.waiting import wait_for
from wfctl.cli.html import page_of
from wfctl.cli.svg import svg_of
from wfctl.operations.load import load
from wfctl.operations.picture import timeline

pytestmark = pytest.mark.skipif(browsers.program() is None, reason="no Chromium is installed: apt install chromium")
NOW = datetime(2027, 3, 1, 12, 8, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the picture of a rich history, as a page and as SVG."""
    folder = tmp_path_factory.mktemp("picture")
    history = History(folder / "store", NOW)
    history.live()
    context = history.world.store.context
    view = timeline(
        context, schedule_ids=None, since=NOW - 12 * HOUR, until=NOW + 2 * HOUR, slots=8, timezone="Europe/Budapest"
    )
    zone = ZoneInfo("Europe/Budapest")
    ahead = load(context, until=NOW + 72 * HOUR, width=HOUR, slots=8)
    (folder / "page.html").write_text(page_of(view, zone, load=ahead))
    (folder / "page.svg").write_text(svg_of(view, zone))
    history.world.die()
    return folder


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browsers.browser(tmp_path_factory.mktemp("chromium")) as page:
        yield page


@pytest.fixture
def page(chromium: Page, files: Path) -> Page:
    """The page, freshly loaded at a common size in light colours."""
    chromium.emulate()
    chromium.resize(1280, 900)
    chromium.events.clear()
    chromium.open(files / "page.html")
    return chromium


def labels(page: Page) -> list[str]:
    """What stands at the axis."""
    return list(page.run("[...document.querySelectorAll('.chart .axis text.dim')].map(each => each.textContent)"))


def window(page: Page) -> tuple[float, float]:
    """Seconds since the epoch that the picture shows."""
    found: Any = page.run(
        "[+document.querySelector('.chart svg').dataset.from, +document.querySelector('.chart svg').dataset.to]"
    )
    return float(found[0]), float(found[1])


def tip(page: Page) -> str:
    """What the tooltip says; empty while it is hidden."""
    return str(page.run("document.getElementById('tip').hidden ? '' : document.getElementById('tip').textContent"))


def middle_of(page: Page, selector: str) -> tuple[float, float]:
    box: Any = page.run(
        f"(b => [b.left + b.width / 2, b.top + b.height / 2])(document.querySelector({selector!r}).getBoundingClientRect())"
    )
    return float(box[0]), float(box[1])


def test_it_loads_without_a_complaint_and_asks_for_nothing_but_itself(page: Page, files: Path) -> None:
    assert page.complaints() == []
    asked = [url for url in page.requests() if not url.startswith("data:")]
    assert asked == [(files / "page.html").as_uri()]
    assert page.run("document.querySelectorAll('.chart .m').length") > 500


def test_hovering_says_what_a_bar_is(page: Page) -> None:
    assert tip(page) == ""
    page.mouse("mouseMoved", *middle_of(page, ".m.k-preflight-rejected"))
    assert "rejected by preflight" in wait_for(lambda: tip(page), "the tooltip")
    assert "/nowhere/at/all is not there" in tip(page)
    page.mouse("mouseMoved", 5, 5)
    wait_for(lambda: tip(page) == "", "the tooltip goes")


def test_what_users_wrote_is_text_in_the_tooltip_too(page: Page) -> None:
    page.run("document.querySelector('.m.k-pause').focus()")
    assert "migration <b>of</b> the orders" in tip(page)


def test_zoom_by_buttons_keys_wheel_and_drag_changes_the_axis(page: Page) -> None:
    whole, first = window(page), labels(page)
    assert (whole[1] - whole[0]) == 14 * 3600
    page.run("document.getElementById('in').click()")
    assert window(page)[1] - window(page)[0] == 7 * 3600
    assert labels(page) != first
    page.key("+", "+")
    page.key("-", "-")
    assert window(page)[1] - window(page)[0] == 7 * 3600
    page.key("0", "0")
    assert window(page) == whole and labels(page) == first
    left, top = middle_of(page, ".lane:nth-of-type(6)")
    page.drag((left, top), (left + 120, top))
    assert 0 < window(page)[1] - window(page)[0] < 3 * 3600
    page.run("document.getElementById('whole').click()")
    page.mouse("mouseWheel", left, top, deltaX=0, deltaY=-240, modifiers=2)
    wait_for(lambda: window(page)[1] - window(page)[0] < 14 * 3600, "the wheel with Ctrl zooms")
    assert page.complaints() == []


def test_the_axis_is_in_the_zone_of_the_picture(page: Page) -> None:
    assert labels(page)[:2] == ["02:00", "03:00"]  # Budapest is an hour ahead of 00:08 UTC


def test_a_bar_is_where_its_time_is_however_much_it_is_zoomed(page: Page) -> None:
    page.run("document.getElementById('in').click()")
    off = page.run("""(() => {
        const svg = document.querySelector('.chart svg'), d = svg.dataset, width = +svg.getAttribute('width');
        const x = t => +d.left + (t - d.from) / (d.to - d.from) * (width - d.left - d.right);
        return Math.max(...[...svg.querySelectorAll('.m')].map(m =>
            Math.abs(+/translate\\((\\S+) /.exec(m.getAttribute('transform'))[1] - x(+m.dataset.b))));
    })()""")
    assert off < 0.02


def test_keys_walk_from_bar_to_bar_with_a_ring_and_words(page: Page) -> None:
    page.run("document.querySelectorAll('.lane')[3].querySelector('.m').focus()")
    says = "document.activeElement.getAttribute('aria-label')"
    seen = [page.run(says)]
    for _ in range(3):
        page.key("ArrowRight")
        seen.append(page.run(says))
    assert len(set(seen)) == 4 and all(said.startswith("etl-orders") for said in seen)
    assert tip(page).replace(" ", "") == seen[-1].replace(": ", "", 1).replace(" ", "")
    assert page.run("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.key("ArrowLeft")
    assert page.run(says) == seen[2]
    page.key("ArrowDown")
    assert str(page.run(says)).startswith("flaky-sync")
    page.key("ArrowUp")
    page.key("End")
    assert "expected" in str(page.run(says))
    page.key("+", "+")
    assert page.run("getComputedStyle(document.activeElement).visibility") == "visible", "zoom keeps what is looked at"
    page.key("Escape")
    assert tip(page) == ""
    assert page.run("document.querySelectorAll('.m[tabindex=\"0\"]').length") == 1, "Tab enters the picture once"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_both_colour_schemes_can_be_read(page: Page, scheme: str, tmp_path: Path) -> None:
    page.emulate(scheme=scheme)
    paper = page.run("getComputedStyle(document.body).backgroundColor")
    assert (sum(_rgb(paper)) < 3 * 60) == (scheme == "dark")
    drawn = [f".k-{kind} .bar" for kind in ("completed", "failed", "running", "overdue", "cancelled")]
    for selector in (".name", ".dim", ".alarm", *drawn):
        colour = page.run(f"getComputedStyle(document.querySelector('.chart {selector}')).fill")
        least = 4.5 if selector in (".name", ".dim", ".alarm") else 3.0  # WCAG 2: text, and what is drawn
        assert contrast(_rgb(colour), _rgb(paper)) >= least, (selector, colour, paper)
    assert len(page.picture(tmp_path / f"{scheme}.png")) > 20_000


def test_on_paper_it_is_light_and_without_tools(page: Page) -> None:
    page.emulate(scheme="dark", media="print")
    assert sum(_rgb(page.run("getComputedStyle(document.body).backgroundColor"))) > 3 * 240
    assert page.run("getComputedStyle(document.querySelector('.bar-of-tools')).display") == "none"
    assert page.run("getComputedStyle(document.querySelector('.legend, .chips')).display") != "none"


def test_a_narrow_window_scrolls_the_picture_and_nothing_else(page: Page) -> None:
    page.resize(420, 800)
    page.run("window.dispatchEvent(new Event('resize'))")
    assert page.run("document.documentElement.scrollWidth") <= 420
    assert page.run("document.querySelector('.chart').scrollWidth") > 420


def test_names_and_labels_do_not_cover_each_other(page: Page) -> None:
    overlapping = page.run("""(() => {
        const boxes = [...document.querySelectorAll('.chart .name, .chart .lane .dim, .chart .axis text')]
            .map(each => [each.textContent, each.getBoundingClientRect()]);
        const found = [];
        const meet = (p, q) => p.left < q.right - 1 && q.left < p.right - 1 && p.top < q.bottom - 3 && q.top < p.bottom - 3;
        boxes.forEach(([a, p], i) => boxes.slice(i + 1).forEach(([b, q]) => { if (meet(p, q)) { found.push([a, b]); } }));
        return found;
    })()""")
    assert overlapping == []


def test_the_table_has_a_row_for_each_bar(page: Page) -> None:
    assert page.run("document.querySelectorAll('.rows tbody tr').length") == page.run(
        "document.querySelectorAll('.chart .lane .m').length"
    )


def test_the_svg_alone_opens_without_a_complaint(page: Page, files: Path, tmp_path: Path) -> None:
    page.events.clear()
    page.open(files / "page.svg")
    assert page.complaints() == []
    assert page.run("document.documentElement.tagName") == "svg"
    assert page.run("document.querySelectorAll('.m > title').length") == page.run("document.querySelectorAll('.m').length")
    assert len(page.picture(tmp_path / "svg.png")) > 20_000


# Colours ----------------------------------------------------------------------------------------------------------------


def _rgb(text: str) -> tuple[int, int, int]:
    red, green, blue = (int(float(part)) for part in text[text.index("(") + 1 :].rstrip(")").split(",")[:3])
    return red, green, blue


def contrast(one: tuple[int, int, int], other: tuple[int, int, int]) -> float:
    """The contrast of two colours as WCAG 2 defines it."""

    def luminance(colour: tuple[int, int, int]) -> float:
        parts = [each / 255 for each in colour]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    bright, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)

"""`wfctl occurrence explain` and how an occurrence is named on the command line (contract 5.10, 8.5, 8.6, 11.4)."""

from __future__ import annotations

import json
import re
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.schedules import add, at, cron
from tests.support.story import World
from tests.support.terminal import Seen, at_terminal
from wfctl.cli import app, naming
from wfctl.core.instants import format_instant
from wfctl.errors import InvalidArgument, NotFound
from wfctl.operations.store import init_store

HOSTILE = "\x1b[31mred\x1b[0m\u202e"
NOW = at("09:51:30")


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A schedule each 20 minutes in Budapest, whose 09:40 was skipped, and that was paused then."""
    monkeypatch.setattr("wfctl.clock.SystemClock.now", lambda self: NOW)
    init_store(tmp_path / "store").close()
    made = World(tmp_path / "store")
    add(made.store, "etl", cron("*/20 * * * *", timezone="Europe/Budapest"))
    made.step()
    for text in ("09:20", "09:40", "09:51:07"):
        made.clock.advance(at(text) - made.clock.now())
        made.step()
    made.end()
    made.step()
    made.stop()  # the commands are asked of the store alone
    made.store.pause_schedule(schedule_id="etl", reason=HOSTILE)
    made.clock.advance(NOW - made.clock.now())
    yield made
    made.die()


def asked(world: World, *words: str) -> int:
    return app.run(["--store", str(world.root), "occurrence", "explain", *words])


def terminal(world: World, columns: int, *words: str) -> Seen:
    argv = [sys.executable, "-m", "wfctl", "occurrence", "explain", *words]
    environ = {
        "PATH": "/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "TERM": "xterm-256color",
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "WFCTL_STORE": str(world.root),
    }
    return at_terminal(argv, environ, columns=columns)


# The answer ---------------------------------------------------------------------------------------------------------------


def test_8_5_the_verdict_first_then_the_lines_then_what_would_have_run_it(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    assert asked(world, "etl@2027-03-01T10:40:00+01:00") == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[0] == "skipped-overlap - it did not run, and will not: run-000001 was running."
    assert lines[1] == "etl@2027-03-01T09:40:00Z  Mon 2027-03-01 10:40 CET in Europe/Budapest; times are UTC"
    assert re.fullmatch(r"  09:40:00Z  instant of revision 1 \(.*\)  \[definition rev 1, croniter [\d.]+, tz \w+\]", lines[2])
    assert lines[-1].startswith(
        "would have run under: overlap=parallel max_active_runs=2 (at once); overlap=queue (at 09:51:07Z)"
    )
    assert err.startswith("see: wfctl --store ") and "run show run-000001" in err, "the talk goes to stderr"


def test_8_5_for_programs_it_is_the_same_as_json(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    name = "etl@2027-03-01T09:40:00Z"
    assert asked(world, name, "-o", "json") == 0
    out, err = capsys.readouterr()
    view = json.loads(out)
    assert err == "" and view["schema"] == "wfctl/explanation.v1"
    assert (view["status"], view["will_run"], view["situation"]) == ("skipped-overlap", False, "recorded")
    assert view["alternatives"][0]["policy"] == {"overlap": "parallel", "max_active_runs": 2}
    assert asked(world, name, "-o", "name") == 0
    assert capsys.readouterr().out == f"{name}\n"
    assert asked(world, name, "-q") == 0
    assert capsys.readouterr() == (f"{name}\n", "")


@pytest.mark.parametrize("columns", [80, 60, 130])
def test_8_5_it_fits_a_terminal(world: World, columns: int) -> None:
    seen = terminal(world, columns, "etl@2027-03-01T09:40:00Z")
    assert seen.status == 0
    bare = re.sub(r"\x1b\[[0-9;]*m", "", seen.text)
    answer = [line for line in bare.splitlines() if not line.startswith("see:")]
    assert all(len(line) <= columns for line in answer), bare
    assert ("croniter" in bare) is (columns == 130), "what a source is stands at the right where there is room"
    assert "\u2298 skipped-overlap \u2013 it did not run" in bare.replace("\n", " ")


def test_8_6_what_users_wrote_is_shown_and_not_obeyed(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert asked(world, "etl@2027-03-01T10:00:00Z") == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out and "\u202e" not in out and r"\x1b[31mred\x1b[0m\u202e" in out


def test_11_6_what_is_no_instant_ends_with_66_and_says_what_is(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert asked(world, "etl@2027-03-01T09:41:00Z") == 66
    err = capsys.readouterr().err
    assert "did you mean etl@2027-03-01T09:40:00Z or etl@2027-03-01T10:00:00Z?" in err and "Traceback" not in err
    assert asked(world, "elt@2027-03-01T09:40:00Z") == 66
    assert "did you mean etl?" in capsys.readouterr().err


def test_show_points_to_it(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["--store", str(world.root), "occurrence", "show", "etl@2027-03-01T09:40:00Z"]) == 0
    assert capsys.readouterr().err == "why: wfctl occurrence explain etl@2027-03-01T09:40:00Z\n"


# Names --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "fixes"),
    [
        pytest.param("etl@2027-03-01T10:40", ["etl@2027-03-01T10:40:00+01:00", "etl@2027-03-01T10:40:00Z"], id="no offset"),
        pytest.param("etl@2027-03-01 10:40", ["etl@2027-03-01T10:40:00+01:00", "etl@2027-03-01T10:40:00Z"], id="a blank for T"),
        pytest.param("etl@10:40", ["etl@2027-03-01T10:40:00+01:00", "etl@2027-02-28T10:40:00Z", "etl@2027-03-01T10:40:00Z"],
                     id="a time of day: today in its zone, and yesterday where today's is to come"),
        pytest.param("etl@10:41", ["etl@2027-03-01T10:41:00+01:00", "etl@2027-02-28T10:41:00Z", "etl@2027-03-01T10:41:00Z"],
                     id="a time that is none of its instants"),
        pytest.param(
            "etl@2026-10-25T02:20",
            ["etl@2026-10-25T02:20:00+02:00", "etl@2026-10-25T02:20:00+01:00", "etl@2026-10-25T02:20:00Z"],
            id="a repeated hour has two",
        ),
        pytest.param("etl@2027-03-28T02:20", ["etl@2027-03-28T02:20:00Z"], id="an hour that is left out has none"),
    ],
)  # fmt: skip
def test_a_time_without_an_offset_is_refused_with_each_way_to_write_it(world: World, text: str, fixes: list[str]) -> None:
    with pytest.raises(InvalidArgument) as caught:
        naming.occurrence(world.store, text, NOW)
    assert caught.value.data["fixes"] == fixes
    assert all(fix in caught.value.message for fix in fixes)
    assert ("no instant of it" in caught.value.message) is ("41" in text)
    assert ("does not exist in Europe/Budapest" in caught.value.message) is ("03-28" in text)


def test_in_utc_there_is_one_way_to_write_it(world: World) -> None:
    add(world.store, "utc", cron("40 6 * * *"))
    with pytest.raises(InvalidArgument) as caught:
        naming.occurrence(world.store, "utc@06:40", NOW)
    assert caught.value.message == (
        "utc@06:40 has no day and no offset; write it so:\nutc@2027-03-01T06:40:00Z  Mon 06:40 in UTC, 3h 11m ago"
    )


def test_a_minute_names_the_instant_in_it(world: World) -> None:
    add(world.store, "often", {"kind": "interval", "every": "1m"})
    anchor = world.store.get_schedule(schedule_id="often").anchor
    assert anchor is not None and anchor.second, "the case is one whose instants are not on the minute"
    meant = format_instant(anchor + timedelta(minutes=1))
    with pytest.raises(InvalidArgument) as caught:
        naming.occurrence(world.store, f"often@{meant[:16]}", NOW)
    assert caught.value.data["fixes"] == [f"often@{meant}"]
    assert "no instant of it" not in caught.value.message


@pytest.mark.parametrize("text", ["etl", "etl@"])
def test_a_schedule_alone_is_asked_for_an_instant(world: World, text: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        naming.occurrence(world.store, text, NOW)
    assert caught.value.data["latest"] == "etl@2027-03-01T09:40:00Z"
    assert "its latest, 11m 30s ago" in caught.value.message and "wfctl occurrences etl" in caught.value.message


def test_a_day_is_answered_with_how_to_list_it(world: World) -> None:
    with pytest.raises(InvalidArgument) as caught:
        naming.occurrence(world.store, "etl@2027-03-01", NOW)
    assert "--since 2027-02-28T23:00:00Z --until 2027-03-01T23:00:00Z" in caught.value.message


@pytest.mark.parametrize("text", ["nobody", "nobody@06:40", "nobody@2027-03-01"])
def test_a_schedule_that_is_none_is_said_to_be_none(world: World, text: str) -> None:
    with pytest.raises(NotFound):
        naming.occurrence(world.store, text, NOW)


@pytest.mark.parametrize("text", ["@", "@2027-03-01T09:40:00Z", ""])
def test_no_schedule_is_refused(world: World, text: str) -> None:
    with pytest.raises(InvalidArgument):
        naming.occurrence(world.store, text, NOW)


@pytest.mark.parametrize("text", ["etl@25:00", "etl@2027-02-30", "etl@2027-03-01T24:30Z", "etl@noon", "etl@9999-12-31"])
def test_what_is_no_time_at_all_ends_with_2_and_no_traceback(
    world: World, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert asked(world, text) == 2
    assert capsys.readouterr().err.startswith("wfctl: ")


def test_any_offset_names_the_same_instant(world: World) -> None:
    assert naming.occurrence(world.store, "etl@2027-03-01T10:40:00+01:00", NOW) == ("etl", at("09:40"))

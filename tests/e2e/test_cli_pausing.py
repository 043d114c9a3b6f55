"""Pause and resume all at once, and what comes due next over all schedules (contract 5.11, 11.3, 11.7)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests.support.commands import Wfctl
from wfctl.core.instants import format_instant


@pytest.fixture
def three(wfctl: Wfctl) -> Wfctl:
    wfctl.ok("deployment", "add", "d", "--", "/bin/true")
    wfctl.ok("schedule", "add", "nightly", "--deployment", "d", "--cron", "30 2 * * *", "-q")
    wfctl.ok("schedule", "add", "often", "--deployment", "d", "--every", "1m", "-q")
    wfctl.ok("schedule", "add", "old", "--deployment", "d", "--every", "1h", "-q")
    wfctl.ok("schedule", "pause", "old", "--reason", "migration")
    return wfctl


def states(wfctl: Wfctl) -> dict[str, str]:
    return {it["id"]: it["state"] for it in wfctl.ok("schedules", "-o", "json").json["items"]}


def test_11_7_all_is_asked_about_and_without_a_terminal_names_yes(three: Wfctl) -> None:
    refused = three("schedule", "pause", "--all")
    assert refused.status == 2 and "--yes" in refused.err
    assert states(three) == {"nightly": "active", "often": "active", "old": "paused"}


def test_5_11_maintenance_and_back_leaves_what_somebody_else_paused(three: Wfctl) -> None:
    paused = three.ok("schedule", "pause", "--all", "--reason", "maintenance", "--yes")
    assert [line.split()[:2] for line in paused.out.splitlines()] == [["paused", "nightly"], ["paused", "often"]]
    assert "old" not in paused.out + paused.err
    assert set(states(three).values()) == {"paused"}
    back = three.ok("schedule", "resume", "--all", "--reason", "maintenance", "--yes")
    assert [line.split()[:2] for line in back.out.splitlines()] == [["resumed", "nightly,"], ["resumed", "often,"]]
    assert states(three) == {"nightly": "active", "often": "active", "old": "paused"}
    assert three.ok("schedule", "show", "old", "-o", "json").json["pause_reason"] == "migration"


def test_5_11_resume_all_names_the_reasons_first(three: Wfctl) -> None:
    tried = three.ok("schedule", "resume", "--all", "--dry-run")
    assert tried.out.startswith("would resume old, next in ")
    assert '"migration"' in tried.err
    assert states(three)["old"] == "paused"
    seen = three.terminal("schedule", "resume", "--all")
    with seen as terminal:
        assert '"migration"' in terminal.wait_for("Resume 1 schedule? [y/N] ")
        terminal.type("n\n")
        assert terminal.end().status == 1
    assert states(three)["old"] == "paused"


def test_11_7_nothing_to_do_is_no_failure_and_bad_use_is(three: Wfctl) -> None:
    nothing = three.ok("schedule", "resume", "--all", "--reason", "else", "--yes")
    assert (nothing.out, nothing.err) == ("", "no schedule is paused with the reason 'else'\n")
    assert three.ok("schedule", "resume", "--all", "--reason", "else", "--yes", "-o", "json").json["items"] == []
    for words in (["pause"], ["resume"], ["pause", "--all", "old"], ["resume", "old", "--reason", "x"]):
        assert three("schedule", *words).status == 2, words


def test_11_7_programs_get_what_was_paused(three: Wfctl) -> None:
    found = three.ok("schedule", "pause", "--all", "--yes", "-o", "json")
    assert [it["id"] for it in found.json["items"]] == ["nightly", "often"]
    assert found.err == ""


# What comes next over all -------------------------------------------------------------------------------------------------


def test_11_3_next_without_an_id_is_about_all_that_are_active(three: Wfctl) -> None:
    rows = three.ok("schedule", "next", "-n", "3000", "-o", "json").json["items"]
    assert {row["schedule_id"] for row in rows} == {"nightly", "often"}
    assert [row["instant"] for row in rows] == sorted(row["instant"] for row in rows)
    assert len(three.ok("schedule", "next", "-o", "name").out.splitlines()) == 5


def test_11_3_next_shows_a_night_with_one_line_for_what_comes_often(three: Wfctl) -> None:
    day = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
    night = ["--from", format_instant(day + timedelta(hours=20)), "--until", format_instant(day + timedelta(hours=30))]
    lines = three.ok("schedule", "next", *night).out.splitlines()
    assert [line.split()[0] for line in lines] == ["SCHEDULE", "often", "nightly"]
    assert "over 99" in lines[1]
    assert f"{format_instant(day + timedelta(hours=26, minutes=30))}" in lines[2]
    rows = three.ok("schedule", "next", *night, "-n", "1000", "-o", "json").json["items"]
    assert len(rows) == 600 + 1  # both ends: after --from, up to and with --until
    assert "more" not in rows[0]


def test_11_3_next_until_counts_from_now_and_says_what_is_left_out(three: Wfctl) -> None:
    shown = three.ok("schedule", "next", "often", "--until", "1d")
    assert len(shown.out.splitlines()) == 101
    assert "-n N shows them" in shown.err
    for words in (["--until", "yesterday"], ["--from", "2h", "--until", "1h"], ["--until", "2026-12-01T20:00"]):
        refused = three("schedule", "next", *words)
        assert refused.status == 2 and "Traceback" not in refused.err, words

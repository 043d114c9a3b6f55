"""What somebody meets who has read nothing but the README: what to type next, at any width (contract 11.3, 11.6, 11.7)."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest

from tests.support.commands import Wfctl
from wfctl.cli.help import narrowed
from wfctl.cli.help_texts import TOPICS
from wfctl.cli.load import lines_of
from wfctl.cli.preview import instant_lines
from wfctl.cli.style import PLAIN
from wfctl.core.model import IntervalTrigger
from wfctl.operations.views import LoadView


@pytest.fixture
def one(wfctl: Wfctl) -> Wfctl:
    wfctl.ok("deployment", "add", "d", "--", "/bin/sleep", "0.1")
    wfctl.ok("schedule", "add", "nightly", "--deployment", "d", "--cron", "30 2 * * *", "-q")
    return wfctl


# Maintenance --------------------------------------------------------------------------------------------------------------


def test_drain_waits_for_what_was_started_by_hand_and_says_for_what(one: Wfctl) -> None:
    one.ok("deployment", "add", "slow", "--kill-grace", "1s", "--", "/bin/sleep", "2")
    with one.supervisor():
        begun = time.monotonic()
        run = one.ok("run", "start", "slow", "--detach").out.strip()
        done = one.ok("drain", "--wait")
        assert time.monotonic() - begun >= 2, "a run by hand takes no slot, and executes"
        assert f"waiting for 1 run ({run})" in done.err
        assert done.out == "admission has stopped; nothing executes; `wfctl drain --undo` opens it again\n"
        assert one.ok("run", "show", run, "-o", "json").json["status"] == "completed"


def test_who_leaves_the_wait_is_told_how_to_come_back(one: Wfctl) -> None:
    one.ok("deployment", "add", "slow", "--kill-grace", "1s", "--", "/bin/sleep", "60")
    with one.supervisor():
        run = one.ok("run", "start", "slow", "--detach").out.strip()
        assert "1 run going on; `wfctl drain --undo`" in one.ok("drain").out
        with one.terminal("drain", "--wait") as terminal:
            terminal.wait_for(f"waiting for 1 run ({run})")
            terminal.type("\x03")
            seen = terminal.end()
        assert seen.status == 130
        assert "still draining" in seen.text and "`wfctl drain --undo` opens admission again" in seen.text
        one.ok("run", "cancel", run, "--yes")


def test_all_is_said_to_be_paused_where_nothing_is_left_to_pause(one: Wfctl) -> None:
    one.ok("schedule", "pause", "nightly")
    assert one.ok("schedule", "pause", "--all", "--yes").err == "no schedule is left to pause\n"


# Blocked ------------------------------------------------------------------------------------------------------------------


def test_a_narrow_list_says_what_blocks_a_schedule_and_what_mends_it(one: Wfctl) -> None:
    path = one.root / "schedules" / "nightly.toml"
    path.write_text(path.read_text().replace('"skip"', '"skp"', 1))
    mends = "mend it with `wfctl schedule edit nightly`"
    seen = one.at_terminal("schedules", "--state", "blocked", columns=80).text.replace("\r\n", "\n")
    assert 'did you mean "skip"?' in seen and mends in seen
    assert mends in one.ok("schedule", "show", "nightly").out
    assert "`wfctl schedule edit` with its id" in one("schedule", "lint").out


# Lists at 80 columns ------------------------------------------------------------------------------------------------------


def test_a_narrow_list_keeps_why(one: Wfctl) -> None:
    one.ok("deployment", "add", "fails", "--", "/bin/sh", "-c", "exit 3")
    one("run", "start", "fails", "-q")
    header, _, row, *_ = one.at_terminal("runs", columns=60, own_stderr=False, NO_COLOR="1").lines
    assert header.split()[-1] == "WHY" and row.rstrip().endswith("exit 3")


def test_executions_have_no_columns_in_which_nothing_stands(one: Wfctl) -> None:
    one.ok("run", "start", "d", "-q")
    seen = one.at_terminal("run", "show", "run-000001", columns=80, own_stderr=False)
    assert "LEFT BEHIND" not in seen.text
    assert max(map(len, seen.lines)) <= 80


def test_one_hidden_column_is_it(one: Wfctl) -> None:
    seen = one.at_terminal("schedules", "--columns", "id,overlap", columns=8)
    assert "(1 column hidden: overlap; see it with --columns or -o plain)" in seen.text


def test_help_fits_and_columns_stay_columns() -> None:
    for topic in ("states", "time", "exit-codes"):
        assert max(map(len, narrowed(TOPICS[topic].strip(), 60).splitlines())) <= 60
    states = narrowed(TOPICS["states"].strip(), 60).splitlines()
    assert all(line[:20].strip() == "" or line[18:20] == "  " for line in states), "they stay in two columns"
    assert narrowed("a b\n\nc  d", 60) == "a b\n\nc  d"


def test_a_map_of_hours_fits_80_columns() -> None:
    at = datetime(2026, 12, 1, tzinfo=UTC)
    view = LoadView(since=at, until=at, slots=4, bucket_s=3600, buckets=(), peak=None, assumed=())
    for zone in ("UTC", "Europe/Budapest"):
        lines = lines_of(view, UTC, zone, PLAIN)
        assert max(map(len, lines)) <= 80
        assert zone in lines[0]


def test_instants_of_a_preview_all_have_seconds_or_none() -> None:
    at = datetime(2026, 12, 1, 9, 0, tzinfo=UTC)
    lines = instant_lines(IntervalTrigger(timedelta(seconds=20)), at, at - timedelta(seconds=1), at)
    shown = [line.split("UTC")[0].split()[-1] for line in lines[1:]]
    assert shown == ["09:00:20", "09:00:40", "09:01:00", "09:01:20", "09:01:40"]


# What was meant -----------------------------------------------------------------------------------------------------------


def test_a_field_of_the_trigger_without_its_table_is_named_with_it(one: Wfctl) -> None:
    refused = one("schedule", "set", "nightly", "timezone=Europe/Paris")
    assert refused.status == 2
    assert 'did you mean "trigger.timezone"?' in refused.err
    assert "fix: wfctl schedule set nightly trigger.timezone=Europe/Paris" in refused.err


def test_a_change_that_changes_nothing_says_so(one: Wfctl) -> None:
    assert ": nothing differs" in one.ok("schedule", "set", "nightly", "overlap=skip").err


def test_each_one_that_cannot_be_cancelled_is_named(one: Wfctl) -> None:
    for _ in range(2):
        one.ok("run", "start", "d", "-q")
    refused = one("run", "cancel", "run-000001", "run-000002", "--yes")
    assert refused.status == 75
    assert "run-000001 is over: it is completed" in refused.err and "run-000002 is over: it is completed" in refused.err


def test_a_run_that_waits_says_how_to_answer(one: Wfctl) -> None:
    asks = 'echo \'{"message": "Go?", "schema": {"type": "object", "required": ["ok"]}}\' >"$WFCTL_INTERRUPT"; exit 75'
    one.ok("deployment", "add", "asks", "--", "/bin/sh", "-c", f'test -e "$WFCTL_RESUME" || {{ {asks}; }}')
    one("run", "start", "asks", "-q")
    line = "wfctl run resume run-000001 --input ok=VALUE"
    assert line in one.ok("run", "show", "run-000001").out
    refused = one("run", "resume", "run-000001")
    assert refused.status == 65
    assert f"run-000001 asks: Go?; answer with `{line}`" in refused.err

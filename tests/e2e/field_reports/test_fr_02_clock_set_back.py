"""FR-02: a clock that ran ahead is corrected; silence is explained, and is never longer than three hours (contract 5.14)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.support.commands import Wfctl
from tests.support.drive import HOUR, MINUTE, Drive, moment
from tests.support.ledger_check import all_occurrences
from tests.support.processes import Supervisor, wait_for
from tests.support.witness import Witness
from wfctl import open_store
from wfctl.core.instants import format_instant

Check = Callable[..., None]
DAY = "2027-03-01T"


def at(text: str) -> datetime:
    return moment(DAY + text)


def said_once(caplog: pytest.LogCaptureFixture) -> str:
    """The one log line about the clock."""
    lines = [line for line in caplog.records if "clock" in str(getattr(line, "action", "")) and line.levelno >= logging.WARNING]
    assert len(lines) == 1, [line.getMessage() for line in lines]
    return lines[0].getMessage()


def begin(drive: Drive, witness: Witness, ahead: datetime) -> list[datetime]:
    """`tick` at 15:00:30, the clock ahead, and the first instant there admitted."""
    drive.deployment(witness.command("true"))
    drive.cron("tick", misfire="skip")
    drive.step()
    drive.jump(ahead)
    drive.settle()
    drive.to(ahead + MINUTE / 2)
    found = drive.admitted("tick")
    assert found[-1] == ahead + MINUTE / 2
    return found


def test_fr_02_two_hours_ahead_the_schedule_waits_and_says_until_when(
    tmp_path: Path, witness: Witness, ledger_check: Check, caplog: pytest.LogCaptureFixture
) -> None:
    """Round 1."""
    with Drive(tmp_path / "store", at("15:00:30")) as drive:
        before = begin(drive, witness, at("17:00:30"))
        with caplog.at_level(logging.INFO, "wfctl"):
            drive.jump(at("15:01:30"))
            drive.to(at("15:06:30"))
        assert format_instant(at("17:01:00")) in said_once(caplog)
        assert drive.admitted("tick") == before, "nothing that was admitted is admitted again"
        view = drive.store.get_schedule(schedule_id="tick")
        assert (view.state, view.waits_until, view.next_instant) == ("active", at("17:01:00"), at("17:02:00"))
        waiting = drive.store.server_status().to_json()["waiting"]
        assert waiting == [{"id": "tick", "until": format_instant(at("17:01:00"))}]
        drive.to(at("17:03:00"))
        assert drive.admitted("tick") == [*before, at("17:02:00"), at("17:03:00")]
        assert drive.store.server_status().waiting == ()
        ledger_check(drive.store, witness)


def test_fr_02_eight_hours_ahead_the_schedule_begins_anew(
    tmp_path: Path, witness: Witness, ledger_check: Check, caplog: pytest.LogCaptureFixture
) -> None:
    """Round 2."""
    with Drive(tmp_path / "store", at("15:00:30")) as drive:
        before = begin(drive, witness, at("23:00:30"))
        with caplog.at_level(logging.INFO, "wfctl"):
            drive.jump(at("15:01:30"))
            drive.to(at("15:03:00"))
        assert "begin anew" in said_once(caplog)
        assert drive.admitted("tick") == [*before, at("15:02:00"), at("15:03:00")]
        view = drive.store.get_schedule(schedule_id="tick")
        assert (view.state, view.waits_until, view.effective_from) == ("active", None, at("15:01:30"))
        assert drive.store.audit_schedule(schedule_id="tick").withdrawn > 0, "recorded"

        drive.jump(at("22:58:30"))
        drive.settle()
        runs = len(drive.admitted("tick"))
        drive.to(at("23:03:00"))
        found = drive.admitted("tick")
        assert len(found) == len(set(found)), "no second run"
        assert found[runs:] == [
            each for each in (at(f"{h}:00") for h in ("22:59", "23:00", "23:01", "23:02", "23:03")) if each not in before
        ]
        assert drive.store.get_schedule(schedule_id="tick").state == "active"
        assert drive.store.server_status().problems == ()
        ledger_check(drive.store, witness)


def ahead_of_the_machine(root: Path, witness: Witness, by: timedelta) -> datetime:
    """Leave a store whose last supervisor had a clock that ran so far ahead; return up to where it consumed."""
    with Drive(root, datetime.now(UTC) + by) as drive:
        drive.deployment(witness.command("true"))
        trigger = {"kind": "interval", "every": "1s"}
        drive.store.create_schedule(schedule_id="tick", deployment_id="d", trigger=trigger)
        drive.step()
        drive.clock.advance(timedelta(seconds=2))
        drive.step()
        drive.settle()
        watermark = drive.store.get_schedule(schedule_id="tick").watermark
        assert watermark is not None
        return watermark


def test_fr_02_the_real_supervisor_waits_with_a_reason_and_does_not_spin(
    tmp_path: Path, witness: Witness, ledger_check: Check
) -> None:
    root = tmp_path / "store"
    until = ahead_of_the_machine(root, witness, 2 * HOUR)
    command = Wfctl(root, tmp_path)
    with Supervisor(root) as supervisor:
        supervisor.wait_ready()
        spent, began = supervisor.cpu_s(), time.monotonic()
        word = format_instant(until)
        for said in (command("status").out, command("schedule", "show", "tick").out):
            assert word in said or word[:19] in said, said
        with open_store(root) as store:
            (waiting,) = store.server_status().waiting
        assert waiting == {"id": "tick", "until": until}
        wait_for(lambda: time.monotonic() - began > 1.5, what="a while")
        assert supervisor.cpu_s() - spent < 0.05 * (time.monotonic() - began) + 0.02, "it spins"
        assert supervisor.text().count("clock") == 1, supervisor.text()
        assert supervisor.stop() == 0
    with open_store(root) as store:
        assert all(row.instant <= until for row in all_occurrences(store, "tick"))
        ledger_check(store, witness)


def test_fr_02_the_real_supervisor_begins_anew_after_more_than_three_hours(
    tmp_path: Path, witness: Witness, ledger_check: Check
) -> None:
    root = tmp_path / "store"
    ahead_of_the_machine(root, witness, 8 * HOUR)
    before = len(witness.runs("tick"))
    with Supervisor(root) as supervisor:
        supervisor.wait_ready()
        wait_for(lambda: len(witness.runs("tick")) >= before + 2, what="the next runs")
        assert "anew" in supervisor.text()
        assert supervisor.stop() == 0
    with open_store(root) as store:
        ledger_check(store, witness)

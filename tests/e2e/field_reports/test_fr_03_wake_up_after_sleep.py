"""FR-03: after a sleep, one run at most; the rest is on record, bounded (contract 5.1, 5.2, 5.14)."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.support.drive import DAY, HOUR, MINUTE, Drive, moment
from tests.support.ledger_check import ledger_check as check_ledger
from tests.support.place import Place
from tests.support.processes import wait_for
from tests.support.witness import Witness

BEGIN = moment("2027-03-01T09:00:30")
POLICIES = {"a": "skip", "b": "latest"}
SLEEP = "sleep 0.1"  #: the case sleeps a second; nothing depends on it


@pytest.mark.parametrize("away", [pytest.param(8 * HOUR, id="8 hours"), pytest.param(3653 * DAY, id="10 years")])
def test_fr_03_one_run_each_and_the_newest_hundred_have_a_row(
    tmp_path: Path, witness: Witness, ledger_check: Callable[..., None], away: timedelta
) -> None:
    """The newest minute is half a minute late, so it is on time for both policies."""
    with Drive(tmp_path / "store", BEGIN) as drive:
        drive.deployment(witness.command(SLEEP))
        for name, misfire in POLICIES.items():
            drive.cron(name, misfire=misfire)
        drive.step()
        drive.jump(BEGIN + away)
        newest = BEGIN + away - MINUTE / 2
        drive.settle()
        for name, status in (("a", "skipped-misfire"), ("b", "coalesced")):
            assert drive.admitted(name) == [newest]
            span, *rows = drive.rows(name)
            assert span.span is not None and span.status == status
            assert [row.instant for row in rows] == [newest - i * MINUTE for i in reversed(range(100))]
            assert {row.status for row in rows[:-1]} == {status}
            assert span.span.first == BEGIN + MINUTE / 2 and span.span.last == rows[0].instant - MINUTE
        drive.to(newest + MINUTE)
        assert drive.admitted("a") == drive.admitted("b") == [newest, newest + MINUTE], "the first new minute, on time"
        ledger_check(drive.store, witness, since=newest - 12 * HOUR)


def test_fr_03_what_is_late_is_caught_up_by_latest_alone(
    tmp_path: Path, witness: Witness, ledger_check: Callable[..., None]
) -> None:
    """`a` admits nothing that is more than 60 s late; `b` exactly one, the latest."""
    with Drive(tmp_path / "store", BEGIN) as drive:
        drive.deployment(witness.command(SLEEP))
        for name, misfire in POLICIES.items():
            drive.cron(name, "*/10 * * * *", misfire=misfire)
        drive.step()
        drive.jump(BEGIN + 8 * HOUR + 5 * MINUTE)
        drive.settle()
        assert (drive.admitted("a"), drive.admitted("b")) == ([], [BEGIN + 8 * HOUR - MINUTE / 2])
        ledger_check(drive.store, witness)


def test_fr_03_ten_years_cost_little(tmp_path: Path) -> None:
    """50 ms for a schedule, 5 s for a thousand: by the processor's time, as the machine may be busy with other tests.

    A hundred stand for the thousand. They are made by hand, as files, and taken up by one reload; four find a slot.
    """
    with Drive(tmp_path / "store", BEGIN) as drive:
        drive.deployment(["/bin/true"])
        drive.cron("s-0")
        drive.step()
        began = time.process_time()
        drive.jump(BEGIN + 3653 * DAY)
        assert time.process_time() - began < 0.05
        drive.settle()
        text = (drive.root / "schedules" / "s-0.toml").read_text()
        for number in range(1, 100):
            path = drive.root / "schedules" / f"s-{number}.toml"
            path.write_text(text)
            path.chmod(0o600)
        drive.store.reload()
        assert drive.store.server_status().schedules["active"] == 100
        began = time.process_time()
        drive.jump(BEGIN + 2 * 3653 * DAY)
        assert time.process_time() - began < 2.0  # enumerating ten years of minutes would take minutes
        assert drive.store.server_status().schedules == {"active": 100, "blocked": 0, "paused": 0}
        drive.to(drive.clock.now() + 2 * MINUTE, settle=False)
        drive.settle()
        assert len({view.instant for view in drive.store.list_runs(limit=100).items}) > 1, (
            "the first on-time minutes are admitted"
        )
        assert drive.store.audit_schedule(schedule_id="s-99", since=drive.clock.now() - HOUR).is_balanced


def test_fr_03_a_supervisor_that_was_stopped(place: Place, witness: Witness) -> None:
    """SIGSTOP and SIGCONT for real, sixty times shorter: 3 seconds, an interval and a lateness of one second."""
    place.store.create_deployment(deployment_id="d", command=witness.command(SLEEP))
    for name, misfire in POLICIES.items():
        place.every_second(name, misfire=misfire, lateness="1s", overlap="skip")
    supervisor = place.supervisor()
    wait_for(lambda: all(witness.runs(name) for name in POLICIES), what="the first runs")
    supervisor.process.send_signal(signal.SIGSTOP)
    stopped, began = datetime.now(UTC), time.monotonic()
    wait_for(lambda: time.monotonic() - began > 3.3, what="the end of the sleep")
    woken = datetime.now(UTC)

    def ended(name: str) -> list[datetime]:
        witness.look()
        return [
            datetime.fromisoformat(each.occurrence) for each in witness.seen.values() if each.schedule == name and each.is_over
        ]

    supervisor.process.send_signal(signal.SIGCONT)
    later = woken + timedelta(seconds=1)
    wait_for(lambda: all(any(each > later for each in ended(name)) for name in POLICIES), what="runs of after the sleep")
    for name in POLICIES:
        place.store.pause_schedule(schedule_id=name)
    assert supervisor.stop() == 0
    for name, status in (("a", "skipped-misfire"), ("b", "coalesced")):
        rows = place.store.list_schedule_occurrences(schedule_id=name, limit=100).items
        slept = [row for row in rows if stopped + timedelta(seconds=0.2) < row.instant <= woken]
        assert [row.status for row in slept[:-1] if (woken - row.instant).total_seconds() > 1.0] == [status] * 2
        assert sum(row.run_id is not None for row in slept) <= (2 if name == "a" else 1), "no burst"
        on_time = [row for row in rows if row.instant > later and row.run_id]
        assert on_time and all(row.lateness_s is not None and row.lateness_s < 1 for row in on_time)
    check_ledger(place.store, witness)

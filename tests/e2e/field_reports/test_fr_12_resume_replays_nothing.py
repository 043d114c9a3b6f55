"""FR-12: paused time is never replayed (contract 5.11)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from tests.support.commands import Wfctl
from tests.support.drive import MINUTE, Drive, moment
from tests.support.place import Place
from tests.support.processes import wait_for
from tests.support.witness import Witness

Check = Callable[..., None]


def at(text: str) -> datetime:
    return moment(f"2027-03-01T{text}")


def test_fr_12_nothing_of_half_an_hour(tmp_path: Path, witness: Witness, ledger_check: Check) -> None:
    """The supervisor is restarted in the middle; `h` holds a candidate when it is paused."""
    with Drive(tmp_path / "store", at("09:57:30")) as drive:
        drive.deployment(witness.command("true"))
        drive.deployment(witness.command(f"while [ ! -e {tmp_path}/go ]; do sleep 0.01; done"), "holds")
        drive.cron("p", misfire="latest")
        drive.cron("h", misfire="latest", deployment_id="holds")
        drive.to(at("10:00:30"), settle=False)
        held = drive.store.get_schedule(schedule_id="h").candidate
        assert held is not None and held.instant == at("10:00:00")
        for _ in range(2):
            for name in ("p", "h"):
                view = drive.store.pause_schedule(schedule_id=name, reason="maintenance")
                assert (view.state, view.paused_at, view.pause_reason) == ("paused", at("10:00:30"), "maintenance")
                assert view.pause_actor, "the paused span is recorded with its actor"
            drive.clock.advance(MINUTE / 60)
        dropped = drive.store.get_occurrence(schedule_id="h", instant=held.instant)
        assert dropped.status == "coalesced" and dropped.reason is not None and dropped.reason["code"] == "paused"
        (tmp_path / "go").touch()
        before = {name: drive.admitted(name) for name in ("p", "h")}
        drive.to(at("10:20:00"))
        drive.restart()
        drive.to(at("10:30:30"))
        for _ in range(2):
            for name in ("p", "h"):
                view = drive.store.resume_schedule(schedule_id=name)
                assert (view.state, view.effective_from) == ("active", at("10:30:30"))
        drive.to(at("10:32:30"))
        for name in ("p", "h"):
            assert drive.admitted(name) == [*before[name], at("10:31:00"), at("10:32:00")]
            assert drive.store.audit_schedule(schedule_id=name).counts["paused"] == 30, "10:01 to 10:30 is on record as paused"
        ledger_check(drive.store, witness)


def test_fr_12_the_commands_on_a_real_supervisor(place: Place, witness: Witness, ledger_check: Check, tmp_path: Path) -> None:
    """Each second for each minute; paused and resumed twice."""
    command = Wfctl(place.root, tmp_path)
    place.store.create_deployment(deployment_id="d", command=witness.command("true"))
    place.every_second("p", misfire="latest")
    supervisor = place.supervisor()
    wait_for(lambda: witness.runs("p"), what="a first run")
    for _ in range(2):
        command.ok("schedule", "pause", "p")
    paused = place.store.get_schedule(schedule_id="p").paused_at
    supervisor.stop()
    supervisor = place.supervisor()
    for _ in range(2):
        command.ok("schedule", "resume", "p")
    resumed = place.store.get_schedule(schedule_id="p").effective_from
    assert paused is not None and resumed is not None
    later = len(witness.runs("p")) + 1
    wait_for(lambda: len(witness.runs("p")) >= later, what="a run after the pause")
    assert supervisor.stop() == 0
    rows = [row for row in place.store.list_schedule_occurrences(schedule_id="p", limit=100).items if row.run_id]
    assert not [row for row in rows if paused < row.instant <= resumed]
    assert (rows[-1].instant - resumed).total_seconds() > 0
    ledger_check(place.store, witness)

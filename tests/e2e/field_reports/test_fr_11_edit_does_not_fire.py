"""FR-11: changing the hour does not make it run now; a stale edit changes nothing (contract 2.3, 3.2, 3.4)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.support.commands import Wfctl
from tests.support.drive import DAY, HOUR, Drive
from tests.support.witness import Witness


@pytest.mark.parametrize("misfire", ["skip", "latest"])
def test_fr_11_changing_the_hour_runs_nothing(
    tmp_path: Path, witness: Witness, ledger_check: Callable[..., None], misfire: str
) -> None:
    """The commands take the machine's clock, so 15:00 is now, and 01:00, 02:00 and 03:00 are 14, 13 and 12 hours ago."""
    now = datetime.now(UTC)
    one, two, three = (now.replace(minute=0, second=0, microsecond=0) - hours * HOUR for hours in (14, 13, 12))
    command = Wfctl(tmp_path / "store", tmp_path)
    with Drive(tmp_path / "store", one - timedelta(seconds=30)) as drive:
        drive.deployment(witness.command("true"))
        drive.cron("d", f"0 {one.hour} * * *", misfire=misfire)
        drive.to(one)
        assert drive.admitted("d") == [one]
        drive.clock.set(datetime.now(UTC))
        drive.step()

        command.ok("schedule", "set", "d", f"trigger.expression=0 {two.hour} * * *", "--expected-revision", "1")
        changed = drive.store.get_schedule(schedule_id="d")
        assert (changed.revision, changed.next_instant) == (2, two + DAY)
        stand = (drive.root / "schedules" / "d.toml").read_bytes()
        stale = command("schedule", "set", "d", f"trigger.expression=0 {two.hour} * * *", "--expected-revision", "1")
        assert stale.status == 80 and "1" in stale.err and "2" in stale.err, stale
        assert (drive.root / "schedules" / "d.toml").read_bytes() == stand
        assert drive.store.get_schedule(schedule_id="d") == changed
        drive.clock.set(datetime.now(UTC))
        drive.step()

        path = drive.root / "schedules" / "d.toml"
        path.write_text(path.read_text().replace(f"0 {two.hour} * * *", f"0 {three.hour} * * *"))
        assert "revision" in command.ok("schedule", "show", "d").out
        drive.clock.set(datetime.now(UTC))
        drive.step()
        changed = drive.store.get_schedule(schedule_id="d")
        assert (changed.revision, changed.next_instant) == (3, three + DAY)
        rows = drive.rows("d")
        assert [(row.instant, row.status, row.revision) for row in rows if row.run_id] == [(one, "completed", 1)]
        assert all(
            row.instant <= datetime.now(UTC) and row.reason["code"] in ("edited", "missed") for row in rows[1:] if row.reason
        )
        assert witness.runs("d") == ["run-000001"], "nothing runs"
        drive.jump(three + DAY)
        drive.settle()
        assert drive.admitted("d") == [one, three + DAY]
        ledger_check(drive.store, witness)

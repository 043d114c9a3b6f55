"""FR-07: a job that is longer than its period does not push the timetable (contract 4.4, 5.5)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from tests.support.drive import HOUR, MINUTE, Drive, moment
from tests.support.processes import wait_for
from tests.support.witness import Witness


def test_fr_07_every_instant_stands_in_the_grid(tmp_path: Path, witness: Witness, ledger_check: Callable[..., None]) -> None:
    """Two hours, a step a minute; the job, a real process, is told to end when seven of these minutes have passed."""
    begin = moment("2027-03-01T09:00:30")
    with Drive(tmp_path / "store", begin) as drive:
        command = witness.command('while [ ! -e "$GO$WFCTL_RUN_ID" ]; do sleep 0.005; done')
        drive.deployment(command, environment={"GO": str(tmp_path / "go-")})
        drive.cron("n", "*/5 * * * *", overlap="skip")
        drive.step()
        ends: datetime | None = None
        while drive.clock.now() < begin + 2 * HOUR:
            drive.to(drive.clock.now() + MINUTE / 2, settle=False)
            if ends is not None and drive.clock.now() >= ends:
                (tmp_path / f"go-{drive.working()[0]}").touch()
                drive.settle()
                assert not drive.working(), "no tick fires because the last run ended late"
                ends = None
            if drive.working() and ends is None:
                ends = drive.clock.now() + 7 * MINUTE
        for run_id in drive.working():
            (tmp_path / f"go-{run_id}").touch()
        drive.settle()
        rows = drive.rows("n")
        assert [row.instant for row in rows] == [begin + MINUTE * (4.5 + 5 * i) for i in range(24)]
        assert [row.status for row in rows] == ["completed", "skipped-overlap"] * 12
        for row in rows:
            if row.run_id is not None:
                run = drive.store.inspect_run(run_id=row.run_id)
                assert (row.lateness_s, run.admitted_at) == (0, row.instant), "within the poll interval of the instant"
            else:
                assert row.reason is not None and row.reason["code"] == "overlap" and len(row.reason["runs"]) == 1
        wait_for(lambda: len(witness.runs("n")) == 12, what="the jobs' own word")
        ledger_check(drive.store, witness)

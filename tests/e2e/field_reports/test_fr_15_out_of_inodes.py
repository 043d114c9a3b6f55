"""FR-15: the disk, or only its inodes, run out: nothing is half written, nothing is lost, and it goes on by itself (7.7)."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.drive import MINUTE, Drive, moment
from tests.support.place import Place
from tests.support.processes import wait_for, wfctl
from tests.support.small import fill_bytes, fill_inodes, small_tmpfs, why_not
from tests.support.witness import Witness

Check = Callable[..., None]
BEGIN = moment("2027-03-01T09:00:30")
ROOM = {"runs": {"min_free": "400kB"}}  # 5 % of 8 MiB


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A tmpfs of 8 MiB and 68 inodes."""
    reason = why_not(tmp_path / "probe")
    if reason is not None:
        pytest.skip(reason)
    with small_tmpfs(tmp_path / "small", inodes=68) as found:
        yield found


def _free(ballast: Any) -> None:
    for path in ballast if isinstance(ballast, list) else [ballast]:
        path.unlink()


def _lines_a_minute(caplog: pytest.LogCaptureFixture, drive: Drive, until: datetime) -> Counter[datetime]:
    """Let time pass, a look every ten seconds; return how many lines were logged in each minute."""
    lines: Counter[datetime] = Counter()
    while drive.clock.now() < until:
        caplog.clear()
        drive.clock.advance(timedelta(seconds=10))
        drive.step()
        lines[drive.clock.now().replace(second=0)] += len(caplog.records)
    return lines


@pytest.mark.parametrize(
    ("fill", "code"), [pytest.param(fill_bytes, "disk", id="bytes"), pytest.param(fill_inodes, "inodes", id="inodes")]
)
def test_fr_15_ten_minutes_without(
    small: Path,
    witness: Witness,
    ledger_check: Check,
    caplog: pytest.LogCaptureFixture,
    fill: Callable[[Path], Any],
    code: str,
) -> None:
    caplog.set_level(logging.INFO, logger="wfctl")
    with Drive(small / "store", BEGIN, ROOM) as drive:
        drive.deployment(witness.command("exit 0"))
        drive.cron("skips")
        drive.cron("latest", misfire="latest")
        drive.step()
        drive.to(BEGIN + MINUTE)
        assert len(drive.store.list_runs().items) == 2

        ballast = fill(small)
        lines = _lines_a_minute(caplog, drive, BEGIN + 11 * MINUTE)
        assert max(lines.values()) <= 1, lines
        assert sum(lines.values()) >= 1, "said once at least"
        status = drive.store.server_status()
        assert code in {problem["code"] for problem in status.problems}
        assert status.state == "degraded"
        for words in ("occurrences skips", "runs", "schedules", "schedule show latest", "run logs run-000001"):
            wfctl(drive.root, *words.split())
        assert len(drive.store.list_runs().items) == len(witness.runs("skips")) + len(witness.runs("latest")) == 2
        assert len(list((drive.root / "runs").iterdir())) == 2, "no ghost"

        _free(ballast)
        drive.clock.advance(timedelta(seconds=1))  # the poll interval
        drive.step()
        drive.settle()
        assert drive.admitted("latest")[1:] == [BEGIN.replace(minute=11, second=0)], "the misfire rule: the latest alone"
        assert [row.status for row in drive.rows("skips")].count("skipped-misfire") == 9
        assert drive.store.server_status().problems == ()
        for minute in range(12, 17):
            drive.store.collect_garbage(keep_runs=1)  # 68 inodes are not many
            drive.to(BEGIN.replace(minute=minute))
        drive.step()
        assert drive.admitted("skips")[-1] == drive.admitted("latest")[-1] == BEGIN.replace(minute=16, second=0)
        assert not list(drive.root.rglob(".*.tmp"))
        assert {path.name for path in (drive.root / "schedules").iterdir()} == {"skips.toml", "latest.toml"}
        ledger_check(drive.store)


def test_fr_15_a_run_whose_directory_cannot_be_made_waits_and_is_no_ghost(
    small: Path, witness: Witness, ledger_check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last inodes go between admission and launch: what is admitted is launched later, or never was."""
    from wfctl.supervisor.health import Health

    with Drive(small / "store", BEGIN, ROOM) as drive:
        drive.deployment(witness.command("exit 0"))
        drive.cron("skips")
        drive.cron("latest", misfire="latest")
        drive.step()
        ballast = fill_inodes(small)
        with monkeypatch.context() as patched:
            patched.setattr(Health, "allows", lambda *_: True)
            drive.clock.set(BEGIN.replace(minute=1, second=0))
            drive.step()
        assert sorted(run.status for run in drive.store.list_runs().items) == ["admitted", "admitted"]
        for _ in range(5):
            drive.clock.advance(MINUTE)
            drive.step()
        assert witness.runs("skips") == witness.runs("latest") == []
        status = drive.store.server_status()
        assert "inodes" in {problem["code"] for problem in status.problems}
        _free(ballast)
        drive.clock.advance(timedelta(seconds=2))
        drive.step()
        drive.settle()
        runs = {
            run.schedule_id: run for run in drive.store.list_runs().items if run.instant == BEGIN.replace(minute=1, second=0)
        }
        assert runs["latest"].status == "completed"
        assert (runs["skips"].status, runs["skips"].reason and runs["skips"].reason["code"]) == ("failed", "not-started")
        ledger_check(drive.store, witness)


@pytest.mark.parametrize(
    ("fill", "code"), [pytest.param(fill_bytes, "disk", id="bytes"), pytest.param(fill_inodes, "inodes", id="inodes")]
)
def test_fr_15_for_real(small: Path, fill: Callable[[Path], Any], code: str, ledger_check: Check) -> None:
    """The real supervisor, in real time: it is found by `status`, and it goes on within two poll intervals."""
    with Place(small) as place:
        place.store.create_deployment(deployment_id="d", command=["/bin/true"])
        place.every_second("s")
        supervisor = place.supervisor("--poll-interval-s", "0.5")
        place.until(place.run().run_id, "completed")
        ballast = fill(small)
        wait_for(lambda: code in _codes(place), what="the diagnostic")
        assert "nothing is admitted until" in wfctl(place.root, "status", check=False).stdout
        wait_for(lambda: not place.store.list_runs(status="admitted,running").items, what="the end of what runs")
        count = len(place.store.list_runs(limit=100).items)
        begun = len(supervisor.text().splitlines())
        until = time.monotonic() + 3.0
        wait_for(lambda: time.monotonic() > until, what="three instants")
        assert len(place.store.list_runs(limit=100).items) == count
        assert len(supervisor.text().splitlines()) - begun <= 1
        assert supervisor.process.poll() is None
        _free(ballast)
        place.store.collect_garbage(keep_runs=1)
        wait_for(lambda: _codes(place) == set(), timeout_s=2 * 0.5 + 1.0, what="the end of the problem")
        wait_for(lambda: place.store.list_runs(limit=100).items[-1].run_id > f"run-{count:06d}", what="the next run")
        place.store.pause_schedule(schedule_id="s")
        wait_for(lambda: not place.store.list_runs(status="admitted,running").items, what="the end of all runs")
        ledger_check(place.store)


def _codes(place: Place) -> set[str]:
    return {problem["code"] for problem in place.store.server_status().problems}

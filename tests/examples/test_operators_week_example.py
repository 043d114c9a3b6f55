"""A week with an hourly report, told hour by hour with a clock of our own (contract 9.4, 5.5, 5.11, 3.2).

`step()` does one round of the supervisor at the time that the store's clock shows. So a program, or a test, can live through a
week in a second: what is decided is exactly what a supervisor would have decided, and the processes are real.

The report is due at each full hour. It is `misfire = "latest"`: after downtime one report makes up for all that were missed.
And it is `overlap = "parallel"` with two at once: a slow report does not delay the next one, but they do not pile up either.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

import wfctl

# A report is written at once, unless the data base is slow: then it waits until that is over.
REPORT = """while [ -e "$DESK/database-is-slow" ]; do sleep 0.02; done; echo "$WFCTL_OCCURRENCE" >> "$DESK/reports" """


class Clock:
    """Time as we tell it. `monotonic` is for durations; it goes on with the time of day."""

    def __init__(self, at: str) -> None:
        self._at = datetime.fromisoformat(at).replace(tzinfo=UTC)
        self._began = self._at

    def now(self) -> datetime:
        return self._at

    def monotonic(self) -> float:
        return (self._at - self._began).total_seconds()

    def set(self, at: str) -> None:
        self._at = datetime.fromisoformat(at).replace(tzinfo=UTC)


def test_an_operators_week(tmp_path: Path) -> None:
    clock = Clock("2027-03-03 08:30")  # a Wednesday
    wfctl.init_store(tmp_path / "store").close()
    with wfctl.open_store(tmp_path / "store", clock=clock) as store:
        store.create_deployment(deployment_id="report", command=["/bin/sh", "-c", REPORT], environment={"DESK": str(tmp_path)})
        hourly = store.create_schedule(
            schedule_id="hourly",
            deployment_id="report",
            trigger={"kind": "cron", "expression": "0 * * * *", "timezone": "UTC"},
            misfire="latest",
            overlap="parallel",
            max_active_runs=2,
        )
        assert hourly.revision == 1
        assert shown(hourly.next_instant) == "Wed 09:00"

        with wfctl.SupervisorService(store) as service:
            # Wednesday morning. A round returns when the next one is needed.
            assert shown(service.step()) == "Wed 09:00"
            for hour in ("09:00", "10:00", "11:00"):
                clock.set(f"2027-03-03 {hour}")
                service.step()
                until_nothing_runs(store, service)
            assert reports(tmp_path) == ["Wed 09:00", "Wed 10:00", "Wed 11:00"]

            # Over night the machine is off. In the morning one report is made, that of the newest hour; the others are
            # recorded as coalesced, each naming the one that stands for it.
            clock.set("2027-03-04 07:20")
            service.step()
            until_nothing_runs(store, service)
            assert reports(tmp_path)[3:] == ["Thu 07:00"]
            missed = store.list_schedule_occurrences(schedule_id="hourly", status="coalesced", limit=100).items
            assert len(missed) == 19, "from Wednesday noon to Thursday six in the morning"
            assert {row.reason["code"] for row in missed if row.reason} == {"newer"}

            # On Thursday the data base is slow: two reports wait for it side by side, and the third has to wait for a place.
            slow = tmp_path / "database-is-slow"
            slow.touch()
            for hour in ("08:00", "09:00", "10:00"):
                clock.set(f"2027-03-04 {hour}")
                service.step()
            view = store.get_schedule(schedule_id="hourly")
            assert len(view.active_runs) == 2
            assert view.candidate is not None
            assert shown(view.candidate.instant) == "Thu 10:00"
            top = store.list_schedule_occurrences(schedule_id="hourly", limit=1).items[0]
            assert (shown(top.instant), top.status) == ("Thu 10:00", "pending")
            slow.unlink()
            until_nothing_runs(store, service)
            assert sorted(reports(tmp_path)[4:]) == ["Thu 08:00", "Thu 09:00", "Thu 10:00"]

            # Friday evening: once more the newest hour stands for all since Thursday noon. Then comes maintenance: what falls
            # into the pause is not to be run.
            clock.set("2027-03-05 17:00")
            service.step()
            until_nothing_runs(store, service)
            assert reports(tmp_path)[7:] == ["Fri 17:00"]
            paused = store.pause_schedule(schedule_id="hourly", reason="the data base moves")
            assert (paused.state, paused.pause_reason, paused.next_instant) == ("paused", "the data base moves", None)
            clock.set("2027-03-06 12:00")
            assert service.step() is None, "nothing lies ahead of a paused schedule"

            # Monday: resumed. The weekend is not replayed, although the policy is to catch up: paused time is not missed time.
            clock.set("2027-03-08 08:30")
            resumed = store.resume_schedule(schedule_id="hourly")
            assert shown(resumed.next_instant) == "Mon 09:00"
            service.step()
            until_nothing_runs(store, service)
            assert reports(tmp_path)[8:] == []
            clock.set("2027-03-08 09:00")
            service.step()
            until_nothing_runs(store, service)
            assert reports(tmp_path)[8:] == ["Mon 09:00"]

        # Everything is accounted for: each hour since Wednesday is one row, or lies within the pause.
        balance = store.audit_schedule(schedule_id="hourly")
        assert balance.is_balanced
        assert balance.counts["completed"] == len(reports(tmp_path)) == 9


def test_a_change_made_for_an_older_revision_is_refused(tmp_path: Path) -> None:
    """Two people edit: the second one is told, and nothing of hers is half done."""
    with wfctl.init_store(tmp_path / "store") as store:
        store.create_deployment(deployment_id="report", command=["/bin/true"])
        trigger = {"kind": "cron", "expression": "0 * * * *"}
        seen_by_both = store.create_schedule(schedule_id="hourly", deployment_id="report", trigger=trigger)

        one = store.update_schedule(schedule_id="hourly", expected_revision=seen_by_both.revision, notes="for finance")
        assert one.revision == 2
        with pytest.raises(wfctl.RevisionConflict) as refused:
            store.update_schedule(schedule_id="hourly", expected_revision=seen_by_both.revision, overlap="queue")
        assert (refused.value.data["expected_revision"], refused.value.data["revision"]) == (1, 2)

        assert store.get_schedule(schedule_id="hourly") == one, "the definition is untouched"
        # Looked at again, the change is made for what really is there.
        two = store.update_schedule(schedule_id="hourly", expected_revision=one.revision, overlap="queue")
        assert (two.revision, two.definition["notes"], two.definition["overlap"]) == (3, "for finance", "queue")


# Helpers ------------------------------------------------------------------------------------------------------------------


def until_nothing_runs(store: wfctl.Store, service: wfctl.SupervisorService) -> None:
    """Do rounds until no run is at work. The clock stands still, so that nothing more comes due."""
    deadline = time.monotonic() + 20
    while store.list_runs(status="admitted,running").items:
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)
        service.step()


def reports(desk: Path) -> list[str]:
    """Return what the reports themselves say about which hours they were made for, in the order in which they were made."""
    return [shown(datetime.fromisoformat(line)) for line in (desk / "reports").read_text().split()]


def shown(instant: datetime | None) -> str:
    """`Mon 09:00`."""
    return "never" if instant is None else f"{instant:%a %H:%M}"

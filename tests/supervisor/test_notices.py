"""Telling of changes of health: when, in which order, how often, and what a crash leaves of it (contract 7.8)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_keeper import FakeKeeper
from tests.support.schedules import MINUTELY, add
from tests.support.story import World
from wfctl import init_store
from wfctl.keeper.protocol import LaunchRequest
from wfctl.store.ledger import health

NOTIFY = {"command": ["/bin/true", "--mail"]}
MINUTE = timedelta(minutes=1)


class Told:
    """A world whose keeper ends every notification at once with `status`, and remembers its event."""

    def __init__(self, root: Path) -> None:
        init_store(root).close()
        self.world = World(root)
        self.events: list[dict[str, Any]] = []
        self.status: int | None = 0
        self.world.keeper.world.script = self._run

    def _run(self, request: LaunchRequest) -> int | None:
        if not request.run.startswith("notice-"):
            return None
        assert request.stdin is not None
        self.events.append(json.loads(Path(request.stdin).read_text()))
        return self.status

    @property
    def words(self) -> list[str]:
        """What was told so far, by schedule."""
        return [f"{event['schedule_id']} {event['event']}" for event in self.events]

    @property
    def notices(self) -> list[tuple[str, int]]:
        """The notifications that the keeper runs."""
        return [key for key in self.world.keeper.running if key[0].startswith("notice-")]

    def waiting(self) -> list[str]:
        """What is still to be told, by the ledger."""
        return [row.word for row in health.notices(self.world.store.context.ledger.connection)]

    def step(self, times: int = 2) -> None:
        """Let the supervisor take in what there is, and tell it."""
        for _ in range(times):
            self.world.step()

    def minute(self, exit_status: int | None = None, run: bool = True) -> None:
        """Let a minute pass, and the run that it brings end so."""
        self.world.clock.advance(MINUTE)
        self.step()
        for key in [key for key in self.world.keeper.running if key[0].startswith("run-")] if run else []:
            self.world.keeper.end(*key, exit_status=exit_status)
        self.step()

    def settings(self, text: str) -> None:
        """Write the settings of the store."""
        (self.world.root / "wfctl.toml").write_text(text)

    def problem(self) -> str | None:
        """What `status` says of it."""
        assert self.world._service is not None
        return self.world._service.problems.get("notify")


@pytest.fixture
def told(tmp_path: Path) -> Iterator[Told]:
    made = Told(tmp_path / "s")
    yield made
    made.world.keeper.world.script = lambda request: 0
    made.world.end()
    made.world.die()


# What is told -------------------------------------------------------------------------------------------------------------


def test_7_8_a_broken_backup_is_told_once_and_its_recovery_once(told: Told) -> None:
    add(told.world.store, "backup", notify=NOTIFY)
    for exit_status in (0, 1, 1, 1, 0, 0, 1):
        told.minute(exit_status)
    assert told.words == ["backup failed", "backup recovered", "backup failed"]
    first, recovered, _ = told.events
    assert first["schema"] == "wfctl/event.v1" and first["instant"] == "2027-03-01T09:02:00Z"
    assert (first["run_id"], first["status"], first["failures"]) == ("run-000002", "failed", 1)
    assert first["reason"]["code"] == "exit" and first["store"] == str(told.world.root)
    assert first["next_instant"] == "2027-03-01T09:03:00Z"
    assert first["message"].endswith(f"wfctl --store {told.world.root} run logs run-000002")
    assert (recovered["failures"], recovered["since"]) == (3, first["at"])
    assert told.waiting() == [] and not list((told.world.root / "notices").iterdir())


def test_7_8_a_schedule_that_never_worked_is_told(told: Told) -> None:
    add(told.world.store, "new", notify=NOTIFY)
    told.minute(1)
    assert told.words == ["new failed"]


def test_7_8_after_n_failures_in_a_row(told: Told) -> None:
    add(told.world.store, "flaky", notify={**NOTIFY, "after": 3})
    for exit_status in (1, 1, 0, 1, 1, 1, 1, 0):
        told.minute(exit_status)
    assert told.words == ["flaky failing", "flaky recovered"]
    assert [event["failures"] for event in told.events] == [3, 4]


def test_7_8_the_settings_are_for_every_schedule_and_its_own_command_goes_before(told: Told) -> None:
    told.settings('[notify]\ncommand = ["/bin/true", "all"]\n')
    add(told.world.store, "own", notify=NOTIFY)
    add(told.world.store, "other")
    told.minute(1)
    launches = [each for each in told.world.keeper.world.launches if each.run.startswith("notice-")]
    assert sorted((each.environment["WFCTL_SCHEDULE_ID"], each.argv[1]) for each in launches) == [
        ("other", "all"),
        ("own", "--mail"),
    ]


def test_7_8_nobody_is_told_where_no_command_is_set_but_the_next_failure_is_once_one_is(told: Told) -> None:
    add(told.world.store, "quiet")
    told.minute(1)
    assert told.words == [] and told.waiting() == []
    told.world.store.update_schedule(schedule_id="quiet", expected_revision=1, notify=NOTIFY)
    told.minute(1)
    assert told.words == ["quiet failing"] and told.events[0]["failures"] == 2


def test_7_8_the_launch_is_outside_the_slots_and_gets_the_environment_of_6_4(told: Told) -> None:
    told.status = None
    add(told.world.store, "s", notify=NOTIFY)
    told.minute(1)
    assert len(told.notices) == 1
    assert told.world.store.server_status().slots_used == 0
    (request,) = [each for each in told.world.keeper.world.launches if each.run.startswith("notice-")]
    assert request.program == "/bin/true" and request.argv == ("/bin/true", "--mail") and request.cwd == "/"
    ours = {name: value for name, value in request.environment.items() if name.startswith("WFCTL_")}
    assert ours == {
        "WFCTL_STORE": str(told.world.root),
        "WFCTL_EVENT": "failed",
        "WFCTL_SCHEDULE_ID": "s",
        "WFCTL_OCCURRENCE": "2027-03-01T09:01:00Z",
        "WFCTL_RUN_ID": "run-000001",
    }
    assert {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG"} <= request.environment.keys()


def test_7_8_runs_by_hand_and_cancelled_ones_are_no_news(told: Told) -> None:
    add(told.world.store, "s", notify=NOTIFY)
    told.world.step()
    told.world.store.start_run(deployment_id="d")
    told.step()
    told.world.end(exit_status=1)
    told.minute(run=False)
    (run,) = [run.run_id for run in told.world.runs() if run.kind == "scheduled"]
    told.world.store.cancel_run(run_id=run)
    told.step(4)
    assert [run.status for run in told.world.runs()] == ["failed", "cancelled"]
    assert told.words == []


def test_7_8_missed_once_until_one_comes_in_time(told: Told) -> None:
    add(told.world.store, "s", notify=NOTIFY)
    told.minute(0)
    for _ in range(2):
        told.world.die()
        told.world.clock.advance(timedelta(hours=2, seconds=-35))
        told.world.step()
        told.minute(0)
        told.minute(0)
    assert told.words == ["s missed", "s missed"]
    assert told.events[0]["reason"]["code"] == "missed" and told.events[0]["status"] == "skipped-misfire"


def test_7_8_what_was_skipped_in_time_did_not_run_in_time(told: Told) -> None:
    add(told.world.store, "s", notify=NOTIFY, max_run="none")
    told.minute(run=False)  # it goes on and on
    for _ in range(2):
        told.world.die()
        told.world.clock.advance(timedelta(hours=2, seconds=-35))
        told.world.step()
        told.minute(run=False)
    assert {row.status for row in told.world.occurrences("s")} == {"running", "skipped-misfire", "skipped-overlap"}
    assert told.words == ["s missed"]


def test_7_8_what_latest_caught_up_with_was_not_missed(told: Told) -> None:
    add(told.world.store, "s", misfire="latest", notify=NOTIFY)
    told.minute(0)
    told.world.die()
    told.world.clock.advance(timedelta(hours=2))
    told.minute(0)
    assert told.words == []


def test_7_8_a_preflight_rejection_is_a_failure(told: Told, tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    told.world.store.create_deployment(deployment_id="gone", command=[str(program)])
    add(told.world.store, "s", deployment_id="gone", notify=NOTIFY)
    program.unlink()
    told.minute()
    told.minute()
    assert told.words == ["s failed"]
    assert told.events[0]["run_id"] is None and told.events[0]["status"] == "preflight-rejected"


def test_7_8_an_approval_that_waits_is_told(told: Told) -> None:
    add(told.world.store, "release", notify=NOTIFY, overlap="skip")
    told.minute(run=False)
    ((run, k),) = told.world.keeper.running
    interrupt = told.world.root / "runs" / run / str(k) / "interrupt"
    interrupt.write_text('{"message": "Deploy version 42?"}')
    told.world.keeper.end(run, k, exit_status=75)
    told.step()
    assert told.words == ["release waiting"]
    assert told.events[0]["interrupt"] == {"message": "Deploy version 42?"}
    assert "Deploy version 42?" in told.events[0]["message"]


def test_7_8_overdue_is_told_once(told: Told) -> None:
    add(told.world.store, "s", {"kind": "cron", "expression": "1 * * * *"}, notify=NOTIFY, max_run="10m")
    told.minute(run=False)
    told.world.clock.advance(timedelta(minutes=8, seconds=1))
    told.step(4)
    told.minute(0)
    assert told.words == ["s overdue"]


def test_7_8_blocked_and_unblocked_whoever_changed_that_and_while_nobody_looked(told: Told) -> None:
    told.settings('[notify]\ncommand = ["/bin/true"]\n')
    add(told.world.store, "s")
    told.minute(0)
    told.world.stop()
    path = told.world.root / "schedules" / "s.toml"
    content = path.read_text()
    path.write_text(content + "nonsense = 1\n")
    (told.world.root / "schedules" / "newcomer.toml").write_text("format = ")
    told.step(3)
    assert sorted(told.words) == ["newcomer blocked", "s blocked"]
    told.step(3)
    told.world.die()
    told.step(3)
    assert len(told.words) == 2, "told once, over a restart too"
    path.write_text(content)
    told.world.store.reload()
    told.step(3)
    assert told.words[2:] == ["s unblocked"]
    assert told.events[2]["since"] == next(each for each in told.events if each["schedule_id"] == "s")["since"]


def test_7_8_a_broken_deployment_is_told_for_each_schedule_of_it(told: Told) -> None:
    told.settings('[notify]\ncommand = ["/bin/true"]\n')
    for name in ("a", "b"):
        add(told.world.store, name)
    told.world.step()
    (told.world.root / "deployments" / "d.toml").write_text("broken")
    told.world.store.reload()
    told.step(4)
    assert sorted(told.words) == ["a blocked", "b blocked"]


# How it is told -----------------------------------------------------------------------------------------------------------


def test_7_8_one_at_a_time_a_schedule_and_what_waits_is_told_by_its_newest(told: Told) -> None:
    told.status = None
    told.world.keeper.world.obeys_stop = False
    add(told.world.store, "s", notify=NOTIFY)
    for exit_status in (1, 0, 1, 0, 1, 0):
        told.minute(exit_status)
    assert told.words == ["s failed"] and len(told.notices) == 1
    assert told.waiting() == ["failed", "failed", "recovered"], "one of each word, beside the one that is being told"
    for _ in range(3):
        told.status = 0
        for key in told.notices:
            told.world.keeper.end(*key)
        told.step(4)
    assert told.words == ["s failed", "s failed", "s recovered"]
    assert [event["coalesced"] for event in told.events] == [0, 1, 2]
    assert told.waiting() == []


def test_7_8_four_at_once_over_all_schedules(told: Told) -> None:
    told.status = None
    told.world.store.create_deployment(deployment_id="d", command=["/bin/true"])
    told.settings('[supervisor]\nmax_concurrent_runs = 20\n[notify]\ncommand = ["/bin/true"]\n')
    for number in range(9):
        add(told.world.store, f"s{number}", MINUTELY)
    told.minute(1)
    told.step(4)
    assert len(told.notices) == 4
    told.status = 0
    for key in told.notices:
        told.world.keeper.end(*key)
    told.step(20)
    assert len(told.events) == 9 and told.waiting() == []


def test_7_8_it_never_delays_an_admission(told: Told) -> None:
    told.status = None  # it hangs
    told.world.keeper.world.obeys_stop = False
    add(told.world.store, "s", notify=NOTIFY)
    for _ in range(5):
        told.minute(1)
    assert [row.status for row in told.world.occurrences("s")] == ["failed"] * 5
    assert len(told.words) == 1 and len(told.notices) == 1, "and none is begun beside it"


def test_7_8_thirty_seconds_at_most(told: Told) -> None:
    told.status = None
    add(told.world.store, "s", notify=NOTIFY)
    told.minute(1)
    ((name, k),) = told.notices
    told.world.clock.advance(timedelta(seconds=24))
    told.step()
    assert told.world.keeper.world.stops == []
    told.world.clock.advance(timedelta(seconds=1))
    told.step()
    assert told.world.keeper.world.stops == [(name, k, timedelta(seconds=5))], "TERM now, KILL at thirty"
    told.step()
    assert "took longer" in str(told.problem())


def test_7_8_its_own_failure_is_shown_tried_again_and_cleared(told: Told, caplog: pytest.LogCaptureFixture) -> None:
    told.status = 3
    add(told.world.store, "s", notify=NOTIFY)
    told.minute(1)
    assert told.problem() == "could not tell failed of s: its command failed, exit status 3"
    assert told.world.store.server_status().state == "degraded"
    assert [record.action for record in caplog.records if record.name == "wfctl.notices"] == ["notify_failed"]  # type: ignore[attr-defined]
    told.step(3)
    assert len(told.events) == 1, "not at once"
    told.status = 0
    told.world.clock.advance(timedelta(seconds=10))
    told.step(3)
    assert told.words == ["s failed", "s failed"]
    assert told.problem() is None and told.waiting() == []


def test_7_8_things_are_told_in_their_order_a_retry_before_what_is_newer(told: Told) -> None:
    told.status = 1
    add(told.world.store, "s", notify=NOTIFY)
    told.minute(run=False)
    told.world.clock.advance(timedelta(seconds=25))
    told.step()
    told.world.end(exit_status=1)
    told.step()
    told.status = 0
    told.world.clock.advance(timedelta(seconds=5))
    told.step()
    told.world.end(exit_status=0)
    told.step(3)
    assert told.words == ["s failed"] and told.waiting() == ["failed", "recovered"], "ten seconds are not over"
    told.world.clock.advance(timedelta(seconds=5))
    told.step(4)
    assert told.words == ["s failed", "s failed", "s recovered"]


def test_7_8_it_rests_after_four_tries_and_is_tried_again_on_reload(told: Told) -> None:
    told.status = 1
    add(told.world.store, "s", {"kind": "cron", "expression": "1 9 * * *"}, notify=NOTIFY)
    told.minute(1)
    for seconds in (10, 60, 600, 3600, 3600):
        told.world.clock.advance(timedelta(seconds=seconds))
        told.step(3)
    assert len(told.events) == 4 and told.problem() is not None
    told.status = 0
    told.world.store.reload()
    told.step(3)
    assert len(told.events) == 5 and told.problem() is None


def test_7_8_a_newer_telling_that_works_makes_what_failed_before_it_out_of_date(told: Told) -> None:
    told.status = 1
    add(told.world.store, "s", notify=NOTIFY)
    told.minute(1)
    for seconds in (10, 60, 600):
        told.world.clock.advance(timedelta(seconds=seconds))
        told.step(3)
        for key in told.world.keeper.running:
            told.world.keeper.end(*key, exit_status=1)
    assert told.problem() is not None
    told.status = 0
    told.minute(0)
    told.step(3)
    assert told.words[-1] == "s recovered" and told.waiting() == [] and told.problem() is None


def test_7_8_a_command_that_is_not_there_is_a_failure_of_its_own(told: Told) -> None:
    add(told.world.store, "s", notify={"command": ["/no/where"]})
    told.minute(1)
    assert told.problem() == "could not tell failed of s: the notify command /no/where is not there, or may not be executed"
    told.minute(1)
    assert [row.status for row in told.world.occurrences("s")] == ["failed", "failed"]


def test_what_nobody_is_to_be_told_of_any_more_is_let_go(told: Told) -> None:
    told.status = 1
    add(told.world.store, "s", notify=NOTIFY)
    told.minute(1)
    told.world.store.update_schedule(schedule_id="s", expected_revision=1, unset=["notify"])
    told.world.clock.advance(timedelta(seconds=10))
    told.step(3)
    assert told.waiting() == [] and told.problem() is None


# What a crash leaves of it ------------------------------------------------------------------------------------------------


def test_7_8_what_happened_before_a_crash_is_told_after_it(told: Told) -> None:
    told.world.keeper.world.stalls = False
    add(told.world.store, "s", notify=NOTIFY)
    told.minute(run=False)
    service = told.world._service
    assert service is not None
    service.notices.work = lambda *, is_quiet: False  # type: ignore[method-assign]  # it dies before it comes to that
    told.world.end(exit_status=1)
    told.world.step()
    assert told.waiting() == ["failed"] and told.words == []
    told.world.die()
    told.step(3)
    assert told.words == ["s failed"]


def test_7_8_what_was_told_before_a_crash_is_not_told_again(told: Told) -> None:
    told.status = None
    add(told.world.store, "s", notify=NOTIFY)
    told.minute(1)
    told.world.die()
    for key in told.notices:  # it ends while nobody is there: its exit record tells
        told.world.keeper.end(*key)
    told.step(3)
    assert told.words == ["s failed"] and told.waiting() == []


def test_7_8_nor_where_the_keeper_is_another_by_then(told: Told) -> None:
    told.status = None
    add(told.world.store, "s", notify=NOTIFY)
    told.minute(1)
    told.world.die()
    told.world.keeper.end(*told.notices[0])
    told.world.keeper = FakeKeeper(now=told.world.clock.now)
    told.step(3)
    assert told.waiting() == [] and told.world.keeper.world.launches == []


def test_7_8_what_is_being_told_during_a_crash_is_adopted(told: Told) -> None:
    told.status = None
    add(told.world.store, "s", notify=NOTIFY)
    told.minute(1)
    told.world.die()
    told.step(3)
    assert told.words == ["s failed"] and len(told.notices) == 1
    told.world.keeper.end(*told.notices[0])
    told.step()
    assert told.waiting() == []


def test_7_8_what_was_marked_and_never_launched_is_told(told: Told) -> None:
    told.world.keeper.world.stalls = False
    add(told.world.store, "s", notify=NOTIFY)
    told.minute(run=False)
    told.world.end(exit_status=1)
    told.world.keeper.world.stalls = True  # what is sent from now on is never read
    told.step()
    assert told.words == []
    told.world.die()
    told.world.keeper.world.unread.clear()
    told.world.keeper.world.stalls = False
    told.step(3)
    assert told.words == ["s failed"]


def test_7_8_where_the_keeper_died_it_is_told_again_rather_than_never(told: Told) -> None:
    told.status = None
    add(told.world.store, "s", notify=NOTIFY)
    told.minute(1)
    service = told.world._service
    assert service is not None
    flight = next(iter(service.notices._flights.values()))
    told.world.keeper.world.running.pop(told.notices[0])
    told.world.keeper.die()  # its process is gone, and nobody saw how
    told.world.clock.advance(timedelta(seconds=flight.gone_at - told.world.clock.monotonic() + 1))
    told.status = 0
    told.step()
    assert "nobody saw" in str(told.problem())
    service.driver.keeper.world.script = told._run  # type: ignore[attr-defined]
    told.world.clock.advance(timedelta(seconds=10))
    told.step(3)
    assert told.words == ["s failed", "s failed"] and told.problem() is None


def test_7_8_a_drain_waits_for_what_is_being_told_within_its_grace(told: Told) -> None:
    told.status = None
    add(told.world.store, "s", notify=NOTIFY)
    told.minute(1)
    told.world.stop()  # its grace is 0: it goes on with the keeper
    assert len(told.notices) == 1
    told.status = 0
    told.world.keeper.end(*told.notices[0])
    told.step(3)
    assert told.words == ["s failed"] and told.waiting() == []


def test_a_damaged_notice_is_let_go_and_keeps_nobody_from_being_told(told: Told) -> None:
    add(told.world.store, "s", notify=NOTIFY)
    told.minute(run=False)
    told.world.die()
    connection = told.world.store.context.ledger.connection
    connection.execute(
        "INSERT INTO notices (schedule, word, event, coalesced, tries, is_launched) VALUES (1, 'x', '{', 0, 0, 0)"
    )
    connection.execute("INSERT INTO health VALUES (99, 'no json', 1, 1)")
    told.world.end(exit_status=1)
    told.step(4)
    assert told.words == ["s failed"] and told.waiting() == []


# Status -------------------------------------------------------------------------------------------------------------------


def test_7_8_status_names_a_schedule_that_fails_whoever_is_told(told: Told) -> None:
    """Without a notify command too, for as long as it fails; it is no fault of the supervisor's, which stays ready."""
    from wfctl.supervisor.desk import status_of

    add(told.world.store, "backup")
    for exit_status in (0, 1, 1):
        told.minute(exit_status)
    service = told.world._service
    assert service is not None
    (entry,) = status_of(service).failing
    assert (entry["schedule_id"], entry["failures"], entry["run_id"]) == ("backup", 2, "run-000003")
    assert status_of(service).state == "ready"
    told.minute(0)
    assert status_of(service).failing == ()

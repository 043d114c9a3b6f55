"""Next instants after croniter or the tz database was renewed (contract 3.2, 4.2, 4.3)."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from tests.support.disk import CrashingDisk, SimulatedCrash
from tests.support.schedules import add, at, cron
from tests.support.story import World
from wfctl.core.instants import from_micros, to_micros
from wfctl.core.trigger import CalendarError, CronCalendar
from wfctl.operations import renewal
from wfctl.store.ledger import definitions

DAILY = cron("30 2 * * *", timezone="Europe/Budapest")
WRONG = at("17:17")


def renew(world: World) -> bool:
    return renewal.renew_calendars(world.store.context)


def forget(world: World, **columns: datetime | None) -> None:
    """Let the ledger say that all was worked out by another croniter, which answered otherwise."""
    connection = world.store.context.ledger.connection
    definitions.set_calendar_stamps(connection, "croniter of yore")
    for column, value in columns.items():
        connection.execute(f"UPDATE schedules SET {column} = ?", (None if value is None else to_micros(value),))


def standing(world: World) -> dict[str, tuple[datetime | None, datetime | None]]:
    """Return next instant and wake-up by id."""
    found = world.store.context.ledger.connection.execute(
        "SELECT d.id, s.next_instant, s.wake_at FROM schedules s JOIN definitions d ON d.number = s.number"
    )
    return {name: tuple(None if each is None else from_micros(each) for each in times) for name, *times in found}  # type: ignore[misc]


def test_next_instants_are_worked_out_anew_once(world: World) -> None:
    for number in range(5):
        add(world.store, f"s{number}", DAILY if number % 2 else None)
    right = standing(world)
    forget(world, next_instant=WRONG, wake_at=WRONG)
    assert renew(world)
    after = standing(world)
    assert {name: coming for name, (coming, _) in after.items()} == {name: coming for name, (coming, _) in right.items()}
    assert after["s0"][1] == at("09:01"), "an earlier instant is not slept over"
    assert after["s1"][1] == WRONG, "nor is a look that was asked for, which costs nothing"
    assert not renew(world), "by today's croniter they were worked out"


def test_what_did_not_change_is_not_written(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(30):
        add(world.store, f"s{number}", DAILY)
    forget(world)
    asked: list[Any] = []
    monkeypatch.setattr(renewal, "calendar_of", lambda trigger: asked.append(trigger) or CronCalendar(trigger))
    before, ledger = standing(world), world.store.context.ledger
    commits = ledger.commits
    assert renew(world)
    assert ledger.commits == commits + 1, "but for the stamps"
    assert standing(world) == before
    assert len(asked) == 1, "what is the same is asked once"


def test_paused_held_blocked_deleted_and_other_kinds(world: World) -> None:
    add(world.store, "paused", DAILY)
    world.store.pause_schedule(schedule_id="paused")
    add(world.store, "interval", {"kind": "interval", "every": "10m"})
    add(world.store, "once", {"kind": "oneshot", "at": "2027-06-01T09:00:00Z"})
    add(world.store, "gone", DAILY)
    world.store.delete_schedule(schedule_id="gone")
    add(world.store, "held", overlap="queue", misfire="latest")
    world.clock.set(at("09:01"))
    world.step()
    world.clock.set(at("09:02"))
    world.step()
    assert world.store.get_schedule(schedule_id="held").candidate is not None
    before = standing(world)
    forget(world)
    assert renew(world)
    assert standing(world) == before
    assert before["paused"][1] is None and before["paused"][0] is not None and before["gone"] == (None, None)


def test_what_the_parsed_form_says_otherwise_than_the_text_is_read_in_full(world: World) -> None:
    add(world.store, "s", DAILY)
    right = standing(world)
    world.store.context.ledger.connection.execute("UPDATE revisions SET plain = replace(plain, '30 2 * * *', '0 0 1 1 *')")
    forget(world)
    assert renew(world)
    assert standing(world) == right


@pytest.mark.parametrize("plain", ["banana", "[]", '{"trigger": 7}', '{"trigger": {"expression": 5, "timezone": null}}', ""])
def test_a_damaged_parsed_form_harms_nobody(world: World, plain: str) -> None:
    add(world.store, "s", DAILY)
    add(world.store, "t", DAILY)
    right = standing(world)
    connection = world.store.context.ledger.connection
    connection.execute(
        "UPDATE revisions SET plain = ? WHERE definition = (SELECT number FROM definitions WHERE id = 's')", (plain,)
    )
    forget(world)
    assert renew(world)
    assert standing(world)["t"] == right["t"]
    assert standing(world)["s"] == right["s"] or world.store.get_schedule(schedule_id="s").state == "blocked"


def test_4_3_a_zone_that_vanished_blocks_its_schedules(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from wfctl.operations import upkeep

    add(world.store, "s", DAILY)
    add(world.store, "t", cron("30 2 * * *"))
    forget(world)

    def gone(trigger: Any, anchor: Any = None) -> CronCalendar:
        if trigger.timezone == "Europe/Budapest":
            raise CalendarError("the zone 'Europe/Budapest' is not in this machine's tz database")
        return CronCalendar(trigger)

    monkeypatch.setattr(renewal, "calendar_of", gone)
    monkeypatch.setattr(upkeep, "calendar_of", gone)
    assert renew(world)
    (blocked,) = definitions.blocked(world.store.context.ledger.connection)
    assert blocked.id == "s" and blocked.diagnostic is not None and blocked.diagnostic["code"] == "calendar"
    assert standing(world)["s"] == (None, None) and standing(world)["t"][0] is not None


def test_a_crash_in_between_costs_no_more_than_beginning_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(7):
        add(world.store, f"s{number}", DAILY)
    right = standing(world)
    monkeypatch.setattr(renewal, "_AT_ONCE", 2)
    for budget in range(20):
        forget(world, next_instant=WRONG, wake_at=None)
        world.store.context.ledger.point = CrashingDisk(budget).point
        try:
            renew(world)
        except SimulatedCrash:
            world.die()
            world.step()  # another supervisor
            world.stop()
        assert standing(world) == right and not renew(world)
        world.die()


def test_it_says_that_it_goes_on(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(6):
        add(world.store, f"s{number}", DAILY)
    monkeypatch.setattr(renewal, "_AT_ONCE", 2)
    forget(world)
    said: list[None] = []
    renewal.renew_calendars(world.store.context, lambda: said.append(None))
    assert len(said) == 3


def test_what_was_edited_meanwhile_is_left_as_it_is(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    add(world.store, "s", DAILY)
    forget(world, next_instant=WRONG)
    other = World(world.root, clock=world.clock)
    read = renewal.calendars.cron_rows

    def then_edited(*arguments: Any, **named: Any) -> Any:
        rows = read(*arguments, **named)
        monkeypatch.setattr(renewal.calendars, "cron_rows", read)
        other.store.update_schedule(schedule_id="s", expected_revision=1, trigger=cron("0 12 * * *"))
        return rows

    monkeypatch.setattr(renewal.calendars, "cron_rows", then_edited)
    assert renew(world)
    assert standing(world)["s"][0] == at("12:00")
    other.die()

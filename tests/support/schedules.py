"""Short words for stories about schedules: what to make, and what became of it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from tests.support.story import World
from wfctl.operations.store import Store
from wfctl.operations.views import OccurrenceView, ScheduleView

MINUTELY = {"kind": "cron", "expression": "* * * * *"}


def cron(expression: str, **more: str) -> dict[str, str]:
    """A cron trigger."""
    return {"kind": "cron", "expression": expression, **more}


def at(text: str, day: int = 1) -> datetime:
    """`15:01:30`, or `15:01`, on a day of March 2027."""
    hour, minute, *second = (int(part) for part in text.split(":"))
    return datetime(2027, 3, day, hour, minute, *second, tzinfo=UTC)


def add(store: Store, schedule_id: str, trigger: dict[str, Any] | None = None, **fields: Any) -> ScheduleView:
    """Make a schedule, by default each minute, and the deployment `d` where it is missing."""
    if not any(view.id == "d" for view in store.list_deployments()):
        store.create_deployment(deployment_id="d", command=["/bin/true"])
    given = {"deployment_id": "d", "trigger": trigger or MINUTELY, **fields}
    return store.create_schedule(schedule_id=schedule_id, **given)


def admitted(world: World, schedule_id: str) -> list[datetime]:
    """The instants for which a run was admitted, in the order of recording."""
    return [row.instant for row in world.occurrences(schedule_id) if row.run_id is not None]


def told(row: OccurrenceView) -> str:
    """A row in words: `09:01 completed`, `09:01-10:40 skipped-misfire missed`."""
    first = f"{row.span.first:%H:%M}-" if row.span else ""
    return f"{first}{row.instant:%H:%M} {row.status}" + (f" {row.reason['code']}" if row.reason else "")


def history(world: World, schedule_id: str) -> list[str]:
    """The recorded history in words."""
    return [told(row) for row in world.occurrences(schedule_id)]

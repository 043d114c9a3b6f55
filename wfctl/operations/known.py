"""What decides about schedules, kept small: of each its trigger and policies, shared where they are equal.

A round needs of a definition what decides, and neither its input nor its notes. `Context` holds parsed definitions whole, and a
few thousand of them; of a hundred thousand schedules that come due in turn each would be read and parsed anew each time.
"""

from __future__ import annotations

from datetime import datetime
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from wfctl.core import trigger
from wfctl.core.instants import EPOCH
from wfctl.core.model import IntervalTrigger, OneshotTrigger, ScheduleDefinition, Trigger
from wfctl.core.trigger import Calendar, CalendarError, calendar_of
from wfctl.store.ledger.admissions import DueRow

if TYPE_CHECKING:
    from wfctl.operations.context import Context

_MOST_SCHEDULES = 1 << 17
_MOST_RULES = 1 << 16  #: that differ
_ANY = OneshotTrigger(EPOCH)


class Rules(NamedTuple):
    """What decides about a schedule."""

    definition: ScheduleDefinition  #: its policies, shared by all of the same: what else it says is not in it
    max_run: int | None  #: resolved limit of an attempt, microseconds
    calendar: Calendar | None  #: None: it is another one for each anchor, or could not be worked out
    trigger: Trigger | None  #: where there is no calendar

    def calendar_from(self, anchor: datetime) -> Calendar:
        """Return the calendar of a schedule whose grid begins there. Raise CalendarError."""
        if self.calendar is not None:
            return self.calendar
        assert self.trigger is not None
        return calendar_of(self.trigger, anchor)


class Known:
    """The rules of the schedules that were asked for, each by the revision that it was read of."""

    def __init__(self) -> None:
        self._schedules: dict[int, tuple[int, int, Rules]] = {}  #: by number: revision, number of its deployment
        self._deployments: dict[int, tuple[int, str]] = {}  #: by number: the revision that was read, and who runs it
        self._rules: dict[tuple[object, ...], Rules] = {}
        self._policies: dict[tuple[object, ...], ScheduleDefinition] = {}
        self._generation = trigger.generation

    def rules(self, context: Context, row: DueRow) -> Rules | None:
        """Return what decides about a schedule; None where its state names another deployment than its definition.

        Raise UnreadableRow where its definition or its deployment's is not there, or not what it was (7.4).
        """
        if self._generation != trigger.generation:
            self.forget()
        known = self._deployments.get(row.deployment)
        found = self._schedules.get(row.number)
        if known is None or found is None or found[:2] != (row.revision, row.deployment) or known[0] != row.deployment_revision:
            self.executor(context, row)
            return self._read(context, row)
        return found[2]

    def executor(self, context: Context, row: DueRow) -> str:
        """Return who runs the commands of a schedule's deployment. Raise UnreadableRow as `rules` does."""
        known = self._deployments.get(row.deployment)
        if known is None or known[0] != row.deployment_revision:
            definition, _ = context.deployment(row.deployment, row.deployment_revision)
            known = self._deployments[row.deployment] = (row.deployment_revision, definition.executor)
        return known[1]

    def _read(self, context: Context, row: DueRow) -> Rules | None:
        definition, max_run = context.definition(row.number, row.revision)
        if definition.deployment != row.deployment_id:
            return None
        if len(self._schedules) >= _MOST_SCHEDULES or len(self._rules) >= _MOST_RULES:
            self.forget()
        rules = self._shared(definition, max_run)
        self._schedules[row.number] = (row.revision, row.deployment, rules)
        return rules

    def _shared(self, definition: ScheduleDefinition, max_run: int | None) -> Rules:
        policies = _policies_of(vars(definition))
        key = (definition.trigger, policies, max_run)
        found = self._rules.get(key)
        if found is None:
            shared = self._policies.get(policies)
            if shared is None:
                named = dict(zip(_POLICIES, policies, strict=True))
                shared = self._policies[policies] = ScheduleDefinition(deployment="", trigger=_ANY, **named)
            calendar = _calendar_of(definition.trigger)
            found = self._rules[key] = Rules(shared, max_run, calendar, definition.trigger if calendar is None else None)
        return found

    def forget(self) -> None:
        """Read everything anew from now on."""
        self._schedules.clear()
        self._deployments.clear()
        self._rules.clear()
        self._policies.clear()
        self._generation = trigger.generation


def _calendar_of(its: Trigger) -> Calendar | None:
    if isinstance(its, IntervalTrigger):
        return None
    try:
        return calendar_of(its)
    except CalendarError:
        return None  # who asks for it will be told why


_POLICIES = tuple(
    name for name in ScheduleDefinition.field_names() if name not in ("deployment", "trigger", "input", "notes", "notify")
)
_policies_of = itemgetter(*_POLICIES)

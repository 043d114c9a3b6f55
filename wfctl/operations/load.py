"""The slots that the coming days want, from the calendar and from what runs took in the past."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from wfctl.core.load import Stretch, buckets_of, peak_of
from wfctl.operations.context import Context
from wfctl.operations.simulating import Forecast, forecast
from wfctl.operations.views import LoadBucketView, LoadView, PeakView

_WANTED = 1_000_000  #: slots of the play: what is wanted is asked for, not what is to be had


def load(context: Context, *, until: datetime, width: timedelta, slots: int, durations: Any = None) -> LoadView:
    """Return how many of `slots` the schedules want from now to `until`, in buckets of `width`. Raise InvalidArgument."""
    found = forecast(context, until=until, slots=_WANTED, durations=durations)
    stretches = stretches_of(found)
    since = found.plan.since
    peak = peak_of(stretches)
    return LoadView(
        since=since,
        until=until,
        slots=slots,
        bucket_s=width.total_seconds(),
        buckets=tuple(
            LoadBucketView(begins=each.begins, mean=round(each.mean, 6), peak=each.peak)
            for each in buckets_of(stretches, since, until, width)
        ),
        peak=None
        if peak is None
        else PeakView(
            at=peak.at,
            used=peak.used,
            schedules=tuple(
                {"schedule_id": each.schedule_id, "duration_s": (each.ends - each.begins).total_seconds()}
                for each in peak.stretches
            ),
        ),
        assumed=tuple(
            sorted(name for name, number in found.numbers.items() if found.estimates.of(name, number).origin == "assumed")
        ),
    )


def stretches_of(found: Forecast) -> list[Stretch]:
    """Return when each run of a forecast holds a slot."""
    until = found.plan.until
    stretches = [
        Stretch(row.decided_at, until if row.ended_at is None else row.ended_at, row.schedule_id)
        for row in found.played.rows
        if row.settlement.run is not None
    ]
    for ongoing in found.plan.ongoing:
        at = found.plan.since
        for leg in ongoing.course.legs:
            if leg.holds_slot:
                stretches.append(Stretch(at, min(until, at + leg.lasts), ongoing.schedule_id))
            at += leg.lasts
    return sorted(stretches)

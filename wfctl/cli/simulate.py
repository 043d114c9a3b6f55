"""`wfctl simulate`: what is to come, decided as the supervisor decides, on a virtual clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wfctl.cli import parse, render, streams, values
from wfctl.cli.base import Common, StoredId, command
from wfctl.cli.completing import words
from wfctl.cli.render import Column
from wfctl.cli.text import count_of, escape
from wfctl.errors import InvalidArgument

if TYPE_CHECKING:
    from wfctl.core.model import ScheduleDefinition
    from wfctl.operations.views import SimulatedView, SimulationView

_FAILS = ("skipped", "coalesced", "held")


def _skips(view: SimulatedView) -> str:
    return ", ".join(f"{count} {name}" for name, count in view.skipped.items())


COLUMNS = [
    Column(key="schedule_id", title="SCHEDULE", raw=lambda it: it.schedule_id, keep=True),
    Column(key="fires", title="FIRES", raw=lambda it: it.fires, right=True, keep=True),
    Column(key="admitted", title="ADMITTED", raw=lambda it: it.admitted, right=True),
    Column(
        key="skipped",
        title="SKIPPED",
        raw=lambda it: dict(it.skipped),
        show=lambda it: str(sum(it.skipped.values())),
        right=True,
    ),
    Column(key="coalesced", title="COALESCED", raw=lambda it: it.coalesced, right=True),
    render.durations("longest_wait_s", "LONGEST WAIT", lambda it: it.longest_wait_s),
    Column(key="peak_runs", title="AT ONCE", raw=lambda it: it.peak_runs, right=True),
    render.durations("duration_s", "RUN TAKES", lambda it: it.duration_s),
    Column(key="duration_from", title="KNOWN FROM", raw=lambda it: it.duration_from),
    Column(key="why", title="WHY SKIPPED", raw=lambda it: dict(it.skipped), show=_skips, free=True),
]


@command()
@click.argument("schedule_ids", metavar="[SCHEDULE]...", nargs=-1, type=StoredId("schedule"), help="Show only these schedules.")
@click.option("--days", metavar="N", type=click.IntRange(1, 400), default=7, show_default=True, help="How many days to play.")
@click.option("--until", metavar="INSTANT", help="Play up to this instant instead, or for a duration such as 12h.")
@click.option(
    "--durations",
    metavar="HOW",
    type=words("history", "sample", "p95"),
    default="history",
    show_default=True,
    help="What runs take: history (the median), sample (drawn from it), p95, a duration, or @FILE, JSON of durations by id.",
)
@click.option("--slots", metavar="N", type=click.IntRange(min=1), help="How many runs at once (default: max_concurrent_runs).")
@click.option(
    "--downtime", metavar="FROM..TO", multiple=True, help="No supervisor from one instant to another; may be repeated."
)
@click.option(
    "-f",
    "files",
    metavar="FILE",
    type=click.Path(),
    multiple=True,
    help="Play this definition in place of the schedule of the file's name, or beside all; may be repeated.",
)
@click.option("--seed", metavar="N", type=int, default=0, show_default=True, help="Draws the same for the same number.")
@click.option(
    "--fail-on",
    metavar="A,B,...",
    type=words(*_FAILS, is_list=True),
    help="Exit with 1 where anything is skipped, coalesced or held.",
)
def simulate(
    common: Common, schedule_ids: Sequence[str], days: int, until: str | None, durations: str, slots: int | None,
    downtime: Sequence[str], files: Sequence[str], seed: int, fail_on: str | None,
) -> int:  # fmt: skip
    """Play the schedules ahead of time and count what would happen.

    wfctl simulate --days 7 --slots 2 --durations p95

    Every active schedule takes part, since all share the slots; nothing is changed. What is decided is decided by the very code
    of the supervisor.
    """
    from wfctl.operations import simulating

    now = common.now()
    end = now + timedelta(days=days) if until is None else parse.ahead(until, "--until", now)
    fails = parse.words(fail_on, _FAILS, "--fail-on") or []
    given = parse.json_document(durations, "--durations") if durations.startswith("@") else durations
    spans = [_span(text) for text in downtime]
    instead = dict(_definition(name) for name in files)
    with common.open() as store:
        simulating.names_known(store.context, [name for name in schedule_ids if name not in instead])
        found = simulating.forecast(
            store.context,
            until=end,
            slots=slots or simulating.slots_of(store.context, common.environ),
            durations=given,
            downtime=sorted(spans),
            instead=instead,
            seed=seed,
        )
        view = simulating.simulation_view(found, list(schedule_ids) or None, seed=seed)
    _write(common, view)
    return 1 if any(_is_so(view, word) for word in fails) else 0


def _span(text: str) -> tuple[datetime, datetime]:
    first, dots, last = text.partition("..")
    if not dots:
        raise InvalidArgument(f"--downtime {text!r} is not FROM..TO, such as 2026-12-01T02:00:00Z..2026-12-01T06:00:00Z")
    begins, ends = parse.instant(first, "--downtime"), parse.instant(last, "--downtime")
    if begins >= ends:
        raise InvalidArgument(f"--downtime {text!r} ends before it begins")
    return begins, ends


def _definition(name: str) -> tuple[str, ScheduleDefinition]:
    from wfctl.store.definitions import schedule_from_toml

    schedule_id = Path(name).name.removesuffix(".toml")
    return schedule_id, schedule_from_toml(parse.read_file(name), f"schedule {schedule_id}")


def _is_so(view: SimulationView, word: str) -> bool:
    tests: Mapping[str, Any] = {
        "skipped": lambda it: sum(it.skipped.values()) > 0,
        "coalesced": lambda it: it.coalesced > 0,
        "held": lambda it: it.held,
    }
    return any(tests[word](each) for each in view.schedules)


def _write(common: Common, view: SimulationView) -> None:
    if common.format == "json":
        render.item(common, view, details=lambda _: "", name="")
        return
    render.page(common, COLUMNS, view.schedules, schema=view.schema, name=lambda it: it.schedule_id)
    if not common.is_human or common.quiet:
        return
    assumed = [it.schedule_id for it in view.schedules if it.duration_from == "assumed"]
    span = f"from {values.instant(view.since)} to {values.instant(view.until)}"
    lines = [f"{span}: at most {view.peak_slots} of {view.slots} slots in use"]
    if assumed:
        named = ", ".join(assumed[:5]) + (" and others" if len(assumed) > 5 else "")
        lines.append(f"no run of {escape(named)} is over yet: 1m is assumed; --durations says otherwise")
    held = [it for it in view.schedules if it.held]
    if held:
        lines.append(f"{count_of(len(held), 'schedule')} still hold an instant at the end")
    for line in lines:
        streams.talk(line)

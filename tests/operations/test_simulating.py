"""Simulating: a recorded history, played again, gives the dispositions that were recorded; a forecast is what then happens."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.story import World
from wfctl.core.simulation import Played, simulate
from wfctl.errors import InvalidArgument
from wfctl.operations.estimates import quantile, rule_of
from wfctl.operations.simulating import forecast, replay_change, replay_plan, simulation_view
from wfctl.operations.store import init_store

SLOTS = 4  # the supervisor's own, unless it is told otherwise
POLICIES: list[dict[str, Any]] = [
    {"overlap": "skip"},
    {"overlap": "queue"},
    {"overlap": "parallel", "max_active_runs": 2},
    {"misfire": "latest"},
    {"misfire": "latest", "overlap": "parallel", "max_active_runs": 3},
    {"overlap": "queue", "lateness": "5m"},
]
TRIGGERS: list[dict[str, Any]] = [
    {"kind": "cron", "expression": "*/5 * * * *"},
    {"kind": "cron", "expression": "*/7 * * * *", "timezone": "Europe/Budapest"},
    {"kind": "interval", "every": "4m"},
    {"kind": "cron", "expression": "0,10,40 * * * *"},
    {"kind": "interval", "every": "13m"},
    {"kind": "cron", "expression": "*/3 * * * *"},
]


class Life:
    """A store lived in exactly: the supervisor is there at each moment at which something is due or ends."""

    def __init__(self, root: Path, seed: int) -> None:
        init_store(root).close()
        self.world = World(root)
        self.chance = random.Random(seed)
        self.ends: dict[tuple[str, int], datetime] = {}
        self.world.store.create_deployment(deployment_id="d", command=["/bin/true"])
        for number, (trigger, policy) in enumerate(zip(TRIGGERS, POLICIES, strict=True)):
            self.world.store.create_schedule(schedule_id=f"s{number}", deployment_id="d", trigger=trigger, **policy)
        self.wake: datetime | None = None
        self.lag = timedelta(0)  #: how late the supervisor sees what happens
        self.step()

    def step(self) -> None:
        """Let the supervisor look; give each run that began how long it takes."""
        self.wake = self.world.step()
        for running in self.world.keeper.world.running:
            self.ends.setdefault(running, self.world.clock.now() + timedelta(seconds=self.chance.randint(5, 900)))

    def until(self, end: datetime) -> None:
        """Live on up to a moment."""
        while True:
            alive = [self.ends[running] for running in self.world.keeper.world.running]
            coming = min([*alive, *([self.wake] if self.wake else []), end]) + self.lag
            self.world.clock.set(max(coming, self.world.clock.now()))
            self._end_due()
            self.step()
            if coming >= end:
                return

    def _end_due(self) -> None:
        for run, k in list(self.world.keeper.world.running):
            if self.ends[run, k] <= self.world.clock.now():
                self.world.keeper.end(run, k, exit_status=self.chance.choice((0, 0, 0, 3)))

    def away(self, span: timedelta) -> None:
        """Have no supervisor for a while; runs go on, and end."""
        self.world.stop()
        end = self.world.clock.now() + span
        while due := [at for at in (self.ends[each] for each in self.world.keeper.world.running) if at <= end]:
            self.world.clock.set(max(min(due), self.world.clock.now()))
            self._end_due()
        self.world.clock.set(end)
        self.step()

    def after(self, **span: float) -> datetime:
        return self.world.clock.now() + timedelta(**span)


def recorded(world: World, names: list[str]) -> dict[str, list[tuple[Any, ...]]]:
    """What the ledger says: of each schedule its instants, each with its status and the code of its reason."""
    return {
        name: [
            (row.instant, row.status, (row.reason or {}).get("code") if row.run_id is None else None, bool(row.span))
            for row in sorted(world.occurrences(name), key=lambda row: row.instant or datetime.min)
        ]
        for name in names
    }


def as_recorded(rows: tuple[Played, ...], name: str) -> list[tuple[Any, ...]]:
    found = [row for row in rows if row.schedule_id == name]
    return [
        (
            row.settlement.instant,
            row.status.value,
            (row.settlement.reason or {}).get("code") if row.settlement.run is None else None,
            bool(row.settlement.span),
        )
        for row in sorted(found, key=lambda row: row.settlement.instant)
    ]


@pytest.mark.parametrize("seed", [0, 2])
def test_a_recorded_history_played_again_gives_the_same_dispositions(tmp_path: Path, seed: int) -> None:
    """Overlap, capacity, pauses, edits, deletion and absences of the supervisor; each run as long as it really was."""
    life = Life(tmp_path / "store", seed)
    store = life.world.store
    life.until(life.after(hours=2))
    store.pause_schedule(schedule_id="s1")
    life.step()
    life.until(life.after(minutes=50))
    store.update_schedule(schedule_id="s0", expected_revision=1, overlap="parallel", max_active_runs=2)
    life.step()
    life.until(life.after(minutes=33))
    store.resume_schedule(schedule_id="s1")
    store.update_schedule(
        schedule_id="s3", expected_revision=1, trigger={"kind": "cron", "expression": "*/2 * * * *", "timezone": "Asia/Tokyo"}
    )
    life.step()
    life.until(life.after(hours=1))
    life.away(timedelta(hours=2, minutes=17))
    life.until(life.after(seconds=1))
    life.world.store.delete_schedule(schedule_id="s4")
    life.world.store.update_schedule(schedule_id="s5", expected_revision=1, misfire="latest")
    life.step()
    life.until(life.after(hours=2))
    names = [f"s{number}" for number in range(6)]
    truth = recorded(life.world, names)
    played = simulate(replay_plan(life.world.store.context, until=life.world.clock.now(), slots=SLOTS))
    for name in names:
        assert as_recorded(played.rows, name) == truth[name], name
    assert sum(len(rows) for rows in truth.values()) > 400
    assert played.peak == SLOTS, "the story never was short of slots"
    held = {name for name in names if life.world.store.get_schedule(schedule_id=name).candidate is not None}
    assert set(played.held) == held
    life.world.die()


def test_while_a_supervisor_drains_nothing_is_decided(tmp_path: Path) -> None:
    """Contract 7.6: what came due meanwhile is treated as after downtime; the ledger shows it by what was missed."""
    life = Life(tmp_path / "store", 11)
    life.until(life.after(hours=1))
    service = life.world._service
    assert service is not None
    service.drain(undo=False)
    life.until(life.after(minutes=26))
    service.drain(undo=True)
    life.step()
    life.until(life.after(hours=1))
    service.drain(undo=False)  # and an end that waits for its runs
    life.until(life.after(minutes=9))
    life.away(timedelta(minutes=20))
    life.until(life.after(hours=1))
    names = [f"s{number}" for number in range(6)]
    truth = recorded(life.world, names)
    played = simulate(replay_plan(life.world.store.context, until=life.world.clock.now(), slots=SLOTS))
    for name in names:
        assert as_recorded(played.rows, name) == truth[name], name
    assert sum(row[2] == "missed" for rows in truth.values() for row in rows) > 20
    life.world.die()


def test_what_a_machine_takes_to_decide_does_not_add_up(tmp_path: Path) -> None:
    """Each run ends when it really did, however many waited for one another's end before it."""
    life = Life(tmp_path / "store", 5)
    life.lag = timedelta(milliseconds=7)
    life.until(life.after(hours=3))
    plan = replay_plan(life.world.store.context, until=life.world.clock.now(), slots=SLOTS)
    ends = {(row.schedule_id, row.settlement.instant): row.ended_at for row in simulate(plan).rows if row.ended_at}
    truth = {(str(run.schedule_id), run.instant): run.ended_at for run in life.world.runs() if run.ended_at}
    waited = [run for run in life.world.runs() if run.instant and run.admitted_at - run.instant > timedelta(minutes=1)]
    assert len(truth) > 80 and len(waited) > 10, "the story has no queues"
    assert ends == truth
    life.world.die()


def test_a_forecast_is_what_then_happens(tmp_path: Path) -> None:
    """With durations that are what they are said to be, and nobody changing anything."""
    life = Life(tmp_path / "store", 7)
    lengths = {f"s{number}": timedelta(seconds=40 + 97 * number) for number in range(6)}

    def step() -> None:
        life.wake = life.world.step()
        for run, k in life.world.keeper.world.running:
            name = str(life.world.store.inspect_run(run_id=run).schedule_id)
            life.ends.setdefault((run, k), life.world.clock.now() + lengths[name])

    life.step = step  # type: ignore[method-assign]
    until = life.after(hours=4)
    seconds = {name: length.total_seconds() for name, length in lengths.items()}
    said = forecast(life.world.store.context, until=until, slots=SLOTS, durations=seconds)
    life.until(until)
    truth = recorded(life.world, list(lengths))
    for name in lengths:
        shown = [(row[0], row[2]) for row in as_recorded(said.played.rows, name)]
        assert shown == [(row[0], row[2]) for row in truth[name]], name
    view = simulation_view(said, ["s0", "s2"], seed=0)
    assert [each.schedule_id for each in view.schedules] == ["s0", "s2"]
    assert [each.duration_from for each in view.schedules] == ["given", "given"]
    life.world.die()


def test_the_same_seed_draws_the_same(tmp_path: Path) -> None:
    life = Life(tmp_path / "store", 3)
    life.until(life.after(hours=3))
    context = life.world.store.context

    def fall(seed: int) -> Any:
        found = forecast(context, until=life.after(hours=12), slots=2, durations="sample", seed=seed)
        return simulation_view(found, None, seed=seed).to_json()["schedules"]

    assert fall(1) == fall(1)
    assert fall(1) != fall(2)
    life.world.die()


def test_a_change_is_replayed_over_the_past_before_it_is_saved(tmp_path: Path) -> None:
    init_store(tmp_path / "store").close()
    life = Life.__new__(Life)
    life.world, life.chance, life.ends, life.wake = World(tmp_path / "store"), random.Random(1), {}, None
    life.lag = timedelta(0)
    store = life.world.store
    store.create_deployment(deployment_id="d", command=["/bin/true"])
    store.create_schedule(schedule_id="s", deployment_id="d", trigger={"kind": "interval", "every": "2m"})
    life.step()
    life.until(life.after(hours=6))
    rows = [row.status for row in life.world.occurrences("s")]
    skipped = rows.count("skipped-overlap")
    assert skipped > 20
    context = store.context
    old, _ = context.schedule(2, 1)
    from dataclasses import replace

    from wfctl.core.model import Overlap

    found = replay_change(context, "s", replace(old, overlap=Overlap.PARALLEL, max_active_runs=50))
    assert found is not None
    since, counts = found
    assert since >= store.get_schedule(schedule_id="s").effective_from  # type: ignore[operator]
    assert counts["skipped-overlap: overlap"] == (skipped, 0)
    assert counts["admitted"] == (len(rows) - skipped, len(rows))
    assert replay_change(context, "nope", old) is None
    life.world.die()


@pytest.mark.parametrize(
    ("given", "percent"), [(None, 50), ("history", 50), ("p95", 95), ("p0", 0), ("p100", 100), ("sample", None)]
)
def test_durations_are_asked_for_by_word(given: Any, percent: int | None) -> None:
    assert rule_of(given).quantile == percent


def test_durations_may_be_given() -> None:
    assert rule_of("90s").fixed == timedelta(seconds=90)
    assert rule_of(5).fixed == timedelta(seconds=5)
    assert rule_of({"a": "1m", "b": 2.5}).by_schedule == {"a": timedelta(minutes=1), "b": timedelta(seconds=2.5)}
    for wrong in ("p101", "p", "soon", -1, True, [], {"a": "x"}):
        with pytest.raises(InvalidArgument):
            rule_of(wrong)


def test_quantiles_are_lengths_that_were_there() -> None:
    lengths = [timedelta(seconds=each) for each in (1, 2, 3, 4)]
    assert [quantile(lengths, percent).total_seconds() for percent in (0, 25, 50, 51, 75, 95, 100)] == [1, 1, 2, 3, 3, 4, 4]

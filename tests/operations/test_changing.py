"""Create, edit, pause, resume, delete, as stories; dry runs (contract 3.2 to 3.5, 5.11, 5.12, 11.7; FR-11, FR-12, FR-13)."""

from __future__ import annotations

import hashlib
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.schedules import MINUTELY, add, admitted, at, cron, history
from tests.support.story import World
from wfctl.errors import Deleted, Exists, InUse, InvalidArgument, InvalidDefinition, NotFound, RevisionConflict, WfctlError

MINUTE = timedelta(minutes=1)


def to(world: World, text: str, day: int = 1) -> None:
    world.clock.set(at(text, day))
    world.step()


def over(world: World) -> None:
    world.end()
    world.step()


# FR-11: editing -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("misfire", ["skip", "latest"])
def test_fr_11_changing_the_hour_does_not_make_it_run_now(world: World, misfire: str) -> None:
    world.clock.set(at("00:30"))
    add(world.store, "d", cron("0 1 * * *"), misfire=misfire)
    to(world, "01:00")
    over(world)
    to(world, "15:00")

    first = world.store.update_schedule(schedule_id="d", expected_revision=1, trigger=cron("0 2 * * *"))
    assert first.revision == 2 and first.next_instant == at("02:00", 2) and first.effective_from == at("15:00")
    world.step()
    files = (world.root / "schedules" / "d.toml").read_bytes()
    with pytest.raises(RevisionConflict) as caught:
        world.store.update_schedule(schedule_id="d", expected_revision=1, trigger=cron("0 4 * * *"))
    assert caught.value.exit_status == 80 and caught.value.data["revision"] == 2 and caught.value.data["expected_revision"] == 1
    assert "1" in caught.value.message and "2" in caught.value.message
    assert (world.root / "schedules" / "d.toml").read_bytes() == files and world.store.get_schedule(
        schedule_id="d"
    ).revision == 2

    path = world.root / "schedules" / "d.toml"
    path.write_text(path.read_text().replace("0 2 * * *", "0 3 * * *"))
    third = world.store.get_schedule(schedule_id="d")
    assert third.revision == 3 and third.next_instant == at("03:00", 2)
    world.step()
    assert [(row.instant, row.status, row.revision) for row in world.occurrences("d")] == [(at("01:00"), "completed", 1)]
    to(world, "03:00", 2)
    assert admitted(world, "d") == [at("01:00"), at("03:00", 2)]
    assert world.runs()[-1].revision == 3


def test_3_4_a_trigger_change_first_settles_what_was_due_and_drops_the_candidate(world: World) -> None:
    add(world.store, "s", overlap="queue")
    to(world, "09:01")
    to(world, "09:02")
    world.clock.set(at("09:05:30"))
    view = world.store.update_schedule(schedule_id="s", expected_revision=1, trigger=cron("*/30 * * * *"))
    assert view.candidate is None and view.effective_from == at("09:05:30") and view.watermark == at("09:05:30")
    assert history(world, "s") == [
        "09:01 running",
        "09:02 coalesced edited",
        "09:03 skipped-misfire edited",
        "09:04 skipped-misfire edited",
        "09:05 skipped-misfire edited",
    ]
    over(world)
    to(world, "09:30")
    assert admitted(world, "s") == [at("09:01"), at("09:30")]


def test_3_4_what_was_due_before_an_edit_is_bounded_like_any_catching_up(world: World) -> None:
    add(world.store, "s")
    world.step()
    world.die()
    world.clock.set(at("09:00:30", 8))
    world.store.update_schedule(schedule_id="s", expected_revision=1, trigger=cron("0 0 * * *"))
    rows = world.occurrences("s")
    assert len(rows) == 101 and rows[0].span is not None and rows[0].span.first == at("09:01")
    assert all(row.status == "skipped-misfire" and row.reason == {"code": "edited"} for row in rows)


@pytest.mark.parametrize("change", [{"misfire": "latest"}, {"lateness": "10m"}])
def test_3_4_a_change_of_misfire_or_lateness_settles_what_was_missed(world: World, change: dict[str, str]) -> None:
    add(world.store, "s", cron("*/5 * * * *"))
    world.step()
    world.clock.set(at("09:20:30"))
    world.store.update_schedule(schedule_id="s", expected_revision=1, **change)
    assert history(world, "s") == [f"09:{minute} skipped-misfire edited" for minute in ("05", "10", "15")]
    world.step()
    assert admitted(world, "s") == [at("09:20")], "what is on time is left to the new definition"


@pytest.mark.parametrize(
    "change", [{"notes": "x"}, {"overlap": "queue"}, {"max_steps": 4}, {"input": {"a": 1}}, {"max_run": "1h"}]
)
def test_3_4_other_changes_keep_the_candidate(world: World, change: dict[str, Any]) -> None:
    add(world.store, "s", overlap="skip", misfire="latest")
    to(world, "09:01")
    to(world, "09:02")
    view = world.store.update_schedule(schedule_id="s", expected_revision=1, **change)
    assert view.candidate is not None and view.candidate.instant == at("09:02")
    over(world)
    assert admitted(world, "s") == [at("09:01"), at("09:02")]
    assert [row.revision for row in world.occurrences("s")] == [1, 2], "it is admitted under the new revision"


def test_3_4_a_raised_limit_admits_a_held_candidate_at_once(world: World) -> None:
    add(world.store, "s", overlap="parallel", max_active_runs=1, misfire="latest")
    to(world, "09:01")
    to(world, "09:02")
    world.store.update_schedule(schedule_id="s", expected_revision=1, max_active_runs=2)
    world.step()
    assert admitted(world, "s") == [at("09:01"), at("09:02")]


def test_3_3_a_run_keeps_the_snapshot_it_was_admitted_with(world: World) -> None:
    add(world.store, "s", input={"region": "eu"})
    to(world, "09:01")
    world.store.update_schedule(schedule_id="s", expected_revision=1, input={"region": "us"})
    world.store.update_deployment(deployment_id="d", expected_revision=1, command=["/bin/false"])
    run = world.store.inspect_run(run_id="run-000001")
    assert (run.input, run.revision, run.deployment_revision) == ({"region": "eu"}, 1, 1)
    over(world)
    to(world, "09:02")
    run = world.store.inspect_run(run_id="run-000002")
    assert (run.input, run.revision, run.deployment_revision) == ({"region": "us"}, 2, 2)


def test_3_2_absent_fields_stay_tables_are_replaced_and_unset_clears(world: World) -> None:
    add(world.store, "s", cron("* * * * *", timezone="Europe/Budapest"), input={"a": 1, "b": 2}, notes="old", misfire="latest")
    view = world.store.update_schedule(schedule_id="s", expected_revision=1, input={"b": 3}, notes=None)
    assert view.definition is not None
    assert (view.definition["input"], view.definition["notes"], view.definition["misfire"]) == ({"b": 3}, "old", "latest")
    view = world.store.update_schedule(schedule_id="s", expected_revision=2, trigger=MINUTELY, unset=["notes", "misfire"])
    assert view.definition is not None
    assert view.definition["trigger"]["timezone"] == "UTC"
    assert (view.definition["notes"], view.definition["misfire"]) == (None, "skip")


def test_3_2_leaving_parallel_drops_the_limit(world: World) -> None:
    add(world.store, "s", overlap="parallel", max_active_runs=3)
    view = world.store.update_schedule(schedule_id="s", expected_revision=1, overlap="queue")
    assert view.definition is not None and view.definition["max_active_runs"] is None
    with pytest.raises(InvalidDefinition):
        world.store.update_schedule(schedule_id="s", expected_revision=2, overlap="parallel")
    with pytest.raises(InvalidDefinition):
        world.store.update_schedule(schedule_id="s", expected_revision=2, max_active_runs=2)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"unset": ["max_steps"]}, InvalidDefinition),
        ({"unset": ["trigger"]}, InvalidDefinition),
        ({"unset": ["deployment_id"]}, InvalidDefinition),
        ({"unset": ["nonsense"]}, InvalidArgument),
        ({"unset": "notes"}, InvalidArgument),
        ({"unset": ["notes"], "notes": "x"}, InvalidArgument),
        ({"nonsense": 1}, InvalidArgument),
        ({"deployment_id": "nobody"}, NotFound),
        ({"expected_revision": 0}, InvalidArgument),
        ({"expected_revision": "1"}, InvalidArgument),
        ({"expected_revision": 2}, RevisionConflict),
        ({"trigger": cron("* * * *")}, InvalidDefinition),
        ({"lateness": "1h30"}, InvalidDefinition),
    ],
    ids=str,
)
def test_3_2_a_refused_update_changes_nothing(world: World, change: dict[str, Any], error: type[WfctlError]) -> None:
    add(world.store, "s", max_steps=3)
    before = snapshot(world)
    with pytest.raises(error):
        world.store.update_schedule(**{"schedule_id": "s", "expected_revision": 1, **change})
    assert snapshot(world) == before


def test_3_2_every_revision_is_kept_with_what_it_was_worked_out_by(world: World) -> None:
    add(world.store, "s")
    world.clock.advance(MINUTE)
    world.store.update_schedule(schedule_id="s", expected_revision=1, notes="x")
    world.store.pause_schedule(schedule_id="s")
    world.store.resume_schedule(schedule_id="s")
    revisions = world.store.list_revisions(schedule_id="s").items
    assert [each.revision for each in revisions] == [1, 2], "pause and resume make none"
    assert [each.recorded_at for each in revisions] == [at("09:00:30"), at("09:01:30")]
    assert all(each.actor and each.croniter.startswith("7.") and each.tz_database for each in revisions)
    assert "notes" not in revisions[0].content and 'notes = "x"' in revisions[1].content


# FR-12: pausing -------------------------------------------------------------------------------------------------------


def test_fr_12_resume_replays_nothing_of_the_pause(world: World) -> None:
    world.clock.set(at("09:58:30"))
    add(world.store, "p", misfire="latest")
    to(world, "09:59")
    to(world, "10:00")  # held: the first run goes on
    assert world.store.get_schedule(schedule_id="p").candidate is not None
    world.clock.set(at("10:00:30"))
    paused = world.store.pause_schedule(schedule_id="p", reason="maintenance")
    assert (paused.state, paused.candidate, paused.next_instant) == ("paused", None, None)
    assert (paused.paused_at, paused.pause_reason) == (at("10:00:30"), "maintenance") and paused.pause_actor
    assert paused.active_runs == ("run-000001",), "active runs go on"
    to(world, "10:05")
    again = world.store.pause_schedule(schedule_id="p", reason="another")
    assert (again.paused_at, again.pause_reason) == (paused.paused_at, "maintenance"), "pausing twice is pausing once"
    over(world)
    world.die()
    to(world, "10:20")
    world.clock.set(at("10:30:30"))
    resumed = world.store.resume_schedule(schedule_id="p")
    assert (resumed.state, resumed.effective_from, resumed.next_instant) == ("active", at("10:30:30"), at("10:31"))
    world.clock.advance(timedelta(seconds=10))
    assert world.store.resume_schedule(schedule_id="p").effective_from == at("10:30:30"), "resuming twice is resuming once"
    world.step()
    to(world, "10:31")
    assert history(world, "p") == ["09:59 completed", "10:00 coalesced paused", "10:31 admitted"]
    pauses = world.store.context.ledger.connection.execute("SELECT reason, actor, resumed_by FROM pauses").fetchall()
    assert pauses == [("maintenance", paused.pause_actor, paused.pause_actor)]


def test_5_11_pause_settles_what_was_due(world: World) -> None:
    add(world.store, "p")
    world.clock.set(at("09:03:30"))
    world.store.pause_schedule(schedule_id="p")
    assert history(world, "p") == [f"09:0{minute} skipped-misfire paused" for minute in (1, 2, 3)]


def test_5_11_at_one_moment_of_the_clock_too(world: World) -> None:
    add(world.store, "p")
    for _ in range(3):
        assert world.store.pause_schedule(schedule_id="p").state == "paused"
        assert world.store.resume_schedule(schedule_id="p").state == "active"
    to(world, "09:01")
    assert admitted(world, "p") == [at("09:01")]


def test_5_11_a_pause_across_an_edit_of_the_trigger(world: World) -> None:
    add(world.store, "p")
    world.store.pause_schedule(schedule_id="p")
    to(world, "09:10")
    world.store.update_schedule(schedule_id="p", expected_revision=1, trigger=cron("*/5 * * * *"))
    to(world, "09:20")
    assert history(world, "p") == []
    world.store.resume_schedule(schedule_id="p")
    to(world, "09:25")
    assert history(world, "p") == ["09:25 admitted"]


def test_4_5_a_one_shot_that_passes_while_paused_is_finished_on_resume(world: World) -> None:
    add(world.store, "once", {"kind": "oneshot", "at": "2027-03-01T09:05:00Z"})
    world.store.pause_schedule(schedule_id="once")
    to(world, "09:10")
    assert world.store.get_schedule(schedule_id="once").state == "paused"
    assert world.store.resume_schedule(schedule_id="once").state == "finished"
    to(world, "09:15")
    assert history(world, "once") == []


def test_11_1_a_schedule_may_be_born_paused(world: World) -> None:
    view = add(world.store, "p", paused=True, reason="not yet")
    assert (view.state, view.pause_reason) == ("paused", "not yet")
    to(world, "09:05")
    assert history(world, "p") == []


# FR-13: deleting ------------------------------------------------------------------------------------------------------


def test_fr_13_a_deleted_schedule_keeps_its_history_and_its_name(world: World) -> None:
    add(world.store, "x", overlap="queue")
    to(world, "09:01")
    to(world, "09:02")
    world.clock.set(at("09:03:30"))
    content = (world.root / "schedules" / "x.toml").read_bytes()
    gone = world.store.delete_schedule(schedule_id="x")
    assert gone.state == "deleted" and gone.candidate is None and gone.active_runs == ("run-000001",)
    assert world.store.delete_schedule(schedule_id="x").state == "deleted", "deleting twice is deleting once"
    assert history(world, "x") == ["09:01 running", "09:02 coalesced deleted", "09:03 skipped-misfire deleted"]
    assert world.store.inspect_run(run_id="run-000001").schedule_id == "x"
    over(world)
    assert world.store.inspect_run(run_id="run-000001").status == "completed"
    to(world, "09:05")
    assert [run.run_id for run in world.store.list_runs(schedule_id="x")] == ["run-000001"]
    assert [view.id for view in world.store.list_schedules()] == []
    assert [view.id for view in world.store.list_schedules(include_deleted=True)] == ["x"]
    for change in (
        lambda: world.store.update_schedule(schedule_id="x", expected_revision=1, notes="y"),
        lambda: world.store.pause_schedule(schedule_id="x"),
        lambda: world.store.resume_schedule(schedule_id="x"),
    ):
        with pytest.raises(Deleted) as caught:
            change()
        assert caught.value.exit_status == 66

    for _ in range(2):
        with pytest.raises(Exists) as taken:
            add(world.store, "x")
        assert taken.value.exit_status == 81
        world.die()
        world.step()
    (world.root / "schedules" / "x.toml").write_bytes(content)
    world.step()
    assert not (world.root / "schedules" / "x.toml").exists()
    with pytest.raises(InvalidDefinition):
        add(world.store, "X")
    assert len(world.occurrences("x")) == 3


def test_3_5_a_deployment_in_use_is_not_deleted_and_its_id_is_retired(world: World) -> None:
    add(world.store, "s")
    with pytest.raises(InUse) as caught:
        world.store.delete_deployment(deployment_id="d")
    assert caught.value.exit_status == 75 and caught.value.data["schedules"] == ["s"]
    world.store.delete_schedule(schedule_id="s")
    assert world.store.delete_deployment(deployment_id="d").state == "deleted"
    assert world.store.delete_deployment(deployment_id="d").state == "deleted"
    assert not (world.root / "deployments" / "d.toml").exists()
    with pytest.raises(Exists):
        world.store.create_deployment(deployment_id="d", command=["/bin/true"])
    with pytest.raises(Deleted):
        world.store.update_deployment(deployment_id="d", expected_revision=1, description="x")
    with pytest.raises(NotFound):
        world.store.create_schedule(schedule_id="t", deployment_id="d", trigger=MINUTELY)


def test_3_5_creation_never_backfills_and_checks_what_it_names(world: World) -> None:
    view = add(world.store, "s")
    assert view.effective_from == at("09:00:30") == view.watermark and view.next_instant == at("09:01")
    store = world.store
    with pytest.raises(NotFound) as caught:
        store.create_schedule(schedule_id="t", deployment_id="e", trigger=MINUTELY)
    assert caught.value.exit_status == 66
    schema = {"type": "object", "required": ["region"], "properties": {"region": {"type": "string"}}}
    store.create_deployment(deployment_id="strict", command=["/bin/true"], input_schema=schema)
    for given in (None, {}, {"region": 5}):
        with pytest.raises(InvalidDefinition) as refused:
            store.create_schedule(schedule_id="t", deployment_id="strict", trigger=MINUTELY, input=given)
        assert refused.value.exit_status == 65
    for moment in ("2027-03-01T09:00:30Z", "2027-03-01T09:00:00Z", "2027-03-01T10:00:00"):
        with pytest.raises(InvalidDefinition):
            store.create_schedule(schedule_id="t", deployment_id="d", trigger={"kind": "oneshot", "at": moment})
    with pytest.raises(InvalidDefinition):
        store.create_schedule(schedule_id="t", deployment_id="d", trigger=cron("* * * * *", timezone="Mars/Olympus"))
    assert [each.id for each in store.list_schedules()] == ["s"]
    assert (
        store.create_schedule(schedule_id="t", deployment_id="strict", trigger=MINUTELY, input={"region": "eu"}).revision == 1
    )


# Dry runs -------------------------------------------------------------------------------------------------------------


def snapshot(world: World) -> dict[str, str]:
    """Digests of all that stands in the store, the write-ahead log included."""
    paths = [path for path in world.root.rglob("*") if path.is_file() and not path.name.endswith("-shm")]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


DRY: list[tuple[str, dict[str, Any]]] = [
    ("create_schedule", {"schedule_id": "new", "deployment_id": "d", "trigger": MINUTELY}),
    ("update_schedule", {"schedule_id": "s", "expected_revision": 1, "trigger": cron("0 0 * * *")}),
    ("pause_schedule", {"schedule_id": "s"}),
    ("resume_schedule", {"schedule_id": "paused"}),
    ("delete_schedule", {"schedule_id": "s"}),
    ("create_deployment", {"deployment_id": "new", "command": ["/bin/true"]}),
    ("update_deployment", {"deployment_id": "d", "expected_revision": 1, "description": "x"}),
    ("delete_deployment", {"deployment_id": "free"}),
]


@pytest.mark.parametrize(("name", "given"), DRY, ids=[name for name, _ in DRY])
def test_11_7_a_dry_run_says_the_same_and_writes_nothing(world: World, name: str, given: dict[str, Any]) -> None:
    add(world.store, "s", overlap="queue")
    add(world.store, "paused", paused=True)
    world.store.create_deployment(deployment_id="free", command=["/bin/true"])
    to(world, "09:01")
    to(world, "09:02")
    world.clock.set(at("09:05:30"))
    before = snapshot(world)
    act = getattr(world.store, name)
    would = act(**given, dry_run=True)
    assert snapshot(world) == before
    done = act(**given)
    assert snapshot(world) != before
    assert would.to_json() == done.to_json()


def test_11_7_a_dry_run_is_refused_as_the_change_would_be(world: World) -> None:
    add(world.store, "s")
    before = snapshot(world)
    for error, act in (
        (Exists, lambda: world.store.create_schedule(schedule_id="s", deployment_id="d", trigger=MINUTELY, dry_run=True)),
        (RevisionConflict, lambda: world.store.update_schedule(schedule_id="s", expected_revision=2, notes="x", dry_run=True)),
        (InUse, lambda: world.store.delete_deployment(deployment_id="d", dry_run=True)),
        (NotFound, lambda: world.store.pause_schedule(schedule_id="nobody", dry_run=True)),
    ):
        with pytest.raises(error):
            act()
    assert snapshot(world) == before


def test_a_dry_run_leaves_nothing_in_mind(world: World) -> None:
    """What was tried must not be taken for what was saved later under the same number and revision."""
    store = world.store
    store.create_deployment(deployment_id="tried", command=["/bin/false"], dry_run=True)
    add(store, "other")
    store.create_schedule(schedule_id="tried", deployment_id="d", trigger=cron("0 0 1 1 *"), dry_run=True)
    saved = add(store, "saved", MINUTELY)
    assert saved.definition is not None and saved.definition["trigger"]["expression"] == "* * * * *"
    assert store.get_deployment(deployment_id="d").definition["command"] == ["/bin/true"]  # type: ignore[index]
    store.update_schedule(schedule_id="saved", expected_revision=1, misfire="latest", input={"a": 1}, dry_run=True)
    store.update_schedule(schedule_id="saved", expected_revision=1, misfire="skip", input={"a": 2})
    to(world, "09:01")
    assert [run.input for run in world.store.list_runs(schedule_id="saved")] == [{"a": 2}]


def test_the_files_are_private(world: World, tmp_path: Path) -> None:
    add(world.store, "s")
    for path in world.root.rglob("*"):
        if not path.is_socket():
            assert path.stat().st_mode & 0o077 == 0, path

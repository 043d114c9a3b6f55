"""Letting old history go: what goes, what stays, and that the supervisor is hardly disturbed (contract 10, 11, 5.15)."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest

from tests.support.history import HOUR, go_on, world_with_history
from tests.support.story import SETTINGS, START, FakeClock, FakeService, World
from wfctl.errors import InvalidArgument, NotFound
from wfctl.operations import retention as operations
from wfctl.operations.retention import Rule, Sweep
from wfctl.operations.store import open_store
from wfctl.store.ledger import checkpoints, retention

DAY = timedelta(days=1)


def instants(world: World, name: str = "a") -> list[str]:
    return [row.instant.strftime("%H:%M") for row in world.occurrences(name)]


def directories(world: World) -> set[str]:
    return {path.name for path in (world.root / "runs").iterdir()}


@pytest.mark.parametrize(
    ("keep", "keep_runs", "left"),
    [
        pytest.param("10m", None, ["09:05", "09:06", "09:07", "09:08", "09:09", "09:10"], id="nothing is old enough"),
        pytest.param("3m", None, ["09:08", "09:09", "09:10"], id="by age"),
        pytest.param("1ms", None, [], id="all of it"),
        pytest.param(None, 2, ["09:09", "09:10"], id="by number of runs"),
        pytest.param(None, 100, ["09:05", "09:06", "09:07", "09:08", "09:09", "09:10"], id="there are not so many runs"),
        pytest.param("3m", 2, ["09:09", "09:10"], id="what is beyond either goes, by number"),
        pytest.param("2m", 5, ["09:09", "09:10"], id="what is beyond either goes, by age"),
    ],
)
def test_10_what_a_rule_lets_go(tmp_path: Path, keep: str | None, keep_runs: int | None, left: list[str]) -> None:
    world = world_with_history(tmp_path / "store", 10)
    world.store.collect_garbage(keep_runs=6)
    assert instants(world) == ["09:05", "09:06", "09:07", "09:08", "09:09", "09:10"]
    world.clock.advance(timedelta(seconds=1))
    would = world.store.collect_garbage(keep=keep, keep_runs=keep_runs, dry_run=True)
    assert len(instants(world)) == 6, "a dry run changes nothing"
    done = world.store.collect_garbage(keep=keep, keep_runs=keep_runs)
    assert instants(world) == left
    assert [run.run_id for run in world.runs()] == [f"run-{11 - n:06d}" for n in range(len(left), 0, -1)]
    assert directories(world) == {run.run_id for run in world.runs()}
    assert (done.occurrences, done.runs, done.is_dry_run) == (6 - len(left), 6 - len(left), False)
    assert (would.occurrences, would.runs, would.is_dry_run) == (done.occurrences, done.runs, True)
    assert world.store.audit_schedule(schedule_id="a").is_balanced
    world.die()


def test_10_unfinished_runs_and_what_is_held_stay(tmp_path: Path) -> None:
    world = world_with_history(tmp_path / "store", 3)
    world.keeper.world.script = None
    world.store.update_schedule(schedule_id="a", expected_revision=1, overlap="queue")
    go_on(world, 3)  # the first one lives, the others are held one after another
    world.clock.advance(400 * DAY)
    world.store.collect_garbage(keep="1d")
    assert [row.status for row in world.occurrences("a")] == ["running"]
    assert world.store.get_schedule(schedule_id="a").candidate is not None
    assert [run.status for run in world.runs()] == ["running"]
    world.end()
    world.step()
    assert world.runs()[0].status == "completed"
    world.die()


def test_10_ids_are_never_used_again(tmp_path: Path) -> None:
    world = world_with_history(tmp_path / "store", 3)
    world.store.delete_schedule(schedule_id="a")
    world.clock.advance(DAY)
    world.store.collect_garbage(keep="1h")
    assert world.occurrences("a") == []
    assert world.store.get_schedule(schedule_id="a").state == "deleted"
    world.store.create_schedule(schedule_id="b", deployment_id="d", trigger={"kind": "cron", "expression": "* * * * *"})
    go_on(world, 1)
    assert [run.run_id for run in world.runs()] == ["run-000004"]
    with pytest.raises(NotFound):
        world.store.inspect_run(run_id="run-000001")
    world.die()


def test_10_manual_runs_go_by_deployment(tmp_path: Path) -> None:
    world = world_with_history(tmp_path / "store", 2)
    for _ in range(4):
        world.store.start_run(deployment_id="d")
        world.step()
    world.store.collect_garbage(keep_runs=3)
    assert [(run.kind, run.run_id) for run in world.runs()] == [
        ("scheduled", "run-000001"),
        ("scheduled", "run-000002"),
        ("manual", "run-000004"),
        ("manual", "run-000005"),
        ("manual", "run-000006"),
    ]
    world.clock.advance(DAY)
    world.store.collect_garbage(keep="1h")
    assert world.runs() == []
    world.die()


def test_5_14_what_was_let_go_is_not_run_again_when_its_instant_comes_again(tmp_path: Path) -> None:
    clock = FakeClock(START.replace(minute=0))
    world = world_with_history(tmp_path / "store", 40, each=HOUR, clock=clock)
    world.store.collect_garbage(keep_runs=1)
    world.clock.set(world.clock.now() - timedelta(hours=20))
    world.step()
    go_on(world, 20, HOUR)
    launched = [request.environment["WFCTL_OCCURRENCE"] for request in world.keeper.world.launches]
    assert len(launched) == len(set(launched)) == 40
    go_on(world, 2, HOUR)
    assert len(world.keeper.world.launches) == 42, "it goes on behind that"
    assert world.store.audit_schedule(schedule_id="a").is_balanced
    world.die()


def test_10_paging_goes_on_over_what_was_let_go(tmp_path: Path) -> None:
    world = world_with_history(tmp_path / "store", 20)
    page = world.store.list_schedule_occurrences(schedule_id="a", limit=5)
    world.store.collect_garbage(keep_runs=8)
    following = world.store.list_schedule_occurrences(schedule_id="a", limit=5, cursor=page.next_cursor)
    assert [row.instant.minute for row in following.items] == [13, 14, 15, 16, 17]
    world.die()


def test_10_a_directory_that_cannot_be_moved_keeps_its_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    world = world_with_history(tmp_path / "store", 3)
    blocker = world.root / "runs" / ".gone.run-000002"
    blocker.mkdir()
    (blocker / "full").touch()
    sweep = Sweep(world.store.context, Rule(keep_runs=1))
    while sweep.step():
        pass
    assert instants(world) == ["09:02", "09:03"]
    assert "prune_failed" in [vars(record).get("action") for record in caplog.records]
    world.store.collect_garbage(keep_runs=1)
    assert instants(world) == ["09:03"]
    assert directories(world) == {"run-000003"}
    world.die()


def test_10_a_job_may_have_made_anything_of_its_directory(tmp_path: Path) -> None:
    world = world_with_history(tmp_path / "store", 2)
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").touch()
    work = world.root / "runs" / "run-000001" / "work"
    (work / "link").symlink_to(precious)
    (work / "closed").mkdir()
    (work / "closed" / "file").touch()
    os.mkfifo(work / "fifo")
    (work / "closed").chmod(0)
    world.store.collect_garbage(keep_runs=1)
    assert directories(world) == {"run-000002"}
    assert (precious / "file").exists()
    world.die()


def test_10_what_lies_together_goes_together(tmp_path: Path) -> None:
    """Runs of neighbours share the pages of the ledger: a piece of several schedules writes each page less often."""
    names = tuple("abcdefghijklmnop")
    world = world_with_history(tmp_path / "store", 6, schedules=names)
    context = world.store.context
    commits = context.ledger.commits
    world.store.collect_garbage(keep_runs=1)
    assert [len(world.occurrences(name)) for name in names] == [1] * len(names)
    assert context.ledger.commits - commits < len(names), "a piece for each schedule"
    world.die()


def test_10_the_file_of_the_ledger_becomes_smaller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "_SPARE", 2)
    monkeypatch.setattr(checkpoints, "_AT_ONCE", 3)
    world = world_with_history(tmp_path / "store", 3)
    with world.store.context.ledger.transaction() as connection:
        connection.execute("UPDATE runs SET output = hex(randomblob(50000)) WHERE number < 3")
    ledger = world.root / "ledger.db"
    world.die()
    world.store.close()
    before = ledger.stat().st_size
    with open_store(world.root, clock=world.clock) as store:
        store.collect_garbage(keep_runs=1)
        assert store.context.ledger.connection.execute("PRAGMA freelist_count").fetchone()[0] <= 2
        assert store.context.ledger.connection.execute("PRAGMA wal_autocheckpoint").fetchone() == (1000,)
    assert ledger.stat().st_size < before - 150_000
    assert store_is_sound(ledger)


def test_10_a_ledger_that_an_older_version_made_keeps_its_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "_SPARE", 2)
    world = world_with_history(tmp_path / "store", 3)
    with world.store.context.ledger.transaction() as connection:
        connection.execute("UPDATE runs SET output = hex(randomblob(50000)) WHERE number < 3")
    world.die()
    world.store.close()
    with sqlite3.connect(world.root / "ledger.db", isolation_level=None) as connection:
        connection.executescript("PRAGMA auto_vacuum = NONE; PRAGMA journal_mode = DELETE; VACUUM;")
    connection.close()
    with open_store(world.root, clock=world.clock) as store:
        assert store.collect_garbage(keep_runs=1).runs == 2
        assert store.context.ledger.connection.execute("PRAGMA freelist_count").fetchone()[0] > 40


def store_is_sound(ledger: Path) -> bool:
    with sqlite3.connect(ledger) as connection:
        found = connection.execute("PRAGMA integrity_check").fetchone()
    connection.close()
    return bool(found == ("ok",))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param({}, "nothing says what to keep", id="no rule"),
        pytest.param({"keep": "soon"}, "keep", id="no duration"),
        pytest.param({"keep_runs": 0}, "keep_runs", id="no run at all"),
        pytest.param({"keep_runs": True}, "keep_runs", id="no number"),
    ],
)
def test_11_what_is_no_rule_is_refused(tmp_path: Path, arguments: dict[str, object], said: str) -> None:
    world = world_with_history(tmp_path / "store", 1)
    with pytest.raises(InvalidArgument, match=said):
        world.store.collect_garbage(**arguments)  # type: ignore[arg-type]
    world.die()


def test_11_without_options_the_settings_hold(tmp_path: Path) -> None:
    world = world_with_history(tmp_path / "store", 5)
    (world.root / "wfctl.toml").write_text("[history]\nkeep_runs = 2\n")
    assert world.store.collect_garbage().keep_runs == 2
    assert instants(world) == ["09:04", "09:05"]
    world.die()


# By the supervisor --------------------------------------------------------------------------------------------------------


def _with_rule(world: World, **history: int) -> None:
    world.die()
    service = FakeService(world.store, {**SETTINGS, "history": history})
    service.fake = world.keeper
    world._service = service


def test_10_the_supervisor_prunes_in_pieces_between_admissions(tmp_path: Path) -> None:
    world = world_with_history(tmp_path / "store", 70, schedules=("a", "b"))
    _with_rule(world, keep_runs=10)
    counts = []
    for _ in range(400):
        world.clock.advance(timedelta(milliseconds=100))
        world.step()
        counts.append(len(world.runs()))
        if counts[-1] == 20:
            break
    assert counts[-1] == 20, counts
    assert max(before - after for before, after in zip([140, *counts], counts, strict=False)) <= 512, "in pieces"
    assert directories(world) >= {run.run_id for run in world.runs()}
    go_on(world, 60)  # another pass once it has grown enough
    for _ in range(400):
        world.clock.advance(timedelta(milliseconds=100))
        world.step()
    assert len(world.runs()) < 60
    assert all(world.store.audit_schedule(schedule_id=name).is_balanced for name in ("a", "b"))
    world.die()


def test_10_without_a_rule_nothing_goes_and_nothing_wakes(tmp_path: Path) -> None:
    world = world_with_history(tmp_path / "store", 5)
    world.clock.advance(1000 * DAY)
    world.step()
    assert world._service is not None
    assert world._service.chores.pruner.next_at() is None
    assert len(world.occurrences("a")) > 5
    world.die()


def test_10_pieces_wait_for_a_quiet_moment_but_not_for_ever(tmp_path: Path) -> None:
    world = world_with_history(tmp_path / "store", 5)
    service = world._service
    assert service is not None
    pruner = operations.Pruner(service.context, lambda: service.settings.__class__(keep_runs=1), service.chores._remover)
    pruner.do(100.0, is_quiet=False)
    pruner.do(101.0, is_quiet=False)
    assert len(world.runs()) == 5
    pruner.do(102.1, is_quiet=False)
    assert len(world.runs()) == 1
    world.die()


def test_11_a_piece_holds_the_ledger_for_less_than_50_ms(tmp_path: Path) -> None:
    """Another process that writes beside `store gc` waits for one small transaction at most."""
    world = world_with_history(tmp_path / "store", 120, schedules=("a", "b"))
    store = open_store(world.root, clock=world.clock)
    waits: list[float] = []
    is_over = threading.Event()

    def write() -> None:
        other = open_store(world.root, clock=world.clock)
        while not is_over.is_set():
            begun = time.monotonic()
            with other.context.ledger.transaction() as connection:
                waits.append(time.monotonic() - begun)
                retention.prune_sessions(connection, world.clock.now() - 1000 * DAY)
            is_over.wait(0.002)
        other.close()

    writer = threading.Thread(target=write)
    writer.start()
    store.collect_garbage(keep_runs=1)
    is_over.set()
    writer.join()
    assert len(waits) > 10
    assert sorted(waits)[len(waits) * 95 // 100] < 0.05, max(waits)
    assert len(world.runs()) == 2
    store.close()
    world.die()

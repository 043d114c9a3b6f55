"""Definition files edited, broken, lost and put back by hand (contract 2.3, 2.4, 2.8, 2.9, 3.2, 3.5; FR-16, FR-17)."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from tests.support.disk import CrashingDisk, SimulatedCrash
from tests.support.schedules import add, admitted, at, cron, history
from tests.support.story import World
from tests.support.waiting import wait_for
from wfctl.core.trigger import CalendarError
from wfctl.errors import Blocked, Deleted, Exists, InvalidDefinition, IoError, NotFound, RevisionConflict
from wfctl.operations import reconcile
from wfctl.operations.store import Store, open_store
from wfctl.operations.views import ScheduleView
from wfctl.store.disk import Disk
from wfctl.store.ledger import definitions

MINUTE = timedelta(minutes=1)


@pytest.fixture(autouse=True)
def nothing_hangs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A pipe that is waited for kills the test; and a supervisor need not wait for a file to rest."""
    monkeypatch.setattr(reconcile, "SETTLED_AFTER", timedelta(0))
    signal.alarm(30)
    yield
    signal.alarm(0)


def file_of(world: World, name: str, kind: str = "schedules") -> Path:
    return world.root / kind / f"{name}.toml"


def rewrite(path: Path, *changes: tuple[str, str]) -> None:
    """Edit a file as an editor does."""
    text = path.read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    put(path, text)


def put(path: Path, text: str | bytes) -> None:
    """Write a private file."""
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    path.chmod(0o600)


def view(world: World, name: str = "b") -> ScheduleView:
    return world.store.get_schedule(schedule_id=name)


def minute(world: World) -> None:
    world.clock.advance(MINUTE)
    world.step()
    world.end()
    world.step()


@pytest.fixture
def three(world: World) -> World:
    """Three healthy schedules under a supervisor."""
    for name in "abc":
        add(world.store, name)
    world.step()
    return world


# Hand edits -----------------------------------------------------------------------------------------------------------


def test_2_3_a_hand_edit_is_a_new_revision_for_any_command_at_once(three: World) -> None:
    path = file_of(three, "b")
    path.write_text(path.read_text().replace('overlap = "skip"', 'overlap = "queue"'))
    found = view(three)
    assert found.revision == 2 and found.definition is not None and found.definition["overlap"] == "queue"
    revisions = three.store.list_revisions(schedule_id="b").items
    assert [each.revision for each in revisions] == [1, 2] and revisions[1].content == path.read_text()
    assert path.read_text().count("queue") == 1, "the text is the author's, and stays as it is"
    assert view(three).revision == 2, "seen once"


def test_2_3_a_supervisor_takes_a_hand_edit_at_its_next_round(three: World) -> None:
    rewrite(file_of(three, "b"), ('"* * * * *"', '"*/2 * * * *"'))
    for _ in range(4):
        minute(three)
    assert admitted(three, "b") == [at("09:02"), at("09:04")]
    assert history(three, "b")[0] == "09:01 skipped-misfire edited", "3.4: it was due before the edit was seen"
    assert [row.revision for row in three.occurrences("b")] == [1, 2, 2]


def test_2_4_a_supervisor_leaves_a_file_alone_until_it_rested(three: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def is_blocked() -> bool:
        three.step()
        found = three.store.context.ledger.connection.execute("SELECT diagnostic FROM definitions WHERE id = 'b'").fetchone()
        return found[0] is not None

    monkeypatch.setattr(reconcile, "SETTLED_AFTER", timedelta(seconds=60))
    file_of(three, "b").write_text("half of a")
    assert not is_blocked()
    monkeypatch.setattr(reconcile, "SETTLED_AFTER", timedelta(seconds=0.2))
    wait_for(is_blocked, "the file to be taken")


def test_2_3_touching_a_file_or_writing_the_same_makes_no_revision(three: World) -> None:
    path = file_of(three, "b")
    before = three.store.context.ledger.connection.execute("PRAGMA data_version").fetchone()
    os.utime(path)
    put(path, path.read_text())
    assert view(three).revision == 1
    three.store.list_schedules()
    assert view(three).revision == 1 and before


def test_2_2_remarks_and_layout_of_a_hand_edit_stay(three: World) -> None:
    path = file_of(three, "b")
    text = "# mine\n" + path.read_text() + "# the end\n"
    put(path, text)
    assert view(three).revision == 2 and path.read_text() == text


def test_3_2_max_steps_cannot_be_cleared_by_hand_either(three: World) -> None:
    three.store.update_schedule(schedule_id="b", expected_revision=1, max_steps=5)
    text = file_of(three, "b").read_text()
    rewrite(file_of(three, "b"), ("max_steps = 5\n", ""))
    found = view(three)
    assert found.state == "blocked" and found.diagnostic is not None
    assert [problem["path"] for problem in found.diagnostic["problems"]] == ["max_steps"]
    put(file_of(three, "b"), text.replace("max_steps = 5", "max_steps = 6"))
    assert (view(three).state, view(three).revision) == ("active", 3)


def test_4_5_a_finished_one_shot_may_still_get_a_remark(world: World) -> None:
    add(world.store, "once", {"kind": "oneshot", "at": "2027-03-01T09:05:00Z"})
    world.step()
    world.clock.set(at("09:05"))
    world.step()
    world.end()
    world.step()
    assert view(world, "once").state == "finished"
    rewrite(file_of(world, "once"), ('misfire = "skip"', 'misfire = "skip"\nnotes = "done"'))
    assert (view(world, "once").state, view(world, "once").revision) == ("finished", 2)
    world.store.update_schedule(schedule_id="once", expected_revision=2, notes="really")
    with pytest.raises(InvalidDefinition):
        world.store.update_schedule(
            schedule_id="once", expected_revision=3, trigger={"kind": "oneshot", "at": "2027-03-01T09:04:00Z"}
        )
    world.store.update_schedule(
        schedule_id="once", expected_revision=3, trigger={"kind": "oneshot", "at": "2027-03-01T09:30:00Z"}
    )
    assert view(world, "once").state == "active"


# Broken ---------------------------------------------------------------------------------------------------------------


def _nothing(path: Path) -> None:
    put(path, b"")


def _half(path: Path) -> None:
    put(path, path.read_bytes()[: path.stat().st_size // 2])


def _nul(path: Path) -> None:
    content = path.read_bytes()
    put(path, content[:20] + b"\0" * 16 + content[36:])


def _wrong_type(path: Path) -> None:
    rewrite(path, ('overlap = "skip"', "overlap = 5"))


def _no_toml(path: Path) -> None:
    put(path, "format = 1\ndeployment = \n")


def _never_fires(path: Path) -> None:
    rewrite(path, ('"* * * * *"', '"0 0 31 2 *"'))


def _unknown_key(path: Path) -> None:
    put(path, 'overlp = "skip"\n' + path.read_text())


def _no_deployment(path: Path) -> None:
    rewrite(path, ('deployment = "d"', 'deployment = "nobody"'))


def _removed(path: Path) -> None:
    path.unlink()


def _directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


def _link(path: Path) -> None:
    target = path.parent.parent / "elsewhere.toml"
    path.rename(target)
    path.symlink_to(target)


def _dangling(path: Path) -> None:
    path.unlink()
    path.symlink_to("nowhere")


def _world_writable(path: Path) -> None:
    path.chmod(0o666)


def _group_writable(path: Path) -> None:
    path.chmod(0o620)


def _too_large(path: Path) -> None:
    put(path, path.read_text() + "#" * 256 * 1024)


SPOILS: list[tuple[Callable[[Path], None], str, int | None]] = [
    (_nothing, "invalid-definition", None),
    (_half, "invalid-definition", None),
    (_nul, "invalid-definition", None),
    (_wrong_type, "invalid-definition", 3),
    (_no_toml, "invalid-definition", 2),
    (_never_fires, "invalid-definition", None),
    (_unknown_key, "invalid-definition", 1),
    (_no_deployment, "not-found", None),
    (_removed, "missing-file", None),
    (_directory, "not-trusted", None),
    (_fifo, "not-trusted", None),
    (_link, "not-trusted", None),
    (_dangling, "not-trusted", None),
    (_world_writable, "not-trusted", None),
    (_group_writable, "not-trusted", None),
    (_too_large, "not-trusted", None),
]


@pytest.mark.parametrize(("spoil", "code", "line"), SPOILS, ids=[spoil.__name__.strip("_") for spoil, *_ in SPOILS])
def test_2_3_and_2_9_damage_blocks_that_one_schedule_until_the_file_is_put_back(
    three: World, spoil: Callable[[Path], None], code: str, line: int | None
) -> None:
    path = file_of(three, "b")
    good = path.read_bytes()
    minute(three)
    spoil(path)
    kept = path.read_bytes() if path.is_file() else None
    found = view(three)
    assert found.state == "blocked" and found.revision == 1 and found.definition is not None, "the old revision stays known"
    assert found.diagnostic is not None and found.diagnostic["code"] == code
    assert found.diagnostic["file"] == str(path) and found.diagnostic["message"]
    if line is not None:
        assert [problem["line"] for problem in found.diagnostic["problems"]] == [line]
    assert found.next_instant is None
    for _ in range(3):
        minute(three)
    assert [len(admitted(three, name)) for name in "abc"] == [4, 1, 4], "the others go on"
    assert history(three, "b") == ["09:01 completed"], "a blocked one consumes nothing"
    assert (path.read_bytes() if path.is_file() else None) == kept, "nothing is repaired silently"
    assert not path.is_dir() or not any(path.iterdir())

    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    path.unlink(missing_ok=True)
    put(path, good)
    minute(three)
    assert view(three).state == "active" and view(three).diagnostic is None and view(three).revision == 1
    missed = [f"09:0{each} skipped-misfire missed" for each in (2, 3, 4)]
    assert history(three, "b") == ["09:01 completed", *missed, "09:05 completed"], "what passed meanwhile is as after downtime"
    minute(three)
    assert admitted(three, "b")[-1] == at("09:06")
    assert [row.instant for row in three.occurrences("b")] == [at("09:00") + i * MINUTE for i in range(1, 7)]


@pytest.mark.parametrize(("spoil", "code", "line"), SPOILS, ids=[spoil.__name__.strip("_") for spoil, *_ in SPOILS])
def test_fr_16_a_new_supervisor_starts_on_damaged_definitions(
    three: World, spoil: Callable[[Path], None], code: str, line: int | None
) -> None:
    spoil(file_of(three, "b"))
    three.die()
    minute(three)
    assert [len(admitted(three, name)) for name in "abc"] == [1, 0, 1]
    assert view(three).state == "blocked"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_fr_17_a_file_of_another_owner_blocks(three: World) -> None:
    path = file_of(three, "b")
    os.chown(path, 1234, -1)
    found = view(three)
    assert found.state == "blocked" and found.diagnostic is not None and "1234" in found.diagnostic["message"]
    os.chown(path, 0, -1)
    assert view(three).state == "active"


def test_fr_17_a_mode_that_is_mended_unblocks(three: World) -> None:
    path = file_of(three, "b")
    path.chmod(0o666)
    assert view(three).state == "blocked"
    path.chmod(0o644)
    assert view(three).state == "active"


def test_2_3_a_blocked_schedule_with_a_candidate_does_not_keep_the_loop_awake(world: World) -> None:
    """Nothing can be decided about it until it is unblocked, whatever ends meanwhile (5.14: no idle wake-ups)."""
    add(world.store, "b", cron("0 * * * *"), overlap="queue", misfire="latest")
    world.step()
    for moment in ("10:00", "11:00"):
        world.clock.set(at(moment))
        world.step()
    assert view(world).candidate is not None
    file_of(world, "b").chmod(0o666)
    assert view(world).state == "blocked" and view(world).candidate is not None, "a block drops no candidate"
    world.step()
    world.end()
    world.step()
    wake = world.step()
    assert wake is None, "nothing lies ahead"
    file_of(world, "b").chmod(0o600)
    world.step()
    world.step()
    assert admitted(world, "b") == [at("10:00"), at("11:00")]


def test_2_3_what_a_file_lacked_may_be_there_later(three: World) -> None:
    """The deployment that a new schedule names is made only afterwards."""
    put(file_of(three, "late"), file_of(three, "b").read_text().replace('deployment = "d"', 'deployment = "later"'))
    found = view(three, "late")
    assert found.state == "blocked" and not found.revision and found.definition is None
    three.store.create_deployment(deployment_id="later", command=["/bin/true"])
    found = view(three, "late")
    assert found.state == "active" and found.revision == 1
    minute(three)
    assert admitted(three, "late") == [at("09:01")]


def test_2_3_a_change_of_a_blocked_schedule_is_refused_and_changes_nothing(three: World) -> None:
    """What stands in the file is not what the change was made for; and it must not admit until somebody looks again."""
    path = file_of(three, "b")
    put(path, "broken")
    with pytest.raises(Blocked) as caught:
        three.store.update_schedule(schedule_id="b", expected_revision=1, notes="x")
    assert str(path) in caught.value.message and caught.value.exit_status == 75
    assert path.read_text() == "broken" and view(three).state == "blocked" and view(three).revision == 1
    put(file_of(three, "d", "deployments"), "broken")
    with pytest.raises(Blocked):
        three.store.update_deployment(deployment_id="d", expected_revision=1, description="x")
    three.store.pause_schedule(schedule_id="b")
    three.store.delete_schedule(schedule_id="b")
    assert view(three).state == "deleted"


def test_4_3_a_calendar_that_can_be_worked_out_again_unblocks(three: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A zone vanished with an upgrade, and is back with the next."""
    from wfctl.core.trigger import CronCalendar

    real = CronCalendar.due

    def gone(self: CronCalendar, *given: object, **more: object) -> object:
        raise CalendarError("no zone Europe/Budapest")

    monkeypatch.setattr(CronCalendar, "due", gone)
    three.clock.advance(MINUTE)
    three.step()
    found = view(three)
    assert found.state == "blocked" and found.diagnostic is not None and found.diagnostic["code"] == "calendar"
    assert history(three, "b") == []
    monkeypatch.setattr(CronCalendar, "due", real)
    assert view(three).state == "active"
    minute(three)
    assert admitted(three, "b") == [at("09:02")]


# Deployments ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spoil", [_no_toml, _removed, _fifo, _world_writable])
def test_3_5_a_broken_deployment_blocks_the_schedules_that_name_it(three: World, spoil: Callable[[Path], None]) -> None:
    three.store.create_deployment(deployment_id="other", command=["/bin/true"])
    add(three.store, "free", deployment_id="other")
    path = file_of(three, "d", "deployments")
    good = path.read_bytes()
    spoil(path)
    minute(three)
    assert [len(admitted(three, name)) for name in ("a", "b", "free")] == [0, 0, 1]
    found = view(three, "a")
    assert found.state == "blocked" and found.diagnostic is not None
    assert found.diagnostic["deployment_id"] == "d" and found.diagnostic["file"] == str(path)
    assert three.store.get_deployment(deployment_id="d").state == "blocked"
    three.store.update_schedule(schedule_id="b", expected_revision=1, deployment_id="other")
    assert view(three, "b").state == "active", "another deployment is a way out"
    path.unlink(missing_ok=True)
    put(path, good)
    minute(three)
    minute(three)
    assert admitted(three, "a")[-1] == at("09:03") and view(three, "a").state == "active"


def test_3_3_a_hand_edit_of_a_deployment_is_for_runs_admitted_from_then_on(three: World) -> None:
    minute(three)
    rewrite(file_of(three, "d", "deployments"), ("/bin/true", "/bin/false"))
    minute(three)
    found = [(run.deployment_revision, run.schedule_id) for run in three.runs() if run.schedule_id == "a"]
    assert found == [(1, "a"), (2, "a")]
    programs = [request.program for request in three.keeper.world.launches]
    assert programs == ["/bin/true"] * 3 + ["/bin/false"] * 3


# New, deleted, foreign ------------------------------------------------------------------------------------------------


def test_2_4_a_new_file_is_a_creation_at_the_time_it_is_seen(three: World) -> None:
    shutil.copyfile(file_of(three, "a"), file_of(three, "new"))
    put(file_of(three, "new"), file_of(three, "new").read_text())
    three.clock.set(at("09:10:15"))
    found = view(three, "new")
    assert found.state == "active" and found.revision == 1 and found.effective_from == at("09:10:15")
    minute(three)
    assert admitted(three, "new") == [at("09:11")], "nothing is backfilled"
    with pytest.raises(Exists):
        add(three.store, "new")


def test_2_4_a_file_of_a_deleted_id_at_its_last_content_is_removed_any_other_reported(three: World) -> None:
    good = file_of(three, "b").read_bytes()
    three.store.delete_schedule(schedule_id="b")
    assert not file_of(three, "b").exists()
    put(file_of(three, "b"), good)
    assert reconcile.everything(three.store.context) == []
    assert not file_of(three, "b").exists()
    put(file_of(three, "b"), good + b"# another\n")
    (report,) = reconcile.everything(three.store.context)
    assert str(file_of(three, "b")) in report and "deleted" in report
    assert file_of(three, "b").exists(), "it is not ours to remove"
    assert view(three).state == "deleted" and view(three).revision == 1
    minute(three)
    assert admitted(three, "b") == []
    with pytest.raises(Exists):
        add(three.store, "b")


def test_2_4_delete_leaves_a_file_that_was_edited_meanwhile(three: World) -> None:
    put(file_of(three, "b"), "not what it was")
    three.store.delete_schedule(schedule_id="b")
    assert file_of(three, "b").read_text() == "not what it was"
    assert len(reconcile.everything(three.store.context)) == 1


@pytest.mark.parametrize("name", ["X.toml", "a b.toml", "a..b.toml", "notes.txt", "b.toml~", "-x.toml", "é.toml", ".hidden"])
def test_2_8_a_file_that_no_definition_can_have_is_reported_and_ignored(three: World, name: str) -> None:
    shutil.copyfile(file_of(three, "a"), three.root / "schedules" / name)
    (report,) = reconcile.everything(three.store.context)
    assert name in report
    assert [found.id for found in three.store.list_schedules()] == ["a", "b", "c"]
    assert (three.root / "schedules" / name).exists()


def test_2_2_what_a_crash_left_of_a_write_is_no_definition(three: World) -> None:
    (three.root / "schedules" / ".b.toml.0123456789ab.tmp").write_text("half")
    assert reconcile.everything(three.store.context) == []


@pytest.mark.parametrize("name", ["../a", "a/b", "", "A", "a..b", "x" * 129, "a\0b", "."])
def test_2_8_nothing_but_an_id_ever_reaches_a_path(three: World, name: str) -> None:
    reconcile.one(three.store.context, "schedule", name)
    with pytest.raises(InvalidDefinition):
        three.store.create_schedule(schedule_id=name, deployment_id="d", trigger=cron("* * * * *"))
    if name:
        with pytest.raises(NotFound):
            three.store.get_schedule(schedule_id=name)


def test_2_3_a_definitions_directory_that_is_gone_blocks_all_of_it_and_stops_nothing(three: World) -> None:
    moved = three.root / "moved"
    (three.root / "schedules").rename(moved)
    assert [found.state for found in three.store.list_schedules()] == ["blocked"] * 3
    minute(three)
    assert admitted(three, "a") == []
    moved.rename(three.root / "schedules")
    minute(three)
    minute(three)
    assert [found.state for found in three.store.list_schedules()] == ["active"] * 3
    assert admitted(three, "a")[-1] == at("09:03")


# Unfinished writes ----------------------------------------------------------------------------------------------------


def _crashed_update(world: World) -> None:
    """A change is committed, and its command dies before it writes the file."""
    store = open_store(world.root, clock=world.clock)
    store.context.disk = CrashingDisk(0)
    with pytest.raises(SimulatedCrash):
        store.update_schedule(schedule_id="b", expected_revision=1, notes="committed")
    store.close()


@pytest.mark.parametrize("who", ["another command", "the supervisor", "a new supervisor"])
def test_2_4_an_unfinished_write_is_finished_by_whoever_looks(three: World, who: str) -> None:
    before = file_of(three, "b").read_text()
    _crashed_update(three)
    assert file_of(three, "b").read_text() == before
    if who == "a new supervisor":
        three.die()
        three.step()
    elif who == "the supervisor":
        three.step()
    else:
        view(three)
    assert 'notes = "committed"' in file_of(three, "b").read_text()
    assert view(three).revision == 2 and view(three).state == "active"


def test_2_4_a_hand_edit_over_an_unfinished_write_is_the_next_revision(three: World) -> None:
    _crashed_update(three)
    rewrite(file_of(three, "b"), ('overlap = "skip"', 'overlap = "queue"'))
    found = view(three)
    assert found.revision == 3 and found.definition is not None
    assert found.definition["overlap"] == "queue" and found.definition["notes"] is None
    assert "committed" not in file_of(three, "b").read_text()


def test_2_4_a_file_lost_before_the_write_was_finished_goes_on_when_it_is_back(three: World) -> None:
    before = file_of(three, "b").read_bytes()
    _crashed_update(three)
    file_of(three, "b").unlink()
    assert view(three).state == "blocked"
    put(file_of(three, "b"), before)
    found = view(three)
    assert found.state == "active" and found.revision == 2
    assert found.next_instant == at("09:01")
    minute(three)
    assert admitted(three, "b") == [at("09:01")]


def test_2_4_a_change_that_reported_failure_never_takes_effect(three: World) -> None:
    before = file_of(three, "b").read_bytes()

    class Refused(Disk):
        def point(self, name: str) -> None:
            if name == "commit":
                raise IoError("no space", {"errno": 28})

    store = open_store(three.root, clock=three.clock, disk=Refused())
    with pytest.raises(IoError):
        store.update_schedule(schedule_id="b", expected_revision=1, notes="never")
    store.close()
    assert view(three).revision == 1 and file_of(three, "b").read_bytes() == before


class _FullDisk(Disk):
    """Writes no file; the ledger goes on."""

    def write_file(self, path: Path, data: bytes, mode: int = 0o600) -> None:
        raise IoError(f"cannot write {path}: No space left on device", {"errno": 28, "path": str(path)})


def test_2_4_a_change_whose_file_must_wait_returns_and_is_finished_later(three: World) -> None:
    store = open_store(three.root, clock=three.clock, disk=_FullDisk())
    assert store.update_schedule(schedule_id="b", expected_revision=1, notes="waits").revision == 2
    (report,) = reconcile.everything(store.context)
    assert "No space left" in report and "b.toml" in report, "the others are looked at all the same"
    store.close()
    minute(three)
    assert 'notes = "waits"' in file_of(three, "b").read_text()


# Two at once ----------------------------------------------------------------------------------------------------------


def _both(world: World, act: Callable[[Store, int], None]) -> None:
    """Run the same act in two threads on two stores of their own."""
    failures: list[BaseException] = []
    barrier = threading.Barrier(2)

    def run(number: int) -> None:
        try:
            with open_store(world.root, clock=world.clock) as store:
                barrier.wait(10)
                act(store, number)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert not failures, failures


def test_2_4_of_two_who_write_at_once_the_file_ends_with_the_last_revision(three: World) -> None:
    def change(store: Store, number: int) -> None:
        done = 0
        while done < 8:
            seen = store.get_schedule(schedule_id="b").revision
            try:
                store.update_schedule(schedule_id="b", expected_revision=seen, notes=f"{number} {done}")
                done += 1
            except RevisionConflict:
                continue

    _both(three, change)
    found = view(three)
    assert found.revision == 17 and found.state == "active"
    assert file_of(three, "b").read_text() == three.store.list_revisions(schedule_id="b", limit=100).items[-1].content


def test_2_4_a_slow_writer_never_puts_an_older_content_over_a_newer_one(three: World) -> None:
    """The first command stands still between its commit and its write; the second changes the schedule meanwhile."""

    class Slow(Disk):
        def point(self, name: str) -> None:
            found = first.context.ledger.connection.execute("SELECT revision FROM definitions WHERE id = 'b'").fetchone()
            if name == "committed" and found == (2,) and not stopped:
                stopped.append(name)
                second = open_store(three.root, clock=three.clock)
                second.update_schedule(schedule_id="b", expected_revision=2, notes="second")
                second.close()

    stopped: list[str] = []
    first = open_store(three.root, clock=three.clock, disk=Slow())
    first.update_schedule(schedule_id="b", expected_revision=1, notes="first")
    first.close()
    assert 'notes = "second"' in file_of(three, "b").read_text()
    assert view(three).revision == 3 and view(three).state == "active"


def test_2_3_two_who_see_a_hand_edit_record_it_once(three: World) -> None:
    for turn in range(5):
        rewrite(file_of(three, "b"), ("format = 1", f"# {turn}\nformat = 1"))
        _both(three, lambda store, _: store.get_schedule(schedule_id="b") and None)
        assert view(three).revision == 2 + turn


def test_2_4_two_who_create_the_same_id_leave_one(three: World) -> None:
    outcomes: list[str] = []

    def create(store: Store, number: int) -> None:
        try:
            store.create_schedule(schedule_id="new", deployment_id="d", trigger=cron("* * * * *"), notes=str(number))
            outcomes.append(str(number))
        except Exists:
            outcomes.append("exists")

    _both(three, create)
    assert sorted(outcomes)[1] == "exists"
    found = view(three, "new")
    assert found.definition is not None and found.definition["notes"] == min(outcomes)
    assert f'notes = "{min(outcomes)}"' in file_of(three, "new").read_text()


def test_2_4_one_deletes_while_the_other_changes(three: World) -> None:
    def act(store: Store, number: int) -> None:
        for _ in range(5):
            try:
                if number:
                    store.delete_schedule(schedule_id="b")
                else:
                    store.update_schedule(schedule_id="b", expected_revision=view(three).revision, notes="x")
            except (Deleted, RevisionConflict):
                pass

    seen = view(three).revision
    with open_store(three.root, clock=three.clock) as store:
        store.update_schedule(schedule_id="b", expected_revision=seen, notes="before")
    _both(three, lambda store, number: act(store, number) if number else store.get_schedule(schedule_id="b") and None)
    found = view(three)
    assert found.state == "deleted" and found.diagnostic is None
    assert reconcile.everything(three.store.context) == []
    assert not file_of(three, "b").exists()


def test_2_3_of_files_only_the_named_are_taken_up_once_they_were_left_alone_and_what_is_blocked_is_looked_at_again(
    three: World,
) -> None:
    context = three.store.context

    def edit(name: str, old: str, new: str) -> None:
        path = file_of(three, name)
        path.write_text(path.read_text().replace(old, new))

    def look(*names: str) -> bool:
        named = [("schedule", name) for name in names]
        youngest, ignored = reconcile.these(context, named, settled_for=timedelta(seconds=0.2))
        assert ignored == []
        return youngest is None or youngest >= timedelta(seconds=0.2)

    edit("a", 'overlap = "skip"', 'overlap = "queue"')
    edit("b", 'overlap = "skip"', 'overlap = "queue"')
    assert not look("a"), "it was changed just now"
    wait_for(lambda: look("a"), "the file to be left alone")
    revisions = {row.id: row.revision for row in definitions.list_all(context.ledger.connection, "schedule")}
    assert revisions == {"a": 2, "b": 1, "c": 1}
    edit("b", "format = 1", "format = 99")
    wait_for(lambda: look("b"), "the file to be left alone")
    assert [row.id for row in definitions.blocked(context.ledger.connection)] == ["b"]
    edit("b", "format = 99", "format = 1")
    wait_for(lambda: look("c"), "the blocked one to be looked at, whichever is named")
    assert definitions.blocked(context.ledger.connection) == []


def test_2_4_an_unfinished_write_is_finished_whichever_files_are_named(three: World) -> None:
    _crashed_update(three)
    reconcile.these(three.store.context, [("schedule", "a")], settled_for=timedelta(0))
    assert 'notes = "committed"' in file_of(three, "b").read_text()

"""FR-16: what is torn blocks its own schedule, and a damaged ledger is left as it is (contract 2.3, 7.4, 7.5)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.commands import Wfctl
from tests.support.damage import execute, number_of
from tests.support.place import Place
from tests.support.processes import Supervisor, wait_for
from tests.support.witness import Witness


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _first_half(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def _nul(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:8] + bytes(16) + content[24:])


def _wrong_type(path: Path) -> None:
    path.write_text(path.read_text().replace('deployment = "quick"', "deployment = 7"))


def _removed(path: Path) -> None:
    path.unlink()


def _directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


TEARS = (_empty, _first_half, _nul, _wrong_type, _removed, _directory, _fifo)


@pytest.mark.parametrize("tear", TEARS, ids=[tear.__name__.strip("_") for tear in TEARS])
def test_fr_16_a_torn_definition_blocks_its_own_schedule(
    place: Place, witness: Witness, ledger_check: Callable[..., None], tmp_path: Path, tear: Callable[[Path], None]
) -> None:
    command = Wfctl(place.root, tmp_path)
    place.store.create_deployment(deployment_id="quick", command=witness.command("true"))
    for name in ("one", "two", "three"):
        place.every_second(name, "quick", overlap="parallel", max_active_runs=50)
    path = place.root / "schedules" / "two.toml"
    good = path.read_bytes()
    tear(path)
    torn = _kind(path)

    supervisor = place.supervisor()
    wait_for(lambda: len(witness.runs("one")) > 1 and len(witness.runs("three")) > 1, what="the other two")
    assert not witness.runs("two")
    blocked = {each["id"]: each["diagnostic"] for each in command("status", "-o", "json").json["blocked"]}
    assert list(blocked) == ["two"]
    assert blocked["two"]["file"] == str(path) and blocked["two"]["message"]
    assert f"schedule two is blocked: {blocked['two']['message'].splitlines()[0]}" in supervisor.text()
    if tear in (_nul, _wrong_type):
        assert "line" in blocked["two"]["message"], "file, line and reason (2.3)"
    known = command.ok("schedule", "show", "two", "-o", "json").json
    assert (known["state"], known["revision"], known["definition"]["trigger"]["every"]) == ("blocked", 1, "1s")
    assert _kind(path) == torn, "nothing is deleted or repaired silently"

    if path.is_dir():
        path.rmdir()
    path.unlink(missing_ok=True)
    path.write_bytes(good)
    path.chmod(0o600)
    wait_for(lambda: witness.runs("two"), what="the good file to be taken up")
    assert place.store.get_schedule(schedule_id="two").revision == 1
    wait_for(lambda: "schedule two is not blocked any more" in supervisor.text(), what="a line in the log")
    assert supervisor.stop() == 0
    assert "Traceback" not in supervisor.text()
    ledger_check(place.store, witness)


def _kind(path: Path) -> object:
    if path.is_dir():
        return "directory"
    if path.is_fifo():
        return "fifo"
    return path.read_bytes() if path.exists() else None


@pytest.mark.parametrize("words", [("supervise",), ("schedules",), ("store", "verify"), ("store", "info")], ids=" ".join)
def test_fr_16_a_damaged_ledger_is_left_as_it_is(place: Place, tmp_path: Path, words: tuple[str, ...]) -> None:
    """Contract 7.5: exit status 65, the file untouched."""
    place.job("true")
    place.every_second()
    place.store.close()
    ledger = place.root / "ledger.db"
    content = b"damaged!" + ledger.read_bytes()[8:]
    ledger.write_bytes(content)
    done = Wfctl(place.root, tmp_path)(*words)
    assert done.status == 65, done
    assert "left as it is" in done.err or "left as it was" in done.err
    assert "Traceback" not in done.err
    assert ledger.read_bytes() == content
    assert not (place.root / "ledger.db-wal").exists()


def test_fr_16_a_page_that_is_damaged_is_found_by_verify(place: Place, tmp_path: Path) -> None:
    place.job("true")
    place.every_second()
    place.store.close()
    ledger = place.root / "ledger.db"
    content = ledger.read_bytes()
    ledger.write_bytes(content[:16384] + b"\xff" * 64 + content[16384 + 64 :])
    done = Wfctl(place.root, tmp_path)("store", "verify")
    assert done.status == 65, done
    assert "Traceback" not in done.err


def test_fr_16_an_unknown_status_blocks_its_schedule(
    place: Place, witness: Witness, ledger_check: Callable[..., None], tmp_path: Path
) -> None:
    command = Wfctl(place.root, tmp_path)
    place.store.create_deployment(deployment_id="quick", command=witness.command("true"))
    for name in ("one", "two", "three"):
        place.every_second(name, "quick", overlap="parallel", max_active_runs=50)
    with place.supervisor() as supervisor:
        wait_for(lambda: len(witness.runs("two")) > 2, what="some history")
        assert supervisor.stop() == 0
    two = number_of(place.root, "two")
    before = len(witness.runs("two"))
    execute(
        place.root,
        f"UPDATE occurrences SET status = 'banana' WHERE schedule = {two} AND place ="
        f" (SELECT max(place) FROM occurrences WHERE schedule = {two} AND run IS NOT NULL)",
    )
    others = len(witness.runs("one"))
    supervisor = place.supervisor()
    wait_for(lambda: len(witness.runs("one")) > others + 2, what="the others")
    assert len(witness.runs("two")) == before
    listed = command.ok("schedules", "-o", "json").json["items"]
    assert {each["id"]: each["state"] for each in listed} == {"one": "active", "two": "blocked", "three": "active"}
    shown = command.ok("occurrences", "two", "-o", "json").json["items"]
    assert [each["status"] for each in shown].count(None) == 1, "shown, and nothing made up for it"
    path = place.root / "schedules" / "two.toml"
    path.touch()  # a file that is fine does not clear it
    assert command("reload").status == 0
    assert place.store.get_schedule(schedule_id="two").diagnostic["code"] == "contradiction"  # type: ignore[index]
    for change in (("schedule", "set", "two", "notes=x"), ("schedule", "pause", "two"), ("schedule", "delete", "two", "--yes")):
        assert command(*change).status == 75, "nothing is settled by records that contradict each other"

    found = command("store", "verify")
    assert found.status == 1
    for named in ("unknown-status", "banana", "occurrence two@", "wfctl store verify --fix unknown-status two"):
        assert named in found.out
    dry = command("store", "verify", "--fix", "unknown-status", "two", "--dry-run")
    assert dry.status == 1 and place.store.get_schedule(schedule_id="two").state == "blocked"
    assert command("store", "verify", "--fix", "unknown-status").status == 2, "what is remedied is named"
    assert command("store", "verify", "--fix", "unknown-stat", "two").status == 2
    command.ok("store", "verify", "--fix", "unknown-status", "two")
    command.ok("store", "verify", "--deep")
    wait_for(lambda: len(witness.runs("two")) > before, what="the remedied schedule")
    assert supervisor.stop() == 0
    assert "Traceback" not in supervisor.text()
    ledger_check(place.store, witness)


def test_fr_16_a_lost_run_never_clears_an_overlap(
    place: Place, witness: Witness, ledger_check: Callable[..., None], tmp_path: Path
) -> None:
    """The row of a run at work is gone: its slot stays taken, and the remedy has it adopted."""
    command = Wfctl(place.root, tmp_path)
    place.store.create_deployment(deployment_id="quick", command=witness.command("true"))
    waits = "while [ ! -e $NOTES/go ]; do sleep 0.02; done"
    place.store.create_deployment(deployment_id="slow", command=witness.command(waits), environment={"NOTES": str(place.notes)})
    place.every_second("other", "quick")
    place.every_second("slow", "slow")
    first = place.supervisor()
    wait_for(lambda: witness.runs("slow"), what="the slow run")
    run_id = place.store.list_runs(schedule_id="slow").items[0].run_id
    wait_for(lambda: place.store.inspect_run(run_id=run_id).status == "running", what="its start being recorded")
    first.kill()
    execute(place.root, f"DELETE FROM runs WHERE number = {int(run_id[4:])}")

    begun = len(witness.runs("other"))
    with place.supervisor() as supervisor:
        wait_for(lambda: len(witness.runs("other")) > begun + 2, what="the other schedule")
        assert len(witness.runs("slow")) == 1, "an overlap is never cleared"
        assert place.store.get_schedule(schedule_id="slow").state == "blocked"
        found = command("store", "verify")
        assert found.status == 1 and "occurrence-without-run" in found.out and run_id in found.out
        fixed = command("store", "verify", "--fix", "occurrence-without-run", "slow")
        assert fixed.status == 0, fixed
        assert place.until(run_id, "running").run_id == run_id
        assert len(witness.runs("slow")) == 1
        (place.notes / "go").touch()
        assert place.until(run_id, "completed").exit_status == 0, "its own supervisor took it up again"
        wait_for(lambda: len(witness.runs("slow")) > 1, what="the next run")
        assert supervisor.stop() == 0
    command.ok("store", "verify")
    ledger_check(place.store, witness)


def test_2_8_an_older_ledger_put_back_uses_no_id_and_no_occurrence_again(
    place: Place, witness: Witness, tmp_path: Path
) -> None:
    command = Wfctl(place.root, tmp_path)
    place.store.create_deployment(deployment_id="quick", command=witness.command("true"))
    place.every_second("s", "quick")
    place.store.close()
    older = tmp_path / "older.db"
    shutil.copy(place.root / "ledger.db", older)
    with Supervisor(place.root) as supervisor:
        supervisor.wait_ready()
        wait_for(lambda: len(witness.runs("s")) > 2, what="some runs")
        assert supervisor.stop() == 0
    lost = sorted(path.name for path in (place.root / "runs").iterdir() if path.name.startswith("run-"))
    shutil.copy(older, place.root / "ledger.db")
    (place.root / "runs" / "run-000099").mkdir(mode=0o700)  # only reserved, and empty of records
    said = command("store", "verify")
    assert f"{lost[0]} is not known to the ledger" in said.out, said
    command.ok("deployment", "add", "hand", "--", "/bin/true")
    by_hand = command.ok("run", "start", "hand", "-o", "json").json["run_id"]
    assert by_hand not in lost, "no id is used again by whoever comes first"

    with Supervisor(place.root) as supervisor:
        supervisor.wait_ready()
        wait_for(lambda: len(witness.runs("s")) > len(lost) + 1, what="new runs")
        assert supervisor.stop() == 0
    for name in lost:
        run = command.ok("run", "show", name, "-o", "json").json
        assert (run["status"], run["reason"]["code"], run["schedule_id"]) == ("failed", "ledger-restored", "s")
        occurrence = command.ok("occurrence", "show", f"s@{run['instant']}", "-o", "json").json
        assert (occurrence["run_id"], occurrence["status"]) == (name, "failed")
    assert not witness.twice
    assert len({each.occurrence for each in witness.seen.values()}) == len(witness.seen), "none was used twice"
    assert not (place.root / "runs" / "run-000099").exists()
    verified = command.ok("store", "verify")
    assert f"{len(lost)} runs were entered as failed (ledger-restored)" in verified.out

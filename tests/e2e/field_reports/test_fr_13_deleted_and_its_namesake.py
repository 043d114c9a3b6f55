"""FR-13: a deleted schedule keeps its history, its running run and its name (contract 2.4, 2.8, 5.12)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.support.commands import Wfctl
from tests.support.place import Place
from tests.support.processes import wait_for
from tests.support.witness import Witness


def test_fr_13_history_stays_and_the_id_is_used_up(
    place: Place, witness: Witness, ledger_check: Callable[..., None], tmp_path: Path
) -> None:
    command = Wfctl(place.root, tmp_path)
    add = ("schedule", "add", "x", "--deployment", "d", "--every", "1s")
    script = "while [ ! -e $NOTES/go ]; do sleep 0.02; done; exit 3"
    place.store.create_deployment(deployment_id="d", command=witness.command(script), environment={"NOTES": str(place.notes)})
    supervisor = place.supervisor("--poll-interval-s", "60")
    command.ok(*add)
    wait_for(lambda: witness.runs("x"), what="the run")
    path = place.root / "schedules" / "x.toml"
    content = path.read_text()
    command.ok("schedule", "delete", "x", "--yes")
    assert not path.exists()
    assert "run-000001" in command.ok("runs").out
    assert command.ok("run", "show", "run-000001", "-o", "json").json["schedule_id"] == "x"
    assert command.ok("occurrences", "x", "-o", "json").json["items"][0]["run_id"] == "run-000001"
    (place.notes / "go").touch()
    ended = place.until("run-000001", "failed")
    assert (ended.exit_status, len(witness.runs("x"))) == (3, 1)
    assert command.ok("occurrences", "x", "-o", "json").json["items"][0]["status"] == "failed"

    assert command(*add).status == 81
    supervisor.stop()
    supervisor = place.supervisor("--poll-interval-s", "60")
    assert command(*add).status == 81

    for text, is_kept in ((content, False), (content.replace("1s", "2s"), True)):
        path.write_text(text)
        path.chmod(0o600)
        command.ok("reload")
        wait_for(lambda is_kept=is_kept: path.exists() is is_kept, what=f"the file being {'kept' if is_kept else 'removed'}")  # type: ignore[misc]
        assert place.store.get_schedule(schedule_id="x").state == "deleted", "a file does not revive it"
        assert ("x" in str(place.store.server_status().problems)) is is_kept, "any other content is reported"
        assert command(*add).status == 81

    refused = command("schedule", "add", "X", *add[3:])
    assert refused.status == 65 and "an id is lower-case letters" in refused.err, refused
    assert "x" not in command.ok("schedules", "-o", "name").out.split()
    assert "x" in command.ok("schedules", "--include-deleted", "-o", "name").out.split()
    assert len(witness.runs("x")) == 1
    assert supervisor.stop() == 0
    command.ok("occurrence", "audit", "x")
    command.ok("store", "verify")
    ledger_check(place.store, witness)

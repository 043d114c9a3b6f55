"""FR-20: what is started is what is written, and no death is a success (contract 3.1, 3.6, 5.9, 6.4, 6.5, 6.10)."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import Wfctl
from tests.support.drive import MINUTE, Drive, moment
from tests.support.place import FINAL, Place
from tests.support.processes import wait_for
from tests.support.witness import Witness
from wfctl import InvalidDefinition

Check = Callable[..., None]
WORDS = ["100%", "a b", "$HOME", "x;y", "*", "ż😀", ""]
OURS = {
    "RUN_ID", "SCHEDULE_ID", "OCCURRENCE", "REVISION", "ATTEMPT", "STEP", "EXECUTION", "STORE", "INPUT", "FILES", "OUTPUT",
    "CHECKPOINT", "INTERRUPT",
}  # fmt: skip
ENDS = {
    "zero": ("exit 0", 0, None),
    "one": ("exit 1", 1, None),
    "e126": ("exit 126", 126, None),
    "e127": ("exit 127", 127, None),
    "e255": ("exit 255", 255, None),
    "kill": ("kill -KILL $$", None, signal.SIGKILL),
    "segv": ("kill -SEGV $$", None, signal.SIGSEGV),
}


def test_fr_20_arguments_environment_and_text(place: Place, tmp_path: Path, ledger_check: Check) -> None:
    """No shell, no `%`, byte for byte, in a supervisor of the C locale; exactly the environment of 6.4."""
    place.store.create_deployment(deployment_id="d", command=["printf", "%s|", *WORDS], description="raport-ż")
    place.store.create_deployment(deployment_id="env", command=["env", "-0"], environment={"MINE": "żółw = 1"})
    place.once("argv", notes="raport-ż")
    at = place.once("env", "env")
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C", "PYTHONPATH": str(Path(__file__).parents[3]), "SECRET": "x"}
    place.supervisor(environment=environment)
    runs = {run.schedule_id: place.until(run.run_id, *FINAL) for run in [place.run(index) for index in range(2)]}
    assert place.store.run_log_paths(runs["argv"].run_id)[0].read_text() == "|".join(WORDS) + "|"
    said = place.store.run_log_paths(runs["env"].run_id)[0].read_bytes().decode().split("\0")
    found = dict(line.split("=", 1) for line in said if line)
    assert found.pop("MINE") == "żółw = 1"
    assert found["PATH"] == "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    assert (found["SHELL"], found["LANG"], found["WFCTL_ATTEMPT"]) == ("/bin/sh", "C.UTF-8", "1")
    assert found["WFCTL_OCCURRENCE"] == at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    ours = {name for name in found if name.startswith("WFCTL_")}
    assert ours == {f"WFCTL_{name}" for name in OURS}
    assert set(found) - ours == {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TRACEPARENT"} | set(found) & {"TZ"}
    for locale in ("C.UTF-8", "C"):
        command = Wfctl(place.root, tmp_path)
        command.environ |= {"LC_ALL": locale, "LANG": locale}
        for words in (("schedule", "show", "argv"), ("deployment", "show", "d"), ("run", "logs", runs["argv"].run_id)):
            out = command.ok(*words).out
            assert ("ż😀" if words[0] == "run" else "raport-ż") in out, (locale, words)
    ledger_check(place.store)


def test_fr_20_ends(place: Place, witness: Witness, ledger_check: Check) -> None:
    for name, (script, _, _) in ENDS.items():
        place.store.create_deployment(deployment_id=name, command=witness.command(script))
        place.once(name, name, in_s=0.8)
    supervisor = place.supervisor("--max-concurrent-runs", "9")
    for run in [place.run(index) for index in range(len(ENDS))]:
        ended = place.until(run.run_id, *FINAL)
        _, exit_status, number = ENDS[str(ended.schedule_id)]
        assert (ended.exit_status, ended.signal) == (exit_status, number)
        assert ended.status == ("completed" if exit_status == 0 else "failed")
        code = None if exit_status == 0 else "exit" if number is None else "signal"
        assert (ended.reason or {}).get("code") == code
    assert supervisor.stop() == 0
    ledger_check(place.store, witness)


@pytest.mark.parametrize(
    ("command", "limit"),
    [
        pytest.param(["echo", "x" * 131_072], "131072", id="an argument of 131,072 bytes"),
        pytest.param(["echo", *["x"] * 1_000], "1000", id="1,001 arguments"),
    ],
)
def test_fr_20_an_oversized_command_is_refused_when_it_is_saved(place: Place, command: list[str], limit: str) -> None:
    with pytest.raises(InvalidDefinition) as refused:
        place.store.create_deployment(deployment_id="big", command=command)
    assert limit in refused.value.message.replace(",", ""), refused.value.message[:300]
    assert not (place.root / "deployments" / "big.toml").exists()


def test_fr_20_a_program_that_is_not_there_is_refused(place: Place, tmp_path: Path, ledger_check: Check) -> None:
    """Not found, not executable: `preflight-rejected`, no slot, no run."""
    plain = tmp_path / "plain"
    plain.write_text("no program")
    place.store.create_deployment(deployment_id="plain", command=[str(plain)])
    place.store.create_deployment(deployment_id="missing", command=["no-such-program-anywhere"])
    for name in ("plain", "missing"):
        place.once(name, name)
    place.supervisor()
    for name in ("plain", "missing"):
        wait_for(lambda name=name: place.statuses(name) == ["preflight-rejected"], what=name)  # type: ignore[misc]
        row = place.store.list_schedule_occurrences(schedule_id=name).items[0]
        assert row.reason is not None
        assert (row.reason["code"], row.run_id) == ("preflight", None)
    assert not place.store.list_runs().items
    assert place.store.server_status().slots_used == 0
    ledger_check(place.store)


def test_fr_20_a_program_that_goes_between_preflight_and_launch_fails_once(
    tmp_path: Path, ledger_check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o700)
    with Drive(tmp_path / "store", moment("2027-03-01T09:00:30")) as drive:
        drive.deployment([str(program)])
        drive.cron("s", "1 9 * * *")
        drive.step()
        launch = drive.service.driver.launch_admitted

        def late(new: Any) -> None:
            program.unlink(missing_ok=True)
            launch(new)

        monkeypatch.setattr(drive.service.driver, "launch_admitted", late)
        drive.to(moment("2027-03-01T09:03"))
        (run,) = drive.store.list_runs().items
        assert run.status == "failed" and run.reason is not None
        assert (run.reason["code"], run.reason["errno"]) == ("launch-failed", 2)
        assert drive.store.server_status().slots_used == 0
        assert [row.status for row in drive.rows("s")] == ["failed"], "no loop"
        drive.clock.advance(MINUTE)
        ledger_check(drive.store)


def test_fr_20_a_program_that_goes_between_two_steps_fails_once(place: Place, tmp_path: Path, ledger_check: Check) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\nrm $0\n")
    program.chmod(0o700)
    steps = [{"name": name, "command": [str(program)]} for name in ("one", "two")]
    place.store.create_deployment(deployment_id="goes", steps=steps)
    place.once("goes", "goes")
    place.supervisor()
    run = place.until(place.run().run_id, *FINAL)
    assert run.status == "failed" and run.reason is not None
    assert (run.reason["code"], run.reason["errno"], run.reason["step"]) == ("launch-failed", 2, "two")
    assert place.store.server_status().slots_used == 0
    ledger_check(place.store)

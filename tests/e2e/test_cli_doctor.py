"""`wfctl doctor`: each thing with what it found and, where that is wrong, a command to run (UX.md 4.11; contract 2.7, 7.4)."""

from __future__ import annotations

import shlex
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import Wfctl
from wfctl.operations import machine

ALWAYS = {"python", "croniter", "tz database", "clock", "place", "settings", "free space", "store"}
OF_A_STORE = {"descriptors", "lock", "keeper", "clock and ledger", "calendars", "blocked schedules"}


def checks(wfctl: Wfctl, status: int) -> dict[str, dict[str, Any]]:
    done = wfctl("doctor", "-o", "json")
    assert done.status == status, done
    assert done.json["ok"] == (status == 0)
    return {each["name"]: each for each in done.json["checks"]}


def test_a_sound_store_is_all_right(wfctl: Wfctl) -> None:
    found = checks(wfctl, 0)
    assert set(found) >= ALWAYS | OF_A_STORE
    assert all(each["ok"] and each["detail"] and each["fix"] is None for each in found.values())
    with wfctl.supervisor() as supervisor:
        found = checks(wfctl, 0)
        assert f"pid {supervisor.pid}" in found["lock"]["detail"]
        assert f"pid {supervisor.pid}" in found["descriptors"]["detail"]
        assert "answers in" in found["socket"]["detail"]
        assert "alive, pid" in found["keeper"]["detail"]
        supervisor.send_signal(signal.SIGSTOP)
        try:
            found = checks(wfctl, 1)
        finally:
            supervisor.send_signal(signal.SIGCONT)
        assert not found["socket"]["ok"]
        assert found["socket"]["fix"] == f"kill -QUIT {supervisor.pid}"


def test_without_a_store_it_says_init(bare: Wfctl) -> None:
    found = checks(bare, 1)
    assert set(found) == ALWAYS
    assert shlex.split(found["store"]["fix"]) == ["wfctl", "--store", str(bare.root), "init"]


def test_every_fix_is_a_command(wfctl: Wfctl) -> None:
    wfctl.ok("deployment", "add", "d", "--", "/bin/true")
    wfctl.ok("schedule", "add", "a", "--deployment", "d", "--every", "1h")
    wfctl.ok("schedule", "add", "b", "--deployment", "d", "--every", "1h")
    for name in ("a", "b"):
        (wfctl.root / "schedules" / f"{name}.toml").write_text("not TOML [")
    wfctl("schedule", "show", "b")  # which takes note of it
    (wfctl.root / "wfctl.toml").write_text("[supervisor]\nslots = 3\n")
    found = checks(wfctl, 1)
    wrong = {name: each["fix"] for name, each in found.items() if not each["ok"]}
    assert set(wrong) == {"settings", "schedule a", "schedule b"}
    assert wrong["schedule a"] == "wfctl schedule edit a"
    assert all(shlex.split(fix)[0] in ("wfctl", "${EDITOR:-vi}") for fix in wrong.values())
    wfctl.root.chmod(0o770)
    found = checks(wfctl, 1)
    assert found["place"]["fix"] == f"chmod 700 {wfctl.root}"


def test_a_damaged_ledger_points_to_a_backup(wfctl: Wfctl) -> None:
    (wfctl.root / "ledger.db").write_bytes(b"garbage" * 100)
    assert checks(wfctl, 1)["store"]["fix"] == "wfctl store restore FILE"


def test_limits_are_those_of_the_supervisor(tmp_path: Path) -> None:
    assert machine.of_descriptors(4, None).ok
    much = machine.of_descriptors(10_000_000, None)
    assert not much.ok
    assert (much.fix or "").startswith("ulimit -n ")


@pytest.mark.parametrize(("is_synchronised", "said"), [(True, ", synchronised"), (False, "set-ntp"), (None, "not known")])
def test_the_clock_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_synchronised: bool | None, said: str) -> None:
    monkeypatch.setattr(machine, "_TIMESYNC", tmp_path / "none")
    monkeypatch.setattr(machine, "is_clock_synchronised", lambda: is_synchronised)
    found = {each.name: each for each in machine.of_machine()}["clock"]
    assert found.ok
    assert said in found.detail

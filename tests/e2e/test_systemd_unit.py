"""The shipped units under a true systemd (UX.md 2; contract 2.1, 2.6, 2.7, 6.9, 7.6)."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support import systemd
from tests.support.systemd import Machine
from tests.support.waiting import wait_for
from wfctl.supervisor.journal import message_id

_WHY_NOT = systemd.why_not()
pytestmark = pytest.mark.skipif(_WHY_NOT is not None, reason=str(_WHY_NOT))
DROP_INS = "/run/systemd/system"
HELD = 'echo $$ >"$0.pid"; while [ ! -e "$0" ]; do sleep 0.05; done'  #: until the file of its first argument is there


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    """A machine on which wfctl was installed, the account made, and nothing started yet."""
    with Machine() as machine:
        machine.run("wfctl", "systemd", "install", "--name", "any")
        machine.run("systemd-sysusers", "wfctl.conf")
        machine.run("systemctl", "daemon-reload")
        yield machine


class Unit:
    """An instance of the shipped unit, with a store of its own."""

    def __init__(self, machine: Machine, name: str) -> None:
        self.machine = machine
        self.name = f"wfctl@{name}.service" if name else "wfctl.service"
        self.store = f"/var/lib/wfctl-{name}" if name else "/var/lib/wfctl"

    def change(self, *lines: str) -> None:
        """Give it a drop-in for the test."""
        text = "\n".join(["[Service]", *lines, ""])
        script = f'mkdir -p {DROP_INS}/{self.name}.d && cat >{DROP_INS}/{self.name}.d/50-test.conf <<"END"\n{text}END\n'
        self.machine.run("sh", "-c", script)
        self.machine.run("systemctl", "daemon-reload")

    def start(self) -> Unit:
        """Start it as an operator would; it is ready when this returns."""
        self.machine.run("systemctl", "start", self.name)
        return self

    def show(self, name: str) -> str:
        """Return one of its properties."""
        return self.machine.show(self.name, name)

    def wfctl(self, *words: str) -> str:
        """Run a command on its store, as root."""
        return self.machine.run("wfctl", "--store", self.store, *words)

    def json(self, *words: str) -> Any:
        """Run a command on its store, and return what it answers."""
        return json.loads(self.wfctl(*words, "-o", "json"))

    def held_run(self, flag: str) -> tuple[str, int]:
        """Start a run that goes on until that file is there; return its id and the pid of its process, as seen inside."""
        self.wfctl("deployment", "add", "held", "--", "/bin/sh", "-c", HELD, flag)
        self.wfctl("schedule", "add", "once", "--deployment", "held", "--every", "1s", "--max-run", "none")
        pid = wait_for(lambda: self.machine.do("cat", f"{flag}.pid").stdout.strip(), "its pid")
        return self.until("running"), int(pid)

    def until(self, status: str) -> str:
        """Wait until the journal says that a run has a status; return its id. It is a cheaper question than one to wfctl."""
        return str(wait_for(lambda: self.journal(f"WFCTL_TO={status}"), f"a run being {status}")[-1]["WFCTL_RUN"])

    def is_alive(self, pid: int) -> bool:
        return self.machine.do("kill", "-0", str(pid)).returncode == 0

    def journal(self, *matches: str) -> list[dict[str, Any]]:
        """Return the records of the journal with these fields."""
        said = self.machine.run("journalctl", "-o", "json", f"_SYSTEMD_UNIT={self.name}", *matches)
        return [json.loads(line) for line in said.splitlines()]


def test_on_a_fresh_machine_the_unit_starts_and_root_works_on_its_store(machine: Machine) -> None:
    """No directory is made by hand; what `install` says to run is all there is to run (2.1, 2.7)."""
    for command in json.loads(machine.run("wfctl", "systemd", "install", "-o", "json"))["commands"]:
        machine.run("sh", "-c", command)
    unit = Unit(machine, "")
    assert (unit.show("ActiveState"), unit.show("SubState"), unit.show("Type")) == ("active", "running", "notify")
    assert unit.show("StatusText") == "0/4 slots \N{MIDDLE DOT} 0 schedules", "READY, and then active"
    assert machine.run("stat", "-c", "%U %a", "/var/lib/wfctl").split() == ["wfctl", "700"]
    assert machine.run("stat", "-c", "%F", "/etc/wfctl").strip() == "directory"
    main = unit.show("MainPID")
    assert machine.run("stat", "-c", "%U", f"/proc/{main}").strip() == "wfctl"
    machine.run("wfctl", "deployment", "add", "who", "--", "/bin/sh", "-c", "id -un; echo $HOME; cat /proc/self/oom_score_adj")
    machine.run("wfctl", "schedule", "add", "far", "--deployment", "who", "--at", "2100-01-01T00:00:00Z")
    wait_for(lambda: "next far at 2100-01-01 00:00Z" in unit.show("StatusText"), "the status line")
    assert "ready" in machine.run("wfctl", "status")
    assert machine.run("wfctl", "run", "start", "who").split() == ["wfctl", "/var/lib/wfctl", "0"]
    owners = machine.run("find", "/var/lib/wfctl", "!", "-user", "wfctl")
    assert owners == "", "root became the owner of the store before it opened anything"
    answer = machine.do("wfctl", "doctor")
    assert "service: /etc/systemd/system/wfctl.service, TimeoutStopSec=50s" in answer.stdout
    assert "no sandbox" in machine.run("wfctl", "doctor", "--sandbox")
    machine.run("systemctl", "stop", "wfctl.service")
    assert (unit.show("ActiveState"), unit.show("Result"), unit.show("ExecMainStatus")) == ("inactive", "success", "0")


def test_a_reload_is_taken_up_and_bad_settings_are_shown_by_status(machine: Machine) -> None:
    unit = Unit(machine, "reload").start()
    main = unit.show("MainPID")
    machine.run("sh", "-c", f"echo '[supervisor]\nmax_concurrent_runs = 9' >{unit.store}/wfctl.toml")
    machine.run("systemctl", "reload", unit.name)
    wait_for(lambda: unit.show("StatusText").startswith("0/9 slots"), "the new settings")
    machine.run("sh", "-c", f"echo 'nonsense = 1' >{unit.store}/wfctl.toml")
    machine.run("systemctl", "reload", unit.name)
    wait_for(lambda: unit.show("StatusText").startswith("the settings were not taken up: "), "the problem")
    assert "0/9 slots" in unit.show("StatusText"), "the old ones hold"
    assert (unit.show("ActiveState"), unit.show("MainPID")) == ("active", main)
    assert "nonsense" in machine.run("systemctl", "status", "--no-pager", unit.name)
    machine.run("systemctl", "stop", unit.name)


def test_6_9_a_run_goes_on_across_a_restart_and_is_adopted(machine: Machine) -> None:
    """Under the sandbox, too; and what it does with /tmp goes on working."""
    unit = Unit(machine, "restart")
    machine.run("wfctl", "systemd", "install", "--name", "restart", "--hardened")
    unit.change("Environment=WFCTL_DRAIN_GRACE_S=0.2")
    unit.start()
    run, pid = unit.held_run("/tmp/restart-go")
    before = unit.show("MainPID")
    machine.run("systemctl", "restart", unit.name)
    assert unit.show("MainPID") != before
    assert unit.show("ActiveState") == "active"
    assert unit.is_alive(pid), "the same process"
    (recovered,) = unit.journal(f"MESSAGE_ID={message_id('recovered')}")
    assert recovered["MESSAGE"] == "recovered: 1 adopted"
    machine.run("touch", "/tmp/restart-go")
    assert unit.until("completed") == run
    shown = unit.json("run", "show", run)
    assert shown["status"] == "completed"
    assert [each["k"] for each in shown["trace"]] == [1], "one process from its start to its end"
    unit.wfctl("deployment", "add", "tmp", "--", "/bin/sh", "-c", "echo x >/tmp/later && ! echo x >/etc/later")
    unit.wfctl("run", "start", "tmp")
    assert "write files anywhere but in /var/lib/wfctl-restart, /tmp" in unit.wfctl("doctor", "--sandbox")
    unit.wfctl("schedule", "pause", "once")
    machine.run("systemctl", "stop", unit.name)


def test_7_6_a_stop_leaves_runs_alone_but_for_the_drop_in_that_ends_them(machine: Machine) -> None:
    unit = Unit(machine, "leave")
    unit.change("Environment=WFCTL_DRAIN_GRACE_S=0.2")
    _, pid = unit.start().held_run("/tmp/leave-go")
    machine.run("systemctl", "stop", unit.name)
    assert unit.show("Result") == "success"
    assert unit.is_alive(pid), "KillMode=process"
    machine.run("touch", "/tmp/leave-go")

    unit = Unit(machine, "stop")
    machine.run("wfctl", "systemd", "install", "--name", "stop", "--on-shutdown-stop")
    unit.change("Environment=WFCTL_DRAIN_GRACE_S=0.2")
    assert (unit.show("KillMode"), unit.show("TimeoutStopUSec")) == ("mixed", "1min")
    run, pid = unit.start().held_run("/tmp/stop-never")
    machine.run("systemctl", "stop", unit.name)
    assert unit.show("Result") == "success"
    assert not unit.is_alive(pid)
    shown = unit.json("run", "show", run)
    assert (shown["status"], shown["reason"]["code"]) == ("failed", "shutdown")
    assert machine.do("pgrep", "-f", f"keeper.*{unit.store}").stdout == "", "nothing of the service is left"


def test_the_watchdog_bites_a_stuck_loop_and_runs_go_on(machine: Machine) -> None:
    unit = Unit(machine, "stuck")
    unit.change("WatchdogSec=1s", "RestartSec=100ms", "LimitCORE=0")
    run, pid = unit.start().held_run("/tmp/stuck-go")
    before = unit.show("MainPID")
    machine.run("kill", "-STOP", before)
    wait_for(lambda: unit.show("NRestarts") == "1" and unit.show("ActiveState") == "active", "the restart")
    assert unit.is_alive(pid)
    said = "".join(str(each["MESSAGE"]) for each in unit.journal())
    assert "Fatal Python error: Aborted" in said and "waiting.py" in said, "where it was stuck"
    assert "recovered: 1 adopted" in said
    machine.run("touch", "/tmp/stuck-go")
    assert unit.until("completed") == run
    unit.wfctl("schedule", "pause", "once")
    machine.run("systemctl", "stop", unit.name)


def test_2_6_a_second_supervisor_ends_with_75_and_is_not_started_again(machine: Machine) -> None:
    first, second, standby = (Unit(machine, name) for name in ("first", "second", "standby"))
    first.start()
    own = f"{systemd.BIN}/wfctl"
    second.change(f"Environment=WFCTL_STORE={first.store}", "RestartSec=10ms")
    assert machine.do("systemctl", "start", second.name).returncode != 0
    assert (second.show("ActiveState"), second.show("Result")) == ("failed", "exit-code")
    assert (second.show("ExecMainStatus"), second.show("NRestarts")) == ("75", "0")
    assert f"pid {first.show('MainPID')}" in machine.log(second.name)

    arguments = f"ExecStart=\nExecStart={own} supervise --standby --log-format journal"
    standby.change(f"Environment=WFCTL_STORE={first.store}", "TimeoutStartSec=1s", arguments)
    machine.run("systemctl", "start", "--no-block", standby.name)
    wait_for(lambda: standby.show("StatusText").startswith("standing by: "), "the standby")
    begun = time.monotonic()
    wait_for(lambda: time.monotonic() - begun > 1.2, "its time to start being over")
    assert standby.show("ActiveState") == "activating", "it asked for more"
    machine.run("systemctl", "stop", first.name)
    wait_for(lambda: standby.show("ActiveState") == "active", "the standby taking over")
    machine.run("systemctl", "stop", standby.name)


def test_the_journal_has_a_record_with_its_fields_for_what_became_of_each_instant(machine: Machine) -> None:
    unit = Unit(machine, "fields").start()
    run, _ = unit.held_run("/tmp/fields-go")
    query = ("WFCTL_SCHEDULE=once", "WFCTL_TO=skipped-overlap")
    skipped = wait_for(lambda: unit.journal(*query), "a skipped occurrence in the journal")[0]
    rows = unit.json("occurrences", "once", "--status", "skipped-overlap")["items"]
    expected = {
        "MESSAGE": f"once@{rows[0]['instant']} skipped-overlap: overlap: {run} held the slot",
        "MESSAGE_ID": message_id("occurrence_skipped-overlap"),
        "PRIORITY": "6",
        "SYSLOG_IDENTIFIER": "wfctl",
        "WFCTL_OCCURRENCE": rows[0]["instant"],
        "WFCTL_REASON": "overlap",
        "WFCTL_REVISION": "1",
        "_TRANSPORT": "journal",
    }
    assert {name: skipped.get(name) for name in expected} == expected
    (running,) = unit.journal(f"WFCTL_RUN={run}", "WFCTL_TO=running")
    assert (running["WFCTL_FROM"], running["WFCTL_SCHEDULE"]) == ("admitted", "once")
    unit.wfctl("deployment", "add", "bad", "--", "/bin/sh", "-c", "exit 3")
    unit.wfctl("run", "start", "bad", "--detach")
    failed = wait_for(lambda: unit.journal("WFCTL_TO=failed"), "the failure")[0]
    assert (failed["PRIORITY"], failed["WFCTL_REASON"]) == ("4", "exit"), "journalctl -p warning shows it"
    path = f"{unit.store}/schedules/once.toml"
    machine.run("sh", "-c", f"echo nonsense >>{path}")
    unit.machine.run("systemctl", "reload", unit.name)
    blocked = wait_for(lambda: unit.journal("WFCTL_ACTION=blocked", "WFCTL_SCHEDULE=once"), "the block")[0]
    assert (blocked["PRIORITY"], blocked["WFCTL_CODE"]) == ("3", "invalid-definition")
    machine.run("touch", "/tmp/fields-go")
    machine.run("systemctl", "stop", unit.name)

"""Jobs of other users, as `wfctl help other-users` says: the lines it gives are run here, and its limits are looked at."""

from __future__ import annotations

import grp
import json
import os
import pwd
import re
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import systemd
from tests.support.commands import Wfctl
from tests.support.systemd import Machine
from tests.support.waiting import wait_for
from wfctl.cli.help_texts import TOPICS

OTHER = "nobody"
TEXT = TOPICS["other-users"].replace("\\\n", "")
needs_root = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None,
    reason="only root, with setpriv (Debian: util-linux), can change the user",
)


def line(pattern: str) -> list[str]:
    """The words of the one line of the text that matches."""
    found = re.findall(pattern, TEXT, re.MULTILINE)
    assert len(found) == 1, found
    return shlex.split(found[0])


ADD = line(r"^ +wfctl (deployment add report .*)$")
WITH_FILES = line(r"^ +\.\.\. -- (/bin/sh -c .*)$")
ASKING = line(r"gets (4>\S+ 5<\S+)")


# Two: one store of root's, with setpriv -----------------------------------------------------------------------------------


class Here:
    """The recipe with this machine's names: the user is nobody, its directory and its program are the test's."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.home.mkdir(mode=0o755)
        shutil.chown(self.home, OTHER)
        self.wfctl = Wfctl(folder / "store", folder)
        self.wfctl.ok("init")

    def program(self, script: str) -> Path:
        """Install what the account runs."""
        path = self.home / "program"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return path

    def words(self, words: list[str], program: str) -> list[str]:
        """The words of the text, for this account."""
        group = grp.getgrgid(pwd.getpwnam(OTHER).pw_gid).gr_name
        said = shlex.join(words).replace("/usr/local/bin/report", program).replace("/srv/report", str(self.home))
        said = said.replace("--regid report", f"--regid {group}").replace("--reuid report", f"--reuid {OTHER}")
        return shlex.split(said.replace("USER=report", f"USER={OTHER}").replace("LOGNAME=report", f"LOGNAME={OTHER}"))

    def add(self, script: str, *more: str) -> None:
        """Add the deployment as the text says first."""
        self.wfctl.ok(*self.words([*ADD[: ADD.index("--")], *more, *ADD[ADD.index("--") :]], str(self.program(script))))

    def add_with_files(self, script: str) -> None:
        """Add it as the text says for input and output, and for questions."""
        options = ADD[: ADD.index("--") + 1]
        words = [*options, *(re.sub(r"$", " " + " ".join(ASKING), it) if "exec setpriv" in it else it for it in WITH_FILES)]
        self.wfctl.ok(*self.words(words, str(self.program(script))))


@pytest.fixture
def here() -> Iterator[Here]:
    """A place that every user may reach: pytest's own is closed to others."""
    folder = Path(tempfile.mkdtemp(prefix="wfctl-test-", dir="/var/tmp"))
    folder.chmod(0o755)
    yield Here(folder)
    shutil.rmtree(folder)


@needs_root
def test_the_job_is_that_user_and_nothing_of_root_is_left(here: Here) -> None:
    here.add(
        "id -un; id -ru; id -G; echo $HOME $USER $LOGNAME; pwd; grep -E 'Cap(Inh|Prm|Eff|Amb)' /proc/self/status; echo no >&2"
    )
    done = here.wfctl.ok("run", "start", "report")
    account = pwd.getpwnam(OTHER)
    name, uid, groups, names, cwd, *rights = done.out.splitlines()
    assert (name, uid, cwd) == (OTHER, str(account.pw_uid), str(here.home))
    assert set(map(int, groups.split())) == set(os.getgrouplist(OTHER, account.pw_gid))
    assert names == f"{here.home} {OTHER} {OTHER}"
    assert [int(it.split()[1], 16) for it in rights] == [0, 0, 0, 0]
    assert (
        here.wfctl.ok("run", "logs", "run-000001", "--stream", "err").out == "no\n"
    )  # logs are root's, and written all the same


@needs_root
def test_what_the_text_says_does_not_work_does_not(here: Here) -> None:
    here.add(
        'cat "$WFCTL_INPUT"; echo {} >"$WFCTL_OUTPUT"; ls "$WFCTL_FILES"; ls "$WFCTL_STORE"\n'
        "echo x >/dev/stderr; echo x >/dev/stdout; exit 0"
    )
    done = here.wfctl.ok("run", "start", "report")
    assert done.out == ""
    assert done.err.count("ermission denied") == 6
    assert here.wfctl.ok("run", "show", "run-000001", "-o", "json").json["output"] is None


@needs_root
def test_the_program_is_not_seen_by_preflight_and_a_missing_one_is_127(here: Here) -> None:
    here.add("exit 0")
    (here.home / "program").unlink()
    assert here.wfctl("deployment", "check", "report").status == 0
    assert here.wfctl("run", "start", "report").status == 1
    assert here.wfctl.ok("run", "show", "run-000001", "-o", "json").json["exit_status"] == 127


@needs_root
def test_a_directory_of_its_own_is_needed(here: Here) -> None:
    here.add("exit 0", "--description", "without --cwd the run's own directory, which is root's")
    here.wfctl.ok("deployment", "set", "report", "--unset", "working_directory")
    here.program("ls .")
    done = here.wfctl("run", "start", "report")
    assert (done.status, "ermission denied" in done.err) == (1, True)


@needs_root
def test_input_output_question_and_answer_go_by_descriptors(here: Here) -> None:
    here.add_with_files(
        'if [ -z "$WFCTL_RESUME" ]; then read -r input; echo "$input"; echo \'{"message": "go on?"}\' >&4; exit 75; fi\n'
        'read -r answer <&5; echo "$answer" >&3'
    )
    asked = here.wfctl("run", "start", "report", "--input", "region=eu")
    assert json.loads(asked.out) == {"region": "eu"}
    assert "go on?" in asked.err
    here.wfctl.ok("run", "resume", "run-000001", "--input", "approved=true")
    assert here.wfctl.ok("run", "show", "run-000001", "-o", "json").json["output"] == {"approved": True}


@needs_root
def test_an_output_that_is_opened_must_be_written(here: Here) -> None:
    here.add_with_files("exit 0")
    assert here.wfctl("run", "start", "report").status == 1
    assert here.wfctl.ok("run", "show", "run-000001", "-o", "json").json["reason"]["code"] == "output-invalid"


@needs_root
def test_root_ends_a_job_that_ignores_the_request(here: Here) -> None:
    here.add('trap "" TERM; echo $$ >"$HOME/pid"; while :; do sleep 1; done')
    here.wfctl.ok("run", "start", "report", "--detach")
    wait_for(lambda: (here.home / "pid").exists(), "the job being there")
    here.wfctl.ok("run", "cancel", "run-000001", "--grace", "100ms", "--yes")
    assert here.wfctl("run", "wait", "run-000001").status == 1
    shown = here.wfctl.ok("run", "show", "run-000001", "-o", "json").json
    assert (shown["status"], shown["signal"]) == ("cancelled", 9)


@needs_root
def test_an_environment_file_may_be_closed_to_the_user(here: Here) -> None:
    secret = here.home.parent / "secret.env"
    secret.write_text("TOKEN=s3cret\n")
    secret.chmod(0o600)
    here.add('echo "$TOKEN"', "--env-file", str(secret))
    assert here.wfctl.ok("run", "start", "report").out == "s3cret\n"


# One: a store for each user -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    """A machine with a systemd of its own."""
    why_not = systemd.why_not()
    if why_not is not None:
        pytest.skip(why_not)
    with Machine() as machine:
        yield machine


def instance(machine: Machine, name: str, user: str) -> list[str]:
    """Set up an instance with a drop-in as the text says; return how commands on its store begin."""
    [documented] = set(re.findall(r"systemctl edit wfctl@(\w+)\.service", TEXT))
    assert re.findall(r"\[Service\], and below it (\S+)$", TEXT, re.MULTILINE) == [f"User={documented}"]

    def said(pattern: str) -> list[str]:
        return [word.replace(documented, name) for word in line(pattern)]

    machine.run(*said(r"^ +(wfctl systemd install --name \w+)$"))
    folder = f"/etc/systemd/system/wfctl@{name}.service.d"
    text = f"[Service]\\nUser={user}\\n"
    machine.run("sh", "-c", f"mkdir {folder} && printf '{text}' >{folder}/override.conf && systemctl daemon-reload")
    machine.run(*said(r"^ +(systemctl enable --now wfctl@\w+\.service)$"))
    return said(r"^ +(wfctl --store \S+) schedules$")


def test_an_account_has_an_instance_and_root_works_in_its_store_as_that_account(machine: Machine) -> None:
    wfctl = instance(machine, "accounts", OTHER)
    machine.run(*wfctl, "deployment", "add", "who", "--", "/usr/bin/id", "-un")
    machine.run(*wfctl, "schedule", "add", "often", "--deployment", "who", "--every", "1s")
    assert "often" in machine.run(*wfctl, "schedules")
    run = wait_for(lambda: machine.run(*wfctl, "runs", "--status", "completed", "-o", "name").split(), "a run")[0]
    assert machine.run(*wfctl, "run", "logs", run) == f"{OTHER}\n"
    assert set(machine.run("find", wfctl[2], "-printf", "%u\\n").split()) == {OTHER}


def test_an_instance_of_root_may_change_the_user(machine: Machine) -> None:
    wfctl = instance(machine, "roots", "root")
    group = grp.getgrgid(pwd.getpwnam(OTHER).pw_gid).gr_name
    change = ["setpriv", "--reuid", OTHER, "--regid", group, "--init-groups", "--", "/usr/bin/id", "-un"]
    machine.run(*wfctl, "deployment", "add", "who", "--cwd", "/", "--", *change)
    machine.run(*wfctl, "schedule", "add", "often", "--deployment", "who", "--every", "1s")
    run = wait_for(lambda: machine.run(*wfctl, "runs", "--status", "completed", "-o", "name").split(), "a run")[0]
    assert machine.run(*wfctl, "run", "logs", run) == f"{OTHER}\n"


def test_a_user_without_rights_has_a_store_that_others_cannot_read(machine: Machine) -> None:
    machine.run("sh", "-c", f"mkdir -m 755 /var/lib/home && chown {OTHER} /var/lib/home")
    account = pwd.getpwnam(OTHER)
    other = ("setpriv", f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups", "env", "HOME=/var/lib/home")
    machine.run(*other, "wfctl", "init")
    machine.run(*other, "wfctl", "deployment", "add", "who", "--", "/usr/bin/id", "-un")
    assert machine.run(*other, "wfctl", "run", "start", "who") == f"{OTHER}\n"
    store = "/var/lib/home/.local/state/wfctl"
    assert machine.run("stat", "-c", "%U %a", store) == f"{OTHER} 700\n"
    refused = machine.do("setpriv", "--reuid=5", "--regid=60", "--clear-groups", "wfctl", "--store", store, "runs")
    assert refused.returncode in (66, 77)
    assert "Traceback" not in refused.stderr

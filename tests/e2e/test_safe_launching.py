"""What a job gets: its arguments byte for byte, the environment of the contract, and nothing of its supervisor (6.4, 3.9)."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.place import Place
from tests.support.processes import WFCTL, clean_environment, wait_for, wfctl
from wfctl.core.instants import format_instant

SECRET = "sekrit-7f3a9c1e5b"
REPORT = """
import json, os, resource, sys
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\\t" in line)
mask, fds = os.umask(0), "/proc/self/fd/"
found = {
    "raw": open("/proc/self/cmdline", "rb").read().hex(),
    "environ": open("/proc/self/environ", "rb").read().hex(),
    "fds": {name: os.readlink(fds + name) for name in os.listdir(fds) if os.path.exists(fds + name)},
    "umask": mask,
    "core": resource.getrlimit(resource.RLIMIT_CORE)[0],
    "nofile": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    "ignored": status["SigIgn"], "blocked": status["SigBlk"], "caught": status["SigCgt"],
    "oom": open("/proc/self/oom_score_adj").read().strip(),
    "pid": os.getpid(), "sid": os.getsid(0), "pgid": os.getpgid(0), "cwd": os.getcwd(),
}
path = sys.argv[1]
with open(path + ".new", "w") as file:
    json.dump(found, file)
os.rename(path + ".new", path)
"""
WORDS = [
    "",
    " ",
    "a b",
    "$HOME",
    "`id`",
    "*",
    "'\"\\",
    "-x",
    "--",
    "caf\u00e9 \U0001f600",
    "\x1b[31m",
    "line\nline",
    "\t",
    "x" * 50_000,
]


def launched(place: Place, report: Path, **fields: Any) -> dict[str, Any]:
    """Run the reporting job under a supervisor in a hostile state; return what it found."""
    place.store.create_deployment(deployment_id="d", command=reporting(report), **fields)
    at = place.once("s", "d", input={"region": "eu"}, in_s=0.5)
    begin(place)
    wait_for(report.exists, what="the report")
    found: dict[str, Any] = json.loads(report.read_text())
    found["instant"] = format_instant(at)
    return found


def reporting(report: Path) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", REPORT, str(report), *WORDS]


def begin(place: Place) -> None:
    """Start a supervisor with open descriptors, ignored and blocked signals, a umask, core dumps, and secrets around it."""
    reader, writer = os.pipe()
    leak = os.open("/etc/passwd", os.O_RDONLY)

    def worsen() -> None:
        os.umask(0o007)
        hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
        resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
        for number in (signal.SIGPIPE, signal.SIGHUP, signal.SIGUSR1, signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2, signal.SIGTERM})

    environment = clean_environment(
        LANG="pl_PL.UTF-8",
        TZ="Europe/Budapest",
        AWS_SECRET_ACCESS_KEY=SECRET,
        LD_DEBUG_OUTPUT=SECRET,
        PYTHONSTARTUP=SECRET,
        IFS="x",
    )
    process = subprocess.Popen(
        [*WFCTL, "--store", str(place.root), "supervise"],
        env=environment,
        pass_fds=(reader, leak),
        stdin=subprocess.DEVNULL,
        stdout=(place.root.parent / "log").open("wb"),
        stderr=subprocess.STDOUT,
        preexec_fn=worsen,
    )
    for descriptor in (reader, writer, leak):
        os.close(descriptor)
    place.ends.append(process)


class Hostile(Place):
    """A place whose supervisors are started by hand."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.ends: list[subprocess.Popen[bytes]] = []

    def __exit__(self, *exc: Any) -> None:
        for process in self.ends:
            process.kill()
            process.wait()
        super().__exit__(*exc)


def variables(found: dict[str, Any]) -> dict[str, str]:
    pairs = [entry.split(b"=", 1) for entry in bytes.fromhex(found["environ"]).split(b"\0") if entry]
    assert len({name for name, _ in pairs}) == len(pairs), "a variable is set twice"
    return {os.fsdecode(name): os.fsdecode(value) for name, value in pairs}


def test_6_4_a_job_inherits_nothing_but_what_the_contract_says(tmp_path: Path) -> None:
    with Hostile(tmp_path) as place:
        secrets = tmp_path / "secrets.env"
        secrets.write_text(f'# a remark\nTOKEN={SECRET}\nQUOTED="{SECRET}"\nEXPANDED=$HOME\nMINE=file\n')
        secrets.chmod(0o600)
        found = launched(
            place,
            tmp_path / "report",
            environment={"LANG": "C.UTF-8", "MINE": "definition", "ODD NAME-1": "a\nb"},
            environment_files=[str(secrets)],
        )
        words = [os.fsdecode(word) for word in bytes.fromhex(found["raw"]).split(b"\0")[:-1]]
        assert words == reporting(tmp_path / "report")
        run = place.root / "runs" / "run-000001"
        me = variables(found)
        traceparent = me.pop("TRACEPARENT")
        assert len(traceparent) == 55
        import pwd

        user = pwd.getpwuid(os.geteuid())
        assert me == {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": user.pw_dir,
            "USER": user.pw_name,
            "LOGNAME": user.pw_name,
            "SHELL": "/bin/sh",
            "LANG": "C.UTF-8",
            "TZ": "Europe/Budapest",
            "MINE": "file",
            "ODD NAME-1": "a\nb",
            "TOKEN": SECRET,
            "QUOTED": f'"{SECRET}"',
            "EXPANDED": "$HOME",
            "WFCTL_RUN_ID": "run-000001",
            "WFCTL_SCHEDULE_ID": "s",
            "WFCTL_OCCURRENCE": found["instant"],
            "WFCTL_REVISION": "1",
            "WFCTL_ATTEMPT": "1",
            "WFCTL_STEP": "main",
            "WFCTL_EXECUTION": "1",
            "WFCTL_STORE": str(place.root),
            "WFCTL_INPUT": str(run / "input.json"),
            "WFCTL_FILES": str(run / "files"),
            "WFCTL_OUTPUT": str(run / "1" / "output"),
            "WFCTL_CHECKPOINT": str(run / "1" / "checkpoint"),
            "WFCTL_INTERRUPT": str(run / "1" / "interrupt"),
        }
        assert found["fds"] == {"0": "/dev/null", "1": str(run / "stdout.log"), "2": str(run / "stderr.log")}
        assert found["umask"] == 0o022
        assert found["core"] == 0
        assert found["nofile"] == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        python_ignores = {signal.SIGPIPE, signal.SIGXFSZ}  # the reporting interpreter itself
        assert int(found["ignored"], 16) & ~sum(1 << (number - 1) for number in python_ignores) == 0
        assert int(found["blocked"], 16) == 0
        assert found["oom"] == "0"
        assert found["pid"] == found["sid"] == found["pgid"]
        assert found["cwd"] == str(run / "work")
        place.until("run-000001", "completed")
        nothing_kept(place)


def nothing_kept(place: Place) -> None:
    """No value of an environment file, and nothing of the supervisor's environment, is in the store or in the log."""
    looked_at = [path for path in place.root.rglob("*") if path.is_file()]
    assert {"ledger.db", "ledger.db-wal"} <= {path.name for path in looked_at}
    for path in [*looked_at, place.root.parent / "log"]:
        assert SECRET.encode() not in path.read_bytes(), f"{path} holds a secret"
        assert SECRET not in path.name


@pytest.mark.parametrize("text", ["002", "077"])
def test_3_the_umask_of_the_deployment(tmp_path: Path, text: str) -> None:
    with Hostile(tmp_path) as place:
        assert launched(place, tmp_path / "report", umask=text)["umask"] == int(text, 8)
        assert (tmp_path / "report").stat().st_mode & 0o777 == 0o666, "the job set its own to 0"


def test_6_4_a_job_that_crashes_leaves_no_core(tmp_path: Path) -> None:
    with Hostile(tmp_path) as place:
        place.job("kill -SEGV $$")
        place.once()
        begin(place)
        run = place.until("run-000001", "failed")
        assert run.reason is not None
        assert (run.reason["code"], run.reason["signal"]) == ("signal", signal.SIGSEGV)
        assert list((place.root / "runs" / "run-000001" / "work").iterdir()) == []


@pytest.mark.parametrize(
    ("content", "mode"),
    [
        pytest.param(f"TOKEN={SECRET}\nnot a pair {SECRET}\n", 0o600, id="a line that is no pair"),
        pytest.param(f"WFCTL_RUN_ID={SECRET}\n", 0o600, id="a name of wfctl's own"),
        pytest.param(f"TOKEN={SECRET}\n", 0o666, id="a file that others may write"),
        pytest.param(f"export TOKEN={SECRET}\n", 0o600, id="a word of the shell"),
        pytest.param(f"TOKEN={SECRET}\0\n", 0o600, id="a NUL"),
        pytest.param(f"TOKEN={SECRET}\n" * 4000, 0o600, id="too large"),
    ],
)
def test_3_9_a_secret_is_in_no_complaint_either(tmp_path: Path, content: str, mode: int) -> None:
    with Hostile(tmp_path) as place:
        secrets = tmp_path / "secrets.env"
        secrets.write_text("OK=1\n")
        secrets.chmod(0o600)
        place.job("true", environment_files=[str(secrets)])
        secrets.write_text(content)
        secrets.chmod(mode)
        place.once()
        begin(place)
        wait_for(lambda: place.statuses() == ["preflight-rejected"], what="the rejection")
        for words in (["deployment", "check", "d"], ["run", "start", "d"], ["occurrences", "-o", "json"]):
            done = wfctl(place.root, *words, check=False)
            assert SECRET not in done.stdout + done.stderr, words
        nothing_kept(place)

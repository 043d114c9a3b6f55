"""wfctl uses no network: everything works where there is none, and no socket of the internet is ever made."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.commands import Wfctl
from tests.support.waiting import wait_for

ALONE = ["unshare", "-n"] if os.geteuid() == 0 else ["unshare", "-rn"]


def _why_not_alone() -> str | None:
    if shutil.which("unshare") is None:
        return "unshare is missing (Debian: apt-get install util-linux)"
    done = subprocess.run([*ALONE, "true"], capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else f"no network namespace can be made here: {done.stderr.strip()}"


class Without(Wfctl):
    """Runs `wfctl` behind other words: in a namespace of its own, or traced."""

    before: list[str]

    def argv(self, *words: str) -> list[str]:
        return [*self.before, *super().argv(*words)]


class Traced(Without):
    """Each process is traced, and so is what it starts: a tracer ends with the last of them."""

    @contextmanager
    def supervisor(self, *options: str) -> Iterator[subprocess.Popen[bytes]]:
        tracer = subprocess.Popen(
            self.argv("supervise", "--drain-grace-s", "2", *options),
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        pid = wait_for(lambda: self("status", "-o", "json").out, "the supervisor answers", 60)
        try:
            yield tracer
        finally:
            os.kill(json.loads(pid)["pid"], signal.SIGTERM)
            tracer.wait(60)


def a_day_of_work(wfctl: Wfctl) -> None:
    """Use every part of wfctl that could have a reason to speak to anybody."""
    wfctl.ok("init")
    wfctl.ok("deployment", "add", "job", "--", "/bin/sh", "-c", "echo done")
    wfctl.ok("schedule", "add", "often", "--deployment", "job", "--every", "1s")
    wfctl.ok("schedule", "add", "nightly", "--deployment", "job", "--cron", "30 2 * * *", "--timezone", "Europe/Budapest")
    with wfctl.supervisor():
        wait_for(lambda: wfctl.ok("runs", "--status", "completed", "-o", "name").out, "a scheduled run")
        wfctl.ok("run", "start", "job")
        assert wfctl("status").status in (0, 1)
        wfctl.ok("occurrences", "often")
        wfctl.ok("schedule", "pause", "often")
        wfctl.ok("occurrence", "audit", "often")
        wfctl.ok("reload")
    wfctl.ok("run", "start", "job")  # without a supervisor
    wfctl.ok("schedules", "-o", "json")
    wfctl.ok("store", "verify")
    wfctl("doctor")
    ask = '{"jsonrpc":"2.0","id":1,"method":"workflow.schedules.list"}\n'
    assert '"nightly"' in wfctl.ok("rpc", "serve", stdin=ask).out


@pytest.mark.skipif(_why_not_alone() is not None, reason=str(_why_not_alone()))
def test_everything_works_in_an_empty_network_namespace(bare: Wfctl) -> None:
    without = Without(bare.root, Path(bare.environ["HOME"]))
    without.before = ALONE
    links = subprocess.run([*ALONE, "cat", "/proc/net/dev"], capture_output=True, text=True, check=True).stdout
    assert [line.split(":")[0].strip() for line in links.splitlines()[2:]] == ["lo"]
    a_day_of_work(without)


_FAMILIES = re.compile(r"socket(?:pair)?\((AF_\w+|PF_\w+|0x\w+)")


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is missing (Debian: apt-get install strace)")
def test_no_process_of_wfctl_ever_makes_a_socket_of_the_internet(bare: Wfctl, tmp_path: Path) -> None:
    traces = tmp_path / "traces"
    traces.mkdir()
    traced = Traced(bare.root, Path(bare.environ["HOME"]))
    traced.before = ["strace", "-f", "-qq", "-ff", "-e", "trace=socket,socketpair,connect", "-o", str(traces / "t")]
    probe = subprocess.run([*traced.before, "true"], capture_output=True, text=True, check=False)
    if probe.returncode != 0:
        pytest.skip(f"ptrace is not permitted here: {probe.stderr.strip()}")
    a_day_of_work(traced)
    text = "\n".join(each.read_text("utf-8", "replace") for each in traces.iterdir())
    families = set(_FAMILIES.findall(text))
    assert "AF_UNIX" in families, "the trace shows the control socket and the keeper's"
    assert families == {"AF_UNIX"}, families

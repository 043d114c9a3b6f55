"""A real Slurm cluster of several nodes on this machine: own key, own ports, all of it below one folder, and gone at the end.

It needs root, and Debian's slurm-wlm and munge; `missing()` says what is not there. Its nodes are daemons of this machine, so
what is killed here is a daemon, and the programs of a "lost" node live on: the harder case.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

TOOLS = ("slurmctld", "slurmd", "munged", "sbatch", "squeue", "scancel", "scontrol", "sinfo")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_COMPLETING_S = 12.0
_CONF = """ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={root}/munge/s
CredType=cred/munge
StateSaveLocation={root}/state
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/slurmd-%n.pid
SlurmdSpoolDir={root}/spool-%n
SlurmctldLogFile={root}/log/slurmctld.log
SlurmdLogFile={root}/log/slurmd-%n.log
SlurmctldPort={port}
SlurmctldTimeout=5
SlurmdTimeout=6
MessageTimeout={message_timeout}
KillWait={kill_wait}
MinJobAge={forget_after}
GetEnvTimeout=0
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SwitchType=switch/none
SlurmdParameters=config_overrides
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0
"""


def missing() -> str | None:
    """Return what keeps a cluster from being started here, or None."""
    absent = [name for name in TOOLS if shutil.which(name, path=_PATH) is None]
    if absent:
        return f"{', '.join(absent)} not installed (apt-get install slurm-wlm munge)"
    return None if os.geteuid() == 0 else "a cluster of its own is started by root"


class SlurmCluster:
    """Some nodes of two processors each, one controller. A context manager that ends what it started."""

    def __init__(
        self, nodes: int = 2, *, kill_wait_s: int = 2, forget_after_s: int = 300, cpus: int = 8, message_timeout_s: int = 5
    ) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="wfctl-slurm-"))
        self.conf = self.root / "slurm.conf"
        self.nodes = nodes
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        self._port = _free_ports(nodes + 1)
        for name in ("state", "state/env_cache", "log", "munge"):
            (self.root / name).mkdir()
        # `--export=NONE` has a node load the user's login environment: from here, since root's profile may do much at a login.
        (self.root / "state/env_cache/root").write_text("HOME=/\nUSER=root\n")
        self.root.chmod(0o755)
        (self.root / "munge").chmod(0o755)
        key = self.root / "munge.key"
        key.touch(0o600)
        key.write_bytes(os.urandom(1024))
        host = socket.gethostname().partition(".")[0]
        text = _CONF.format(
            host=host,
            root=self.root,
            port=self._port,
            kill_wait=kill_wait_s,
            forget_after=forget_after_s,
            message_timeout=message_timeout_s,
        )
        for n in range(1, nodes + 1):
            text += f"NodeName=n{n} NodeHostname={host} NodeAddr=127.0.0.1 Port={self._port + n} CPUs={cpus} State=UNKNOWN\n"
        for name, more in (("all", "Default=YES PriorityTier=1 PreemptMode=CANCEL"), ("urgent", "PriorityTier=9")):
            text += f"PartitionName={name} Nodes=n[1-{nodes}] MaxTime=INFINITE State=UP OverSubscribe=NO {more}\n"
        self.conf.write_text(text)

    def start(self) -> SlurmCluster:
        """Start everything; return once all nodes are idle."""
        munge = self.root / "munge"
        self._up(
            "munged", "munged", "--foreground", "--force", f"--key-file={self.root / 'munge.key'}", f"--socket={munge / 's'}",
            f"--pid-file={self.root / 'munged.pid'}", f"--log-file={self.root / 'log/munged.log'}",
            f"--seed-file={munge / 'seed'}",
        )  # fmt: skip
        wait_for(lambda: (munge / "s").exists(), "munge")
        self.controller_up()
        for n in range(1, self.nodes + 1):
            self.node_up(n)
        self.wait_idle()
        return self

    def wait_idle(self, within_s: float = 40.0) -> None:
        """Wait until every node can take jobs; one that Slurm has drained for its own reasons is put back.

        A node whose daemon was killed may never tell of the ends of its jobs, and Slurm waits for minutes: it is taken down
        first, as an administrator does.
        """
        stuck_at = time.monotonic() + _COMPLETING_S

        def idle() -> bool:
            said = self.command("sinfo", "--noheader", "--Node", "--format=%N|%T", check=False).split()
            states = dict(line.split("|") for line in said)
            for name, state in states.items():
                if "comp" in state and time.monotonic() > stuck_at:
                    self.command("scontrol", "update", f"nodename={name}", "state=down", "reason=stuck", check=False)
                if "drain" in state or state == "down":
                    self.command("scontrol", "update", f"nodename={name}", "state=resume", check=False)
            return len(states) == self.nodes and all(state in ("idle", "mixed", "allocated") for state in states.values())

        wait_for(idle, "idle nodes", within_s)

    def node_up(self, n: int) -> None:
        self._up(f"n{n}", "slurmd", "-D", "-N", f"n{n}")

    def node_kill(self, n: int) -> None:
        """SIGKILL a node's daemon: to the controller the node is lost."""
        self._kill(f"n{n}")

    def controller_up(self) -> None:
        self._up("slurmctld", "slurmctld", "-D")

    def controller_down(self) -> None:
        """End the controller; it writes down what it knows first."""
        self._kill("slurmctld", signal.SIGTERM)

    def controller_kill(self, *, is_saved: bool = True) -> None:
        """SIGKILL the controller; `is_saved`: once it has written down the jobs that it has now, which it does seconds late."""
        state, begun = self.root / "state/job_state", time.time()
        if is_saved:
            wait_for(lambda: state.exists() and state.stat().st_mtime > begun + 0.5, "its jobs on disk", 20.0, fails=False)
        self._kill("slurmctld")

    def give_up(self, n: int) -> None:
        """Have the controller take a killed node for lost now, and not after its timeout."""
        self.command("scontrol", "update", f"nodename=n{n}", "state=down", "reason=lost")

    @property
    def environment(self) -> dict[str, str]:
        """What makes Slurm's commands talk to this cluster."""
        return {"SLURM_CONF": str(self.conf)}

    def command(self, *words: str, check: bool = True, environment: Mapping[str, str] | None = None) -> str:
        """Run one of Slurm's commands and return what it said."""
        done = subprocess.run(
            words, env={"PATH": _PATH, **self.environment, **(environment or {})}, capture_output=True, text=True, timeout=60,
            check=False,
        )  # fmt: skip
        assert not check or done.returncode == 0, f"{words}: {done.stderr}"
        return done.stdout

    def jobs(self) -> dict[str, str]:
        """Return the state of every job by its name."""
        said = self.command("squeue", "--noheader", "--states=all", "--format=%j|%T", check=False)
        return dict(line.split("|") for line in said.split())

    def stop(self) -> None:
        """End it all; logs stay only where the folder is kept."""
        if self._daemons.get("slurmctld") is not None:
            self.command("scancel", "--user=root", "--full", "--signal=KILL", check=False)
            self.command("scancel", "--user=root", check=False)
            wait_for(lambda: not self.command("squeue", "--noheader", check=False).strip(), "no job", 20.0, fails=False)
        for name in sorted(self._daemons, key=lambda name: name == "munged"):
            self._kill(name, signal.SIGTERM)
        shutil.rmtree(self.root, ignore_errors=True)

    def _up(self, name: str, *command: str) -> None:
        with (self.root / "log" / f"{name}.out").open("ab") as out:
            self._daemons[name] = subprocess.Popen(
                [str(shutil.which(command[0], path=_PATH)), *command[1:]],
                env={"PATH": _PATH, **self.environment}, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd="/",
                preexec_fn=_die_with_parent, start_new_session=True,
            )  # fmt: skip

    def _kill(self, name: str, number: int = signal.SIGKILL) -> None:
        process = self._daemons.pop(name, None)
        if process is None:
            return
        process.send_signal(number)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)

    def __enter__(self) -> SlurmCluster:
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()


def wait_for(condition: object, what: str, within_s: float = 40.0, *, fails: bool = True) -> None:
    """Wait for a condition, asked a few times a second: each asking is a command."""
    deadline = time.monotonic() + within_s
    while not condition():  # type: ignore[operator]
        if time.monotonic() > deadline:
            assert not fails, f"waited {within_s:g} s in vain: {what}"
            return
        time.sleep(0.1)


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGTERM, 0, 0, 0)  # PR_SET_PDEATHSIG: nothing is left of a test run that was killed


def _free_ports(count: int) -> int:
    """Return the first of so many neighbouring ports that nobody listens at."""
    for first in range(20_000 + os.getpid() % 20_000, 60_000, count + 3):
        sockets = []
        try:
            for port in range(first, first + count):
                sockets.append(socket.socket())
                sockets[-1].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                sockets[-1].bind(("127.0.0.1", port))
            return first
        except OSError:
            continue
        finally:
            for each in sockets:
                each.close()
    raise AssertionError("no free ports")

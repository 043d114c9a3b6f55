"""Slurm's own commands, which are all that is needed of it: run, bounded in time, and their answers as values.

What a command's end means: `Unreachable` where nobody who could know has answered, so that a submission may or may not have
reached the controller; `Rejected` where Slurm has said no, in its own words.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from wfctl.slurm.process import TookTooLong, run
from wfctl.value import Value

PATIENCE_S = 60.0  #: for any command; a controller that is away makes each take nine seconds
_LONGEST_WORDS = 300
_ACCOUNTED_SINCE = "now-30days"  #: without it `sacct` knows of today alone
_PASSED_ON = ("SLURM_CONF", "LD_LIBRARY_PATH")  #: nothing else: SBATCH_… and SLURM_… change what the commands do
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_NOBODY_ANSWERED = re.compile(
    r"unable to contact|timed out|connection (refused|reset)|zero bytes|communication|standby mode|not responding|munge"
    r"|authentication|configuration source|fetch_config|unable to resolve|temporarily unable|transport",
    re.IGNORECASE,
)
_FIELDS = {
    "JobID": 16, "Name": 96, "State": 24, "exit_code": 12, "StartTime": 22, "RestartCnt": 8, "Reason": 64, "NodeList": 96,
}  # fmt: skip


class Unreachable(Exception):
    """No controller answered: what was asked for may or may not have happened."""


class Rejected(Exception):
    """Slurm has refused, and says why."""


class JobLine(Value):
    """What the controller says of one job."""

    job: str
    name: str
    state: str  #: in Slurm's words: RUNNING, NODE_FAIL …
    wait_status: int  #: as `wait` gives it
    started: int | None  #: seconds since the epoch
    restarts: int
    reason: str
    nodes: str

    @property
    def is_over(self) -> bool:
        """Tell whether the controller takes it for ended, its processes gone."""
        return self.state in OVER

    @property
    def is_put_back(self) -> bool:
        """Tell whether the controller has put it back into the queue after it had begun, or nearly."""
        return self.state in PUT_BACK or (self.state in WAITING and self.restarts > 0)


OVER = frozenset(
    {
        "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "REVOKED",
        "TIMEOUT",
    }
)  # fmt: skip


WAITING = frozenset({"PENDING", "CONFIGURING"})
PUT_BACK = frozenset({"REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT"})


class Partition(Value):
    """What `sinfo` says of a partition."""

    name: str
    is_up: bool
    nodes: int
    is_default: bool


class Slurm:
    """The commands of one installation. May be used by several threads."""

    def __init__(self, place: Path, environ: Mapping[str, str], *, conf: str | None = None) -> None:
        """Given the directory of the commands; `conf` is the path of slurm.conf where it is not where Slurm looks itself."""
        self.place = place
        self._environment = {"PATH": _PATH, "LANG": "C.UTF-8"}
        self._environment |= {name: environ[name] for name in _PASSED_ON if environ.get(name)}
        if conf is not None:
            self._environment["SLURM_CONF"] = conf

    def submit(self, arguments: Sequence[str]) -> str:
        """Given the arguments of `sbatch`, submit a job and return its number. Raise Unreachable, Rejected."""
        said = self._run("sbatch", ["--parsable", *arguments])
        job = said.strip().partition(";")[0]
        if not job.isdigit():
            raise Unreachable(f"sbatch did not name the job it made: {_short(said)}")
        return job

    def jobs(self, prefix: str) -> dict[str, JobLine]:
        """Return our user's jobs whose names begin so, by name; all of them in one question. Raise Unreachable.

        Of several with one name it is the one that is not over, else the last.
        """
        fields = ",".join(f"{name}:{width}" for name, width in _FIELDS.items())
        try:
            said = self._run(
                "squeue",
                ["--noheader", "--all", "--local", "--states=all", f"--user={os.geteuid()}", f"--Format={fields}"],
                SLURM_TIME_FORMAT="%s",
            )
        except Rejected as error:
            raise Unreachable(str(error)) from error
        found: dict[str, JobLine] = {}
        for line in filter(None, map(parse_line, said.splitlines())):
            before = found.get(line.name)
            if line.name.startswith(prefix) and (before is None or _counts_more(line, before)):
                found[line.name] = line
        return found

    def cancel(self, names: Sequence[str], *, signal: str | None = None) -> None:
        """End our user's jobs of these names, whatever their numbers; with `signal` only send that to their batch scripts.

        By name: a controller that was killed may give the number of a job it lost to another one. Raise Unreachable.
        """
        how = [] if signal is None else ["--batch", f"--signal={signal}"]
        for name in names:
            try:
                self._run("scancel", ["--quiet", f"--user={os.geteuid()}", f"--name={name}", *how])
            except Rejected as error:
                raise Unreachable(str(error)) from error

    def partitions(self) -> list[Partition]:
        """Return the partitions that we may see. Raise Unreachable."""
        try:
            said = self._run("sinfo", ["--noheader", "--all", "--format=%P|%a|%D"])
        except Rejected as error:
            raise Unreachable(str(error)) from error
        found = []
        for line in said.splitlines():
            name, _, rest = line.strip().partition("|")
            state, _, count = rest.partition("|")
            if name:
                nodes = int(count) if count.isdigit() else 0
                found.append(Partition(name=name.rstrip("*"), is_up=state == "up", nodes=nodes, is_default=name.endswith("*")))
        return found

    def accounted(self, names: Sequence[str]) -> dict[str, tuple[str, str]]:
        """Return (state, exit code) that the accounting has kept of jobs, `CANCELLED by 0`, by name.

        Of several with one name it is the last. Nothing where there is no accounting.
        """
        try:
            said = self._run(
                "sacct",
                ["--noheader", "--allocations", "--parsable2", f"--user={os.geteuid()}", f"--starttime={_ACCOUNTED_SINCE}",
                 f"--name={','.join(names)}", "--format=JobName,State,ExitCode"],
            )  # fmt: skip
        except (Rejected, Unreachable):
            return {}
        lines = (line.split("|") for line in said.splitlines())
        return {parts[0]: (parts[1], parts[2]) for parts in lines if len(parts) == 3}

    def version(self) -> str:
        """Return what `sbatch --version` says. Raise Unreachable where the command cannot be run."""
        try:
            return self._run("sbatch", ["--version"]).strip()
        except Rejected as error:
            raise Unreachable(str(error)) from error

    def _run(self, command: str, arguments: Sequence[str], **more: str) -> str:
        path = self.place / command
        try:
            status, output, errors = run(str(path), arguments, self._environment | more, PATIENCE_S)
        except TookTooLong as error:
            raise Unreachable(f"{command} did not answer within {PATIENCE_S:g} s") from error
        except OSError as error:
            raise Unreachable(f"{path} cannot be run: {error.strerror}") from error
        if status == 0:
            return output.decode("utf-8", "replace")
        said = _short(errors.decode("utf-8", "replace")) or f"{command} ended with {status}"
        raise (Unreachable if _NOBODY_ANSWERED.search(said) else Rejected)(said)


def parse_line(text: str) -> JobLine | None:
    """Given a line of `squeue`, return what it says; None for one that is not as asked for."""
    parts, at = [], 0
    for width in _FIELDS.values():
        parts.append(text[at : at + width].strip())
        at += width
    job, name, state, code, started, restarts, reason, nodes = parts
    if not job or not name or not state:
        return None
    return JobLine(
        job=job,
        name=name,
        state=state.partition(" ")[0],
        wait_status=int(code) if code.isdigit() else 0,
        started=int(started) if started.isdigit() else None,
        restarts=int(restarts) if restarts.isdigit() else 0,
        reason="" if reason in ("None", "(null)") else reason,
        nodes="" if nodes == "(null)" else nodes,
    )


def _counts_more(line: JobLine, before: JobLine) -> bool:
    return (not line.is_over, _number(line)) > (not before.is_over, _number(before))


def _number(line: JobLine) -> int:
    return int(line.job) if line.job.isdigit() else 0


def _short(text: str) -> str:
    """Return what a command said, on one line and not too long, without the name of the command before each part."""
    lines = [
        re.sub(r"^(sbatch|squeue|scancel|sinfo|sacct): (error: |fatal: )?", "", line.strip()) for line in text.splitlines()
    ]
    said = "; ".join(dict.fromkeys(filter(None, lines)))
    return said if len(said) <= _LONGEST_WORDS else said[:_LONGEST_WORDS] + "…"

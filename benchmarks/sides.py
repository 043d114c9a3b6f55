"""Who starts so many jobs at one instant: wfctl, bare loops, other schedulers; each as a command and what it needs."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from limits import Programs

HERE = Path(__file__).parent
JOURNALED, PLAIN, PYTHON, WFCTL = "C loop, 1 fdatasync", "C loop", "Python loop, 1 FULL commit", "wfctl"
APSCHEDULER, SYSTEMD, CRON = "APScheduler in memory", "systemd timers", "Debian cron"
SYSTEMD_BINARY = Path("/lib/systemd/systemd")


@dataclass(frozen=True, slots=True)
class Work:
    """What is to be started: so many jobs at one instant, in a directory of its own."""

    directory: Path
    programs: Programs
    count: int
    due_s: int  #: seconds since the epoch

    @property
    def stamps(self) -> Path:
        """Where the jobs write when they ran."""
        return self.directory / "stamps"

    @property
    def job(self) -> list[str]:
        """The job's words; "%" stands for its number."""
        return [str(self.programs.stamp), str(self.stamps), "%"]

    def words(self, number: int) -> list[str]:
        """Return the words of one job."""
        return [*self.job[:-1], f"{number:06d}"]


@dataclass(frozen=True, slots=True)
class Side:
    """One who starts jobs: its command, made together with whatever that reads."""

    name: str
    command: Callable[[Work], list[str]]
    says: bytes = b""  #: in its output once it is ready; nothing: it is so at once
    lead_s: Callable[[int], float] = lambda count: 2.0  #: how long before the instant it is started
    ends: bool = False  #: whether it ends by itself once all jobs have been reaped
    more: dict[str, str] = field(default_factory=dict)  #: environment
    is_settled: Callable[[Work], bool] | None = None  #: whether it has recorded all ends
    account: Callable[[Work], Account] | None = None  #: what it says itself of what became of the jobs


@dataclass(frozen=True, slots=True)
class Account:
    """What a store's ledger says became of what was due."""

    started: int  #: runs whose process existed
    skipped: int  #: occurrences that a recorded reason kept from running


def journaled() -> Side:
    """Return the loop that everything is held against: one synced append for all, then one start after the other."""
    return Side(JOURNALED, lambda work: _loop(work, work.directory / "journal"), ends=True)


def limits() -> list[Side]:
    """Return the other bare loops."""
    return [
        Side(PLAIN, lambda work: _loop(work, "-"), ends=True),
        Side(PYTHON, _python_loop, ends=True),
    ]


def _loop(work: Work, journal: Path | str) -> list[str]:
    words = [work.programs.spawnloop, work.due_s * 10**9, work.count, journal, work.directory / "output", *work.job]
    return [str(word) for word in words]


def _python_loop(work: Work) -> list[str]:
    program = [sys.executable, str(HERE / "peers" / "python_loop.py")]
    where = [str(work.directory / "ledger"), str(work.directory / "output")]
    return [*program, str(work.due_s * 10**9), str(work.count), *where, *work.job]


# wfctl --------------------------------------------------------------------------------------------------------------------


def wfctl() -> Side:
    """Return the supervisor of this checkout, with its keeper."""
    return Side(
        WFCTL,
        _supervise,
        says=b"ready:",
        lead_s=lambda count: 7.0 + count / 80,
        more={"PYTHONPATH": str(HERE.parent)},
        is_settled=is_settled,
        account=account_of,
    )


def store_of(directory: Path) -> Path:
    """Return where the store of a round is."""
    return directory / "store"


def _supervise(work: Work) -> list[str]:
    root = store_of(work.directory)
    make_store(root, work)
    program = [sys.executable, "-m", "wfctl", "--store", str(root)]
    return [*program, "supervise", "--max-concurrent-runs", str(work.count)]


def make_store(root: Path, work: Work) -> None:
    """Make a store and put a deployment and a one-shot for each job beside its ledger, as an operator's tools would."""
    from wfctl import init_store

    init_store(root).close()
    at = datetime.fromtimestamp(work.due_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    for number in range(work.count):
        command = ", ".join(f'"{word}"' for word in work.words(number))
        _write(root / "deployments" / f"job-{number:06d}.toml", f"format = 1\ncommand = [{command}]\n")
        trigger = f'[trigger]\nkind = "oneshot"\nat = "{at}"\n'
        _write(root / "schedules" / f"job-{number:06d}.toml", f'format = 1\ndeployment = "job-{number:06d}"\n\n{trigger}')


def _write(path: Path, text: str) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)


def is_settled(work: Work) -> bool:
    """Tell, at little cost, whether every occurrence is recorded as over."""
    path = store_of(work.directory) / "ledger.db"
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        ended = connection.execute("SELECT count(*) FROM runs WHERE ended_at IS NOT NULL").fetchone()[0]
        without = connection.execute("SELECT count(*) FROM occurrences WHERE run IS NULL").fetchone()[0]
    return bool(ended + without >= work.count)


def account_of(work: Work) -> Account:
    """Read the history of a round's store, page by page."""
    from wfctl import open_store

    with open_store(store_of(work.directory)) as store:
        statuses = [row.status or "" for row in _all(store.list_schedule_occurrences)]
        started = sum(run.started_at is not None for run in _all(store.list_runs))
    return Account(started=started, skipped=sum(status.startswith("skipped") for status in statuses))


def _all(listing: Callable[..., Any]) -> Iterator[Any]:
    cursor = None
    while True:
        page = listing(limit=100, cursor=cursor)
        yield from page.items
        cursor = page.next_cursor
        if cursor is None:
            return


# Others -------------------------------------------------------------------------------------------------------------------


def apscheduler(interpreter: str) -> Side:
    """Return APScheduler 3, run by an interpreter that has it."""
    program = [interpreter, str(HERE / "peers" / "apscheduler_memory.py")]
    return Side(
        APSCHEDULER,
        lambda work: [*program, str(work.due_s * 10**9), str(work.count), *work.job],
        says=b"ready:",
        lead_s=lambda count: 4.0 + count / 100,
    )


def systemd() -> Side:
    """Return a systemd of its own, in namespaces of its own, with a timer and a service for each job. Wants root."""
    if not SYSTEMD_BINARY.exists():
        raise SystemExit(f"--systemd: {SYSTEMD_BINARY} is not there")
    _check_root("--systemd")
    return Side(SYSTEMD, _systemd, lead_s=lambda count: 5.0 + count / 80)


def _systemd(work: Work) -> list[str]:
    units = work.directory / "units"
    wanted = units / "timed.target.wants"
    wanted.mkdir(parents=True)
    bare = "[Unit]\nDefaultDependencies=no\n"
    (units / "timed.target").write_text(f"{bare}AllowIsolate=yes\n")
    at = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(work.due_s))
    for number in range(work.count):
        name = f"job-{number:06d}"
        command = " ".join(work.words(number))
        streams = "StandardOutput=null\nStandardError=null\n"
        (units / f"{name}.service").write_text(f"{bare}[Service]\nExecStart={command}\n{streams}")
        (units / f"{name}.timer").write_text(f"{bare}[Timer]\nOnCalendar={at}\nAccuracySec=1us\n")
        (wanted / f"{name}.timer").symlink_to(f"../{name}.timer")
    first = f"{SYSTEMD_BINARY} --system --unit=timed.target --log-target=null --show-status=no"
    script = f"""
        mount -t tmpfs none /mnt
        cp -a {units} /mnt/units
        mount -t tmpfs none /run
        mkdir -p /run/systemd
        cp -a /mnt/units /run/systemd/system
        mount -t proc proc /proc
        exec env -i container=benchmark PATH=/usr/sbin:/usr/bin:/sbin:/bin {first}
    """
    spaces = ["--mount", "--pid", "--uts", "--ipc", "--cgroup", "--fork", "--kill-child", "--propagation", "private"]
    return ["unshare", *spaces, "sh", "-ec", script]


def cron(binary: str, later: Path) -> Side:
    """Return Debian's cron with a crontab of its own, in a mount namespace of its own. Wants root.

    `later`: what puts its clock ahead (see limit/laterclock.c), so that the instant is its next full minute.
    """
    if not shutil.which(binary):
        raise SystemExit(f"--cron: {binary} is no program")
    _check_root("--cron")
    return Side(CRON, lambda work: _cron(work, Path(binary).resolve(), later), lead_s=lambda count: 3.0 + count / 500)


def _cron(work: Work, binary: Path, later: Path) -> list[str]:
    minute = (work.due_s // 60 + 1) * 60
    at = time.localtime(minute)
    lines = [f"{at.tm_min} {at.tm_hour} * * * {' '.join(work.words(number))}\n" for number in range(work.count)]
    (work.directory / "crontab").write_text("".join(lines))
    (work.directory / "nothing").mkdir()
    unpacked = binary.parents[2] / "etc" / "pam.d" / "cron"  # of a package that was unpacked and not installed
    pam = ""
    if not Path("/etc/pam.d/cron").exists() and unpacked.exists():
        pam = f"cp -a /etc/pam.d {work.directory}/pam; cp {unpacked} {work.directory}/pam/cron; "
        pam += f"mount --bind {work.directory}/pam /etc/pam.d"
    script = f"""
        mount -t tmpfs none /var/spool
        mkdir -p /var/spool/cron/crontabs
        mount -t tmpfs none /run
        if [ -d /etc/cron.d ]; then mount --bind {work.directory}/nothing /etc/cron.d; fi
        if [ -e /etc/crontab ]; then mount --bind /dev/null /etc/crontab; fi
        {pam}
        cp {work.directory}/crontab /var/spool/cron/crontabs/root
        chmod 600 /var/spool/cron/crontabs/root
        LATER_S={minute - work.due_s} LD_PRELOAD={later} exec {binary} -f
    """
    return ["unshare", "--mount", "--propagation", "private", "sh", "-ec", script]


def _check_root(option: str) -> None:
    if os.geteuid() != 0:
        raise SystemExit(f"{option} wants root: it runs in namespaces of its own")

"""`wfctl demo`: the real supervisor and real processes in a throw-away store, and a check of what came of it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wfctl.cli import demo_job, occurrence, render, runs, streams, values
from wfctl.cli.base import Common, command
from wfctl.cli.runs import FINAL
from wfctl.cli.text import count_of, escape
from wfctl.core import reasons
from wfctl.errors import CannotCreate, NoSupervisor, WfctlError

if TYPE_CHECKING:
    from wfctl.operations.store import Store
    from wfctl.operations.views import OccurrenceView, RunView

_POLL = 0.1
_READY_WITHIN = 10.0
_END_WITHIN = 8.0
_DEFERRED = 0.4  #: seconds of lateness that only waiting for an earlier run explains


@dataclass(slots=True)
class Found:
    """What the demo's store holds after a look."""

    occurrences: list[OccurrenceView] = field(default_factory=list)
    runs: list[RunView] = field(default_factory=list)

    def of(self, schedule_id: str) -> tuple[list[OccurrenceView], list[RunView]]:
        """Return the occurrences and runs of one schedule."""
        return (
            [it for it in self.occurrences if it.schedule_id == schedule_id],
            [it for it in self.runs if it.schedule_id == schedule_id],
        )


class NotAsExpected(Exception):
    """The demo could not come to its end."""


@command()
@click.option("--keep", metavar="DIR", type=click.Path(), help="Make everything in this new directory, and leave it there.")
@click.option(
    "--seconds",
    type=click.FloatRange(3, 600),
    metavar="N",
    default=12.0,
    show_default=True,
    help="Give it at most this long to show everything.",
)
def demo(common: Common, keep: str | None, seconds: float) -> int:
    """See it work once, in a throw-away store.

    Starts the real supervisor with four schedules: a one-shot, two that come due each second with a job that takes longer,
    under overlap skip and queue, and a backup of a database in two steps. Then checks that what is on record is what must be.
    """
    with _place(keep) as place, _terminable():
        try:
            found, problems = _play(common, place, seconds)
        except NotAsExpected as end:
            found, problems = Found(), [str(end)]
        _show(common, found, problems)
        for problem in problems:
            streams.talk(f"wfctl: demo: {escape(problem)}")
        if problems:
            _show_log(common, place)
        elif keep is not None and not common.quiet:
            streams.talk(f"kept: look around with `wfctl --store {escape(place / 'store')} occurrences`")
    return 1 if problems else 0


@contextmanager
def _place(keep: str | None) -> Iterator[Path]:
    """A new directory for the demo, removed at the end unless it is to be kept."""
    if keep is not None:
        place = Path(keep).absolute()
        try:
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            if any(place.iterdir()):
                raise CannotCreate(f"{place} is not empty; name a new directory", {"path": str(place)})
        except OSError as error:
            raise CannotCreate(f"cannot make {place}: {error.strerror}", {"path": str(place), "errno": error.errno}) from error
        yield place
        return
    made = Path(tempfile.mkdtemp(prefix="wfctl-demo-"))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


@contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM clean up as Ctrl-C does."""

    def end(number: int, frame: Any) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


# Playing ----------------------------------------------------------------------------------------------------------------


def _play(common: Common, place: Path, seconds: float) -> tuple[Found, list[str]]:
    from wfctl.rpc.door import init_store

    demo_job.make_database(place / "shop.db")
    with init_store(place / "store") as store, _supervisor(place) as process:
        _say(common, f"store {store.root}, supervisor pid {process.pid}")
        _add_deployments(store, place)
        _wait_until_ready(store, process)
        _add_schedules(store, common)
        found, problems = _watch(common, store, process, place, seconds)
        _wind_down(store)
        final = _look(store)
        problems = problems or _check(final, place)
        return final if final.occurrences else found, problems


@contextmanager
def _supervisor(place: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The supervisor of the demo's store, in a session of its own so that Ctrl-C reaches it through here alone."""
    environ = {name: text for name, text in os.environ.items() if not name.startswith("WFCTL_")}
    options = ["--max-concurrent-runs", "4", "--poll-interval-s", "1", "--drain-grace-s", "5"]
    argv = [sys.executable, "-m", "wfctl", "--store", str(place / "store"), "supervise", *options]
    with (place / "supervisor.log").open("wb") as log:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environ, start_new_session=True)
    try:
        yield process
    except BaseException:
        _abort(place)
        raise
    finally:
        _stop(process)


def _abort(place: Path) -> None:
    """End what runs, for nobody will see it."""
    from wfctl.rpc.door import open_store

    try:
        with open_store(place / "store") as store:
            for view in store.list_schedules().items:
                store.pause_schedule(schedule_id=view.id)
            for each in _pages(store.list_runs):
                if each.status not in FINAL:
                    store.cancel_run(run_id=each.run_id, reason="the demo was ended", grace="1s")
    except (WfctlError, OSError) as error:
        streams.talk(f"wfctl: the demo could not end what it started: {escape(error)}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGINT, signal.SIGKILL):
        if process.poll() is not None:
            return
        process.send_signal(number)
        try:
            process.wait(_END_WITHIN if number == signal.SIGTERM else 1.0)
        except subprocess.TimeoutExpired:
            continue


def _wait_until_ready(store: Store, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _READY_WITHIN
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise NotAsExpected(f"the supervisor ended with exit status {process.returncode}")
        try:
            store.server_status()
            return
        except NoSupervisor:
            time.sleep(_POLL)
    raise NotAsExpected(f"the supervisor was not ready within {_READY_WITHIN:g} s")


def _add_deployments(store: Store, place: Path) -> None:
    job = place / "backup.py"
    job.write_text(demo_job.JOB, encoding="utf-8")
    store.create_deployment(deployment_id="greet", command=["/bin/sh", "-c", 'echo "hello from $WFCTL_RUN_ID"'])
    store.create_deployment(
        deployment_id="slow", command=["sleep", "2.5"], description="takes longer than its schedule's second"
    )
    store.create_deployment(
        deployment_id="backup",
        description="a compressed copy of a database, checked",
        environment={"DEMO_SOURCE": str(place / "shop.db"), "DEMO_COPY": str(place / "shop.db.gz")},
        files={"backup.py": store.pin_file(job)},
        steps=[
            {"name": "copy", "command": [sys.executable, "backup.py", "copy"], "timeout": "30s"},
            {"name": "check", "command": [sys.executable, "backup.py", "check"], "timeout": "30s"},
        ],
    )


def _add_schedules(store: Store, common: Common) -> None:
    soon = values.instant((common.now() + timedelta(seconds=1)).replace(microsecond=0) + timedelta(seconds=1))
    once = {"kind": "oneshot", "at": soon}
    each_second = {"kind": "interval", "every": "1s"}
    store.create_schedule(schedule_id="once", deployment_id="greet", trigger=once)
    store.create_schedule(schedule_id="nightly-backup", deployment_id="backup", trigger=once)
    store.create_schedule(schedule_id="skipping", deployment_id="slow", trigger=each_second, overlap="skip")
    store.create_schedule(schedule_id="queueing", deployment_id="slow", trigger=each_second, overlap="queue")
    _say(common, f"once and nightly-backup at {soon}; skipping and queueing every second, each run takes 2.5 s")


def _watch(
    common: Common, store: Store, process: subprocess.Popen[bytes], place: Path, seconds: float
) -> tuple[Found, list[str]]:
    """Look until everything has been seen, telling what changes; return the last look and what is missing."""
    deadline = time.monotonic() + seconds
    told: dict[tuple[str, str], str] = {}
    while True:
        found = _look(store)
        _tell(common, found, told)
        problems = _check(found, place)
        if not problems or time.monotonic() >= deadline:
            return found, problems
        if process.poll() is not None:
            return found, [f"the supervisor ended with exit status {process.returncode}", *problems]
        time.sleep(_POLL)


def _look(store: Store) -> Found:
    return Found(_pages(store.list_schedule_occurrences), _pages(store.list_runs))


def _pages(fetch: Any) -> list[Any]:
    items: list[Any] = []
    cursor = None
    while True:
        page = fetch(limit=100, cursor=cursor)
        items += page.items
        cursor = page.next_cursor
        if cursor is None:
            return items


def _wind_down(store: Store) -> None:
    """Let nothing new begin, and what runs end."""
    for view in store.list_schedules().items:
        store.pause_schedule(schedule_id=view.id)
    deadline = time.monotonic() + _END_WITHIN
    while time.monotonic() < deadline:
        if all(view.status in FINAL for view in _pages(store.list_runs)):
            return
        time.sleep(_POLL)


# Judging ----------------------------------------------------------------------------------------------------------------


def _check(found: Found, place: Path) -> list[str]:
    """Return what must hold and does not, or not yet."""
    return [*_check_once(found), *_check_skipping(found), *_check_queueing(found), *_check_backup(found, place)]


def _check_once(found: Found) -> Iterator[str]:
    occurrences, runs = found.of("once")
    if [it.status for it in occurrences] != ["completed"] or len(runs) != 1:
        yield "once: must be one occurrence with one completed run"


def _check_skipping(found: Found) -> Iterator[str]:
    occurrences, runs = found.of("skipping")
    skipped = [it for it in occurrences if it.status == "skipped-overlap"]
    if not skipped:
        yield "skipping: an occurrence must be skipped for overlap"
    if any(not (it.reason or {}).get("runs") for it in skipped):
        yield "skipping: a skipped occurrence must name the run that held the slot"
    if sum(it.started_at is not None for it in runs) < 2:
        yield "skipping: there must be a run after the skipped ones"
    yield from _check_apart("skipping", runs)


def _check_queueing(found: Found) -> Iterator[str]:
    occurrences, runs = found.of("queueing")
    ran = {it.run_id for it in runs if it.started_at is not None}
    if not any(it.run_id in ran and (it.lateness_s or 0) >= _DEFERRED for it in occurrences):
        yield "queueing: a run must have been deferred until the one before it ended"
    if any(it.status == "skipped-overlap" for it in occurrences):
        yield "queueing: nothing may be skipped for overlap"
    yield from _check_apart("queueing", runs)


def _check_apart(schedule_id: str, runs: Sequence[RunView]) -> Iterator[str]:
    """No two runs of a schedule may have been at work at once."""
    started = sorted((it for it in runs if it.started_at is not None), key=lambda it: it.run_id)
    for earlier, later in pairwise(started):
        if earlier.ended_at is None or (later.started_at is not None and later.started_at < earlier.ended_at):
            yield f"{schedule_id}: {earlier.run_id} and {later.run_id} ran at the same time"
    for it in runs:
        if it.status in FINAL and it.status != "completed":
            yield f"{schedule_id}: {it.run_id} {it.status}: {reasons.phrase(it.reason)}"


def _check_backup(found: Found, place: Path) -> Iterator[str]:
    _, runs = found.of("nightly-backup")
    if len(runs) != 1 or runs[0].status != "completed":
        said = f", it {runs[0].status}: {reasons.phrase(runs[0].reason)}" if runs and runs[0].status in FINAL else ""
        yield f"nightly-backup: must be one completed run{said}"
        return
    if [(it.step, it.exit_status) for it in runs[0].trace] != [("copy", 0), ("check", 0)]:
        yield "nightly-backup: both steps must have ended with exit status 0"
    wrong = demo_job.is_sound(place / "shop.db.gz", place / "unpacked.db")
    if wrong:
        yield f"nightly-backup: {wrong}"


# Telling ----------------------------------------------------------------------------------------------------------------


def _say(common: Common, text: str) -> None:
    if not common.quiet:
        streams.talk(escape(text))


def _tell(common: Common, found: Found, told: dict[tuple[str, str], str]) -> None:
    for it in found.occurrences:
        key = (it.schedule_id, values.instant(it.instant))
        if told.get(key) != it.status:
            told[key] = it.status or ""
            reason = reasons.phrase(it.reason)
            detail = ", ".join(part for part in (it.run_id or "", reason) if part)
            _say(common, f"  {occurrence.name_of(it):44} {it.status}" + (f" ({detail})" if detail else ""))


def _show(common: Common, found: Found, problems: list[str]) -> None:
    if common.is_program:
        lists = {"occurrences": [it.to_json() for it in found.occurrences], "runs": [it.to_json() for it in found.runs]}
        made = {"schema": "wfctl/demo.v1", "as_expected": not problems, "problems": problems, **lists}
        render.item(common, made, details=lambda _: "", name="as-expected" if not problems else "not-as-expected")
        return
    if not common.quiet:
        _write(common, occurrence.COLUMNS, found.occurrences, occurrence.SCHEMA)
        streams.answer("")
        _write(common, runs.columns(common.now()), found.runs, runs.SCHEMA)
        streams.answer("")
    dash = "\u2013" if streams.is_utf8(sys.stdout) else "-"
    counts = Counter(str(it.status) for it in found.occurrences)
    said = ", ".join([count_of(len(found.occurrences), "occurrence"), *(f"{counts[word]} {word}" for word in sorted(counts))])
    streams.answer(f"demo: {said} {dash} {'NOT ' if problems else ''}as expected")


def _write(common: Common, columns: Sequence[render.Column], items: Sequence[Any], schema: str) -> None:
    chosen = Common(
        output=common.format if common.is_human else "plain",
        no_header=common.no_header,
        color=common.color,
        ascii=common.ascii,
        quiet=True,
        environ=common.environ,
    )
    render.page(chosen, columns, items, schema=schema, name=lambda it: "")


def _show_log(common: Common, place: Path) -> None:
    try:
        lines = (place / "supervisor.log").read_text("utf-8", "backslashreplace").splitlines()
    except OSError:
        return
    for line in lines[-15:]:
        streams.talk(f"  supervisor: {escape(line)}")

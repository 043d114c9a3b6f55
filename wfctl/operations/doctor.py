"""`wfctl doctor`: what wfctl stands on, one thing a line, each with what to do where it is not so (contract 2.7, 7.4)."""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import shlex
import socket
import stat
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path

from wfctl.core.instants import format_instant
from wfctl.core.model import SlurmNeeds
from wfctl.errors import InvalidDefinition, NotAllowed, WfctlError
from wfctl.keeper.protocol import PROTOCOL
from wfctl.linux import processes_with
from wfctl.operations import installed_unit, inuse, preflight, telling
from wfctl.operations.cluster_checks import check_cluster
from wfctl.operations.lint import drifting
from wfctl.operations.machine import check, of_descriptors, of_linger, of_machine
from wfctl.operations.reconcile import KINDS
from wfctl.operations.store import Store
from wfctl.operations.views import DoctorCheckView, DoctorView
from wfctl.settings import BUILT_IN, SYSTEM_FILE, load_settings
from wfctl.slurm.absent import MISSING
from wfctl.store import definitions as files
from wfctl.store import place
from wfctl.store.layout import Kind, Layout
from wfctl.store.ledger import definitions, schedules, sessions
from wfctl.store.ledger.schema import FORMAT
from wfctl.store.locks import is_held, read_owner
from wfctl.store.place import check_place

_PATIENCE_S = 5.0  #: how long the supervisor may take to answer
_MOST_PLACES = 5  #: of a cluster that small jobs are sent to
_COMMAND = re.compile(r"`((?:wfctl|chmod|chown|sudo) [^`]+)`")


def examine(root: Path, open_store: Callable[[Path], Store], environ: Mapping[str, str]) -> DoctorView:
    """Look at everything that wfctl needs on this machine and in that store. Nothing is changed, and nothing raised."""
    checks = [*of_machine(), *_of_place(root), *_of_settings(root, environ), *_of_service(root, environ)]
    checks += of_linger(root, environ)
    try:
        store = open_store(root)
    except WfctlError as error:
        if not isinstance(error, NotAllowed):
            checks.append(check("store", False, error.message, _command_in(error.message)))
    else:
        with store:
            checks += _of_store(store, environ)
    return DoctorView(ok=all(each.ok for each in checks), checks=tuple(checks))


# The place --------------------------------------------------------------------------------------------------------------


def _of_place(root: Path) -> Iterator[DoctorCheckView]:
    try:
        check_place(root)
    except WfctlError as error:
        yield check("place", False, error.message, _command_in(error.message))
        return
    kind = place.filesystem_type(root.resolve())
    on = f", on {kind}, a local file system" if kind else ""
    try:
        status = root.stat()
    except OSError:
        yield check("place", True, f"{root}, which is not there yet{on}")
        return
    mode, owner = stat.S_IMODE(status.st_mode), _user(status.st_uid)
    yield check("place", mode == 0o700, f"{root}, of {owner}, mode {mode:04o}{on}", f"chmod 700 {shlex.quote(str(root))}")


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def _command_in(message: str) -> str | None:
    """Return the command that a message says to run."""
    found = _COMMAND.search(message)
    return None if found is None else found[1]


def _of_settings(root: Path, environ: Mapping[str, str]) -> Iterator[DoctorCheckView]:
    there = next((path for path in (root, *root.absolute().parents) if path.exists()), Path("/"))
    try:
        settings = load_settings(root, environ)
    except WfctlError as error:
        named = [str(path) for path in (root / "wfctl.toml", SYSTEM_FILE) if str(path) in error.message]
        yield check(
            "settings", False, error.message, f"${{EDITOR:-vi}} {shlex.quote(named[0])}" if named else "wfctl config show"
        )
        return
    changed = [key for key, _, origin in settings.items() if origin != BUILT_IN]
    yield check("settings", True, f"valid; set: {', '.join(changed)}" if changed else "valid; all as built in")
    usage = os.statvfs(there)
    free, needed = usage.f_bavail * usage.f_frsize, settings.free_needed(usage.f_blocks * usage.f_frsize)
    detail = f"{free // 2**20} MiB free, {needed // 2**20} MiB needed; {usage.f_favail} files may be made"
    is_enough = free >= needed and (usage.f_favail > 0 or usage.f_files == 0)
    yield check("free space", is_enough, detail, "wfctl store gc --keep 90d")


def _of_service(root: Path, environ: Mapping[str, str]) -> Iterator[DoctorCheckView]:
    """A service that is stopped must have the time that a drain takes (7.6)."""
    unit = installed_unit.find(root, environ)
    try:
        grace = timedelta(seconds=load_settings(root, environ).drain_grace_s)
    except WfctlError:
        return  # that is said already
    if unit is None:
        return
    needed, given = grace + installed_unit.MARGIN, unit.stop_timeout
    said = f"TimeoutStopSec={unit.last('TimeoutStopSec') or '90s'}"
    short, margin = f"{said} is below drain_grace_s={grace.total_seconds():g}", f" + {installed_unit.MARGIN.seconds}"
    is_enough = given is None or given >= needed
    user = " --user" if unit.is_user else ""
    fix = f"wfctl systemd install{user}"
    if grace > timedelta(seconds=30):  # more than the shipped unit is made for
        fix = f"systemctl{user} edit {unit.name}, and there [Service] TimeoutStopSec={needed.total_seconds():g}s"
    yield check("service", is_enough, f"{unit.path}, {said}" if is_enough else short + margin, fix)


# The store --------------------------------------------------------------------------------------------------------------


def _of_store(store: Store, environ: Mapping[str, str]) -> Iterator[DoctorCheckView]:
    context = store.context
    connection = context.ledger.connection
    count = sum(row.deleted_at is None for row in definitions.list_all(connection, "schedule"))
    schedules_word = "schedule" if count == 1 else "schedules"
    yield check("store", True, f"format {FORMAT}, {count} {schedules_word}, id {context.ledger.store_id}")
    yield from _of_owner(store, context.layout, environ)
    yield from _of_keepers(context.layout)
    latest = sessions.clock(connection)
    is_behind = context.now() < latest
    detail = f"the clock stands before {format_instant(latest)}, up to where instants were consumed" if is_behind else "in step"
    yield check("clock and ledger", not is_behind, detail, "timedatectl set-ntp true")
    yield _of_calendars(store)
    yield from _of_definitions(store)
    yield from _of_blocked(store)
    yield from _of_notify(store)
    yield from _of_clusters(store, environ)


def _of_owner(store: Store, layout: Layout, environ: Mapping[str, str]) -> Iterator[DoctorCheckView]:
    try:
        is_owned = is_held(layout.scheduler_lock)
    except WfctlError as error:
        yield check("lock", False, error.message, f"chmod 600 {shlex.quote(str(layout.scheduler_lock))}")
        return
    owner = read_owner(layout.scheduler_lock) if is_owned else None
    with contextlib.suppress(WfctlError):
        slots = load_settings(layout.root, environ).max_concurrent_runs
        yield of_descriptors(slots, owner.pid if owner is not None and owner.host == socket.gethostname() else None)
    if not is_owned:
        yield check("lock", True, "free: no supervisor runs on this store")
        return
    said = "held by a supervisor" if owner is None else f"held by the supervisor with pid {owner.pid} on {owner.host}"
    yield check("lock", True, said)
    begun = _moment(store)
    try:
        store.door.status(_PATIENCE_S)
    except WfctlError as error:
        unit = installed_unit.find(layout.root, environ)
        user = " --user" if unit is not None and unit.is_user else ""
        restart = f"systemctl{user} restart {unit.name}" if unit is not None else None
        ended = f"kill -QUIT {owner.pid}" if owner is not None else None  # which writes to its log where it stands
        yield check("socket", False, f"the supervisor does not answer: {error.message}", restart or ended)
        return
    yield check("socket", True, f"answers in {(_moment(store) - begun) * 1000:.1f} ms")


def _of_keepers(layout: Layout) -> Iterator[DoctorCheckView]:
    """The parents of what runs. One of an older protocol lives until its last run has ended (6.9)."""
    found = list(inuse.keepers(layout))
    if not found:
        yield check("keeper", True, "none: nothing runs")
    for directory, protocol in found:
        pids = [pid for pid, _ in processes_with(directory / f"keeper.{protocol}.lock")]
        who = f"alive, pid {pids[0]}, protocol {protocol}" if pids else f"alive, protocol {protocol}"
        where = "" if directory == layout.root else f", for {directory.name} alone"
        old = "" if protocol == PROTOCOL else f"; this wfctl speaks {PROTOCOL}, and it ends with its last run"
        yield check("keeper", True, who + where + old)


def _of_calendars(store: Store) -> DoctorCheckView:
    """What moves instants without anybody's doing is told; what counts is always today's calendar (3.2)."""
    found = drifting(store.context)
    some = f"{', '.join(found[:3])}{' ...' if len(found) > 3 else ''}"
    detail = "no drift since schedules were saved"
    if found:
        detail = f"{len(found)} read differently than when they were saved ({some}); see `wfctl schedule lint --drift`"
    return check("calendars", True, detail)


def _of_definitions(store: Store) -> Iterator[DoctorCheckView]:
    """Files that were edited by hand and that nobody has looked at yet: will they be taken?"""
    for kind in KINDS:
        known = definitions.signatures(store.context.ledger.connection, kind)
        try:
            there = files.scan_definitions(store.context.layout, kind)
        except OSError as error:
            yield check(
                "definitions", False, f"{store.context.layout.definitions(kind)}: {error.strerror}", "wfctl store verify"
            )
            continue
        changed = [name for name, signature in there.items() if name not in known or known[name][0] != signature]
        for name in sorted(changed):
            said = _unparsable(store, kind, name)
            if said is not None and not (name in known and known[name][1]):  # what blocks already is told below
                said = said.removeprefix(f"{kind} {name}: ")
                yield check(f"{kind} {name}", False, said, f"wfctl {kind} edit {name}")


def _unparsable(store: Store, kind: Kind, name: str) -> str | None:
    state = files.read_definition_file(store.context.layout, kind, name)
    if state.content is None:
        return None if state.problem is None else state.problem.message
    try:
        (files.deployment_from_toml if kind == "deployment" else files.schedule_from_toml)(state.content, f"{kind} {name}")
    except InvalidDefinition as error:
        return error.message
    return None


def _of_notify(store: Store) -> Iterator[DoctorCheckView]:
    """Tell whether each command that is to be told of a change of health is there (7.8)."""
    base = preflight.base_environment(os.environ)
    commands: dict[str, list[str]] = {}
    for row in schedules.list_all(store.context.ledger.connection):
        notify = telling.notify_of(store.context, row.number) if row.deleted_at is None else None
        if notify is not None:
            commands.setdefault(notify.command[0], []).append(row.id)
    for name, told in sorted(commands.items()):
        is_there = preflight.find_program(name, base, Path("/")) is not None
        whose = f"schedule {told[0]}" + (f" and {len(told) - 1} more" if len(told) > 1 else "")
        detail = f"{name}, of {whose}" + ("" if is_there else ": is not there, or may not be executed")
        yield check("notify", is_there, detail, f"ls -l {shlex.quote(name)}")


def _of_clusters(store: Store, environ: Mapping[str, str]) -> Iterator[DoctorCheckView]:
    """Test the cluster, by a small job for each place that runs are sent to; the default one where none are."""
    with contextlib.suppress(WfctlError):
        slurm = load_settings(store.root, environ).slurm
        context, needed = store.context, {}
        for row in definitions.list_all(context.ledger.connection, "deployment"):
            if row.deleted_at is None and row.revision and row.diagnostic is None:
                needs = context.deployment(row.number, row.revision)[0].slurm
                if needs is not None:
                    needed[needs.partition, needs.account, needs.options] = (row.id, needs)
        if slurm is None:
            for name, _ in list(needed.values())[:1]:
                yield check("cluster", False, f"deployment {name} is for one: {MISSING}", f"wfctl deployment show {name}")
            return
        said: set[tuple[str, str]] = set()
        for _, needs in list(needed.values())[:_MOST_PLACES] or [("", SlurmNeeds())]:
            for each in check_cluster(slurm, context.ledger.store_id, context.layout.runs, needs):
                if (each.name, each.detail) not in said:
                    said.add((each.name, each.detail))
                    yield check(each.name, each.ok, each.detail, each.fix)


def _moment(store: Store) -> float:
    """Return the store's monotonic time in seconds."""
    return store.context.clock.monotonic()


def _of_blocked(store: Store) -> Iterator[DoctorCheckView]:
    connection = store.context.ledger.connection
    found = [row for row in schedules.list_all(connection) if row.deleted_at is None and row.diagnostic is not None]
    newcomers = definitions.never_valid(connection)
    if not found and not newcomers:
        yield check("blocked schedules", True, "none")
    for name, diagnostic in [(row.id, row.diagnostic) for row in found] + [(row.id, row.diagnostic) for row in newcomers]:
        said = dict(diagnostic or {})
        is_ledger = definitions.is_contradicted(diagnostic)
        fix = f"wfctl store verify {name}" if is_ledger else f"wfctl schedule edit {name}"
        why = str(said.get("message") or said.get("code")).removeprefix(f"schedule {name}: ")
        yield check(f"schedule {name}", False, f"is blocked: {why}", fix)

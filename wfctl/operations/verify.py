"""`store verify` and `store info`: what a store holds, whether all of it agrees, and the explicit remedies (7.4, 2.8)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from wfctl.core.contradictions import REMEDIES, Code, Contradiction, name_of_run
from wfctl.core.instants import format_instant, from_micros
from wfctl.core.model import run_number
from wfctl.core.near import near_data
from wfctl.core.plain import suggestion
from wfctl.errors import DamagedStore, InvalidArgument, WfctlError
from wfctl.operations import consistency, reconcile, remedies, restored
from wfctl.operations.context import Context
from wfctl.operations.views import ContradictionView, FixView, InfoView, RecordsView, VerifyView
from wfctl.store.artifacts import artifact_problem
from wfctl.store.ledger import definitions, evidence, schedules
from wfctl.store.ledger.connection import RESTORE
from wfctl.store.ledger.rows import UnreadableRow
from wfctl.store.ledger.schema import FORMAT
from wfctl.store.locks import is_held, read_owner
from wfctl.store.swap import kept_directories

_PASSES = 4  #: a remedy may bring to light what was hidden behind what it remedied
_CLASSES = ("definitions", "schedules", "occurrences", "runs", "executions")
_CLASS_OF = {"revision": "definitions", "deployment": "definitions", "schedule": "schedules", "occurrence": "occurrences",
             "run": "runs", "execution": "executions"}  # fmt: skip


def verify(
    context: Context, *, deep: bool, names: Sequence[str], fix: Sequence[str], fix_safe: bool, dry_run: bool
) -> VerifyView:
    """Check everything, or what is about the schedules and runs that are named, and carry out the remedies that are asked for.

    Whatever is found blocks its schedule, unless `dry_run`. Raise DamagedStore for a damaged ledger, which is left untouched,
    InvalidArgument for an unknown code or a remedy that names nothing, NotFound.
    """
    codes = _codes(fix)
    if codes and not names:
        raise InvalidArgument("name the schedules or runs that are to be remedied", {"argument": "fix"})
    _check_file(context)
    reconcile.everything(context)
    only = _numbers_of(context, names)
    found = _look(context, deep)
    fixed: list[FixView] = []
    if not dry_run:
        consistency.block(context, found)
        if codes or fix_safe:
            fixed = _fix(context, codes, fix_safe, only, deep)
            found = _look(context, deep)
            consistency.block(context, found)
    chosen = [each for each in found if only is None or _is_about(each, only)]
    problems = _other_problems(context, deep) if only is None else []
    records = _records(context, found, problems) if only is None else ()
    is_ok = not chosen and not problems
    return VerifyView(
        ok=is_ok,
        records=records,
        contradictions=tuple(_view(context, each) for each in chosen),
        problems=tuple(problems),
        fixed=tuple(fixed),
        notes=tuple(_notes(context, found, only)),
    )


def _codes(fix: Sequence[str]) -> frozenset[Code]:
    known = [code.value for code in Code]
    for word in fix:
        if word not in known:
            raise InvalidArgument(
                f"no contradiction is called {word!r}{suggestion(word, known)}",
                {"argument": "fix", "known": known, **near_data(word, known)},
            )
    return frozenset(Code(word) for word in fix)


def _check_file(context: Context) -> None:
    with context.ledger.reading() as connection:
        problems = evidence.integrity_problems(connection)
        evidence.check_counters(connection)
    if problems:
        raise DamagedStore(
            f"{context.ledger.path} is damaged ({problems[0]}); it was left as it is: {RESTORE}",
            {"path": str(context.ledger.path), "problems": problems},
        )


def _look(context: Context, deep: bool) -> list[Contradiction]:
    with context.ledger.reading() as connection:
        found = consistency.look(context, connection)
        if deep:
            seen = {(each.code, each.rows) for each in found}
            found += [each for each in consistency.look_at_history(connection) if (each.code, each.rows) not in seen]
    return found


def _numbers_of(context: Context, names: Sequence[str]) -> frozenset[tuple[str, int]] | None:
    """Return what is named, by kind and number; None for everything. Raise NotFound."""
    if not names:
        return None
    found: set[tuple[str, int]] = set()
    connection = context.ledger.connection
    for name in names:
        number = run_number(name)
        if number is not None:
            found.add(("run", number))
            continue
        row = definitions.find(connection, "schedule", name)
        if row is None:
            from wfctl.operations.schedules import not_found

            raise not_found(connection, "schedule", name)
        found.add(("schedule", row.number))
        with contextlib.suppress(UnreadableRow):
            state = schedules.find(connection, row.number)
            if state is not None:
                found.add(("deployment", state.deployment))
    return frozenset(found)


def _is_about(each: Contradiction, only: frozenset[tuple[str, int]]) -> bool:
    return bool({("schedule", each.schedule), ("deployment", each.deployment), ("run", each.run)} & only)


def _fix(
    context: Context, codes: frozenset[Code], fix_safe: bool, only: frozenset[tuple[str, int]] | None, deep: bool
) -> list[FixView]:
    done: list[FixView] = []
    failed: set[tuple[str, ...]] = set()
    if fix_safe:
        done += _raise_counters(context)
    for _ in range(_PASSES):
        todo = [
            each
            for each in _look(context, deep)
            if (each.code in codes or (fix_safe and remedies.is_safe(each)))
            and (only is None or _is_about(each, only))
            and (each.code.value, *each.rows) not in failed
        ]
        if not todo:
            break
        for each in todo:
            try:
                said, is_ok = remedies.remedy(context, each), True
            except (WfctlError, LookupError, ValueError, TypeError, AssertionError) as error:
                said, is_ok = error.message if isinstance(error, WfctlError) else remedies.beyond(each, error), False
                failed.add((each.code.value, *each.rows))
            done.append(FixView(code=each.code.value, rows=each.rows, ok=is_ok, detail=said))
    return [*done, *_unblock(context, only)]


def _raise_counters(context: Context) -> Iterator[FixView]:
    with context.ledger.transaction() as connection:
        behind = evidence.counters_behind(connection)
        if behind:
            evidence.raise_counters(connection)
    for said in behind:
        yield FixView(code="counter-behind", rows=("counters",), ok=True, detail=f"{said}: raised")


def _unblock(context: Context, only: frozenset[tuple[str, int]] | None) -> Iterator[FixView]:
    for row in definitions.blocked(context.ledger.connection):
        is_named = only is None or (row.kind, row.number) in only or _has_named_run(context, row.number, only)
        if is_named and definitions.is_contradicted(row.diagnostic) and remedies.unblock(context, row.number):
            said = f"{row.kind} {row.id} goes on: all of its records agree"
            yield FixView(code="unblocked", rows=(f"{row.kind} {row.id}",), ok=True, detail=said)


def _has_named_run(context: Context, schedule: int, only: frozenset[tuple[str, int]]) -> bool:
    runs = [number for kind, number in only if kind == "run"]
    found = (evidence.run(context.ledger.connection, number) for number in runs)
    return any(run is not None and run.schedule == schedule for run in found)


# What is said -----------------------------------------------------------------------------------------------------------


def _view(context: Context, each: Contradiction) -> ContradictionView:
    connection = context.ledger.connection
    number = each.schedule if each.schedule is not None else each.deployment
    name = None
    with contextlib.suppress(UnreadableRow):
        name = None if number is None else definitions.get(connection, number).id
    subject = name if each.schedule is not None else name_of_run(each.run) if each.run is not None else name
    if each.deployment is not None:
        users = [user for _, user in schedules.of_deployment(connection, each.deployment)]
        subject = users[0] if users else None
    has_remedy = subject is not None and (not each.is_history or each.run is not None)
    return ContradictionView(
        code=each.code.value,
        schedule_id=name if each.schedule is not None else None,
        deployment_id=name if each.schedule is None and each.deployment is not None else None,
        run_id=None if each.run is None else name_of_run(each.run),
        rows=each.rows,
        message=each.message,
        remedy=REMEDIES[each.code],
        command=f"wfctl store verify --fix {each.code.value} {subject}" if has_remedy else None,
        blocks=not each.is_history and number is not None,
    )


def _other_problems(context: Context, deep: bool) -> list[str]:
    """What is wrong beside the rows: counters behind, pinned files that are gone or changed."""
    with context.ledger.reading() as connection:
        found = [f"{said}; `wfctl store verify --fix-safe` raises it" for said in evidence.counters_behind(connection)]
        if not deep:
            return found
        for row in definitions.list_all(connection, "deployment"):
            if row.deleted_at is None and row.revision:
                with contextlib.suppress(UnreadableRow):
                    for name, artifact in context.deployment(row.number, row.revision)[0].files.items():
                        problem = artifact_problem(context.layout, artifact)
                        if problem is not None:
                            found.append(f"deployment {row.id}, file {name}: {problem}")
    return found


def _records(context: Context, found: Sequence[Contradiction], problems: Sequence[str]) -> tuple[RecordsView, ...]:
    with context.ledger.reading() as connection:
        counts = evidence.counts(connection)
        totals = {**counts, "schedules": len(evidence.schedule_names(connection))}
    bad: dict[str, int] = dict.fromkeys(_CLASSES, 0)
    for each in found:
        bad[_CLASS_OF.get(each.rows[0].partition(" ")[0], "runs")] += 1
    views = [RecordsView(name="ledger file", count=1, problems=0)]
    views += [RecordsView(name=name, count=totals[name], problems=bad[name]) for name in _CLASSES]
    return (*views, RecordsView(name="counters and pinned files", count=1, problems=len(problems)))


def _notes(context: Context, found: Sequence[Contradiction], only: frozenset[tuple[str, int]] | None) -> Iterator[str]:
    about = {number for each in found if not each.is_history for number in (each.schedule, each.deployment)}
    for row in definitions.blocked(context.ledger.connection):
        is_chosen = only is None or (row.kind, row.number) in only
        if is_chosen and definitions.is_contradicted(row.diagnostic) and row.number not in about:
            said = f"{row.kind} {row.id} is still blocked, and its records agree by now: `wfctl store verify --fix-safe"
            yield f"{said}{f' {row.id}' if row.kind == 'schedule' else ''}` lets it go on"
    if only is not None:
        return
    count = restored.restored_count(context.ledger.connection)
    if count:
        yield f"{count} runs were entered as failed (ledger-restored): an older ledger was put back once"
    for run, k in restored.went_on(context):
        yield f"{run.id} went on to execution {k}, which the ledger does not know; the next start of a supervisor fails it"
    for kept in kept_directories(context.layout):
        yield f"{kept} is what a restore replaced, {_tree_size(kept) // 2**20} MiB; remove it once nobody needs it"
    for each in restored.unknown_directories(context):
        name = name_of_run(each.number)
        if each.identity is not None:
            yield f"{name} is not known to the ledger; the next start of a supervisor enters it as failed (ledger-restored)"
        elif not each.is_empty:
            yield f"{each.path} does not say whose run it is; look at it, and remove it by hand"


# What is in it ----------------------------------------------------------------------------------------------------------


def info(context: Context) -> InfoView:
    """Return what a store holds, how large it is, who owns it, and since when it keeps records. Raise DamagedStore."""
    layout = context.layout
    with context.ledger.reading() as connection:
        counts = evidence.counts(connection)
        live = {kind: _live(connection, kind) for kind in ("schedule", "deployment")}
        oldest = connection.execute("SELECT min(recorded_at) FROM revisions").fetchone()[0]
    owner = read_owner(layout.scheduler_lock) if is_held(layout.scheduler_lock) else None
    said = None if owner is None else {"pid": owner.pid, "host": owner.host, "started_at": format_instant(owner.started_at)}
    return InfoView(
        path=str(layout.root),
        store_id=context.ledger.store_id,
        format=FORMAT,
        schedules=live["schedule"],
        deployments=live["deployment"],
        occurrences=counts["occurrences"],
        runs=counts["runs"],
        executions=counts["executions"],
        ledger_bytes=sum(_size(layout.ledger.with_name(f"ledger.db{end}")) for end in ("", "-wal")),
        runs_bytes=_tree_size(layout.runs),
        artifacts_bytes=_tree_size(layout.artifacts),
        replaced_bytes=sum(_tree_size(kept) for kept in kept_directories(layout)),
        owner=said,
        oldest=from_micros(oldest) if isinstance(oldest, int) else None,
    )


def _live(connection: Any, kind: Any) -> int:
    return sum(row.deleted_at is None for row in definitions.list_all(connection, kind))


def _size(path: Any) -> int:
    try:
        return int(path.lstat().st_size)
    except OSError:
        return 0


def _tree_size(directory: Any) -> int:
    """Return what the files below a directory take on the disk, links not followed."""
    import os

    total = 0
    for place, _, names in os.walk(directory):
        for name in names:
            try:
                total += os.lstat(os.path.join(place, name)).st_blocks * 512  # noqa: PTH118 - many of them
            except OSError:
                continue
    return total

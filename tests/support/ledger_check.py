"""The ledger check that ends every field report: the history, the runs and the jobs' own word agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.support.witness import Witness
from wfctl.operations.store import Store
from wfctl.operations.views import OccurrenceView, Page, RunView

STATUSES = {
    "pending", "coalesced", "skipped-overlap", "skipped-misfire", "preflight-rejected", "admitted", "running", "interrupted",
    "completed", "failed", "exhausted", "cancelled",
}  # fmt: skip
WITH_RUN = {"admitted", "running", "interrupted", "completed", "failed", "exhausted", "cancelled"}
UNFINISHED = {"admitted", "running", "interrupted"}


def everything(page_of: Callable[[str | None], Page[Any]]) -> list[Any]:
    """Return the items of all pages of a list."""
    found: list[Any] = []
    cursor: str | None = None
    while True:
        page = page_of(cursor)
        found += page.items
        cursor = page.next_cursor
        if cursor is None:
            return found


def all_runs(store: Store) -> list[RunView]:
    """Return every run."""
    return everything(lambda cursor: store.list_runs(limit=100, cursor=cursor))


def all_occurrences(store: Store, schedule_id: str | None = None) -> list[OccurrenceView]:
    """Return every row of the history and every candidate."""
    return everything(lambda cursor: store.list_schedule_occurrences(schedule_id=schedule_id, limit=100, cursor=cursor))


def ledger_check(store: Store, side: Witness | Path | None = None, *, since: datetime | None = None) -> None:
    """Check the seven points with which every field report ends, the last two by the operations behind the two commands.

    Given an open store and what witnessed its jobs: a `Witness`, a side file as `tests.support.jobs` writes it, or nothing
    where no job of the case can tell (a refused one, `printf`). `since`: audit from then on, where all takes seconds.
    """
    rows, runs = all_occurrences(store), all_runs(store)
    schedules = list(store.list_schedules(include_deleted=True).items)
    _check_rows(rows, runs)
    if side is not None:
        witness = side if isinstance(side, Witness) else _read(side)
        witness.look()
        _check_witness(witness, rows, runs, {each.id: _limit(each.definition) for each in schedules})
    for each in schedules:  # (6)
        balance = store.audit_schedule(schedule_id=each.id, since=since)
        assert balance.is_balanced, f"{each.id}: {balance.problems}"
    verified = store.verify_store(deep=True)  # (7)
    assert verified.ok, f"{verified.contradictions} {verified.problems}"


def _check_rows(rows: list[OccurrenceView], runs: list[RunView]) -> None:
    twice = [key for key, count in Counter((row.schedule_id, row.instant) for row in rows).items() if count > 1]
    assert not twice, f"(1) twice in the history: {twice}"
    assert {row.status for row in rows} <= STATUSES, "(5)"
    assert {run.status for run in runs} <= WITH_RUN, "(5)"
    admitted = {row.run_id: (row.schedule_id, row.instant, row.status) for row in rows if row.run_id is not None}
    assert len(admitted) == sum(row.status in WITH_RUN for row in rows), "(2) an admitted occurrence without a run of its own"
    scheduled = {run.run_id: (run.schedule_id, run.instant, run.status) for run in runs if run.kind == "scheduled"}
    assert admitted == scheduled, "(2), (3) occurrences and scheduled runs do not belong together"


def _check_witness(witness: Witness, rows: list[OccurrenceView], runs: list[RunView], limits: dict[str, int]) -> None:
    assert not witness.twice, f"launched twice: {witness.twice}"
    known = {run.run_id: run for run in runs}
    assert {each.run for each in witness.seen.values()} <= set(known), "(2) a job ran of which no record says so"
    occurrences = Counter((each.schedule, each.occurrence, each.k) for each in witness.seen.values() if each.schedule)
    assert not [key for key, count in occurrences.items() if count > 1], "(1) an occurrence ran twice"
    for schedule_id, most in witness.most_at_once().items():  # (4)
        assert not schedule_id or most <= limits[schedule_id], f"{schedule_id}: {most} at once"
    living = [each for each in witness.seen.values() if not each.is_over]
    assert all(known[each.run].status in UNFINISHED for each in living), f"(4) a slot was freed over a living process: {living}"


def _limit(definition: Any) -> int:
    return int(definition["max_active_runs"] or 1) if definition is not None else 1


def _read(side: Path) -> Witness:
    witness = Witness(side)
    side.touch()
    witness.look()
    return witness

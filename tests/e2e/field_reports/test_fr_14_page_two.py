"""FR-14: paging neither skips nor repeats a row while rows are added (contract 8.1, 8.2)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from tests.support.commands import Wfctl
from tests.support.drive import MINUTE, Driven, moment
from tests.support.ledger_check import all_occurrences
from tests.support.place import Place
from tests.support.processes import wait_for
from tests.support.story import FakeClock
from tests.support.witness import Witness
from wfctl import open_store
from wfctl.operations.store import Store
from wfctl.operations.views import OccurrenceView

ADMISSIONS = 36  #: so many pages of seven; a page of one row could never catch up with a row a page
HALF_WAY = ADMISSIONS // 2


class History:
    """250 rows of the schedule `a`, a hundred of them recorded at one time, and a second process that adds to them."""

    def __init__(self, folder: Path, store: Store, driven: Driven, clock: FakeClock) -> None:
        self.store, self._driven, self._clock, self._hold = store, driven, clock, folder / "hold"

    def make(self, witness: Witness) -> None:
        """Record them: 99 and 98 and 39 that were missed, each with one that ran, and eleven that ran."""
        self.store.create_deployment(
            deployment_id="d", command=witness.command(f"while [ -e {self._hold} ]; do sleep 0.01; done")
        )
        for name in ("a", "other"):
            trigger = {"kind": "cron", "expression": "* * * * *" if name == "a" else "0 0 1 1 *"}
            self.store.create_schedule(schedule_id=name, deployment_id="d", trigger=trigger, overlap="queue")
        self._driven.step()
        for minutes in (100, 99, 40, *[1] * 11):
            self.admit_one(minutes * MINUTE)

    def admit_one(self, after: timedelta = MINUTE) -> None:
        """The second process admits the instant that comes next, and it runs to its end."""
        self._clock.advance(after)
        self._driven.step()
        self._settle()

    def hold_one(self) -> datetime:
        """One is admitted and goes on, the next one is held; return its instant."""
        self._hold.touch()
        for _ in range(2):
            self._clock.advance(MINUTE)
            self._driven.step()
        return self._clock.now().replace(second=0)

    def let_go(self) -> None:
        """The held one is admitted, and both end."""
        self._hold.unlink()
        self._settle()

    def _settle(self) -> None:
        wait_for(
            lambda: self._driven.step() and not self.store.list_runs(status="admitted,running").items, what="the end of all"
        )


@pytest.fixture
def history(tmp_path: Path, witness: Witness) -> Iterator[History]:
    clock = FakeClock(moment("2027-03-01T09:00:30"))
    with Place(tmp_path) as place, open_store(place.root, clock=clock) as store, Driven(place.root, clock) as driven:
        found = History(tmp_path, store, driven, clock)
        found.make(witness)
        yield found


@pytest.mark.parametrize("limit", [1, 7, 100])
def test_fr_14_every_row_of_the_start_once_and_in_order(
    history: History, witness: Witness, ledger_check: Callable[..., None], limit: int
) -> None:
    store = history.store
    before = [row.instant for row in all_occurrences(store, "a")]
    assert len(before) == 250 and before == sorted(before)
    seen: list[OccurrenceView] = []
    held: datetime | None = None
    cursor = None
    pages = 0
    half_way = min(HALF_WAY, 250 // limit // 2)
    while True:
        page = store.list_schedule_occurrences(schedule_id="a", limit=limit, cursor=cursor)
        assert len(page.items) == limit or page.next_cursor is None
        seen += page.items
        cursor, pages = page.next_cursor, pages + 1
        if cursor is None:
            break
        if pages == half_way:
            held = history.hold_one()
            first = store.list_schedule_occurrences(schedule_id="a", limit=limit)
            assert (first.items[0].status, first.items[0].instant) == ("pending", held), "on top of the first page"
            assert len(first.items) == limit, "which still honours the limit"
            second = store.list_schedule_occurrences(schedule_id="a", limit=limit, cursor=first.next_cursor)
            assert [row.status for row in [*first.items[1:], *second.items]].count("pending") == 0, "only there"
        elif pages == half_way + 1:
            history.let_go()
        elif pages < ADMISSIONS:
            history.admit_one()
    found = [row.instant for row in seen]
    assert found[:250] == before
    assert found == sorted(set(found)) and len(found) > 250, "new rows only at the end"
    assert held in found and "pending" not in {row.status for row in seen}
    ledger_check(store, witness)


def test_fr_14_the_command_and_what_it_refuses(history: History, tmp_path: Path) -> None:
    """`-o json` gives the same pages; a bad limit is a usage error, a foreign or garbled cursor is refused."""
    store, command = history.store, Wfctl(history.store.root, tmp_path)
    cursor: str | None = None
    for _ in range(2):
        page = store.list_schedule_occurrences(schedule_id="a", limit=7, cursor=cursor)
        where = ("--cursor", cursor) if cursor else ()
        assert command.ok("occurrences", "a", "--limit", "7", *where, "-o", "json").json == page.to_json()
        cursor = page.next_cursor
    assert cursor is not None
    for limit in ("0", "101", "-1"):
        assert command("occurrences", "a", "--limit", limit).status == 2
    for words in (
        ["other", "--cursor", cursor],
        ["a", "--status", "failed", "--cursor", cursor],
        ["a", "--cursor", f"x{cursor}"],
    ):
        assert command("occurrences", *words).status == 65, words

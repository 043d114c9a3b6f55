"""Pages of occurrences and runs: nothing skipped, nothing repeated, candidates on top (contract 8.1, 8.2; FR-14)."""

from __future__ import annotations

import base64
import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.schedules import add, at
from tests.support.story import World
from wfctl.core.model import Candidate, Settlement, Span, Status
from wfctl.errors import BadCursor, InvalidArgument, NotFound
from wfctl.operations.cursors import make_cursor, read_cursor
from wfctl.operations.store import Store, init_store
from wfctl.operations.views import OccurrenceView
from wfctl.store.ledger import occurrences, schedules

MINUTE = timedelta(minutes=1)


def pages(store: Store, limit: int = 20, cursor: str | None = None, **asked: Any) -> Iterator[list[OccurrenceView]]:
    """The pages of a listing, one after another."""
    passed = {cursor}
    while True:
        page = store.list_schedule_occurrences(limit=limit, cursor=cursor, **asked)
        yield list(page.items)
        cursor = page.next_cursor
        if cursor is None:
            return
        assert cursor not in passed, "it leads back to where it was"
        passed.add(cursor)


def rows_of(store: Store, limit: int = 20, **asked: Any) -> list[OccurrenceView]:
    """All rows of a listing."""
    return list(itertools.chain.from_iterable(pages(store, limit, **asked)))


def key(row: OccurrenceView) -> tuple[str, datetime]:
    return row.schedule_id, row.instant


# A history that grows while it is read ---------------------------------------------------------------------------------------


@pytest.fixture
def long(world: World) -> World:
    """The schedule `a` with 250 rows, up to a hundred of them of one moment, and nothing running."""
    add(world.store, "a", overlap="queue")
    world.step()
    for minutes in (100, 99, 40, *[1] * 11):
        world.clock.advance(timedelta(minutes=minutes))
        world.step()
        world.end()
        world.step()
    assert len(rows_of(world.store, 100)) == 250
    return world


def one_more(world: World) -> None:
    """A second process admits a row."""
    world.clock.advance(MINUTE)
    world.step()
    world.end()
    world.step()


@pytest.mark.parametrize("limit", [1, 7, 100])
def test_fr_14_every_row_of_the_start_is_seen_once_while_rows_are_added(long: World, limit: int) -> None:
    before = [key(row) for row in rows_of(long.store, 100)]
    seen: list[OccurrenceView] = []
    cursor = None
    for number in itertools.count():
        page = long.store.list_schedule_occurrences(schedule_id="a", limit=limit, cursor=cursor)
        assert len(page.items) == limit or page.next_cursor is None
        seen += page.items
        cursor = page.next_cursor
        if cursor is None:
            break
        if number < 40:
            one_more(long)
    found = [key(row) for row in seen]
    assert found[:250] == before and found == sorted(set(found))
    assert len(found) > 250, "new rows only at the end"


@pytest.mark.parametrize("limit", [1, 7, 100])
def test_newest_first_each_row_of_the_start_is_seen_once_while_rows_are_added(long: World, limit: int) -> None:
    before = [key(row) for row in rows_of(long.store, 100)]
    runs_before = [run.run_id for run in long.store.list_runs(limit=100, reverse=True)]
    seen: list[OccurrenceView] = []
    cursor = run_cursor = None
    runs: list[str] = []
    for number in itertools.count():
        page = long.store.list_schedule_occurrences(schedule_id="a", limit=limit, cursor=cursor, reverse=True)
        seen += page.items
        if number == 0 or run_cursor is not None:
            listed = long.store.list_runs(limit=limit, cursor=run_cursor, reverse=True)
            runs, run_cursor = [*runs, *(run.run_id for run in listed)], listed.next_cursor
        cursor = page.next_cursor
        if cursor is None:
            break
        if number < 10:
            one_more(long)
    assert [key(row) for row in seen] == before[::-1], "what is added later is not on the pages that lead back"
    assert runs == runs_before == sorted(runs, reverse=True)


@pytest.mark.parametrize("limit", [1, 2, 100])
def test_newest_first_a_held_candidate_is_on_top_of_the_first_page_which_honours_the_limit(long: World, limit: int) -> None:
    for _ in range(2):
        long.clock.advance(MINUTE)
        long.step()
    found = list(pages(long.store, limit, schedule_id="a", reverse=True))
    assert [len(page) for page in found[:-1]] == [limit] * (len(found) - 1)
    rows = list(itertools.chain(*found))
    assert [row.status for row in rows[:2]] == ["pending", "running"]
    assert [row.instant for row in rows] == sorted((row.instant for row in rows), reverse=True)
    assert len(rows) == 252


@pytest.mark.parametrize("limit", [1, 7, 100])
def test_8_1_a_candidate_that_appears_and_is_admitted_half_way(long: World, limit: int) -> None:
    before = [key(row) for row in rows_of(long.store, 100)]
    seen: list[OccurrenceView] = []
    cursor = None
    for number in itertools.count():
        page = long.store.list_schedule_occurrences(limit=limit, cursor=cursor)
        assert len(page.items) <= limit
        seen += page.items
        cursor = page.next_cursor
        if cursor is None:
            break
        if number == 0:
            long.clock.advance(MINUTE)
            long.step()
            long.clock.advance(MINUTE)
            long.step()
            assert long.store.get_schedule(schedule_id="a").candidate is not None
            assert long.store.list_schedule_occurrences(limit=1).items[0].status == "pending"
        if number == 1:
            long.end()
            long.step()
            assert long.store.get_schedule(schedule_id="a").candidate is None
    assert [key(row) for row in seen[:250]] == before
    assert [row.status for row in seen[250:]] == ["completed", "admitted"]
    assert not [row for row in seen if row.status == "pending"], "it shows on the first page alone"


@pytest.mark.parametrize("limit", [1, 2, 7, 100])
def test_8_1_a_held_candidate_is_on_top_of_the_first_page_which_honours_the_limit(long: World, limit: int) -> None:
    before = [key(row) for row in rows_of(long.store, 100)]
    for _ in range(2):
        long.clock.advance(MINUTE)
        long.step()
    found = list(pages(long.store, limit, schedule_id="a"))
    assert [len(page) for page in found[:-1]] == [limit] * (len(found) - 1) and 0 < len(found[-1]) <= limit
    rows = list(itertools.chain(*found))
    assert rows[0].status == "pending" and rows[0].run_id is None and rows[0].lateness_s is None
    assert [row.status for row in rows].count("pending") == 1
    assert [key(row) for row in rows[1:251]] == before
    newest = rows[0].instant
    long.end()
    long.step()
    assert [key(row) for row in rows_of(long.store, limit)][-1] == ("a", newest), "once admitted, the durable row replaces it"


def test_8_1_with_limit_1_the_cursor_resumes_at_the_first_stored_row(long: World) -> None:
    for _ in range(2):
        long.clock.advance(MINUTE)
        long.step()
    first = long.store.list_schedule_occurrences(schedule_id="a", limit=1)
    assert first.items[0].status == "pending"
    one_more(long)
    long.end()
    long.step()  # by now it is admitted
    second = long.store.list_schedule_occurrences(schedule_id="a", limit=1, cursor=first.next_cursor)
    assert second.items[0].instant == at("09:01")


def test_8_1_a_candidate_alone_is_a_last_page(world: World) -> None:
    add(world.store, "other")
    add(world.store, "a", overlap="queue")
    with world.store.context.ledger.transaction() as connection:
        schedules.hold(
            connection, 3, Candidate(instant=at("09:00"), held_since=at("09:00"), can_expire=True, reason={"code": "overlap"})
        )
    page = world.store.list_schedule_occurrences(schedule_id="a", limit=1)
    assert [row.status for row in page.items] == ["pending"] and page.next_cursor is None
    assert world.store.list_schedule_occurrences(schedule_id="other").items == ()


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 100])
def test_8_2_pending_rows_of_several_schedules_go_on_over_pages(world: World, limit: int) -> None:
    names = ["c", "a", "d", "b"]
    for name in names:
        add(world.store, name, overlap="queue")
    for _ in range(2):
        world.clock.advance(MINUTE)
        world.step()
    found = list(pages(world.store, limit))
    assert all(len(page) == limit for page in found[:-1])
    rows = list(itertools.chain(*found))
    assert [(row.schedule_id, row.status) for row in rows[:4]] == [(name, "pending") for name in "abcd"]
    assert [(row.schedule_id, row.status) for row in rows[4:]] == [(name, "running") for name in "abcd"]
    chosen = rows_of(world.store, limit, schedule_id=["d", "b"])
    assert [(row.schedule_id, row.status) for row in chosen] == [
        ("b", "pending"), ("d", "pending"), ("b", "running"), ("d", "running"),
    ]  # fmt: skip


def test_8_2_a_row_keeps_its_place_when_its_status_changes(world: World) -> None:
    add(world.store, "a", overlap="parallel", max_active_runs=3)
    for _ in range(3):
        world.clock.advance(MINUTE)
        world.step()
    before = [row.instant for row in rows_of(world.store)]
    world.keeper.end("run-000002", 1, exit_status=3)
    world.step()
    after = rows_of(world.store)
    assert [row.instant for row in after] == before
    assert [row.status for row in after] == ["running", "failed", "running"]
    assert [row.instant for row in rows_of(world.store, status="failed")] == [before[1]]


# Filters against a plain one -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plain:
    """A store and all of its rows: candidates by id, then stored rows in the order of recording."""

    store: Store
    rows: Sequence[OccurrenceView]


STORED = sorted(set(Status) - {Status.PENDING})
NAMES = ("a", "b", "c", "empty")


def _fill(world: World, seed: int, *, is_disordered: bool) -> None:
    """Some rows for each schedule, in batches that alternate; some of them spans, a candidate for one or the other."""
    draw = random.Random(seed)
    for name in NAMES:
        add(world.store, name)
    clock = dict.fromkeys(range(2, 5), 0)
    with world.store.context.ledger.transaction() as connection:
        for batch in range(30):
            number = draw.randrange(2, 5)
            if is_disordered and batch == 15:
                clock = {each: value - 40 for each, value in clock.items()}
            rows = []
            for _ in range(draw.randrange(1, 6)):
                clock[number] += 1
                instant = at("09:00") + clock[number] * MINUTE
                span = Span(instant - timedelta(seconds=30), instant, 2) if draw.random() < 0.1 else None
                rows.append(Settlement(instant=instant, status=draw.choice(STORED), span=span, reason={"code": "missed"}))
            known = {at_ for (at_,) in connection.execute("SELECT instant FROM occurrences WHERE schedule = ?", (number,))}
            rows = [row for row in rows if int(row.instant.timestamp() * 1_000_000) not in known]
            if rows:
                first = occurrences.reserve_places(connection, len(rows))
                places = range(first, first + len(rows))
                occurrences.append(connection, number, rows, revision=1, recorded_at=at("12:00"), places=places)
        for number in draw.sample(range(2, 5), draw.randrange(4)):
            instant = at("09:00") + (clock[number] + 1) * MINUTE
            held = Candidate(instant=instant, held_since=instant, can_expire=True, reason={"code": "overlap"})
            schedules.hold(connection, number, held)


@pytest.fixture(scope="module", params=[(seed, disordered) for seed in range(3) for disordered in (False, True)], ids=str)
def plain(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plain]:
    root: Path = tmp_path_factory.mktemp("paging") / "store"
    init_store(root).close()
    world = World(root)
    seed, disordered = request.param
    _fill(world, seed, is_disordered=disordered)
    connection = world.store.context.ledger.connection
    flags = [flag for (flag,) in connection.execute("SELECT is_disordered FROM schedules WHERE number < 5")]
    assert any(flags) is disordered
    yield Plain(world.store, rows_of(world.store, 100))
    world.die()


SOME = {"max_examples": 40, "deadline": None}
times = st.one_of(st.none(), st.integers(-50, 120).map(lambda minutes: at("09:00") + minutes * MINUTE))


@given(
    names=st.one_of(st.none(), st.sets(st.sampled_from(NAMES), min_size=1)),
    statuses=st.one_of(st.none(), st.sets(st.sampled_from(sorted(Status)), min_size=1, max_size=5)),
    since=times,
    until=times,
    limit=st.integers(1, 100),
    reverse=st.booleans(),
)
@settings(**SOME)  # type: ignore[arg-type]
def test_8_2_filters_are_those_of_a_plain_loop(
    plain: Plain,
    names: set[str] | None,
    statuses: set[Status] | None,
    since: datetime | None,
    until: datetime | None,
    limit: int,
    reverse: bool,
) -> None:
    wanted = [
        row
        for row in plain.rows
        if (names is None or row.schedule_id in names)
        and (statuses is None or row.status in statuses)
        and (since is None or row.instant >= since)
        and (until is None or row.instant < until)
    ]
    if reverse:  # what is held stays on top
        held = [row for row in wanted if row.status == Status.PENDING]
        wanted = [*held, *reversed(wanted[len(held) :])]
    asked: dict[str, Any] = {"schedule_id": names and list(names), "status": statuses and list(statuses), "reverse": reverse}
    asked |= {"since": since, "until": until}
    found = list(pages(plain.store, limit, **asked))
    assert list(itertools.chain(*found)) == wanted
    assert all(len(page) == limit for page in found[:-1]), "only the last page is short"
    assert len(found) == max(1, -(-len(wanted) // limit)), "no empty page at the end"


def test_filters_may_be_given_as_text(plain: Plain) -> None:
    wanted = [row for row in plain.rows if row.schedule_id in "ab" and row.status in ("failed", "completed")]
    assert rows_of(plain.store, schedule_id="b, a", status="failed,completed", since="2027-03-01T08:00:00+01:00") == [
        row for row in wanted if row.instant >= at("07:00")
    ]


# Cursors ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [0, 101, -1, 1.0, True, "20", None])
def test_fr_14_limits_outside_1_to_100_are_refused(plain: Plain, limit: Any) -> None:
    for listing in (plain.store.list_schedule_occurrences, plain.store.list_runs):
        with pytest.raises(InvalidArgument):
            listing(limit=limit)


OTHER_FILTERS: list[dict[str, Any]] = [
    {},
    {"schedule_id": "b"},
    {"schedule_id": ["a", "b"]},
    {"schedule_id": "a", "status": "completed"},
    {"schedule_id": "a", "since": "2027-03-01T00:00:00Z"},
    {"schedule_id": "a", "until": "2027-03-02T00:00:00Z"},
    {"schedule_id": "a", "reverse": True},
]


@pytest.mark.parametrize("asked", OTHER_FILTERS)
def test_8_2_a_cursor_is_bound_to_its_filter(plain: Plain, asked: dict[str, Any]) -> None:
    cursor = plain.store.list_schedule_occurrences(schedule_id="a", limit=1).next_cursor
    assert cursor is not None
    plain.store.list_schedule_occurrences(schedule_id=["a", "a"], limit=50, cursor=cursor)  # the same filter in other words
    with pytest.raises(BadCursor) as caught:
        plain.store.list_schedule_occurrences(cursor=cursor, **asked)
    assert caught.value.exit_status == 65
    with pytest.raises(BadCursor):
        plain.store.list_runs(cursor=cursor)
    with pytest.raises(BadCursor):
        plain.store.list_revisions(schedule_id="a", cursor=cursor)


def test_8_2_a_cursor_of_another_store_is_foreign(plain: Plain, world: World) -> None:
    add(world.store, "a")
    cursor = plain.store.list_schedule_occurrences(schedule_id="a", limit=1).next_cursor
    with pytest.raises(BadCursor):
        world.store.list_schedule_occurrences(schedule_id="a", cursor=cursor)


def test_8_2_a_cursor_of_one_listing_of_runs_is_foreign_to_another(world: World) -> None:
    add(world.store, "a", overlap="parallel", max_active_runs=3)
    for _ in range(3):
        world.clock.advance(MINUTE)
        world.step()
    page = world.store.list_runs(limit=1)
    assert [run.run_id for run in page] == ["run-000001"]
    following = world.store.list_runs(limit=2, cursor=page.next_cursor)
    assert [run.run_id for run in following] == ["run-000002", "run-000003"] and following.next_cursor is None
    for asked in ({"schedule_id": "a"}, {"deployment_id": "d"}, {"status": "running"}, {"since": at("09:00")}):
        with pytest.raises(BadCursor):
            world.store.list_runs(cursor=page.next_cursor, **asked)


def _garble(cursor: str) -> Iterator[str]:
    yield from (
        "",
        "x",
        "!!!",
        "=",
        "é",
        "\0",
        "A" * 10_000,
        cursor[:-1],
        cursor[1:],
        cursor + "A",
        cursor * 2,
        cursor.swapcase(),
    )
    for place in range(len(cursor)):
        yield cursor[:place] + ("A" if cursor[place] != "A" else "B") + cursor[place + 1 :]


def test_8_2_a_garbled_cursor_is_refused(plain: Plain) -> None:
    cursor = plain.store.list_schedule_occurrences(limit=1).next_cursor
    assert cursor is not None
    for text in _garble(cursor):
        try:
            plain.store.list_schedule_occurrences(cursor=text, limit=1)
        except BadCursor:
            continue
        # Bits beyond the last byte say nothing: what decodes to the same is the same cursor.
        assert base64.urlsafe_b64decode(text + "==") == base64.urlsafe_b64decode(cursor + "=="), text


@pytest.mark.parametrize("cursor", [1, 1.5, True, b"abc", ["a"], {"place": 1}])
def test_8_2_a_cursor_that_is_no_text_is_refused(plain: Plain, cursor: Any) -> None:
    with pytest.raises(BadCursor):
        plain.store.list_schedule_occurrences(cursor=cursor)


@pytest.mark.parametrize(
    "asked",
    [
        {"status": "complete"},
        {"status": ["completed", "nonsense"]},
        {"status": 5},
        {"schedule_id": 5},
        {"schedule_id": ["a", None]},
        {"since": "yesterday"},
        {"since": 5},
        {"until": datetime(2027, 3, 1)},
        {"until": "2027-03-01T09:00:00"},
        {"reverse": "yes"},
    ],
    ids=str,
)
def test_what_is_no_filter_is_refused(plain: Plain, asked: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        plain.store.list_schedule_occurrences(**asked)


def test_an_unknown_schedule_is_not_found(plain: Plain) -> None:
    with pytest.raises(NotFound):
        plain.store.list_schedule_occurrences(schedule_id=["a", "nobody"])
    with pytest.raises(NotFound):
        plain.store.list_schedule_occurrences(schedule_id="../etc")


def test_cursors_are_versioned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wfctl.operations.cursors._VERSION", 2)
    newer = make_cursor({}, {"after": 1})
    assert read_cursor({}, newer) == {"after": 1}
    monkeypatch.undo()
    with pytest.raises(BadCursor):
        read_cursor({}, newer)

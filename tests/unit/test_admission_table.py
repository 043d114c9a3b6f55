"""Deciding for one schedule, cell by cell of contract 5: what `decide_admission` makes of one moment."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.support.admission_facts import NOON, REJECTED, ago, because, due, facts, fate, held, rows
from wfctl.core.admission import Decision, ScheduleFacts, decide_admission
from wfctl.core.model import Span

JUST = 0.000001  #: the smallest difference between two instants (4.3)
BOTH, NO_OVERLAP, NO_SLOT, NEITHER = "both kinds of room", "no room by overlap", "no room by capacity", "no room at all"


def decide(known: ScheduleFacts, *, free: int = 4) -> Decision:
    return decide_admission(known, now=NOON, free_slots=free, slot_limit=4, next_run=7)


def in_room(room: str, **more: Any) -> Decision:
    """Decide with a schedule that has, or lacks, the two kinds of room."""
    limit = 2 if more.get("overlap") == "parallel" else 1
    active = limit if room in {NO_OVERLAP, NEITHER} else 0
    return decide(facts(active=active, **more), free=0 if room in {NO_SLOT, NEITHER} else 4)


# 5.1: on time or missed -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("misfire", "lateness", "late", "status"),
    [
        pytest.param("skip", 60, 0, "admitted", id="5.1 at its very instant"),
        pytest.param("skip", 60, 60, "admitted", id="5.1 60 s late is still on time"),
        pytest.param("skip", 60, 60 + JUST, "skipped-misfire", id="5.1 60.000001 s late is a misfire"),
        pytest.param("skip", 0, 0, "admitted", id="5.1 no allowance, not late"),
        pytest.param("skip", 0, JUST, "skipped-misfire", id="5.1 no allowance, a microsecond late"),
        pytest.param("skip", 0.25, 0.25, "admitted", id="5.1 an allowance of 250 ms, 250 ms late"),
        pytest.param("skip", 0.25, 0.25 + JUST, "skipped-misfire", id="5.1 an allowance of 250 ms, a microsecond more"),
        pytest.param("skip", 86400, 86400, "admitted", id="5.1 an allowance of a day, a day late"),
        pytest.param("latest", 60, 60, "admitted", id="5.5 c latest, on time"),
        pytest.param("latest", 60, 60 + JUST, "admitted", id="5.5 c latest takes a missed one"),
        pytest.param("latest", 0, 86400, "admitted", id="5.5 c latest takes it however late"),
    ],
)
@pytest.mark.parametrize("overlap", ["skip", "queue", "parallel"])
def test_lateness(overlap: str, misfire: str, lateness: float, late: float, status: str) -> None:
    decision = decide(facts(overlap=overlap, misfire=misfire, lateness=lateness, due=due(late)))
    assert rows(decision) == [(late, status)]
    assert decision.admit == ((ago(late),) if status == "admitted" else ())


@pytest.mark.parametrize(
    ("known", "watermark"),
    [
        pytest.param(facts(), ago(3600), id="5.1 nothing due: the floor"),
        pytest.param(facts(due=due(30, 10)), ago(10), id="5.1 what was admitted is consumed"),
        pytest.param(facts(due=due(90, 80)), ago(80), id="5.1 what was missed is consumed"),
        pytest.param(facts(due=due(30), active=1), ago(30), id="5.1 what was skipped is consumed"),
        pytest.param(facts(due=due(30), active=1, overlap="queue"), ago(30), id="5.1 what is held is consumed"),
        pytest.param(facts(due=due(30), verdict=REJECTED), ago(30), id="5.9 what was rejected is consumed"),
        pytest.param(facts(due=due(30), passed=frozenset({ago(30)})), ago(30), id="5.14 what passed is consumed"),
        pytest.param(facts(candidate=held(3600)), ago(3600), id="5.6 a candidate alone consumes nothing"),
    ],
)
def test_watermark(known: ScheduleFacts, watermark: datetime) -> None:
    assert decide(known).watermark == watermark


# 5.2: catching up is bounded --------------------------------------------------------------------------------------------


def minutes(count: int) -> tuple[float, ...]:
    return tuple(60.0 * n for n in range(count - 1, -1, -1))


def span(first: float, last: float, count: int | None) -> Span:
    return Span(ago(first), ago(last), count)


@pytest.mark.parametrize(
    ("misfire", "older", "statuses"),
    [
        pytest.param("skip", None, ["skipped-misfire"] * 98 + ["admitted"] * 2, id="5.2 100 due: a row each"),
        pytest.param(
            "skip", span(6000, 6000, 1), ["skipped-misfire"] * 99 + ["admitted"] * 2, id="5.2 101 due: the oldest is a span row"
        ),
        pytest.param("latest", None, ["coalesced"] * 99 + ["admitted"], id="5.2 100 due, latest: the admitted one included"),
        pytest.param(
            "latest",
            span(6000, 6000, 1),
            ["coalesced"] * 100 + ["admitted"],
            id="5.2 101 due, latest: the oldest is a span row",
        ),
    ],
)
def test_a_hundred_rows(misfire: str, older: Span | None, statuses: list[str]) -> None:
    known = facts(overlap="parallel", limit=9, misfire=misfire, due=due(*minutes(100), older=older), floor=ago(9000))
    decision = decide(known)
    assert [str(row.status) for row in decision.settled] == statuses
    assert [row.span for row in decision.settled if row.span] == ([older] if older else [])


@pytest.mark.parametrize("count", [pytest.param(525_500, id="5.2 exact for interval"), pytest.param(None, id="5.2 null else")])
@pytest.mark.parametrize(
    ("misfire", "status", "code"), [("skip", "skipped-misfire", "missed"), ("latest", "coalesced", "newer")]
)
def test_a_span_row(misfire: str, status: str, code: str, count: int | None) -> None:
    older = span(366 * 86400, 6000, count)
    row = decide(facts(misfire=misfire, due=due(*minutes(100), older=older), floor=ago(367 * 86400))).settled[0]
    assert (row.instant, row.span, row.status, row.run) == (older.last, older, status, None)
    assert row.reason and row.reason["code"] == code


def test_5_1_the_101st_is_missed_even_within_the_allowance() -> None:
    """The newest hundred are on time, the older ones are not, however long the allowance."""
    known = facts(overlap="queue", lateness=86400, due=due(*minutes(100), older=span(6060, 6000, 2)), active=1)
    decision = decide(known)
    assert rows(decision) == [(6000, "skipped-misfire")] + [(60.0 * n, "coalesced") for n in range(99, 0, -1)]
    assert fate(decision, 0) == "held, no expiry"


# 5.3, 5.4: room ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("overlap", "limit", "active", "status"),
    [
        pytest.param("skip", None, 0, "admitted", id="5.3 skip, none unfinished"),
        pytest.param("skip", None, 1, "skipped-overlap", id="5.3 skip, one unfinished"),
        pytest.param("queue", None, 0, "admitted", id="5.3 queue, none unfinished"),
        pytest.param("queue", None, 1, "held, no expiry", id="5.3 queue, one unfinished"),
        pytest.param("parallel", 1, 0, "admitted", id="5.3 parallel 1, none unfinished"),
        pytest.param("parallel", 1, 1, "skipped-overlap", id="5.3 parallel 1, one unfinished"),
        pytest.param("parallel", 3, 2, "admitted", id="5.3 parallel 3, two unfinished"),
        pytest.param("parallel", 3, 3, "skipped-overlap", id="5.3 parallel 3, three unfinished"),
        pytest.param("parallel", 3, 4, "skipped-overlap", id="5.3 lowered to 3 below four unfinished"),
        pytest.param("skip", None, 2, "skipped-overlap", id="5.3 parallel became skip with two unfinished"),
    ],
)
def test_room_by_overlap(overlap: str, limit: int | None, active: int, status: str) -> None:
    assert fate(decide(facts(overlap=overlap, limit=limit, active=active, due=due(10))), 10) == status


@pytest.mark.parametrize(
    ("free", "status"),
    [
        pytest.param(1, "admitted", id="5.4 one slot free"),
        pytest.param(0, "held, can expire", id="5.4 no slot free"),
        pytest.param(-2, "held, can expire", id="5.4 max_concurrent_runs lowered below what runs"),
    ],
)
def test_room_by_capacity(free: int, status: str) -> None:
    assert fate(decide(facts(due=due(10)), free=free), 10) == status


# 5.5: the table ---------------------------------------------------------------------------------------------------------

#: overlap, misfire, room, a new instant, a candidate that can expire, one that cannot
TABLE = [
    ("skip", "skip", BOTH, "admitted", "admitted", "admitted"),
    ("skip", "skip", NO_OVERLAP, "skipped-overlap", "held, can expire", "held, no expiry"),
    ("skip", "skip", NO_SLOT, "held, can expire", "held, can expire", "held, no expiry"),
    ("skip", "skip", NEITHER, "skipped-overlap", "held, can expire", "held, no expiry"),
    ("parallel", "skip", BOTH, "admitted", "admitted", "admitted"),
    ("parallel", "skip", NO_OVERLAP, "skipped-overlap", "held, can expire", "held, no expiry"),
    ("parallel", "skip", NO_SLOT, "held, can expire", "held, can expire", "held, no expiry"),
    ("parallel", "skip", NEITHER, "skipped-overlap", "held, can expire", "held, no expiry"),
    ("queue", "skip", BOTH, "admitted", "admitted", "admitted"),
    ("queue", "skip", NO_OVERLAP, "held, no expiry", "held, no expiry", "held, no expiry"),
    ("queue", "skip", NO_SLOT, "held, can expire", "held, can expire", "held, no expiry"),
    ("queue", "skip", NEITHER, "held, no expiry", "held, no expiry", "held, no expiry"),
    ("skip", "latest", BOTH, "admitted", "admitted", "admitted"),
    ("skip", "latest", NO_OVERLAP, "held, no expiry", "held, no expiry", "held, no expiry"),
    ("skip", "latest", NO_SLOT, "held, no expiry", "held, no expiry", "held, no expiry"),
    ("skip", "latest", NEITHER, "held, no expiry", "held, no expiry", "held, no expiry"),
    ("parallel", "latest", BOTH, "admitted", "admitted", "admitted"),
    ("parallel", "latest", NO_OVERLAP, "held, no expiry", "held, no expiry", "held, no expiry"),
    ("parallel", "latest", NO_SLOT, "held, no expiry", "held, no expiry", "held, no expiry"),
    ("parallel", "latest", NEITHER, "held, no expiry", "held, no expiry", "held, no expiry"),
    ("queue", "latest", BOTH, "admitted", "admitted", "admitted"),
    ("queue", "latest", NO_OVERLAP, "held, no expiry", "held, no expiry", "held, no expiry"),
    ("queue", "latest", NO_SLOT, "held, no expiry", "held, no expiry", "held, no expiry"),
    ("queue", "latest", NEITHER, "held, no expiry", "held, no expiry", "held, no expiry"),
]
CELLS = [
    pytest.param(*row, id=f"5.5 overlap {row[0]}, misfire {row[1]}, {row[2]}") for row in TABLE
]  # the same policy and room thrice: as a new instant and as a candidate of either kind


@pytest.mark.parametrize(("overlap", "misfire", "room", "new", "expiring", "free"), CELLS)
def test_a_new_instant(overlap: str, misfire: str, room: str, new: str, expiring: str, free: str) -> None:
    decision = in_room(room, overlap=overlap, misfire=misfire, due=due(30))
    assert fate(decision, 30) == new
    assert decision.admit == ((ago(30),) if new == "admitted" else ())
    if decision.candidate:
        assert decision.candidate.held_since == NOON


@pytest.mark.parametrize("can_expire", [True, False], ids=["can expire", "no expiry"])
@pytest.mark.parametrize(("overlap", "misfire", "room", "new", "expiring", "free"), CELLS)
def test_a_candidate(overlap: str, misfire: str, room: str, new: str, expiring: str, free: str, can_expire: bool) -> None:
    candidate = held(60, since=45, can_expire=can_expire)
    decision = in_room(room, overlap=overlap, misfire=misfire, candidate=candidate)
    assert fate(decision, 60) == (expiring if can_expire else free)
    assert decision.admit == ((ago(60),) if new == "admitted" else ())
    if decision.candidate:
        assert decision.candidate.held_since == ago(45)
        assert because(decision, 60)["code"] == ("capacity" if room == NO_SLOT else "overlap")


# 5.5 (a): expiry --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("late", "can_expire", "lateness", "result"),
    [
        pytest.param(60, True, 60, "admitted", id="5.5 a 60 s late: not used up"),
        pytest.param(60 + JUST, True, 60, "skipped-misfire", id="5.5 a 60.000001 s late: used up, room or not"),
        pytest.param(60 + JUST, False, 60, "admitted", id="5.5 a one free of expiry waits as long as it takes"),
        pytest.param(86400, False, 0, "admitted", id="5.5 a one free of expiry, a day late"),
        pytest.param(600, True, 600, "admitted", id="5.5 a the allowance was raised while held"),
        pytest.param(11, True, 10, "skipped-misfire", id="5.5 a the allowance was lowered while held"),
    ],
)
@pytest.mark.parametrize("misfire", ["skip", "latest"])
@pytest.mark.parametrize("overlap", ["skip", "queue", "parallel"])
def test_expiry(overlap: str, misfire: str, late: float, can_expire: bool, lateness: float, result: str) -> None:
    """The candidate keeps its expiry until it is considered, whatever the policy has become."""
    candidate = held(late, can_expire=can_expire)
    decision = decide(facts(overlap=overlap, misfire=misfire, lateness=lateness, candidate=candidate, floor=candidate.instant))
    assert fate(decision, late) == result
    assert decision.candidate is None
    if result == "skipped-misfire":
        assert because(decision, late)["code"] == "capacity"


@pytest.mark.parametrize("room", [NO_OVERLAP, NO_SLOT, NEITHER])
def test_5_5_a_expires_before_room_is_asked_for(room: str) -> None:
    decision = in_room(room, overlap="queue", candidate=held(61))
    assert fate(decision, 61) == "skipped-misfire"
    assert decision.candidate is None


def test_5_5_a_comes_before_outlived() -> None:
    decision = decide(facts(candidate=held(90), due=due(70)))
    assert because(decision, 90)["code"] == "capacity"


def test_5_5_a_an_expired_candidate_leaves_nothing_to_inherit() -> None:
    decision = decide(facts(candidate=held(70, since=65), due=due(10)), free=0)
    assert rows(decision) == [(70, "skipped-misfire")]
    assert decision.candidate and decision.candidate.held_since == NOON


def test_5_5_a_latest_expires_the_candidate_rather_than_coalescing_it() -> None:
    decision = decide(facts(misfire="latest", candidate=held(70), due=due(10)))
    assert rows(decision) == [(70, "skipped-misfire"), (10, "admitted")]


# 5.5 (b): missed and outlived -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("overlap", ["skip", "queue", "parallel"])
@pytest.mark.parametrize(
    ("newest", "fates"),
    [
        pytest.param(60, ["admitted"], id="5.5 b the next one is on time: not outlived"),
        pytest.param(60 + JUST, ["skipped-misfire"], id="5.5 b the next one is missed: outlived"),
    ],
)
def test_outlived(overlap: str, newest: float, fates: list[str]) -> None:
    decision = decide(facts(overlap=overlap, candidate=held(100, can_expire=False), due=due(newest)))
    assert [fate(decision, 100)] == fates
    if fates == ["skipped-misfire"]:
        assert because(decision, 100) == {"code": "outlived", "by": "2026-03-01T11:58:59.999999Z"}
        assert decision.candidate is None


def test_5_5_b_outlived_names_the_newest_missed() -> None:
    decision = decide(facts(overlap="queue", candidate=held(200, can_expire=False), due=due(120, 90, 30), active=1))
    assert because(decision, 200) == {"code": "outlived", "by": "2026-03-01T11:58:30Z"}
    assert rows(decision) == [(200, "skipped-misfire"), (120, "skipped-misfire"), (90, "skipped-misfire")]
    assert fate(decision, 30) == "held, no expiry"
    assert decision.candidate and decision.candidate.held_since == NOON  # nothing is inherited from what was outlived


def test_5_5_b_outlived_by_one_in_the_span() -> None:
    """All the newest hundred are on time; the older ones count as missed and outlive the candidate."""
    known = facts(
        lateness=86400,
        candidate=held(9000, can_expire=False),
        due=due(*minutes(100), older=span(6060, 6000, 2)),
        floor=ago(9000),
    )
    decision = decide(known)
    assert because(decision, 9000) == {"code": "outlived", "by": "2026-03-01T10:20:00Z"}
    assert decision.admit == (ago(5940),)


def test_5_5_b_a_missed_instant_is_settled_whatever_the_room() -> None:
    for room in (BOTH, NO_OVERLAP, NO_SLOT, NEITHER):
        assert rows(in_room(room, overlap="queue", due=due(70))) == [(70, "skipped-misfire")]


# 5.5 (c): what is considered, and in which order ------------------------------------------------------------------------

STORY = due(100, 50, 20)  #: one missed, two on time


@pytest.mark.parametrize(
    ("more", "free", "expected"),
    [
        pytest.param(
            {"overlap": "skip"}, 4, ["skipped-misfire", "admitted", "skipped-overlap"], id="5.5 c skip: the first runs"
        ),
        pytest.param(
            {"overlap": "queue"}, 4, ["skipped-misfire", "admitted", "held, no expiry"], id="5.5 c queue: the second waits"
        ),
        pytest.param({"overlap": "parallel"}, 4, ["skipped-misfire", "admitted", "admitted"], id="5.5 c parallel: both run"),
        pytest.param(
            {"overlap": "parallel"},
            1,
            ["skipped-misfire", "admitted", "held, can expire"],
            id="5.5 c parallel, one slot: one waits",
        ),
        pytest.param(
            {"overlap": "parallel", "limit": 1}, 4, ["skipped-misfire", "admitted", "skipped-overlap"], id="5.5 c parallel 1"
        ),
        pytest.param(
            {"overlap": "skip"}, 0, ["skipped-misfire", "coalesced", "held, can expire"], id="5.5 c no slot: the newer waits"
        ),
        pytest.param(
            {"overlap": "queue", "active": 1},
            4,
            ["skipped-misfire", "coalesced", "held, no expiry"],
            id="5.5 c queue full: the newer",
        ),
        pytest.param(
            {"overlap": "skip", "active": 1},
            4,
            ["skipped-misfire", "skipped-overlap", "skipped-overlap"],
            id="5.5 c skip, busy",
        ),
        pytest.param({"misfire": "latest"}, 4, ["coalesced", "coalesced", "admitted"], id="5.5 c latest: the newest only"),
        pytest.param(
            {"misfire": "latest", "overlap": "parallel"},
            4,
            ["coalesced", "coalesced", "admitted"],
            id="5.6 known: latest and parallel, several due, one run",
        ),
        pytest.param(
            {"misfire": "latest", "active": 1}, 4, ["coalesced", "coalesced", "held, no expiry"], id="5.5 c latest, busy"
        ),
        pytest.param({"misfire": "latest"}, 0, ["coalesced", "coalesced", "held, no expiry"], id="5.5 c latest, no slot"),
    ],
)
def test_several_due(more: dict[str, Any], free: int, expected: list[str]) -> None:
    decision = decide(facts(due=STORY, **more), free=free)
    assert [fate(decision, late) for late in (100, 50, 20)] == expected


@pytest.mark.parametrize(
    ("more", "free", "expected"),
    [
        pytest.param(
            {"overlap": "skip"}, 4, ["admitted", "skipped-overlap", "skipped-overlap"], id="5.5 c skip: candidate first"
        ),
        pytest.param(
            {"overlap": "queue"}, 4, ["admitted", "coalesced", "held, no expiry"], id="5.5 c queue: candidate, newest waits"
        ),
        pytest.param(
            {"overlap": "parallel"}, 4, ["admitted", "admitted", "skipped-overlap"], id="5.5 c parallel 2: candidate, one more"
        ),
        pytest.param({"overlap": "parallel"}, 1, ["admitted", "coalesced", "held, can expire"], id="5.5 c parallel, one slot"),
        pytest.param(
            {"overlap": "skip", "active": 1}, 4, ["held, can expire", "skipped-overlap", "skipped-overlap"], id="5.5 it stays"
        ),
        pytest.param(
            {"overlap": "queue", "active": 1}, 4, ["coalesced", "coalesced", "held, no expiry"], id="5.6 queue: replaced twice"
        ),
        pytest.param({"overlap": "skip"}, 0, ["coalesced", "coalesced", "held, can expire"], id="5.6 no slot: replaced twice"),
        pytest.param(
            {"misfire": "latest"}, 4, ["coalesced", "coalesced", "admitted"], id="5.5 c latest: the candidate gives way"
        ),
        pytest.param(
            {"misfire": "latest", "active": 1}, 4, ["coalesced", "coalesced", "held, no expiry"], id="5.5 c latest, busy"
        ),
        pytest.param({"verdict": REJECTED}, 4, ["preflight-rejected"] * 3, id="5.9 each one on its own"),
        pytest.param(
            {"verdict": REJECTED, "misfire": "latest"},
            4,
            ["coalesced", "coalesced", "preflight-rejected"],
            id="5.9 latest: the newest",
        ),
    ],
)
def test_a_candidate_and_two_on_time(more: dict[str, Any], free: int, expected: list[str]) -> None:
    decision = decide(facts(candidate=held(55), due=due(40, 20), **more), free=free)
    assert [fate(decision, late) for late in (55, 40, 20)] == expected
    assert [row.instant for row in decision.settled] == sorted(row.instant for row in decision.settled)  # 8.2


@pytest.mark.parametrize("misfire", ["skip", "latest"])
def test_5_5_a_candidate_later_than_now_is_not_considered(misfire: str) -> None:
    candidate = held(-5)
    decision = decide(facts(misfire=misfire, candidate=candidate))
    assert (decision.candidate, decision.settled) == (candidate, ())


# 5.6: one candidate, and what it inherits -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "free", "can_expire", "result"),
    [
        pytest.param({"overlap": "skip"}, 0, True, "held, can expire", id="5.6 capacity after capacity"),
        pytest.param({"overlap": "skip"}, 0, False, "held, no expiry", id="5.6 freedom from expiry is inherited"),
        pytest.param(
            {"overlap": "queue"}, 0, False, "held, no expiry", id="5.6 queue: freedom is inherited though capacity lacks now"
        ),
        pytest.param({"overlap": "queue", "active": 1}, 4, True, "held, no expiry", id="5.6 overlap after capacity frees it"),
        pytest.param({"overlap": "parallel"}, 0, False, "held, no expiry", id="5.6 parallel inherits too"),
        pytest.param({"misfire": "latest"}, 0, True, "held, no expiry", id="5.6 latest never expires"),
        pytest.param({"misfire": "latest", "active": 1}, 4, False, "held, no expiry", id="5.6 latest, overlap"),
    ],
)
def test_replacement(more: dict[str, Any], free: int, can_expire: bool, result: str) -> None:
    decision = decide(facts(candidate=held(55, since=45, can_expire=can_expire), due=due(10), **more), free=free)
    assert because(decision, 55) == {"code": "newer", "by": "2026-03-01T11:59:50Z"}
    assert rows(decision) == [(55, "coalesced")]
    assert fate(decision, 10) == result
    assert decision.candidate and decision.candidate.held_since == ago(45)


def test_5_6_each_replaced_one_names_its_own_successor() -> None:
    decision = decide(facts(candidate=held(55, since=50), due=due(40, 20)), free=0)
    assert because(decision, 55)["by"] == "2026-03-01T11:59:20Z"
    assert because(decision, 40)["by"] == "2026-03-01T11:59:40Z"
    assert decision.candidate and decision.candidate.held_since == ago(50)


def test_5_5_c_under_latest_all_name_the_newest() -> None:
    decision = decide(facts(misfire="latest", candidate=held(300), lateness=600, due=due(100, 40, 20)))
    assert {because(decision, late)["by"] for late in (300, 100, 40)} == {"2026-03-01T11:59:40Z"}


def test_5_6_an_inherited_time_does_not_make_the_heir_late() -> None:
    """Its own lateness ends a candidate, not how long it and its forerunners were held."""
    assert fate(decide(facts(candidate=held(60, since=600))), 60) == "admitted"


def test_5_6_an_admitted_newest_leaves_nothing_held() -> None:
    assert decide(facts(misfire="latest", candidate=held(55), due=due(10))).candidate is None


# Policies that change while a candidate is held (3.4, 5.5) --------------------------------------------------------------


def again(first: dict[str, Any], then: dict[str, Any], *, free: tuple[int, int]) -> str:
    """Decide twice about one instant, the second time under another policy; return what it came to."""
    before = decide(facts(due=due(30), **first), free=free[0])
    assert before.candidate
    return fate(decide(facts(candidate=before.candidate, floor=before.watermark, **then), free=free[1]), 30)


BUSY = {"active": 1}


@pytest.mark.parametrize(
    ("first", "then", "free", "result"),
    [
        pytest.param(
            {"overlap": "queue", **BUSY}, BUSY, (4, 4), "held, no expiry", id="5.5 queue became skip: stays held, free"
        ),
        pytest.param(
            {"overlap": "queue", **BUSY}, {}, (4, 0), "held, no expiry", id="5.5 queue became skip, no slot: once free, free"
        ),
        pytest.param({"overlap": "queue", **BUSY}, {}, (4, 4), "admitted", id="5.5 queue became skip, room: admitted"),
        pytest.param({}, {"overlap": "queue", **BUSY}, (0, 4), "held, no expiry", id="5.5 skip became queue: becomes free"),
        pytest.param(
            {}, {"overlap": "queue"}, (0, 0), "held, can expire", id="5.5 skip became queue, no slot: can still expire"
        ),
        pytest.param({}, {"misfire": "latest"}, (0, 0), "held, no expiry", id="5.5 skip became latest: becomes free"),
        pytest.param(
            {}, {"misfire": "latest", **BUSY}, (0, 4), "held, no expiry", id="5.5 skip became latest, busy: becomes free"
        ),
        pytest.param({"misfire": "latest"}, {}, (0, 0), "held, no expiry", id="5.5 latest became skip, no slot: stays free"),
        pytest.param({"misfire": "latest"}, BUSY, (0, 4), "held, no expiry", id="5.5 latest became skip, busy: stays held"),
        pytest.param({}, BUSY, (0, 4), "held, can expire", id="5.5 skipped-overlap leaves the expiry of a candidate as it is"),
        pytest.param(
            {"overlap": "parallel", "limit": 3, "active": 2},
            {"overlap": "parallel", "limit": 2, "active": 2},
            (0, 4),
            "held, can expire",
            id="5.3 lowered limit: stays held",
        ),
        pytest.param(
            {"overlap": "parallel", "limit": 2, "active": 2, "misfire": "latest"},
            {"overlap": "parallel", "limit": 3, "active": 2, "misfire": "latest"},
            (4, 4),
            "admitted",
            id="3.4 a raised limit admits at once",
        ),
    ],
)
def test_a_policy_changed_while_held(first: dict[str, Any], then: dict[str, Any], free: tuple[int, int], result: str) -> None:
    assert again(first, then, free=free) == result


# 5.9: preflight ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("known", "free", "asked"),
    [
        pytest.param(facts(verdict=None, due=due(30)), 4, True, id="5.9 both kinds of room"),
        pytest.param(facts(verdict=None, candidate=held(30)), 4, True, id="5.9 a candidate with room"),
        pytest.param(facts(verdict=None, due=due(30), active=1), 4, False, id="5.9 no room by overlap"),
        pytest.param(facts(verdict=None, due=due(30), active=1, overlap="queue"), 4, False, id="5.9 queue, no room by overlap"),
        pytest.param(facts(verdict=None, due=due(30)), 0, False, id="5.9 no room by capacity"),
        pytest.param(facts(verdict=None, candidate=held(30)), 0, False, id="5.9 a candidate without room"),
        pytest.param(facts(verdict=None, due=due(61)), 4, False, id="5.9 a missed instant"),
        pytest.param(facts(verdict=None, candidate=held(61)), 4, False, id="5.9 an expired candidate"),
        pytest.param(facts(verdict=None), 4, False, id="5.9 nothing to consider"),
        pytest.param(facts(verdict=None, due=due(30), floor=ago(-1)), 4, False, id="5.14 the clock stepped back"),
        pytest.param(facts(due=due(30)), 4, False, id="5.9 the verdict is known"),
        pytest.param(facts(verdict=REJECTED, due=due(30)), 4, False, id="5.9 the refusal is known"),
    ],
)
def test_when_preflight_is_asked(known: ScheduleFacts, free: int, asked: bool) -> None:
    assert decide(known, free=free).needs_preflight is asked


@pytest.mark.parametrize("overlap", ["skip", "queue", "parallel"])
@pytest.mark.parametrize("misfire", ["skip", "latest"])
@pytest.mark.parametrize(
    ("room", "new"),
    [
        pytest.param(BOTH, "preflight-rejected", id="5.9 asked and refused"),
        pytest.param(NO_SLOT, "held", id="5.9 a refusal is not looked at without a slot"),
    ],
)
def test_a_refusal(overlap: str, misfire: str, room: str, new: str) -> None:
    decision = in_room(room, overlap=overlap, misfire=misfire, verdict=REJECTED, due=due(30))
    assert fate(decision, 30).startswith(new)
    assert decision.admit == ()
    if new == "preflight-rejected":
        assert (because(decision, 30), decision.candidate) == (REJECTED.reason, None)


def test_5_9_a_refused_candidate_is_final() -> None:
    decision = decide(facts(verdict=REJECTED, candidate=held(30, can_expire=False)))
    assert (rows(decision), decision.candidate) == ([(30, "preflight-rejected")], None)


# 5.10: reasons as data --------------------------------------------------------------------------------------------------


def test_5_10_overlap_names_the_blocking_runs_and_the_limit() -> None:
    decision = decide(facts(active=["run-000003"], due=due(30)))
    assert because(decision, 30) == {"code": "overlap", "runs": ["run-000003"], "limit": 1}


def test_5_10_a_run_of_the_same_step_blocks_by_the_number_it_will_have() -> None:
    decision = decide(facts(overlap="parallel", active=["run-000003"], due=due(30, 20)))
    assert because(decision, 20) == {"code": "overlap", "runs": ["run-000003", "run-000007"], "limit": 2}


def test_5_10_held_for_overlap_says_so() -> None:
    decision = decide(facts(overlap="queue", active=["run-000003"], due=due(30)), free=0)
    assert because(decision, 30) == {"code": "overlap", "runs": ["run-000003"], "limit": 1}


def test_5_10_capacity_names_the_full_limit() -> None:
    assert because(decide(facts(due=due(30)), free=0), 30) == {"code": "capacity", "limit": 4}


def test_5_10_an_expired_candidate_names_the_full_limit() -> None:
    known = facts(due=due(30))
    waiting = decide(known, free=0)
    later = decide_admission(
        facts(candidate=waiting.candidate, floor=waiting.watermark),
        now=NOON + timedelta(seconds=31),
        free_slots=0,
        slot_limit=4,
    )
    assert later.settled[0].reason == {"code": "capacity", "limit": 4}


def test_5_5_a_the_reason_is_capacity_whatever_it_waited_for_last() -> None:
    candidate = replace(held(61), reason={"code": "overlap", "runs": ["run-000003"], "limit": 1})
    assert because(decide(facts(candidate=candidate, active=["run-000003"])), 61)["code"] == "capacity"


def test_5_10_an_expired_candidate_never_passes_overlap_data_off_as_capacity() -> None:
    """Held for capacity, met a full overlap, then expired: the reason is capacity, so its `limit` is not the overlap's."""
    waiting = decide(facts(due=due(60)), free=0)
    blocked = decide(facts(candidate=waiting.candidate, floor=waiting.watermark, active=["run-000003"]))
    expired = decide_admission(
        facts(candidate=blocked.candidate, floor=blocked.watermark, active=["run-000003"]),
        now=NOON + timedelta(seconds=1),
        free_slots=0,
        slot_limit=4,
    )
    reason = expired.settled[0].reason
    assert reason and reason["code"] == "capacity"
    assert "runs" not in reason
    assert reason.get("limit", 4) == 4


def test_5_10_missed_names_the_allowance_and_the_absence() -> None:
    absence = {"absent_from": "2026-03-01T11:00:00Z", "absent_until": "2026-03-01T11:59:59Z"}
    decision = decide(facts(due=due(90), absence=absence))
    assert because(decision, 90) == {"code": "missed", "allowed_s": 60.0, **absence}


@pytest.mark.parametrize(
    "known",
    [
        pytest.param(facts(due=due(30)), id="5.10 admitted"),
        pytest.param(facts(due=due(30), active=1), id="5.10 skipped-overlap"),
        pytest.param(facts(due=due(30), lateness=1), id="5.10 missed"),
        pytest.param(facts(candidate=held(30), lateness=1), id="5.10 expired"),
        pytest.param(facts(due=due(30), verdict=REJECTED), id="5.10 preflight-rejected"),
        pytest.param(facts(due=due(30, 0), misfire="latest"), id="5.10 coalesced"),
        pytest.param(facts(due=due(older=span(90, 30, None))), id="5.10 a span, by its last"),
    ],
)
def test_each_row_says_how_late_it_was(known: ScheduleFacts) -> None:
    assert decide(known).settled[0].lateness == timedelta(seconds=30)


# 5.14: the clock stepped back -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ahead", "served"),
    [
        pytest.param(0, True, id="5.14 now is the floor: as ever"),
        pytest.param(JUST, False, id="5.14 a microsecond before the floor: nothing"),
        pytest.param(3 * 3600, False, id="5.14 three hours before the floor: nothing"),
    ],
)
@pytest.mark.parametrize("misfire", ["skip", "latest"])
def test_before_the_floor(misfire: str, ahead: float, served: bool) -> None:
    candidate = held(20)
    floor = NOON + timedelta(seconds=ahead)
    decision = decide(facts(misfire=misfire, candidate=candidate, floor=floor))
    assert decision.admit == ((candidate.instant,) if served else ())
    assert decision.candidate == (None if served else candidate)
    assert decision.watermark == floor


def test_5_14_before_the_floor_nothing_expires_either() -> None:
    candidate = held(90)
    decision = decide(facts(candidate=candidate, floor=ago(-1)))
    assert (decision.candidate, decision.settled) == (candidate, ())


@pytest.mark.parametrize(
    ("more", "passed", "expected"),
    [
        pytest.param({}, [30], [(10, "admitted")], id="5.14 an admitted instant passes, the next one runs"),
        pytest.param({}, [30, 10], [], id="5.14 all pass"),
        pytest.param({"active": 1}, [30], [(10, "skipped-overlap")], id="5.14 it passes whatever the room"),
        pytest.param({"verdict": REJECTED}, [30], [(10, "preflight-rejected")], id="5.14 it passes unasked"),
        pytest.param({"lateness": 20}, [30], [(10, "admitted")], id="5.14 it passes though missed"),
        pytest.param({"misfire": "latest"}, [30], [(10, "admitted")], id="5.14 latest does not coalesce it"),
        pytest.param({"misfire": "latest"}, [10], [(30, "admitted")], id="5.14 latest: the newest that has no run"),
    ],
)
def test_passing_quietly(more: dict[str, Any], passed: list[float], expected: list[tuple[float, str]]) -> None:
    decision = decide(facts(due=due(30, 10), passed=frozenset(map(ago, passed)), **more))
    assert (rows(decision), decision.watermark, decision.candidate) == (expected, ago(10), None)


def test_5_14_what_passes_outlives_nothing() -> None:
    known = facts(candidate=held(100, can_expire=False), due=due(90), passed=frozenset({ago(90)}))
    assert rows(decide(known)) == [(100, "admitted")]


def test_5_14_what_passes_replaces_nothing() -> None:
    candidate = held(30)
    decision = decide(facts(candidate=candidate, due=due(10), passed=frozenset({ago(10)})), free=0)
    assert (decision.settled, decision.candidate) == ((), candidate)


@pytest.mark.parametrize("misfire", ["skip", "latest"])
def test_5_15_a_span_is_settled_though_all_that_is_listed_passes(misfire: str) -> None:
    """Every instant up to the watermark is accounted for by a row, a span row or the candidate."""
    older = span(6060, 6000, 2)
    listed = due(*minutes(100), older=older)
    decision = decide(facts(misfire=misfire, due=listed, passed=frozenset(listed.instants), floor=ago(9000)))
    assert decision.watermark == NOON
    assert [row for row in decision.settled if row.span or row.instant == older.last] or decision.candidate


# Callers' mistakes ------------------------------------------------------------------------------------------------------


def test_a_naive_now_is_refused() -> None:
    with pytest.raises(ValueError, match="aware"):
        decide_admission(facts(), now=NOON.replace(tzinfo=None), free_slots=1)


def test_without_a_limit_the_free_slots_are_all_there_are() -> None:
    decision = decide_admission(facts(due=due(30)), now=NOON, free_slots=0)
    assert because(decision, 30) == {"code": "capacity", "limit": 0}

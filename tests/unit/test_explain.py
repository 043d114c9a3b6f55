"""What became of an instant, in sentences, and what another policy would have done (contract 5.10, 8.7)."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.support.admission_model import Model, Plan
from tests.unit.test_project import REASONS
from wfctl.core.admission import ScheduleFacts
from wfctl.core.alternatives import Setting, alternatives, enough_lateness, fate, words_of
from wfctl.core.explain import explain
from wfctl.core.explain_settled import TELLERS
from wfctl.core.explanation import (
    Before,
    Busy,
    ClockStep,
    Deleted,
    Elsewhere,
    Explanation,
    ExplanationFacts,
    Held,
    InForce,
    LetGo,
    Open,
    Paused,
    Presence,
    Recorded,
    RunStory,
    Session,
    Situation,
    Unaccounted,
)
from wfctl.core.instants import moment
from wfctl.core.model import (
    Candidate,
    CronTrigger,
    DueInstants,
    IntervalTrigger,
    Misfire,
    Overlap,
    ScheduleDefinition,
    Span,
    Status,
)
from wfctl.core.run_story import MEANING
from wfctl.core.trigger import calendar_of

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)  #: the instant of every table
SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
EVERY_20 = CronTrigger("*/20 * * * *")
RUN_CODES = {
    "exit", "signal", "timeout", "deadline", "cancelled", "drained", "shutdown", "abandoned", "outcome-unknown", "not-started",
    "launch-failed", "output-invalid", "max-steps", "ledger-restored", "ambiguous", "time-limit", "out-of-memory", "preempted",
    "node-failed", "cancelled-outside",
}  # fmt: skip


def after(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def definition(**fields: Any) -> ScheduleDefinition:
    return ScheduleDefinition(**{"deployment": "load", "trigger": EVERY_20, **fields})


def session(start: float, *, end: float | None = None, seen: float | None = None, pid: int = 812) -> Session:
    return Session(
        pid=pid,
        host="host-a",
        started_at=after(start),
        seen_at=after(seen if seen is not None else end if end is not None else start),
        ended_at=None if end is None else after(end),
    )


def run(name: str = "run-000118", *, begun: float = -1200, ended: float | None = None, **fields: Any) -> RunStory:
    known = {
        "status": Status.RUNNING if ended is None else Status.COMPLETED,
        "admitted_at": after(begun),
        "started_at": after(begun),
        "ended_at": None if ended is None else after(ended),
    }
    return RunStory(id=name, **{**known, **fields})


def facts(situation: Situation, *, now: float = 3600, **fields: Any) -> ExplanationFacts:
    policy = fields.pop("policy", {})
    made = definition(**policy)
    in_force = InForce(
        revision=9,
        definition=made,
        trigger=made.trigger,
        anchor=after(-86400),
        recorded_at=after(-86400),
        actor="ann",
        croniter="7.0.0",
        tz_database="2026b",
    )
    known: dict[str, Any] = {
        "schedule_id": "etl",
        "instant": NOON,
        "now": after(now),
        "is_instant": True,
        "in_force": in_force,
        "situation": situation,
        "sessions": (session(-86400),),
        "presence": Presence(pid=812, host="host-a", started_at=after(-86400)),
        "calendar": calendar_of(EVERY_20),
        "slots": 4,
    }
    return ExplanationFacts(**{**known, **fields})


def row(status: Status, reason: Mapping[str, Any] | None, *, late: float = 0.4, **fields: Any) -> Recorded:
    known = {"recorded_at": after(late), "lateness": timedelta(seconds=late)}
    return Recorded(status=status, reason=reason, **{**known, **fields})


def texts(found: Explanation) -> list[str]:
    return [f"{'' if each.at is None else moment(each.at, NOON)} {each.text}".strip() for each in found.lines]


# The sample ---------------------------------------------------------------------------------------------------------------


def skipped(**fields: Any) -> ExplanationFacts:
    held = run(ended=667)
    reason = {"code": "overlap", "runs": ["run-000118"], "limit": 1}
    return facts(row(Status.SKIPPED_OVERLAP, reason), runs={held.id: held}, active=(held,), **fields)


def test_5_10_a_skipped_instant_is_told_from_its_revision_to_what_would_have_run_it() -> None:
    found = explain(skipped())
    assert found.verdict == "skipped-overlap - it did not run, and will not: run-000118 was running."
    assert (found.situation, found.status, found.will_run) == ("recorded", Status.SKIPPED_OVERLAP, False)
    assert texts(found) == [
        "12:00:00Z instant of revision 9 (*/20 * * * *, UTC)",
        "12:00:00.400Z considered 400ms late (allowed 1m)",
        "12:00:00.400Z overlap=skip, and run-000118 was running (since 11:40:00Z)",
        "12:11:07Z run-000118 completed, 11m 07s after this instant",
    ]
    assert [each.source for each in found.lines] == [
        "definition rev 9, croniter 7.0.0, tz 2026b",
        "supervisor host-a pid 812",
        None,
        "run-000118",
    ]
    assert [each.text for each in found.alternatives] == [
        "overlap=parallel max_active_runs=2 (at once)",
        "overlap=queue (at 12:11:07Z)",
        "misfire=latest (at 12:11:07Z)",
    ]
    assert found.commands == ("wfctl run show run-000118", "wfctl run logs run-000118", "wfctl schedule show etl")


# Reasons ------------------------------------------------------------------------------------------------------------------


def test_8_7_every_code_is_explained() -> None:
    assert set(TELLERS) | set(MEANING) == REASONS
    assert not set(TELLERS) & set(MEANING)
    assert set(MEANING) == RUN_CODES


PAUSE = Paused(since=after(30), until=None, reason="disk swap", actor="ben")


@pytest.mark.parametrize(
    ("status", "reason", "late", "says"),
    [
        pytest.param(
            Status.SKIPPED_OVERLAP, {"code": "overlap", "runs": ["run-000001", "run-000002"], "limit": 2}, 0.4,
            "2 runs held all 2 slots of the schedule", id="overlap",
        ),
        pytest.param(
            Status.SKIPPED_MISFIRE, {"code": "capacity", "limit": 4}, 60.1,
            "all 4 execution slots were taken for longer than the 1m it may be late", id="capacity",
        ),
        pytest.param(
            Status.SKIPPED_MISFIRE, {"code": "missed", "allowed_s": 60.0}, 600,
            "it was considered 10m late, and 1m is allowed", id="missed",
        ),
        pytest.param(
            Status.SKIPPED_MISFIRE, {"code": "outlived", "by": "2026-11-30T12:20:00Z"}, 1500,
            "it was held until the newer 12:20:00Z was missed", id="outlived",
        ),
        pytest.param(
            Status.COALESCED, {"code": "newer", "by": "2026-11-30T12:20:00Z"}, 1200, "the newer 12:20:00Z took its place",
            id="newer",
        ),
        pytest.param(
            Status.SKIPPED_MISFIRE, {"code": "edited"}, 30, "the schedule was edited by cyd before it could run", id="edited",
        ),
        pytest.param(
            Status.COALESCED, {"code": "paused", "held_since": "2026-11-30T12:00:00Z"}, 30,
            "the schedule was paused by ben (disk swap) before it could run", id="paused",
        ),
        pytest.param(
            Status.SKIPPED_MISFIRE, {"code": "deleted"}, 30, "the schedule was deleted before it could run", id="deleted",
        ),
        pytest.param(
            Status.COALESCED, {"code": "clock", "from": "2026-11-30T20:00:00Z", "to": "2026-11-30T11:00:00Z"}, 30,
            "the clock was set back from 20:00:00Z to 11:00:00Z", id="clock",
        ),
        pytest.param(
            Status.PREFLIGHT_REJECTED,
            {"code": "preflight", "problems": [{"path": "command", "message": "the program /x is not there"}]}, 0.4,
            "what its run needs was not there: command: the program /x is not there", id="preflight",
        ),
        pytest.param(
            Status.PREFLIGHT_REJECTED, {"code": "preflight-timeout", "limit_s": 5.0}, 5.4,
            "preflight did not answer within 5s: a mount that does not answer, perhaps", id="preflight-timeout",
        ),
        pytest.param(
            Status.SKIPPED_MISFIRE, {"code": "of-a-newer-version", "message": "too hot"}, 1, "of-a-newer-version: too hot",
            id="a code that is not known yet",
        ),
    ],
)  # fmt: skip
def test_8_7_why_an_instant_admitted_nothing(status: Status, reason: dict[str, Any], late: float, says: str) -> None:
    given = facts(row(status, reason, late=late), pause=PAUSE)
    found = explain(replace(given, edit=replace(given.in_force, revision=10, actor="cyd")))
    assert found.verdict == f"{status.value} - it did not run, and will not: {says}."
    assert found.will_run is False
    assert all(line.text and "None" not in line.text for line in found.lines)


@pytest.mark.parametrize("code", sorted(RUN_CODES))
@pytest.mark.parametrize("has_begun", [True, False], ids=["begun", "never begun"])
def test_8_7_how_a_run_ended(code: str, has_begun: bool) -> None:
    status = {"cancelled": Status.CANCELLED, "max-steps": Status.EXHAUSTED}.get(code, Status.FAILED)
    told = run("run-000007", begun=0, ended=41, status=status, reason={"code": code, "exit_status": 2, "signal": 9})
    if not has_begun:
        told = replace(told, started_at=None)
    found = explain(facts(row(status, None, run=told.id), runs={told.id: told}))
    assert found.verdict.startswith(f"{status.value} - it ") and found.status is status
    unsure = code in ("abandoned", "outcome-unknown", "ledger-restored", "ambiguous")
    assert found.will_run is (True if has_begun else None if unsure else False)
    assert any(line.code == "ended" and line.at == after(41) for line in found.lines)
    if code != "exit":  # the line that says so says all
        assert MEANING[code] in [line.text for line in found.lines]
    assert "wfctl run logs run-000007" in found.commands


@pytest.mark.parametrize(
    ("status", "fields", "verdict", "will_run"),
    [
        (Status.COMPLETED, {"ended": 667}, "completed - it ran, and completed after 11m 07s.", True),
        (Status.RUNNING, {}, "running - it runs now, for 1h.", True),
        (Status.RUNNING, {"is_overdue": True}, "running - it runs now, for 1h; it is overdue.", True),
        (Status.ADMITTED, {"started_at": None}, "admitted - it was admitted, and its process is not reported yet.", True),
    ],
)
def test_6_6_a_run_under_way_or_done(status: Status, fields: dict[str, Any], verdict: str, will_run: bool) -> None:
    told = run("run-000007", **{"begun": 0, "status": status, **fields})
    found = explain(facts(row(status, None, run=told.id), runs={told.id: told}))
    assert (found.verdict, found.will_run) == (verdict, will_run)
    assert found.alternatives == ()


def test_7_4_a_run_whose_record_cannot_be_read_is_said_to_be_one() -> None:
    told = RunStory(id="run-000007", status=None, problem="status is 99")
    found = explain(facts(row(Status.FAILED, None, run=told.id), runs={told.id: told}))
    assert "cannot be read: status is 99" in found.verdict and found.will_run is None


# Situations ---------------------------------------------------------------------------------------------------------------

MINUTELY_HELD = Candidate(instant=NOON, held_since=NOON, can_expire=True, reason={"code": "capacity", "limit": 1})
WAITING = Candidate(instant=NOON, held_since=NOON, can_expire=False, reason={"code": "overlap", "runs": ["run-000118"]})
OPEN = ScheduleFacts(schedule_id="etl", definition=definition(), floor=after(-1), due=DueInstants((NOON,)))


@pytest.mark.parametrize(
    ("situation", "fields", "word", "says", "will_run"),
    [
        pytest.param(
            Held(candidate=WAITING, floor=NOON), {"now": 300, "active": (run(),)}, "pending",
            "it is held, and runs when run-000118 ends, unless the newer 12:20:00Z takes its place first", None,
            id="held for overlap",
        ),
        pytest.param(
            Held(candidate=MINUTELY_HELD, floor=NOON), {"now": 30}, "pending",
            "runs when an execution slot is free, unless that takes until after 12:01:00Z (lateness=1m)", None,
            id="held for capacity",
        ),
        pytest.param(
            Held(candidate=WAITING, floor=NOON), {"now": 300, "active": (run(),), "presence": None}, "pending",
            "takes its place first; but no supervisor is there", None, id="held without a supervisor",
        ),
        pytest.param(Open(is_due=False), {"now": -60}, "coming", "due in 1m, and nothing stands in its way", None, id="coming"),
        pytest.param(
            Open(is_due=False), {"now": -60, "presence": None}, "coming", "no supervisor is there to run it", None,
            id="coming without a supervisor",
        ),
        pytest.param(
            Open(is_due=False, is_next=True, facts=OPEN._replace(active=("run-000118",))), {"now": -60, "active": (run(),)},
            "coming", "unless run-000118 ends before, it would be skipped-overlap (overlap=skip)", None, id="in its way",
        ),
        pytest.param(
            Open(is_due=False, pause=PAUSE), {"now": -60}, "coming", "unless the schedule is resumed before it", None,
            id="coming while paused",
        ),
        pytest.param(
            Open(is_due=False, diagnostic={"message": "line 3"}), {"now": -60}, "coming", "unless what blocks the schedule",
            None, id="coming while blocked",
        ),
        pytest.param(
            Open(is_due=False), {"now": -60, "presence": Presence(problems=("the disk is full",))}, "coming",
            "but the disk is full", None, id="coming while nothing is admitted",
        ),
        pytest.param(
            Open(is_due=True, facts=OPEN), {"now": 600, "presence": None, "sessions": (session(-9000, end=-100),)}, "due",
            "it has not run, for 10m: no supervisor is there since 11:58:20Z", None, id="due without a supervisor",
        ),
        pytest.param(
            Open(is_due=True, facts=OPEN, diagnostic={"message": "line 3"}), {"now": 20}, "due",
            "the schedule is blocked: line 3", None, id="due while blocked",
        ),
        pytest.param(
            Open(is_due=True, facts=OPEN), {"now": 20, "presence": Presence(is_draining=True)}, "due",
            "the supervisor is draining", None, id="due while draining",
        ),
        pytest.param(
            Open(is_due=True, facts=OPEN), {"now": 20, "presence": Presence(problems=("the disk is full",))}, "due",
            "the disk is full", None, id="due while nothing is admitted",
        ),
        pytest.param(Open(is_due=True, facts=OPEN), {"now": 1}, "due", "it came due just now", None, id="due just now"),
        pytest.param(
            replace(PAUSE, since=after(-60), until=after(60), resumed_by="ann"), {}, "paused",
            "it did not run, and will not: the schedule was paused by ben (disk swap)", False, id="in a pause",
        ),
        pytest.param(
            Before(begins=after(60)), {}, "before", "the schedule began at 12:01:00Z, after this time", False, id="before",
        ),
        pytest.param(
            Elsewhere(revision=8, trigger=CronTrigger("0 * * * *"), since=after(-90000), until=after(-86400)),
            {"is_instant": False}, "edited", "does not name this time; revision 8 (0 * * * *, UTC) did, until", False,
            id="of an older trigger",
        ),
        pytest.param(
            Elsewhere(revision=10, trigger=CronTrigger("0 * * * *"), since=after(60), until=None), {"is_instant": False},
            "edited", "revision 10 (0 * * * *, UTC) does", False, id="of a newer trigger",
        ),
        pytest.param(Deleted(at=after(-60)), {}, "deleted", "the schedule was deleted at 11:59:00Z", False, id="deleted"),
        pytest.param(
            LetGo(horizon=after(60) + SECOND / 10**6), {}, "let-go", "went with all up to 12:01:00Z", None, id="let go",
        ),
        pytest.param(Unaccounted(floor=after(60)), {}, "unaccounted", "records are missing", None, id="unaccounted"),
    ],
)  # fmt: skip
def test_5_10_whatever_accounts_for_it(
    situation: Situation, fields: dict[str, Any], word: str, says: str, will_run: bool | None
) -> None:
    found = explain(facts(situation, **fields))
    assert says in found.verdict
    assert (found.situation, found.will_run) == (word, will_run)
    assert found.verdict.endswith(".") and "None" not in found.verdict
    assert all("None" not in line.text for line in found.lines)
    assert found.commands[-1] == "wfctl schedule show etl"
    times = [line.at for line in found.lines if line.at is not None]
    assert times == sorted(times)


@pytest.mark.parametrize(
    ("late", "would"),
    [
        pytest.param(60, "it would run", id="60 s late it would still run"),  # contract 5.1
        pytest.param(61, "it would be skipped-misfire", id="61 s late it would not"),
    ],
)
def test_5_10_what_is_due_and_not_decided_is_decided_on_what_holds_now(late: float, would: str) -> None:
    found = explain(facts(Open(is_due=True, facts=OPEN), now=late, presence=None, sessions=()))
    assert any(line.code == "would-be" and line.text.endswith(would) for line in found.lines)


def test_5_2_a_member_of_a_span_is_told_as_one_of_many() -> None:
    span = Span(after(-6000), after(6000), 11)
    found = explain(facts(row(Status.SKIPPED_MISFIRE, {"code": "missed", "allowed_s": 60.0}, late=9000, span=span), now=9000))
    assert any("one of 11 instants from 2026-11-30T10:20:00Z" in text for text in texts(found))
    assert any("considered 2h 30m late" in text for text in texts(found))


def test_5_14_a_clock_that_was_set_back_is_told() -> None:
    step = ClockStep(at=after(-3600), floor=after(28800))
    found = explain(facts(Open(is_due=False), now=-60, clock_steps=(step,)))
    assert texts(found)[0].startswith("11:00:00Z the clock was set back from 20:00:00Z by 9h: what was recorded for this time")
    ahead = explain(facts(row(Status.SKIPPED_OVERLAP, {"code": "overlap", "runs": [], "limit": 1}), now=-60))
    assert any("the clock was set back since" in text for text in texts(ahead))


# Who was there ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sessions", "recorded", "says"),
    [
        pytest.param((session(-9000, end=-100), session(600, pid=900)), 601, "11:58:20Z until 12:10:00Z", id="it had ended"),
        pytest.param((session(-9000, seen=-700), session(600, pid=900)), 601, "11:48:20Z until 12:10:00Z", id="it was killed"),
        pytest.param((session(600, pid=900),), 601, "no supervisor was there until 12:10:00Z", id="the first one"),
        pytest.param((session(-9000, seen=-700), session(600, pid=900)), 300, None, id="it decided this before it was killed"),
        pytest.param((session(-9000, end=9000),), 601, None, id="it was there"),
    ],
)
def test_5_10_when_the_supervisor_was_away(sessions: tuple[Session, ...], recorded: float, says: str | None) -> None:
    missed = row(Status.SKIPPED_MISFIRE, {"code": "missed", "allowed_s": 60.0}, late=recorded)
    found = explain(facts(missed, sessions=sessions, now=9000))
    assert (says in found.verdict) if says else ("no supervisor" not in found.verdict)
    assert any(line.code == "away" or line.code == "back" for line in found.lines) is (says is not None)


def test_5_10_sessions_that_were_let_go_are_no_absence() -> None:
    missed = row(Status.SKIPPED_MISFIRE, {"code": "missed", "allowed_s": 60.0}, late=601)
    found = explain(facts(missed, sessions=(session(600),), knows_all_sessions=False))
    assert "no supervisor" not in found.verdict


# Another policy -----------------------------------------------------------------------------------------------------------


def setting(**fields: Any) -> Setting:
    policy = fields.pop("policy", {})
    known: dict[str, Any] = {
        "schedule_id": "etl",
        "definition": definition(**policy),
        "calendar": calendar_of(EVERY_20),
        "instant": NOON,
        "at": after(0.4),
        "until": after(7200),
        "active": (),
        "busy": (),
        "slots": 4,
    }
    return Setting(**{**known, **fields})


def offered(given: Setting, outcome: str) -> dict[str, str]:
    return {words_of(each.policy): each.text.partition("(")[2].rstrip(")") for each in alternatives(given, outcome)}


@pytest.mark.parametrize(
    ("ends", "queued"),
    [
        pytest.param(667, "at 12:11:07Z", id="before the next instant"),
        pytest.param(1200, "at 12:20:00Z", id="with the next instant: the older one is considered first"),
        pytest.param(1201, "the newer 12:20:00Z would have taken its place", id="after the next instant"),
        pytest.param(None, "the newer 12:20:00Z would have taken its place", id="not yet"),
    ],
)
def test_5_10_queue_runs_it_when_the_run_ends_unless_a_newer_one_came_first(ends: float | None, queued: str) -> None:
    found = offered(setting(active=(run(ended=ends),)), "skipped-overlap")
    assert found["overlap=queue"] == queued
    assert found["overlap=parallel max_active_runs=2"] == "at once"


def test_5_10_a_run_that_is_not_over_leaves_it_waiting() -> None:
    found = offered(setting(active=(run(),), until=after(900)), "skipped-overlap")
    assert found["overlap=queue"] == found["misfire=latest"] == "it would still wait for run-000118"


def test_5_10_full_slots_are_seen() -> None:
    full = (Busy(after(-60), None), Busy(after(-60), after(300)))
    found = offered(setting(active=(run(ended=667),), busy=full, slots=2), "skipped-overlap")
    assert found["overlap=parallel max_active_runs=2"] == "skipped-misfire: no execution slot"
    assert found["overlap=queue"] == "at 12:11:07Z"


def test_5_10_what_waited_for_a_slot_too_long() -> None:
    full = (Busy(after(-60), None), Busy(after(-60), after(300)))
    found = offered(setting(at=NOON, busy=full, slots=2), "skipped-misfire")
    assert found == {
        "misfire=latest": "at 12:05:00Z",
        "lateness=5m": "at 12:05:00Z",
        "max_concurrent_runs=3": "at once, had nothing else been held for a slot",
    }


def test_5_10_a_slot_that_went_from_hand_to_hand_was_never_free() -> None:
    full = (Busy(after(-60), after(300)), Busy(after(300.02), after(900)))
    found = offered(setting(at=NOON, busy=full, slots=1), "skipped-misfire")
    assert found["misfire=latest"] == "at 12:15:00Z"


def test_5_10_what_was_missed() -> None:
    found = offered(setting(at=after(600)), "skipped-misfire")
    assert found == {"misfire=latest": "at 12:10:00Z", "lateness=10m": "at 12:10:00Z"}
    older = offered(setting(at=after(1500)), "skipped-misfire")  # 12:20 was missed too
    assert older == {"lateness=25m": "at 12:25:00Z", "misfire=latest": "the newer 12:20:00Z would have taken its place"}


def test_5_10_nothing_is_offered_where_its_own_policy_played_ends_otherwise() -> None:
    """Something mattered that is not known: here nobody was in its way."""
    assert alternatives(setting(), "skipped-overlap") == ()


@pytest.mark.parametrize(
    ("late", "enough"),
    [(0.2, "1s"), (60, "60s"), (61, "120s"), (7199, "7200s"), (7201, "10800s"), (172801, "259200s")],
)
def test_5_10_a_lateness_as_a_person_would_write_it(late: float, enough: str) -> None:
    assert f"{enough_lateness(timedelta(seconds=late)).total_seconds():g}s" == enough


# Against the model --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ListedCalendar:
    """A calendar that is a list of seconds after NOON."""

    seconds: tuple[int, ...]

    def next_after(self, instant: datetime) -> datetime | None:
        return next((after(each) for each in self.seconds if after(each) > instant), None)

    def due(self, begin: datetime, until: datetime, *, limit: int = 100) -> DueInstants:
        return DueInstants(tuple(after(each) for each in self.seconds if begin < after(each) <= until)[-limit:])

    def count(self, first: datetime, last: datetime, *, limit: int = 1000) -> int:
        return len([each for each in self.seconds if first <= after(each) <= last])


@pytest.mark.parametrize("seed", range(300))
def test_5_10_a_played_instant_ends_as_the_model_says(seed: int) -> None:
    chance = random.Random(seed)
    calendar = tuple(sorted({0, *chance.sample(range(1, 60), chance.randrange(6))}))
    overlap, misfire = chance.choice(["skip", "queue", "parallel"]), chance.choice(["skip", "latest"])
    limit = chance.choice([2, 3]) if overlap == "parallel" else 1
    lateness, slots, at = chance.choice([0, 5, 60]), chance.choice([1, 2, 4]), chance.choice([0, 0, 3, 8])
    own = [chance.choice([None, chance.randrange(1, 60)]) for _ in range(chance.randrange(min(slots, limit) + 1))]
    others = [chance.choice([None, chance.randrange(1, 60)]) for _ in range(chance.randrange(slots - len(own) + 1))]

    model = Model(slots, at, [Plan("etl", list(calendar), overlap, limit, misfire, lateness, -1, -1)])
    for number, (plan, _) in enumerate([*(("etl", end) for end in own), *(("other", end) for end in others)], 1):
        model.runs.append({"number": number, "plan": plan, "instant": -number, "state": "running"})
    expected: tuple[str, int | None] = ("pending", None)
    ends = dict(enumerate([*own, *others]))
    for second in range(at, 100):
        model.now = second
        for which, end in ends.items():
            if end is not None and end <= second:
                model.runs[which]["state"] = "ended"
        model.do("step")
        rows = [each for each in model.history["etl"] if 0 in each.members]
        if rows:
            expected = (rows[0].status, second)
            break

    stories = tuple(run(f"run-{number:06d}", ended=None if end is None else float(end)) for number, end in enumerate(own, 1))
    busy = tuple(Busy(after(-1000), None if end is None else after(end)) for end in [*own, *others])
    found = fate(
        setting(
            policy={
                "trigger": IntervalTrigger(SECOND),
                "overlap": Overlap(overlap),
                "max_active_runs": limit if overlap == "parallel" else None,
                "misfire": Misfire(misfire),
                "lateness": timedelta(seconds=lateness),
            },
            calendar=ListedCalendar(calendar),
            at=after(at),
            until=after(99),
            active=stories,
            busy=busy,
            slots=slots,
        )
    )
    seconds = None if found.at is None else int((found.at - NOON).total_seconds() + 0.999999)
    assert (found.outcome, seconds) == expected

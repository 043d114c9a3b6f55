"""Slots of this machine and of a cluster are apart: each admission takes one of its own executor's (contract 5.4, 3.0)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from wfctl.core.admission import PASSED, ScheduleFacts, Slots, decide_round
from wfctl.core.model import CronTrigger, DueInstants, ScheduleDefinition
from wfctl.core.reasons import phrase

NOON = datetime(2027, 3, 1, 12, tzinfo=UTC)


def facts(name: str, executor: str = "local") -> ScheduleFacts:
    definition = ScheduleDefinition(deployment="d", trigger=CronTrigger("* * * * *"))
    return ScheduleFacts(
        schedule_id=name, definition=definition, floor=NOON - timedelta(minutes=1), due=DueInstants(instants=(NOON,)),
        verdict=PASSED, executor=executor,
    )  # fmt: skip


def admitted(free: int, cluster: Slots | None, *names: str) -> list[str]:
    given = [facts(name, "slurm" if name.startswith("c") else "local") for name in names]
    others = None if cluster is None else {"slurm": cluster}
    return [name for name, _ in decide_round(given, now=NOON, free_slots=free, slot_limit=4, others=others).admitted]


def test_a_full_machine_keeps_nothing_from_a_cluster_and_the_other_way_round() -> None:
    assert admitted(0, Slots(2, 2), "a", "b", "c1", "c2", "c3") == ["c1", "c2"]
    assert admitted(2, Slots(0, 2), "a", "b", "c1", "c2") == ["a", "b"]


def test_each_admission_takes_a_slot_of_its_own_executor() -> None:
    assert admitted(1, Slots(1, 5), "a", "b", "c1", "c2") == ["a", "c1"]


def test_what_is_left_is_that_of_this_machine() -> None:
    decided = decide_round([facts("c1", "slurm"), facts("a")], now=NOON, free_slots=3, others={"slurm": Slots(9, 9)})
    assert decided.free_slots == 2


def test_the_reason_of_who_waits_names_the_cluster_and_its_limit() -> None:
    decided = decide_round(
        [facts("c1", "slurm"), facts("a")], now=NOON, free_slots=0, slot_limit=4, others={"slurm": Slots(0, 7)}
    )
    mine, others = decided.decisions["a"].candidate, decided.decisions["c1"].candidate
    assert mine is not None
    assert others is not None
    assert mine.reason == {"code": "capacity", "limit": 4}
    assert others.reason == {"code": "capacity", "limit": 7, "executor": "slurm"}
    assert phrase(others.reason) == "capacity: all 7 execution slots of slurm were taken"


def test_an_executor_of_which_nothing_is_known_counts_as_this_machine() -> None:
    assert admitted(1, None, "c1", "c2") == ["c1"]

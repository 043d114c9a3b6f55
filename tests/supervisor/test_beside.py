"""What is worked out beside the loop: answers, changes that are tried out, looks at files (contract 2.3, 9.2)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.waiting import wait_for
from wfctl.errors import Internal, InvalidDefinition, IoError, WfctlError
from wfctl.operations import memo, reconcile
from wfctl.operations.memo import Memo
from wfctl.operations.store import Store, init_store, open_store
from wfctl.operations.worker import Worker
from wfctl.rpc.session import Deferred, Encoded
from wfctl.supervisor.answers import Answers, try_out
from wfctl.supervisor.asides import Asides
from wfctl.supervisor.filelooks import FileLooks

CRON = {"kind": "cron", "expression": "* * * * *"}


class Loop:
    """A store that a loop has open, and what works beside it."""

    def __init__(self, root: Path) -> None:
        self.store = open_store(root)
        self.now = 100.0
        self.asides = Asides(lambda: open_store(root), lambda: None, self.store)
        self.answers = Answers(self.store, self.asides)
        self.looks = FileLooks(self.asides, lambda: self.now)

    def wait(self, answer: Deferred) -> Any:
        """Hand answers out until this one is there; return it, or raise its error."""
        came: list[tuple[Any, WfctlError | None]] = []
        answer.when_done(lambda result, error: came.append((result, error)))
        wait_for(lambda: came or (self.asides.finish_one() and came), "the answer")
        result, error = came[0]
        if error is not None:
            raise error
        return result


@pytest.fixture
def loop(tmp_path: Path) -> Iterator[Loop]:
    with init_store(tmp_path / "store") as store:
        store.create_deployment(deployment_id="d", command=["/bin/true"])
        store.create_schedule(schedule_id="s", deployment_id="d", trigger=CRON)
    made = Loop(tmp_path / "store")
    yield made
    made.asides.close()
    made.store.close()


# Answers ---------------------------------------------------------------------------------------------------------------


def test_what_reads_is_answered_elsewhere_and_ready_to_be_sent(loop: Loop) -> None:
    answer = loop.wait(loop.answers("workflow.schedules.get", {"schedule_id": "s"}))
    assert isinstance(answer, Encoded)
    assert b'"id":"s"' in answer.answer(1)


def test_a_read_sees_what_was_changed_before_it(loop: Loop) -> None:
    for number in range(5):
        loop.answers(f"workflow.schedules.{'resume' if number % 2 else 'pause'}", {"schedule_id": "s"})
        answer = loop.wait(loop.answers("workflow.schedules.get", {"schedule_id": "s"}))
        assert (b'"state":"active"' in answer.answer(1)) == bool(number % 2)


def test_a_change_of_a_definition_is_tried_out_first_and_done_in_the_loop(loop: Loop) -> None:
    done: list[str] = []
    loop.store.create_deployment = lambda **fields: done.append(threading.current_thread().name)  # type: ignore[method-assign]
    loop.wait(loop.answers("workflow.deployments.create", {"deployment_id": "e", "command": ["/bin/true"]}))
    assert done == [threading.main_thread().name]


@pytest.mark.parametrize(
    ("operation", "params", "code"),
    [
        ("deployments.create", {"deployment_id": "e", "command": 5}, "invalid-definition"),
        ("deployments.create", {"deployment_id": "d", "command": ["/bin/true"]}, "exists"),
        ("deployments.update", {"deployment_id": "d", "expected_revision": 2, "umask": "777"}, "revision-conflict"),
        ("deployments.update", {"deployment_id": "x", "expected_revision": 1}, "not-found"),
        ("schedules.create", {"schedule_id": "t", "deployment_id": "d", "trigger": {"kind": "never"}}, "invalid-definition"),
        ("schedules.create", {"schedule_id": "t", "deployment_id": "x", "trigger": CRON}, "not-found"),
        ("schedules.update", {"schedule_id": "s", "expected_revision": 1, "lateness": "1h30"}, "invalid-definition"),
        ("schedules.update", {"schedule_id": "s", "expected_revision": 1, "nothing": 1}, "invalid-argument"),
    ],
)
def test_a_change_that_is_refused_never_comes_to_the_loop(
    loop: Loop, operation: str, params: dict[str, Any], code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wfctl.supervisor.answers.dispatch", lambda *_: pytest.fail("it was done"))
    with pytest.raises(WfctlError) as caught:
        loop.wait(loop.answers(f"workflow.{operation}", params))
    assert caught.value.code == code


def test_a_trial_writes_nothing_and_what_it_found_is_known(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = Memo()
    monkeypatch.setattr(memo, "_MEMO", fresh)
    environment = {f"E{number}": "v" * 40 for number in range(500)}
    params = {"deployment_id": "e", "command": ["/bin/true"], "environment": environment}
    commits = loop.store.context.ledger.commits
    with open_store(loop.store.root) as other:
        try_out(other, "create_deployment", params)
        assert not other.context.is_trial
    assert loop.store.context.ledger.commits == commits
    assert [each.id for each in loop.store.list_deployments().items] == ["d"]
    monkeypatch.setattr("wfctl.operations.deployments.deployment_from_plain", lambda *_, **__: pytest.fail("read again"))
    monkeypatch.setattr("wfctl.store.definitions.tomllib.loads", lambda *_: pytest.fail("parsed again"))
    assert loop.store.create_deployment(**params).definition["environment"] == environment  # type: ignore[arg-type,index]


def test_a_memo_keeps_the_last_used_and_no_failures() -> None:
    memo = Memo(most_bytes=10_000)
    made: list[str] = []

    def make(name: str) -> str:
        made.append(name)
        return name

    for name in ("a", "b", "c", "d", "a", "e", "a", "b"):
        memo.get(("kind", name), 2500, lambda name=name: make(name))  # type: ignore[misc]
    assert made == ["a", "b", "c", "d", "e", "b"]
    with pytest.raises(InvalidDefinition):
        memo.get(("kind", "f"), 2500, lambda: (_ for _ in ()).throw(InvalidDefinition("no")))
    assert memo.get(("kind", "f"), 2500, lambda: "good") == "good"


# Where nothing is to be had --------------------------------------------------------------------------------------------


def test_without_a_thread_the_loop_answers_itself(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Worker, "submit", lambda self, job: False)
    answer = loop.wait(loop.answers("workflow.schedules.get", {"schedule_id": "s"}))
    assert answer["id"] == "s"
    assert loop.wait(loop.asides.work_out(lambda: 5)) == 5


def test_without_descriptors_the_loop_answers_by_what_it_has_open(loop: Loop) -> None:
    def reopen() -> Store:
        raise IoError("no descriptor is left")

    asides = Asides(reopen, lambda: None, loop.store)
    answers = Answers(loop.store, asides)
    answer = answers("workflow.schedules.get", {"schedule_id": "s"})
    loop.asides = asides
    assert loop.wait(answer)["id"] == "s"


def test_a_bug_is_answered_as_one_and_the_next_question_as_ever(loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(Internal):
        loop.wait(loop.asides.ask(lambda store: 1 / 0))
    with pytest.raises(Internal):
        loop.wait(loop.asides.ask(lambda store: object()))
    with pytest.raises(Internal):
        loop.wait(loop.asides.ask(lambda store: 1, then=lambda found: found / 0))
    assert len([record for record in caplog.records if record.__dict__.get("action") == "rpc_internal_error"]) == 3
    assert loop.wait(loop.asides.ask(lambda store: store.root.name)).answer(1).endswith(b'"store"}')


def test_a_question_that_nobody_wants_is_not_worked_on(loop: Loop) -> None:
    gate, asked = threading.Event(), []
    first = loop.asides.ask(lambda store: gate.wait(20))
    second = loop.asides.ask(lambda store: asked.append(1))
    second.is_wanted = False
    gate.set()
    loop.wait(first)
    loop.wait(second)
    assert not asked


def test_what_takes_long_holds_up_only_its_like(loop: Loop) -> None:
    gate = threading.Event()
    slow = loop.asides.ask(lambda store: gate.wait(20), is_slow=True)
    assert loop.wait(loop.answers("workflow.schedules.get", {"schedule_id": "s"}))
    assert loop.wait(loop.asides.work_out(lambda: 5)) == 5
    assert not slow.is_done
    gate.set()
    loop.wait(slow)


# Files -----------------------------------------------------------------------------------------------------------------


def looks(loop: Loop, monkeypatch: pytest.MonkeyPatch, youngest: timedelta | None = None) -> list[float]:
    """Return when files were looked at, from here on."""
    times: list[float] = []
    monkeypatch.setattr(reconcile, "look_over", lambda context, settled_for: times.append(loop.now) or (youngest, ["ignored"]))
    return times


def look(loop: Loop) -> None:
    before = loop.looks.next_timer()
    loop.looks.look()
    if before is not None and before <= loop.now:
        wait_for(loop.asides.finish_one, "the look")


def test_a_flood_of_changes_is_looked_at_once_a_second(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    times = looks(loop, monkeypatch)
    for _ in range(40):
        loop.looks.notice()
        look(loop)
        loop.now += 0.125
    assert times == [100.0, 101.0, 102.0, 103.0, 104.0]
    assert loop.looks.ignored == ["ignored"]


def test_a_file_that_was_just_changed_is_looked_at_again_when_it_is_a_second_old(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = looks(loop, monkeypatch, timedelta(seconds=0.3))
    loop.looks.notice()
    look(loop)
    assert loop.looks.next_timer() == pytest.approx(100.7)
    loop.now = 100.5
    look(loop)
    assert len(times) == 1


def test_what_a_look_failed_by_is_raised_in_the_loop(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(context: Any, settled_for: Any) -> Any:
        raise IoError("the disk is gone")

    looks(loop, monkeypatch)
    monkeypatch.setattr(reconcile, "look_over", fail)
    loop.looks.notice()
    look(loop)
    with pytest.raises(IoError, match="the disk is gone"):
        loop.looks.look()
    assert loop.looks.next_timer() == pytest.approx(101.0)


def test_only_the_files_that_were_named_are_looked_at_once_all_were(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[object] = []
    monkeypatch.setattr(reconcile, "look_over", lambda context, settled_for: looked.append("all") or (None, []))
    monkeypatch.setattr(reconcile, "these", lambda context, named, **_: looked.append(set(named)) or (None, []))
    schedules, deployments = Path("schedules"), Path("deployments")
    for changed in (
        {(schedules, "s.toml")},  # nothing is known yet: all of them
        {(schedules, "s.toml"), (deployments, "d.toml"), (schedules, ".s.toml.0a.tmp")},
        {(schedules, ".s.toml.0a.tmp")},  # nobody's file yet
        {(schedules, "Not a definition")},
        {(schedules, "")},  # the kernel had too much to tell
    ):
        loop.looks.notice(changed)
        look(loop)
        loop.now += 2
    assert looked == ["all", {("schedule", "s"), ("deployment", "d")}, "all", "all"]


def test_what_a_named_file_gives_to_report_is_looked_for_among_all(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[object] = []
    reports = iter([[], ["x"]])
    monkeypatch.setattr(reconcile, "look_over", lambda context, settled_for: looked.append("all") or (None, next(reports)))
    monkeypatch.setattr(reconcile, "these", lambda context, named, **_: looked.append(set(named)) or (None, ["x"]))
    for _ in range(3):
        loop.looks.notice({(Path("schedules"), "s.toml")})
        look(loop)
        loop.now += 2
    assert looked == ["all", {("schedule", "s")}, "all"]
    assert loop.looks.ignored == ["x"]

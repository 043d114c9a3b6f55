"""Asking preflight on worker threads (contract 5.9)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from tests.support.waiting import wait_for
from wfctl.core.admission import Verdict
from wfctl.supervisor import preflighter
from wfctl.supervisor.preflighter import TIMED_OUT, Check, Preflighter

FINE, BAD = Verdict(None), Verdict({"code": "preflight", "problems": []})
ONE, TWO, THREE = (1, 1, 1, 1), (2, 1, 1, 1), (3, 1, 1, 1)


class _Mount:
    """A check that hangs until the mount is back."""

    def __init__(self) -> None:
        self.is_back = threading.Event()
        self.asked = 0

    def __call__(self) -> Verdict:
        self.asked += 1
        self.is_back.wait(30)
        return FINE


@pytest.fixture
def mount() -> Iterator[_Mount]:
    """A dead mount, which comes back at the end."""
    mount = _Mount()
    yield mount
    mount.is_back.set()


def _preflighter() -> tuple[Preflighter, threading.Event]:
    told = threading.Event()
    return Preflighter(time.monotonic, told.set), told


def test_answers_are_those_of_the_checks() -> None:
    asking, told = _preflighter()
    checks: list[tuple[tuple[int, int, int, int], Check]] = [(ONE, lambda: FINE), (TWO, lambda: BAD)]
    assert asking.ask(checks, patience_s=1.0) == {ONE: FINE, TWO: BAD}
    assert not asking.is_asking
    assert not told.is_set(), "nobody is woken for an answer that was waited for"


def test_a_check_that_raises_is_a_failure() -> None:
    def broken() -> Verdict:
        raise OSError("a bad sector")

    asking, _ = _preflighter()
    verdict = asking.ask([(ONE, broken)], patience_s=1.0)[ONE]
    assert verdict.reason is not None
    assert "a bad sector" in str(verdict.reason)


def test_a_dead_mount_holds_up_no_other_check(mount: _Mount) -> None:
    asking, _ = _preflighter()
    begun = time.monotonic()
    answers = asking.ask([(ONE, mount), (TWO, lambda: FINE), (THREE, lambda: BAD)], patience_s=0.05)
    assert answers == {TWO: FINE, THREE: BAD}
    assert time.monotonic() - begun < 2.0
    assert asking.is_asking


def test_an_answer_that_comes_late_wakes_the_loop_and_is_kept(mount: _Mount) -> None:
    asking, told = _preflighter()
    assert asking.ask([(ONE, mount)], patience_s=0.0) == {}
    mount.is_back.set()
    assert told.wait(10)
    assert asking.ask([(ONE, mount)], patience_s=1.0) == {ONE: FINE}
    assert mount.asked == 1


def test_no_answer_within_the_limit_is_a_failure_and_costs_one_thread(mount: _Mount, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflighter, "TIMEOUT_S", 0.1)
    asking, _ = _preflighter()
    for _ in range(3):
        assert asking.ask([(ONE, mount)], patience_s=0.2) == {ONE: TIMED_OUT}
    assert mount.asked == 1
    mount.is_back.set()
    wait_for(lambda: not any(thread.name == "preflight" for thread in threading.enumerate()), "the end of the worker")
    assert asking.ask([(ONE, lambda: FINE)], patience_s=1.0) == {ONE: FINE}, "once the mount is back it is asked anew"


def test_a_slow_check_is_not_asked_twice(mount: _Mount) -> None:
    asking, _ = _preflighter()
    for _ in range(3):
        assert asking.ask([(ONE, mount)], patience_s=0.0) == {}
    assert mount.asked == 1

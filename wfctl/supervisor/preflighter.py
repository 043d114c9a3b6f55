"""Asking preflight without ever being held up by one dead mount (contract 5.9)."""

from __future__ import annotations

import errno
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from wfctl.core.admission import Verdict
from wfctl.operations.rounds import Subject

TIMEOUT_S = 5.0
_STALL_S = 0.05  #: a check that takes longer is left to its worker, and another takes on the rest

Check = Callable[[], Verdict]
TIMED_OUT = Verdict({"code": "preflight-timeout", "limit_s": TIMEOUT_S})


@dataclass(slots=True)
class _Batch:
    """What one worker works off; `at` is since when it has been at the present check."""

    checks: deque[tuple[Subject, Check]]
    at: float = 0.0
    is_abandoned: bool = False


@dataclass(slots=True)
class Preflighter:
    """Runs checks on worker threads. A stuck check costs a thread, never another schedule's time."""

    monotonic: Callable[[], float]
    on_answer: Callable[[], None]  #: called from a worker when an answer comes that nobody waits for any more
    _answers: dict[Subject, Verdict] = field(default_factory=dict)
    _asked_at: dict[Subject, float] = field(default_factory=dict)
    _at_work: set[Subject] = field(default_factory=set)  #: asked and not answered, though nobody may be waiting any more
    _condition: threading.Condition = field(default_factory=threading.Condition)
    _is_waiting: bool = False

    def ask(self, questions: Sequence[tuple[Subject, Check]], *, patience_s: float) -> Mapping[Subject, Verdict]:
        """Return the verdicts that are there in time; a check over 5 s is a failure. The others are kept for a later call.

        `patience_s`: how long to wait for checks that do not get on.
        """
        with self._condition:
            asked = [each for each in questions if each[0] not in self._asked_at]
            for subject, _ in asked:
                self._asked_at[subject] = self.monotonic()
            fresh = deque(each for each in asked if each[0] not in self._at_work)  # a dead mount costs one thread, not more
            self._at_work.update(subject for subject, _ in fresh)
            if fresh:
                self._begin(fresh)
            wanted = [subject for subject, _ in questions]
            self._wait(wanted, patience_s)
            return self._take(wanted)

    @property
    def is_asking(self) -> bool:
        """Tell whether an answer is still awaited."""
        return bool(self._asked_at)

    def _wait(self, wanted: Sequence[Subject], patience_s: float) -> None:
        """Wait until all have answered, or nothing has come for `patience_s`; a stalled worker's rest goes to another."""
        self._is_waiting = True
        try:
            last = self.monotonic()
            missing = sum(subject not in self._answers for subject in wanted)
            while missing:
                self._condition.wait(_STALL_S)
                left = sum(subject not in self._answers for subject in wanted)
                if left < missing:
                    missing, last = left, self.monotonic()
                elif self._rescue() or self.monotonic() - last < patience_s:
                    continue
                else:
                    return
        finally:
            self._is_waiting = False

    def _take(self, wanted: Sequence[Subject]) -> dict[Subject, Verdict]:
        found: dict[Subject, Verdict] = {}
        for subject in wanted:
            verdict = self._answers.pop(subject, None)
            if verdict is None and self.monotonic() - self._asked_at[subject] >= TIMEOUT_S:
                verdict = TIMED_OUT
            if verdict is not None:
                del self._asked_at[subject]
                found[subject] = verdict
        return found

    # -- workers ---------------------------------------------------------------------------------------------------------

    _batches: list[_Batch] = field(default_factory=list)

    def _begin(self, checks: deque[tuple[Subject, Check]]) -> None:
        try:
            self._work(checks)
        except RuntimeError as error:  # no thread can be had: nothing was asked (7.7)
            for subject, _ in checks:
                self._at_work.discard(subject)
                del self._asked_at[subject]
            self._batches.pop()
            raise OSError(errno.EAGAIN, "no thread can be started for a preflight") from error

    def _work(self, checks: deque[tuple[Subject, Check]]) -> None:
        batch = _Batch(checks, at=self.monotonic())
        self._batches.append(batch)
        threading.Thread(target=self._run, args=(batch,), name="preflight", daemon=True).start()

    def _rescue(self) -> bool:
        """Hand what a stalled worker has not begun to a new one. Return whether there was any."""
        rescued = False
        for batch in list(self._batches):
            if batch.checks and not batch.is_abandoned and self.monotonic() - batch.at > _STALL_S:
                batch.is_abandoned = True
                rest, batch.checks = batch.checks, deque()
                try:
                    self._work(rest)
                except RuntimeError:  # no thread can be had: the stalled one keeps them
                    self._batches.pop()
                    batch.checks, batch.is_abandoned = rest, False
                    continue
                rescued = True
        return rescued

    def _run(self, batch: _Batch) -> None:
        while True:
            with self._condition:
                if not batch.checks:
                    self._batches.remove(batch)
                    return
                subject, check = batch.checks.popleft()
                batch.at = self.monotonic()
            try:
                verdict = check()
            except Exception as error:  # a check that fails in an unforeseen way must still answer
                verdict = Verdict({"code": "preflight", "problems": [{"path": "", "message": str(error), "line": None}]})
            with self._condition:
                self._at_work.discard(subject)
                if subject in self._asked_at:
                    self._answers[subject] = verdict
                self._condition.notify_all()
                tell = not self._is_waiting
            if tell:
                self.on_answer()

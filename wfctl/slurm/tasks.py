"""What the threads of the pool do for one execution: submit its job, stop it, tell of its start, settle its end.

Each task has the execution for itself (`Job.is_busy`). What fails for the sake of the folder or the controller is left as it
is, with a problem that says so; the next look tries again.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeGuard

from wfctl.core.instants import from_micros
from wfctl.core.model import SlurmNeeds
from wfctl.keeper.protocol import Ended, LaunchRequest, NotLaunched, Refused, RefusedAt, Started
from wfctl.slurm.absent import PLACE
from wfctl.slurm.accounts import Accounts
from wfctl.slurm.arguments import of_job
from wfctl.slurm.commands import JobLine, Rejected, Slurm, Unreachable
from wfctl.slurm.ends import Evidence, Outcome, outcome_of, told, word_of
from wfctl.slurm.folder import Claim, End, Folder, FolderProblem
from wfctl.slurm.jobs import Job, Phase, State, now
from wfctl.slurm.probing import Probes, Verdict
from wfctl.slurm.staging import LogCarrier, bring, bring_home, record, write_word

LOG = logging.getLogger("wfctl.slurm")
SILENCE_S = 15.0  #: a node that has not answered for so long is taken for dead; a living one looks every three seconds
_HEARD_S = 120.0  #: beyond the grace: how long a node that has answered may take to end its program
_PATIENT_S = 15.0  #: beyond the grace, before Slurm is to end what did not end by itself
_GONE_S = 30.0  #: how long a fenced job may stay in the queue before its run is settled
DOUBT_GRACE_S = 10.0  #: for a program that is ended because Slurm has given its job up
AWAY, FOLDER, NODES = "slurm", "slurm-folder", "slurm-nodes"  #: kinds of problems


class Tasks:
    """The work of the pool."""

    def __init__(
        self,
        state: State,
        slurm: Slurm,
        folder: Folder,
        probes: Probes,
        *,
        runs: Path,
        script: Callable[[], Path],
        max_output: Callable[[], int],
    ) -> None:
        self._state = state
        self._slurm = slurm
        self._folder = folder
        self._probes = probes
        self._runs = runs
        self._script = script
        self._max_output = max_output
        self.to_cancel: set[str] = set()  #: names of jobs that never will run, and that Slurm may still have
        self._accounts = Accounts(slurm, self._names_in_doubt)
        self.unseen: SlurmNeeds | None = None  #: what was asked for where no node saw the folder

    # -- submitting ------------------------------------------------------------------------------------------------------

    def submit(self, job: Job) -> None:
        """Bring what it needs to the folder, and hand its job to Slurm, once."""
        try:
            if not job.is_asked and job.request is not None and self._may_go(job, job.request):
                self._send(job, job.request)
        except (OSError, FolderProblem) as error:
            self._folder_failed(error)
            self._refuse(job, f"the shared folder cannot be used: {_words(error)}")
        except Unreachable as error:
            self.away(error)
            job.phase = Phase.HELD if job.phase is Phase.QUEUED else job.phase
        finally:
            self.let_go(job)

    def _may_go(self, job: Job, request: LaunchRequest) -> bool:
        if AWAY in self._state.problems:
            job.phase = Phase.HELD
            return False
        verdict = self._probes.verdict(_needs(request))
        self.judge(_needs(request), verdict)
        if verdict.is_seen is False:
            self._refuse(job, verdict.words)
        elif verdict.is_seen is None:
            job.phase = Phase.WAITING
        return verdict.is_seen is True

    def judge(self, needs: SlurmNeeds, verdict: Verdict) -> None:
        """Say that no node sees the folder, or that it is over."""
        if verdict.is_seen is False:
            self.unseen = needs
            self._state.problem(NODES, f"{verdict.words}; no run on the cluster is started until a node sees it")
        elif verdict.is_seen is True and (self.unseen is None or self.unseen == needs):
            self.unseen = None
            self._state.problem(NODES, None)

    def look_again(self) -> None:
        """Ask once more where no node saw the folder."""
        needs = self.unseen
        if needs is None:
            return
        try:
            self.judge(needs, self._probes.verdict(needs))
        except Unreachable as error:
            self.away(error)
        except OSError as error:
            self._folder_failed(error)

    def conclude_probes(self, lines: dict[str, JobLine], began: float) -> None:
        """Take in what small jobs have found, and let those go that waited for it."""
        try:
            decided = self._probes.conclude(lines, began)
        except OSError as error:
            self._folder_failed(error)
            return
        if not decided:
            return
        for job in self._state.living():
            if job.phase is Phase.WAITING and self._state.begin(job):
                job.phase = Phase.QUEUED
                self.submit(job)

    def _send(self, job: Job, request: LaunchRequest) -> None:
        if not bring(self._folder, request):  # it was launched before, by whomever: what became of it is looked for
            job.phase, job.sent_at, job.request = Phase.SENT, now(), None
            return
        place = self._folder.execution(job.run, job.k)
        arguments = of_job(_needs(request), job.name, place, self._script(), job.run, job.k)
        job.phase = Phase.SENT
        try:
            self._slurm.submit(arguments)
        except Rejected as error:
            self._refuse(job, f"Slurm refuses the job: {error}")
        finally:
            job.sent_at, job.request = now(), None

    def _refuse(self, job: Job, message: str) -> None:
        """It was refused: make that true, whatever may be on its way, and say so."""
        claim = self._fence(job)
        if claim is not None and not claim.is_ours:
            job.phase, job.sent_at = Phase.SENT, now()  # it runs all the same
            return
        self.to_cancel.add(job.name)
        at = datetime.now(UTC)
        self._deliver(job, Refused(run=job.run, k=job.k, errno=0, what=RefusedAt.SUBMISSION, at=at, message=message), None)

    def _fence(self, job: Job) -> Claim | None:
        """Keep it from ever running; None where the folder cannot be reached, so that no job could run either."""
        try:
            return self._folder.fence(job.run, job.k)
        except OSError as error:
            LOG.warning("%s cannot be fenced: %s", job.name, _words(error), extra={"action": "slurm_fence_failed"})
            return None

    # -- stopping --------------------------------------------------------------------------------------------------------

    def let_go(self, job: Job) -> None:
        """A task is done with it: do what was asked for meanwhile, then leave it to the next."""
        while self._state.must_obey(job):
            self._obey(job)

    def stop(self, job: Job) -> None:
        """End it: what has not begun never will; what has is asked to, by its letter box and by a signal that has it look."""
        self.let_go(job)

    def _obey(self, job: Job) -> None:
        job.obeyed_s = job.grace_s
        try:
            self.tell(job)
        except OSError as error:
            self._folder_failed(error)
            job.kill_at = now()  # then Slurm alone

    def tell(self, job: Job) -> None:
        """Have what was begun end, and keep from ever beginning what was not. Raise OSError."""
        claim = self._folder.fence(job.run, job.k)
        if claim.is_ours:
            self._fenced(job)
            return
        grace_s = job.grace_s or 0.0
        self._folder.ask_to_stop(job.run, job.k, grace_s)
        job.kill_at = now() + grace_s + _PATIENT_S
        try:
            self._slurm.cancel([job.name], signal="TERM")
        except Unreachable as error:
            self.away(error)

    def _fenced(self, job: Job) -> None:
        """It never will run: have its job cancelled, and wait until that is seen."""
        job.phase, job.fenced_at, job.request = Phase.FENCED, now(), None
        self.to_cancel.add(job.name)
        self.cancel_waiting()

    def cancel_waiting(self) -> None:
        """Have Slurm forget jobs that never will run; what it does not hear now it is told later."""
        names = sorted(self.to_cancel)
        try:
            for name in names:
                self._slurm.cancel([name])
                self.to_cancel.discard(name)
        except Unreachable as error:
            self.away(error)

    def kill(self, job: Job) -> None:
        """Have Slurm end what did not end by itself: TERM and, after its own KillWait, KILL."""
        job.kill_at = now() + 2 * _PATIENT_S
        try:
            self._slurm.cancel([job.name])
        except Unreachable as error:
            self.away(error)
        finally:
            self.let_go(job)

    # -- its start and its course ----------------------------------------------------------------------------------------

    def follow(self, jobs: Iterable[Job]) -> None:
        """Tell of programs that have begun, carry home what they print, and notice ends that Slurm is late to tell of."""
        try:
            for job in jobs:
                self._follow(job)
            self._folder_answers()
        except OSError as error:
            self._folder_failed(error)

    def _follow(self, job: Job) -> None:
        if not job.is_reported:
            claim = self._folder.claim(job.run, job.k)
            if claim is None or claim.is_ours:
                return
            self._state.report_started(job, _started(job, claim))
            job.decided.set()
        self._carry(job)
        if job.end_seen_at is None and self._folder.end(job.run, job.k) is not None:
            job.end_seen_at = now()

    def note(self, job: Job, line: JobLine) -> None:
        """Write down what Slurm says of it now, for those who look at its run."""
        own = self._runs / job.run / str(job.k)
        try:
            if own.is_dir():
                word = word_of(Evidence(run=job.run, k=job.k, now=datetime.now(UTC), line=line, end=None, claim=None))
                write_word(self._folder, job.run, job.k, word, own, is_last=False)
        except OSError as error:
            LOG.debug("%s cannot be noted: %s", job.name, error, extra={"action": "slurm_note_failed"})
        finally:
            self.let_go(job)

    def _carry(self, job: Job) -> None:
        if job.carrier is None:
            job.carrier = LogCarrier(self._folder, job.run, self._runs / job.run)
        job.carrier.carry(self._max_output())

    # -- its end ---------------------------------------------------------------------------------------------------------

    def settle(self, job: Job, line: JobLine | None) -> None:
        """Slurm says that it is over, or does not know it: find out how it ended, as far as anybody can know."""
        try:
            self._settle(job, line)
            self._folder_answers()
        except OSError as error:
            self._folder_failed(error)
        finally:
            self.let_go(job)

    def take_back(self, job: Job, line: JobLine) -> None:
        """Slurm has put its job back into the queue, `--no-requeue` or not: as when a node could not be reached for the launch.

        By it nothing runs any more: what was not begun is left to the driver, which knows whether it is too late (6.10).
        """
        try:
            end = self._folder.end(job.run, job.k)
            if end is None and self._folder.fence(job.run, job.k).is_ours:
                self._fenced(job)
                return
            if job.put_back is None:
                job.put_back = line
                self.to_cancel.add(job.name)
                self.cancel_waiting()
            self._settle(job, line)
            self._folder_answers()
        except OSError as error:
            self._folder_failed(error)
        finally:
            self.let_go(job)

    def _settle(self, job: Job, line: JobLine | None) -> None:
        line = job.put_back or line
        end = self._folder.end(job.run, job.k, anew=job.doubt_since is not None)
        claim = self._folder.claim(job.run, job.k)
        if claim is not None and claim.is_ours:
            job.is_asked = True  # somebody of us has fenced it before
        elif end is None and claim is None:
            claim = self._folder.fence(job.run, job.k)
        evidence = self._evidence(job, line, end, claim)
        outcome = outcome_of(evidence)
        if outcome is None:
            assert claim is not None
            self._doubt(job, claim)
            return
        if isinstance(outcome, NotLaunched) and line is None:
            self.to_cancel.add(job.name)  # it may be on its way
        if isinstance(outcome, Ended):
            self._carry(job)
        self._deliver(job, outcome, evidence)

    def _evidence(self, job: Job, line: JobLine | None, end: End | None, claim: Claim | None) -> Evidence:
        is_dead = job.doubt_since is not None and now() > job.doubt_since + (
            SILENCE_S if claim is None or not claim.has_heard else _HEARD_S + max(job.grace_s or 0.0, DOUBT_GRACE_S)
        )
        needs_accounts = (line is None and (end is not None or is_dead)) or (line is not None and line.state == "CANCELLED")
        return Evidence(
            run=job.run,
            k=job.k,
            now=datetime.now(UTC),
            line=line,
            end=end,
            claim=claim,
            is_asked=job.is_asked,
            is_dead=is_dead,
            said="" if end is not None else self._folder.said(job.run, job.k),
            accounted=self._accounts.of(job.name) if needs_accounts and not job.is_asked else None,
        )

    def _names_in_doubt(self) -> list[str]:
        """Return the jobs of which the controller has just said too little, or nothing."""
        return [job.name for job in self._state.living() if job.is_in_doubt and not job.is_asked]

    def _doubt(self, job: Job, claim: Claim) -> None:
        """Its program was begun and Slurm has given it up, which does not end a process: ask its node to, and wait."""
        if job.doubt_since is None:
            if not job.is_reported:
                self._state.report_started(job, _started(job, claim))
            job.doubt_since = now()
            grace_s = DOUBT_GRACE_S if job.grace_s is None else job.grace_s
            self._folder.ask_to_stop(job.run, job.k, grace_s, is_given_up=not job.is_asked)
            LOG.warning(
                "Slurm has given up %s, which has written no end: its node is asked to end it",
                job.name,
                extra={"action": "slurm_job_in_doubt", "run": job.run},
            )
        job.decided.set()

    def settle_fenced(self, job: Job, line: JobLine | None, *, is_away: bool) -> None:
        """It never will run: settle it once its job is seen gone, or nobody can say so for long."""
        try:
            if is_away or line is None or line.is_over or now() > job.fenced_at + _GONE_S:
                self._deliver(job, NotLaunched(run=job.run, k=job.k, at=datetime.now(UTC)), None)
        finally:
            self.let_go(job)

    def release(self, job: Job) -> None:
        """The controller is back: what was never sent is left to the driver, which knows whether it is too late (6.10)."""
        try:
            claim = self._folder.fence(job.run, job.k)
            if claim.is_ours:
                self._deliver(job, NotLaunched(run=job.run, k=job.k, at=datetime.now(UTC)), None)
            else:
                job.phase, job.sent_at = Phase.SENT, now()
        except OSError as error:
            self._folder_failed(error)
        finally:
            self.let_go(job)

    def _deliver(self, job: Job, outcome: Outcome, evidence: Evidence | None) -> None:
        """Bring home what was left, write down how it ended, then tell of it. Order: what is told was written."""
        own = self._runs / job.run / str(job.k)
        if evidence is not None and isinstance(outcome, Ended):
            bring_home(self._folder, job.run, job.k, own)
        if own.is_dir():
            word: dict[str, Any] = {} if evidence is None else word_of(evidence)
            try:
                plain = outcome if _fits_a_record(outcome) else None
                verdict = {**word, "verdict": told(outcome)}
                write_word(self._folder, job.run, job.k, verdict, own, is_durable=plain is None)
                if plain is not None:
                    record(plain, own)
            except OSError as error:
                if not isinstance(outcome, (Ended, Refused)):
                    raise
                outcome = replace(outcome, recorded=False)
                LOG.warning("how %s ended cannot be written: %s", job.name, error, extra={"action": "slurm_record_failed"})
        self._state.report_end(job, outcome)

    # -- saying so -------------------------------------------------------------------------------------------------------

    def away(self, error: Unreachable) -> None:
        """Nobody answers: say so until somebody does."""
        said = "runs on the cluster stay as they are, and none is started until it answers"
        self._state.problem(AWAY, f"the Slurm controller does not answer ({error}): {said}")

    def _folder_failed(self, error: OSError | FolderProblem) -> None:
        self._state.problem(FOLDER, f"the shared folder {self._folder.shared} cannot be used: {_words(error)}")

    def _folder_answers(self) -> None:
        self._state.problem(FOLDER, None)


def _needs(request: LaunchRequest) -> SlurmNeeds:
    return request.wanted if isinstance(request.wanted, SlurmNeeds) else SlurmNeeds()


def _started(job: Job, claim: Claim) -> Started:
    at = datetime.now(UTC) if claim.at_us is None else min(from_micros(claim.at_us), datetime.now(UTC))
    number = int(claim.job) if claim.job and claim.job.isdigit() else 0
    return Started(run=job.run, k=job.k, pid=number, start_time=0, boot_id=PLACE, at=at)


def _fits_a_record(outcome: Outcome) -> TypeGuard[Ended | Refused]:
    """Tell whether the exit record of a keeper can say it all."""
    if isinstance(outcome, NotLaunched) or outcome.cause is not None:
        return False
    return isinstance(outcome, Ended) or outcome.what not in (RefusedAt.SUBMISSION, RefusedAt.NODE)


def _words(error: OSError | FolderProblem) -> str:
    if isinstance(error, OSError):
        return f"{error.strerror or error}" + (f" ({os.fspath(error.filename)})" if error.filename else "")
    return str(error)

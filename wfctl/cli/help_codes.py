"""What `wfctl help` says of the words that stand in lists and answers: statuses, reasons, and why something is blocked."""

from __future__ import annotations

from collections.abc import Mapping

#: status of an occurrence or a run -> what it means, and what to do
STATUSES = {
    "pending": """
        The instant came due and is held until there is room; nothing has started. A schedule holds one at most.
        `wfctl occurrence explain` says what it waits for. Final: no.""",
    "coalesced": """
        Nothing ran for this instant, because a newer one took its place (reason newer), or because an edit, a pause or a
        delete dropped it while it was held. Final: yes.""",
    "skipped-overlap": """
        Nothing ran for this instant: unfinished runs of the schedule held every overlap slot. `overlap = "queue"` would hold
        it instead, `parallel` would start it beside them. Final: yes.""",
    "skipped-misfire": """
        Nothing ran for this instant: it was looked at later than its lateness allows, or waited too long for an execution
        slot, or passed while the schedule was paused. The reason says which. `misfire = "latest"` would catch up with the
        newest. Final: yes.""",
    "preflight-rejected": """
        Nothing ran for this instant: program, working directory, input, environment files or pinned files were not as they
        must be. `wfctl deployment check` lists every check. Final: yes.""",
    "admitted": """
        A run is recorded for it and has its slot; no process of it is reported yet. Final: no.""",
    "running": """
        A process of its run has started. Between two steps nothing may be executing. Final: no.""",
    "interrupted": """
        The run asked for input and waits, without an execution slot but with its overlap slot. `wfctl run resume` answers,
        `wfctl run cancel` ends it. Final: no.""",
    "completed": """
        Every step of the run exited 0. Final: yes.""",
    "failed": """
        A step failed, the run was stopped, or nobody knows how it ended; the reason says which. `wfctl run show` and
        `wfctl run logs` show the rest. It is never started again by itself. Final: yes.""",
    "exhausted": """
        The run would have passed the schedule's max_steps; its checkpoint is kept. Final: yes.""",
    "cancelled": """
        Somebody ended the run with `wfctl run cancel`. Final: yes.""",
}

#: state of a schedule or a deployment -> what it means
STATES = {
    "active": """
        Its instants are considered as they come due.""",
    "paused": """
        Nothing of it is admitted until `wfctl schedule resume`. What comes due meanwhile is consumed and never made up for.""",
    "finished": """
        A one-shot whose instant is settled. It stays for its history; a new `trigger.at` makes it active again.""",
}

#: reason of an occurrence's or a run's status -> what it means
REASONS = {
    "overlap": """
        Unfinished scheduled runs of the same schedule held every overlap slot: one with skip and queue, max_active_runs with
        parallel. Runs started by hand do not count. The reason names the runs.""",
    "capacity": """
        All execution slots of the store (max_concurrent_runs) were taken. Such an instant is held, and skipped when its
        lateness is used up before a slot is free. Raise the setting, or move schedules apart: `wfctl load`.""",
    "missed": """
        It was considered later than its lateness allows: the supervisor did not run, the machine slept, or the clock stepped
        forward. `misfire = "latest"` catches up with the newest of what was missed.""",
    "outlived": """
        It was held, waiting for room, and before there was any a later instant of the same schedule was missed. With
        `misfire = "skip"` a held start is never older than one period, so it is given up too. The reason names the
        later one.""",
    "newer": """
        A newer instant of the schedule took its place: only one is held, and with `misfire = "latest"` only the newest of what
        is due is considered. The reason names it.""",
    "edited": """
        The definition changed: what was due under the old one was settled before the change, or a held start was dropped by
        it. The reason says by whom.""",
    "paused": """
        The schedule was paused. A pause consumes its instants; resume goes on from that moment.""",
    "deleted": """
        The schedule was deleted while this instant was due or held.""",
    "clock": """
        The clock stepped back by more than three hours, and the schedule began anew at the time shown then.""",
    "preflight": """
        Something that a run needs is missing or wrong; the reason lists it. `wfctl deployment check` looks again.""",
    "preflight-timeout": """
        A check took more than five seconds, as on a dead mount. Nothing was started; other schedules were not delayed.""",
    "exit": """
        A step ended with an exit status other than 0, and no retry was left. `wfctl run logs` shows what it wrote.""",
    "signal": """
        A step was ended by a signal that wfctl did not send: a crash, the kernel for lack of memory, or somebody's kill.""",
    "timeout": """
        A step used up its own timeout; its processes got SIGTERM and, after kill_grace, SIGKILL.""",
    "deadline": """
        The run used up its max_run; its processes got SIGTERM and, after kill_grace, SIGKILL. The reason says how to change the
        limit.""",
    "cancelled": """
        Somebody ended the run by hand; the reason says who, and why if that was given.""",
    "drained": """
        The run was resumed and still at work at the end of a drain, so it was stopped before the supervisor let go.""",
    "shutdown": """
        The supervisor ended, and its setting on_shutdown says that runs are stopped with it.""",
    "abandoned": """
        Nobody lives to answer for a process of the run, and it left no exit record: the machine went down, or the keeper was
        killed. Its external effects may have happened. It is never started again by itself: look at what it did first.""",
    "outcome-unknown": """
        The process is gone and nobody saw how it ended. Its external effects may have happened.""",
    "not-started": """
        The process was not launched in time; that nothing of it ran is proven.""",
    "launch-failed": """
        The program could not be started; the reason says which one and why. `wfctl deployment check` looks again.""",
    "output-invalid": """
        A step exited 0, but what it wrote to $WFCTL_OUTPUT is not JSON, or is too large.""",
    "max-steps": """
        One more execution would have passed the schedule's max_steps. The checkpoint of the run is kept.""",
    "ledger-restored": """
        The run's directory was found, but an older ledger was put back that does not know it. It is entered as failed, so that
        neither its id nor its occurrence is used again.""",
    "ambiguous": """
        Records of the run contradict each other; what they say of its end cannot be trusted. `wfctl store verify` names the
        rows.""",
    "time-limit": """
        The cluster ended the run at the time limit of its job, that of the deployment's [slurm] table or of the partition. Its
        effects may have happened, so it is not tried again: raise time_limit, or let the program stop earlier.""",
    "out-of-memory": """
        The run used more memory than its job has on the cluster. Raise memory in the deployment's [slurm] table. Its effects
        may have happened, so it is not tried again by itself.""",
    "preempted": """
        The cluster gave the run's place to a job that goes before it. Its effects may have happened, so it is not tried again
        by itself.""",
    "node-failed": """
        The node of the cluster that the run was on failed; the reason names it. Before this was recorded the node was asked to
        end what might still be at work there. Effects may have happened: it is not tried again by itself.""",
    "cancelled-outside": """
        Somebody ended the run's job on the cluster, with scancel or as its administrator, not through wfctl. The reason names
        the user where the cluster keeps accounts. `wfctl run cancel` is the way that leaves a reason.""",
}

#: code of a diagnostic, or of what `store verify` and `status` report -> what it means; core.contradictions has more
DIAGNOSTICS = {
    "missing-file": """
        The definition's file is gone. Put it back, or delete the schedule or deployment with wfctl. The last revision stays
        known; nothing is admitted meanwhile.""",
    "not-trusted": """
        The definition's file is no regular file, or another user owns it or may write it. Put its owner and mode right.""",
    "ignored": """
        A file in the store was left alone: its name is no id, or is that of something deleted. Move it away or rename it.""",
    "contradiction": """
        Records that cannot all be true block this schedule and only it. `wfctl store verify` names the rows and the remedy.""",
    "calendar": """
        Of the trigger no instant can be computed: its zone is gone from the tz database, or it never comes again.""",
    "counter-behind": """
        A counter stood before an id that is in use, as after an older ledger was put back. It was raised, so that no id is
        used twice.""",
}


def meanings(word: str) -> list[tuple[str, str]]:
    """Given a word of lists and answers, return what it can mean there: what kind of word it is, and the text."""
    kinds: list[tuple[str, Mapping[str, str]]] = [
        ("status", STATUSES),
        ("state", STATES),
        ("reason", REASONS),
        ("diagnostic", DIAGNOSTICS),
    ]
    found = [(kind, texts[word]) for kind, texts in kinds if word in texts]
    remedy = contradictions().get(word)
    if remedy is not None:
        found.append(("contradiction", f"Records contradict each other. `wfctl store verify --fix {word}` {remedy}."))
    return found


def contradictions() -> dict[str, str]:
    """Return what the remedy of each contradiction does, by its code."""
    from wfctl.core.contradictions import REMEDIES

    return {code.value: said for code, said in REMEDIES.items()}


def words() -> list[str]:
    """Return every word that there is a text for."""
    return [*dict.fromkeys([*STATUSES, *STATES, *REASONS, *DIAGNOSTICS, *contradictions()])]

"""What `wfctl help` says of error codes, warnings and topics."""

from __future__ import annotations

#: code -> what to do about it; what it means is the docstring of its class
ADVICE = {
    "invalid-definition": """
        Every problem is listed with its key path, and of a file with its line. Correct them all and try again; nothing was
        changed.""",
    "invalid-argument": """
        The message says what the argument may be. `wfctl COMMAND --help` lists them.""",
    "bad-cursor": """
        A cursor belongs to one listing and its filter. List again from the start, or with the filter of the page before.""",
    "not-found": """
        `wfctl schedules`, `wfctl deployments`, `wfctl runs` and `wfctl occurrences` list what there is.""",
    "deleted": """
        Its history stays readable, its id is retired. Add it again under another id.""",
    "exists": """
        Ids are never reused, not after deletion either, so that history stays clear. Choose another id.""",
    "revision-conflict": """
        Somebody saved in between. Look at it with `show`, then make your change again for the revision shown.""",
    "wrong-state": """
        The message says which state it is in. `show` says why, and what can be done in it.""",
    "in-use": """
        The message names what needs it. Change or delete that first.""",
    "saturated": """
        All execution slots are taken. Try again when a run has ended, or raise max_concurrent_runs.""",
    "draining": """
        The supervisor takes nothing new. Try again when it runs normally: `wfctl status`.""",
    "store-locked": """
        One supervisor a store. The message names the holder; stop it, or wait with `wfctl supervise --standby`.""",
    "no-supervisor": """
        Start one with `wfctl supervise`, or `systemctl start wfctl`. Reading and editing work without one.""",
    "no-store": """
        Make it with `wfctl init`, or name another with --store DIR or WFCTL_STORE.""",
    "damaged-store": """
        The ledger was left exactly as it is. `wfctl store restore FILE` puts a backup back and keeps what is there in
        before-restore-*, so nothing is lost by trying; `sqlite3 ledger.db 'pragma integrity_check'` says what is wrong with it.
        Of a FILE that is refused nothing was taken; of a restore that was cut short, running it again does the rest.""",
    "blocked": """
        `wfctl schedule show ID` says what is wrong and where. The other schedules go on; put it right and it goes on too. Where
        its records contradict each other, `wfctl store verify ID` names the rows, and the remedy to ask for.""",
    "not-allowed": """
        The message names the file or directory and what is wrong with its owner, mode or place. A store belongs to one user;
        nobody else may write it, nor any directory above it that has no sticky bit.""",
    "missing-extra": """
        The message names the package to install, or the setting to correct.""",
    "cannot-create": """
        The message names the file and the cause. Look at the parent directory's owner, mode and free space.""",
    "io-error": """
        The message names the file and the cause, such as a full disk. What was not confirmed did not happen.""",
    "timed-out": """
        What was waited for did not happen in time; it may still. Look with `show`, or wait longer.""",
    "api-version": """
        Supervisor and command are of different versions. Restart the supervisor after an upgrade; its runs go on.""",
    "preflight-failed": """
        Nothing was started. `wfctl deployment check ID` lists every check; put right what it marks.""",
    "internal": """
        This should not happen. The message names a file with the details; please report it with that file.""",
}

#: warning code -> text
WARNINGS = {
    "dst-twice": """
        On the date shown the clock goes back, and the hour of this schedule comes twice: it runs in both. Where that must not
        be, choose a time outside the repeated hour, or UTC.""",
    "dst-moved": """
        On the date shown the clock goes forward, and the time of this schedule does not exist: it runs when the gap ends.""",
    "day-fields-or": """
        Day of month and day of week are both restricted. As in every cron, either one matching is enough. For Friday the
        13th, restrict one of them and check the other in the job.""",
    "step-beside-day-field": """
        A step such as */2 in one day field stands beside a restricted other one. Either matching is enough here; Debian's
        cron wants both in this one case.""",
    "never-in-some-months": """
        Some months do not have such a day; in those it does not run. For the last day of a month, run daily and check in
        the job.""",
    "wrapped-range": """
        A range such as fri-mon goes over the end of its field; it is shown as it is read.""",
    "uneven-step": """
        A step of cron begins anew each hour, or each day: */7 in the minutes is :00, :07 ... :56, and then :00 again after four
        minutes. For even steps take an interval, or a step that divides 60 minutes or 24 hours.""",
    "oneshot-paused": """
        A one-shot whose instant passes while it is paused does not run later: it is finished on resume. Resume it before its
        instant, or give it a later one.""",
    "zone-sign": """
        In names such as Etc/GMT-2 the sign is that of POSIX: Etc/GMT-2 is two hours ahead of UTC. They know no summer time.""",
    "zone-fixed": """
        EST, MST and HST stand for an offset that never changes. The zone of a place changes with its clocks.""",
    "interval-drifts": """
        An interval counts from its anchor and knows no days. One that does not divide a day, such as 7h, comes at another time
        each day. For the same times each day take cron.""",
    "no-max-run": """
        With max_run none nothing ends a run that hangs. It keeps its overlap slot, and one of max_concurrent_runs, until it is
        cancelled.""",
    "latest-parallel": """
        With misfire latest only the newest of what is due in one look is considered. Where two instants are due at once, which
        is rare without downtime, overlap parallel gives one run of them, not two.""",
    "lateness-over-gap": """
        An instant counts as on time until its lateness is used up. Where the next one comes sooner, several are on time after
        a delay, and are considered one after the other: some start, and some may be skipped-overlap.""",
    "blocked-schedule": """
        Its definition, its deployment's or its records cannot be trusted, so nothing of it is admitted. `wfctl schedule show`
        says why; the other schedules go on.""",
    "input-refused": """
        The deployment was changed after the schedule: its input schema refuses the schedule's input now. Every instant ends as
        preflight-rejected until one of them is corrected.""",
    "no-deployment": """
        The definition names a deployment that the store does not have; adding the schedule would be refused.""",
    "finished": """
        A one-shot has had its instant. It stays for its history; delete it, or give it a new instant.""",
    "long-paused": """
        It has admitted nothing for at least 30 days because somebody paused it. `wfctl schedule show` says who, and why.""",
    "never-ran": """
        Instants of it have passed and none became a run. `wfctl occurrences ID` lists what became of them.""",
    "calendar-drift": """
        Each revision keeps the UTC offsets of its zone for five years and samples of its instants, as croniter and the tz
        database gave them when it was saved. Read by today's, instants differ: most often a country has changed its clock
        rules, and the new times are right. What counts is always today's calendar.""",
    "stamps-differ": """
        The croniter or tz database of this machine is not the one a revision was saved by. What was recorded of its calendar
        was compared, and no instant moves.""",
    "not-recorded": """
        The revision was saved before instants were recorded, or its record covers no time to come. Save the schedule anew to
        have one.""",
}

TOPICS = {
    "exit-codes": """
0    ok
1    the answer is no, or a run that was waited for did not complete
2    wrong usage
65   invalid definition or cursor, or a damaged store
66   no such thing
69   no supervisor
70   a bug of wfctl
73   cannot create      74   input or output failed
75   lock held, saturated, draining, blocked, in use, wrong state, timed out
76   other API version
77   not allowed        78   wrong configuration, missing extra
80   revision conflict  81   the id exists or is retired
130  ended by Ctrl-C    141  the reader of the output went away""",
    "environment": """
WFCTL_STORE      the store, where --store is absent
WFCTL_EDITOR     the editor of `edit`, else VISUAL, EDITOR
WFCTL_NO_INPUT   not empty: never ask
NO_COLOR         not empty: no colour; --color goes over it
FORCE_COLOR      not empty: colour in a pipe too
COLUMNS          the width of tables on a terminal

Runs get WFCTL_RUN_ID, WFCTL_SCHEDULE_ID, WFCTL_OCCURRENCE, WFCTL_REVISION, WFCTL_ATTEMPT,
WFCTL_STEP, WFCTL_EXECUTION, WFCTL_STORE, WFCTL_INPUT, WFCTL_FILES, WFCTL_OUTPUT,
WFCTL_CHECKPOINT and WFCTL_INTERRUPT, when resumed WFCTL_RESUME too.""",
    "formats": """
-o table   for people at a terminal: fitted to its width, columns hidden from the right
-o plain   aligned columns, never cut, no colour; what a pipe gets
-o json    one document; lists are {"schema", "items", "next_cursor"}
-o jsonl   one item a line, as the items of a list in json
-o csv     one row a line under a header of keys; instants in UTC, durations in seconds
-o name    ids, one a line; occurrences as SCHEDULE@INSTANT

--columns A,B chooses and orders the columns of table, plain and csv; a wrong name lists them.""",
    "other-users": """
Every run is started as the user of the supervisor. For the jobs of others there are two ways.

1. A store for each user. Nothing is shared, and nothing needs root. As that user:

     wfctl systemd install --user        # and the three lines that it prints
     wfctl status

   For an account that nobody logs in to, as root, with a drop-in that says User=report:

     wfctl systemd install --name report
     systemctl edit wfctl@report.service      # [Service], and below it User=report
     systemctl enable --now wfctl@report.service
     wfctl --store /var/lib/wfctl-report schedules

   On that store root works as report, and what root writes there belongs to report.
   Limits: each store has slots, settings, `status` and history of its own; nothing shows all
   of them together, and the machine runs up to the sum of their slots.

2. One store of root's, with commands that change the user. The supervisor must be root's: an
   instance with User=root, as above, or `wfctl supervise` as root in a store that root made.

     wfctl deployment add report --cwd /srv/report --env HOME=/srv/report --env USER=report \\
       --env LOGNAME=report -- \\
       setpriv --reuid report --regid report --init-groups -- /usr/local/bin/report

   The store is closed to report, so input and output are opened before the change:

     ... -- /bin/sh -c 'exec setpriv --reuid report --regid report --init-groups -- "$@" \\
       <"$WFCTL_INPUT" 3>"$WFCTL_OUTPUT"' sh /usr/local/bin/report

   The job reads its input on stdin, and writes its output, JSON, to descriptor 3. A job that
   asks, and exits with 75, gets 4>"$WFCTL_INTERRUPT" 5<"${WFCTL_RESUME:-/dev/null}" likewise:
   it writes its question to 4, and reads the answer from 5 when it is resumed.

   What works: logs, time limits, cancelling and KILL (root sends the signals), environment
   files that only root can read, the umask of the deployment.
   Limits: --cwd must be a directory that report may enter. HOME, USER and LOGNAME are root's
   unless they are set. There is no login: no PAM, no limits of its own, no user bus. Paths in
   WFCTL_... cannot be opened by the job, pinned files (`--file`) neither, nor can /dev/stdout
   and /dev/stderr be opened anew: write to descriptors 1 and 2. Where 3 is opened the job must
   write it: an empty output fails the step. Preflight sees setpriv, not the program behind it:
   one that is missing is exit 127. Whoever may change the store may run anything as root.""",
    "states": """
pending             held back until there is room; it may still run
coalesced           replaced by a newer instant, or dropped by an edit, a pause or a delete
skipped-overlap     a run of the schedule was still going
skipped-misfire     considered too late, paused over, or waited too long for an execution slot
preflight-rejected  program, directory, input or files were not there; nothing was started
admitted            a run is made, its process not yet reported
running             it is at work
interrupted         it waits for input, and keeps its overlap slot
completed           every step exited 0
failed              a step failed, was stopped, or its outcome is not known
exhausted           it would have passed max_steps
cancelled           it was ended by hand""",
    "time": """
Instants are written as RFC 3339 with an offset: 2026-12-01T09:00:00Z or
2026-12-01T09:00:00+01:00. A time without an offset is refused. They are shown in UTC, and in
previews in the schedule's own zone too.

Durations are 250ms 5s 10m 1h30m 2d 1w. --since and --until also take a duration, counted back
from now; --from and --until of what is still to come, as in `schedule next`, count it ahead.""",
}

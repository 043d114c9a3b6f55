"""Each operation with what it gives, and with each of its errors (contract 9): see tests/e2e/test_parity.py.

`<d>` stands for a word of the door's own, other words in angles for what the scene holds, such as `<done>` for a run that has
completed. A case without words for the command line asks what those cannot say, such as a number for an id.
"""

from __future__ import annotations

import wfctl
from tests.support.parity import (
    broken,
    case,
    deployment,
    drained,
    interrupted,
    paused,
    schedule,
    settled,
    undrained,
)

WRONG, UNKNOWN, INVALID = wfctl.InvalidArgument, wfctl.NotFound, wfctl.InvalidDefinition
GOING = ("status", "started_at", "ended_at", "exit_status", "output", "trace", "checkpoint")  #: of a run that has just begun
NEW = ["--deployment", "hello", "--cron", "0 0 1 1 *"]  # without a zone it is UTC
YEARLY = {"deployment_id": "hello", "trigger": {"kind": "cron", "expression": "0 0 1 1 *"}}

SCHEDULES = [
    case("create_schedule", "ok", ["schedule", "add", "n.<d>", *NEW], schedule_id="n.<d>", **YEARLY),
    case(
        "create_schedule",
        "with everything",
        ["schedule", "add", "all.<d>", "--deployment", "needs", "--every", "90m", "--input", "region=eu", "--notes", "why",
         "--overlap", "parallel", "--max-active-runs", "3", "--misfire", "latest", "--lateness", "5m", "--max-run", "2h",
         "--max-steps", "9", "--paused"],
        schedule_id="all.<d>", deployment_id="needs", trigger={"kind": "interval", "every": "90m"}, input={"region": "eu"},
        notes="why", overlap="parallel", max_active_runs=3, misfire="latest", lateness="5m", max_run="2h", max_steps=9,
        paused=True,
    ),
    case(
        "create_schedule", "dry run", ["schedule", "add", "dry.<d>", *NEW, "--dry-run"],
        schedule_id="dry.<d>", **YEARLY, dry_run=True,
    ),
    case(
        "create_schedule", "broken in three ways",
        ["schedule", "add", "b.<d>", "--deployment", "hello", "--cron", "61 * * * *", "--overlap", "often",
         "--lateness", "1h30"],
        INVALID, schedule_id="b.<d>", deployment_id="hello", trigger={"kind": "cron", "expression": "61 * * * *"},
        overlap="often",
        lateness="1h30",
    ),
    case("create_schedule", "with a bad id", ["schedule", "add", "../b", *NEW], INVALID, schedule_id="../b", **YEARLY),
    case("create_schedule", "with a number as id", None, INVALID, schedule_id=5, **YEARLY),
    case(
        "create_schedule", "of an input that the schema refuses",
        ["schedule", "add", "b.<d>", "--deployment", "needs", "--cron", "0 0 1 1 *", "--input", "region=5"], INVALID,
        schedule_id="b.<d>", **{**YEARLY, "deployment_id": "needs"}, input={"region": 5},
    ),
    case(
        "create_schedule", "of an input that is no object",
        ["schedule", "add", "b.<d>", *NEW, "--input-json", "[1]"], INVALID, schedule_id="b.<d>", **YEARLY, input=[1],
    ),
    case(
        "create_schedule", "of a deployment that is not there",
        ["schedule", "add", "b.<d>", "--deployment", "zzz", *NEW[2:]], UNKNOWN,
        schedule_id="b.<d>", **{**YEARLY, "deployment_id": "zzz"},
    ),
    case("create_schedule", "twice", ["schedule", "add", "yearly", *NEW], wfctl.Exists, schedule_id="yearly", **YEARLY),
    case("create_schedule", "anew", ["schedule", "add", "dead", *NEW], wfctl.Exists, schedule_id="dead", **YEARLY),
    case("create_schedule", "paused by a word", None, WRONG, schedule_id="b.<d>", **YEARLY, paused="yes"),
    case("create_schedule", "dry by a word", None, WRONG, schedule_id="b.<d>", **YEARLY, dry_run="yes"),
    case("create_schedule", "with a table as reason", None, WRONG, schedule_id="b.<d>", **YEARLY, paused=True, reason={}),
    case("get_schedule", "ok", "schedule show yearly", schedule_id="yearly"),
    case("get_schedule", "paused", "schedule show off", schedule_id="off"),
    case("get_schedule", "deleted", "schedule show dead", schedule_id="dead"),
    case("get_schedule", "with a run", "schedule show busy", schedule_id="busy"),
    case("get_schedule", "misspelt", "schedule show yerly", UNKNOWN, schedule_id="yerly"),
    case("get_schedule", "unknown", "schedule show qqq", UNKNOWN, schedule_id="qqq"),
    case("get_schedule", "with a number as id", None, WRONG, schedule_id=5),
    case("get_schedule", "without an id", ["schedule", "show", ""], WRONG, schedule_id=""),
    case("list_schedules", "ok", "schedules"),
    case("list_schedules", "with the deleted ones", "schedules --include-deleted", include_deleted=True),
    case("list_schedules", "by state", "schedules --state paused,deleted", status="paused,deleted"),
    case("list_schedules", "a page", "schedules --limit 2", limit=2),
    case(
        "list_schedules", "the next page", "schedules --limit 2 --cursor <schedules-cursor>", limit=2,
        cursor="<schedules-cursor>",
    ),
    case("list_schedules", "of no size", "schedules --limit 0", WRONG, limit=0),
    case("list_schedules", "by an unknown state", "schedules --state pausd", WRONG, status="pausd"),
    case("list_schedules", "by no state", ["schedules", "--state", ""], WRONG, status=""),
    case("list_schedules", "with a damaged cursor", "schedules --cursor zzz", wfctl.BadCursor, cursor="zzz"),
    case("list_schedules", "with a word for a flag", None, WRONG, include_deleted="no"),
    case(
        "update_schedule", "ok", ["schedule", "set", "s.<d>", "notes=new", "overlap=queue"],
        schedule_id="s.<d>", expected_revision=1, notes="new", overlap="queue", given=[schedule()],
    ),
    case(
        "update_schedule", "another trigger, and unset", ["schedule", "set", "s.<d>", "trigger.every=2h", "--unset", "notes"],
        schedule_id="s.<d>", expected_revision=1, trigger={"kind": "interval", "every": "2h"}, unset=["notes"],
        given=[schedule(notes="old")],
    ),
    case(
        "update_schedule", "another deployment", ["schedule", "set", "s.<d>", "deployment=asks"],
        schedule_id="s.<d>", expected_revision=1, deployment_id="asks", given=[schedule()],
    ),
    case(
        "update_schedule", "dry run", ["schedule", "set", "s.<d>", "notes=new", "--dry-run"],
        schedule_id="s.<d>", expected_revision=1, notes="new", dry_run=True, given=[schedule()],
    ),
    case(
        "update_schedule", "stale", ["schedule", "set", "s.<d>", "notes=new", "--expected-revision", "7"],
        wfctl.RevisionConflict, schedule_id="s.<d>", expected_revision=7, notes="new", given=[schedule()],
    ),
    case(
        "update_schedule", "for no revision", ["schedule", "set", "s.<d>", "notes=new", "--expected-revision", "0"],
        WRONG, schedule_id="s.<d>", expected_revision=0, notes="new", given=[schedule()],
    ),
    case(
        "update_schedule", "unknown", "schedule set qqq notes=new", UNKNOWN, schedule_id="qqq", expected_revision=1,
        notes="new",
    ),
    case(
        "update_schedule", "deleted", "schedule set dead notes=new", wfctl.Deleted,
        schedule_id="dead", expected_revision=1, notes="new",
    ),
    case(
        "update_schedule", "broken", ["schedule", "set", "s.<d>", "lateness=1h30", "overlap=often"], INVALID,
        schedule_id="s.<d>", expected_revision=1, lateness="1h30", overlap="often", given=[schedule()],
    ),
    case(
        "update_schedule", "an unknown field", ["schedule", "set", "s.<d>", "note=new"], WRONG,
        schedule_id="s.<d>", expected_revision=1, note="new", given=[schedule()],
    ),
    case(
        "update_schedule", "unset what is not known", ["schedule", "set", "s.<d>", "--unset", "note"], WRONG,
        schedule_id="s.<d>", expected_revision=1, unset=["note"], given=[schedule()],
    ),
    case(
        "update_schedule", "set and unset", ["schedule", "set", "s.<d>", "notes=new", "--unset", "notes"], WRONG,
        schedule_id="s.<d>", expected_revision=1, notes="new", unset=["notes"], given=[schedule()],
    ),
    case("update_schedule", "unset by a word", None, WRONG, schedule_id="yearly", expected_revision=3, unset="notes"),
    case("update_schedule", "unset by a number", None, WRONG, schedule_id="yearly", expected_revision=3, unset=5),
    case("update_schedule", "with a word as revision", None, WRONG, schedule_id="yearly", expected_revision="3", notes="new"),
    case(
        "update_schedule", "with a spoilt file", ["schedule", "set", "s.<d>", "notes=new"], wfctl.Blocked,
        schedule_id="s.<d>", expected_revision=1, notes="new", given=[schedule(), broken("schedule", "s.<d>")],
    ),
    case(
        "pause_schedule", "ok", ["schedule", "pause", "s.<d>", "--reason", "for now"],
        schedule_id="s.<d>", reason="for now", given=[schedule()],
    ),
    case("pause_schedule", "twice", "schedule pause s.<d>", schedule_id="s.<d>", given=[schedule(), paused]),
    case(
        "pause_schedule", "dry run", "schedule pause s.<d> --dry-run",
        schedule_id="s.<d>", dry_run=True, given=[schedule()],
    ),
    case("pause_schedule", "unknown", "schedule pause qqq", UNKNOWN, schedule_id="qqq"),
    case("pause_schedule", "deleted", "schedule pause dead", wfctl.Deleted, schedule_id="dead"),
    case("pause_schedule", "with a number as reason", None, WRONG, schedule_id="yearly", reason=5),
    case("pause_schedule", "with a number as id", None, WRONG, schedule_id=5),
    case("resume_schedule", "ok", "schedule resume s.<d>", schedule_id="s.<d>", given=[schedule(), paused]),
    case("resume_schedule", "unpaused", "schedule resume s.<d>", schedule_id="s.<d>", given=[schedule()]),
    case(
        "resume_schedule", "dry run", "schedule resume s.<d> --dry-run",
        schedule_id="s.<d>", dry_run=True, given=[schedule(), paused],
    ),
    case("resume_schedule", "unknown", "schedule resume qqq", UNKNOWN, schedule_id="qqq"),
    case("resume_schedule", "deleted", "schedule resume dead", wfctl.Deleted, schedule_id="dead"),
    case("delete_schedule", "ok", "schedule delete s.<d>", schedule_id="s.<d>", given=[schedule()]),
    case("delete_schedule", "twice", "schedule delete dead", schedule_id="dead"),
    case(
        "delete_schedule", "dry run", "schedule delete s.<d> --dry-run",
        schedule_id="s.<d>", dry_run=True, given=[schedule()],
    ),
    case("delete_schedule", "unknown", "schedule delete qqq", UNKNOWN, schedule_id="qqq"),
    case("delete_schedule", "dry by a number", None, WRONG, schedule_id="yearly", dry_run=1),
    case("list_revisions", "ok", "schedule revisions yearly", schedule_id="yearly"),
    case("list_revisions", "a page", "schedule revisions yearly --limit 2", schedule_id="yearly", limit=2),
    case(
        "list_revisions", "the next page", "schedule revisions yearly --limit 2 --cursor <revisions-cursor>",
        schedule_id="yearly", limit=2, cursor="<revisions-cursor>",
    ),
    case("list_revisions", "unknown", "schedule revisions qqq", UNKNOWN, schedule_id="qqq"),
    case("list_revisions", "too many", "schedule revisions yearly --limit 101", WRONG, schedule_id="yearly", limit=101),
    case(
        "list_revisions", "with the cursor of another schedule", "schedule revisions off --cursor <revisions-cursor>",
        wfctl.BadCursor, schedule_id="off", cursor="<revisions-cursor>",
    ),
    case("audit_schedule", "ok", "occurrence audit often", schedule_id="often"),
    case("audit_schedule", "since", "occurrence audit often --since <instant>", schedule_id="often", since="<instant>"),
    case("audit_schedule", "unknown", "occurrence audit qqq", UNKNOWN, schedule_id="qqq"),
    case(
        "audit_schedule", "since no instant", "occurrence audit often --since 2027-03-01T09:00", WRONG,
        schedule_id="often", since="2027-03-01T09:00",
    ),
]  # fmt: skip

OCCURRENCES = [
    case("list_schedule_occurrences", "of all", "occurrences"),
    case("list_schedule_occurrences", "of one", "occurrences often", schedule_id="often"),
    case("list_schedule_occurrences", "of two", "occurrences often busy", schedule_id=["often", "busy"]),
    case("list_schedule_occurrences", "a page", "occurrences --limit 2", limit=2),
    case("list_schedule_occurrences", "newest first", "occurrences --reverse --limit 3", limit=3, reverse=True),
    case("list_schedule_occurrences", "by a word for a flag", None, WRONG, reverse="yes"),
    case(
        "list_schedule_occurrences", "the next page", "occurrences --limit 2 --cursor <occurrences-cursor>",
        limit=2, cursor="<occurrences-cursor>",
    ),
    case(
        "list_schedule_occurrences", "filtered",
        "occurrences --status completed,failed --since <instant> --until 2099-01-01T00:00:00Z",
        status="completed,failed", since="<instant>", until="2099-01-01T00:00:00Z",
    ),
    case("list_schedule_occurrences", "unknown", "occurrences qqq", UNKNOWN, schedule_id="qqq"),
    case("list_schedule_occurrences", "of no size", "occurrences --limit 0", WRONG, limit=0),
    case("list_schedule_occurrences", "of a size in words", None, WRONG, limit="ten"),
    case("list_schedule_occurrences", "of true size", None, WRONG, limit=True),
    case("list_schedule_occurrences", "by an unknown status", "occurrences --status complete", WRONG, status="complete"),
    case("list_schedule_occurrences", "by no status", ["occurrences", "--status", ""], WRONG, status=""),
    case("list_schedule_occurrences", "of a number", None, WRONG, schedule_id=5),
    case("list_schedule_occurrences", "since yesterday", "occurrences --since yesterday", WRONG, since="yesterday"),
    case(
        "list_schedule_occurrences", "until a naive time", "occurrences --until 2027-03-01T09:00", WRONG,
        until="2027-03-01T09:00",
    ),
    case("list_schedule_occurrences", "since a number", None, WRONG, since=5),
    case("list_schedule_occurrences", "with a damaged cursor", "occurrences --cursor zzz", wfctl.BadCursor, cursor="zzz"),
    case("list_schedule_occurrences", "with a number as cursor", None, wfctl.BadCursor, cursor=5),
    case(
        "list_schedule_occurrences", "with a foreign cursor", "occurrences often --cursor <occurrences-cursor>",
        wfctl.BadCursor, schedule_id="often", cursor="<occurrences-cursor>",
    ),
    case("get_occurrence", "ok", "occurrence show often@<instant>", schedule_id="often", instant="<instant>"),
    case(
        "get_occurrence", "that is not recorded", "occurrence show often@2001-01-01T00:00:00Z", UNKNOWN,
        schedule_id="often", instant="2001-01-01T00:00:00Z",
    ),
    case("get_occurrence", "unknown", "occurrence show qqq@<instant>", UNKNOWN, schedule_id="qqq", instant="<instant>"),
    case("get_occurrence", "of no instant", "occurrence show often@noon", WRONG, schedule_id="often", instant="noon"),
    case("get_occurrence", "of null", None, WRONG, schedule_id="often", instant=None),
    case("explain_occurrence", "ok", "occurrence explain often@<instant>", schedule_id="often", instant="<instant>"),
    case("explain_occurrence", "unknown", "occurrence explain qqq@<instant>", UNKNOWN, schedule_id="qqq", instant="<instant>"),
    case("explain_occurrence", "of no instant", "occurrence explain often@noon", WRONG, schedule_id="often", instant="noon"),
]  # fmt: skip

DEPLOYMENTS = [
    case(
        "create_deployment", "ok", ["deployment", "add", "n.<d>", "--", "/bin/echo", "hello"],
        deployment_id="n.<d>", command=["/bin/echo", "hello"],
    ),
    case(
        "create_deployment", "with everything",
        ["deployment", "add", "all.<d>", "--cwd", "/tmp", "--env", "LANG=C", "--env-file", "/etc/env", "--timeout", "5m",
         "--retries", "2", "--retry-delay", "1s", "--kill-grace", "3s", "--umask", "027", "--description", "what", "--", "x"],
        deployment_id="all.<d>", command=["x"], working_directory="/tmp", environment={"LANG": "C"},
        environment_files=["/etc/env"], timeout="5m", retries=2, retry_delay="1s", kill_grace="3s", umask="027",
        description="what",
    ),
    case(
        "create_deployment", "dry run", ["deployment", "add", "dry.<d>", "--dry-run", "--", "x"],
        deployment_id="dry.<d>", command=["x"], dry_run=True,
    ),
    case(
        "create_deployment", "broken in two ways",
        ["deployment", "add", "b.<d>", "--timeout", "1h30", "--retries", "-1", "--", "x"], INVALID,
        deployment_id="b.<d>", command=["x"], timeout="1h30", retries=-1,
    ),
    case("create_deployment", "with text as command", None, INVALID, deployment_id="b.<d>", command="echo hello"),
    case(
        "create_deployment", "with a bad id", ["deployment", "add", "B", "--", "x"], INVALID, deployment_id="B",
        command=["x"],
    ),
    case("create_deployment", "twice", "deployment add hello -- x", wfctl.Exists, deployment_id="hello", command=["x"]),
    case("create_deployment", "anew", "deployment add gone -- x", wfctl.Exists, deployment_id="gone", command=["x"]),
    case("get_deployment", "ok", "deployment show needs", deployment_id="needs"),
    case("get_deployment", "deleted", "deployment show gone", deployment_id="gone"),
    case("get_deployment", "broken", "deployment show broken", deployment_id="broken"),
    case("get_deployment", "unknown", "deployment show qqq", UNKNOWN, deployment_id="qqq"),
    case("get_deployment", "with a list as id", None, WRONG, deployment_id=["hello"]),
    case("list_deployments", "ok", "deployments"),
    case("list_deployments", "with the deleted ones", "deployments --include-deleted", include_deleted=True),
    case("list_deployments", "a page", "deployments --limit 2", limit=2),
    case(
        "list_deployments", "the next page", "deployments --limit 2 --cursor <deployments-cursor>",
        limit=2, cursor="<deployments-cursor>",
    ),
    case("list_deployments", "of no size", "deployments --limit 0", WRONG, limit=0),
    case("list_deployments", "with a cursor of schedules", "deployments --cursor <schedules-cursor>", wfctl.BadCursor,
         cursor="<schedules-cursor>"),
    case(
        "update_deployment", "ok", ["deployment", "set", "d.<d>", "timeout=5m", "--unset", "description"],
        deployment_id="d.<d>", expected_revision=1, timeout="5m", unset=["description"], given=[deployment(description="x")],
    ),
    case(
        "update_deployment", "dry run", ["deployment", "set", "d.<d>", "timeout=5m", "--dry-run"],
        deployment_id="d.<d>", expected_revision=1, timeout="5m", dry_run=True, given=[deployment()],
    ),
    case(
        "update_deployment", "stale", ["deployment", "set", "d.<d>", "timeout=5m", "--expected-revision", "3"],
        wfctl.RevisionConflict, deployment_id="d.<d>", expected_revision=3, timeout="5m", given=[deployment()],
    ),
    case(
        "update_deployment", "unknown", "deployment set qqq timeout=5m", UNKNOWN,
        deployment_id="qqq", expected_revision=1, timeout="5m",
    ),
    case(
        "update_deployment", "deleted", "deployment set gone timeout=5m", wfctl.Deleted,
        deployment_id="gone", expected_revision=1, timeout="5m",
    ),
    case(
        "update_deployment", "broken", ["deployment", "set", "d.<d>", "timeout=soon", "umask=9"], INVALID,
        deployment_id="d.<d>", expected_revision=1, timeout="soon", umask="9", given=[deployment()],
    ),
    case(
        "update_deployment", "an unknown field", ["deployment", "set", "d.<d>", "timeot=5m"], WRONG,
        deployment_id="d.<d>", expected_revision=1, timeot="5m", given=[deployment()],
    ),
    case(
        "update_deployment", "with a spoilt file", ["deployment", "set", "d.<d>", "timeout=5m"], wfctl.Blocked,
        deployment_id="d.<d>", expected_revision=1, timeout="5m", given=[deployment(), broken("deployment", "d.<d>")],
    ),
    case("delete_deployment", "ok", "deployment delete d.<d>", deployment_id="d.<d>", given=[deployment()]),
    case("delete_deployment", "twice", "deployment delete gone", deployment_id="gone"),
    case(
        "delete_deployment", "dry run", "deployment delete d.<d> --dry-run",
        deployment_id="d.<d>", dry_run=True, given=[deployment()],
    ),
    case("delete_deployment", "unknown", "deployment delete qqq", UNKNOWN, deployment_id="qqq"),
    case(
        "delete_deployment", "in use", "deployment delete d.<d>", wfctl.InUse,
        deployment_id="d.<d>", given=[deployment(), schedule("user.<d>", "d.<d>")],
    ),
]  # fmt: skip

RUNS = [
    case(
        "start_run", "ok", ["run", "start", "hello", "--detach", "--input", "a=1"],
        deployment_id="hello", input={"a": 1}, unsure=GOING, after=[settled],
    ),
    case("start_run", "of what is not there", "run start qqq --detach", UNKNOWN, deployment_id="qqq"),
    case("start_run", "of what was deleted", "run start gone --detach", wfctl.Deleted, deployment_id="gone"),
    case("start_run", "of what is blocked", "run start broken --detach", wfctl.Blocked, deployment_id="broken"),
    case("start_run", "without its program", "run start lost --detach", wfctl.PreflightFailed, deployment_id="lost"),
    case("start_run", "without its input", "run start needs --detach", wfctl.PreflightFailed, deployment_id="needs"),
    case(
        "start_run", "with a list as input", ["run", "start", "hello", "--detach", "--input-json", "[1]"], WRONG,
        deployment_id="hello", input=[1],
    ),
    case("start_run", "with a number as id", None, WRONG, deployment_id=5),
    case(
        "start_run", "while it drains", "run start hello --detach", wfctl.Draining,
        deployment_id="hello", given=[drained], after=[undrained],
    ),
    case(
        "resume_run", "ok", ["run", "resume", "<run>", "--detach", "--input", "answer=yes"],
        run_id="<run>", input={"answer": "yes"}, unsure=(*GOING, "interrupt", "attempt"), given=[interrupted], after=[settled],
    ),
    case("resume_run", "unknown", "run resume run-999999 --detach", UNKNOWN, run_id="run-999999"),
    case("resume_run", "with a number as id", None, WRONG, run_id=5),
    case("resume_run", "when it is over", "run resume <done> --detach", wfctl.WrongState, run_id="<done>"),
    case(
        "resume_run", "with a wrong answer", "run resume <run> --detach --input anser=yes", INVALID,
        run_id="<run>", input={"anser": "yes"}, given=[interrupted],
    ),
    case(
        "resume_run", "with a list as answer", ["run", "resume", "<run>", "--detach", "--input-json", "[1]"], WRONG,
        run_id="<run>", input=[1], given=[interrupted],
    ),
    case(
        "resume_run", "without a slot", "run resume <asked> --detach --input answer=yes", wfctl.Saturated,
        run_id="<asked>", input={"answer": "yes"},
    ),
    case(
        "resume_run", "while it drains", "run resume <asked> --detach --input answer=yes", wfctl.Draining,
        run_id="<asked>", input={"answer": "yes"}, given=[drained], after=[undrained],
    ),
    case(
        "cancel_run", "ok", ["run", "cancel", "<run>", "--reason", "no need", "--grace", "1s"],
        run_id="<run>", reason="no need", grace="1s", given=[interrupted],
    ),
    case("cancel_run", "unknown", "run cancel run-999999", UNKNOWN, run_id="run-999999"),
    case("cancel_run", "when it is over", "run cancel <done>", wfctl.WrongState, run_id="<done>"),
    case("cancel_run", "with a bad grace", "run cancel <asked> --grace 1h30", WRONG, run_id="<asked>", grace="1h30"),
    case("cancel_run", "with a number as reason", None, WRONG, run_id="<asked>", reason=5),
    case("inspect_run", "completed", "run show <done>", run_id="<done>"),
    case("inspect_run", "interrupted", "run show <asked>", run_id="<asked>"),
    case("inspect_run", "running", "run show <busy>", run_id="<busy>"),
    case("inspect_run", "unknown", "run show run-999999", UNKNOWN, run_id="run-999999"),
    case("inspect_run", "by no id of a run", "run show hello", UNKNOWN, run_id="hello"),
    case("inspect_run", "with a number as id", None, WRONG, run_id=5),
    case("list_runs", "ok", "runs --limit 100", limit=100),
    case("list_runs", "a page", "runs --limit 2", limit=2),
    case("list_runs", "newest first", "runs -r --limit 3", limit=3, reverse=True),
    case("list_runs", "by a word for a flag", None, WRONG, reverse="yes"),
    case("list_runs", "the next page", "runs --limit 2 --cursor <runs-cursor>", limit=2, cursor="<runs-cursor>"),
    case(
        "list_runs", "filtered",
        "runs --schedule often --deployment hello --status completed --since <instant> --until 2099-01-01T00:00:00Z",
        schedule_id="often", deployment_id="hello", status="completed", since="<instant>", until="2099-01-01T00:00:00Z",
    ),
    case("list_runs", "of an unknown schedule", "runs --schedule qqq", UNKNOWN, schedule_id="qqq"),
    case("list_runs", "of an unknown deployment", "runs --deployment qqq", UNKNOWN, deployment_id="qqq"),
    case("list_runs", "of a number", None, WRONG, deployment_id=5),
    case("list_runs", "by a status that no run has", "runs --status pending", WRONG, status="pending"),
    case("list_runs", "of no size", "runs --limit 0", WRONG, limit=0),
    case("list_runs", "with a damaged cursor", "runs --cursor zzz", wfctl.BadCursor, cursor="zzz"),
]  # fmt: skip

SERVER = [
    case("server_status", "ok", "status"),
    case("server_status", "while it drains", "status", given=[drained], after=[undrained]),
    case("reload", "ok", "reload"),
    case("drain", "ok", "drain", after=[undrained]),
    case("drain", "undo", "drain --undo", undo=True, given=[drained]),
    case("drain", "by a word", None, WRONG, undo="yes"),
]
CASES = [*SCHEDULES, *OCCURRENCES, *DEPLOYMENTS, *RUNS, *SERVER]
#: what is different where no supervisor runs
WITHOUT = [
    case("server_status", "ok", "status", wfctl.NoSupervisor),
    case("reload", "ok", "reload", wfctl.NoSupervisor),
    case("drain", "ok", "drain", wfctl.NoSupervisor),
    case("resume_run", "a scheduled one", "run resume <asked> --detach", wfctl.NoSupervisor, run_id="<asked>"),
]

#: what a case of the walk cannot show, and what shows it instead
ELSEWHERE = {
    ("start_run", "IoError"): "only where no supervisor is, and no process can be started",
    ("resume_run", "NoSupervisor"): "test_9_1_9_3_without_a_supervisor",
    ("server_status", "NoSupervisor"): "test_9_1_9_3_without_a_supervisor",
    ("reload", "NoSupervisor"): "test_9_1_9_3_without_a_supervisor",
    ("drain", "NoSupervisor"): "test_9_1_9_3_without_a_supervisor",
    ("drain", "WrongState"): "test_7_6_a_supervisor_that_ends_refuses_a_drain_over_every_door",
}
NOT_ASKED = {"poke": "it has no answer", "watch": "its answers come one after the other"}

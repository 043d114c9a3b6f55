"""Examples of calls, for the OpenRPC document. A test holds them against the schemas they illustrate."""

from __future__ import annotations

from typing import Any

_DEFINITION: dict[str, Any] = {
    "format": 1,
    "deployment": "report.default",
    "notes": "For the finance team",
    "overlap": "skip",
    "max_active_runs": None,
    "misfire": "latest",
    "lateness": "60s",
    "max_run": "auto",
    "max_steps": None,
    "notify": None,
    "trigger": {"kind": "cron", "expression": "30 2 * * *", "timezone": "Europe/Budapest"},
    "input": {"region": "eu"},
}
_NIGHTLY: dict[str, Any] = {
    "schema": "wfctl/schedule.v1",
    "id": "nightly",
    "state": "active",
    "diagnostic": None,
    "revision": 1,
    "effective_from": "2026-12-01T09:00:00Z",
    "next_instant": "2026-12-02T01:30:00Z",
    "candidate": None,
    "active_runs": [],
    "definition": _DEFINITION,
    "anchor": "2026-12-01T09:00:00Z",
    "watermark": "2026-12-01T09:00:00Z",
    "waits_until": None,
    "max_run_s": 432000.0,
    "paused_at": None,
    "pause_reason": None,
    "pause_actor": None,
}
_RUN: dict[str, Any] = {
    "schema": "wfctl/run.v1",
    "run_id": "run-000031",
    "kind": "manual",
    "schedule_id": None,
    "instant": None,
    "revision": None,
    "deployment_id": "report.default",
    "deployment_revision": 1,
    "status": "admitted",
    "attempt": 1,
    "started_at": None,
    "ended_at": None,
    "exit_status": None,
    "signal": None,
    "reason": None,
    "max_run_s": None,
    "overdue": False,
    "input": {"region": "eu"},
    "output": None,
    "checkpoint": None,
    "interrupt": None,
    "place": None,
    "trace": [],
    "admitted_at": "2026-12-01T10:00:00.250000Z",
}
_FAILED: dict[str, Any] = {
    "schedule_id": "nightly",
    "status": "failed",
    "revision": 1,
    "lateness_s": 0.004,
    "reason": {"code": "exit", "step": "main", "k": 1, "exit_status": 1},
    "span": None,
}

#: By operation: what it shows, the parameters, the result.
EXAMPLES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "create_schedule": (
        "Each night at half past two in Budapest; after downtime the newest missed night is made up for.",
        {
            "schedule_id": "nightly",
            "deployment_id": "report.default",
            "trigger": {"kind": "cron", "expression": "30 2 * * *", "timezone": "Europe/Budapest"},
            "input": {"region": "eu"},
            "misfire": "latest",
            "notes": "For the finance team",
        },
        _NIGHTLY,
    ),
    "update_schedule": (
        "Change the input and clear the notes, if nobody has changed the schedule since revision 1.",
        {"schedule_id": "nightly", "expected_revision": 1, "input": {"region": "us"}, "unset": ["notes"]},
        {**_NIGHTLY, "revision": 2, "definition": {**_DEFINITION, "notes": None, "input": {"region": "us"}}},
    ),
    "pause_schedule": (
        "Admit nothing during a migration; active runs go on.",
        {"schedule_id": "nightly", "reason": "database migration"},
        {
            **_NIGHTLY,
            "state": "paused",
            "next_instant": None,
            "paused_at": "2026-12-01T10:00:00Z",
            "pause_reason": "database migration",
            "pause_actor": "ops",
        },
    ),
    "start_run": (
        "Start one run now, beside all schedules; it is answered before the run has ended.",
        {"deployment_id": "report.default", "input": {"region": "eu"}},
        _RUN,
    ),
    "list_schedule_occurrences": (
        "The first two failures of a schedule; for the next two, the same with `cursor`.",
        {"schedule_id": "nightly", "status": "failed", "limit": 2},
        {
            "schema": "wfctl/occurrences.v1",
            "items": [
                {
                    **_FAILED,
                    "instant": "2026-12-02T01:30:00Z",
                    "run_id": "run-000032",
                    "recorded_at": "2026-12-02T01:30:00.004000Z",
                },
                {
                    **_FAILED,
                    "instant": "2026-12-05T01:30:00Z",
                    "run_id": "run-000035",
                    "recorded_at": "2026-12-05T01:30:00.004000Z",
                },
            ],
            "next_cursor": "ydZOGQAIWzEsIjhiMzRmYzlkYjBjNCIseyJwbGFjZSI6MX1d",
        },
    ),
    "resume_run": (
        "Give an interrupted run what it asked for in `interrupt`.",
        {"run_id": "run-000031", "input": {"approved": True}},
        {**_RUN, "status": "running", "attempt": 2, "started_at": "2026-12-01T10:00:00.254000Z"},
    ),
    "watch": (
        "Be told of whatever fails or waits for input, in any schedule.",
        {"status": ["failed", "interrupted"]},
        {
            "schema": "wfctl/watch.v1",
            "schedule_id": None,
            "run_id": None,
            "status": ["failed", "interrupted"],
            "since": "2026-12-02T01:00:00Z",
        },
    ),
}

#: What a watch is told, as the whole frame.
TOLD: dict[str, Any] = {
    "jsonrpc": "2.0",
    "method": "workflow.server.transition",
    "params": {
        "schema": "wfctl/transition.v1",
        "kind": "run",
        "schedule_id": "nightly",
        "instant": "2026-12-02T01:30:00Z",
        "run_id": "run-000032",
        "from": "running",
        "to": "failed",
        "reason": {"code": "exit", "step": "main", "k": 1, "exit_status": 1},
        "at": "2026-12-02T01:31:07.120000Z",
        "revision": 1,
        "attempt": 1,
        "lateness_s": None,
        "span": None,
    },
}

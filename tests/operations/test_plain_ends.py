"""Ends that are settled many at a time leave the very rows that settling them one by one leaves (contract 6.5, 6.6)."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.schedules import add, cron
from tests.support.story import SETTINGS, World
from wfctl.keeper.protocol import LaunchRequest, Report
from wfctl.operations.driving.plain_ends import PlainEnds
from wfctl.operations.store import init_store

_TABLES = ("runs", "executions", "occurrences", "schedules", "health", "notices")
_KINDS = ("plain", "fails", "output", "checkpoint", "interrupt", "two-steps", "waits", "cancelled", "retries")
_DEPLOYMENTS: dict[str, dict[str, Any]] = {
    "two-steps": {"steps": [{"name": "a", "command": ["/bin/true"]}, {"name": "b", "command": ["/bin/true"]}]},
    "retries": {"steps": [{"name": "a", "command": ["/bin/true"], "retries": 1}]},
}


def _play(root: Path, kinds: Sequence[str], rounds: int) -> dict[str, list[tuple[Any, ...]]]:
    """Play a story in which schedules of these kinds come due together, all their ends are told at once; return the tables."""
    init_store(root).close()
    world = World(root)
    world.keeper.world.script = None
    for number, kind in enumerate(kinds):
        name = f"{kind}-{number}"
        world.store.create_deployment(deployment_id=name, **_DEPLOYMENTS.get(kind, {"command": ["/bin/true"]}))
        overlap = "queue" if kind == "waits" else "skip"
        add(world.store, name, cron("* * * * *"), deployment_id=name, overlap=overlap, notify={"command": ["/bin/true"]})
    world.step()
    for _ in range(rounds):
        world.clock.advance(timedelta(minutes=1))
        world.step()
        if "waits" in kinds:  # the next instant comes while the first one's run is at work
            world.clock.advance(timedelta(minutes=1))
            world.step()
        _end_all(world)
        world.step()
        _end_all(world)
        world.step()
    world.stop()
    with closing(sqlite3.connect(root / "ledger.db")) as connection:
        found = {table: connection.execute(f"SELECT * FROM {table} ORDER BY 1, 2").fetchall() for table in _TABLES}
    world.die()
    return found


def _end_all(world: World) -> None:
    for run, k in sorted(world.keeper.world.running):
        if run.startswith("notice"):
            world.keeper.end(run, k)
            continue
        request = world.keeper.world.requests[run, k]
        kind = request.environment["WFCTL_SCHEDULE_ID"].rpartition("-")[0]
        _leave(request, kind)
        if kind == "cancelled":
            world.store.cancel_run(run_id=run)
            if (run, k) not in world.keeper.world.running:
                continue
        world.keeper.end(run, k, exit_status={"fails": 3, "interrupt": 75, "retries": 1}.get(kind, 0))


def _leave(request: LaunchRequest, kind: str) -> None:
    if kind in ("output", "checkpoint", "interrupt"):
        path = Path(request.environment[f"WFCTL_{kind.upper()}"])
        if not path.exists():
            path.write_text('{"message": "?"}')


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(kinds=st.lists(st.sampled_from(_KINDS), min_size=1, max_size=6))
def test_together_is_as_one_by_one(tmp_path_factory: pytest.TempPathFactory, kinds: list[str]) -> None:
    together = _play(tmp_path_factory.mktemp("together") / "store", kinds, 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PlainEnds, "_settle_plain", lambda self, reports: list(reports))
        apart = _play(tmp_path_factory.mktemp("apart") / "store", kinds, 2)
    for table in _TABLES:
        assert _plain(together[table]) == _plain(apart[table]), table


def _plain(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return rows without what differs from store to store: marks name the moment of the machine."""
    return [tuple("mark" if isinstance(value, str) and _MARK.match(value) else value for value in row) for row in rows]


_MARK = re.compile(r"\[\d+(,\d+)*\]|.*since_ns")


def test_a_hundred_plain_ends_take_few_statements(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SETTINGS["supervisor"], "max_concurrent_runs", 100)
    init_store(tmp_path / "store").close()
    world = World(tmp_path / "store")
    world.store.create_deployment(deployment_id="d", command=["/bin/true"])
    for number in range(100):
        add(world.store, f"s-{number:03d}", cron("* * * * *"), deployment_id="d")
    world.step()
    world.clock.advance(timedelta(minutes=1))
    world.step()
    world.end()
    service = world._service
    assert service is not None
    seen: list[str] = []
    left: list[int] = []
    settle = PlainEnds._settle_plain

    def counted(self: PlainEnds, reports: Sequence[Report]) -> list[Report]:
        connection = service.context.ledger.connection
        connection.set_trace_callback(seen.append)
        rest = settle(self, reports)
        connection.set_trace_callback(None)
        left.append(len(rest))
        return rest

    monkeypatch.setattr(PlainEnds, "_settle_plain", counted)
    commits = service.context.ledger.commits
    world.step()
    assert left == [0], "none was left to be settled by itself"
    assert sum(run.status == "completed" for run in world.runs()) == 100
    assert service.context.ledger.commits == commits + 1
    assert sum(each.startswith("SELECT") for each in seen) <= 4
    assert sum(each.startswith("UPDATE") for each in seen) == 300, "an execution, its run and its occurrence, each once"
    world.stop()

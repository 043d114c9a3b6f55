"""What the walk over the four doors asks, and the store in which it asks (contract 9): see tests/e2e/test_parity.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import wfctl
from tests.support.waiting import wait_for
from wfctl.errors import WfctlError
from wfctl.rpc.methods import BY_OPERATION

EVERY_YEAR = {"kind": "cron", "expression": "0 0 1 1 *", "timezone": "UTC"}
EVERY_SECOND = {"kind": "interval", "every": "1s"}
HELLO = """printf '{"result": "hello"}' > "$WFCTL_OUTPUT" """
ASKS = """[ -n "$WFCTL_RESUME" ] && exit 0
printf '{"message": "go on?", "schema": {"type": "object", "required": ["answer"]}}' > "$WFCTL_INTERRUPT"; exit 75"""
WAITS = """until [ -e "$DESK/go" ]; do sleep 0.02; done"""
NEEDS = {"type": "object", "required": ["region"], "properties": {"region": {"type": "string"}}}


# The scene ----------------------------------------------------------------------------------------------------------------


class Scene:
    """A store in which something has happened, and a supervisor with one slot, which is taken."""

    def __init__(self, root: Path, desk: Path) -> None:
        self.root = root
        self.facts: dict[str, str] = {}
        self.store = wfctl.init_store(root)
        settings = {"supervisor": {"max_concurrent_runs": 1, "drain_grace_s": 0.0}, "runs": {"min_free": "0"}}
        self.service = wfctl.SupervisorService(self.store, settings)
        for name, script in (("hello", HELLO), ("asks", ASKS), ("waits", WAITS), ("gone", HELLO), ("broken", HELLO)):
            command = ["/bin/sh", "-c", script]
            self.store.create_deployment(deployment_id=name, command=command, environment={"DESK": str(desk)})
        self.store.create_deployment(deployment_id="needs", command=["/bin/true"], input_schema=NEEDS)
        self.store.create_deployment(deployment_id="lost", command=["/nonexistent/program"])
        self.store.delete_deployment(deployment_id="gone")
        self._make_schedules()
        self.service.start()
        self._live()
        (root / "deployments" / "broken.toml").write_text("command = [\n")
        self.store.reload()  # the supervisor has seen it, too

    def _make_schedules(self) -> None:
        make = self.store.create_schedule
        make(schedule_id="yearly", deployment_id="hello", trigger=EVERY_YEAR, notes="first")
        for revision in (1, 2):
            self.store.update_schedule(schedule_id="yearly", expected_revision=revision, notes=f"after {revision}")
        make(schedule_id="dead", deployment_id="hello", trigger=EVERY_YEAR)
        self.store.delete_schedule(schedule_id="dead")
        make(schedule_id="off", deployment_id="hello", trigger=EVERY_YEAR, paused=True, reason="for now")
        make(schedule_id="often", deployment_id="hello", trigger=EVERY_SECOND)

    def _live(self) -> None:
        look = self.store.list_schedule_occurrences
        wait_for(lambda: len(look(schedule_id="often", status="completed").items) >= 3, "three runs")
        self.store.pause_schedule(schedule_id="often")
        wait_for(lambda: not self.store.list_runs(status="admitted,running").items, "the end of all runs")
        self.facts["instant"] = look(schedule_id="often").to_json()["items"][0]["instant"]
        self.facts["done"] = self.store.list_runs(schedule_id="often").items[0].run_id
        self.facts["asked"] = self._once("asker", "asks", "interrupted")
        self.facts["busy"] = self._once("busy", "waits", "running")
        for name, listing in (
            ("schedules", self.store.list_schedules),
            ("deployments", self.store.list_deployments),
            ("runs", self.store.list_runs),
            ("occurrences", look),
        ):
            self.facts[f"{name}-cursor"] = str(listing(limit=2).next_cursor)
        self.facts["revisions-cursor"] = str(self.store.list_revisions(schedule_id="yearly", limit=2).next_cursor)

    def _once(self, schedule_id: str, deployment_id: str, until: str) -> str:
        at = datetime.now(UTC) + timedelta(seconds=0.3)
        trigger = {"kind": "oneshot", "at": at.isoformat()}
        self.store.create_schedule(schedule_id=schedule_id, deployment_id=deployment_id, trigger=trigger)
        return str(wait_for(lambda: self.store.list_runs(schedule_id=schedule_id, status=until).items, until)[0].run_id)

    def manual(self, deployment_id: str, until: str) -> str:
        """Start a run by hand; return its id once it is that far."""
        run_id = self.store.start_run(deployment_id=deployment_id).run_id
        wait_for(lambda: self.store.inspect_run(run_id=run_id).status == until, f"{run_id} being {until}")
        return run_id

    def close(self) -> None:
        self.store.cancel_run(run_id=self.facts["busy"], grace="0s")
        self.service.stop()
        self.store.close()


# The cases ----------------------------------------------------------------------------------------------------------------

Step = Callable[[Scene, str, dict[str, str]], None]  #: is given the name of the door and what may stand in angles


@dataclass(frozen=True)
class Case:
    """A question, what must be there before, and how it ends."""

    operation: str
    title: str
    params: Mapping[str, Any] = field(default_factory=dict)
    words: Sequence[str] | None = None
    error: type[WfctlError] | None = None
    given: Sequence[Step] = ()
    after: Sequence[Step] = ()
    unsure: Sequence[str] = ()  #: keys whose values depend on how far a process is
    is_exact: bool = False

    def __str__(self) -> str:
        return f"{self.operation} {self.title}"


def case(operation: str, title: str, words: str | Sequence[str] | None = None, error: Any = None, /, **more: Any) -> Case:
    """Return a case; keyword arguments are those of the operation, save for the fields of a case."""
    own = {key: more.pop(key) for key in ("given", "after", "unsure") if key in more}
    is_exact = BY_OPERATION[operation].kind == "read" or operation in ("drain", "reload")
    listed = words.split() if isinstance(words, str) else words
    return Case(operation, title, more, listed, error, is_exact=is_exact, **own)


def schedule(schedule_id: str = "s.<d>", deployment_id: str = "hello", **fields: Any) -> Step:
    """There is a schedule."""

    def step(scene: Scene, door: str, facts: dict[str, str]) -> None:
        given = {"trigger": EVERY_YEAR, **fields}
        name, target = (text.replace("<d>", door) for text in (schedule_id, deployment_id))
        scene.store.create_schedule(schedule_id=name, deployment_id=target, **given)

    return step


def deployment(deployment_id: str = "d.<d>", **fields: Any) -> Step:
    """There is a deployment."""

    def step(scene: Scene, door: str, facts: dict[str, str]) -> None:
        given = {"command": ["/bin/true"], **fields}
        scene.store.create_deployment(deployment_id=deployment_id.replace("<d>", door), **given)

    return step


def deleted(kind: str, name: str) -> Step:
    """It was deleted."""

    def step(scene: Scene, door: str, facts: dict[str, str]) -> None:
        getattr(scene.store, f"delete_{kind}")(**{f"{kind}_id": name.replace("<d>", door)})

    return step


def broken(kind: str, name: str) -> Step:
    """Its file was spoilt by hand."""

    def step(scene: Scene, door: str, facts: dict[str, str]) -> None:
        (scene.root / f"{kind}s" / f"{name.replace('<d>', door)}.toml").write_text("trigger = [\n")

    return step


def paused(scene: Scene, door: str, facts: dict[str, str]) -> None:
    """The schedule is paused."""
    scene.store.pause_schedule(schedule_id=f"s.{door}", reason="for now")


def interrupted(scene: Scene, door: str, facts: dict[str, str]) -> None:
    """A run by hand waits for input."""
    facts["run"] = scene.manual("asks", "interrupted")


def drained(scene: Scene, door: str, facts: dict[str, str]) -> None:
    """An operator drains the supervisor."""
    scene.store.drain()


def undrained(scene: Scene, door: str, facts: dict[str, str]) -> None:
    """The drain is undone."""
    scene.store.drain(undo=True)


def settled(scene: Scene, door: str, facts: dict[str, str]) -> None:
    """All runs started by hand are over."""

    def at_work() -> bool:
        return any(run.kind == "manual" for run in scene.store.list_runs(status="admitted,running", limit=100))

    wait_for(lambda: not at_work(), "the end of the runs started by hand")

"""The same stories on this machine and on a cluster: what a run is promised does not depend on where it is executed (3.0)."""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.support.processes import wait_for
from tests.support.sites import Site
from tests.support.slurm_cluster import SlurmCluster
from wfctl.operations.views import RunView

_OVER = ("completed", "failed", "cancelled", "exhausted")
_MARK = 'echo "start $WFCTL_OCCURRENCE" >> $SIDE/{name}; sleep {lasts}; echo "end $WFCTL_OCCURRENCE" >> $SIDE/{name}'


class Scene:
    """All stories played at once by one supervisor, since a cluster takes its time; then each is looked at by itself."""

    def __init__(self, site: Site, manual: dict[str, str] | None = None) -> None:
        self.site = site
        self.manual: dict[str, str] = manual or {}

    def play(self) -> None:
        """Make everything, let it go, and wait until it is over."""
        site = self.site
        with site.open() as api:
            make = site.deployment
            make(api, "completes", 'echo hello; echo \'{"answer": 42}\' > "$WFCTL_OUTPUT"')
            make(api, "fails", "echo to-err >&2; exit 3")
            make(api, "dies", "kill -SEGV $$")
            make(api, "missing", "", steps=[{"name": "main", "command": ["/nowhere/at/all"]}])
            make(api, "again", 'test -e "$WFCTL_CHECKPOINT" && exit 0; echo 1 > "$WFCTL_CHECKPOINT"; exit 1', retries=1,
                 retry_delay="100ms")  # fmt: skip
            steps = [{"name": name, "command": ["/bin/sh", "-c", text]} for name, text in
                     (("one", "echo first > passed-on"), ("two", 'cat passed-on > "$SIDE/steps"'))]  # fmt: skip
            make(api, "steps", "", steps=steps)
            make(api, "slow", "echo at work; sleep 60", timeout="1s", kill_grace="1s")
            make(api, "long", "echo at work; sleep 60", kill_grace="1s")
            make(api, "asks", 'if [ -n "$WFCTL_RESUME" ]; then cat "$WFCTL_RESUME" > "$SIDE/asks"; exit 0; fi;'
                 ' echo \'{"message": "go on?"}\' > "$WFCTL_INTERRUPT"; exit 75')  # fmt: skip
            for name in ("skip", "queue", "pair"):
                make(api, name, _MARK.format(name=name, lasts=2.3 if name == "queue" else 1.4))
            policies = {"skip": {}, "queue": {"overlap": "queue"}, "pair": {"overlap": "parallel", "max_active_runs": 2}}
            for name, policy in policies.items():
                trigger = {"kind": "interval", "every": "1s"}
                api.create_schedule(schedule_id=name, deployment_id=name, trigger=trigger, **policy)
            at = (datetime.now(UTC) + timedelta(seconds=1)).isoformat()
            api.create_schedule(
                schedule_id="limited", deployment_id="long", trigger={"kind": "oneshot", "at": at}, max_run="1s", lateness="1m"
            )
            names = ["completes", "fails", "dies", "again", "steps", "slow", "long", "asks"]
            for name in names if site.cluster is None else [*names, "missing"]:  # here that is found before the run
                self.manual[name] = api.start_run(deployment_id=name).run_id
        wait_for(lambda: self.seen("long").status == "running", what="the run to be cancelled", timeout_s=60)
        with site.open() as api:
            api.cancel_run(run_id=self.manual["long"], reason="enough")
        wait_for(lambda: self.seen("asks").status == "interrupted", what="the question", timeout_s=60)
        with site.open() as api:
            api.resume_run(run_id=self.manual["asks"], input={"go": True})
        wait_for(lambda: not self.unfinished(), what="all ends", timeout_s=60)
        wait_for(lambda: len(site.lines("queue")) >= 4, what="two runs one after the other", timeout_s=60)
        with site.open() as api:
            for name in ("skip", "queue", "pair"):
                api.pause_schedule(schedule_id=name)
        wait_for(lambda: not site.runs(status="admitted,running"), what="quiet", timeout_s=60)

    def unfinished(self) -> list[str]:
        return [name for name in self.manual if self.seen(name).status not in _OVER]

    def seen(self, name: str) -> RunView:
        return self.site.run(self.manual[name])


@pytest.fixture(scope="module", params=["local", "slurm"])
def scene(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """Played once, by whichever process of the test run comes first."""
    base = tmp_path_factory.getbasetemp()
    root = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / f"stories-{request.param}"
    root.mkdir(exist_ok=True)
    played = root / "played.json"
    with (root / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not played.exists():
            cluster: SlurmCluster | None = request.getfixturevalue("cluster") if request.param == "slurm" else None
            place = tempfile.mkdtemp(dir=root)
            made = Scene(Site(Path(place), cluster))
            with made.site.supervisor("--max-concurrent-runs", "20", "--drain-grace-s", "5") as supervisor:
                made.play()
                assert supervisor.stop() == 0
            played.write_text(json.dumps([place, made.manual]))
    place, manual = json.loads(played.read_text())
    return Scene(Site(Path(place), None, is_new=False), manual)


def code(run: RunView) -> str | None:
    return None if run.reason is None else run.reason["code"]


def test_6_5_exit_0_completes_with_its_output_and_log(scene: Scene) -> None:
    run = scene.seen("completes")
    assert (run.status, run.exit_status, run.output) == ("completed", 0, {"answer": 42})
    assert scene.site.command("run", "logs", run.run_id) == "hello\n"
    assert [each.k for each in run.trace] == [1]


def test_6_5_another_exit_fails(scene: Scene) -> None:
    run = scene.seen("fails")
    assert (run.status, code(run), run.exit_status) == ("failed", "exit", 3)
    assert scene.site.command("run", "logs", run.run_id, "--stream", "err") == "to-err\n"


def test_6_5_a_signal_fails_and_is_named(scene: Scene) -> None:
    run = scene.seen("dies")
    assert (run.status, code(run), run.signal) == ("failed", "signal", 11)


def test_6_10_a_program_that_is_not_there_is_refused_and_said(scene: Scene) -> None:
    if "missing" not in scene.manual:
        return
    run = scene.seen("missing")
    assert (run.status, code(run), run.reason["errno"]) == ("failed", "launch-failed", 2)  # type: ignore[index]


def test_6_4_a_retry_finds_the_checkpoint(scene: Scene) -> None:
    run = scene.seen("again")
    assert (run.status, [each.exit_status for each in run.trace]) == ("completed", [1, 0])


def test_6_2_steps_follow_one_another_in_one_directory(scene: Scene) -> None:
    run = scene.seen("steps")
    assert (run.status, [each.step for each in run.trace]) == ("completed", ["one", "two"])
    assert scene.site.lines("steps") == ["first"]


def test_6_14_a_cancel_ends_it_with_its_reason(scene: Scene) -> None:
    run = scene.seen("long")
    assert (run.status, code(run), run.reason["note"]) == ("cancelled", "cancelled", "enough")  # type: ignore[index]


def test_6_8_a_step_that_takes_too_long_is_ended(scene: Scene) -> None:
    run = scene.seen("slow")
    assert (run.status, code(run)) == ("failed", "timeout")


def test_6_8_a_run_that_takes_longer_than_max_run_is_ended(scene: Scene) -> None:
    run = scene.site.runs(schedule_id="limited")[0]
    assert (run.status, code(run), run.reason["limit_s"]) == ("failed", "deadline", 1.0)  # type: ignore[index]


def test_6_13_an_interrupted_run_is_resumed_with_its_input(scene: Scene) -> None:
    run = scene.seen("asks")
    assert (run.status, run.attempt) == ("completed", 2)
    assert scene.site.lines("asks") == ['{"go":true}']


@pytest.mark.parametrize(("name", "limit"), [("skip", 1), ("queue", 1), ("pair", 2)])
def test_5_3_no_more_run_at_once_than_their_schedule_allows(scene: Scene, name: str, limit: int) -> None:
    running = most = 0
    for line in scene.site.lines(name):
        running += 1 if line.startswith("start") else -1
        most = max(most, running)
    assert running == 0
    assert 1 <= most <= limit
    starts = [line for line in scene.site.lines(name) if line.startswith("start")]
    assert len(starts) == len(set(starts)), "an occurrence ran twice"


def test_5_5_what_had_no_room_says_so(scene: Scene) -> None:
    with scene.site.open() as api:
        rows = list(api.list_schedule_occurrences(schedule_id="skip", limit=100).items)
        held = list(api.list_schedule_occurrences(schedule_id="queue", limit=100).items)
    assert "overlap" in {row.reason["code"] for row in rows if row.status == "skipped-overlap" and row.reason}
    assert "newer" in {row.reason["code"] for row in held if row.status == "coalesced" and row.reason}

"""A thousand runs due at one instant on a cluster of two nodes: how late is each, and what does it cost, beside `sbatch` alone?

Three rounds on the same real cluster, started for this and ended after it (root, slurm-wlm and munge are needed):

  loop       `sbatch` called a thousand times, one after another: what a crontab line of `sbatch` does
  parallel   the same with eight at once, as wfctl does it
  wfctl      a thousand one-shot schedules due at one instant, by the real `wfctl supervise`, each occurrence durable before

Compared are the last submission's and the last job's first instruction after the instant, and the processor time of everything
but Slurm's daemons and the jobs: for `sbatch` that of the commands, for wfctl that of the supervisor with all its commands.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.live import share
from tests.support import slurm_cluster
from tests.support.slurm_cluster import SlurmCluster

_JOB = "#!/bin/sh\ndate +%s.%N >> {side}\n"


def measure(jobs: int = 1000, *, cpus: int = 64) -> dict[str, Any]:
    """Return plain numbers: seconds after the instant, and seconds of processor time. Raise RuntimeError without a cluster."""
    why = slurm_cluster.missing()
    if why is not None:
        raise RuntimeError(why)
    root = Path(tempfile.mkdtemp(prefix="wfctl-bench-"))
    try:
        with SlurmCluster(cpus=cpus, message_timeout_s=60) as cluster:
            found = {
                "loop": _by_sbatch(cluster, root / "loop", jobs, at_once=1),
                "parallel": _by_sbatch(cluster, root / "parallel", jobs, at_once=8),
                "wfctl": _by_wfctl(cluster, root / "wfctl", jobs),
            }
    finally:
        shutil.rmtree(root, ignore_errors=True)
    loop, ours = found["loop"], found["wfctl"]
    return {
        "jobs": jobs,
        "cpus": 2 * cpus,
        **found,
        "submitted_to_loop": ours["submitted_s"] / loop["submitted_s"],
        "last_to_loop": ours["last_s"] / loop["last_s"],
        "cpu_to_loop": ours["cpu_s"] / loop["cpu_s"],
        "lost": jobs - ours["started"],
    }


def _by_sbatch(cluster: SlurmCluster, root: Path, jobs: int, *, at_once: int) -> dict[str, Any]:
    root.mkdir(parents=True)
    side, script = root / "side", root / "job.sh"
    script.write_text(_JOB.format(side=side))
    command = ["xargs", "-P", str(at_once), "-I{}", "/usr/bin/sbatch", "--parsable", "--job-name={}", "--no-requeue",
               "--export=NONE", "--output=/dev/null", str(script)]  # fmt: skip
    names = "\n".join(f"bench-{number}" for number in range(jobs)).encode()
    environment = {"PATH": "/usr/bin:/bin", **cluster.environment}
    begun, before = time.time(), _children_cpu()
    subprocess.run(command, input=names, env=environment, stdout=subprocess.DEVNULL, check=True)
    submitted, cpu = time.time() - begun, _children_cpu() - before
    starts = _wait_for_starts(lambda: side.read_text().split() if side.exists() else [], jobs)
    return _figures([float(each) - begun for each in starts], submitted, cpu)


def _by_wfctl(cluster: SlurmCluster, root: Path, jobs: int) -> dict[str, Any]:
    from wfctl import init_store, open_store

    root.mkdir(parents=True)
    shared, store, side = root / "shared", root / "store", root / "side"
    shared.mkdir()
    init_store(store).close()
    settings = f'[executors.slurm]\nshared = "{shared}"\nmax_concurrent_runs = 100000\nconf = "{cluster.conf}"\n'
    (store / "wfctl.toml").write_text(settings)
    at = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=20 + jobs // 50)
    with open_store(store) as api:
        api.create_deployment(deployment_id="d", command=["/bin/sh", "-c", f"date +%s.%N >> {side}"], executor="slurm")
        checks = api.check_deployment(deployment_id="d")  # a node has seen the folder before the instant
        assert all(check.ok for check in checks), checks
        for number in range(jobs):
            trigger = {"kind": "oneshot", "at": at.isoformat()}
            api.create_schedule(schedule_id=f"s{number}", deployment_id="d", trigger=trigger, lateness="1h")
    command = [sys.executable, "-m", "wfctl", "--store", str(store), "supervise", "--until-idle", "--log-format", "text"]
    place = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    with (root / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | {"PYTHONPATH": place}, cwd="/")
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, (root / "log").read_text()[-2000:]
    due = at.timestamp()
    begun = [float(line) - due for line in side.read_text().split()]
    found = _figures(begun, _last_submission(cluster, due), usage.ru_utime + usage.ru_stime)
    return {**found, "ends": _ends(store)}


def _ends(store: Path) -> dict[str, int]:
    """Return how many runs ended how."""
    from wfctl import open_store

    counts: Counter[str] = Counter()
    with open_store(store) as api:
        cursor = None
        while True:
            page = api.list_runs(limit=100, cursor=cursor)
            for run in page.items:
                why = run.reason or {}
                counts[" ".join(filter(None, (run.status, why.get("code"), why.get("message"))))] += 1
            cursor = page.next_cursor
            if cursor is None:
                return dict(counts)


def _last_submission(cluster: SlurmCluster, due: float) -> float:
    """Return when the controller had taken in the last job, in seconds after the instant; it counts whole seconds."""
    said = cluster.command(
        "squeue", "--noheader", "--states=all", "--format=%j|%V", environment={"SLURM_TIME_FORMAT": "%s"}
    ).split()  # fmt: skip
    times = [float(line.rpartition("|")[2]) for line in said if line.startswith("wfctl-") and "-run-" in line]
    return max(times, default=due) - due


def _wait_for_starts(look: Callable[[], Sequence[str]], jobs: int) -> Sequence[str]:
    until = time.time() + 600
    while len(found := look()) < jobs and time.time() < until:
        time.sleep(0.2)
    return found


def _children_cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _figures(starts: Sequence[float], submitted: float, cpu: float) -> dict[str, Any]:
    return {
        "started": len(starts),
        "submitted_s": round(submitted, 3),
        "first_s": round(min(starts, default=0.0), 3),
        "median_s": round(share(starts, 0.5), 3),
        "last_s": round(max(starts, default=0.0), 3),
        "cpu_s": round(cpu, 3),
    }


def main() -> int:
    """Measure, print a table, and write it all as JSON where asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--cpus", type=int, default=64, help="how many jobs a node takes at once")
    parser.add_argument("--json", type=Path, help="write the figures there")
    given = parser.parse_args()
    try:
        found = measure(given.jobs, cpus=given.cpus)
    except RuntimeError as error:
        print(f"no cluster can be started here: {error}", file=sys.stderr)
        return 1
    print(f"{'':10} {'started':>8} {'submitted':>10} {'first':>8} {'median':>8} {'last':>8} {'cpu':>8}")
    for name in ("loop", "parallel", "wfctl"):
        row = found[name]
        print(f"{name:10} {row['started']:8} {row['submitted_s']:9.2f}s {row['first_s']:7.2f}s {row['median_s']:7.2f}s "
              f"{row['last_s']:7.2f}s {row['cpu_s']:7.2f}s")  # fmt: skip
    print(
        f"wfctl to the loop: last submission {found['submitted_to_loop']:.2f}, last start {found['last_to_loop']:.2f}, "
        f"processor time {found['cpu_to_loop']:.2f}; lost {found['lost']}"
    )
    print("ends: " + "; ".join(f"{count} {how}" for how, count in found["wfctl"]["ends"].items()))
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=2) + "\n")
    return 0 if found["lost"] == 0 else 1


if __name__ == "__main__":
    sys.exit(main())

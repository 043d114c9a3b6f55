#!/usr/bin/env python3
"""Two dozen live schedules beside their simulation: does each instant end as `wfctl simulate` said it would?

python benchmarks/simulate_reality.py [--seconds 600] [--slots 7] [--no-absence] [--keep DIR] [--json]
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wfctl import Store
    from wfctl.core.simulation import Simulation

SCHEDULES = 24
CLOSE = timedelta(milliseconds=150)  #: what lies closer together than this may be seen in another order
LAUNCH_S = 0.02  #: what launching a process and taking in its end adds to a length, about
BETWEEN = 650_000  #: the microsecond at which the supervisor leaves, and the span ends: nothing happens there
STARTS = timedelta(milliseconds=400)  #: how long a supervisor takes to begin, about

#: All instants are whole seconds. Every length ends on .1 s, so that neither a run that began with an instant ends with another
#: one, nor one that waited for that end, and so on up to the sixth.
LENGTHS = (1.1, 2.1, 3.1, 4.1, 5.1, 7.1, 9.1)
EVERY = (5, 6, 8, 9, 10, 12, 15, 18, 20, 24, 30, 36, 45, 60)
POLICIES: tuple[dict[str, Any], ...] = (
    {"overlap": "skip"},
    {"overlap": "queue"},
    {"overlap": "parallel", "max_active_runs": 2},
    {"overlap": "skip", "misfire": "latest"},
    {"overlap": "queue", "misfire": "latest"},
    {"overlap": "parallel", "max_active_runs": 3, "misfire": "latest"},
    {"overlap": "skip", "lateness": "2800ms"},
    {"overlap": "queue", "lateness": "4800ms"},
)

Disposition = tuple[str, str]  #: (status, code of the reason); of every run that was admitted `admitted`


@dataclass(frozen=True)
class Made:
    """A schedule of the store."""

    schedule_id: str
    trigger: Mapping[str, Any]
    policy: Mapping[str, Any]
    length_s: float


def main() -> int:
    """Live, compare, print, and return 0 where everything agrees, or each difference has an explanation."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--slots", type=int, default=7)
    parser.add_argument("--no-absence", action="store_true", help="let the supervisor run through")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="make the store there, and keep it")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.seconds < 60 or options.slots < 1:
        parser.error("--seconds must be at least 60, --slots at least 1")
    with tempfile.TemporaryDirectory(prefix="wfctl-reality-") as directory:
        root = options.keep or Path(directory) / "store"
        result = measure(root, options.seconds, options.slots, is_absent=not options.no_absence)
    if options.json:
        print(json.dumps(result, indent=2))
    else:
        _print(result)
    return 0 if all(each["unexplained"] == 0 for each in result["compared"].values()) else 1


def _print(result: Mapping[str, Any]) -> None:
    print(f"{result['schedules']} schedules, {result['slots']} slots, {result['seconds']} s: {result['instants']} instants")
    for name, count in result["dispositions"].items():
        print(f"  {name:<32}{count:>7}")
    for name, each in result["compared"].items():
        print(f"{name}: {each['equal']} equal, {each['different']} different ({each['unexplained']} unexplained)")
        for line in each["differences"]:
            print(f"  {line}")


def plan_of_schedules() -> list[Made]:
    """Return what is made: triggers, policies and lengths in ever other combinations."""
    made = []
    for number in range(SCHEDULES):
        every, length = EVERY[number * 5 % len(EVERY)], LENGTHS[number * 3 % len(LENGTHS)]
        trigger: dict[str, Any] = {"kind": "interval", "every": f"{every}s"}
        if number % 8 == 7:
            trigger = {"kind": "cron", "expression": "* * * * *" if number % 16 == 7 else "*/2 * * * *"}
        made.append(Made(f"s{number:02d}", trigger, POLICIES[number % len(POLICIES)], length))
    return made


# Living -------------------------------------------------------------------------------------------------------------------


def measure(root: Path, seconds: int, slots: int, *, is_absent: bool) -> dict[str, Any]:
    """Live a span with a real supervisor, and return how it went beside its forecast and its replay."""
    from dataclasses import replace

    from wfctl import init_store
    from wfctl.core.duration import parse_duration
    from wfctl.core.simulation import simulate
    from wfctl.operations.simulating import forecast, replay_plan

    made = plan_of_schedules()
    allowed = {each.schedule_id: parse_duration(each.policy.get("lateness", "60s")) for each in made}
    with init_store(root) as store:
        for each in made:
            store.create_deployment(deployment_id=each.schedule_id, command=["/bin/sleep", f"{each.length_s - LAUNCH_S:.3f}"])
        with supervisor(root, slots):
            _begin_early_in_a_minute()
            for each in sorted(made, key=_first_last):
                given: dict[str, Any] = {"trigger": each.trigger, **each.policy}
                store.create_schedule(schedule_id=each.schedule_id, deployment_id=each.schedule_id, **given)
            since = datetime.now(UTC)
            until = since.replace(microsecond=BETWEEN) + timedelta(seconds=seconds)
            away = _absence(since, seconds) if is_absent else None
            said = forecast(
                store.context,
                until=until,
                slots=slots,
                durations={each.schedule_id: each.length_s for each in made},
            )
            if store.list_schedule_occurrences(limit=1).items:
                raise SystemExit("making the schedules took too long: something was due before the forecast")
            sleep_until(away[0] if away else until)
        if away:
            sleep_until(away[1] - STARTS)
            with supervisor(root, slots):
                sleep_until(until)
        truth = recorded(store, until)
        ends = run_ends(store)
        replay = replay_plan(store.context, until=until, slots=slots)
        foreseen = replace(said.plan, downtime=[span for span in replay.downtime if span[0] > since])
    again = simulate(replay)
    return {
        "schedules": len(made),
        "seconds": seconds,
        "slots": slots,
        "instants": len(truth),
        "dispositions": dict(sorted(Counter(" ".join(found).strip() for found in truth.values()).items())),
        "compared": {
            "replay": compare(again, truth, ends, allowed),
            "forecast": compare(simulate(foreseen), truth, ends, allowed, played(again)),
        },
    }


def _begin_early_in_a_minute() -> None:
    """Wait where a minute is nearly over: nothing may come due while the schedules are made."""
    now = datetime.now(UTC)
    if now.second >= 40:
        sleep_until(now.replace(second=1, microsecond=0) + timedelta(minutes=1))


def _first_last(made: Made) -> float:
    """The order of making: what comes due first is made last."""
    return -float(made.trigger.get("every", "60s").removesuffix("s"))


def _absence(since: datetime, seconds: int) -> tuple[datetime, datetime]:
    """When the supervisor is away: from the middle on, long enough for instants to be missed; it returns on a full second."""
    begins = since.replace(microsecond=BETWEEN) + timedelta(seconds=seconds // 2)
    return begins, begins.replace(microsecond=0) + timedelta(seconds=max(15, seconds // 20))


def sleep_until(at: datetime) -> None:
    """Wait for a moment."""
    time.sleep(max(0.0, (at - datetime.now(UTC)).total_seconds()))


@contextmanager
def supervisor(root: Path, slots: int) -> Iterator[None]:
    """Run a supervisor that is ready when the body begins; afterwards it leaves at once what still runs."""
    argv = [sys.executable, "-m", "wfctl", "supervise", "--store", str(root), "--max-concurrent-runs", str(slots)]
    process = subprocess.Popen([*argv, "--drain-grace-s", "0"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        status = [sys.executable, "-m", "wfctl", "status", "--store", str(root)]
        while subprocess.run(status, capture_output=True, check=False).returncode not in (0, 1):
            if process.poll() is not None:
                raise SystemExit(f"the supervisor ended with {process.returncode}")
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


# Comparing ----------------------------------------------------------------------------------------------------------------


def recorded(store: Store, until: datetime) -> dict[tuple[str, datetime], Disposition]:
    """Return what the ledger says of each instant by `until`."""
    found: dict[tuple[str, datetime], Disposition] = {}
    cursor = None
    while True:
        page = store.list_schedule_occurrences(limit=100, cursor=cursor)
        for row in page.items:
            if row.instant is None or row.instant > until:
                continue
            code = str((row.reason or {}).get("code") or "")
            found[row.schedule_id, row.instant] = ("admitted", "") if row.run_id else (str(row.status), code)
        cursor = page.next_cursor
        if cursor is None:
            return found


def run_ends(store: Store) -> list[datetime]:
    """Return when runs ended."""
    ends: list[datetime] = []
    cursor = None
    while True:
        page = store.list_runs(limit=100, cursor=cursor)
        ends += [run.ended_at for run in page.items if run.ended_at is not None]
        cursor = page.next_cursor
        if cursor is None:
            return ends


def played(found: Simulation) -> dict[tuple[str, datetime], Disposition]:
    """Return what a play says of each instant."""
    said: dict[tuple[str, datetime], Disposition] = {}
    for row in found.rows:
        code = str((row.settlement.reason or {}).get("code") or "")
        is_run = row.settlement.run is not None
        said[row.schedule_id, row.settlement.instant] = ("admitted", "") if is_run else (row.settlement.status.value, code)
    for name, candidate in found.held.items():
        said[name, candidate.instant] = ("pending", str(candidate.reason.get("code")))
    return said


def compare(
    found: Simulation,
    truth: Mapping[tuple[str, datetime], Disposition],
    ends: Sequence[datetime],
    allowed: Mapping[str, timedelta],
    replayed: Mapping[tuple[str, datetime], Disposition] | None = None,
) -> dict[str, Any]:
    """Compare a play with what was recorded, and explain each difference.

    `ends` are the ends of runs, `allowed` the lateness allowances. Two things closer together than CLOSE may be seen in another
    order by a machine: the end of a run, and an instant or the end of its lateness. For a forecast `replayed` is what the
    replay says: where that is right, it was the lengths alone that were not quite as foreseen.
    """
    said = played(found)
    seen = [*ends, *(row.ended_at for row in found.rows if row.ended_at is not None)]
    keys = sorted(said.keys() | truth.keys(), key=lambda key: (key[1], key[0]))
    lines, unexplained = [], 0
    for key in keys:
        if said.get(key) == truth.get(key):
            continue
        name, instant = key
        gap = min((abs(end - at) for end in seen for at in (instant, instant + allowed[name])), default=CLOSE)
        if gap < CLOSE:
            why = f"a run ended {gap.total_seconds() * 1000:.0f} ms from it, or from the end of its lateness"
        elif replayed is not None and replayed.get(key) == truth.get(key):
            why = "by lengths: with those that runs really had it is said rightly"
        else:
            why, unexplained = "UNEXPLAINED", unexplained + 1
        words = [" ".join(each).strip() if each else "nothing" for each in (said.get(key), truth.get(key))]
        lines.append(f"{name}@{instant:%H:%M:%S}: said {words[0]}, was {words[1]}: {why}")
    return {"equal": len(keys) - len(lines), "different": len(lines), "unexplained": unexplained, "differences": lines}


if __name__ == "__main__":
    sys.exit(main())

"""The commands of a made-up Slurm, each run in a process of its own: `fake_slurm_commands.py ROOT COMMAND ARGUMENT…`.

It imports little, because a test runs it again and again.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import sys
from typing import Any

_OVER = ("CANCELLED", "COMPLETED", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT")
_FIELDS = {
    "JobID": "job", "Name": "name", "State": "state", "exit_code": "code", "StartTime": "started", "RestartCnt": "restarts",
    "Reason": "reason", "NodeList": "nodes",
}  # fmt: skip


def obey(root: str, command: str, words: list[str]) -> int:
    """Do what a command does, or fail in the way that the test asked for."""
    with open(f"{root}/lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with open(f"{root}/state.json") as file:
            state = json.load(file)
        state["asked"].append([command, *words])
        mode = state["modes"].get(command)
        said, code = "", 1
        if mode == "down":
            said = "Unable to contact slurm controller (connect failure)"
        elif mode not in (None, "late"):
            said = mode
        else:
            code = {"sbatch": sbatch, "squeue": squeue, "scancel": scancel, "sinfo": sinfo, "sacct": sacct}[command](
                state, words
            )
        if mode == "late":
            said, code = "Socket timed out on send/recv operation", 1
        with open(f"{root}/.state.part", "w") as file:
            json.dump(state, file)
        os.rename(f"{root}/.state.part", f"{root}/state.json")  # noqa: PTH104
    if said:
        print(f"{command}: error: {said}", file=sys.stderr)
    return code


def sbatch(state: dict[str, Any], words: list[str]) -> int:
    if words == ["--version"]:
        print("slurm 22.05.8")
        return 0
    options = dict(word[2:].partition("=")[::2] for word in words if word.startswith("--"))
    at = next(index for index, word in enumerate(words) if not word.startswith("--"))
    job = {
        "job": str(state["next"]), "name": options["job-name"], "state": "PENDING", "code": 0, "started": 0, "restarts": 0,
        "reason": "Priority", "nodes": "", "command": words[at:], "output": options["output"], "options": options,
    }  # fmt: skip
    state["next"] += 1
    state["jobs"].append(job)
    print(job["job"])
    return 0


def squeue(state: dict[str, Any], words: list[str]) -> int:
    fields = [field.split(":") for field in _value(words, "--Format=").split(",")]
    for job in state["jobs"]:
        print("".join(str(job[_FIELDS[name]]).ljust(int(width))[: int(width)] for name, width in fields))
    return 0


def scancel(state: dict[str, Any], words: list[str]) -> int:
    name = _value(words, "--name=")
    is_signal = any(word.startswith("--signal") for word in words)
    for job in state["jobs"]:
        if job["name"] != name or job["state"] in _OVER:
            continue
        if not is_signal:
            job["state"] = "CANCELLED"
        elif "pid" in job:
            with contextlib.suppress(ProcessLookupError):
                os.kill(job["pid"], signal.SIGTERM)
    return 0


def sinfo(state: dict[str, Any], words: list[str]) -> int:
    print("all*|up|2\nslow|down|1")
    return 0


def sacct(state: dict[str, Any], words: list[str]) -> int:
    accounts = state.get("accounts")
    if accounts is None:
        print("Slurm accounting storage is disabled", file=sys.stderr)
        return 1
    names = _value(words, "--name=").split(",")
    print("\n".join("|".join([name, *accounts[key]]) for name in names for key in accounts if name.endswith(key)))
    return 0


def _value(words: list[str], begins: str) -> str:
    return next(word.removeprefix(begins) for word in words if word.startswith(begins))


if __name__ == "__main__":
    status = obey(sys.argv[1], sys.argv[2], sys.argv[3:])
    sys.stdout.flush()
    os._exit(status)

"""The table `[slurm]` of a deployment: what it asks of the cluster, and nothing that breaks a promise (contract 3, 6.2)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta

from wfctl.core.duration import format_duration
from wfctl.core.model import SLURM, Json, SlurmNeeds
from wfctl.core.plain import Table, join_path, name_of

MOST_OPTIONS = 50
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._,:@+-]{0,127}", re.ASCII)
_MEMORY = re.compile(r"([1-9]\d{0,8})\s?([KMGT])(?:iB)?", re.ASCII)
_NODES = re.compile(r"[1-9]\d{0,5}(-[1-9]\d{0,5})?", re.ASCII)
_OPTION = re.compile(r"--([a-z][a-z0-9-]*)(=.*)?", re.ASCII)
_LONGEST_OPTION = 1024
#: Options without a value. Any other without one would take the next argument for its value, whatever that is.
_FLAGS = frozenset({"contiguous", "exclusive", "overcommit", "oversubscribe", "reboot", "spread-job", "use-min-nodes"})
_OWN_FIELDS = {
    "partition": "partition", "account": "account", "cpus-per-task": "cpus", "mem": "memory", "time": "time_limit",
    "nodes": "nodes",
}  # fmt: skip
_NAMED = "wfctl names jobs itself, to find them again"
_ONCE = "an execution is launched at most once"
_PLACED = "wfctl puts a run's files into the shared folder"
#: What would break a promise -> which one. An option may be written short, so its beginnings are refused as well.
_REFUSED = {
    "requeue": _ONCE,
    "no-requeue": "wfctl gives it itself",
    "array": _ONCE,
    "ntasks-per-array": _ONCE,
    "wrap": "the job is the deployment's command",
    "job-name": _NAMED,
    "clusters": "jobs are looked for on the cluster itself",
    "output": _PLACED,
    "error": _PLACED,
    "input": _PLACED,
    "open-mode": _PLACED,
    "chdir": _PLACED,
    "export": "a run's environment is exactly what its deployment says",
    "export-file": "a run's environment is exactly what its deployment says",
    "get-user-env": "a run's environment is exactly what its deployment says",
    "uid": "runs belong to the store's owner",
    "gid": "runs belong to the store's owner",
    "parsable": "wfctl reads the answer of sbatch",
    "quiet": "wfctl reads the answer of sbatch",
    "verbose": "wfctl reads the answer of sbatch",
    "wait": "wfctl waits itself",
    "test-only": "nothing would be run",
    "help": "nothing would be run",
    "usage": "nothing would be run",
    "version": "nothing would be run",
    "container": "the job's own script runs beside the program",
}


def read_slurm(table: Table, executor: str) -> SlurmNeeds | None:
    """Given the table of a deployment, return what it asks of Slurm, with what is wrong added to its problems."""
    plain = table.raw("slurm")
    if plain is None:
        return SlurmNeeds() if executor == SLURM else None
    if executor != SLURM:
        table.problem("slurm", f'goes only with executor = "slurm", not with "{executor}"; leave it out')
    below = Table(plain, join_path(table.path, "slurm"), table.problems)
    needs = SlurmNeeds(
        partition=_word(below, "partition"),
        account=_word(below, "account"),
        cpus=below.integer("cpus", 1),
        memory=_memory(below),
        time_limit=below.duration("time_limit", more_than_zero=True),
        nodes=_nodes(below),
        options=_options(below),
    )
    below.close()
    return needs


def slurm_to_plain(needs: SlurmNeeds | None) -> dict[str, Json] | None:
    """Return the plain form of the table; None where nothing is asked for."""
    if needs is None or needs == SlurmNeeds():
        return None
    plain: Mapping[str, Json] = {
        "partition": needs.partition,
        "account": needs.account,
        "cpus": needs.cpus,
        "memory": needs.memory,
        "time_limit": None if needs.time_limit is None else format_duration(needs.time_limit),
        "nodes": int(needs.nodes) if needs.nodes is not None and needs.nodes.isdigit() else needs.nodes,
        "options": list(needs.options) or None,
    }
    return {name: value for name, value in plain.items() if value is not None}


def minutes_of(limit: timedelta) -> str:
    """Return a time limit as `sbatch` takes it: whole minutes, never less than asked for."""
    return str(-(-limit // timedelta(microseconds=1) // 60_000_000) or 1)


def _word(table: Table, key: str) -> str | None:
    value = table.text(key)
    if value is not None and not _WORD.fullmatch(value):
        table.problem(key, f'{value!r} is no name of Slurm\'s: write letters, digits and "._,:@+-"')
        return None
    return value


def _memory(table: Table) -> str | None:
    value = table.text("memory")
    if value is None:
        return None
    match = _MEMORY.fullmatch(value)
    if match is None:
        table.problem("memory", f'{value!r} is no amount of memory; write a number and K, M, G or T, such as "4G"')
        return None
    return match[1] + match[2]


def _nodes(table: Table) -> str | None:
    value = table.raw("nodes")
    if value is None:
        return None
    text = str(value) if isinstance(value, (int, str)) and not isinstance(value, bool) else ""
    if not _NODES.fullmatch(text):
        table.problem("nodes", f'must be a number of nodes or a range such as "2-4", not {name_of(value)}')
        return None
    return text


def _options(table: Table) -> tuple[str, ...]:
    options = table.texts("options") or ()
    if len(options) > MOST_OPTIONS:
        table.problem("options", f"has {len(options)} options; at most {MOST_OPTIONS} are taken")
    for index, option in enumerate(options):
        wrong = option_problem(option)
        if wrong:
            table.problem(f"options[{index}]", wrong)
    return options


def option_problem(option: str) -> str | None:
    """Return what keeps `sbatch` from being given that option, or None."""
    match = _OPTION.fullmatch(option)
    if match is None or len(option) > _LONGEST_OPTION or any(ord(letter) < 32 for letter in option):
        return f'{option!r} must be one option with its value, such as "--qos=high"'
    name, value = match[1], match[2]
    for full, field in _OWN_FIELDS.items():
        if full.startswith(name):
            return f"--{name} is a field of its own: write {field} = … in [slurm]"
    for full, why in _REFUSED.items():
        if full.startswith(name):
            return f"--{name} is not taken{'' if full == name else f', nor any beginning of --{full}'}: {why}"
    if value is None and not any(flag.startswith(name) for flag in _FLAGS):
        return f"--{name} stands without a value; write --{name}=VALUE"
    return None

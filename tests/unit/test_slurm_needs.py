"""The table [slurm] of a deployment: what is taken, and what is refused because a promise rests on it (contract 3, 6.2)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from wfctl.core.definition import deployment_from_plain, deployment_to_plain
from wfctl.core.model import SlurmNeeds
from wfctl.core.slurm_needs import minutes_of, option_problem
from wfctl.errors import InvalidDefinition
from wfctl.store.definitions import deployment_from_toml, to_toml

FULL = {"partition": "p", "account": "a", "cpus": 2, "memory": "4G", "time_limit": "1h30m", "nodes": 3, "options": ["--qos=x"]}


def made(**fields: Any) -> Any:
    return deployment_from_plain({"command": ["/bin/true"], **fields})


def problems(**fields: Any) -> dict[str, str]:
    with pytest.raises(InvalidDefinition) as error:
        made(**fields)
    return {problem.path: problem.message for problem in error.value.problems}


def test_every_field_is_read_and_shown_again() -> None:
    definition = made(executor="slurm", slurm=FULL)
    assert definition.slurm == SlurmNeeds(
        partition="p", account="a", cpus=2, memory="4G", time_limit=timedelta(minutes=90), nodes="3", options=("--qos=x",)
    )
    assert deployment_to_plain(definition)["slurm"] == FULL
    text = to_toml(deployment_to_plain(definition))
    assert deployment_from_toml(text) == definition


def test_without_the_table_the_clusters_defaults_hold_and_nothing_is_written() -> None:
    assert made(executor="slurm").slurm == SlurmNeeds()
    assert "slurm]" not in to_toml(deployment_to_plain(made(executor="slurm"))).decode()


def test_a_deployment_without_it_has_the_text_and_digest_that_it_had() -> None:
    text = b'format = 1\nkill_grace = "10s"\numask = "022"\nexecutor = "local"\ncommand = [\n    "/bin/true",\n]\nretries = 0\n'
    assert to_toml(deployment_to_plain(made())).startswith(text)
    assert b"slurm" not in to_toml(deployment_to_plain(made()))


def test_the_table_goes_only_with_its_executor() -> None:
    assert 'executor = "slurm"' in problems(slurm=FULL)["slurm"]


def test_an_unknown_executor_is_refused_with_what_there_is() -> None:
    assert "local, slurm" in problems(executor="condor")["executor"]
    assert 'did you mean "slurm"' in problems(executor="slrum")["executor"]


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("partition", "a b", "no name of Slurm"),
        ("partition", "-x", "no name of Slurm"),
        ("cpus", 0, "from 1"),
        ("memory", "4 gigabytes", "such as"),
        ("memory", "0G", "such as"),
        ("nodes", "2-", "range"),
        ("nodes", True, "range"),
        ("time_limit", "1h30", ""),
        ("time_limit", "0s", "longer than zero"),
        ("options", ["--qos=x"] * 51, "at most 50"),
        ("gpus", 1, "not a known key"),
    ],
)
def test_a_field_of_the_wrong_kind_is_named(field: str, value: Any, said: str) -> None:
    assert said in problems(executor="slurm", slurm={field: value})[f"slurm.{field}"]


@pytest.mark.parametrize(("text", "taken"), [("4G", "4G"), ("512MiB", "512M"), ("1T", "1T"), ("8 G", "8G")])
def test_memory_is_taken_as_slurm_writes_it(text: str, taken: str) -> None:
    assert made(executor="slurm", slurm={"memory": text}).slurm.memory == taken


@pytest.mark.parametrize(
    "option",
    ["--requeue", "--requ", "--no-requeue", "--array=1-3", "--arr=2", "--job-name=x", "--job=x", "--wrap=true", "--output=x",
     "--out=x", "--error=x", "--chdir=/", "--export=ALL", "--exp=ALL", "--clusters=b", "--uid=0", "--test-only", "--wait",
     "--parsable", "--mem=1G", "--partition=p", "--time=1", "--nodes=2", "--cpus-per-task=4", "--account=x", "-J", "-Jx",
     "--qos", "--qos high", "qos=high", "--gres", "--qos=a\n--requeue", ""],
)  # fmt: skip
def test_an_option_that_would_break_a_promise_is_refused(option: str) -> None:
    assert option_problem(option)


@pytest.mark.parametrize(
    "option",
    ["--qos=high", "--gres=gpu:2", "--exclusive", "--exclusive=user", "--mem-per-cpu=1G", "--constraint=[a|b]", "--nodelist=n1",
     "--time-min=5", "--signal=B:USR1@60", "--reservation=r", "--comment=two words"],
)  # fmt: skip
def test_other_options_are_taken(option: str) -> None:
    assert option_problem(option) is None


@pytest.mark.parametrize(
    ("span", "minutes"), [(timedelta(seconds=1), "1"), (timedelta(seconds=60), "1"), (timedelta(seconds=61), "2")]
)
def test_a_time_limit_is_never_shorter_than_asked_for(span: timedelta, minutes: str) -> None:
    assert minutes_of(span) == minutes

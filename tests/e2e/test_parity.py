"""One operation, four doors: the same arguments give the same JSON, and the same errors (contract 9, 9.1, 8.7).

Each case of tests/support/parity_cases.py is put to every door in turn. What only looks is compared to the last letter; of what
changes something the ids, the instants and the digests may differ.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import wfctl
from tests.support.doors import (
    Answer,
    Door,
    Question,
    RpcDoor,
    all_doors,
    command_line,
    question_as_request,
    read_answer,
    same_for_all,
    socket_door,
    stdio_door,
)
from tests.support.parity import EVERY_YEAR, WAITS, Case, Scene, drained, interrupted
from tests.support.parity_cases import CASES, ELSEWHERE, NOT_ASKED, SERVER, WITHOUT
from tests.support.processes import wfctl as wfctl_process
from tests.support.waiting import wait_for
from wfctl.errors import ERRORS, WfctlError
from wfctl.rpc.methods import BY_OPERATION, METHODS, named_params

BY_NAME = {kind.__name__ for kind in ERRORS}


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("parity")
    made = Scene(folder / "store", folder)
    yield made
    made.close()


@pytest.fixture(scope="module")
def doors(scene: Scene) -> Iterator[list[Door]]:
    with all_doors(scene.root) as opened:
        yield opened


# The walk -----------------------------------------------------------------------------------------------------------------


def filled(value: Any, facts: Mapping[str, str]) -> Any:
    """Return a part of a case with what stands in angles filled in."""
    if isinstance(value, Mapping):
        return {key: filled(item, facts) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [filled(item, facts) for item in value]
    return re.sub(r"<([a-z-]+)>", lambda found: facts[found.group(1)], value) if isinstance(value, str) else value


def answer_at(door: Door, asked: Case, scene: Scene) -> Answer | None:
    """Put a case to one door; return what it answered."""
    tag = f"{CASES.index(asked) if asked in CASES else 'x'}.{door.name}"
    facts = {**scene.facts, "d": tag}
    for step in asked.given:
        step(scene, tag, facts)
    try:
        words = None if asked.words is None else filled(asked.words, facts)
        return door.ask(Question(asked.operation, filled(asked.params, facts), words))
    finally:
        for step in asked.after:
            step(scene, tag, facts)


def compared(answer: Answer, asked: Case, door: Door) -> Any:
    """Return what must be the same at every door."""
    document = answer.json
    if isinstance(document, dict):
        document = {key: "UNSURE" if key in asked.unsure else item for key, item in document.items()}
    return document if asked.is_exact else same_for_all(document, door.name)


@pytest.mark.parametrize("asked", CASES, ids=str)
def test_9_every_door_gives_the_same(asked: Case, scene: Scene, doors: list[Door]) -> None:
    if not hasattr(wfctl.Store, asked.operation):
        pytest.skip(f"this version has no {asked.operation}")
    check(asked, scene, doors)


def check(asked: Case, scene: Scene, doors: list[Door]) -> None:
    """Put a case to all doors and compare what they say."""
    answers = [(door, answer) for door in doors if (answer := answer_at(door, asked, scene)) is not None]
    assert len(answers) >= len(doors) - (asked.words is None)
    for door, answer in answers:
        assert answer.is_error == (asked.error is not None), (door.name, answer)
        assert compared(answer, asked, door) == compared(answers[0][1], asked, answers[0][0]), door.name
        if asked.error is None:
            assert answer.json["schema"].startswith("wfctl/")
            if asked.is_exact and answer.view is not None:
                assert answer.view == answers[0][1].view, "the frozen values are equal, too"
            continue
        assert set(answer.json) == {"code", "message", "data"}
        assert answer.json["code"] == asked.error.code
        assert "code" not in answer.json["data"], "over JSON-RPC that is the word of the error"
        assert answer.number in (None, asked.error.rpc_number)
        assert answer.status in (None, asked.error.exit_status)


# The errors ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.code)
def test_9_1_every_error_comes_through_every_door_as_itself(
    kind: type[WfctlError], scene: Scene, doors: list[Door], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its word, its number and its exit status are those of the table; message and data arrive as they were raised."""

    def fail(self: object, *, schedule_id: str) -> None:
        raise kind('why it "failed"\nand \x1b[31mhow', {"n": 1, "near": ["yearly"], "deep": {"list": [None, 1.5]}})

    monkeypatch.setattr(wfctl.Store, "get_schedule", fail)
    question = Question("get_schedule", {"schedule_id": "yearly"}, ["schedule", "show", "yearly"])
    for door in doors:
        if door.name == "stdio":
            continue  # a process of its own, which nothing here can make fail
        answer = door.ask(question)
        assert answer is not None
        assert answer.json == kind('why it "failed"\nand \x1b[31mhow', answer.json["data"]).to_json(), door.name
        assert answer.json["data"] == {"n": 1, "near": ["yearly"], "deep": {"list": [None, 1.5]}}
        assert answer.is_error
        assert answer.number in (None, kind.rpc_number)
        assert answer.status in (None, kind.exit_status)


def test_9_1_9_3_without_a_supervisor(tmp_path: Path) -> None:
    """Reading and editing work all the same, and what does not says so alike."""
    scene = Scene(tmp_path / "store", tmp_path)
    scene.close()
    skipped = {"resume_run", "start_run", "cancel_run", *(each.operation for each in SERVER)}
    cases = [each for each in CASES if each.operation not in skipped and not set(each.given) & {drained, interrupted}]
    with wfctl.open_store(scene.root) as scene.store, all_doors(scene.root, has_supervisor=False) as opened:
        for each in [*WITHOUT, *cases]:
            if hasattr(wfctl.Store, each.operation):
                check(each, scene, opened)


def test_7_6_a_supervisor_that_ends_refuses_a_drain_over_every_door(tmp_path: Path) -> None:
    with wfctl.init_store(tmp_path / "store") as store:
        command = ["/bin/sh", "-c", WAITS]
        store.create_deployment(deployment_id="waits", command=command, environment={"DESK": str(tmp_path)})
        service = wfctl.SupervisorService(store, {"supervisor": {"drain_grace_s": 60.0}})
        with service:
            service.start()
            run_id = store.start_run(deployment_id="waits").run_id
            with all_doors(store.root) as opened:
                service.ask_to_stop()
                wait_for(lambda: store.server_status().state == "draining", "the drain")
                answers = {door.name: door.ask(Question("drain", {}, ["drain"])) for door in opened}
            (tmp_path / "go").touch()
            wait_for(lambda: store.inspect_run(run_id=run_id).status == "completed", "the end of the run")
    first = answers["api"]
    for name, answer in answers.items():
        assert answer is not None
        assert answer.json == first.json, name  # type: ignore[union-attr]
        assert answer.json["code"] == "wrong-state"
        assert answer.number in (None, wfctl.WrongState.rpc_number)
        assert answer.status in (None, wfctl.WrongState.exit_status)


# Whatever is given --------------------------------------------------------------------------------------------------------

ODD = (5, 0, -1, 1.5, True, "", "x", "2027-03-01T09:00:00", [], ["a", 5], {}, {"kind": "cron"}, None)
#: what each operation takes at least; those that change something do it dry
LEAST: dict[str, dict[str, Any]] = {
    "create_schedule": {"schedule_id": "odd", "deployment_id": "hello", "trigger": EVERY_YEAR, "dry_run": True},
    "update_schedule": {"schedule_id": "yearly", "expected_revision": 3, "dry_run": True},
    "pause_schedule": {"schedule_id": "yearly", "dry_run": True},
    "resume_schedule": {"schedule_id": "off", "dry_run": True},
    "delete_schedule": {"schedule_id": "yearly", "dry_run": True},
    "create_deployment": {"deployment_id": "odd", "command": ["x"], "dry_run": True},
    "update_deployment": {"deployment_id": "needs", "expected_revision": 1, "dry_run": True},
    "delete_deployment": {"deployment_id": "needs", "dry_run": True},
    "get_schedule": {"schedule_id": "yearly"},
    "list_schedules": {},
    "list_revisions": {"schedule_id": "yearly"},
    "audit_schedule": {"schedule_id": "often"},
    "list_schedule_occurrences": {},
    "get_occurrence": {"schedule_id": "often", "instant": "2001-01-01T00:00:00Z"},
    "explain_occurrence": {"schedule_id": "often", "instant": "2001-01-01T00:00:00Z"},
    "get_deployment": {"deployment_id": "needs"},
    "list_deployments": {},
    "inspect_run": {"run_id": "<done>"},
    "list_runs": {},
    "start_run": {"deployment_id": "lost"},
    "resume_run": {"run_id": "<done>"},
    "cancel_run": {"run_id": "<done>"},
}
FIELDS = {
    "update_schedule": ("deployment_id", "trigger", "input", "notes", "overlap", "max_active_runs", "misfire", "lateness",
                        "max_run", "max_steps", "notify"),
    "update_deployment": ("command", "steps", "description", "working_directory", "environment", "environment_files",
                          "kill_grace", "umask", "executor", "slurm", "files", "input_schema", "retries", "retry_delay",
                          "timeout"),
}  # fmt: skip


@pytest.mark.parametrize("operation", LEAST)
def test_9_odd_values_are_taken_or_refused_alike(operation: str, scene: Scene, doors: list[Door]) -> None:
    """Of whatever type a value is: the same answer in Python and over JSON-RPC, and never an error of ours."""
    if not hasattr(wfctl.Store, operation):
        pytest.skip(f"this version has no {operation}")
    api, over_wire = doors[0], next(door for door in doors if door.name == "rpc")
    least = filled(LEAST[operation], scene.facts)
    taken = [item.name for item in named_params(getattr(wfctl.Store, operation), BY_OPERATION[operation])]
    for name in (*taken[1:], *FIELDS.get(operation, ())):
        for value in ODD if name != "dry_run" else ("yes", 1, None):
            question = Question(operation, {**least, name: value})
            first, second = api.ask(question), over_wire.ask(question)
            assert first is not None
            assert second is not None
            assert same_for_all(first.json, "none") == same_for_all(second.json, "none"), (name, value)
            assert not first.is_error or first.json["code"] != "internal", (name, value)


# Watching -----------------------------------------------------------------------------------------------------------------


def test_9_a_watch_tells_the_same_at_every_door(scene: Scene, doors: list[Door]) -> None:
    """What is told later is told alike: to a program, to a client, and over JSON-RPC with the supervisor or without."""
    scene.store.create_schedule(schedule_id="watched", deployment_id="hello", trigger=EVERY_YEAR)
    params = {"schedule_id": "watched", "timeout": 20.0}
    request = question_as_request(Question("watch", {"schedule_id": "watched"}))
    with ExitStack() as stack:
        store = stack.enter_context(wfctl.open_store(scene.root))
        client = stack.enter_context(wfctl.Client(scene.root))
        watches = [stack.enter_context(target.watch(**params)) for target in (store, client)]
        wires = [stack.enter_context(door(scene.root)) for door in (socket_door, stdio_door)]
        begun = [read_answer(wire.exchange(request)).json for wire in wires]
        assert [(each["schema"], each["schedule_id"]) for each in begun] == [("wfctl/watch.v1", ["watched"])] * 2
        for change, to in ((scene.store.pause_schedule, "paused"), (scene.store.delete_schedule, "deleted")):
            change(schedule_id="watched")
            told = [next(watch).to_json() for watch in watches]
            messages = [wire.read() for wire in wires]
            assert {message["method"] for message in messages} == {"workflow.server.transition"}
            told += [message["params"] for message in messages]
            assert (told[0]["schema"], told[0]["to"]) == ("wfctl/transition.v1", to)
            for each in told[1:]:
                assert each == told[0]


# What only the command line does ------------------------------------------------------------------------------------------


def test_8_7_several_ids_give_one_document_a_list(scene: Scene) -> None:
    """One id gives the thing itself. Of several, what fails is told on stderr, each error one line, and the rest is listed."""
    for name in ("one.several", "two.several"):
        scene.store.create_schedule(schedule_id=name, deployment_id="hello", trigger=EVERY_YEAR)
    words = ["--store", str(scene.root), "-o", "json", "-y", "schedule", "pause", "one.several", "dead", "two.several"]
    said = command_line(*words)
    document = json.loads(said.out)
    assert (document["schema"], document["next_cursor"]) == ("wfctl/schedules.v1", None)
    assert [item["id"] for item in document["items"]] == ["one.several", "two.several"]
    assert [json.loads(line)["code"] for line in said.err.splitlines()] == ["deleted"]
    assert said.status == wfctl.Deleted.exit_status
    items = scene.store.list_schedules(status="paused").to_json()["items"]
    assert [item for item in items if item["id"].endswith(".several")] == document["items"]


def test_6_12_a_run_that_is_followed_gives_its_last_view(scene: Scene) -> None:
    """Without --detach the command waits, and prints the run as every door shows it once it is over."""
    said = command_line("--store", str(scene.root), "-o", "json", "run", "start", "hello", "--input", "a=1")
    document = json.loads(said.out)
    assert (said.status, document["status"], document["output"]) == (0, "completed", {"result": "hello"})
    assert scene.store.inspect_run(run_id=document["run_id"]).to_json() == document


@pytest.mark.parametrize(
    ("words", "status", "code"),
    [
        pytest.param(["schedule", "show", "yearly"], 0, None, id="an answer"),
        pytest.param(["schedule", "show", "qqq"], 66, "not-found", id="an error"),
        pytest.param(["schedule", "show"], 2, "invalid-argument", id="a line that is none"),
        pytest.param(["schedules", "--limit", "ten"], 2, "invalid-argument", id="a number that is none"),
    ],
)
def test_8_5_the_command_itself_answers_on_stdout_and_complains_on_stderr(
    scene: Scene, words: list[str], status: int, code: str | None
) -> None:
    done = wfctl_process(scene.root, *words, "-o", "json", check=False)
    assert done.returncode == status
    if code is None:
        assert json.loads(done.stdout) == scene.store.get_schedule(schedule_id="yearly").to_json()
        assert done.stderr == ""
    else:
        assert done.stdout == ""
        (line,) = done.stderr.splitlines()
        assert list(json.loads(line)) == ["code", "message", "data"]
        assert json.loads(line)["code"] == code


# What only JSON-RPC and the clients refuse --------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ["start_run", "resume_run"])
def test_6_12_who_drives_a_run_is_no_question_for_a_server(scene: Scene, doors: list[Door], operation: str) -> None:
    """`detach` says whether the calling process drives the run itself, so only the Python API has it."""
    params = {"deployment_id": "hello"} if operation == "start_run" else {"run_id": scene.facts["asked"]}
    for door in doors:
        if isinstance(door, RpcDoor):
            answer = door.ask(Question(operation, {**params, "detach": False}))
            assert answer is not None
            assert answer.json["data"]["unknown"] == ["detach"]
            assert answer.number == wfctl.InvalidArgument.rpc_number


# That nothing is left out -------------------------------------------------------------------------------------------------


def said_to_raise(operation: str) -> set[str]:
    """Return the errors that the docstring of an operation names after `Raise`."""
    text = " ".join((getattr(wfctl.Store, operation).__doc__ or "").split())
    sentences = re.findall(r"Raise ([^.]*)", text)
    return {word for sentence in sentences for word in re.findall(r"[A-Z]\w+", sentence) if word in BY_NAME}


@pytest.mark.parametrize("operation", [method.operation for method in METHODS if method.operation not in NOT_ASKED])
def test_9_each_operation_is_asked_for_its_answer_and_for_each_of_its_errors(operation: str) -> None:
    if not hasattr(wfctl.Store, operation):
        pytest.skip(f"this version has no {operation}")
    cases = [each for each in CASES if each.operation == operation]
    assert any(each.error is None and each.words for each in cases), "no case that succeeds, at all doors"
    shown = {each.error.__name__ for each in cases if each.error} | {name for where, name in ELSEWHERE if where == operation}
    assert said_to_raise(operation) <= shown

"""The OpenRPC document: valid, complete, and true of what operations take, answer and raise (contract 9, 9.1, 8.7)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from tests.support.story import World
from wfctl.errors import ERRORS, Blocked, Saturated, WfctlError
from wfctl.operations import deployments, schedules
from wfctl.operations.store import NoDoor, Store, init_store
from wfctl.rpc.framing import MalformedFrame
from wfctl.rpc.messages import InvalidRequest, MethodNotFound, failure, notification
from wfctl.rpc.methods import BY_OPERATION, METHODS, named_params
from wfctl.rpc.schema import openrpc_document
from wfctl.rpc.session import Session
from wfctl.rpc.stdio import StoreDesk
from wfctl.supervisor.desk import DirectDoor

PROJECT = Path(__file__).parents[2]
DATA = PROJECT / "tests" / "data"
OPERATIONS = [method for method in METHODS if method.kind != "notification" and hasattr(Store, method.operation)]
DOCUMENT = openrpc_document()
DESCRIBED: dict[str, dict[str, Any]] = {method["x-operation"]: method for method in DOCUMENT["methods"]}


@cache
def meta_schema() -> Any:
    schemas = json.loads((DATA / "json-schema-tools-meta-schema.json").read_text())
    return jsonschema_rs.Draft7Validator(
        json.loads((DATA / "openrpc-meta-schema.json").read_text()), retriever=lambda uri: schemas
    )


def validator(schema: dict[str, Any]) -> Any:
    """Return what checks values against a schema of the document."""
    return jsonschema_rs.Draft7Validator({"allOf": [schema], "components": DOCUMENT["components"]}, validate_formats=True)


@cache
def result_of(operation: str) -> Any:
    return validator(DESCRIBED[operation]["result"]["schema"])


@cache
def params_of(operation: str) -> Any:
    """Return what checks a whole params object, as a client that knows nothing else would."""
    listed = DESCRIBED[operation]["params"]
    return validator(
        {
            "type": "object",
            "properties": {param["name"]: param["schema"] for param in listed},
            "required": [param["name"] for param in listed if param["required"]],
            "additionalProperties": False,
        }
    )


@cache
def errors_of(operation: str) -> Any:
    listed = [error["$ref"].rpartition("/")[2] for error in DESCRIBED[operation]["errors"]]
    known = [DOCUMENT["components"]["errors"][name] for name in listed]
    pairs = [
        {"code": {"const": error["code"]}, "data": {"properties": {"code": {"const": error["data"]["code"]}}}}
        for error in known
    ]
    schema = {"allOf": [{"$ref": "#/components/schemas/Error"}, {"anyOf": [{"properties": pair} for pair in pairs]}]}
    return validator(schema)


def problems(check: Any, value: Any) -> list[str]:
    return [f"{'/'.join(map(str, error.instance_path))}: {error.message}"[:300] for error in check.iter_errors(value)]


# The document itself ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [None, *(method.name for method in OPERATIONS)])
def test_9_the_document_is_valid_against_the_meta_schema_of_openrpc(method: str | None) -> None:
    assert problems(meta_schema(), openrpc_document(method)) == []


def test_the_meta_schema_is_not_a_rubber_stamp() -> None:
    broken = openrpc_document()
    broken["methods"][0]["params"][0]["schema"] = {"type": "colour"}
    broken["methods"][1]["paramStructure"] = "by-heart"
    assert len(problems(meta_schema(), broken)) >= 1


def test_9_it_has_the_methods_of_the_table_that_dispatches_and_their_parameters() -> None:
    assert [method["name"] for method in DOCUMENT["methods"]] == [method.name for method in OPERATIONS]
    for method in OPERATIONS:
        taken = {param.name for param in named_params(getattr(Store, method.operation), method)}
        described = {param["name"] for param in DESCRIBED[method.operation]["params"]}
        assert taken <= described, method.name
        assert method.operation.startswith("update_") or taken == described, method.name
        assert not described & {"self", "detach", "fields"}
        assert DESCRIBED[method.operation]["paramStructure"] == "by-name"


def test_9_the_fields_that_an_update_takes_are_spelled_out() -> None:
    for operation, fields in (("update_schedule", schedules.FIELDS), ("update_deployment", deployments.FIELDS)):
        described = {param["name"] for param in DESCRIBED[operation]["params"]}
        assert {
            "deployment_id" if name == "deployment" and operation == "update_schedule" else name for name in fields
        } <= described


def test_every_reference_leads_somewhere() -> None:
    for document in (DOCUMENT, openrpc_document("workflow.runs.start")):
        for found in re.findall(r'"\$ref": "#/components/(\w+)/(\w+)"', json.dumps(document)):
            assert found[1] in document["components"][found[0]], found


def test_one_method_alone_brings_only_what_it_needs() -> None:
    document = openrpc_document("workflow.runs.start")
    assert [method["name"] for method in document["methods"]] == ["workflow.runs.start"]
    assert {"Run", "Execution", "Error"} <= set(document["components"]["schemas"]) and "Trigger" not in document["components"][
        "schemas"
    ]
    with pytest.raises(MethodNotFound, match=r"did you mean `workflow\.runs\.start`"):
        openrpc_document("workflow.runs.strat")


def test_8_5_every_document_of_the_command_line_is_described() -> None:
    sources = "".join(path.read_text() for path in (PROJECT / "wfctl").rglob("*.py") if path.name != "documents.py")
    printed = set(re.findall(r'"(wfctl/[a-z-]+\.v\d+)"', sources)) - {"wfctl/event.v1"}  # what a notify command is told
    described = set(re.findall(r'"const": "(wfctl/[a-z-]+\.v\d+)"', json.dumps(DOCUMENT)))
    assert printed <= described, "describe them in wfctl/rpc/documents.py"


def test_9_texts_speak_to_who_calls_over_a_connection() -> None:
    for method in DOCUMENT["methods"]:
        said = f"{method['summary']} {method['description']}"
        assert len(method["summary"]) <= 120 and method["description"].endswith((".", "Transition."))
        assert not re.search(r"contract|detach|iterator|\(\d+\.\d+", said), said


def test_9_the_notification_of_a_watch_is_described() -> None:
    (told,) = DESCRIBED["watch"]["x-notifications"]
    assert told["name"] == "workflow.server.transition" and told["params"] == {"$ref": "#/components/schemas/Transition"}


@pytest.mark.parametrize("operation", [name for name, method in DESCRIBED.items() if "examples" in method])
def test_examples_are_true(operation: str) -> None:
    for example in DESCRIBED[operation]["examples"]:
        params = {param["name"]: param["value"] for param in example["params"]}
        assert problems(params_of(operation), params) == []
        assert problems(result_of(operation), example["result"]["value"]) == []


def test_there_are_examples_of_the_common_changes() -> None:
    shown = {name for name, method in DESCRIBED.items() if "examples" in method}
    assert {"create_schedule", "update_schedule", "pause_schedule", "start_run", "resume_run", "watch"} <= shown


def test_9_the_example_of_a_notification_is_a_whole_frame() -> None:
    (told,) = DESCRIBED["watch"]["x-notifications"]
    check = validator(told["params"])
    for frame in told["examples"]:
        assert frame == notification(told["name"], frame["params"])
        assert problems(check, frame["params"]) == [] and frame["params"]["schema"] == "wfctl/transition.v1"


def test_9_what_holds_where_a_limit_is_not_given_is_said() -> None:
    """A page is of 20 unless another limit is asked for (contract 8.1)."""
    for method in OPERATIONS:
        for param in named_params(getattr(Store, method.operation), method):
            if param.name == "limit":
                (described,) = [each for each in DESCRIBED[method.operation]["params"] if each["name"] == "limit"]
                assert described["schema"].get("default") == param.default, method.name
                assert param.default is not None or "all when absent" in described["description"]


def test_9_no_field_of_an_update_says_that_a_default_comes_where_it_is_absent() -> None:
    for operation, fields in (("update_schedule", schedules.FIELDS), ("update_deployment", deployments.FIELDS)):
        for param in DESCRIBED[operation]["params"]:
            is_field = param["name"] in fields or (operation, param["name"]) == ("update_schedule", "deployment_id")
            assert param["description"].endswith("Absent or null leaves it as it is.") == is_field
            assert "when absent" not in param["description"]


def test_9_1_a_documented_error_promises_no_data_that_does_not_come() -> None:
    for name, error in DOCUMENT["components"]["errors"].items():
        assert list(error["data"]) == ["code"], name


# What really happens ------------------------------------------------------------------------------------------------------


class Teller:
    """Asks as a client that was written from the document alone, and checks the document against what happens."""

    def __init__(self, world: World) -> None:
        self.world = world
        world.step()
        assert world._service is not None
        world.store.door = DirectDoor(world._service)
        self.desk = StoreDesk(world.store)
        self.asked: set[str] = set()
        self.told: list[dict[str, Any]] = []

    def ask(self, operation: str, **params: Any) -> Any:
        assert problems(params_of(operation), params) == [], operation
        result = self.desk.answer(BY_OPERATION[operation].name, params, self.session())
        assert problems(result_of(operation), result) == [], operation
        assert json.loads(json.dumps(result)) == result
        self.asked.add(operation)
        return result

    def refused(self, operation: str, *, is_described: bool = True, **params: Any) -> str:
        """Ask what is refused; return the word of the error. `is_described`: the parameters look right."""
        assert (problems(params_of(operation), params) == []) is is_described, (
            operation,
            problems(params_of(operation), params),
        )
        with pytest.raises(WfctlError) as caught:
            self.desk.answer(BY_OPERATION[operation].name, params, self.session())
        assert problems(errors_of(operation), failure(1, caught.value)["error"]) == [], (operation, caught.value)
        return caught.value.code

    def session(self) -> Session:
        return Session(self.desk.answer)


@pytest.fixture
def teller(tmp_path: Path) -> Iterator[Teller]:
    init_store(tmp_path / "store").close()
    world = World(tmp_path / "store")
    yield Teller(world)
    world.stop()


def test_8_7_whatever_an_operation_answers_is_as_described(teller: Teller) -> None:
    ask = teller.ask
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    ask("create_deployment", deployment_id="d", command=["/bin/true"], input_schema=schema, environment={"A": "b"}, umask="077")
    steps = [
        {"name": "one", "command": ["/bin/true"], "retries": 1},
        {"name": "two", "command": ["/bin/false"], "timeout": "5s"},
    ]
    ask("create_deployment", deployment_id="p", steps=steps, description="two", kill_grace=None)
    ask(
        "update_deployment",
        deployment_id="p",
        expected_revision=1,
        description=None,
        environment_files=[],
        unset=["description"],
    )
    ask("get_deployment", deployment_id="p")
    ask("list_deployments", limit=1, include_deleted=True)
    cron = {"kind": "cron", "expression": "* * * * *", "timezone": "Europe/Budapest"}
    ask("create_schedule", schedule_id="c", deployment_id="d", trigger=cron, input={"n": 1}, max_run="none", lateness="5s")
    every = {"kind": "interval", "every": "1m"}
    ask("create_schedule", schedule_id="i", deployment_id="p", trigger=every, overlap="allow", max_active_runs=2, max_steps=9)
    ask("create_schedule", schedule_id="q", deployment_id="d", trigger=every, overlap="queue", misfire="latest", notes="é")
    once = {"kind": "oneshot", "at": "2027-03-01T12:00:00+01:00"}
    notify = {"command": ["/bin/true"], "after": 2}
    ask("create_schedule", schedule_id="o", deployment_id="d", trigger=once, paused=True, reason="later", notify=notify)
    ask("create_schedule", schedule_id="dry", deployment_id="d", trigger=once, dry_run=True)
    ask(
        "update_schedule",
        schedule_id="i",
        expected_revision=1,
        trigger={"kind": "interval", "every": "30s"},
        notes="n",
        misfire=None,
    )
    ask(
        "update_schedule",
        schedule_id="i",
        expected_revision=2,
        unset=["notes"],
        deployment_id="p",
        lateness="90s",
        max_run="1h",
    )
    play(teller)
    ask("pause_schedule", schedule_id="c", reason="rest")
    ask("resume_schedule", schedule_id="c")
    for name in ("c", "i", "q", "o"):
        ask("get_schedule", schedule_id=name)
        ask("list_revisions", schedule_id=name)
        ask("audit_schedule", schedule_id=name, since="2027-03-01T09:01:00Z")
    ask("list_schedules", status=["active", "paused"], limit=3, include_deleted=False)
    ask("delete_schedule", schedule_id="i")
    ask("list_schedules", include_deleted=True, status="deleted")
    page = ask("list_schedule_occurrences", schedule_id=["c", "q"], limit=2, status=None, since="2027-03-01T00:00:00+01:00")
    ask(
        "list_schedule_occurrences",
        schedule_id=["c", "q"],
        limit=2,
        since="2027-03-01T00:00:00+01:00",
        cursor=page["next_cursor"],
    )
    everything = ask("list_schedule_occurrences", limit=100)
    assert {"completed", "failed", "skipped-misfire"} <= {row["status"] for row in everything["items"]}
    assert any(row["span"] for row in everything["items"])
    for row in everything["items"][:5] + everything["items"][-5:]:
        ask("get_occurrence", schedule_id=row["schedule_id"], instant=row["instant"])
        ask("explain_occurrence", schedule_id=row["schedule_id"], instant=row["instant"])
    ask("explain_occurrence", schedule_id="c", instant="2027-03-09T09:00:00+00:00")
    ask("list_runs", status="completed", limit=100)
    for run in ask("list_runs", limit=100)["items"]:
        ask("inspect_run", run_id=run["run_id"])
    started = ask("start_run", deployment_id="d", input={"n": 3})
    ask("cancel_run", run_id=started["run_id"], reason="enough", grace="1s")
    ask("server_status")
    ask("reload")
    ask("drain")
    ask("drain", undo=True)
    ask("watch", schedule_id="c", status=["failed", "paused"])
    assert {method.operation for method in OPERATIONS} - teller.asked == {"delete_deployment", "resume_run"}  # asked below


def play(teller: Teller) -> None:
    """Let some minutes pass: runs that succeed and fail, a held candidate, a long absence."""
    world = teller.world
    for exit_status in (0, 1, 0):
        world.clock.advance(timedelta(minutes=1))
        world.step()
        world.step()
        world.end(exit_status=exit_status)
        world.step()
    world.clock.advance(timedelta(minutes=1))
    world.step()
    world.clock.advance(timedelta(days=2))
    world.step()


def test_9_1_whatever_an_operation_raises_is_as_described(teller: Teller) -> None:
    refused, ask = teller.refused, teller.ask
    every = {"kind": "interval", "every": "1m"}
    ask("create_deployment", deployment_id="d", command=["/bin/true"])
    ask("create_deployment", deployment_id="gone", command=["/no/such/program"])
    ask("create_schedule", schedule_id="s", deployment_id="d", trigger=every)
    assert refused("create_schedule", schedule_id="s", deployment_id="d", trigger=every) == "exists"
    assert refused("create_schedule", schedule_id="t", deployment_id="nope", trigger=every) == "not-found"
    bad = {"kind": "cron", "expression": "61 * * * *"}
    assert refused("create_schedule", schedule_id="t", deployment_id="d", trigger=bad) == "invalid-definition"
    assert refused("create_schedule", is_described=False, schedule_id="t", deployment_id="d") == "invalid-argument"
    assert refused("create_deployment", deployment_id="d", command=["/bin/true"]) == "exists"
    assert refused("update_schedule", schedule_id="s", expected_revision=7, notes="x") == "revision-conflict"
    assert refused("update_schedule", is_described=False, schedule_id="s", expected_revision=1, noets="x") == "invalid-argument"
    assert refused("delete_deployment", deployment_id="d") == "in-use"
    for operation in ("list_schedule_occurrences", "list_schedules", "list_deployments", "list_runs"):
        assert refused(operation, cursor="bad") == "bad-cursor"
    session = Session(teller.desk.answer)
    teller.desk.answer("workflow.server.watch", {}, session)
    with pytest.raises(WfctlError) as caught:
        teller.desk.answer("workflow.server.watch", {}, session)
    assert problems(errors_of("watch"), failure(1, caught.value)["error"]) == [] and caught.value.code == "wrong-state"
    assert refused("list_runs", is_described=False, limit=101) == "invalid-argument"
    assert refused("list_schedules", is_described=False, status="green") == "invalid-argument"
    assert refused("get_occurrence", schedule_id="s", instant="2027-03-01T00:00:00Z") == "not-found"
    assert refused("inspect_run", run_id="run-000009") == "not-found"
    assert refused("start_run", deployment_id="gone") == "preflight-failed"
    assert refused("resume_run", run_id="run-000009") == "not-found"
    assert refused("watch", schedule_id="nope") == "not-found"
    ask("delete_schedule", schedule_id="s")
    for operation in ("pause_schedule", "resume_schedule"):
        assert refused(operation, schedule_id="s") == "deleted"
    assert ask("delete_deployment", deployment_id="d")["state"] == "deleted"
    assert refused("start_run", deployment_id="d") == "deleted"
    ask("drain")
    ask("create_deployment", deployment_id="e", command=["/bin/true"])
    assert refused("start_run", deployment_id="e") == "draining"
    teller.world.stop()
    teller.world.store.door = NoDoor()
    assert refused("server_status") == "no-supervisor"


@pytest.mark.parametrize("operation", [method.operation for method in OPERATIONS])
def test_7_4_records_that_cannot_be_trusted_are_an_error_of_every_method(operation: str) -> None:
    assert problems(errors_of(operation), failure(1, Blocked("row 1 of runs cannot be trusted"))["error"]) == []
    if operation == "watch":
        assert problems(errors_of(operation), failure(1, Saturated("too many watch"))["error"]) == []


@pytest.mark.parametrize("kind", [*ERRORS, MalformedFrame, InvalidRequest, MethodNotFound], ids=lambda kind: kind.__name__)
def test_9_1_every_error_fits_the_schema_of_errors(kind: type[WfctlError]) -> None:
    check = validator({"$ref": "#/components/schemas/Error"})
    body = failure(1, kind("a message", {"more": 1}))["error"]
    assert problems(check, body) == []
    assert problems(check, {**body, "data": {"code": "no-such-word"}})
    assert problems(check, {**body, "code": -1})


def test_9_what_is_told_of_a_change_is_as_described(teller: Teller) -> None:
    sent: list[dict[str, Any]] = []
    session = Session(teller.desk.answer)
    teller.desk.answer("workflow.server.watch", {}, session)
    teller.ask("create_deployment", deployment_id="d", command=["/bin/true"])
    teller.ask("create_schedule", schedule_id="s", deployment_id="d", trigger={"kind": "interval", "every": "1m"})
    play(teller)
    for _ in range(20):
        teller.desk.look()
    sent = [json.loads(line) for line in b"".join(session.output).splitlines()]
    assert {message["params"]["kind"] for message in sent} == {"occurrence", "run", "schedule"}
    check = validator(DESCRIBED["watch"]["x-notifications"][0]["params"])
    for message in sent:
        assert message == notification("workflow.server.transition", message["params"])
        assert problems(check, message["params"]) == []

"""The Python client over the control socket, a command and ssh: same arguments, results and errors (contract 9, 9.4)."""

from __future__ import annotations

import inspect
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import wfctl
from tests.support.place import Place
from tests.support.processes import clean_environment
from tests.support.rpc_loop import Loop
from tests.support.waiting import wait_for
from wfctl.errors import (
    InvalidArgument,
    InvalidDefinition,
    IoError,
    NoStore,
    NoSupervisor,
    NotFound,
    RevisionConflict,
    TimedOut,
    WfctlError,
)
from wfctl.operations.store import Store, init_store
from wfctl.rpc.methods import METHODS
from wfctl.rpc.pipes import PipeStream
from wfctl.rpc.remote import Client, ssh_command
from wfctl.rpc.stdio import StoreDesk

PROJECT = Path(__file__).parents[2]
EVERY = {"kind": "interval", "every": "1m"}
SERVE = [sys.executable, "-m", "wfctl", "rpc", "serve"]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setenv("PYTHONPATH", str(PROJECT))
    monkeypatch.setenv("WFCTL_STORE", str(tmp_path / "store"))
    with init_store(tmp_path / "store") as made:
        made.create_deployment(deployment_id="d", command=["/bin/true"])
        made.create_schedule(schedule_id="s", deployment_id="d", trigger=EVERY, notes="é\u2028", input={"n": 1.5})
        yield made


@pytest.fixture
def client(store: Store) -> Iterator[Client]:
    """A client over the control socket, served without a supervisor."""
    desk = StoreDesk(store)
    loop = Loop(store.root, desk.answer)
    loop.start()
    with Client(store.root) as made:
        yield made
    loop.close()


@pytest.fixture
def served(store: Store) -> Iterator[Client]:
    """A client over the real command."""
    with Client.over_command(SERVE) as made:
        yield made


def script(folder: Path, name: str, text: str) -> str:
    """Make an executable shell script; return its path."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


# The same as a store ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [each for each in METHODS if each.kind != "notification"], ids=lambda each: each.operation)
def test_9_4_each_operation_takes_the_same_arguments_and_says_the_same_of_its_result(method: Any) -> None:
    if not hasattr(Store, method.operation):
        pytest.skip(f"{method.operation} is no operation of this version")
    theirs, ours = (inspect.signature(getattr(kind, method.operation)) for kind in (Store, Client))
    kept = {
        name: item
        for name, item in theirs.parameters.items()
        if name != "self" and (name not in method.local or name == "timeout")
    }
    assert {name: item for name, item in ours.parameters.items() if name != "self"} == kept
    assert ours.return_annotation == theirs.return_annotation


def test_9_4_results_are_the_same_values(client: Client, store: Store) -> None:
    asked: list[tuple[str, dict[str, Any]]] = [
        ("get_schedule", {"schedule_id": "s"}), ("list_schedules", {"limit": 1}), ("list_revisions", {"schedule_id": "s"}),
        ("list_schedule_occurrences", {"since": datetime(2020, 1, 1, tzinfo=UTC)}), ("get_deployment", {"deployment_id": "d"}),
        ("list_deployments", {}), ("list_runs", {"status": ("completed", "failed")}), ("audit_schedule", {"schedule_id": "s"}),
    ]  # fmt: skip
    for operation, params in asked:
        there, here = getattr(client, operation)(**params), getattr(store, operation)(**params)
        assert there == here, operation
        assert type(there) is type(here)
        assert there.to_json() == here.to_json()
    assert client.get_schedule(schedule_id="s").next_instant.tzinfo is UTC  # type: ignore[union-attr]


def test_9_4_changes_are_made_there_and_return_the_new_view(client: Client, store: Store) -> None:
    at = datetime(2099, 1, 1, 9, tzinfo=UTC)
    made = client.create_schedule(schedule_id="once", deployment_id="d", trigger={"kind": "oneshot", "at": at}, max_run=None)
    assert made.next_instant == at
    changed = client.update_schedule(schedule_id="once", expected_revision=1, unset=("notes",), lateness="5s")
    assert (changed.revision, changed.definition["lateness"]) == (2, "5s")  # type: ignore[index]
    assert client.pause_schedule(schedule_id="once", reason="a rest") == store.get_schedule(schedule_id="once")
    assert client.delete_schedule(schedule_id="once", dry_run=True).state == "deleted"
    assert client.resume_schedule(schedule_id="once").state == "active"
    run = client.start_run(deployment_id="d", input={})
    assert run.kind == "manual"
    wait_for(lambda: client.inspect_run(run_id=run.run_id).status == "completed", "its end")
    assert client.inspect_run(run_id=run.run_id) == store.inspect_run(run_id=run.run_id)


REFUSED: list[Any] = [
    pytest.param(NotFound, "get_schedule", {"schedule_id": "nope"}, id="not found"),
    pytest.param(
        RevisionConflict, "update_schedule", {"schedule_id": "s", "expected_revision": 9, "notes": "x"}, id="conflict"
    ),
    pytest.param(InvalidArgument, "update_schedule", {"schedule_id": "s", "expected_revision": 1, "noets": "x"}, id="no field"),
    pytest.param(InvalidArgument, "list_runs", {"limit": 0}, id="limit"),
    pytest.param(InvalidArgument, "get_occurrence", {"schedule_id": "s", "instant": datetime(2027, 1, 1)}, id="naive"),
    pytest.param(
        InvalidDefinition,
        "create_schedule",
        {"schedule_id": "x", "deployment_id": "d", "trigger": {"kind": "cron", "expression": "61 99 * * *"}},
        id="definition",
    ),
    pytest.param(NoSupervisor, "server_status", {}, id="no supervisor"),
]


@pytest.mark.parametrize(("kind", "operation", "params"), REFUSED)
def test_9_1_errors_are_the_same(client: Client, store: Store, kind: type[WfctlError], operation: str, params: Any) -> None:
    found = []
    for target in (client, store):
        with pytest.raises(kind) as caught:
            getattr(target, operation)(**params)
        found.append(caught.value)
    there, here = found
    assert type(there) is type(here)
    assert (there.code, there.data) == (here.code, here.data)
    assert there.message == here.message or operation == "get_occurrence"  # a naive time is text by then
    assert getattr(there, "problems", None) == getattr(here, "problems", None)


@pytest.mark.parametrize("given", [{"bogus": "s"}, {}, {"schedule_id": "s", "self": 1}])
def test_9_4_a_wrong_name_is_a_type_error_as_it_is_with_a_store(client: Client, store: Store, given: dict[str, Any]) -> None:
    for target in (client, store):
        with pytest.raises(TypeError):
            target.get_schedule(**given)
        with pytest.raises(TypeError):
            target.get_schedule("s")  # type: ignore[misc]


@pytest.mark.parametrize("seconds", [float("inf"), 1e10])
def test_9_4_a_client_may_wait_for_as_long_as_it_takes(served: Client, seconds: float) -> None:
    """However long: the arithmetic of a poll does not overflow."""
    served.timeout = seconds
    assert served.list_runs().items == ()
    with pytest.raises(InvalidArgument, match="a timeout is a number of seconds"):
        served.timeout = None  # type: ignore[assignment]


def test_9_what_json_cannot_say_is_refused_and_not_rewritten(client: Client) -> None:
    """A store refuses a name that is no text; a client must not make text of it, nor fail on what holds itself."""
    itself: dict[str, Any] = {}
    itself["a"] = itself
    for given in ({1: 2}, {"a": [{None: 1}]}, itself):
        with pytest.raises(InvalidArgument, match="cannot be written as JSON"):
            client.start_run(deployment_id="d", input=given)  # type: ignore[arg-type]


def test_2_1_the_command_that_makes_a_missing_store_can_be_pasted(tmp_path: Path) -> None:
    with pytest.raises(NoStore) as caught:
        wfctl.open_store(tmp_path / "a b; echo x")
    assert f"`wfctl --store '{tmp_path}/a b; echo x' init`" in caught.value.message


def test_9_4_where_nobody_serves(tmp_path: Path, store: Store) -> None:
    assert wfctl.Client is Client
    with wfctl.Client(store.root) as client, pytest.raises(NoSupervisor, match="wfctl supervise"):
        client.list_schedules()
    with wfctl.Client(tmp_path / "none") as client, pytest.raises(NoStore):
        client.list_schedules()


def test_several_threads_may_share_a_client(client: Client) -> None:
    names = [f"t{number}" for number in range(20)]
    made: list[str] = []
    threads = [
        threading.Thread(
            target=lambda name=name: made.append(client.create_deployment(deployment_id=name, command=["/bin/true"]).id)
        )
        for name in names
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert sorted(made) == sorted(names)


# A command ----------------------------------------------------------------------------------------------------------------


def child_of(client: Client) -> int:
    stream = client._rpc._stream
    assert isinstance(stream, PipeStream)
    return stream._child.pid


def is_gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def test_9_over_a_command(served: Client, store: Store) -> None:
    assert served.get_schedule(schedule_id="s") == store.get_schedule(schedule_id="s")
    pid = child_of(served)
    assert served.list_schedules() == store.list_schedules()
    assert child_of(served) == pid  # one child for all calls
    with pytest.raises(NoSupervisor):
        served.server_status()
    served.close()
    assert is_gone(pid)
    assert served.list_schedules() == store.list_schedules()  # it begins anew


def test_9_watch_over_a_command_has_a_connection_of_its_own(served: Client, store: Store) -> None:
    with served.watch(schedule_id="s", timeout=20) as changes:
        served.pause_schedule(schedule_id="s")
        told = next(iter(changes))
    assert (told.kind, told.schedule_id, told.to) == ("schedule", "s", "paused")


def test_a_child_that_is_killed_while_idle_is_no_news_even_to_a_change(served: Client) -> None:
    served.list_schedules()
    pid = child_of(served)
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z", "its end")
    assert served.pause_schedule(schedule_id="s").state == "paused"


#: Answers the greeting, then does what is asked of it; counts how often it was begun.
GREETS = 'echo x >> "$COUNT"; read -r greeting; echo \'{"jsonrpc":"2.0","id":0,"result":null}\''


@pytest.fixture
def count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    path = tmp_path / "count"
    monkeypatch.setenv("COUNT", str(path))
    return lambda: len(path.read_text().splitlines()) if path.exists() else 0


def test_9_a_change_that_was_lost_is_never_made_twice(tmp_path: Path, count: Callable[[], int]) -> None:
    dies = script(tmp_path, "dies", f"{GREETS}; read -r asked; echo 'the cat pulled the plug' >&2; exit 3")
    with Client.over_command([dies]) as client, pytest.raises(IoError) as caught:
        client.pause_schedule(schedule_id="s")
    assert caught.value.data["outcome"] == "unknown"
    assert "exit status 3; the cat pulled the plug" in caught.value.message
    assert count() == 1


def test_9_a_read_that_was_lost_is_asked_once_more(tmp_path: Path, store: Store, count: Callable[[], int]) -> None:
    serve = " ".join(SERVE)
    heals = script(tmp_path, "heals", f'if [ -s "$COUNT" ]; then exec {serve}; fi; {GREETS}; read -r asked; exit 3')
    with Client.over_command([heals]) as client:
        assert client.get_schedule(schedule_id="s").id == "s"
    dies = script(tmp_path, "dies", f"{GREETS}; read -r asked; exit 3")
    with Client.over_command([dies]) as client, pytest.raises(IoError, match="exit status 3") as caught:
        client.get_schedule(schedule_id="s")
    assert "outcome" not in caught.value.data
    assert count() == 3


def test_9_a_call_ends_in_time_and_its_child_with_it(tmp_path: Path, count: Callable[[], int]) -> None:
    hangs = script(tmp_path, "hangs", f'{GREETS}; trap "" TERM HUP; echo $$ > "$COUNT.pid"; while :; do sleep 0.1; done')
    with Client.over_command([hangs], timeout=1.0) as client:
        began = time.monotonic()
        with pytest.raises(TimedOut, match="may still be done") as caught:
            client.pause_schedule(schedule_id="s")
        assert caught.value.data["outcome"] == "unknown"
        assert time.monotonic() - began < 6.0  # TERM is ignored, KILL is not
        assert is_gone(int((tmp_path / "count.pid").read_text()))
        assert count() == 1


@pytest.mark.parametrize(
    ("text", "status", "said"),
    [
        pytest.param(
            "echo 'sh: 1: wfctl: not found' >&2; exit 127", 127, "wfctl: not found; is wfctl installed", id="not installed"
        ),
        pytest.param(
            "echo 'ssh: connect to host x port 22: Connection refused' >&2; exit 255", 255, "Connection refused", id="ssh"
        ),
        pytest.param("kill -9 $$", -9, "signal 9", id="killed"),
        pytest.param("exec >&-; sleep 9", None, "closed its stdout", id="it closed its stdout"),
    ],
)
def test_a_command_that_does_not_serve_was_asked_nothing(tmp_path: Path, text: str, status: int | None, said: str) -> None:
    with Client.over_command([script(tmp_path, "no", text)]) as client, pytest.raises(IoError) as caught:
        client.pause_schedule(schedule_id="s")
    assert said in caught.value.message
    assert (caught.value.data["outcome"], caught.value.data["exit_status"]) == ("not-done", status)


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    with Client.over_command([str(tmp_path / "none")]) as client, pytest.raises(IoError, match="cannot be started"):
        client.list_runs()
    for argv in ("wfctl rpc serve", [], [""]):
        with pytest.raises(InvalidArgument):
            Client.over_command(argv)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("echo Welcome to box; sleep 9", "wrote 'Welcome to box', which is no frame", id="a greeting of its own"),
        pytest.param("exec cat", "does not speak JSON-RPC 2.0", id="an echo"),
    ],
)
def test_what_speaks_otherwise_is_told_apart_from_what_broke(tmp_path: Path, text: str, said: str) -> None:
    with Client.over_command([script(tmp_path, "other", text)]) as client, pytest.raises(IoError, match=said):
        client.list_runs()


def test_a_command_that_finds_no_store_says_so_as_the_operation_would(tmp_path: Path, store: Store) -> None:
    with Client.over_command([*SERVE, "--store", str(tmp_path / "none")]) as client, pytest.raises(NoStore, match="init"):
        client.list_runs()


def test_large_frames_both_ways_and_a_talkative_stderr_do_not_hold_each_other_up(tmp_path: Path) -> None:
    program = tmp_path / "talks.py"
    program.write_text(
        "import json, sys\n"
        "for line in sys.stdin:\n"
        "    asked = json.loads(line)\n"
        "    for _ in range(200):\n"
        "        sys.stderr.write('x' * 4999 + '\\n')\n"
        "    found = {'schema': 'wfctl/runs.v1', 'items': [], 'next_cursor': 'é' * 450000}\n"
        "    print(json.dumps({'jsonrpc': '2.0', 'id': asked['id'], 'result': found}, ensure_ascii=False), flush=True)\n"
    )
    with Client.over_command([sys.executable, str(program)], timeout=20.0) as client:
        for _ in range(3):
            page = client.list_runs(cursor="y" * 1_000_000)
            assert page.next_cursor == "é" * 450_000
        stream = client._rpc._stream
        assert isinstance(stream, PipeStream)
        assert [len(each) for each in stream.tail()] == [300]


def test_who_sends_and_is_not_read_gives_up_in_time(tmp_path: Path, count: Callable[[], int]) -> None:
    deaf = script(tmp_path, "deaf", f"{GREETS}; sleep 30")
    with Client.over_command([deaf], timeout=1.0) as client, pytest.raises(TimedOut):
        client.list_runs(cursor="y" * 1_000_000)


# ssh ----------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An ssh on the PATH that notes its arguments and hands the command line to a shell, as sshd does."""
    folder = tmp_path / "bin"
    folder.mkdir()
    script(folder, "wfctl", f'exec {sys.executable} -m wfctl "$@"')
    script(folder, "ssh", f'printf "%s\\n" "$@" > {tmp_path}/argv\nfor last; do :; done\nexec sh -c "$last"')
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return tmp_path / "argv"


def test_9_over_ssh(ssh: Path, store: Store) -> None:
    with Client.over_ssh("ops@box.example") as client:
        assert client.list_schedules() == store.list_schedules()
    assert ssh.read_text().splitlines() == ["-T", "-o", "BatchMode=yes", "--", "ops@box.example", "wfctl rpc serve"]


@pytest.mark.parametrize("name", ["a b", "it's", 'say "$HOME" `id`; exit 1', "-dash", "ünï\\code*?", "~"])
def test_9_the_path_of_a_store_survives_the_shell_over_there(ssh: Path, tmp_path: Path, name: str) -> None:
    root = tmp_path / "stores" / name
    root.parent.mkdir()
    init_store(root).close()
    with Client.over_ssh("box", store=root) as client:
        made = client.create_deployment(deployment_id="here", command=["/bin/true"])
    with wfctl.open_store(root) as opened:
        assert opened.get_deployment(deployment_id="here") == made


@pytest.mark.parametrize("host", ["-oProxyCommand=touch /tmp/x", "", "a b", "a\nb", "\0", None])
def test_9_what_is_no_host_is_refused(host: Any) -> None:
    with pytest.raises(InvalidArgument, match="is no host"):
        Client.over_ssh(host)


def test_9_the_command_of_ssh() -> None:
    command = ssh_command("box", "/srv/a b", ["ssh", "-p", "2222"])
    assert command == ["ssh", "-p", "2222", "-T", "-o", "BatchMode=yes", "--", "box", "wfctl --store '/srv/a b' rpc serve"]
    with pytest.raises(InvalidArgument, match="NUL"):
        ssh_command("box", "/srv/\0")


# A real supervisor --------------------------------------------------------------------------------------------------------


def test_9_the_supervisor_dies_in_the_middle_of_a_call(tmp_path: Path) -> None:
    with Place(tmp_path) as place:
        place.job("true")
        first = place.supervisor()
        with Client(place.root) as client:
            assert client.server_status().pid == first.process.pid
            refused = in_the_middle(first.process, lambda: client.delete_deployment(deployment_id="d"))
            assert isinstance(refused, IoError)
            assert refused.data["outcome"] == "unknown"
            with pytest.raises(NoSupervisor):
                client.server_status()
            second = place.supervisor()
            assert client.server_status().pid == second.process.pid  # it connects anew by itself
            refused = in_the_middle(second.process, client.list_deployments)
            assert isinstance(refused, (NoSupervisor, IoError))  # a read was asked again, and nobody was there any more
            assert "outcome" not in refused.data
            third = place.supervisor()
            assert client.list_deployments() == place.store.list_deployments()
            assert third.stop() == 0


def in_the_middle(process: subprocess.Popen[bytes], call: Callable[[], Any]) -> Any:
    """Kill a process while it has a call to answer; return what the call raised."""
    raised: list[WfctlError] = []

    def ask() -> None:
        try:
            call()
        except WfctlError as error:
            raised.append(error)

    process.send_signal(signal.SIGSTOP)
    wait_for(lambda: Path(f"/proc/{process.pid}/stat").read_text().split()[2] == "T", "its stop")
    asking = threading.Thread(target=ask)
    asking.start()
    wait_for(lambda: is_waiting(asking), "the question")
    process.kill()
    process.wait(10)
    asking.join(20)
    assert not asking.is_alive()
    return raised[0] if raised else None


def is_waiting(thread: threading.Thread) -> bool:
    """Whether a thread sleeps in the kernel, as it does once it has sent its question."""
    frame = sys._current_frames().get(thread.ident or 0)
    names = []
    while frame is not None:
        names.append(frame.f_code.co_name)
        frame = frame.f_back
    return "receive" in names


def test_9_4_users_of_mypy_see_the_types(tmp_path: Path) -> None:
    pytest.importorskip("mypy", reason="mypy is not installed")
    program = tmp_path / "uses.py"
    program.write_text(
        "from wfctl import Client\n"
        "client = Client('/x')\n"
        "reveal_type(client.list_schedules(limit=3).items[0].state)\n"
        "client.get_schedule(schedule_id=3)\n"
        "client.get_schedule(bogus='x')\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), str(program)],
        capture_output=True, text=True, check=False, env=clean_environment(MYPYPATH=str(PROJECT)), cwd=tmp_path,
    )  # fmt: skip
    assert 'Revealed type is "str"' in done.stdout or 'Revealed type is "builtins.str"' in done.stdout, done
    assert 'incompatible type "int"; expected "str"' in done.stdout
    assert 'Unexpected keyword argument "bogus"' in done.stdout

"""Paths, the choice of the store, and where one may stand (contract 2, 2.1, 2.7)."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wfctl import init_store, open_store
from wfctl.core.model import run_name, run_number
from wfctl.errors import CannotCreate, InvalidArgument, NoStore, NotAllowed
from wfctl.store import place
from wfctl.store.disk import Disk
from wfctl.store.layout import Layout, find_place, find_store
from wfctl.store.place import check_place, filesystem_type, is_network_filesystem, make_store, open_place

MOUNTS = """\
22 1 254:0 / / rw shared:1 - ext4 /dev/vda rw
23 22 0:40 / /mnt/team\\040share rw - nfs4 host:/x rw
24 22 0:41 / /mnt/key rw - fuse.sshfs me@host: rw
25 22 0:42 / /mnt rw - xfs /dev/vdb rw
26 25 0:43 / /mnt/key/local rw - btrfs /dev/vdc rw
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    return tmp_path


def make(root: Path) -> Path:
    make_store(root, Disk())
    (root / "ledger.db").touch()
    return root


@pytest.mark.parametrize(
    ("number", "text"),
    [
        pytest.param(1, "run-000001", id="the first run"),
        pytest.param(999_999, "run-999999", id="six digits"),
        pytest.param(1_000_000, "run-1000000", id="more than six digits"),
    ],
)
def test_run_ids_round_trip(number: int, text: str) -> None:
    assert run_name(number) == text  # contract 6.1
    assert run_number(text) == number


@pytest.mark.parametrize(
    "text",
    [
        "run-000000",
        "run-1",
        "run-0000001",
        "run-00000a",
        "../run-000001",
        "run-000001\n",
        "",
        "run-\u0660\u0660\u0660\u0660\u0660\u0661",
    ],
)
def test_other_texts_are_no_run_ids(text: str) -> None:
    assert run_number(text) is None


def test_every_path_of_the_store_has_the_name_of_the_contract() -> None:
    layout = Layout(Path("/s"))
    run = layout.run("run-000007")
    assert str(layout.definition("schedule", "nightly")) == "/s/schedules/nightly.toml"
    assert str(layout.definition("deployment", "report.default")) == "/s/deployments/report.default.toml"
    assert [str(layout.keeper_socket(1)), str(layout.keeper_lock(1))] == ["/s/keeper.1.sock", "/s/keeper.1.lock"]
    assert str(run.input) == "/s/runs/run-000007/input.json"
    assert str(run.execution(2).output) == "/s/runs/run-000007/2/output"


@pytest.mark.parametrize(
    ("flag", "environ", "is_root", "expected"),
    [
        pytest.param("/f", {"WFCTL_STORE": "/e"}, False, "/f", id="the flag wins"),
        pytest.param(None, {"WFCTL_STORE": "/e", "STATE_DIRECTORY": "/d"}, False, "/e", id="then WFCTL_STORE"),
        pytest.param(
            None, {"STATE_DIRECTORY": "/d:/d2"}, True, "/d", id="then systemd's state directory, the first of several"
        ),
        pytest.param(None, {"HOME": "/root"}, True, "/var/lib/wfctl", id="then the system's place for root"),
        pytest.param(None, {"XDG_STATE_HOME": "/x", "HOME": "/h"}, False, "/x/wfctl", id="then the state home"),
        pytest.param(
            None, {"XDG_STATE_HOME": "x", "HOME": "/h"}, False, "/h/.local/state/wfctl", id="a relative state home is ignored"
        ),
        pytest.param(None, {"WFCTL_STORE": "", "HOME": "/h"}, False, "/h/.local/state/wfctl", id="an empty variable is unset"),
    ],
)
def test_the_store_is_found_in_this_order(flag: str | None, environ: dict[str, str], is_root: bool, expected: str) -> None:
    assert find_store(flag, environ, is_root=is_root) == Path(expected)  # contract 2.1


@given(st.lists(st.sampled_from(["a", "..", ".", "", "b c", "\udce9"]), min_size=1, max_size=6), st.booleans())
def test_a_path_is_read_as_everywhere(parts: list[str], is_absolute: bool) -> None:
    text = ("/" if is_absolute else "") + "/".join(parts)
    if text and not text.startswith("//"):  # two of them first are another root, where there is one
        assert find_place(text, {}) == str(find_store(text, {})) == str(Path.cwd() / text)


def test_a_store_cannot_be_found_without_a_home_or_with_an_empty_flag() -> None:
    with pytest.raises(InvalidArgument):
        find_store(None, {}, is_root=False)
    with pytest.raises(InvalidArgument):
        find_store("", {"HOME": "/h"}, is_root=False)


def test_init_makes_everything_for_the_owner_alone_whatever_the_umask(home: Path) -> None:
    before = os.umask(0o777)
    try:
        assert make_store(home / "a" / "store", Disk())
    finally:
        os.umask(before)
    made = [home / "a", home / "a/store", *Layout(home / "a/store").directories()]
    assert {stat.S_IMODE(path.stat().st_mode) for path in made} == {0o700}  # contract 2.9


def test_init_can_be_repeated_until_the_ledger_is_there(home: Path) -> None:
    assert make_store(home / "s", Disk())
    assert make_store(home / "s", Disk())
    (home / "s/ledger.db").touch()
    assert make_store(home / "s", Disk(), if_absent=True) is False
    with pytest.raises(CannotCreate, match="--if-absent"):
        make_store(home / "s", Disk())


def test_init_refuses_a_directory_in_use_for_something_else(home: Path) -> None:
    (home / "photos").mkdir(0o700)
    (home / "photos/cat.jpg").touch()
    with pytest.raises(CannotCreate, match=r"cat\.jpg"):
        make_store(home / "photos", Disk())
    assert [path.name for path in (home / "photos").iterdir()] == ["cat.jpg"]


def test_a_missing_store_names_init_and_nothing_is_made(home: Path) -> None:
    with pytest.raises(NoStore, match=r"wfctl --store .* init"):
        open_place(home / "nowhere")
    with pytest.raises(NoStore):
        open_place(home)
    assert list(home.iterdir()) == []


def test_a_store_is_opened_by_its_real_path(home: Path) -> None:
    make(home / "s")
    (home / "link").symlink_to("s")
    assert open_place(home / "link").root == (home / "s").resolve()


@pytest.mark.parametrize("name", ["a b", "100%", "a?mode=ro", "a#b", "%41", "ünï", "\udce9", "a;b&c='", "a\\b"])
def test_a_store_may_have_any_name(home: Path, name: str) -> None:
    init_store(home / name / "s").close()
    with open_store(os.fspath(home / name / "s")) as store:
        assert store.root == home / name / "s"
        assert store.list_schedules().items == ()
    assert sorted(path.name for path in (home / name).iterdir()) == ["s"]


def test_a_store_inside_another_is_refused(home: Path) -> None:
    make(home / "outer")
    with pytest.raises(NotAllowed, match="inside the store"):  # contract 2.7
        make_store(home / "outer/runs/inner", Disk())


def test_a_store_that_others_may_write_is_refused(home: Path) -> None:
    make(home / "s").chmod(0o770)
    with pytest.raises(NotAllowed, match="chmod 700"):
        open_place(home / "s")


def test_a_store_of_another_user_is_refused(home: Path) -> None:
    make(home / "s")
    with pytest.raises(NotAllowed, match="belongs to"):
        check_place(home / "s", uid=os.geteuid() + 4321)


@pytest.mark.parametrize(
    ("mode", "is_refused"),
    [
        pytest.param(0o777, True, id="writable by everybody"),
        pytest.param(0o1777, False, id="writable by everybody, with the sticky bit"),
        pytest.param(0o755, False, id="readable only"),
    ],
)
def test_a_directory_above_that_others_may_write_is_refused(home: Path, mode: int, is_refused: bool) -> None:
    (home / "up").mkdir()
    make(home / "up/s")
    (home / "up").chmod(mode)
    if is_refused:
        with pytest.raises(NotAllowed, match="chmod go-w"):  # contract 2.7
            open_place(home / "up/s")
    else:
        open_place(home / "up/s")


def test_a_link_in_a_directory_that_others_may_write_is_refused(home: Path) -> None:
    make(home / "s")
    (home / "open").mkdir()
    (home / "open").chmod(0o777)
    (home / "open/link").symlink_to(home / "s")
    open_place(home / "s")
    with pytest.raises(NotAllowed, match="above the store"):
        open_place(home / "open/link")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        pytest.param("/srv/s", "ext4", id="the root"),
        pytest.param("/mnt/team share/s", "nfs4", id="a mount point with a blank"),
        pytest.param("/mnt/team", "xfs", id="whole names only"),
        pytest.param("/mnt/key/s", "fuse.sshfs", id="the deepest mount wins, whatever the order"),
        pytest.param("/mnt/key/local/s", "btrfs", id="a local mount below a remote one"),
    ],
)
def test_the_filesystem_of_a_path_is_that_of_its_mount(path: str, expected: str) -> None:
    assert filesystem_type(Path(path), MOUNTS) == expected


def test_network_filesystems_are_refused(home: Path) -> None:
    make(home / "s")
    with pytest.raises(NotAllowed, match="network filesystem"):  # contract 2.7
        check_place(home / "s", filesystem_of=lambda path: "nfs4")
    check_place(home / "s", filesystem_of=lambda path: "tmpfs")
    assert is_network_filesystem("fuse.sshfs")
    assert not is_network_filesystem("fuseblk")
    assert not is_network_filesystem("fuse.mergerfs")


def test_this_machines_own_mounts_can_be_read(tmp_path: Path) -> None:
    assert filesystem_type(tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root changes its user")
def test_root_becomes_the_owner_of_the_store_for_good(home: Path) -> None:
    make(home / "s")
    os.chown(home / "s", 4321, 4321)
    child = os.fork()
    if child == 0:
        place.assume_owner(home / "s", program=())
        good = os.getresuid() == (4321,) * 3 and os.getresgid() == (4321,) * 3 and os.getgroups() == [4321]
        os._exit(0 if good else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0  # contract 2.7

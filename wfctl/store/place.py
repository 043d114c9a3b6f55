"""Where a store may stand, who works in it, and making one (contract 2.1, 2.7, 2.9)."""

from __future__ import annotations

import os
import pwd
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from wfctl.errors import CannotCreate, DamagedStore, NoStore, NotAllowed, WfctlError
from wfctl.store.disk import DIRECTORY_MODE, Disk, is_temporary
from wfctl.store.layout import Layout

if TYPE_CHECKING:
    from pathlib import Path

NETWORK_FILESYSTEMS = frozenset(
    {
        "9p",
        "acfs",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "coda",
        "gfs2",
        "glusterfs",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "ocfs2",
    }
    | {"orangefs", "panfs", "pvfs2", "smb3", "smbfs"}
)  #: their locks are not the kernel's own, and SQLite's write-ahead log needs memory that all its users share
_NETWORK_FUSE = (
    "ceph",
    "curlftpfs",
    "davfs",
    "gcsfuse",
    "gluster",
    "goofys",
    "juicefs",
    "mfs",
    "nfs",
    "rclone",
    "s3",
    "smb",
    "sshfs",
)


_FILES = {"wfctl.toml", "ledger.db", "ledger.db-wal", "ledger.db-shm", "scheduler.lock"}


def open_place(root: Path | str) -> Layout:
    """Given the path of a store, check where it stands and return its layout, links in the path resolved.

    Raise NoStore where there is none, naming `wfctl init`; NotAllowed where contract 2.7 refuses it.
    """
    try:
        real = os.path.realpath(root, strict=True)
    except FileNotFoundError:
        raise _no_store(root) from None
    except OSError as error:
        raise NotAllowed(f"cannot reach the store {root}: {error.strerror or error}") from error
    refuse_half_restored(real)
    if os.access(real, os.X_OK) and not is_store(real):
        raise _no_store(root)
    check_place(root)
    return Layout(real)


def refuse_half_restored(root: Path | str) -> None:
    """Raise DamagedStore for a store that a backup was only partly put back into: nothing but that may use it."""
    if os.path.lexists(Layout(root).path_of("restoring")):
        said = "a backup was being put back and that was cut short; run `wfctl store restore FILE` again, which finishes it"
        raise DamagedStore(f"{root}: {said}", {"path": str(root)})


def make_store(root: Path, disk: Disk, *, if_absent: bool = False) -> bool:
    """Make the directories of a store. Return False when a store is there already and `if_absent` allows that.

    The ledger is the caller's to make; only with it the directory is a store, so that a crash in between can be repeated.
    Raise CannotCreate for a store that is there, a directory in use for something else, or a refusal of the system, and
    NotAllowed for a place that contract 2.7 refuses.
    """
    refuse_half_restored(root)
    if is_store(root):
        check_place(root)
        if if_absent:
            return False
        raise CannotCreate(f"{root} is a store already; `wfctl init --if-absent` accepts that", {"add": ["--if-absent"]})
    _require_unused(root)
    check_place(root)
    try:
        for missing in reversed([parent for parent in root.parents if not parent.exists()]):
            disk.make_directory(missing)
        disk.make_directory(root)
        if stat.S_IMODE(root.stat().st_mode) != DIRECTORY_MODE:
            root.chmod(DIRECTORY_MODE)
        for directory in Layout(root.resolve()).directories():
            disk.make_directory(directory)
    except (OSError, WfctlError) as error:
        raise CannotCreate(f"cannot make the store {root}: {error}") from error
    return True


def assume_owner(root: Path | str, *, program: Sequence[str] = (os.__file__, __file__, sys.executable)) -> None:
    """When root works in another user's store, take that user's groups and ids for good (contract 2.7).

    To be called before anything of the store is opened. Without effect for anybody else, and where there is no store. Raise
    NotAllowed where that user cannot read `program`, which is loaded and started later.
    """
    if os.geteuid() != 0:
        return
    try:
        owner = os.stat(root)  # noqa: PTH116
    except OSError:
        return
    if owner.st_uid == 0:
        return
    try:
        entry = pwd.getpwuid(owner.st_uid)
        group, groups, home = entry.pw_gid, os.getgrouplist(entry.pw_name, entry.pw_gid), entry.pw_dir
    except KeyError:  # an id without a name, as in containers
        group, groups, home = owner.st_gid, [owner.st_gid], "/"
    os.setgroups(groups)
    os.setgid(group)
    os.seteuid(owner.st_uid)
    unreadable = [path for path in program if not os.access(path, os.R_OK, effective_ids=True)]
    os.seteuid(0)
    if unreadable:  # what is imported later, and the keeper, would fail in the middle of something
        said = f"{root} belongs to {_user(owner.st_uid)}, who may not read {unreadable[0]}"
        raise NotAllowed(f"{said}; install wfctl where that user can read it")
    os.setuid(owner.st_uid)
    os.environ["HOME"] = home  # root's own settings are none of this user's
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        os.environ.pop(name, None)


def check_place(root: Path | str, *, filesystem_of: Callable[[str], str] | None = None, uid: int | None = None) -> None:
    """Given the path of a store, or of one to be made, raise NotAllowed where contract 2.7 refuses the place."""
    real = os.path.realpath(root)
    owner = _check_own(real, os.geteuid() if uid is None else uid)
    for directory in _above(root, real):
        _check_above(directory, owner)
    for directory in _parents(real):
        if is_store(directory):
            raise NotAllowed(f"{real} lies inside the store {directory}; choose a place outside it")
    filesystem = (filesystem_of or filesystem_type)(real)
    if is_network_filesystem(filesystem):
        raise NotAllowed(
            f"{real} is on a network filesystem ({filesystem}), whose locks cannot be trusted; choose a local directory",
            {"filesystem": filesystem},
        )


def is_network_filesystem(name: str) -> bool:
    """Given the type of a filesystem as the kernel names it, return whether other machines may write it."""
    if name.startswith("fuse"):
        return name.partition(".")[2].startswith(_NETWORK_FUSE)
    return name in NETWORK_FILESYSTEMS


def filesystem_type(path: Path | str, mounts: str | None = None) -> str:
    """Given a path, return the type of the filesystem it is on, such as `ext4` or `fuse.sshfs`; empty when unknown.

    `mounts` is the text of /proc/self/mountinfo, which is read when it is not given.
    """
    if mounts is None:
        try:
            with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
                mounts = file.read()
        except OSError:
            return ""
    whole = f"{path}/"
    found, depth = "", -1
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        fields = left.split(" ")
        if len(fields) < 5 or not right:
            continue
        point = _unescape(fields[4]).rstrip("/") + "/"
        if len(point) >= depth and whole.startswith(point):  # a later mount of one point covers the earlier
            found, depth = right.split(" ")[0], len(point)
    return found


def _unescape(field: str) -> str:
    if "\\" not in field:
        return field
    for escaped, plain in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        field = field.replace(escaped, plain)
    return field


def _no_store(root: Path | str) -> NoStore:
    import shlex

    quoted = shlex.quote(str(root))
    return NoStore(
        f"there is no store at {root}; make one with `wfctl --store {quoted} init`, or name another with --store",
        {"path": str(root)},
    )


def is_store(directory: Path | str) -> bool:
    """Tell whether a directory is a store: it has a ledger, and definitions."""
    return os.path.isfile(f"{directory}/ledger.db") and os.path.isdir(f"{directory}/schedules")  # noqa: PTH112, PTH113


def _require_unused(root: Path) -> None:
    known = {entry.name for entry in Layout(root).directories()} | _FILES
    try:
        foreign = sorted(entry.name for entry in root.iterdir() if entry.name not in known and not is_temporary(entry.name))
    except FileNotFoundError:
        return
    except OSError as error:
        raise CannotCreate(f"cannot make the store {root}: {error.strerror}") from error
    if foreign:
        raise CannotCreate(f"{root} is not empty: it holds {foreign[0]!r}, which is not a store's; choose a new directory")


def _above(root: Path | str, real: str) -> list[str]:
    """The directories through which the store is reached, as named and as links resolve them, the outer ones first."""
    return sorted({*_parents(os.path.normpath(root)), *_parents(real)}, key=lambda path: path.split("/"))


def _parents(path: str) -> Iterator[str]:
    """Give the directories above a path, the nearest first."""
    while path not in ("/", "//", ".", ""):
        path = os.path.dirname(path) or "."  # noqa: PTH120
        yield path


def _check_own(real: str, me: int) -> int:
    """Return who owns the store, or is to. Raise NotAllowed."""
    try:
        status = os.stat(real)  # noqa: PTH116
    except FileNotFoundError:
        return me
    except OSError as error:
        raise NotAllowed(f"cannot look at {real}: {error.strerror}") from error
    if not stat.S_ISDIR(status.st_mode):
        raise NotAllowed(f"{real} is no directory; name the directory of a store with --store")
    if status.st_uid != me:
        raise NotAllowed(
            f"{real} belongs to {_user(status.st_uid)}, not to {_user(me)}; run this as {_user(status.st_uid)}, as with "
            f"`sudo -u {_user(status.st_uid)}`",
            {"owner": status.st_uid},
        )
    if status.st_mode & 0o022:
        raise NotAllowed(
            f"others than its owner may write {real} (mode {stat.S_IMODE(status.st_mode):04o}); run `chmod 700 {real}`"
        )
    return status.st_uid


def _check_above(directory: str, owner: int) -> None:
    try:
        status = os.stat(directory)  # noqa: PTH116
    except OSError:
        return  # not there yet: `init` makes it for us alone
    if status.st_uid not in (0, owner):
        raise NotAllowed(
            f"{directory}, above the store, belongs to {_user(status.st_uid)}, who could replace the store; "
            "choose a place below directories of root or of the store's owner"
        )
    if status.st_mode & stat.S_ISVTX:
        return
    if status.st_mode & stat.S_IWOTH or (status.st_mode & stat.S_IWGRP and not _is_private_group(status.st_gid, owner)):
        raise NotAllowed(
            f"others may write {directory}, above the store, and so replace the store; run `chmod go-w {directory}`, "
            "or choose another place"
        )


def _is_private_group(gid: int, owner: int) -> bool:
    """Whether nobody but root and the owner is in the group: root's own, or the group of the owner's name."""
    import grp

    try:
        group = grp.getgrgid(gid)
        name = pwd.getpwuid(owner).pw_name
    except KeyError:
        return False
    is_named_so = gid == 0 or (group.gr_name == name and pwd.getpwuid(owner).pw_gid == gid)
    return is_named_so and set(group.gr_mem) <= {"root", name}


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"

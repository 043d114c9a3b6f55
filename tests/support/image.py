"""A small file system of its own whose power can be cut: what was not synced by then is gone."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType

from tests.support.processes import wait_for
from wfctl.linux import living_pids, process_stat

_TOOLS = ("mkfs.ext4", "mount", "umount", "xfs_io")
_PLACE = Path("/var/tmp")  # on a disk: a loop device over a tmpfs shows nothing that a disk would
_SIZE = 96 * 1024 * 1024


def why_not() -> str | None:
    """Return why no file system can be made and cut here, or None where it can."""
    if os.geteuid() != 0:
        return "only root can mount a file system"
    missing = [tool for tool in _TOOLS if _tool(tool) is None]
    if missing:
        return f"{', '.join(missing)} missing (Debian: apt-get install xfsprogs e2fsprogs mount)"
    try:
        with Image() as image:
            (image.root / "synced").touch()
            image.cut()
            with contextlib.suppress(OSError):
                (image.root / "late").touch()
                return "xfs_io shutdown does not stop this kernel's ext4"
            image.restore()
    except (OSError, subprocess.SubprocessError) as error:
        return f"no ext4 image can be mounted here: {error}"
    return None


class Image:
    """An ext4 file system in a file, mounted at `root`. A context manager, which takes all of it away."""

    def __enter__(self) -> Image:
        self._folder = Path(tempfile.mkdtemp(prefix="wfctl-power-", dir=_PLACE))
        self._file = self._folder / "image"
        self.root = self._folder / "store"
        self.root.mkdir()
        try:
            with self._file.open("wb") as file:
                file.truncate(_SIZE)
            _run("mkfs.ext4", "-q", "-F", str(self._file))
            self._mount()
            (self.root / "lost+found").rmdir()
        except BaseException:
            self._remove()
            raise
        return self

    def cut(self) -> None:
        """Let everything that is not on the disk by now be lost; all that follows fails until `restore`."""
        _run("xfs_io", "-x", "-c", "shutdown", str(self.root))

    def restore(self) -> None:
        """Mount it again, as after the machine is back: nobody who used it lives."""
        end_users_of(self.root)
        wait_for(self._unmount, what=f"unmounting {self.root}")
        self._mount()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        end_users_of(self.root)
        self._remove()

    def _mount(self) -> None:
        _run("mount", "-o", "loop", str(self._file), str(self.root))

    def _unmount(self) -> bool:
        tool = _tool("umount")
        assert tool is not None
        return subprocess.run([tool, str(self.root)], capture_output=True, check=False).returncode == 0

    def _remove(self) -> None:
        with contextlib.suppress(AssertionError):
            wait_for(lambda: not os.path.ismount(self.root) or self._unmount(), timeout_s=10, what="unmounting")
        if os.path.ismount(self.root):
            subprocess.run(["umount", "-l", str(self.root)], capture_output=True, check=False)
        shutil.rmtree(self._folder, ignore_errors=True)


def end_users_of(root: Path) -> None:
    """SIGKILL the processes of a store and its jobs, and wait until they are gone."""

    def users() -> list[int]:
        return [pid for pid in living_pids() if pid != os.getpid() and _is_alive(pid) and _uses(pid, os.fsencode(root))]

    def are_gone() -> bool:
        found = users()
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not found

    wait_for(are_gone, what=f"the end of what uses {root}")


def _is_alive(pid: int) -> bool:
    stat = process_stat(pid)
    return stat is not None and stat.is_alive


def _uses(pid: int, root: bytes) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    return root in words or b"WFCTL_STORE=" + root in environment


def _tool(name: str) -> str | None:
    return shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


def _run(name: str, *arguments: str) -> None:
    tool = _tool(name)
    if tool is None:
        raise FileNotFoundError(name)
    subprocess.run([tool, *arguments], capture_output=True, check=True, timeout=60)

"""A true systemd with its journal, as process 1 of namespaces of its own: nothing of this machine is touched.

The files of the machine are read-only there, and its services are not known; /etc is a copy, /run, /var and /tmp are new and
vanish with it. wfctl is installed in a venv that every user may read. Commands are run inside by `nsenter`. It boots in less
than a second.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.support.waiting import wait_for

PROJECT = Path(__file__).parents[2]
INIT = Path("/lib/systemd/systemd")
PLACE = "/run/wfctl-test"  #: inside: the venv and what it is made of
BIN = f"{PLACE}/venv/bin"
_TOOLS = ("unshare", "nsenter", "setpriv", "mount", "umount", "systemctl", "journalctl", "systemd-analyze")
_ENVIRON = {"PATH": f"{BIN}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8"}
UNITS = Path("/lib/systemd/system")
GENERATORS = Path("/lib/systemd/system-generators")
#: the units of this machine that are known inside; no other, so that nothing of its start is done again there
_KNOWN = (
    *(f"{name}.target" for name in ("basic", "multi-user", "network-online", "paths", "shutdown", "slices", "sockets")),
    *(f"{name}.target" for name in ("sysinit", "time-sync", "timers", "umount")),
    *("systemd-journald.service", "systemd-journald.socket"),
)
#: Every file of this machine is read-only inside before its systemd begins; what must be written there is private, in memory.
_SETUP = """set -e
mount --make-rprivate /
mount -t tmpfs -o mode=755 private /run
mkdir -p {place}/python {place}/site {place}/project /run/etc /run/units /run/generators
mount -o bind,ro {python} {place}/python
mount -o bind,ro {site} {place}/site
mount -o bind,ro {project} {place}/project
cp -a {image}/venv {place}/
cp -a /etc/. /run/etc/
rm -rf /run/etc/systemd/system /run/etc/sysusers.d /run/etc/wfctl
mkdir -p /run/etc/systemd/system /run/etc/sysusers.d
cp {known} {image}/wfctl-test.target /run/units/
mount -o bind,ro /run/units {units}
mount -o bind,ro /run/generators {generators}
mount --bind /run/etc /etc
mount -t tmpfs -o mode=755 private /var
mkdir -p /var/lib /var/log /var/cache
ln -s /run /var/run
mkdir -m 1777 /var/tmp
mount -t tmpfs -o mode=1777 private /tmp
mount -t tmpfs -o mode=1777 private /dev/shm
umount -R /sys/fs/cgroup
mount -o remount,bind,ro /
mount -o remount,bind,ro /sys
mount -o remount,bind,ro /dev
mount -t proc proc /proc
mount -o bind,ro /proc/sys /proc/sys
exec env -i container=unshare PATH=/usr/sbin:/usr/bin:/sbin:/bin {init} --system --unit=wfctl-test.target \
 --log-target=null --show-status=false
"""
_TARGET = """[Unit]
Description=Only a journal
AllowIsolate=yes
Wants=systemd-journald.service systemd-journald.socket
"""


def why_not() -> str | None:
    """Return why no systemd can be booted here, or None where it can."""
    if os.geteuid() != 0:
        return "only root can boot a systemd of its own"
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None] + ([] if INIT.exists() else [str(INIT)])
    if missing:
        return f"{', '.join(missing)} missing (Debian: apt-get install systemd util-linux)"
    try:
        with Machine():
            return None
    except (OSError, subprocess.SubprocessError, AssertionError) as error:
        return f"no systemd can be booted here: {error}"


class Machine:
    """A booted systemd. A context manager, at whose end all of its processes are gone."""

    def __enter__(self) -> Machine:
        self._folder = Path(tempfile.mkdtemp(prefix="wfctl-systemd-", dir="/var/tmp"))
        self._cgroups = [place / self._folder.name for place in _hierarchies()]
        try:
            self._make_image()
            self._boot()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._remove()

    def run(self, *words: str, check: bool = True, **more: Any) -> str:
        """Run a command inside, as root, and return what it printed to stdout."""
        done = self.do(*words, **more)
        assert not check or done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return str(done.stdout)

    def do(self, *words: str, environ: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command inside to its end, whatever that is."""
        inside = ["nsenter", "--target", str(self._init), "--mount", "--pid", "--cgroup", "--wd=/"]
        return subprocess.run(
            [*inside, *words], capture_output=True, text=True, env=_ENVIRON | (environ or {}), timeout=60, check=False
        )

    def show(self, unit: str, name: str) -> str:
        """Return one property of a unit."""
        return self.run("systemctl", "show", "--property", name, "--value", unit).strip()

    def log(self, unit: str) -> str:
        """Return what the journal has of a unit, for the message of a failure."""
        return self.run("journalctl", "--no-pager", "-o", "short", "-u", unit, check=False)

    def _make_image(self) -> None:
        venv = self._folder / "venv"
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        packages = venv / "lib" / version / "site-packages"
        packages.mkdir(parents=True)
        (packages / "wfctl-test.pth").write_text(f"{PLACE}/project\n{PLACE}/site\n")
        (venv / "pyvenv.cfg").write_text(f"home = {PLACE}/python/bin\ninclude-system-site-packages = false\n")
        (venv / "bin").mkdir()
        (venv / "bin/python").symlink_to(f"{PLACE}/python/bin/{version}")
        script = venv / "bin/wfctl"
        script.write_text(f"#!{BIN}/python\nimport sys\nfrom wfctl.__main__ import main\nsys.exit(main())\n")
        script.chmod(0o755)
        (self._folder / "wfctl-test.target").write_text(_TARGET)

    def _boot(self) -> None:
        setup = _SETUP.format(
            place=PLACE,
            python=sys.base_prefix,
            site=sysconfig.get_path("purelib"),
            project=PROJECT,
            image=self._folder,
            known=" ".join(str(UNITS / name) for name in _KNOWN if (UNITS / name).exists()),
            units=UNITS.resolve(),
            generators=GENERATORS.resolve(),
            init=INIT,
        )
        own = "setpriv --pdeathsig KILL unshare --mount --pid --cgroup --fork --kill-child"
        enter = f'for each in "${{@:2}}"; do echo $$ >$each/cgroup.procs; done; exec {own} bash -c "$1"'
        places = [str(place) for place in self._cgroups if _made(place)]
        with (self._folder / "err").open("wb") as err:
            self._process = subprocess.Popen(
                ["bash", "-c", enter, "bash", setup, *places], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=err
            )
        wait_for(self._is_up, "systemd being up", within_s=30)

    def _is_up(self) -> bool:
        assert self._process.poll() is None, (self._folder / "err").read_text().strip() or "it ended at once"
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        if not children:
            return False
        self._init = int(children[0])
        with contextlib.suppress(OSError):
            if Path(f"/proc/{self._init}/comm").read_text().strip() != "systemd":
                return False
        return self.do("systemctl", "is-active", "systemd-journald.service").stdout.strip() == "active"

    def _remove(self) -> None:
        if "_process" in vars(self):
            self._process.kill()  # with its child, process 1 there, all the others go
            self._process.wait(20)
        for place in self._cgroups:
            with contextlib.suppress(AssertionError):
                wait_for(lambda place=place: not place.exists() or _removed(place), "its control groups being empty", 5.0)  # type: ignore[misc]
        shutil.rmtree(self._folder, ignore_errors=True)


def _hierarchies() -> list[Path]:
    """Return where the control groups of this process are: one place, or one a hierarchy of the older kind."""
    at = {line.split(":", 2)[1]: line.split(":", 2)[2] for line in Path("/proc/self/cgroup").read_text().splitlines()}
    found = []
    for mount in Path("/proc/self/mounts").read_text().splitlines():
        _, place, kind, options, *_ = mount.split(" ")
        if kind == "cgroup2":
            found.append(Path(place + at.get("", "/")))
        elif kind == "cgroup":
            found += [Path(place + at[names]) for names in at if names and set(names.split(",")) <= set(options.split(","))]
    return found


def _made(place: Path) -> bool:
    """Make a control group; False where it takes no processes as it is."""
    try:
        place.mkdir()
        return not (place / "cpuset.cpus").exists() or bool((place / "cpuset.cpus").read_text().strip())
    except OSError:
        return False


def _removed(place: Path) -> bool:
    try:
        for each in sorted(place.rglob("*"), reverse=True):
            if each.is_dir():
                each.rmdir()
        place.rmdir()
    except OSError:
        return False
    return True

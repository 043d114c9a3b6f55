"""What systemd was told of a store's service: its unit and drop-ins as they are installed, and what its sandbox forbids runs.

The files are read, not systemd asked: so it is known of a service that does not run, and on a machine being set up.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import ClassVar

from wfctl.operations.units import Choice, shipped, user_units
from wfctl.operations.views import View

SYSTEM_DIRECTORIES = tuple(
    Path(name)
    for name in (
        "/etc/systemd/system",
        "/run/systemd/system",
        "/usr/local/lib/systemd/system",
        "/usr/lib/systemd/system",
        "/lib/systemd/system",
    )
)
DEFAULT_STOP = timedelta(seconds=90)  #: systemd's own, where nothing is set
MARGIN = timedelta(seconds=20)  #: what a stop takes beyond the drain's grace
_STORE = re.compile(r"/var/lib/wfctl(?:-(?P<name>.+))?")
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)", re.ASCII)
_UNITS = {
    "": 1.0, "s": 1.0, "sec": 1.0, "second": 1.0, "seconds": 1.0, "ms": 0.001, "msec": 0.001, "m": 60.0, "min": 60.0,
    "minute": 60.0, "minutes": 60.0, "h": 3600.0, "hr": 3600.0, "hour": 3600.0, "hours": 3600.0, "d": 86400.0, "day": 86400.0,
    "days": 86400.0,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class InstalledUnit:
    """A unit as systemd would read it."""

    name: str
    path: str | None  #: None: as it would be with the shipped sandbox
    is_user: bool  #: a user's own, rather than the system's
    settings: Mapping[str, Sequence[str]]  #: of [Service]: all values of each, those before an empty one forgotten

    def last(self, name: str) -> str | None:
        """Return the value that holds of a setting; None where it is not set."""
        values = self.settings.get(name)
        return values[-1] if values else None

    @property
    def stop_timeout(self) -> timedelta | None:
        """How long a stop may take; None: for ever."""
        value = self.last("TimeoutStopSec") or self.last("TimeoutSec")
        return DEFAULT_STOP if value is None else parse_span(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitView(View):
    """One thing that runs cannot do."""

    setting: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxView(View):
    """What the service's sandbox forbids runs."""

    schema: ClassVar[str] = "wfctl/sandbox.v1"

    unit: str
    path: str | None  #: null: no unit is installed; the limits are those of `--hardened`
    limits: tuple[LimitView, ...]


def find(root: Path, environ: Mapping[str, str], directories: Sequence[Path] = SYSTEM_DIRECTORIES) -> InstalledUnit | None:
    """Return the unit that is installed for a store; None where there is none."""
    match = _STORE.fullmatch(str(root))
    if match is not None:
        return _read(Choice(name=match["name"]), directories)
    own = environ.get("XDG_STATE_HOME") or f"{environ.get('HOME', '')}/.local/state"
    if environ.get("HOME", "").startswith("/") and (str(root) + "-").startswith(f"{own}/wfctl-"):
        return _read(
            Choice(is_user=True, name=str(root).removeprefix(f"{own}/wfctl").lstrip("-") or None), [user_units(environ)]
        )
    return None


def _read(choice: Choice, directories: Sequence[Path]) -> InstalledUnit | None:
    path = next(
        (folder / name for folder in directories for name in (choice.unit, choice.unit_file) if (folder / name).is_file()), None
    )
    if path is None:
        return None
    drop_ins: dict[str, Path] = {}
    for folder in reversed(directories):
        for name in (choice.unit_file, choice.unit):
            drop_ins |= {each.name: each for each in (folder / f"{name}.d").glob("*.conf")}
    files = [path, *(each for _, each in sorted(drop_ins.items()))]
    return InstalledUnit(choice.unit, str(path), choice.is_user, service_settings(_text(each) for each in files))


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""


def service_settings(texts: Iterable[str]) -> dict[str, list[str]]:
    """Given the texts of a unit and its drop-ins, in order, return the settings of [Service].

    An empty value forgets those before it. The setting is kept then, for to some that means most: `CapabilityBoundingSet=`.
    """
    settings: dict[str, list[str]] = {}
    for text in texts:
        section = ""
        for line in re.sub(r"\\\n", " ", text).splitlines():
            line = line.strip()
            if line.startswith("["):
                section = line
            elif section == "[Service]" and "=" in line and not line.startswith(("#", ";")):
                name, _, value = (" ".join(part.split()) for part in line.partition("="))
                settings[name] = [*settings.get(name, []), value] if value else []
    return settings


def parse_span(text: str) -> timedelta | None:
    """Given a time span as systemd writes it, return it; None for `infinity`, and for what cannot be read."""
    if text.strip() == "infinity":
        return None
    total, at = 0.0, 0
    text = text.strip()
    while at < len(text):
        match = _SPAN.match(text, at)
        if match is None or match[2] not in _UNITS:
            return None
        total += float(match[1]) * _UNITS[match[2]]
        at = match.end() + len(text[match.end() :]) - len(text[match.end() :].lstrip())
    return timedelta(seconds=total) if total else None  # zero, too, means for ever


# The sandbox ------------------------------------------------------------------------------------------------------------


def sandbox(root: Path, environ: Mapping[str, str], directories: Sequence[Path] = SYSTEM_DIRECTORIES) -> SandboxView:
    """Return what runs of a store cannot do under its service; where there is none, what they could not with `--hardened`."""
    unit = find(root, environ, directories)
    if unit is None:
        texts = [shipped("wfctl.service"), shipped("10-hardened.conf")]
        unit = InstalledUnit("wfctl.service", None, False, service_settings(texts))
    return SandboxView(unit=unit.name, path=unit.path, limits=tuple(_limits(unit)))


def _limits(unit: InstalledUnit) -> Iterable[LimitView]:
    for name, effect in _EFFECTS.items():
        if name not in unit.settings:
            continue
        values = unit.settings[name]
        value = " ".join(values)
        said = effect(value, unit)
        if said is not None:
            yield LimitView(setting=name, value=value, effect=said)


Effect = Callable[[str, InstalledUnit], "str | None"]
_YES = ("yes", "true", "on", "1")


def _if_on(effect: str) -> Effect:
    return lambda value, unit: effect if value.split(" ")[-1] in _YES else None


def _if_set(effect: str) -> Effect:
    return lambda value, unit: effect.format(value) if value else None


def _of_system(value: str, unit: InstalledUnit) -> str | None:
    kind = value.split(" ")[-1]
    if kind == "strict":
        instance = unit.name.partition("@")[2].removesuffix(".service")
        places = [f"/var/lib/{each}".replace("%i", instance) for each in unit.settings.get("StateDirectory", [])]
        places += unit.settings.get("ReadWritePaths", [])
        places += ["/tmp", "/var/tmp"] if unit.last("PrivateTmp") in _YES else []
        return "write files anywhere but in " + ", ".join(" ".join(places).split(" "))
    if kind == "full":
        return "write files in /usr, /boot, /efi and /etc"
    return "write files in /usr, /boot and /efi" if kind in _YES else None


def _of_home(value: str, unit: InstalledUnit) -> str | None:
    if value == "read-only":
        return "write files in /home, /root and /run/user"
    return "see anything in /home, /root and /run/user" if value in (*_YES, "tmpfs") else None


_EFFECTS: dict[str, Effect] = {
    "NoNewPrivileges": _if_on("gain privileges: sudo, su, and every other set-uid program"),
    "CapabilityBoundingSet": lambda value, unit: (
        f"use privileges of root other than {value}" if value else "use any privilege of root, such as ports below 1024"
    ),
    "ProtectSystem": _of_system,
    "ProtectHome": _of_home,
    "PrivateTmp": _if_on("share /tmp and /var/tmp with others; what is there goes when the service stops"),
    "PrivateDevices": _if_on("reach devices, such as disks, serial ports and graphics cards"),
    "ProtectKernelTunables": _if_on("change kernel settings in /proc/sys and /sys"),
    "ProtectKernelModules": _if_on("load kernel modules"),
    "ProtectKernelLogs": _if_on("read the log of the kernel (dmesg)"),
    "ProtectControlGroups": _if_on("change control groups"),
    "ProtectClock": _if_on("set the clock"),
    "ProtectHostname": _if_on("change the host name"),
    "ProtectProc": _if_set("see the processes of other users (ProtectProc={})"),
    "PrivateNetwork": _if_on("use the network"),
    "PrivateUsers": _if_on("act as, or see the files of, other users by their names"),
    "RestrictAddressFamilies": _if_set("open sockets of other kinds than {}"),
    "RestrictNamespaces": _if_on("make namespaces, as containers and sandboxed browsers do"),
    "RestrictRealtime": _if_on("ask for real-time scheduling"),
    "RestrictSUIDSGID": _if_on("make set-uid and set-gid files"),
    "LockPersonality": _if_on("change their execution domain (setarch)"),
    "MemoryDenyWriteExecute": _if_on("run code that they make at run time, as just-in-time compilers do (Java, Node)"),
    "SystemCallArchitectures": lambda value, unit: (
        "run programs of another architecture, such as 32-bit ones" if value == "native" else None
    ),
    "SystemCallFilter": _if_set("make system calls outside of {}"),
    "IPAddressDeny": _if_set("reach the addresses {}"),
    "ReadOnlyPaths": _if_set("write files in {}"),
    "InaccessiblePaths": _if_set("see {}"),
}

"""`wfctl systemd`, the units that come with it, and what `doctor` says of an installed one (contract 11, UX.md 2)."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from datetime import timedelta
from pathlib import Path

import pytest

from tests.support.commands import Wfctl
from wfctl.errors import CannotCreate, InvalidArgument, NotAllowed
from wfctl.operations import installed_unit, units
from wfctl.operations.installed_unit import parse_span, service_settings
from wfctl.operations.units import Choice
from wfctl.settings import Settings

PROJECT = Path(__file__).parents[2]
PROGRAM = ("/opt/wfctl/bin/wfctl",)
CHOICES = [
    pytest.param(Choice(), id="system"),
    pytest.param(Choice(name="reports"), id="instance"),
    pytest.param(Choice(is_hardened=True, stops_runs=True), id="drop-ins"),
    pytest.param(Choice(is_user=True), id="user"),
    pytest.param(Choice(is_user=True, name="reports", stops_runs=True), id="instance of a user"),
]


@pytest.fixture
def wfctl(tmp_path: Path) -> Wfctl:
    (tmp_path / "home").mkdir()
    return Wfctl(tmp_path / "store", tmp_path / "home")


# The units --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_finds_nothing_wrong_with_what_is_installed(tmp_path: Path, choice: Choice) -> None:
    """But for the manual page, which is there only once it is installed."""
    environ = {"HOME": "/home/u"}
    view = units.install(choice, [sys.executable, "-m", "wfctl"], environ, below=tmp_path)
    file = next(each.path for each in view.files if each.path.endswith(".service"))
    asked = Path(file).with_name(choice.unit)
    if choice.name:
        asked.symlink_to(file)
    manager = ["--user"] if choice.is_user else []
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)}
    done = subprocess.run(
        ["systemd-analyze", *manager, "verify", str(asked)], capture_output=True, text=True, env=environment, check=False
    )
    said = [line for line in (done.stdout + done.stderr).splitlines() if "man wfctl-supervise(8)" not in line]
    assert said == []


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize(
    ("is_hardened", "least", "most"), [pytest.param(False, 9.0, 9.5, id="plain"), pytest.param(True, 3.0, 3.5, id="hardened")]
)
def test_the_exposure_of_the_unit_is_what_the_page_says(tmp_path: Path, is_hardened: bool, least: float, most: float) -> None:
    """9.2 and 3.4 by systemd 252; other versions weigh a little differently."""
    path = tmp_path / "wfctl.service"
    path.write_text(units.unit_text(Choice(is_hardened=is_hardened), [sys.executable]))
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", str(path)], capture_output=True, text=True, check=False
    )
    found = re.search(r"exposure level for \S+ ([\d.]+)", done.stdout)
    if found is None:
        pytest.skip(f"this systemd-analyze knows no --offline: {done.stderr}")
    assert least <= float(found[1]) <= most


def directives(name: str) -> list[str]:
    return [line for line in units.shipped(name).splitlines() if line and not line.startswith("#")]


def test_the_units_differ_only_in_what_they_are_for() -> None:
    one, many = directives("wfctl.service"), directives("wfctl@.service")
    assert [(a, b) for a, b in zip(one, many, strict=True) if a != b] == [
        ("Description=wfctl schedule supervisor", "Description=wfctl schedule supervisor %i"),
        ("StateDirectory=wfctl", "StateDirectory=wfctl-%i"),
    ]
    user, users = directives("wfctl-user.service"), directives("wfctl-user@.service")
    assert set(users) - set(user) == {
        "Description=wfctl schedule supervisor %i of %u",
        "Environment=WFCTL_STORE=%h/.local/state/wfctl-%i",
    }
    assert set(user) - set(one) == {"Description=wfctl schedule supervisor of %u", "WantedBy=default.target"}
    assert {line.partition("=")[0] for line in set(one) - set(user)} == {
        *("Description", "After", "Wants", "User", "StateDirectory", "StateDirectoryMode", "ConfigurationDirectory"),
        *("OOMScoreAdjust", "WantedBy"),
    }


def test_2_7_the_stores_of_instances_lie_beside_each_other() -> None:
    stores = [Choice().store, Choice(name="a").store, Choice(name="b").store]
    assert stores == ["/var/lib/wfctl", "/var/lib/wfctl-a", "/var/lib/wfctl-b"]


def test_the_units_say_what_the_contract_says() -> None:
    lines = set(directives("wfctl.service"))
    assert lines >= {
        *("Type=notify", "NotifyAccess=main", "KillMode=process", "Restart=on-failure", "StateDirectory=wfctl", "UMask=0077"),
        *("ExecStartPre=/usr/bin/wfctl init --if-absent", "RestartPreventExitStatus=DATAERR TEMPFAIL CONFIG"),
    }
    stop = service_settings([units.shipped("wfctl.service")])["TimeoutStopSec"]
    assert parse_span(stop[-1]) == timedelta(seconds=Settings().drain_grace_s) + installed_unit.MARGIN  # 7.6
    assert not [line for line in lines if line.startswith(("Protect", "Private", "Delegate", "DynamicUser"))]


def test_the_sandbox_leaves_runs_their_tmp() -> None:
    """With PrivateTmp systemd empties /tmp at each restart, under runs that go on and all that their keeper launches (6.9)."""
    settings = service_settings([units.shipped("10-hardened.conf")])
    assert "PrivateTmp" not in settings
    assert settings["ReadWritePaths"] == ["/tmp /var/tmp"]


def test_the_wheel_has_the_units() -> None:
    """Everything below the package goes into it; none of these is ignored by git, which hatchling heeds."""
    build = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert build == {"packages": ["wfctl"]}
    names = {path.name for path in units.SHIPPED.iterdir()}
    assert names == {
        *("wfctl.service", "wfctl@.service", "wfctl-user.service", "wfctl-user@.service"),
        *("10-hardened.conf", "20-stop.conf", "wfctl.sysusers.conf"),
    }
    ignored = (PROJECT / ".gitignore").read_text().split()
    assert not {"*.conf", "*.service", "systemd", "systemd/"} & set(ignored)
    table = (PROJECT / "config/systemd/README.md").read_text()
    assert [name for name in sorted(names) if f"`{name}`" not in table] == []


# Which program ----------------------------------------------------------------------------------------------------------


def test_the_program_is_the_script_that_was_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "bin" / "wfctl"
    script.parent.mkdir()
    script.touch(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "elsewhere" / "python"))
    assert units.own_program(str(script), {}) == (str(script),)
    monkeypatch.chdir(tmp_path)
    assert units.own_program("bin/wfctl", {}) == (str(script),), "systemd takes no relative path"
    assert units.own_program("wfctl", {"PATH": str(script.parent)}) == (str(script),)
    assert units.own_program("/x/__main__.py", {"PATH": "/nowhere"}) == (sys.executable, "-m", "wfctl")
    monkeypatch.setattr(sys, "executable", str(script.parent / "python"))
    assert units.own_program("/x/__main__.py", {"PATH": "/nowhere"}) == (str(script),), "that of the same venv"


@pytest.mark.parametrize(
    ("path", "written"),
    [
        ("/usr/bin/wfctl", "/usr/bin/wfctl"),
        ("/opt/my tools/wfctl", '"/opt/my tools/wfctl"'),
        ("/opt/100%/wfctl", "/opt/100%%/wfctl"),
        ('/opt/a"b\\c/wfctl', '"/opt/a\\"b\\\\c/wfctl"'),
    ],
)
def test_a_path_is_written_as_systemd_reads_it(path: str, written: str) -> None:
    assert units.quoted(path) == written
    assert f"ExecStart={written} supervise --log-format journal\n" in units.unit_text(Choice(), [path])


def test_a_program_that_others_cannot_reach_is_told(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(0o700)
    assert units.closed_to_others(str(home / "wfctl")) is not None
    assert units.closed_to_others("/usr/bin/env") is None


# Installing -------------------------------------------------------------------------------------------------------------


def test_it_writes_the_files_and_names_the_commands(tmp_path: Path) -> None:
    view = units.install(Choice(is_hardened=True, stops_runs=True), PROGRAM, {}, below=tmp_path)
    assert [(Path(each.path).relative_to(tmp_path).as_posix(), each.state) for each in view.files] == [
        ("etc/systemd/system/wfctl.service", "created"),
        ("etc/systemd/system/wfctl.service.d/10-hardened.conf", "created"),
        ("etc/systemd/system/wfctl.service.d/20-stop.conf", "created"),
        ("etc/sysusers.d/wfctl.conf", "created"),
    ]
    assert view.commands == ("systemd-sysusers wfctl.conf", "systemctl daemon-reload", "systemctl enable --now wfctl.service")
    unit = tmp_path / "etc/systemd/system/wfctl.service"
    assert unit.stat().st_mode & 0o777 == 0o644
    assert unit.parent.stat().st_mode & 0o777 == 0o755
    assert "ExecStart=/opt/wfctl/bin/wfctl supervise --log-format journal\n" in unit.read_text()


def test_it_is_idempotent_and_brings_its_own_files_up_to_date(tmp_path: Path) -> None:
    def states(program: tuple[str, ...]) -> list[str]:
        return [each.state for each in units.install(Choice(), program, {}, below=tmp_path).files]

    assert states(PROGRAM) == ["created", "created"]
    assert states(PROGRAM) == ["unchanged", "unchanged"]
    assert states(("/usr/local/bin/wfctl",)) == ["updated", "unchanged"], "after a move of the program"


def test_a_file_that_was_changed_by_hand_is_not_replaced_unasked(tmp_path: Path) -> None:
    units.install(Choice(), PROGRAM, {}, below=tmp_path)
    unit = tmp_path / "etc/systemd/system/wfctl.service"
    edited = unit.read_text().replace("TasksMax=4096", "TasksMax=99")
    unit.write_text(edited)
    with pytest.raises(CannotCreate, match="--yes replaces it"):
        units.install(Choice(is_hardened=True), PROGRAM, {}, below=tmp_path)
    assert unit.read_text() == edited
    assert not (unit.parent / "wfctl.service.d").exists(), "all or nothing"
    view = units.install(Choice(), PROGRAM, {}, below=tmp_path, may_replace=True)
    assert view.files[0].state == "replaced"
    assert "TasksMax=4096" in unit.read_text()


def test_a_units_place_in_a_user_s_home(tmp_path: Path) -> None:
    environ = {"HOME": "/home/ann", "USER": "ann"}
    view = units.install(Choice(is_user=True, name="mine"), PROGRAM, environ, below=tmp_path)
    assert [each.path for each in view.files] == [f"{tmp_path}/home/ann/.config/systemd/user/wfctl@.service"]
    assert view.commands == (
        "systemctl --user daemon-reload",
        "systemctl --user enable --now wfctl@mine.service",
        "loginctl enable-linger ann",
    )
    assert units.user_units({"XDG_CONFIG_HOME": "/x"}) == Path("/x/systemd/user")
    with pytest.raises(InvalidArgument):
        units.user_units({})


@pytest.mark.parametrize("name", ["", "A", "a/b", "../x", "a..b", "a b", "x" * 129, "é"])
def test_2_8_a_name_that_reaches_paths_is_checked(name: str) -> None:
    with pytest.raises(InvalidArgument, match="--name"):
        units.check_choice(Choice(name=name))


def test_a_sandbox_for_a_user_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="--hardened"):
        units.check_choice(Choice(is_user=True, is_hardened=True))


def test_what_the_system_refuses_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(units.os, "geteuid", lambda: 1000)
    with pytest.raises(NotAllowed, match="--user"):
        units.install(Choice(), PROGRAM, {})
    (tmp_path / "etc").touch()
    with pytest.raises(CannotCreate, match="cannot write"):
        units.install(Choice(), PROGRAM, {}, below=tmp_path)
    (tmp_path / "etc").unlink()
    (tmp_path / "etc/systemd/system/wfctl.service").mkdir(parents=True)
    with pytest.raises(CannotCreate, match="is a directory"):
        units.install(Choice(), PROGRAM, {}, below=tmp_path)


# The command ------------------------------------------------------------------------------------------------------------


def test_unit_prints_a_whole_unit_and_changes_nothing(wfctl: Wfctl) -> None:
    plain = wfctl.ok("systemd", "unit").out
    assert re.search(r"^ExecStart=/\S+( -m wfctl)? supervise --log-format journal$", plain, re.MULTILINE)
    more = wfctl.ok("systemd", "unit", "--hardened", "--on-shutdown-stop").out
    assert more.startswith(plain)
    settings = service_settings([more])
    assert (settings["KillMode"][-1], settings["NoNewPrivileges"]) == ("mixed", ["yes"])
    view = wfctl.ok("systemd", "unit", "--name", "a", "-o", "json").json
    assert (view["schema"], view["unit"], view["store"]) == ("wfctl/unit.v1", "wfctl@a.service", "/var/lib/wfctl-a")
    assert "StateDirectory=wfctl-%i" in view["text"]
    assert wfctl.ok("systemd", "unit", "--user", "-o", "name").out == "wfctl.service\n"


def test_install_says_what_it_did_and_what_to_run(wfctl: Wfctl, tmp_path: Path) -> None:
    image = tmp_path / "image"
    tried = wfctl.ok("systemd", "install", "--root", str(image), "--dry-run")
    assert "would create" in tried.out
    assert not image.exists()
    done = wfctl.ok("systemd", "install", "--root", str(image))
    assert done.out.splitlines() == [
        f"created {image}/etc/systemd/system/wfctl.service",
        f"created {image}/etc/sysusers.d/wfctl.conf",
        "",
        "run:",
        "  systemd-sysusers wfctl.conf",
        "  systemctl daemon-reload",
        "  systemctl enable --now wfctl.service",
    ]
    again = wfctl.ok("systemd", "install", "--root", str(image), "-o", "json").json
    assert again["schema"] == "wfctl/systemd.v1"
    assert [each["state"] for each in again["files"]] == ["unchanged", "unchanged"]
    (image / "etc/systemd/system/wfctl.service").write_text("mine\n")
    for more in ([], ["--dry-run"]):
        refused = wfctl("systemd", "install", "--root", str(image), *more)
        assert (refused.status, refused.out) == (73, "")
        assert "Traceback" not in refused.err
    assert "replaced" in wfctl.ok("systemd", "install", "--root", str(image), "--yes").out


def test_install_for_a_user_hints_at_lingering(wfctl: Wfctl, tmp_path: Path) -> None:
    done = wfctl.ok("systemd", "install", "--user", USER="ann")
    assert done.out.splitlines()[0] == f"created {tmp_path}/home/.config/systemd/user/wfctl.service"
    assert "loginctl enable-linger ann" in done.out
    assert "while you are not logged in" in done.err


@pytest.mark.parametrize("words", [["--name", "A/b"], ["--user", "--hardened"], ["--nonsense"], ["extra"]])
def test_wrong_input_is_a_usage_error(wfctl: Wfctl, words: list[str]) -> None:
    for verb in ("unit", "install"):
        done = wfctl("systemd", verb, *words)
        assert (done.status, done.out) == (2, "")
        assert "Traceback" not in done.err


# What is installed, as doctor reads it ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("50s", timedelta(seconds=50)),
        ("90", timedelta(seconds=90)),
        ("1min 30s", timedelta(seconds=90)),
        ("2h5min", timedelta(hours=2, minutes=5)),
        ("1.5min", timedelta(seconds=90)),
        ("infinity", None),
        ("0", None),
        ("soon", None),
    ],
)
def test_a_time_span_of_systemd(text: str, span: timedelta | None) -> None:
    assert parse_span(text) == span


def test_the_settings_of_a_unit_are_read_as_systemd_reads_them() -> None:
    first = "[Unit]\nTimeoutStopSec=1\n[Service]\n# x\nTimeoutStopSec = 20s\nReadWritePaths=/a\nReadWritePaths=/b \\\n /c\n"
    assert service_settings([first]) == {"TimeoutStopSec": ["20s"], "ReadWritePaths": ["/a", "/b /c"]}
    second = "[Service]\nTimeoutStopSec=90s\nReadWritePaths=\n; y\n"
    assert service_settings([first, second]) == {"TimeoutStopSec": ["20s", "90s"], "ReadWritePaths": []}


def test_the_unit_of_a_store_is_found_with_its_drop_ins(tmp_path: Path) -> None:
    etc, lib = tmp_path / "etc", tmp_path / "lib"
    (etc / "wfctl@.service.d").mkdir(parents=True)
    (etc / "wfctl@b.service.d").mkdir()
    lib.mkdir()
    (lib / "wfctl.service").write_text("[Service]\nTimeoutStopSec=50s\n")
    (lib / "wfctl@.service").write_text("[Service]\nTimeoutStopSec=51s\n")
    (etc / "wfctl@.service.d" / "1.conf").write_text("[Service]\nTimeoutStopSec=52s\n")
    (etc / "wfctl@b.service.d" / "2.conf").write_text("[Service]\nTimeoutStopSec=infinity\n")
    found = {name: installed_unit.find(Path(f"/var/lib/wfctl{name}"), {}, [etc, lib]) for name in ("", "-a", "-b")}
    assert all(found.values())
    stops = {name: unit.stop_timeout for name, unit in found.items() if unit}
    assert stops == {"": timedelta(seconds=50), "-a": timedelta(seconds=52), "-b": None}
    assert installed_unit.find(Path("/srv/store"), {}, [etc, lib]) is None
    (etc / "wfctl.service").write_text("[Service]\n")
    unit = installed_unit.find(Path("/var/lib/wfctl"), {}, [etc, lib])
    assert unit is not None and unit.stop_timeout == installed_unit.DEFAULT_STOP, "what root wrote comes first"


def test_doctor_compares_the_stop_timeout_with_the_drain(tmp_path: Path) -> None:
    """A user's own unit stands for all, since it can be put into a test's home (7.6)."""
    home = tmp_path / "home"
    home.mkdir()
    wfctl = Wfctl(home / ".local/state/wfctl", home)
    wfctl.ok("init")
    wfctl.ok("systemd", "install", "--user")
    checks = {each["name"]: each for each in wfctl("doctor", "-o", "json").json["checks"]}  # the user may not linger
    assert checks["service"]["ok"]
    unit = home / ".config/systemd/user/wfctl.service"
    unit.write_text(unit.read_text().replace("TimeoutStopSec=50s", "TimeoutStopSec=20s"))
    done = wfctl("doctor")
    assert done.status == 1
    assert "service: TimeoutStopSec=20s is below drain_grace_s=30 + 20\n    fix: wfctl systemd install --user" in done.out
    wfctl.ok("systemd", "install", "--user", "--yes")
    done = wfctl("doctor", WFCTL_DRAIN_GRACE_S="60")
    assert done.status == 1
    assert "fix: systemctl --user edit wfctl.service, and there [Service] TimeoutStopSec=80s" in done.out


def test_doctor_says_what_the_sandbox_forbids_runs(tmp_path: Path) -> None:
    etc = tmp_path / "etc/systemd/system"
    units.install(Choice(name="a", is_hardened=True), PROGRAM, {}, below=tmp_path)
    units.install(Choice(name="b"), PROGRAM, {}, below=tmp_path)
    view = installed_unit.sandbox(Path("/var/lib/wfctl-a"), {}, [etc])
    effects = {each.setting: each.effect for each in view.limits}
    assert effects["ProtectSystem"] == "write files anywhere but in /var/lib/wfctl-a, /tmp, /var/tmp"
    hardened = {line.partition("=")[0] for line in directives("10-hardened.conf")[1:]}
    assert hardened - set(effects) == {"ReadWritePaths"}, "each setting is explained"
    assert installed_unit.sandbox(Path("/var/lib/wfctl-b"), {}, [etc]).limits == ()
    without = installed_unit.sandbox(Path("/srv/store"), {}, [etc])
    assert without.path is None and without.limits


def test_doctor_sandbox_is_an_answer_and_needs_no_store(wfctl: Wfctl) -> None:
    said = wfctl.ok("doctor", "--sandbox").out
    assert "runs could not:\n" in said and "  NoNewPrivileges " in said
    view = json.loads(wfctl.ok("doctor", "--sandbox", "-o", "json").out)
    assert view["schema"] == "wfctl/sandbox.v1" and view["path"] is None

"""Settings: five places, one merged view, the origin of each value (contract 10)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from wfctl.core.model import Notify
from wfctl.errors import MissingExtra
from wfctl.settings import Settings, SlurmSettings, load_settings, settings_from_plain, variable_of

MIB = 1024 * 1024


def load(tmp_path: Path, store: str = "", system: str = "", environ: dict[str, str] | None = None, **options: Any) -> Settings:
    (tmp_path / "wfctl.toml").write_text(store)
    (tmp_path / "system.toml").write_text(system)
    return load_settings(tmp_path, environ or {}, system_file=tmp_path / "system.toml", is_root=True, **options)


def refusal(*args: Any, **options: Any) -> str:
    with pytest.raises(MissingExtra) as caught:
        load(*args, **options)
    assert (caught.value.code, caught.value.exit_status) == ("missing-extra", 78)  # contract 11.6
    return caught.value.message


def test_the_defaults_are_those_of_the_contract(tmp_path: Path) -> None:
    settings = load_settings(None, {}, system_file=tmp_path / "nothing.toml", is_root=True)
    assert [(key, value) for key, value, _ in settings.items()] == [
        ("supervisor.poll_interval_s", 1.0),
        ("supervisor.max_concurrent_runs", 4),
        ("supervisor.drain_grace_s", 30.0),
        ("supervisor.on_shutdown", "leave"),
        ("runs.max_output", 64 * MIB),
        ("runs.min_free", None),
        ("notify.command", None),
        ("notify.after", 1),
        ("history.keep_days", None),
        ("history.keep_runs", None),
        ("executors.slurm.shared", None),
        ("executors.slurm.max_concurrent_runs", 100),
        ("executors.slurm.bin", "/usr/bin"),
        ("executors.slurm.python", "/usr/bin/python3"),
        ("executors.slurm.conf", None),
        ("executors.slurm.poll_interval_s", 2.0),
    ]
    assert {origin for _, _, origin in settings.items()} == {"built-in"}
    assert settings == Settings()


def test_each_place_wins_over_the_next_and_is_named(tmp_path: Path) -> None:
    settings = load(
        tmp_path,
        store="[supervisor]\nmax_concurrent_runs = 2\npoll_interval_s = 2\ndrain_grace_s = 2",
        system="[supervisor]\nmax_concurrent_runs = 1\npoll_interval_s = 1\ndrain_grace_s = 1\non_shutdown = 'stop'",
        environ={
            "WFCTL_MAX_CONCURRENT_RUNS": "3",
            "WFCTL_POLL_INTERVAL_S": "3.5",
            "WFCTL_STORE": "/s",
            "WFCTL_DRAIN_GRACE_S": "",
        },
        flags={"supervisor.max_concurrent_runs": 4, "supervisor.on_shutdown": None},
    )
    found = {key: (value, origin) for key, value, origin in settings.items() if key.startswith("supervisor.")}
    assert found == {
        "supervisor.max_concurrent_runs": (4, "--max-concurrent-runs"),
        "supervisor.poll_interval_s": (3.5, "WFCTL_POLL_INTERVAL_S"),
        "supervisor.drain_grace_s": (2.0, str(tmp_path / "wfctl.toml")),
        "supervisor.on_shutdown": ("stop", str(tmp_path / "system.toml")),
    }


@pytest.mark.parametrize(
    ("text", "hints"),
    [
        pytest.param("[supervisor]\nmax_concurent_runs = 1", ["max_concurrent_runs"], id="an unknown setting"),
        pytest.param("[superviser]\nx = 1", ['"supervisor"'], id="an unknown table"),
        pytest.param("supervisor = 5", ["supervisor must be a table"], id="a table that is a number"),
        pytest.param("poll_interval_s = 1", ["not a known table"], id="a setting outside its table"),
        pytest.param("[supervisor]\nmax_concurrent_runs = 0", ["from 1 to"], id="no slot at all"),
        pytest.param("[supervisor]\nmax_concurrent_runs = true", ["whole number"], id="true is no number"),
        pytest.param("[supervisor]\npoll_interval_s = '1s'", ["number of seconds"], id="text for seconds"),
        pytest.param("[supervisor]\npoll_interval_s = nan", ["from 0.01"], id="NaN seconds"),
        pytest.param("[supervisor]\non_shutdown = 'kill'", ['"leave" or "stop"'], id="an unknown way to shut down"),
        pytest.param("[runs]\nmax_output = '64 megs'", ['"64MiB"'], id="a size that is none"),
        pytest.param("[runs]\nmax_output = 1", ["at least 16KiB"], id="a size of nothing"),
        pytest.param("[notify]\ncommand = 'mail me'", ['["mail", "me"]'], id="a command as text"),
        pytest.param("[notify]\nafter = 0\n[history]\nkeep_days = 0", ["notify.after", "history.keep_days"], id="all at once"),
        pytest.param("[supervisor", ["end of document"], id="no TOML"),
        pytest.param("[executors.slurm]\npoll_interval_s = 0", ["from 0.05"], id="a cluster asked without a pause"),
        pytest.param("[executors.slurm]\nshared = 'srv'", ["beginning with /"], id="a shared folder that is no whole path"),
        pytest.param("[executors.slurm]\nshared = '/a%j'", ["without %"], id="a shared folder that Slurm would read otherwise"),
        pytest.param("[executors.slurm]\nshard = '/srv'", ["shared"], id="an unknown setting of a cluster"),
        pytest.param("[executors.slrum]\nshared = '/srv'", ['"slurm"'], id="an unknown executor"),
        pytest.param("[executors]\nslurm = 5", ["must be a table"], id="a cluster that is a number"),
    ],
)
def test_a_wrong_setting_is_refused_with_its_place(tmp_path: Path, text: str, hints: list[str]) -> None:
    message = refusal(tmp_path, store=text)
    assert str(tmp_path / "wfctl.toml") in message
    assert all(hint in message for hint in hints), message


def test_a_wrong_variable_and_a_wrong_flag_are_named(tmp_path: Path) -> None:
    message = refusal(tmp_path, environ={"WFCTL_MAX_CONCURRENT_RUNS": "many"}, flags={"supervisor.drain_grace_s": -1})
    assert "WFCTL_MAX_CONCURRENT_RUNS: supervisor.max_concurrent_runs must be a whole number" in message
    assert "--drain-grace-s: supervisor.drain_grace_s must be from 0" in message


@pytest.mark.parametrize(
    ("text", "size"),
    [("1048576", MIB), ("'1 MiB'", MIB), ("'1MB'", 1_000_000), ("'2GiB'", 2048 * MIB), ("'65536'", 65_536)],
)
def test_sizes(tmp_path: Path, text: str, size: int) -> None:
    assert load(tmp_path, store=f"[runs]\nmax_output = {text}").max_output == size
    assert load(tmp_path, environ={"WFCTL_MAX_OUTPUT": text.strip("'")}).max_output == size


def test_a_cluster_is_there_by_its_table_which_names_the_shared_folder(tmp_path: Path) -> None:
    assert load(tmp_path).slurm is None
    slurm = load(tmp_path, store="[executors.slurm]\nshared = '/srv/wfctl/'\nmax_concurrent_runs = 7").slurm
    assert slurm == SlurmSettings(shared=Path("/srv/wfctl"), max_concurrent_runs=7)
    assert load(tmp_path, environ={"WFCTL_EXECUTORS_SLURM_SHARED": "/srv"}).slurm == SlurmSettings(shared=Path("/srv"))
    assert "executors.slurm.shared is missing" in refusal(tmp_path, store="[executors.slurm]")


def test_notify_is_merged_key_by_key(tmp_path: Path) -> None:
    environ = {variable_of("notify.command"): '["/usr/bin/mail", "me"]'}
    assert load(tmp_path, store="[notify]\nafter = 3", environ=environ).notify == Notify(
        command=("/usr/bin/mail", "me"), after=3
    )
    assert load(tmp_path, store="[notify]\nafter = 3").notify is None


def test_the_dict_of_the_python_api(tmp_path: Path) -> None:
    settings = settings_from_plain({"supervisor": {"max_concurrent_runs": 1, "poll_interval_s": None}, "runs": {}})
    assert (settings.max_concurrent_runs, settings.poll_interval_s) == (1, 1.0)
    merged = load(tmp_path, store="[supervisor]\nmax_concurrent_runs = 2", tables={"supervisor": {"max_concurrent_runs": 3}})
    assert (merged.max_concurrent_runs, merged.origins["supervisor.max_concurrent_runs"]) == (3, "settings")
    with pytest.raises(MissingExtra, match='did you mean "supervisor"'):
        settings_from_plain({"supervisr": {}})


def test_a_user_has_a_file_of_their_own_before_the_systems(tmp_path: Path) -> None:
    system = tmp_path / "system.toml"
    system.write_text("[supervisor]\nmax_concurrent_runs = 1")
    own = tmp_path / "config/wfctl/wfctl.toml"
    environ = {"XDG_CONFIG_HOME": str(tmp_path / "config"), "HOME": str(tmp_path)}
    assert load_settings(None, environ, system_file=system, is_root=False).max_concurrent_runs == 1
    own.parent.mkdir(parents=True)
    own.write_text("[supervisor]\nmax_concurrent_runs = 2")
    assert load_settings(None, environ, system_file=system, is_root=False).max_concurrent_runs == 2
    assert load_settings(None, environ, system_file=system, is_root=True).max_concurrent_runs == 1


def test_a_settings_file_that_is_no_file_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "wfctl.toml")
    with pytest.raises(MissingExtra, match="no regular file"):
        load_settings(tmp_path, {}, system_file=tmp_path / "nothing", is_root=True)


@pytest.mark.parametrize(("size", "needed"), [(1000 * MIB, 50 * MIB), (1024 * 1024 * MIB, 256 * MIB)])
def test_free_space_by_default(size: int, needed: int) -> None:
    assert Settings().free_needed(size) == needed  # contract 6.15
    assert Settings(min_free=7).free_needed(size) == 7

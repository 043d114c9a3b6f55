"""Importing crontabs into a store (contract 11.8)."""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import Any

import pytest

from wfctl.clock import local_zone
from wfctl.errors import InvalidDefinition
from wfctl.operations.importing import import_crontab
from wfctl.operations.store import Store, init_store
from wfctl.operations.views import ImportView

USER = """\
SHELL=/bin/bash
CRON_TZ=Europe/Budapest
# nightly backup
30 2 * * * /usr/local/bin/backup
0 3 * * * /usr/local/bin/backup --all
@reboot /usr/bin/start
"""


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with init_store(tmp_path / "store") as made:
        yield made


def take(store: Store, text: str, **settings: Any) -> ImportView:
    return import_crontab(store, text, source="/tmp/tab", local_zone="America/New_York", **settings)


def test_11_8_a_line_becomes_a_deployment_and_a_schedule(store: Store) -> None:
    view = take(store, USER)
    assert [(it.line, it.schedule_id, it.is_new) for it in view.lines] == [(4, "backup", True), (5, "backup-2", True)]
    assert [it.line for it in view.left_out] == [6]
    deployment = store.get_deployment(deployment_id="backup").definition
    assert deployment is not None
    assert deployment["command"] == ["/bin/bash", "-c", "/usr/local/bin/backup"]
    assert deployment["working_directory"] == str(Path.home())  # as cron: in the home directory
    schedule = store.get_schedule(schedule_id="backup").definition
    assert schedule is not None
    assert schedule["trigger"] == {"kind": "cron", "expression": "30 2 * * *", "timezone": "Europe/Budapest"}
    assert schedule["notes"] == "nightly backup (from /tmp/tab, line 4)"


def test_11_8_the_zone_is_that_of_the_line_else_the_one_given_else_the_machines(store: Store) -> None:
    text = "0 1 * * * a\nCRON_TZ=Asia/Tokyo\n0 2 * * * b\n"
    zones = [it.trigger["timezone"] for it in take(store, text, dry_run=True).lines]
    assert zones == ["America/New_York", "Asia/Tokyo"]
    zones = [it.trigger["timezone"] for it in take(store, text, dry_run=True, timezone="UTC").lines]
    assert zones == ["UTC", "Asia/Tokyo"]


def test_11_8_nothing_is_changed_unless_every_kept_line_is_valid(store: Store) -> None:
    with pytest.raises(InvalidDefinition) as refused:
        take(store, "0 0 * * * fine\n75 2 * * * bad\n0 0 31 2 * never\nCRON_TZ=Europe/Pari\n0 0 * * * nowhere\nxx\n")
    assert [problem.line for problem in refused.value.problems] == [2, 3, 5, 6]
    assert store.list_schedules().items == ()
    assert store.list_deployments().items == ()


def test_11_8_a_dry_run_says_the_same_and_changes_nothing(store: Store) -> None:
    said = take(store, USER, dry_run=True)
    assert said.is_dry_run
    assert store.list_deployments().items == ()
    done = take(store, USER)
    assert said.lines == done.lines
    assert said.left_out == done.left_out


def test_11_8_importing_again_adds_only_what_is_not_there(store: Store) -> None:
    take(store, USER)
    again = take(store, USER + "0 4 * * * /usr/local/bin/backup\n")
    assert [(it.schedule_id, it.is_new) for it in again.lines] == [("backup", False), ("backup-2", False), ("backup-3", True)]
    store.delete_schedule(schedule_id="backup")
    third = take(store, USER)
    assert (third.lines[0].schedule_id, third.lines[0].is_new) == ("backup-4", True)  # ids are never used again (2.8)


def test_11_8_a_line_of_another_user_is_not_kept(store: Store) -> None:
    view = take(store, f"0 0 * * * {getpass.getuser()} mine\n0 0 * * * somebody-else theirs\n", user_column=True)
    assert [it.command for it in view.lines] == ["mine"]
    assert [(it.line, "somebody-else" in it.why) for it in view.left_out] == [(2, True)]


def test_11_8_warnings_come_with_the_line(store: Store) -> None:
    (line,) = take(store, "0 0 */2 * 1 x\n").lines
    assert [each["code"] for each in line.warnings] == ["day-fields-or", "step-beside-day-field"]


@pytest.mark.parametrize(
    ("link", "text", "zone"),
    [
        ("/usr/share/zoneinfo/Europe/Budapest", None, "Europe/Budapest"),
        ("/usr/share/zoneinfo/Etc/UTC", "Europe/Paris\n", "UTC"),
        (None, "Europe/Paris\n", "Europe/Paris"),
        (None, None, "UTC"),
    ],
)
def test_11_8_the_zone_of_the_machine(tmp_path: Path, link: str | None, text: str | None, zone: str) -> None:
    if link is not None:
        (tmp_path / "localtime").symlink_to(link)
    if text is not None:
        (tmp_path / "timezone").write_text(text)
    assert local_zone(tmp_path) == zone

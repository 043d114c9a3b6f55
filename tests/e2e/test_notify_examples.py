"""The examples of config/notify, each with what it would talk to replaced (contract 7.8)."""

from __future__ import annotations

import email
import json
import subprocess
import tomllib
from email import policy
from pathlib import Path

import pytest

from wfctl.settings import settings_from_plain

EXAMPLES = Path(__file__).parents[2] / "config/notify"
EVENT = {
    "schema": "wfctl/event.v1",
    "event": "failed",
    "schedule_id": "nightly",
    "at": "2027-03-01T02:30:41.000001Z",
    "since": "2027-03-01T02:30:41.000001Z",
    "failures": 1,
    "instant": "2027-03-01T02:30:00Z",
    "run_id": "run-000031",
    "status": "failed",
    "reason": {"code": "exit", "exit_status": 2},
    "interrupt": None,
    "next_instant": "2027-03-02T02:30:00Z",
    "host": "backup1",
    "store": "/var/lib/wfctl",
    "coalesced": 0,
    "stderr_tail": 'árvíztűrő "quoted"\n.\nFrom here\n',
    "message": 'nightly failed: "a\\b" $(touch x) `id`. See: wfctl --store /var/lib/wfctl run logs run-000031',
}


@pytest.fixture
def fake(tmp_path: Path) -> Path:
    """A program that keeps its arguments, standard input and descriptor 3."""
    program = tmp_path / "fake"
    program.write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$@" >{tmp_path}/argv\ncat >{tmp_path}/stdin\ncat <&3 >{tmp_path}/three\n:\n'
    )
    program.chmod(0o755)
    return program


def run(name: str, *arguments: str, event: dict[str, object] | None = None, **more: str) -> subprocess.CompletedProcess[bytes]:
    """Run an example in the environment of contract 6.4 and more."""
    environment = {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/",
        "LANG": "C.UTF-8",
        **more,
    }
    given = b"" if event is None else json.dumps(event).encode()
    return subprocess.run(
        [str(EXAMPLES / name), *arguments], input=given, capture_output=True, env=environment, cwd="/", timeout=30, check=False
    )


def secret(tmp_path: Path) -> str:
    """A file that holds an address."""
    path = tmp_path / "url"
    path.write_text("https://example.org/hook/s3cret\n")
    path.chmod(0o600)
    return str(path)


def test_mail(fake: Path, tmp_path: Path) -> None:
    done = run("mail.sh", "ops@example.org", event=EVENT, SENDMAIL=str(fake))
    assert (done.returncode, done.stdout) == (0, b"")
    assert (tmp_path / "argv").read_text() == "-t\n-i\n"
    mail = email.message_from_bytes((tmp_path / "stdin").read_bytes(), policy=policy.default)
    assert mail["To"] == "ops@example.org" and mail["Subject"] == "[backup1] nightly failed"
    body = mail.get_content()
    assert str(EVENT["message"]) in body and str(EVENT["stderr_tail"]) in body and "2027-03-02T02:30:00Z" in body


def test_mail_without_an_address_says_so(fake: Path) -> None:
    done = run("mail.sh", event=EVENT, SENDMAIL=str(fake))
    assert done.returncode != 0 and b"write the address" in done.stderr


def test_webhook_quotes_the_message_and_shows_its_address_to_nobody(fake: Path, tmp_path: Path) -> None:
    done = run("webhook.sh", secret(tmp_path), event=EVENT, CURL=str(fake))
    assert (done.returncode, done.stderr) == (0, b"")
    assert json.loads((tmp_path / "stdin").read_text()) == {"text": f"backup1: {EVENT['message']}"}
    assert "s3cret" not in (tmp_path / "argv").read_text()
    assert (tmp_path / "three").read_text() == 'url = "https://example.org/hook/s3cret"\n'


@pytest.mark.parametrize(
    ("word", "suffix"), [("failed", "/fail"), ("failing", "/fail"), ("missed", "/fail"), ("blocked", "/fail")]
)
def test_ping_tells_of_trouble(fake: Path, tmp_path: Path, word: str, suffix: str) -> None:
    done = run("ping.sh", secret(tmp_path), event={**EVENT, "event": word}, CURL=str(fake), WFCTL_EVENT=word)
    assert (done.returncode, done.stderr) == (0, b"")
    assert (tmp_path / "three").read_text() == f'url = "https://example.org/hook/s3cret{suffix}"\n'
    assert json.loads((tmp_path / "stdin").read_text())["event"] == word


def test_ping_as_the_last_step_of_a_run_tells_of_success(fake: Path, tmp_path: Path) -> None:
    assert run("ping.sh", secret(tmp_path), CURL=str(fake)).returncode == 0
    assert (tmp_path / "three").read_text() == 'url = "https://example.org/hook/s3cret"\n'


@pytest.mark.parametrize("word", ["recovered", "waiting", "overdue", "unblocked"])
def test_ping_leaves_the_rest_alone(fake: Path, tmp_path: Path, word: str) -> None:
    assert run("ping.sh", secret(tmp_path), event=EVENT, CURL=str(fake), WFCTL_EVENT=word).returncode == 0
    assert not (tmp_path / "three").exists()


@pytest.mark.parametrize("name", ["webhook.sh", "ping.sh"])
def test_a_failure_to_tell_is_passed_on(tmp_path: Path, name: str) -> None:
    done = run(name, secret(tmp_path), event=EVENT, CURL="/bin/false", WFCTL_EVENT="failed")
    assert done.returncode != 0


def test_the_settings_of_the_example_are_valid() -> None:
    settings = settings_from_plain(tomllib.loads((EXAMPLES / "wfctl.toml").read_text()))
    assert settings.notify is not None and settings.notify.after == 1

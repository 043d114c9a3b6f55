"""`wfctl status` names what needs somebody, and the command that does it (contract 2.3, 6.13)."""

from __future__ import annotations

import re
import shlex

from tests.support.commands import Wfctl

ASKS = """
[ -n "$WFCTL_RESUME" ] && exit 0
echo '{"message": "go on?", "schema": {"type": "object", "required": ["sure", "who"],
      "properties": {"sure": {"type": "boolean"}, "who": {"type": "string"}}}}' >"$WFCTL_INTERRUPT"
exit 75
"""


def test_status_says_how_to_mend_and_how_to_answer(wfctl: Wfctl) -> None:
    wfctl.ok("deployment", "add", "ask", "--", "/bin/sh", "-c", ASKS)
    for name in ("nightly", "weekly"):
        wfctl.ok("schedule", "add", name, "--deployment", "ask", "--every", "1d", "-q")
    asked = wfctl("run", "start", "ask")
    (wfctl.root / "schedules/nightly.toml").write_text("x =\n")
    (wfctl.root / "schedules/weekly.toml").unlink()
    wfctl.ok("schedules")  # a command takes a hand edit at once
    with wfctl.supervisor():
        said = wfctl("status")
    assert said.status == 1
    assert re.search(r"^BLOCKED nightly: .*line 1.*; mend it with `wfctl schedule edit nightly`$", said.out, re.MULTILINE)
    assert re.search(r"^BLOCKED weekly: .*is gone.*; mend it with `wfctl schedule edit weekly`$", said.out, re.MULTILINE)
    answer = "wfctl run resume run-000001 --input sure=true --input who=VALUE"
    assert re.search(rf"^ASKS run-000001 of ask, .* ago: go on\?; answer with `{answer}`$", said.out, re.MULTILINE)
    assert f"go on with `{answer}`" in asked.err
    assert wfctl.ok(*shlex.split(answer)[1:]).err.endswith("\n")
    assert wfctl.ok("run", "show", "run-000001", "-o", "json").json["status"] == "completed"


def test_status_sends_to_the_deployment_where_that_is_what_blocks(wfctl: Wfctl) -> None:
    wfctl.ok("deployment", "add", "d", "--", "/bin/true")
    wfctl.ok("schedule", "add", "nightly", "--deployment", "d", "--every", "1d", "-q")
    (wfctl.root / "deployments/d.toml").write_text("x =\n")
    wfctl.ok("schedules")
    with wfctl.supervisor():
        assert "; mend it with `wfctl deployment edit d`" in wfctl("status").out

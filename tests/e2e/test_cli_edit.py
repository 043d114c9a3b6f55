"""The edit loop at a real terminal and with scripted editors (contract 11.3), and `schedule diff`."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import pytest

from tests.support.commands import Wfctl


@pytest.fixture
def scripted(tmp_path: Path) -> Scripted:
    return Scripted(tmp_path)


class Scripted:
    """Makes editors: a program for each time that the editor is opened, with the file's `text` to change, then saved."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "editor"
        self.folder.mkdir()

    def __call__(self, *turns: str) -> str:
        for number, turn in enumerate(turns, 1):
            (self.folder / f"turn-{number}.py").write_text(turn)
        script = self.folder / "editor.py"
        script.write_text(
            "import pathlib, sys\n"
            f"folder = pathlib.Path({str(self.folder)!r})\n"
            "number = len(list(folder.glob('seen-*'))) + 1\n"
            "path = pathlib.Path(sys.argv[1])\n"
            "scope = {'text': path.read_text(), 'path': path}\n"
            "(folder / f'seen-{number}').write_text(scope['text'])\n"
            "exec((folder / f'turn-{number}.py').read_text(), scope)\n"
            "path.write_text(scope['text'])\n"
        )
        return shlex.join([sys.executable, str(script)])

    def seen(self, turn: int) -> str:
        """The text that the editor was opened with."""
        return (self.folder / f"seen-{turn}").read_text()


@pytest.fixture
def nightly(wfctl: Wfctl, tmp_path: Path) -> Wfctl:
    wfctl.environ["TMPDIR"] = str(tmp_path / "tmp")
    (tmp_path / "tmp").mkdir()
    wfctl.ok("deployment", "add", "dump", "--", "/bin/true")
    wfctl.ok("schedule", "add", "nightly", "--deployment", "dump", "--cron", "30 2 * * 1-5", "--timezone", "Europe/Paris")
    return wfctl


def kept(wfctl: Wfctl) -> list[Path]:
    return list(Path(wfctl.environ["TMPDIR"]).iterdir())


def test_11_3_an_edit_is_saved_and_shows_what_it_changes(nightly: Wfctl, scripted: Scripted) -> None:
    editor = scripted("text = text.replace('30 2 * * 1-5', '0 3 * * *')")
    done = nightly.ok("schedule", "edit", "nightly", EDITOR=editor)
    assert "revision 1 -> 2" in done.err
    assert '"30 2 * * 1-5"  ->  "0 3 * * *"' in done.err
    assert "first difference: " in done.err
    assert nightly.ok("schedule", "show", "nightly", "-o", "json").json["definition"]["trigger"]["expression"] == "0 3 * * *"
    assert kept(nightly) == []
    first = scripted.seen(1)
    assert 'expression = "30 2 * * 1-5"' in first
    assert "#: overlap" in first  # a line of help for each field


def test_11_3_what_is_wrong_stands_on_top_and_is_mended_in_the_next_turn(nightly: Wfctl, scripted: Scripted) -> None:
    editor = scripted(
        "text = text.replace('30 2', '75 2').replace('Europe/Paris', 'Europe/Pari')",
        "text = text.replace('75 2', '45 2').replace('Europe/Pari', 'Europe/Paris')",
    )
    nightly.ok("schedule", "edit", "nightly", EDITOR=editor)
    again = scripted.seen(2).splitlines()
    assert again[0].startswith("# wfctl: nothing was saved.")
    assert any("minute 75 is outside 0-59" in line for line in again if line.startswith("# wfctl:"))
    assert any("did you mean Europe/Paris" in line for line in again if line.startswith("# wfctl:"))
    assert '>>> expression = "75 2 * * 1-5"' in again
    assert '>>> timezone = "Europe/Pari"' in again
    view = nightly.ok("schedule", "show", "nightly", "-o", "json").json
    assert (view["revision"], view["definition"]["trigger"]["expression"]) == (2, "45 2 * * 1-5")
    assert kept(nightly) == []


def test_11_3_a_text_that_stays_wrong_is_kept(nightly: Wfctl, scripted: Scripted) -> None:
    editor = scripted("text = text.replace('30 2', '75 2')", "text = text")
    done = nightly("schedule", "edit", "nightly", EDITOR=editor)
    assert done.status == 65
    (path,) = kept(nightly)
    assert str(path) in done.err
    assert '"75 2 * * 1-5"' in path.read_text()
    assert ">>>" not in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    assert nightly.ok("schedule", "show", "nightly", "-o", "json").json["revision"] == 1


@pytest.mark.parametrize("turn", ["text = text", "text = ''", "text = '# wfctl: nothing\\n\\n'"])
def test_11_3_unchanged_or_empty_cancels(nightly: Wfctl, scripted: Scripted, turn: str) -> None:
    done = nightly("schedule", "edit", "nightly", EDITOR=scripted(turn))
    assert done.status == 1
    assert "nothing was saved" in done.err
    assert nightly.ok("schedule", "show", "nightly", "-o", "json").json["revision"] == 1
    assert kept(nightly) == []


def test_11_3_who_saved_meanwhile_wins_and_nothing_of_yours_is_lost(nightly: Wfctl, scripted: Scripted) -> None:
    save = shlex.join(nightly.argv("schedule", "set", "nightly", "misfire=latest"))
    editor = scripted(f"import os; os.system({save!r} + ' >/dev/null 2>&1'); text = text.replace('\"skip\"', '\"queue\"', 1)")
    done = nightly("schedule", "edit", "nightly", EDITOR=editor)
    assert done.status == 80
    (path,) = kept(nightly)
    assert str(path) in done.err
    text = path.read_text()
    base, theirs, yours = (text.index(word) for word in ("base: revision 1", "theirs: revision 2", "# wfctl: yours"))
    assert base < theirs < yours
    assert '# misfire = "latest"' in text[theirs:yours]
    assert 'overlap = "queue"' in text[yours:]
    view = nightly.ok("schedule", "show", "nightly", "-o", "json").json
    assert (view["revision"], view["definition"]["overlap"], view["definition"]["misfire"]) == (2, "skip", "latest")


def test_11_3_a_dry_run_saves_nothing(nightly: Wfctl, scripted: Scripted) -> None:
    editor = scripted("text = text.replace('30 2', '45 2')")
    done = nightly.ok("schedule", "edit", "nightly", "--dry-run", EDITOR=editor)
    assert "dry run" in done.err
    assert nightly.ok("schedule", "show", "nightly", "-o", "json").json["revision"] == 1


@pytest.mark.parametrize(
    ("editor", "status", "says"),
    [("no-such-editor", 74, "cannot be started"), ("false", 74, "exit status 1"), ("'unbalanced", 74, "cannot be understood")],
)
def test_11_3_an_editor_that_does_not_work(nightly: Wfctl, editor: str, status: int, says: str) -> None:
    done = nightly("schedule", "edit", "nightly", EDITOR=editor)
    assert (done.status, says in done.err) == (status, True), done
    assert kept(nightly) == []


def test_11_3_visual_goes_before_editor_and_the_option_before_both(nightly: Wfctl) -> None:
    assert nightly("schedule", "edit", "nightly", EDITOR="no-such", VISUAL="true").status == 1
    assert nightly("schedule", "edit", "nightly", "--editor", "true", EDITOR="no-such", VISUAL="no-such").status == 1


def test_11_3_a_deployment_is_edited_likewise(nightly: Wfctl, scripted: Scripted) -> None:
    steps = 'format = 1\n[[steps]]\nname = "one"\ncommand = ["/bin/true"]\n[[steps]]\nname = "two"\ncommand = ["/bin/false"]\n'
    editor = scripted(f"text = {steps!r}")
    done = nightly.ok("deployment", "edit", "dump", EDITOR=editor)
    assert "revision 1 -> 2" in done.err
    names = [step["name"] for step in nightly.ok("deployment", "show", "dump", "-o", "json").json["definition"]["steps"]]
    assert names == ["one", "two"]
    back = scripted('text = \'format = 1\\ncommand = ["/bin/echo", "hi"]\\n\'')
    (scripted.folder / "seen-1").unlink()
    nightly.ok("deployment", "edit", "dump", EDITOR=back)
    assert nightly.ok("deployment", "show", "dump", "-o", "json").json["definition"]["command"] == ["/bin/echo", "hi"]


def test_11_3_at_a_terminal_the_editor_has_it_and_ctrl_c_is_the_editors(nightly: Wfctl, tmp_path: Path) -> None:
    """The editor catches Ctrl-C, as vi does; wfctl waits for it, and saves what it left."""
    editor = tmp_path / "editor.sh"
    editor.write_text(
        "trap 'echo caught' INT\n"
        'test -t 0 && test -t 1 && echo "at a terminal"\n'
        "read -r line || read -r line\n"
        'sed -i "s/30 2/$line/" "$1"\n'
    )
    with nightly.terminal("schedule", "edit", "nightly", EDITOR=f"bash {editor}") as terminal:
        terminal.wait_for("at a terminal")
        terminal.type("\x03")
        terminal.wait_for("caught")
        terminal.type("15 4\n")
        seen = terminal.end()
    assert seen.status == 0, seen
    assert "04:15 on Monday to Friday, Europe/Paris" in seen.text
    assert os.listdir(nightly.environ["TMPDIR"]) == []  # noqa: PTH208


# diff -------------------------------------------------------------------------------------------------------------------


def schedule_file(wfctl: Wfctl) -> Path:
    return wfctl.root / "schedules/nightly.toml"


def test_2_3_a_blocked_schedule_is_mended_in_its_own_text(nightly: Wfctl, scripted: Scripted) -> None:
    path = schedule_file(nightly)
    path.write_text("# who wrote this?\n" + path.read_text().replace('"skip"', '"skop"', 1))
    [blocked] = nightly.ok("schedules", "--state", "blocked", "-o", "json").json["items"]
    assert blocked["id"] == "nightly"
    done = nightly.ok("schedule", "edit", "nightly", "--editor", scripted("text = text.replace('skop', 'queue')"))
    assert "# wfctl: schedule nightly is blocked" in scripted.seen(1) and '>>> overlap = "skop"' in scripted.seen(1)
    assert "did you mean" in scripted.seen(1)
    assert "revision 1 -> 2" in done.err
    assert path.read_text().startswith("# who wrote this?\n")  # it stays a file that was written by hand
    assert nightly.ok("schedule", "show", "nightly", "-o", "json").json["definition"]["overlap"] == "queue"
    assert kept(nightly) == []


def test_2_3_what_is_still_wrong_opens_again_and_nothing_is_written(nightly: Wfctl, scripted: Scripted) -> None:
    path = schedule_file(nightly)
    path.write_text(path.read_text() + "x =\n")
    before = path.read_bytes()
    turns = ("text = text.replace('x =', 'deployment = \"none\"')", "text = text.replace('deployment = \"none\"', 'y =')", "0")
    refused = nightly("schedule", "edit", "nightly", "--editor", scripted(*turns))
    assert refused.status == 65 and "your text is kept in" in refused.err
    assert path.read_bytes() == before


def test_2_3_a_file_that_is_gone_is_put_back_as_it_was(nightly: Wfctl, scripted: Scripted) -> None:
    path = schedule_file(nightly)
    before = path.read_bytes()
    path.unlink()
    assert "schedules/nightly.toml is gone" in nightly.ok("schedules").out
    tried = nightly.ok("schedule", "edit", "nightly", "--editor", scripted("0"), "--dry-run")
    assert "dry run" in tried.err and not path.exists()
    done = nightly.ok("schedule", "edit", "nightly", "--editor", scripted("0", "0"))
    assert "revision 1 stays" in done.err
    assert path.read_bytes() == before
    assert nightly.ok("schedule", "show", "nightly", "-o", "json").json["state"] == "active"


def test_2_3_a_text_of_somebody_else_is_not_written_over(nightly: Wfctl, scripted: Scripted) -> None:
    path = schedule_file(nightly)
    path.write_text("x =\n")
    mine = 'format = 1\ndeployment = "dump"\n[trigger]\nkind = "interval"\nevery = "1h"\n'
    editor = scripted(f"import pathlib\npathlib.Path({str(path)!r}).write_text('theirs =\\n')\ntext = {mine!r}")
    refused = nightly("schedule", "edit", "nightly", "--editor", editor)
    assert refused.status == 80 and "your text is kept in" in refused.err
    assert path.read_text() == "theirs =\n"


def test_2_3_a_blocked_deployment_is_mended_likewise(nightly: Wfctl, scripted: Scripted) -> None:
    (nightly.root / "deployments/dump.toml").write_text("command = [\n")
    assert nightly.ok("deployment", "show", "dump", "-o", "json").json["state"] == "blocked"
    nightly.ok("deployment", "edit", "dump", "--editor", scripted("text = 'format = 1\\ncommand = [\"/bin/false\"]\\n'"))
    shown = nightly.ok("deployment", "show", "dump", "-o", "json").json
    assert (shown["state"], shown["definition"]["command"]) == ("active", ["/bin/false"])


def test_diff_of_revisions_and_files(nightly: Wfctl, tmp_path: Path) -> None:
    nightly.ok("schedule", "set", "nightly", "trigger.expression=0 3 * * *", "misfire=latest")
    done = nightly("schedule", "diff", "nightly@1", "nightly@2", "-o", "json")
    assert done.status == 1
    assert [field["path"] for field in done.json["fields"]] == ["misfire", "trigger.expression"]
    calendar = done.json["calendar"]
    assert calendar["after"] == 30
    assert 20 <= calendar["before"] <= 23
    assert nightly("schedule", "diff", "nightly").out.startswith("nightly@1 -> nightly@2")
    same = nightly("schedule", "diff", "nightly@2", "nightly")
    assert (same.status, "say the same" in same.out) == (0, True)
    file = tmp_path / "new.toml"
    file.write_text('format = 1\ndeployment = "dump"\n[trigger]\nkind = "interval"\nevery = "10m"\n')
    done = nightly("schedule", "diff", "nightly", "-f", str(file))
    assert done.status == 1
    assert "trigger.every" in done.out
    assert nightly("schedule", "diff", "nightly@7").status == 66
    assert nightly("schedule", "diff", "nightly@x").status == 2
    assert nightly("schedule", "diff", "nope").status == 66

"""The program itself, before and after its command line (contract 11.7)."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import pytest

from wfctl.cli.app import run
from wfctl.cli.base import Common

PROJECT = Path(__file__).parents[2]
PROGRAM = """
import sys
class Interrupts:
    def find_spec(self, name, *_):
        if name == "wfctl.cli.app":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupts())
from wfctl.__main__ import main
main()
"""


def test_11_7_ctrl_c_while_the_code_is_loaded_gives_130_and_no_traceback() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=PROJECT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_11_7_next_to_nothing_is_loaded_before_ctrl_c_is_answered() -> None:
    program = "import sys; before = {*sys.modules}; import wfctl.__main__; print(*sorted({*sys.modules} - before))"
    done = subprocess.run([sys.executable, "-S", "-c", program], cwd=PROJECT, capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= {"wfctl", "wfctl.__main__", "__future__"}


@pytest.mark.parametrize(("words", "status"), [(["--version"], 0), (["--nonsense"], 2)])
def test_as_a_command_ends_nothing_is_looked_through_for_garbage_any_more(words: list[str], status: int) -> None:
    program = (
        "import atexit, gc, sys\nfrom wfctl.__main__ import main\n"
        "atexit.register(lambda: print('looked through:', len(gc.get_objects()) < 1000, gc.get_freeze_count() > 1000))\n"
        f"sys.argv = ['wfctl', *{words!r}]\nmain()"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1] == "looked through: True True"
    assert done.returncode == status


def test_a_supervisor_looks_through_the_young_sooner_than_a_short_command(monkeypatch: pytest.MonkeyPatch) -> None:
    before, seen = gc.get_threshold(), []
    monkeypatch.setattr("wfctl.supervisor.run.supervise", lambda *_, **__: seen.append(gc.get_threshold()[0]) or 0)
    monkeypatch.setattr(Common, "own_root", lambda self: Path("/nowhere"))
    try:
        assert run(["supervise"]) == 0
    finally:
        gc.set_threshold(*before)
    assert seen == [20_000]

"""The program itself, before and after its command line (contract 11.7)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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

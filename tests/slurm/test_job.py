"""What a node runs: it stands alone, asks little of the node, and writes what the executor reads (contract 6.4, 6.9)."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from wfctl.keeper.protocol import LaunchRequest
from wfctl.slurm import job, staging
from wfctl.slurm.executor import SCRIPT

ODD = "line\nbreak 'quotes\" \udcff$HOME \\ ünïcode"


def test_it_needs_no_newer_python_than_3_6_and_nothing_but_the_standard_library() -> None:
    tree = ast.parse(SCRIPT.read_text("utf-8"), feature_version=(3, 6))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert imported <= sys.stdlib_module_names
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.AnnAssign)]


def test_its_start_loads_little() -> None:  # thousands begin at once
    code = f"import sys; sys.argv = ['x']; exec(open({str(SCRIPT)!r}).read().split('if __name__')[0]); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-IS", "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"json", "re", "enum", "socket", "subprocess", "pathlib"} & set(loaded)


def test_it_can_be_executed_and_says_how() -> None:
    assert SCRIPT.stat().st_mode & 0o111
    assert SCRIPT.read_text("utf-8").startswith("#!/usr/bin/python3 -IS\n")


@pytest.mark.parametrize(
    "value",
    [{"a": 0, "b": 1, "c": True, "d": False, "e": None, "f": -5, "g": 10**17}, {"a": ["x", 'q"\\'], "b": {"c": "d"}}, {}, []],
)
def test_what_it_writes_is_json(value: object) -> None:
    assert json.loads(job.as_json(value)) == value


def test_it_reads_what_it_is_told_whatever_bytes_that_has(tmp_path: Path) -> None:
    request = LaunchRequest(
        run="run-000001", k=1, program="x", argv=["a", "", ODD], environment={"A": ODD, "B": "", "C": "x=y"}, cwd="/srv/x",
        umask=0o027, stdout=f"{tmp_path}/stdout.log", stderr=f"{tmp_path}/stderr.log", directory=f"{tmp_path}/1",
    )  # fmt: skip
    read = job.Request(staging.told(request, tmp_path, Path("/shared/run-000001")))
    odd = ODD.encode("utf-8", "surrogateescape")
    assert (read.argv, read.umask, read.cwd) == ([b"a", b"", odd], 0o027, b"/srv/x")
    assert read.environment == {b"A": odd, b"B": b"", b"C": b"x=y"}
    assert read.stdout == b"/shared/run-000001/stdout.log"


def test_a_nul_that_no_system_would_take_is_left_to_be_refused(tmp_path: Path) -> None:
    request = LaunchRequest(
        run="run-000001", k=1, program="x", argv=["a\0b"], environment={}, cwd="/", umask=0, stdout="/o", stderr="/e",
        directory=f"{tmp_path}/1",
    )  # fmt: skip
    assert job.Request(staging.told(request, tmp_path, tmp_path)).argv == [b""]

"""The table of bounds, and what the gate makes of figures: processor time and losses strictly, wall times with slack."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.bounds import BOUNDS, ROWS, SLACK, Bound, Word, judge, verdicts_of

PROJECT = Path(__file__).parents[2]
WALL = Bound(row=1, key="last", what="wall times", limit=1.5)
CPU = Bound(row=2, key="cpu", what="processor times", limit=1.6, is_strict=True)
LEAST = Bound(row=12, key="plain", what="launches a second", limit=0.75, is_least=True)
MET = {(bound.row, bound.key): bound.limit for bound in BOUNDS if not bound.is_optional}


@pytest.mark.parametrize(
    ("bound", "value", "word"),
    [
        pytest.param(WALL, 1.5, Word.MET, id="the bound itself is met"),
        pytest.param(WALL, 1.51, Word.WITHIN_SLACK, id="a wall ratio has slack"),
        pytest.param(WALL, 1.875, Word.WITHIN_SLACK, id="up to its end"),
        pytest.param(WALL, 1.88, Word.MISSED, id="and no further"),
        pytest.param(CPU, 1.6, Word.MET, id="processor time at its bound"),
        pytest.param(CPU, 1.61, Word.MISSED, id="processor time has no slack"),
        pytest.param(LEAST, 0.75, Word.MET, id="at least so much"),
        pytest.param(LEAST, 0.74, Word.WITHIN_SLACK, id="slack of what is to be reached goes downwards"),
        pytest.param(LEAST, 0.6, Word.WITHIN_SLACK, id="down to its end"),
        pytest.param(LEAST, 0.59, Word.MISSED, id="too little"),
        pytest.param(WALL, float("nan"), Word.NOT_MEASURED, id="a ratio to nothing is no measurement"),
    ],
)
def test_a_bound_is_judged(bound: Bound, value: float, word: Word) -> None:
    verdict = judge(bound, value, 1.25)
    assert verdict.word is word
    assert verdict.passes == (word in (Word.MET, Word.WITHIN_SLACK))


def test_one_lost_job_is_a_miss_whatever_the_slack() -> None:
    (lost,) = [verdict for verdict in verdicts_of([1], {**MET, (1, "lost"): 1.0}, {}, 100.0) if verdict.bound.key == "lost"]
    assert lost.word is Word.MISSED


def test_without_slack_the_bounds_themselves_hold() -> None:
    assert judge(WALL, 1.5, 1.0).word is Word.MET
    assert judge(WALL, 1.51, 1.0).word is Word.MISSED


def test_figures_at_their_bounds_pass_in_the_order_of_the_table() -> None:
    verdicts = verdicts_of(ROWS, MET, {})
    assert [verdict.word for verdict in verdicts] == [Word.MET] * len(MET)
    assert [(verdict.bound.row, verdict.bound.key) for verdict in verdicts] == list(MET)


def test_a_row_that_was_not_measured_does_not_pass_and_says_why() -> None:
    values = {key: value for key, value in MET.items() if key[0] != 8}
    found = [verdict for verdict in verdicts_of(ROWS, values, {8: "not there"}) if not verdict.passes]
    assert {(verdict.bound.row, verdict.word, verdict.reason) for verdict in found} == {(8, Word.NOT_MEASURED, "not there")}


def test_a_part_of_a_row_that_gave_nothing_does_not_pass() -> None:
    values = {key: value for key, value in MET.items() if key != (3, "ms")}
    (missing,) = [verdict for verdict in verdicts_of([3], values, {}) if not verdict.passes]
    assert (missing.bound.key, missing.word) == ("ms", Word.NOT_MEASURED)


def test_only_the_rows_that_are_asked_for_are_judged() -> None:
    assert {verdict.bound.row for verdict in verdicts_of([2, 13], MET, {})} == {2, 13}


def test_other_schedulers_count_where_they_took_part() -> None:
    assert all(verdict.bound.key != "cron" for verdict in verdicts_of([1], MET, {}))
    (cron,) = [verdict for verdict in verdicts_of([1], {**MET, (1, "cron"): 1.3}, {}) if verdict.bound.key == "cron"]
    assert cron.word is Word.MISSED


@pytest.mark.parametrize(
    ("rows", "values", "slack"),
    [([99], MET, SLACK), ([1], {(1, "speed"): 1.0}, SLACK), ([1], MET, 0.9)],
    ids=["a row that is not there", "a figure that is in no row", "a slack that would tighten"],
)
def test_what_the_table_does_not_have_is_refused(rows: list[int], values: dict[tuple[int, str], float], slack: float) -> None:
    with pytest.raises(ValueError, match=r"99|speed|slack"):
        verdicts_of(rows, values, {}, slack)


def test_rows_of_processor_time_sizes_and_losses_are_strict() -> None:
    strict = {bound.row for bound in BOUNDS if bound.is_strict}
    assert {1, 2, 4, 5, 10, 11} <= strict
    assert not any(bound.is_strict for bound in BOUNDS if bound.unit == "ms"), "milliseconds are wall time"


def test_each_row_has_a_benchmark_and_a_line_in_the_readme() -> None:
    readme = (PROJECT / "benchmarks" / "README.md").read_text("utf-8")
    assert sorted({int(row) for row in re.findall(r"^\| (\d+) \|", readme, re.MULTILINE)}) == list(ROWS)
    names = "import rows; print(*sorted(row for measured, _ in rows.BENCHMARKS.values() for row in measured))"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, sys.argv[1]); {names}", str(PROJECT / "benchmarks")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert [int(row) for row in done.stdout.split()] == list(ROWS)


def gate(*words: str, first: str = "") -> subprocess.CompletedProcess[str]:
    """Run the gate as a command; `first` is done before in the same interpreter."""
    folder = PROJECT / "benchmarks"
    run = f"import runpy; runpy.run_path({str(folder / 'gate')!r}, run_name='__main__')"
    code = "\n".join([f"import sys; sys.path[:0] = [{str(folder)!r}, {str(PROJECT)!r}]; import pathlib, rows", first, run])
    return subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)


def test_the_gate_refuses_what_the_table_does_not_have() -> None:
    assert "--rows" in gate("--help").stdout
    refused = gate("--rows", "1,99")
    assert refused.returncode == 2
    assert "no 99" in refused.stderr
    assert gate("--slack", "0.5").returncode == 2


def test_a_benchmark_that_is_not_there_or_fails_is_named_and_the_gate_is_closed(tmp_path: Path) -> None:
    found = gate("--rows", "4,7", "--json", str(tmp_path / "found"), first="rows.HERE = pathlib.Path('/nowhere')")
    assert found.returncode == 1
    assert "row 4: not measured: benchmarks/idle.py is not there" in found.stdout
    assert '"verdict": "not measured"' in (tmp_path / "found").read_text()
    fails = "rows.BENCHMARKS['exits'] = (frozenset({13}), lambda module, asked: sys.exit('no compiler'))"
    found = gate("--rows", "13", first=fails)
    assert (found.returncode, "row 13: not measured: benchmarks/exits.py failed: no compiler" in found.stdout) == (1, True)


def test_the_gate_is_open_where_everything_is_met() -> None:
    found = gate("--rows", "13", first="rows.BENCHMARKS['exits'] = (frozenset({13}), lambda *_: ({(13, 'ratio'): 2.1}, {}))")
    assert found.returncode == 0, found.stdout
    assert "within slack" in found.stdout
    assert "all 1 bounds met" in found.stdout

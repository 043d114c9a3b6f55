"""The check that ends every field report finds what it is there to find."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.drive import MINUTE, Drive, moment
from wfctl import WfctlError

BEGIN = moment("2027-03-01T09:00:30")
Check = Callable[..., None]


@pytest.fixture
def drive(tmp_path: Path) -> Iterator[Drive]:
    """Two runs of one schedule that is limited to one."""
    with Drive(tmp_path / "store", BEGIN) as found:
        found.deployment(["/bin/true"])
        found.cron("s")
        found.to(BEGIN + 2 * MINUTE)
        yield found


def line(what: str, run: int, at: int, *, k: int = 1, minute: int | None = None) -> str:
    return f"{what} s 2027-03-01T09:0{minute or run}:00Z run-{run:06d} {k} {at}\n"


GOOD = line("start", 1, 10) + line("end", 1, 20) + line("start", 2, 20) + line("end", 2, 30)


def test_what_agrees_passes(drive: Drive, tmp_path: Path, ledger_check: Check) -> None:
    (tmp_path / "side").write_text(GOOD)
    ledger_check(drive.store, tmp_path / "side")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param(GOOD.replace("1 20\n", "1 21\n", 1), "2 at once", id="two at once"),
        pytest.param(GOOD + line("start", 2, 40) + line("end", 2, 50), "launched twice", id="an execution launched twice"),
        pytest.param(GOOD + line("start", 3, 40) + line("end", 3, 50), "no record", id="a job of which no record says so"),
        pytest.param(
            line("start", 1, 10) + line("end", 1, 20) + line("start", 2, 20, minute=1) + line("end", 2, 30), "ran twice",
            id="an occurrence that ran twice",
        ),
    ],
)  # fmt: skip
def test_what_jobs_say_otherwise_fails(drive: Drive, tmp_path: Path, ledger_check: Check, text: str, said: str) -> None:
    (tmp_path / "side").write_text(text)
    with pytest.raises(AssertionError, match=said):
        ledger_check(drive.store, tmp_path / "side")


@pytest.mark.parametrize(
    "statement",
    [
        pytest.param("UPDATE occurrences SET status = 99 WHERE run = 1", id="an unknown status"),
        pytest.param("DELETE FROM runs WHERE number = 1", id="an occurrence without its run"),
        pytest.param("DELETE FROM occurrences WHERE run = 1", id="a run without its occurrence"),
        pytest.param("UPDATE schedules SET watermark = watermark + 60000000", id="a watermark beyond what is recorded"),
    ],
)
def test_records_that_contradict_each_other_fail(drive: Drive, ledger_check: Check, statement: str) -> None:
    drive.store.context.ledger.connection.execute(statement)
    with pytest.raises((AssertionError, WfctlError)):
        ledger_check(drive.store)

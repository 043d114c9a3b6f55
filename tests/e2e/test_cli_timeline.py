"""`wfctl timeline` as it is typed: at a terminal, in a pipe, in the C locale, into files, and wrongly (contract 8.5, 11.6)."""

from __future__ import annotations

import json
import stat
from datetime import UTC, datetime
from pathlib import Path

import jsonschema_rs
import pytest

from tests.support.commands import Wfctl
from tests.support.rich_history import History
from wfctl.cli.text import cells
from wfctl.operations.store import init_store
from wfctl.rpc.documents import all_components


@pytest.fixture(scope="module")
def wfctl(tmp_path_factory: pytest.TempPathFactory) -> Wfctl:
    """A store of whose history everything is, up to now."""
    folder = tmp_path_factory.mktemp("timeline")
    history = History(folder / "store", datetime.now(UTC).replace(microsecond=0))
    history.live()
    history.world.stop()
    history.world.die()
    return Wfctl(folder / "store", folder)


def test_a_terminal_of_80_columns_gets_a_picture_that_fits(wfctl: Wfctl) -> None:
    seen = wfctl.at_terminal("timeline", columns=80, NO_COLOR="1")
    assert seen.status == 0
    assert max(cells(line) for line in seen.lines) <= 80
    assert "\x1b" not in seen.text and "▐" in seen.text and "now " in seen.text
    wide = wfctl.at_terminal("timeline", columns=200, NO_COLOR="1")
    assert 150 < max(cells(line) for line in wide.lines) <= 200
    assert "\x1b[3" in wfctl.at_terminal("timeline", columns=80).text


@pytest.mark.parametrize("environ", [{"LC_ALL": "C"}, {"LANG": "C", "PYTHONUTF8": "0"}], ids=["LC_ALL=C", "LANG=C"])
def test_in_the_c_locale_all_of_it_is_ascii(wfctl: Wfctl, environ: dict[str, str]) -> None:
    seen = wfctl.at_terminal("timeline", columns=80, NO_COLOR="1", **environ)
    assert seen.status == 0 and seen.text.isascii() and "[==" in seen.text
    assert wfctl.bytes("timeline", **environ).stdout.isascii()


def test_a_pipe_gets_100_columns_without_colour_unless_columns_says_otherwise(wfctl: Wfctl) -> None:
    done = wfctl.ok("timeline", FORCE_COLOR="1")
    assert 90 < max(map(len, done.out.splitlines())) <= 100 and done.out.isascii() and done.err == ""
    assert max(map(len, wfctl.ok("timeline", COLUMNS="140").out.splitlines())) > 120


def test_json_is_what_its_schema_says(wfctl: Wfctl) -> None:
    document = wfctl.ok("timeline", "-o", "json").json
    assert document["schema"] == "wfctl/timeline.v1"
    components = all_components()
    schema = {"$ref": "#/components/schemas/Timeline", "components": {"schemas": components}}
    assert [error.message for error in jsonschema_rs.Draft7Validator(schema).iter_errors(document)] == []
    (line,) = wfctl.ok("timeline", "-o", "jsonl").out.splitlines()
    assert json.loads(line)["schema"] == document["schema"]


def test_csv_has_instants_for_programs_and_name_the_lanes(wfctl: Wfctl) -> None:
    lines = wfctl.ok("timeline", "rotate-keys", "-o", "csv").out.splitlines()
    assert lines[0] == "schedule_id,instant,what,begins,ends,took,run_id,why"
    assert lines[1].split(",")[1].endswith("Z")
    assert "etl-orders" in wfctl.ok("timeline", "-o", "name").out.split()


def test_files_are_written_and_stdout_stays_free_for_another_answer(wfctl: Wfctl, tmp_path: Path) -> None:
    svg, html = tmp_path / "a.svg", tmp_path / "a.html"
    done = wfctl.ok("timeline", "--svg", str(svg), "--html", str(html))
    assert done.out == "" and done.err.splitlines() == [f"wrote {svg}", f"wrote {html}"]
    assert svg.read_text().startswith("<?xml") and html.read_text().startswith("<!DOCTYPE html>")
    assert not stat.S_IMODE(svg.stat().st_mode) & 0o111
    assert wfctl.ok("timeline", "--svg", "-").out.endswith("</svg>\n")
    assert wfctl.ok("timeline", "--svg", str(svg), "-o", "json").json["schema"] == "wfctl/timeline.v1"


def test_grouped_and_narrowed_and_in_another_zone(wfctl: Wfctl) -> None:
    assert "slot 1" in wfctl.ok("timeline", "--by", "slot").out
    assert "by hand" not in wfctl.ok("timeline", "--by", "deployment", "etl-orders").out
    out = wfctl.ok("timeline", "etl-orders", "--since", "3h", "--until", "now", "--timezone", "Asia/Kolkata").out
    assert out.startswith("IST") and "etl-orders" in out and "hourly-report" not in out


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["nope"], 66, "no schedule 'nope'"),
        (["--since", "1h", "--until", "2h ago"], 2, "--since is not before --until"),
        (["--since", "yesterday"], 2, "since"),
        (["--until", "soon"], 2, "--until"),
        (["--timezone", "Europe/Pari"], 2, "Europe/Paris"),
        (["--by", "colour"], 2, "colour"),
        (["--svg", "/nowhere/at/all/a.svg"], 73, "No such file"),
        (["--svg", "-", "--html", "-"], 2, "cannot both"),
        (["--html", "/dev/full"], 74, "No space left"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_what_is_wrong_is_said_and_nothing_else_printed(wfctl: Wfctl, words: list[str], status: int, said: str) -> None:
    done = wfctl("timeline", *words)
    assert done.status == status and said in done.err and "Traceback" not in done.err
    assert done.out == ""


def test_an_empty_store_says_so(tmp_path: Path) -> None:
    init_store(tmp_path / "store").close()
    done = Wfctl(tmp_path / "store", tmp_path).ok("timeline")
    assert done.out.startswith("there are no schedules, and nothing ran:")

"""What is typed and what is shown: values, dotted keys, moments, durations, reasons."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from wfctl.cli import parse, values
from wfctl.core import reasons
from wfctl.errors import InvalidArgument, InvalidDefinition, NotFound

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param("5", 5, id="a number"),
        pytest.param("true", True, id="a claim"),
        pytest.param('"5"', "5", id="a JSON string"),
        pytest.param("eu", "eu", id="a word"),
        pytest.param("", "", id="nothing"),
        pytest.param('["a", 1]', ["a", 1], id="a list"),
        pytest.param("022", "022", id="a leading zero is no JSON"),
        pytest.param("NaN", "NaN", id="NaN is no JSON"),
        pytest.param('{"a": 1, "a": 2}', '{"a": 1, "a": 2}', id="duplicate keys are no JSON"),
        pytest.param("a=b", "a=b", id="a second equals sign"),
    ],
)
def test_a_value_is_json_where_it_parses_as_json(text: str, value: object) -> None:
    assert parse.pairs([f"key={text}"]) == {"key": value}  # contract 11.2


@pytest.mark.parametrize("text", ["novalue", "=x", " =x"])
def test_what_is_no_pair_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match="is not KEY=VALUE"):
        parse.pairs([text])


def test_the_pairs_of_an_input_go_over_its_document(tmp_path: Path) -> None:
    file = tmp_path / "input.json"
    file.write_text('{"region": "us", "n": 1}')
    assert parse.bound_input(["region=eu"], f"@{file}") == {"region": "eu", "n": 1}
    assert parse.bound_input([], '{"n": 2}') == {"n": 2}
    assert parse.bound_input([], None) is None
    with pytest.raises(InvalidDefinition, match="must be a table"):
        parse.bound_input(["region=eu"], "[1]")
    assert parse.bound_input([], "[1]") == [1], "what is wrong with it the operation says"
    with pytest.raises(InvalidDefinition, match="is not JSON"):
        parse.bound_input([], "{")
    with pytest.raises(NotFound, match="cannot read"):
        parse.bound_input([], f"@{tmp_path}/absent")


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        pytest.param("2h", NOW - timedelta(hours=2), id="a duration counts back"),
        pytest.param("7d", NOW - timedelta(days=7), id="days"),
        pytest.param("now", NOW, id="now"),
        pytest.param("2026-11-30T13:00:00+01:00", NOW, id="an instant with an offset"),
        pytest.param(None, None, id="nothing"),
    ],
)
def test_moments(text: str | None, instant: datetime | None) -> None:
    assert parse.moment(text, "--since", NOW) == instant


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param("2026-11-30T13:00:00", "has no offset", id="a naive time names the ways to mend it"),
        pytest.param("1h30", "did you mean 1h30m", id="a bare number at the end"),
        pytest.param("yesterday", "since: 'yesterday' is not an instant", id="a word, as the operation refuses it"),
    ],
)
def test_moments_that_are_refused(text: str, says: str) -> None:
    with pytest.raises(InvalidArgument, match=says):
        parse.moment(text, "--since", NOW)


@pytest.mark.parametrize(
    ("path", "parts"),
    [
        pytest.param("notes", ["notes"], id="one"),
        pytest.param("trigger.expression", ["trigger", "expression"], id="two"),
        pytest.param('input."a.b".c', ["input", "a.b", "c"], id="a quoted part"),
        pytest.param('input."a b"', ["input", "a b"], id="a quoted end"),
    ],
)
def test_dotted_keys(path: str, parts: list[str]) -> None:
    assert parse.split_path(path) == parts


@pytest.mark.parametrize("path", ["", ".", "a.", ".a", "a..b", 'a."b', 'a."b"c'])
def test_dotted_keys_that_are_refused(path: str) -> None:
    with pytest.raises(InvalidArgument):
        parse.split_path(path)


CURRENT: dict[str, Any] = {
    "trigger": {"kind": "cron", "expression": "0 * * * *", "timezone": "UTC"},
    "input": {"region": "eu", "deep": {"n": 1}},
    "notes": None,
    "steps": [{"name": "extract", "timeout": "none"}, {"name": "load", "timeout": "1m"}],
}


def changes(*words: str, unset: tuple[str, ...] = ()) -> parse.Changes:
    made = parse.Changes(CURRENT, frozenset({"notes", "trigger.expression"}))
    for word in words:
        made.assign(*parse.split_pair(word))
    for key in unset:
        made.remove(key)
    return made


def test_dotted_keys_go_into_the_whole_table() -> None:
    made = changes(
        "trigger.expression=5 * * * *", "input.region=us", "input.deep.n=2", "steps.load.timeout=5m", "steps.0.retries=2"
    )
    assert made.fields == {  # contract 3.2: tables are replaced whole
        "trigger": {"kind": "cron", "expression": "5 * * * *", "timezone": "UTC"},
        "input": {"region": "us", "deep": {"n": 2}},
        "steps": [{"name": "extract", "timeout": "none", "retries": 2}, {"name": "load", "timeout": "5m"}],
    }
    assert CURRENT["input"] == {"region": "eu", "deep": {"n": 1}}, "what was read is not touched"


def test_unset_of_a_dotted_key_leaves_the_others() -> None:
    assert changes(unset=("input.region", "notes")).fields == {"input": {"deep": {"n": 1}}}
    assert changes(unset=("input.region", "notes")).unset == ["notes"]
    with pytest.raises(InvalidArgument, match=r"input\.absent is not set"):
        changes(unset=("input.absent",))


def test_fields_of_text_stay_text() -> None:
    assert changes("notes=2026").fields == {"notes": "2026"}
    assert changes("input.year=2026").fields["input"]["year"] == 2026


@pytest.mark.parametrize(
    ("word", "says"),
    [
        pytest.param("steps.transform.timeout=5m", "there is no item 'transform'", id="no such step"),
        pytest.param("input.region.code=1", "there is no table", id="below a text"),
    ],
)
def test_dotted_keys_that_lead_nowhere(word: str, says: str) -> None:
    with pytest.raises(InvalidArgument, match=says):
        changes(word)


def test_names_of_occurrences() -> None:
    assert parse.occurrence_name("hourly@2026-11-30T12:00:00Z") == ("hourly", NOW)
    for wrong in ("hourly", "@2026-11-30T12:00:00Z", "hourly@noon"):
        with pytest.raises(InvalidArgument):
            parse.occurrence_name(wrong)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, ""),
        (0, "0s"),
        (0.0124, "12ms"),
        (1, "1s"),
        (1.25, "1.2s"),
        (41.4, "41s"),
        (59.6, "1m"),
        (3_600, "1h"),
        (7_500, "2h 05m"),
        (90_000, "1d 01h"),
        (31_536_000, "365d"),
        (-5, "-5s"),
    ],
)
def test_durations_have_two_units(seconds: float | None, text: str) -> None:
    assert values.duration(seconds) == text


def test_relative_instants() -> None:
    assert values.relative(NOW + timedelta(minutes=3), NOW) == "in 3m"
    assert values.relative(NOW - timedelta(hours=4), NOW) == "4h ago"
    assert values.relative(None, NOW) == ""


@pytest.mark.parametrize(
    ("reason", "phrase"),
    [
        pytest.param(None, "", id="none"),
        pytest.param(
            {"code": "overlap", "runs": ["run-000001"], "limit": 1}, "overlap: run-000001 held the slot", id="overlap"
        ),
        pytest.param({"code": "capacity", "limit": 4}, "capacity: all 4 execution slots were taken", id="capacity"),
        pytest.param({"code": "exit", "exit_status": 2, "step": "load"}, "exit 2 in step load", id="exit"),
        pytest.param({"code": "exit", "exit_status": 2, "step": "main"}, "exit 2", id="exit of the only step"),
        pytest.param({"code": "signal", "signal": 9}, "ended by SIGKILL", id="signal"),
        pytest.param({"code": "cancelled", "actor": "ann", "note": "late"}, "cancelled by ann: late", id="cancelled"),
        pytest.param({"code": "missed", "allowed_s": 60.0}, "missed: later than the 1m allowed", id="missed"),
        pytest.param({"code": "of-tomorrow", "x": 1}, "of-tomorrow", id="codes are only added"),
    ],
)
def test_phrases_of_reasons(reason: dict[str, Any] | None, phrase: str) -> None:
    assert reasons.phrase(reason) == phrase  # contract 5.10


def test_every_code_of_a_reason_has_a_phrase() -> None:
    codes = [
        "overlap",
        "capacity",
        "missed",
        "outlived",
        "newer",
        "edited",
        "paused",
        "deleted",
        "clock",
        "preflight",
        "preflight-timeout",
        "exit",
        "signal",
        "timeout",
        "deadline",
        "cancelled",
        "drained",
        "shutdown",
        "abandoned",
        "outcome-unknown",
        "not-started",
        "launch-failed",
        "output-invalid",
        "max-steps",
        "ledger-restored",
        "ambiguous",
        "time-limit",
        "out-of-memory",
        "preempted",
        "node-failed",
        "cancelled-outside",
    ]  # contract 8.7
    assert all(reasons.phrase({"code": code}) for code in codes)
    assert set(codes) == set(reasons.PHRASES)

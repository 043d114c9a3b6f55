"""Which triggers are taken, how they are stored, and what a refusal says to write instead (contract 4.1, 4.3 to 4.5)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wfctl.core.cron import MAX_CHARACTERS, RULES, WEEKDAY, ExpressionRefused, parse_expression
from wfctl.core.model import CronTrigger, IntervalTrigger, OneshotTrigger
from wfctl.core.trigger import _Asker, check_fires, is_zone, parse_trigger, trigger_to_plain, valid_zones
from wfctl.errors import InvalidDefinition

NOW = datetime(2026, 6, 15, 10, tzinfo=UTC)


def cron(expression, zone="UTC"):
    return {"kind": "cron", "expression": expression, "timezone": zone}


@pytest.mark.parametrize(
    ("written", "stored"),
    [
        pytest.param("0 0 * * *", "0 0 * * *", id="as it is"),
        pytest.param("  0\t0  *   * * ", "0 0 * * *", id="blanks become one space"),
        pytest.param("0 0 1 JAN,jul MON-fri", "0 0 1 jan,jul mon-fri", id="names become lower case"),
        pytest.param("05 09 * * *", "05 09 * * *", id="leading zeros stay"),
        pytest.param("@hourly", "0 * * * *", id="@hourly"),
        pytest.param("@Daily", "0 0 * * *", id="@daily in any case"),
        pytest.param("@midnight", "0 0 * * *", id="@midnight"),
        pytest.param("@weekly", "0 0 * * 0", id="@weekly"),
        pytest.param("@monthly", "0 0 1 * *", id="@monthly"),
        pytest.param("@yearly", "0 0 1 1 *", id="@yearly"),
        pytest.param("@annually", "0 0 1 1 *", id="@annually"),
        pytest.param("0 22-2 * * fri-mon", "0 22-2 * * fri-mon", id="a wrap stays as written"),
    ],
)
def test_how_an_expression_is_stored(written, stored):  # contract 4.1
    trigger = parse_trigger(cron(written))
    assert trigger == CronTrigger(stored, "UTC")
    assert parse_trigger(trigger_to_plain(trigger)) == trigger


@pytest.mark.parametrize(
    ("written", "spelled", "expanded"),
    [
        ("0 22-2 * * *", "0 0,1,2,22,23 * * *", "0 0,1,2,22,23 * * *"),
        ("0 0 * * fri-mon", "0 0 * * 0,1,5,6", "0 0 * * sun,mon,fri,sat"),
        ("0 0 * 11-2 *", "0 0 * 1,2,11,12 *", "0 0 * jan,feb,nov,dec *"),
        ("0 0 * * 5-7", "0 0 * * 0,5,6", "0 0 * * 5-7"),
        ("0 0 * * 1-7/2", "0 0 * * 0,1,3,5", "0 0 * * 1-7/2"),
        ("0 0 * * 0-7", "0 0 * * 0,1,2,3,4,5,6", "0 0 * * 0-7"),
        ("0 0 * * sun,7", "0 0 * * 0", "0 0 * * sun,7"),
        ("*/60 */24 * * *", "0 0 * * *", "*/60 */24 * * *"),
        ("*,5 * * * *", "* * * * *", "*,5 * * * *"),
        ("*/20,5 * * * *", "0,5,20,40 * * * *", "*/20,5 * * * *"),
    ],
)
def test_how_an_expression_is_spelled_out(written, spelled, expanded):  # contract 4.1
    expression = parse_expression(written)
    assert (expression.spelled, expression.expanded) == (spelled, expanded)


@pytest.mark.parametrize(
    ("written", "instead"),
    [
        ("5-5 * * * *", "write '5'"),
        ("0 0 * * 7-7", "write '7'"),
        ("0 0 * * 7-0", "write '7'"),
        ("5/15 * * * *", "write '5-59/15'"),
        ("59/15 * * * *", "write '59'"),
        ("0 0 * * 1/2", "write '1-6/2'"),
        ("0 0 1 11-2/3 *", "write '2,11'"),
        ("0 22-4/3 * * *", "write '1,4,22'"),
        ("0 0 L * *", "write '28-31'"),
        ("0 0 LW * *", "`L` is not taken"),
        ("0 0 15W * *", "'1-5' as day of week"),
        ("0 0 * * 5L", "`L` is not taken"),
        ("0 0 * * friL", "`L` is not taken"),
        ("0 0 * * 2#3", "`#` is not taken"),
        ("0 0 ? * *", "write '*'"),
        ("H * * * *", "write a number of 0-59"),
        ("H(0-29)/10 * * * *", "write a number of 0-59"),
        ("R/15 * * * *", "write a number of 0-59"),
        ("@reboot", "systemd unit"),
        ("@every 5m", 'kind = "interval"'),
        ("@hourl", "did you mean @hourly?"),
        ("@never", "write one of @hourly"),
        ("TZ=UTC 0 0 * * *", "field `timezone`"),
        ("0 0 * * * # nightly", "field `notes`"),
        ("0 0 * *", "has 4 fields"),
        ("*", "has 1 field, not five"),
        ("0 0 0 * * *", "seconds and years are not taken"),
        ("75 * * * *", "minute 75 is outside 0-59"),
        ("99999999999999999999 * * * *", "is outside 0-59"),
        ("0 0 * * 8", "0 and 7 are Sunday"),
        ("0 0 * january *", "write 'jan'"),
        ("0 0 * mon *", "is a day of week"),
        ("0 0 * * jul", "is a month"),
        ("0 0 * * mno", "did you mean 'mon'?"),
        ("0 0 * * lun", "one of sun, mon, tue"),
        ("0 0 * * mar", "names are the English sun, mon"),
        ("0 x * * *", "write a number of 0-23"),
        ("*/x * * * *", "is not a number"),
        ("*/0 * * * *", "write 1 or more"),
        ("*/ * * * *", "write '*', a number"),
        ("*-5 * * * *", "write '*', a number"),
        ("1- * * * *", "write '1-59'"),
        ("1,,2 * * * *", "empty item"),
        ("-1 * * * *", "negative"),
        ("1.5 * * * *", "whole numbers"),
        ("*/5/2 * * * *", "only one step"),
        ("0\x0b0 * * * *", "plain ASCII"),
        ("0 0 * * *\n", "on one line"),
    ],
)
def test_a_refused_expression_says_what_to_write(written, instead):  # contract 4.1
    with pytest.raises(InvalidDefinition) as caught:
        parse_trigger(cron(written))
    assert instead in str(caught.value)


@pytest.mark.parametrize(
    ("written", "marked"),
    [
        ("75 2 * * *", ["75"]),
        (" \t5-5  2 * * 9", ["5-5", "9"]),
        ("1,75,3,80 * * * *", ["75", "80"]),
        ("1,,2 * * * *", [","]),
        ("0 0 0 * * *", ["*"]),
        ("0 0\x0b* * * *", ["\x0b"]),
        ("@reboot", [None]),
        ("0 0 * *", [None]),
    ],
)
def test_a_refusal_says_where_it_stands(written, marked):  # for a caret below it
    with pytest.raises(ExpressionRefused) as caught:
        parse_expression(written)
    assert [mark and written[mark[0] : mark[1]] for mark in caught.value.marks] == marked
    assert len(caught.value.marks) == len(caught.value.messages)


def test_a_range_that_ends_on_sunday_is_no_wrap_with_a_step():
    assert parse_expression("0 0 * * sun-7/7").weekday.values == (0,)


@pytest.mark.parametrize(("length", "is_taken"), [(256, True), (257, False)])
def test_the_limit_of_an_expression(length, is_taken):  # contract 3.6
    text = "0 0 * * " + "0," * 200
    text = text[: length - 1].rstrip(",") + "0" * (length - len(text[: length - 1].rstrip(",")))
    assert len(text) == length
    if is_taken:
        assert parse_expression(text).weekday.values == (0,)
    else:
        with pytest.raises(ExpressionRefused, match="the limit is 256"):
            parse_expression(text)


def test_all_problems_are_told_at_once():  # contract 3.6
    with pytest.raises(InvalidDefinition) as caught:
        parse_trigger({"kind": "cron", "expression": "75 2 * * 9", "timezone": "Europe/Pari", "expresion": "x"})
    told = [(problem.path, problem.message) for problem in caught.value.problems]
    assert [path for path, _ in told] == ["trigger.expresion", "trigger.expression", "trigger.expression", "trigger.timezone"]
    assert "did you mean expression?" in told[0][1]
    assert "did you mean Europe/Paris" in told[3][1]


@pytest.mark.parametrize(
    ("plain", "path", "said"),
    [
        ({}, "trigger.kind", "is missing"),
        ({"kind": "crno"}, "trigger.kind", "did you mean cron?"),
        ({"kind": 5}, "trigger.kind", "write one of cron, interval, oneshot"),
        ("* * * * *", "trigger", "is not a table"),
        ({"kind": "cron"}, "trigger.expression", "is missing"),
        ({"kind": "cron", "expression": 5}, "trigger.expression", "is not text"),
        ({"kind": "cron", "expression": "* * * * *", "timezone": 5}, "trigger.timezone", "is not text"),
        ({"kind": "interval"}, "trigger.every", "is missing"),
        ({"kind": "interval", "every": "999ms"}, "trigger.every", "shorter than a second"),
        ({"kind": "interval", "every": "1h30"}, "trigger.every", "did you mean 1h30m?"),
        ({"kind": "interval", "every": 60}, "trigger.every", "as text with a unit"),
        ({"kind": "interval", "every": "1m", "timezone": "UTC"}, "trigger.timezone", 'belongs to kind = "cron"'),
        ({"kind": "oneshot"}, "trigger.at", "is missing"),
        ({"kind": "oneshot", "at": "2026-12-01T09:00:00"}, "trigger.at", "has no offset"),
        ({"kind": "oneshot", "at": datetime(2026, 12, 1)}, "trigger.at", "has no offset"),
        ({"kind": "oneshot", "at": 5}, "trigger.at", "is not an instant"),
    ],
)
def test_a_refused_trigger_names_the_key(plain, path, said):  # contract 3.5, 3.6, 4.3 to 4.5
    with pytest.raises(InvalidDefinition) as caught:
        parse_trigger(plain)
    (problem,) = caught.value.problems
    assert problem.path == path
    assert said in problem.message


@pytest.mark.parametrize(
    ("plain", "trigger", "written"),
    [
        (
            {"kind": "cron", "expression": "@daily"},
            CronTrigger("0 0 * * *", "UTC"),
            {"kind": "cron", "expression": "0 0 * * *", "timezone": "UTC"},
        ),
        ({"kind": "interval", "every": "60s"}, IntervalTrigger(timedelta(minutes=1)), {"kind": "interval", "every": "1m"}),
        (
            {"kind": "oneshot", "at": "2026-12-01T09:00:00+01:00"},
            OneshotTrigger(datetime(2026, 12, 1, 8, tzinfo=UTC)),
            {"kind": "oneshot", "at": "2026-12-01T08:00:00Z"},
        ),
        (
            {"kind": "oneshot", "at": datetime(2026, 12, 1, 9, tzinfo=timezone(timedelta(hours=1)))},
            OneshotTrigger(datetime(2026, 12, 1, 8, tzinfo=UTC)),
            {"kind": "oneshot", "at": "2026-12-01T08:00:00Z"},
        ),
    ],
)
def test_a_trigger_and_its_plain_form(plain, trigger, written):  # contract 3, 3.0, 4.3
    assert parse_trigger(plain) == trigger
    assert trigger_to_plain(trigger) == written


def test_every_zone_of_the_machine_is_taken_but_two():  # contract 4.3
    zones = valid_zones()
    assert {"UTC", "Europe/Budapest", "America/Argentina/Buenos_Aires", "Etc/GMT-2", "GMT+0"} <= zones
    assert not {"localtime", "Factory"} & zones
    assert all(is_zone(zone) for zone in zones)


@pytest.mark.parametrize(
    "name",
    ["", "utc", "UTC ", "America", "../UTC", "/etc/localtime", "localtime", "Factory", "posixrules", "posix/UTC", "right/UTC",
     "zone.tab", "tzdata.zi", "GMT+5", "+02:00", "Europe//Budapest", "Europe/Budapest/", "UTC\0", "UTC\n", "Mars/Base", "é",
     5, None, "A" * 5000],
)  # fmt: skip
def test_no_zone(name):  # contract 4.3
    assert not is_zone(name)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("budapest", "did you mean Europe/Budapest?"),
        ("utc", "did you mean UTC?"),
        ("Europe/Pari", "did you mean Europe/Paris"),
        ("New York", "did you mean America/New_York?"),
        ("GMT+5", "is an offset"),
        ("+02:00", "is an offset"),
        ("localtime", "depends on the machine"),
        ("", "write a name such as"),
    ],
)
def test_a_refused_zone_says_what_to_write(name, said):  # contract 3.5, 4.3
    with pytest.raises(InvalidDefinition) as caught:
        parse_trigger(cron("* * * * *", name))
    assert said in str(caught.value)


@pytest.mark.parametrize("expression", ["0 0 30 2 *", "0 0 31 4,6,9,11 *", "59 23 31 2 *"])
def test_what_never_fires_is_refused(expression):  # contract 4.2
    with pytest.raises(InvalidDefinition, match="never fires"):
        check_fires(parse_trigger(cron(expression)), NOW)


@pytest.mark.parametrize("after", ["2096-02-29T00:00:00+00:00", "2096-03-01T00:00:00+00:00", "2026-06-15T00:00:00+00:00"])
def test_eight_years_are_within_the_search(after):  # contract 4.2: 29 February 2096 to 2104
    check_fires(parse_trigger(cron("0 0 29 2 *")), datetime.fromisoformat(after))


@pytest.mark.parametrize(("late_s", "is_taken"), [(-1, False), (0, False), (1, True)])
def test_a_oneshot_must_lie_ahead(late_s, is_taken):  # contract 3.5
    trigger = OneshotTrigger(NOW + timedelta(seconds=late_s))
    if is_taken:
        check_fires(trigger, NOW)
    else:
        with pytest.raises(InvalidDefinition, match="not later than now"):
            check_fires(trigger, NOW)


@st.composite
def items(draw, rule):
    low = draw(st.integers(rule.low, rule.high))
    high = draw(st.integers(rule.low, rule.high))
    shape = draw(st.sampled_from(["*", "*/{step}", "{low}", "{low}-{high}", "{low}-{high}/{step}", "{low}/{step}"]))
    return shape.format(low=low, high=high, step=draw(st.integers(1, 70)))


@st.composite
def fields(draw, rule):
    return ",".join(draw(st.lists(items(rule), min_size=1, max_size=3)))


@given(st.tuples(*(fields(rule) for rule in RULES)))
def test_an_expression_is_refused_or_croniter_reads_the_same(words):
    try:
        expression = parse_expression(" ".join(words))
    except ExpressionRefused as refused:
        assert refused.messages
        return
    _Asker(expression, UTC)  # compares what croniter holds with what we read
    for field in expression.fields:
        assert field.values
        high = 6 if field.rule is WEEKDAY else field.rule.high
        assert all(field.rule.low <= value <= high for value in field.values)
    assert parse_expression(expression.text) == expression
    if len(expression.expanded) <= MAX_CHARACTERS:  # it is for showing; what wraps around twice may be long
        assert parse_expression(expression.expanded).spelled == expression.spelled


@given(st.text(max_size=40))
def test_any_text_is_taken_or_refused_in_words(text):
    try:
        parse_trigger(cron(text))
    except InvalidDefinition as refused:
        assert refused.problems

"""Reading crontabs (contract 11.8)."""

from __future__ import annotations

import pytest

from wfctl.core.crontab import id_for, read_crontab

DEBIAN = """\
# /etc/crontab: system-wide crontab
# Unlike any other crontab you don't have to run the `crontab'
# command to install the new version when you edit this file

SHELL=/bin/sh
# You can also override PATH, but by default, newer versions inherit it from the environment
#PATH=/usr/local/sbin:/usr/local/bin:/sbin:/bin:/usr/sbin:/usr/bin

# Example of job definition:
# .---------------- minute (0 - 59)
# |  .------------- hour (0 - 23)
# *  *  *  *  * user-name command to be executed
17 *\t* * *\troot    cd / && run-parts --report /etc/cron.hourly
25 6\t* * *\troot\ttest -x /usr/sbin/anacron || { cd / && run-parts --report /etc/cron.daily; }
47 6\t* * 7\troot\ttest -x /usr/sbin/anacron || { cd / && run-parts --report /etc/cron.weekly; }
52 6\t1 * *\troot\ttest -x /usr/sbin/anacron || { cd / && run-parts --report /etc/cron.monthly; }
#
"""


def test_11_8_debians_own_crontab() -> None:
    read = read_crontab(DEBIAN, user_column=True)
    assert not read.left_out
    assert not read.problems
    assert [(line.expression, line.user) for line in read.lines] == [
        ("17 * * * *", "root"),
        ("25 6 * * *", "root"),
        ("47 6 * * 7", "root"),
        ("52 6 1 * *", "root"),
    ]
    assert read.lines[1].command == "test -x /usr/sbin/anacron || { cd / && run-parts --report /etc/cron.daily; }"
    assert [id_for(line.command) for line in read.lines] == ["cron.hourly", "cron.daily", "cron.weekly", "cron.monthly"]
    assert [line.remark for line in read.lines] == [None] * 4


def test_11_8_variables_hold_for_the_lines_below_them() -> None:
    read = read_crontab(
        "0 1 * * * first\n"
        "PATH=/opt/bin:/usr/bin\n"
        "GREETING = ' two  words '\n"
        'SHELL="/bin/bash"\n'
        "EMPTY=\n"
        "1 1 * * * second\n"
        "CRON_TZ=Europe/Budapest\n"
        "TZ=Asia/Tokyo\n"
        "2 1 * * * third\n"
    )
    first, second, third = read.lines
    assert (first.environment, first.shell, first.timezone) == ({}, "/bin/sh", None)
    assert second.environment == {"PATH": "/opt/bin:/usr/bin", "GREETING": " two  words ", "EMPTY": ""}
    assert (second.shell, second.timezone) == ("/bin/bash", None)
    assert third.timezone == "Europe/Budapest"
    assert third.environment["TZ"] == "Asia/Tokyo"
    assert "CRON_TZ" not in third.environment


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("@reboot /usr/bin/start", "@reboot"),
        ("0 0 * * * mail -s hi me%the body", "%"),
        ("0 0 * * * date +%F", "%"),
        ("MAILTO=ops@example.org", "mails nothing"),
        ("RANDOM_DELAY=45", "random delay"),
        ("WFCTL_X=1", "WFCTL_"),
    ],
)
def test_11_8_what_cannot_be_kept_is_said_with_what_to_do(text: str, says: str) -> None:
    read = read_crontab(text)
    assert not read.lines
    assert [(left.number, left.text) for left in read.left_out] == [(1, text)]
    assert says in read.left_out[0].why
    assert read.left_out[0].instead


@pytest.mark.parametrize("text", ['MAILTO=""', "MAILTO=", "MAILFROM=a@b", "CONTENT_TYPE=text/plain"])
def test_11_8_what_says_nothing_about_runs_is_dropped_without_a_word(text: str) -> None:
    read = read_crontab(text)
    assert (read.lines, read.left_out, read.problems) == ((), (), ())


def test_11_8_escaped_percent_signs_are_percent_signs() -> None:
    (line,) = read_crontab(r"0 0 * * * tar cf /srv/$(date +\%F).tar /etc").lines
    assert line.command == "tar cf /srv/$(date +%F).tar /etc"


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        ("@daily x", "0 0 * * *"),
        ("@Weekly x", "0 0 * * 0"),
        ("  */5   *  * jan-mar  mon,FRI\tx", "*/5 * * jan-mar mon,FRI"),
        ("0 9-17/2 * * 1-5 x", "0 9-17/2 * * 1-5"),
    ],
)
def test_11_8_fields(text: str, expression: str) -> None:
    (line,) = read_crontab(text).lines
    assert (line.expression, line.command) == (expression, "x")


@pytest.mark.parametrize(
    ("text", "user_column"),
    [("0 0 * * *", False), ("hello", False), ("@daily", False), ("@daily root", True), ("1 2 3", False)],
)
def test_11_8_a_line_that_is_none_is_a_problem(text: str, user_column: bool) -> None:
    read = read_crontab(f"\n{text}\n", user_column=user_column)
    assert not read.lines
    assert [number for number, _ in read.problems] == [2]


def test_11_8_the_comment_above_is_the_remark() -> None:
    read = read_crontab(
        "# m h dom mon dow command\n0 0 * * * a\n\n"
        "# nightly backup,\n# kept for a week\n0 1 * * * b\n# 0 2 * * * old\n0 3 * * * c\n"
        "# far away\n\n0 4 * * * d\n"
    )
    assert [line.remark for line in read.lines] == [None, "nightly backup, kept for a week", None, None]


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("/usr/local/bin/backup --all > /dev/null 2>&1", "backup"),
        ("cd /srv/app && ./bin/report.sh daily", "report"),
        ("/usr/bin/python3 /srv/etl/load_orders.py --day", "load_orders"),
        (
            "[ -x /usr/lib/php/sessionclean ] && if [ ! -d /run/systemd/system ]; then /usr/lib/php/sessionclean; fi",
            "sessionclean",
        ),
        ("command -v debian-sa1 > /dev/null && debian-sa1 1 1", "debian-sa1"),
        ("test -e /run/systemd/system || SERVICE_MODE=1 /usr/lib/e2fsprogs/e2scrub_all_cron", "e2scrub_all_cron"),
        ("nice -n 10 ionice -c3 /opt/x/Sync.PY", "sync"),
        ("echo 'unbalanced", "job"),
        ("echo hello", "job"),
        ("'", "job"),
    ],
)
def test_11_8_an_id_says_what_is_run(command: str, name: str) -> None:
    assert id_for(command) == name

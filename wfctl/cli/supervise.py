"""`wfctl supervise`: the supervisor, in the foreground."""

from __future__ import annotations

from typing import Any

import click

from wfctl.cli.base import Common, command

_NEW_OBJECTS = 20_000  #: made before the young are looked through for garbage: fewer than in a short command, to be quick


@command()
@click.option("--standby", is_flag=True, help="Where another supervisor holds the store, wait and take over.")
@click.option("--until-idle", is_flag=True, help="End when nothing runs, nothing is held, and no one-shot lies ahead.")
@click.option(
    "--poll-interval-s", type=float, metavar="SECONDS", help="How late a change may be seen where the kernel does not tell."
)
@click.option("--max-concurrent-runs", type=int, metavar="N", help="How many scheduled runs may execute at once.")
@click.option("--drain-grace-s", type=float, metavar="SECONDS", help="How long to wait for active runs at the end.")
@click.option(
    "--log-format",
    type=click.Choice(("text", "json", "journal")),
    metavar="FORMAT",
    help="text, json or journal. Default: journal where stderr is the journal, else text.",
)
def supervise(common: Common, standby: bool, until_idle: bool, log_format: str | None, **settings: Any) -> int:
    """Run what comes due, in the foreground.

    One supervisor a store. SIGTERM or Ctrl-C stops admission and drains; a second Ctrl-C ends the wait. Runs outlive it: the
    next supervisor adopts them. SIGHUP reads settings and definitions again. The log goes to stderr.
    """
    import gc

    from wfctl.supervisor.run import supervise as run

    gc.set_threshold(_NEW_OBJECTS)
    flags = {f"supervisor.{key}": value for key, value in settings.items() if value is not None}
    status: int = run(
        common.own_root(), flags=flags, standby=standby, until_idle=until_idle, log_format=log_format, environ=common.environ
    )
    return status

"""`wfctl systemd`: the units that come with wfctl."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from wfctl.cli import render, streams
from wfctl.cli.base import Common, command, dry_run_option
from wfctl.cli.text import escape

if TYPE_CHECKING:
    from wfctl.operations.units import Choice, UnitsView

Function = TypeVar("Function", bound=Callable[..., Any])


def _choice_options(function: Function) -> Function:
    options = (
        click.option("--user", "is_user", is_flag=True, help="A service of your own rather than the system's."),
        click.option("--name", metavar="NAME", help="An instance of that name, with a store of its own."),
        click.option("--hardened", "is_hardened", is_flag=True, help="With the sandbox of 10-hardened.conf; runs inherit it."),
        click.option(
            "--on-shutdown-stop", "--stop", "stops_runs", is_flag=True, help="With 20-stop.conf: a stop ends the runs, too."
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function


@command()
@_choice_options
def unit(common: Common, **chosen: Any) -> None:
    """Print the unit of the supervisor, and change nothing.

    Drop-ins that are asked for follow it, so that what is printed is a whole unit. `wfctl systemd install` writes it.
    """
    from wfctl.operations import units

    choice = units.Choice(**chosen)
    units.check_choice(choice)
    text = units.unit_text(choice, units.own_program(sys.argv[0], common.environ))
    made = {"schema": "wfctl/unit.v1", "unit": choice.unit, "store": choice.store, "text": text}
    render.item(common, made, details=lambda _: text.rstrip("\n"), name=choice.unit)


@command()
@_choice_options
@click.option("--root", "below", metavar="DIR", type=click.Path(), help="Write below this directory, as for an image.")
@dry_run_option
def install(common: Common, below: str | None, dry_run: bool, **chosen: Any) -> None:
    """Write the unit of the supervisor, and say what to run next.

    The system's needs root, and a line that makes the account wfctl is among those to run; nothing is started here. A file that
    was changed by hand is only replaced with --yes.
    """
    from pathlib import Path

    from wfctl.operations import units

    choice = units.Choice(**chosen)
    program = units.own_program(sys.argv[0], common.environ)
    view = units.install(
        choice,
        program,
        common.environ,
        below=None if below is None else Path(below).absolute(),
        may_replace=common.yes,
        dry_run=dry_run,
    )
    if common.format == "name":
        for each in view.files:
            streams.answer(escape(each.path))
    else:
        render.item(common, view, details=lambda _: _lines(view, dry_run), name=view.unit)
    if not common.quiet:
        _warn(choice, program)


def _lines(view: UnitsView, dry_run: bool) -> str:
    said = {"created": "would create", "updated": "would update", "replaced": "would replace"}
    lines = [f"{said.get(each.state, each.state) if dry_run else each.state} {escape(each.path)}" for each in view.files]
    return "\n".join([*lines, "", "run:", *(f"  {escape(each)}" for each in view.commands)])


def _warn(choice: Choice, program: Sequence[str]) -> None:
    from wfctl.operations import units

    closed = None if choice.is_user else units.closed_to_others(program[0])
    if closed is not None:
        streams.talk(
            f"warning: the account {units.ACCOUNT} cannot run {escape(program[0])}, for {escape(closed)} is closed to others; "
            "install wfctl where every user may read it, such as in /opt or /usr/local"
        )
    if choice.name is not None and not choice.is_user:
        streams.talk(f"commands find its store with --store {choice.store}")
    if choice.is_user:
        streams.talk("the last line lets it run while you are not logged in")

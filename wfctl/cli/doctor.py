"""`wfctl doctor`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from wfctl.cli import render
from wfctl.cli.base import Common, command, quieten_logs
from wfctl.cli.style import Paint
from wfctl.cli.text import escape

if TYPE_CHECKING:
    from wfctl.operations.installed_unit import SandboxView
    from wfctl.operations.views import DoctorView


@command()
@click.option("--sandbox", is_flag=True, help="Say what runs cannot do under the installed service.")
def doctor(common: Common, sandbox: bool) -> int:
    """Examine what wfctl needs: machine, place and store.

    One line for each thing, with what to do where it is not so. Exit status 1: something is wrong. With --sandbox nothing is
    examined: runs inherit the sandbox of the service, and what that forbids them is listed.
    """
    if sandbox:
        return _show_sandbox(common)
    from wfctl.operations.doctor import examine
    from wfctl.rpc.door import open_store

    quieten_logs(common.verbose)
    view = examine(common.own_root(), open_store, common.environ)
    render.item(common, view, details=lambda paint: _lines(view, paint), name="ok" if view.ok else "not-ok")
    return 0 if view.ok else 1


def _show_sandbox(common: Common) -> int:
    from wfctl.operations.installed_unit import sandbox

    view = sandbox(common.root(), common.environ)
    render.item(common, view, details=lambda paint: _sandbox_lines(view), name=view.unit)
    return 0


def _sandbox_lines(view: SandboxView) -> str:
    if not view.limits:
        return f"{escape(view.path)} has no sandbox: runs may do what the account of the service may"
    if view.path is None:
        head = "no unit is installed for this store; with `wfctl systemd install --hardened` runs could not"
    else:
        head = f"under {escape(view.unit)}, {escape(view.path)}, runs cannot"
    width = max(len(each.setting) for each in view.limits)
    return "\n".join([f"{head}:", *(f"  {escape(each.setting):{width}}  {escape(each.effect)}" for each in view.limits)])


def _lines(view: DoctorView, paint: Paint) -> str:
    lines = []
    for each in view.checks:
        lines.append(f"{paint.mark(each.ok)} {escape(each.name)}: {escape(each.detail)}")
        if each.fix:
            lines.append(f"    fix: {escape(each.fix)}")
    return "\n".join(lines)

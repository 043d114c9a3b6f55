"""`wfctl doctor`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wfctl.cli import render
from wfctl.cli.base import Common, command, quieten_logs
from wfctl.cli.style import Paint
from wfctl.cli.text import escape

if TYPE_CHECKING:
    from wfctl.operations.views import DoctorView


@command()
def doctor(common: Common) -> int:
    """Examine what wfctl needs: machine, place and store.

    One line for each thing, with what to do where it is not so. Exit status 1: something is wrong.
    """
    from wfctl.operations.doctor import examine
    from wfctl.rpc.door import open_store

    quieten_logs(common.verbose)
    view = examine(common.own_root(), open_store, common.environ)
    render.item(common, view, details=lambda paint: _lines(view, paint), name="ok" if view.ok else "not-ok")
    return 0 if view.ok else 1


def _lines(view: DoctorView, paint: Paint) -> str:
    lines = []
    for each in view.checks:
        lines.append(f"{paint.mark(each.ok)} {escape(each.name)}: {escape(each.detail)}")
        if each.fix:
            lines.append(f"    fix: {escape(each.fix)}")
    return "\n".join(lines)

"""`wfctl version`."""

from __future__ import annotations

import platform

from wfctl.cli import render
from wfctl.cli.base import Common, command


@command()
def version(common: Common) -> None:
    """Print the versions of wfctl and what it stands on."""
    from wfctl import __version__
    from wfctl.core.trigger import stamps

    croniter, tz_database = stamps()
    found = {
        "schema": "wfctl/version.v1",
        "wfctl": __version__,
        "python": platform.python_version(),
        "croniter": croniter,
        "tz_database": tz_database,
        "sqlite": _sqlite_version(),
        "click": _distribution_version("click"),
        "rich": _distribution_version("rich"),
    }
    rows = [(name.replace("_", " "), str(value)) for name, value in found.items() if name != "schema"]
    render.item(common, found, details=lambda paint: render.pairs(rows, paint), name=__version__)


def _sqlite_version() -> str:
    import sqlite3

    return sqlite3.sqlite_version


def _distribution_version(name: str) -> str | None:
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as version_of

    try:
        return version_of(name)
    except PackageNotFoundError:
        return None

"""`wfctl config show`: every setting, and where its value comes from (contract 10)."""

from __future__ import annotations

from typing import Any

from wfctl.cli import render, values
from wfctl.cli.base import Common, command
from wfctl.cli.render import Column

SCHEMA = "wfctl/config.v1"
_BYTES = ("runs.max_output", "runs.min_free")


def _meaning(setting: dict[str, Any]) -> str:
    """What a value comes to, where that is not plain: a size in words, and what holds where nothing is set."""
    key, value = setting["key"], setting["value"]
    if value is None:
        return {
            "runs.min_free": "the smaller of 256 MiB and 5 % of the file system",
            "notify.command": "nobody is told",
            "executors.slurm.shared": "there is no cluster",
            "executors.slurm.conf": "where Slurm looks itself",
        }.get(key, "all is kept")
    return values.size(value) if key in _BYTES else ""


def _shown(value: Any) -> str:
    return values.json_cell(value) or "unset"


COLUMNS = [
    Column(key="key", title="SETTING", raw=lambda it: it["key"], keep=True),
    Column(key="value", title="VALUE", raw=lambda it: it["value"], show=lambda it: _shown(it["value"]), keep=True),
    Column(key="origin", title="FROM", raw=lambda it: it["origin"]),
    Column(key="meaning", title="MEANING", raw=_meaning, free=True),
]


@command()
def show(common: Common) -> None:
    """Show every setting and where its value comes from.

    Of several places the first holds: an option, WFCTL_..., the store's wfctl.toml, /etc/wfctl/wfctl.toml or that of the user,
    the built-in value. A running supervisor reads them when it starts and on reload.
    """
    from wfctl.settings import load_settings

    root = common.root()
    loaded = load_settings(root if root.is_dir() else None, common.environ)
    items = [{"key": key, "value": value, "origin": origin} for key, value, origin in loaded.items()]
    render.page(common, COLUMNS, items, schema=SCHEMA, name=lambda it: it["key"])

"""`wfctl init`."""

from __future__ import annotations

import click

from wfctl.cli import render, streams
from wfctl.cli.base import Common, command
from wfctl.cli.text import escape

_NEXT = ("deployment add hello -- /bin/echo hello", "schedule add hello-often --deployment hello --every 1m", "supervise")


@command()
@click.option("--if-absent", is_flag=True, help="Succeed where the store is there already.")
def init(common: Common, if_absent: bool) -> None:
    """Make the store.

    The store is --store, as in `wfctl --store DIR init`, else WFCTL_STORE, else STATE_DIRECTORY, else /var/lib/wfctl for root
    and ~/.local/state/wfctl for others. It holds everything: definitions, history, and what runs wrote.
    """
    from wfctl.rpc.door import init_store
    from wfctl.store.layout import Layout

    root = common.root()
    was_there = Layout(root).ledger.exists()
    with init_store(root, if_absent=if_absent):
        pass
    made = {"schema": "wfctl/store.v1", "path": str(root), "created": not was_there}
    verb = "the store is there:" if was_there else "created store"
    render.item(common, made, details=lambda _: f"{verb} {escape(root)}", name=str(root))
    if not common.quiet and not was_there:
        import shlex

        prefix = "wfctl" if common.store is None else f"wfctl --store {shlex.quote(common.store)}"
        streams.talk("next: " + "\n      ".join(f"{escape(prefix)} {words}" for words in _NEXT))

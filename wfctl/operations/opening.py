"""Opening what every operation works on. By itself, for who only lists: that needs no `Store`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from wfctl.clock import as_clock
from wfctl.operations.context import Context, actor_name
from wfctl.store.disk import Disk
from wfctl.store.ledger import Ledger
from wfctl.store.place import open_place

if TYPE_CHECKING:
    from pathlib import Path


def open_context(path: str | Path, *, clock: Any = None, disk: Disk | None = None) -> Context:
    """Open an existing store. `clock`: an object whose `now()` gives an aware UTC datetime (9.4).

    Raise NoStore where there is none, NotAllowed where its place cannot be trusted, DamagedStore, IoError.
    """
    layout = open_place(path)
    used = disk or Disk()
    ledger = Ledger(layout.path_of("ledger"), point=used.point)
    return Context(layout=layout, ledger=ledger, disk=used, clock=as_clock(clock), actor=actor_name())

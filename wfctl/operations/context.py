"""What every operation works on: one store, opened by one process, seen through one clock."""

from __future__ import annotations

import contextlib
import os
import pwd
import sqlite3
from collections import OrderedDict
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from wfctl.clock import Clock
from wfctl.core.model import DeploymentDefinition, Notify, ScheduleDefinition
from wfctl.errors import InvalidDefinition
from wfctl.store.disk import Disk
from wfctl.store.layout import Kind, Layout
from wfctl.store.ledger import Ledger
from wfctl.store.ledger.definitions import RevisionRow, revision
from wfctl.store.ledger.rows import UnreadableRow

_KEPT = 4096  #: parsed revisions held in memory
_KEPT_BYTES = 4 << 20  #: of their texts


class Context:
    """One open store. Not shared between threads."""

    def __init__(
        self,
        *,
        layout: Layout,
        ledger: Ledger,
        disk: Disk,
        clock: Clock,
        actor: str,
        notify: Callable[[], Notify | None] | None = None,
    ) -> None:
        self.layout = layout
        self.ledger = ledger
        self.disk = disk
        self.clock = clock
        self.actor = actor
        self.notify = notify  #: what the settings say of notifying; None: not read yet (7.8)
        self.is_trial = False  #: a change is only tried out: it ends with `Tried` once found valid, and nothing is written
        self._schedules: OrderedDict[tuple[int, int], tuple[ScheduleDefinition, RevisionRow]] = OrderedDict()
        self._deployments: OrderedDict[tuple[int, int], tuple[DeploymentDefinition, RevisionRow]] = OrderedDict()
        self._kept_bytes: dict[str, int] = {}

    def now(self) -> datetime:
        """Return the store's wall clock."""
        return self.clock.now()

    def schedule(self, number: int, which: int) -> tuple[ScheduleDefinition, RevisionRow]:
        """Return one revision of a schedule, parsed. Raise UnreadableRow when its content is not there or not what it was."""
        return self._schedules.get((number, which)) or self._parsed(self._schedules, "schedule", number, which)

    def deployment(self, number: int, which: int) -> tuple[DeploymentDefinition, RevisionRow]:
        """Return one revision of a deployment, parsed. Raise UnreadableRow when its content is not there or not what it was."""
        return self._deployments.get((number, which)) or self._parsed(self._deployments, "deployment", number, which)

    def _parsed(self, cache: OrderedDict[tuple[int, int], tuple[Any, RevisionRow]], kind: Kind, number: int, which: int) -> Any:
        from wfctl.operations.memo import remembered_text
        from wfctl.store.definitions import PARSERS, digest

        row = revision(self.ledger.connection, number, which)
        key = f"{number}/{which}"
        if row is None:
            raise UnreadableRow.of("revisions", key, "it is not there")
        content = row.content.encode()
        if digest(content) != row.digest:  # what is run is what was saved, or nothing is (7.4)
            raise UnreadableRow.of("revisions", key, "its content is not that of its digest")
        parse = PARSERS[kind]
        try:
            entry = (remembered_text(parse.__name__, row.digest, len(content), lambda: parse(content)), row)
        except InvalidDefinition as error:
            raise UnreadableRow.of("revisions", key, error.message) from error
        if self.ledger.is_writing:
            return entry  # it may yet be rolled back, and its number given to another one
        cache[(number, which)] = entry
        kept = self._kept_bytes.get(kind, 0) + len(row.content)
        while len(cache) > _KEPT or (kept > _KEPT_BYTES and len(cache) > 1):
            kept -= len(cache.popitem(last=False)[1][1].content)
        self._kept_bytes[kind] = kept
        return entry

    @contextlib.contextmanager
    def changing(self) -> Iterator[sqlite3.Connection]:
        """Give the connection for a change of a definition: within a transaction, or for a trial one consistent view."""
        with self.ledger.reading() if self.is_trial else self.ledger.transaction() as connection:
            yield connection

    def end_trial(self, parse: Callable[[bytes], object], content: bytes) -> None:
        """A change was found valid: raise Tried if that is all that was asked, with what was read of its text kept."""
        if self.is_trial:
            from wfctl.operations.memo import remembered_text
            from wfctl.store.definitions import digest

            remembered_text(parse.__name__, digest(content), len(content), lambda: parse(content))
            raise Tried


class Tried(Exception):
    """Ends the trial of a change that was found valid."""


class DryRun(Exception):
    """Ends a transaction of which nothing is to be kept, with the view of what it would have made."""

    def __init__(self, result: Any) -> None:
        super().__init__("nothing is to be kept")
        self.result = result


def actor_name() -> str:
    """Return who acts, as revisions, pauses and stops record it: the user, and behind sudo the one who asked."""
    named = (os.environ.get(name) for name in ("LOGNAME", "USER", "LNAME", "USERNAME"))
    try:
        user = next(filter(None, named), None) or pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        user = f"uid {os.getuid()}"
    asked = os.environ.get("SUDO_USER")
    return f"{asked} (as {user})" if asked and asked != user else user

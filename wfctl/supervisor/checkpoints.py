"""Moving the ledger's write-ahead log, on a thread and at a quiet time: no admission waits for it."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path

from wfctl.errors import WfctlError
from wfctl.operations.context import Context
from wfctl.operations.worker import Worker
from wfctl.store.ledger import Ledger, checkpoints

LOG = logging.getLogger("wfctl.supervisor")
_MANY = 1000  #: rows written since, for which a quiet moment is used
_TOO_MANY = 4000  #: for which none is waited for
_LATER_S = 1.0  #: from when there is enough: what was written may be a burst of launches, which needs the processor more


class Checkpoints:
    """Has the log moved once enough was written."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._worker = Worker("wfctl-checkpoints")
        self._ledger: Ledger | None = None
        self._moved_at = 0
        self._due_at: float | None = None

    def look(self, *, is_quiet: bool) -> None:
        """Have the log moved where it is time; `is_quiet`: nothing is about to come due."""
        moment = self._context.clock.monotonic()
        ledger = self._context.ledger
        if ledger is not self._ledger:
            checkpoints.leave(ledger.connection)
            checkpoints.hold_more(ledger.connection)
            self._ledger, self._moved_at, self._due_at = ledger, 0, None
        written = ledger.connection.total_changes
        if written - self._moved_at < (_MANY if is_quiet else _TOO_MANY):
            self._due_at = None
        elif self._due_at is None or self._worker.is_busy:
            self._due_at = moment + _LATER_S
        elif moment >= self._due_at:
            if self._worker.submit(partial(_move, ledger.path)):
                self._moved_at = written
            self._due_at = None

    def next_at(self) -> float | None:
        """Return the monotonic time of the next look that matters; None: not before more was written."""
        return self._due_at

    def close(self) -> None:
        """Do no more."""
        self._worker.close()


def _move(path: Path) -> None:
    try:
        checkpoints.move_beside(path)
    except WfctlError as error:  # it stays where it is, as safe as before; what is wrong, the loop will meet and say
        LOG.debug("the ledger's log was not moved: %s", error.message, extra={"action": "log_not_moved"})

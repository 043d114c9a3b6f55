"""Keeping as many spare run directories as will be needed at the next instant, made while nothing is due (contract 6.3)."""

from __future__ import annotations

import logging
import threading

from wfctl.operations.spares import Spares

LOG = logging.getLogger("wfctl.spares")
MOST = 2000  #: spare directories


class Stocking:
    """Fills a stock from a thread of its own, which lives only while something is to be made."""

    def __init__(self, spares: Spares) -> None:
        self._spares = spares
        self._wanted = 0
        self._is_closed = False
        self._is_refused = False  #: the machine refused one: nobody asks again until other numbers are wanted
        self._thread: threading.Thread | None = None

    def want(self, count: int) -> None:
        """Say how many will be needed at once. Returns at once; more than `MOST` are not made."""
        count = min(count, MOST)
        if count != self._wanted:
            self._is_refused = False
        self._wanted = count
        is_busy = self._thread is not None and self._thread.is_alive()
        if is_busy or self._is_refused or len(self._spares) >= count:
            return
        self._thread = threading.Thread(target=self._fill, name="wfctl-spares", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Make no more. What there is stays for the next supervisor."""
        self._is_closed = True
        if self._thread is not None:
            self._thread.join()

    def _fill(self) -> None:
        while not self._is_closed and len(self._spares) < self._wanted:
            try:
                if not self._spares.has_plenty_of_room():
                    self._is_refused = True
                    return
                self._spares.make()
            except OSError as error:
                self._is_refused = True
                LOG.debug("no spare directory could be made: %s", error.strerror, extra={"action": "spare_refused"})
                return

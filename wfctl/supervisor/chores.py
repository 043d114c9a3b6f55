"""What a supervisor does beside admitting: bounding output, letting old history go, looking after the machine's health."""

from __future__ import annotations

from collections.abc import Callable

from wfctl.core.model import run_name
from wfctl.operations.context import Context
from wfctl.operations.driver import Driver
from wfctl.operations.outputs import OutputBounds
from wfctl.operations.retention import Pruner
from wfctl.operations.worker import Worker
from wfctl.settings import Settings
from wfctl.store.ledger import runs
from wfctl.supervisor.checkpoints import Checkpoints
from wfctl.supervisor.health import Health

_SWEPT = 1000  #: newest runs whose output is looked at when it starts: they may have ended while nobody bounded it


class Chores:
    """Small pieces of work after each round. What may wait for the disk is done by threads that live while they work."""

    def __init__(self, context: Context, driver: Driver, settings: Callable[[], Settings], health: Health) -> None:
        self._context = context
        self._driver = driver
        self._settings = settings
        self._health = health
        self._remover = Worker("wfctl-remover")
        self.outputs = OutputBounds(
            context.layout,
            most=lambda: settings().max_output,
            every_s=lambda: settings().poll_interval_s,
            worker=Worker("wfctl-outputs"),
        )
        self.pruner = Pruner(context, settings, self._remover)
        self._checkpoints = Checkpoints(context)
        driver.outputs = self.outputs

    def begin(self) -> None:
        """Take up what an earlier supervisor did not come to."""
        last = runs.next_number(self._context.ledger.connection)
        self.outputs.sweep(range(max(1, last - _SWEPT), last))

    def do(self, *, is_quiet: bool) -> None:
        """Do a piece of what is due; `is_quiet`: nothing is about to come due. Raise IoError, TimedOut."""
        moment = self._context.clock.monotonic()
        self.outputs.look(self._driver.live, moment)
        self._show_unbounded()
        if not self._health.is_exhausted:
            self.pruner.do(moment, is_quiet=is_quiet)
        self._checkpoints.look(is_quiet=is_quiet)

    def wait_s(self) -> float | None:
        """Return in how many seconds something is due; None: not before something happens."""
        moment = self._context.clock.monotonic()
        times = [self.outputs.next_look(self._driver.live), self._checkpoints.next_at()]
        if self._health.is_exhausted:
            times.append(moment + self._settings().poll_interval_s)
        else:
            times.append(self.pruner.next_at())
        due = [at for at in times if at is not None]
        return max(0.0, min(due) - moment) if due else None

    def close(self) -> None:
        """Do no more."""
        self._checkpoints.close()
        self.outputs.close()
        self._remover.close()

    def _show_unbounded(self) -> None:
        unbounded = self.outputs.unbounded & {run_name(number) for number in self._driver.live}
        if unbounded:
            named = ", ".join(sorted(unbounded)[:3]) + (" and others" if len(unbounded) > 3 else "")
            self._health.problem("output", f"{named}: the output grows past max_output, and this file system cannot release it")
        else:
            self._health.solved("output")

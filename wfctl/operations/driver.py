"""The driver: marks executions, has a keeper launch them, takes in their ends and decides what follows (contract 6).

Record, then act. A mark is committed before the launch is asked for; a stop is committed before the first signal; an end is
committed before its slot is anybody else's. After a crash in between, the next driver asks the keeper (`recover`).
"""

from __future__ import annotations

from datetime import timedelta

from wfctl.keeper.protocol import Keeper
from wfctl.linux import is_same_process
from wfctl.operations.driving.recovering import Recovering
from wfctl.operations.driving.state import LOOK_AGAIN_S, Live


class Driver(Recovering):
    """Drives runs: all of a store's for a supervisor, one for a `run start` without one.

    Not thread-safe. Every method that writes raises what the ledger raises; reports that could not be written are kept.
    """

    def descriptors(self) -> dict[int, bool]:
        """Return what becomes readable when `take_in` has something to do, and whether it is to be written to as well."""
        keepers = {keeper.fileno(): keeper.wants_write for keeper in self._keepers() if _is_heard(keeper)}
        return keepers | {live.pidfd: False for live in self.live.values() if live.pidfd is not None}

    def next_timer(self) -> float | None:
        """Return the monotonic time at which a retry, a limit or another look is due."""
        times = [time for live in self.live.values() for time in live.times()]
        if self._left_alone or any(live.process is not None and live.pidfd is None for live in self.live.values()):
            times.append(self.context.clock.monotonic() + LOOK_AGAIN_S)
        if self._held:
            times.append(self._held_until)
        return min(times) if times else None

    def take_in(self) -> bool:
        """Write down everything reported, and what follows from it, in one transaction; then launch what was marked.

        Return whether anything was.
        """
        if self._left_alone:
            self._adopt_left_alone()
        remedied = self.doubts.regained()
        if remedied:
            self.recover(remedied)
        self._poll()
        moment = self.context.clock.monotonic()
        if self._held and moment >= self._held_until:
            self._send_held()
        if self._launches:  # what followed from a keeper's last words
            self._send_launches()
        if not self._reports and not self._is_timer_due(moment):
            return False
        stops: list[tuple[Live, timedelta]] = []
        with self._recording():
            self._take_all()
            self._run_timers(moment, stops)
        self._reports = []
        for live, grace in stops:
            self._signal(live, grace)
        if self._launches:
            self._send_launches()
        if self._reports:  # a launch that could not even be asked for
            self.take_in()
        return True

    def _poll(self) -> None:
        for keeper in self._keepers():
            if keeper.wants_write:
                keeper.flush()
            self._reports += keeper.poll()
            if keeper.closed:
                self._write_down()  # its last words first
                self._keeper_went(keeper)
        self._let_run_empty()
        for live in list(self.live.values()):
            if live.process is not None and not is_same_process(*live.process):
                with self.doubts.about(live.number):
                    self._process_went(live)

    def _let_run_empty(self) -> None:
        """Let go of every other keeper that holds none of our executions: it ends once nobody needs it (6.9)."""
        needed = {id(live.keeper) for live in self.live.values()}
        for key, keeper in list(self._others.items()):
            if keeper.closed or id(keeper) not in needed:
                keeper.close()
                del self._others[key]

    def begin_again(self) -> None:
        """Forget all that was held in mind; `recover` finds it again (2.10)."""
        for number in list(self.live):
            self._forget(number)
        self._reports = [report for report in self._reports if not getattr(report, "recorded", True)]  # nobody else knows
        self._launches, self._held = [], []
        for keeper in self._others.values():
            keeper.close()
        self._others = {}

    @property
    def awaits_keeper(self) -> bool:
        """Tell whether something is marked and its keeper is gone: it is asked for once there is another."""
        return self.keeper.closed and bool(self._launches)

    def change_keeper(self, keeper: Keeper) -> None:
        """Go on with another keeper, the old one being gone."""
        self._write_down()
        self._keeper_went(self.keeper)
        self.keeper.close()
        self.keeper = keeper
        self._send_launches()

    def close(self) -> None:
        """Let go of keepers and processes; runs go on."""
        self.begin_again()
        for executor in self.executors.values():
            executor.close()
        self.keeper.close()


def _is_heard(keeper: Keeper) -> bool:
    return not keeper.closed and keeper.fileno() >= 0

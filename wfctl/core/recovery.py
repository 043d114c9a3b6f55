"""What becomes of an execution that a driver finds unsettled when it starts (contract 6.9, 6.10, 7.1)."""

from __future__ import annotations

from enum import StrEnum


class Recovery(StrEnum):
    """What to do with it. Nothing here ever launches the same execution again."""

    TAKE_RECORD = "take-record"  #: its exit record says how it ended: go on from there
    ADOPT = "adopt"  #: a keeper holds it: its end will be reported
    WATCH = "watch"  #: no keeper holds it, but its process lives: wait until it is gone
    NOT_LAUNCHED = "not-launched"  #: it never was launched, and never will be
    LOST_OUTCOME = "lost-outcome"  #: it was seen at work, and nobody saw how it ended
    ABANDON = "abandon"  #: it may or may not have run: effects may already have happened


def decide_recovery(
    *, has_record: bool, is_running: bool, is_forbidden: bool, keeper_is_older: bool, is_alive: bool, was_watched: bool = False
) -> Recovery:
    """Given what start-up found of one unsettled execution, return what to do with it.

    Given: `has_record`, a sound exit record of this very execution; `is_running`, a keeper says that it runs; `is_forbidden`,
    every living keeper has promised never to launch it; `keeper_is_older`, the one it would have been sent to has lived since
    before the mark; `is_alive`, its process is there by pid, start time and boot; `was_watched`, this driver saw it alive.
    Source: contract 7.1 (adopt, record, abandon) and 6.10 (what a forbidding keeper proves).
    """
    if has_record:
        return Recovery.TAKE_RECORD
    if is_running:
        return Recovery.ADOPT
    if is_alive:
        return Recovery.WATCH
    if is_forbidden and keeper_is_older:
        return Recovery.NOT_LAUNCHED
    return Recovery.LOST_OUTCOME if was_watched else Recovery.ABANDON

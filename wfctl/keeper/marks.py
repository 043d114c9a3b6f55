"""A set of executions that only grows, small enough for a keeper that lives for years."""

from __future__ import annotations

import functools
import re

_RUN = re.compile(r"(run|notice)-(\d{6}|[1-9]\d{6,17})", re.ASCII)
_BITS = 1024  # runs a chunk: the ids ascend, so one chunk is filled before the next is begun


class Marks:
    """Executions (run, k): one bit each, a few more bytes for an id of another shape than `run-000001`."""

    def __init__(self) -> None:
        self._chunks: dict[tuple[str, int, int], int] = {}
        self._odd: set[tuple[str, int]] = set()

    def add(self, run: str, k: int) -> None:
        place = _place(run)
        if place is None:
            self._odd.add((run, k))
            return
        kind, chunk, bit = place
        key = (kind, chunk, k)
        self._chunks[key] = self._chunks.get(key, 0) | 1 << bit

    def __contains__(self, execution: tuple[str, int]) -> bool:
        run, k = execution
        place = _place(run)
        if place is None:
            return execution in self._odd
        kind, chunk, bit = place
        return bool(self._chunks.get((kind, chunk, k), 0) >> bit & 1)


@functools.lru_cache(maxsize=16)
def _place(run: str) -> tuple[str, int, int] | None:
    match = _RUN.fullmatch(run)
    return None if match is None else (match[1], *divmod(int(match[2]), _BITS))

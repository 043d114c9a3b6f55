"""A set of executions that only grows, small enough for a keeper that lives for years."""

from __future__ import annotations

import re

_RUN = re.compile(r"(run|notice)-(\d{6}|[1-9]\d{6,17})", re.ASCII)
_BITS = 1024  # runs a chunk: the ids ascend, so one chunk is filled before the next is begun


class Marks:
    """Executions (run, k): one bit each, a few more bytes for an id of another shape than `run-000001`."""

    def __init__(self) -> None:
        self._chunks: dict[tuple[str, int, int], int] = {}
        self._odd: set[tuple[str, int]] = set()

    def add(self, run: str, k: int) -> None:
        match = _RUN.fullmatch(run)
        if match is None:
            self._odd.add((run, k))
            return
        chunk, bit = divmod(int(match[2]), _BITS)
        key = (match[1], chunk, k)
        self._chunks[key] = self._chunks.get(key, 0) | 1 << bit

    def __contains__(self, execution: tuple[str, int]) -> bool:
        run, k = execution
        match = _RUN.fullmatch(run)
        if match is None:
            return execution in self._odd
        chunk, bit = divmod(int(match[2]), _BITS)
        return bool(self._chunks.get((match[1], chunk, k), 0) >> bit & 1)

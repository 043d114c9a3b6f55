"""What was worked out of a text is the same the next time: the last few are kept, for all threads of the process.

So a supervisor can have a large definition tried out beside its loop, and then save it in the loop in no time.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeVar

from wfctl.core.plain import json_bytes

T = TypeVar("T")
MOST_BYTES = 2 << 20  #: of the texts that what is kept was worked out of; it is several times as large itself
SMALLEST = 512  #: what is worked out of less is not worth keeping


class Memo:
    """Values by key, the last used of them, bounded by the size of what they were worked out of."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most = most_bytes
        self._held = 0
        self._found: OrderedDict[tuple[str, str], tuple[Any, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: tuple[str, str], size: int, make: Callable[[], T]) -> T:
        """Return the value of a key, made where it is not held. Raise what `make` raises."""
        with self._lock:
            held = self._found.get(key)
            if held is not None:
                self._found.move_to_end(key)
                value: T = held[0]
                return value
        made = make()
        with self._lock:
            if SMALLEST <= size <= self._most // 4 and key not in self._found:
                self._found[key] = (made, size)
                self._held += size
                while self._held > self._most:
                    self._held -= self._found.popitem(last=False)[1][1]
        return made


_MEMO = Memo()


def remembered(kind: str, plain: object, make: Callable[[], T]) -> T:
    """Return what `make` gives, which must depend on nothing but `kind` and the JSON that `plain` is. Raise what it raises."""
    try:
        text = json_bytes(plain)
    except (TypeError, ValueError, RecursionError):
        return make()  # it says itself what is wrong
    return _MEMO.get((kind, hashlib.sha256(text).hexdigest()), len(text), make)


def remembered_text(kind: str, digest: str, size: int, make: Callable[[], T]) -> T:
    """Return what `make` reads out of the text of that digest. Raise what it raises."""
    return _MEMO.get((kind, digest), size, make)

"""The TOML that definitions are mostly made of, read in a fifth of the time: lines of `key = value` and headers of tables.

What wfctl writes itself, and what people write by hand, is nearly always of bare keys and plain values, one a line. Such a
text is read here. Anything else, and everything that is wrong, is left to `tomllib`, which alone decides what TOML is.
"""

from __future__ import annotations

import re
from typing import Any

_LINE = re.compile(
    r"""(?:
      ([A-Za-z0-9_-]+)[ ]=[ ](?:"([^"\\\x00-\x1f\x7f]*)"|(0|[1-9][0-9]{0,17})|(true|false))
      | \[([A-Za-z0-9_-]+)\]
      )?""",
    re.VERBOSE,
)


def read_simple(text: str) -> dict[str, Any] | None:
    """Given a text, return what `tomllib.loads` does; None for one that is not simple, be it wrong or not."""
    whole: dict[str, Any] = {}
    table = whole
    for line in text.split("\n"):
        match = _LINE.fullmatch(line)
        if match is None:
            return None
        key, said, number, word, header = match.groups()
        if key is not None:
            if key in table:
                return None
            table[key] = said if said is not None else int(number) if number is not None else word == "true"
        elif header is not None:
            if header in whole:
                return None
            table = whole[header] = {}
    return whole

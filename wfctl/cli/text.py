"""Text for people: what users and runs wrote is shown, never interpreted (contract 8.6). No heavy imports."""

from __future__ import annotations

import re

#: C0, DEL, C1, bidi marks, line and paragraph separators, byte-order and annotation marks, lone surrogates
UNSAFE = "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufff9-\ufffb\ud800-\udfff]"
_SHORT = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}


def _escaped(match: re.Match[str]) -> str:
    letter = match.group()
    code = ord(letter)
    if letter in _SHORT:
        return _SHORT[letter]
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is not UTF-8, as Python keeps it
        return f"\\x{code - 0xDC00:02x}"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def escape(text: object) -> str:
    """Given anything that users or runs wrote, return one line that is safe on any terminal.

    Control characters, terminal escapes, bidi marks, line separators and lone surrogates are shown as `\\n`, `\\xNN` or
    `\\uNNNN`; everything else is kept. Source: contract 8.6.
    """
    shown = str(text)
    return shown if shown.isprintable() else re.sub(UNSAFE, _escaped, shown)  # whatever is printable is safe


def escape_lines(text: str) -> str:
    """Given a text of several lines, return it safe for a terminal, its newlines and tabs kept."""
    return re.sub(UNSAFE, lambda match: match.group() if match.group() in "\n\t" else _escaped(match), text)


def escape_message(text: str) -> str:
    """Given an error's message, return it safe, with every line after the first indented, so that none can pass for another."""
    first, *rest = text.split("\n")
    return "\n".join([escape(first), *("  " + escape(line.strip()) for line in rest)])


def cells(text: str) -> int:
    """Return how many terminal cells a text without control characters takes."""
    if text.isascii():
        return len(text)
    return sum(_cell(letter) for letter in text)


def _cell(letter: str) -> int:
    import unicodedata

    if unicodedata.combining(letter) or unicodedata.category(letter) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


def pad(text: str, width: int, *, right: bool = False) -> str:
    """Return the text filled with blanks to that many cells."""
    blanks = " " * max(0, width - cells(text))
    return blanks + text if right else text + blanks


def count_of(number: int, noun: str, plural: str | None = None) -> str:
    """Return `1 run`, `2 runs`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"

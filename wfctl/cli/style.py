"""Whether to colour and which glyphs to draw. Colour only repeats what a word says."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from wfctl.cli.base import Common
from wfctl.cli.streams import is_utf8
from wfctl.value import Value

#: style -> SGR parameters; the names are those of rich too
_SGR = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}

#: status or state -> its style and its glyph
_LOOKS = {
    "pending": ("cyan", "◌"),
    "coalesced": ("dim", "↷"),
    "skipped-overlap": ("yellow", "⊘"),
    "skipped-misfire": ("yellow", "⊘"),
    "preflight-rejected": ("red", "✗"),
    "admitted": ("cyan", "▷"),
    "running": ("cyan", "▶"),
    "interrupted": ("yellow", "‖"),
    "completed": ("green", "✓"),
    "failed": ("red", "✗"),
    "exhausted": ("red", "✗"),
    "cancelled": ("yellow", "⊗"),
    "active": ("green", "●"),
    "paused": ("yellow", "‖"),
    "blocked": ("red", "!"),
    "finished": ("dim", "✓"),
    "deleted": ("dim", "-"),
    "ready": ("green", "●"),
    "degraded": ("red", "!"),
    "draining": ("yellow", "‖"),
}
STATUS_STYLE = {word: style for word, (style, _) in _LOOKS.items()}


class Paint(Value, kw_only=False):
    """How a stream may be drawn on."""

    colour: bool
    unicode: bool

    def __call__(self, text: str, style: str | None) -> str:
        """Return the text, coloured where that is allowed."""
        code = _SGR.get(style or "")
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour and code else text

    def status(self, word: str | None) -> str:
        """Return a status as a word, with its glyph where those can be drawn; None is one that cannot be read."""
        word = word or "unreadable"
        style, glyph = _LOOKS.get(word, (None, ""))
        return self(f"{glyph} {word}" if glyph and self.unicode else word, style)

    def mark(self, good: bool) -> str:
        """Return a tick or a cross."""
        glyph = ("✓" if good else "✗") if self.unicode else ("ok" if good else "NO")
        return self(glyph, "green" if good else "red")

    @property
    def dash(self) -> str:
        """What stands for nothing."""
        return "\u2013" if self.unicode else "-"

    @property
    def dot(self) -> str:
        """What stands between parts of a line."""
        return "·" if self.unicode else "|"


def is_coloured(common: Common, stream: Any) -> bool:
    """Return whether to colour: --color, NO_COLOR, FORCE_COLOR or CLICOLOR_FORCE, then a terminal that is not dumb."""
    environ = common.environ
    if common.color != "auto":
        return common.color == "always"
    if environ.get("NO_COLOR"):
        return False
    if any(environ.get(name, "0") not in ("", "0") for name in ("FORCE_COLOR", "CLICOLOR_FORCE")):
        return True
    return stream.isatty() and environ.get("TERM", "dumb") not in ("", "dumb")


def is_unicode(common: Common, stream: Any) -> bool:
    """Return whether glyphs and line drawing can be shown: not with --ascii, nor in a locale or encoding that lacks them."""
    if common.ascii or not is_utf8(stream):
        return False
    environ = common.environ
    everything = environ.get("LC_ALL")
    if everything:
        return "utf" in everything.lower()
    kind, language = environ.get("LC_CTYPE") or "", environ.get("LANG") or "C"
    # PEP 538: in the C locale Python itself sets LC_CTYPE, which says nothing about the terminal.
    if kind in ("C.UTF-8", "C.utf8", "UTF-8") and language in ("C", "POSIX"):
        return False
    return "utf" in (kind or language).lower()


def paint_for(common: Common, stream: Any = None) -> Paint:
    """Return how stdout, or the given stream, may be drawn on; plain output has neither colour nor glyphs."""
    target = sys.stdout if stream is None else stream
    if target is sys.stdout and common.format != "table":
        return PLAIN
    return Paint(is_coloured(common, target), is_unicode(common, target))


PLAIN = Paint(colour=False, unicode=False)
Details = Callable[[Paint], str]

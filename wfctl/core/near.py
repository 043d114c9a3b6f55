"""What was perhaps meant: the known words that are near one that is not known."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

LONGEST_WORD = 128  #: characters of a word that is compared at all
_LEAST = 0.6  #: how alike two words must be, from 0 to 1
_ABOUT_AS_NEAR = 0.1  #: words so much less alike than the nearest one are named beside it
_PART = 0.95  #: what it counts when one part of a word is alike, such as `skipped` of `skipped-overlap`
_PARTS = re.compile(r"[-_./ ]+")


def near(word: object, known: Iterable[str], most: int = 3) -> list[str]:
    """Given a word and those that are known, return what was perhaps meant, the nearest first; empty where nothing is like it.

    Only words that are about as near as the nearest are listed: a single one is what was most likely meant.
    """
    text = word.lower().strip(" -") if isinstance(word, str) else ""
    if not text or len(text) > LONGEST_WORD:
        return []
    rated = [(_alike(text, each.lower().strip("-")), -index, each) for index, each in enumerate(dict.fromkeys(known))]
    rated = sorted((each for each in rated if each[0] >= _LEAST), reverse=True)
    return [each for rate, _, each in rated[:most] if rate > rated[0][0] - _ABOUT_AS_NEAR]


def near_data(word: object, known: Iterable[str]) -> dict[str, Any]:
    """Return what the data of an error says of a word that is not known: `value`, and `near`, what was perhaps meant."""
    return {"value": word, "near": near(word, known)}


def did_you_mean(words: Iterable[str]) -> str:
    """Given what was perhaps meant, return `; did you mean a or b?`, or nothing where there is none."""
    listed = " or ".join(words)
    return f"; did you mean {listed}?" if listed else ""


def _alike(word: str, other: str) -> float:
    whole = _ratio(word, other)
    parts = _PARTS.split(other)
    if len(parts) < 2 or whole > _PART:
        return whole
    return max(whole, _PART * max(_ratio(word, part) for part in parts if part) if any(parts) else 0.0)


def _ratio(word: str, other: str) -> float:
    from difflib import SequenceMatcher

    matcher = SequenceMatcher(None, word, other, autojunk=False)
    if matcher.real_quick_ratio() < _LEAST or matcher.quick_ratio() < _LEAST:
        return 0.0
    return matcher.ratio()

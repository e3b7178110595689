"""Lone surrogates: halves of UTF-16 pairs, which no UTF-8 text can hold and many a stream delivers (BR-31)."""

from __future__ import annotations

import math
from typing import Any, cast

REPLACEMENT = "\ufffd"
"""What a lone surrogate becomes, in both directions: in requests, in answers, and in tool arguments."""


def clean_text(text: str) -> str:
    """Return `text` with surrogate pairs joined and each lone surrogate replaced by U+FFFD."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def clean_value(value: Any) -> Any:
    """Return a JSON value in which every text is clean; a float that JSON cannot hold becomes its text."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {clean_text(str(key)): clean_value(item) for key, item in cast("dict[object, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [clean_value(item) for item in cast("list[Any]", value)]
    return value


class SurrogateJoiner:
    """Cleans a text that arrives in pieces: a pair that was cut in two is joined, not lost."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, piece: str) -> str:
        """Return what can be passed on; a first half at the end of `piece` is held back until the next piece."""
        piece = self._held + piece
        cut = len(piece) - 1 if piece and "\ud800" <= piece[-1] <= "\udbff" else len(piece)
        self._held = piece[cut:]
        return clean_text(piece[:cut])

    def finish(self) -> str:
        """Return what is left: nothing, or the replacement of a half that never got its other half."""
        held, self._held = self._held, ""
        return clean_text(held)

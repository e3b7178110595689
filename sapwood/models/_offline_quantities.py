"""Numbers and their units: `75 dollars` are 7500 for a parameter that counts cents."""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import Decimal

import attrs

_DIMENSIONS: dict[str, dict[str, Decimal]] = {
    "dollars": {
        "cent": Decimal(1),
        "dollar": Decimal(100),
        "buck": Decimal(100),
        "usd": Decimal(100),
        "$": Decimal(100),
    },
    "euros": {"eurocent": Decimal(1), "euro": Decimal(100), "eur": Decimal(100), "\u20ac": Decimal(100)},
    "time": {
        "millisecond": Decimal("0.001"),
        "ms": Decimal("0.001"),
        "second": Decimal(1),
        "sec": Decimal(1),
        "minute": Decimal(60),
        "min": Decimal(60),
        "hour": Decimal(3600),
        "day": Decimal(86400),
        "week": Decimal(604800),
    },
    "size": {
        "byte": Decimal(1),
        "kb": Decimal(1000),
        "mb": Decimal(1000**2),
        "gb": Decimal(1000**3),
    },
    "percent": {"percent": Decimal(1), "%": Decimal(1)},
}
"""Units by dimension, each with its size in the smallest one named; only units of one dimension convert."""

_UNITS = {unit: (dimension, size) for dimension, units in _DIMENSIONS.items() for unit, size in units.items()}

_QUANTITY = re.compile(
    r"(?<![\w.#-])(?P<sign>[$\u20ac])?\s?(?P<number>-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?)(?![\w-]*\d)(?P<unit>\s?(?:%|[A-Za-z]+))?"
)


_DIGITS = 24
"""A longer number is taken for a name; reckoning with it would round."""


@attrs.frozen
class Quantity:
    """A number in a text, with its unit if it has one.

    Attributes:
        number: As written.
        unit: A known unit in the singular, or empty.
        start: Where it begins in the text.
        end: Where it ends, unit included.
    """

    number: Decimal
    unit: str
    start: int
    end: int

    def as_unit(self, unit: str) -> Decimal | None:
        """Return the number in another unit, or None if it does not convert; without units it stays as it is."""
        if not unit or not self.unit:
            return self.number
        (mine, size), (wanted, other) = _UNITS[self.unit], _UNITS[unit]
        return self.number * size / other if mine == wanted else None


def find_quantities(text: str) -> list[Quantity]:
    """Return the numbers of a text in order."""
    found: list[Quantity] = []
    for match in _QUANTITY.finditer(text):
        word = match.group("unit") or ""
        unit = unit_of([word.strip()])
        if len(match.group("number")) > _DIGITS or (word and not unit and word[0] != " "):
            continue  # `17abc` is a name, not 17 of something.
        end = match.end() if unit else match.end("number")
        unit = unit or match.group("sign") or ""
        found.append(Quantity(Decimal(match.group("number").replace(",", "")), unit, match.start(), end))
    return found


def unit_of(words: Iterable[str]) -> str:
    """Return the first known unit among some words, in the singular, or an empty text."""
    for word in words:
        singular = word.lower() if word.lower() in _UNITS else word.lower().removesuffix("s")
        if singular in _UNITS:
            return singular
    return ""

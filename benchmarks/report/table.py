"""Tables: medians, and medians of the ratios to a baseline within the same round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

Rounds = list[float | None]
Figures = Mapping[str, Mapping[str, Rounds]]


def ratio(figures: Figures, library: str, name: str, baseline: str, base_name: str) -> float | None:
    """Return the median of the ratios to the baseline, of the rounds in which both were measured."""
    mine = figures.get(library, {}).get(name, [])
    theirs = figures.get(baseline, {}).get(base_name, [])
    ratios = [a / b for a, b in zip(mine, theirs, strict=False) if a is not None and b]
    return median(ratios) if ratios else None


def middle(figures: Figures, library: str, name: str) -> float | None:
    """Return the median over the rounds."""
    values = [value for value in figures.get(library, {}).get(name, []) if value is not None]
    return median(values) if values else None


def best(figures: Figures, library: str, name: str) -> float | None:
    """Return the best round, the one that was disturbed least."""
    return min((value for value in figures.get(library, {}).get(name, []) if value is not None), default=None)


def lay_out(title: str, head: Sequence[str], rows: Mapping[str, Sequence[float | None]]) -> str:
    """Lay a table out; a cell without a figure is a dash."""
    wide = max(map(len, (title, *rows)))
    widths = [max(len(name), 7) for name in head]
    lines = [title.ljust(wide) + "".join(f"  {name:>{width}}" for name, width in zip(head, widths, strict=True))]
    for name, values in rows.items():
        shown = "".join(f"  {number(value):>{width}}" for value, width in zip(values, widths, strict=True))
        lines.append(name.ljust(wide) + shown)
    return "\n".join(lines)


def number(value: float | None) -> str:
    """Write a figure with about three digits."""
    if value is None:
        return "-"
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"

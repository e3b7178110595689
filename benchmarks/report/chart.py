"""A bar chart as SVG, on a logarithmic axis, without a plotting library."""

from __future__ import annotations

import math
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Final

COLOURS: Final = (
    *("#2f6f4f", "#8c8c8c", "#4a7ab5", "#a9c3e0", "#c98b2b", "#a04f4f"),
    *("#7b5ea7", "#3f8f8f", "#b56f8f", "#6b6b2f", "#d3a78a", "#222222"),
)
BAR: Final = 11
GAP: Final = 12
LEFT: Final = 170
WIDTH: Final = 760
RIGHT: Final = 60
TOP: Final = 84
LEGEND: Final = 6

Groups = Mapping[str, Mapping[str, float]]


def draw(path: Path, title: str, note: str, groups: Groups) -> None:
    """Draw `{group: {bar: value}}` as horizontal bars that begin at 1."""
    names = list(dict.fromkeys(name for bars in groups.values() for name in bars))
    colours = {name: COLOURS[index % len(COLOURS)] for index, name in enumerate(names)}
    values = [value for bars in groups.values() for value in bars.values()]
    low = min(0, math.floor(math.log10(min(values))))
    high = max(1, math.ceil(math.log10(max(values))))

    def x(value: float) -> float:
        return LEFT + (math.log10(value) - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    height = TOP + sum(len(bars) * BAR + GAP for bars in groups.values()) + 10
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}">',
        "<style>text { font: 11px system-ui, sans-serif; }</style>",
        f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="10" y="18" style="font-size: 14px; font-weight: bold">{escape(title)}</text>',
        f'<text x="10" y="34" fill="#555555">{escape(note)}</text>',
    ]
    for index, name in enumerate(names):
        across, down = 10 + index % LEGEND * 120, 43 + index // LEGEND * 16
        lines.append(f'<rect x="{across}" y="{down}" width="9" height="9" fill="{colours[name]}"/>')
        lines.append(f'<text x="{across + 13}" y="{down + 8}">{escape(name)}</text>')
    for power in range(low, high + 1):
        line = f'<line x1="{x(10**power):.1f}" x2="{x(10**power):.1f}" y1="{TOP - 6}" y2="{height - 6}"'
        lines.append(f'{line} stroke="{"#000000" if power == 0 else "#dddddd"}"/>')
        lines.append(f'<text x="{x(10**power) + 2:.1f}" y="{TOP - 1}" fill="#777777">{10.0**power:g}</text>')
    y = float(TOP)
    for group, bars in groups.items():
        y += GAP / 2
        lines.append(
            f'<text x="{LEFT - 8}" y="{y + len(bars) * BAR / 2 + 4:.1f}" text-anchor="end">{escape(group)}</text>'
        )
        for name, value in bars.items():
            begin, end = sorted((x(1), x(value)))
            bar = f'<rect x="{begin:.1f}" y="{y:.1f}" width="{max(end - begin, 1):.1f}" height="{BAR - 2}"'
            lines.append(f'{bar} fill="{colours[name]}"/>')
            lines.append(f'<text x="{end + 4:.1f}" y="{y + BAR - 2.5:.1f}" style="font-size: 9px">{value:.3g}</text>')
            y += BAR
        y += GAP / 2
    path.write_text("\n".join([*lines, "</svg>"]) + "\n")

"""Rules that compute: sums, averages and extremes of a column, and counts of lines and words."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation

import attrs

from sapwood.models._offline_paths import find_paths, read_whole
from sapwood.models._offline_plan import Clause, Finding, Plan, Rule, Toolbox, quoted

_OPERATIONS: tuple[tuple[str, str, Callable[[Sequence[Decimal]], Decimal]], ...] = (
    (r"\b(?:sum|total|add up)\b", "sum", lambda numbers: sum(numbers, Decimal())),
    (r"\b(?:average|mean)\b", "average", lambda numbers: sum(numbers, Decimal()) / len(numbers)),
    (r"\b(?:maximum|max|largest|highest|biggest)\b", "maximum", max),
    (r"\b(?:minimum|min|smallest|lowest)\b", "minimum", min),
)
"""Words of a request, the name of what they ask for, and how it is computed."""

_DIGITS = 50
"""A cell with more digits before its point is no number here: `1e999999` would be printed in full."""

_ASKS = re.compile(
    r"^(?:sum|total|add up|average|compute|calculate|find|get|tell me|give me|what(?:'s| is| are))\b", re.IGNORECASE
)


def compute(clause: Clause, tools: Toolbox) -> Plan | None:
    """`sum the amount column of sales.csv`, `what is the average of price in items.csv?`, `total column 2 of a.csv`."""
    paths = find_paths(clause.text)
    if "read_file" not in tools or not paths or not _ASKS.match(clause.text):
        return None
    asked = next(
        ((name, make) for words, name, make in _OPERATIONS if re.search(words, clause.text, re.IGNORECASE)), None
    )
    if asked is None:
        return None
    rest = clause.text[: paths[0].start] + clause.text[paths[0].end :]
    return _compute(paths[0].path, _column(rest), *asked)


def _column(text: str) -> str:
    named = (
        re.search(r"\bcolumn\s+[\"'`]?(?!(?:of|in|from|for|is)\b)(\w+)", text, re.IGNORECASE)
        or re.search(r"\b(\w+)\s+(?:column|field)\b", text, re.IGNORECASE)
        or re.search(
            r"\b(?:sum|total|add up|average|mean|max\w*|min\w*|\w+est)\s+(?:of\s+)?(?:all\s+)?(?:the\s+)?(\w+)"
            r"\s+(?:in|of|from)\b",
            text,
            re.IGNORECASE,
        )
    )
    texts = quoted(text)
    word = texts[0] if texts else named.group(1) if named else ""
    return "" if word.lower() in ("numbers", "values", "the", "rows", "column", "of", "in") else word


@attrs.frozen
class _Table:
    header: list[str]
    rows: list[list[str]]


def _compute(path: str, column: str, name: str, make: Callable[[Sequence[Decimal]], Decimal]) -> Plan:
    lines = yield from read_whole(path)
    if isinstance(lines, Finding):
        return lines
    try:
        table = _parse(lines)
    except csv.Error as error:
        return Finding(f"{path} cannot be read as a table: {error}.", done=False)
    at = _find_column(table, column)
    if at is None:
        columns = ", ".join(table.header) or "none"
        wanted = f"There is no column {column!r} in {path}" if column else f"I need to know which column of {path}"
        return Finding(f"{wanted}. The columns are: {columns}.", done=False)
    cells = [row[at] for row in table.rows if at < len(row)]
    numbers = [number for number in map(_number, cells) if number is not None]
    label = table.header[at] or f"column {at + 1}"
    if not numbers:
        return Finding(f"The column {label} of {path} holds no numbers.", done=False)
    result = _plain(make(numbers))
    skipped = [cell for cell in cells if _number(cell) is None]
    note = (
        f" Left out as no numbers: {len(skipped)} of the cells, such as {', '.join(map(repr, skipped[:3]))}."
        if skipped
        else ""
    )
    return Finding(f"The {name} of {label} in {path} is {result} ({len(numbers)} rows).{note}", value=result)


def _parse(lines: list[str]) -> _Table:
    lines = [line for line in lines if line.strip()]
    if not lines:
        return _Table([], [])
    delimiter = max(",;\t|", key=lines[0].count)
    delimiter = delimiter if lines[0].count(delimiter) else ","
    rows = [[cell.strip() for cell in row] for row in csv.reader(lines, delimiter=delimiter)]
    if all(_number(cell) is not None for cell in rows[0]):
        return _Table([str(at + 1) for at in range(len(rows[0]))], rows)
    return _Table(rows[0], rows[1:])


def _find_column(table: _Table, wanted: str) -> int | None:
    names = [name.casefold() for name in table.header]
    if wanted.casefold() in names:
        return names.index(wanted.casefold())
    if wanted.isdigit() and 1 <= int(wanted) <= len(names):
        return int(wanted) - 1
    if not wanted:
        numeric = [
            at for at in range(len(names)) if any(_number(row[at]) is not None for row in table.rows if at < len(row))
        ]
        return numeric[0] if len(numeric) == 1 else None
    similar = [at for at, name in enumerate(names) if wanted.casefold().rstrip("s") in name]
    return similar[0] if len(similar) == 1 else None


def _number(cell: str) -> Decimal | None:
    cell = cell.strip().removeprefix("$").removesuffix("%").replace("_", "")
    if re.fullmatch(r"-?\d{1,3}(?:,\d{3})+(?:\.\d+)?", cell):
        cell = cell.replace(",", "")
    try:
        number = Decimal(cell)
    except InvalidOperation:
        return None
    return number if number.is_finite() and number.adjusted() < _DIGITS else None


def _plain(number: Decimal) -> str:
    text = f"{number:.10f}".rstrip("0").rstrip(".") if number != number.to_integral_value() else f"{number:.0f}"
    return "0" if text in ("-0", "") else text


def count(clause: Clause, tools: Toolbox) -> Plan | None:
    """`count the lines of notes.txt`, `how many words are in notes.txt?`."""
    paths = find_paths(clause.text)
    asked = re.match(r"(?:count|how many)\b.*?\b(lines|rows|words|characters)\b", clause.text, re.IGNORECASE)
    if "read_file" not in tools or not paths or not asked:
        return None
    return _count(paths[0].path, asked.group(1).lower())


def _count(path: str, unit: str) -> Plan:
    lines = yield from read_whole(path)
    if isinstance(lines, Finding):
        return lines
    counted = {"words": sum(len(line.split()) for line in lines), "characters": sum(map(len, lines))}
    number = counted.get(unit, len(lines))
    return Finding(f"{path} has {number} {unit}.", value=str(number))


STRICT: tuple[Rule, ...] = (compute, count)

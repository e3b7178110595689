"""Values in plain English: the words that point to them, their shapes, and their conversion to a parameter's type."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any, cast

from sapwood.models._offline_parameters import Parameter
from sapwood.models._offline_plan import QUOTED, word_set
from sapwood.models._offline_quantities import find_quantities

FREE = word_set(
    "text message body content query question prompt description note reason title subject comment input task topic "
    "instructions summary phrase sentence expression"
)
"""Words in a parameter's name that say it takes free text."""

AFTER: dict[str, frozenset[str]] = {
    "to": word_set("to recipient email address destination target receiver"),
    "from": word_set("from source origin sender"),
    "in|for|at|near": word_set("city location place country region town where"),
    "into|to|in": word_set("language lang"),
    "about|on": word_set("subject topic"),
    "for|to|by": word_set("user customer person name recipient who"),
}
"""Prepositions, and the words in the names of parameters whose value follows one."""

LITTLE = word_set(
    "a an the of for to in on at by with from and or is are was be it that this my your please as into about me"
)
TRUE, FALSE = ("true", "yes", "on"), ("false", "no", "off")
VALUE = rf"(?:{QUOTED.pattern}|[^\s,;]+)"
EMAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
URL = re.compile(r"https?://[^\s,;\"']+")
DATE = re.compile(r"\b\d{4}-\d\d-\d\d\b|\b(?:today|tomorrow|yesterday)\b", re.IGNORECASE)
CODE = re.compile(r"(?<![\w./-])#?([A-Za-z]*[-_]?\d[\w-]*)(?![\w./]*\w)")


LEADS = word_set("use using call run tool what which how give tell show find get do does saying says")
"""Words that only lead up to a value."""


def is_free(parameter: Parameter) -> bool:
    """Whether a parameter takes free text, to the end of the request."""
    return parameter.kind == "string" and not parameter.choices and bool(FREE & set(parameter.words))


def convert(parameter: Parameter, text: str) -> Any:
    """Return a text as the parameter's type, or None if it is none of that type."""
    if parameter.choices:
        return next((choice for choice in parameter.choices if str(choice).lower() == text.lower()), None)
    match parameter.kind:
        case "integer" | "number":
            quantities = find_quantities(text)
            return quantities[0].number if quantities else None
        case "boolean":
            return True if text.lower() in TRUE else False if text.lower() in FALSE else None
        case "array":
            value = _decoded(text)
            return (
                cast("list[Any]", value)
                if isinstance(value, list)
                else [part.strip(" []\"'") for part in text.split(",")]
            )
        case "object":
            value = _decoded(text)
            return cast("dict[str, Any]", value) if isinstance(value, dict) else None
        case _:
            return text or None


def _decoded(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def whole(number: Decimal) -> int | float:
    """Return a number as an int if it is one, else as a float."""
    return int(number) if number == number.to_integral_value() else float(number)

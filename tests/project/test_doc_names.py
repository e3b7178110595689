"""What the documentation names exists: classes, functions, their options, and what runtimes and sessions offer."""

from __future__ import annotations

import ast
import builtins
import datetime as dt
import decimal
import enum
import importlib
import inspect
import re
import typing
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any

import attrs
import pytest
import trio
from markdown_it import MarkdownIt
from programs import ROOT
from source_rules import public_packages

import sapwood
from sapwood import Runtime, Session
from sapwood.agents import Sessions
from sapwood.testing import Chaos, Invariants

DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

MODULES = ("sapwood.asgi", "sapwood.testing.providers", "sapwood.testing.pytest_plugin")
"""Public modules that are no packages."""

ELSEWHERE = (builtins, dt, decimal, enum, trio, typing)
"""What other names may come from."""

OUTSIDE = frozenset({"ArgumentError", "Core", "Delivery", "EventSource", "Notes", "Task"})
"""Names of browsers, of other languages, of files and of places in the tree."""

INSTANCES = {
    "runtime": Runtime,
    "runtime.sessions": Sessions,
    "session": Session,
    "sessions": Sessions,
    "chaos": Chaos,
    "invariants": Invariants,
}
"""What the documentation calls instances of these classes."""


@cache
def loggers() -> frozenset[str]:
    """Return the names that the sources give to loggers: those that stand there as text."""
    sources = (path.read_text(encoding="utf-8") for path in (ROOT / "sapwood").rglob("*.py"))
    return frozenset(name for source in sources for name in re.findall(r'"(sapwood\.[a-z.]+)"', source))


@cache
def public_names() -> dict[str, list[Any]]:
    """Return what each public name means; packages may use one for two things."""
    found: dict[str, list[Any]] = {}
    for package in (*public_packages(), *MODULES):
        for name, value in vars(importlib.import_module(package)).items():
            if not name.startswith("_") and value not in found.setdefault(name, []):
                found[name].append(value)
    return found


def spans(text: str) -> Iterator[str]:
    """Return what stands between backticks, outside of blocks."""
    for token in MarkdownIt().enable("table").parse(text):
        yield from (child.content for child in token.children or () if child.type == "code_inline")


def attributes_of(cls: type) -> set[str]:
    """Return the names of what an instance of a class has."""
    found = set(dir(cls))
    for base in cls.__mro__[:-1]:
        found |= set(getattr(base, "__annotations__", {}))
        init = vars(base).get("__init__")
        if isinstance(init, FunctionType) and base.__module__.startswith("sapwood") and not attrs.has(base):
            found |= set(re.findall(r"self\.(\w+)(?:: [^=\n]+)? = ", inspect.getsource(init)))
    return found


def resolve(name: str) -> Any:
    """Return what a dotted name means, or None where that cannot be told, for two things may have it.

    Raises:
        LookupError: if it means nothing.
    """
    first, *rest = name.split(".")
    instance = next((key for key in sorted(INSTANCES, key=len, reverse=True) if name.startswith(f"{key}.")), None)
    if instance is not None:
        attribute = name.removeprefix(f"{instance}.").split(".")[0]
        if attribute not in attributes_of(INSTANCES[instance]):
            raise LookupError(f"{INSTANCES[instance].__name__} has no {attribute!r}")
        return getattr(INSTANCES[instance], attribute, None) if name == f"{instance}.{attribute}" else None
    if name in loggers():
        return None
    if first == "sapwood":
        return resolve_path(name)
    if not first[0].isupper() or not re.search("[a-z]", first) or first in OUTSIDE:
        return only(public_names().get(name, []))
    values = public_names().get(first, [])
    if not values and not any(hasattr(module, first) for module in ELSEWHERE):
        raise LookupError(f"no public name {first!r}")
    if rest and values and not any(rest[0] in attributes_of(each) for each in values if isinstance(each, type)):
        raise LookupError(f"{first} has no {rest[0]!r}")
    return getattr(only(values), rest[0], None) if rest else only(values)


def only(values: list[Any]) -> Any:
    return values[0] if len(values) == 1 else None


def resolve_path(name: str) -> Any:
    value: Any = sapwood
    path = "sapwood"
    for part in name.split(".")[1:]:
        path += f".{part}"
        if hasattr(value, part):
            value = getattr(value, part)
        elif not isinstance(value, type) or part not in attributes_of(value):
            try:
                value = importlib.import_module(path)
            except ImportError:
                raise LookupError(f"{path} does not exist") from None
        else:
            return None
    return value


def check_options(value: Any, text: str) -> None:
    """Fail if a call in the text has a keyword that its function does not take.

    Raises:
        LookupError: naming it.
    """
    try:
        [statement] = ast.parse(text).body
        signature = inspect.signature(value)
    except (SyntaxError, TypeError, ValueError):
        return
    parameters = signature.parameters
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        for keyword in statement.value.keywords:
            if keyword.arg is not None and keyword.arg not in parameters:
                raise LookupError(f"{text}: no option {keyword.arg!r}; there are {', '.join(parameters)}")


def problems(text: str) -> list[str]:
    found: list[str] = []
    for span in spans(text):
        match = re.fullmatch(r"(?:await )?([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)(\(.*\))?", span, re.DOTALL)
        if match is None:
            continue
        try:
            value = resolve(match[1])
            if match[2] is not None and callable(value):
                check_options(value, span.removeprefix("await "))
        except LookupError as error:
            found.append(f"`{span}`: {error}")
    return found


@pytest.mark.row("AR-22.29")
@pytest.mark.parametrize("path", [pytest.param(path, id=str(path.relative_to(ROOT))) for path in DOCUMENTS])
def test_whatever_a_page_names_exists_with_the_options_that_it_names(path: Path) -> None:
    assert problems(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("Write `Agent`, `runtime.ready()` and `sapwood.agents.Limits`.", ""),
        ("Write `open_runtime(gc_policy=...)` or `await session.say(text)`.", ""),
        ("See `RunFailed.cause`, `Decimal` and `runtime.registry`.", ""),
        ("Write `Agnet`.", "no public name 'Agnet'"),
        ("Write `runtime.reddy()`.", "Runtime has no 'reddy'"),
        ("Write `await runtime.sessions.lokup(id)`.", "Sessions has no 'lokup'"),
        ("Write `sapwood.agents.Limit`.", "sapwood.agents.Limit does not exist"),
        ("Write `open_runtime(gc_polcy=...)`.", "no option 'gc_polcy'"),
        ("| `session.pause(later=True)` |\n|---|\n", "no option 'later'"),
        ("Write `Runtime.reddy`.", "Runtime has no 'reddy'"),
    ],
)
def test_a_name_that_does_not_exist_is_found(text: str, problem: str) -> None:
    found = problems(text)
    assert len(found) == bool(problem)
    assert problem in "".join(found)

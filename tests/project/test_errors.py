"""The tree that the docstring of sapwood.errors draws is the tree that is there."""

from __future__ import annotations

import re

from sapwood import errors

DEFINED = {
    name: value
    for name, value in vars(errors).items()
    if isinstance(value, type) and value.__module__ == errors.__name__ and not name.startswith("_")
}
DRAWN = set(re.findall(r"\b[A-Z][a-z]+(?:[A-Z][a-z]+)*\b", (errors.__doc__ or "").split("```")[1]))


def test_every_exception_stands_in_the_drawn_tree() -> None:
    assert set(DEFINED) - DRAWN == set()


def test_every_exception_has_the_one_root_and_a_docstring() -> None:
    assert [name for name, value in DEFINED.items() if not issubclass(value, errors.SapwoodError)] == []
    assert [name for name, value in DEFINED.items() if not value.__doc__] == []

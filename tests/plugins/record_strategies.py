"""Hypothesis strategies for the records of a conversation, made from their annotations."""

from __future__ import annotations

from collections.abc import Callable
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import attrs
from hypothesis import strategies as st

from sapwood.conversation import VERDICTS, Interrupt, PatchMetadata, Todo

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
finite = st.floats(allow_nan=False, allow_infinity=False)
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | finite | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)
plain_objects: st.SearchStrategy[dict[str, Any]] = st.dictionaries(text, plain, max_size=3)

_LEAVES: dict[Any, st.SearchStrategy[Any]] = {
    str: text,
    int: st.integers(),
    float: finite,
    bool: st.booleans(),
    dict[str, Any]: plain_objects,
    NoneType: st.none(),
}


def _verdicts(kind: str) -> st.SearchStrategy[dict[str, Any]]:
    known = next(verdicts for name, verdicts in VERDICTS.items() if name == kind)
    allowed = st.lists(st.sampled_from(known), max_size=4).map(tuple) if known else st.just(())
    return st.fixed_dictionaries({"kind": st.just(kind), "allowed": allowed})


# Fields that a class checks itself.
_NARROWER: dict[Any, st.SearchStrategy[dict[str, Any]]] = {
    Todo: st.fixed_dictionaries({"id": st.integers(0), "content": text.filter(str.strip)}),
    Interrupt: st.sampled_from(list(VERDICTS)).flatmap(_verdicts),
    PatchMetadata: plain_objects.flatmap(
        lambda values: st.fixed_dictionaries(
            {"values": st.just(values), "remove": st.lists(text.filter(lambda key: key not in values)).map(tuple)}
        )
    ),
}


def values_of(annotation: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for values of a resolved annotation."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation in _LEAVES:
        return _LEAVES[annotation]
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin is tuple:
        return st.lists(values_of(arguments[0]), max_size=3).map(tuple)
    if origin in (Union, UnionType):
        return st.one_of([values_of(argument) for argument in arguments])
    return _records_of(annotation)


def _records_of(cls: Any) -> st.SearchStrategy[Any]:
    fields = attrs.fields(attrs.resolve_types(cls))
    every = st.fixed_dictionaries({field.name: values_of(field.type) for field in fields})
    narrower = _NARROWER.get(cls, st.just({}))
    make: Callable[..., Any] = cls
    return st.builds(lambda loose, strict: make(**{**loose, **strict}), every, narrower)

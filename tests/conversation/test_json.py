"""JSON-like values."""

from __future__ import annotations

import enum
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.conversation import clean_text, copy_json
from sapwood.errors import CodecError


class Colour(enum.StrEnum):
    RED = "red"


def itself() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


@given(st.text())
def test_clean_text_can_always_be_encoded_and_says_what_it_replaced(text: str) -> None:
    cleaned = clean_text(text)

    cleaned.encode()
    assert cleaned == "".join(f"\\u{ord(each):04x}" if "\ud800" <= each <= "\udfff" else each for each in text)


def test_a_copy_has_plain_types_only() -> None:
    copied = copy_json({"a": (1, Colour.RED), "b": {"c": [None, True, 2.5]}, "\ud83d": "\ud83d"})

    assert copied == {"a": [1, "red"], "b": {"c": [None, True, 2.5]}, "\\ud83d": "\\ud83d"}
    assert type(copied["a"][1]) is str
    json.dumps(copied).encode()


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"a": [0, {"b": object()}]}, "metadata.a[1].b"),
        ({"a": float("nan")}, "metadata.a"),
        ({"a": float("-inf")}, "metadata.a"),
        ({"a": b"bytes"}, "metadata.a"),
        ({1: "a"}, "metadata"),
    ],
)
def test_what_json_cannot_say_is_refused_with_its_path(value: object, path: str) -> None:
    with pytest.raises(CodecError) as caught:
        copy_json(value, "metadata")

    assert caught.value.path == path


def test_a_value_that_contains_itself_is_refused() -> None:
    with pytest.raises(CodecError, match="contains itself"):
        copy_json(itself())

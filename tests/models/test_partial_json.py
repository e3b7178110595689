"""Partial JSON for live views."""

from __future__ import annotations

import itertools
import json
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.models import parse_partial_json

DOCUMENT = '{"a": "x\\"y\\u00e9\\ud83d\\ude00", "n": [-1.5e3, true, null], "o": {"k": "v"}}'
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(), inner, max_size=3)),
    max_leaves=8,
)


def extends(later: Any, earlier: Any) -> bool:
    """Whether a value holds all of an earlier one, with nothing gone or changed."""
    if isinstance(earlier, str):
        return isinstance(later, str) and later.startswith(earlier)
    if isinstance(earlier, list):
        old, new = cast("list[Any]", earlier), cast("list[Any]", later)
        return isinstance(later, list) and len(new) >= len(old) and all(map(extends, new, old))
    if isinstance(earlier, dict):
        before, now = cast("dict[str, Any]", earlier), cast("dict[str, Any]", later)
        return isinstance(later, dict) and all(key in now and extends(now[key], before[key]) for key in before)
    return bool(earlier is None or later == earlier)


def check_prefixes(data: bytes) -> None:
    found = [parse_partial_json(data[:end]) for end in range(len(data) + 1)]
    for earlier, later in itertools.pairwise(found):
        assert extends(later.value, earlier.value), (earlier, later)
    whole = [at for at, result in enumerate(found) if result.complete]
    assert whole == [] or data[whole[0] :].strip() == b""


@pytest.mark.row("BR-67")
def test_every_prefix_of_a_document_only_adds_and_is_incomplete_until_the_end() -> None:
    check_prefixes(DOCUMENT.encode())
    check_prefixes(DOCUMENT.replace("\\u00e9", "\u00e9").replace("\\ud83d\\ude00", "\U0001f600").encode())

    assert parse_partial_json(DOCUMENT).value == json.loads(DOCUMENT)
    assert parse_partial_json(DOCUMENT).complete
    assert not parse_partial_json(DOCUMENT[:-1]).complete


@pytest.mark.row("BR-67")
@given(value=st.dictionaries(st.text(), VALUES, max_size=4), escaped=st.booleans())
def test_any_object_read_byte_by_byte_only_grows_and_ends_as_the_strictly_parsed_one(
    *, value: dict[str, Any], escaped: bool
) -> None:
    text = json.dumps(value, ensure_ascii=escaped)

    check_prefixes(text.encode())
    assert parse_partial_json(text).value == json.loads(text)
    assert parse_partial_json(text).complete


@pytest.mark.row("BR-67")
@pytest.mark.parametrize(
    ("prefix", "value"),
    [
        ("", None),
        ("{", {}),
        ('{"a', {}),
        ('{"a"', {}),
        ('{"a":', {}),
        ('{"a": 1', {}),
        ('{"a": 1.', {}),
        ('{"a": 12,', {"a": 12}),
        ('{"a": tru', {}),
        ('{"a": true}', {"a": True}),
        ('{"a": "x\\', {"a": "x"}),
        ('{"a": "x\\u00', {"a": "x"}),
        ('{"a": "x\\ud83d', {"a": "x"}),
        ('{"a": "x\\ud83d\\ude', {"a": "x"}),
        ('{"a": "x\\ud83dy', {"a": "x\ufffdy"}),
        ('{"a": [1, "b', {"a": [1, "b"]}),
        ('{"a": {"b": {', {"a": {"b": {}}}),
    ],
)
def test_what_is_cut_in_two_is_held_back(prefix: str, value: object) -> None:
    result = parse_partial_json(prefix)

    assert result.value == value
    assert result.complete == prefix.endswith("}")


@given(st.one_of(st.text(st.sampled_from('{}[]",:\\u0dntrue1-.eE \n')), st.binary()))
def test_no_input_at_all_raises(data: str | bytes) -> None:
    parse_partial_json(data)


def test_a_deep_document_does_not_raise() -> None:
    assert not parse_partial_json('{"a":' * 100_000).complete

"""Lone surrogates."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.models._surrogates import SurrogateJoiner, clean_text, clean_value

UNITS = st.text(st.sampled_from(["a", "\0", "\u00e9", "\U0001f600", "\ud83d", "\ude00", "\udcff"]))


@pytest.mark.row("BR-31")
@given(UNITS)
def test_clean_text_can_always_be_encoded_and_clean_text_stays_as_it_is(text: str) -> None:
    cleaned = clean_text(text)

    assert cleaned.encode().decode() == cleaned
    assert clean_text(cleaned) == cleaned
    assert cleaned == text or not _encodable(text)


@pytest.mark.row("BR-31")
@given(st.lists(UNITS))
def test_a_text_in_pieces_is_cleaned_like_the_whole(pieces: list[str]) -> None:
    joiner = SurrogateJoiner()

    assert "".join([*map(joiner.feed, pieces), joiner.finish()]) == clean_text("".join(pieces))


def test_values_are_cleaned_all_the_way_down_and_floats_that_json_cannot_hold_become_text() -> None:
    value = {"k\ud83d": ["a\ude00", ("b", 1, None, True, 2.5)], "n": float("nan"), "pair": "\ud83d\ude00"}

    cleaned = clean_value(value)

    assert cleaned == {"k\ufffd": ["a\ufffd", ["b", 1, None, True, 2.5]], "n": "nan", "pair": "\U0001f600"}
    assert json.dumps(cleaned, ensure_ascii=False, allow_nan=False).encode()


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True

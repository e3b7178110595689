"""Text for terminals: nothing that others wrote drives them, and lines are lines."""

from __future__ import annotations

import unicodedata
from io import StringIO
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.console._terminal import arguments_line, brief, count, is_plain, moment, one_line, printable

ANY_TEXT = st.text(st.characters(exclude_categories=()))


@given(ANY_TEXT)
def test_printable_text_holds_no_control_characters_but_line_ends_and_tabs(text: str) -> None:
    shown = printable(text)

    assert not [each for each in shown if unicodedata.category(each) in ("Cc", "Cs") and each not in "\n\t"]
    assert not set(shown) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f")
    shown.encode()


@given(ANY_TEXT, st.integers(1, 40))
def test_a_line_has_no_line_end_and_is_no_wider_than_asked(text: str, width: int) -> None:
    line = one_line(text, width)

    assert len(line.splitlines()) <= 1
    assert len(line) <= width


def test_an_escape_sequence_is_shown_and_not_sent() -> None:
    assert printable("\x1b]0;owned\x07\r\u202egnp.exe") == "\\x1b]0;owned\\x07\\r\\u202egnp.exe"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"@record": "message.added/1", "message": {"@record": "conversation.user_message/1", "text": "Hi", "id": ""}},
         "added(message=user_message(text='Hi'))"),
        ({"@record": "conversation.tool_call/1", "id": "c1", "name": "refund", "arguments": {"cents": 5, "to": "Al"}},
         "refund(cents=5, to='Al')"),
        ({"a": [1, "two", None], "b": {}, "c": False}, "{a=[1, 'two', None], c=False}"),
        (b"\x00\x01", "<2 bytes>"),
        ("x" * 100, "'" + "x" * 58 + "…"),
        ("two\nlines", "'two\\nlines'"),
    ],
)  # fmt: skip
def test_a_record_is_shown_in_one_line_without_its_empty_fields(value: Any, expected: str) -> None:
    assert brief(value) == expected


def test_arguments_that_are_no_object_are_shown_as_they_are() -> None:
    assert arguments_line(["a", 1]) == "['a', 1]"
    assert arguments_line({"@record": "x/1", "a": 1}) == "a=1"


def test_a_moment_that_no_calendar_knows_is_shown_as_its_number() -> None:
    assert moment(0.0) == "1970-01-01 00:00:00"
    assert moment(1e300) == "1e+300"
    assert moment(float("nan")) == "nan"


def test_numbers_agree_with_their_nouns_in_both_forms() -> None:
    assert [count(0, "event"), count(1, "event"), count(2, "event")] == ["0 events", "1 event", "2 events"]
    assert count(2, "reply", "replies") == "2 replies"


class Screen(StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("variables", "plain"),
    [({}, False), ({"NO_COLOR": "1"}, True), ({"CI": "true"}, True), ({"TERM": "dumb"}, True), ({"CI": ""}, False)],
)
def test_a_terminal_gets_plain_lines_if_its_user_says_so(
    variables: dict[str, str], plain: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NO_COLOR", "CI", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    assert is_plain(Screen()) is plain
    assert is_plain(StringIO()) is True

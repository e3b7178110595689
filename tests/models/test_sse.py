"""The parser of server-sent events."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.models._sse import BrokenStream, ServerEvent, ServerEventParser

STREAM = (
    "\ufeffevent: first\ndata: one\n\n: a comment\nid: 7\nretry: 10\ndata: two\r\ndata: \u00e9\U0001f600\r\n\r\n"
    "event: empty\n\ndata:three\rdata\r\revent: last\ndata: {}\n\ndata: cut off"
).encode()
EVENTS = [
    ServerEvent("first", "one"),
    ServerEvent("message", "two\n\u00e9\U0001f600"),
    ServerEvent("message", "three\n"),
    ServerEvent("last", "{}"),
]


def parse(*chunks: bytes) -> list[ServerEvent]:
    parser = ServerEventParser()
    return [event for chunk in chunks for event in parser.feed(chunk)]


def test_fields_line_ends_and_comments_are_read_and_an_open_event_is_none() -> None:
    assert parse(STREAM) == EVENTS


def test_byte_by_byte_gives_the_same_events() -> None:
    assert parse(*[STREAM[at : at + 1] for at in range(len(STREAM))]) == EVENTS


@given(st.lists(st.integers(0, len(STREAM)), max_size=8))
def test_where_the_bytes_are_cut_makes_no_difference(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(STREAM)]

    assert parse(*[STREAM[a:b] for a, b in itertools.pairwise(edges)]) == EVENTS


@pytest.mark.parametrize("chunk", [b"data: \xff\n\n", b"data: " + b"x" * 100, b"data: x\n" * 20])
def test_bytes_that_are_no_text_and_endless_events_are_refused(chunk: bytes) -> None:
    with pytest.raises(BrokenStream):
        ServerEventParser(max_event=64).feed(chunk)

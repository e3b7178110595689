"""Lines from standard input."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from sapwood.actors import RealEnvironment
from sapwood.console._lines import LineReader


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    yield reading, writing
    for end in (reading, writing):
        try:
            os.close(end)
        except OSError:
            continue


async def read_all(reader: LineReader) -> list[str]:
    lines: list[str] = []
    while (line := await reader.next_line()) is not None:
        lines.append(line)
    return lines


async def test_lines_come_without_their_ends_and_the_last_one_needs_none(pipe: tuple[int, int]) -> None:
    os.write(pipe[1], b"one\r\n\ntwo \xff \xc3\xbc\nlast")
    os.close(pipe[1])

    assert await read_all(LineReader(pipe[0], RealEnvironment())) == ["one", "", "two \ufffd ü", "last"]


@given(st.lists(st.binary(max_size=5).map(lambda data: data.replace(b"", b"")), max_size=8))
def test_lines_do_not_depend_on_how_the_input_is_cut(chunks: list[bytes]) -> None:
    whole, cut = LineReader(0, RealEnvironment()), LineReader(0, RealEnvironment())
    if any(chunks):
        whole._take(b"".join(chunks))
    for chunk in chunks:
        if chunk:
            cut._take(chunk)
    for reader in (whole, cut):
        reader._take(b"")

    assert list(cut._lines) == list(whole._lines)


async def test_a_reader_that_is_cancelled_leaves_at_once_and_holds_up_nothing_else(pipe: tuple[int, int]) -> None:
    reader = LineReader(pipe[0], RealEnvironment())
    with trio.fail_after(10):
        with trio.move_on_after(0.05) as patience:
            await reader.next_line()

    assert patience.cancelled_caught
    os.write(pipe[1], b"for the thread that was left behind\n")

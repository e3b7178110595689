"""Subscriptions: the indexed look-up finds what the plain rule says, in order, and leaves no empty nodes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sapwood.messaging.bus import matches
from sapwood.messaging.bus._topics import Subscriptions

LEVELS = st.lists(st.sampled_from(["a", "b", "ab", ""]), min_size=1, max_size=4)
TOPICS = LEVELS.map(".".join).filter(bool)
PATTERNS = st.just("*") | TOPICS | TOPICS.map(lambda topic: f"{topic}.*")
NAMES = st.sampled_from(["x", "y", "z"])


@given(st.lists(st.tuples(NAMES, PATTERNS), max_size=12), TOPICS)
def test_the_index_finds_exactly_those_whose_patterns_match_each_once(pairs: list[tuple[str, str]], topic: str) -> None:
    table = Subscriptions()
    for name, pattern in pairs:
        table.add(name, pattern)
    expected: list[str] = []
    for name, pattern in pairs:
        if matches(pattern, topic) and name not in expected:
            expected.append(name)
    assert table.subscribers(topic) == expected


@given(st.lists(st.tuples(NAMES, PATTERNS, st.booleans()), max_size=20))
def test_taking_everything_back_leaves_the_table_as_it_began(steps: list[tuple[str, str, bool]]) -> None:
    table = Subscriptions()
    held: set[tuple[str, str]] = set()
    for name, pattern, adds in steps:
        if adds:
            assert table.add(name, pattern) is ((name, pattern) not in held)
            held.add((name, pattern))
        else:
            assert table.remove(name, pattern) is ((name, pattern) in held)
            held.discard((name, pattern))
        assert len(table) == len(held)
    for name in ("x", "y", "z"):
        assert set(table.remove_all(name)) == {pattern for holder, pattern in held if holder == name}
    assert (table._by_pattern, table._of) == ({}, {})

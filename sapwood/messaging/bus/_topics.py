"""Topics: which patterns match a topic, and who has subscribed to what."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Final

from sapwood.errors import InvalidEnvelope

EVERYTHING: Final = "*"
BELOW: Final = ".*"


def check_topic(topic: object) -> str:
    """Return a topic.

    Raises:
        InvalidEnvelope: if it is no text, or has a star.
    """
    if not isinstance(topic, str) or not topic or EVERYTHING in topic:
        raise InvalidEnvelope("topic", 'dotted text without a star, such as "trade.filled"', topic)
    return topic


def check_pattern(pattern: object) -> str:
    """Return a pattern.

    Raises:
        InvalidEnvelope: if it is no topic, no topic followed by `.*`, and not `*`.
    """
    if pattern == EVERYTHING and isinstance(pattern, str):
        return pattern
    stem = pattern.removesuffix(BELOW) if isinstance(pattern, str) else pattern
    if not isinstance(stem, str) or not stem or EVERYTHING in stem:
        raise InvalidEnvelope("pattern", 'a topic, "trade.*" for all below it, or "*" for everything', pattern)
    return str(pattern)


def matches(pattern: str, topic: str) -> bool:
    """Say whether a pattern matches: `a.b` itself, `a.*` everything below `a` at any depth, `*` everything (C6)."""
    if pattern == EVERYTHING:
        return True
    if pattern.endswith(BELOW):
        return topic.startswith(pattern[:-1]) and len(topic) > len(pattern) - 1
    return topic == pattern


class Subscriptions:
    """Who has subscribed to what; a name that matches by several patterns is found once (S2-008).

    Finding the subscribers of a topic takes one look-up for each of its levels, however many patterns there are.
    """

    def __init__(self) -> None:
        self._by_pattern: dict[str, dict[str, int]] = {}
        self._of: dict[str, dict[str, None]] = {}
        self._counter = count()

    def add(self, name: str, pattern: str) -> bool:
        """Subscribe a name; say whether that is new."""
        check_pattern(pattern)
        held = self._of.setdefault(name, {})
        if pattern in held:
            return False
        held[pattern] = None
        self._by_pattern.setdefault(pattern, {})[name] = next(self._counter)
        return True

    def remove(self, name: str, pattern: str) -> bool:
        """Take one subscription back; say whether it was there."""
        held = self._of.get(name, {})
        if pattern not in held:
            return False
        del held[pattern]
        if not held:
            del self._of[name]
        names = self._by_pattern[pattern]
        del names[name]
        if not names:
            del self._by_pattern[pattern]
        return True

    def remove_all(self, name: str) -> tuple[str, ...]:
        """Take all subscriptions of a name back; return their patterns (S2-007)."""
        patterns = self.of(name)
        for pattern in patterns:
            self.remove(name, pattern)
        return patterns

    def of(self, name: str) -> tuple[str, ...]:
        """Return the patterns that a name has subscribed to, oldest first."""
        return tuple(self._of.get(name, ()))

    def subscribers(self, topic: str) -> list[str]:
        """Return the names whose patterns match, each once, in the order in which they subscribed."""
        found: dict[str, int] = {}
        for pattern in _patterns_of(topic):
            for name, number in self._by_pattern.get(pattern, {}).items():
                found[name] = min(number, found.get(name, number))
        return sorted(found, key=found.__getitem__)

    def __len__(self) -> int:
        return sum(len(held) for held in self._of.values())


def _patterns_of(topic: str) -> Iterator[str]:
    yield topic
    yield EVERYTHING
    at = topic.find(".")
    while at >= 0:
        if at + 1 < len(topic):
            yield topic[:at] + BELOW
        at = topic.find(".", at + 1)

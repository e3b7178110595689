"""Values in shared memory: one version of one key, and what is written."""

from __future__ import annotations

import copy
import hashlib
from typing import Any, Final

import attrs

from sapwood.actors import Environment, record
from sapwood.errors import InvalidOption

ANY: Final = -1
"""As `expected_version`: write whatever version is there (S1-040)."""

ABSENT: Final = -2
"""As `expected_version`: write only if the key is absent."""


@record("shared.value")
class VersionedValue:
    """One version of one key; immutable (S1-036).

    Attributes:
        key: The key.
        value: A copy of its own; changing it changes nothing in the store (S1-037).
        version: 0 for the first write of a key, and one more for each later one, through deletion too (S1-039).
        agent_id: Who wrote it.
        timestamp_ns: Wall clock at the write, in nanoseconds since 1970 UTC; for display, order is by `version`.
        checksum: First 12 hex digits of the SHA-256 of `key:version:value:agent_id`, as it was written.
    """

    key: str
    value: Any
    version: int
    agent_id: str
    timestamp_ns: int
    checksum: str

    @classmethod
    def make(cls, key: str, value: Any, version: int, agent_id: str, timestamp_ns: int) -> VersionedValue:
        """Make a version with the checksum that belongs to it."""
        return cls(key, value, version, agent_id, timestamp_ns, checksum(key, version, value, agent_id))

    def age_ms(self, environment: Environment) -> float:
        """Return the milliseconds since the write, by the wall clock."""
        return environment.wall() * 1e3 - self.timestamp_ns / 1e6

    def is_intact(self) -> bool:
        """Say whether the value is still the one that was written, as far as its text tells."""
        return self.checksum == checksum(self.key, self.version, self.value, self.agent_id)

    def copied(self) -> VersionedValue:
        """Return an equal one with a value of its own."""
        value = copy.deepcopy(self.value)
        return VersionedValue(self.key, value, self.version, self.agent_id, self.timestamp_ns, self.checksum)


@attrs.frozen
class Write:
    """One entry of a batch.

    Attributes:
        key: The key.
        value: The new value; copied when it is written.
        expected_version: Version that must be there; -1 for any, -2 (`ABSENT`) for none (S1-043).
        based_on: Version that the value was made from, for the strategies; None if it was made from none.
    """

    key: str
    value: Any
    expected_version: int = ANY
    based_on: int | None = None


def checksum(key: str, version: int, value: object, agent_id: str) -> str:
    """Return the checksum of a value, over its text as `str` gives it (S1-036)."""
    text = f"{key}:{version}:{value}:{agent_id}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def check_write(write: Write) -> Write:
    """Return the entry with a copy of its value, so that the writer may go on using its own (S1-037).

    Raises:
        InvalidOption: if it cannot be written; nothing has happened.
    """
    check_key(write.key)
    check_expected(write.expected_version)
    if write.based_on is not None:
        if write.expected_version != ANY:
            raise InvalidOption(
                "shared memory: expected either expected_version, which refuses any other version, or based_on, "
                "which leaves that to the strategy; got both"
            )
        if not _is_version(write.based_on):
            raise InvalidOption(f"based_on: expected None or a version from 0; got {write.based_on!r}")
    try:
        value = copy.deepcopy(write.value)
    except MemoryError:
        raise
    except Exception as error:
        raise InvalidOption(
            f"shared memory, key {write.key!r}: expected a value that can be copied; got {type(write.value).__name__}, "
            f"and copying it raised {type(error).__name__}: {error}"
        ) from error
    return attrs.evolve(write, value=value)


def check_key(key: object) -> None:
    """Refuse what is no key.

    Raises:
        InvalidOption: if it is no text, or empty.
    """
    if not isinstance(key, str) or not key:
        raise InvalidOption(f'shared memory key: expected a text such as "positions:BTC"; got {key!r}')


def check_agent(agent_id: object) -> None:
    """Refuse what names no agent.

    Raises:
        InvalidOption: if it is no text, or empty.
    """
    if not isinstance(agent_id, str) or not agent_id:
        raise InvalidOption(f"agent_id: expected the name of who writes, as a text; got {agent_id!r}")


def check_expected(version: object) -> None:
    """Refuse what is no expected version.

    Raises:
        InvalidOption: if it is no version and neither -1 nor -2.
    """
    if version not in (ANY, ABSENT) and not _is_version(version):
        raise InvalidOption(
            f"expected_version: expected a version from 0, -1 for any, or -2 (ABSENT) for none; got {version!r}"
        )


def _is_version(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0

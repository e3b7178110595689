"""Schemas: which payload types a bus carries, and what is known of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from sapwood.actors import wire_of
from sapwood.errors import ContentRefused, InvalidMessage
from sapwood.messaging.envelope._envelope import Envelope


@attrs.frozen
class Schema:
    """What is known of one payload type (S1-002).

    Attributes:
        name: Its unique wire name.
        version: The version that the class has now.
        fields: Every field and the text of its annotation.
        required: The fields without a default.
        upgrades: The older versions that are still read.
    """

    name: str
    version: int
    fields: Mapping[str, str]
    required: tuple[str, ...]
    upgrades: tuple[int, ...]


def schema_of(cls: type) -> Schema:
    """Return what is known of a payload type.

    Raises:
        InvalidMessage: if it is no class made with `@message` or `@record`.
    """
    wire = wire_of(cls)
    if wire is None:
        raise InvalidMessage(f"schema: expected a class made with @message or @record; got {cls!r}")
    fields = attrs.fields(cls)
    return Schema(
        wire.name,
        wire.version,
        {field.name: str(field.type) if not isinstance(field.type, type) else field.type.__name__ for field in fields},
        tuple(field.name for field in fields if field.default is attrs.NOTHING),
        tuple(sorted(wire.upcasters)),
    )


class Schemas:
    """The closed set of payload types that a bus carries; every other type is refused at both ends (S1-004).

    Args:
        *types: Classes made with `@message` or `@record`.

    Raises:
        InvalidMessage: if one of them is something else.
    """

    def __init__(self, *types: type) -> None:
        self._by_type = {cls: schema_of(cls) for cls in types}

    def __contains__(self, cls: object) -> bool:
        return isinstance(cls, type) and cls in self._by_type

    def __iter__(self) -> Iterator[Schema]:
        return iter(self._by_type.values())

    def __len__(self) -> int:
        return len(self._by_type)

    def check(self, envelope: Envelope[Any], operation: str) -> None:
        """Refuse an envelope whose payload is of another type.

        Raises:
            ContentRefused: naming the types of the set.
        """
        if type(envelope.payload) not in self._by_type:
            known = ", ".join(schema.name for schema in self)
            reason = f"payload type {envelope.schema.name!r} is not among the schemas of this bus: {known}"
            raise ContentRefused(envelope.sender, operation, reason)

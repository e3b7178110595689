"""Why a message becomes a dead letter."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import attrs

DeadReason: TypeAlias = Literal[
    "recipient_unknown",
    "no_instance",
    "expired",
    "delivery_failed",
    "rejected",
    "overflow",
    "unreadable",
]


@attrs.frozen
class ReasonKind:
    """What a reason means.

    Attributes:
        transient: Whether trying again by itself may help.
        meaning: For people.
    """

    transient: bool
    meaning: str


REASONS: Final[dict[DeadReason, ReasonKind]] = {
    "recipient_unknown": ReasonKind(False, "nobody has the name it was sent to"),  # noqa: FBT003  # a table
    "no_instance": ReasonKind(True, "the recipient has no instance that could take it now"),  # noqa: FBT003
    "expired": ReasonKind(False, "its time to live passed before it was delivered"),  # noqa: FBT003
    "delivery_failed": ReasonKind(True, "every delivery that it may have failed"),  # noqa: FBT003
    "rejected": ReasonKind(False, "its receiver said that it can never be handled"),  # noqa: FBT003
    "overflow": ReasonKind(True, "the queue was full and sheds load"),  # noqa: FBT003
    "unreadable": ReasonKind(False, "what is stored of it cannot be read; its bytes are kept"),  # noqa: FBT003
}
"""Reason: whether it is transient, and what it means (S3-109; the last three are the queue's own)."""

"""What each delivery mode promises, crash by crash."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import attrs

from sapwood.messaging.queues._options import DeliveryMode

CrashPoint: TypeAlias = Literal[
    "before_append_returns", "before_delivery", "before_effect", "after_effect", "after_settled"
]
"""Where the process dies: in the append; with the message stored; with it delivered; with the handler's work done; with
the delivery settled."""


@attrs.frozen
class Seen:
    """What the receiver sees of one message, the life after the crash included.

    Attributes:
        deliveries: How often the message may be handed to a handler.
        effects: How often the handler's effect may happen in full.
        afterwards: Where the message is in the end.
    """

    deliveries: frozenset[int]
    effects: frozenset[int]
    afterwards: str


def _seen(deliveries: str, effects: str, afterwards: str) -> Seen:
    return Seen(frozenset(map(int, deliveries.split())), frozenset(map(int, effects.split())), afterwards)


GUARANTEES: Final[dict[tuple[DeliveryMode, CrashPoint], Seen]] = {
    ("at_most_once", "before_append_returns"): _seen("0 1", "0 1", "settled or never stored; the sender cannot know"),
    ("at_most_once", "before_delivery"): _seen("1", "1", "settled"),
    ("at_most_once", "before_effect"): _seen("1", "0", "a dead letter: outcome unknown"),
    ("at_most_once", "after_effect"): _seen("1", "1", "a dead letter: outcome unknown"),
    ("at_most_once", "after_settled"): _seen("1", "1", "settled"),
    ("at_least_once", "before_append_returns"): _seen("0 1", "0 1", "settled or never stored; the sender cannot know"),
    ("at_least_once", "before_delivery"): _seen("1", "1", "settled"),
    ("at_least_once", "before_effect"): _seen("2", "1", "settled"),
    ("at_least_once", "after_effect"): _seen("2", "2", "settled"),
    ("at_least_once", "after_settled"): _seen("1", "1", "settled"),
    ("effectively_once", "before_append_returns"): _seen("1", "1", "settled, once the sender repeats it with its id"),
    ("effectively_once", "before_delivery"): _seen("1", "1", "settled"),
    ("effectively_once", "before_effect"): _seen("2", "1", "settled"),
    ("effectively_once", "after_effect"): _seen("2", "1", "settled; the first effect was undone with its transaction"),
    ("effectively_once", "after_settled"): _seen("1", "1", "settled"),
}
"""Mode and crash point: what the receiver sees (S2-026, contradiction C17).

Effects of *effectively once* are those made with `Delivery.ack_with`, in the queue's own store. What a handler does
elsewhere (an HTTP call, a file, another database) it may do again after a crash, as with *at least once*: no queue can
commit that together with its own state. Hand `Delivery.idempotency_key` to the other side, which then tells repeats.
"""

"""Notes for debugging: every change of a conversation as it was journaled, and who wanted it."""

from __future__ import annotations

from collections.abc import Sequence

from sapwood.actors import wire_of
from sapwood.agents._announce import Step
from sapwood.agents._publisher import Publisher
from sapwood.conversation import journal
from sapwood.persistence import describe, encode


def take_notes(publisher: Publisher, steps: Sequence[Step], last_seq: int) -> None:
    """Tell those who debug of the events of one commit, in order.

    Args:
        publisher: Knows the readers.
        steps: The events.
        last_seq: Sequence number of the last of them.
    """
    for number, step in enumerate(steps, last_seq - len(steps) + 1):
        event, run = step.event, step.after.run or step.before.run
        wire = wire_of(type(event))
        source = event.source if isinstance(event, journal.OperationsApplied | journal.MessagesReplaced) else ""
        publisher.note(
            run.id if run is not None else "",
            journal_seq=number,
            kind=wire.name if wire is not None else "",
            source=source,
            data=describe(encode(event)),
        )

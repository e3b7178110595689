"""The transcript: what people see of a conversation. It only ever grows, whatever becomes of the model's context."""

from __future__ import annotations

from typing import Literal, TypeAlias

from sapwood.actors import record
from sapwood.conversation._messages import Message
from sapwood.conversation._state import State
from sapwood.conversation.journal import JournalEvent, MessagesReplaced, OperationsApplied, StateReset

TranscriptKind: TypeAlias = Literal["message", "left_context", "reset"]


@record("transcript.entry")
class TranscriptEntry:
    """One line of a transcript.

    Attributes:
        kind: `message`: something was said. `left_context`: the model does not see the messages in `removed` any more,
            since they were summarised, repaired or taken back; people still do. `reset`: the conversation began anew.
        said: What was said, one message; empty for the other kinds.
        removed: Ids of the messages that left the context.
        source: Who put it there: the name of a middleware, `rollback`, or empty for people, the model and its tools.
        run_id: The run in which that happened; empty outside a run.
        at: Wall-clock seconds since 1970 UTC.
    """

    kind: TranscriptKind = "message"
    said: tuple[Message, ...] = ()
    removed: tuple[str, ...] = ()
    source: str = ""
    run_id: str = ""
    at: float = 0.0

    @property
    def message(self) -> Message | None:
        """What was said, or None for the other kinds."""
        return self.said[0] if self.said else None


def transcript_of(before: State, event: JournalEvent, after: State, at: float) -> tuple[TranscriptEntry, ...]:
    """Return what one journal event adds to the transcript.

    Args:
        before: The state before the event.
        event: The event.
        after: The state after it.
        at: Wall-clock seconds since 1970 UTC.
    """
    if after.messages is before.messages:
        return ()
    run = after.run or before.run
    run_id = run.id if run is not None else ""
    if isinstance(event, StateReset):
        return (TranscriptEntry("reset", run_id=run_id, at=at),)
    source = event.source if isinstance(event, MessagesReplaced | OperationsApplied) else ""
    entries = [
        TranscriptEntry("message", (message,), source=source, run_id=run_id, at=at)
        for message in _joined(before, after)
    ]
    if isinstance(event, MessagesReplaced):
        kept = {message.id for message in after.messages}
        removed = tuple(message.id for message in before.messages if message.id not in kept)
        if removed:
            entries.insert(0, TranscriptEntry("left_context", (), removed, source, run_id, at))
    return tuple(entries)


def _joined(before: State, after: State) -> tuple[Message, ...]:
    old, new = before.messages, after.messages
    # Nearly always one message joins at the end; long conversations would feel a comparison of all of them.
    if len(new) == len(old) + 1 and (not old or new[-2] is old[-1]):
        return (new[-1],)
    known = {id(message) for message in old}
    return tuple(message for message in new if id(message) not in known)

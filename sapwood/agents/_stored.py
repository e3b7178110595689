"""Conversations as they are stored: read, listed for people and copied without starting their agents."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import attrs

from sapwood.actors import Environment
from sapwood.agents._changes import named_message
from sapwood.conversation import (
    Archive,
    Message,
    Origin,
    State,
    ToolResult,
    TranscriptEntry,
    archive_from_json,
    archive_to_json,
    copy_json,
    evolve,
    journal,
    repair_pairs,
    unanswered_calls,
)
from sapwood.errors import AgentMissing, InvalidOption
from sapwood.persistence import AgentPersistence, NumberedLine, Stored

M = TypeVar("M", bound=Message)

NOT_COPIED: Final = (
    "Error: this conversation is a copy that was made before the call had a result; its effect is unknown"
)
PAGE: Final = 1_000


@attrs.frozen
class TranscriptLine:
    """One line of a transcript.

    Attributes:
        number: Its place: 1, 2, 3 … without gaps; `after` and `before` of another page.
        entry: What it says.
    """

    number: int
    entry: TranscriptEntry


@attrs.frozen
class TranscriptPage:
    """Some lines of a transcript, in order.

    Attributes:
        lines: The lines; none if there are none beyond.
        more: Whether the page was full, so that there may be more in the direction that was asked for.
    """

    lines: tuple[TranscriptLine, ...]
    more: bool

    @property
    def messages(self) -> tuple[Message, ...]:
        """What was said, without the other kinds of entries."""
        return tuple(message for line in self.lines for message in line.entry.said)


@attrs.frozen
class Copied:
    """A conversation was copied.

    Attributes:
        agent_id: Id of the copy.
        message_ids: For every message id of the original that of the copy.
        closed_calls: Ids of the calls that had no result yet, and have an error result now.
    """

    agent_id: str
    message_ids: Mapping[str, str]
    closed_calls: tuple[str, ...]


class StoredConversations:
    """What can be done with conversations whether their servers run or not; claims none of them, and starts nothing.

    Args:
        persistence: Returns the present store.
        owner: Name under which copies are written.
        environment: Wall clock and ids.
    """

    def __init__(self, persistence: Callable[[], AgentPersistence], owner: str, environment: Environment) -> None:
        self._persistence = persistence
        self._owner = owner
        self._environment = environment

    async def load(self, agent_id: str) -> State:
        """Return a conversation as it is stored, whether its server runs or not.

        Raises:
            AgentMissing: if nothing is stored of it.
            StoreUnavailable, RecordCorrupt, FutureVersion: if the store cannot tell.
        """
        return state_of(await self._load(agent_id))

    async def transcript(
        self, agent_id: str, *, after: int = 0, before: int | None = None, limit: int = 100, last: bool = False
    ) -> TranscriptPage:
        """Return what people see of a conversation, page by page; starts nothing.

        A transcript only ever grows: what a summary or a repair took out of the model's context is still in it.

        Args:
            agent_id: The conversation.
            after: Only lines with higher numbers.
            before: Only lines with lower numbers; None for no such limit.
            limit: Most lines of a page.
            last: Whether to return the last of these lines instead of the first.

        Raises:
            AgentMissing: if nothing is stored of it.
            StoreUnavailable, RecordCorrupt, FutureVersion: if the store cannot tell.
        """
        lines = await self._persistence().read_transcript(agent_id, after=after, before=before, limit=limit, last=last)
        if not lines:
            await self._load(agent_id)
        return TranscriptPage(tuple(TranscriptLine(each.number, each.line) for each in lines), len(lines) == limit)

    async def export_conversation(self, agent_id: str) -> dict[str, Any]:
        """Return a conversation with its transcript as JSON-safe data; starts nothing.

        Work in progress is no part of it, and neither are files.

        Raises:
            AgentMissing: if nothing is stored of it.
            StoreUnavailable, RecordCorrupt, FutureVersion: if the store cannot tell.
        """
        state = state_of(await self._load(agent_id))
        transcript = _entries_with(await self._all_entries(agent_id), state.messages)
        return archive_to_json(
            Archive(
                agent_id=agent_id,
                agent=state.agent,
                definition=state.definition,
                routing=state.routing,
                messages=state.messages,
                todos=state.todos,
                metadata=state.metadata,
                transcript=tuple(transcript),
            )
        )

    async def import_conversation(
        self, data: object, agent_id: str, *, routing: Mapping[str, Any] | None = None
    ) -> Copied:
        """Write an exported conversation under an id that is free; starts nothing.

        Its messages get new ids, and calls without a result an error result. `State.origin` says where it came from.

        Args:
            data: What `export_conversation` returned.
            agent_id: Id of the copy.
            routing: What a factory is to build its agent from; None for what the data says. Give it if the data comes
                from somebody who is not to choose their agent.

        Raises:
            CodecError, FutureVersion: if the data is not what `export_conversation` returned; nothing was written.
            AgentExists: if something is stored under the id; likewise.
        """
        archive = archive_from_json(data)
        names = _Names(self._environment.new_id)
        last = archive.messages[-1].id if archive.messages else ""
        origin = Origin(archive.agent_id, last, "import", self._environment.wall())
        messages, closed = close_calls(tuple(map(names.rename, archive.messages)), self._environment.new_id)
        transcript = [names.rename_entry(entry) for entry in archive.transcript]
        state = State(
            agent=archive.agent,
            definition=archive.definition,
            todos=archive.todos,
            metadata=archive.metadata,
            routing=archive.routing if routing is None else copy_json(dict(routing), "routing"),
        )
        await self._write(agent_id, state, origin, messages, [*transcript, *self._said(closed)])
        return Copied(agent_id, names.known, tuple(each.call_id for each in closed))

    async def fork(self, agent_id: str, new_id: str, *, at: str | None = None) -> Copied:
        """Copy a conversation up to a message under an id that is free; starts nothing, and disturbs nobody.

        The copy has the messages up to there, the to-dos and metadata of that moment (or of the oldest one that the
        journal still has) and the transcript; `State.origin` says where it came from. Calls without a result get an
        error result. Runs, interrupts and what waits stay with the original, and so do its usage and its files.

        Args:
            agent_id: The conversation.
            new_id: Id of the copy.
            at: Id of the last message to copy; None for all.

        Raises:
            AgentMissing: if nothing is stored of the original.
            AgentExists: if something is stored under the new id; nothing was written.
            InvalidOption: if the message is not in the model's context, nor was as far back as the journal reaches.
        """
        stored = await self._load(agent_id)
        state = state_of(stored) if at is None else state_at(stored, at)
        messages = state.messages if at is None else _up_to(state.messages, at)
        said = _entries_with(await self._all_entries(agent_id), messages)
        messages, closed = close_calls(messages, self._environment.new_id)
        last = at if at is not None else state.messages[-1].id if state.messages else ""
        origin = Origin(agent_id, last, "fork", self._environment.wall())
        await self._write(new_id, state, origin, messages, [*said, *self._said(closed)])
        return Copied(new_id, {each.id: each.id for each in messages}, tuple(each.call_id for each in closed))

    async def _load(self, agent_id: str) -> Stored:
        found = await self._persistence().load(agent_id)
        if isinstance(found, Stored):
            return found
        raise AgentMissing(agent_id)

    async def _write(
        self,
        agent_id: str,
        state: State,
        origin: Origin,
        messages: tuple[Message, ...],
        transcript: Sequence[TranscriptEntry],
    ) -> None:
        events: list[journal.JournalEvent] = [
            journal.ConversationCreated(state.agent, state.definition, self._environment.wall()),
            journal.ConversationCopied(origin, messages, state.todos, state.metadata),
        ]
        if state.routing:
            events.append(journal.ConversationRouted(state.routing))
        await self._persistence().create(agent_id, owner=self._owner, events=events, lines=transcript)

    async def _all_entries(self, agent_id: str) -> list[TranscriptEntry]:
        found: list[NumberedLine] = []
        while True:
            after = found[-1].number if found else 0
            page = await self._persistence().read_transcript(agent_id, after=after, limit=PAGE)
            found += page
            if len(page) < PAGE:
                return [each.line for each in found]

    def _said(self, messages: Sequence[Message]) -> list[TranscriptEntry]:
        at = self._environment.wall()
        return [TranscriptEntry("message", (message,), source="copy", at=at) for message in messages]


class _Names:
    """New ids for the messages of a copy; each old one always gets the same."""

    def __init__(self, new_id: Callable[[str], str]) -> None:
        self._new_id = new_id
        self.known: dict[str, str] = {}

    def name(self, old: str) -> str:
        return self.known.setdefault(old, self._new_id("msg_")) if old else ""

    def rename(self, message: M) -> M:
        return evolve(message, id=self.name(message.id) or self._new_id("msg_"))

    def rename_entry(self, entry: TranscriptEntry) -> TranscriptEntry:
        said = tuple(map(self.rename, entry.said))
        return evolve(entry, said=said, removed=tuple(map(self.name, entry.removed)))


def state_of(stored: Stored) -> State:
    """Return the conversation as it is stored."""
    return journal.fold(_begin(stored), (entry.event for entry in stored.tail))


def state_at(stored: Stored, message_id: str) -> State:
    """Return the conversation as it was when a message joined it, as far back as the journal still reaches.

    Raises:
        InvalidOption: if the model's context does not have it, nor had.
    """
    state = _begin(stored)
    if not _has(state, message_id):
        for entry in stored.tail:
            before, state = state, journal.apply(state, entry.event)
            if state.messages is not before.messages and _has(state, message_id):
                break
        else:
            last = ", ".join(repr(each.id) for each in state.messages[-5:]) or "there is none"
            raise InvalidOption(
                f"fork of {stored.agent_id!r}: expected the id of a message in the model's context, now or "
                f"as far back as the journal reaches; got {message_id!r}; the last ones are {last}"
            )
    return state


def _begin(stored: Stored) -> State:
    return stored.snapshot if isinstance(stored.snapshot, State) else State()


def _has(state: State, message_id: str) -> bool:
    return any(message.id == message_id for message in state.messages)


def _up_to(messages: tuple[Message, ...], message_id: str) -> tuple[Message, ...]:
    at = next(index for index, message in enumerate(messages) if message.id == message_id)
    return messages[: at + 1]


def _entries_with(entries: list[TranscriptEntry], messages: Sequence[Message]) -> list[TranscriptEntry]:
    """Return the entries up to the last of these messages: what was said later is no part of a copy."""
    ids = {message.id for message in messages} - {""}
    if not ids:
        return entries if not messages else []
    places = [number for number, entry in enumerate(entries, 1) if any(each.id in ids for each in entry.said)]
    return entries[: places[-1]] if places else []


def close_calls(
    messages: tuple[Message, ...], new_id: Callable[[str], str]
) -> tuple[tuple[Message, ...], tuple[ToolResult, ...]]:
    """Give every call without a result an error result that says why; return all messages, and those results."""
    still_open = {call.id for call in unanswered_calls(messages)}
    if not still_open:
        return tuple(named_message(each, new_id) for each in messages), ()
    whole: list[Message] = []
    closed: list[ToolResult] = []
    for message in repair_pairs(messages, NOT_COPIED):
        if isinstance(message, ToolResult) and message.call_id in still_open and message.content == NOT_COPIED:
            result = evolve(message, problem="unknown", id=new_id("msg_"))
            closed.append(result)
            whole.append(result)
        else:
            whole.append(named_message(message, new_id))
    return tuple(whole), tuple(closed)

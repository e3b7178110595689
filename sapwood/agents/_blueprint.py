"""The blueprint: how the agent of one conversation is built at each of its starts."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from sapwood.actors import Environment
from sapwood.agents._agent import Agent
from sapwood.agents._changes import change_events
from sapwood.agents._factories import Conversation, Factory
from sapwood.conversation import State, journal

SOURCE = "factory"


class Blueprint:
    """Builds the agent at once, so that a factory's refusal is known before anything starts, and anew at each restart.

    Attributes:
        first: The agent of the first start.

    Args:
        factory: Who builds it.
        conversation: What for.
        environment: Makes ids.

    Raises:
        Exception: what the factory raises.
    """

    def __init__(self, factory: Factory, conversation: Conversation, environment: Environment) -> None:
        self.first = factory.build(conversation)
        self._factory = factory
        self._conversation = conversation
        self._environment = environment
        self._used = False

    def build(self) -> Agent:
        """Return the agent for the next start of the server."""
        if self._used:
            return self._factory.build(self._conversation)
        self._used = True
        return self.first

    async def opening(self, state: State) -> Sequence[journal.JournalEvent]:
        """Return what the conversation begins with, if it has not begun; also its routing data, if none is stored."""
        events: list[journal.JournalEvent] = []
        if self._conversation.routing and not state.routing:
            events.append(journal.ConversationRouted(dict(self._conversation.routing)))
        if state == State():
            operations = await self._factory.fresh_state(self._conversation)
            events += change_events(SOURCE, operations, self._environment.new_id)
        else:
            await trio.lowlevel.checkpoint()
        return events

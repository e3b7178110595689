"""Factories: they build the agent of a conversation anew at every start, from data that is stored with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, cast, runtime_checkable

import attrs
import trio

from sapwood.agents._agent import Agent
from sapwood.conversation import Operation
from sapwood.errors import DuplicateName, InvalidOption, UnknownRoute


@attrs.frozen
class Conversation:
    """What a factory knows of the conversation that it builds an agent for.

    Attributes:
        agent_id: Its id.
        routing: The data it was started with first, as it is stored. Treat it as read-only.
    """

    agent_id: str
    routing: Mapping[str, Any]


@runtime_checkable
class Factory(Protocol):
    """Builds agents for conversations: today's code with yesterday's data (S4-036, S4-037)."""

    def build(self, conversation: Conversation) -> Agent:
        """Return the agent of a conversation.

        Called at every start: the first one, each later one, and when a supervisor restarts a server that has
        crashed. Must not block.

        Raises:
            Exception: why it cannot; whoever wants the conversation running gets it, and nothing is started.
        """
        ...

    async def fresh_state(self, conversation: Conversation) -> Sequence[Operation]:
        """Return what a new conversation begins with; called only if nothing at all is stored of it (S4-038)."""
        ...


@attrs.frozen
class FunctionFactory:
    """A factory made of a function; its conversations begin empty.

    Args:
        make: Returns the agent of a conversation.
    """

    make: Callable[[Conversation], Agent]

    def build(self, conversation: Conversation) -> Agent:
        """Return what the function returns."""
        return self.make(conversation)

    async def fresh_state(self, conversation: Conversation) -> Sequence[Operation]:
        """Return nothing."""
        await trio.lowlevel.checkpoint()
        return ()


Rule = Callable[[Conversation], bool]


@attrs.frozen
class _Route:
    name: str
    factory: Factory
    when: Rule | None


class FactoryRouter:
    """A factory that leaves conversations to others, by name or by rule.

    A conversation whose routing data has a `factory` goes to the one of that name. One without goes to the first
    whose rule says yes, in the order in which they were added.

    ```python
    router = FactoryRouter()
    router.add("support", lambda conversation: support_agent(language=conversation.routing["language"]))
    ```
    """

    def __init__(self) -> None:
        self._routes: dict[str, _Route] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the factories, in order."""
        return tuple(self._routes)

    def add(self, name: str, factory: Factory | Callable[[Conversation], Agent], *, when: Rule | None = None) -> None:
        """Add a factory.

        Args:
            name: Stored with conversations, so it must outlive renames in the code.
            factory: The factory, or a function from a conversation to its agent.
            when: Says whether a conversation without a name belongs to it; None for never.

        Raises:
            InvalidOption: if the name is empty, or the factory is none.
            DuplicateName: if the name is taken.
        """
        if not isinstance(cast("object", name), str) or not name:
            raise InvalidOption(f"factory name: expected a text that is not empty; got {name!r}")
        if name in self._routes:
            raise DuplicateName("factory", name, self._routes[name].factory)
        self._routes[name] = _Route(name, as_factory(factory), when)

    def build(self, conversation: Conversation) -> Agent:
        """Return the agent that the responsible factory builds.

        Raises:
            UnknownRoute: if there is none.
        """
        return self.route(conversation).build(conversation)

    async def fresh_state(self, conversation: Conversation) -> Sequence[Operation]:
        """Return what the responsible factory begins a new conversation with.

        Raises:
            UnknownRoute: if there is none.
        """
        return await self.route(conversation).fresh_state(conversation)

    def route(self, conversation: Conversation) -> Factory:
        """Return the responsible factory.

        Raises:
            UnknownRoute: if there is none; it names the known ones.
        """
        name = conversation.routing.get("factory")
        if name is not None:
            found = self._routes.get(name) if isinstance(name, str) else None
            if found is None:
                raise UnknownRoute(conversation.agent_id, str(name), self.names)
            return found.factory
        for route in self._routes.values():
            if route.when is not None and route.when(conversation):
                return route.factory
        raise UnknownRoute(conversation.agent_id, "", self.names)


def as_factory(given: Factory | Callable[[Conversation], Agent]) -> Factory:
    """Return a factory for what was given as one.

    Raises:
        InvalidOption: if it is neither a factory nor a function.
    """
    if isinstance(given, Factory) and not isinstance(given, type):
        return given
    if callable(given) and not isinstance(given, type):
        return FunctionFactory(given)
    raise InvalidOption(
        f"expected a factory (build and fresh_state) or a function from a conversation to its agent; got {given!r}"
    )

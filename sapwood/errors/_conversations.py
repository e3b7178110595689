"""Errors about stored conversations and the factories that build agents for them."""

from __future__ import annotations

from collections.abc import Sequence

from sapwood.errors._persistence import PersistenceError
from sapwood.errors._root import SapwoodError


class AgentMissing(PersistenceError):
    """The store has answered: nothing is stored of the agent. Never raised when it cannot tell.

    Attributes:
        agent_id: The agent.
    """

    def __init__(self, agent_id: str) -> None:
        super().__init__(f"agent {agent_id!r}: nothing is stored; start it with ensure_running(factory, id)")
        self.agent_id = agent_id


class AgentExists(PersistenceError):
    """Something is stored of the agent, so nothing new was written under its id.

    Attributes:
        agent_id: The agent.
    """

    def __init__(self, agent_id: str) -> None:
        super().__init__(f"agent {agent_id!r}: something is stored already; choose an id that is free")
        self.agent_id = agent_id


class UnknownRoute(SapwoodError):
    """No factory is responsible for a conversation; nothing was started.

    Attributes:
        agent_id: The conversation.
        route: The name that its routing data gives; empty if it gives none.
        known: Names of the factories there are.
    """

    def __init__(self, agent_id: str, route: str, known: Sequence[str]) -> None:
        names = ", ".join(map(repr, known)) or "none"
        got = f"the factory {route!r}" if route else "no name, and no rule fits"
        super().__init__(
            f"agent {agent_id!r}: expected one of the known factories: {names}; its routing data has {got}"
        )
        self.agent_id = agent_id
        self.route = route
        self.known = tuple(known)

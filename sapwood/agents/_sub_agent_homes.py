"""Where sub-agents live: trees below the `sub-agents` supervisor of their parent."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import attrs

from sapwood.actors import Environment
from sapwood.agents._agent import Agent
from sapwood.agents._publisher import Publisher
from sapwood.agents._session import Session
from sapwood.agents._sub_agent_work import KEY
from sapwood.conversation import PatchMetadata, State, journal
from sapwood.errors import ActorDown, AgentExists, ChildNotFound
from sapwood.persistence import Stored
from sapwood.registry import Registry, Running
from sapwood.supervision import terminate_child

if TYPE_CHECKING:
    from sapwood.actors import Ref
    from sapwood.persistence import AgentPersistence

SUB_AGENTS = "sub_agents"
TREE = "agent_tree"


class StartBelow(Protocol):
    """Starts the tree of an agent below a supervisor, if nothing runs, and returns when its server serves."""

    async def __call__(self, agent: Agent, agent_id: str, home: Callable[[], Ref | None]) -> Session:
        """Start it."""
        ...


@attrs.frozen
class SubAgentHomes:
    """Starts, finds and stops the trees of sub-agents.

    Attributes:
        registry: Where the trees are registered.
        journal: Returns the present journals.
        publisher: Returns the publisher of a conversation.
        session: Returns the session of a conversation.
        environment: Wall clock.
        owner: Name under which conversations are written.
    """

    registry: Registry
    journal: Callable[[], AgentPersistence]
    publisher: Callable[[str], Publisher]
    session: Callable[[str], Session]
    environment: Environment
    owner: str
    _start: StartBelow = attrs.field(alias="start")

    async def prepare(self, agent: Agent, agent_id: str, key: str, metadata: dict[str, Any]) -> str:
        """Write the beginning of the conversation of a sub-agent, once for a key; return its id.

        Where the id is taken by somebody else, as after a reset of the parent, another one is made of it.

        Raises:
            PersistenceError: if it cannot be written or read.
        """
        beginning = (
            journal.ConversationCreated(agent.name, agent.definition, self.environment.wall()),
            journal.OperationsApplied((PatchMetadata({**metadata, KEY: {"key": key}}),), KEY),
        )
        for name in (agent_id, f"{agent_id}-{key[-12:]}"):
            try:
                await self.journal().create(name, owner=self.owner, events=beginning)
            except AgentExists:
                found = await self.read(name)
                if found is None or found.metadata.get(KEY) != {"key": key}:
                    continue
            return name
        raise AgentExists(agent_id)

    async def read(self, agent_id: str) -> State | None:
        """Return a conversation as it is now: in memory, or in the store; None if there is none.

        Raises:
            PersistenceError: if it cannot be read.
        """
        state = self.publisher(agent_id).state
        if state is not None:
            return state
        match await self.journal().load(agent_id):
            case Stored(snapshot=snapshot, tail=tail):
                first = snapshot if isinstance(snapshot, State) else State()
                return journal.fold(first, (entry.event for entry in tail))
            case _:
                return None

    async def start(self, agent: Agent, agent_id: str, parent_id: str) -> Session:
        """Start the tree of a sub-agent if nothing runs; once under concurrent calls.

        Raises:
            ActorDown: if its parent's supervisor of sub-agents is not there (yet).
            RegistryUnavailable, PersistenceError, ChildFailed: as `Sessions.ensure_running`.
        """
        home = self.registry.lookup_nowait((SUB_AGENTS, parent_id))
        if not isinstance(home, Running):
            raise ActorDown(f"sub-agents of {parent_id!r}")
        return await self._start(agent, agent_id, lambda: home.ref)

    async def stop(self, agent_id: str, parent_id: str) -> None:
        """Stop the tree of a sub-agent, if it runs; its state stays in the store."""
        home = self.registry.lookup_nowait((SUB_AGENTS, parent_id))
        tree = self.registry.lookup_nowait((TREE, agent_id))
        if isinstance(home, Running) and isinstance(tree, Running):
            try:
                await terminate_child(home.ref, tree.ref)
            except (ChildNotFound, ActorDown):
                return  # it has ended by itself

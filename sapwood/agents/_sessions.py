"""The sessions of a runtime: finding conversations, starting them once, stopping them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, cast

import attrs

from sapwood.actors import (
    Crashed,
    Environment,
    Exited,
    ExitReason,
    Killed,
    Normal,
    Ref,
    Shutdown,
    Telemetry,
    TelemetryEvent,
)
from sapwood.agents._agent import Agent
from sapwood.agents._publisher import Publisher
from sapwood.agents._server import AgentServer
from sapwood.agents._services import Services
from sapwood.agents._session import Session
from sapwood.errors import ActorDown, ChildFailed, ChildNotFound, InvalidOption, PersistenceError, RegistryUnavailable
from sapwood.models import ClosableModel
from sapwood.registry import Lookup, NotRunning, Registry, Running, Unavailable
from sapwood.supervision import ChildSpec, DynamicSupervisor, Supervisor, child, terminate_child

SERVER = "agent"
TREE = "agent_tree"
SUB_AGENTS = "sub_agents"

ATTEMPTS: Final = 3
"""How often a conversation whose server ends as soon as it has started is started again for one caller."""


@attrs.frozen
class Stopped:
    """The conversation's server ran and has been stopped."""


StopOutcome = Stopped | NotRunning | Unavailable


class Sessions:
    """Conversations by id, each with at most one server (S4-036, S4-047).

    Args:
        registry: Where servers are registered, as `("agent", id)`.
        home: The dynamic supervisor of agents, or None while there is none.
        services: What servers need.
        environment: Time, randomness, ids, threads.
        telemetry: Tells of servers that have ended.
    """

    def __init__(
        self,
        registry: Registry,
        home: Callable[[], Ref | None],
        services: Services,
        environment: Environment,
        telemetry: Telemetry,
    ) -> None:
        self._registry = registry
        self._home = home
        self._services = services
        self._environment = environment
        self._publishers: dict[str, Publisher] = {}
        self._models: dict[ClosableModel, None] = {}
        telemetry.subscribe(self._watch, Exited)

    async def ensure_running(self, agent: Agent, agent_id: str) -> Session:
        """Return the session of a conversation, starting its server if nothing runs; once under concurrent calls.

        A server that runs already goes on with the configuration it was started with. A stored conversation is
        restored and goes on where its journal ends; a new one begins empty, only if nothing at all is stored.

        Raises:
            RegistryUnavailable: if the registry cannot tell; nothing was started (S4-045).
            StoreUnavailable: if the store cannot answer; that never counts as "nothing stored".
            RecordCorrupt, FutureVersion: if what is stored cannot be read.
            StaleEpoch: if another process claimed the conversation while it was being loaded.
            ChildFailed: if the server fails to start for another reason.
            ActorDown: if it started and ended again, several times over.
            InvalidOption: if the id is no text, or empty.
        """
        if not isinstance(cast("object", agent_id), str) or not agent_id:
            raise InvalidOption(f"conversation id: expected a text that is not empty; got {agent_id!r}")
        if isinstance(agent.model, ClosableModel):
            self._models[agent.model] = None
        spec = self._tree_spec(agent, agent_id)
        for _ in range(ATTEMPTS):
            # Taken before the start, since it outlives a server that fails and tells why.
            publisher = self.publisher(agent_id)
            found = await self._registry.get_or_start((TREE, agent_id), spec, under=self._home())
            if isinstance(found, Unavailable):
                raise RegistryUnavailable(f"start agent {agent_id!r}", found.reason, found.retry_after)
            await publisher.wait_settled()
            if publisher.serving:
                return self.session(agent_id)
            if publisher.failure is not None:
                raise start_failure(agent_id, publisher.failure)
        raise ActorDown(f"agent {agent_id!r}")

    def _tree_spec(self, agent: Agent, agent_id: str) -> ChildSpec:
        """Return the tree of one agent: the server, and below it the supervisor of its sub-agents (S4-051)."""
        server = child(
            lambda: AgentServer(agent, agent_id, self.publisher(agent_id), self._services),
            id="server",
            key=(SERVER, agent_id),
            restart="transient",
            shutdown=10.0,
            significant=True,
        )
        sub_agents = child(DynamicSupervisor, id="sub-agents", key=(SUB_AGENTS, agent_id))
        tree = partial(
            Supervisor,
            (server, sub_agents),
            strategy="rest_for_one",
            restarts=3,
            period=5.0,
            auto_shutdown="any_significant",
        )
        # Temporary: a tree that gives up stays down, and costs the supervisor of all agents nothing of its budget.
        return child(tree, id="agent", restart="temporary")

    def session(self, agent_id: str) -> Session:
        """Return the session of a conversation, whether its server runs or not."""
        return Session(agent_id, partial(self._find, agent_id), partial(self.publisher, agent_id), self._environment)

    async def lookup(self, agent_id: str) -> Lookup[Session]:
        """Say whether the server of a conversation runs; starts nothing (S4-044)."""
        match await self._registry.lookup((SERVER, agent_id)):
            case Running():
                return Running(self.session(agent_id))
            case NotRunning() as absent:
                return absent
            case Unavailable() as unknown:
                return unknown

    async def stop(self, agent_id: str) -> StopOutcome:
        """Stop the server of a conversation with everything below it; its state stays in the store."""
        match await self._registry.lookup((TREE, agent_id)):
            case Running(ref):
                home = self._home()
                if home is None:
                    return Unavailable("recovering")
                try:
                    await terminate_child(home, ref)
                except (ChildNotFound, ActorDown):
                    return NotRunning()
                return Stopped()
            case other:
                return other

    async def close_models(self) -> None:
        """Close the connections that the agents' models keep open; for the end of the runtime, when no agent runs."""
        for model in tuple(self._models):
            await model.aclose()
        self._models = {}

    def running(self) -> list[str]:
        """Return the ids of all conversations with a live server, sorted (S4-043).

        Raises:
            RegistryUnavailable: if any part of the registry cannot tell (S4-046).
        """
        return sorted(str(key[1]) for key in self._registry.running(SERVER))

    def publisher(self, agent_id: str) -> Publisher:
        """Return the publisher of a conversation; it outlives the servers."""
        found = self._publishers.get(agent_id)
        if found is None:
            found = self._publishers[agent_id] = Publisher(agent_id, self._environment, self._forget)
        return found

    def _forget(self, publisher: Publisher) -> None:
        if self._publishers.get(publisher.agent_id) is publisher:
            del self._publishers[publisher.agent_id]

    def _find(self, agent_id: str) -> Lookup[Ref]:
        return self._registry.lookup_nowait((SERVER, agent_id))

    def _watch(self, event: TelemetryEvent) -> None:
        """Tell those who follow an agent that its server has ended, however that happened (S4-062)."""
        match event:
            case Exited(key=("agent", str(agent_id)), reason=reason) if agent_id in self._publishers:
                self._publishers[agent_id].shut_down(shutdown_reason(reason))
            case Exited(key=("agent_tree", str(agent_id))) if agent_id in self._publishers:
                self._publishers[agent_id].ended()
            case _:
                pass


def shutdown_reason(reason: ExitReason) -> str:
    """Name an exit reason for subscribers."""
    match reason:
        case Normal():
            return "normal"
        case Shutdown(detail):
            return detail or "shutdown"
        case Killed():
            return "killed"
        case Crashed():
            return "crash"


def start_failure(agent_id: str, error: Exception) -> Exception:
    """Return what those get who wanted a server that could not start."""
    if isinstance(error, PersistenceError | RegistryUnavailable):
        return error.with_traceback(None)
    return ChildFailed(f"agent {agent_id!r}", Crashed.of(error))

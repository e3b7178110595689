"""The sessions of a runtime: finding conversations, starting them once, stopping them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, cast

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
from sapwood.agents._blueprint import Blueprint
from sapwood.agents._drain import DrainReport, drain_servers, with_later
from sapwood.agents._factories import Conversation, Factory, as_factory
from sapwood.agents._publisher import Publisher
from sapwood.agents._server import AgentServer
from sapwood.agents._services import Services
from sapwood.agents._session import Session
from sapwood.agents._stored import StoredConversations, state_of
from sapwood.agents._sub_agent_homes import SUB_AGENTS, TREE, SubAgentHomes
from sapwood.agents._waits import Waits
from sapwood.conversation import State, copy_json
from sapwood.errors import (
    ActorDown,
    ChildFailed,
    ChildNotFound,
    InvalidOption,
    PersistenceError,
    RegistryUnavailable,
)
from sapwood.models import ClosableModel
from sapwood.persistence import AgentPersistence, Missing, Stored
from sapwood.registry import Key, Lookup, NotRunning, Registry, Running, Unavailable
from sapwood.supervision import ChildSpec, DynamicSupervisor, Supervisor, child, terminate_child, which_children

SERVER = "agent"

ATTEMPTS: Final = 3
"""How often a conversation whose server ends as soon as it has started is started again for one caller."""


@attrs.frozen
class Stopped:
    """The conversation's server ran and has been stopped."""


StopOutcome = Stopped | NotRunning | Unavailable


class Sessions(StoredConversations):
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
        self._environment = environment
        self._publishers: dict[str, Publisher] = {}
        self._models: dict[ClosableModel, None] = {}
        self._factory: Factory | None = None
        self._draining = False
        # Ids of sub-agents, which are no conversations of the host's.
        self._below: set[str] = set()
        self._waits = Waits(self._state_in_memory)
        homes = SubAgentHomes(
            registry,
            self._store,
            self.publisher,
            self.session,
            environment,
            services.owner,
            start=self._start_below,
        )
        self._services = attrs.evolve(services, sub_agents=homes, waits=self._waits)
        super().__init__(self._store, services.owner, environment)
        telemetry.subscribe(self._watch, Exited)

    def _store(self) -> AgentPersistence:
        return self._services.journal()

    def use(
        self,
        *,
        factory: Factory | None = None,
        persistence: AgentPersistence | None = None,
        unwatched_after: float | None = None,
    ) -> None:
        """Say how conversations are built, where they are stored and when they rest; before the first one is started.

        What is None stays as it is.

        Args:
            factory: Builds the agents of conversations that are resumed; a `FactoryRouter`, for example.
            persistence: A store of the host's own, instead of the runtime's. Files and the whole of large results stay
                in the runtime's.
            unwatched_after: Seconds after which a server that is started from now on stops, if nobody follows its
                events or watches it, no run is open and nothing waits. Its conversation goes on with the next
                `ensure_running` (AR-22.24).

        Raises:
            InvalidOption: if the seconds are not above 0, or there is to be another store while conversations run.
            RegistryUnavailable: if it cannot be told whether any do.
        """
        if unwatched_after is not None and not 0 < unwatched_after < math.inf:
            raise InvalidOption(f"unwatched_after: expected seconds above 0; got {unwatched_after!r}")
        build = as_factory(factory) if factory is not None else self._factory
        if persistence is not None:
            running = self.running()
            if running:
                raise InvalidOption(f"persistence: expected no conversation to run; stop {running[0]!r} first")
            self._services = attrs.evolve(self._services, journal=lambda: persistence)
        self._factory = build
        if unwatched_after is not None:
            self._services = attrs.evolve(self._services, unwatched_after=unwatched_after)

    async def ensure_running(
        self, agent: Agent | Factory, agent_id: str, *, routing: Mapping[str, Any] | None = None
    ) -> Session:
        """Return the session of a conversation, starting its server if nothing runs; once under concurrent calls.

        A server that runs already goes on with the configuration it was started with. A stored conversation is
        restored and goes on where its journal ends; a new one begins empty, only if nothing at all is stored.

        A factory is asked at every start for today's agent, with the routing data that is stored; a new conversation
        is stored with `routing`, and begins with the factory's fresh state (S4-037, S4-038).

        Args:
            agent: The agent, or the factory that builds it.
            agent_id: The conversation.
            routing: JSON-like data for the factory, never a secret. Counts only if none is stored.

        Raises:
            UnknownRoute: if a `FactoryRouter` has no factory for the conversation; nothing was started.
            Exception: what the factory raises; nothing was started.
            CodecError: if the routing data is not JSON-like.
            RegistryUnavailable: if the registry cannot tell; nothing was started (S4-045).
            StoreUnavailable: if the store cannot answer; that never counts as "nothing stored".
            RecordCorrupt, FutureVersion: if what is stored cannot be read.
            StaleEpoch: if another process claimed the conversation while it was being loaded.
            ChildFailed: if the server fails to start for another reason.
            ActorDown: if it started and ended again, several times over.
            InvalidOption: if the id is no text, or empty, `agent` is neither an agent nor a factory, or routing data
                comes without a factory.
        """
        if not isinstance(cast("object", agent_id), str) or not agent_id:
            raise InvalidOption(f"conversation id: expected a text that is not empty; got {agent_id!r}")
        if isinstance(agent, Agent):
            if routing is not None:
                raise InvalidOption("routing: expected a factory that reads it; got an agent")
            self._note_models(agent)
            return await self._start(self._tree_spec(lambda: agent, agent_id, self._services), agent_id)
        factory = as_factory(agent)
        if self._serves(agent_id):
            return self.session(agent_id)
        match await self._store().load(agent_id):
            case Stored() as stored:
                known = state_of(stored).routing
            case Missing():
                known = {}
        return await self._build(factory, agent_id, known or copy_json(dict(routing or {}), "routing"))

    async def resume(self, agent_id: str) -> Session:
        """Return the session of a stored conversation, starting it with the factory that its routing data names.

        Raises:
            AgentMissing: if nothing is stored of it.
            UnknownRoute: if the router has no factory for it; nothing was started.
            InvalidOption: if no factory was given to `use`.
            Exception: what `ensure_running` raises.
        """
        if self._factory is None:
            raise InvalidOption("resume: expected a factory; give one with sessions.use(factory=...)")
        if self._serves(agent_id):
            return self.session(agent_id)
        stored = await self._load(agent_id)
        return await self._build(self._factory, agent_id, state_of(stored).routing)

    def _serves(self, agent_id: str) -> bool:
        """Say whether a server has started; then nothing needs to be built.

        Raises:
            RegistryUnavailable: if the registry cannot tell; nothing is loaded or built then.
        """
        match self._registry.lookup_nowait((SERVER, agent_id)):
            case Running():
                return self.publisher(agent_id).serving
            case NotRunning():
                return False
            case Unavailable(reason, retry_after):
                raise RegistryUnavailable(f"start agent {agent_id!r}", reason, retry_after)

    async def _build(self, factory: Factory, agent_id: str, routing: Mapping[str, Any]) -> Session:
        blueprint = Blueprint(factory, Conversation(agent_id, routing), self._environment)

        def build() -> Agent:
            agent = blueprint.build()
            self._note_models(agent)
            return agent

        services = attrs.evolve(self._services, opening=blueprint.opening)
        return await self._start(self._tree_spec(build, agent_id, services), agent_id)

    def _note_models(self, agent: Agent) -> None:
        for model in (agent.model, *agent.fallbacks):
            if isinstance(model, ClosableModel):
                self._models[model] = None

    async def _start_below(self, agent: Agent, agent_id: str, home: Callable[[], Ref | None]) -> Session:
        """Start the tree of a sub-agent below the supervisor of its parent."""
        self._note_models(agent)
        self._below.add(agent_id)
        # A sub-agent lives as long as its parent wants, whether anybody watches it or not.
        services = attrs.evolve(self._services, unwatched_after=None)
        return await self._start(self._tree_spec(lambda: agent, agent_id, services), agent_id, home)

    async def _start(self, spec: ChildSpec, agent_id: str, home: Callable[[], Ref | None] | None = None) -> Session:
        for _ in range(ATTEMPTS):
            # Taken before the start, since it outlives a server that fails and tells why.
            publisher = self.publisher(agent_id)
            if self._draining and not isinstance(self._registry.lookup_nowait((TREE, agent_id)), Running):
                raise RegistryUnavailable(f"start agent {agent_id!r}", "draining")
            found = await self._registry.get_or_start((TREE, agent_id), spec, under=(home or self._home)())
            if isinstance(found, Unavailable):
                raise RegistryUnavailable(f"start agent {agent_id!r}", found.reason, found.retry_after)
            await publisher.wait_settled()
            if publisher.serving:
                return self.session(agent_id)
            if publisher.failure is not None:
                raise start_failure(agent_id, publisher.failure)
        raise ActorDown(f"agent {agent_id!r}")

    def _tree_spec(self, build: Callable[[], Agent], agent_id: str, services: Services) -> ChildSpec:
        """Return the tree of one agent: the server, and below it the supervisor of its sub-agents (S4-051)."""
        server = child(
            lambda: AgentServer(build(), agent_id, self.publisher(agent_id), services),
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
        return Session(
            agent_id, partial(self._find, agent_id), partial(self.publisher, agent_id), self._environment, self._waits
        )

    async def lookup(self, agent_id: str) -> Lookup[Session]:
        """Say whether the server of a conversation runs; starts nothing (S4-044)."""
        match await self._registry.lookup((SERVER, agent_id)):
            case Running():
                return Running(self.session(agent_id))
            case NotRunning() as absent:
                # What does not run here may run elsewhere by now, and must not be started here.
                return Unavailable("draining") if self._draining else absent
            case Unavailable() as unknown:
                return unknown

    async def drain(self, deadline: float) -> DrainReport:
        """Start nothing any more, and bring all servers to rest and to their end; see `Runtime.drain`.

        Raises:
            RegistryUnavailable: if it cannot be told what runs; nothing is started any more all the same.
        """
        self._draining = True
        report = DrainReport((), ())
        over = self._environment.monotonic() + deadline
        while trees := await self._trees():
            # Again, for those whose start was under way.
            servers = {str(key[1]): ref for key, ref in self._registry.running(SERVER).items()}
            found = await drain_servers(servers, trees, max(0.0, over - self._environment.monotonic()))
            report = with_later(report, found)
            for agent_id in trees:
                # Its server has stopped; what is below it may take its time.
                await self.stop(agent_id)
        return report

    async def _trees(self) -> list[str]:
        """Return the ids of the agents that are no sub-agents, and are starting, running or ending."""
        home = self._home()
        if home is None:
            raise RegistryUnavailable("drain the agents", "recovering")
        try:
            trees = await which_children(home)
        except ActorDown:
            raise RegistryUnavailable("drain the agents", "recovering") from None
        keys = [info.ref.key for info in trees if info.ref is not None]
        return [str(key[1]) for key in cast("list[Key]", keys) if key and key[0] == TREE]

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
                    if agent_id in self._below:
                        raise InvalidOption(
                            f"stop {agent_id!r}: it is a sub-agent, which its parent would start again; "
                            f"use session({agent_id!r}).cancel() instead"
                        ) from None
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
        """Return the ids of all conversations with a live server, sorted, without sub-agents (S4-043, AR-22.22).

        Raises:
            RegistryUnavailable: if any part of the registry cannot tell (S4-046).
        """
        return sorted({str(key[1]) for key in self._registry.running(SERVER)} - self._below)

    def publisher(self, agent_id: str) -> Publisher:
        """Return the publisher of a conversation; it outlives the servers."""
        found = self._publishers.get(agent_id)
        if found is None:
            found = self._publishers[agent_id] = Publisher(agent_id, self._environment, self._forget)
        return found

    def _state_in_memory(self, agent_id: str) -> State | None:
        publisher = self._publishers.get(agent_id)
        return publisher.state if publisher is not None else None

    def _forget(self, publisher: Publisher) -> None:
        if self._publishers.get(publisher.agent_id) is publisher:
            del self._publishers[publisher.agent_id]

    def _find(self, agent_id: str) -> Lookup[Ref]:
        return self._registry.lookup_nowait((SERVER, agent_id))

    def _watch(self, event: TelemetryEvent) -> None:
        """Tell those who follow an agent that its server has ended, however that happened (S4-062)."""
        match event:
            case Exited(key=("agent", str(agent_id)), reason=reason) if agent_id in self._publishers:
                self._publishers[agent_id].last_exit = reason
                self._publishers[agent_id].shut_down(shutdown_reason(reason))
            case Exited(key=("agent_tree", str(agent_id)), reason=reason) if agent_id in self._publishers:
                self._below.discard(agent_id)
                self._publishers[agent_id].ended(reason)
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

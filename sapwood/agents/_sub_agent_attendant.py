"""The attendant: sees one sub-agent through its work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio

from sapwood.actors import Crashed, Killed, Shutdown
from sapwood.agents._agent import Agent
from sapwood.agents._publisher import Publisher
from sapwood.agents._requests import CancelRun, PauseRun, ResumeRun, SendMessage
from sapwood.agents._session import Session
from sapwood.agents._sub_agent_homes import SubAgentHomes
from sapwood.agents._sub_agent_work import WorkEnd, end_of, task_id, total_usage, was_told
from sapwood.agents._submit_result import SUBMIT
from sapwood.conversation import (
    AgentShutdown,
    InterruptClosed,
    InterruptDecided,
    InterruptRaised,
    StatusChanged,
    StreamEvent,
    SubAgent,
    SubAgentChanged,
    SubAgentFinished,
    SubAgentStarted,
    Until,
    Usage,
)
from sapwood.errors import (
    ActorDown,
    PersistenceError,
    RegistryUnavailable,
    SapwoodError,
    SubscriptionLagged,
)

LIVES: Final = 3
"""How often a sub-agent whose tree was stopped by somebody else is started again."""

ATTEMPTS: Final = 9
FIRST_WAIT: Final = 0.02
"""Attempts to reach a sub-agent, and seconds after the first; each wait is twice the one before."""

UNAVAILABLE_WAIT: Final = 0.5
"""Seconds until the registry is asked again, while it cannot tell."""

AFTER_GRACE: Final = 3.0
"""Seconds that a sub-agent has to write down its end when the grace of a cancel is over."""

TELLING: Final = (InterruptRaised, InterruptDecided, InterruptClosed, StatusChanged, AgentShutdown)
RELAYED: Final = (SubAgentStarted, SubAgentChanged, SubAgentFinished)


class Attendant:
    """Starts a sub-agent, tells it its task once, listens until it is done, and lets it go (S4-028, S4-031).

    Attributes:
        sub_agent: Whom it is about.
        agent: The configuration that the sub-agent works with.
        dismissed: Why it is to stop; None if it is not.

    Args:
        sub_agent: Whom it is about.
        agent: The configuration that it works with.
        parent_id: The conversation that it works for.
        homes: Where it lives.
        submits: Whether its result is what it hands in.
        tell: Gets what it does that its parent must know.
    """

    def __init__(
        self,
        sub_agent: SubAgent,
        agent: Agent,
        parent_id: str,
        homes: SubAgentHomes,
        *,
        submits: bool,
        tell: Callable[[StreamEvent], None],
    ) -> None:
        self.sub_agent = sub_agent
        self.agent = agent
        self.dismissed: str | None = None
        self._parent_id = parent_id
        self._homes = homes
        self._submits = submits
        self._tell = tell
        self._over = trio.Event()

    @property
    def agent_id(self) -> str:
        """Its conversation."""
        return self.sub_agent.agent_id

    @property
    def publisher(self) -> Publisher:
        """What tells of it."""
        return self._homes.publisher(self.agent_id)

    @property
    def session(self) -> Session:
        """Its session."""
        return self._homes.session(self.agent_id)

    async def run(self) -> WorkEnd:
        """See it through; return how its work ended."""
        try:
            with self.publisher.subscribe():  # so that its state can be read until the end
                end = await self._lives()
                await self._homes.stop(self.agent_id, self._parent_id)
        finally:
            self._over.set()
        return end

    async def _lives(self) -> WorkEnd:
        for _ in range(LIVES):
            if self.dismissed is not None:
                return WorkEnd("cancelled", self.dismissed)
            try:
                await self._wake()
            except SapwoodError as error:
                return WorkEnd("failed", f"it could not start: {error}")
            end = await self._listen()
            if end is not None and self.dismissed is not None and end.outcome == "cancelled":
                return WorkEnd("cancelled", self.dismissed, end.usage)
            if end is not None:
                return end
            match self.publisher.tree_exit, self.publisher.last_exit:
                case _ if self.dismissed is not None:
                    return WorkEnd("cancelled", self.dismissed, self._usage())
                case Killed(), _:
                    await trio.sleep(FIRST_WAIT)  # with everything around it
                case _, Crashed(crash):
                    return WorkEnd("failed", f"it crashed: {type(crash).__name__}: {crash}", self._usage())
                case _, Shutdown("fenced"):
                    # Whoever took it may have taken its parent too, which finds out when it writes this down.
                    return WorkEnd("failed", "its conversation was taken over by another server", self._usage())
                case _, Killed():
                    return WorkEnd("failed", "it was killed", self._usage())
                case _:
                    await trio.sleep(FIRST_WAIT)
        return WorkEnd("failed", f"it was stopped {LIVES} times")

    async def _wake(self) -> None:
        """Start it, and tell it its task unless it knows that.

        Raises:
            SapwoodError: if that is not possible.
        """
        attempt = 0
        while True:
            try:
                session = await self._homes.start(self.agent, self.agent_id, self._parent_id)
                state = self.publisher.state
                if state is not None and not was_told(state) and self.dismissed is None:
                    until = Until((SUBMIT,)) if self._submits else None
                    text = str(self.sub_agent.call.arguments["description"])
                    await session._ask(SendMessage(text, task_id(self.sub_agent), until=until))
            except RegistryUnavailable:
                await trio.sleep(UNAVAILABLE_WAIT)  # nobody can tell, which is no failure
            except (ActorDown, PersistenceError):
                attempt += 1
                if attempt == ATTEMPTS:
                    raise
                await trio.sleep(FIRST_WAIT * 2**attempt)
            else:
                return

    async def _listen(self) -> WorkEnd | None:
        """Listen until its work has ended; None if its tree has ended before."""
        with self.publisher.subscribe(snapshot=True) as events:
            end = self._end()
            while end is None:
                try:
                    event = await anext(events)
                except StopAsyncIteration:
                    return None
                except SubscriptionLagged:
                    return await self._listen()
                if isinstance(event, TELLING + RELAYED):
                    self._tell(event)
                end = self._end()
        return end

    def _usage(self) -> Usage:
        state = self.publisher.state
        return Usage() if state is None else total_usage(state)

    def _end(self) -> WorkEnd | None:
        state = self.publisher.state
        if state is None:
            return None
        if self.dismissed is not None and state.run is None and not was_told(state):
            return WorkEnd("cancelled", self.dismissed)
        return end_of(state, submits=self._submits)

    async def dismiss(self, reason: str, grace: float) -> None:
        """Have it stop: it is asked, and after `grace` seconds cut off; then its tree is stopped."""
        self.dismissed = reason or "cancelled"
        with trio.move_on_after(grace + AFTER_GRACE):
            try:
                await self.session._ask(CancelRun(self.dismissed, grace, background=True))
            except (ActorDown, RegistryUnavailable, PersistenceError):
                await self._homes.stop(self.agent_id, self._parent_id)
            await self._over.wait()
        await self._homes.stop(self.agent_id, self._parent_id)

    async def pause(self) -> None:
        """Have it pause at its next boundary; one that cannot be reached has ended."""
        await self._say(PauseRun())

    async def resume(self) -> None:
        """Let it go on."""
        await self._say(ResumeRun())

    async def _say(self, request: PauseRun | ResumeRun) -> None:
        for attempt in range(ATTEMPTS):
            try:
                await self.session._ask(request)
            except (ActorDown, RegistryUnavailable, PersistenceError):
                # It may just be starting, and would stay as it was for ever.
                await trio.sleep(FIRST_WAIT * 2**attempt)
            else:
                return

"""The keeper of an agent's sub-agents: each is at work as long as the journal says so, and no longer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Literal, TypeAlias, cast

import attrs

from sapwood.actors import Actor, Crashed, Killed, TaskDone, TaskRef, message
from sapwood.agents._agent import Agent
from sapwood.agents._log import Log
from sapwood.agents._publisher import Publisher
from sapwood.agents._requests import GRACE
from sapwood.agents._sub_agent_answers import SubAgentAnswers
from sapwood.agents._sub_agent_attendant import RELAYED, Attendant
from sapwood.agents._sub_agent_homes import SubAgentHomes
from sapwood.agents._sub_agent_interrupts import mirror, withdrawn
from sapwood.agents._sub_agent_plans import adapted
from sapwood.agents._sub_agent_work import ENDED, WorkEnd
from sapwood.conversation import (
    QueuedMessage,
    State,
    StatusChanged,
    StreamEvent,
    SubAgent,
    SubAgentChanged,
    SubAgentFinished,
    SubAgentStarted,
    UserMessage,
    clean_text,
    journal,
)
from sapwood.errors import SapwoodError, ToolError
from sapwood.middleware import SubAgentPlan, SubAgents

Following: TypeAlias = Literal["", "cancel", "follow_up"]
"""What is to be done when a sub-agent has ended: nothing, cancel the open run, or begin one for what waits."""


@message("agent.sub_agent_news")
class SubAgentNews:
    """A sub-agent did something that its parent must know."""

    sub_agent_id: str
    event: Any


class SubAgentKeeper:
    """Keeps the sub-agents of one conversation (S4-028 … S4-032, UP-61).

    What is to be at work follows from the journal alone: everything that was ordered, is not over, and whose call is
    still open, or which works in the background. `tend` makes it so, after every change and after a restart.

    Args:
        actor: The server.
        agent: The parent.
        log: Its conversation.
        publisher: Tells of its sub-agents.
        homes: Where they live.
    """

    def __init__(self, actor: Actor, agent: Agent, log: Log, publisher: Publisher, homes: SubAgentHomes) -> None:
        self._actor = actor
        self._agent = agent
        self._log = log
        self._publisher = publisher
        self._homes = homes
        self._layer = next((each for each in agent.middleware if isinstance(each, SubAgents)), None)
        self._attended: dict[str, Attendant] = {}
        self._tasks: dict[TaskRef, str] = {}
        self._helpers: set[TaskRef] = set()
        self._held = False
        self.answers = SubAgentAnswers(actor, log, self.attendant, self._mirror)
        self.cancelling: tuple[str, str] | None = None

    # --- looking ----------------------------------------------------------------------------------

    @property
    def _state(self) -> State:
        return self._log.state

    def get(self, sub_agent_id: str) -> SubAgent | None:
        """Return a sub-agent by its id, or None."""
        return next((each for each in self._state.sub_agents if each.id == sub_agent_id), None)

    def attendant(self, sub_agent_id: str) -> Attendant | None:
        """Return who attends to a sub-agent; None if it is not at work."""
        return self._attended.get(sub_agent_id)

    @property
    def at_work(self) -> bool:
        """Whether any sub-agent is at work, or about to be."""
        return bool(self._attended) or bool(self._wanted())

    @property
    def awaited(self) -> bool:
        """Whether the open run waits for a sub-agent that is at work."""
        return any(not each.sub_agent.background for each in self._attended.values())

    def ready(self) -> frozenset[str]:
        """Return the calls whose sub-agents are done, so that they can have their result."""
        if self.cancelling is not None:
            return frozenset()
        over = {each.id for each in self._state.sub_agents if each.outcome}
        return frozenset(each.call.id for each in self._state.deferred if each.call.id in over)

    def plan(self, sub_agent: SubAgent) -> SubAgentPlan:
        """Return how a sub-agent is made.

        Raises:
            ToolError: if the agent has no such sub-agents (any more).
        """
        if self._layer is None:
            raise ToolError("the agent has no sub-agents any more")
        return self._layer.plan(sub_agent)

    def owns(self, task: TaskRef) -> bool:
        """Say whether a task that has ended was one of the keeper's."""
        return task in self._tasks or task in self._helpers or self.answers.owns(task)

    # --- making it so -----------------------------------------------------------------------------

    def _wanted(self) -> list[SubAgent]:
        open_calls = {each.call.id for each in self._state.pending}
        return [
            each for each in self._state.sub_agents if not each.outcome and (each.background or each.id in open_calls)
        ]

    async def tend(self) -> None:
        """Start what is to be at work, stop what is not, and note the end of what can be no more.

        Raises:
            PersistenceError: if the journal cannot be written.
        """
        wanted = {each.id for each in self._wanted()}
        for sub_agent_id, attendant in tuple(self._attended.items()):
            if sub_agent_id not in wanted and attendant.dismissed is None:
                self.dismiss(attendant, "its call is over", GRACE)
        for each in self._state.sub_agents:
            if not each.outcome and each.id not in wanted and each.id not in self._attended:
                await self._end(each, WorkEnd("cancelled", "its call is over"))
        for each, problem in self.start_wanted():
            await self._end(each, WorkEnd("failed", problem))

    def start_wanted(self) -> list[tuple[SubAgent, str]]:
        """Start what has a place; return what cannot be started any more, and why."""
        failed: list[tuple[SubAgent, str]] = []
        for each in self._wanted():
            if each.id in self._attended or self.cancelling is not None or self._held:
                continue
            if self._layer is not None and len(self._attended) >= self._layer.max_concurrent:
                break
            try:
                plan = self.plan(each)
                made = adapted(plan, self._agent, each.limits)
            except SapwoodError as error:
                failed.append((each, str(error)))
                continue
            tell = partial(self._tell, each.id)
            submits = plan.result is not None
            attendant = Attendant(each, made, self._log.agent_id, self._homes, submits=submits, tell=tell)
            self._attended[each.id] = attendant
            self._tasks[self._actor.start_task(attendant.run, name=f"sub-agent {each.id}")] = each.id
        return failed

    def _tell(self, sub_agent_id: str, event: StreamEvent) -> None:
        self._actor.ref.tell(SubAgentNews(sub_agent_id, event))

    def _help(self, function: Callable[..., Awaitable[Any]], *args: Any) -> TaskRef:
        task = self._actor.start_task(function, *args)
        self._helpers.add(task)
        return task

    # --- cancelling and pausing -------------------------------------------------------------------

    def dismiss(self, attendant: Attendant, reason: str, grace: float) -> None:
        """Have a sub-agent stop, and be cut off after `grace` seconds."""
        if attendant.dismissed is None:
            attendant.dismissed = reason
            self._help(attendant.dismiss, reason, grace)

    def cancel_all(self, reason: str, grace: float, *, background: bool) -> None:
        """Have the sub-agents of the open run stop before it does; with `background` the others too (S3-107)."""
        run = self._state.run
        if run is not None and self.awaited:
            self.cancelling = (run.id, reason)
        for attendant in self._attended.values():
            if background or not attendant.sub_agent.background:
                self.dismiss(attendant, reason or "its parent was cancelled", grace)

    def pause_all(self) -> None:
        """Have the sub-agents that the open run waits for pause at their next boundary."""
        self._each_awaited(Attendant.pause)

    def resume_all(self) -> None:
        """Let the sub-agents that the open run waits for go on."""
        self._each_awaited(Attendant.resume)

    def _each_awaited(self, function: Callable[[Attendant], Awaitable[None]]) -> None:
        for attendant in self._attended.values():
            if not attendant.sub_agent.background:
                self._help(function, attendant)

    def hold(self) -> None:
        """Start nothing any more, and note the end of nothing: whoever claims the conversation next goes on."""
        self._held = True
        for task in self._tasks:
            task.cancel()

    # --- what they do -----------------------------------------------------------------------------

    async def heard(self, news: SubAgentNews) -> None:
        """Take note of what a sub-agent did.

        Raises:
            PersistenceError: if the journal cannot be written.
        """
        attendant = self._attended.get(news.sub_agent_id)
        if attendant is None:
            return
        self._relay(attendant, news.event)
        if not isinstance(news.event, RELAYED):
            await self._mirror(attendant)

    def _relay(self, attendant: Attendant, event: StreamEvent) -> None:
        """Tell those who watch the parent what a sub-agent does, with the path to it."""
        run_id = self._state.run.id if self._state.run is not None else ""
        path = (self._agent.name, attendant.sub_agent.agent)
        match event:
            case StatusChanged(status=status, detail=detail):
                fields = {"path": path, "sub_agent": attendant.agent_id, "status": status, "detail": detail}
                self._publisher.publish(SubAgentChanged, run_id, **fields)
            case SubAgentStarted() | SubAgentChanged() | SubAgentFinished():
                fields = {name: getattr(event, name) for name in _own_fields(type(event))}
                self._publisher.publish(type(event), run_id, **{**fields, "path": (*path, *event.path[1:])})
            case _:
                pass

    async def _mirror(self, attendant: Attendant) -> None:
        """List just what a sub-agent waits for; the open run is interrupted, or goes on, as that makes it."""
        child = attendant.publisher.state
        sub_agent = self.get(attendant.sub_agent.id)
        if child is None or sub_agent is None or sub_agent.outcome or sub_agent not in self._wanted():
            return
        events = mirror(self._state, child, sub_agent, self._agent.name, self._actor.environment.wall())
        if events:
            await self._log.commit(*events)

    async def ended(self, done: TaskDone) -> Following:
        """Take note of the end of one of the keeper's tasks; say what is to be done about that.

        Raises:
            PersistenceError: if the journal cannot be written.
        """
        self._helpers.discard(done.task)
        if self.answers.owns(done.task):
            await self.answers.given(done)
        sub_agent_id = self._tasks.pop(done.task, "")
        following: Following = ""
        if sub_agent_id and not self._held:
            del self._attended[sub_agent_id]
            sub_agent = self.get(sub_agent_id)
            if sub_agent is not None and not sub_agent.outcome:
                await self._end(sub_agent, _end_of_task(done))
                following = "follow_up" if sub_agent.background else ""
        if self.cancelling is None or self.awaited:
            return following
        run, cancelled, self.cancelling = self._state.run, self.cancelling[0], None
        return "cancel" if run is not None and run.id == cancelled else following

    async def _end(self, sub_agent: SubAgent, end: WorkEnd) -> None:
        """Journal the end of a sub-agent; of one in the background the agent is told, as far as it may run for it."""
        # What an exception says may be nothing that can be stored.
        detail = "" if end.outcome == "completed" else clean_text(end.text)
        events: list[journal.JournalEvent] = [
            *withdrawn(self._state, sub_agent.id),
            journal.SubAgentEnded(sub_agent.id, end.outcome, detail, end.usage),
        ]
        if sub_agent.background:
            events.append(journal.MessageQueued(self._notice(sub_agent, end)))
        await self._log.commit(*events)

    def _notice(self, sub_agent: SubAgent, end: WorkEnd) -> QueuedMessage:
        text = f"[task {sub_agent.id} of {sub_agent.agent} {ENDED[end.outcome]}]\n{clean_text(end.text)}"
        message_id = f"done_{sub_agent.key}"
        said = UserMessage(text, id=message_id)
        return QueuedMessage(message_id, said, "next_turn", self._actor.environment.wall(), by_person=False)


def _own_fields(kind: type[Any]) -> list[str]:
    """Return the names of the fields of an event that not every event has."""
    common = {field.name for field in attrs.fields(cast("type[Any]", StreamEvent))}
    return [field.name for field in attrs.fields(kind) if field.name not in common]


def _end_of_task(done: TaskDone) -> WorkEnd:
    match done.reason:
        case Crashed(error):
            return WorkEnd("failed", f"{type(error).__name__}: {error}")
        case Killed():
            return WorkEnd("cancelled", "cancelled")
        case _:
            end: WorkEnd = done.value
            return end

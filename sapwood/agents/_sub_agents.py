"""The keeper of an agent's sub-agents: each is at work as long as the journal says so, and no longer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, TypeVar

import trio

from sapwood.actors import Actor, Crashed, Killed, Reply, TaskDone, TaskRef, message
from sapwood.agents._agent import Agent
from sapwood.agents._log import Log
from sapwood.agents._publisher import Publisher
from sapwood.agents._requests import GRACE
from sapwood.agents._sub_agent_attendant import ATTEMPTS, FIRST_WAIT, RELAYED, Attendant
from sapwood.agents._sub_agent_homes import SubAgentHomes
from sapwood.agents._sub_agent_interrupts import mirror, of_sub_agent, withdrawn
from sapwood.agents._sub_agent_plans import adapted, granted
from sapwood.agents._sub_agent_work import WorkEnd, end_of
from sapwood.conversation import (
    Accepted,
    Decision,
    DecisionOutcome,
    Invalid,
    QueuedMessage,
    Stale,
    State,
    StatusChanged,
    StreamEvent,
    SubAgent,
    SubAgentChanged,
    UserMessage,
    evolve,
    journal,
    lifted_from,
)
from sapwood.errors import ActorDown, PersistenceError, RegistryUnavailable, SapwoodError, ToolError
from sapwood.middleware import SubAgentOrder, SubAgentReport, SubAgents
from sapwood.tools import Pending, ToolContext

T = TypeVar("T")

ASK_EVERY: Final = 3600.0
"""Seconds between two polls of a sub-agent, which tells by itself when it is done."""

NO_PLACE: Final = "waits until another sub-agent is done"


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
        homes: Where they live; None if nowhere.
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
        self._deciding: dict[TaskRef, str] = {}
        self._helpers: set[TaskRef] = set()
        self.cancelling: tuple[str, str] | None = None

    # --- for the tools ----------------------------------------------------------------------------

    async def order(self, order: SubAgentOrder, context: ToolContext) -> Pending | str:
        """Have a sub-agent work; see `SubAgentHost`."""
        known = self.get(context.call_id)
        if known is None:
            known = await self._note(order, context)
        self._start_wanted()
        if known.background:
            return f"started as {known.id}; you are told when it is done"
        note = "" if known.id in self._attended or known.outcome else NO_PLACE
        return Pending(known.id, every=ASK_EVERY, note=note)

    async def _note(self, order: SubAgentOrder, context: ToolContext) -> SubAgent:
        call = next(each.call for each in self._state.pending if each.call.id == context.call_id)
        agent_id = f"{self._log.agent_id}/{call.id}"
        sub_agent = SubAgent(call, context.idempotency_key, agent_id, order.agent, order.background)
        assert self._layer is not None
        plan = self._layer.plan(sub_agent)
        limits = granted(self._agent, self._state.run, plan)
        metadata = {key: self._state.metadata[key] for key in plan.inherit if key in self._state.metadata}
        made = adapted(plan, self._agent, limits)
        agent_id = await self._homes.prepare(made, agent_id, context.idempotency_key, metadata)
        sub_agent = evolve(sub_agent, agent_id=agent_id, limits=limits)
        await self._log.commit(journal.SubAgentStarted(sub_agent))
        return sub_agent

    async def result(self, sub_agent_id: str) -> Pending | str:
        """Return the result of a sub-agent; see `SubAgentHost`."""
        sub_agent = self.get(sub_agent_id)
        if sub_agent is None:
            raise ToolError(f"nothing is known of sub-agent {sub_agent_id!r} any more")
        if not sub_agent.outcome:
            return Pending(sub_agent_id, note=self._status(sub_agent))
        if sub_agent.outcome != "completed":
            raise ToolError(f"sub-agent {sub_agent.agent} {_ENDED[sub_agent.outcome]}: {sub_agent.detail}")
        return await self._text(sub_agent)

    async def report(self, sub_agent_id: str) -> SubAgentReport | None:
        """Say how far a sub-agent is; see `SubAgentHost`."""
        sub_agent = self.get(sub_agent_id)
        if sub_agent is None:
            return None
        text = await self._text(sub_agent) if sub_agent.outcome == "completed" else sub_agent.detail
        return SubAgentReport(sub_agent.agent, sub_agent.outcome or self._status(sub_agent), text)

    async def cancel(self, sub_agent_id: str) -> bool:
        """Have a sub-agent stop; see `SubAgentHost`."""
        sub_agent = self.get(sub_agent_id)
        if sub_agent is None or sub_agent.outcome:
            return False
        attendant = self._attended.get(sub_agent_id)
        if attendant is None:
            await self._log.commit(journal.SubAgentEnded(sub_agent_id, "cancelled", "cancelled before it began"))
        else:
            self._dismiss(attendant, "cancelled by its parent", GRACE)
        return True

    async def _text(self, sub_agent: SubAgent) -> str:
        state = await self._homes.read(sub_agent.agent_id)
        end = None if state is None else end_of(state, submits=self._submits(sub_agent))
        return "" if end is None else end.text

    def _status(self, sub_agent: SubAgent) -> str:
        state = self._homes.publisher(sub_agent.agent_id).state
        return state.status if state is not None and sub_agent.id in self._attended else "queued"

    # --- looking ----------------------------------------------------------------------------------

    @property
    def _state(self) -> State:
        return self._log.state

    def get(self, sub_agent_id: str) -> SubAgent | None:
        """Return a sub-agent by its id, or None."""
        return next((each for each in self._state.sub_agents if each.id == sub_agent_id), None)

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

    def owns(self, task: TaskRef) -> bool:
        """Say whether a task that has ended was one of the keeper's."""
        return task in self._tasks or task in self._deciding or task in self._helpers

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
                self._dismiss(attendant, "its call is over", GRACE)
        for each in self._state.sub_agents:
            if not each.outcome and each.id not in wanted and each.id not in self._attended:
                await self._end(each, WorkEnd("cancelled", "its call is over"))
        for each, problem in self._start_wanted():
            await self._end(each, WorkEnd("failed", problem))

    def _start_wanted(self) -> list[tuple[SubAgent, str]]:
        """Start what has a place; return what cannot be started any more, and why."""
        failed: list[tuple[SubAgent, str]] = []
        for each in self._wanted():
            if each.id in self._attended or self.cancelling is not None:
                continue
            if self._layer is None:
                failed.append((each, "the agent has no sub-agents any more"))
                continue
            if len(self._attended) >= self._layer.max_concurrent:
                break
            try:
                plan = self._layer.plan(each)
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

    def _submits(self, sub_agent: SubAgent) -> bool:
        if self._layer is None:
            return False
        try:
            return self._layer.plan(sub_agent).result is not None
        except ToolError:
            return False

    def _help(self, function: Callable[..., Awaitable[Any]], *args: Any) -> TaskRef:
        task = self._actor.start_task(function, *args)
        self._helpers.add(task)
        return task

    # --- cancelling and pausing -------------------------------------------------------------------

    def _dismiss(self, attendant: Attendant, reason: str, grace: float) -> None:
        if attendant.dismissed is None:
            attendant.dismissed = reason
            self._help(attendant.dismiss, reason, grace)

    def cancel_all(self, reason: str, grace: float, *, background: bool) -> None:
        """Have the sub-agents of the open run stop before it does; with `background` the others too (S3-107)."""
        run = self._state.run
        if run is not None:
            self.cancelling = (run.id, reason)
        for attendant in self._attended.values():
            if background or not attendant.sub_agent.background:
                self._dismiss(attendant, reason or "its parent was cancelled", grace)

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
        run_id = self._state.run.id if self._state.run is not None else ""
        match event:
            case StatusChanged(status=status, detail=detail):
                sub_agent = attendant.sub_agent
                self._publisher.publish(
                    SubAgentChanged,
                    run_id,
                    path=(self._agent.name, attendant.agent.name),
                    sub_agent=sub_agent.agent_id,
                    status=status,
                    detail=detail,
                )
            case SubAgentChanged():
                path = (self._agent.name, *event.path)
                self._publisher.publish(
                    SubAgentChanged,
                    run_id,
                    path=path,
                    sub_agent=event.sub_agent,
                    status=event.status,
                    detail=event.detail,
                )
            case _:
                pass

    async def _mirror(self, attendant: Attendant) -> None:
        """List just what a sub-agent waits for; the open run is interrupted, or goes on, as that makes it."""
        child = attendant.publisher.state
        sub_agent = self.get(attendant.sub_agent.id)
        if child is None or sub_agent is None or sub_agent.outcome or sub_agent not in self._wanted():
            return
        names = (self._agent.name, attendant.agent.name)
        now = self._actor.environment.wall()
        events = mirror(self._state, child, sub_agent, names, now)
        if events:
            await self._log.commit(*events)

    async def ended(self, done: TaskDone) -> bool:
        """Take note of the end of one of the keeper's tasks; say whether the open run is to be cancelled now.

        Raises:
            PersistenceError: if the journal cannot be written.
        """
        self._helpers.discard(done.task)
        if done.task in self._deciding:
            await self._decided(self._deciding.pop(done.task), done)
        sub_agent_id = self._tasks.pop(done.task, "")
        if sub_agent_id:
            del self._attended[sub_agent_id]
            sub_agent = self.get(sub_agent_id)
            if sub_agent is not None and not sub_agent.outcome:
                await self._end(sub_agent, _end_of_task(done))
        if self.cancelling is None or self.awaited:
            return False
        run, self.cancelling = self._state.run, None
        return run is not None

    async def _end(self, sub_agent: SubAgent, end: WorkEnd) -> None:
        """Journal the end of a sub-agent; of one in the background the agent is told, as far as it may run for it."""
        detail = "" if end.outcome == "completed" else end.text
        events: list[journal.JournalEvent] = [
            *withdrawn(self._state, sub_agent.id),
            journal.SubAgentEnded(sub_agent.id, end.outcome, detail, end.usage),
        ]
        if sub_agent.background:
            events.append(journal.MessageQueued(self._notice(sub_agent, end)))
        await self._log.commit(*events)

    def _notice(self, sub_agent: SubAgent, end: WorkEnd) -> QueuedMessage:
        text = f"[task {sub_agent.id} of {sub_agent.agent} {_ENDED[end.outcome]}]\n{end.text}"
        message_id = f"done_{sub_agent.key}"
        said = UserMessage(text, id=message_id)
        return QueuedMessage(message_id, said, "next_turn", self._actor.environment.wall(), by_person=False)

    # --- deciding ---------------------------------------------------------------------------------

    def decide(self, decision: Decision, reply: Reply[Any]) -> None:
        """Have a sub-agent told what somebody decided about one of its interrupts; it answers for itself."""
        interrupt = self._state.interrupt(decision.interrupt_id)
        origin = lifted_from(interrupt) if interrupt is not None else None
        attendant = self._attended.get(origin[0]) if origin is not None else None
        if origin is None or attendant is None:
            reply(Stale(f"interrupt {decision.interrupt_id!r}: its sub-agent is not at work"))
            return
        inner = evolve(decision, interrupt_id=origin[1])
        task = self._actor.start_task(
            self._ask, attendant, inner, decision, reply, name=f"decide {decision.interrupt_id}"
        )
        self._deciding[task] = origin[0]

    async def _ask(
        self, attendant: Attendant, inner: Decision, decision: Decision, reply: Reply[Any]
    ) -> tuple[DecisionOutcome | Exception, Decision, Reply[Any]]:
        problem: Exception = ActorDown(attendant.agent_id)
        for attempt in range(ATTEMPTS):
            try:
                return await attendant.session.decide(inner), decision, reply
            except (ActorDown, RegistryUnavailable, PersistenceError) as error:
                # It may have counted before the sub-agent died; asked again, that is what it says.
                problem = error
                await trio.sleep(FIRST_WAIT * 2**attempt)
        return problem, decision, reply

    async def _decided(self, sub_agent_id: str, done: TaskDone) -> None:
        if done.value is None:
            return
        outcome, decision, reply = done.value
        attendant = self._attended.get(sub_agent_id)
        if attendant is not None:
            await self._mirror(attendant)
        match outcome:
            case Accepted():
                reply(Accepted(decision))
            case Invalid() | Stale():
                reply(type(outcome)(f"interrupt {decision.interrupt_id!r} of a sub-agent: {outcome.problem}"))
            case Exception():
                reply.fail(outcome)
            case other:
                reply(other)

    def listed(self, sub_agent_id: str) -> bool:
        """Say whether anything of a sub-agent waits for people."""
        return bool(of_sub_agent(self._state, sub_agent_id))


_ENDED: Final = {"completed": "is done", "failed": "failed", "cancelled": "was cancelled"}


def _end_of_task(done: TaskDone) -> WorkEnd:
    match done.reason:
        case Crashed(error):
            return WorkEnd("failed", f"{type(error).__name__}: {error}")
        case Killed():
            return WorkEnd("cancelled", "cancelled")
        case _:
            end: WorkEnd = done.value
            return end

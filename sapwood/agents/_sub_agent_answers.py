"""Answers of people on their way down to the sub-agents that asked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import trio

from sapwood.actors import Actor, Reply, TaskDone, TaskRef
from sapwood.agents._log import Log
from sapwood.agents._sub_agent_attendant import ATTEMPTS, FIRST_WAIT, Attendant
from sapwood.conversation import Accepted, Decision, Interrupt, Invalid, Stale, evolve, lifted_from
from sapwood.errors import ActorDown, PersistenceError, RegistryUnavailable


@attrs.frozen
class Answer:
    """What a sub-agent said to the answer of a person.

    Attributes:
        interrupt: The interrupt as the parent lists it.
        sub_agent_id: Whose it is.
        outcome: What came of it.
        reply: Tells whoever answered.
    """

    interrupt: Interrupt
    sub_agent_id: str
    outcome: Any
    reply: Reply[Any]


class SubAgentAnswers:
    """Hands answers on; the sub-agent judges for itself, and its parent lists what is left then (BR-23).

    Args:
        actor: The server of the parent.
        log: Its conversation.
        attendant: Returns who attends to a sub-agent.
        mirror: Lists just what a sub-agent waits for.
    """

    def __init__(
        self,
        actor: Actor,
        log: Log,
        attendant: Callable[[str], Attendant | None],
        mirror: Callable[[Attendant], Awaitable[None]],
    ) -> None:
        self._actor = actor
        self._log = log
        self._attendant = attendant
        self._mirror = mirror
        self._tasks: set[TaskRef] = set()

    def owns(self, task: TaskRef) -> bool:
        """Say whether a task that has ended handed an answer on."""
        return task in self._tasks

    def decides(self, decision: Decision) -> bool:
        """Say whether a decision is about an interrupt of a sub-agent."""
        interrupt = self._log.state.interrupt(decision.interrupt_id)
        return interrupt is not None and bool(interrupt.path)

    def decide(self, decision: Decision, reply: Reply[Any]) -> None:
        """Have a sub-agent told what somebody decided about one of its interrupts."""
        interrupt = self._log.state.interrupt(decision.interrupt_id)
        assert interrupt is not None

        async def ask(attendant: Attendant, inner_id: str) -> Any:
            return await attendant.session.decide(evolve(decision, interrupt_id=inner_id))

        self._hand_on(interrupt, reply, ask)

    def dismiss(self, interrupt: Interrupt, reply: Reply[Any]) -> None:
        """Have a sub-agent told that somebody dismissed its halt."""

        async def ask(attendant: Attendant, inner_id: str) -> Any:
            return await attendant.session.dismiss(inner_id)

        self._hand_on(interrupt, reply, ask)

    def _hand_on(
        self, interrupt: Interrupt, reply: Reply[Any], ask: Callable[[Attendant, str], Awaitable[Any]]
    ) -> None:
        origin = lifted_from(interrupt)
        attendant = self._attendant(origin[0]) if origin is not None else None
        if origin is None or attendant is None:
            reply(Stale(f"interrupt {interrupt.id!r}: its sub-agent is not at work"))
            return

        async def answer() -> Answer:
            outcome = await _patiently(lambda: ask(attendant, origin[1]))
            return Answer(interrupt, origin[0], outcome, reply)

        self._tasks.add(self._actor.start_task(answer, name=f"answer {interrupt.id}"))

    async def given(self, done: TaskDone) -> None:
        """Tell whoever answered what came of it, once the parent lists what is left.

        Raises:
            PersistenceError: if the journal cannot be written.
        """
        self._tasks.discard(done.task)
        if not isinstance(done.value, Answer):
            return
        answer = done.value
        attendant = self._attendant(answer.sub_agent_id)
        if attendant is not None:
            await self._mirror(attendant)
        match answer.outcome:
            case Accepted(decision):
                answer.reply(Accepted(evolve(decision, interrupt_id=answer.interrupt.id)))
            case Invalid() | Stale() as refused:
                answer.reply(type(refused)(f"interrupt {answer.interrupt.id!r} of a sub-agent: {refused.problem}"))
            case Exception() as error:
                answer.reply.fail(error)
            case other:
                answer.reply(other)


async def _patiently(ask: Callable[[], Awaitable[Any]]) -> Any:
    """Ask until there is an answer; what went wrong the last time, if there is none.

    An answer may have counted before the sub-agent died; asked again, that is what it says.
    """
    problem: Any = None
    for attempt in range(ATTEMPTS):
        try:
            return await ask()
        except (ActorDown, RegistryUnavailable, PersistenceError) as error:
            problem = error
            await trio.sleep(FIRST_WAIT * 2**attempt)
    return problem

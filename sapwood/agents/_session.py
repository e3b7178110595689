"""Sessions: the handle that hosts hold on one conversation."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import attrs
import trio

from sapwood.actors import Environment, Ref, Request
from sapwood.agents._publisher import Publisher, Subscription
from sapwood.agents._requests import (
    CancelRun,
    Decide,
    GetStatus,
    NotifyMiddleware,
    Receipt,
    SendMessage,
    SessionStatus,
)
from sapwood.conversation import (
    Decision,
    DecisionOutcome,
    Interrupt,
    MessageCompleted,
    RunFinished,
    State,
    StreamEvent,
    Verdict,
    evolve,
)
from sapwood.errors import ActorDown, RegistryUnavailable, RunFailed
from sapwood.registry import Lookup, NotRunning, Running, Unavailable

T = TypeVar("T")


@attrs.frozen
class PendingApproval:
    """Something that a person has to decide, with the means to do so.

    Attributes:
        interrupt: What it is about.
    """

    interrupt: Interrupt
    _session: Session = attrs.field(alias="session", repr=False)

    async def approve(self, *, by: str = "", reason: str = "") -> DecisionOutcome:
        """Let the call run as it is."""
        return await self._decide("approve", by, reason)

    async def edit(self, *, by: str = "", reason: str = "", **arguments: Any) -> DecisionOutcome:
        """Let the call run with some arguments changed; only editable ones may be.

        For an argument that is itself called `by` or `reason` use `Session.decide`.
        """
        return await self._decide("edit", by, reason, arguments)

    async def reject(self, reason: str = "", *, by: str = "") -> DecisionOutcome:
        """Refuse the call; the model reads the reason."""
        return await self._decide("reject", by, reason)

    async def escalate(self, reason: str = "", *, by: str = "") -> DecisionOutcome:
        """Leave it to somebody else; it stays open."""
        return await self._decide("escalate", by, reason)

    async def answer(self, *, by: str = "", **answer: Any) -> DecisionOutcome:
        """Answer a question, or give the result of a call that nobody knows the outcome of (`result=`)."""
        return await self._decide("answer", by, "", answer)

    async def _decide(
        self, verdict: Verdict, by: str, reason: str, arguments: dict[str, Any] | None = None
    ) -> DecisionOutcome:
        return await self._session.decide(Decision(self.interrupt.id, verdict, arguments or {}, reason, by))


class RunStream:
    """The events of the run that a message led to, from the message to the end of the run.

    Iteration ends after `RunFinished`, or when the agent is stopped. A server that crashes and is restarted goes on
    with the same run, and so does the iteration. A message that was sent again after its run has no events any more,
    only the result. A message that waits in the queue of a run which fails goes on waiting, until the next message.

    Attributes:
        receipt: What the server said when it took the message.
        result: The end of the run, once it has been read.
    """

    def __init__(self, subscription: Subscription, receipt: Receipt, result: RunFinished | None = None) -> None:
        self.receipt = receipt
        self.result = result
        self._subscription = subscription
        self._run_id = receipt.run_id

    def __aiter__(self) -> RunStream:
        return self

    async def __anext__(self) -> StreamEvent:
        if self.result is not None:
            await trio.lowlevel.checkpoint()
            raise StopAsyncIteration
        event = await anext(self._subscription)
        if isinstance(event, MessageCompleted) and event.message.id == self.receipt.message_id:
            self._run_id = event.run_id
        if isinstance(event, RunFinished) and event.run_id == self._run_id and self._run_id:
            self.result = event
        return event

    async def finish(self) -> RunFinished | None:
        """Read to the end of the run; None if the agent was stopped before."""
        async for _ in self:
            pass
        return self.result


class Session:
    """One conversation, wherever its server is in its life: refs are looked up anew for every call.

    Every call that needs the server raises `RegistryUnavailable` if the registry cannot tell where it is, `ActorDown`
    if it does not run, or ends before it has answered (then the call may have had its effect, and `ensure_running`
    brings it back), and the `PersistenceError` that kept the server from writing.
    """

    def __init__(
        self,
        agent_id: str,
        find: Callable[[], Lookup[Ref]],
        publisher: Callable[[], Publisher],
        environment: Environment,
    ) -> None:
        self.agent_id = agent_id
        self._find = find
        self._publisher = publisher
        self._environment = environment

    def __repr__(self) -> str:
        return f"<Session {self.agent_id!r}>"

    @property
    def state(self) -> State:
        """The conversation as it is durable now, read from memory.

        Raises:
            ActorDown: if no server has loaded it; its state is in the store.
        """
        state = self._publisher().state
        if state is None:
            raise ActorDown(f"agent {self.agent_id!r}")
        return state

    @property
    def approvals(self) -> tuple[PendingApproval, ...]:
        """What people have to decide, in the order it came up."""
        return tuple(PendingApproval(interrupt, session=self) for interrupt in self.state.undecided)

    async def status(self) -> SessionStatus:
        """Say what the agent is doing."""
        return await self._ask(GetStatus())

    @asynccontextmanager
    async def send(self, text: str, *, message_id: str = "") -> AsyncGenerator[RunStream]:
        """Send a message and follow the run that it leads to: `async with session.send("...") as run: async for ...`.

        The message is durable when the block begins. Leaving the block early leaves the run alone.

        Args:
            text: What the person says.
            message_id: Sent twice with one id, a message counts once.

        Raises:
            InvalidOption: if the text is blank.
        """
        with self._publisher().subscribe() as subscription:
            receipt = await self._ask(SendMessage(text, message_id))
            yield RunStream(subscription, receipt, self._earlier_result(receipt))

    def _earlier_result(self, receipt: Receipt) -> RunFinished | None:
        if receipt.outcome is None:
            return None
        return RunFinished(
            agent_id=self.agent_id,
            run_id="",
            seq=self._publisher().seq,
            at=self._environment.wall(),
            outcome=receipt.outcome,
            text=receipt.text,
        )

    async def say(self, text: str, *, message_id: str = "") -> str:
        """Send a message, wait for the end of its run, and return the model's final text.

        The text is empty if the run waits for people; `approvals` says what for.

        Raises:
            RunFailed: if the run failed or was cancelled; the conversation goes on with the next message.
            ActorDown: if the agent was stopped before the end.
        """
        async with self.send(text, message_id=message_id) as run:
            result = await run.finish()
        if result is None:
            raise ActorDown(f"agent {self.agent_id!r}")
        if result.outcome in ("failed", "cancelled"):
            raise RunFailed(self.agent_id, result.outcome, result.reason)
        return result.text

    def events(self, after: int | None = None) -> Subscription:
        """Follow everything the agent does: `with session.events() as events: async for event in events: ...`.

        Without `after`, the first event is the present status, if the agent runs (S4-069). With it, a reader that was
        cut off goes on where it was (UP-72).

        Args:
            after: Replay kept events with higher sequence numbers first; a `Gap` stands for those that are gone.
        """
        return self._publisher().subscribe(after, snapshot=after is None)

    async def cancel(self, reason: str = "") -> bool:
        """Cancel the open run; what was journaled stays. Say whether there was one."""
        return await self._ask(CancelRun(reason))

    async def decide(self, decision: Decision) -> DecisionOutcome:
        """Decide about one interrupt; the honest answer says whether that counted."""
        if not decision.at:
            decision = evolve(decision, at=self._environment.wall())
        return await self._ask(Decide(decision))

    async def notify(self, middleware: str, message: Any) -> bool:
        """Hand a message to a middleware of the running server; say whether there is one of this name (S4-011).

        Raises:
            InvalidOption: if that middleware takes no messages.
            Exception: what it raised; nothing was changed.
        """
        return await self._ask(NotifyMiddleware(middleware, message))

    async def _ask(self, request: Request[T]) -> T:
        match self._find():
            case Running(ref):
                return await ref.ask(request, timeout=60.0)
            case NotRunning():
                raise ActorDown(f"agent {self.agent_id!r}")
            case Unavailable(reason, retry_after):
                raise RegistryUnavailable(f"reach agent {self.agent_id!r}", reason, retry_after)

"""Sessions: the handle that hosts hold on one conversation."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

from sapwood.actors import Environment, Ref, Request
from sapwood.agents._execute import execute
from sapwood.agents._pending_approval import PendingApproval
from sapwood.agents._publisher import Publisher, Subscription
from sapwood.agents._requests import (
    GRACE,
    CancelQueued,
    CancelRun,
    Decide,
    Dismiss,
    EditQueued,
    GetStatus,
    NotifyMiddleware,
    PauseRun,
    QueueAnswer,
    Receipt,
    Reset,
    ResumeRun,
    SendMessage,
    SessionStatus,
    WhileRunning,
)
from sapwood.agents._run_stream import RunStream
from sapwood.agents._tool_answer import ToolAnswer
from sapwood.agents._waits import Waits
from sapwood.conversation import (
    AssistantMessage,
    Command,
    CommandOutcome,
    Decision,
    DecisionOutcome,
    Delivery,
    QueuedMessage,
    RunFinished,
    Snapshot,
    State,
    ToolResult,
    Until,
    evolve,
)
from sapwood.errors import ActorDown, RegistryUnavailable, RunFailed
from sapwood.registry import Lookup, NotRunning, Running, Unavailable
from sapwood.tools import Tool

T = TypeVar("T")


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
        waits: Waits,
    ) -> None:
        self.agent_id = agent_id
        self._find = find
        self._publisher = publisher
        self._environment = environment
        self._waits = waits

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
    async def send(
        self,
        text: str,
        *,
        message_id: str = "",
        delivery: Delivery = "next_run",
        while_running: WhileRunning = "queue",
        until: Until | None = None,
    ) -> AsyncGenerator[RunStream]:
        """Send a message and follow the run that it leads to: `async with session.send("...") as run: async for ...`.

        The message is durable when the block begins. Leaving the block early leaves the run alone (UP-34).

        Args:
            text: What the person says.
            message_id: Sent twice with one id, a message counts once.
            delivery: When it reaches the model if a run is open: `now` before its next call, `next_turn` when the
                model has answered, both in that run; `next_run` in a run of its own.
            while_running: What happens to a run that is open: `queue` lets the message wait, `reject` refuses it,
                `replace` cancels the run and answers the message, `rollback` also takes back what was said in it.
            until: What the run has to bring about; see `run_until`.

        Raises:
            InvalidOption: if the text is blank, or an option is none.
            RunInProgress: if a run is open, and the message was not to wait or is to bring something about.
            ConversationCycle: if a run waits here, as in a tool, for which this conversation waits already, through
                whatever others, or is its own; the message was not sent. `post` waits for nothing (UP-84).
        """
        with self._waits.waiting(self.agent_id) as wait, self._publisher().subscribe() as subscription:
            receipt = await self._ask(SendMessage(text, message_id, delivery, while_running, until))
            yield RunStream(subscription, receipt, self._earlier_result(receipt), wait)

    async def post(
        self,
        text: str,
        *,
        message_id: str = "",
        delivery: Delivery = "next_run",
        while_running: WhileRunning = "queue",
    ) -> Receipt:
        """Send a message without following its run; it is durable when this returns. The options are those of `send`.

        Raises:
            InvalidOption: if the text is blank, or an option is none.
            RunInProgress: if a run is open, and the message was not to wait.
        """
        return await self._ask(SendMessage(text, message_id, delivery, while_running))

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

    async def say(
        self,
        text: str,
        *,
        message_id: str = "",
        delivery: Delivery = "next_run",
        while_running: WhileRunning = "queue",
        until: Until | None = None,
    ) -> str:
        """Send a message, wait for the end of its run, and return the model's final text.

        The text is empty if the run waits for people; `approvals` says what for. The options are those of `send`.

        Raises:
            RunFailed: if the run failed or was cancelled; the conversation goes on with the next message.
            ConversationCycle: if it waits for the caller already; see `send`.
            ActorDown: if the agent was stopped before the end.
        """
        async with self.send(
            text, message_id=message_id, delivery=delivery, while_running=while_running, until=until
        ) as run:
            result = await run.finish()
        if result is None:
            raise ActorDown(f"agent {self.agent_id!r}")
        if result.outcome in ("failed", "cancelled"):
            raise RunFailed(self.agent_id, result.outcome, result.reason, result.cause)
        return result.text

    async def run_until(self, tool: Tool[..., Any], text: str, *, message_id: str = "") -> ToolAnswer:
        """Send a message, let the model work until it has called a tool without an error, and return that call.

        The run ends as soon as the call has its result. An error of the tool lets the model try again, within the
        limits of the run (AR-24.60).

        Raises:
            RunFailed: if the run failed, or waits for people; also if the model stopped without having called the
                tool (`not_called`).
            RunInProgress: if a run is open.
            ConversationCycle: if it waits for the caller already; see `send`.
            InvalidOption: if the agent does not have the tool.
            ActorDown: if the agent was stopped before the end.
        """
        async with self.send(text, message_id=message_id, until=Until((tool.name,))) as run:
            end = await run.finish()
        if end is None:
            raise ActorDown(f"agent {self.agent_id!r}")
        if end.outcome != "completed":
            raise RunFailed(self.agent_id, end.outcome, end.reason, end.cause)
        state = self.state
        results = (each for each in reversed(state.messages) if isinstance(each, ToolResult) and not each.is_error)
        result = next(each for each in results if each.name == tool.name)
        calls = (call for each in state.messages if isinstance(each, AssistantMessage) for call in each.tool_calls)
        return ToolAnswer(tool, next(call for call in calls if call.id == result.call_id), result)

    @property
    def queue(self) -> tuple[QueuedMessage, ...]:
        """Messages that wait for their delivery, in order."""
        return self.state.queue

    async def edit_queued(self, message_id: str, text: str) -> QueueAnswer:
        """Change the text of a message that still waits; say whether that was in time.

        Raises:
            InvalidOption: if the text is blank.
        """
        return await self._ask(EditQueued(message_id, text))

    async def cancel_queued(self, message_id: str) -> QueueAnswer:
        """Take back a message that still waits; say whether that was in time."""
        return await self._ask(CancelQueued(message_id))

    def events(self, after: int | None = None, *, debug: bool = False) -> Subscription:
        """Follow everything the agent does: `with session.events() as events: async for event in events: ...`.

        Without `after`, the first event is the present status, if the agent runs (S4-069). With it, a reader that was
        cut off goes on where it was (UP-72).

        Args:
            after: Replay kept events with higher sequence numbers first; a `Gap` stands for those that are gone.
            debug: Whether to be told of every change as it is journaled too, and of the middleware that wanted it, in
                a `DebugNote` (S4-070).
        """
        return self._publisher().subscribe(after, snapshot=after is None, debug=debug)

    def join(self) -> tuple[Snapshot, Subscription]:
        """Return the conversation as it is now, and a subscription to every event after that; none is missing between.

        Raises:
            ActorDown: if no server has loaded it.
        """
        state, publisher = self.state, self._publisher()
        snapshot = Snapshot(
            agent_id=self.agent_id,
            seq=publisher.seq,
            status=state.status if publisher.serving else "stopped",
            error=state.error,
            run_id=state.run.id if state.run is not None else "",
            messages=state.messages,
            todos=state.todos,
            metadata=state.metadata,
            interrupts=state.undecided,
            queue=state.queue,
            usage=state.usage,
        )
        return snapshot, publisher.subscribe()

    @contextmanager
    def watch(self, viewer: str = "somebody") -> Generator[None]:
        """Count as a viewer within the block, as everybody does who follows events: `with session.watch("ann"): ...`.

        See `Sessions.use` for what happens when the last viewer has left.

        Args:
            viewer: Who; the same one may watch several times at once.
        """
        publisher = self._publisher()
        publisher.watch(viewer)
        try:
            yield
        finally:
            publisher.unwatch(viewer)

    @property
    def viewers(self) -> tuple[str, ...]:
        """Names of those in `watch` blocks, sorted; those who only follow events have none."""
        return self._publisher().viewers

    async def execute(self, command: Command, *, by: str = "") -> CommandOutcome:
        """Carry out a command of a client; whatever goes wrong is an outcome too, and can be sent back.

        Args:
            command: What `decode_command` returned.
            by: Who sent it, as the host knows; kept with decisions.
        """
        return await execute(self, command, by)

    async def cancel(self, reason: str = "", *, grace: float = GRACE) -> bool:
        """Cancel the open run; what was journaled stays. Say whether there was one.

        The model is cut off and no further tool begins; tools and sub-agents that run are told
        (`ToolContext.stop`), and cut off when the grace is over.

        Args:
            reason: Why; the model reads it in the results of calls that were stopped.
            grace: Seconds that running tools have to end by themselves; 0 for none.
        """
        return await self._ask(CancelRun(reason, grace))

    async def pause(self) -> bool:
        """Pause the open run at the next safe boundary: after the model's answer, or the tools that run now.

        Say whether there was a run. It stays paused, also over restarts, until `resume`; what people say meanwhile
        waits. A run that ends before that boundary has ended.
        """
        return await self._ask(PauseRun())

    async def resume(self) -> bool:
        """Let a run go on that is paused, or was asked to pause; say whether there was one."""
        return await self._ask(ResumeRun())

    async def reset(self, *, keep_metadata: bool = False) -> None:
        """Begin the conversation anew: without messages, to-dos, metadata and what waits; usage and counts stay.

        Files are no part of a conversation and stay as they are (AR-22.14).

        Args:
            keep_metadata: Whether the metadata stays too.

        Raises:
            RunInProgress: if a run is open; nothing was changed.
        """
        await self._ask(Reset(keep_metadata))

    async def dismiss(self, interrupt_id: str) -> bool:
        """Dismiss a halt; say whether it was open. Other interrupts are decided, or superseded by a message."""
        return await self._ask(Dismiss(interrupt_id))

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

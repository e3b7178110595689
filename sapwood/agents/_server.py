"""The agent server: the actor that owns one conversation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import trio

from sapwood.actors import (
    Actor,
    Continue,
    Crashed,
    Environment,
    ExitReason,
    Failure,
    Killed,
    Shutdown,
    TaskDone,
    TaskRef,
    handle,
)
from sapwood.agents._agent import Agent
from sapwood.agents._engine import Outcome, RunEngine, change_events
from sapwood.agents._log import Log
from sapwood.agents._publisher import Publisher
from sapwood.agents._requests import (
    CancelRun,
    Decide,
    GetState,
    GetStatus,
    NotifyMiddleware,
    Receipt,
    SendMessage,
    SessionStatus,
)
from sapwood.agents._tool_phase import error_result
from sapwood.conversation import (
    Accepted,
    DecisionOutcome,
    QueuedMessage,
    State,
    StatusChanged,
    ToolCall,
    UserMessage,
    evolve,
    journal,
)
from sapwood.errors import InvalidOption, PersistenceError, StaleEpoch
from sapwood.files import FileService
from sapwood.middleware import MiddlewareContext
from sapwood.persistence import JournalStore, SnapshotPolicy
from sapwood.tools import Toolbox


@attrs.frozen
class Services:
    """What a server needs of the runtime around it.

    Attributes:
        journal: Returns the present journals.
        files: Finds filesystems.
        owner: Name under which conversations are claimed.
        snapshots: When snapshots are saved.
    """

    journal: Callable[[], JournalStore]
    files: FileService
    owner: str
    snapshots: SnapshotPolicy


class AgentServer(Actor):
    """Owns one conversation: loads it, runs it, writes every change before its effect can be seen (S4-001, S4-004).

    Its states follow from the journal: `idle`, `running`, `interrupted`, `error`. The run is a task that the server
    owns, so it answers at any time (cancel, status, queueing) while the model streams. Claiming the conversation at
    the start raises its epoch; a server whose epoch is stale stops itself with `Shutdown("fenced")`.

    After a crash it goes on where the journal ends (S4-027).
    """

    def __init__(self, agent: Agent, agent_id: str, publisher: Publisher, services: Services) -> None:
        self.agent = agent
        self.agent_id = agent_id
        self._publisher = publisher
        self._services = services
        self._local: dict[str, Any] = {}
        self._run_task: TaskRef | None = None
        self._run_ended = trio.Event()
        self._cancelled: str | None = None
        self._log: Log
        self._engine: RunEngine

    def format_state(self) -> str:
        return f"agent={self.agent.name!r}, conversation={self.agent_id!r}, running={self._run_task is not None}"

    # --- life -------------------------------------------------------------------------------------

    async def on_start(self) -> Continue:
        store = self._services.journal()
        claim = await store.claim(self.agent_id, owner=self._services.owner)
        self._log = Log(store, claim, self.environment, self._publisher, self._services.snapshots)
        if claim.fresh:
            await self._log.commit(journal.ConversationCreated(self.agent.name, self.agent.definition))
        toolbox = Toolbox(self.agent.tools).with_tools(self.agent.stack.tools(self._context()))
        self._engine = RunEngine(self.agent, toolbox, self._log, self._publisher, self._context)
        for layer in self.agent.stack:
            changes = await layer.on_server_start(self._context())
            await self._log.commit(*change_events(layer.name, changes or ()))
        self._publisher.up = True
        state = self._log.state
        self._publisher.publish(StatusChanged, self._run_id, status=state.status, detail=state.error)
        return Continue()

    async def on_continue(self, token: Any) -> None:
        """Take up an open run, or deliver what was queued, after the starter was told that the server runs."""
        state = self._log.state
        if state.run is not None and (state.run.phase == "running" or not state.undecided):
            await self._begin(journal.RunStarted(state.run.id, "restart", self.environment.wall()))
        elif state.run is None and state.queue:
            await self._begin(*self._next_run())

    async def on_stop(self, reason: ExitReason) -> None:
        """Let the run end where it is; its journal says how to go on."""
        if self._run_task is not None:
            self._run_task.cancel()
            await self._run_ended.wait()
        if reason != Shutdown("fenced") and not isinstance(reason, Crashed):
            try:
                await self._log.release()
            except PersistenceError:
                # All it would have said is that this server stopped cleanly; the next claim goes without that.
                return

    # --- requests ---------------------------------------------------------------------------------

    @handle
    async def send_message(self, message: SendMessage) -> Receipt | Failure:
        if not message.text.strip():
            return Failure(InvalidOption("send: expected a text that is not blank"))
        said = UserMessage(message.text, id=message.message_id or self.environment.new_id("msg_"))
        state = self._log.state
        if any(each.id == said.id for each in (*state.messages, *(item.message for item in state.queue))):
            # The same message, sent again because its receipt was lost.
            return Receipt(said.id, self._run_id, queued=any(item.message.id == said.id for item in state.queue))
        try:
            if state.run is not None and state.run.phase == "running":
                item = QueuedMessage(said.id, said, at=self.environment.wall())
                await self._log.commit(journal.MessageQueued(item))
                return Receipt(said.id, "", queued=True)
            run = journal.RunStarted(self.environment.new_id("run_"), "message", self.environment.wall())
            await self._begin(*self._withdraw(), run, journal.MessageAdded(said))
        except PersistenceError as error:
            return self._lost(error)
        return Receipt(said.id, self._run_id, queued=False)

    @handle
    async def cancel_run(self, message: CancelRun) -> bool | Failure:
        if self._run_task is not None:
            self._cancelled = message.reason or "cancelled"
            self._run_task.cancel()
            return True
        run = self._log.state.run
        if run is None:
            return False
        try:
            finished = journal.RunFinished(run.id, "cancelled", message.reason, self.environment.wall())
            await self._log.commit(*self._withdraw(end_run=False), finished)
        except PersistenceError as error:
            return self._lost(error)
        return True

    @handle
    async def decide(self, message: Decide) -> DecisionOutcome | Failure:
        outcome = self._log.state.judge(message.decision, self.environment.wall())
        if not isinstance(outcome, Accepted):
            return outcome
        try:
            await self._log.commit(journal.InterruptDecided(outcome.decision))
            run = self._log.state.run
            if run is not None and self._run_task is None and not self._log.state.undecided:
                await self._begin(journal.RunStarted(run.id, "resume", self.environment.wall()))
        except PersistenceError as error:
            return self._lost(error)
        return outcome

    @handle
    async def notify_middleware(self, message: NotifyMiddleware) -> bool | Failure:
        layer = self.agent.stack.get(message.middleware)
        if layer is None:
            return False
        try:
            changes = await layer.handle_message(message.message, self._context())
            await self._log.commit(*change_events(layer.name, changes or ()))
        except PersistenceError as error:
            return self._lost(error)
        return True

    @handle
    def get_status(self, message: GetStatus) -> SessionStatus:
        state = self._log.state
        return SessionStatus(
            agent_id=self.agent_id,
            agent=self.agent.name,
            status=state.status,
            error=state.error,
            run_id=self._run_id,
            messages=len(state.messages),
            queued=len(state.queue),
            open_interrupts=tuple(each.id for each in state.undecided),
            epoch=self._log.epoch,
            seq=self._log.seq,
        )

    @handle
    def get_conversation(self, message: GetState) -> State:
        return self._log.state

    # --- runs -------------------------------------------------------------------------------------

    async def _begin(self, *events: journal.JournalEvent) -> None:
        await self._log.commit(*events)
        self._cancelled = None
        self._run_ended = trio.Event()
        self._run_task = self.start_task(self._run, self._run_ended, name="run")

    async def _run(self, ended: trio.Event) -> Outcome:
        try:
            return await self._engine.run()
        finally:
            ended.set()

    @handle
    async def run_ended(self, message: TaskDone) -> None:
        if message.task is not self._run_task:
            return
        self._run_task = None
        try:
            await self._finish(message)
        except PersistenceError as error:
            self._lost(error)

    async def _finish(self, done: TaskDone) -> None:
        match done.reason:
            case Crashed(error):
                if isinstance(error, PersistenceError):
                    raise error
                outcome = Outcome("failed", f"{type(error).__name__}: {error}")
            case Killed():
                outcome = Outcome("cancelled", self._cancelled or "")
            case _:
                outcome = done.value
        run = self._log.state.run
        if run is None:
            return
        events: list[journal.JournalEvent] = []
        if outcome.outcome in ("failed", "cancelled"):
            events += self._settle_calls(outcome.detail)
        events.append(journal.RunFinished(run.id, outcome.outcome, outcome.detail, self.environment.wall()))
        if outcome.outcome == "completed" and self._log.state.queue:
            # The next run follows without an idle moment in between.
            await self._begin(*events, *self._next_run())
        else:
            await self._log.commit(*events)

    def _next_run(self) -> list[journal.JournalEvent]:
        delivered = [journal.MessageUnqueued(item.id) for item in self._log.state.queue]
        return [journal.RunStarted(self.environment.new_id("run_"), "queue", self.environment.wall()), *delivered]

    def _settle_calls(self, why: str) -> list[journal.JournalEvent]:
        """Give every open call a result that says honestly what is known of it."""
        events: list[journal.JournalEvent] = []
        for pending in self._log.state.pending:
            known = "it may have had its effect" if pending.phase == "started" else "it was not run"
            text = f"Error: {pending.call.name} was stopped ({why or 'cancelled'}); {known}"
            events.append(self._error_event(pending.call, text))
        return events

    def _withdraw(self, *, end_run: bool = True) -> list[journal.JournalEvent]:
        """Close what people were asked, because somebody has said or done something else."""
        state = self._log.state
        events: list[journal.JournalEvent] = []
        for interrupt in state.interrupts:
            text = f"Error: {interrupt.call.name} was not run: nobody had decided when the conversation went on"
            events.append(self._error_event(interrupt.call, text))
            events.append(journal.InterruptClosed(interrupt.id, "withdrawn"))
        if end_run and state.run is not None:
            events.append(journal.RunFinished(state.run.id, "cancelled", "superseded", self.environment.wall()))
        return events

    def _error_event(self, call: ToolCall, text: str) -> journal.ToolFinished:
        return journal.ToolFinished(evolve(error_result(call, text), id=self.environment.new_id("msg_")))

    # --- within -----------------------------------------------------------------------------------

    @property
    def _run_id(self) -> str:
        run = self._log.state.run
        return run.id if run is not None else ""

    def _context(self) -> MiddlewareContext:
        return MiddlewareContext(
            agent_id=self.agent_id,
            agent=self.agent,
            run_id=self._run_id,
            environment=self.environment,
            files=self._services.files,
            host=self.agent.host,
            local=self._local,
            read_state=lambda: self._log.state,
        )

    def _lost(self, error: PersistenceError) -> Failure:
        """End because the journal cannot be written any more; whoever waits is told why."""
        if isinstance(error, StaleEpoch):
            self.stop(Shutdown("fenced"))
        else:
            self.stop(Crashed.of(error))
        return Failure(error)

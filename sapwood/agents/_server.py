"""The agent server: the actor that owns one conversation."""

from __future__ import annotations

from typing import Any

import trio

from sapwood.actors import Actor, Continue, Crashed, ExitReason, Failure, Killed, Shutdown, TaskDone, TaskRef, handle
from sapwood.agents._agent import Agent
from sapwood.agents._changes import change_events
from sapwood.agents._engine import Outcome, RunEngine
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
    receipt_of,
    status_of,
)
from sapwood.agents._run_events import RunEvents
from sapwood.agents._services import Services
from sapwood.conversation import (
    Accepted,
    Decision,
    DecisionOutcome,
    Invalid,
    QueuedMessage,
    State,
    UserMessage,
    edited_call,
    journal,
)
from sapwood.errors import CodecError, InvalidOption, PersistenceError, StaleEpoch
from sapwood.middleware import MiddlewareContext, overrides
from sapwood.tools import Toolbox


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
        self._is_restart = publisher.up
        publisher.up, publisher.failure = True, None
        self._publisher = publisher
        self._services = services
        self._local: dict[str, Any] = {}
        self._toolbox = Toolbox(agent.tools)
        self._run_task: TaskRef | None = None
        self._run_ended = trio.Event()
        self._cancelled: str | None = None
        self._loaded: Log | None = None
        self._engine: RunEngine
        self._events: RunEvents

    def format_state(self) -> str:
        return f"agent={self.agent.name!r}, conversation={self.agent_id!r}, running={self._run_task is not None}"

    # --- life -------------------------------------------------------------------------------------

    def on_start(self) -> Continue:
        self._events = RunEvents(self.environment)
        # Loading takes as long as it takes; the supervisor of all agents must not wait for one of them.
        return Continue()

    async def on_continue(self, token: Any) -> None:
        """Load the conversation, then take up what is open in it.

        A first start that fails ends the server for good, and whoever wants it running gets the reason. One that
        fails after a crash is a crash again, and counts as one.
        """
        try:
            await self._load()
            await self._take_up()
        except StaleEpoch as error:
            self._publisher.failure = error
            self._lost(error)
        except Exception as error:
            self._publisher.failure = error
            if self._is_restart or self._publisher.serving:
                raise
            self.stop(Shutdown("could not start"))

    async def _load(self) -> None:
        store = self._services.journal()
        claim = await store.claim(self.agent_id, owner=self._services.owner)
        self._loaded = Log(store, claim, self._publisher, self._services.snapshots)
        if claim.fresh:
            created = journal.ConversationCreated(self.agent.name, self.agent.definition, self.environment.wall())
            await self._log.commit(created)
        self._toolbox = self._toolbox.with_tools(self.agent.stack.tools(self._context()))
        self._engine = RunEngine(self.agent, self._toolbox, self._log, self._publisher, self._context)
        for layer in self.agent.stack.starting:
            changes = await layer.on_server_start(self._context())
            await self._log.commit(*change_events(layer.name, changes or (), self.environment.new_id))
        self._publisher.begin()

    async def _take_up(self) -> None:
        """Take up an open run, or deliver what was queued.

        What a failed run left in the queue waits for the next message of a person (AR-24.5).
        """
        state = self._log.state
        if state.run is not None:
            ready = state.run.phase == "running" or (state.run.phase == "interrupted" and not state.undecided)
            if ready:
                await self._begin(self._events.go_on(state.run.id, "restart"))
        elif state.queue and not state.error:
            events = self._events
            await self._begin(*events.supersede(state), events.start("queue"), *events.deliveries(state))

    async def on_stop(self, reason: ExitReason) -> None:
        """Let the run end where it is; its journal says how to go on."""
        if self._run_task is not None:
            self._run_task.cancel()
            await self._run_ended.wait()
        if self._loaded is not None and reason != Shutdown("fenced") and not isinstance(reason, Crashed):
            try:
                await self._loaded.release()
            except PersistenceError:
                # All it would have said is that this server stopped cleanly; the next claim goes without that.
                return

    # --- requests ---------------------------------------------------------------------------------

    @handle
    async def send_message(self, message: SendMessage) -> Receipt | Failure:
        if not message.text.strip():
            return Failure(InvalidOption("send: expected a text that is not blank"))
        state = self._log.state
        earlier = receipt_of(state, message.message_id) if message.message_id else None
        if earlier is not None:
            # The same message, sent again because its receipt was lost.
            return earlier
        said = UserMessage(message.text, id=message.message_id or self.environment.new_id("msg_"))
        try:
            if state.run is not None and state.run.phase == "running":
                item = QueuedMessage(said.id, said, at=self.environment.wall())
                await self._log.commit(journal.MessageQueued(item))
                return Receipt(said.id, "", queued=True)
            # Whatever waited for the end of an earlier run was said before.
            added = [*self._events.deliveries(state), journal.MessageAdded(said)]
            await self._begin(*self._events.supersede(state), self._events.start("message"), *added)
        except PersistenceError as error:
            return self._lost(error)
        return Receipt(said.id, self._run_id, queued=False)

    @handle
    async def cancel_run(self, message: CancelRun) -> bool | Failure:
        if self._run_task is not None:
            self._cancelled = message.reason or "cancelled"
            self._run_task.cancel()
            return True
        state = self._log.state
        if state.run is None:
            return False
        cancelled = Outcome("cancelled", message.reason or "cancelled")
        try:
            await self._log.commit(*self._events.finish(state, cancelled))
        except PersistenceError as error:
            return self._lost(error)
        return True

    @handle
    async def decide(self, message: Decide) -> DecisionOutcome | Failure:
        outcome = self._log.state.judge(message.decision, self.environment.wall())
        if not isinstance(outcome, Accepted):
            return outcome
        problem = self._edit_problem(outcome.decision)
        if problem is not None:
            return problem
        try:
            await self._log.commit(journal.InterruptDecided(outcome.decision))
            run = self._log.state.run
            if run is not None and self._run_task is None and not self._log.state.undecided:
                await self._begin(self._events.go_on(run.id, "resume"))
        except PersistenceError as error:
            return self._lost(error)
        return outcome

    def _edit_problem(self, decision: Decision) -> Invalid | None:
        """Refuse an edit after which the call could not run; the question stays open (AR-22.12)."""
        interrupt = self._log.state.interrupt(decision.interrupt_id)
        if decision.verdict != "edit" or interrupt is None:
            return None
        refused = self._toolbox.check(edited_call(interrupt, decision))
        return None if refused is None else Invalid(f"interrupt {interrupt.id!r}: {refused.result.content}")

    @handle
    async def notify_middleware(self, message: NotifyMiddleware) -> bool | Failure:
        layer = self.agent.stack.get(message.middleware)
        if layer is None:
            return False
        if not overrides(layer, "handle_message"):
            return Failure(InvalidOption(f"middleware {layer.name} takes no messages: it has no handle_message"))
        try:
            changes = await layer.handle_message(message.message, self._context())
            events = change_events(layer.name, changes or (), self.environment.new_id)
        except Exception as error:
            # The middleware's own trouble with a message ends nothing here; the sender is told.
            return Failure(error)
        try:
            await self._log.commit(*events)
        except PersistenceError as error:
            return self._lost(error)
        return True

    @handle
    def get_status(self, message: GetStatus) -> SessionStatus:
        return status_of(self._log, self.agent.name)

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
            await self._finish(self._outcome(message))
        except CodecError as error:
            # What a hook wanted to change at the end of the run; the answer itself is journaled.
            await self._finish(Outcome("failed", f"{type(error).__name__}: {error}"))
        except PersistenceError as error:
            self._lost(error)

    def _outcome(self, done: TaskDone) -> Outcome:
        if isinstance(self._log.broken, PersistenceError):
            raise self._log.broken
        match done.reason:
            case Crashed(error):
                return Outcome("failed", f"{type(error).__name__}: {error}")
            case Killed():
                return Outcome("cancelled", self._cancelled or "cancelled")
            case _:
                outcome: Outcome = done.value
        if outcome.outcome == "interrupted" and self._cancelled is not None:
            # The cancel came when the run had just begun to wait, and was answered with yes.
            return Outcome("cancelled", self._cancelled)
        return outcome

    async def _finish(self, outcome: Outcome) -> None:
        state = self._log.state
        if state.run is None:
            return
        if outcome.outcome == "interrupted" and not state.undecided:
            # The last decision came when the run had just begun to wait for it.
            await self._begin(self._events.go_on(state.run.id, "resume"))
            return
        events = self._events.finish(state, outcome)
        if outcome.outcome == "completed" and state.queue:
            # The next run follows without an idle moment in between.
            await self._begin(*events, self._events.start("queue"), *self._events.deliveries(state))
        else:
            await self._log.commit(*events)

    # --- within -----------------------------------------------------------------------------------

    @property
    def _log(self) -> Log:
        assert self._loaded is not None
        return self._loaded

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
            tools=self._toolbox,
            host=self.agent.host,
            local=self._local,
            read_state=lambda: self._log.state,
        )

    def _lost(self, error: PersistenceError) -> Failure:
        """End if the journal cannot be written any more; whoever waits is told why.

        What cannot be stored is the sender's trouble alone: nothing was written, and the server goes on.
        """
        if isinstance(error, StaleEpoch):
            self.stop(Shutdown("fenced"))
        elif not isinstance(error, CodecError):
            self.stop(Crashed.of(error))
        return Failure(error)

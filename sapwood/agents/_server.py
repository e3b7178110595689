"""The agent server: the actor that owns one conversation."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Any, TypeVar

from sapwood.actors import Actor, Continue, Crashed, ExitReason, Failure, Reply, Shutdown, TaskDone, handle
from sapwood.agents._agent import Agent
from sapwood.agents._alarms import Alarm
from sapwood.agents._changes import change_events
from sapwood.agents._engine import RunEngine
from sapwood.agents._inbox import Inbox
from sapwood.agents._log import Log
from sapwood.agents._outcome import Outcome
from sapwood.agents._presence import LookAround, Presence
from sapwood.agents._publisher import Publisher
from sapwood.agents._requests import (
    CancelQueued,
    CancelRun,
    CutOff,
    Decide,
    Dismiss,
    EditQueued,
    GetState,
    GetStatus,
    HoldRun,
    NotifyMiddleware,
    PauseRun,
    QueueAnswer,
    Receipt,
    Reset,
    ResumeRun,
    SendMessage,
    SessionStatus,
    status_of,
)
from sapwood.agents._run_events import RunEvents
from sapwood.agents._run_keeper import RunKeeper
from sapwood.agents._services import Services
from sapwood.agents._sub_agent_service import SubAgentService
from sapwood.agents._sub_agents import SubAgentKeeper, SubAgentNews
from sapwood.agents._turn import holding
from sapwood.agents._watch import Watch
from sapwood.conversation import Accepted, Decision, DecisionOutcome, Invalid, State, edited_call, journal
from sapwood.errors import CodecError, InvalidOption, PersistenceError, RunInProgress, StaleEpoch
from sapwood.middleware import MiddlewareContext, overrides
from sapwood.tools import Toolbox

T = TypeVar("T")


class AgentServer(Actor):
    """Owns one conversation: loads it, runs it, writes every change before its effect can be seen (S4-001, S4-004).

    Its states follow from the journal: `idle`, `running`, `interrupted`, `paused`, `waiting`, `error`. The run is a
    task that the server owns, so it answers at any time (cancel, pause, status, queueing) while the model streams.
    Claiming the conversation at the start raises its epoch; a server whose epoch is stale stops itself with
    `Shutdown("fenced")`.

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
        # Those who wait until nothing is at work any more.
        self._holders: list[Reply[bool]] = []
        self._toolbox = Toolbox(agent.tools)
        self._loaded: Log | None = None
        self._engine: RunEngine
        self._runs: RunKeeper
        self._inbox: Inbox
        self._watch: Watch
        self._sub_agents: SubAgentKeeper
        self._service: SubAgentService
        self._presence: Presence
        self._events: RunEvents

    def format_state(self) -> str:
        running = self._loaded is not None and hasattr(self, "_runs") and self._runs.task is not None
        return f"agent={self.agent.name!r}, conversation={self.agent_id!r}, running={running}"

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
            await self._runs.take_up()
            await self._tend()
            self._watch.set()
            self._presence.set()
            self.set_idle_timeout(self.agent.stop_after)
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
        self._loaded = log = Log(store, claim, self._publisher, self._services.snapshots)
        opening = await self._services.opening(log.state)
        if claim.fresh:
            created = journal.ConversationCreated(self.agent.name, self.agent.definition, self.environment.wall())
            opening = [created, *opening]
        await log.commit(*opening)
        homes, waits = self._services.sub_agents, self._services.waits
        assert homes is not None
        assert waits is not None
        self._sub_agents = SubAgentKeeper(self, self.agent, log, self._publisher, homes)
        self._service = SubAgentService(self.agent, log, self._sub_agents, homes)
        self._toolbox = self._toolbox.with_tools(self.agent.stack.tools(self._context()))
        results = self._services.results
        self._engine = RunEngine(
            self.agent, self._toolbox, log, self._publisher, self._context, results=results, waits=waits
        )
        self._runs = RunKeeper(self, self.agent, log, self._engine, self._publisher)
        self._inbox = Inbox(self.environment, log, self._runs, self._toolbox)
        self._watch = Watch(self, log, self._engine, self._runs, self._sub_agents)
        after = self._services.unwatched_after
        self._presence = Presence(self, log, self._runs, self._watch, publisher=self._publisher, after=after)
        for layer in self.agent.stack.starting:
            changes = await layer.on_server_start(self._context())
            await log.commit(*change_events(layer.name, changes or (), self.environment.new_id))
        self._publisher.begin()

    def on_idle(self) -> None:
        """Stop, unless a run is at work or time will bring something."""
        if self._runs.task is None and not self._watch.waiting:
            self.stop(Shutdown("inactivity"))

    async def on_stop(self, reason: ExitReason) -> None:
        """Let the run end where it is; its journal says how to go on."""
        if self._loaded is None:
            return
        if hasattr(self, "_watch"):
            self._watch.stop_polling()
            await self._runs.stop()
        if reason != Shutdown("fenced") and not isinstance(reason, Crashed):
            try:
                await self._loaded.release()
            except PersistenceError:
                # All it would have said is that this server stopped cleanly; the next claim goes without that.
                return

    # --- messages ---------------------------------------------------------------------------------

    @handle
    async def send_message(self, message: SendMessage) -> Receipt | Failure:
        return await self._answer(self._inbox.take(message))

    @handle
    async def edit_queued(self, message: EditQueued) -> QueueAnswer | Failure:
        return await self._answer(self._inbox.edit(message))

    @handle
    async def cancel_queued(self, message: CancelQueued) -> QueueAnswer | Failure:
        return await self._answer(self._inbox.cancel(message))

    @handle
    async def reset(self, message: Reset) -> bool | Failure:
        return await self._answer(self._inbox.reset(message))

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
        return await self._answer(self._take_up(events))

    async def _take_up(self, events: Sequence[journal.JournalEvent]) -> bool:
        await self._log.commit(*events)
        await self._runs.follow_up()
        return True

    # --- the run ----------------------------------------------------------------------------------

    @handle
    async def cancel_run(self, message: CancelRun) -> bool | Failure:
        if self._runs.task is None:
            self._watch.stop_polling()
        self._sub_agents.cancel_all(message.reason, message.grace, background=message.background)
        if self._runs.task is None and self._sub_agents.awaited:
            return True  # the run ends when they have
        return await self._answer(self._runs.cancel(message.reason, message.grace))

    @handle
    def cut_off(self, message: CutOff) -> None:
        self._runs.cut_off(message.serial)

    @handle
    async def pause_run(self, message: PauseRun) -> bool | Failure:
        self._sub_agents.pause_all()
        return await self._answer(self._runs.pause())

    @handle
    async def resume_run(self, message: ResumeRun) -> bool | Failure:
        self._sub_agents.resume_all()
        return await self._answer(self._runs.resume())

    @handle
    def hold_run(self, message: HoldRun) -> bool | None:
        self._runs.hold()
        self._sub_agents.hold()
        self._watch.stop_polling()
        if self._runs.task is None:
            return True
        self._holders.append(self.reply_later())
        return None

    @handle
    async def task_ended(self, message: TaskDone) -> None:
        if message.task is self._runs.task:
            await self._answer(self._run_ended(message))
            while self._holders and self._runs.task is None:
                self._holders.pop()(value=True)
        elif self._sub_agents.owns(message.task):
            await self._answer(self._sub_agent_ended(message))
        else:
            await self._answer(self._watch.polled(message))

    async def _run_ended(self, message: TaskDone) -> None:
        try:
            await self._runs.ended(message)
        except CodecError as error:
            # What a hook wanted to change at the end of the run; the answer itself is journaled.
            await self._runs.finish(Outcome("failed", f"{type(error).__name__}: {error}", cause="error"))

    # --- sub-agents -------------------------------------------------------------------------------

    @handle
    async def sub_agent_news(self, message: SubAgentNews) -> None:
        await self._answer(self._sub_agents.heard(message))

    async def _sub_agent_ended(self, done: TaskDone) -> None:
        cancelling = self._sub_agents.cancelling
        match await self._sub_agents.ended(done):
            case "cancel":
                assert cancelling is not None
                await self._runs.cancel(cancelling[1], 0.0)
            case "follow_up":
                await self._runs.follow_up()
            case _:
                pass

    async def _tend(self) -> None:
        """Let what sub-agents do have its effect on the run that waits for them."""
        if not self._log.state.sub_agents and not self._sub_agents.at_work:
            return
        await self._sub_agents.tend()
        if self._sub_agents.ready():
            await self._watch.tend()
        await self._runs.wait_for_people()
        await self._runs.go_on_if_ready()

    # --- people and times -------------------------------------------------------------------------

    @handle
    async def decide(self, message: Decide) -> DecisionOutcome | Failure:
        outcome = self._log.state.judge(message.decision, self.environment.wall())
        if not isinstance(outcome, Accepted):
            return outcome
        if self._sub_agents.answers.decides(outcome.decision):
            self._sub_agents.answers.decide(outcome.decision, self.reply_later())
            return outcome
        problem = self._edit_problem(outcome.decision)
        if problem is not None:
            return problem
        return await self._answer(self._accept(outcome))

    async def _accept(self, outcome: Accepted) -> Accepted:
        await self._log.commit(journal.InterruptDecided(outcome.decision))
        await self._runs.go_on_if_ready()
        return outcome

    def _edit_problem(self, decision: Decision) -> Invalid | None:
        """Refuse an edit after which the call could not run; the question stays open (AR-22.12)."""
        interrupt = self._log.state.interrupt(decision.interrupt_id)
        if decision.verdict != "edit" or interrupt is None:
            return None
        refused = self._toolbox.check(edited_call(interrupt, decision))
        return None if refused is None else Invalid(f"interrupt {interrupt.id!r}: {refused.result.content}")

    @handle
    async def dismiss(self, message: Dismiss) -> bool | Failure:
        interrupt = self._log.state.interrupt(message.interrupt_id)
        if interrupt is None or interrupt.kind != "halt" or self._runs.task is not None:
            return False
        if interrupt not in holding(self._log.state):
            self._sub_agents.answers.dismiss(interrupt, self.reply_later())
            return True
        return await self._answer(self._runs.dismiss(interrupt))

    @handle
    async def alarm(self, message: Alarm) -> None:
        await self._answer(self._watch.tend())

    @handle
    def look_around(self, message: LookAround) -> None:
        self._presence.look(message)

    # --- looking ----------------------------------------------------------------------------------

    @handle
    def get_status(self, message: GetStatus) -> SessionStatus:
        return status_of(self._log, self.agent.name)

    @handle
    def get_conversation(self, message: GetState) -> State:
        return self._log.state

    # --- within -----------------------------------------------------------------------------------

    @property
    def _log(self) -> Log:
        assert self._loaded is not None
        return self._loaded

    def _context(self) -> MiddlewareContext:
        run = self._log.state.run
        return MiddlewareContext(
            agent_id=self.agent_id,
            agent=self.agent,
            run_id=run.id if run is not None else "",
            environment=self.environment,
            files=self._services.files,
            tools=self._toolbox,
            host=self.agent.host,
            local=self._local,
            read_state=lambda: self._log.state,
            sub_agents=self._service,
        )

    async def _answer(self, work: Awaitable[T]) -> T | Failure:
        """Do something that is journaled, and return what came of it; what went wrong is for whoever asked."""
        try:
            result = await work
            await self._tend()
        except (InvalidOption, RunInProgress) as error:
            return Failure(error)
        except PersistenceError as error:
            return self._lost(error)
        self._watch.set()
        self._presence.set()
        return result

    def _lost(self, error: PersistenceError) -> Failure:
        """End if the journal cannot be written any more; whoever waits is told why.

        What cannot be stored is the sender's trouble alone: nothing was written, and the server goes on.
        """
        if isinstance(error, StaleEpoch):
            self.stop(Shutdown("fenced"))
        elif not isinstance(error, CodecError):
            self.stop(Crashed.of(error))
        return Failure(error)

"""The keeper of the run: begins it, watches over it, ends it, and begins the next one if messages wait."""

from __future__ import annotations

from typing import Final, Literal

import trio

from sapwood.actors import Actor, Crashed, Killed, TaskDone, TaskRef
from sapwood.agents._agent import Agent
from sapwood.agents._engine import RunEngine
from sapwood.agents._log import Log
from sapwood.agents._outcome import Outcome, failed
from sapwood.agents._publisher import Publisher
from sapwood.agents._requests import CutOff
from sapwood.agents._run_events import RunEvents
from sapwood.agents._turn import undecided
from sapwood.conversation import Interrupt, QueueHeld, State, journal
from sapwood.errors import PersistenceError

SUSPENDED: Final = ("interrupted", "paused", "waiting")
HELD: Final = "{count} runs in a row that nobody asked for; a message of a person lets them go on"


class RunKeeper:
    """Keeps the one run of a conversation. The run is a task of the server, which stays answerable meanwhile.

    Attributes:
        task: The task of the run; None while none is at work.

    Args:
        actor: The server.
        agent: The agent.
        log: The conversation.
        engine: Carries the run.
        publisher: Tells of messages that are held back.
    """

    def __init__(self, actor: Actor, agent: Agent, log: Log, engine: RunEngine, publisher: Publisher) -> None:
        self.task: TaskRef | None = None
        self._actor = actor
        self._agent = agent
        self._log = log
        self._engine = engine
        self._publisher = publisher
        self._events = RunEvents(actor.environment)
        self._ended = trio.Event()
        self._begun_at = 0.0
        self._serial = 0
        self._cancelled: str | None = None
        self._replaced: Literal["", "replace", "rollback"] = ""

    # --- beginning --------------------------------------------------------------------------------

    async def begin(self, *events: journal.JournalEvent) -> None:
        """Journal events, of which one starts the run or lets it go on, and set to work."""
        await self._log.commit(*events)
        if self._engine.held:
            return  # it is journaled as running; whoever claims the conversation next takes it up
        self._cancelled, self._replaced = None, ""
        self._ended = trio.Event()
        self._begun_at = self._actor.environment.monotonic()
        self._serial += 1
        self._engine.prepare()
        self.task = self._actor.start_task(self._run, self._ended, name="run")

    async def _run(self, ended: trio.Event) -> Outcome:
        try:
            return await self._engine.run()
        finally:
            ended.set()

    async def take_up(self) -> None:
        """Take up an open run, or begin one for messages that wait.

        What a failed run left in the queue waits for the next message of a person (AR-24.5).
        """
        state = self._log.state
        if state.run is not None and state.run.phase == "running":
            await self.begin(self._events.go_on(state.run.id, "restart"))
        elif state.run is not None:
            await self.go_on_if_ready()
        else:
            await self.follow_up()

    async def follow_up(self) -> None:
        """Begin a run for messages that wait, if none is open and the last one did not fail."""
        state = self._log.state
        if state.run is not None or not state.queue or state.error:
            return
        following = self._following(state)
        if following:
            await self.begin(*self._events.supersede(state), *following)

    async def go_on_if_ready(self) -> None:
        """Let a run go on for which nobody and nothing has to be waited for any more."""
        state = self._log.state
        if self.task is not None or state.run is None:
            return
        decided = state.run.phase == "interrupted" and not undecided(state)
        done = state.run.phase == "waiting" and not state.deferred
        if decided or done:
            await self.begin(self._events.go_on(state.run.id, "resume"))

    async def wait_for_people(self) -> None:
        """Let a run that waits for work elsewhere wait for people, if that work has something to ask."""
        state = self._log.state
        if self.task is None and state.run is not None and state.run.phase == "waiting" and undecided(state):
            await self._end_suspended(Outcome("interrupted"))

    # --- cancelling -------------------------------------------------------------------------------

    async def cancel(self, reason: str, grace: float) -> bool:
        """Cancel the open run, at work or not; say whether there was one."""
        if self.task is not None:
            self._cancel(reason, grace)
            await trio.lowlevel.checkpoint()
            return True
        return await self._end_suspended(Outcome("cancelled", reason or "cancelled"))

    async def _end_suspended(self, outcome: Outcome) -> bool:
        if self._log.state.run is None:
            await trio.lowlevel.checkpoint()
            return False
        await self._log.commit(*self._events.finish(self._log.state, outcome))
        return True

    def _cancel(self, reason: str, grace: float) -> None:
        """Cancel the run that is at work: its children and tools are told first, and cut off after `grace` seconds."""
        assert self.task is not None
        self._cancelled = reason or "cancelled"
        if grace <= 0:
            self.task.cancel()
            return
        self._engine.stop_softly(self._cancelled)
        self._actor.send_after(grace, CutOff(self._serial))

    def cut_off(self, serial: int) -> None:
        """Cancel the run for good, if it is still the one that was to end."""
        if self.task is not None and self._cancelled is not None and serial == self._serial:
            self.task.cancel()

    def replace(self, how: Literal["replace", "rollback"], grace: float) -> None:
        """Cancel the run that is at work, and answer the messages that wait instead."""
        self._cancel("replaced by a message", grace)
        self._replaced = how

    async def dismiss(self, halt: Interrupt) -> bool:
        """End a run that has halted; True."""
        await self._log.commit(journal.InterruptClosed(halt.id, "dismissed"))
        if not undecided(self._log.state):
            await self._end_suspended(Outcome("completed", "halted"))
        return True

    # --- pausing ----------------------------------------------------------------------------------

    async def pause(self) -> bool:
        """Let the open run pause at the next safe boundary; say whether there was one."""
        run = self._log.state.run
        if run is None:
            await trio.lowlevel.checkpoint()
            return False
        if self.task is not None:
            await self._log.commit(journal.PauseAsked(run.id))
        elif run.phase != "paused":
            await self._end_suspended(Outcome("paused"))
        return True

    async def resume(self) -> bool:
        """Let a run go on that is paused, or was asked to pause; say whether there was one."""
        run = self._log.state.run
        if run is None or not (run.phase == "paused" or run.pausing):
            await trio.lowlevel.checkpoint()
            return False
        go_on = self._events.go_on(run.id, "resume")
        if self.task is not None:
            await self._log.commit(go_on)
        else:
            await self.begin(go_on)
        return True

    def hold(self) -> None:
        """Begin nothing any more, and leave the run at its next boundary as if the process had ended there."""
        self._engine.held = True

    async def stop(self) -> None:
        """Stop working at once, and wait until nothing works any more; the journal says how to go on."""
        if self.task is not None:
            self.task.cancel()
            await self._ended.wait()

    # --- ending -----------------------------------------------------------------------------------

    async def ended(self, done: TaskDone) -> None:
        """Journal how the run ended.

        Raises:
            PersistenceError: if the journal could not be written, now or by the run.
        """
        self.task = None
        await self.finish(self._outcome(done))

    def _outcome(self, done: TaskDone) -> Outcome:
        if isinstance(self._log.broken, PersistenceError):
            raise self._log.broken
        match done.reason:
            case Crashed(error) if isinstance(error, Exception):
                return failed(error)
            case Crashed(fatal):
                return Outcome("failed", f"{type(fatal).__name__}: {fatal}", cause="error")
            case Killed():
                return Outcome("cancelled", self._cancelled or "cancelled")
            case _:
                outcome: Outcome = done.value
        if outcome.outcome in SUSPENDED and self._cancelled is not None:
            # The cancel came when the run had just begun to wait, and was answered with yes.
            return Outcome("cancelled", self._cancelled)
        return outcome

    async def finish(self, outcome: Outcome) -> None:
        """Journal how the open run ended; begin the next one in the same step if messages wait for that."""
        state = self._log.state
        if state.run is None or (self._engine.held and outcome.outcome == "paused" and not state.run.pausing):
            return
        if self._goes_on(state, outcome):
            await self.begin(self._events.go_on(state.run.id, "resume"))
            return
        seconds = self._actor.environment.monotonic() - self._begun_at
        events = self._events.finish(state, outcome, seconds)
        following = self._next(state, outcome)
        if following:
            # The next run follows without an idle moment in between.
            await self.begin(*events, *following)
            return
        await self._log.commit(*events)
        if self._log.state.run is None and self._log.state.queue and outcome.outcome != "completed":
            reason = f"the run was not completed: {outcome.outcome}; the next message of a person goes with them"
            self._hold(reason)

    def _goes_on(self, state: State, outcome: Outcome) -> bool:
        """Say whether what the run began to wait for came when it had just begun to."""
        decided = outcome.outcome == "interrupted" and not undecided(state)
        resumed = outcome.outcome == "paused" and state.run is not None and not state.run.pausing
        return decided or resumed or (outcome.outcome == "waiting" and not state.deferred)

    def _next(self, state: State, outcome: Outcome) -> list[journal.JournalEvent]:
        if outcome.outcome == "completed":
            return self._following(state)
        if outcome.outcome == "cancelled" and self._replaced and state.queue:
            taken_back = self._events.roll_back(state) if self._replaced == "rollback" else []
            return [*taken_back, self._events.start("message"), *self._events.deliveries(state)]
        return []

    def _following(self, state: State) -> list[journal.JournalEvent]:
        following = self._events.follow_up(state, self._agent.limits.self_started)
        if state.queue and not following:
            self._hold(HELD.format(count=state.counters.self_started))
        return following

    def _hold(self, reason: str) -> None:
        self._publisher.publish(QueueHeld, "", reason=reason, queued=len(self._log.state.queue))

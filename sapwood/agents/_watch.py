"""The watch: what time brings to a conversation although nobody asks anything."""

from __future__ import annotations

from sapwood.actors import Actor, Crashed, TaskDone, TaskRef
from sapwood.agents._alarms import Alarms
from sapwood.agents._decisions import NOBODY
from sapwood.agents._engine import RunEngine
from sapwood.agents._log import Log
from sapwood.agents._outcome import Outcome
from sapwood.agents._run_keeper import RunKeeper
from sapwood.agents._sub_agents import SubAgentKeeper
from sapwood.agents._turn import is_about_a_call


class Watch:
    """Sees to interrupts that nobody decides in time, and to work that goes on elsewhere.

    Args:
        actor: The server.
        log: The conversation.
        engine: Knows what becomes of an interrupt, and how to ask about work.
        runs: Keeps the run.
        sub_agents: Keeps those whose work goes on, and knows who is done.
    """

    def __init__(self, actor: Actor, log: Log, engine: RunEngine, runs: RunKeeper, sub_agents: SubAgentKeeper) -> None:
        self._actor = actor
        self._log = log
        self._engine = engine
        self._runs = runs
        self._sub_agents = sub_agents
        self._alarms = Alarms(actor, log)
        self._polling: TaskRef | None = None

    @property
    def waiting(self) -> bool:
        """Whether time, or a sub-agent at work, will bring something."""
        return self._alarms.waiting or self._polling is not None or self._sub_agents.at_work

    def set(self) -> None:
        """Set the alarm for whatever comes next."""
        self._alarms.set(interrupts=self._runs.task is None, polls=self._polling is None)

    async def tend(self) -> None:
        """See to everything whose time has come."""
        if self._runs.task is None:
            await self._expire()
            await self._runs.go_on_if_ready()
        now = self._actor.environment.wall()
        due = any(each.deferral is not None and each.deferral.next_at <= now for each in self._log.state.deferred)
        ready = self._sub_agents.ready()
        if (due or ready) and self._polling is None:
            self._polling = self._actor.start_task(self._engine.polls.run, ready, name="polls")

    async def _expire(self) -> None:
        now = self._actor.environment.wall()
        for interrupt in (each for each in self._log.state.expired(now) if not each.path):
            about_a_call = is_about_a_call(self._log.state, interrupt)
            await self._log.commit(*self._engine.decisions.expire(interrupt, now))
            if not about_a_call and self._log.state.interrupt(interrupt.id) is None:
                # It held back the run as a whole, which would ask again as soon as it went on.
                await self._runs.finish(Outcome("failed", NOBODY, cause="error"))

    async def polled(self, done: TaskDone) -> bool:
        """Take note of the end of polling; say whether this was it.

        Raises:
            Exception: what went wrong with it, such as a journal that cannot be written.
        """
        if done.task is not self._polling:
            return False
        self._polling = None
        if isinstance(done.reason, Crashed):
            raise done.reason.exception
        await self.tend()
        return True

    def stop_polling(self) -> None:
        """Ask about nothing any more; what is being asked comes to nothing."""
        if self._polling is not None:
            self._polling.cancel()

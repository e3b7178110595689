"""The events with which runs begin and end."""

from __future__ import annotations

import attrs

from sapwood.actors import Environment
from sapwood.agents._outcome import Outcome
from sapwood.agents._turn import leave_behind, settle
from sapwood.conversation import RunTrigger, State, Until, journal

SUPERSEDED = "the conversation went on before everything was decided"


@attrs.frozen
class RunEvents:
    """Builds journal events; writes nothing.

    Args:
        environment: Wall clock and ids.
    """

    _environment: Environment

    def start(self, trigger: RunTrigger, until: Until | None = None) -> journal.RunStarted:
        """A new run."""
        return journal.RunStarted(self._environment.new_id("run_"), trigger, self._environment.wall(), until)

    def go_on(self, run_id: str, trigger: RunTrigger) -> journal.RunStarted:
        """An open run goes on."""
        return journal.RunStarted(run_id, trigger, self._environment.wall())

    def deliveries(self, state: State) -> list[journal.JournalEvent]:
        """All messages that wait join the conversation."""
        return [journal.MessageUnqueued(item.id) for item in state.queue]

    def finish(self, state: State, outcome: Outcome, seconds: float = 0.0) -> list[journal.JournalEvent]:
        """The open run ends, or is suspended; what ends leaves nothing open behind."""
        assert state.run is not None
        events = [*outcome.events]
        if journal.AFTER_RUN[outcome.outcome] is None:
            events += settle(state, outcome.detail or outcome.outcome, self._environment.new_id)
        at = self._environment.wall()
        ended = journal.RunFinished(state.run.id, outcome.outcome, outcome.detail, at, seconds, outcome.cause)
        return [*events, ended]

    def follow_up(self, state: State, most: int) -> list[journal.JournalEvent]:
        """A run for the messages that wait; none if the agent has begun `most` runs in a row by itself (AR-24.6)."""
        if any(item.by_person for item in state.queue):
            return [self.start("queue"), *self.deliveries(state)]
        if state.queue and state.counters.self_started < most:
            return [self.start("self"), *self.deliveries(state)]
        return []

    def roll_back(self, state: State) -> list[journal.JournalEvent]:
        """What was said in the open run is taken back; nothing, if nobody knows any more where it began."""
        ids = [message.id for message in state.messages]
        if state.run is None or (state.run.since and state.run.since not in ids):
            return []
        begin = ids.index(state.run.since) + 1 if state.run.since else 0
        return [journal.MessagesReplaced(tuple(ids[begin:]), source="rollback")]

    def supersede(self, state: State) -> list[journal.JournalEvent]:
        """What is open ends, because somebody has said something instead of deciding (BR-25)."""
        if state.run is None:
            return leave_behind(state, self._environment.new_id)
        finished = journal.RunFinished(state.run.id, "cancelled", "superseded", self._environment.wall())
        return [*settle(state, SUPERSEDED, self._environment.new_id), finished]

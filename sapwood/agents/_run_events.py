"""The events with which runs begin and end."""

from __future__ import annotations

import attrs

from sapwood.actors import Environment
from sapwood.agents._engine import Outcome
from sapwood.agents._turn import leave_behind, settle
from sapwood.conversation import RunTrigger, State, journal

SUPERSEDED = "the conversation went on before everything was decided"


@attrs.frozen
class RunEvents:
    """Builds journal events; writes nothing.

    Args:
        environment: Wall clock and ids.
    """

    _environment: Environment

    def start(self, trigger: RunTrigger) -> journal.RunStarted:
        """A new run."""
        return journal.RunStarted(self._environment.new_id("run_"), trigger, self._environment.wall())

    def go_on(self, run_id: str, trigger: RunTrigger) -> journal.RunStarted:
        """An open run goes on."""
        return journal.RunStarted(run_id, trigger, self._environment.wall())

    def deliveries(self, state: State) -> list[journal.JournalEvent]:
        """All messages that wait join the conversation."""
        return [journal.MessageUnqueued(item.id) for item in state.queue]

    def finish(self, state: State, outcome: Outcome) -> list[journal.JournalEvent]:
        """The open run ends, or is suspended; what ends leaves nothing open behind."""
        assert state.run is not None
        events = [*outcome.events]
        if outcome.outcome != "interrupted":
            events += settle(state, outcome.detail or outcome.outcome, self._environment.new_id)
        events.append(journal.RunFinished(state.run.id, outcome.outcome, outcome.detail, self._environment.wall()))
        return events

    def supersede(self, state: State) -> list[journal.JournalEvent]:
        """What is open ends, because somebody has said something instead of deciding (BR-25)."""
        if state.run is None:
            return leave_behind(state, self._environment.new_id)
        finished = journal.RunFinished(state.run.id, "cancelled", "superseded", self._environment.wall())
        return [*settle(state, SUPERSEDED, self._environment.new_id), finished]

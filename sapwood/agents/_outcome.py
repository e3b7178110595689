"""How the engine left a run."""

from __future__ import annotations

import attrs

from sapwood.conversation import AssistantMessage, State, ToolResult, Until, journal
from sapwood.errors import LimitReached


@attrs.frozen
class Outcome:
    """How the engine left a run.

    Attributes:
        outcome: `completed`, `failed`, `interrupted`, `paused` or `waiting`; `cancelled` if somebody ended it.
        detail: Why, if it did not complete as it should.
        events: Last changes, to be journaled together with the end of the run.
        cause: Why it failed, for code.
    """

    outcome: journal.RunOutcome
    detail: str = ""
    events: tuple[journal.JournalEvent, ...] = ()
    cause: journal.Cause = ""


def failed(error: Exception) -> Outcome:
    """Return the outcome of a run in which something broke."""
    return Outcome("failed", f"{type(error).__name__}: {error}", cause="error")


def used_up(error: LimitReached) -> Outcome:
    """Return the outcome of a run that may not go on."""
    return Outcome("failed", str(error), cause="limit")


def answered(answer: AssistantMessage, until: Until | None, events: tuple[journal.JournalEvent, ...]) -> Outcome:
    """Return the outcome of a run that ends with an answer without tool calls (AR-24.60)."""
    if answer.stop_reason == "refused":
        return Outcome("failed", "the model refused to answer", events, "refused")
    if until is not None:
        missing = " or ".join(until.tools)
        return Outcome("failed", f"the model stopped without calling {missing}", events, "not_called")
    return Outcome("completed", "" if answer.stop_reason == "end" else answer.stop_reason, events)


def result_wanted(state: State) -> ToolResult | None:
    """Return the result that the open run was to bring about; None if it has not yet, or was to give an answer."""
    run = state.run
    if run is None or run.until is None:
        return None
    ids = [message.id for message in state.messages]
    begin = ids.index(run.since) + 1 if run.since in ids else 0
    for message in state.messages[begin:]:
        wanted = isinstance(message, ToolResult) and message.name in run.until.tools
        if isinstance(message, ToolResult) and wanted and not (run.until.success and message.is_error):
            return message
    return None

"""Decisions: what people have decided about open interrupts is carried out, once."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

from sapwood.agents._hooks import intents
from sapwood.agents._log import Log
from sapwood.agents._turn import NOT_RUN, UNKNOWN_OUTCOME, error_result, is_about_a_call
from sapwood.conversation import (
    EXPIRY,
    Decision,
    Interrupt,
    Problem,
    ToolCall,
    ToolResult,
    edited_call,
    journal,
)
from sapwood.middleware import MiddlewareContext

NOBODY: Final = "nobody answered in time"


class Decisions:
    """Acts on what people have decided (UP-11).

    Args:
        log: The conversation.
        context: Makes the context that middleware sees.
    """

    def __init__(self, log: Log, context: Callable[[], MiddlewareContext]) -> None:
        self._log = log
        self._context = context

    async def carry_out(self) -> None:
        """Carry out what is decided, each decision together with the end of its interrupt."""
        for interrupt in self._log.state.interrupts:
            decision = self._log.state.decision(interrupt.id)
            if decision is not None:
                events = self._consequences(interrupt, decision)
                await self._log.commit(*events, journal.InterruptClosed(interrupt.id, "carried_out"))

    def expire(self, interrupt: Interrupt, now: float) -> list[journal.JournalEvent]:
        """Return what happens to an interrupt that nobody has decided in time (S3-120, UP-24).

        It is left to somebody else once, if it says so; else its call is not run, and the model is told.
        """
        backup = interrupt.patience is not None and EXPIRY not in interrupt.escalations
        if interrupt.on_expiry == "escalate" and backup:
            return [journal.InterruptDecided(Decision(interrupt.id, "escalate", reason=NOBODY, by=EXPIRY, at=now))]
        events: list[journal.JournalEvent] = []
        if is_about_a_call(self._log.state, interrupt):
            ran = interrupt.kind == "reconcile"
            text = (UNKNOWN_OUTCOME if ran else NOT_RUN).format(name=interrupt.call.name, why=NOBODY)
            events.append(journal.ToolFinished(self._failed(interrupt.call, text, "unknown" if ran else "denied")))
        return [*events, journal.InterruptClosed(interrupt.id, "expired")]

    def _consequences(self, interrupt: Interrupt, decision: Decision) -> list[journal.JournalEvent]:
        call = interrupt.call
        if not is_about_a_call(self._log.state, interrupt):
            return []  # about the run as a whole: whoever asked finds the decision in the state
        match decision.verdict:
            case "approve" | "edit":
                return self._go_ahead(edited_call(interrupt, decision))
            case "answer":
                result = answer_result(call, decision, self._context().environment.new_id("msg_"))
                return [journal.ToolFinished(result)]
            case "reject" if interrupt.kind == "reconcile":
                return [journal.ToolFinished(self._failed(call, UNKNOWN_OUTCOME.format(name=call.name), "unknown"))]
            case _:
                by = f" by {decision.by}" if decision.by else ""
                reason = f": {decision.reason}" if decision.reason else ""
                text = NOT_RUN.format(name=call.name, why=f"rejected{by}{reason}")
                return [journal.ToolFinished(self._failed(call, text, "denied"))]

    def _go_ahead(self, call: ToolCall) -> list[journal.JournalEvent]:
        earlier = next((each for each in self._log.state.pending if each.call.id == call.id), None)
        if earlier is None:
            return intents(self._log, (call,))
        return [journal.ToolIntended(call, earlier.key, earlier.attempt + 1)]

    def _failed(self, call: ToolCall, text: str, problem: Problem) -> ToolResult:
        return error_result(call, text, self._context().environment.new_id("msg_"), problem)


def answer_result(call: ToolCall, decision: Decision, message_id: str) -> ToolResult:
    """Return the result that a person gave for a call: the answer `result` as it is, any other as JSON."""
    answer = decision.arguments
    text = answer["result"] if set(answer) == {"result"} else answer
    content = text if isinstance(text, str) else json.dumps(text, ensure_ascii=False)
    return ToolResult(call_id=call.id, name=call.name, content=content, id=message_id)

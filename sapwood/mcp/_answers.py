"""Answers: how the end of an agent's run is told to an MCP client."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs

from sapwood.agents import PendingApproval
from sapwood.conversation import RunFinished
from sapwood.errors import RegistryUnavailable, StoreUnavailable

if TYPE_CHECKING:
    from mcp_types import CallToolResult

WAITING: Final = "waiting_for_approval"


@attrs.frozen
class Said:
    """What a call said to an agent.

    Attributes:
        conversation: The conversation, as the client names it.
        message_id: Id of the message; sent again with it, a message counts once, and gets the answer it got.
    """

    conversation: str
    message_id: str


def ended(said: Said, end: RunFinished, approvals: Sequence[PendingApproval]) -> CallToolResult:
    """Return the answer for a run that has ended, is paused, or waits for people.

    | outcome       | status                 | error |
    |---------------|------------------------|-------|
    | `completed`   | `completed`            | no    |
    | `interrupted` | `waiting_for_approval` | no    |
    | `paused`      | `paused`               | no    |
    | `failed`      | `failed`               | yes   |
    | `cancelled`   | `cancelled`            | yes   |
    """
    told: dict[str, Any] = {"status": end.outcome, **attrs.asdict(said), "text": end.text}
    if end.outcome == "interrupted":
        told |= {"status": WAITING, "approvals": [_approval(each) for each in approvals]}
        return _result(told, json.dumps(told, ensure_ascii=False))
    if end.outcome in ("failed", "cancelled"):
        told |= {"reason": end.reason, "retryable": end.cause == "model"}
        return _result(told, f"the run was not completed: {end.outcome} ({end.reason})", is_error=True)
    return _result(told, end.text or end.outcome)


def unavailable(said: Said, error: RegistryUnavailable | StoreUnavailable) -> CallToolResult:
    """Return the answer while nobody can tell how the agent is: an error that is worth another attempt (S4-048)."""
    retry_after = error.retry_after if isinstance(error, RegistryUnavailable) else 1.0
    told = {"status": "unavailable", **attrs.asdict(said), "retryable": True, "retry_after": retry_after}
    return _result(told, f"the agent is unavailable; try again in {retry_after:g} s", is_error=True)


def refused(problem: str) -> CallToolResult:
    """Return the answer to a call that cannot work."""
    told = {"status": "refused", "reason": problem, "retryable": False}
    return _result(told, problem, is_error=True)


def failed(said: Said, problem: str) -> CallToolResult:
    """Return the answer for an agent that cannot be started."""
    told = {"status": "failed", **attrs.asdict(said), "reason": problem, "retryable": False}
    return _result(told, problem, is_error=True)


def stopped(said: Said) -> CallToolResult:
    """Return the answer for an agent that was stopped before the end of the run; the run goes on at its next start."""
    told = {"status": "stopped", **attrs.asdict(said), "retryable": True, "retry_after": 1.0}
    return _result(told, "the agent was stopped before it had answered; ask again", is_error=True)


def _approval(pending: PendingApproval) -> dict[str, Any]:
    interrupt = pending.interrupt
    call = interrupt.call
    return {
        "id": interrupt.id,
        "kind": interrupt.kind,
        "reason": interrupt.reason,
        "tool": call.name,
        "arguments": call.arguments,
    }


def _result(told: dict[str, Any], text: str, *, is_error: bool = False) -> CallToolResult:
    from mcp_types import CallToolResult, TextContent

    return CallToolResult(content=[TextContent(text=text)], structured_content=told, is_error=is_error)

"""Sub-agents as their parent's conversation knows them."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import attrs

from sapwood.actors import record
from sapwood.conversation._evolve import evolve
from sapwood.conversation._interrupts import Interrupt
from sapwood.conversation._json import copy_json
from sapwood.conversation._messages import ToolCall, Usage

SubAgentOutcome: TypeAlias = Literal["", "completed", "failed", "cancelled"]
"""How the work of a sub-agent ended; empty while it goes on."""

ORIGIN = "sub_agent"
"""Where the details of a lifted interrupt say whose it is."""


def _copy_limits(limits: dict[str, Any]) -> dict[str, Any]:
    copied: dict[str, Any] = copy_json(limits, "limits")
    return copied


@record("conversation.sub_agent")
class SubAgent:
    """A sub-agent, as its parent keeps it.

    Attributes:
        call: The call that asked for it; its id names the sub-agent within the conversation.
        key: The idempotency key of that call.
        agent_id: The sub-agent's own conversation, `parent/call id`; readable also when it has ended (S3-013).
        agent: Its type.
        background: Whether the parent's run goes on without it.
        limits: What its run may use, by the names of `Limits`; fixed when it is ordered.
        outcome: How its work ended; empty while it goes on.
        detail: Why, if it did not complete.
        usage: Tokens that it used, with those of its own sub-agents; known at its end.
    """

    call: ToolCall
    key: str
    agent_id: str
    agent: str
    background: bool = False
    limits: dict[str, Any] = attrs.field(factory=dict[str, Any], converter=_copy_limits)
    outcome: SubAgentOutcome = ""
    detail: str = ""
    usage: Usage = attrs.field(factory=Usage)

    @property
    def id(self) -> str:
        """The id of the call that asked for it."""
        return self.call.id


def lift(interrupt: Interrupt, sub_agent: SubAgent, parent: str) -> Interrupt:
    """Return an interrupt of a sub-agent as its parent lists it: with an id and a path that are unique there (BR-23).

    Args:
        interrupt: The interrupt in the conversation of the sub-agent.
        sub_agent: Whose it is.
        parent: Name of the parent.
    """
    origin = {"call_id": sub_agent.id, "agent_id": sub_agent.agent_id, "interrupt_id": interrupt.id}
    return evolve(
        interrupt,
        id=f"{sub_agent.id}/{interrupt.id}",
        path=(parent, sub_agent.agent, *interrupt.path[1:]),
        details={**interrupt.details, ORIGIN: origin},
    )


def lifted_from(interrupt: Interrupt) -> tuple[str, str] | None:
    """Return the id of the sub-agent that an interrupt came up from and its id there; None for one of its own."""
    origin: Any = interrupt.details.get(ORIGIN) if interrupt.path else None
    return None if origin is None else (origin["call_id"], origin["interrupt_id"])

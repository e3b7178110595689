"""Errors of agents and their runs."""

from __future__ import annotations

from sapwood.errors._root import SapwoodError


class RunInProgress(SapwoodError):
    """A message was to start a run at once, and another run is open; nothing was changed.

    Attributes:
        agent_id: The agent.
        run_id: The open run.
        phase: What it does: `running`, `interrupted`, `paused` or `waiting`.
    """

    def __init__(self, agent_id: str, run_id: str, phase: str) -> None:
        super().__init__(
            f"agent {agent_id!r}: expected no open run; got one that is {phase}: wait for its end, cancel it, or send "
            f"the message with while_running='queue'"
        )
        self.agent_id = agent_id
        self.run_id = run_id
        self.phase = phase


class LimitReached(SapwoodError):
    """A run may not go on because it has used up one of its limits.

    Attributes:
        limit: Name of the limit, such as `tokens`.
        allowed: What the run was allowed, in the unit of the limit.
    """

    def __init__(self, limit: str, allowed: float, unit: str) -> None:
        super().__init__(f"the run used up its limit of {allowed} {unit}")
        self.limit = limit
        self.allowed = allowed

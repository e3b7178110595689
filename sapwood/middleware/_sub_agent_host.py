"""What the `SubAgents` middleware needs of the layer that runs agents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import attrs

from sapwood.middleware._context import AgentInfo
from sapwood.models import ChatModel
from sapwood.tools import Pending, Tool, ToolContext


class RunLimits(Protocol):
    """What one run may use; `sapwood.Limits` is it."""

    @property
    def model_calls(self) -> int:
        """Most model calls."""
        ...

    @property
    def steps(self) -> int | None:
        """Most answers of the model."""
        ...

    @property
    def tokens(self) -> int | None:
        """Most tokens."""
        ...

    @property
    def tool_calls(self) -> int | None:
        """Most tool calls."""
        ...

    @property
    def seconds(self) -> float | None:
        """Most seconds."""
        ...


@attrs.frozen
class NewAgent:
    """An agent that a model has thought up.

    Attributes:
        prompt: Its system prompt.
        tools: Its tools, of those that may be given.
        model: Its model; None for the parent's own.
    """

    prompt: str
    tools: tuple[Tool[..., Any], ...] = ()
    model: ChatModel | None = None


@attrs.frozen
class SubAgentOrder:
    """What a model asks a sub-agent to do.

    Attributes:
        agent: Its type.
        task: What it is asked to do.
        background: Whether the run goes on without it.
    """

    agent: str
    task: str
    background: bool = False


@attrs.frozen
class SubAgentPlan:
    """How a sub-agent is made: the same for the same call, also in a later process.

    Attributes:
        agent: Its configuration, or that of an agent that a model has thought up.
        result: What its result must look like: an attrs class, a JSON schema, or None for a text.
        limits: What its run may use, beside its own limits and what is left of its parent's.
        inherit: Keys of the parent's metadata that its conversation begins with.
        approvals: Whether the parent's rules about tools that need approval hold for it.
    """

    agent: AgentInfo | NewAgent
    result: type | Mapping[str, Any] | None
    limits: Sequence[RunLimits]
    inherit: tuple[str, ...]
    approvals: bool


@attrs.frozen
class SubAgentReport:
    """How far a sub-agent is.

    Attributes:
        agent: Its type.
        status: `queued`, `running`, `interrupted`, `waiting`, `paused`, `completed`, `failed` or `cancelled`.
        text: Its result, or why there is none.
    """

    agent: str
    status: str
    text: str = ""


class SubAgentHost(Protocol):
    """Runs sub-agents for the tools of one conversation."""

    async def order(self, order: SubAgentOrder, context: ToolContext) -> Pending | str:
        """Have a sub-agent work; durable when it returns, and the same sub-agent for the same call.

        Raises:
            ToolError: if it may not; nothing was changed.
        """
        ...

    async def result(self, sub_agent_id: str) -> Pending | str:
        """Return the result of a sub-agent, or that it is still at work.

        Raises:
            ToolError: if it failed or was cancelled.
        """
        ...

    async def report(self, sub_agent_id: str) -> SubAgentReport | None:
        """Say how far a sub-agent is; None if there is no such one."""
        ...

    async def cancel(self, sub_agent_id: str) -> bool:
        """Have a sub-agent stop; say whether it was at work."""
        ...

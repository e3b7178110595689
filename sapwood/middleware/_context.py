"""What a middleware may know and use while it works for one agent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import attrs

from sapwood.actors import Environment
from sapwood.conversation import State
from sapwood.files import FileService
from sapwood.models import ChatModel
from sapwood.tools import Toolbox

if TYPE_CHECKING:
    from sapwood.middleware._sub_agent_host import SubAgentHost


class AgentInfo(Protocol):
    """What a middleware may know of the agent whose stack it is in."""

    @property
    def name(self) -> str:
        """The agent's name."""
        ...

    @property
    def model(self) -> ChatModel:
        """The agent's model, which a middleware may use for calls of its own."""
        ...


@attrs.frozen
class MiddlewareContext:
    """One agent at work, as its middleware sees it.

    Attributes:
        agent_id: Id of the conversation.
        agent: Its configuration.
        run_id: The open run; empty outside of one.
        environment: Time, randomness, ids and threads.
        files: Finds the filesystem of a scope.
        tools: The agent's tools and those of its middleware; while these are being collected, the agent's own.
        host: Values that the host gave for this conversation; read-only, never stored.
        sub_agents: Runs sub-agents; None where there is no server.
        local: A dict of the server's own for what need not survive a restart; each middleware uses its name as key.
    """

    agent_id: str
    agent: AgentInfo
    run_id: str
    environment: Environment
    files: FileService
    tools: Toolbox
    host: Mapping[str, Any]
    local: dict[str, Any]
    _read_state: Callable[[], State] = attrs.field(alias="read_state", repr=False)
    sub_agents: SubAgentHost | None = attrs.field(default=None, repr=False)

    @property
    def state(self) -> State:
        """The conversation as it is now."""
        return self._read_state()

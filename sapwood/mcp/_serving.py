"""Serving: the agents of a runtime as tools of an MCP server."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, cast

import trio

from sapwood.actors import Environment, get_logger
from sapwood.agents import Agent, Session, Sessions
from sapwood.conversation import State, UserMessage
from sapwood.errors import (
    ActorDown,
    DuplicateName,
    InvalidOption,
    RegistryUnavailable,
    RuntimeClosed,
    SapwoodError,
    StoreUnavailable,
    SubscriptionLagged,
)
from sapwood.mcp._answers import Said, ended, failed, refused, stopped, unavailable
from sapwood.mcp._connection import KEY_NAME
from sapwood.mcp._extra import check_installed
from sapwood.mcp._stdio import open_stdio

if TYPE_CHECKING:
    from mcp.server import Server
    from mcp_types import CallToolRequestParams, CallToolResult, ListToolsResult, PaginatedRequestParams

AsgiApp: TypeAlias = Callable[
    [
        MutableMapping[str, Any],
        Callable[[], Awaitable[MutableMapping[str, Any]]],
        Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ],
    Awaitable[None],
]

LOGGER: Final = "sapwood.mcp"

GIVE_UP_WITHIN: Final = 10.0
"""Seconds that a cancelled call has to cancel the run that it had started."""

_FOREIGN = re.compile(r"[^a-zA-Z0-9_-]")

SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "conversation": {"type": "string", "minLength": 1, "description": "Which conversation; a new id begins one."},
        "message": {"type": "string", "minLength": 1, "description": "What to say to the agent."},
        "message_id": {
            "type": "string",
            "description": "Id of the message. Sent again with it, as after an approval, it gets its answer.",
        },
    },
    "required": ["conversation", "message"],
    "additionalProperties": False,
}


class Host(Protocol):
    """What is needed of a runtime."""

    @property
    def environment(self) -> Environment:
        """Time, randomness, ids and threads."""
        ...

    sessions: Sessions


def conversation_of(agent: str, conversation: str) -> str:
    """Return the id in the runtime of a conversation that a client names.

    Each agent has its own, so that no client reaches a conversation that was not begun this way.
    """
    return f"mcp:{agent}:{conversation}"


class ServedAgents:
    """Agents as an MCP server; made by `serve_agents`."""

    def __init__(
        self, host: Host, agents: Mapping[str, Agent], name: str, naming: Callable[[str, str], str], instructions: str
    ) -> None:
        self._host = host
        self._agents = agents
        self._name = name
        self._naming = naming
        self._instructions = instructions

    def __repr__(self) -> str:
        return f"<ServedAgents {', '.join(self._agents)}>"

    @property
    def tools(self) -> tuple[str, ...]:
        """Names of the tools, one for each agent."""
        return tuple(self._agents)

    async def run_stdio(self) -> None:
        """Serve one client over standard input and output, until it closes its end.

        Meanwhile what other code prints goes to standard error. A cancelled caller is let go at once.

        Raises:
            InvalidOption: if this process serves its standard input and output already.
        """
        server = self._server()
        async with open_stdio(self._host.environment) as (read, write):
            await server.run(read, write, server.create_initialization_options())

    def app(
        self, path: str = "/mcp", *, allowed_hosts: Sequence[str] = (), allowed_origins: Sequence[str] = ()
    ) -> AsgiApp:
        """Return an ASGI application that serves clients over streamable HTTP; it needs its lifespan to be run.

        It asks nobody who they are: put authentication before it.

        Args:
            path: Where it listens.
            allowed_hosts: Values of the `Host` header that are taken, such as `example.org` or `example.org:*`; by
                default those of this machine alone.
            allowed_origins: Values of the `Origin` header that are taken, beside requests that have none.
        """
        from mcp.server.transport_security import TransportSecuritySettings

        security = TransportSecuritySettings(
            allowed_hosts=list(allowed_hosts) or ["127.0.0.1:*", "localhost:*", "[::1]:*"],
            allowed_origins=list(allowed_origins) or ["http://127.0.0.1:*", "http://localhost:*", "http://[::1]:*"],
        )
        app = self._server().streamable_http_app(streamable_http_path=path, transport_security=security)
        return cast("AsgiApp", app)

    def _server(self) -> Server[Any]:
        from mcp.server import Server

        return Server(
            self._name,
            instructions=self._instructions or None,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
        )

    async def _list_tools(self, ctx: Any, params: PaginatedRequestParams | None) -> ListToolsResult:
        from mcp_types import ListToolsResult, Tool, ToolAnnotations

        await trio.lowlevel.checkpoint()
        hints = ToolAnnotations(read_only_hint=False, open_world_hint=True)
        listed = [
            Tool(
                name=name,
                description=f"Say something to the agent {agent.name!r} and get its answer.",
                input_schema=SCHEMA,
                annotations=hints,
            )
            for name, agent in self._agents.items()
        ]
        return ListToolsResult(tools=listed)

    async def _call_tool(self, ctx: Any, params: CallToolRequestParams) -> CallToolResult:
        agent = self._agents.get(params.name)
        if agent is None:
            return refused(f"there is no tool {params.name!r}; there are: {', '.join(self._agents)}")
        arguments: dict[str, Any] = params.arguments or {}
        problem = _problem(arguments)
        if problem:
            return refused(problem)
        meta: Mapping[str, Any] = ctx.meta or {}
        key: object = meta.get(KEY_NAME)
        message_id = arguments.get("message_id") or (key if isinstance(key, str) else "")
        said = Said(arguments["conversation"], message_id or self._host.environment.new_id("msg_"))
        try:
            return await self._ask(agent, said, arguments["message"])
        except (RegistryUnavailable, StoreUnavailable) as error:
            return unavailable(said, error)
        except (ActorDown, RuntimeClosed, SubscriptionLagged):
            return stopped(said)
        except InvalidOption as error:
            return refused(str(error))
        except SapwoodError as error:
            # Its text is for the operator; a client learns nothing of the inside.
            get_logger(LOGGER).error("agent cannot answer", agent=agent.name, error=f"{type(error).__name__}: {error}")
            return failed(said, "the agent cannot be started; its operator finds the reason in the log")

    async def _ask(self, agent: Agent, said: Said, text: str) -> CallToolResult:
        agent_id = self._naming(agent.name, said.conversation)
        session = await self._host.sessions.ensure_running(agent, agent_id)
        is_first = not _was_said(session.state, said.message_id)
        try:
            async with session.send(text, message_id=said.message_id) as run:
                end = await run.finish()
                return stopped(said) if end is None else ended(said, end, session.approvals)
        except trio.Cancelled:
            if is_first:
                with trio.CancelScope(shield=True, deadline=trio.current_time() + GIVE_UP_WITHIN):
                    await _give_up(session, said.message_id)
            raise


async def _give_up(session: Session, message_id: str) -> None:
    """Take back a message that still waits, or cancel the run that it alone began."""
    try:
        if await session.cancel_queued(message_id) == "delivered" and _began_alone(session.state, message_id):
            await session.cancel("the MCP client cancelled its call")
    except SapwoodError:
        # Whoever keeps the agent from answering keeps the run as well; there is nobody left to tell.
        return


def _was_said(state: State, message_id: str) -> bool:
    return any(each.id == message_id for each in state.messages) or any(item.id == message_id for item in state.queue)


def _began_alone(state: State, message_id: str) -> bool:
    """Say whether the open run has this message of a person and no other."""
    if state.run is None:
        return False
    ids = [message.id for message in state.messages]
    if state.run.since and state.run.since not in ids:
        return False
    begin = ids.index(state.run.since) + 1 if state.run.since else 0
    return [each.id for each in state.messages[begin:] if isinstance(each, UserMessage)] == [message_id]


def _problem(arguments: Mapping[str, Any]) -> str:
    unknown = [name for name in arguments if name not in SCHEMA["properties"]]
    if unknown:
        return f"argument {unknown[0]!r}: unknown; there are: {', '.join(SCHEMA['properties'])}"
    for name in SCHEMA["properties"]:
        value = arguments.get(name, "" if name == "message_id" else None)
        if not isinstance(value, str) or (name in SCHEMA["required"] and not value.strip()):
            return f"argument {name!r}: expected a text that is not blank; got {value!r}"
    return ""


def serve_agents(
    runtime: Host,
    agents: Sequence[Agent],
    *,
    name: str = "sapwood",
    instructions: str = "",
    conversation: Callable[[str, str], str] = conversation_of,
) -> ServedAgents:
    """Offer agents to MCP clients: each is a tool `ask_NAME` that takes a conversation and a message.

    A call runs a turn and returns the final text. If the run waits for people, the call returns at once with the
    status `waiting_for_approval` and what is to be decided; when that has been done, the same `message_id` gets the
    answer. While nobody can tell how the agent is, the answer is an error that says to try again. A client that
    cancels its call cancels the run, if this call began it and nobody else has said anything in it.

    Args:
        runtime: The open runtime.
        agents: The agents, each with a name of its own.
        name: Name of the server.
        instructions: What clients are told about it.
        conversation: Makes the id of a conversation in the runtime, of the agent's name and what the client calls it;
            by default `mcp:AGENT:CONVERSATION`. A function that does not tell agents apart lets clients of one reach
            conversations of another.

    Raises:
        InvalidOption: if there is no agent.
        DuplicateName: if two agents have one name, as far as tools can spell it.
        MissingExtra: if the extra `mcp` is not installed.
    """
    check_installed("serve_agents")
    tools: dict[str, Agent] = {}
    for agent in agents:
        if not isinstance(agent, Agent):
            raise InvalidOption(f"serve_agents: expected agents; got {agent!r}")
        tool = f"ask_{_FOREIGN.sub('_', agent.name)}"
        if tool in tools:
            raise DuplicateName("tool", tool, tools[tool])
        tools[tool] = agent
    if not tools:
        raise InvalidOption("serve_agents: expected at least one agent; got none")
    return ServedAgents(runtime, tools, name, conversation, instructions)

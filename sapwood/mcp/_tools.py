"""McpTools: offers the tools of an MCP server to an agent."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal, TypeAlias, cast, get_args

import attrs
import trio

from sapwood.conversation import AssistantMessage, State, ToolSpec
from sapwood.errors import InvalidOption, McpCallLost, McpError, RegistryUnavailable, ToolError
from sapwood.mcp._client import CALL_WITHIN, McpClient, registry_here
from sapwood.mcp._listing import McpTool
from sapwood.mcp._schemas import CONTEXT, SchemaSignature
from sapwood.middleware import Approval, HookResult, HumanInTheLoop, Middleware, MiddlewareContext, ModelCall
from sapwood.models import ModelRequest
from sapwood.registry import Unavailable
from sapwood.tools import CrashResume, Tool, ToolContext

Approve: TypeAlias = Literal["never", "destructive", "writes", "always"]
"""Which calls a person is asked about: none, those of tools that may destroy or change something, or all."""

_APPROVES: Final[Mapping[Approve, Callable[[McpTool], bool]]] = {
    "never": lambda tool: False,
    "destructive": lambda tool: tool.destructive and not tool.read_only,
    "writes": lambda tool: not tool.read_only,
    "always": lambda tool: True,
}

_NAME_LIMIT: Final = 64
_FOREIGN = re.compile(r"[^a-zA-Z0-9_-]")


class McpTools(Middleware):
    """Offers the tools of one MCP server of the runtime; give one for each server.

    The tools are those that the server lists when the agent's server starts. Later changes of their schemas and
    descriptions reach the model with its next call, and so does that one is gone; new ones come with the next start.
    While the server is away its tools stay listed, and a call says that it is unavailable. Arguments are checked
    against the server's schema before anything is sent.

    A call that was under way when the process died is made again only if the server says that its tool is read-only,
    or idempotent and not destructive; else a person is asked what came of it.

    Args:
        server: The name given to `mcp_server`.
        only: Names of the tools to offer, as the server writes them; by default all.
        prefix: Put before every name, such as `files_`.
        timeout: Seconds that one call may take; None for no limit.
        approve: Which calls a person is asked about first, by the server's hints: `never`, `destructive`, `writes`
            or `always`. Do not name the same tools in `HumanInTheLoop`.
        trust_hints: Whether the server's hints are believed; if not, every tool counts as destructive.

    Raises:
        InvalidOption: if an option is out of its range. At the start of the agent's server: if the runtime has no
            such server, a name in `only` is not listed, or a tool is named like one that the agent has.
        McpUnavailable: at the start of the agent's server, if the MCP server was never connected.
        RegistryUnavailable: at the start of the agent's server, if the registry cannot tell.
    """

    def __init__(
        self,
        server: str,
        *,
        only: Collection[str] | None = None,
        prefix: str = "",
        timeout: float | None = CALL_WITHIN,
        approve: Approve = "never",
        trust_hints: bool = True,
    ) -> None:
        where = f"McpTools({server!r})"
        if not isinstance(server, str) or not server:
            raise InvalidOption(f"McpTools: expected the name of an MCP server; got {server!r}")
        if isinstance(only, str):
            raise InvalidOption(f"{where}, only: expected several names; got {only!r}: write only=({only!r},)")
        if _FOREIGN.search(prefix) or len(prefix) > _NAME_LIMIT // 2:
            raise InvalidOption(f"{where}, prefix: expected up to 32 of a-z, A-Z, 0-9, _ and -; got {prefix!r}")
        if timeout is not None and not (math.isfinite(timeout) and timeout > 0):
            raise InvalidOption(f"{where}: expected a timeout above 0 seconds, or None; got {timeout!r}")
        if approve not in get_args(Approve):
            raise InvalidOption(f"{where}, approve: expected {', '.join(get_args(Approve))}; got {approve!r}")
        self.server = server
        self.only = None if only is None else tuple(only)
        self.prefix = prefix
        self.timeout = timeout
        self.approve: Approve = approve
        self.trust_hints = trust_hints
        # One for each server stands in a stack, so the name is the instance's.
        vars(self)["name"] = where

    def tools(self, context: MiddlewareContext) -> Sequence[Tool[..., Any]]:
        client = McpClient(registry_here(self.name), self.server)
        offered = self._chosen(client.tools())
        names: dict[str, str] = {}
        for each in offered:
            name = self._name(each.name)
            if name in names:
                raise InvalidOption(
                    f"{self.name}: the tools {names[name]!r} and {each.name!r} are both {name!r} to a model, which "
                    f"knows no other letters; leave one out with only=(...)"
                )
            if name in context.tools:
                raise InvalidOption(
                    f"{self.name}: its tool {name!r} is named like one of agent {context.agent.name!r}; pass "
                    f"prefix={self.server + '_'!r}, or leave it out with only=(...)"
                )
            names[name] = each.name
        context.local[self.name] = names
        return [self._tool(client, each) for each in offered]

    def _chosen(self, listed: Sequence[McpTool]) -> list[McpTool]:
        if self.only is None:
            return list(listed)
        known = [each.name for each in listed]
        for name in self.only:
            if name not in known:
                raise InvalidOption(
                    f"{self.name}, only: the server has no tool {name!r}; there are: {', '.join(known) or 'none'}"
                )
        return [each for each in listed if each.name in self.only]

    def _name(self, name: str) -> str:
        """Return what the model calls a tool: providers take 64 characters of few kinds."""
        mapped = self.prefix + _FOREIGN.sub("_", name)
        if len(mapped) <= _NAME_LIMIT:
            return mapped
        digest = hashlib.sha256(name.encode(errors="backslashreplace")).hexdigest()[:8]
        return f"{mapped[: _NAME_LIMIT - 9]}_{digest}"

    def _trusted(self, tool: McpTool) -> McpTool:
        return tool if self.trust_hints else attrs.evolve(tool, read_only=False, destructive=True, idempotent=False)

    def _tool(self, client: McpClient, listed: McpTool) -> Tool[..., Any]:
        resume: CrashResume = self._trusted(listed).crash_resume
        signature = SchemaSignature(partial(_present, client, listed.name, listed))
        return Tool(
            function=_function(client, listed.name, self.timeout),
            spec=self._spec(listed),
            timeout=None,  # the client has its own, after which the server is told
            idempotent=resume == "rerun",
            crash_resume=resume,
            blocking=False,
            process=False,
            editable=None,
            poller=None,
            signature=cast("Any", signature),
        )

    def _spec(self, tool: McpTool) -> ToolSpec:
        return ToolSpec(self._name(tool.name), tool.description, tool.parameters)

    async def around_model_call(
        self, request: ModelRequest, call_next: ModelCall, context: MiddlewareContext
    ) -> AssistantMessage:
        names: Mapping[str, str] = context.local.get(self.name, {})
        listed = self._listed()
        if listed is not None:
            specs: list[ToolSpec] = []
            for spec in request.tools:
                if spec.name not in names:
                    specs.append(spec)
                elif names[spec.name] in listed:
                    specs.append(self._spec(listed[names[spec.name]]))
            request = attrs.evolve(request, tools=tuple(specs))
        return await call_next(request)

    async def after_model(self, state: State, context: MiddlewareContext) -> HookResult:
        if self.approve == "never":
            return None
        listed = self._listed() or {}
        rules: dict[str, Approval] = {}
        for name, original in context.local.get(self.name, {}).items():
            tool = listed.get(original)
            # Nobody knows what a tool does that is listed no more.
            if tool is None or _APPROVES[self.approve](self._trusted(tool)):
                rules[name] = Approval()
        return await HumanInTheLoop(rules).after_model(state, context)

    def _listed(self) -> Mapping[str, McpTool] | None:
        """Return the tools as they were listed last, by name; None if nobody can tell."""
        try:
            client = McpClient(registry_here(self.name), self.server)
            return {tool.name: tool for tool in client.tools()}
        except (InvalidOption, McpError, RegistryUnavailable):
            return None


def _present(client: McpClient, name: str, known: McpTool) -> McpTool | None:
    """Return a tool as it is listed now; as it was when nobody can tell; None if it is listed no more."""
    try:
        return next((tool for tool in client.tools() if tool.name == name), None)
    except (InvalidOption, McpError, RegistryUnavailable):
        return known


def _function(client: McpClient, name: str, timeout: float | None) -> Callable[..., Awaitable[Any]]:
    async def call(**given: Any) -> Any:
        context: ToolContext = given.pop(CONTEXT)
        try:
            result = await client.call(name, given, timeout=timeout, key=context.idempotency_key)
        except McpCallLost as error:
            if client.lookup() != Unavailable("draining"):
                raise ToolError(str(error)) from error
            result = None
        except (InvalidOption, McpError, RegistryUnavailable) as error:
            raise ToolError(str(error)) from error
        if result is None:
            # The server stops before the agent does. A result would end a call that, left as it is, is taken up at
            # the next start by what the tool says of crashes; the run is cancelled in a moment.
            await trio.sleep_forever()
        if result.is_error:
            raise ToolError(result.problem or f"{name} failed, and did not say why")
        return result.content

    call.__name__ = call.__qualname__ = name
    return call

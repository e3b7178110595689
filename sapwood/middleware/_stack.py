"""The stack: the middleware of one agent, checked once and composed around runs, model calls and tool calls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

from sapwood.conversation import AssistantMessage, ToolCall
from sapwood.errors import DuplicateName, InvalidOption
from sapwood.middleware._context import AgentInfo, MiddlewareContext
from sapwood.middleware._contract import Middleware, ModelCall, RunCall, ToolInvocation, overrides
from sapwood.models import ModelRequest
from sapwood.tools import Tool, ToolOutcome


class Stack:
    """An unchangeable list of middleware with unique names in a permitted order.

    Args:
        layers: The middleware, outermost first.

    Raises:
        DuplicateName: if two have one name.
        InvalidOption: if something else is in the list, or an order that a middleware declared is not kept.
    """

    def __init__(self, layers: Iterable[Middleware] = ()) -> None:
        self._layers = tuple(layers)
        names: dict[str, int] = {}
        for index, layer in enumerate(self._layers):
            if not isinstance(cast("object", layer), Middleware):
                raise InvalidOption(f"middleware: expected instances of Middleware; got {layer!r}")
            if layer.name in names:
                raise DuplicateName("middleware", layer.name, self._layers[names[layer.name]])
            names[layer.name] = index
        for index, layer in enumerate(self._layers):
            self._check_order(layer, index, names)
        self._before = self._with("before_model")
        self._after = tuple(reversed(self._with("after_model")))
        self._prompting = self._with("system_prompt")
        self._starting = self._with("on_server_start")

    def _check_order(self, layer: Middleware, index: int, names: dict[str, int]) -> None:
        late = [name for name in layer.runs_after if names.get(name, -1) > index]
        early = [name for name in layer.runs_before if names.get(name, index) < index]
        if late:
            raise InvalidOption(f"middleware order: expected {late[0]} before {layer.name}; swap them")
        if early:
            raise InvalidOption(f"middleware order: expected {layer.name} before {early[0]}; swap them")
        if layer.runs_last and index != len(self._layers) - 1:
            raise InvalidOption(f"middleware order: expected {layer.name} last; move it to the end")

    def _with(self, hook: str) -> tuple[Middleware, ...]:
        return tuple(layer for layer in self._layers if overrides(layer, hook))

    def __iter__(self) -> Iterator[Middleware]:
        return iter(self._layers)

    def __len__(self) -> int:
        return len(self._layers)

    def get(self, name: str) -> Middleware | None:
        """Return the middleware with this name, or None if there is none."""
        return next((layer for layer in self._layers if layer.name == name), None)

    @property
    def starting(self) -> Sequence[Middleware]:
        """Those with an `on_server_start`, in the order in which these run."""
        return self._starting

    @property
    def before_model(self) -> Sequence[Middleware]:
        """Those with a `before_model`, in the order in which these run."""
        return self._before

    @property
    def after_model(self) -> Sequence[Middleware]:
        """Those with an `after_model`, in the order in which these run: the last layer first (S4-008)."""
        return self._after

    def init(self, agent: AgentInfo) -> None:
        """Let every layer check its configuration."""
        for layer in self._with("init"):
            layer.init(agent)

    def system_prompt(self, base: str, context: MiddlewareContext) -> str:
        """Return the agent's prompt followed by the parts of the layers, in order (S4-021)."""
        parts = [base, *(layer.system_prompt(context) for layer in self._prompting)]
        return "\n\n".join(part.strip() for part in parts if part.strip())

    def tools(self, context: MiddlewareContext) -> tuple[Tool[..., Any], ...]:
        """Return the tools of the layers, in order."""
        return tuple(each for layer in self._with("tools") for each in layer.tools(context))

    def around_run(self, inner: RunCall, context: MiddlewareContext) -> RunCall:
        """Wrap a run in all layers that have an `around_run`."""
        for layer in reversed(self._with("around_run")):
            inner = _wrap_run(layer, inner, context)
        return inner

    def around_model_call(self, inner: ModelCall, context: MiddlewareContext) -> ModelCall:
        """Wrap a model call in all layers that have an `around_model_call`."""
        for layer in reversed(self._with("around_model_call")):
            inner = _wrap_model_call(layer, inner, context)
        return inner

    def around_tool_call(self, inner: ToolInvocation, context: MiddlewareContext) -> ToolInvocation:
        """Wrap a tool call in all layers that have an `around_tool_call`."""
        for layer in reversed(self._with("around_tool_call")):
            inner = _wrap_tool_call(layer, inner, context)
        return inner


def _wrap_run(layer: Middleware, inner: RunCall, context: MiddlewareContext) -> RunCall:
    async def wrapped() -> None:
        await layer.around_run(inner, context)

    return wrapped


def _wrap_model_call(layer: Middleware, inner: ModelCall, context: MiddlewareContext) -> ModelCall:
    async def wrapped(request: ModelRequest) -> AssistantMessage:
        return await layer.around_model_call(request, inner, context)

    return wrapped


def _wrap_tool_call(layer: Middleware, inner: ToolInvocation, context: MiddlewareContext) -> ToolInvocation:
    async def wrapped(call: ToolCall) -> ToolOutcome:
        return await layer.around_tool_call(call, inner, context)

    return wrapped

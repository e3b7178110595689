"""The contract of middleware: which hooks there are, when they run, and what they may return."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, ClassVar, TypeAlias

import attrs

from sapwood.conversation import AssistantMessage, Interrupt, Message, Operation, State, ToolCall
from sapwood.errors import InvalidOption
from sapwood.middleware._context import AgentInfo, MiddlewareContext
from sapwood.models import ModelRequest
from sapwood.tools import Tool, ToolOutcome


@attrs.frozen
class ReplaceMessages:
    """Take messages out of the conversation and put others in, as a summary or a repair does.

    Attributes:
        removed: Ids of messages to remove; results whose calls go with them go too.
        inserted: Messages to insert, in order.
        before: Id of the message to insert before; empty for where the first removed one was, else the end.
    """

    removed: tuple[str, ...] = ()
    inserted: tuple[Message, ...] = ()
    before: str = ""


def _check_interrupts(_: Suspend, __: attrs.Attribute[tuple[Interrupt, ...]], given: tuple[Interrupt, ...]) -> None:
    if not given:
        raise InvalidOption("Suspend: expected at least one interrupt; got none: return None to go on")


@attrs.frozen
class Suspend:
    """Stop the run until people have decided; the interrupts are journaled before they are announced (S4-009).

    An interrupt whose id is that of an open tool call holds back this call alone; calls beside it go on (C23). One
    with any other id holds back the run as a whole. When it is decided, the hooks around the model call run again, and
    find the decision with `state.decision(id)`.

    Attributes:
        interrupts: At least one.

    Raises:
        InvalidOption: if there is none.
    """

    interrupts: tuple[Interrupt, ...] = attrs.field(validator=_check_interrupts)


Change: TypeAlias = Operation | ReplaceMessages
"""What a hook may do to the conversation; journaled and applied once, in order."""

HookResult: TypeAlias = Sequence[Change] | Suspend | None
"""What `before_model` and `after_model` may return."""

RunCall: TypeAlias = Callable[[], Awaitable[None]]
ModelCall: TypeAlias = Callable[[ModelRequest], Awaitable[AssistantMessage]]
ToolInvocation: TypeAlias = Callable[[ToolCall], Awaitable[ToolOutcome]]


class Middleware:
    """Base of all middleware: one layer of the sandwich around an agent's model.

    Derive and override the hooks that are wanted; the others cost nothing, since presence is seen from the class. An
    instance is configuration: it is shared by all conversations of its agents, so what belongs to one conversation
    goes into its state (through operations) or into `context.local`.

    Order, around every model call: `before_model` in list order, the model call inside all `around_model_call`
    (first in the list outermost), `after_model` in reverse order (S4-008). Hooks run in the task of the run, except
    `on_server_start` and `handle_message`, which run in the agent server's own: it answers nobody meanwhile.

    What `before_model` or `after_model` hooks change is journaled in one step with what follows from it (the model
    call, the intents of the tool calls, the end of the run). So a crash repeats hooks only if nothing of what they
    wanted has happened.

    Class attributes:
        name: Unique within a stack; by default the name of the class.
        runs_after: Names of middleware that must come earlier in the list, if they are there.
        runs_before: Names of middleware that must come later, if they are there.
        runs_last: Whether nothing may come after it.
    """

    name: ClassVar[str] = ""
    runs_after: ClassVar[tuple[str, ...]] = ()
    runs_before: ClassVar[tuple[str, ...]] = ()
    runs_last: ClassVar[bool] = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "name" not in cls.__dict__:
            cls.name = cls.__name__

    def init(self, agent: AgentInfo) -> None:
        """Check the configuration when an agent is made; an exception refuses the agent (S4-010). Default: nothing."""

    def system_prompt(self, context: MiddlewareContext) -> str:
        """Return a part of the system prompt, built anew for every model call. Default: nothing."""
        return ""

    def tools(self, context: MiddlewareContext) -> Sequence[Tool[..., Any]]:
        """Return tools to offer beside the agent's own; called once at server start. Default: none."""
        return ()

    async def on_server_start(self, context: MiddlewareContext) -> Sequence[Change] | None:
        """Prepare when the server of a conversation starts, after its state was loaded (S4-012). Default: nothing."""
        return None

    async def before_model(self, state: State, context: MiddlewareContext) -> HookResult:
        """Look at the conversation before a model call; a layer sees what those before it did. Default: nothing."""
        return None

    async def after_model(self, state: State, context: MiddlewareContext) -> HookResult:
        """Look at the conversation after the model's answer joined it, before its tools run. Default: nothing.

        All layers see every answer, also if one of them suspends the run; their interrupts are raised together.
        """
        return None

    async def handle_message(self, message: Any, context: MiddlewareContext) -> Sequence[Change] | None:
        """Take a message sent to this middleware in a running server, also during a run (S4-011, AR-22.19).

        An exception goes to the sender and changes nothing. Default: messages are refused.
        """
        return None

    async def around_run(self, call_next: RunCall, context: MiddlewareContext) -> None:
        """Wrap a whole run; must await `call_next()`, at most once. Default: just that."""
        await call_next()

    async def around_model_call(
        self, request: ModelRequest, call_next: ModelCall, context: MiddlewareContext
    ) -> AssistantMessage:
        """Wrap one model call: change the request, answer without the model, repeat, measure. Default: just calls."""
        return await call_next(request)

    async def around_tool_call(
        self, call: ToolCall, call_next: ToolInvocation, context: MiddlewareContext
    ) -> ToolOutcome:
        """Wrap one tool call, between the journal's "started" and "finished". Default: just calls.

        An exception becomes the call's error result; `ToolError` is the way to refuse one.
        """
        return await call_next(call)


def overrides(middleware: Middleware, hook: str) -> bool:
    """Say whether a middleware's class has a hook of its own."""
    return getattr(type(middleware), hook) is not getattr(Middleware, hook)

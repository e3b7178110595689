"""The agent: a frozen configuration, made in code and never stored."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Never, cast

import attrs

from sapwood.errors import InvalidOption
from sapwood.middleware import Middleware, Stack
from sapwood.models import ChatModel, RetryPolicy
from sapwood.tools import Tool, Toolbox


@attrs.frozen
class Limits:
    """What one run may use.

    Attributes:
        model_calls: Most model calls; the answer to the last permitted one still counts.
        parallel_tools: Most tool calls that run at once.
        output_tokens: Limit for one answer of the model in tokens; None for the model's own default.
    """

    model_calls: int = 50
    parallel_tools: int = 8
    output_tokens: int | None = None

    def __attrs_post_init__(self) -> None:
        for name in ("model_calls", "parallel_tools"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise InvalidOption(f"limits.{name}: expected an int >= 1; got {value!r}")
        if self.output_tokens is not None and self.output_tokens < 1:
            raise InvalidOption(f"limits.output_tokens: expected None or an int >= 1; got {self.output_tokens!r}")


@attrs.frozen(init=False, eq=False)
class Agent:
    """Everything about an agent that is code: model, prompt, tools, middleware, limits (S4-002).

    Never stored, so that prompts, tools and middleware change with a deploy and no secret reaches the store (S4-034,
    S4-035). One agent serves any number of conversations.

    Args:
        name: Its name, in logs and in the journal.
        model: The model.
        prompt: Base of the system prompt; middleware adds to it.
        tools: Tools of its own.
        middleware: The layers of the sandwich, outermost first.
        limits: What one run may use.
        retry: When model calls are repeated.
        temperature: 0 to 1; None for the model's own default.
        host: Values for tools and middleware, by name; never stored.
        **unknown: Options that do not exist are refused, with the nearest one that does.

    Raises:
        InvalidOption: if an option does not exist or is out of its range, or the middleware is in a wrong order.
        DuplicateName: if two tools or two middleware have one name.
        Exception: what the `init` of a middleware raises.
    """

    name: str
    model: ChatModel
    prompt: str
    tools: tuple[Tool[..., Any], ...]
    middleware: tuple[Middleware, ...]
    limits: Limits
    retry: RetryPolicy
    temperature: float | None
    host: Mapping[str, Any] = attrs.field(repr=False)
    stack: Stack = attrs.field(repr=False)

    def __init__(
        self,
        name: str,
        *,
        model: ChatModel,
        prompt: str = "",
        tools: Sequence[Tool[..., Any]] = (),
        middleware: Sequence[Middleware] = (),
        limits: Limits | None = None,
        retry: RetryPolicy | None = None,
        temperature: float | None = None,
        host: Mapping[str, Any] | None = None,
        **unknown: Never,
    ) -> None:
        for option in unknown:
            known = [field.name for field in attrs.fields(Agent) if field.name != "stack"]
            near = difflib.get_close_matches(option, known, n=1)
            meant = f"did you mean {near[0]!r}?" if near else f"options are {', '.join(known)}"
            raise InvalidOption(f"Agent has no option {option!r}; {meant}")
        if not name or not isinstance(cast("object", name), str):
            raise InvalidOption(f"Agent name: expected a text that is not empty; got {name!r}")
        if not hasattr(model, "stream"):
            raise InvalidOption(f"Agent {name!r}: expected a chat model, such as OfflineModel(); got {model!r}")
        if temperature is not None and not 0 <= temperature <= 1:
            raise InvalidOption(f"Agent {name!r}: expected a temperature from 0 to 1, or None; got {temperature!r}")
        Toolbox(tools)
        self.__attrs_init__(  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]  # made by attrs
            name,
            model,
            prompt,
            tuple(tools),
            tuple(middleware),
            limits or Limits(),
            retry or RetryPolicy(),
            temperature,
            MappingProxyType(dict(host or {})),
            Stack(middleware),
        )
        self.stack.init(self)

    @property
    def definition(self) -> str:
        """Hash of what shapes the conversation: 16 hex digits that change when tools, middleware or prompt do."""
        shape = [self.name, self.prompt, *(each.name for each in self.tools), *(each.name for each in self.middleware)]
        return hashlib.sha256("\x00".join(shape).encode(errors="backslashreplace")).hexdigest()[:16]

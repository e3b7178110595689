"""The agent: a frozen configuration, made in code and never stored."""

from __future__ import annotations

import difflib
import hashlib
import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Never, cast

import attrs

from sapwood.agents._limits import Limits
from sapwood.errors import InvalidOption
from sapwood.middleware import Middleware, Stack
from sapwood.models import ChatModel, RetryPolicy
from sapwood.tools import Tool, Toolbox


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
        fallbacks: Models that are called in turn when the one before cannot answer (`ModelAttemptFailed` tells why).
        temperature: 0 to 1; None for the model's own default.
        stop_after: Seconds without a message or a run after which a server stops (`inactivity`); its conversation goes
            on with the next `ensure_running`. None for never. One that has something to wait for stays (AR-22.4).
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
    fallbacks: tuple[ChatModel, ...]
    temperature: float | None
    stop_after: float | None
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
        fallbacks: Sequence[ChatModel] = (),
        temperature: float | None = None,
        stop_after: float | None = None,
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
        for each in (model, *fallbacks):
            if not hasattr(each, "stream"):
                raise InvalidOption(f"Agent {name!r}: expected a chat model, such as OfflineModel(); got {each!r}")
        if temperature is not None and not 0 <= temperature <= 1:
            raise InvalidOption(f"Agent {name!r}: expected a temperature from 0 to 1, or None; got {temperature!r}")
        if stop_after is not None and not 0 < stop_after < math.inf:
            raise InvalidOption(f"Agent {name!r}: expected stop_after in seconds above 0, or None; got {stop_after!r}")
        Toolbox(tools)
        self.__attrs_init__(  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]  # made by attrs
            name,
            model,
            prompt,
            tuple(tools),
            tuple(middleware),
            limits or Limits(),
            retry or RetryPolicy(),
            tuple(fallbacks),
            temperature,
            stop_after,
            MappingProxyType(dict(host or {})),
            Stack(middleware),
        )
        self.stack.init(self)

    @property
    def definition(self) -> str:
        """Hash of what shapes the conversation: 16 hex digits that change when tools, middleware or prompt do."""
        shape = [self.name, self.prompt, *(each.name for each in self.tools), *(each.name for each in self.middleware)]
        return hashlib.sha256("\x00".join(shape).encode(errors="backslashreplace")).hexdigest()[:16]

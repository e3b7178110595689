"""The chat model protocol: what a request holds, what a stream yields, what an implementation must promise."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeAlias

import attrs
import trio

from sapwood.conversation import AssistantMessage, Message


@attrs.frozen
class ToolSpec:
    """A tool as the model sees it.

    Attributes:
        name: At most 64 characters of `[a-zA-Z0-9_-]`.
        description: What it does and when to use it.
        parameters: JSON schema of an object with the arguments.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]


@attrs.frozen
class ModelRequest:
    """Everything one model call needs.

    Attributes:
        system: The whole system prompt; may be empty.
        messages: The conversation in order; every tool call is followed by its result.
        tools: Tools on offer; names are unique.
        max_tokens: Limit for the answer in tokens, or None for the model's own default.
        temperature: 0 to 1, or None for the model's own default.
    """

    system: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    max_tokens: int | None = None
    temperature: float | None = None


@attrs.frozen
class TextDelta:
    """A piece of the answer's text, in order."""

    text: str


@attrs.frozen
class ToolCallStarted:
    """The model has named a tool; its arguments are still to come."""

    call_id: str
    name: str


@attrs.frozen
class ModelAnswer:
    """The complete answer; the last thing a stream yields."""

    message: AssistantMessage


ModelEvent: TypeAlias = TextDelta | ToolCallStarted | ModelAnswer
"""What a model stream yields: any number of deltas, then exactly one `ModelAnswer`."""


class ChatModel(Protocol):
    """A language model behind some provider.

    An implementation keeps no conversation, retries nothing (the caller owns retries), and raises only
    `ModelError`s. It is shared by all agents that name it, so its calls may overlap.
    """

    @property
    def name(self) -> str:
        """`provider:model`, for logs and reports; holds no secret."""
        ...

    def stream(self, request: ModelRequest) -> AbstractAsyncContextManager[trio.MemoryReceiveChannel[ModelEvent]]:
        """Call the model: `async with model.stream(request) as events: async for event in events: ...`.

        Leaving the block early, or cancelling it, closes the connection to the provider.

        Raises:
            ModelUnavailable: if the connection fails, the provider is overloaded, or the stream breaks or stalls.
            RateLimited: if the provider asks to slow down.
            ModelRefused: if the provider refuses the request itself.
            ModelProtocolError: if the answer is not the provider's protocol.
        """
        ...

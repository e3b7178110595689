"""The chat model protocol: what a request holds, what a stream yields, what an implementation must promise."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeAlias, runtime_checkable

import attrs

from sapwood.conversation import AssistantMessage, Message
from sapwood.conversation import ToolSpec as ToolSpec


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
    """A piece of the answer's text, in order; the pieces joined are the text of the answer."""

    text: str


@attrs.frozen
class ToolCallStarted:
    """The model has named a tool; its arguments are still to come."""

    call_id: str
    name: str


@attrs.frozen
class ToolCallDelta:
    """A piece of the JSON text of one call's arguments, in order within the call (BR-65).

    It is for display only (`parse_partial_json`): a tool may run only with the arguments of the `ModelAnswer`.
    """

    call_id: str
    text: str


@attrs.frozen
class StreamRestarted:
    """The call failed and is made again: whatever was streamed so far is void and must be discarded.

    Only `retrying` yields it, before it waits; a model's own stream never does.

    Attributes:
        reason: Text of the error.
        attempt: Number of the attempt that follows, from 2.
        wait: Seconds until then.
    """

    reason: str
    attempt: int
    wait: float


@attrs.frozen
class ModelAnswer:
    """The complete answer; the last thing a stream yields. Its message has no id: who stores it gives it one."""

    message: AssistantMessage


ModelEvent: TypeAlias = TextDelta | ToolCallStarted | ToolCallDelta | StreamRestarted | ModelAnswer
"""What a model stream yields: any number of deltas, then exactly one `ModelAnswer`."""


class ChatModel(Protocol):
    """A language model behind some provider.

    An implementation keeps no conversation, retries nothing (the caller owns retries), and raises only
    `ModelError`s. It is shared by all agents that name it, so its calls may overlap. Nothing of a call runs in a
    task of its own: the stream advances only while the consumer waits for the next event, so a consumer that is
    gone leaves nobody waiting (BR-68).
    """

    @property
    def name(self) -> str:
        """`provider:model`, for logs and reports; holds no secret."""
        ...

    def stream(self, request: ModelRequest) -> AbstractAsyncContextManager[AsyncIterator[ModelEvent]]:
        """Call the model: `async with model.stream(request) as events: async for event in events: ...`.

        Leaving the block early, or cancelling it, closes the connection to the provider.

        Raises:
            ModelUnavailable: if the connection fails, the provider is overloaded, or the stream breaks or stalls.
            RateLimited: if the provider asks to slow down.
            ModelRefused: if the provider refuses the request itself.
            ModelProtocolError: if the answer is not the provider's protocol.
        """
        ...


@runtime_checkable
class ClosableModel(Protocol):
    """A model that keeps connections open between calls."""

    async def aclose(self) -> None:
        """Close all idle connections of this trio run; the next call opens new ones. Calls in progress fail."""
        ...

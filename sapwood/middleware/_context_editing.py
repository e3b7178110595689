"""ContextEditing: old tool results give way to a placeholder once they fill the model's context."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import attrs

from sapwood.conversation import AssistantMessage, Message, ToolResult, evolve
from sapwood.errors import InvalidOption
from sapwood.middleware._context import MiddlewareContext
from sapwood.middleware._contract import Middleware, ModelCall
from sapwood.middleware._names import several_names
from sapwood.middleware._tokens import TokenCounter, message_tokens
from sapwood.models import ModelRequest

PLACEHOLDER: Final = "[this result was cleared to save space; call the tool again if you need it]"


class ContextEditing(Middleware):
    """Clears old tool results from what the model sees, oldest first, when all messages together exceed a threshold.

    Only the request changes: the conversation keeps every result, and each call keeps its result, with a placeholder
    as its content. What is cleared follows from the messages alone, so the same conversation gives the same request,
    and more is cleared in strides, so that a provider's cache of the beginning stays good for some calls.

    Args:
        threshold: Tokens of messages beyond which results are cleared.
        keep: Latest results that are never cleared.
        stride: Tokens that are cleared at least, beyond what the threshold asks for, unless nothing is left.
        exclude: Names of tools whose results are never cleared.
        placeholder: What the model reads in place of a result.
        count: Counts the tokens of a message; by default an estimate of 4 characters a token.

    Raises:
        InvalidOption: if the threshold is below 1, `keep` or `stride` below 0, or `exclude` a single text.
    """

    runs_after = ("Summarization",)

    def __init__(
        self,
        threshold: int = 100_000,
        *,
        keep: int = 3,
        stride: int = 5_000,
        exclude: Collection[str] = (),
        placeholder: str = PLACEHOLDER,
        count: TokenCounter = message_tokens,
    ) -> None:
        for option, value, least in (("threshold", threshold, 1), ("keep", keep, 0), ("stride", stride, 0)):
            if value < least:
                raise InvalidOption(f"ContextEditing {option}: expected {least} or more; got {value!r}")
        self.threshold = threshold
        self.keep = keep
        self.stride = stride
        self.exclude = frozenset(several_names(exclude, "ContextEditing exclude"))
        self.placeholder = placeholder
        self.count = count

    async def around_model_call(
        self, request: ModelRequest, call_next: ModelCall, context: MiddlewareContext
    ) -> AssistantMessage:
        return await call_next(attrs.evolve(request, messages=self.edited(request.messages)))

    def edited(self, messages: tuple[Message, ...]) -> tuple[Message, ...]:
        """Return the messages as the model sees them; the same ones if there is nothing to clear."""
        tokens = [self.count(message) for message in messages]
        excess = sum(tokens) - self.threshold
        if excess <= 0:
            return messages
        goal = excess if not self.stride else -(-excess // self.stride) * self.stride
        results = [index for index, message in enumerate(messages) if isinstance(message, ToolResult)]
        edited = list(messages)
        for index in results[: max(0, len(results) - self.keep)]:
            cleared = self._cleared(messages[index])
            gain = tokens[index] - self.count(cleared)
            if gain <= 0:
                continue
            if goal <= 0:
                break
            edited[index] = cleared
            goal -= gain
        return tuple(edited)

    def _cleared(self, message: Message) -> Message:
        if not isinstance(message, ToolResult) or message.name in self.exclude:
            return message
        return evolve(message, content=self.placeholder)

"""What is said in a conversation: messages, tool calls and their results. Pure data, immutable, storable."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import attrs

from sapwood.actors import record


@record("conversation.usage")
class Usage:
    """Tokens that model calls consumed, as the provider counted them.

    Attributes:
        input_tokens: Tokens sent, cached ones included.
        output_tokens: Tokens received.
        cached_tokens: Part of `input_tokens` that the provider read from its cache.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_tokens + other.cached_tokens,
        )


@record("conversation.tool_call")
class ToolCall:
    """A model's wish to use a tool.

    Attributes:
        id: Unique within the conversation; the result carries it.
        name: Name of the tool as the model wrote it; may not exist.
        arguments: Decoded arguments, `{name: JSON value}`; empty if they could not be decoded.
        malformed: The raw text of arguments that are no JSON object; empty if they are fine.
    """

    id: str
    name: str
    arguments: dict[str, Any] = attrs.field(factory=dict[str, Any])
    malformed: str = ""


@record("conversation.user_message")
class UserMessage:
    """Something a person (or a program in a person's place) said."""

    text: str
    id: str = ""


@record("conversation.assistant_message")
class AssistantMessage:
    """A complete answer of the model: text, tool calls, or both.

    Attributes:
        text: What it said; may be empty when it only calls tools.
        tool_calls: In the order the model gave them.
        stop_reason: `end`, `tools`, `length`, `refused` or `cancelled`.
        usage: Tokens of the call that made it.
    """

    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    id: str = ""
    stop_reason: str = "end"
    usage: Usage = attrs.field(factory=Usage)


Problem: TypeAlias = Literal["", "failed", "invalid", "timeout", "denied", "limit", "unknown", "stopped"]
"""Why a call has no good result.

`failed`: the tool said so. `invalid`: it could not run at all. `timeout`: it took too long. `denied`: a person or a
rule refused it. `limit`: the run had no calls left. `unknown`: nobody knows whether it had its effect. `stopped`: its
run ended before it did.
"""


@record("conversation.tool_result")
class ToolResult:
    """What came of one tool call; a message of its own, so that every call has exactly one answer.

    Attributes:
        call_id: The id of the call that it answers.
        name: Name of the tool.
        content: Text for the model; an error's text begins with `Error: ` (S4-064).
        is_error: Whether the tool failed.
        problem: Why, for code; empty if it did not fail, or if who made the result did not say.
        reference: Where the whole text is kept, if `content` is only its beginning; else empty.
    """

    call_id: str
    name: str
    content: str
    is_error: bool = False
    id: str = ""
    problem: Problem = ""
    reference: str = ""


Message: TypeAlias = UserMessage | AssistantMessage | ToolResult
"""One entry of a conversation. The system prompt is no message: it is built from code for every model call."""

"""Estimates of tokens, for layers that must know how large a context is before any provider has counted it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final, TypeAlias

from sapwood.conversation import AssistantMessage, Message, ToolCall, ToolResult, UserMessage

CHARACTERS_PER_TOKEN: Final = 4
TOKENS_PER_MESSAGE: Final = 4
"""What a provider adds for the role and the frame of a message."""

TokenCounter: TypeAlias = Callable[[Message], int]
"""Returns the tokens of one message; a tokenizer of the model at hand may be given in its place."""


def text_tokens(text: str) -> int:
    """Return the tokens of a text at 4 characters each, rounded up."""
    return -(-len(text) // CHARACTERS_PER_TOKEN)


def message_tokens(message: Message) -> int:
    """Estimate the tokens of a message at 4 characters each, with its calls and a frame of 4 tokens."""
    match message:
        case UserMessage(text):
            return TOKENS_PER_MESSAGE + text_tokens(text)
        case ToolResult(content=content):
            return TOKENS_PER_MESSAGE + text_tokens(content)
        case AssistantMessage(text, calls):
            return TOKENS_PER_MESSAGE + text_tokens(text) + sum(text_tokens(call_text(call)) for call in calls)


def call_text(call: ToolCall) -> str:
    """Return a call as text: its name and its arguments as JSON."""
    return f"{call.name} {call.malformed or json.dumps(call.arguments, ensure_ascii=False, default=str)}"

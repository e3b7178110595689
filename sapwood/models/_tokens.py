"""An estimate of tokens, for the models that have no tokenizer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sapwood.conversation import AssistantMessage, ToolCall, ToolResult, Usage, UserMessage
from sapwood.models._protocol import ModelRequest

CHARACTERS_PER_TOKEN = 4


def encode_arguments(arguments: Mapping[str, Any]) -> str:
    """Return arguments as the JSON text that a provider would stream."""
    return json.dumps(arguments, ensure_ascii=False, default=str)


def estimate_tokens(text: str) -> int:
    """Return the tokens of a text at 4 characters each, rounded up; within a third of the truth for English."""
    return -(-len(text) // CHARACTERS_PER_TOKEN)


def estimate_usage(request: ModelRequest, received: str) -> Usage:
    """Return the estimated usage of a call of which this much was received."""
    return count_usage(request, received, ())


def count_usage(request: ModelRequest, text: str, calls: Sequence[ToolCall]) -> Usage:
    """Return the estimated usage of a call: all that was sent, and the text and tool calls of the answer."""
    sent = [request.system, *(f"{tool.name} {tool.description} {dict(tool.parameters)}" for tool in request.tools)]
    for message in request.messages:
        match message:
            case UserMessage():
                sent.append(message.text)
            case ToolResult():
                sent.append(message.content)
            case AssistantMessage():
                sent += [message.text, *map(_call_text, message.tool_calls)]
    received = [text, *map(_call_text, calls)]
    return Usage(sum(map(estimate_tokens, sent)), sum(map(estimate_tokens, received)))


def _call_text(call: ToolCall) -> str:
    return f"{call.name} {call.malformed or encode_arguments(call.arguments)}"

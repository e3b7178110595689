"""Names and ids as providers accept them; a conversation may hold some that they would refuse."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Any

from sapwood.conversation import ToolCall
from sapwood.models._surrogates import clean_text, clean_value

_ID = re.compile(r"[a-zA-Z0-9_-]{1,40}")
_NOT_NAME = re.compile(r"[^a-zA-Z0-9_-]")


def wire_call_id(call_id: str) -> str:
    """Return an id of at most 40 characters of `[a-zA-Z0-9_-]`, the same one for the same call id every time."""
    if _ID.fullmatch(call_id):
        return call_id
    return "call_" + sha256(clean_text(call_id).encode()).hexdigest()[:32]


def wire_tool_name(name: str) -> str:
    """Return a tool name of at most 64 characters of `[a-zA-Z0-9_-]`; the model may have made one up that is not."""
    return _NOT_NAME.sub("_", name)[:64] or "unnamed"


def call_arguments(call: ToolCall) -> dict[str, Any]:
    """Return the arguments of a call in the history; malformed ones are shown to the model as it wrote them."""
    if call.malformed:
        return {"malformed_arguments": clean_text(call.malformed)}
    arguments: dict[str, Any] = clean_value(call.arguments)
    return arguments

"""Export and import of a conversation as JSON-safe data, for other programs and for copies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from sapwood.conversation._json import clean_text, copy_json
from sapwood.conversation._messages import AssistantMessage, Message, ToolCall, ToolResult, Usage, UserMessage
from sapwood.conversation._pairs import orphan_results
from sapwood.conversation._state import State
from sapwood.conversation._todos import Todo, settle
from sapwood.errors import CodecError, FutureVersion, InvalidOption

EXPORT_VERSION = 1


def to_json(state: State) -> dict[str, Any]:
    """Return `{version, messages, todos, metadata}` of a conversation, JSON-safe and detached from it (S4-033).

    Work in progress (the open run, interrupts, pending calls, queued messages) is no part of it: it belongs to the
    agent that does the work, and its journal has it. Configuration is no part of a state at all (S4-034).
    """
    return {
        "version": EXPORT_VERSION,
        "messages": [_write_message(message) for message in state.messages],
        "todos": [{"id": todo.id, "content": clean_text(todo.content), "status": todo.status} for todo in state.todos],
        "metadata": copy_json(state.metadata, "metadata"),
    }


def _write_message(message: Message) -> dict[str, Any]:
    match message:
        case UserMessage():
            written: dict[str, Any] = {"role": "user", "id": message.id, "text": message.text}
        case AssistantMessage():
            usage = message.usage
            written = {
                "role": "assistant",
                "id": message.id,
                "text": message.text,
                "tool_calls": [
                    {"id": call.id, "name": call.name, "arguments": call.arguments, "malformed": call.malformed}
                    for call in message.tool_calls
                ],
                "stop_reason": message.stop_reason,
                "usage": {
                    "input_tokens": usage.input_tokens,
                    "output_tokens": usage.output_tokens,
                    "cached_tokens": usage.cached_tokens,
                },
            }
        case ToolResult():
            written = {
                "role": "tool",
                "id": message.id,
                "call_id": message.call_id,
                "name": message.name,
                "content": message.content,
                "is_error": message.is_error,
            }
    copied: dict[str, Any] = copy_json(written, "message")
    return copied


def from_json(data: object) -> State:
    """Return a new state with the messages, todos and metadata of an export. Strict: nothing is guessed or skipped.

    Calls without a result are accepted, since an export may be made at any moment; results without a call are not.

    Raises:
        CodecError: if a key is missing or unknown, a value has the wrong type, or a result has no call; its path says
            which.
        FutureVersion: if it was exported by a newer version.
    """
    top = _fields(data, "export", _TOP)
    if top["version"] > EXPORT_VERSION:
        raise FutureVersion("conversation export", top["version"], EXPORT_VERSION)
    if top["version"] != EXPORT_VERSION:
        raise CodecError("export.version", f"expected {EXPORT_VERSION}; got {top['version']}")
    messages = tuple(_read_message(raw, f"messages[{index}]") for index, raw in enumerate(top["messages"]))
    for orphan in orphan_results(messages):
        place = next(index for index, message in enumerate(messages) if message is orphan)
        raise CodecError(f"messages[{place}]", f"expected an unanswered call {orphan.call_id!r} before it; got none")
    todos = [_read_todo(raw, f"todos[{index}]") for index, raw in enumerate(top["todos"])]
    for index, todo in enumerate(todos):
        if any(todo.id == other.id for other in todos[:index]):
            raise CodecError(f"todos[{index}]", f"expected every id once; got {todo.id} again")
    return State(messages=messages, todos=settle(todos), metadata=copy_json(top["metadata"], "metadata"))


def _read_message(raw: object, path: str) -> Message:
    role = cast("dict[object, object]", raw).get("role") if isinstance(raw, dict) else None
    reader = _ROLES.get(role) if isinstance(role, str) else None
    if reader is None:
        raise CodecError(f"{path}.role", f"expected one of {', '.join(_ROLES)}; got {role!r}")
    return reader(cast("object", raw), path)


def _read_user(raw: object, path: str) -> Message:
    fields = _fields(raw, path, _USER)
    return UserMessage(text=fields["text"], id=fields["id"])


def _read_assistant(raw: object, path: str) -> Message:
    fields = _fields(raw, path, _ASSISTANT)
    calls: list[ToolCall] = []
    for index, raw_call in enumerate(fields["tool_calls"]):
        call = _fields(raw_call, f"{path}.tool_calls[{index}]", _CALL)
        arguments = copy_json(call["arguments"], f"{path}.tool_calls[{index}].arguments")
        calls.append(ToolCall(call["id"], call["name"], arguments, call["malformed"]))
    usage = Usage(**_fields(fields["usage"], f"{path}.usage", _USAGE))
    return AssistantMessage(fields["text"], tuple(calls), fields["id"], fields["stop_reason"], usage)


def _read_result(raw: object, path: str) -> Message:
    fields = _fields(raw, path, _RESULT)
    return ToolResult(fields["call_id"], fields["name"], fields["content"], fields["is_error"], fields["id"])


def _read_todo(raw: object, path: str) -> Todo:
    fields = _fields(raw, path, _TODO)
    try:
        return Todo(fields["id"], fields["content"], fields["status"])
    except InvalidOption as error:
        raise CodecError(path, str(error)) from error


_TOP: Mapping[str, type] = {"version": int, "messages": list, "todos": list, "metadata": dict}
_USER: Mapping[str, type] = {"role": str, "id": str, "text": str}
_ASSISTANT: Mapping[str, type] = {
    "role": str,
    "id": str,
    "text": str,
    "tool_calls": list,
    "stop_reason": str,
    "usage": dict,
}
_CALL: Mapping[str, type] = {"id": str, "name": str, "arguments": dict, "malformed": str}
_USAGE: Mapping[str, type] = {"input_tokens": int, "output_tokens": int, "cached_tokens": int}
_RESULT: Mapping[str, type] = {"role": str, "id": str, "call_id": str, "name": str, "content": str, "is_error": bool}
_TODO: Mapping[str, type] = {"id": int, "content": str, "status": str}
_ROLES: Mapping[str, Callable[[object, str], Message]] = {
    "user": _read_user,
    "assistant": _read_assistant,
    "tool": _read_result,
}


def _fields(raw: object, path: str, expected: Mapping[str, type]) -> dict[str, Any]:
    if not isinstance(raw, dict):
        raise CodecError(path, f"expected an object; got {type(raw).__qualname__}")
    fields = cast("dict[str, Any]", raw)
    for key in expected:
        if key not in fields:
            raise CodecError(f"{path}.{key}", "expected a value; got none")
    for key, value in fields.items():
        if key not in expected:
            raise CodecError(f"{path}.{key}", f"expected only {', '.join(expected)}; got an unknown key")
        if type(value) is not expected[key]:
            raise CodecError(f"{path}.{key}", f"expected {expected[key].__name__}; got {type(value).__name__}")
    return fields

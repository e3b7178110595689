"""The wire formats of the model providers, as a fake one speaks them: server-sent events and error bodies."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import attrs

from sapwood.conversation import ToolCall, Usage

WireFormat: TypeAlias = Literal["anthropic", "openai"]
"""Messages API, or Chat Completions API."""

Ending: TypeAlias = Literal["complete", "disconnect", "close", "stall", "malformed", "error", "pings"]
"""How an answer ends: as it should; by breaking the connection within a chunk; properly, but too early; by
falling silent; with an event that is no JSON; with the provider's error event; with keep-alives only, for ever."""


@attrs.frozen(kw_only=True)
class FakeAnswer:
    """A streamed answer.

    Attributes:
        text: Its text, sent in pieces of `piece` characters.
        calls: Its tool calls; arguments are sent in pieces too, a `malformed` text as it is.
        stop: The provider's own stop reason, if not the natural one.
        usage: Token counts, cached ones included in the input as in `Usage`.
        piece: Characters per event.
        drip: Seconds between events.
        ending: What happens after `after` events.
        after: Number of events sent before an `ending` that is not `complete`.
    """

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    stop: str = ""
    usage: Usage = attrs.field(factory=lambda: Usage(12, 7, 4))
    piece: int = 5
    drip: float = 0.0
    ending: Ending = "complete"
    after: int = 3


@attrs.frozen
class FakeFailure:
    """An answer with an error status.

    Attributes:
        status: HTTP status.
        message: The provider's words.
        kind: The provider's error type; empty for the usual one of the status.
        retry_after: Value of the `retry-after` header, or empty.
        body: Sent instead of the provider's error object, if not None.
    """

    status: int
    message: str = "no"
    kind: str = ""
    retry_after: str = ""
    body: bytes | None = None


@attrs.frozen
class FakeBody:
    """A body sent as it is with status 200, such as a recorded stream."""

    body: bytes
    content_type: str = "text/event-stream"


@attrs.frozen
class FakeSilence:
    """No answer at all: the connection stays open and nothing is sent."""


FakeReply: TypeAlias = FakeAnswer | FakeFailure | FakeBody | FakeSilence
"""What a fake provider does with one request."""

_KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    529: "overloaded_error",
}


def error_body(failure: FakeFailure, wire: WireFormat) -> bytes:
    """Return the body of an error answer."""
    if failure.body is not None:
        return failure.body
    kind = failure.kind or _KINDS.get(failure.status, "api_error")
    if wire == "anthropic":
        return _json({"type": "error", "error": {"type": kind, "message": failure.message}})
    return _json({"error": {"type": kind, "code": failure.kind or None, "message": failure.message, "param": None}})


def error_event(wire: WireFormat) -> bytes:
    """Return the event with which a provider gives up in the middle of a stream."""
    failure = FakeFailure(529, "Overloaded")
    prefix = b"event: error\n" if wire == "anthropic" else b""
    return prefix + b"data: " + error_body(failure, wire) + b"\n\n"


def keep_alive(wire: WireFormat) -> bytes:
    """Return what a provider sends while it has nothing to say."""
    return _named({"type": "ping"}) if wire == "anthropic" else b": keep-alive\n\n"


def answer_events(answer: FakeAnswer, wire: WireFormat) -> list[bytes]:
    """Return the events of a whole answer in order."""
    return _anthropic_events(answer) if wire == "anthropic" else _openai_events(answer)


def _anthropic_events(answer: FakeAnswer) -> list[bytes]:
    usage = answer.usage
    counts = {"input_tokens": usage.input_tokens - usage.cached_tokens, "cache_read_input_tokens": usage.cached_tokens}
    message: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "fake",
        "content": [],
        "stop_reason": None,
    }
    start: dict[str, Any] = {"type": "message_start", "message": {**message, "usage": {**counts, "output_tokens": 1}}}
    events = [_named(start), _named({"type": "ping"})]
    index = 0
    if answer.text:
        events += _block(index, {"type": "text", "text": ""}, "text_delta", "text", _pieces(answer.text, answer.piece))
        index += 1
    for call in answer.calls:
        block: dict[str, Any] = {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}
        events += _block(
            index, block, "input_json_delta", "partial_json", ["", *_pieces(_arguments(call), answer.piece)]
        )
        index += 1
    stop = answer.stop or ("tool_use" if answer.calls else "end_turn")
    delta = {"stop_reason": stop, "stop_sequence": None}
    events.append(_named({"type": "message_delta", "delta": delta, "usage": {"output_tokens": usage.output_tokens}}))
    return [*events, _named({"type": "message_stop"})]


def _block(index: int, block: dict[str, Any], kind: str, field: str, pieces: Sequence[str]) -> list[bytes]:
    deltas = [
        {"type": "content_block_delta", "index": index, "delta": {"type": kind, field: piece}} for piece in pieces
    ]
    start = {"type": "content_block_start", "index": index, "content_block": block}
    return [_named(event) for event in (start, *deltas, {"type": "content_block_stop", "index": index})]


def _openai_events(answer: FakeAnswer) -> list[bytes]:
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": piece} for piece in _pieces(answer.text, answer.piece)]
    for index, call in enumerate(answer.calls):
        named = {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": ""}}
        deltas.append({"tool_calls": [{"index": index, **named}]})
        pieces = _pieces(_arguments(call), answer.piece)
        deltas += [{"tool_calls": [{"index": index, "function": {"arguments": piece}}]} for piece in pieces]
    events = [_chunk([{"index": 0, "delta": delta, "finish_reason": None}]) for delta in deltas]
    stop = answer.stop or ("tool_calls" if answer.calls else "stop")
    events.append(_chunk([{"index": 0, "delta": {}, "finish_reason": stop}]))
    usage = answer.usage
    counts = {"prompt_tokens": usage.input_tokens, "completion_tokens": usage.output_tokens}
    events.append(_chunk([], usage={**counts, "prompt_tokens_details": {"cached_tokens": usage.cached_tokens}}))
    return [*events, b"data: [DONE]\n\n"]


def _chunk(choices: list[dict[str, Any]], usage: dict[str, Any] | None = None) -> bytes:
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "fake"}
    return b"data: " + _json({**head, "choices": choices, "usage": usage}) + b"\n\n"


def _named(data: dict[str, Any]) -> bytes:
    return f"event: {data['type']}\n".encode() + b"data: " + _json(data) + b"\n\n"


def _json(data: object) -> bytes:
    return json.dumps(data).encode()


def _arguments(call: ToolCall) -> str:
    return call.malformed or json.dumps(call.arguments)


def _pieces(text: str, size: int) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]

"""`AnthropicModel`: Claude models through the official SDK."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from sapwood.actors import Environment
from sapwood.conversation import AssistantMessage, Message, ToolCall, ToolResult, Usage, UserMessage
from sapwood.models._assembly import AnswerAssembly
from sapwood.models._protocol import ModelEvent, ModelRequest
from sapwood.models._sdk import SdkModel, WireReader
from sapwood.models._sdk_errors import ErrorReader
from sapwood.models._surrogates import clean_text, clean_value
from sapwood.models._wire_names import call_arguments, wire_call_id, wire_tool_name

STOP_REASONS = {
    "end_turn": "end",
    "stop_sequence": "end",
    "pause_turn": "end",
    "tool_use": "tools",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refused",
}
"""The provider's stop reasons in our words; one that is not here counts as `end`."""


class AnthropicModel(SdkModel):
    """A Claude model, called through the official `anthropic` SDK (extra `sapwood[llm]`) with streaming.

    Conversations are converted so that the provider accepts them: consecutive messages of one role become one turn
    (so all results of parallel calls stand together), empty texts are left out, or sent as "(empty)" where something
    must stand, and lone surrogates become U+FFFD. The SDK's own retries are off; see `retrying`.

    Args:
        name: Name of the model, as the provider spells it.
        api_key: Key; default is the environment variable `ANTHROPIC_API_KEY` at the time of the call. It appears in
            no repr, error or log of Sapwood.
        base_url: Another server that speaks the same protocol; it needs no key unless it wants one.
        max_tokens: Limit of an answer in tokens where the request names none.
        stall_timeout: Seconds without any event, keep-alive pings included, after which the stream counts as broken.
        environment: Source of ids and the clock for `Retry-After` dates; default is the real world.

    Raises:
        InvalidOption: if a value is out of its range.
        MissingExtra: if the SDK is not installed.
    """

    provider = "anthropic"
    package = "anthropic"
    key_variable = "ANTHROPIC_API_KEY"

    def __init__(
        self,
        name: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        max_tokens: int = 8192,
        stall_timeout: float = 60.0,
        environment: Environment | None = None,
    ) -> None:
        super().__init__(
            name,
            api_key=api_key,
            base_url=base_url,
            max_tokens=max_tokens,
            stall_timeout=stall_timeout,
            environment=environment,
        )

    def _make_client(self, sdk: ModuleType, **options: Any) -> Any:
        return sdk.AsyncAnthropic(**options)

    def _make_body(self, request: ModelRequest) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.model,
            "max_tokens": request.max_tokens or self._max_tokens,
            "messages": to_turns(request.messages),
        }
        if request.system.strip():
            body["system"] = clean_text(request.system)
        if request.temperature is not None:
            body["temperature"] = request.temperature
        tools = [
            {
                "name": tool.name,
                "description": clean_text(tool.description),
                "input_schema": clean_value(dict(tool.parameters)),
            }
            for tool in request.tools
        ]
        used = {wire_tool_name(call.name) for call in _calls(request.messages)}
        if not tools and used:
            # Calls in the history without any tool on offer are refused; so they are declared, and barred.
            tools = [{"name": name, "input_schema": {"type": "object"}} for name in sorted(used)]
            body["tool_choice"] = {"type": "none"}
        if tools:
            body["tools"] = tools
        return body

    def _make_reader(self, assembly: AnswerAssembly, errors: ErrorReader) -> WireReader:
        return AnthropicReader(assembly, errors)

    async def _create(self, client: Any, body: dict[str, Any]) -> Any:
        # Not every version of the SDK knows every field of the protocol; those that all know have names.
        named = {field: body[field] for field in ("model", "max_tokens", "messages")}
        rest = {field: value for field, value in body.items() if field not in named}
        return await client.messages.with_raw_response.create(stream=True, extra_body=rest, **named)


class AnthropicReader:
    """Reads the events of the Messages API."""

    def __init__(self, assembly: AnswerAssembly, errors: ErrorReader) -> None:
        self._assembly = assembly
        self._errors = errors
        self._usage: dict[str, int] = {}
        self.stop_reason = ""
        self.finished = False

    def read(self, data: Mapping[str, Any]) -> list[ModelEvent]:
        """Return what one event means; kinds that are not known are skipped."""
        match data["type"]:
            case "message_start":
                self._count(data["message"].get("usage"))
            case "content_block_start":
                return self._read_start(data["index"], data["content_block"])
            case "content_block_delta":
                return self._read_delta(data["index"], data["delta"])
            case "message_delta":
                self._count(data.get("usage"))
                reason = data["delta"].get("stop_reason")
                if reason is not None:
                    self.stop_reason = STOP_REASONS.get(reason, "end")
            case "message_stop":
                self.finished = True
            case "error":
                raise self._errors.read_body(data)
            case _:
                pass
        return []

    def _read_start(self, index: int, block: Mapping[str, Any]) -> list[ModelEvent]:
        match block["type"]:
            case "text":
                return self._assembly.add_text(block["text"])
            case "tool_use":
                self._assembly.add_call_piece(index=index, call_id=block["id"], name=block["name"])
            case _:
                pass
        return []

    def _read_delta(self, index: int, delta: Mapping[str, Any]) -> list[ModelEvent]:
        match delta["type"]:
            case "text_delta":
                return self._assembly.add_text(delta["text"])
            case "input_json_delta":
                return self._assembly.add_call_piece(index=index, arguments=delta["partial_json"])
            case _:
                return []

    def _count(self, usage: Mapping[str, Any] | None) -> None:
        # Counts are totals so far, given at the start and again at the end; the later one stands.
        self._usage |= {field: count for field, count in (usage or {}).items() if isinstance(count, int)}
        cached = self._usage.get("cache_read_input_tokens", 0)
        written = self._usage.get("cache_creation_input_tokens", 0)
        self._assembly.usage = Usage(
            self._usage.get("input_tokens", 0) + cached + written, self._usage.get("output_tokens", 0), cached
        )


def to_turns(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return a conversation as the turns of the Messages API, user and assistant in alternation."""
    turns: list[dict[str, Any]] = []
    for message in messages:
        role, blocks = _blocks(message)
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        elif blocks:
            turns.append({"role": role, "content": blocks})
    return turns


def _blocks(message: Message) -> tuple[str, list[dict[str, Any]]]:
    match message:
        case UserMessage():
            return "user", [{"type": "text", "text": _some_text(message.text)}]
        case ToolResult():
            result = {"type": "tool_result", "tool_use_id": wire_call_id(message.call_id)}
            return "user", [{**result, "content": _some_text(message.content), "is_error": message.is_error}]
        case AssistantMessage():
            text = clean_text(message.text).rstrip()
            blocks: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
            return "assistant", [*blocks, *map(_tool_use, message.tool_calls)]


def _tool_use(call: ToolCall) -> dict[str, Any]:
    named = {"type": "tool_use", "id": wire_call_id(call.id), "name": wire_tool_name(call.name)}
    return {**named, "input": call_arguments(call)}


def _some_text(text: str) -> str:
    return clean_text(text) if text.strip() else "(empty)"


def _calls(messages: Sequence[Message]) -> list[ToolCall]:
    return [call for message in messages if isinstance(message, AssistantMessage) for call in message.tool_calls]

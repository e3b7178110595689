"""`OpenAIModel`: the Chat Completions API through the official SDK, of OpenAI or of any compatible server."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from sapwood.actors import Environment
from sapwood.conversation import AssistantMessage, Message, ToolResult, Usage, UserMessage
from sapwood.models._assembly import AnswerAssembly
from sapwood.models._protocol import ModelEvent, ModelRequest
from sapwood.models._sdk import SdkModel, WireReader
from sapwood.models._sdk_errors import ErrorReader
from sapwood.models._surrogates import clean_text, clean_value
from sapwood.models._wire_names import call_arguments, wire_call_id, wire_tool_name

STOP_REASONS = {
    "stop": "end",
    "tool_calls": "tools",
    "function_call": "tools",
    "length": "length",
    "content_filter": "refused",
}
"""The provider's finish reasons in our words; one that is not here counts as `end`."""


class OpenAIModel(SdkModel):
    """A model behind the Chat Completions API, called through the official `openai` SDK (extra `sapwood[llm]`).

    With `base_url` it talks to any compatible server. Lone surrogates in a conversation become U+FFFD. The SDK's own
    retries are off; see `retrying`.

    Args:
        name: Name of the model, as the server spells it.
        api_key: Key; default is the environment variable `OPENAI_API_KEY` at the time of the call, which is then sent
            to `base_url` too. It appears in no repr, error or log of Sapwood.
        base_url: Root of a compatible server, with its version: `http://localhost:8080/v1`. It needs no key unless it
            wants one.
        max_tokens: Limit of an answer in tokens where the request names none; None leaves it to the server. It is
            sent as `max_completion_tokens`, and to a `base_url` as `max_tokens`, which is what servers know.
        stall_timeout: Seconds without any event after which the stream counts as broken. A server that computes on
            the prompt for long before its first event needs more.
        environment: Source of ids and the clock for `Retry-After` dates; default is the real world.

    Raises:
        InvalidOption: if a value is out of its range.
        MissingExtra: if the SDK is not installed.
    """

    provider = "openai"
    package = "openai"
    key_variable = "OPENAI_API_KEY"

    def __init__(
        self,
        name: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        max_tokens: int | None = None,
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
        return sdk.AsyncOpenAI(**options)

    def _make_body(self, request: ModelRequest) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.model,
            "messages": to_messages(request.system, request.messages),
            "stream_options": {"include_usage": True},
        }
        limit = request.max_tokens or self._max_tokens
        if limit is not None:
            body["max_tokens" if self._base_url else "max_completion_tokens"] = limit
        if request.temperature is not None:
            body["temperature"] = request.temperature
        if request.tools:
            body["tools"] = [
                {
                    "type": "function",
                    "function": {
                        "name": tool.name,
                        "description": clean_text(tool.description),
                        "parameters": clean_value(dict(tool.parameters)),
                    },
                }
                for tool in request.tools
            ]
        return body

    def _make_reader(self, assembly: AnswerAssembly, errors: ErrorReader) -> WireReader:
        return OpenAIReader(assembly, errors)

    async def _create(self, client: Any, body: dict[str, Any]) -> Any:
        return await client.chat.completions.with_raw_response.create(stream=True, **body)


class OpenAIReader:
    """Reads the chunks of the Chat Completions API."""

    def __init__(self, assembly: AnswerAssembly, errors: ErrorReader) -> None:
        self._assembly = assembly
        self._errors = errors
        self._refused = False
        self.stop_reason = ""
        self.finished = False

    def read(self, data: Mapping[str, Any]) -> list[ModelEvent]:
        """Return what one chunk means; only the first choice counts."""
        if data.get("error"):
            raise self._errors.read_body(data)
        self._count(data.get("usage"))
        events: list[ModelEvent] = []
        for choice in data.get("choices") or ():
            if choice.get("index", 0) == 0:
                events += self._read_choice(choice)
        return events

    def _read_choice(self, choice: Mapping[str, Any]) -> list[ModelEvent]:
        delta: dict[str, Any] = choice.get("delta") or {}
        events = self._assembly.add_text(delta.get("content") or "")
        events += self._assembly.add_text(delta.get("refusal") or "")
        pieces: list[dict[str, Any]] = delta.get("tool_calls") or []
        for piece in pieces:
            function: dict[str, Any] = piece.get("function") or {}
            arguments = function.get("arguments") or ""
            events += self._assembly.add_call_piece(
                index=piece.get("index"),
                call_id=piece.get("id") or "",
                name=function.get("name") or "",
                arguments=arguments if isinstance(arguments, str) else json.dumps(arguments),
            )
        self._refused = self._refused or bool(delta.get("refusal"))
        reason = choice.get("finish_reason")
        if reason:
            self.stop_reason = "refused" if self._refused else STOP_REASONS.get(reason, "end")
        return events

    def _count(self, usage: Mapping[str, Any] | None) -> None:
        if usage:
            details: dict[str, Any] = usage.get("prompt_tokens_details") or {}
            counts = (usage.get("prompt_tokens"), usage.get("completion_tokens"), details.get("cached_tokens"))
            self._assembly.usage = Usage(*(count if isinstance(count, int) else 0 for count in counts))


def to_messages(system: str, messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return a system prompt and a conversation as the messages of the Chat Completions API."""
    made: list[dict[str, Any]] = []
    if system.strip():
        made.append({"role": "system", "content": clean_text(system)})
    for message in messages:
        match message:
            case UserMessage():
                made.append({"role": "user", "content": clean_text(message.text)})
            case ToolResult():
                result = {"role": "tool", "tool_call_id": wire_call_id(message.call_id)}
                made.append({**result, "content": clean_text(message.content)})
            case AssistantMessage() if message.text or message.tool_calls:
                made.append(_assistant(message))
            case AssistantMessage():
                pass  # An answer that was cut off before its first word; servers refuse an empty one.
    return made


def _assistant(message: AssistantMessage) -> dict[str, Any]:
    made: dict[str, Any] = {"role": "assistant", "content": clean_text(message.text) or None}
    if message.tool_calls:
        made["tool_calls"] = [
            {
                "id": wire_call_id(call.id),
                "type": "function",
                "function": {"name": wire_tool_name(call.name), "arguments": json.dumps(call_arguments(call))},
            }
            for call in message.tool_calls
        ]
    return made

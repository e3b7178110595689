"""ResponseCache: a question that was asked before is answered from memory, without the model."""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

import attrs

from sapwood.actors import Environment
from sapwood.conversation import AssistantMessage, Message, PatchMetadata, State, ToolResult, Usage, evolve
from sapwood.errors import InvalidOption, ModelError
from sapwood.middleware._context import MiddlewareContext
from sapwood.middleware._contract import HookResult, Middleware, ModelCall
from sapwood.models import ModelRequest

KEY: Final = "response_cache"
"""Where answers from the cache are marked in the metadata."""


@attrs.frozen
class _Kept:
    answer: AssistantMessage
    at: float
    size: int
    # Monotonic times are those of one run; what another runtime kept has no age here.
    environment: Environment


@attrs.frozen
class _Hit:
    age: float
    is_stale: bool


class ResponseCache(Middleware):
    """Answers a request that equals an earlier one with the answer that it got (S2-061).

    Requests are equal if the name of the model, system prompt, messages, tools and parameters are; ids of messages and
    calls do not count, so conversations of one agent share their answers. Only whole answers are kept (`stop_reason`
    `end`), and by default none that calls tools: what a tool finds may have changed. It keeps answers in memory, for
    as long as the instance lives; each runtime fills it anew.

    An answer from the cache has consumed nothing, so its usage is zero, and it is marked in the metadata:
    `{"response_cache": {"hits": 3, "message": "<id of the last such answer>", "age": 12.5, "stale": False}}`. With
    `stale_for`, an answer past its time stands in when the models cannot answer: the last step before the error.
    An answer of a fallback model is kept like one of the agent's own. Nothing of an answer from the cache is streamed;
    it comes whole.

    Args:
        ttl: Seconds that an answer is good for.
        capacity: Most answers; beyond it the longest unused leaves.
        max_bytes: Most bytes of text that all answers may have together.
        stale_for: Seconds after `ttl` in which an answer is still given if the model call fails with a `ModelError`;
            0 for never.
        tool_calls: Whether to keep answers that call tools, too.
        shared: Whether all agents with this instance share answers; by default each name has its own.

    Raises:
        InvalidOption: if an option is out of its range.
    """

    runs_after = ("PatchToolCalls", "Summarization", "ContextEditing", "ResultEviction", "CallLimits")

    def __init__(
        self,
        *,
        ttl: float = 300.0,
        capacity: int = 1_000,
        max_bytes: int = 8 * 1024 * 1024,
        stale_for: float = 0.0,
        tool_calls: bool = False,
        shared: bool = False,
    ) -> None:
        for name, fine, expected in (
            ("ttl", _is_number(ttl) and ttl > 0, "seconds > 0"),
            ("capacity", type(capacity) is int and capacity >= 1, "an int >= 1"),
            ("max_bytes", type(max_bytes) is int and max_bytes >= 1, "an int >= 1"),
            ("stale_for", _is_number(stale_for) and stale_for >= 0, "seconds >= 0"),
        ):
            if not fine:
                raise InvalidOption(f"ResponseCache {name}: expected {expected}; got {locals()[name]!r}")
        self.ttl = ttl
        self.capacity = capacity
        self.max_bytes = max_bytes
        self.stale_for = stale_for
        self.tool_calls = tool_calls
        self.shared = shared
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    def clear(self) -> None:
        """Forget all answers."""
        self._kept.clear()
        self._bytes = 0

    async def around_model_call(
        self, request: ModelRequest, call_next: ModelCall, context: MiddlewareContext
    ) -> AssistantMessage:
        context.local.pop(self.name, None)
        key = self._key(request, context)
        kept, age = self._find(key, context.environment)
        if kept is not None and age <= self.ttl:
            return self._hit(key, kept, age, context)
        try:
            answer = await call_next(request)
        except ModelError:
            kept, age = self._find(key, context.environment)
            if kept is None:
                raise
            return self._hit(key, kept, age, context)
        self._keep(key, answer, context.environment)
        return answer

    async def after_model(self, state: State, context: MiddlewareContext) -> HookResult:
        hit: _Hit | None = context.local.pop(self.name, None)
        if hit is None:
            return None
        answer = next((each for each in reversed(state.messages) if isinstance(each, AssistantMessage)), None)
        mark = {
            "hits": _hits(state.metadata.get(KEY)) + 1,
            "message": answer.id if answer is not None else "",
            "age": round(hit.age, 3),
            "stale": hit.is_stale,
        }
        return [PatchMetadata({KEY: mark})]

    # --- the answers ------------------------------------------------------------------------------

    def _find(self, key: str, environment: Environment) -> tuple[_Kept | None, float]:
        kept = self._kept.get(key)
        if kept is None:
            return None, 0.0
        age = environment.monotonic() - kept.at
        if kept.environment is not environment or age > self.ttl + self.stale_for:
            self._forget(key)
            return None, 0.0
        return kept, age

    def _hit(self, key: str, kept: _Kept, age: float, context: MiddlewareContext) -> AssistantMessage:
        self._kept.move_to_end(key)
        context.local[self.name] = _Hit(age, age > self.ttl)
        new_id = context.environment.new_id
        calls = tuple(evolve(call, id=new_id("call_")) for call in kept.answer.tool_calls)
        return evolve(kept.answer, tool_calls=calls) if calls else kept.answer

    def _keep(self, key: str, answer: AssistantMessage, environment: Environment) -> None:
        if answer.stop_reason not in ("end", "tools") or (answer.tool_calls and not self.tool_calls):
            return
        kept = evolve(answer, id="", usage=Usage())
        size = len(json.dumps(list(_plain((kept,)))))
        if size > self.max_bytes:
            return
        self._forget(key)
        self._kept[key] = _Kept(kept, environment.monotonic(), size, environment)
        self._bytes += size
        while len(self._kept) > self.capacity or self._bytes > self.max_bytes:
            self._forget(next(iter(self._kept)))

    def _forget(self, key: str) -> None:
        kept = self._kept.pop(key, None)
        if kept is not None:
            self._bytes -= kept.size

    def _key(self, request: ModelRequest, context: MiddlewareContext) -> str:
        asked: dict[str, Any] = {
            "agent": "" if self.shared else context.agent.name,
            "model": context.agent.model.name,
            "system": request.system,
            "messages": list(_plain(request.messages)),
            "tools": [attrs.asdict(tool) for tool in request.tools],
            "max_tokens": request.max_tokens,
            "temperature": request.temperature,
        }
        return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()


def _plain(messages: tuple[Message, ...]) -> Iterator[dict[str, Any]]:
    """Yield what a model sees of messages: calls numbered as they come, since their ids are drawn at random."""
    numbers: dict[str, int] = {}
    for message in messages:
        plain: dict[str, Any] = attrs.asdict(message)  # type: ignore[arg-type]  # a record, which checkers do not know
        for hidden in ("id", "usage", "stop_reason"):
            plain.pop(hidden, None)
        if isinstance(message, AssistantMessage):
            for call in plain["tool_calls"]:
                call["id"] = numbers.setdefault(call["id"], len(numbers))
        elif isinstance(message, ToolResult):
            plain["call_id"] = numbers.setdefault(message.call_id, len(numbers))
        yield {"role": type(message).__name__, **plain}


def _hits(stored: object) -> int:
    hits = cast("Mapping[str, object]", stored).get("hits") if isinstance(stored, Mapping) else None
    return hits if type(hits) is int else 0


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)

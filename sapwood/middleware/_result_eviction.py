"""ResultEviction: large tool results are kept elsewhere; the conversation holds their beginning and a reference."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any, Final

import attrs

from sapwood.conversation import AssistantMessage, Message, ToolCall, ToolResult, ToolSpec, clean_text, evolve
from sapwood.errors import InvalidOption
from sapwood.middleware._context import MiddlewareContext
from sapwood.middleware._contract import Middleware, ModelCall, ToolInvocation
from sapwood.middleware._kept_results import FileResults, ResultReader
from sapwood.middleware._names import several_names
from sapwood.middleware._tokens import CHARACTERS_PER_TOKEN, TokenCounter, message_tokens, text_tokens
from sapwood.models import ModelRequest
from sapwood.tools import ResultStore, Tool, ToolOutcome, tool

TOOL: Final = "read_tool_result"


class ResultEviction(Middleware):
    """Keeps tool results that are too large in a store, and leaves the model a preview with a reference.

    The result in the conversation carries the reference in `ToolResult.reference`, and the model reads on with
    `read_tool_result`, from its own conversation alone. By default results are files of the scope, in
    `tool-results/CONVERSATION/`, where the `FileSystem` tools of the same scope find them as well. A result that
    cannot be kept stays as it is: nothing is lost.

    With a `window`, a request that is larger, system prompt and tools included, has further results moved in the same
    way, largest first, until it fits (BR-64). That changes the request alone; the conversation keeps these results.

    Args:
        threshold: Tokens of a result beyond which it is kept elsewhere, at 4 characters a token.
        preview_lines: Lines of the beginning, and as many of the end, that stay.
        scope: Whose files; None for those of the conversation alone.
        store: Another place than files; then `scope` is of no meaning.
        exclude: Names of tools whose results stay, whatever their size.
        window: Tokens that a whole request may have; None for any number.
        count: Counts the tokens of a message for `window`; by default an estimate of 4 characters a token.

    Raises:
        InvalidOption: if the threshold is below 100 tokens, `preview_lines` below 1, the window below 100,
            both scope and store are given, or `exclude` is a single text.
    """

    runs_after = ("Summarization", "ContextEditing")

    def __init__(
        self,
        threshold: int = 10_000,
        *,
        preview_lines: int = 10,
        scope: tuple[Any, ...] | None = None,
        store: ResultStore | None = None,
        exclude: Collection[str] = ("read_file",),
        window: int | None = None,
        count: TokenCounter = message_tokens,
    ) -> None:
        if threshold < 100:
            raise InvalidOption(f"ResultEviction: expected a threshold of 100 tokens or more; got {threshold!r}")
        if preview_lines < 1:
            raise InvalidOption(f"ResultEviction: expected 1 preview line or more; got {preview_lines!r}")
        if window is not None and window < 100:
            raise InvalidOption(f"ResultEviction: expected a window of 100 tokens or more, or None; got {window!r}")
        if scope is not None and store is not None:
            raise InvalidOption("ResultEviction: expected a scope or a store; got both: drop one of them")
        self.threshold = threshold
        self.preview_lines = preview_lines
        self.scope = scope
        self.store = store
        self.exclude = frozenset({*several_names(exclude, "ResultEviction exclude"), TOOL})
        self.window = window
        self.count = count

    def tools(self, context: MiddlewareContext) -> Sequence[Tool[..., Any]]:
        reader = ResultReader(self._store(context), self.threshold * CHARACTERS_PER_TOKEN // 2)
        return (tool(name=TOOL, idempotent=True)(reader.read),)

    async def around_tool_call(
        self, call: ToolCall, call_next: ToolInvocation, context: MiddlewareContext
    ) -> ToolOutcome:
        outcome = await call_next(call)
        text = outcome.result.content if outcome.whole is None else clean_text(outcome.whole)
        if len(text) <= self.threshold * CHARACTERS_PER_TOKEN or call.name in self.exclude:
            return outcome
        moved = await self._moved(evolve(outcome.result, call_id=call.id, content=text), context)
        return outcome if moved is None else evolve(outcome, result=moved, whole=None)

    async def around_model_call(
        self, request: ModelRequest, call_next: ModelCall, context: MiddlewareContext
    ) -> AssistantMessage:
        if self.window is not None:
            request = await self._fitting(request, self.window, context)
        return await call_next(request)

    async def _fitting(self, request: ModelRequest, window: int, context: MiddlewareContext) -> ModelRequest:
        messages: list[Message] = list(request.messages)
        tokens = [self.count(message) for message in messages]
        excess = text_tokens(request.system) + sum(map(_tool_tokens, request.tools)) + sum(tokens) - window
        for index in sorted(range(len(messages)), key=lambda each: -tokens[each]):
            if excess <= 0:
                break
            message = messages[index]
            if not isinstance(message, ToolResult) or message.name in self.exclude or message.reference:
                continue
            moved = await self._moved(message, context)
            if moved is not None and self.count(moved) < tokens[index]:
                messages[index] = moved
                excess -= tokens[index] - self.count(moved)
        return attrs.evolve(request, messages=tuple(messages))

    async def _moved(self, result: ToolResult, context: MiddlewareContext) -> ToolResult | None:
        """Return a result that is kept elsewhere; None if it cannot be kept."""
        known: dict[str, tuple[str, str]] = context.local.setdefault(self.name, {})
        text, reference = known.get(result.call_id, ("", ""))
        if not reference or text != result.content:
            try:
                reference = await self._store(context).put(context.agent_id, result.call_id, result.content)
            except Exception:
                # What cannot be kept elsewhere is better too large than gone.
                return None
            known[result.call_id] = (result.content, reference)
        return evolve(result, content=self._preview(result.content, reference), reference=reference)

    def _store(self, context: MiddlewareContext) -> ResultStore:
        if self.store is not None:
            return self.store
        scope = self.scope if self.scope is not None else ("agent", context.agent_id)
        return FileResults(context.files.client(scope))

    def _preview(self, text: str, reference: str) -> str:
        room = min(self.threshold * CHARACTERS_PER_TOKEN // 4, len(text) // 16)
        lines = text.splitlines()
        head = "\n".join(lines[: self.preview_lines])[:room]
        tail = "\n".join(lines[self.preview_lines :][-self.preview_lines :])[-room:]
        notice = (
            f"[{len(text)} characters in {len(lines)} lines are kept as {reference!r}; this is the beginning"
            f"{' and the end' if tail else ''}. Read on with {TOOL}]"
        )
        return "\n".join(part for part in (head, notice, tail) if part)


def _tool_tokens(spec: ToolSpec) -> int:
    return text_tokens(f"{spec.name} {spec.description} {json.dumps(dict(spec.parameters), default=str)}")

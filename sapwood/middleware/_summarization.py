"""Summarization: the model sees a summary in place of what is long past; the conversation itself stays whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from sapwood.actors import get_logger
from sapwood.conversation import (
    AssistantMessage,
    Message,
    PatchMetadata,
    State,
    Usage,
    UserMessage,
    check_pairs,
    evolve,
    orphan_results,
    repair_pairs,
)
from sapwood.errors import InvalidOption
from sapwood.middleware._asking import ask_model
from sapwood.middleware._context import MiddlewareContext
from sapwood.middleware._contract import HookResult, Middleware, ModelCall
from sapwood.middleware._steps import safe_cuts, step_starts
from sapwood.middleware._summary import PROMPT, Summary, as_transcript
from sapwood.middleware._tokens import TokenCounter, message_tokens, text_tokens
from sapwood.models import ChatModel, ModelRequest, RetryPolicy

LOGGER: Final = "sapwood.middleware"

KEY: Final = "summarization"
"""Where the summary is kept in the metadata."""

RECENT_SHARE: Final = 0.7
"""Share of the threshold that recent messages may take after a summary; the rest is for the summary (S3-091)."""

LEAST_SHARE: Final = 0.1
"""Share of the threshold below which summarising what is old would not be worth a model call."""

MOST_AT_ONCE: Final = 50_000
"""Tokens that one summarising call may read; what is older still is summarised by calls before it."""


class Summarization(Middleware):
    """Shortens what the model sees once a conversation is long, by a summary that grows with it (S4-014, S3-093).

    When the messages of a request exceed the threshold, the older ones are summarised and the summary stands in
    their place in every further request. Messages of the conversation are never touched, so people go on seeing all
    of them. The summary is part of the metadata, under `summarization`, and thus survives restarts; the next one
    extends it instead of reading everything again.

    A cut never parts a call from its results, and open calls are never summarised. Where a history is damaged all the
    same, what is sent is valid: results without a call are left out of the request, which is logged, or go into the
    summary (BR-62). The newest message of a person stays as it is. If a summary fails, the model sees everything,
    `problem` in the metadata says why, and the next model call tries again. What summaries consume is counted: the
    calls in the metadata, and the tokens in the usage of the answer that follows.

    It comes after `PatchToolCalls`, which mends what it reads, and before the layers that only shorten requests.

    Args:
        threshold: Tokens of messages beyond which older ones are summarised; without system prompt and tools (S3-095).
        keep: Latest steps that are never summarised: an answer with the results of its calls, and what people said
            before it.
        model: Writes the summaries; by default the agent's model.
        prompt: System prompt of the summarising calls.
        count: Counts the tokens of a message; by default an estimate of 4 characters a token.
        retry: When a summarising call is repeated; default `RetryPolicy()`.

    Raises:
        InvalidOption: if the threshold is below 100 tokens, or `keep` below 1.
    """

    runs_after = ("PatchToolCalls",)

    def __init__(
        self,
        threshold: int = 8_000,
        *,
        keep: int = 4,
        model: ChatModel | None = None,
        prompt: str = PROMPT,
        count: TokenCounter = message_tokens,
        retry: RetryPolicy | None = None,
    ) -> None:
        if threshold < 100:
            raise InvalidOption(f"Summarization: expected a threshold of 100 tokens or more; got {threshold!r}")
        if keep < 1:
            raise InvalidOption(f"Summarization: expected to keep 1 step or more; got {keep!r}")
        self.threshold = threshold
        self.keep = keep
        self.model = model
        self.prompt = prompt
        self.count = count
        self.retry = retry

    async def before_model(self, state: State, context: MiddlewareContext) -> HookResult:
        before = Summary.read(state.metadata.get(KEY))
        summary = before
        while True:
            start = summary.end(state.messages)
            # What an earlier summary stood for is no longer there: it says nothing about what is.
            summary = summary if start else summary.forget()
            cut = self._cut(state.messages[start:], _open_calls(state), summary)
            if cut == 0:
                break
            try:
                summary = await self._extended(summary, state, start, start + cut, context)
            except Exception as error:
                # Whatever is wrong with the summary, the conversation goes on as it is.
                problem = f"{type(error).__name__}: {error}"
                summary = evolve(summary, calls=summary.calls + 1, problem=problem)
                break
        return None if summary == before else [PatchMetadata({KEY: summary.write()})]

    def _cut(self, messages: Sequence[Message], open_calls: set[str], summary: Summary) -> int:
        """Return how many of the messages are to be summarised now; 0 for none (S3-091)."""
        tokens = [self.count(message) for message in messages]
        total = sum(tokens) + (text_tokens(summary.block) if summary.text else 0)
        steps = step_starts(messages)
        if total <= self.threshold or len(steps) <= self.keep:
            return 0
        newest = steps[-self.keep]
        chosen, before = 0, 0
        rest, done = sum(tokens), 0
        for cut in safe_cuts(messages, open_calls):
            step = sum(tokens[done:cut])
            done, rest, before = cut, rest - step, before + step
            if cut and not messages[cut - 1].id:
                continue
            if cut > newest or (chosen and before > MOST_AT_ONCE):
                break
            chosen = cut
            if rest <= RECENT_SHARE * self.threshold:
                break
        return chosen if sum(tokens[:chosen]) >= LEAST_SHARE * self.threshold else 0

    async def _extended(
        self, summary: Summary, state: State, start: int, end: int, context: MiddlewareContext
    ) -> Summary:
        older = state.messages[start:end]
        answer = await ask_model(
            self.model or context.agent.model,
            context.environment,
            system=self.prompt,
            text=as_transcript(summary.text, older),
            max_tokens=max(100, int((1 - RECENT_SHARE) * self.threshold)),
            policy=self.retry,
        )
        last = _last_answer(state.messages)
        return Summary(
            text=answer.text.strip(),
            through=older[-1].id,
            steps=summary.steps + len(step_starts(older)),
            calls=summary.calls + 1,
            owed=answer.usage + summary.owed if summary.owed_after == last else answer.usage,
            owed_after=last,
        )

    async def around_model_call(
        self, request: ModelRequest, call_next: ModelCall, context: MiddlewareContext
    ) -> AssistantMessage:
        summary = Summary.read(context.state.metadata.get(KEY))
        end = summary.end(request.messages)
        if end:
            _report_left_out(request.messages[end:], context.agent.name)
            request = attrs.evolve(request, messages=_shortened(request.messages, end, summary))
        owed = summary.owed if summary.owed_after == _last_answer(context.state.messages) else Usage()
        answer = await call_next(request)
        return answer if owed == Usage() else evolve(answer, usage=answer.usage + owed)


def _shortened(messages: tuple[Message, ...], end: int, summary: Summary) -> tuple[Message, ...]:
    recent = messages[end:]
    if check_pairs(recent):
        recent = repair_pairs(recent)
    asked: tuple[Message, ...] = ()
    if not any(isinstance(message, UserMessage) for message in recent):
        asked = tuple(each for each in reversed(messages[:end]) if isinstance(each, UserMessage))[:1]
    return (UserMessage(summary.block), *asked, *recent)


def _report_left_out(recent: Sequence[Message], agent: str) -> None:
    """Say which results a request goes without, since no call asks for them (BR-62)."""
    ids = [result.id for result in orphan_results(recent)]
    if ids:
        get_logger(LOGGER).warning("results without a call were left out of a request", agent=agent, messages=ids)


def _open_calls(state: State) -> set[str]:
    return {each.call.id for each in state.pending} | {each.id for each in state.interrupts}


def _last_answer(messages: Sequence[Message]) -> str:
    return next((each.id for each in reversed(messages) if isinstance(each, AssistantMessage)), "")


def summary_of(metadata: Mapping[str, Any]) -> str:
    """Return the summary that the model sees in place of older messages; empty if there is none.

    Args:
        metadata: The conversation's, as in `session.state.metadata`.
    """
    return Summary.read(metadata.get(KEY)).text

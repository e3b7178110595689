"""Model calls: one answer, from whichever model gives it, with every failed attempt in the journal."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeAlias

import attrs
import trio

from sapwood.agents._agent import Agent
from sapwood.agents._log import COMMIT_WITHIN, Log
from sapwood.agents._publisher import Publisher
from sapwood.conversation import AssistantMessage, TextStreamed, ToolCallSeen, Usage, evolve, journal
from sapwood.errors import (
    LimitReached,
    ModelError,
    ModelProtocolError,
    ModelRefused,
    ModelUnavailable,
    PersistenceError,
    RateLimited,
    ScriptExhausted,
)
from sapwood.middleware import MiddlewareContext
from sapwood.models import (
    ChatModel,
    ModelAnswer,
    ModelRequest,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
    estimate_usage,
)

Elsewhere: TypeAlias = bool
"""Whether another model may succeed where one has failed."""

ELSEWHERE: Final[tuple[tuple[type[ModelError], frozenset[int] | None, Elsewhere], ...]] = (
    # error             HTTP status                                  try the next model
    (ScriptExhausted, None, False),  # the test is wrong
    (RateLimited, None, True),
    (ModelUnavailable, None, True),
    (ModelProtocolError, None, True),
    (ModelRefused, frozenset({401, 402, 403, 404, 413}), True),  # key, credit, access, name of the model, its window
    (ModelRefused, None, False),  # the request is wrong wherever it is sent
    (ModelError, None, False),
)
"""What is done about an error once the retry policy allows no further attempt; the first line that fits counts.

Whether the same model is called again is for the policy and the error's own `retryable` to say.
"""


def may_go_elsewhere(error: ModelError) -> bool:
    """Say whether the next model is called after this error."""
    return next(
        elsewhere
        for kind, statuses, elsewhere in ELSEWHERE
        if isinstance(error, kind) and (statuses is None or error.status in statuses)
    )


@attrs.define
class Heard:
    """What has come of one attempt so far."""

    opened: bool = False
    begun: bool = False
    text: list[str] = attrs.field(factory=list[str])

    def usage(self, request: ModelRequest) -> Usage:
        """Return the estimated tokens of an attempt whose provider never said how many there were (BR-56)."""
        return estimate_usage(request, "".join(self.text))


class ModelCalls:
    """Calls the agent's models until one has answered (S4-023, AR-22.17).

    A failed attempt is journaled before the next one begins, with its tokens; what was streamed of it is declared void.

    Args:
        agent: The agent: its model, the models to fall back on, its retry policy and its limits.
        log: The conversation.
        publisher: Where the text is streamed to.
        context: Makes the context that middleware sees.
    """

    def __init__(self, agent: Agent, log: Log, publisher: Publisher, context: Callable[[], MiddlewareContext]) -> None:
        self._agent = agent
        self._log = log
        self._publisher = publisher
        self._context = context

    async def call(self, request: ModelRequest) -> AssistantMessage:
        """Return the answer of the first model that gives one.

        Raises:
            ModelError: the last one, if no model has answered.
            LimitReached: if the run may not make the next attempt.
        """
        # A middleware may call again, and a former process may have died in the middle of a sentence.
        self._publisher.discard(self._run_id, "the model is called again")
        models = (self._agent.model, *self._agent.fallbacks)
        for model, following in zip(models, (*models[1:], None), strict=True):
            try:
                return await self._patiently(model, request, following)
            except ModelError as error:
                if following is None or not may_go_elsewhere(error):
                    raise
        raise AssertionError("unreachable: the last model either answers or raises")

    async def _patiently(
        self, model: ChatModel, request: ModelRequest, following: ChatModel | None
    ) -> AssistantMessage:
        attempt, waited = 1, 0.0
        while True:
            heard = Heard()
            try:
                return await self._attempt(model, request, heard)
            except ModelError as error:
                failure = error
            except trio.Cancelled:
                with trio.move_on_after(COMMIT_WITHIN, shield=True):
                    await self._note_stop(model, request, heard)
                raise
            random = self._context().environment.random
            wait = self._agent.retry.wait_after(attempt, failure, random, waited=waited)
            await self._note_failure(model, request, heard, failure, wait=wait, following=following)
            if wait is None:
                raise failure
            await trio.sleep(wait)
            attempt, waited = attempt + 1, waited + wait

    async def _attempt(self, model: ChatModel, request: ModelRequest, heard: Heard) -> AssistantMessage:
        publish, run_id = self._publisher.publish, self._run_id
        async with model.stream(request) as events:
            heard.opened = True
            async for event in events:
                heard.begun = True
                match event:
                    case TextDelta(text):
                        heard.text.append(text)
                        publish(TextStreamed, run_id, text=text)
                    case ToolCallStarted(call_id, name):
                        publish(ToolCallSeen, run_id, call_id=call_id, name=name)
                    case ToolCallDelta(text=text):
                        heard.text.append(text)
                        await trio.lowlevel.checkpoint_if_cancelled()
                    case ModelAnswer(message):
                        return message
                    case _:
                        await trio.lowlevel.checkpoint_if_cancelled()
        raise ModelProtocolError(model.name, "the stream ended without an answer")

    async def _note_failure(
        self,
        model: ChatModel,
        request: ModelRequest,
        heard: Heard,
        error: ModelError,
        *,
        wait: float | None,
        following: ChatModel | None,
    ) -> None:
        """Journal a failed attempt.

        Raises:
            LimitReached: if another attempt would have followed, and the run may not make it.
        """
        usage = heard.usage(request) if heard.begun else Usage()
        failed = journal.ModelAttemptFailed(self._run_id, model.name, str(error), usage)
        if wait is not None:
            failed = evolve(failed, following="retry", next_model=model.name, wait=wait)
        elif following is not None and may_go_elsewhere(error):
            failed = evolve(failed, following="fallback", next_model=following.name)
        refusal = self._refusal(usage) if failed.next_model else None
        if refusal is not None:
            failed = evolve(failed, following="fail", next_model="", wait=0.0)
        await self._log.commit(failed)
        if refusal is not None:
            raise refusal

    def _refusal(self, usage: Usage) -> LimitReached | None:
        """Return why the run may not make another attempt after one that consumed so much; None if it may."""
        run = self._log.state.run
        if run is None:
            return None
        try:
            self._agent.limits.check(evolve(run, usage=run.usage + usage))
        except LimitReached as error:
            return error
        return None

    async def _note_stop(self, model: ChatModel, request: ModelRequest, heard: Heard) -> None:
        """Journal the tokens of a call that was cancelled: the provider has them on its bill (BR-68)."""
        if not heard.opened:
            return
        usage = heard.usage(request)
        stopped = journal.ModelAttemptFailed(self._run_id, model.name, "cancelled", usage, following="stop")
        with suppress(PersistenceError):  # whoever waits for the end of the run is told of that
            await self._log.commit(stopped)

    @property
    def _run_id(self) -> str:
        run = self._log.state.run
        return run.id if run is not None else ""

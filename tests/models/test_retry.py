"""Retries of model calls, under the virtual clock."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from sapwood.actors import SimulatedEnvironment
from sapwood.conversation import UserMessage
from sapwood.errors import (
    InvalidOption,
    ModelError,
    ModelProtocolError,
    ModelRefused,
    ModelUnavailable,
    RateLimited,
    ScriptExhausted,
)
from sapwood.models import (
    NO_RETRY,
    ChatModel,
    Delay,
    ModelAnswer,
    ModelEvent,
    ModelRequest,
    RetryPolicy,
    ScriptedModel,
    Stall,
    StreamRestarted,
    TextDelta,
    retrying,
)

REQUEST = ModelRequest("", (UserMessage("hi"),))
EXACT = RetryPolicy(jitter=0.0)
DOWN = ModelUnavailable("scripted", "connection lost")


async def collect(model: ChatModel, policy: RetryPolicy | None = None) -> list[ModelEvent]:
    async with retrying(model, REQUEST, environment=SimulatedEnvironment(), policy=policy) as events:
        return [event async for event in events]


async def test_partial_text_is_followed_by_the_order_to_discard_it_and_then_by_the_whole_answer(
    autojump_clock: MockClock,
) -> None:
    model = ScriptedModel(["Half of", DOWN], "Whole.", chunk=100)

    events = await collect(model, EXACT)

    assert events[:-1] == [
        TextDelta("Half of"),
        StreamRestarted("scripted: connection lost", 2, 1.0),
        TextDelta("Whole."),
    ]
    assert isinstance(events[-1], ModelAnswer)
    assert trio.current_time() == pytest.approx(1.0)


async def test_waits_grow_by_the_factor_and_the_last_error_is_raised(autojump_clock: MockClock) -> None:
    errors = [ModelUnavailable("scripted", str(number)) for number in (1, 2, 3)]
    model = ScriptedModel(*errors, "never reached")

    with pytest.raises(ModelUnavailable) as caught:
        await collect(model, EXACT)

    assert caught.value is errors[-1]
    assert trio.current_time() == pytest.approx(1.0 + 2.0)
    assert model.remaining == 1


async def test_the_wait_that_a_provider_asks_for_is_kept(autojump_clock: MockClock) -> None:
    model = ScriptedModel(RateLimited("scripted", "slow down", retry_after=7.0), "Done.")

    events = await collect(model, EXACT)

    assert events[0] == StreamRestarted("scripted: slow down", 2, 7.0)
    assert trio.current_time() == pytest.approx(7.0)


@pytest.mark.parametrize("error", [ModelRefused("scripted", "no such model"), ScriptExhausted("scripted", "", 0)])
async def test_an_error_that_cannot_pass_is_raised_at_once(autojump_clock: MockClock, error: ModelError) -> None:
    model = ScriptedModel(error, "never reached")

    with pytest.raises(type(error)):
        await collect(model)

    assert len(model.requests) == 1
    assert trio.current_time() == 0


async def test_a_wait_beyond_the_total_is_not_begun(autojump_clock: MockClock) -> None:
    model = ScriptedModel(RateLimited("scripted", "come back tomorrow", retry_after=86400.0), "never reached")

    with pytest.raises(RateLimited):
        await collect(model)

    assert trio.current_time() == 0


async def test_waits_add_up_to_the_total(autojump_clock: MockClock) -> None:
    model = ScriptedModel(DOWN, DOWN, DOWN, "never reached")

    with pytest.raises(ModelUnavailable):
        await collect(model, RetryPolicy(attempts=9, jitter=0.0, max_total_wait=4.0))

    assert trio.current_time() == pytest.approx(3.0)
    assert len(model.requests) == 3


async def test_no_retry_raises_the_first_error(autojump_clock: MockClock) -> None:
    with pytest.raises(ModelUnavailable):
        await collect(ScriptedModel(DOWN, "never reached"), NO_RETRY)


async def test_an_error_that_is_no_model_error_passes_through_unrepeated(autojump_clock: MockClock) -> None:
    model = ScriptedModel(KeyError("a bug"), "never reached")

    with pytest.raises(KeyError, match="a bug"):
        await collect(model)

    assert model.remaining == 1


class Mute:
    """A model whose streams end without an answer."""

    name = "mute:1"

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[ModelEvent], None]:
        yield self._nothing()

    async def _nothing(self) -> AsyncGenerator[ModelEvent, None]:
        await trio.lowlevel.checkpoint()
        for event in list[ModelEvent]():
            yield event


async def test_a_stream_without_an_answer_is_a_protocol_error(autojump_clock: MockClock) -> None:
    with pytest.raises(ModelProtocolError, match="without an answer"):
        await collect(Mute())

    assert trio.current_time() > 2.0


@pytest.mark.row("BR-68")
@pytest.mark.parametrize("script", [[Stall()], [DOWN], ["some text", Stall()], [Delay(100.0)]], ids=str)
async def test_a_cancellation_ends_a_call_and_a_wait_at_once(autojump_clock: MockClock, script: list[Any]) -> None:
    with trio.move_on_after(0.5) as scope:
        await collect(ScriptedModel(script, [Stall()]))

    assert scope.cancelled_caught
    assert trio.current_time() == pytest.approx(0.5)


@pytest.mark.row("BR-68")
async def test_a_provider_that_swallows_the_cancellation_leaves_nobody_waiting_and_no_answer(
    autojump_clock: MockClock,
) -> None:
    async def deaf(request: ModelRequest) -> str:
        with trio.CancelScope(shield=True):
            await trio.sleep(0.6)
        return "I finish all the same."

    got: list[ModelEvent] = []
    with trio.move_on_after(0.5) as scope:
        async with retrying(ScriptedModel(deaf), REQUEST, environment=SimulatedEnvironment()) as events:
            async for event in events:
                got.append(event)  # noqa: PERF401  # what came before the cancellation must be seen

    assert scope.cancelled_caught
    assert got == []
    assert trio.current_time() == pytest.approx(0.6)


@given(st.integers(1, 6), st.floats(0, 1), st.integers())
def test_jitter_lengthens_a_wait_by_no_more_than_its_fraction(attempt: int, jitter: float, seed: int) -> None:
    policy = RetryPolicy(attempts=9, jitter=jitter, max_total_wait=1000.0)

    wait = policy.wait_after(attempt, DOWN, Random(seed))

    exact = 2.0 ** (attempt - 1)
    assert wait is not None
    assert exact <= wait <= exact * (1 + jitter) + 1e-9


@pytest.mark.parametrize(
    "options",
    [
        {"attempts": 0},
        {"base": -1.0},
        {"factor": 0.5},
        {"jitter": -0.1},
        {"max_total_wait": -1.0},
        {"base": float("nan")},
    ],
    ids=str,
)
def test_a_policy_that_cannot_work_is_refused_with_the_name_of_the_option(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption, match=next(iter(options))):
        RetryPolicy(**options)


def test_a_wait_after_very_many_failures_is_beyond_the_limit_and_no_overflow() -> None:
    policy = RetryPolicy(attempts=5_000)
    assert policy.wait_after(3_000, DOWN, Random(0)) is None

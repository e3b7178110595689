"""Models to fall back on: which errors lead where, and what of it can be seen."""

from __future__ import annotations

from pathlib import Path

import pytest
from trio.testing import MockClock

from sapwood import Agent, Limits, Runtime, ScriptedModel
from sapwood.agents._model_calls import may_go_elsewhere
from sapwood.conversation import ModelAttemptFailed, RunFinished, TextDiscarded, TextStreamed, Usage
from sapwood.errors import (
    InvalidOption,
    ModelError,
    ModelProtocolError,
    ModelRefused,
    ModelUnavailable,
    RateLimited,
    ScriptExhausted,
)
from sapwood.models import NO_RETRY, RetryPolicy, Stop
from tests.agents.kit import finished, of, opened, server_of


def models(*scripts: object) -> list[ScriptedModel]:
    return [ScriptedModel(then=script, name=f"m{number}") for number, script in enumerate(scripts, start=1)]  # type: ignore[arg-type]  # steps of a script


def agent_of(*scripts: object, retry: RetryPolicy = NO_RETRY, limits: Limits | None = None) -> Agent:
    first, *others = models(*scripts)
    return Agent("a", model=first, fallbacks=others, retry=retry, limits=limits)


DOWN = ModelUnavailable("p", "down")


class OwnError(ModelError):
    """An error of a provider that nobody knows."""


@pytest.mark.parametrize(
    ("error", "elsewhere"),
    [
        (DOWN, True),
        (RateLimited("p", "slow down", status=429), True),
        (ModelProtocolError("p", "no JSON"), True),
        (ModelRefused("p", "wrong key", status=401), True),
        (ModelRefused("p", "no credit", status=402), True),
        (ModelRefused("p", "no such model", status=404), True),
        (ModelRefused("p", "too long", status=413), True),
        (ModelRefused("p", "bad request", status=400), False),
        (ModelRefused("p", "bad content", status=422), False),
        (ModelRefused("p", "no status"), False),
        (ScriptExhausted("p", "", 3), False),
        (OwnError("p", "odd"), False),
    ],
    ids=lambda value: str(value)[:30],
)
def test_an_error_leads_to_another_model_if_that_may_succeed(error: ModelError, *, elsewhere: bool) -> None:
    assert may_go_elsewhere(error) is elsewhere


async def test_the_first_model_that_answers_answers_and_every_failure_is_seen(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    agent = agent_of(["Half", DOWN], RateLimited("p", "slow down"), ["Whole", Usage(7, 3)])
    session = await runtime.sessions.ensure_running(agent, "c1")
    async with session.send("go") as run:
        events = [event async for event in run]
    assert run.result is not None
    assert (run.result.outcome, run.result.text) == ("completed", "Whole")
    assert [(event.model, event.following, event.next_model) for event in of(events, ModelAttemptFailed)] == [
        ("scripted:m1", "fallback", "scripted:m2"),
        ("scripted:m2", "fallback", "scripted:m3"),
    ]
    assert len(of(events, TextDiscarded)) == 1
    assert "".join(event.text for event in of(events, TextStreamed)) == "HalfWhole"
    assert session.state.counters.model_calls == 3


async def test_a_model_is_asked_again_before_the_next_one_is(runtime: Runtime, autojump_clock: MockClock) -> None:
    agent = agent_of(DOWN, "fine", retry=RetryPolicy(attempts=3, base=2.0, jitter=0.0))
    session = await runtime.sessions.ensure_running(agent, "c1")
    async with session.send("go") as run:
        events = [event async for event in run]
    failed = of(events, ModelAttemptFailed)
    assert [(each.following, each.wait) for each in failed] == [("retry", 2.0), ("retry", 4.0), ("fallback", 0.0)]
    assert session.state.counters.model_calls == 4


async def test_when_no_model_answers_the_last_error_is_the_reason(runtime: Runtime, autojump_clock: MockClock) -> None:
    session = await runtime.sessions.ensure_running(agent_of(DOWN, RateLimited("p", "slow down")), "c1")
    with session.events() as events:
        end = await finished(session, "go")
        failed: list[ModelAttemptFailed] = []
        async for event in events:
            failed += [event] if isinstance(event, ModelAttemptFailed) else []
            if isinstance(event, RunFinished):
                break
    assert (end.outcome, end.cause, end.reason) == ("failed", "model", "p: slow down")
    assert [each.following for each in failed] == ["fallback", "fail"]


async def test_a_request_that_is_wrong_is_not_sent_elsewhere(runtime: Runtime, autojump_clock: MockClock) -> None:
    agent = agent_of(ModelRefused("p", "bad request", status=400), "never")
    session = await runtime.sessions.ensure_running(agent, "c1")
    assert (await finished(session, "go")).cause == "model"
    assert isinstance(agent.fallbacks[0], ScriptedModel)
    assert agent.fallbacks[0].requests == []


async def test_a_model_that_declines_to_answer_has_answered(runtime: Runtime, autojump_clock: MockClock) -> None:
    agent = agent_of(["I would rather not", Stop("refused")], "never")
    session = await runtime.sessions.ensure_running(agent, "c1")
    assert (await finished(session, "go")).cause == "refused"


async def test_calls_of_other_models_count_towards_the_limit(runtime: Runtime, autojump_clock: MockClock) -> None:
    session = await runtime.sessions.ensure_running(agent_of(DOWN, DOWN, "never", limits=Limits(2)), "c1")
    assert (await finished(session, "go")).cause == "limit"


async def test_every_run_begins_with_the_first_model(runtime: Runtime, autojump_clock: MockClock) -> None:
    first = ScriptedModel(DOWN, then="first", name="m1")
    agent = Agent("a", model=first, fallbacks=models("second"), retry=NO_RETRY)
    session = await runtime.sessions.ensure_running(agent, "c1")
    assert await session.say("go") == "second"
    assert await session.say("go") == "first"


async def test_after_a_crash_the_models_are_tried_in_order_again(path: Path, autojump_clock: MockClock) -> None:
    agent = agent_of(DOWN, "second", retry=RetryPolicy(attempts=2, base=30.0, jitter=0.0))
    async with opened(path) as runtime:
        session = await runtime.sessions.ensure_running(agent, "c1")
        async with session.send("go") as run:
            server_of(runtime).kill()
            end = await run.finish()
    assert end is not None
    assert end.text == "second"


def test_something_else_than_a_model_is_refused_as_a_fallback() -> None:
    with pytest.raises(InvalidOption, match="expected a chat model"):
        Agent("a", model=ScriptedModel(), fallbacks=["gpt"])  # type: ignore[list-item]  # that is the point

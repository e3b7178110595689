"""ModelRetry and ToolRetry: what is tried again, how long they wait, and what is never repeated."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from sapwood import Agent, Runtime, ScriptedModel, Session, tool
from sapwood.conversation import AssistantMessage
from sapwood.errors import ChildFailed, ModelRefused, ModelUnavailable, RateLimited, RunFailed, ToolError
from sapwood.middleware import Middleware, MiddlewareContext, ModelCall, ModelRetry, ToolRetry
from sapwood.models import NO_RETRY, ModelRequest, RetryPolicy, call
from sapwood.tools import Tool, ToolContext
from tests.agents.kit import opened, transcript

EXACT = RetryPolicy(attempts=4, base=1.0, factor=2.0, jitter=0.0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


async def started(runtime: Runtime, model: ScriptedModel, *layers: Middleware, tools: Any = ()) -> Session:
    agent = Agent("a", model=model, tools=tools, middleware=layers, retry=NO_RETRY)
    return await runtime.sessions.ensure_running(agent, "c1")


# --- models -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("failures", "seconds"),
    [
        ([], 0.0),
        ([ModelUnavailable("scripted", "lost")], 1.0),
        ([ModelUnavailable("scripted", "lost")] * 3, 7.0),
        ([RateLimited("scripted", "slow down", retry_after=20.0)], 20.0),
    ],
    ids=["none", "one", "three", "asked to wait"],
)
async def test_a_model_call_that_may_succeed_later_is_made_again_after_growing_waits(
    path: Path, autojump_clock: MockClock, failures: list[Exception], seconds: float
) -> None:
    async with opened(path) as runtime:
        session = await started(runtime, ScriptedModel(*failures, "Hello."), ModelRetry(EXACT))
        begin = trio.current_time()
        assert await session.say("hi") == "Hello."
        assert trio.current_time() - begin == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("failures", "calls"),
    [
        ([ModelRefused("scripted", "wrong key")], 1),
        ([ModelUnavailable("scripted", "lost")] * 4, 4),
        ([RateLimited("scripted", "slow down", retry_after=61.0)], 1),
    ],
    ids=["refused", "too often", "too long"],
)
async def test_a_model_call_is_not_repeated_in_vain_nor_for_ever(
    path: Path, autojump_clock: MockClock, failures: list[Exception], calls: int
) -> None:
    model = ScriptedModel(*failures, then="Hello.")
    async with opened(path) as runtime:
        session = await started(runtime, model, ModelRetry(EXACT))
        with pytest.raises(RunFailed):
            await session.say("hi")
    assert len(model.requests) == calls


async def test_the_waits_of_one_call_have_an_end_together(path: Path, autojump_clock: MockClock) -> None:
    model = ScriptedModel(*[ModelUnavailable("scripted", "lost")] * 9)
    policy = RetryPolicy(attempts=9, base=1.0, factor=2.0, jitter=0.0, max_total_wait=10.0)
    async with opened(path) as runtime:
        session = await started(runtime, model, ModelRetry(policy))
        begin = trio.current_time()
        with pytest.raises(RunFailed):
            await session.say("hi")
        assert trio.current_time() - begin == pytest.approx(7.0)


async def test_errors_of_layers_below_are_repeated_as_well_and_the_rule_may_be_ones_own(
    path: Path, autojump_clock: MockClock
) -> None:
    class Unsteady(Middleware):
        calls = 0

        async def around_model_call(
            self, request: ModelRequest, call_next: ModelCall, context: MiddlewareContext
        ) -> AssistantMessage:
            self.calls += 1
            if self.calls < 3:
                raise KeyError("cache")
            return await call_next(request)

    async with opened(path) as runtime:
        layer = ModelRetry(EXACT, when=lambda error: isinstance(error, KeyError))
        session = await started(runtime, ScriptedModel("Hello."), layer, Unsteady())
        assert await session.say("hi") == "Hello."
        await runtime.sessions.stop("c1")
        session = await started(runtime, ScriptedModel("Hello."), ModelRetry(EXACT), Unsteady())
        with pytest.raises(RunFailed, match="KeyError"):
            await session.say("hi")


async def waits(path: Path, seed: int) -> float:
    async with opened(path, seed=seed) as runtime:
        model = ScriptedModel(*[ModelUnavailable("scripted", "lost")] * 3, "Hello.")
        layer = ModelRetry(RetryPolicy(attempts=4, base=1.0, factor=2.0, jitter=1.0))
        session = await started(runtime, model, layer)
        begin = trio.current_time()
        await session.say("hi")
        return trio.current_time() - begin


async def test_the_jitter_of_waits_comes_from_the_environment_and_repeats_with_its_seed(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    first = await waits(tmp_path / "1.db", 1)
    assert 7.0 < first <= 14.0
    assert await waits(tmp_path / "2.db", 1) == pytest.approx(first)
    assert await waits(tmp_path / "3.db", 2) != pytest.approx(first)


# --- tools ------------------------------------------------------------------------------------------


def unsteady(failures: list[Exception], *, idempotent: bool, keys: list[str]) -> Tool[..., Any]:
    @tool(idempotent=idempotent)
    async def fetch(context: ToolContext) -> str:
        """Fetch."""
        keys.append(context.idempotency_key)
        await trio.lowlevel.checkpoint()
        if failures:
            raise failures.pop(0)
        return "fetched"

    return fetch


async def fetched(runtime: Runtime, layer: ToolRetry, fetch: Tool[..., Any]) -> str:
    session = await started(runtime, ScriptedModel(call("fetch"), "ok"), layer, tools=[fetch])
    await session.say("go")
    return transcript(session.state.messages)[2]


LOST = ConnectionError("lost")


@pytest.mark.parametrize(
    ("idempotent", "also", "make", "calls", "result"),
    [
        (True, (), lambda: [LOST] * 3, 4, "fetch: fetched"),
        (True, (), lambda: [LOST] * 5, 4, "fetch: Error: fetch failed: ConnectionError: lost"),
        (False, (), lambda: [LOST], 1, "fetch: Error: fetch failed: ConnectionError: lost"),
        (False, ("fetch",), lambda: [LOST], 2, "fetch: fetched"),
        (True, (), lambda: [ToolError("no such page")], 1, "fetch: Error: no such page"),
        (True, (), lambda: [ValueError("bug")], 1, "fetch: Error: fetch failed: ValueError: bug"),
        (True, (), lambda: [ExceptionGroup("", [LOST, LOST])], 2, "fetch: fetched"),
        (True, (), lambda: [ModelUnavailable("m", "down")], 2, "fetch: fetched"),
        (True, (), lambda: [ModelRefused("m", "no")], 1, "fetch: Error"),
    ],
    ids=["passes", "too often", "not idempotent", "told", "an answer", "a bug", "a group", "model", "refused"],
)
async def test_only_calls_that_may_succeed_later_and_do_no_harm_twice_are_repeated(
    path: Path,
    autojump_clock: MockClock,
    *,
    idempotent: bool,
    also: tuple[str, ...],
    make: Callable[[], list[Exception]],
    calls: int,
    result: str,
) -> None:
    keys: list[str] = []
    async with opened(path) as runtime:
        begin = trio.current_time()
        fetch = unsteady(make(), idempotent=idempotent, keys=keys)
        assert (await fetched(runtime, ToolRetry(EXACT, also=also), fetch)).startswith(result[:11])
        assert trio.current_time() - begin == pytest.approx(2.0 ** (calls - 1) - 1)
    assert len(keys) == calls
    assert len(set(keys)) == 1


async def test_a_call_that_ran_out_of_its_time_is_repeated_as_well(path: Path, autojump_clock: MockClock) -> None:
    keys: list[str] = []

    @tool(idempotent=True, timeout=5.0)
    async def fetch(context: ToolContext) -> str:
        """Fetch, slowly at first."""
        keys.append(context.idempotency_key)
        await trio.sleep(20.0 if len(keys) < 3 else 1.0)
        return "fetched"

    async with opened(path) as runtime:
        begin = trio.current_time()
        assert await fetched(runtime, ToolRetry(EXACT), fetch) == "fetch: fetched"
        assert trio.current_time() - begin == pytest.approx(5.0 + 1.0 + 5.0 + 2.0 + 1.0)


async def test_the_rule_for_tools_may_be_ones_own(path: Path, autojump_clock: MockClock) -> None:
    keys: list[str] = []
    async with opened(path) as runtime:
        layer = ToolRetry(EXACT, when=lambda error: isinstance(error, ValueError))
        fetch = unsteady([ValueError("odd")], idempotent=True, keys=keys)
        assert await fetched(runtime, layer, fetch) == "fetch: fetched"
    assert len(keys) == 2


async def test_a_misspelt_name_of_a_tool_that_may_be_repeated_is_refused_at_server_start(
    path: Path, autojump_clock: MockClock
) -> None:
    async with opened(path) as runtime:
        fetch = unsteady([], idempotent=True, keys=[])
        with pytest.raises(ChildFailed, match="no tool 'fetchh'; did you mean 'fetch'"):
            await fetched(runtime, ToolRetry(also=["fetchh"]), fetch)

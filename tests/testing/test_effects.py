"""The invariant of effects: no call of a tool that may do harm twice is made twice."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
import trio

from sapwood import Agent, Runtime, ScriptedModel, ToolContext, open_runtime, tool
from sapwood.actors import SimulatedEnvironment
from sapwood.agents import _tool_phase
from sapwood.conversation import State, UserMessage
from sapwood.models import ModelRequest, Step, call
from sapwood.registry import Running
from sapwood.testing import Invariants, simulate
from sapwood.tools import CrashResume, StopSignal, Tool
from tests.agents.kit import transcript

EFFECTS = "effects_at_most_once"


def context(runtime: Runtime, **changes: Any) -> ToolContext:
    fields: dict[str, Any] = {
        "agent_id": "c1",
        "run_id": "run_1",
        "call_id": "call_1",
        "idempotency_key": "key",
        "state": State(),
        "host": {},
        "environment": runtime.environment,
        "stop": StopSignal(),
        "results": None,
    }
    return ToolContext(**(fields | changes))


def nap(ending: str, **options: Any) -> Tool[..., Any]:
    @tool(**options)
    async def nap() -> str:
        """Nap."""
        if ending == "failed":
            raise LookupError("no bed")
        await trio.sleep(2 if ending == "cut off" else 0)
        return "rested"

    return nap


async def run(used: Tool[..., Any], given: ToolContext) -> None:
    with trio.move_on_after(1):
        with suppress(LookupError):
            await used.run({}, given)


CASES: list[tuple[bool, CrashResume, str, bool]] = [
    (False, "fail", "returned", False),
    (False, "fail", "cut off", False),
    (False, "fail", "failed", True),
    (False, "ask", "returned", True),
    (False, "ask", "cut off", True),
    (True, "rerun", "returned", True),
    (True, "rerun", "cut off", True),
    (True, "rerun", "failed", True),
]


def watched(story: Callable[[Runtime, Invariants], Awaitable[None]]) -> None:
    """Run a story in a simulation of its own: the plugin's own watch would fail a test that breaks something."""

    async def live() -> None:
        async with open_runtime(environment=SimulatedEnvironment(), signals=False) as runtime:
            await story(runtime, Invariants(runtime))

    simulate(1, live)


@pytest.mark.parametrize(("idempotent", "crash_resume", "ending", "fine"), CASES)
def test_a_call_may_be_made_again_only_where_that_does_no_harm(
    *, idempotent: bool, crash_resume: CrashResume, ending: str, fine: bool
) -> None:
    async def story(runtime: Runtime, invariants: Invariants) -> None:
        with invariants.watching():
            used = nap(ending, idempotent=idempotent, crash_resume=crash_resume)
            await run(used, context(runtime))
            await run(used, context(runtime, call_id="call_2"))
            await run(used, context(runtime, run_id="run_2"))
            await run(used, context(runtime, agent_id="c2"))
            invariants.assert_hold(EFFECTS)
            await run(used, context(runtime))
            if fine:
                invariants.assert_hold(EFFECTS)
            else:
                with pytest.raises(AssertionError, match=rf"'call_1' of tool 'nap' in 'c1'.* again; .*: {ending}"):
                    invariants.assert_hold()
            invariants.assert_hold("no_two_live_per_key")

    watched(story)


def test_attempts_of_one_call_under_two_keys_are_seen() -> None:
    async def story(runtime: Runtime, invariants: Invariants) -> None:
        with invariants.watching():
            await run(nap("returned", idempotent=True), context(runtime))
            await run(nap("returned", idempotent=True), context(runtime, idempotency_key="another"))
            with pytest.raises(AssertionError, match="under the key 'key', and then under 'another'"):
                invariants.assert_hold(EFFECTS)

    watched(story)


def test_attempts_of_one_call_at_the_same_time_are_seen_even_where_a_person_may_ask_for_another() -> None:
    async def story(runtime: Runtime, invariants: Invariants) -> None:
        with invariants.watching():
            async with trio.open_nursery() as nursery:
                for _ in range(2):
                    nursery.start_soon(run, nap("cut off", crash_resume="ask"), context(runtime))
            with pytest.raises(AssertionError, match="the earlier one: goes on"):
                invariants.assert_hold(EFFECTS)

    watched(story)


def test_only_calls_within_the_block_and_of_this_runtime_count() -> None:
    async def story(runtime: Runtime, invariants: Invariants) -> None:
        before = Tool.run
        await run(nap("returned"), context(runtime))
        with invariants.watching():
            for _ in range(2):
                await run(nap("returned"), context(runtime, environment=SimulatedEnvironment()))
            await run(nap("returned"), context(runtime))
        await run(nap("returned"), context(runtime))
        invariants.assert_hold(EFFECTS)
        assert Tool.run is before

    watched(story)


def next_step(request: ModelRequest) -> Step:
    return call("pay") if isinstance(request.messages[-1], UserMessage) else "Done."


@pytest.mark.parametrize("resume", [None, _tool_phase.ToolPhase._rerun], ids=["as it is", "broken"])
def test_a_runtime_that_repeats_what_a_crash_cut_off_is_found_out(
    resume: Callable[..., Any] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if resume is not None:
        monkeypatch.setattr(_tool_phase, "_RESUMES", {"fail": resume})

    async def story(runtime: Runtime, invariants: Invariants) -> None:
        begun = trio.Event()

        @tool
        async def pay() -> str:
            """Pay."""
            begun.set()
            await trio.sleep(1)
            return "paid"

        agent = Agent("a", model=ScriptedModel(then=next_step), tools=[pay])
        with invariants.watching():
            session = await runtime.sessions.ensure_running(agent, "c1")
            await session.post("go")
            await begun.wait()
            found = runtime.registry.lookup_nowait(("agent", "c1"))
            assert isinstance(found, Running)
            found.ref.kill()
            await trio.sleep(10)
            assert transcript(session.state.messages)[-1] == "model: Done."
        if resume is None:
            invariants.assert_hold(EFFECTS)
        else:
            with pytest.raises(AssertionError, match=r"of tool 'pay' in 'c1'.* again; the earlier one: cut off"):
                invariants.assert_hold(EFFECTS)

    watched(story)

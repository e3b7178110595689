"""Runs that would wait for each other: the wait that would close the circle is refused, and nothing is sent."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from sapwood import Agent, Runtime, ToolContext, open_runtime, tool
from sapwood.conversation import RunFinished, ToolResult, UserMessage
from sapwood.errors import AskCycle, ConversationCycle
from sapwood.middleware import SubAgents
from sapwood.models import call
from sapwood.tools import Pending, Tool
from tests.agents.families import ask, parent, scripted, worker
from tests.agents.kit import opened, server_of, state_in, until

Wish = Callable[[ToolContext], Awaitable[str]]


class Wishes:
    """What the tool `act` of every conversation does, and which cycles were named."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.of: dict[str, Wish] = {}
        self.chains: list[tuple[str, ...]] = []
        self.named_at: list[float] = []

    def tool(self) -> Tool[..., Any]:
        @tool(idempotent=True)
        async def act(context: ToolContext) -> str:
            """Do what this conversation is to do."""
            try:
                return await self.of[context.agent_id](context)
            except ConversationCycle as cycle:
                self.chains.append(cycle.chain)
                self.named_at.append(trio.current_time())
                return "refused"

        return act

    def saying(self, agent_id: str, *, after: float = 0.0, message_id: str = "said") -> Wish:
        async def say(_: ToolContext) -> str:
            await trio.sleep(after)
            with trio.fail_after(100):
                return await self.runtime.sessions.session(agent_id).say("hello", message_id=message_id)

        return say

    def agent(self, **options: Any) -> Agent:
        return worker(call("act"), "done", "done again", "and again", tools=[self.tool()], **options)

    async def start(self, *agent_ids: str) -> None:
        for agent_id in agent_ids:
            await self.runtime.sessions.ensure_running(self.agent(), agent_id)


@pytest.fixture
def wishes(runtime: Runtime) -> Wishes:
    return Wishes(runtime)


async def said_to(runtime: Runtime, agent_id: str) -> list[str]:
    """Return what was ever said to a conversation, queued or not."""
    state = await state_in(runtime, agent_id)
    waiting = [item.message.text for item in state.queue]
    return [each.text for each in state.messages if isinstance(each, UserMessage)] + waiting


@pytest.mark.row("UP-84")
@pytest.mark.parametrize("length", [2, 3, 5])
async def test_tools_that_say_something_in_a_circle_are_refused_at_once_with_the_circle_in_order(
    wishes: Wishes, autojump_clock: MockClock, length: int
) -> None:
    ring = [f"c{index}" for index in range(length)]
    await wishes.start(*ring)
    for index, each in enumerate(ring):
        wishes.of[each] = wishes.saying(ring[(index + 1) % length])
    began = trio.current_time()
    assert await wishes.runtime.sessions.session("c0").say("go") == "done"
    assert wishes.chains == [(ring[-1], *ring)]
    assert wishes.named_at == [began]
    assert await said_to(wishes.runtime, "c0") == ["go"]
    # The one that was refused is as good as before.
    assert await wishes.runtime.sessions.session("c0").say("again") == "done again"


@pytest.mark.row("UP-84")
async def test_a_tool_that_says_something_to_its_own_conversation_is_refused(
    wishes: Wishes, autojump_clock: MockClock
) -> None:
    await wishes.start("c1")
    wishes.of["c1"] = wishes.saying("c1")
    assert await wishes.runtime.sessions.session("c1").say("go") == "done"
    assert wishes.chains == [("c1", "c1")]
    assert await said_to(wishes.runtime, "c1") == ["go"]


@pytest.mark.row("UP-84")
@pytest.mark.parametrize("how", ["send", "run_until"])
async def test_every_way_to_wait_for_a_run_is_refused_in_a_circle(
    wishes: Wishes, autojump_clock: MockClock, how: str
) -> None:
    await wishes.start("c1", "c2")
    session = wishes.runtime.sessions.session("c1")

    async def wait(_: ToolContext) -> str:
        if how == "run_until":
            await session.run_until(wishes.tool(), "back")
        async with session.send("back") as run:
            await run.finish()
        return "never"

    wishes.of |= {"c1": wishes.saying("c2"), "c2": wait}
    await session.say("go")
    assert wishes.chains == [("c2", "c1", "c2")]
    assert await said_to(wishes.runtime, "c1") == ["go"]


@pytest.mark.row("UP-84")
async def test_a_message_that_is_only_posted_closes_no_circle(wishes: Wishes, autojump_clock: MockClock) -> None:
    await wishes.start("c1", "c2")

    async def post(_: ToolContext) -> str:
        receipt = await wishes.runtime.sessions.session("c1").post("back")
        return f"queued: {receipt.queued}"

    wishes.of |= {"c1": wishes.saying("c2"), "c2": post}
    session = wishes.runtime.sessions.session("c1")
    await session.say("go")
    await trio.sleep(1)
    assert wishes.chains == []
    assert await said_to(wishes.runtime, "c1") == ["go", "back"]
    assert session.state.status == "idle"


async def test_runs_that_wait_for_the_same_conversation_or_one_after_the_other_are_no_circle(
    wishes: Wishes, autojump_clock: MockClock
) -> None:
    await wishes.start("c1", "c2", "c3")

    async def both(_: ToolContext) -> str:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wishes.saying("c2"), _)
            nursery.start_soon(wishes.saying("c3"), _)
        return "both have answered"

    async def nothing(_: ToolContext) -> str:
        await trio.sleep(1)
        return "nothing"

    wishes.of |= {"c1": both, "c2": wishes.saying("c3", message_id="other"), "c3": nothing}
    await wishes.runtime.sessions.session("c1").say("go")
    assert wishes.chains == []
    # What was waited for is over, so the other way round is no circle any more.
    wishes.of |= {"c4": wishes.saying("c1", message_id="later")}
    await wishes.start("c4")
    await wishes.runtime.sessions.session("c4").say("go")
    assert wishes.chains == []


async def test_a_wait_is_over_with_the_run_although_the_block_goes_on(
    runtime: Runtime, wishes: Wishes, autojump_clock: MockClock
) -> None:
    async def linger(_: ToolContext) -> str:
        async with runtime.sessions.session("c2").send("hello") as run:
            await run.finish()
            await trio.sleep(10)
        return "lingered"

    async def nothing(_: ToolContext) -> str:
        return "nothing"

    twice = worker(call("act"), "done", call("act"), "done again", tools=[wishes.tool()])
    session = await runtime.sessions.ensure_running(twice, "c2")
    await wishes.start("c1")
    wishes.of |= {"c1": linger, "c2": nothing}
    async with runtime.sessions.session("c1").send("go"):
        await trio.sleep(5)
        wishes.of["c2"] = wishes.saying("c1")
        assert await session.say("now you") == "done again"
    assert wishes.chains == []
    assert await said_to(runtime, "c1") == ["go", "hello"]
    assert runtime.sessions._waits._of_runs == {}


@pytest.mark.row("UP-84")
@pytest.mark.parametrize("victim", ["c1", "c2"])
async def test_a_circle_is_found_although_a_server_in_it_was_restarted(
    wishes: Wishes, autojump_clock: MockClock, victim: str
) -> None:
    await wishes.start("c1", "c2")
    wishes.of |= {"c1": wishes.saying("c2"), "c2": wishes.saying("c1", after=10)}
    session = wishes.runtime.sessions.session("c1")
    async with session.send("go") as run:
        await trio.sleep(5)
        server_of(wishes.runtime, victim).kill()
        await run.finish()
    assert wishes.chains == [("c2", "c1", "c2")]
    assert await said_to(wishes.runtime, "c1") == ["go"]
    assert wishes.runtime.sessions._waits._of_runs == {}


@pytest.mark.row("UP-84")
async def test_a_circle_that_a_restart_closes_from_the_other_side_is_found_there(
    wishes: Wishes, autojump_clock: MockClock
) -> None:
    await wishes.start("c1", "c2")
    tries: list[float] = []

    async def first(context: ToolContext) -> str:
        tries.append(trio.current_time())
        if len(tries) > 1:
            await trio.sleep(10)
        return await wishes.saying("c2")(context)

    wishes.of |= {"c1": first, "c2": wishes.saying("c1", after=8)}
    session = wishes.runtime.sessions.session("c1")
    async with session.send("go") as run:
        await trio.sleep(5)
        server_of(wishes.runtime, "c1").kill()
        await run.finish()
    assert wishes.chains == [("c1", "c2", "c1")]


@pytest.mark.row("UP-84")
async def test_a_circle_is_found_in_the_next_process(path: Any, autojump_clock: MockClock) -> None:
    async with opened(path) as runtime:
        before = Wishes(runtime)
        before.of |= {"c1": before.saying("c2"), "c2": before.saying("c1", after=10)}
        await before.start("c1", "c2")
        async with runtime.sessions.session("c1").send("go"):
            await trio.sleep(5)
    async with opened(path) as runtime:
        after = Wishes(runtime)
        after.of |= {"c1": after.saying("c2"), "c2": after.saying("c1", after=10)}
        await after.start("c2", "c1")
        await trio.sleep(20)
        assert after.chains == [("c2", "c1", "c2")]
        assert await said_to(runtime, "c1") == ["go"]


@pytest.mark.row("UP-84")
async def test_a_sub_agent_may_not_wait_for_an_ancestor_that_waits_for_it(
    runtime: Runtime, wishes: Wishes, autojump_clock: MockClock
) -> None:
    inner = wishes.agent()
    middle = Agent("middle", model=scripted(ask("inner"), "middle done"), middleware=[SubAgents(inner=inner)])
    boss = parent(ask("middle"), "All done.", layer=SubAgents(middle=middle))
    session = await runtime.sessions.ensure_running(boss, "c1")
    lowest = "c1/call_1/call_1"
    wishes.of[lowest] = wishes.saying("c1", after=1)
    assert await session.say("go") == "All done."
    assert wishes.chains == [(lowest, "c1", "c1/call_1", lowest)]
    assert await said_to(runtime, "c1") == ["go"]


@pytest.mark.row("UP-84")
async def test_a_circle_through_a_sub_agent_and_another_conversation_is_found(
    runtime: Runtime, wishes: Wishes, autojump_clock: MockClock
) -> None:
    boss = parent(ask(), "All done.", layer=SubAgents(worker=wishes.agent()))
    session = await runtime.sessions.ensure_running(boss, "c1")
    await wishes.start("c2")
    wishes.of |= {"c1/call_1": wishes.saying("c2"), "c2": wishes.saying("c1", after=1)}
    assert await session.say("go") == "All done."
    assert wishes.chains == [("c2", "c1", "c1/call_1", "c2")]


async def test_a_sub_agent_in_the_background_may_wait_for_its_parent_which_does_not_wait_for_it(
    runtime: Runtime, wishes: Wishes, autojump_clock: MockClock
) -> None:
    boss = parent(ask(background=True), "on its way", "hello too", "good", layer=SubAgents(worker=wishes.agent()))
    session = await runtime.sessions.ensure_running(boss, "c1")
    wishes.of["c1/call_1"] = wishes.saying("c1")
    await session.say("go")
    await trio.sleep(10)
    assert wishes.chains == []
    assert (await said_to(runtime, "c1"))[:2] == ["go", "hello"]


@pytest.mark.row("UP-84")
async def test_one_in_the_background_may_not_wait_for_whoever_waits_for_all_of_its_parent(
    runtime: Runtime, wishes: Wishes, autojump_clock: MockClock
) -> None:
    layer = SubAgents(inner=wishes.agent())
    middle = Agent("middle", model=scripted(ask("inner", background=True), "so far", "over"), middleware=[layer])
    session = await runtime.sessions.ensure_running(
        parent(ask("middle"), "All done.", layer=SubAgents(middle=middle)), "c1"
    )
    lowest = "c1/call_1/call_1"
    wishes.of[lowest] = wishes.saying("c1", after=1)
    assert await session.say("go") == "All done."
    assert wishes.chains == [(lowest, "c1", "c1/call_1", lowest)]


@pytest.mark.row("UP-84")
async def test_a_poll_of_a_call_that_goes_on_elsewhere_is_part_of_the_run_that_waits_for_it(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    chains: list[tuple[str, ...]] = []

    async def how_far(poll_id: str, context: ToolContext) -> str:
        try:
            return await runtime.sessions.session("c1").say("well?")
        except AskCycle as cycle:
            chains.append(cycle.chain)
            return "refused"

    @tool(idempotent=True, poll=how_far)
    async def begin() -> Pending:
        """Begin something elsewhere."""
        return Pending("job", every=1.0)

    session = await runtime.sessions.ensure_running(worker(call("begin"), "done", tools=[begin]), "c1")
    assert await session.say("go") == "done"
    assert chains == [("c1", "c1")]


async def test_a_task_that_a_tool_leaves_in_the_nursery_of_its_host_is_no_wait(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    answers: list[str] = []

    async def report() -> None:
        answers.append(await runtime.sessions.session("c1").say("finished"))

    async with trio.open_nursery() as nursery:

        @tool
        async def begin() -> str:
            """Begin something in the background."""
            nursery.start_soon(report)
            await trio.sleep(1)
            return "begun"

        agent = worker(call("begin"), "done", "good to know", tools=[begin])
        session = await runtime.sessions.ensure_running(agent, "c1")
        assert await session.say("go") == "done"
    assert answers == ["good to know"]


@pytest.mark.row("UP-84")
@pytest.mark.parametrize("way", ["trio", "portal"])
async def test_a_tool_in_a_thread_that_calls_back_waits_like_any_other(path: Any, way: str) -> None:
    chains: list[tuple[str, ...]] = []
    async with open_runtime(store=path, signals=False) as runtime:
        session = runtime.sessions.session("c1")

        @tool(blocking=True)
        def begin() -> str:
            """Say something to the own conversation, from a thread."""
            try:
                run = trio.from_thread.run if way == "trio" else runtime.portal.call
                return run(session.say, "well?")
            except ConversationCycle as cycle:
                chains.append(cycle.chain)
                return "refused"

        await runtime.sessions.ensure_running(worker(call("begin"), "done", tools=[begin]), "c1")
        with trio.fail_after(10):
            assert await session.say("go") == "done"
    assert chains == [("c1", "c1")]


@pytest.mark.row("UP-84")
async def test_a_thread_that_a_tool_begins_by_itself_waits_like_the_tool(path: Any) -> None:
    chains: list[tuple[str, ...]] = []
    async with open_runtime(store=path, signals=False) as runtime:
        session = runtime.sessions.session("c1")

        def well() -> str:
            return trio.from_thread.run(session.say, "well?")

        @tool
        async def begin() -> str:
            """Say something to the own conversation, from a thread that may be left alone."""
            try:
                return await trio.to_thread.run_sync(well, abandon_on_cancel=True)
            except ConversationCycle as cycle:
                chains.append(cycle.chain)
                return "refused"

        await runtime.sessions.ensure_running(worker(call("begin"), "done", tools=[begin]), "c1")
        with trio.fail_after(10):
            assert await session.say("go") == "done"
    assert chains == [("c1", "c1")]


async def test_a_thread_that_its_call_has_given_up_may_say_something_to_its_conversation(path: Any) -> None:
    go_on = threading.Event()
    async with open_runtime(store=path, signals=False) as runtime:
        session = runtime.sessions.session("c1")

        @tool(blocking=True, timeout=0.01)
        def begin() -> str:
            """Take too long, and report later."""
            go_on.wait()
            return runtime.portal.call(session.say, "finished")

        agent = worker(call("begin"), "it takes too long", "good to know", tools=[begin])
        await runtime.sessions.ensure_running(agent, "c1")
        with trio.fail_after(10), session.events() as events:
            assert await session.say("go") == "it takes too long"
            go_on.set()
            await until(events, RunFinished, text="good to know")
        assert [each.is_error for each in session.state.messages if isinstance(each, ToolResult)] == [True]


async def test_conversations_of_two_runtimes_are_told_apart_by_more_than_their_names(
    path: Any, tmp_path: Any, autojump_clock: MockClock
) -> None:
    async with opened(path) as one, opened(tmp_path / "other.db") as two:
        here, there = Wishes(one), Wishes(two)
        here.of["c1"] = there.saying("c1")
        there.of["c1"] = here.saying("c1")
        await here.start("c1")
        await there.start("c1")
        assert await one.sessions.session("c1").say("go") == "done"
        assert (here.chains, there.chains) == ([], [("c1", "c1", "c1")])


def test_the_error_names_the_conversations_and_what_to_do_instead() -> None:
    cycle = ConversationCycle(["a", "b", "a"])
    assert cycle.chain == ("a", "b", "a")
    assert str(cycle) == (
        "conversations would wait for each other: 'a' -> 'b' -> 'a'; send the message with post(), which does not wait"
    )
    assert "'a' would wait for the end of its own run" in str(ConversationCycle(["a", "a"]))

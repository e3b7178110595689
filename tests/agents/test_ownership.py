"""Who owns what: one transcript, one server, shared configuration without shared state, and events from everywhere."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from sapwood import Agent, Runtime, ScriptedModel, ToolContext, tool
from sapwood.conversation import (
    AssistantMessage,
    InterruptClosed,
    InterruptDecided,
    InterruptRaised,
    Message,
    MessageCompleted,
    MetadataChanged,
    ModelAttemptFailed,
    PatchMetadata,
    QueueChanged,
    RunFinished,
    SetTodos,
    State,
    StatusChanged,
    StreamEvent,
    SubAgentFinished,
    SubAgentStarted,
    TextStreamed,
    Todo,
    TodosChanged,
    ToolFinished,
    ToolResult,
    ToolStarted,
    UsageCounted,
    UserMessage,
)
from sapwood.errors import ModelUnavailable
from sapwood.middleware import HookResult, HumanInTheLoop, Middleware, MiddlewareContext, SubAgents, ToolRetry
from sapwood.models import Delay, ModelRequest, RetryPolicy, Step, call
from sapwood.tools import ToolOutput
from tests.agents.families import ask, parent, worker
from tests.agents.kit import assert_sendable, finished, opened, server_of, transcript, until


@tool
def refund(cents: int) -> str:
    """Refund. cents: how much."""
    return f"refunded {cents}"


def assert_said_once(messages: tuple[Message, ...]) -> None:
    """Fail if a message, a call or a result is there twice."""
    calls = [made.id for message in messages if isinstance(message, AssistantMessage) for made in message.tool_calls]
    results = [message.call_id for message in messages if isinstance(message, ToolResult)]
    for found in (calls, results, [message.id for message in messages]):
        assert [one for one, count in Counter(found).items() if count > 1] == []
    assert sorted(results) == sorted(calls)


@pytest.mark.row("UP-31")
async def test_an_approved_call_reaches_the_model_once_whoever_repeats_what_and_restarts_between(
    path: Path, autojump_clock: MockClock
) -> None:
    model = ScriptedModel(call("refund", cents=7500), "You get it.", "Anything else?")
    agent = Agent("support", model=model, tools=[refund], middleware=[HumanInTheLoop(refund=True)])
    async with opened(path) as runtime:
        session = await runtime.sessions.ensure_running(agent, "c1")
        await finished(session, "Refund 75 dollars", message_id="m1")
    async with opened(path, seed=1) as runtime:
        session = await runtime.sessions.ensure_running(agent, "c1")
        await session.post("Refund 75 dollars", message_id="m1")  # the client says it again
        [approval] = session.approvals
        with session.events() as events:
            await approval.approve()
            await approval.approve()
            await until(events, RunFinished, outcome="completed")
        await finished(session, "Thanks")
        assert_sendable(session.state)

    assert [transcript(request.messages) for request in model.requests] == [
        ["user: Refund 75 dollars"],
        ["user: Refund 75 dollars", "model:  -> refund", "refund: refunded 7500"],
        [
            "user: Refund 75 dollars",
            "model:  -> refund",
            "refund: refunded 7500",
            "model: You get it.",
            "user: Thanks",
        ],
    ]
    for request in model.requests[1:]:
        assert_said_once(request.messages)


def echo(request: ModelRequest) -> Step:
    """Answer with what was asked, and how often, after a moment in which others get their turn."""
    asked = [message.text for message in request.messages if isinstance(message, UserMessage)]
    return [Delay(1.0), " ".join(asked)]


@pytest.mark.row("UP-49")
async def test_one_agent_object_serves_many_conversations_at_once_and_none_sees_another(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    agent = Agent("echo", model=ScriptedModel(then=echo))
    answers: dict[int, list[str]] = {}

    async def talk(number: int) -> None:
        session = await runtime.sessions.ensure_running(agent, f"c{number}")
        answers[number] = [await session.say(f"{number}a"), await session.say(f"{number}b")]

    async with trio.open_nursery() as nursery:
        for number in range(10):
            nursery.start_soon(talk, number)
    assert answers == {number: [f"{number}a", f"{number}a {number}b"] for number in range(10)}


@pytest.mark.row("UP-49")
async def test_one_agent_object_called_twice_at_once_as_a_sub_agent_gives_two_answers(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    shared = Agent("worker", model=ScriptedModel(then=echo))
    boss = parent([ask(text="left"), ask(text="right")], "both", layer=SubAgents(worker=shared))
    session = await runtime.sessions.ensure_running(boss, "c1")
    await finished(session, "go")
    assert transcript(session.state.messages)[2:4] == ["task: left", "task: right"]
    for call_id, text in (("call_1", "left"), ("call_2", "right")):
        child = await runtime.sessions.load(f"c1/{call_id}")
        assert transcript(child.messages) == [f"user: {text}", f"model: {text}"]


@pytest.mark.row("UP-57")
async def test_a_tool_that_fails_is_tried_again_by_default_and_one_that_goes_on_failing_fails_no_agent(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    tried: Counter[str] = Counter()

    @tool(idempotent=True)
    def shaky() -> str:
        """Fail once."""
        tried["shaky"] += 1
        if tried["shaky"] == 1:
            raise ConnectionError("lost")
        return "fetched"

    @tool(idempotent=True)
    def broken() -> str:
        """Fail for ever."""
        tried["broken"] += 1
        raise ConnectionError("down")

    @tool
    def once() -> str:
        """Fail, and nobody knows whether something happened."""
        tried["once"] += 1
        raise ConnectionError("lost")

    model = ScriptedModel([call("shaky"), call("broken"), call("once")], "One of three.")
    agent = Agent("a", model=model, tools=[shaky, broken, once], middleware=[ToolRetry()])
    session = await runtime.sessions.ensure_running(agent, "c1")

    end = await finished(session, "go")

    assert (end.outcome, end.text) == ("completed", "One of three.")
    assert tried == {"shaky": 2, "broken": RetryPolicy().attempts, "once": 1}
    results = [message for message in session.state.messages if isinstance(message, ToolResult)]
    assert [result.problem for result in results] == ["", "failed", "failed"]


class Changes(Middleware):
    """Changes something before the model is called, once."""

    async def before_model(self, state: State, context: MiddlewareContext) -> HookResult:
        return [] if "by" in state.metadata else [PatchMetadata({"by": "middleware"})]


@pytest.mark.row("UP-75")
async def test_events_reach_a_subscriber_in_one_order_from_wherever_they_arise(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    @tool
    def plan() -> ToolOutput:
        """Plan."""
        return ToolOutput("planned", [SetTodos((Todo(1, "water the plants"),))])

    model = ScriptedModel(
        ModelUnavailable("scripted", "lost"),
        ["Let me see.", Delay(1.0), call("plan"), call("refund", cents=1), ask(text="look")],
        "Done.",
        "Hello again.",
    )
    layers = [SubAgents(worker=worker("found")), Changes(), HumanInTheLoop(refund=True)]
    agent = Agent("a", model=model, tools=[plan, refund], middleware=layers)
    session = await runtime.sessions.ensure_running(agent, "c1")
    read: list[StreamEvent] = []

    async def say_more() -> None:
        await trio.sleep(0.5)
        await session.post("And hello")

    with session.events() as events:
        async with trio.open_nursery() as nursery:
            await session.post("go")
            nursery.start_soon(say_more)  # another task, while the model answers
            read += (await until(events, RunFinished, outcome="interrupted"))[0]
            await session.approvals[0].approve()
            for _ in range(2):
                read += (await until(events, RunFinished, outcome="completed"))[0]

    numbered = [event.seq for event in read[1:]]  # the first one is the status at the beginning
    assert numbered == list(range(numbered[0], numbered[0] + len(numbered)))
    assert {event.agent_id for event in read} == {"c1"}
    kinds = {type(event) for event in read}
    assert kinds >= {StatusChanged, UsageCounted, RunFinished, MessageCompleted, QueueChanged}  # the server
    assert kinds >= {TextStreamed, ModelAttemptFailed}  # the model
    assert kinds >= {ToolStarted, ToolFinished, TodosChanged}  # tools, and what they want
    assert MetadataChanged in kinds  # middleware
    assert kinds >= {InterruptRaised, InterruptDecided, InterruptClosed}  # people
    assert kinds >= {SubAgentStarted, SubAgentFinished}  # sub-agents


async def test_a_run_goes_on_with_other_code_since_it_is_state_that_is_restored_and_nothing_is_replayed(
    path: Path, autojump_clock: MockClock
) -> None:
    begun = trio.Event()

    @tool
    def fetch() -> str:
        """Fetch."""
        raise LookupError("no such page, at line 17 of version 1")

    @tool
    async def wait(context: ToolContext) -> str:
        """Wait."""
        begun.set()
        await trio.sleep_forever()
        return ""

    model = ScriptedModel(call("fetch"), call("wait"))
    before = Agent("a", model=model, prompt="One.", tools=[fetch, wait], middleware=[Changes()])
    async with opened(path) as runtime:
        session = await runtime.sessions.ensure_running(before, "c1")
        await session.post("go")
        await begun.wait()
        server_of(runtime).kill()
        await runtime.sessions.stop("c1")

    # Neither the tools nor the layer are there any more, the prompt is another one, and so is the model.
    model = ScriptedModel("I could not find out.")
    after = Agent("a", model=model, prompt="Two.", middleware=[HumanInTheLoop(pay=True)], tools=[])
    async with opened(path, seed=1) as runtime:
        with runtime.sessions.session("c1").events() as events:
            session = await runtime.sessions.ensure_running(after, "c1")
            _, end = await until(events, RunFinished)
        assert_sendable(session.state)
    assert (end.outcome, end.text) == ("completed", "I could not find out.")
    fetched, waited = [each for each in model.requests[0].messages if isinstance(each, ToolResult)]
    assert fetched.content.endswith("no such page, at line 17 of version 1")
    assert (waited.is_error, waited.problem) == (True, "unknown")
    assert model.requests[0].system == "Two."


@pytest.mark.row("AR-22.25")
async def test_a_subscriber_who_started_nothing_hears_the_agent_again_however_it_is_revived(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    agent = Agent("a", model=ScriptedModel(then="yes"))
    heard: list[int] = []
    lives = 0

    async def listen() -> None:
        with runtime.sessions.session("c1").events() as events:
            while True:
                async for event in events:
                    if not isinstance(event, StatusChanged) or event.status == "running":
                        heard.append(event.seq)  # noqa: PERF401  # looked at while it goes on
                await trio.sleep(0.01)  # its tree has ended; the subscription goes on when there is another one

    async with trio.open_nursery() as nursery:
        nursery.start_soon(listen)
        await trio.sleep(1)
        for end in ("stop", "kill", "stop"):
            session = await runtime.sessions.ensure_running(agent, "c1")  # by somebody else than the subscriber
            before = len(heard)
            await session.say(f"hello {lives}")
            lives += 1
            await trio.sleep(1)
            assert len(heard) > before + 3
            if end == "stop":
                await runtime.sessions.stop("c1")
            else:
                server_of(runtime).kill()
                await trio.sleep(1)
        nursery.cancel_scope.cancel()
    assert heard == sorted(set(heard))
    assert lives == 3

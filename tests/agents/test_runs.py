"""Runs: the loop of model and tools, what is journaled and announced, and what failures become."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from sapwood import Agent, Limits, Runtime, ScriptedModel, ToolContext, tool
from sapwood.conversation import (
    AddMessage,
    MessageCompleted,
    MetadataChanged,
    PatchMetadata,
    RunFinished,
    SetTodos,
    State,
    StatusChanged,
    TextDiscarded,
    TextStreamed,
    Todo,
    TodosChanged,
    ToolCall,
    ToolCallSeen,
    ToolFinished,
    ToolStarted,
    Usage,
    UsageCounted,
    UserMessage,
)
from sapwood.errors import ModelRefused, ModelUnavailable, RunFailed, ToolError
from sapwood.models import Delay, ModelRequest, RetryPolicy, Step, Stop, call
from sapwood.tools import ToolOutput
from tests.agents.kit import (
    AllHooks,
    assert_sendable,
    events_in,
    finished,
    named,
    names,
    of,
    state_in,
    transcript,
    waiting_events,
)


@tool
def add(left: int, right: int) -> int:
    """Add two numbers."""
    return left + right


@tool
def fail(text: str) -> str:
    """Fail."""
    raise ToolError(text)


@tool
def crash() -> str:
    """Crash."""
    raise KeyError("missing")


@tool(timeout=1.0)
async def hang() -> str:
    """Hang."""
    await trio.sleep_forever()
    return "never"


# --- the loop ---------------------------------------------------------------------------------------


@pytest.mark.row("S4-008", "S4-020", "S4-023")
async def test_the_hooks_surround_every_model_call_and_the_loop_goes_on_while_tools_are_asked_for(
    runtime: Runtime,
    autojump_clock: MockClock,
) -> None:
    log: list[str] = []
    model = ScriptedModel(call("add", left=1, right=2), "three")
    layers = [named(AllHooks, "outer", log), named(AllHooks, "inner", log)]
    agent = Agent("adder", model=model, tools=[add], middleware=layers)
    assert log == ["outer.init", "inner.init"]
    session = await runtime.sessions.ensure_running(agent, "c1")
    assert log[2:] == ["outer.on_server_start", "inner.on_server_start"]
    del log[:]

    assert await session.say("1 + 2?") == "three"

    around_model = [
        "outer.before_model",
        "inner.before_model",
        "outer.system_prompt",
        "inner.system_prompt",
        "outer.model call begins",
        "inner.model call begins",
        "inner.model call ends",
        "outer.model call ends",
        "inner.after_model",
        "outer.after_model",
    ]
    around_tool = [
        "outer.tool call begins",
        "inner.tool call begins",
        "inner.tool call ends",
        "outer.tool call ends",
    ]
    begins = ["outer.run begins", "inner.run begins"]
    ends = ["inner.run ends", "outer.run ends"]
    assert log == [*begins, *around_model, *around_tool, *around_model, *ends]


@pytest.mark.row("S4-021", "S4-006")
async def test_a_model_call_is_built_from_prompts_messages_and_all_tools(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    log: list[str] = []
    model = ScriptedModel("hello")
    layers = [named(AllHooks, "one", log), named(AllHooks, "two", log)]
    limits = Limits(output_tokens=77)
    agent = Agent("a", model=model, prompt="base", tools=[add], middleware=layers, limits=limits, temperature=0.25)
    session = await runtime.sessions.ensure_running(agent, "c1")
    await session.say("hi")

    [request] = model.requests
    assert request.system == "base\n\npart of one\n\npart of two"
    assert transcript(request.messages) == ["user: hi"]
    assert [spec.name for spec in request.tools] == ["add"]
    assert (request.max_tokens, request.temperature) == (77, 0.25)


@pytest.mark.row("S4-003", "S4-022", "S4-005", "S4-069")
async def test_a_run_is_announced_event_by_event_with_rising_numbers(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    model = ScriptedModel(["Let me see. ", call("add", left=1, right=2)], "It is three.", chunk=8)
    session = await runtime.sessions.ensure_running(Agent("a", model=model, tools=[add]), "c1")
    async with session.send("1 + 2?") as run:
        events = [event async for event in run]

    assert names(events) == [
        "StatusChanged",
        "MessageCompleted",
        "TextStreamed",
        "TextStreamed",
        "ToolCallSeen",
        "MessageCompleted",
        "UsageCounted",
        "ToolStarted",
        "ToolFinished",
        "TextStreamed",
        "TextStreamed",
        "MessageCompleted",
        "UsageCounted",
        "StatusChanged",
        "RunFinished",
    ]
    assert [event.seq for event in events] == list(range(events[0].seq, events[0].seq + len(events)))
    assert {event.agent_id for event in events} == {"c1"}
    assert {event.run_id for event in events} == {run.receipt.run_id}
    assert [event.status for event in of(events, StatusChanged)] == ["running", "idle"]
    assert "".join(event.text for event in of(events, TextStreamed)) == "Let me see. It is three."
    [seen] = of(events, ToolCallSeen)
    [started] = of(events, ToolStarted)
    [ended] = of(events, ToolFinished)
    assert seen.call_id == started.call.id == ended.result.call_id
    assert (started.call.arguments, started.attempt, ended.result.content) == ({"left": 1, "right": 2}, 1, "3")
    assert run.result is events[-1]
    assert run.result is not None
    assert (run.result.outcome, run.result.text, run.result.reason) == ("completed", "It is three.", "")


@pytest.mark.row("S4-004")
async def test_every_step_is_journaled_before_the_next_one_and_the_state_is_the_fold(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    model = ScriptedModel(call("add", left=1, right=2), "three")
    session = await runtime.sessions.ensure_running(Agent("a", model=model, tools=[add]), "c1")
    await session.say("1 + 2?")

    assert await events_in(runtime) == [
        "ConversationCreated",
        "RunStarted",
        "MessageAdded",
        "ModelCallStarted",
        "ModelAnswered",
        "ToolIntended",
        "ToolStarted",
        "ToolFinished",
        "ModelCallStarted",
        "ModelAnswered",
        "RunFinished",
    ]
    assert await state_in(runtime) == session.state
    assert transcript(session.state.messages) == ["user: 1 + 2?", "model:  -> add", "add: 3", "model: three"]
    assert all(message.id for message in session.state.messages)
    assert (session.state.status, session.state.run, session.state.pending) == ("idle", None, ())


async def test_usage_is_counted_for_the_call_and_for_the_conversation(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    model = ScriptedModel(["one", Usage(10, 5, 2)], ["two", Usage(20, 7, 0)])
    session = await runtime.sessions.ensure_running(Agent("a", model=model), "c1")
    with session.events() as events:
        await session.say("1")
        await session.say("2")
        counted = of(await waiting_events(events), UsageCounted)
    assert [(each.usage.input_tokens, each.total.input_tokens) for each in counted] == [(10, 10), (20, 30)]
    assert session.state.usage == Usage(30, 12, 2)


@pytest.mark.row("S4-001", "S4-071")
async def test_conversations_run_at_the_same_time_and_know_nothing_of_each_other(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    def answer(request: ModelRequest) -> Step:
        return [Delay(10.0), f"re: {last_text(request)}"]

    model = ScriptedModel(then=answer)
    agent = Agent("a", model=model)
    answers: dict[int, str] = {}

    async def talk(number: int) -> None:
        session = await runtime.sessions.ensure_running(agent, f"c{number}")
        answers[number] = await session.say(f"hello {number}")

    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(talk, number)
    assert answers == {number: f"re: hello {number}" for number in range(20)}
    assert trio.current_time() < 11
    assert runtime.sessions.running() == sorted(f"c{number}" for number in range(20))


def last_text(request: ModelRequest) -> str:
    last = request.messages[-1]
    assert isinstance(last, UserMessage)
    return last.text


# --- tools ------------------------------------------------------------------------------------------


@pytest.mark.row("S4-064", "AR-22.18")
@pytest.mark.parametrize(
    ("wish", "expected"),
    [
        (call("ad", left=1, right=2), "Error: there is no tool 'ad'; did you mean 'add'?"),
        (call("add", left="one", right=2), "Error: add was not run: argument 'left': expected an integer"),
        (call("add", left=1), "Error: add was not run: argument 'right': missing"),
        (ToolCall("", "add", malformed='{"left": 1'), "Error: add was not run: its arguments must be a JSON object"),
        (call("fail", text="no such order"), "Error: no such order"),
        (call("crash"), "Error: KeyError: 'missing'"),
        (call("hang"), "Error: hang did not finish within 1 s"),
    ],
)
async def test_whatever_is_wrong_with_a_call_is_told_to_the_model_and_the_run_goes_on(
    runtime: Runtime, autojump_clock: MockClock, wish: ToolCall, expected: str
) -> None:
    model = ScriptedModel(wish, "I see.")
    session = await runtime.sessions.ensure_running(Agent("a", model=model, tools=[add, fail, crash, hang]), "c1")
    with session.events() as events:
        assert await session.say("go") == "I see."
        [ended] = of(await waiting_events(events), ToolFinished)
    assert ended.result.is_error
    assert ended.result.content.startswith(expected)
    assert model.requests[1].messages[-1] == ended.result
    assert_sendable(session.state)


@pytest.mark.row("UP-52", "UP-32")
async def test_calls_run_at_the_same_time_and_a_failing_one_harms_no_other(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    @tool
    async def work(name: str, seconds: float) -> str:
        """Work."""
        await trio.sleep(seconds)
        if name == "bad":
            raise ValueError(name)
        return f"{name} done"

    wishes = [
        call("work", name=name, seconds=seconds) for name, seconds in (("slow", 3.0), ("bad", 1.0), ("fast", 2.0))
    ]
    session = await runtime.sessions.ensure_running(Agent("a", model=ScriptedModel(wishes, "ok"), tools=[work]), "c1")
    assert await session.say("go") == "ok"
    assert 3 <= trio.current_time() < 4
    assert transcript(session.state.messages)[2:5] == [
        "work: slow done",
        "work: Error: ValueError: bad",
        "work: fast done",
    ]
    assert_sendable(session.state)


async def test_no_more_calls_run_at_once_than_the_limit_says(runtime: Runtime, autojump_clock: MockClock) -> None:
    running: list[int] = [0, 0]

    @tool
    async def work(number: int) -> str:
        """Work."""
        running[0] += 1
        running[1] = max(running)
        await trio.sleep(1)
        running[0] -= 1
        return "done"

    wishes = [call("work", number=number) for number in range(7)]
    agent = Agent("a", model=ScriptedModel(wishes, "ok"), tools=[work], limits=Limits(parallel_tools=3))
    session = await runtime.sessions.ensure_running(agent, "c1")
    assert await session.say("go") == "ok"
    assert running == [0, 3]


@pytest.mark.row("AR-22.7")
async def test_operations_of_a_tool_are_applied_exactly_once(runtime: Runtime, autojump_clock: MockClock) -> None:
    @tool
    def change(context: ToolContext) -> ToolOutput:
        """Change everything."""
        count = context.state.metadata.get("count", 0)
        note = UserMessage(f"note {count}")
        return ToolOutput("ok", [PatchMetadata({"count": count + 1}), SetTodos((Todo(1, "x"),)), AddMessage(note)])

    model = ScriptedModel(call("change"), "one", call("change"), "two")
    session = await runtime.sessions.ensure_running(Agent("a", model=model, tools=[change]), "c1")
    with session.events() as events:
        await session.say("first")
        await session.say("second")
        seen = await waiting_events(events)

    assert session.state.metadata == {"count": 2}
    assert session.state.todos == (Todo(1, "x"),)
    assert [line for line in transcript(session.state.messages) if "note" in line] == ["user: note 0", "user: note 1"]
    assert len({message.id for message in session.state.messages}) == len(session.state.messages)
    assert [event.values for event in of(seen, MetadataChanged)] == [{"count": 1}, {"count": 2}]
    assert len(of(seen, TodosChanged)) == 1
    said = [event.message for event in of(seen, MessageCompleted)]
    assert said == [message for message in session.state.messages if message in said]
    assert await state_in(runtime) == session.state


async def test_a_result_that_cannot_be_stored_is_an_error_result_and_the_run_goes_on(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    @tool
    def surrogate() -> ToolOutput:
        """Return an operation that no store takes."""
        bad: Any = 5
        return ToolOutput("ok", [AddMessage(UserMessage(bad))])

    model = ScriptedModel(call("surrogate"), "I see.")
    session = await runtime.sessions.ensure_running(Agent("a", model=model, tools=[surrogate]), "c1")
    assert await session.say("go") == "I see."
    assert "surrogate ran, but what it returned cannot be stored" in transcript(session.state.messages)[2]


@pytest.mark.row("BR-22")
async def test_calls_with_one_id_each_get_a_result_of_their_own(runtime: Runtime, autojump_clock: MockClock) -> None:
    twins = [ToolCall("same", "add", {"left": n, "right": n}) for n in (1, 2, 3)]
    again = ToolCall("same", "add", {"left": 9, "right": 9})
    model = ScriptedModel(twins, again, "done")
    session = await runtime.sessions.ensure_running(Agent("a", model=model, tools=[add]), "c1")
    await session.say("go")
    assert [line for line in transcript(session.state.messages) if line.startswith("add")] == [
        "add: 2",
        "add: 4",
        "add: 6",
        "add: 18",
    ]
    assert_sendable(session.state)


async def test_a_tool_knows_its_call_its_run_its_key_and_what_the_host_gave(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    seen: list[ToolContext] = []

    @tool
    def look(context: ToolContext) -> str:
        """Look."""
        seen.append(context)
        return "ok"

    agent = Agent("a", model=ScriptedModel(call("look"), "done"), tools=[look], host={"currency": "USD"})
    session = await runtime.sessions.ensure_running(agent, "c1")
    async with session.send("go") as run:
        await run.finish()
    [context] = seen
    assert (context.agent_id, context.run_id, context.call_id) == ("c1", run.receipt.run_id, "call_1")
    assert context.idempotency_key.startswith("idem_")
    assert context.host == {"currency": "USD"}
    assert transcript(context.state.messages) == ["user: go", "model:  -> look"]


# --- the model --------------------------------------------------------------------------------------


@pytest.mark.row("S4-063", "AR-24.10")
async def test_an_error_of_the_model_is_a_status_and_the_state_is_intact(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    model = ScriptedModel(
        call("add", left=1, right=2), ModelRefused("scripted", "no credit", status=402), "hello again"
    )
    session = await runtime.sessions.ensure_running(Agent("a", model=model, tools=[add]), "c1")
    with session.events() as events:
        with pytest.raises(RunFailed, match="no credit") as caught:
            await session.say("go")
        seen = await waiting_events(events)
    assert (caught.value.outcome, caught.value.agent_id) == ("failed", "c1")
    [end] = of(seen, RunFinished)
    assert (end.outcome, end.reason) == ("failed", "scripted: no credit (HTTP 402)")
    assert [(each.status, each.detail) for each in of(seen, StatusChanged)][-1] == ("error", end.reason)
    assert transcript(session.state.messages) == ["user: go", "model:  -> add", "add: 3"]
    status = await session.status()
    assert (status.status, status.error, status.run_id) == ("error", end.reason, "")

    assert await session.say("still there?") == "hello again"
    assert (await session.status()).status == "idle"
    assert_sendable(session.state)


async def test_a_failed_call_is_made_again_and_what_was_streamed_is_declared_void(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    model = ScriptedModel(["Half a sen", ModelUnavailable("scripted", "connection lost")], "A whole sentence.")
    agent = Agent("a", model=model, retry=RetryPolicy(base=4.0, jitter=0.0))
    session = await runtime.sessions.ensure_running(agent, "c1")
    async with session.send("go") as run:
        events = [event async for event in run]
    text: list[str] = []
    for event in events:
        if isinstance(event, TextDiscarded):
            assert "connection lost" in event.reason
            text = []
        elif isinstance(event, TextStreamed):
            text.append(event.text)
    assert len(of(events, TextDiscarded)) == 1
    assert "".join(text) == "A whole sentence."
    assert transcript(session.state.messages) == ["user: go", "model: A whole sentence."]
    assert trio.current_time() >= 4


async def test_when_no_attempt_is_left_the_half_said_is_void_and_the_run_has_failed(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    model = ScriptedModel(then=["Half", ModelUnavailable("scripted", "down")])
    agent = Agent("a", model=model, retry=RetryPolicy(attempts=2, jitter=0.0))
    session = await runtime.sessions.ensure_running(agent, "c1")
    async with session.send("go") as run:
        events = [event async for event in run]
    failed = ["TextStreamed", "TextDiscarded", "ModelAttemptFailed", "UsageCounted"]
    assert names(events)[-10:] == [*failed, *failed, "StatusChanged", "RunFinished"]
    assert run.result is not None
    assert run.result.outcome == "failed"
    assert (session.state.counters.model_calls, len(model.requests)) == (2, 2)


@pytest.mark.row("AR-22.17")
async def test_the_answer_to_the_last_permitted_model_call_counts(runtime: Runtime, autojump_clock: MockClock) -> None:
    model = ScriptedModel(call("add", left=1, right=1), "two")
    agent = Agent("a", model=model, tools=[add], limits=Limits(model_calls=2))
    session = await runtime.sessions.ensure_running(agent, "c1")
    assert await session.say("1 + 1?") == "two"


@pytest.mark.row("AR-22.17")
async def test_a_run_that_wants_more_model_calls_fails_with_its_tools_answered(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    model = ScriptedModel(then=call("add", left=1, right=1))
    agent = Agent("a", model=model, tools=[add], limits=Limits(model_calls=2))
    session = await runtime.sessions.ensure_running(agent, "c1")
    end = await finished(session, "1 + 1?")
    assert (end.outcome, end.reason) == ("failed", "the run used up its limit of 2 model calls")
    assert transcript(session.state.messages) == ["user: 1 + 1?", *["model:  -> add", "add: 2"] * 2]
    assert_sendable(session.state)


@pytest.mark.parametrize(
    ("reason", "outcome", "detail"),
    [("length", "completed", "length"), ("refused", "failed", "the model refused to answer")],
)
async def test_an_answer_that_stopped_early_says_so(
    runtime: Runtime, autojump_clock: MockClock, reason: str, outcome: str, detail: str
) -> None:
    session = await runtime.sessions.ensure_running(Agent("a", model=ScriptedModel(["Well", Stop(reason)])), "c1")
    end = await finished(session, "go")
    assert (end.outcome, end.reason, end.text) == (outcome, detail, "Well")


async def test_an_answer_with_a_lone_surrogate_is_kept_and_later_turns_go_on(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    model = ScriptedModel("broken \ud83d half", "fine")
    session = await runtime.sessions.ensure_running(Agent("a", model=model), "c1")
    await session.say("go \ud83d on")
    assert await session.say("and now?") == "fine"
    assert await state_in(runtime) == session.state


@pytest.mark.row("S4-003")
def test_the_state_has_no_place_for_configuration() -> None:
    fields = set(State.__annotations__)
    assert {"messages", "todos", "metadata", "interrupts"} <= fields
    assert not fields & {"model", "prompt", "tools", "middleware", "host"}

"""Hooks: what layers of the sandwich can do to a run, and how their changes are journaled."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from sapwood import Agent, Limits, NotRunning, Runtime, ScriptedModel, Session, tool
from sapwood.conversation import (
    Accepted,
    AddMessage,
    AssistantMessage,
    Decision,
    Interrupt,
    InterruptRaised,
    PatchMetadata,
    RunFinished,
    State,
    StatusChanged,
    TextDiscarded,
    ToolCall,
    ToolFinished,
    UserMessage,
)
from sapwood.errors import ChildFailed, InvalidOption, ModelUnavailable, ToolError
from sapwood.middleware import (
    Change,
    HookResult,
    Middleware,
    MiddlewareContext,
    ModelCall,
    ReplaceMessages,
    RunCall,
    Suspend,
    ToolInvocation,
)
from sapwood.models import NO_RETRY, Delay, ModelRequest, call
from sapwood.tools import ToolOutcome
from tests.agents.kit import (
    Changing,
    assert_sendable,
    entries_of,
    events_in,
    finished,
    of,
    server_of,
    state_in,
    transcript,
    until,
    waiting_events,
)


@tool
def add(left: int, right: int) -> int:
    """Add two numbers."""
    return left + right


async def started(runtime: Runtime, *layers: Middleware, model: ScriptedModel | None = None, **options: Any) -> Session:
    model = model or ScriptedModel(call("add", left=1, right=2), "three")
    return await runtime.sessions.ensure_running(
        Agent("a", model=model, tools=[add], middleware=layers, **options), "c1"
    )


# --- presence ---------------------------------------------------------------------------------------


async def test_the_presence_of_a_hook_is_seen_from_the_class_and_its_own_error_is_not_taken_for_absence(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    class Broken(Middleware):
        async def before_model(self, state: State, context: MiddlewareContext) -> HookResult:
            missing: Any = None
            missing.undefined_function()
            return None

    end = await finished(await started(runtime, Broken()), "go")
    assert end.outcome == "failed"
    assert end.reason == "AttributeError: 'NoneType' object has no attribute 'undefined_function'"


@pytest.mark.row("S4-007", "S4-012")
async def test_changes_of_every_hook_are_journaled_with_their_source_and_applied_once(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    layer = Changing(
        start=[PatchMetadata({"start": 1})],
        before=[PatchMetadata({"before": 1}), AddMessage(UserMessage("mind the date"))],
        after=[PatchMetadata({"after": 1})],
    )
    model = ScriptedModel("hello")
    session = await started(runtime, layer, model=model)
    assert session.state.metadata == {"start": 1}
    await session.say("go")

    assert session.state.metadata == {"start": 1, "before": 1, "after": 1}
    assert transcript(model.requests[0].messages) == ["user: go", "user: mind the date"]
    applied = [entry.event for entry in await entries_of(runtime) if type(entry.event).__name__ == "OperationsApplied"]
    assert [event.source for event in applied] == ["Changing"] * 4
    assert all(message.id for message in session.state.messages)
    assert await state_in(runtime) == session.state


@pytest.mark.row("AR-22.7")
async def test_what_the_hooks_around_a_model_call_change_is_one_commit_with_what_follows_from_it(
    runtime: Runtime, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits: list[list[str]] = []
    journal = type(runtime.journal)
    append = journal.append

    async def noting(self: Any, agent_id: str, *, events: Any, **options: Any) -> int:
        commits.append([type(event).__name__ for event in events])
        return await append(self, agent_id, events=events, **options)

    monkeypatch.setattr(journal, "append", noting)
    layer = Changing(before=[PatchMetadata({"before": 1})], after=[PatchMetadata({"after": 1})])
    session = await started(runtime, layer)
    async with session.send("go") as run:
        async for event in run:
            if isinstance(event, ToolFinished):
                layer.after += [PatchMetadata({"last": 1})]
    assert ["OperationsApplied", "ModelCallStarted"] in commits
    assert ["OperationsApplied", "ToolIntended"] in commits
    assert commits[-1] == ["OperationsApplied", "RunFinished"]
    assert session.state.metadata == {"before": 1, "after": 1, "last": 1}


async def test_a_later_layer_sees_what_earlier_ones_changed(runtime: Runtime, autojump_clock: MockClock) -> None:
    seen: list[Any] = []

    class Writer(Middleware):
        async def before_model(self, state: State, context: MiddlewareContext) -> HookResult:
            return [PatchMetadata({"n": state.metadata.get("n", 0) + 1})]

        async def after_model(self, state: State, context: MiddlewareContext) -> HookResult:
            seen.append(("writer", state.metadata["n"], context.state.metadata["n"]))
            return None

    class Reader(Middleware):
        async def before_model(self, state: State, context: MiddlewareContext) -> HookResult:
            seen.append(("reader", state.metadata["n"], context.state.metadata["n"]))
            return None

        async def after_model(self, state: State, context: MiddlewareContext) -> HookResult:
            return [PatchMetadata({"n": 10})]

    await (await started(runtime, Writer(), Reader(), model=ScriptedModel("x"))).say("go")
    assert seen == [("reader", 1, 1), ("writer", 10, 10)]


async def test_a_hook_that_wants_something_impossible_fails_the_run_and_changes_nothing(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    wrong: Any = "a text"
    session = await started(runtime, Changing(before=[wrong]))
    end = await finished(session, "go")
    assert end.outcome == "failed"
    assert (
        "middleware Changing: expected AddMessage, QueueMessage, SetTodos, PatchMetadata or ReplaceMessages"
        in end.reason
    )
    assert session.state.metadata == {}
    assert (await session.status()).status == "error"
    assert await session.say("again") == "three"


async def test_a_message_added_after_the_answer_makes_the_run_go_on(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    model = ScriptedModel("done?", "really done")
    session = await started(runtime, Changing(after=[AddMessage(UserMessage("check again"))]), model=model)
    assert await session.say("go") == "really done"
    lines = ["user: go", "model: done?", "user: check again", "model: really done"]
    assert transcript(session.state.messages) == lines


async def test_a_message_added_after_an_answer_with_calls_does_not_hide_the_calls(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    session = await started(runtime, Changing(after=[AddMessage(UserMessage("by the way"))]))
    assert await session.say("go") == "three"
    assert_sendable(session.state)
    assert "add: 3" in transcript(session.state.messages)


async def test_an_answer_that_a_layer_takes_out_is_asked_for_again(runtime: Runtime, autojump_clock: MockClock) -> None:
    class Guard(Middleware):
        async def after_model(self, state: State, context: MiddlewareContext) -> HookResult:
            last = state.messages[-1]
            assert isinstance(last, AssistantMessage)
            if "secret" not in last.text:
                return None
            return [ReplaceMessages((last.id,), (UserMessage("do not tell secrets"),))]

    model = ScriptedModel(["the secret is ", call("add", left=1, right=1)], "I will not say")
    session = await started(runtime, Guard(), model=model)
    assert await session.say("tell me") == "I will not say"
    assert transcript(session.state.messages) == [
        "user: tell me",
        "user: do not tell secrets",
        "model: I will not say",
    ]


async def test_a_layer_that_never_lets_go_is_stopped_by_the_limit(runtime: Runtime, autojump_clock: MockClock) -> None:
    class Again(Middleware):
        async def after_model(self, state: State, context: MiddlewareContext) -> HookResult:
            return [AddMessage(UserMessage("again"))]

    session = await started(runtime, Again(), model=ScriptedModel(then="no"), limits=Limits(model_calls=5))
    end = await finished(session, "go")
    assert (end.outcome, end.reason) == ("failed", "the run used up its limit of 5 model calls")


@pytest.mark.row("AR-22.11", "AR-24.10", "AR-22.27")
async def test_a_fault_in_a_layer_is_one_failure_that_stays_known_over_a_restart(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    class Faulty(Middleware):
        async def around_run(self, call_next: RunCall, context: MiddlewareContext) -> None:
            await call_next()
            raise ZeroDivisionError("a fault")

    session = await started(runtime, Faulty())
    with session.events() as events:
        await finished(session, "go")
        seen = await waiting_events(events)
    assert [event.status for event in of(seen, StatusChanged)] == ["idle", "running", "error"]
    [end] = of(seen, RunFinished)
    assert (end.outcome, end.reason) == ("failed", "ZeroDivisionError: a fault")
    assert transcript(session.state.messages)[-1] == "model: three"

    await runtime.sessions.stop("c1")
    session = await started(runtime)
    status = await session.status()
    assert (status.status, status.error, status.run_id) == ("error", "ZeroDivisionError: a fault", "")


@pytest.mark.row("UP-29", "UP-28")
async def test_a_guard_that_trips_after_a_tool_ran_does_not_make_the_conversation_forget_it(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    class Guard(Middleware):
        async def after_model(self, state: State, context: MiddlewareContext) -> HookResult:
            last = state.messages[-1]
            assert isinstance(last, AssistantMessage)
            if "forbidden" in last.text:
                raise ToolError("the guard has tripped")
            return None

    wish = call("add", left=1, right=2)
    model = ScriptedModel(wish, ["forbidden", wish], "fine")
    session = await started(runtime, Guard(), model=model)
    end = await finished(session, "go")
    assert (end.outcome, end.reason) == ("failed", "ToolError: the guard has tripped")
    assert transcript(session.state.messages)[1:] == [
        "model:  -> add",
        "add: 3",
        "model: forbidden -> add",
        "add: Error: add was not run (ToolError: the guard has tripped)",
    ]
    assert await session.say("again") == "fine"
    assert_sendable(session.state)


# --- interrupts -------------------------------------------------------------------------------------


class AsksBefore(Middleware):
    """Asks once for each run, before its first model call."""

    async def before_model(self, state: State, context: MiddlewareContext) -> HookResult:
        question = f"budget of {context.run_id}"
        decision = state.decision(question)
        if decision is None:
            wish = ToolCall(question, "spend", {"dollars": 5})
            return Suspend((Interrupt(id=question, kind="approval", call=wish),))
        return [PatchMetadata({"verdict": decision.verdict})]


@pytest.mark.row("S4-009")
async def test_a_before_hook_suspends_the_run_and_finds_the_decision_when_it_runs_again(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    model = ScriptedModel("hello")
    session = await started(runtime, AsksBefore(), model=model)
    end = await finished(session, "go")
    assert end.outcome == "interrupted"
    assert model.requests == []
    [approval] = session.approvals

    with session.events() as events:
        assert isinstance(await approval.approve(by="ann"), Accepted)
        _, end = await until(events, RunFinished)
    assert (end.outcome, end.text) == ("completed", "hello")
    assert session.state.metadata == {"verdict": "approve"}
    assert "ToolIntended" not in await events_in(runtime)
    assert transcript(session.state.messages) == ["user: go", "model: hello"]
    assert session.state.pending == ()


@pytest.mark.row("S4-009", "S4-024")
async def test_an_after_hook_that_holds_the_run_back_holds_back_every_call(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    class AsksAfter(Middleware):
        async def after_model(self, state: State, context: MiddlewareContext) -> HookResult:
            if state.decision("review"):
                return None
            return Suspend((Interrupt(id="review", kind="question", call=ToolCall("review", "review"), reason="ok?"),))

    session = await started(runtime, AsksAfter())
    end = await finished(session, "go")
    assert end.outcome == "interrupted"
    assert "ToolIntended" not in await events_in(runtime)
    assert transcript(session.state.messages) == ["user: go", "model:  -> add"]

    with session.events() as events:
        await session.approvals[0].answer(text="fine")
        _, end = await until(events, RunFinished)
    assert end.text == "three"
    assert_sendable(session.state)


async def test_every_layer_sees_every_answer_although_one_of_them_suspends_the_run(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    seen: list[str] = []

    class Outer(Middleware):
        async def after_model(self, state: State, context: MiddlewareContext) -> HookResult:
            seen.append(transcript(state.messages)[-1])
            return None

    class Gate(Middleware):
        async def after_model(self, state: State, context: MiddlewareContext) -> HookResult:
            last = state.messages[-1]
            assert isinstance(last, AssistantMessage)
            interrupts = tuple(Interrupt(id=each.id, kind="approval", call=each) for each in last.tool_calls)
            return Suspend(interrupts) if interrupts else None

    session = await started(runtime, Outer(), Gate())
    await finished(session, "go")
    with session.events() as events:
        await session.approvals[0].approve()
        await until(events, RunFinished)
    assert seen == ["model:  -> add", "model: three"]


@pytest.mark.row("AR-24.21", "AR-24.20")
async def test_a_halt_takes_no_decision_and_a_message_supersedes_it(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    class Halts(Middleware):
        async def after_model(self, state: State, context: MiddlewareContext) -> HookResult:
            last = state.messages[-1]
            assert isinstance(last, AssistantMessage)
            if not last.tool_calls:
                return None
            return Suspend((Interrupt(id="halt-1", kind="halt", call=ToolCall("halt-1", "halt"), reason="enough"),))

    model = ScriptedModel(call("add", left=1, right=2), "hello")
    session = await started(runtime, Halts(), model=model)
    assert (await finished(session, "go")).outcome == "interrupted"
    assert len(model.requests) == 1
    outcome = await session.decide(Decision("halt-1", "approve"))
    assert type(outcome).__name__ == "Invalid"
    assert [each.interrupt.id for each in session.approvals] == ["halt-1"]

    assert await session.say("something else") == "hello"
    assert session.approvals == ()
    assert_sendable(session.state)
    assert "add: Error: add was not run" in transcript(session.state.messages)[2]


def test_a_suspension_without_an_interrupt_is_refused() -> None:
    with pytest.raises(InvalidOption, match="Suspend: expected at least one interrupt"):
        Suspend(())


# --- wrapping hooks ---------------------------------------------------------------------------------


async def test_a_layer_may_answer_in_place_of_the_model(runtime: Runtime, autojump_clock: MockClock) -> None:
    class Cache(Middleware):
        async def around_model_call(
            self, request: ModelRequest, call_next: ModelCall, context: MiddlewareContext
        ) -> AssistantMessage:
            return AssistantMessage("from the cache")

    model = ScriptedModel()
    session = await started(runtime, Cache(), model=model)
    assert await session.say("go") == "from the cache"
    assert model.requests == []


async def test_a_layer_may_call_the_model_again_and_half_said_text_is_declared_void(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    class Fallback(Middleware):
        async def around_model_call(
            self, request: ModelRequest, call_next: ModelCall, context: MiddlewareContext
        ) -> AssistantMessage:
            try:
                return await call_next(request)
            except ModelUnavailable:
                return await call_next(request)

    model = ScriptedModel(["Half a", ModelUnavailable("scripted", "down")], "whole")
    session = await started(runtime, Fallback(), model=model, retry=NO_RETRY)
    async with session.send("go") as run:
        events = [event async for event in run]
    assert [event.reason for event in of(events, TextDiscarded)] == ["scripted: down"]
    assert session.state.counters.model_calls == 1


async def test_a_layer_may_refuse_a_tool_call_and_the_model_reads_why(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    class Deny(Middleware):
        async def around_tool_call(
            self, call: ToolCall, call_next: ToolInvocation, context: MiddlewareContext
        ) -> ToolOutcome:
            raise ToolError("not on a Sunday") if call.arguments["left"] == 1 else ValueError("broken")

    model = ScriptedModel([call("add", left=1, right=2), call("add", left=2, right=2)], "ok")
    session = await started(runtime, Deny(), model=model)
    assert await session.say("go") == "ok"
    lines = ["add: Error: not on a Sunday", "add: Error: ValueError: broken"]
    assert transcript(session.state.messages)[2:4] == lines


async def test_a_run_may_be_ended_by_a_layer_that_does_not_go_on(runtime: Runtime, autojump_clock: MockClock) -> None:
    class Closed(Middleware):
        async def around_run(self, call_next: RunCall, context: MiddlewareContext) -> None:
            await trio.lowlevel.checkpoint()

    end = await finished(await started(runtime, Closed()), "go")
    assert (end.outcome, end.reason) == ("completed", "a middleware ended the run")


async def test_a_layer_that_runs_the_rest_twice_fails_the_run(runtime: Runtime, autojump_clock: MockClock) -> None:
    class Twice(Middleware):
        async def around_run(self, call_next: RunCall, context: MiddlewareContext) -> None:
            await call_next()
            await call_next()

    end = await finished(await started(runtime, Twice()), "go")
    assert end.outcome == "failed"
    assert "call_next() to be awaited once" in end.reason


# --- messages to middleware -------------------------------------------------------------------------


class Listening(Middleware):
    async def handle_message(self, message: Any, context: MiddlewareContext) -> list[Change] | None:
        if message == "bad":
            raise ValueError("I do not take this")
        return [PatchMetadata({"heard": [*context.state.metadata.get("heard", []), message]})]


@pytest.mark.row("S4-011", "AR-22.19")
async def test_what_a_message_to_a_middleware_changes_during_a_run_is_not_overwritten(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    model = ScriptedModel([Delay(10.0), call("add", left=1, right=2)], [Delay(10.0), "three"])
    session = await started(runtime, Listening(), model=model)
    async with session.send("go") as run:
        for number in range(4):
            await trio.sleep(4)
            assert await session.notify("Listening", number)
            assert session.state.metadata["heard"] == list(range(number + 1))
        await run.finish()
    assert session.state.metadata == {"heard": [0, 1, 2, 3]}
    assert await state_in(runtime) == session.state


async def test_a_message_that_a_middleware_cannot_take_harms_nobody_but_its_sender(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    session = await started(runtime, Listening(), Changing())
    server = server_of(runtime)
    with pytest.raises(ValueError, match="I do not take this"):
        await session.notify("Listening", "bad")
    with pytest.raises(InvalidOption, match="middleware Changing takes no messages"):
        await session.notify("Changing", 1)
    assert await session.notify("Unknown", 1) is False
    assert server.alive
    assert await session.say("go") == "three"


async def test_a_layer_that_fails_at_server_start_refuses_the_start(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    class Unprepared(Middleware):
        async def on_server_start(self, context: MiddlewareContext) -> None:
            raise ConnectionError("no queue")

    with pytest.raises(ChildFailed, match="no queue"):
        await started(runtime, Unprepared())
    assert runtime.sessions.running() == []
    assert await (await started(runtime)).say("go") == "three"


async def test_two_layers_that_offer_one_tool_refuse_the_start(runtime: Runtime, autojump_clock: MockClock) -> None:
    class Offering(Middleware):
        def tools(self, context: MiddlewareContext) -> list[Any]:
            return [add]

    with pytest.raises(ChildFailed, match="tool 'add' is already taken"):
        await started(runtime, Offering())
    assert await runtime.sessions.lookup("c1") == NotRunning()


async def test_the_local_dict_is_one_conversations_own_and_new_after_a_restart(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    class Counting(Middleware):
        async def before_model(self, state: State, context: MiddlewareContext) -> HookResult:
            count = context.local[self.name] = context.local.get(self.name, 0) + 1
            return [PatchMetadata({"count": count})]

    agent = Agent("a", model=ScriptedModel(then="hello"), middleware=[Counting()])
    one = await runtime.sessions.ensure_running(agent, "c1")
    other = await runtime.sessions.ensure_running(agent, "c2")
    await one.say("1")
    await one.say("2")
    await other.say("1")
    assert (one.state.metadata, other.state.metadata) == ({"count": 2}, {"count": 1})
    await runtime.sessions.stop("c1")
    one = await runtime.sessions.ensure_running(agent, "c1")
    await one.say("3")
    assert one.state.metadata == {"count": 1}


async def test_the_interrupt_is_announced_after_it_is_durable(runtime: Runtime, autojump_clock: MockClock) -> None:
    session = await started(runtime, AsksBefore(), model=ScriptedModel("x"))
    async with session.send("go") as run:
        _, raised = await until(run, InterruptRaised)
        stored = [entry.event for entry in await entries_of(runtime)]
        assert any(getattr(event, "interrupt", None) == raised.interrupt for event in stored)
        await run.finish()

"""PatchToolCalls: no request to a model holds a call without its result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from sapwood import Agent, ScriptedModel, tool
from sapwood.actors import SimulatedEnvironment
from sapwood.conversation import (
    AddMessage,
    AssistantMessage,
    Message,
    PendingCall,
    State,
    ToolCall,
    ToolResult,
    UserMessage,
    check_pairs,
    evolve,
    journal,
    unanswered_calls,
)
from sapwood.middleware import Change, Middleware, MiddlewareContext, PatchToolCalls, ReplaceMessages
from tests.agents.kit import events_in, opened, state_in, transcript


class Importing(Middleware):
    """Puts a conversation into a new one, as an import does."""

    def __init__(self, *messages: Message) -> None:
        self.messages = messages

    async def on_server_start(self, context: MiddlewareContext) -> list[Any]:
        return [] if context.state.messages else [AddMessage(each) for each in self.messages]


def asking(*ids: str, text: str = "") -> AssistantMessage:
    return AssistantMessage(text, tuple(ToolCall(each, "work", {}) for each in ids), id="a-" + "-".join(ids))


@pytest.mark.row("S4-015", "UP-25", "UP-26", "UP-27", "UP-28")
async def test_a_conversation_with_dangling_calls_can_go_on_and_is_mended_for_good(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    old: list[Message] = [
        UserMessage("go", "u1"),
        asking("x", "y"),
        ToolResult("x", "work", "done", id="r1"),
        UserMessage("hm", "u2"),
        AssistantMessage("well", id="a2"),
    ]
    model = ScriptedModel("hello", "again")
    agent = Agent("a", model=model, middleware=[Importing(*old), PatchToolCalls()])
    async with opened(tmp_path / "s.db") as runtime:
        session = await runtime.sessions.ensure_running(agent, "c1")
        assert check_pairs(session.state.messages) != ()
        assert await session.say("still there?") == "hello"
        assert check_pairs(model.requests[0].messages) == ()
        line = "work: Error: this call was interrupted before it had a result"
        assert transcript(session.state.messages)[:4] == ["user: go", "model:  -> work -> work", "work: done", line]
        assert session.state.messages[3].id
        before = await events_in(runtime)
        await session.say("and now?")
        assert "OperationsApplied" not in (await events_in(runtime))[len(before) :]
        assert await state_in(runtime) == session.state


async def test_a_conversation_that_is_in_order_is_not_touched(tmp_path: Path, autojump_clock: MockClock) -> None:
    agent = Agent("a", model=ScriptedModel("x", "y"), middleware=[PatchToolCalls()])
    async with opened(tmp_path / "s.db") as runtime:
        session = await runtime.sessions.ensure_running(agent, "c1")
        await session.say("1")
        await session.say("2")
        assert "OperationsApplied" not in await events_in(runtime)


def context() -> MiddlewareContext:
    class Needed:
        environment = SimulatedEnvironment()

        def __init__(self) -> None:
            self.local: dict[str, Any] = {}

    needed: Any = Needed()
    made: MiddlewareContext = needed
    return made


messages = st.lists(
    st.one_of(
        st.builds(lambda n: UserMessage("u", f"u{n}"), st.integers(0, 99)),
        st.builds(
            lambda ids, n: evolve(asking(*ids), id=f"a{n}"),
            st.lists(st.sampled_from("abcd"), max_size=3, unique=True),
            st.integers(0, 99_999),
        ),
        st.builds(lambda i, n: ToolResult(i, "work", "ok", id=f"r{n}"), st.sampled_from("abcd"), st.integers(0, 999)),
    ),
    max_size=12,
)


@tool
def work() -> str:
    """Work."""
    raise AssertionError("an imported call must not be carried out")


@pytest.mark.row("UP-25", "UP-27")
async def test_a_call_that_an_import_left_open_is_settled_and_never_carried_out(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    old: list[Message] = [UserMessage("go", "u1"), asking("x", "y"), ToolResult("x", "work", "done", id="r1")]
    agent = Agent("a", model=ScriptedModel("hello"), tools=[work], middleware=[Importing(*old)])
    async with opened(tmp_path / "s.db") as runtime:
        session = await runtime.sessions.ensure_running(agent, "c1")
        assert await session.say("still there?") == "hello"
        assert check_pairs(session.state.messages) == ()
        assert "work was left open by an earlier run" in transcript(session.state.messages)[3]


async def test_a_call_whose_id_is_used_again_later_is_taken_out() -> None:
    answers = [asking("a", "b", text="x"), asking("a"), evolve(asking("a"), id="last")]
    state = State(messages=(UserMessage("u", "u1"), *answers))
    for change in await changes_of(PatchToolCalls(), state):
        state = journal.apply(state, event_of(change))
    assert check_pairs(state.messages) == ()
    assert [line.split(":")[0] for line in transcript(state.messages)] == ["user", "model", "work", "model", "work"]


async def changes_of(layer: PatchToolCalls, state: State, around: MiddlewareContext | None = None) -> list[Change]:
    changes = await layer.before_model(state, around or context())
    assert isinstance(changes, list)
    return changes


def event_of(change: Change) -> journal.JournalEvent:
    if isinstance(change, ReplaceMessages):
        return journal.MessagesReplaced(change.removed, change.inserted)
    return journal.OperationsApplied((change,))


@given(messages=messages, pending=st.sets(st.sampled_from("abcd"), max_size=1))
async def test_whatever_a_journal_made_of_messages_is_mended_but_for_pending_calls(
    messages: list[Message], pending: set[str]
) -> None:
    state = State()
    for message in messages:
        state = journal.apply(state, journal.MessageAdded(message))
    state = journal.fold(state, [journal.ToolIntended(ToolCall(each, "work", {}), "k") for each in pending])
    for change in await changes_of(PatchToolCalls(), state):
        state = journal.apply(state, event_of(change))
    problems = check_pairs(state.messages)
    assert all(any(repr(each) in problem for each in pending) for problem in problems)


async def test_what_was_in_order_is_not_looked_at_again_unless_it_was_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import sapwood.middleware._patch_tool_calls as module

    looked: list[int] = []

    def noting(messages: tuple[Message, ...]) -> tuple[ToolCall, ...]:
        looked.append(len(messages))
        return unanswered_calls(messages)

    monkeypatch.setattr(module, "unanswered_calls", noting)
    around, layer = context(), PatchToolCalls()
    state = State(messages=tuple(UserMessage("u", f"u{number}") for number in range(100)))
    for _ in range(2):
        assert await changes_of(layer, state, around) == []
    state = journal.apply(state, journal.MessageAdded(asking("a")))
    [mended] = await changes_of(layer, state, around)
    state = journal.apply(state, event_of(mended))
    assert await changes_of(layer, state, around) == []
    state = journal.apply(state, journal.MessagesReplaced(("u50",), (asking("b"),)))
    assert len(await changes_of(layer, state, around)) == 1
    assert looked == [100, 0, 1, 2, 102]


async def test_a_call_that_is_still_pending_is_left_alone() -> None:
    state = State(
        messages=(UserMessage("u", "u1"), asking("a", "b")), pending=(PendingCall(ToolCall("a", "work", {}), "k"),)
    )
    [change] = await changes_of(PatchToolCalls("gone"), state)
    assert isinstance(change, AddMessage)
    assert isinstance(change.message, ToolResult)
    assert (change.message.call_id, change.message.content) == ("b", "Error: gone")


async def test_results_without_a_call_are_taken_out() -> None:
    state = State(messages=(UserMessage("u", "u1"), ToolResult("x", "work", "ok", id="r1")))
    assert await PatchToolCalls().before_model(state, context()) == [ReplaceMessages(removed=("r1",))]

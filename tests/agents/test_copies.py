"""Export, import and forks: copies of conversations that disturb nobody and hide nothing."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from sapwood import Agent, Runtime, ScriptedModel, tool
from sapwood.agents import FactoryRouter
from sapwood.conversation import Origin, RunFinished, State, ToolResult, UserMessage
from sapwood.errors import AgentExists, AgentMissing, CodecError, FutureVersion, InvalidOption
from sapwood.middleware import (
    HookResult,
    HumanInTheLoop,
    Middleware,
    MiddlewareContext,
    ReplaceMessages,
    TodoList,
)
from sapwood.models import call
from tests.agents.kit import assert_sendable, finished, opened, server_of, transcript, until


@tool
def refund(cents: int) -> str:
    """Refund. cents: how much."""
    return f"refunded {cents}"


def supporter(*steps: Any) -> Agent:
    return Agent(
        "support",
        model=ScriptedModel(*steps, then="ok"),
        tools=[refund],
        middleware=[TodoList(), HumanInTheLoop(refund=True)],
    )


async def talked(runtime: Runtime, agent_id: str = "c1") -> None:
    session = await runtime.sessions.ensure_running(supporter(), agent_id)
    for text in ("one", "two", "three"):
        await session.say(text)


# --- export and import ------------------------------------------------------------------------------


@pytest.mark.row("S4-033", "S4-034")
async def test_a_conversation_taken_to_another_store_goes_on_there(tmp_path: Path, autojump_clock: MockClock) -> None:
    def build(_: object) -> Agent:
        return supporter()

    router = FactoryRouter()
    router.add("support", build)
    async with opened(tmp_path / "here.db") as runtime:
        session = await runtime.sessions.ensure_running(router, "c1", routing={"factory": "support", "user": 7})
        await session.say("one")
        before = session.state
        data = json.loads(json.dumps(await runtime.sessions.export_conversation("c1")))
    assert "model" not in data
    assert "prompt" not in data

    async with opened(tmp_path / "there.db", seed=1) as runtime:
        copied = await runtime.sessions.import_conversation(data, "moved")
        assert runtime.sessions.running() == []
        runtime.sessions.use(factory=router)
        session = await runtime.sessions.resume("moved")
        assert transcript(session.state.messages) == transcript(before.messages)
        assert session.state.routing == {"factory": "support", "user": 7}
        assert session.state.origin == Origin("c1", before.messages[-1].id, "import", session.state.origin.at)  # type: ignore[union-attr]  # compared as a whole
        new = [message.id for message in session.state.messages]
        assert [copied.message_ids[message.id] for message in before.messages] == new
        assert not set(new) & {message.id for message in before.messages}
        assert await session.say("two") == "ok"
        page = await runtime.sessions.transcript("moved")
        assert page.messages == session.state.messages


async def test_a_host_may_decide_who_answers_in_an_imported_conversation(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    router = FactoryRouter()
    router.add("support", lambda _: supporter("from support"))
    router.add("admin", lambda _: supporter("from admin"))
    runtime.sessions.use(factory=router)
    await runtime.sessions.ensure_running(router, "c1", routing={"factory": "support"})
    data = await runtime.sessions.export_conversation("c1")
    await runtime.sessions.import_conversation({**data, "routing": {"factory": "admin"}}, "theirs")
    await runtime.sessions.import_conversation(
        {**data, "routing": {"factory": "admin"}}, "ours", routing={"factory": "support"}
    )
    assert await (await runtime.sessions.resume("theirs")).say("hi") == "from admin"
    assert await (await runtime.sessions.resume("ours")).say("hi") == "from support"


async def test_an_import_refuses_an_id_that_is_taken_and_disturbs_nobody(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    await talked(runtime)
    session = runtime.sessions.session("c1")
    data = await runtime.sessions.export_conversation("c1")
    before = (await session.status()).seq
    with pytest.raises(AgentExists, match="'c1'"):
        await runtime.sessions.import_conversation(data, "c1")
    assert (await session.status()).seq == before
    assert await session.say("still here?") == "ok"


def without(data: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in data.items() if name != key}


async def test_an_import_of_something_else_writes_nothing_and_says_where_it_is_wrong(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    await talked(runtime)
    data = await runtime.sessions.export_conversation("c1")
    orphan = copy.deepcopy(data)
    result = {"role": "tool", "call_id": "x", "name": "t", "content": "c", "is_error": False, "id": "m"}
    orphan["messages"][0] = {**result, "problem": "", "reference": ""}
    wrong: list[tuple[object, type[Exception], str]] = [
        ("text", CodecError, "archive"),
        (without(data, "version"), CodecError, r"archive\.version"),
        ({**data, "version": 2}, FutureVersion, "archive"),
        ({**data, "model": "x"}, CodecError, r"archive\.model"),
        (without(data, "todos"), CodecError, r"archive\.todos"),
        ({**data, "messages": [{"role": "system"}]}, CodecError, r"messages\[0\]"),
        (orphan, CodecError, r"messages\[0\]"),
    ]
    for number, (bad, error, place) in enumerate(wrong):
        with pytest.raises(error, match=place):
            await runtime.sessions.import_conversation(bad, f"new{number}")
    assert [row.agent_id for row in await runtime.journal.agents()] == ["c1"]


async def test_what_is_not_stored_cannot_be_exported_or_forked(runtime: Runtime, autojump_clock: MockClock) -> None:
    with pytest.raises(AgentMissing):
        await runtime.sessions.export_conversation("c1")
    with pytest.raises(AgentMissing):
        await runtime.sessions.fork("c1", "c2")
    assert await runtime.journal.agents() == []


# --- forks ------------------------------------------------------------------------------------------


async def test_a_fork_has_everything_up_to_a_message_and_goes_its_own_way(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    await talked(runtime)
    original = runtime.sessions.session("c1")
    at = next(each.id for each in original.state.messages if isinstance(each, UserMessage) and each.text == "two")
    seq = (await original.status()).seq
    copied = await runtime.sessions.fork("c1", "c2", at=at)
    assert copied.closed_calls == ()

    fork = await runtime.sessions.ensure_running(supporter("another way"), "c2")
    assert transcript(fork.state.messages) == ["user: one", "model: ok", "user: two"]
    assert fork.state.origin is not None
    assert (fork.state.origin.agent_id, fork.state.origin.message_id, fork.state.origin.how) == ("c1", at, "fork")
    assert await fork.say("three, differently") == "another way"
    assert (await original.status()).seq == seq, "the original is as it was, and its server still holds it"
    assert await original.say("four") == "ok"
    page = await runtime.sessions.transcript("c2")
    assert transcript(page.messages) == transcript(fork.state.messages)
    assert (fork.state.usage, fork.state.counters.runs) != (original.state.usage, original.state.counters.runs)


async def test_a_fork_in_the_middle_of_a_call_says_so_in_its_result(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    agent = supporter(call("refund", cents=7500))
    session = await runtime.sessions.ensure_running(agent, "c1")
    assert (await finished(session, "Refund it")).outcome == "interrupted"
    copied = await runtime.sessions.fork("c1", "c2")
    [interrupt] = session.state.undecided
    assert copied.closed_calls == (interrupt.id,)

    fork = await runtime.sessions.ensure_running(supporter(), "c2")
    assert_sendable(fork.state)
    assert (fork.state.undecided, fork.state.run) == ((), None)
    result = fork.state.messages[-1]
    assert isinstance(result, ToolResult)
    assert (result.is_error, result.problem) == (True, "unknown")
    assert "copy" in result.content
    assert await fork.say("go on") == "ok"
    # The original still waits for the person, and its call runs once.
    await session.approvals[0].approve()
    with session.events(after=0) as events:
        await until(events, RunFinished, outcome="completed")
    results = [each.content for each in session.state.messages if isinstance(each, ToolResult)]
    assert results == ["refunded 7500"]


async def test_a_fork_has_the_todos_and_metadata_of_that_moment(runtime: Runtime, autojump_clock: MockClock) -> None:
    todo = {"content": "water the plants"}
    agent = supporter("hello", call("write_todos", todos=[todo]), "noted")
    session = await runtime.sessions.ensure_running(agent, "c1")
    await session.say("hello")
    early = session.state.messages[-1].id
    await session.say("water the plants")
    assert session.state.todos != ()
    await runtime.sessions.fork("c1", "before", at=early)
    await runtime.sessions.fork("c1", "after")
    assert (await runtime.sessions.load("before")).todos == ()
    assert (await runtime.sessions.load("after")).todos == session.state.todos


async def test_a_fork_reads_what_a_snapshot_holds_too(path: Path, autojump_clock: MockClock) -> None:
    async with opened(path, snapshots=5) as runtime:
        await talked(runtime)
        first = (await runtime.sessions.load("c1")).messages[0].id
        assert (await runtime.journal.read("c1"))[0].seq > 1
        await runtime.sessions.fork("c1", "c2", at=first)
        assert transcript((await runtime.sessions.load("c2")).messages) == ["user: one"]


async def test_a_fork_of_a_summarised_conversation_keeps_what_people_saw(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    class Forgetful(Middleware):
        async def before_model(self, state: State, context: MiddlewareContext) -> HookResult:
            await trio.lowlevel.checkpoint()
            gone = tuple(message.id for message in state.messages[:-1])
            return [ReplaceMessages(gone, (UserMessage("summary"),))] if len(gone) > 1 else ()

    agent = Agent("support", model=ScriptedModel("1", "2", "3", "4"), middleware=[Forgetful()])
    session = await runtime.sessions.ensure_running(agent, "c1")
    for text in ("one", "two", "three"):
        await session.say(text)
    at = session.state.messages[-2].id
    await session.say("four")
    await runtime.sessions.fork("c1", "c2", at=at)
    # As the model saw it when that message came, before the next summary.
    expected = ["user: summary", "user: two", "model: 2", "user: three"]
    assert transcript((await runtime.sessions.load("c2")).messages) == expected
    page = await runtime.sessions.transcript("c2")
    said = [message for line in page.lines if not line.entry.source for message in line.entry.said]
    assert transcript(said) == ["user: one", "model: 1", "user: two", "model: 2", "user: three"]
    # The journal still reaches back to what a summary has replaced.
    await runtime.sessions.fork("c1", "c3", at=said[1].id)
    assert transcript((await runtime.sessions.load("c3")).messages) == ["user: one", "model: 1"]


async def test_a_fork_refuses_a_taken_id_and_an_unknown_message(runtime: Runtime, autojump_clock: MockClock) -> None:
    await talked(runtime)
    with pytest.raises(AgentExists):
        await runtime.sessions.fork("c1", "c1")
    with pytest.raises(InvalidOption, match="'nowhere'; the last ones are"):
        await runtime.sessions.fork("c1", "c2", at="nowhere")
    assert [row.agent_id for row in await runtime.journal.agents()] == ["c1"]
    assert await runtime.sessions.session("c1").say("hi") == "ok"


async def test_a_deleted_id_can_be_used_for_a_copy(runtime: Runtime, autojump_clock: MockClock) -> None:
    await talked(runtime)
    await talked(runtime, "c2")
    await runtime.sessions.stop("c2")
    await runtime.journal.delete("c2")
    with pytest.raises(AgentMissing):
        await runtime.sessions.transcript("c2")
    await runtime.sessions.fork("c1", "c2")
    session = await runtime.sessions.ensure_running(supporter(), "c2")
    assert server_of(runtime, "c2").alive
    assert len(session.state.messages) == 6
    page = await runtime.sessions.transcript("c2")
    assert [line.number for line in page.lines] == [1, 2, 3, 4, 5, 6]

"""Transcripts: what people see of a conversation only grows, whatever becomes of the model's context."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from sapwood import Agent, Runtime, ScriptedModel, tool
from sapwood.agents import TranscriptPage
from sapwood.conversation import State, UserMessage
from sapwood.errors import AgentMissing, InvalidOption, RecordCorrupt, StoreUnavailable
from sapwood.middleware import HookResult, Middleware, MiddlewareContext, ReplaceMessages
from sapwood.models import call
from sapwood.persistence import Journal
from tests.agents.kit import finished, opened, server_of, transcript


class Forgetful(Middleware):
    """Replaces everything but the last message by a summary, as soon as there are more than two."""

    async def before_model(self, state: State, context: MiddlewareContext) -> HookResult:
        await trio.lowlevel.checkpoint()
        if len(state.messages) <= 2:
            return ()
        gone = tuple(message.id for message in state.messages[:-1])
        return [ReplaceMessages(gone, (UserMessage("summary"),))]


@tool
def look_up(word: str) -> str:
    """Look a word up. word: the word."""
    return f"{word}: a word"


def lines(page: TranscriptPage) -> list[str]:
    return transcript(page.messages)


async def test_a_summary_takes_messages_from_the_model_and_nothing_from_people(
    path: Path, autojump_clock: MockClock
) -> None:
    agent = Agent("a", model=ScriptedModel("one", "two", "three"), middleware=[Forgetful()])
    async with opened(path) as runtime:
        session = await runtime.sessions.ensure_running(agent, "c1")
        for text in ("first", "second", "third"):
            await session.say(text)
        assert transcript(session.state.messages) == ["user: summary", "user: third", "model: three"]

    async with opened(path) as runtime:
        page = await runtime.sessions.transcript("c1")
        said = [message for line in page.lines if not line.entry.source for message in line.entry.said]
        assert transcript(said) == [
            "user: first",
            "model: one",
            "user: second",
            "model: two",
            "user: third",
            "model: three",
        ]
        kinds = [line.entry.kind for line in page.lines]
        assert kinds.count("left_context") == 2
        gone = next(line.entry for line in page.lines if line.entry.kind == "left_context")
        assert (gone.source, gone.removed) == ("Forgetful", tuple(each.id for each in said[:2]))
        assert runtime.sessions.running() == [], "reading starts nothing"


async def test_a_transcript_is_read_in_pages_from_either_end(runtime: Runtime, autojump_clock: MockClock) -> None:
    agent = Agent("a", model=ScriptedModel(then="yes"))
    session = await runtime.sessions.ensure_running(agent, "c1")
    for number in range(5):
        await session.say(str(number))
    sessions = runtime.sessions
    read: list[str] = []
    page = await sessions.transcript("c1", limit=3)
    while page.lines:
        read += lines(page)
        page = await sessions.transcript("c1", after=page.lines[-1].number, limit=3)
    assert read == lines(await sessions.transcript("c1"))
    assert len(read) == 10

    newest = await sessions.transcript("c1", last=True, limit=4)
    assert ([line.number for line in newest.lines], newest.more) == ([7, 8, 9, 10], True)
    before = await sessions.transcript("c1", last=True, before=7, limit=4)
    assert [line.number for line in before.lines] == [3, 4, 5, 6]
    assert (await sessions.transcript("c1", after=10)).lines == ()
    with pytest.raises(InvalidOption, match="limit"):
        await sessions.transcript("c1", limit=0)


async def test_snapshots_and_compaction_leave_the_transcript_whole(path: Path, autojump_clock: MockClock) -> None:
    agent = Agent("a", model=ScriptedModel(then="yes"), tools=[look_up])
    async with opened(path, snapshots=5) as runtime:
        session = await runtime.sessions.ensure_running(agent, "c1")
        for number in range(20):
            await session.say(str(number))
        entries = await runtime.journal.read("c1")
        assert entries[0].seq > 1, "the journal was compacted"
        page = await runtime.sessions.transcript("c1")
        assert page.messages == session.state.messages


async def test_calls_and_results_are_in_it_in_the_order_they_came(runtime: Runtime, autojump_clock: MockClock) -> None:
    model = ScriptedModel(call("look_up", word="tree"), "It is a word.")
    session = await runtime.sessions.ensure_running(Agent("a", model=model, tools=[look_up]), "c1")
    await session.say("what is a tree?")
    page = await runtime.sessions.transcript("c1")
    assert lines(page) == [
        "user: what is a tree?",
        "model:  -> look_up",
        "look_up: tree: a word",
        "model: It is a word.",
    ]
    runs = {line.entry.run_id for line in page.lines}
    assert len(runs) == 1
    assert "" not in runs
    assert [line.entry.at for line in page.lines] == sorted(line.entry.at for line in page.lines)


async def test_a_reset_is_noted_and_forgets_nothing(runtime: Runtime, autojump_clock: MockClock) -> None:
    session = await runtime.sessions.ensure_running(Agent("a", model=ScriptedModel(then="yes")), "c1")
    await session.say("before")
    await session.reset()
    await session.say("after")
    page = await runtime.sessions.transcript("c1")
    assert [line.entry.kind for line in page.lines] == ["message", "message", "reset", "message", "message"]
    assert transcript(session.state.messages) == ["user: after", "model: yes"]


async def test_what_was_said_before_a_crash_is_there_exactly_once(path: Path, autojump_clock: MockClock) -> None:
    agent = Agent("a", model=ScriptedModel(then="yes"))
    async with opened(path) as runtime:
        session = await runtime.sessions.ensure_running(agent, "c1")
        await session.say("one")
        server_of(runtime).kill()
        await trio.testing.wait_all_tasks_blocked()
        await runtime.sessions.ensure_running(agent, "c1")
        await finished(session, "two")
        page = await runtime.sessions.transcript("c1")
        assert lines(page) == ["user: one", "model: yes", "user: two", "model: yes"]
        assert page.messages == session.state.messages


async def test_a_refused_commit_adds_nothing_to_the_transcript(
    path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Journal.append

    async def failing(journal: Journal, agent_id: str, *, events: Sequence[object], **options: object) -> int:
        await trio.lowlevel.checkpoint()
        if options.get("lines"):
            raise StoreUnavailable("store.db", "is full")
        return await whole(journal, agent_id, events=events, **options)  # type: ignore[arg-type]  # passed on

    async with opened(path) as runtime:
        session = await runtime.sessions.ensure_running(Agent("a", model=ScriptedModel(then="yes")), "c1")
        await session.say("one")
        with monkeypatch.context() as patch:
            patch.setattr(Journal, "append", failing)
            with pytest.raises(StoreUnavailable):
                await session.say("two")
        assert lines(await runtime.sessions.transcript("c1")) == ["user: one", "model: yes"]


async def test_nothing_stored_and_a_damaged_line_are_told_apart_from_an_empty_page(
    path: Path, autojump_clock: MockClock
) -> None:
    async with opened(path) as runtime:
        with pytest.raises(AgentMissing):
            await runtime.sessions.transcript("c1")
        session = await runtime.sessions.ensure_running(Agent("a", model=ScriptedModel(then="yes")), "c1")
        assert (await runtime.sessions.transcript("c1")).lines == ()
        await session.say("one")
    connection = sqlite3.connect(path)
    connection.execute("UPDATE transcript SET record = x'00' WHERE number = 2")
    connection.commit()
    connection.close()
    async with opened(path) as runtime:
        with pytest.raises(RecordCorrupt, match="transcript"):
            await runtime.sessions.transcript("c1")
        assert lines(await runtime.sessions.transcript("c1", limit=1)) == ["user: one"]

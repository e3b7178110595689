"""Restarts: the journal is the state, whatever died; snapshots only make it quick."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from sapwood import Agent, Runtime, ScriptedModel, ToolContext, tool
from sapwood.agents._turn import UNKNOWN_OUTCOME
from sapwood.conversation import RunFinished, State, TextStreamed, ToolFinished, ToolStarted, journal
from sapwood.errors import CodecError, SequenceConflict, StoreUnavailable
from sapwood.models import Delay, ModelRequest, call
from sapwood.persistence import Journal, SnapshotPolicy
from tests.agents.kit import (
    assert_sendable,
    entries_of,
    finished,
    of,
    opened,
    server_of,
    state_in,
    transcript,
    until,
    waiting_events,
)


def counting(request: ModelRequest) -> str:
    return f"answer {sum(line.startswith('user') for line in transcript(request.messages))}"


@pytest.mark.row("AR-22.0", "S4-062", "AR-24.42")
async def test_a_server_that_dies_is_restarted_with_everything_that_was_journaled(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    agent = Agent("a", model=ScriptedModel(then=counting))
    session = await runtime.sessions.ensure_running(agent, "c1")
    for number in range(1, 6):
        assert await session.say(f"question {number}") == f"answer {number}"
        before = session.state
        server_of(runtime).kill()
        await trio.sleep(10)
        session = await runtime.sessions.ensure_running(agent, "c1")
        assert session.state == before
        assert (await session.status()).epoch == number + 1
    assert len(session.state.messages) == 10


@pytest.mark.row("S4-027", "UP-5", "UP-6", "UP-59")
async def test_a_run_goes_on_at_the_step_it_had_reached_and_nothing_journaled_is_done_again(
    path: Path, autojump_clock: MockClock
) -> None:
    made: list[str] = []

    @tool
    def step(name: str) -> str:
        """Do a step."""
        made.append(name)
        return f"{name} done"

    model = ScriptedModel(call("step", name="one"), call("step", name="two"), [Delay(50.0), "late"], then="done")
    agent = Agent("a", model=model, tools=[step])
    async with opened(path) as runtime:
        session = await runtime.sessions.ensure_running(agent, "c1")
        async with session.send("go") as run:
            await until(run, ToolFinished)
            await until(run, ToolFinished)
            await trio.sleep(1)
            receipt = run.receipt
    async with opened(path, seed=1) as runtime:
        session = await runtime.sessions.ensure_running(agent, "c1")
        with session.events() as events:
            _, end = await until(events, RunFinished)
        assert (end.run_id, end.text) == (receipt.run_id, "done")
        assert made == ["one", "two"]
        # Three calls of the first process, the last without an answer, and one of the second.
        assert session.state.counters.model_calls == 4


@pytest.mark.row("BR-26", "UP-25")
async def test_calls_that_a_crash_left_open_each_get_one_honest_result(path: Path, autojump_clock: MockClock) -> None:
    @tool
    def quick() -> str:
        """Be quick."""
        return "real"

    @tool
    async def slow() -> str:
        """Be slow."""
        await trio.sleep_forever()
        return "never"

    @tool(idempotent=True)
    async def again(context: ToolContext) -> str:
        """May be repeated."""
        attempts.append(context.idempotency_key)
        await trio.sleep(100 if len(attempts) == 1 else 0)
        return "repeated"

    attempts: list[str] = []
    agent = Agent(
        "a", model=ScriptedModel([call("quick"), call("slow"), call("again")], "done"), tools=[quick, slow, again]
    )
    async with opened(path) as runtime:
        session = await runtime.sessions.ensure_running(agent, "c1")
        async with session.send("go") as run:
            await until(run, ToolFinished)
            await trio.sleep(1)
            server_of(runtime).kill()
            with trio.fail_after(10):
                await until(run, RunFinished)
        assert transcript(session.state.messages)[2:] == [
            "quick: real",
            f"slow: {UNKNOWN_OUTCOME.format(name='slow')}",
            "again: repeated",
            "model: done",
        ]
        assert len(attempts) == 2
        assert len(set(attempts)) == 1
        assert_sendable(session.state)


async def test_a_tool_that_is_gone_after_a_deploy_has_an_unknown_outcome(path: Path, autojump_clock: MockClock) -> None:
    @tool(idempotent=True)
    async def old() -> str:
        """Be gone soon."""
        await trio.sleep_forever()
        return "never"

    model = ScriptedModel(call("old"), "done")
    async with opened(path) as runtime:
        session = await runtime.sessions.ensure_running(Agent("a", model=model, tools=[old]), "c1")
        async with session.send("go") as run:
            await until(run, ToolStarted)
    async with opened(path) as runtime:
        session = await runtime.sessions.ensure_running(Agent("a", model=model), "c1")
        with session.events() as events:
            await until(events, RunFinished)
        assert "whether it had its effect is unknown" in transcript(session.state.messages)[2]


# --- snapshots --------------------------------------------------------------------------------------


@pytest.mark.row("S4-039", "S4-073", "S4-040")
async def test_snapshots_are_saved_as_a_conversation_grows_and_the_journal_is_compacted(
    path: Path, autojump_clock: MockClock
) -> None:
    agent = Agent("a", model=ScriptedModel(then=counting))
    async with opened(path, snapshots=20) as runtime:
        session = await runtime.sessions.ensure_running(agent, "c1")
        for number in range(1, 41):
            await session.say(f"question {number}")
        before = session.state
        [row] = await runtime.journal.agents()
        kept = await entries_of(runtime)
        assert row.snapshot_seq is not None
        assert row.seq - row.snapshot_seq < 40
        assert len(kept) < row.seq / 2
        assert (await session.status()).snapshot_problem == ""
    async with opened(path) as runtime:
        session = await runtime.sessions.ensure_running(agent, "c1")
        assert session.state == before
        assert await session.say("question 41") == "answer 41"


@pytest.mark.row("AR-22.26")
async def test_a_snapshot_that_fails_breaks_nothing_and_is_tried_again(
    runtime: Runtime, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures: list[Exception] = [StoreUnavailable("s", "disk full"), CodecError("state", "too deep")]
    save = Journal.save_snapshot

    async def failing(self: Journal, *args: Any, **options: Any) -> None:
        if failures:
            raise failures.pop(0)
        await save(self, *args, **options)

    monkeypatch.setattr(Journal, "save_snapshot", failing)
    monkeypatch.setattr(SnapshotPolicy, "is_due", lambda self, *, seq, snapshot_seq: seq - snapshot_seq >= 8)
    agent = Agent("a", model=ScriptedModel(then=counting))
    session = await runtime.sessions.ensure_running(agent, "c1")
    problems: list[str] = []
    for number in range(1, 9):
        assert await session.say(f"question {number}") == f"answer {number}"
        problems.append((await session.status()).snapshot_problem)
    assert "store s: disk full" in problems
    assert "state: too deep" in problems
    assert problems[-1] == ""
    assert (await session.status()).epoch == 1
    [row] = await runtime.journal.agents()
    assert row.snapshot_seq is not None


async def test_a_long_history_does_not_make_snapshots_more_frequent_than_it_is_worth(
    runtime: Runtime, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved: list[int] = []
    save = Journal.save_snapshot

    async def noting(self: Journal, agent_id: str, *, epoch: int, seq: int, state: object) -> None:
        assert isinstance(state, State)
        saved.append(len(state.messages))
        await save(self, agent_id, epoch=epoch, seq=seq, state=state)

    monkeypatch.setattr(Journal, "save_snapshot", noting)
    monkeypatch.setattr(SnapshotPolicy, "is_due", lambda self, *, seq, snapshot_seq: seq - snapshot_seq >= 4)
    session = await runtime.sessions.ensure_running(Agent("a", model=ScriptedModel(then=counting)), "c1")
    for number in range(100):
        await session.say(f"question {number}")
    [row] = await runtime.journal.agents()
    assert sum(saved) <= 3 * row.seq


# --- the store fails --------------------------------------------------------------------------------


@pytest.mark.row("UP-1", "S4-004")
@pytest.mark.parametrize("failure", [StoreUnavailable("s", "disk full"), SequenceConflict("c1", 5, 6)])
async def test_a_commit_that_fails_ends_the_server_and_nothing_unjournaled_is_shown(
    runtime: Runtime, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    append = Journal.append
    broken = [False]

    async def failing(self: Journal, *args: Any, **options: Any) -> int:
        if broken[0] and any(isinstance(each, journal.ModelAnswered) for each in options["events"]):
            broken[0] = False
            raise failure
        return await append(self, *args, **options)

    monkeypatch.setattr(Journal, "append", failing)
    agent = Agent("a", model=ScriptedModel("lost", "kept"))
    session = await runtime.sessions.ensure_running(agent, "c1")
    broken[0] = True
    with session.events() as events:
        async with session.send("go") as run:
            result = await run.finish()
        seen = await waiting_events(events)
    assert result is not None
    assert result.text == "kept"
    assert "lost" not in "".join(transcript(session.state.messages))
    assert "".join(event.text for event in of(seen, TextStreamed)) == "lostkept"
    assert (await session.status()).epoch == 2
    assert await state_in(runtime) == session.state


async def test_a_commit_that_gets_no_answer_ends_the_server(
    runtime: Runtime, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = Journal.append
    stuck = [False]

    async def hanging(self: Journal, *args: Any, **options: Any) -> int:
        if stuck[0]:
            stuck[0] = False
            await trio.sleep_forever()
        return await append(self, *args, **options)

    monkeypatch.setattr(Journal, "append", hanging)
    agent = Agent("a", model=ScriptedModel(then="hello"))
    session = await runtime.sessions.ensure_running(agent, "c1")
    stuck[0] = True
    with pytest.raises(StoreUnavailable, match="did not answer within 30 s"):
        await session.say("one")
    await trio.sleep(1)
    session = await runtime.sessions.ensure_running(agent, "c1")
    assert (await finished(session, "two")).text == "hello"


@pytest.mark.row("AR-24.42", "S4-051")
async def test_conversations_come_back_from_their_journals_when_the_store_is_restarted(
    path: Path, autojump_clock: MockClock
) -> None:
    agent = Agent("a", model=ScriptedModel(then=counting))
    async with opened(path) as runtime:
        session = await runtime.sessions.ensure_running(agent, "c1")
        await session.say("one")
        next(node.ref for node in runtime.tree().walk() if node.label == "store").kill()
        await trio.sleep(10)
        session = await runtime.sessions.ensure_running(agent, "c1")
        assert await session.say("two") == "answer 2"
        assert await state_in(runtime) == session.state


async def test_the_fold_of_any_prefix_of_a_real_journal_is_a_state(runtime: Runtime, autojump_clock: MockClock) -> None:
    agent = Agent("a", model=ScriptedModel(then=counting))
    session = await runtime.sessions.ensure_running(agent, "c1")
    for number in range(3):
        await session.say(str(number))
    entries = await entries_of(runtime)
    for end in range(len(entries) + 1):
        state = journal.fold(State(), (entry.event for entry in entries[:end]))
        assert state.status in ("idle", "running")

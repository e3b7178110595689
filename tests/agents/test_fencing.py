"""Fencing: a second server for one conversation is harmless, in another runtime and in another process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from sapwood import Agent, NotRunning, ScriptedModel, Shutdown, open_runtime, tool
from sapwood.actors import Exited, TelemetryEvent
from sapwood.conversation import AgentShutdown, RunFinished, State, ToolStarted, journal
from sapwood.errors import ActorDown, StaleEpoch
from sapwood.middleware import HumanInTheLoop
from sapwood.models import Delay, call
from sapwood.persistence import Entry
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

PROGRAM = Path(__file__).parent / "programs" / "answer_until_fenced.py"


def assert_linear(entries: list[Entry]) -> State:
    """Fail unless the entries are one history from the first on; return what it folds to."""
    assert entries[0].seq == 1
    assert_unbroken(entries)
    return journal.fold(State(), (entry.event for entry in entries))


def assert_unbroken(entries: list[Entry]) -> None:
    """Fail unless the entries have no gap and their epochs never go back."""
    assert [entry.seq for entry in entries] == list(range(entries[0].seq, entries[0].seq + len(entries)))
    epochs = [entry.epoch for entry in entries]
    assert epochs == sorted(epochs)


@pytest.mark.row("UP-8", "UP-43", "UP-51")
async def test_the_older_claim_is_refused_its_next_append_and_its_server_stops_and_says_so(
    path: Path, autojump_clock: MockClock
) -> None:
    old = Agent("a", model=ScriptedModel("one", [Delay(10.0), "too late"]))
    new = Agent("a", model=ScriptedModel(then="from the new one"))
    ends: list[Exited] = []
    async with opened(path) as first, opened(path, seed=1) as second:
        first.telemetry.subscribe(lambda event: note(event, ends))
        session = await first.sessions.ensure_running(old, "c1")
        await session.say("1")
        old_server = server_of(first)
        with session.events() as events:
            async with session.send("2") as run:
                await trio.sleep(1)
                other = await second.sessions.ensure_running(new, "c1")
                with other.events() as following:
                    _, end = await until(following, RunFinished)
                assert end.text == "from the new one"
                assert await run.finish() is None
            seen = await waiting_events(events)
        assert old_server.exit_reason == Shutdown("fenced")
        assert [event.reason for event in of(seen, AgentShutdown)] == ["fenced"]
        assert (ends[0].key, ends[0].reason) == (("agent", "c1"), Shutdown("fenced"))
        await trio.sleep(100)
        assert await first.sessions.lookup("c1") == NotRunning()
        assert (await other.status()).epoch == 2
        assert await other.say("3") == "from the new one"
        state = assert_linear(await entries_of(second))
        assert state == other.state
        assert "too late" not in "".join(transcript(state.messages))
        assert_sendable(state)


def note(event: TelemetryEvent, ends: list[Exited]) -> None:
    if isinstance(event, Exited) and isinstance(event.key, tuple) and "c1" in event.key:
        ends.append(event)


@pytest.mark.row("UP-8")
@pytest.mark.parametrize("request_kind", ["say", "decide", "cancel", "start"])
async def test_whatever_a_fenced_server_is_asked_to_write_is_refused_with_the_reason(
    path: Path, autojump_clock: MockClock, request_kind: str
) -> None:
    @tool
    def pay(cents: int) -> str:
        """Pay."""
        return "paid"

    def agent() -> Agent:
        model = ScriptedModel(call("pay", cents=5), then="ok")
        return Agent("a", model=model, tools=[pay], middleware=[HumanInTheLoop(pay=True)])

    async with opened(path) as first, opened(path, seed=1) as second:
        session = await first.sessions.ensure_running(agent(), "c1")
        await finished(session, "go")
        [approval] = session.approvals
        other = await second.sessions.ensure_running(agent(), "c1")
        match request_kind:
            case "say":
                with pytest.raises(StaleEpoch):
                    await session.say("hello")
            case "decide":
                with pytest.raises(StaleEpoch):
                    await approval.approve()
            case "cancel":
                with pytest.raises(StaleEpoch):
                    await session.cancel()
            case _:
                # Killed, it comes back with a claim of its own, and now the other one is the older.
                server_of(first).kill()
                await trio.sleep(1)
                with pytest.raises(StaleEpoch):
                    await other.say("hello")
                other = session
        await trio.sleep(1)
        assert [each.interrupt.id for each in other.approvals] == [approval.interrupt.id]
        assert (await other.status()).status == "interrupted"
        assert assert_linear(await entries_of(second)) == other.state


@pytest.mark.row("UP-8", "UP-2")
async def test_a_tool_that_a_fenced_server_was_running_is_not_reported_twice(
    path: Path, autojump_clock: MockClock
) -> None:
    effects: list[str] = []

    @tool
    async def charge() -> str:
        """Charge."""
        effects.append("charge")
        await trio.sleep(10)
        return "charged"

    agent = Agent("a", model=ScriptedModel(call("charge"), then="ok"), tools=[charge])
    async with opened(path) as first, opened(path, seed=1) as second:
        session = await first.sessions.ensure_running(agent, "c1")
        async with session.send("go") as run:
            await until(run, ToolStarted)
            other = await second.sessions.ensure_running(agent, "c1")
            with other.events() as following:
                await until(following, RunFinished)
            assert await run.finish() is None
        assert effects == ["charge"]
        assert "whether it had its effect is unknown" in transcript(other.state.messages)[2]
        assert_linear(await entries_of(second))


async def test_a_server_that_is_fenced_while_it_takes_up_its_run_does_not_fight_back(
    path: Path, autojump_clock: MockClock
) -> None:
    agent = Agent("a", model=ScriptedModel([Delay(50.0), "never"], then="ok"))
    async with opened(path) as first, opened(path, seed=1) as second:
        session = await first.sessions.ensure_running(agent, "c1")
        async with session.send("go"):
            await trio.sleep(1)
        begin = type(first.journal).append
        taken = [False]

        async def append(self: object, *args: object, **options: object) -> int:
            if not taken[0] and options["epoch"] == 2:
                taken[0] = True
                await second.journal.claim("c1", owner="somebody else")
            return await begin(self, *args, **options)  # type: ignore[arg-type]  # passed on as it came

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(first.journal), "append", append)
            server_of(first).kill()
            await trio.sleep(100)
        assert taken == [True]
        assert await first.sessions.lookup("c1") == NotRunning()
        with pytest.raises(ActorDown):
            await session.status()
        [row] = await second.journal.agents()
        assert row.epoch == 3
        assert await state_in(second) == assert_linear(await entries_of(second))


@pytest.mark.row("UP-8", "UP-43")
async def test_a_second_process_takes_a_conversation_over_and_the_first_one_stops(path: Path) -> None:
    with trio.fail_after(60):
        process = await trio.lowlevel.open_process(
            [sys.executable, str(PROGRAM), str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        try:
            assert process.stdout is not None
            lines = Lines(process.stdout)
            answered = 0
            while answered < 150:
                answered = int((await lines.next()).removeprefix("answered "))

            async with open_runtime(store=path, signals=False) as runtime:
                session = await runtime.sessions.ensure_running(Agent("a", model=ScriptedModel(then="here")), "c1")
                assert await session.say("mine now") == "here"
                while (line := await lines.next()).startswith("answered"):
                    answered = int(line.removeprefix("answered "))
                assert line == "shutdown fenced"
                assert await process.wait() == 0
                assert await session.say("still mine") == "here"
                # A quick process has had its first events taken into a snapshot by now.
                assert_unbroken(await entries_of(runtime))
                state = await runtime.sessions.load("c1")
                assert state == session.state
        finally:
            process.kill()
    said = transcript(state.messages)
    for number in range(1, answered + 1):
        assert said.count(f"model: answer {number}") == 1
    assert said[-1] == "model: here"
    assert_sendable(state)


class Lines:
    """Lines of a process's output, one at a time, and an empty one at the end."""

    def __init__(self, stream: trio.abc.ReceiveStream) -> None:
        self.stream = stream
        self.buffer = b""

    async def next(self) -> str:
        while b"\n" not in self.buffer:
            more = await self.stream.receive_some()
            if not more:
                return ""
            self.buffer += more
        line, _, self.buffer = self.buffer.partition(b"\n")
        return line.decode()

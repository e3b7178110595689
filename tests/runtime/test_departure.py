"""A node that leaves: what it served is served by another one that shares the store, once each, from where it was."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from sapwood import Agent, NotRunning, Running, Runtime, ScriptedModel, open_runtime
from tests.agents.kit import assert_sendable, transcript

CONVERSATIONS = 5

NODE = """
import os, signal, sys
import trio
from sapwood import Agent, ScriptedModel, open_runtime
from sapwood.errors import ActorDown, StaleEpoch
from sapwood.models import Stall

async def main(path, count):
    agent = Agent("a", model=ScriptedModel(*["there"] * count, then=Stall()))
    async with open_runtime(store=path) as runtime:
        for number in range(count):
            session = await runtime.sessions.ensure_running(agent, f"c{number}")
            await session.say("hello")
        # The last ones are placed just before the node leaves, in the middle of their work.
        await session.post("are you there?")
        await runtime.sessions.ensure_running(agent, "c-new")
        print("placed", flush=True)
        if "stay" not in sys.argv:
            await trio.sleep_forever()
        os.kill(os.getpid(), signal.SIGSTOP)  # until somebody lets it go on
        for agent_id in ("c-new", *(f"c{number}" for number in range(count))):
            try:
                await runtime.sessions.session(agent_id).post("I think I am still here")
            except (ActorDown, StaleEpoch) as error:
                print("refused", type(error).__name__, flush=True)
        while runtime.registry.running("agent"):
            await trio.sleep(0.02)

trio.run(main, sys.argv[1], int(sys.argv[2]))
"""


@asynccontextmanager
async def node(path: Path, *options: str) -> AsyncGenerator[trio.Process]:
    """Run a node of its own; it has placed its conversations when the block begins."""
    command = [sys.executable, "-c", NODE, str(path), str(CONVERSATIONS), *options]
    process = await trio.lowlevel.open_process(command, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert (await process.stdout.receive_some()).startswith(b"placed")
        yield process
    finally:
        process.kill()
        with trio.move_on_after(10, shield=True):
            await process.wait()


async def take_over(runtime: Runtime) -> None:
    """Have every conversation here, and check that each is here once, with all that was said."""
    agent = Agent("a", model=ScriptedModel(then="here"))
    for number in range(CONVERSATIONS):
        assert await runtime.sessions.lookup(f"c{number}") == NotRunning()  # nothing pretends to be somewhere else
        session = await runtime.sessions.ensure_running(agent, f"c{number}")
        assert await session.say("who are you?") == "here"  # after the run that was open
        said = ["user: hello", "model: there", "user: who are you?", "model: here"]
        if number == CONVERSATIONS - 1:
            said[2:2] = ["user: are you there?", "model: here"]
        assert transcript(session.state.messages) == said
        assert_sendable(session.state)
    session = await runtime.sessions.ensure_running(agent, "c-new")
    assert session.state.messages == ()


async def assert_each_is_here_once(runtime: Runtime) -> None:
    expected = {f"c{number}" for number in range(CONVERSATIONS)} | {"c-new"}
    assert {key[1] for key in runtime.registry.running("agent")} == expected
    rows = await runtime.journal.agents()
    assert {row.agent_id for row in rows} == expected
    assert {row.epoch for row in rows} == {2}
    assert len({row.owner for row in rows}) == 1
    for agent_id in expected:
        assert isinstance(await runtime.sessions.lookup(agent_id), Running)
        assert (await runtime.sessions.session(agent_id).status()).epoch == 2


@pytest.mark.row("S4-065")
@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL], ids=["orderly", "killed"])
async def test_conversations_of_a_node_that_left_are_restored_elsewhere_by_the_next_ensure_running(
    tmp_path: Path, end: signal.Signals
) -> None:
    path = tmp_path / "store.db"
    with trio.fail_after(90):
        async with node(path) as other, open_runtime(store=path, signals=False) as runtime:
            other.send_signal(end)
            await other.wait()
            await take_over(runtime)
            await assert_each_is_here_once(runtime)


@pytest.mark.row("S4-065")
async def test_a_node_that_was_only_thought_to_have_left_finds_its_conversations_taken_and_writes_nothing(
    tmp_path: Path,
) -> None:
    path = tmp_path / "store.db"
    with trio.fail_after(90):
        async with node(path, "stay") as other, open_runtime(store=path, signals=False) as runtime:
            await trio.to_thread.run_sync(os.waitid, os.P_PID, other.pid, os.WSTOPPED | os.WNOWAIT)
            await take_over(runtime)
            other.send_signal(signal.SIGCONT)
            assert await other.wait() == 0  # all its servers have stopped by themselves
            await assert_each_is_here_once(runtime)
            for agent_id in ("c-new", *(f"c{number}" for number in range(CONVERSATIONS))):
                said = transcript((await runtime.sessions.load(agent_id)).messages)
                assert "user: I think I am still here" not in said

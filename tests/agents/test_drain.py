"""Draining: agents come to rest at a boundary, and go on elsewhere as if nothing had happened."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from sapwood import Actor, Agent, NotRunning, Running, Runtime, ScriptedModel, Unavailable, child, tool
from sapwood.conversation import RunFinished, ToolCall
from sapwood.errors import RegistryUnavailable, RuntimeClosed
from sapwood.middleware import HumanInTheLoop, SubAgents
from sapwood.models import Delay, Step, call
from tests.agents.families import ask, parent, scripted
from tests.agents.kit import opened, state_in, transcript, until

runs: list[str] = []


@tool
async def work(name: str) -> str:
    """Work for ten seconds."""
    await trio.sleep(10)
    runs.append(name)
    return f"{name} done"


@pytest.fixture(autouse=True)
def no_runs() -> None:
    runs.clear()


def worker(*steps: object, **options: object) -> Agent:
    return Agent("worker", model=ScriptedModel(*steps), tools=[work], **options)  # type: ignore[arg-type]  # as given


@pytest.mark.row("AR-24.39")
async def test_a_run_is_left_after_its_tools_and_goes_on_by_itself_in_the_next_process(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    path = tmp_path / "store.db"
    async with opened(path) as runtime:
        session = await runtime.sessions.ensure_running(worker(call("work", name="one")), "c1")
        async with session.send("go"):
            await trio.sleep(1)
            began = trio.current_time()
            report = await runtime.drain(60)
        assert trio.current_time() - began == pytest.approx(9)
    assert (report.rested, report.cut) == (("c1",), ())
    assert runs == ["one"]
    async with opened(path) as runtime:
        session = await runtime.sessions.ensure_running(worker("all done"), "c1")
        with session.events(after=0) as events:
            _, end = await until(events, RunFinished)
        assert end.outcome == "completed"
        assert transcript(session.state.messages) == [
            "user: go",
            "model:  -> work",
            "work: one done",
            "model: all done",
        ]
    assert runs == ["one"]


async def test_at_the_deadline_what_is_still_at_work_is_cut_off_and_named(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    path = tmp_path / "store.db"
    async with opened(path) as runtime:
        slow = await runtime.sessions.ensure_running(worker([Delay(100), "late"]), "slow")
        idle = await runtime.sessions.ensure_running(worker("hello"), "idle")
        await idle.say("hi")
        async with slow.send("go"):
            await trio.sleep(1)
            began = trio.current_time()
            report = await runtime.drain(5)
        assert trio.current_time() - began == pytest.approx(5)
        assert (report.rested, report.cut) == (("idle",), ("slow",))
        assert runtime.sessions.running() == []
    async with opened(path) as runtime:
        session = await runtime.sessions.ensure_running(worker("in time"), "slow")
        with session.events(after=0) as events:
            _, end = await until(events, RunFinished)
        assert (end.outcome, end.text) == ("completed", "in time")


@pytest.mark.row("S4-048")
async def test_from_the_first_moment_nothing_new_is_started_and_what_runs_is_still_there(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with opened(tmp_path / "store.db") as runtime:
        session = await runtime.sessions.ensure_running(worker(call("work", name="one")), "c1")
        old = await runtime.spawn(Actor, key=("old", 1))
        async with session.send("go"), trio.open_nursery() as nursery:
            await trio.sleep(1)
            nursery.start_soon(runtime.drain, 60)
            await trio.testing.wait_all_tasks_blocked()
            assert not runtime.ready()
            assert isinstance(await runtime.sessions.lookup("c1"), Running)
            assert (await session.status()).status == "running"
            assert await runtime.sessions.lookup("c2") == Unavailable("draining")
            with pytest.raises(RegistryUnavailable) as refused:
                await runtime.sessions.ensure_running(worker("no"), "c2")
            assert refused.value.reason == "draining"
            with pytest.raises(RuntimeClosed):
                await runtime.spawn(Actor)
            assert await runtime.get_or_start(("new", 1), child(Actor)) == Unavailable("draining")
            assert await runtime.get_or_start(("old", 1), child(Actor)) == Running(old)
        assert await runtime.sessions.lookup("c1") == Unavailable("draining")


async def test_a_message_that_comes_while_draining_is_kept_and_answered_by_the_next_process(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    path = tmp_path / "store.db"
    async with opened(path) as runtime:
        slow = await runtime.sessions.ensure_running(worker(call("work", name="one")), "slow")
        quick = await runtime.sessions.ensure_running(worker("hello"), "quick")
        async with slow.send("go"), trio.open_nursery() as nursery:
            await trio.sleep(1)
            nursery.start_soon(runtime.drain, 60)
            await trio.testing.wait_all_tasks_blocked()
            async with quick.send("are you there?"):
                pass
    async with opened(path) as runtime:
        session = await runtime.sessions.ensure_running(worker("yes"), "quick")
        with session.events(after=0) as events:
            _, end = await until(events, RunFinished)
        assert end.text == "yes"


async def test_one_that_waits_for_a_person_rests_already_and_waits_on(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    path = tmp_path / "store.db"
    agent = worker(call("work", name="one"), middleware=[HumanInTheLoop(work=True)])
    async with opened(path) as runtime:
        session = await runtime.sessions.ensure_running(agent, "c1")
        async with session.send("go") as run:
            async for _ in run:
                pass
        report = await runtime.drain()
        assert (report.rested, report.cut) == (("c1",), ())
    async with opened(path) as runtime:
        session = await runtime.sessions.ensure_running(agent, "c1")
        assert len(session.approvals) == 1


async def test_draining_where_nothing_runs_reports_nothing(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with opened(tmp_path / "store.db") as runtime:
        assert await runtime.sessions.lookup("c1") == NotRunning()
        report = await runtime.drain()
        assert (report.rested, report.cut) == ((), ())
        assert runtime_is_closed_to_new_work(runtime)


def runtime_is_closed_to_new_work(runtime: Runtime) -> bool:
    return not runtime.ready()


# --- families -----------------------------------------------------------------------------------------


def family(*turns: Step, **options: Any) -> Agent:
    """Return an agent whose sub-agent works in these turns."""
    helper = Agent("helper", model=scripted(*turns), tools=[work])
    return parent(ask("helper", **options), "All done.", "And that.", layer=SubAgents(helper=helper))


def deeper(*turns: Step) -> Agent:
    """Return an agent whose sub-agent has one that works in these turns."""
    helper = Agent("helper", model=scripted(*turns), tools=[work])
    middle = Agent("middle", model=scripted(ask("helper"), "passed on"), middleware=[SubAgents(helper=helper)])
    return parent(ask("middle"), "All done.", layer=SubAgents(middle=middle))


@pytest.mark.row("AR-24.39")
@pytest.mark.parametrize(
    ("made", "turns", "lowest"),
    [
        (family, (call("work", name="one"), call("work", name="two"), "both"), "c1/call_1"),
        (family, (call("work", name="one"), [Delay(1), "both"]), "c1/call_1"),
        (family, ([Delay(10), "at once"],), "c1/call_1"),
        (deeper, (call("work", name="one"), call("work", name="two"), "both"), "c1/call_1/call_1"),
    ],
    ids=["at a tool", "at the last tool", "at its only answer", "two levels down"],
)
async def test_what_a_sub_agent_had_done_is_kept_and_it_goes_on_below_its_parent_in_the_next_process(
    tmp_path: Path,
    autojump_clock: MockClock,
    made: Callable[..., Agent],
    turns: tuple[Step, ...],
    lowest: str,
) -> None:
    path = tmp_path / "store.db"
    async with opened(path) as runtime:
        session = await runtime.sessions.ensure_running(made(*turns), "c1")
        async with session.send("go"):
            await trio.sleep(1)
            began = trio.current_time()
            report = await runtime.drain(60)
        assert trio.current_time() - began == pytest.approx(9)
        assert report.cut == ()
        assert "c1" in report.rested
        assert lowest in report.rested
        half = transcript((await state_in(runtime, lowest)).messages)
    kept = list(runs)
    async with opened(path) as runtime:
        session = await runtime.sessions.ensure_running(made(*turns), "c1")
        with session.events(after=0) as events:
            _, end = await until(events, RunFinished, outcome="completed")
        whole = await state_in(runtime, lowest)
        parents = await state_in(runtime)
    assert end.text == "All done."
    assert transcript(whole.messages)[: len(half)] == half
    assert whole.counters.runs == 1
    assert [each.outcome for each in parents.sub_agents] == ["completed"]
    expected = [step.arguments["name"] for step in turns if isinstance(step, ToolCall)]
    assert runs == expected
    assert kept == expected[:1]


@pytest.mark.row("AR-24.39")
async def test_one_in_the_background_that_is_done_while_draining_is_heard_of_in_the_next_process(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    path = tmp_path / "store.db"
    agent = family(call("work", name="one"), "done", background=True)
    async with opened(path) as runtime:
        session = await runtime.sessions.ensure_running(agent, "c1")
        assert await session.say("go") == "All done."
        await trio.sleep(1)
        report = await runtime.drain(60)
        assert (report.rested, report.cut) == (("c1", "c1/call_1"), ())
    assert runs == ["one"]
    async with opened(path) as runtime:
        session = await runtime.sessions.ensure_running(agent, "c1")
        await trio.sleep(1)
        lines = transcript(session.state.messages)
    assert lines[-2:] == ["user: [task call_1 of helper is done]\ndone", "model: And that."]
    assert runs == ["one"]


async def test_a_sub_agent_that_is_cut_off_at_the_deadline_is_named_and_begins_that_step_again(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    path = tmp_path / "store.db"
    agent = family([Delay(100), "at last"])
    async with opened(path) as runtime:
        session = await runtime.sessions.ensure_running(agent, "c1")
        async with session.send("go"):
            await trio.sleep(1)
            report = await runtime.drain(5)
        assert (report.rested, report.cut) == (("c1",), ("c1/call_1",))
    async with opened(path) as runtime:
        session = await runtime.sessions.ensure_running(agent, "c1")
        with session.events(after=0) as events:
            _, end = await until(events, RunFinished, outcome="completed")
        assert end.text == "All done."
        assert transcript((await state_in(runtime, "c1/call_1")).messages) == ["user: Do it", "model: at last"]


async def test_a_tree_that_takes_its_time_to_end_is_waited_for_without_asking_over_and_over(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    @tool
    async def tidy() -> str:
        """Work for long, and take five seconds to clean up."""
        try:
            await trio.sleep(1_000)
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(5)
        return "tidied"

    layer = SubAgents(helper=Agent("helper", model=scripted(call("tidy"), "done"), tools=[tidy]))
    agent = Agent("boss", model=scripted(ask("helper"), "All done."), middleware=[layer])
    async with opened(tmp_path / "store.db") as runtime:
        looks = 0
        whole = type(runtime.registry).running

        def counting(*args: Any) -> Any:
            nonlocal looks
            looks += 1
            assert looks < 50, "it asks over and over"
            return whole(*args)

        session = await runtime.sessions.ensure_running(agent, "c1")
        async with session.send("go"):
            await trio.sleep(1)
            began = trio.current_time()
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(type(runtime.registry), "running", counting)
                report = await runtime.drain(2)
            assert trio.current_time() - began >= 5
    assert report.cut == ("c1/call_1",)


async def test_draining_cannot_tell_what_runs_while_the_agents_are_being_restarted(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with opened(tmp_path / "store.db") as runtime:
        await runtime.sessions.ensure_running(worker("hello"), "c1")
        home = next(node.ref for node in runtime.tree().walk() if node.label == "agents")
        home.kill()
        await home.wait_stopped()
        with pytest.raises(RegistryUnavailable, match="drain the agents"):
            await runtime.drain()
        assert not runtime.ready()

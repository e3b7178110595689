"""Seeded interleavings of everything that can happen to one conversation, on a slow store."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import attrs
import pytest
import trio

from sapwood import Agent, Runtime, ScriptedModel, ToolContext, tool
from sapwood.conversation import (
    AgentShutdown,
    AssistantMessage,
    Decision,
    Gap,
    PatchMetadata,
    RunFinished,
    State,
    StatusChanged,
    StreamEvent,
    ToolResult,
    UserMessage,
    Verdict,
    check_pairs,
    journal,
)
from sapwood.errors import ActorDown, ChildFailed, ModelUnavailable, RegistryUnavailable
from sapwood.middleware import Change, HumanInTheLoop, Middleware, MiddlewareContext, PatchToolCalls
from sapwood.models import Delay, ModelRequest, RetryPolicy, Step, call
from sapwood.persistence import Journal
from sapwood.registry import Running
from sapwood.testing import simulate
from tests.agents.kit import opened

APPEND = Journal.append
TASKS = 3
ACTIONS = 25


class Ear(Middleware):
    """Notes what it hears."""

    async def handle_message(self, message: Any, context: MiddlewareContext) -> list[Change]:
        return [PatchMetadata({f"heard {message}": True})]


@attrs.define
class World:
    """What the drivers did and what came of it."""

    random: Random
    accepted: set[str] = attrs.field(factory=set[str])
    heard: set[str] = attrs.field(factory=set[str])
    approved: list[str] = attrs.field(factory=list[str])
    effects: Counter[str] = attrs.field(factory=Counter[str])
    events: list[StreamEvent] = attrs.field(factory=list[StreamEvent])
    seen: Counter[str] = attrs.field(factory=Counter[str])
    numbers: int = 0

    def play(self, request: ModelRequest) -> Step:
        gated = [call("gated", n=number) for number in range(3)]
        kinds = [*gated, call("once", n=1), call("again", n=1), call("ask", n=1), call("nothing")]
        if isinstance(request.messages[-1], UserMessage) and self.random.random() < 0.9:
            return ["hm ", Delay(self.random.random()), *self.random.sample(kinds, self.random.randint(1, 4))]
        if self.random.random() < 0.1:
            return ["well", ModelUnavailable("scripted", "down")]
        return ["so ", Delay(self.random.random()), "done"]

    def agent(self) -> Agent:
        @tool
        async def once(context: ToolContext, n: int) -> str:
            """Act once."""
            return await self.act("once", context)

        @tool
        async def gated(context: ToolContext, n: int) -> str:
            """Act once, with approval."""
            return await self.act("gated", context)

        @tool(idempotent=True)
        async def again(context: ToolContext, n: int) -> str:
            """Act under a key."""
            return await self.act("again", context)

        @tool(crash_resume="ask")
        async def ask(context: ToolContext, n: int) -> str:
            """Act, and ask after a crash."""
            return await self.act("ask", context)

        layers = [PatchToolCalls(), Ear(), HumanInTheLoop(gated=True)]
        model = ScriptedModel(then=self.play)
        retry = RetryPolicy(attempts=2, base=0.1)
        return Agent("a", model=model, tools=[once, gated, again, ask], middleware=layers, retry=retry)

    async def act(self, name: str, context: ToolContext) -> str:
        await trio.sleep(self.random.random())
        self.effects[f"{name} {context.idempotency_key}"] += 1
        await trio.sleep(self.random.random())
        return f"{name} done"


@attrs.frozen
class Driver:
    runtime: Runtime
    world: World
    agent: Agent

    async def drive(self) -> None:
        random = self.world.random
        actions = [self.send, self.send_again, self.decide, self.decide, self.decide, self.decide, self.notify]
        rare = [self.cancel, self.kill, self.stop, self.kill_tree]
        for _ in range(ACTIONS):
            await trio.sleep(random.choice((0, 0, 0.05, 0.3, 1.0)))
            action = random.choice(rare if random.random() < 0.12 else actions)
            self.world.seen[action.__name__] += 1
            try:
                with trio.move_on_after(random.choice((0.02, 5.0))):
                    await self.runtime.sessions.ensure_running(self.agent, "c1")
                    await action()
            except (ActorDown, ChildFailed, RegistryUnavailable) as error:
                self.world.seen[type(error).__name__] += 1

    @property
    def session(self) -> Any:
        return self.runtime.sessions.session("c1")

    async def send(self) -> None:
        self.world.numbers += 1
        await self.deliver(f"m{self.world.numbers}")

    async def send_again(self) -> None:
        await self.deliver(f"m{self.world.random.randint(1, self.world.numbers or 1)}")

    async def deliver(self, message_id: str) -> None:
        async with self.session.send(f"text of {message_id}", message_id=message_id):
            self.world.accepted.add(message_id)

    async def cancel(self) -> None:
        await self.session.cancel()

    async def decide(self) -> None:
        approvals = self.session.approvals
        if not approvals:
            await trio.sleep(1)
        else:
            interrupt = self.world.random.choice(approvals).interrupt
            verdicts: tuple[Verdict, ...] = ("approve", "approve", "reject", "edit", "answer")
            verdict = self.world.random.choice(verdicts)
            arguments = {"n": 2} if verdict == "edit" else {"result": "known"} if verdict == "answer" else {}
            if interrupt.kind == "reconcile" and verdict == "approve":
                # Whether it counts may never be known here, if the answer to it is lost.
                self.world.approved.append(interrupt.id)
            outcome = await self.session.decide(Decision(interrupt.id, verdict, arguments))
            self.world.seen[f"{interrupt.kind} {verdict} {type(outcome).__name__}"] += 1

    async def notify(self) -> None:
        self.world.numbers += 1
        number = f"n{self.world.numbers}"
        if await self.session.notify("Ear", number):
            self.world.heard.add(f"heard {number}")

    async def kill(self) -> None:
        found = self.runtime.registry.lookup_nowait(("agent", "c1"))
        if isinstance(found, Running):
            found.ref.kill()
        await trio.lowlevel.checkpoint()

    async def kill_tree(self) -> None:
        found = self.runtime.registry.lookup_nowait(("agent_tree", "c1"))
        if isinstance(found, Running):
            found.ref.kill()
        await trio.lowlevel.checkpoint()

    async def stop(self) -> None:
        await self.runtime.sessions.stop("c1")


async def follow(runtime: Runtime, world: World) -> None:
    """Follow the conversation for ever, over all ends of its tree."""
    with runtime.sessions.session("c1").events() as events:
        while True:
            async for event in events:
                world.events.append(event)
            await trio.sleep(0.01)


async def interleave(path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    async with opened(path, seed=seed, snapshots=40, restarts=10_000) as runtime:
        world = World(runtime.environment.random)

        async def slowly(self: Journal, *args: Any, **options: Any) -> int:
            await trio.sleep(world.random.choice((0, 0, 0.01, 0.1)))
            seq = await APPEND(self, *args, **options)
            await trio.sleep(world.random.choice((0, 0, 0.01, 0.1)))
            return seq

        with monkeypatch.context() as patch:
            patch.setattr(Journal, "append", slowly)
            async with trio.open_nursery() as background:
                background.start_soon(follow, runtime, world)
                driver = Driver(runtime, world, world.agent())
                async with trio.open_nursery() as nursery:
                    for _ in range(TASKS):
                        nursery.start_soon(driver.drive)
                state = await settled(driver)
                await judge(runtime, world, state)
                background.cancel_scope.cancel()
    world.seen["events"] = len(world.events)
    return world.seen


async def settled(driver: Driver) -> State:
    """Let everything come to rest: answer what is asked, and say something so that nothing waits any more."""
    while True:
        try:
            session = await driver.runtime.sessions.ensure_running(driver.agent, "c1")
            await trio.sleep(60)
            state: State = session.state
            if state.interrupts:
                await session.cancel()
            elif state.queue:
                await driver.send()
            elif state.status in ("idle", "error"):
                return state
        except ActorDown:
            await trio.sleep(1)


async def judge(runtime: Runtime, world: World, state: State) -> None:
    """Hold the end against everything that was promised on the way."""
    assert (state.run, state.pending, state.interrupts, state.queue) == (None, (), (), ())
    assert check_pairs(state.messages) == ()
    ids = [message.id for message in state.messages]
    assert len(set(ids)) == len(ids)
    said = Counter(message.id for message in state.messages if isinstance(message, UserMessage))
    assert all(count == 1 for count in said.values())
    assert world.accepted <= set(said), "an accepted message is lost"
    assert world.heard <= set(state.metadata), "an accepted notice is lost"
    claim = await runtime.journal.claim("c1", owner="judge")
    stored = claim.snapshot if claim.snapshot is not None else State()
    assert journal.fold(stored, (entry.event for entry in claim.tail)) == state
    assert [entry.seq for entry in claim.tail] == list(range(claim.snapshot_seq + 1, claim.seq + 1))

    for effect, count in world.effects.items():
        name = effect.split()[0]
        if name in ("once", "gated"):
            assert count == 1, f"{effect} happened {count} times"
        if name == "ask":
            assert count <= 1 + len(world.approved), f"{effect} happened {count} times"
    results = Counter(each.content for each in state.messages if isinstance(each, ToolResult) and not each.is_error)
    for name in ("once", "gated"):
        done = sum(count for content, count in results.items() if content.startswith(f"{name} done"))
        assert done <= sum(effect.startswith(f"{name} ") for effect in world.effects)
    assert sum(isinstance(each, AssistantMessage) for each in state.messages) <= state.counters.model_calls
    assert_continuous(world.events)


def assert_continuous(events: list[StreamEvent]) -> None:
    """Fail unless the numbers follow each other and the statuses tell one story."""
    at = events[0].seq - 1
    up = False
    for event in events:
        first = event.from_seq if isinstance(event, Gap) else event.seq
        assert first == at + 1, f"after number {at} came {first}"
        at = event.to_seq if isinstance(event, Gap) else event.seq
        if isinstance(event, AgentShutdown):
            assert up, "a server that was not up has ended"
            up = False
        elif isinstance(event, StatusChanged):
            up = True
    ends = Counter(
        event.run_id for event in events if isinstance(event, RunFinished) and event.outcome != "interrupted"
    )
    assert all(count == 1 for count in ends.values()), "a run ended twice"


@pytest.mark.soak
@pytest.mark.row("AR-24.9", "AR-24.18", "AR-22.19", "UP-11", "UP-14", "UP-39", "UP-43", "UP-45", "UP-59")
@pytest.mark.parametrize("block", range(4))
def test_whatever_happens_in_whatever_order_nothing_accepted_is_lost_and_nothing_is_done_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int, interleavings: int
) -> None:
    size = interleavings // 40
    seen: Counter[str] = Counter()
    for seed in range(block * size, (block + 1) * size):
        try:
            seen += simulate(seed, interleave, tmp_path / f"{seed}.db", seed, monkeypatch)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
    assert not {"send", "cancel", "decide", "notify", "kill", "stop", "approval approve Accepted"} - set(seen)


def test_the_story_of_one_seed_repeats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = simulate(3, interleave, tmp_path / "a.db", 3, monkeypatch)
    assert simulate(3, interleave, tmp_path / "b.db", 3, monkeypatch) == first

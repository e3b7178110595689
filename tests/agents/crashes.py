"""Crash anywhere: a scenario runs once in peace, then once for every place where its server can die.

A place is a journal append, or one step of any task of the run, which is what lies between two awaits. A scenario's
world remembers what was really done; whoever is asked looks there. So the conversation has to come out the same
wherever the server died, and every effect has to have happened once.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Literal, TypeAlias

import attrs
import pytest
import trio

from sapwood import Agent, Runtime, Session
from sapwood.agents import PendingApproval
from sapwood.errors import ActorDown, ChildFailed, PersistenceError, RegistryUnavailable, StoreUnavailable
from sapwood.persistence import Journal
from sapwood.registry import Running
from sapwood.testing import simulate
from tests.agents.kit import assert_sendable, opened, state_in, transcript

Fault: TypeAlias = Literal["killed before", "killed after", "refused", "acknowledgement lost"]
FAULTS: tuple[Fault, ...] = ("killed before", "killed after", "refused", "acknowledgement lost")

APPEND = Journal.append


@attrs.define
class World:
    """The world outside the runtime.

    Attributes:
        effects: What was done, with the idempotency key it was done under, in order.
        jobs: Work that goes on here, by the key that it was begun under, with the number of times it was asked about.
    """

    effects: list[tuple[str, str]] = attrs.field(factory=list[tuple[str, str]])
    jobs: dict[str, int] = attrs.field(factory=dict[str, int])

    async def act(self, name: str, key: str) -> None:
        """Do something that takes a while; it is done half-way through."""
        await trio.sleep(0.1)
        self.effects.append((name, key))
        await trio.sleep(0.1)

    def done(self, name: str) -> bool:
        """Say whether something was done."""
        return any(each == name for each, _ in self.effects)

    def counts(self) -> Counter[str]:
        """Return how often everything was done, where doing it again under one key is nothing."""
        return Counter(name for name, _ in set(self.effects))


async def nothing_to_prepare(_: Runtime) -> None:
    await trio.lowlevel.checkpoint()


async def nothing_found(_: Runtime) -> Counter[str]:
    await trio.lowlevel.checkpoint()
    return Counter()


@attrs.frozen
class Scenario:
    """Something that an agent is asked to do.

    Attributes:
        agent: Makes the agent; called for every life of the world.
        decide: Answers what people are asked.
        effects: How often everything is to be done.
        victim: Whose server is killed.
        prepare: Is done before the agent is asked.
        found: Returns effects that are to be seen in the runtime when everything is over.
        compared: Picks what of the conversation has to be as in peace; by default all of it.
    """

    agent: Callable[[World], Agent]
    effects: dict[str, int]
    decide: Callable[[World, PendingApproval], Awaitable[Any]] | None = None
    victim: str = "c1"
    prepare: Callable[[Runtime], Awaitable[None]] = nothing_to_prepare
    found: Callable[[Runtime], Awaitable[Counter[str]]] = nothing_found
    compared: Callable[[list[str]], list[str]] = list


@attrs.frozen
class Story:
    """What there is to compare when everything is over."""

    lines: tuple[str, ...]
    effects: Counter[str]
    appends: int
    steps: int
    struck: bool


class Steps(trio.abc.Instrument):
    """Counts the steps of all tasks while it is on, and tells when a certain one is reached."""

    def __init__(self, point: int) -> None:
        self.point = point
        self.count = 0
        self.on = False
        self.reached = trio.Event()

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if self.on:
            self.count += 1
            if self.count == self.point:
                self.reached.set()


class Appends:
    """Counts the appends to the journal, and lets a fault happen at a certain one."""

    def __init__(self, point: int, fault: Fault, kill: Callable[[], None]) -> None:
        self.point = point
        self.fault = fault
        self.kill = kill
        self.count = 0
        self.struck = False

    async def append(self, journal: Journal, agent_id: str, **options: Any) -> int:
        self.count += 1
        here = self.struck = self.count == self.point
        if here and self.fault == "refused":
            raise StoreUnavailable("store.db", "refused for the test")
        if here and self.fault == "killed before":
            self.kill()
        seq = await APPEND(journal, agent_id, **options)
        if here and self.fault == "killed after":
            self.kill()
        if here and self.fault == "acknowledgement lost":
            raise StoreUnavailable("store.db", "the acknowledgement was lost for the test")
        self.struck = self.struck or self.count > self.point > 0
        return seq


async def converse(runtime: Runtime, scenario: Scenario, world: World, agent: Agent) -> Session:
    """Ask for the work, and stay with it until it is done, whatever dies in between."""
    while True:
        try:
            session = await runtime.sessions.ensure_running(agent, "c1")
            async with session.send("Do it", message_id="m1") as run:
                result = await run.finish()
            if result is not None and result.outcome == "interrupted":
                assert scenario.decide is not None
                for approval in session.approvals:
                    await scenario.decide(world, approval)
            elif result is not None:
                assert result.outcome == "completed", result
                return session
        except (ActorDown, ChildFailed, RegistryUnavailable, PersistenceError):
            await trio.sleep(0.5)


async def tell(path: Path, scenario: Scenario, steps: Steps, point: int, fault: Fault) -> Story:
    """Run a scenario with a fault at one append, or the server killed at one step."""
    world = World()
    async with opened(path) as runtime, trio.open_nursery() as nursery:

        def kill() -> None:
            match runtime.registry.lookup_nowait(("agent", scenario.victim)):
                case Running(ref):
                    ref.kill()
                case _:
                    return  # it is not alive at this very moment

        await scenario.prepare(runtime)
        appends = Appends(point, fault, kill)

        async def append(journal: Journal, agent_id: str, **options: Any) -> int:
            return await appends.append(journal, agent_id, **options)

        async def strike() -> None:
            await steps.reached.wait()
            kill()

        nursery.start_soon(strike)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Journal, "append", append)
            agent = scenario.agent(world)
            steps.on = True
            session = await converse(runtime, scenario, world, agent)
            steps.on = False
        assert session.state.status == "idle"
        assert (session.approvals, session.state.pending, session.state.queue) == ((), (), ())
        assert_sendable(session.state)
        assert await state_in(runtime) == session.state
        # Another life changes nothing any more.
        before, found = list(world.effects), await scenario.found(runtime)
        await runtime.sessions.stop("c1")
        session = await runtime.sessions.ensure_running(scenario.agent(world), "c1")
        await trio.sleep(100)
        assert (world.effects, await scenario.found(runtime)) == (before, found)
        lines = scenario.compared(transcript(session.state.messages))
        for each in sorted(session.state.sub_agents, key=lambda each: each.id):
            lines += transcript((await state_in(runtime, each.agent_id)).messages)
        struck = appends.struck or steps.reached.is_set()
        nursery.cancel_scope.cancel()
    return Story(tuple(lines), world.counts() + found, appends.count, steps.count, struck)


def play(scenario: Scenario, path: Path, *, step: int = 0, append: int = 0, fault: Fault = "killed before") -> Story:
    """Tell a story in a simulated world, with at most one fault."""
    steps = Steps(step)
    return simulate(1, tell, path, scenario, steps, append, fault, instruments=(steps,))


def crash_anywhere(scenario: Scenario, folder: Path, *, samples: int | None) -> int:
    """Let the server die at every append and at every step, or at as many of the steps as `samples` says.

    Returns how often it died. Fails where the conversation or the effects are not those of the scenario in peace.
    """
    numbers = itertools.count()
    whole = play(scenario, folder / "whole.db")
    assert whole.effects == Counter(scenario.effects)
    stories = 0
    for append in range(1, whole.appends + 1):
        # In the short form every append has two of the four faults, in turn.
        faults = FAULTS if samples is None else (FAULTS[append % 4], FAULTS[(append + 1) % 4])
        for fault in faults:
            story = play(scenario, folder / f"{next(numbers)}.db", append=append, fault=fault)
            compare(story, whole, f"{fault} at append {append} of {whole.appends}")
            stories += 1
    stride = 1 if samples is None else max(1, whole.steps // samples)
    for step in range(1, whole.steps + 1, stride):
        story = play(scenario, folder / f"{next(numbers)}.db", step=step)
        compare(story, whole, f"killed at step {step} of {whole.steps}")
        stories += 1
    return stories


def compare(story: Story, whole: Story, where: str) -> None:
    """Hold a story with a fault against the one in peace."""
    assert story.struck, where
    assert story.lines == whole.lines, where
    assert story.effects == whole.effects, where

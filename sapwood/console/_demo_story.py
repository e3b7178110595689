"""The story of the demonstration, as steps over real runtimes; prints nothing by itself."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Final

import trio

from sapwood._runtime import Runtime, open_runtime
from sapwood.actors import Environment
from sapwood.agents import RunStream, Session
from sapwood.console._demo_checks import Facts, Outage
from sapwood.console._demo_parts import (
    CONVERSATION,
    REFUND,
    TO_NOBODY,
    TO_THE_NEW_ONE,
    WORK,
    Place,
    bookkeeper,
)
from sapwood.console._demo_watch import Recovery, RegistryWatch, StopWatch, answer_text
from sapwood.console._narrator import Narrator
from sapwood.console._reporter import TreeReporter
from sapwood.console._stored import StoredAgent, read_stored
from sapwood.console._terminal import count
from sapwood.console._transcript import call_line, line_of, todo_lines
from sapwood.conversation import MessageCompleted, RunFinished, StreamEvent, ToolStarted, UserMessage
from sapwood.errors import RegistryUnavailable, SapwoodError, StaleEpoch
from sapwood.registry import NotRunning
from sapwood.supervision import TreeNode

SERVER: Final = ("agent", CONVERSATION)
RECOVERS_WITHIN: Final = 10.0
"""Seconds after which a tree that has not come back counts as lost."""

STARTED_BY_USE: Final = frozenset({"agents", "filesystems"})
"""Dynamic supervisors: what was below them is started again by whoever needs it, not by them."""


class Story:
    """Tells the story and notes what was observed.

    Args:
        place: Where the store, the files and the ledger are; the store does not exist yet.
        narrator: Who tells it.
        environment: Time, ids, threads.
        facts: Where observations go.
        pace: Seconds that the agent waits before every model call; 0 for none.
    """

    def __init__(
        self, place: Place, narrator: Narrator, environment: Environment, facts: Facts, *, pace: float
    ) -> None:
        self._place = place
        self._narrator = narrator
        self._environment = environment
        self._facts = facts
        self._agent = bookkeeper(place, pace=pace)

    async def tell(self) -> None:
        """Tell the whole story.

        Raises:
            Exception: what went wrong; later steps are left out, and their facts stay None.
        """
        await self._first_life()
        await self._nobody_has_it()
        await self._second_life()
        self._facts.final = await self._read_file()
        self._facts.broken = ""

    @asynccontextmanager
    async def _runtime(self, others: Callable[[], str] = str) -> AsyncGenerator[Runtime]:
        """Open a runtime on the story's store, and note how it stops."""
        place, narrator = self._place, self._narrator
        reporter = TreeReporter(every=0.5)
        try:
            async with open_runtime(store=place.store, signals=False, log=False, children=[reporter.spec()]) as runtime:
                reporter.watch(runtime)
                place.configure(runtime.files, self._environment)
                narrator.watch(lambda: f"{others()}{runtime.tree().render()}")
                watch = RegistryWatch(runtime, SERVER)
                self._facts.watches.append(watch)
                with watch.watching():
                    yield runtime
                stop = StopWatch(runtime)
        finally:
            narrator.watch(None)
        seen = stop.result()
        self._facts.stops.append(seen)
        narrator.say(f"The runtime has stopped: {count(len(seen.observed), 'actor')}, the last started first.")

    # --- the first runtime ------------------------------------------------------------------------

    async def _first_life(self) -> None:
        narrator = self._narrator
        narrator.chapter("1. A runtime starts, and an agent goes to work")
        async with self._runtime() as runtime:
            narrator.show("The supervision tree:", runtime.tree().render())
            session = await runtime.sessions.ensure_running(self._agent, CONVERSATION)
            await narrator.pause(0.6)
            narrator.say("You ask for four things in one message:")
            for line in WORK.splitlines():
                narrator.act(f"> {line}")
            async with session.send(WORK) as run:
                await self._until_in_flight(run)
                await self._lose_the_registry(runtime, run)
                await self._bring_back(runtime, run)
            await self._note_work(session)
            await narrator.pause(0.6)

            narrator.chapter("3. A payment waits for you")
            narrator.act(f"> {REFUND}")
            async with session.send(REFUND) as run:
                await self._follow(run)
            (approval,) = session.approvals
            self._facts.asked = approval.interrupt
            narrator.say("Nobody answers. Instead the whole runtime is stopped, as in a deploy.")
            await narrator.pause(0.6)

    async def _until_in_flight(self, run: RunStream) -> None:
        async for event in run:
            self._show(event)
            if isinstance(event, ToolStarted) and event.call.name == "audit":
                self._facts.outage = Outage(
                    event.run_id, event.call, server_lived=False, first_answer="no lookup was made"
                )
                return
        raise SapwoodError("the run has ended before the audit")

    async def _lose_the_registry(self, runtime: Runtime, run: RunStream) -> None:
        """Kill every partition while a tool runs, and wait until the registry is certain again."""
        narrator, outage = self._narrator, self._facts.outage
        assert outage is not None
        outage.before = standing(runtime.tree())
        server = runtime.registry.whereis(SERVER)
        with Recovery(runtime).recording() as recovery:
            killed = [partition.ref for partition in partitions(runtime.tree())]
            for partition in killed:
                partition.kill()
            for partition in killed:
                await partition.wait_stopped()
            outage.server_lived = server is not None and server.alive
            outage.first_answer = answer_text(runtime.registry.lookup_nowait(SERVER))
            try:
                await runtime.sessions.ensure_running(self._agent, CONVERSATION)
            except RegistryUnavailable as refusal:
                outage.refused = refusal.reason
            with trio.fail_after(RECOVERS_WITHIN):
                await _certain(runtime)
            outage.seconds = recovery.seconds
        narrator.chapter("2. In the middle of it, the registry is killed: every partition, with its table")
        narrator.say(f"{call_line(outage.in_flight)} was being carried out at that moment.")
        narrator.say(
            f"Does the agent run? The registry: {outage.first_answer}. Its server was alive, so that is honest."
        )
        narrator.say(f"A start on that answer was refused ({outage.refused}): it could have made a second server.")
        await narrator.replay(recovery.frames)
        outage.after = standing(runtime.tree())
        outage.incarnations = tuple(partition.incarnation for partition in partitions(runtime.tree()))
        outage.ready = runtime.ready()
        outage.durable = tuple(await runtime.journal.read(CONVERSATION))
        narrator.say(f"The tree has come back by itself, {outage.seconds * 1000:.1f} ms after the kill.")
        narrator.show("It stands again:", runtime.tree().render())
        narrator.say(f"Now the registry is certain: not running. {count(len(outage.durable), 'event')} are durable.")
        await narrator.pause(0.6)

    async def _bring_back(self, runtime: Runtime, run: RunStream) -> None:
        """Start the agent again; the run that was interrupted goes on by itself."""
        await runtime.sessions.ensure_running(self._agent, CONVERSATION)
        self._narrator.say("ensure_running brings the agent back, and the open run goes on:")
        await self._follow(run)
        self._facts.run_end = run.result

    async def _note_work(self, session: Session) -> None:
        place = self._place
        self._facts.files = await self._environment.in_thread(
            lambda: {path.name: path.read_text(encoding="utf-8") for path in place.files.iterdir() if path.is_file()}
        )
        self._narrator.say("The to-dos now:")
        for line in todo_lines(session.state.todos):
            self._narrator.act(line)

    # --- between two runtimes ---------------------------------------------------------------------

    async def _nobody_has_it(self) -> None:
        stored = self._facts.stored = await self._read_file()
        if stored is not None and stored.state is not None:
            waiting = ", ".join(call_line(each.call) for each in stored.state.undecided) or "nothing"
            self._narrator.say(f"What the file says while nobody has it open: waiting for a decision: {waiting}.")

    async def _read_file(self) -> StoredAgent | None:
        stored = await self._environment.in_thread(read_stored, self._place.store)
        return next((agent for agent in stored.agents if agent.row.agent_id == CONVERSATION), None)

    # --- the reopened runtime, and another one ----------------------------------------------------

    async def _second_life(self) -> None:
        narrator = self._narrator
        narrator.chapter("4. The runtime is opened again, and you approve")
        async with self._runtime() as older:
            session = await older.sessions.ensure_running(self._agent, CONVERSATION)
            await self._approve(session)
            await narrator.pause(0.6)

            narrator.chapter("5. A second runtime claims the same conversation")
            async with self._runtime(lambda: f"{older.tree().render()}\n\n") as newer:
                await self._take_over(older, newer, session)
                await narrator.pause(1.0)
                narrator.chapter("6. An orderly stop, in reverse order")

    async def _approve(self, session: Session) -> None:
        facts, narrator = self._facts, self._narrator
        facts.found = tuple(approval.interrupt for approval in session.approvals)
        facts.paid_early = tuple(await self._environment.in_thread(self._place.payments))
        narrator.say(
            f"{count(len(facts.found), 'approval')} still open, {count(len(facts.paid_early), 'payment')} made."
        )
        await narrator.pause(0.6)
        (approval,) = session.approvals
        with session.events() as events:
            await approval.approve(by="you")
            async for event in events:
                self._show(event)
                if isinstance(event, RunFinished):
                    break
        facts.second_approval = await approval.approve(by="you, once more")
        narrator.say(f"Approving a second time is answered {type(facts.second_approval).__name__}.")
        facts.paid = tuple(await self._environment.in_thread(self._place.payments))
        narrator.say(f"The ledger holds {count(len(facts.paid), 'payment')}.")

    async def _take_over(self, older: Runtime, newer: Runtime, session: Session) -> None:
        facts, narrator = self._facts, self._narrator
        server = older.registry.whereis(SERVER)
        successor = await newer.sessions.ensure_running(self._agent, CONVERSATION)
        narrator.say("Two servers of one conversation live now, in two runtimes. The older one is given a message:")
        await narrator.pause(0.6)
        try:
            await session.say(TO_NOBODY)
        except StaleEpoch as stale:
            facts.refused_append = (stale.held, stale.current)
            narrator.say(f"Its write was refused: it holds epoch {stale.held}, and epoch {stale.current} is in force.")
        if server is None:
            raise SapwoodError("the older runtime had no server to fence")
        with trio.fail_after(RECOVERS_WITHIN):
            facts.fenced_exit = str(await server.wait_stopped())
        narrator.say(f"It has stopped itself: {facts.fenced_exit}. The newer one goes on:")
        facts.answer_after = await successor.say(TO_THE_NEW_ONE)
        for line in (f"> {TO_THE_NEW_ONE}", *facts.answer_after.splitlines()):
            narrator.act(line)
        facts.entries = tuple(await newer.journal.read(CONVERSATION))

    # --- events -----------------------------------------------------------------------------------

    async def _follow(self, run: RunStream) -> None:
        async for event in run:
            self._show(event)

    def _show(self, event: StreamEvent) -> None:
        line = line_of(event)
        if line is not None:
            self._narrator.act(line)
        elif isinstance(event, MessageCompleted) and not isinstance(event.message, UserMessage):
            for said in getattr(event.message, "text", "").splitlines():
                self._narrator.act(said)


async def _certain(runtime: Runtime) -> None:
    """Ask again and again, as users do, until the registry says that nothing runs and the runtime that it is ready."""
    while True:
        if isinstance(runtime.registry.lookup_nowait(SERVER), NotRunning) and runtime.ready():
            return
        await trio.lowlevel.checkpoint()


def partitions(tree: TreeNode) -> list[TreeNode]:
    """Return the partitions of the registry."""
    registry = next((node for node in tree.walk() if node.label == "registry"), None)
    return list(registry.children) if registry is not None else []


def standing(tree: TreeNode) -> tuple[str, ...]:
    """Return the labels of what must come back by itself: all but conversations and filesystems, in order."""
    labels = [tree.label]
    if tree.label not in STARTED_BY_USE:
        for child in tree.children:
            labels += standing(child)
    return tuple(labels)

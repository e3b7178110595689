"""The chat: a person talks to an agent, one turn after another."""

from __future__ import annotations

import os
from collections.abc import AsyncIterable
from pathlib import Path
from typing import Final, TextIO

import attrs
import trio

from sapwood._runtime import Runtime, open_runtime
from sapwood.actors import RealEnvironment
from sapwood.agents import Agent
from sapwood.console._approvals import Later, Unclear, choices, read_decision
from sapwood.console._chat_commands import run_command
from sapwood.console._chat_screen import ChatScreen
from sapwood.console._lines import LineReader
from sapwood.console._reporter import TreeReporter
from sapwood.console._stopping import until_stopped
from sapwood.console._terminal import count, is_plain, one_line
from sapwood.console._transcript import interrupt_line
from sapwood.conversation import (
    Accepted,
    AgentShutdown,
    AlreadyDecided,
    Decision,
    Interrupt,
    Invalid,
    Run,
    RunFinished,
    Stale,
    StreamEvent,
)
from sapwood.errors import ActorDown, RegistryUnavailable, SapwoodError, StaleEpoch
from sapwood.files import DirectoryBackend, Scope
from sapwood.middleware import FileSystem, HumanInTheLoop, PatchToolCalls, TodoList
from sapwood.models import ChatModel

BACK_WITHIN: Final = 30.0
"""Seconds that a chat waits for a registry that cannot tell."""

PROMPT: Final = "> "
DECIDE: Final = "decide> "


@attrs.frozen
class ChatOptions:
    """What is talked about, with whom, and where it is kept.

    Attributes:
        conversation: Id of the conversation.
        store: The SQLite file.
        model: The model.
        directory: A directory whose files the agent may use; None for files in the store.
        scope: Name of the files in the store that conversations share; empty for files of this conversation alone.
    """

    conversation: str
    store: Path
    model: ChatModel
    directory: Path | None = None
    scope: str = ""

    @property
    def files(self) -> Scope:
        """The scope of the agent's files."""
        if self.directory is not None:
            return ("directory", str(self.directory.resolve()))
        return ("user", self.scope) if self.scope else ("agent", self.conversation)


class FencedError(Exception):
    """Another process has taken the conversation over."""


def run_chat(options: ChatOptions, out: TextIO, descriptor: int = 0) -> int:
    """Talk until the input ends, and return 0; 1 if another process took the conversation over.

    Args:
        options: What about.
        out: Where to write.
        descriptor: Where the person's lines come from.

    Raises:
        SapwoodError: if the store or the conversation cannot be opened.
    """
    return trio.run(_run, options, out, descriptor)


async def _run(options: ChatOptions, out: TextIO, descriptor: int) -> int:
    environment = RealEnvironment()
    screen = ChatScreen(out, plain=is_plain(out))
    chat = Chat(options, screen, LineReader(descriptor, environment), echo=not os.isatty(descriptor))

    async def work() -> int:
        reporter = TreeReporter()
        async with open_runtime(store=options.store, signals=False, log=False, children=[reporter.spec()]) as runtime:
            reporter.watch(runtime)
            directory = options.directory
            if directory is not None:
                runtime.files.configure(options.files, lambda _: DirectoryBackend(directory, environment))
            return await chat.talk(runtime)

    code = await until_stopped(work, environment, on_interrupt=chat.interrupt)
    screen.lines(f"left; the conversation is kept in {options.store}")
    return code


class Chat:
    """One person, one conversation.

    Args:
        options: What about.
        screen: What the person sees.
        reader: What the person types.
        echo: Whether lines are repeated, because no terminal does.
    """

    def __init__(self, options: ChatOptions, screen: ChatScreen, reader: LineReader, *, echo: bool) -> None:
        self._options = options
        self._screen = screen
        self._reader = reader
        self._echo = echo
        self._agent = Agent(
            name="assistant",
            model=options.model,
            prompt="You are a helpful assistant with files and a to-do list. Answer briefly.",
            middleware=[
                TodoList(),
                FileSystem(scope=options.files),
                PatchToolCalls(),
                HumanInTheLoop(delete_file=True),
            ],
        )
        self._left_open: set[str] = set()
        self._reading: trio.CancelScope | None = None
        self._following = False
        self._cancelling = False
        self._nursery: trio.Nursery
        self._runtime: Runtime

    # --- turns ------------------------------------------------------------------------------------

    async def talk(self, runtime: Runtime) -> int:
        """Talk until the person leaves; return the exit code."""
        self._runtime = runtime
        self._session = runtime.sessions.session(self._options.conversation)
        async with trio.open_nursery() as self._nursery:
            code = await self._until_left()
            self._nursery.cancel_scope.cancel()
        return code

    async def _until_left(self) -> int:
        try:
            await self._bring_up()
            self._greet()
            while await self._turn():
                pass
        except (FencedError, StaleEpoch):
            self._screen.lines("another process has taken this conversation over, so this one leaves")
            return 1
        return 0

    def _greet(self) -> None:
        options, state = self._options, self._session.state
        todos = count(sum(todo.status in ("pending", "in_progress") for todo in state.todos), "to-do")
        known = f"goes on: {count(len(state.messages), 'message')}, {todos} open" if state.messages else "begins"
        self._screen.lines(
            f"conversation {options.conversation!r} in {options.store} {known}; model {options.model.name}",
            "/help says what you can do here",
        )

    async def _turn(self) -> bool:
        """Carry out one turn; return False if the person leaves."""
        try:
            if not await self._settle_approvals():
                return False
            line = await self._read(PROMPT)
            if line is None:
                return False
            if line.startswith("/"):
                return await self._command(line)
            if line.strip():
                await self._send(line)
        except StaleEpoch:
            raise
        except (ActorDown, RegistryUnavailable) as lost:
            self._screen.lines(f"the agent is away ({one_line(str(lost))}); bringing it back")
            await self._bring_up()
        except SapwoodError as error:
            self._screen.lines(f"✗ {one_line(str(error))}")
        return True

    async def _command(self, line: str) -> bool:
        if line.strip() == "/quit":
            return False
        if line.strip() == "/approvals":
            self._left_open.clear()
        for text in await run_command(line, self._runtime, self._session, self._options.files):
            self._screen.lines(text)
        return True

    async def _read(self, prompt: str) -> str | None:
        self._screen.prompt(prompt)
        line: str | None = None
        self._reading = trio.CancelScope()
        with self._reading:
            line = await self._reader.next_line()
        self._reading = None
        self._screen.answered(line, echo=self._echo)
        return line

    # --- the agent --------------------------------------------------------------------------------

    async def _bring_up(self) -> None:
        """Start the agent where it does not run, and follow a run that goes on by itself."""
        with self._session.events() as events:
            with trio.move_on_after(BACK_WITHIN) as patience:
                while True:
                    try:
                        await self._runtime.sessions.ensure_running(self._agent, self._options.conversation)
                        break
                    except RegistryUnavailable as refusal:
                        if refusal.reason == "draining":
                            raise
                        await trio.sleep(min(refusal.retry_after, 0.2))
            if patience.cancelled_caught:
                raise ActorDown(f"agent {self._options.conversation!r}")
            state = self._session.state
            if state.status == "running" or state.queue or (state.run is not None and not state.undecided):
                self._screen.lines("a run was open, and goes on:")
                await self._follow(events, state.run)

    async def _send(self, text: str) -> None:
        """Send a message and follow its run; the message counts once, however often it has to be sent."""
        message_id = self._runtime.environment.new_id("msg_")
        while True:
            try:
                async with self._session.send(text, message_id=message_id) as run:
                    await self._follow(run, Run(run.receipt.run_id) if run.receipt.run_id else None)
            except (ActorDown, RegistryUnavailable) as lost:
                self._screen.lines(f"the agent is away ({one_line(str(lost))}); bringing it back")
                await self._bring_up()
                if not any(message.id == message_id for message in self._session.state.messages):
                    continue
            return

    async def _follow(self, events: AsyncIterable[StreamEvent], run: Run | None) -> None:
        """Show events to the end of a run, None for whichever ends first; a stopped agent is brought back."""
        reason = ""
        self._following, self._cancelling = True, False
        try:
            async for event in events:
                self._screen.show(event)
                if isinstance(event, AgentShutdown):
                    reason = event.reason
                if isinstance(event, RunFinished) and (run is None or run.id == event.run_id):
                    return
        finally:
            self._following = False
        if reason == "fenced":
            raise FencedError
        await self._bring_up()

    def interrupt(self) -> bool:
        """Deal with Ctrl-C: cancel the run that is followed, or leave at the prompt; False if neither fits."""
        if self._following and not self._cancelling:
            self._cancelling = True
            self._nursery.start_soon(self._cancel)
            return True
        if self._reading is not None:
            self._reading.cancel()
            return True
        return False

    async def _cancel(self) -> None:
        self._screen.lines("Ctrl-C cancels the run; what was done stays. Once more leaves.")
        try:
            await self._session.cancel("cancelled by the user")
        except SapwoodError as error:
            self._screen.lines(f"✗ it could not be cancelled: {one_line(str(error))}")

    # --- approvals --------------------------------------------------------------------------------

    async def _settle_approvals(self) -> bool:
        """Ask about everything that waits for a decision; return False if the person leaves."""
        while True:
            waiting = [each for each in self._session.state.undecided if each.id not in self._left_open]
            if not waiting:
                return True
            interrupt = waiting[0]
            self._screen.lines(interrupt_line(interrupt), f"  {choices(interrupt)}")
            line = await self._read(DECIDE)
            if line is None:
                self._screen.lines("it stays open; start the chat again to decide")
                return False
            if line.strip():
                await self._answer(line, interrupt)

    async def _answer(self, line: str, interrupt: Interrupt) -> None:
        match read_decision(line, interrupt):
            case Later():
                self._left_open.add(interrupt.id)
                self._screen.lines("it stays open; /approvals asks again, and a new message withdraws it")
            case Unclear(problem):
                self._screen.lines(f"✗ {problem}")
            case decision:
                await self._decide(decision)

    async def _decide(self, decision: Decision) -> None:
        run = self._session.state.run
        goes_on = len(self._session.state.undecided) == 1
        with self._session.events() as events:
            match await self._session.decide(decision):
                case Accepted():
                    if goes_on:
                        await self._follow(events, run)
                case AlreadyDecided(by, verdict):
                    self._screen.lines(f"somebody was faster: {verdict} by {one_line(by) or 'nobody named'}")
                case Stale(problem) | Invalid(problem):
                    self._screen.lines(f"✗ {one_line(problem)}")

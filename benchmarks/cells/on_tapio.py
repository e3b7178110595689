"""Tapio: behaviours on asyncio, supervised with a restart, messages checked by pydantic as it does by default."""
# mypy: disable-error-code="import-not-found, misc"
# pyright: reportMissingImports=false, reportUntypedBaseClass=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportUnknownLambdaType=false
# ruff: noqa: TRY004  # the crash is the one that every library has
# flake8: noqa: ASYNC124
# The library is installed only where its cell runs, and wants its callbacks async.

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from tapio import ActorSystem, AskTargetTerminated, AskTimeoutError, Behaviors, Message, SupervisorStrategy
from tapio.actor import ActorRef

from benchmarks.cells import workloads
from benchmarks.cells.raw_asyncio import Asyncio


class Counted(Message):
    value: int


class Add(Message):
    pass


class Hop(Message):
    left: int


class Total(Message):
    reply_to: ActorRef[Counted]


class Crash(Message):
    pass


class State:
    def __init__(self) -> None:
        self.total = 0
        self.next: Any = None
        self.done: Any = None


def behaviour(state: State) -> Any:
    async def receive(message: Message) -> Any:
        if isinstance(message, Add):
            state.total += 1
        elif isinstance(message, Total):
            message.reply_to.tell(Counted(value=state.total))
        elif isinstance(message, Crash):
            state.total = 0
            raise ValueError("crash")
        elif isinstance(message, Hop):
            if message.left:
                state.next.tell(Hop(left=message.left - 1))
            else:
                state.done.set()
        return Behaviors.same()

    strategy = SupervisorStrategy.restart()
    return Behaviors.supervise(Behaviors.receive_message(receive)).on_failure(strategy)


class Handle:
    def __init__(self, system: Any, number: int) -> None:
        self.state = State()
        self.ref = system.spawn(behaviour(self.state), f"bench-{number}")
        self.tell = self.ref.tell

    async def ask(self, request: Any) -> Any:
        answer = await self.ref.ask(lambda reply: Total(reply_to=reply), expect=Counted, timeout=timedelta(seconds=30))
        return answer.value


class Subject(Asyncio):
    scale = 10
    add = Add()
    crash = Crash()

    def __init__(self) -> None:
        self.system: Any = None
        logging.disable()

    def hop(self, left: int) -> Any:
        return Hop(left=left)

    async def start(self, count: int) -> list[Any]:
        self.system = ActorSystem("bench")
        actors: list[Any] = [Handle(self.system, number) for number in range(count)]
        await asyncio.sleep(0)
        return actors

    async def close(self) -> None:
        if self.system is not None:
            await self.system.terminate()

    async def stop(self, actors: list[Any]) -> None:
        await self.close()
        self.system = None

    def aim(self, actor: Any, following: Any, done: Any) -> None:
        actor.state.done = done
        actor.state.next = following.ref if following is not None else None

    def finder(self, actors: list[Any]) -> tuple[Callable[[Any], Any], list[Any]]:
        address = self.system.address

        def find(path: Any) -> Any:
            return self.system.resolve_path(address, path)

        return find, [actor.ref.path for actor in actors]

    async def recover(self, actor: Any) -> None:
        actor.tell(self.crash)
        while True:
            try:
                await actor.ask(self.total)
            except (AskTargetTerminated, AskTimeoutError):
                await asyncio.sleep(0)
            else:
                return


def measure(workload: str) -> dict[str, float]:
    """Run one workload in this process."""
    return workloads.measure(Subject(), workload)

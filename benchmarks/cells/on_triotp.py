"""Triotp: generic servers under a dynamic supervisor, on trio."""
# mypy: disable-error-code="import-not-found, misc"
# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# flake8: noqa: ASYNC124
# The library is installed only where its cell runs, and wants its callbacks async.

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import trio
import trio.testing
from triotp import application, dynamic_supervisor, gen_server, mailbox, node, supervisor

from benchmarks.cells import workloads
from benchmarks.cells.workloads import Jobs


class State:
    def __init__(self) -> None:
        self.total = 0
        self.following: Any = None
        self.done: Any = None


# The callbacks of a generic server, and of an application, are functions of a module: of this one.


async def init(state: State) -> State:
    return state


async def terminate(reason: Any, state: State) -> None:
    state.total = 0


async def handle_call(message: Any, caller: Any, state: State) -> Any:
    if message == "crash":
        return gen_server.Stop(ValueError("crash")), state
    return gen_server.Reply(payload=state.total), state


async def handle_cast(message: Any, state: State) -> Any:
    if message == "add":
        state.total += 1
    elif message:
        await state.following.tell(message - 1)
    else:
        state.done.set()
    return gen_server.NoReply(), state


async def start(main: Callable[[], Awaitable[None]]) -> None:
    await main()


class Handle:
    def __init__(self, number: int) -> None:
        self.name = f"bench-{number}"
        self.state = State()

    async def tell(self, message: Any) -> None:
        await gen_server.cast(self.name, message)

    async def ask(self, message: Any) -> Any:
        return await gen_server.call(self.name, message)


class Subject(workloads.Subject):
    scale = 20
    population = 2_000  # each stop looks at every name
    async_tell = True

    def __init__(self) -> None:
        self.nursery: Any = None

    def run(self, main: Callable[[], Awaitable[dict[str, float]]]) -> dict[str, float]:
        found: dict[str, float] = {}

        async def around() -> None:
            found.update(await main())
            if self.nursery is not None:
                self.nursery.cancel_scope.cancel()

        async def application_main() -> None:
            async with trio.open_nursery() as self.nursery:
                self.nursery.start_soon(around)

        module = sys.modules[__name__]
        node.run([application.app_spec(module=module, start_arg=application_main, permanent=False)])
        return found

    async def start(self, count: int) -> list[Any]:
        options = supervisor.options(max_restarts=1_000_000)
        home = await self.nursery.start(dynamic_supervisor.start, options)
        module = sys.modules[__name__]
        actors = [Handle(number) for number in range(count)]
        for actor in actors:
            args = [module, actor.state, actor.name]
            await dynamic_supervisor.start_child(home, supervisor.child_spec(actor.name, gen_server.start, args))
        await trio.testing.wait_all_tasks_blocked()
        return actors

    async def stop(self, actors: list[Any]) -> None:
        self.nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            await trio.testing.wait_all_tasks_blocked()

    def event(self) -> Any:
        return trio.Event()

    async def together(self, jobs: Jobs) -> None:
        async with trio.open_nursery() as callers:
            for job in jobs:
                callers.start_soon(job)

    def aim(self, actor: Any, following: Any, done: Any) -> None:
        actor.state.following, actor.state.done = following, done

    def finder(self, actors: list[Any]) -> tuple[Callable[[Any], Any], list[Any]]:
        return mailbox._resolve, [actor.name for actor in actors]

    async def recover(self, actor: Any) -> None:
        with suppress(gen_server.GenServerExited):
            await actor.ask("crash")
        while True:
            try:
                await actor.ask("total")
            except mailbox.MailboxDoesNotExist:
                await trio.lowlevel.checkpoint()
            else:
                return


def measure(workload: str) -> dict[str, float]:
    """Run one workload in this process."""
    return workloads.measure(Subject(), workload)

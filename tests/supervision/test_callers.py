"""Row L13: a task knows the supervisors above it and those who asked for it."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from sapwood.actors import Actor, Ref, handle
from sapwood.errors import InvalidChildSpec
from sapwood.supervision import Tasks, TaskSupervisor, ancestors, callers, child, start_child, supervisor
from sapwood.supervision._callers import KEPT
from tests.supervision.kit import Call, Crash, Name, Stage, Worker

Seen = dict[str, tuple[tuple[str, ...], tuple[str, ...]]]


def labels(refs: tuple[Ref, ...]) -> tuple[str, ...]:
    return tuple(ref.label for ref in refs)


class Client(Worker):
    """Looks who stands behind it while it serves others."""

    @handle
    def look(self, message: Crash) -> None:
        self.seen = labels(callers())


async def top_of(stage: Stage) -> Tasks:
    inner = supervisor([child(TaskSupervisor, id="tasks")], strategy="one_for_one", id="inner")
    await stage.supervise(inner)
    return Tasks(stage.ref("tasks"))


@pytest.mark.row("L13")
@pytest.mark.parametrize("how", ["launch", "launch_nolink", "run", "start_child", "stream"])
async def test_a_task_knows_its_supervisors_and_who_asked_for_it_through_several_levels(
    autojump_clock: MockClock, stage: Stage, how: str
) -> None:
    tasks = await top_of(stage)
    client = await start_child(stage.ref("inner"), stage.worker("client"))
    assert client is not None
    seen: Seen = {}
    done = trio.Event()

    async def begin(function: Any, *args: Any) -> None:
        match how:
            case "launch" | "launch_nolink":
                await (await getattr(tasks, how)(function, *args)).result()
            case "stream":
                async with tasks.stream(partial(function, *args[:-1]), [args[-1]]) as outcomes:
                    async for _ in outcomes:
                        pass
            case _:
                await getattr(tasks, how)(function, *args)

    async def level(number: int) -> None:
        seen[f"level {number}"] = labels(ancestors()), labels(callers())
        if number == 3:
            done.set()
        else:
            await begin(level, number + 1)

    await client.ask(Call(partial(begin, level, 1)), timeout=None)
    await done.wait()

    above = ("tasks", "inner", "Supervisor#1")
    assert {found[0] for found in seen.values()} == {above}
    assert [len(found[1]) for found in seen.values()] == [1, 2, 3]
    assert [found[1][-1] for found in seen.values()] == ["client"] * 3
    assert seen["level 3"][1][1:] == seen["level 2"][1]
    assert seen["level 2"][1][1:] == seen["level 1"][1]


@pytest.mark.row("L13")
async def test_nurseries_and_tasks_inside_of_a_task_have_its_callers(autojump_clock: MockClock, stage: Stage) -> None:
    tasks = await top_of(stage)
    client = await stage.system.spawn(Worker, "w")
    seen: list[tuple[str, ...]] = []

    async def note() -> None:
        await trio.lowlevel.checkpoint()
        seen.append(labels(callers()))

    async def work() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(note)

    await client.ask(Call(partial(tasks.run, work)))

    assert seen == [(client.label,)]


@pytest.mark.row("L13")
async def test_an_actor_that_serves_a_task_does_not_take_the_callers_of_that_for_its_own(
    autojump_clock: MockClock, stage: Stage
) -> None:
    tasks = await top_of(stage)
    client = await stage.system.spawn(Worker, "w")
    seen: list[object] = []

    class Server(Actor):
        @handle
        def name(self, message: Name) -> str:
            seen.append(callers())
            return "server"

        def on_start(self) -> None:
            seen.append(callers())

    async def work() -> None:
        server = await stage.system.spawn(Server)
        await server.ask(Name())

    await client.ask(Call(partial(tasks.run, work)))

    assert seen == [(), ()]
    assert callers() == ancestors() == ()


async def test_a_task_that_starts_its_successor_for_ever_keeps_the_nearest_callers_only(
    autojump_clock: MockClock, stage: Stage
) -> None:
    tasks = await top_of(stage)
    client = await stage.system.spawn(Worker, "w")
    seen: list[int] = []
    done = trio.Event()

    async def work(number: int) -> None:
        seen.append(len(callers()))
        if number < 2 * KEPT:
            await tasks.start_child(work, number + 1)
        else:
            done.set()

    await client.ask(Call(partial(tasks.start_child, work, 1)))
    await done.wait()

    assert seen[:3] == [1, 2, 3]
    assert seen[-1] == KEPT


async def test_a_started_function_still_reports_its_start_and_takes_keywords(
    autojump_clock: MockClock, stage: Stage
) -> None:
    tasks = await top_of(stage)
    got: list[str] = []

    async def serve(name: str, *, mode: str, task_status: Any) -> None:
        await trio.sleep(2)
        got.append(f"{name} {mode}")
        task_status.started()

    start: Any = partial(serve, mode="fast")
    ref = await tasks.start_child(start, "one")

    assert stage.clock() == 2.0
    assert got == ["one fast"]
    assert ref.label.startswith("serve")


async def test_what_cannot_be_started_is_refused_as_ever(autojump_clock: MockClock, stage: Stage) -> None:
    tasks = await top_of(stage)
    wrong: Any = 5

    with pytest.raises(InvalidChildSpec, match="an async function"):
        await tasks.start_child(wrong)

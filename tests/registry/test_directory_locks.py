"""Locks by key: one at a time, in turn, and free again whatever becomes of the holder."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio
import trio.testing

from sapwood.actors import current_actor
from sapwood.errors import InvalidKey, InvalidOption
from sapwood.registry import DuplicateDirectory, UniqueDirectory
from tests.registry.directory_kit import KEY, OTHER, Member, Work, do, pairs, replace_owner, running

pytestmark = pytest.mark.sapwood(seeds=5)


def taking(
    directory: UniqueDirectory[int], log: list[str], name: str, seconds: float, *, fails: bool = False
) -> Callable[[], Awaitable[None]]:
    async def take() -> None:
        async with directory.lock(KEY):
            log.append(f"{name} in")
            await trio.sleep(seconds)
            if fails:
                raise ValueError(name)
            log.append(f"{name} out")

    return take


@pytest.mark.row("K20")
async def test_one_task_at_a_time_holds_the_lock_of_a_key_first_come_first_served() -> None:
    directory = UniqueDirectory[int]("rooms")
    log: list[str] = []
    async with running(directory) as system:
        for name in "abc":
            (await system.spawn(Member)).tell(Work(taking(directory, log, name, 1)))
            await trio.sleep(0.1)
        async with directory.lock(KEY):
            log.append("main in")
        assert log == ["a in", "a out", "b in", "b out", "c in", "c out", "main in"]
        assert len(directory._locks) == 0


@pytest.mark.row("K20")
async def test_locks_of_other_keys_and_registrations_have_nothing_to_do_with_it() -> None:
    directory = UniqueDirectory[int]("rooms")
    async with running(directory) as system:
        first, second = await system.spawn(Member), await system.spawn(Member)

        async def inside() -> None:
            assert current_actor() is first  # in the caller's own context
            async with directory.lock(KEY), directory.lock(OTHER):
                directory.register(OTHER, 2)
                await do(second, directory.register, KEY, 1)

        await first.ask(Work(inside))
        assert pairs(directory.lookup(KEY)) == [(second, 1)]
        async with directory.lock(KEY):
            assert len(directory._locks) == 1
        assert len(directory._locks) == 0


@pytest.mark.row("K20")
async def test_a_lock_is_free_again_when_its_holder_raises_or_is_killed() -> None:
    directory = UniqueDirectory[int]("rooms")
    log: list[str] = []
    async with running(directory) as system:
        raising, killed, waiting, last = [await system.spawn(Member) for _ in range(4)]
        raising.tell(Work(taking(directory, log, "raising", 1, fails=True)))
        await trio.sleep(0.1)
        killed.tell(Work(taking(directory, log, "killed", 1000)))
        await trio.sleep(0.1)
        waiting.tell(Work(taking(directory, log, "waiting", 1000)))
        await trio.sleep(0.1)
        last.tell(Work(taking(directory, log, "last", 1)))
        await trio.sleep(2)
        assert log == ["raising in", "killed in"]
        waiting.kill()  # passed over when its turn would come
        await waiting.wait_stopped()
        killed.kill()
        await killed.wait_stopped()
        await trio.sleep(2)
        assert log == ["raising in", "killed in", "last in", "last out"]
        assert len(directory._locks) == 0


@pytest.mark.row("K20")
async def test_the_code_of_a_detached_actor_keeps_its_lock_until_it_leaves() -> None:
    directory = UniqueDirectory[int]("rooms")
    log: list[str] = []

    async def cling() -> None:
        with trio.CancelScope(shield=True):
            await taking(directory, log, "stuck", 10)()

    async with running(directory) as system:
        stuck, next_one = await system.spawn(Member), await system.spawn(Member)
        stuck.tell(Work(cling))
        await trio.sleep(1)
        stuck._cell.detach()
        next_one.tell(Work(taking(directory, log, "next", 1)))
        await trio.sleep(5)
        assert (stuck.alive, log) == (False, ["stuck in"])
        await trio.sleep(10)
        assert log == ["stuck in", "stuck out", "next in", "next out"]


@pytest.mark.row("K20")
async def test_a_lock_outlives_the_death_of_the_directory() -> None:
    directory = UniqueDirectory[int]("rooms")
    log: list[str] = []
    async with running(directory) as system:
        member = await system.spawn(Member)
        async with directory.lock(KEY):
            await replace_owner(directory)
            member.tell(Work(taking(directory, log, "member", 1)))
            await trio.sleep(5)
            assert log == []
        await trio.sleep(5)
        assert log == ["member in", "member out"]


@pytest.mark.row("K20")
async def test_a_task_that_holds_a_lock_cannot_wait_for_it_again() -> None:
    directory = DuplicateDirectory[int]("groups")
    async with running(directory):
        async with directory.lock(KEY):
            with pytest.raises(InvalidOption, match="holds this one already"):
                async with directory.lock(KEY):
                    pytest.fail("entered twice")
            assert len(directory._locks) == 1
        async with directory.lock(KEY):
            pass
        with pytest.raises(InvalidKey):
            async with directory.lock(("room", 1.0)):
                pytest.fail("entered")


@pytest.mark.row("K20")
async def test_a_wait_for_a_lock_that_is_cancelled_leaves_nothing_behind() -> None:
    directory = UniqueDirectory[int]("rooms")
    async with running(directory):
        with trio.CancelScope() as scope:
            scope.cancel()
            async with directory.lock(KEY):
                pytest.fail("entered")
        assert len(directory._locks) == 0

        async def hold() -> None:
            async with directory.lock(KEY):
                await trio.sleep(10)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(hold)
            await trio.testing.wait_all_tasks_blocked()
            with trio.move_on_after(1):
                async with directory.lock(KEY):
                    pytest.fail("entered")
            assert len(directory._locks) == 1
        assert len(directory._locks) == 0

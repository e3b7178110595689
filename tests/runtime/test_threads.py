"""Runtimes in threads of their own, and the way in from other threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

import sapwood
from sapwood import Actor, Request, Runtime, child, handle, message, start_in_thread
from sapwood.actors import LoopThread
from sapwood.errors import ActorDown, ChildFailed, RuntimeClosed, RuntimeFailed, StoreUnavailable, WrongThread
from sapwood.registry import NotRunning, Running


@message("threads.deposit")
class Deposit:
    cents: int


@message("threads.balance")
class Balance(Request[int]):
    pass


class Account(Actor):
    def __init__(self, ended: list[str] | None = None) -> None:
        self.cents = 0
        self.ended = ended

    @handle
    def deposit(self, message: Deposit) -> None:
        self.cents += message.cents

    @handle
    def balance(self, message: Balance) -> int:
        return self.cents

    def on_stop(self, reason: object) -> None:
        if self.ended is not None:
            self.ended.append(threading.current_thread().name)


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    assert {thread for thread in threading.enumerate() if not thread.daemon} <= before


def test_a_plain_script_talks_to_actors_and_leaves_nothing_behind() -> None:
    ended: list[str] = []
    with start_in_thread() as loop:
        account = loop.portal.call(loop.value.spawn, Account, ended)
        loop.portal.tell(account, Deposit(5))
        loop.portal.tell(account, Deposit(6))
        assert loop.portal.ask(account, Balance()) == 11

    assert ended == ["sapwood"]
    with pytest.raises(RuntimeClosed):
        loop.portal.tell(account, Deposit(1))


def test_options_are_those_of_open_runtime(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with start_in_thread(name="mine", store=path, partitions=2, children=[child(Account, key=("a", 1))]) as loop:
        runtime = loop.value

        async def look() -> tuple[int, object, str]:
            await trio.lowlevel.checkpoint()
            statistics = runtime.registry.statistics()
            return len(statistics.partitions), runtime.registry.lookup_nowait(("a", 1)), runtime.store.name

        partitions, found, name = loop.portal.call(look)
        assert partitions == 2
        assert isinstance(found, Running)
        assert name == str(path)
        assert "mine" in {thread.name for thread in threading.enumerate()}
    assert path.exists()


def test_what_keeps_a_runtime_from_starting_is_raised_here(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable):
        start_in_thread(store=tmp_path)

    class Broken(Actor):
        def on_start(self) -> None:
            raise ValueError("boom")

    with pytest.raises(ChildFailed, match="boom"):
        start_in_thread(children=[child(Broken)])


def test_an_error_of_the_block_stops_the_runtime_and_comes_out() -> None:
    ended: list[str] = []
    with pytest.raises(ValueError, match="mine"), start_in_thread(children=[child(Account, ended)]):
        raise ValueError("mine")
    assert ended == ["sapwood"]


def test_a_runtime_that_fails_refuses_calls_and_says_why_when_the_block_is_left() -> None:
    def use(loop: LoopThread[Runtime]) -> None:
        loop.portal.tell(loop.value.root, Deposit(1))
        with pytest.raises((RuntimeClosed, ActorDown)):
            loop.portal.call(_kill_root, loop.value)
        while loop.running:
            loop.portal.tell(loop.value.root, Deposit(1))

    with pytest.raises(RuntimeFailed, match="killed"), start_in_thread() as loop:
        use(loop)


async def _kill_root(runtime: Runtime) -> None:
    runtime.root.kill()
    await trio.sleep_forever()


def test_asyncio_programs_wait_without_blocking_their_loop() -> None:
    async def main(loop: LoopThread[Runtime]) -> int:
        account = await loop.portal.acall(loop.value.spawn, Account)
        await asyncio.gather(*(loop.portal.acall(account.send, Deposit(2)) for _ in range(10)))
        return await loop.portal.aask(account, Balance())

    with start_in_thread() as loop:
        assert asyncio.run(main(loop)) == 20


async def test_the_portal_of_a_runtime_serves_threads_of_the_same_process() -> None:
    async with sapwood.open_runtime() as runtime:
        account = await runtime.spawn(Account, key=("a", 1))

        def elsewhere() -> int:
            with pytest.raises(WrongThread):
                account.tell(Deposit(1))
            runtime.portal.tell(account, Deposit(3))
            return runtime.portal.ask(account, Balance())

        assert await trio.to_thread.run_sync(elsewhere) == 3
        account.kill()
        await account.wait_stopped()
        assert runtime.registry.lookup_nowait(("a", 1)) == NotRunning()

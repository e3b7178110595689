"""The environment: threads whose caller has left, and worlds that repeat."""

from __future__ import annotations

import threading

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from sapwood.actors import RealEnvironment, SimulatedEnvironment


@pytest.mark.row("BR-19")
async def test_a_thread_whose_caller_has_left_keeps_its_slot_and_its_result_goes_nowhere() -> None:
    environment = RealEnvironment()
    limiter = trio.to_thread.current_default_thread_limiter()
    before = limiter.total_tokens
    limiter.total_tokens = 1
    release = threading.Event()
    order: list[str] = []

    def slow() -> str:
        release.wait(20)
        order.append("the thread ends")
        return "nobody takes this"

    try:
        async with trio.open_nursery() as nursery:

            async def give_up() -> None:
                with trio.CancelScope() as scope:
                    nursery.start_soon(cancel_soon, scope)
                    await environment.in_thread(slow, abandon_on_cancel=True)
                order.append("the caller leaves")

            async def cancel_soon(scope: trio.CancelScope) -> None:
                await trio.testing.wait_all_tasks_blocked()
                scope.cancel()

            await give_up()
            assert limiter.borrowed_tokens == 1

            async def use_next() -> None:
                order.append(await environment.in_thread(lambda: "the next call"))

            nursery.start_soon(use_next)
            await trio.testing.wait_all_tasks_blocked()
            release.set()
    finally:
        limiter.total_tokens = before
    assert order == ["the caller leaves", "the thread ends", "the next call"]


async def test_without_leave_to_abandon_it_a_cancelled_caller_waits_for_its_thread() -> None:
    environment = RealEnvironment()
    with trio.CancelScope() as scope:
        scope.cancel()
        with trio.CancelScope(shield=True):
            assert await environment.in_thread(sum, (1, 2)) == 3


def test_one_seed_gives_one_world() -> None:
    one, same, other = SimulatedEnvironment(1), SimulatedEnvironment(1), SimulatedEnvironment(2)

    def draw(environment: SimulatedEnvironment) -> list[object]:
        return [environment.new_id("x"), environment.random.random(), environment.new_id()]

    assert draw(one) == draw(same)
    assert draw(one) != draw(other)
    assert len({RealEnvironment().new_id() for _ in range(100)}) == 100


async def test_a_simulated_world_runs_blocking_functions_inline_and_does_not_exit(autojump_clock: MockClock) -> None:
    environment = SimulatedEnvironment()
    assert await environment.in_thread(threading.get_ident) == threading.get_ident()
    environment.exit_process(3)
    assert environment.exit_code == 3
    assert environment.wall() == environment.epoch + trio.current_time()

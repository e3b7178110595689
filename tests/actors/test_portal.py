"""Calls into the runtime from threads, asyncio, signal handlers and forked processes."""

from __future__ import annotations

import asyncio
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import outcome
import pytest
import trio

from sapwood.actors import ActorSystem, LoopThread, MailboxOptions, Portal, Ref, open_system, start_in_thread
from sapwood.errors import (
    ActorDown,
    AskTimeout,
    InvalidMessage,
    InvalidOption,
    MailboxFull,
    RuntimeClosed,
    SelfAsk,
    WrongThread,
)
from tests.actors.kit import Call, Do, Note, Probe, SlowCall, SlowDo, StopNotes, later, settle, until

ROOT = Path(__file__).parents[2]
T = TypeVar("T")
trace: ContextVar[str] = ContextVar("trace", default="no trace")


@pytest.fixture
def loop() -> Iterator[LoopThread[ActorSystem]]:
    with start_in_thread(open_system) as loop:
        yield loop


@pytest.fixture
def ref(loop: LoopThread[ActorSystem]) -> Ref:
    return loop.portal.call(loop.value.spawn, Probe)


def log(portal: Portal, ref: Ref) -> list[Any]:
    return list(portal.call(ref.get_state)["log"])


def in_threads(*functions: Callable[[], object]) -> None:
    """Run functions in threads of their own, and wait; raise what one of them raised."""
    ends: queue.SimpleQueue[outcome.Outcome[object]] = queue.SimpleQueue()

    def run(function: Callable[[], object]) -> None:
        ends.put(outcome.capture(function))

    threads = [threading.Thread(target=run, args=(function,)) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive(), "a call hangs"
    for _ in threads:
        ends.get().unwrap()


async def never() -> None:
    await trio.sleep_forever()


@pytest.mark.row("BR-76")
class TestFromThreads:
    def test_told_messages_of_each_thread_arrive_once_and_in_order(
        self, loop: LoopThread[ActorSystem], ref: Ref
    ) -> None:
        def tell(thread: int) -> None:
            for number in range(200):
                loop.portal.tell(ref, Note((thread, number)))

        in_threads(*(partial(tell, thread) for thread in range(4)))
        entries = log(loop.portal, ref)
        assert len(entries) == 800
        for thread in range(4):
            assert [number for who, number in entries if who == thread] == list(range(200))

    def test_tells_asks_and_calls_of_one_thread_keep_their_order(self, loop: LoopThread[ActorSystem], ref: Ref) -> None:
        for number in range(50):
            loop.portal.tell(ref, Note(number))
            assert loop.portal.ask(ref, Call(lambda actor: len(actor.log))) == number + 1
            assert len(log(loop.portal, ref)) == number + 1

    def test_an_idle_loop_is_woken_at_once(self, loop: LoopThread[ActorSystem], ref: Ref) -> None:
        # With nothing to do the loop sleeps for a day; a message that did not wake it would not come.
        arrived = threading.Event()
        loop.portal.call(settle)
        loop.portal.tell(ref, Do(lambda actor: arrived.set()))
        assert arrived.wait(10)

    def test_an_ask_returns_the_answer_or_raises_what_it_would_raise_inside(
        self, loop: LoopThread[ActorSystem], ref: Ref
    ) -> None:
        portal = loop.portal
        assert portal.ask(ref, Call(lambda actor: 42)) == 42
        with pytest.raises(AskTimeout):
            portal.ask(ref, Call(lambda actor: actor.reply_later()), timeout=0.001)
        with pytest.raises(ActorDown, match="ZeroDivisionError"):
            portal.ask(ref, Call(lambda actor: 1 / 0))
        with pytest.raises(ActorDown):
            portal.ask(ref, Call(lambda actor: 1))

    def test_a_call_runs_an_async_function_in_the_loop_and_passes_its_error_on(
        self, loop: LoopThread[ActorSystem]
    ) -> None:
        async def where() -> int:
            await trio.lowlevel.checkpoint()
            return threading.get_ident()

        assert loop.portal.call(where) == loop.value.thread
        with pytest.raises(LookupError, match="of the caller"):
            loop.portal.call(later, _raise, LookupError("of the caller"))
        assert loop.portal.call(where) == loop.value.thread

    @pytest.mark.parametrize("bad", [{"x": 1}, Note, None, Note(1)])
    def test_bad_input_is_refused_in_the_calling_thread(
        self, loop: LoopThread[ActorSystem], ref: Ref, bad: Any
    ) -> None:
        with pytest.raises(InvalidMessage):
            loop.portal.ask(ref, bad)
        with pytest.raises(InvalidMessage):
            loop.portal.tell(ref, bad if not isinstance(bad, Note) else Note(1), priority="high")  # type: ignore[arg-type]  # the mistake
        with pytest.raises(InvalidOption, match="seconds >= 0"):
            loop.portal.ask(ref, Call(lambda actor: 1), timeout=-1)
        assert log(loop.portal, ref) == []

    def test_a_ref_of_another_runtime_is_refused(self, loop: LoopThread[ActorSystem], ref: Ref) -> None:
        with start_in_thread(open_system) as other, pytest.raises(InvalidOption, match="its own runtime"):
            other.portal.tell(ref, Note(1))

    def test_a_full_mailbox_makes_a_told_message_a_dead_letter_and_raises_in_an_ask(
        self, loop: LoopThread[ActorSystem]
    ) -> None:
        portal, system = loop.portal, loop.value
        full = portal.call(partial(system.spawn, mailbox=MailboxOptions(capacity=1)), Probe)
        gate = portal.call(later, trio.Event)
        portal.tell(full, SlowDo(lambda actor: gate.wait()))
        portal.call(settle)
        portal.tell(full, Note("fills it"))
        portal.tell(full, Note("no room"))
        with pytest.raises(MailboxFull):
            portal.ask(full, Call(lambda actor: 1))
        letters = portal.call(later, list, system.telemetry.dead_letters)
        assert [(letter.message, letter.reason) for letter in letters] == [(Note("no room"), "overflow")]

        sent = threading.Thread(target=portal.call, args=(full.send, Note("waited for room")))
        sent.start()
        portal.call(later, gate.set)
        sent.join(10)
        assert log(portal, full) == ["fills it", "waited for room"]

    def test_a_plain_ref_is_refused_outside_its_thread_and_nothing_is_queued(
        self, loop: LoopThread[ActorSystem], ref: Ref
    ) -> None:
        uses: list[Callable[[], Any]] = [
            lambda: ref.tell(Note(1)),
            lambda: ref.tell(Note(1), priority=None),
            ref.kill,
            lambda: ref.exit(_normal()),
        ]
        asynchronous: list[Callable[[], Any]] = [
            partial(ref.ask, Call(lambda actor: 1)),
            partial(ref.send, Note(1)),
            ref.stop,
            ref.wait_stopped,
            ref.get_state,
            ref.suspend,
        ]

        def check() -> None:
            for use in uses:
                with pytest.raises(WrongThread, match=r"portal\.(tell|call)"):
                    use()
            for use in asynchronous:
                with pytest.raises(WrongThread, match=r"portal\.(ask|call)"):
                    trio.run(use)

        in_threads(check, lambda: trio.run(partial(trio.to_thread.run_sync, check)))
        check()
        assert log(loop.portal, ref) == []

    def test_a_reply_is_refused_outside_the_thread(self, loop: LoopThread[ActorSystem], ref: Ref) -> None:
        replies: list[Any] = []
        waiting = threading.Thread(
            target=loop.portal.ask, args=(ref, Call(lambda actor: replies.append(actor.reply_later())))
        )
        waiting.start()
        while not replies:
            loop.portal.call(settle)
        with pytest.raises(WrongThread, match=r"portal\.call"):
            replies[0](1)

        loop.portal.call(later, replies[0], 1)
        waiting.join(10)
        assert not waiting.is_alive()


def _raise(error: BaseException) -> None:
    raise error


def _normal() -> Any:
    from sapwood.actors import Normal

    return Normal()


@pytest.mark.row("BR-76")
class TestFromWithin:
    async def test_what_would_block_the_loop_is_refused_in_its_own_thread_with_advice(self) -> None:
        async with open_system() as system:
            ref = await system.spawn(Probe)
            with pytest.raises(WrongThread, match=r"await ref\.ask\(request\)"):
                system.portal.ask(ref, Call(lambda actor: 1))
            with pytest.raises(WrongThread, match="await the function itself"):
                system.portal.call(ref.get_state)
            with pytest.raises(WrongThread, match=r"await ref\.ask\(request\)"):
                await system.portal.aask(ref, Call(lambda actor: 1))
            with pytest.raises(WrongThread):
                await system.portal.acall(ref.get_state)
            system.portal.tell(ref, Note("a tell does not block"))
            await until(lambda: ref.statistics().handled)

    async def test_a_worker_thread_of_the_loop_may_ask_and_call(self) -> None:
        async with open_system() as system:
            ref = await system.spawn(Probe)

            def work() -> Any:
                system.portal.tell(ref, Note(1))
                return system.portal.ask(ref, Call(lambda actor: list(actor.log)))

            assert await trio.to_thread.run_sync(work) == [1]

    @pytest.mark.row("BR-13")
    async def test_a_thread_that_an_actor_waits_for_cannot_ask_that_actor(self) -> None:
        async with open_system() as system:
            ref = await system.spawn(Probe)

            def work() -> str:
                with pytest.raises(SelfAsk):
                    system.portal.ask(ref, Call(lambda actor: 1), timeout=None)
                return "told at once"

            async def handler(actor: Any) -> str:
                return await trio.to_thread.run_sync(work)

            assert await ref.ask(SlowCall(handler)) == "told at once"

    def test_another_trio_loop_is_not_blocked(self, loop: LoopThread[ActorSystem], ref: Ref) -> None:
        async def main() -> Any:
            with pytest.raises(WrongThread, match=r"await trio\.to_thread\.run_sync\(portal\.ask"):
                loop.portal.ask(ref, Call(lambda actor: 1))
            return await trio.to_thread.run_sync(loop.portal.ask, ref, Call(lambda actor: 1))

        assert trio.run(main) == 1


@pytest.mark.row("BR-76")
class TestFromAsyncio:
    def test_asyncio_tasks_ask_call_and_tell_without_blocking_their_loop(
        self, loop: LoopThread[ActorSystem], ref: Ref
    ) -> None:
        portal = loop.portal

        async def main() -> tuple[Any, ...]:
            portal.tell(ref, Note(1))
            first = portal.aask(ref, Call(lambda actor: list(actor.log)))
            second = portal.acall(ref.get_state)
            return (*await asyncio.gather(first, second), await portal.aask(ref, Call(lambda actor: "answer")))

        assert asyncio.run(main()) == ([1], {"log": [1]}, "answer")

    def test_errors_come_to_the_asyncio_task(self, loop: LoopThread[ActorSystem], ref: Ref) -> None:
        async def main() -> None:
            with pytest.raises(AskTimeout):
                await loop.portal.aask(ref, Call(lambda actor: actor.reply_later()), timeout=0.001)
            with pytest.raises(ActorDown):
                await loop.portal.aask(ref, Call(lambda actor: 1 / 0))

        asyncio.run(main())

    def test_cancelling_the_asyncio_task_gives_the_ask_up_and_cancels_the_call(
        self, loop: LoopThread[ActorSystem], ref: Ref
    ) -> None:
        portal = loop.portal
        cancelled = threading.Event()

        async def function() -> None:
            try:
                await trio.sleep_forever()
            finally:
                cancelled.set()

        async def main() -> None:
            asks = [
                asyncio.create_task(portal.aask(ref, Call(lambda actor: actor.reply_later()), timeout=None)),
                asyncio.create_task(portal.acall(function)),
            ]
            await portal.acall(_pending_replies_are, ref, 1)
            for ask in asks:
                ask.cancel()
            await asyncio.gather(*asks, return_exceptions=True)
            assert [ask.cancelled() for ask in asks] == [True, True]
            await portal.acall(_pending_replies_are, ref, 0)

        asyncio.run(main())
        assert cancelled.wait(10)
        assert loop.portal.call(later, len, loop.portal._waiting) == 1

    def test_blocking_calls_are_refused_in_an_asyncio_loop_with_advice(
        self, loop: LoopThread[ActorSystem], ref: Ref
    ) -> None:
        async def main() -> None:
            with pytest.raises(WrongThread, match=r"await portal\.aask\(ref, request\)"):
                loop.portal.ask(ref, Call(lambda actor: 1))
            with pytest.raises(WrongThread, match=r"await portal\.acall\(function"):
                loop.portal.call(ref.get_state)
            await asyncio.sleep(0)

        asyncio.run(main())

    def test_asyncio_calls_are_refused_where_no_asyncio_loop_runs(
        self, loop: LoopThread[ActorSystem], ref: Ref
    ) -> None:
        coroutine = loop.portal.aask(ref, Call(lambda actor: 1))
        with pytest.raises(WrongThread, match=r"portal\.ask\(\.\.\.\)"):
            coroutine.send(None)

    def test_a_runtime_that_is_guest_of_an_asyncio_loop_is_asked_from_its_tasks(self) -> None:
        async def main() -> Any:
            here = asyncio.get_running_loop()
            ready: asyncio.Future[tuple[ActorSystem, Ref, trio.Event]] = here.create_future()
            ended: asyncio.Future[Any] = here.create_future()

            async def guest() -> None:
                async with open_system() as system:
                    done = trio.Event()
                    ready.set_result((system, await system.spawn(Probe), done))
                    await done.wait()

            trio.lowlevel.start_guest_run(
                guest,
                run_sync_soon_threadsafe=here.call_soon_threadsafe,
                done_callback=ended.set_result,
                host_uses_signal_set_wakeup_fd=True,
            )
            system, ref, done = await ready
            system.portal.tell(ref, Note(1))
            answer = await system.portal.aask(ref, Call(lambda actor: list(actor.log)))
            with pytest.raises(WrongThread):
                system.portal.ask(ref, Call(lambda actor: 1))
            done.set()
            (await ended).unwrap()
            with pytest.raises(RuntimeClosed):
                system.portal.tell(ref, Note(2))
            return answer

        assert asyncio.run(main()) == [1]


async def _pending_replies_are(ref: Ref, number: int) -> None:
    await until(lambda: ref.statistics().pending_replies == number)


@pytest.mark.row("BR-76")
class TestAfterTheEnd:
    def test_every_call_raises_runtime_closed(self) -> None:
        with start_in_thread(open_system) as loop:
            ref = loop.portal.call(loop.value.spawn, Probe)
        portal = loop.portal
        for use in (
            lambda: portal.tell(ref, Note(1)),
            lambda: portal.ask(ref, Call(lambda actor: 1)),
            lambda: portal.call(never),
            lambda: asyncio.run(portal.acall(never)),
            lambda: ref.tell(Note(1)),
        ):
            with pytest.raises(RuntimeClosed):
                use()

    @pytest.mark.parametrize("attempt", range(10))
    def test_calls_that_wait_when_the_runtime_stops_end_and_none_hangs(self, attempt: int) -> None:
        loop = start_in_thread(open_system)
        ref = loop.portal.call(loop.value.spawn, Probe)
        ends: queue.SimpleQueue[str] = queue.SimpleQueue()
        begun = threading.Barrier(13)

        def use(function: Callable[[], object]) -> None:
            begun.wait(10)
            try:
                while True:
                    function()
            except (RuntimeClosed, ActorDown) as error:
                ends.put(type(error).__name__)

        async def aask_forever() -> None:
            begun.wait(10)
            with suppress(RuntimeClosed, ActorDown):
                while True:
                    await loop.portal.aask(ref, Call(lambda actor: actor.reply_later()), timeout=None)
            ends.put("asyncio")

        uses: list[Callable[[], object]] = [
            *([partial(use, lambda: loop.portal.ask(ref, Call(lambda actor: actor.reply_later()), timeout=None))] * 3),
            *([partial(use, lambda: loop.portal.ask(ref, Call(lambda actor: 1)))] * 3),
            *([partial(use, lambda: loop.portal.call(never))] * 3),
            *([partial(use, lambda: loop.portal.tell(ref, Note(1)))] * 2),
            lambda: asyncio.run(aask_forever()),
        ]

        def stop() -> None:
            begun.wait(10)
            for _ in range(3 * attempt):
                loop.portal.call(trio.lowlevel.checkpoint)
            assert loop.stop(20)

        in_threads(*uses, stop)
        assert ends.qsize() == 12

    async def test_closing_the_portal_ends_a_call_whoever_it_waits_for(self) -> None:
        async with open_system() as system:
            ref = await system.spawn(Probe)

            def work() -> str:
                with pytest.raises(RuntimeClosed):
                    system.portal.ask(ref, Call(lambda actor: actor.reply_later()), timeout=None)
                return "ended"

            async with trio.open_nursery() as nursery:
                ends: list[str] = []

                async def wait() -> None:
                    ends.append(await trio.to_thread.run_sync(work))

                nursery.start_soon(wait)
                await _pending_replies_are(ref, 1)
                system.portal.close()
            assert ends == ["ended"]
            assert ref.alive

    def test_a_told_message_that_came_too_late_is_a_dead_letter(self) -> None:
        letters: list[Any] = []

        async def main() -> None:
            async with open_system() as system:
                ref = await system.spawn(Probe)
                system.portal.tell(ref, Note("too late"))
            await settle()
            letters.extend(system.telemetry.dead_letters)

        trio.run(main)
        [letter] = letters
        assert letter.message == Note("too late")
        # It came after the end of its actor, or waited when the actor was killed.
        assert letter.reason in {"dead", "unread"}


@pytest.mark.row("BR-76", "BR-70")
class TestContexts:
    def test_calls_and_messages_bring_the_context_of_their_thread(self) -> None:
        def look(_actor: Any = None) -> str:
            return trace.get()

        async def look_later() -> str:
            await trio.lowlevel.checkpoint()
            return trace.get()

        with start_in_thread(partial(open_system, propagate=(trace,))) as loop:
            portal = loop.portal
            ref = portal.call(loop.value.spawn, Probe)

            def work(name: str) -> None:
                trace.set(name)
                for _ in range(20):
                    assert portal.ask(ref, Call(look)) == name
                    assert portal.call(look_later) == name
                    portal.tell(ref, Do(lambda actor: actor.log.append((name, look()))))

            in_threads(partial(work, "one"), partial(work, "two"))
            entries = log(portal, ref)
        assert len(entries) == 40
        assert all(name == found for name, found in entries)


@pytest.mark.row("BR-76")
class TestSignalsAndForks:
    def test_a_signal_handler_may_tell_through_the_portal_also_in_the_loops_own_thread(self) -> None:
        handled: list[Any] = []

        async def main() -> None:
            async with open_system() as system:
                ref = await system.spawn(Probe)

                def on_signal(number: int, frame: Any) -> None:
                    handled.append(_error_of(lambda: system.portal.ask(ref, Call(lambda actor: 1))))
                    system.portal.tell(ref, Note(number))

                before = signal.signal(signal.SIGUSR1, on_signal)
                try:
                    for _ in range(20):
                        os.kill(os.getpid(), signal.SIGUSR1)
                        await trio.lowlevel.checkpoint()
                    await until(lambda: ref.statistics().handled == 20)
                finally:
                    signal.signal(signal.SIGUSR1, before)

        trio.run(main)
        assert handled == ["WrongThread"] * 20

    def test_a_forked_process_is_refused_with_a_clear_error(self) -> None:
        program = """
import os, sys, warnings
warnings.simplefilter("ignore")
import trio
from sapwood.actors import open_system, start_in_thread
from sapwood.errors import WrongThread
from tests.actors.kit import Call, Note, Probe

with start_in_thread(open_system) as loop:
    ref = loop.portal.call(loop.value.spawn, Probe)
    child = os.fork()
    if child == 0:
        refused = 0
        for use in (
            lambda: loop.portal.tell(ref, Note(1)),
            lambda: loop.portal.ask(ref, Call(lambda actor: 1)),
            lambda: loop.portal.call(ref.get_state),
            lambda: ref.tell(Note(1)),
            lambda: trio.run(ref.get_state),
        ):
            try:
                use()
            except WrongThread as error:
                assert "forked" in str(error), error
                refused += 1

        async def own() -> int:
            async with open_system() as system:
                return await (await system.spawn(Probe)).ask(Call(lambda actor: 7))

        os._exit(refused * 10 + trio.run(own))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(code, loop.portal.ask(ref, Call(lambda actor: list(actor.log))))
"""
        assert _run(program) == "57 []\n"


def _error_of(function: Callable[[], object]) -> str:
    try:
        function()
    except WrongThread as error:
        return type(error).__name__
    return "no error"


def _run(program: str, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == code, done.stderr
    return done.stdout


class TestLoopThread:
    def test_leaving_the_block_closes_the_context_manager_in_order_in_its_own_thread(self) -> None:
        order: list[Any] = []

        @asynccontextmanager
        async def opening() -> AsyncGenerator[ActorSystem]:
            order.append(("open", threading.get_ident()))
            async with open_system() as system:
                yield system
                order.append(("close", threading.get_ident()))

        with start_in_thread(opening) as loop:
            thread = loop.value.thread
            ends: list[Any] = []
            loop.portal.call(loop.value.spawn, StopNotes, ends)
            assert loop.running
        assert order == [("open", thread), ("close", thread)]
        assert not loop.running
        assert thread != threading.get_ident()
        assert loop.stop() is True

    def test_what_the_context_manager_raises_when_it_opens_comes_to_the_caller(self) -> None:
        def opening() -> AbstractAsyncContextManager[ActorSystem]:
            raise LookupError("cannot open")

        before = threading.active_count()
        with pytest.raises(LookupError, match="cannot open"):
            start_in_thread(opening)
        assert threading.active_count() == before

    def test_an_error_that_ends_the_loop_is_raised_where_it_is_stopped(self) -> None:
        @asynccontextmanager
        async def opening() -> AsyncGenerator[ActorSystem]:
            async with open_system() as system:
                yield system
                raise LookupError("while closing")

        loop = start_in_thread(opening)
        with pytest.raises(LookupError, match="while closing"):
            loop.stop()

    def test_a_loop_that_ended_by_itself_says_why(self) -> None:
        def use() -> None:
            with start_in_thread(open_system) as loop:
                with pytest.raises(MemoryError):
                    loop.portal.call(later, _raise, MemoryError("the run ends"))
                loop._thread.join(10)
                loop.portal.call(never)

        with pytest.raises(MemoryError, match="the run ends"):
            use()

    def test_an_error_of_the_block_is_not_hidden(self) -> None:
        with pytest.raises(KeyError, match="of the block"), start_in_thread(open_system):
            raise KeyError("of the block")

    def test_a_stop_that_takes_too_long_says_so_and_goes_on(self) -> None:
        release = threading.Event()

        @asynccontextmanager
        async def opening() -> AsyncGenerator[ActorSystem]:
            async with open_system() as system:
                yield system
                await trio.to_thread.run_sync(release.wait)

        loop = start_in_thread(opening)
        assert loop.stop(0.01) is False
        release.set()
        assert loop.stop(20) is True

    def test_a_program_that_forgets_to_stop_is_stopped_in_order_and_ends(self) -> None:
        program = """
from contextlib import asynccontextmanager
from sapwood.actors import open_system, start_in_thread

@asynccontextmanager
async def opening():
    async with open_system() as system:
        yield system
        print("closed in order")

loop = start_in_thread(opening)
assert not loop._thread.daemon
print("end of the program")
"""
        assert _run(program) == "end of the program\nclosed in order\n"

"""Carried context: declared context variables travel with messages, and nothing else leaks."""

from __future__ import annotations

import contextvars
from collections.abc import AsyncIterator
from contextvars import ContextVar
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from sapwood.actors import (
    ActorSystem,
    Continue,
    Down,
    Exit,
    ExitReason,
    MailboxOptions,
    Ref,
    TaskDone,
    handle,
    open_system,
)
from sapwood.errors import ActorDown, InvalidOption
from tests.actors.kit import (
    Call,
    Do,
    Note,
    Probe,
    SlowCall,
    SlowDo,
    Stranger,
    Way,
    ask_by,
    end_of,
    log_of,
    settle,
    sleeping,
    ways,
)

trace: ContextVar[str] = ContextVar("trace")
tenant: ContextVar[str] = ContextVar("tenant", default="nobody")
undeclared: ContextVar[str] = ContextVar("undeclared", default="unset")


def seen(_actor: Any = None) -> tuple[str, str]:
    """Return the values of the declared variables here."""
    return (trace.get("no trace"), tenant.get())


NOTHING = ("no trace", "nobody")


@pytest.fixture
async def carrying(autojump_clock: MockClock) -> AsyncIterator[ActorSystem]:
    assert trio.lowlevel.current_clock() is autojump_clock, "the test must take autojump_clock too"
    async with open_system(propagate=(trace, tenant)) as system:
        yield system
    assert system.busy == 1


def traced(value: str, function: Any, *args: Any, **options: Any) -> Any:
    """Call a function with the trace set, and leave the present context as it is."""

    def call() -> Any:
        trace.set(value)
        return function(*args, **options)

    return contextvars.copy_context().run(call)


async def ask_traced(value: str, way: Way, ref: Ref, function: Any) -> Any:
    """Ask with the trace set."""
    token = trace.set(value)
    try:
        return await ask_by(way, ref, function)
    finally:
        trace.reset(token)


@pytest.mark.row("BR-70")
class TestMessages:
    @ways
    async def test_a_request_brings_the_values_of_its_sender(
        self, autojump_clock: MockClock, carrying: ActorSystem, way: Way
    ) -> None:
        ref = await carrying.spawn(Probe)
        assert await ask_traced("one", way, ref, seen) == ("one", "nobody")
        assert await ask_traced("two", way, ref, seen) == ("two", "nobody")
        assert await ask_by(way, ref, seen) == NOTHING

    async def test_an_inline_ask_stays_inline(self, autojump_clock: MockClock, carrying: ActorSystem) -> None:
        ref = await carrying.spawn(Probe)
        here = trio.lowlevel.current_task()
        assert await ask_traced("one", Way.INLINE, ref, lambda actor: trio.lowlevel.current_task()) is here

    @pytest.mark.parametrize("bounded", [False, True])
    async def test_told_and_sent_messages_bring_the_values_of_the_moment_they_were_sent(
        self, autojump_clock: MockClock, carrying: ActorSystem, bounded: Any
    ) -> None:
        ref = await carrying.spawn(Probe, mailbox=MailboxOptions(capacity=2) if bounded else None)
        note = Do(lambda actor: actor.log.append(seen()))

        async def slowly(actor: Any) -> None:
            before = seen()
            await trio.sleep(1)
            assert seen() == before
            actor.log.append(seen())

        async def send(value: str) -> None:
            trace.set(value)
            await ref.send(SlowDo(slowly))

        traced("told", ref.tell, note)
        ref.tell(note)
        await settle()
        async with trio.open_nursery() as nursery:
            for value in ("a", "b", "c", "d"):
                nursery.start_soon(send, value)
                await settle()
        log = [name for name, _ in await log_of(ref)]
        assert log == ["told", "no trace", "a", "b", "c", "d"]

    @ways
    async def test_what_a_handler_sets_does_not_leak_into_the_next_message(
        self, autojump_clock: MockClock, carrying: ActorSystem, way: Way
    ) -> None:
        def handler(actor: Any) -> tuple[str, str]:
            before = seen()
            trace.set("leak")
            tenant.set("leak")
            undeclared.set("leak")
            return before

        ref = await carrying.spawn(Probe)
        assert await ask_by(way, ref, handler) == NOTHING
        for next_way in Way:
            assert await ask_by(next_way, ref, seen) == NOTHING
            assert await ask_by(next_way, ref, lambda actor: undeclared.get()) == "unset"
        assert seen() == NOTHING

    @ways
    async def test_the_callers_context_is_left_alone(
        self, autojump_clock: MockClock, carrying: ActorSystem, way: Way
    ) -> None:
        ref = await carrying.spawn(Probe)
        token = trace.set("caller")
        await ask_by(way, ref, lambda actor: trace.set("handler"))
        assert trace.get() == "caller"
        trace.reset(token)

    async def test_values_go_on_through_a_chain_of_actors(
        self, autojump_clock: MockClock, carrying: ActorSystem
    ) -> None:
        last, middle = await carrying.spawn(Probe), await carrying.spawn(Probe)

        async def forward(actor: Any) -> Any:
            return await last.ask(Call(seen))

        assert await ask_traced("chain", Way.INLINE, last, seen) == ("chain", "nobody")
        token = trace.set("chain")
        assert await middle.ask(SlowCall(forward)) == ("chain", "nobody")
        trace.reset(token)

    async def test_interleaved_requests_of_two_callers_do_not_mix(
        self, autojump_clock: MockClock, carrying: ActorSystem
    ) -> None:
        ref = await carrying.spawn(Probe)
        answers: list[tuple[str, Any]] = []

        async def slowly(actor: Any) -> Any:
            await trio.sleep(0.1)
            return seen()

        async def caller(name: str) -> None:
            trace.set(name)
            answers.extend([(name, await ref.ask(SlowCall(slowly))) for _ in range(5)])

        async with trio.open_nursery() as nursery:
            nursery.start_soon(caller, "one")
            nursery.start_soon(caller, "two")
        assert all(answer == (name, "nobody") for name, answer in answers)
        assert len(answers) == 10


@pytest.mark.row("BR-70")
class TestOtherCallbacks:
    async def test_timers_bring_the_values_of_their_creation(
        self, autojump_clock: MockClock, carrying: ActorSystem
    ) -> None:
        ref = await carrying.spawn(Probe)
        note = Do(lambda actor: actor.log.append(trace.get("no trace")))
        await ask_traced("after", Way.INLINE, ref, lambda actor: actor.send_after(1, note))
        await ask_traced("every", Way.ASYNC, ref, lambda actor: actor.send_every(2, note))
        await trio.sleep(4.5)
        assert await log_of(ref) == ["after", "every", "every"]

    async def test_tasks_inherit_the_values_and_so_does_the_news_of_their_end(
        self, autojump_clock: MockClock, carrying: ActorSystem
    ) -> None:
        class Noting(Probe):
            @handle
            def notice(self, message: Down | Exit | TaskDone) -> None:
                value = message.value if isinstance(message, TaskDone) else None
                self.log.append((value, trace.get("no trace")))

        async def task() -> str:
            await trio.sleep(1)
            value = trace.get()
            trace.set("of the task alone")
            return value

        ref = await carrying.spawn(Noting)
        await ask_traced("task", Way.INLINE, ref, lambda actor: actor.start_task(task))
        await trio.sleep(2)
        assert await log_of(ref) == [("task", "task")]

    async def test_threads_see_the_values_of_the_message(
        self, autojump_clock: MockClock, carrying: ActorSystem
    ) -> None:
        async def handler(actor: Any) -> Any:
            return await trio.to_thread.run_sync(seen)

        ref = await carrying.spawn(Probe)
        token = trace.set("thread")
        assert await ref.ask(SlowCall(handler), timeout=None) == ("thread", "nobody")
        trace.reset(token)

    async def test_a_nursery_in_a_handler_sees_the_values_of_the_message(
        self, autojump_clock: MockClock, carrying: ActorSystem
    ) -> None:
        async def handler(actor: Any) -> list[Any]:
            found: list[Any] = []

            async def look() -> None:
                await trio.lowlevel.checkpoint()
                found.append(seen())

            async with trio.open_nursery() as nursery:
                nursery.start_soon(look)
                nursery.start_soon(look)
            return found

        ref = await carrying.spawn(Probe)
        token = trace.set("nursery")
        assert await ref.ask(SlowCall(handler)) == [("nursery", "nobody")] * 2
        trace.reset(token)

    async def test_the_start_sees_the_values_of_the_starter_and_later_callbacks_do_not(
        self, autojump_clock: MockClock, carrying: ActorSystem
    ) -> None:
        class Starting(Probe):
            def __init__(self) -> None:
                super().__init__()
                self.log.append(("init", trace.get("no trace")))

            def on_start(self) -> Any:
                self.log.append(("start", trace.get("no trace")))
                undeclared.set("set at the start")

            def on_stop(self, reason: ExitReason) -> None:
                ends.append(trace.get("no trace"))

        class SlowStarting(Starting):
            async def on_start(self) -> Any:
                await trio.sleep(1)
                Starting.on_start(self)

        ends: list[str] = []
        token = trace.set("starter")
        refs = [await carrying.spawn(Starting), await carrying.spawn(SlowStarting)]
        trace.reset(token)
        for ref in refs:
            assert await log_of(ref) == [("init", "starter"), ("start", "starter")]
            for way in Way:
                assert await ask_by(way, ref, seen) == NOTHING
                # What is not declared and was set at the start belongs to the actor.
                assert await ask_by(way, ref, lambda actor: undeclared.get()) == "set at the start"
            await ref.stop()
        assert ends == ["no trace", "no trace"]

    @pytest.mark.parametrize("slow", [False, True])
    async def test_a_continuation_has_the_values_of_the_callback_that_asked_for_it(
        self, autojump_clock: MockClock, carrying: ActorSystem, slow: Any
    ) -> None:
        class Plain(Probe):
            def on_start(self) -> Continue:
                return Continue("start")

            def on_continue(self, token: Any) -> None:
                self.log.append((token, trace.get("no trace")))

        class Slow(Plain):
            async def on_continue(self, token: Any) -> None:  # type: ignore[override]  # hooks may be either
                await trio.sleep(1)
                Plain.on_continue(self, token)

        ref = await carrying.spawn(Slow if slow else Plain)
        await ask_traced("asked", Way.SWITCHED, ref, lambda actor: actor.continue_with("handler"))
        assert await log_of(ref) == [("start", "no trace"), ("handler", "asked")]


@pytest.mark.row("BR-70")
class TestDeadLetters:
    async def test_a_dead_letter_carries_the_values_that_its_message_had(
        self, autojump_clock: MockClock, carrying: ActorSystem
    ) -> None:
        ref = await carrying.spawn(Probe, mailbox=MailboxOptions(capacity=1, overflow="drop_newest"))
        traced("unhandled", ref.tell, Stranger())
        await settle()
        ref.tell(SlowDo(sleeping(1)))
        await settle()
        traced("unread", ref.tell, Note(1))
        traced("overflow", ref.tell, Note(2))
        ref.kill()
        await end_of(ref)
        traced("dead", ref.tell, Note(3))
        assert [(letter.reason, letter.context) for letter in carrying.telemetry.dead_letters] == [
            (reason, {"trace": reason}) for reason in ("unhandled", "overflow", "unread", "dead")
        ]


class TestWithoutDeclaredVariables:
    @pytest.mark.row("BR-70")
    @ways
    async def test_callbacks_run_in_their_actors_own_context(
        self, autojump_clock: MockClock, system: ActorSystem, way: Way
    ) -> None:
        token = undeclared.set("starter")
        ref = await system.spawn(Probe)
        undeclared.reset(token)
        assert await ask_by(way, ref, lambda actor: undeclared.get()) == "starter"
        await ask_by(way, ref, lambda actor: undeclared.set("actor"))
        assert undeclared.get() == "unset"
        for other in Way:
            assert await ask_by(other, ref, lambda actor: undeclared.get()) == "actor"

    async def test_only_context_variables_can_be_declared(self, autojump_clock: MockClock) -> None:
        with pytest.raises(InvalidOption, match="expected ContextVar objects"):
            async with open_system(propagate=("trace",)):  # type: ignore[arg-type]  # the mistake under test
                pass

    async def test_a_crash_in_a_carried_context_is_a_crash_like_any_other(
        self, autojump_clock: MockClock, carrying: ActorSystem
    ) -> None:
        for way in Way:
            ref = await carrying.spawn(Probe)
            with pytest.raises(ActorDown, match="ZeroDivisionError"):
                await ask_traced("crash", way, ref, lambda actor: 1 / 0)
            await end_of(ref)

    async def test_a_handler_in_a_carried_context_can_be_killed(
        self, autojump_clock: MockClock, carrying: ActorSystem
    ) -> None:
        ran: list[str] = []

        async def handler(actor: Any) -> None:
            try:
                await trio.sleep_forever()
            finally:
                ran.append(trace.get())

        ref = await carrying.spawn(Probe)
        traced("killed", ref.tell, SlowDo(handler))
        await settle()
        ref.kill()
        await end_of(ref)
        assert ran == ["killed"]

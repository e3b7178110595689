"""Asks: what the caller gets, and what it cannot do to anybody else."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from sapwood.actors import (
    Actor,
    ActorSystem,
    Crashed,
    CrashReport,
    Failure,
    Killed,
    MailboxOptions,
    Normal,
    Priority,
    Ref,
    Reply,
    Request,
    Shutdown,
    SimulatedEnvironment,
    handle,
    message,
    open_system,
)
from sapwood.errors import (
    ActorDown,
    AskCycle,
    AskTimeout,
    InvalidMessage,
    InvalidOption,
    MailboxFull,
    NotRunningInside,
    SelfAsk,
    UnhandledRequest,
)
from sapwood.testing import simulate
from tests.actors.kit import (
    Call,
    Do,
    Note,
    Probe,
    SlowCall,
    SlowDo,
    StopNotes,
    StrangeRequest,
    Way,
    adding,
    ask_by,
    cell_of,
    end_of,
    later,
    log_of,
    of_kind,
    pause,
    raising,
    record,
    settle,
    sleeping,
    until,
    ways,
)


@message("tests.actors.never")
class Never(Request[int]):
    """Never answered by `Silent`, and never handled by a sleeping actor."""


class Silent(Actor):
    """Takes over every reply and gives none."""

    def __init__(self) -> None:
        self.replies: list[Reply[int]] = []

    @handle
    def never(self, message: Never) -> None:
        self.replies.append(self.reply_later())


async def sleep(_actor: Any) -> None:
    await trio.sleep(1_000)


class TestAnswers:
    @ways
    async def test_the_caller_gets_what_the_handler_returns(
        self, autojump_clock: MockClock, system: ActorSystem, way: Way
    ) -> None:
        ref = await system.spawn(Probe)
        assert await ask_by(way, ref, lambda actor: 42) == 42
        assert await ask_by(way, ref, lambda actor: None) is None

    async def test_an_idle_actor_answers_in_the_callers_task_and_a_busy_one_in_its_own(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        ref = await system.spawn(Probe)
        here = trio.lowlevel.current_task()
        tasks = {way: await ask_by(way, ref, lambda actor: trio.lowlevel.current_task()) for way in Way}
        assert tasks[Way.INLINE] is here
        assert tasks[Way.SWITCHED] is tasks[Way.ASYNC] is cell_of(ref).task
        assert cell_of(ref).task is not here

    @ways
    async def test_a_failure_is_raised_in_the_caller_and_the_actor_goes_on(
        self, autojump_clock: MockClock, system: ActorSystem, way: Way
    ) -> None:
        ref = await system.spawn(Probe)
        with pytest.raises(KeyError, match="missing"):
            await ask_by(way, ref, lambda actor: Failure(KeyError("missing")))
        assert await ask_by(way, ref, lambda actor: "still here") == "still here"

    @ways
    async def test_a_request_is_never_handled_inside_another_one(
        self, autojump_clock: MockClock, system: ActorSystem, way: Way
    ) -> None:
        ref = await system.spawn(Probe)
        inside: list[str] = []

        async def slow(actor: Any) -> None:
            inside.append("slow begins")
            await trio.sleep(1)
            inside.append("slow ends")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ref.ask, SlowCall(slow))
            await settle()
            if way is Way.ASYNC:
                await ref.ask(SlowCall(inside_later(inside)))
            else:
                await ref.ask(Call(lambda actor: inside.append("other")))
        assert inside == ["slow begins", "slow ends", "other"]

    async def test_an_ask_keeps_its_place_behind_what_its_sender_told_before(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        ref = await system.spawn(Probe)
        for value in range(3):
            await settle()
            ref.tell(Note(value))
            assert await ref.ask(Call(lambda actor: list(actor.log))) == list(range(value + 1))

    @ways
    async def test_what_the_handler_tells_itself_comes_after_it(
        self, autojump_clock: MockClock, system: ActorSystem, way: Way
    ) -> None:
        ref = await system.spawn(Probe)

        def handler(actor: Any) -> list[Any]:
            actor.ref.tell(Note("later"))
            return list(actor.log)

        assert await ask_by(way, ref, handler) == []
        assert await log_of(ref) == ["later"]

    async def test_urgent_requests_overtake_waiting_messages(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        ref = await system.spawn(Probe)
        ref.tell(Note(1))
        assert await ref.ask(Call(lambda actor: list(actor.log)), priority=Priority.URGENT) == []
        assert await log_of(ref) == [1]

    @pytest.mark.row("I26")
    async def test_a_plain_handler_that_returns_a_coroutine_crashes_its_actor_with_a_lesson(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        async def forgotten() -> None: ...

        for way in (Way.INLINE, Way.SWITCHED):
            ref = await system.spawn(Probe)
            with pytest.raises(ActorDown, match="write async def"):
                await ask_by(way, ref, lambda actor: forgotten())
            assert isinstance(ref.exit_reason, Crashed)
            assert isinstance(ref.exit_reason.exception, InvalidMessage)

    @pytest.mark.row("I26")
    async def test_after_a_malformed_answer_on_stop_runs_and_the_caller_gets_the_reason(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        async def forgotten() -> None: ...

        ends: list[Any] = []
        ref = await system.spawn(StopNotes, ends)
        with pytest.raises(ActorDown) as caught:
            await ref.ask(Call(lambda actor: forgotten()))
        assert ends == [caught.value.reason]

    @pytest.mark.parametrize("bad", [Note(1), {"balance": 1}, None, Call, "read"])
    async def test_only_a_request_can_be_asked(self, autojump_clock: MockClock, system: ActorSystem, bad: Any) -> None:
        ref = await system.spawn(Probe)
        with pytest.raises(InvalidMessage, match="expected"):
            await ref.ask(bad)
        assert ref.statistics().waiting == 0

    @pytest.mark.parametrize("timeout", [-1, float("nan"), "5", [5]])
    @ways
    async def test_a_timeout_that_is_no_number_of_seconds_is_refused_on_every_path(
        self, autojump_clock: MockClock, system: ActorSystem, way: Way, timeout: Any
    ) -> None:
        ref = await system.spawn(Probe)
        called: list[int] = []
        with pytest.raises(InvalidOption, match="seconds >= 0"):
            await ask_by(way, ref, called.append, timeout=timeout)
        await settle()
        assert called == []


def inside_later(inside: list[str]) -> Any:
    async def function(actor: Any) -> None:
        await later(inside.append, "other")

    return function


class TestFailures:
    @pytest.mark.row("I06")
    async def test_an_ask_gives_up_after_5_seconds_naming_target_and_request_which_is_still_handled(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        ref = await system.spawn(Probe)
        ref.tell(SlowDo(sleeping(60)))
        began = trio.current_time()
        with pytest.raises(AskTimeout, match=r"Probe#1 did not answer Call within 5 s") as caught:
            await ref.ask(Call(adding("handled all the same")))
        assert trio.current_time() - began == pytest.approx(5)
        assert (caught.value.target, caught.value.request, caught.value.timeout) == ("Probe#1", "Call", 5.0)
        assert await ref.get_state(timeout=None) == {"log": ["handled all the same"]}

    @pytest.mark.row("I06")
    async def test_without_a_timeout_an_ask_waits_for_ever(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        ref = await system.spawn(Probe)
        ref.tell(SlowDo(sleeping(10**6)))
        assert await ref.ask(Call(lambda actor: "at last"), timeout=None) == "at last"

    @pytest.mark.row("I07")
    async def test_a_late_reply_is_dropped_and_counted(self, autojump_clock: MockClock, system: ActorSystem) -> None:
        async def handler(actor: Any) -> str:
            await trio.sleep(2)
            return "late"

        ref = await system.spawn(Probe)
        with pytest.raises(AskTimeout):
            await ref.ask(SlowCall(handler), timeout=1)
        await trio.sleep(5)
        assert system.statistics().late_replies == 1
        assert await ref.ask(Call(lambda actor: "next")) == "next"

    @pytest.mark.row("I08")
    async def test_asking_a_dead_actor_fails_at_once_with_its_reason(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        ref = await system.spawn(Probe)
        await ref.stop(Shutdown("done"))
        began = trio.current_time()
        with pytest.raises(ActorDown) as caught:
            await ref.ask(Call(lambda actor: 1), timeout=None)
        assert (caught.value.target, caught.value.reason) == ("Probe#1", Shutdown("done"))
        assert trio.current_time() == began

    @pytest.mark.row("I09")
    @ways
    async def test_the_crash_of_a_handler_is_its_actors_and_the_caller_gets_the_reason(
        self, autojump_clock: MockClock, system: ActorSystem, way: Way
    ) -> None:
        events = record(system)
        ref = await system.spawn(Probe)
        error = ValueError("broken")
        with pytest.raises(ActorDown) as caught:
            await ask_by(way, ref, raising(error))
        assert ref.exit_reason == caught.value.reason == Crashed(error)
        assert caught.value.__context__ is None
        [report] = of_kind(events, CrashReport)
        assert report.last_message == ("SlowCall" if way is Way.ASYNC else "Call")

    @pytest.mark.row("I09")
    @pytest.mark.parametrize("reason", [Normal(), Shutdown("now"), Killed()])
    async def test_a_waiting_caller_is_told_the_reason_whatever_it_is(
        self, autojump_clock: MockClock, system: ActorSystem, reason: Any
    ) -> None:
        ref = await system.spawn(Silent)
        async with trio.open_nursery() as nursery:

            async def ask() -> None:
                with pytest.raises(ActorDown) as caught:
                    await ref.ask(Never(), timeout=None)
                assert caught.value.reason == reason

            nursery.start_soon(ask)
            await settle()
            if reason == Killed():
                ref.kill()
            else:
                await ref.stop(reason)

    @pytest.mark.row("I09", "UP-42")
    async def test_every_request_that_waits_when_an_actor_stops_is_answered_with_its_end(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        ref = await system.spawn(Probe)
        ref.tell(SlowDo(sleep))
        answers: list[Any] = []

        async def ask() -> None:
            try:
                await ref.ask(Call(lambda actor: 1), timeout=None)
            except ActorDown as error:
                answers.append(error.reason)

        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(ask)
            await settle()
            ref.kill()
        assert answers == [Killed()] * 10
        assert system.statistics().actors == 0

    @pytest.mark.row("I09")
    @pytest.mark.parametrize("seed", range(60))
    def test_asks_raced_with_a_kill_all_end_in_every_interleaving(self, seed: int) -> None:
        async def main() -> None:
            async with open_system(SimulatedEnvironment(seed)) as system:
                ref = await system.spawn(Probe)
                ends: list[str] = []

                async def ask(way: Way) -> None:
                    try:
                        await ask_by_blindly(way, ref)
                        ends.append("answered")
                    except ActorDown as error:
                        ends.append(str(error.reason))

                async def kill() -> None:
                    for _ in range(system.environment.random.randrange(6)):
                        await trio.lowlevel.checkpoint()
                    ref.kill()

                async with trio.open_nursery() as nursery:
                    for way in [*Way, *Way]:
                        nursery.start_soon(ask, way)
                    nursery.start_soon(kill)
                assert len(ends) == 6
                assert set(ends) <= {"answered", "killed"}
                assert await end_of(ref) == Killed()
                await settle()
                assert system.busy == 1

        simulate(seed, main)

    @pytest.mark.row("I25")
    @ways
    async def test_a_request_without_a_handler_crashes_the_actor_and_the_caller_gets_that(
        self, autojump_clock: MockClock, system: ActorSystem, way: Way
    ) -> None:
        ref = await system.spawn(Probe)
        if way is not Way.INLINE:
            ref.tell(Note(1))
        with pytest.raises(ActorDown, match="no handler for StrangeRequest") as caught:
            await ref.ask(StrangeRequest())
        assert isinstance(caught.value.reason, Crashed)
        assert isinstance(caught.value.reason.exception, UnhandledRequest)


async def ask_by_blindly(way: Way, ref: Ref) -> None:
    async def slowly(actor: Any) -> int:
        await trio.lowlevel.checkpoint()
        return 1

    await ref.ask(SlowCall(slowly) if way is Way.ASYNC else Call(lambda actor: 1), timeout=None)


class TestCancellation:
    @ways
    async def test_a_cancelled_ask_leaves_the_target_as_it_is(
        self, autojump_clock: MockClock, system: ActorSystem, way: Way
    ) -> None:
        ref = await system.spawn(Probe)
        with trio.CancelScope() as scope:
            scope.cancel()
            await ask_by(way, ref, adding("handled"))
        assert scope.cancelled_caught
        # A caller that is cancelled already asks nothing, on no path.
        assert await log_of(ref) == []

    async def test_a_request_whose_caller_is_cancelled_while_it_waits_is_handled_and_its_answer_dropped(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        ref = await system.spawn(Probe)
        ref.tell(SlowDo(sleeping(10)))
        with trio.move_on_after(1):
            await ref.ask(Call(adding("handled")), timeout=None)
        await trio.sleep(20)
        assert await log_of(ref) == ["handled"]
        assert system.statistics().late_replies == 1

    @pytest.mark.parametrize("way", [Way.INLINE, Way.SWITCHED])
    async def test_a_reply_taken_over_by_a_cancelled_ask_is_harmless(
        self, autojump_clock: MockClock, system: ActorSystem, way: Way
    ) -> None:
        ref = await system.spawn(Silent)
        if way is Way.SWITCHED:
            ref.tell(Never())
        else:
            await settle()
        with trio.move_on_after(1):
            await ref.ask(Never(), timeout=None)
        reply = (await ref.get_state())["replies"][-1]
        assert reply(1) is False
        assert ref.statistics().pending_replies == 0

    async def test_an_actor_that_is_killed_by_its_own_handler_in_the_callers_task_dies_once(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        # The scope of the actor's task is cancelled while that task waits and the handler runs elsewhere.
        ref = await system.spawn(Probe)
        await ref.ask(SlowCall(pause))
        assert await ask_by(Way.INLINE, ref, lambda actor: actor.ref.kill() or "answered") == "answered"
        assert await end_of(ref) == Killed()
        await settle()
        assert system.busy == 1

    async def test_a_system_that_is_cancelled_by_a_handler_in_the_callers_task_closes(self) -> None:
        outcome: list[Any] = []
        refs: list[Ref] = []
        with trio.CancelScope() as scope:
            async with open_system() as system:
                ref = await system.spawn(Probe)
                refs.append(ref)
                await ref.ask(SlowCall(pause))
                await settle()
                outcome.append(await ref.ask(Call(lambda actor: scope.cancel())))
                await trio.sleep_forever()
        assert outcome == [None]
        assert refs[0].exit_reason == Killed()


class TestSelfAsksAndCycles:
    @pytest.mark.row("I10", "BR-13")
    async def test_an_actor_that_asks_itself_is_told_at_once_and_goes_on(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        ref = await system.spawn(Probe)

        async def handler(actor: Any) -> str:
            with pytest.raises(SelfAsk, match="Probe#1 asked itself Call"):
                await actor.ref.ask(Call(lambda actor: 1), timeout=None)
            with pytest.raises(SelfAsk):
                await actor.ref.stop()
            with pytest.raises(SelfAsk):
                await actor.ref.get_state()
            actor.ref.tell(Note("told"))
            return "refused"

        assert await ref.ask(SlowCall(handler)) == "refused"
        assert await log_of(ref) == ["told"]

    @pytest.mark.row("BR-13")
    async def test_a_task_beside_the_actor_may_ask_it(self, autojump_clock: MockClock, system: ActorSystem) -> None:
        ref = await system.spawn(Probe)

        async def beside() -> Any:
            return await ref.ask(Call(lambda actor: "answered"))

        await ref.ask(Call(lambda actor: actor.start_task(beside)))
        await settle()
        [done] = await log_of(ref)
        assert (done.value, done.reason) == ("answered", Normal())

    @pytest.mark.row("BR-14")
    @pytest.mark.parametrize("length", [2, 3, 5])
    async def test_a_circle_of_asks_is_named_at_once(
        self, autojump_clock: MockClock, system: ActorSystem, length: int
    ) -> None:
        refs = [await system.spawn(Probe) for _ in range(length)]
        began = trio.current_time()
        chains: list[tuple[str, ...]] = []

        def ask_on(index: int) -> Any:
            async def handler(actor: Any) -> Any:
                if index == length:
                    return None
                try:
                    return await refs[(index + 1) % length].ask(SlowCall(ask_on(index + 1)), timeout=None)
                except AskCycle as error:
                    chains.append(error.chain)
                    return "cycle"

            return handler

        assert await refs[0].ask(SlowCall(ask_on(0))) == "cycle"
        labels = [ref.label for ref in refs]
        assert chains == [(labels[-1], *labels)]
        assert trio.current_time() == began
        assert await refs[0].ask(Call(lambda actor: "unrelated")) == "unrelated"
        assert all(not cell_of(ref).asking for ref in refs)

    @pytest.mark.row("BR-14")
    async def test_a_refused_ask_of_a_circle_leaves_nothing_in_the_targets_mailbox(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        first, second = await system.spawn(Probe), await system.spawn(Probe)

        async def back(actor: Any) -> None:
            with pytest.raises(AskCycle):
                await first.ask(Call(adding("never")))
            # The caller goes on to wait for something else, which nobody may interrupt.
            await trio.sleep(10)

        await first.ask(SlowCall(lambda actor: second.ask(SlowCall(back), timeout=None)), timeout=None)
        await trio.sleep(10)
        assert await log_of(first) == []

    @pytest.mark.row("BR-14", "E17")
    async def test_an_actor_that_waits_for_an_end_cannot_be_asked_by_the_one_that_ends(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        class Asker(Probe):
            caught: str = ""

            async def on_stop(self, reason: Any) -> None:
                with pytest.raises(AskCycle) as caught:
                    await waiting.ask(Call(lambda actor: 1))
                Asker.caught = str(caught.value)

        waiting = await system.spawn(Probe)
        ending = await system.spawn(Asker)
        began = trio.current_time()
        await waiting.ask(SlowCall(lambda actor: ending.stop()))
        assert trio.current_time() == began
        assert "Asker#1 -> Probe#1 -> Asker#1" in Asker.caught

    async def test_two_actors_that_ask_each_other_without_waiting_in_a_handler_are_no_circle(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        first, second = await system.spawn(Probe), await system.spawn(Probe)

        async def ask(ref: Ref) -> Any:
            return await ref.ask(Call(lambda actor: actor.ref.label))

        await first.ask(Call(lambda actor: actor.start_task(ask, second)))
        await second.ask(Call(lambda actor: actor.start_task(ask, first)))
        await settle()
        assert [done.value for done in await log_of(first)] == ["Probe#2"]
        assert [done.value for done in await log_of(second)] == ["Probe#1"]


class TestRepliesLater:
    @pytest.mark.row("I12")
    @ways
    async def test_a_reply_can_be_given_later_while_other_messages_are_handled(
        self, autojump_clock: MockClock, system: ActorSystem, way: Way
    ) -> None:
        ref = await system.spawn(Probe)
        replies: list[Reply[Any]] = []
        answers: list[Any] = []

        async def ask() -> None:
            answers.append(await ask_by(way, ref, lambda actor: replies.append(actor.reply_later()), timeout=None))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await trio.sleep(1)
            assert await ref.ask(Call(lambda actor: "other")) == "other"
            assert ref.statistics().pending_replies == 1
            ref.tell(Do(lambda actor: replies[0]("from a later callback")))
        assert answers == ["from a later callback"]
        assert ref.statistics().pending_replies == 0

    @pytest.mark.row("I12")
    async def test_another_actor_that_holds_the_reply_can_answer(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        front, back = await system.spawn(Probe), await system.spawn(Probe)

        def forward(actor: Any) -> None:
            reply = actor.reply_later()
            back.tell(Do(lambda other: reply(other.ref.label)))

        assert await front.ask(Call(forward)) == "Probe#2"

    @pytest.mark.row("I12")
    @ways
    async def test_a_reply_given_at_once_counts_and_what_the_handler_returns_does_not(
        self, autojump_clock: MockClock, system: ActorSystem, way: Way
    ) -> None:
        ref = await system.spawn(Probe)

        def handler(actor: Any) -> str:
            actor.reply_later()("first")
            return "ignored"

        assert await ask_by(way, ref, handler) == "first"

    @pytest.mark.row("I13")
    @ways
    async def test_a_second_reply_is_dropped(self, autojump_clock: MockClock, system: ActorSystem, way: Way) -> None:
        ref = await system.spawn(Probe)
        results: list[bool] = []

        def handler(actor: Any) -> None:
            reply = actor.reply_later()
            results.extend([reply("one"), reply("two"), reply.fail(ValueError("three"))])

        assert await ask_by(way, ref, handler) == "one"
        assert results == [True, False, False]
        assert system.statistics().late_replies == 2

    @pytest.mark.row("I13")
    async def test_a_reply_to_a_dead_caller_is_harmless(self, autojump_clock: MockClock, system: ActorSystem) -> None:
        silent, caller = await system.spawn(Silent), await system.spawn(Probe)
        caller.tell(SlowDo(lambda actor: silent.ask(Never(), timeout=None)))
        await settle()
        caller.kill()
        await settle()
        [reply] = (await silent.get_state())["replies"]
        assert reply(1) is False
        assert silent.alive

    async def test_a_reply_may_be_an_error(self, autojump_clock: MockClock, system: ActorSystem) -> None:
        ref = await system.spawn(Probe)
        with pytest.raises(LookupError, match="no such"):
            await ref.ask(Call(lambda actor: actor.reply_later().fail(LookupError("no such"))))
        assert ref.alive

    async def test_a_told_request_has_a_reply_that_answers_nobody(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        ref = await system.spawn(Probe)
        ref.tell(Call(lambda actor: actor.log.append(actor.reply_later()(1))))
        assert await log_of(ref) == [False]

    async def test_a_task_beside_the_actor_cannot_take_over_the_reply_of_a_handler(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        ref = await system.spawn(Probe)

        async def handler(actor: Any) -> str:
            task = actor.start_task(later, actor.reply_later)
            await until(lambda: task.done)
            return "its own"

        assert await ref.ask(SlowCall(handler)) == "its own"
        [done] = await log_of(ref)
        assert isinstance(done.reason.exception, NotRunningInside)

    @pytest.mark.row("I15")
    @ways
    async def test_a_caller_that_was_not_answered_gets_the_stop_reason(
        self, autojump_clock: MockClock, system: ActorSystem, way: Way
    ) -> None:
        ref = await system.spawn(Probe)

        def handler(actor: Any) -> None:
            actor.reply_later()
            actor.stop(Shutdown("without a reply"))

        with pytest.raises(ActorDown) as caught:
            await ask_by(way, ref, handler)
        assert caught.value.reason == Shutdown("without a reply")

    @pytest.mark.row("I14")
    @ways
    async def test_stop_with_a_reply_winds_down_first_then_replies_then_ends(
        self, autojump_clock: MockClock, system: ActorSystem, way: Way
    ) -> None:
        order: list[str] = []

        class Leaving(Probe):
            async def on_stop(self, reason: Any) -> None:
                await trio.sleep(1)
                order.append(f"on_stop {reason}")

        ref = await system.spawn(Leaving)

        def handler(actor: Any) -> str:
            actor.stop(Shutdown("told so"))
            return "the value"

        order.append(await ask_by(way, ref, handler))
        assert order == ["on_stop shutdown (told so)", "the value"]
        assert await end_of(ref) == Shutdown("told so")

    @pytest.mark.row("I14")
    async def test_a_held_reply_is_not_given_by_an_actor_that_is_killed_while_it_winds_down(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        class Stuck(Probe):
            async def on_stop(self, reason: Any) -> None:
                await trio.sleep_forever()

        ref = await system.spawn(Stuck)
        async with trio.open_nursery() as nursery:

            async def ask() -> None:
                with pytest.raises(ActorDown) as caught:
                    await ref.ask(Call(lambda actor: actor.stop() or 1), timeout=None)
                assert caught.value.reason == Killed()

            nursery.start_soon(ask)
            await trio.sleep(1)
            ref.kill()

    @pytest.mark.row("I15")
    @ways
    async def test_a_crash_after_the_reply_was_taken_over_reaches_the_caller(
        self, autojump_clock: MockClock, system: ActorSystem, way: Way
    ) -> None:
        ref = await system.spawn(Probe)

        def handler(actor: Any) -> None:
            actor.reply_later()
            raise ValueError("after all")

        with pytest.raises(ActorDown, match="after all"):
            await ask_by(way, ref, handler)

    @ways
    async def test_a_crash_after_the_reply_was_given_does_not_take_it_back(
        self, autojump_clock: MockClock, system: ActorSystem, way: Way
    ) -> None:
        ref = await system.spawn(Probe)

        def handler(actor: Any) -> None:
            actor.reply_later()("given")
            raise ValueError("too late")

        assert await ask_by(way, ref, handler) == "given"
        assert isinstance(await end_of(ref), Crashed)


class TestBoundedTargets:
    @pytest.mark.row("BR-10")
    async def test_an_ask_that_finds_no_room_is_refused_and_not_queued(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        ref = await system.spawn(Probe, mailbox=MailboxOptions(capacity=1))
        ref.tell(SlowDo(sleeping(1)))
        await settle()
        ref.tell(Note("fills it"))
        with pytest.raises(MailboxFull):
            await ref.ask(Call(adding("never")))
        assert await log_of(ref) == ["fills it"]

    @pytest.mark.row("BR-10")
    @pytest.mark.parametrize("overflow", ["drop_oldest", "drop_newest"])
    async def test_an_ask_that_is_dropped_fails_and_is_one_dead_letter(
        self, autojump_clock: MockClock, system: ActorSystem, overflow: Any
    ) -> None:
        ref = await system.spawn(Probe, mailbox=MailboxOptions(capacity=1, overflow=overflow))
        ref.tell(SlowDo(sleeping(1)))
        await settle()
        failed: list[str] = []

        async def ask(name: str) -> None:
            try:
                await ref.ask(Call(adding(name)))
            except MailboxFull:
                failed.append(name)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, "first")
            await settle()
            nursery.start_soon(ask, "second")
            await settle()
            # A refused caller that waits for something else afterwards is left alone.
            await trio.sleep(5)
        assert failed == (["first"] if overflow == "drop_oldest" else ["second"])
        [letter] = system.telemetry.dead_letters
        assert (type(letter.message), letter.reason) == (Call, "overflow")

    async def test_an_idle_bounded_actor_is_asked_without_a_task_switch(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        ref = await system.spawn(Probe, mailbox=MailboxOptions(capacity=1))
        here = trio.lowlevel.current_task()
        assert await ask_by(Way.INLINE, ref, lambda actor: trio.lowlevel.current_task()) is here


class TestFailureAndDeadlineTogether:
    @pytest.mark.row("BR-20", "BR-19")
    @pytest.mark.parametrize("seed", range(25))
    def test_the_caller_gets_exactly_one_of_both_and_the_crash_is_reported(self, seed: int) -> None:
        caught: list[Exception] = []
        reports: list[CrashReport] = []

        async def main() -> None:
            async with open_system() as system:
                events = record(system)
                ref = await system.spawn(Probe)

                async def fail(actor: Any) -> None:
                    await trio.sleep(1)
                    raise ValueError("at the same moment")

                try:
                    await ref.ask(SlowCall(fail), timeout=1)
                except (AskTimeout, ActorDown) as error:
                    caught.append(error)
                assert isinstance(await end_of(ref), Crashed)
                reports.extend(of_kind(events, CrashReport))

        simulate(seed, main)
        [error] = caught
        [report] = reports
        assert isinstance(report.reason, Crashed)
        assert isinstance(report.reason.exception, ValueError)
        if isinstance(error, ActorDown):
            assert error.reason == report.reason

    @pytest.mark.row("BR-20")
    async def test_a_handlers_own_nursery_that_fails_while_it_is_killed_gives_no_group(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        async def main(actor: Any) -> None:
            async def fail_when_cancelled() -> None:
                try:
                    await trio.sleep_forever()
                finally:
                    raise ValueError("in the cleanup")

            async with trio.open_nursery() as nursery:
                nursery.start_soon(fail_when_cancelled)
                nursery.start_soon(trio.sleep_forever)

        ref = await system.spawn(Probe)
        async with trio.open_nursery() as nursery:

            async def ask() -> None:
                with pytest.raises(ActorDown) as caught:
                    await ref.ask(SlowCall(main), timeout=None)
                assert caught.value.reason == Killed()

            nursery.start_soon(ask)
            await settle()
            ref.kill()

    @pytest.mark.row("BR-20", "J17")
    async def test_a_failure_in_a_handlers_own_nursery_is_reported_bare(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        async def main(actor: Any) -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.sleep_forever)

                nursery.start_soon(later, raising(ValueError("alone")), None)

        ref = await system.spawn(Probe)
        with pytest.raises(ActorDown):
            await ref.ask(SlowCall(main))
        assert isinstance(ref.exit_reason, Crashed)
        assert isinstance(ref.exit_reason.exception, ValueError)
        assert ref.exit_reason.frames[-2][2] == "later"


class TestLoad:
    async def test_many_inline_asks_let_others_run(self, autojump_clock: MockClock, system: ActorSystem) -> None:
        ref = await system.spawn(Probe)
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                await trio.lowlevel.checkpoint()
                turns += 1

        async with trio.open_nursery() as nursery:
            nursery.start_soon(other)
            for _ in range(1_000):
                await ref.ask(Call(lambda actor: None))
            nursery.cancel_scope.cancel()
        assert turns >= 10

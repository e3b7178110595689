"""Tasks beside an actor, timers and idle time-outs."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from sapwood.actors import (
    ActorSystem,
    Crashed,
    ExitReason,
    Killed,
    MailboxOptions,
    Normal,
    Ref,
    Shutdown,
    SimulatedEnvironment,
    TaskDone,
    open_system,
)
from sapwood.errors import InvalidMessage, InvalidOption
from sapwood.testing import simulate
from tests.actors.kit import (
    Call,
    Do,
    Note,
    Probe,
    SlowDo,
    StopNotes,
    cell_of,
    end_of,
    later,
    log_of,
    raising,
    settle,
    sleeping,
)


async def returning(value: Any) -> Any:
    await trio.lowlevel.checkpoint()
    return value


async def failing(error: Exception) -> None:
    await trio.lowlevel.checkpoint()
    raise error


class TestTasks:
    async def test_the_end_of_a_task_comes_as_one_message(self, autojump_clock: MockClock, system: ActorSystem) -> None:
        error = ValueError("in a task")
        ref = await system.spawn(Probe)
        tasks = [
            await ref.ask(Call(lambda actor: actor.start_task(returning, 5))),
            await ref.ask(Call(lambda actor: actor.start_task(failing, error, name="failing"))),
            await ref.ask(Call(lambda actor: actor.start_task(trio.sleep_forever))),
        ]
        assert ref.statistics().tasks == 3
        tasks[2].cancel()
        await settle()
        done = {message.task: (message.value, message.reason) for message in await log_of(ref)}
        assert done == {tasks[0]: (5, Normal()), tasks[1]: (None, Crashed(error)), tasks[2]: (None, Killed())}
        assert ref.statistics().tasks == 0
        assert all(task.done for task in tasks)
        assert "failing of Probe#1 (ended)" in repr(tasks[1])

    async def test_messages_go_on_while_a_task_runs(self, autojump_clock: MockClock, system: ActorSystem) -> None:
        ref = await system.spawn(Probe)
        await ref.ask(Call(lambda actor: actor.start_task(trio.sleep, 100)))
        assert await ref.ask(Call(lambda actor: "answered")) == "answered"

    @pytest.mark.parametrize("end", ["kill", "stop", "crash", "own stop"])
    async def test_tasks_have_ended_before_the_end_of_their_actor_is_announced(
        self, autojump_clock: MockClock, system: ActorSystem, end: str
    ) -> None:
        ended: list[str] = []

        async def task(name: str) -> None:
            try:
                await trio.sleep_forever()
            finally:
                with trio.CancelScope(shield=True):
                    await trio.sleep(3)
                ended.append(name)

        ref = await system.spawn(Probe)
        ref.tell(Do(lambda actor: (actor.start_task(task, "a"), actor.start_task(task, "b"))))
        await settle()
        match end:
            case "kill":
                ref.kill()
            case "stop":
                await ref.stop()
            case "crash":
                ref.tell(Do(lambda actor: 1 / 0))
            case _:
                ref.tell(Do(lambda actor: actor.stop()))
        await ref.wait_stopped()
        assert sorted(ended) == ["a", "b"]

    async def test_an_actor_of_a_cancelled_system_ends_after_its_tasks(self, autojump_clock: MockClock) -> None:
        order: list[str] = []

        async def task() -> None:
            try:
                await trio.sleep_forever()
            finally:
                with trio.CancelScope(shield=True):
                    await trio.sleep(1)
                order.append("task")

        with trio.move_on_after(10):
            async with open_system() as system:
                system.telemetry.subscribe(lambda event: order.append(type(event).__name__))
                ref = await system.spawn(Probe)
                await ref.ask(Call(lambda actor: actor.start_task(task)))
                await trio.sleep_forever()
        assert order == ["Spawned", "task", "Exited"]

    async def test_a_task_still_runs_while_the_actor_stops_and_may_be_asked_from_on_stop(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        done = trio.Event()

        class Waiting(Probe):
            async def on_stop(self, reason: ExitReason) -> None:
                await done.wait()

        async def task() -> None:
            await trio.sleep(5)
            done.set()

        ref = await system.spawn(Waiting)
        await ref.ask(Call(lambda actor: actor.start_task(task)))
        await ref.stop()

    async def test_a_task_that_fails_while_everything_around_it_is_cancelled_fails_alone(
        self, autojump_clock: MockClock
    ) -> None:
        reasons: list[ExitReason] = []

        async def task() -> None:
            async def fail_when_cancelled() -> None:
                try:
                    await trio.sleep_forever()
                finally:
                    raise ValueError("in the cleanup")

            async with trio.open_nursery() as nursery:
                nursery.start_soon(fail_when_cancelled)
                nursery.start_soon(trio.sleep_forever)

        refs: list[Ref] = []
        with trio.move_on_after(10) as limit:
            async with open_system() as system:
                ref = await system.spawn(StopNotes, reasons)
                refs.append(ref)
                await ref.ask(Call(lambda actor: actor.start_task(task)))
                await trio.sleep_forever()
        assert limit.cancelled_caught
        assert refs[0].exit_reason == Killed()

    async def test_a_task_begun_in_on_start_reports_as_well(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        class Early(Probe):
            async def on_start(self) -> None:
                self.start_task(returning, "early")
                await trio.sleep(1)

        ref = await system.spawn(Early)
        [done] = await log_of(ref)
        assert isinstance(done, TaskDone)
        assert done.value == "early"


class TestTasksOfAnEndingActor:
    @pytest.mark.parametrize("end", ["stop", "kill", "crash"])
    @pytest.mark.parametrize("depth", [1, 3])
    async def test_a_task_that_begins_another_while_its_actor_ends_holds_up_nothing(
        self, autojump_clock: MockClock, system: ActorSystem, end: str, depth: int
    ) -> None:
        begun: list[int] = []

        async def linger(actor: Any, left: int) -> None:
            begun.append(left)
            try:
                await trio.sleep_forever()
            finally:
                if left:
                    actor.start_task(linger, actor, left - 1)

        ref = await system.spawn(Probe)
        ref.tell(Do(lambda actor: actor.start_task(linger, actor, depth)))
        await settle()
        match end:
            case "stop":
                ref.tell(Do(lambda actor: actor.stop()))
            case "kill":
                ref.kill()
            case _:
                ref.tell(Do(raising(ValueError("no"))))
        with trio.fail_after(1):
            await ref.wait_stopped()
        assert begun == list(range(depth, -1, -1))


class TestTimers:
    @pytest.mark.row("I32")
    async def test_a_message_is_sent_once_after_the_delay(self, autojump_clock: MockClock, system: ActorSystem) -> None:
        ref, other = await system.spawn(Probe), await system.spawn(Probe)
        await ref.ask(Call(lambda actor: (actor.send_after(2, Note("own")), actor.send_after(3, Note("of"), other))))
        await trio.sleep(1.9)
        assert await log_of(ref) == []
        await trio.sleep(10)
        assert await log_of(ref) == ["own"]
        assert await log_of(other) == ["of"]
        assert ref.statistics().timers == 0
        assert system.statistics().deadlines == 0

    @pytest.mark.row("I32")
    async def test_cancel_returns_the_remaining_time_or_none_if_it_has_fired(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        ref = await system.spawn(Probe)
        timer = await ref.ask(Call(lambda actor: actor.send_after(10, Note(1))))
        late = await ref.ask(Call(lambda actor: actor.send_after(1, Note(2))))
        await trio.sleep(4)
        assert timer.cancel() == pytest.approx(6)
        assert timer.cancel() is None
        assert late.cancel() is None
        await trio.sleep(20)
        assert await log_of(ref) == [2]
        assert ref.statistics().timers == 0

    @pytest.mark.row("I32")
    async def test_cancelling_takes_back_no_message_that_was_delivered(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        ref = await system.spawn(Probe)
        timer = await ref.ask(Call(lambda actor: actor.send_after(1, Note("delivered"))))
        ref.tell(SlowDo(sleeping(5)))
        await trio.sleep(2)
        assert timer.cancel() is None
        assert await log_of(ref) == ["delivered"]

    @pytest.mark.row("I32")
    @pytest.mark.parametrize("repeated", [False, True])
    @pytest.mark.parametrize("dies", ["owner", "target"])
    async def test_a_timer_ends_with_its_actor_and_with_the_one_it_is_aimed_at(
        self, autojump_clock: MockClock, system: ActorSystem, repeated: Any, dies: str
    ) -> None:
        owner, target = await system.spawn(Probe), await system.spawn(Probe)

        def set_timer(actor: Any) -> Any:
            return actor.send_every(5, Note(1), target) if repeated else actor.send_after(5, Note(1), target)

        timer = await owner.ask(Call(set_timer))
        (owner if dies == "owner" else target).kill()
        await settle()
        assert timer.cancel() is None
        assert system.statistics().deadlines == 0
        assert owner.statistics().timers == 0
        await trio.sleep(20)
        assert not system.telemetry.dead_letters
        if dies == "target":
            timer = await owner.ask(Call(set_timer))
            assert timer.cancel() is None
            assert owner.statistics().timers == 0
            assert cell_of(target).aimed is None

    async def test_ticks_do_not_drift_and_missed_ones_are_left_out(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        times: list[float] = []
        began = trio.current_time()
        ref = await system.spawn(Probe)
        tick = Do(lambda actor: times.append(trio.current_time() - began))
        timer = await ref.ask(Call(lambda actor: actor.send_every(1, tick)))
        await trio.sleep(3.5)
        ref.tell(SlowDo(sleeping(4)))
        await trio.sleep(10)
        timer.cancel()
        # One tick waited while the actor was busy, from 3.5 to 7.5.
        assert times == pytest.approx([1, 2, 3, 7.5, 8, 9, 10, 11, 12, 13])

    async def test_at_most_one_tick_waits_in_the_mailbox(self, autojump_clock: MockClock, system: ActorSystem) -> None:
        ref = await system.spawn(Probe)
        timers = await ref.ask(Call(lambda actor: [actor.send_every(1, Note(number)) for number in range(2)]))
        ref.tell(SlowDo(sleeping(100)))
        await trio.sleep(50)
        assert ref.statistics().waiting == 2
        for timer in timers:
            timer.cancel()
        assert sorted(await log_of(ref)) == [0, 1]

    async def test_a_tick_may_be_handled_by_an_async_handler(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        times: list[float] = []

        async def slowly(actor: Any) -> None:
            await trio.sleep(0.5)
            times.append(trio.current_time())

        ref = await system.spawn(Probe)
        began = trio.current_time()
        await ref.ask(Call(lambda actor: actor.send_every(1, SlowDo(slowly))))
        await trio.sleep(3.75)
        assert times == pytest.approx([began + 1.5, began + 2.5, began + 3.5])

    async def test_a_timer_that_finds_no_room_makes_a_dead_letter_and_harms_nobody(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        owner = await system.spawn(Probe)
        full = await system.spawn(Probe, mailbox=MailboxOptions(capacity=1))
        full.tell(SlowDo(sleeping(10)))
        await settle()
        full.tell(Note("fills it"))
        await owner.ask(Call(lambda actor: actor.send_after(1, Note("no room"), full)))
        await trio.sleep(2)
        [letter] = system.telemetry.dead_letters
        assert (letter.message, letter.reason, letter.sender) == (Note("no room"), "overflow", "Probe#1")
        assert await log_of(full) == ["fills it"]

    @pytest.mark.parametrize("bad", [-1, float("nan")])
    async def test_delays_and_intervals_out_of_range_are_refused(
        self, autojump_clock: MockClock, system: ActorSystem, bad: float
    ) -> None:
        def handler(actor: Any) -> None:
            for use in (actor.send_after, actor.send_every):
                with pytest.raises(InvalidOption, match="expected"):
                    use(bad, Note(1))
            with pytest.raises(InvalidOption, match="> 0"):
                actor.send_every(0, Note(1))
            with pytest.raises(InvalidMessage):
                actor.send_after(1, "text")
            with pytest.raises(InvalidOption):
                actor.set_idle_timeout(bad)

        ref = await system.spawn(Probe)
        await ref.ask(Call(handler))
        assert ref.statistics().timers == 0

    @pytest.mark.parametrize("seed", range(20))
    def test_timers_set_and_cancelled_at_random_fire_as_they_should(self, seed: int) -> None:
        async def main() -> None:
            async with open_system(SimulatedEnvironment(seed)) as system:
                random = system.environment.random
                ref = await system.spawn(Probe)
                began = trio.current_time()
                expected: list[float] = []

                def fire(actor: Any) -> None:
                    actor.log.append(round(trio.current_time() - began, 6))

                for _ in range(200):
                    delay = random.randrange(50) / 10
                    timer = await ref.ask(Call(lambda actor: actor.send_after(delay, Do(fire))))  # noqa: B023
                    if random.random() < 0.6:
                        left = timer.cancel()
                        assert left is None or left <= delay + 1e-9
                        if left is None:
                            expected.append(round(trio.current_time() - began, 6))
                    else:
                        expected.append(round(trio.current_time() - began + delay, 6))
                    if random.random() < 0.2:
                        await trio.sleep(random.randrange(10) / 10)
                await trio.sleep(10)
                assert await log_of(ref) == sorted(expected)
                assert system.statistics().deadlines == 0
                assert len(system.deadlines._heap) == 0

        simulate(seed, main)


class TestIdleTimeouts:
    @pytest.mark.row("I24")
    async def test_on_idle_runs_once_in_each_while_without_messages(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        ref = await system.spawn(Idle)
        began = trio.current_time()
        await ref.ask(Call(lambda actor: actor.set_idle_timeout(2)))
        await trio.sleep(5)
        await ref.ask(Call(lambda actor: None))
        await trio.sleep(3)
        await ref.ask(Call(lambda actor: actor.set_idle_timeout(None)))
        await trio.sleep(50)
        times = (await ref.get_state())["times"]
        assert [time - began for time in times] == pytest.approx([2, 7])

    async def test_on_idle_may_set_the_time_again(self, autojump_clock: MockClock, system: ActorSystem) -> None:
        class Again(Idle):
            def on_idle(self) -> None:
                super().on_idle()
                self.set_idle_timeout(2)

        ref = await system.spawn(Again)
        began = trio.current_time()
        await ref.ask(Call(lambda actor: actor.set_idle_timeout(1)))
        await trio.sleep(6)
        times = (await ref.get_state())["times"]
        assert [time - began for time in times] == pytest.approx([1, 3, 5])

    @pytest.mark.row("I24")
    async def test_introspection_is_no_activity(self, autojump_clock: MockClock, system: ActorSystem) -> None:
        ref = await system.spawn(Idle)
        began = trio.current_time()
        await ref.ask(Call(lambda actor: actor.set_idle_timeout(2)))
        for _ in range(8):
            await trio.sleep(0.5)
            await ref.get_state()
        times = (await ref.get_state())["times"]
        assert [time - began for time in times] == pytest.approx([2])

    @pytest.mark.row("I24")
    @pytest.mark.parametrize("seed", range(30))
    def test_introspection_at_the_very_moment_does_not_put_it_off(self, seed: int) -> None:
        async def main() -> None:
            async with open_system() as system:
                ref = await system.spawn(Idle)
                began = trio.current_time()
                await ref.ask(Call(lambda actor: actor.set_idle_timeout(1)))
                await trio.sleep(1)
                await ref.get_state()
                await trio.sleep(0.5)
                [time] = (await ref.get_state())["times"]
                assert time - began == 1

        simulate(seed, main)

    @pytest.mark.row("I24")
    @pytest.mark.parametrize("timeout", [0, 1])
    @pytest.mark.parametrize("seed", range(10))
    def test_a_message_that_waits_or_comes_at_the_very_moment_goes_first(self, seed: int, timeout: float) -> None:
        async def main() -> None:
            async with open_system() as system:
                ref = await system.spawn(Idle)
                began = trio.current_time()

                def handler(actor: Any) -> None:
                    actor.set_idle_timeout(timeout)
                    actor.ref.tell(Note("queued"))

                ref.tell(Do(handler))
                if timeout:
                    await settle()
                    await trio.sleep(timeout)
                    ref.tell(Note("at the same moment"))
                await settle()
                state = await ref.get_state()
                await ref.stop()
                if timeout:
                    # Either side may win; if the message did, the time starts anew.
                    assert [time - began for time in state["times"]] in ([], [timeout])
                else:
                    assert state["log"] == ["queued"]

        simulate(seed, main)

    async def test_a_suspended_actor_is_not_idle(self, autojump_clock: MockClock, system: ActorSystem) -> None:
        ref = await system.spawn(Idle)
        await ref.ask(Call(lambda actor: actor.set_idle_timeout(1)))
        await ref.suspend()
        await trio.sleep(10)
        assert (await ref.get_state())["times"] == []
        await ref.resume()
        await trio.sleep(1.5)
        assert len((await ref.get_state())["times"]) == 1

    async def test_an_async_on_idle_may_wait_and_stop_the_actor(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        class Leaving(Probe):
            async def on_idle(self) -> None:
                await trio.sleep(1)
                self.stop(Shutdown("idle"))

        ref = await system.spawn(Leaving)
        ref.tell(Do(lambda actor: actor.set_idle_timeout(1)))
        assert await end_of(ref) == Shutdown("idle")
        await settle()
        assert system.statistics().deadlines == 0

    async def test_a_task_can_set_the_time_while_the_actor_waits(
        self, autojump_clock: MockClock, system: ActorSystem
    ) -> None:
        ref = await system.spawn(Idle)
        await ref.ask(Call(lambda actor: actor.start_task(later, actor.set_idle_timeout, 1)))
        await trio.sleep(1.5)
        assert len((await ref.get_state())["times"]) == 1


class Idle(Probe):
    """Notes when it was idle for too long."""

    def __init__(self) -> None:
        super().__init__()
        self.times: list[float] = []

    def on_idle(self) -> None:
        self.times.append(trio.current_time())


class TestClocks:
    @pytest.mark.row("BR-77")
    @pytest.mark.parametrize("jump", [-120.0, 10 * 365 * 86400.0, -1_700_000_000.0])
    async def test_timers_and_timeouts_do_not_care_about_the_wall_clock(
        self, autojump_clock: MockClock, jump: float
    ) -> None:
        environment = SimulatedEnvironment()
        async with open_system(environment) as system:
            ref = await system.spawn(Idle)
            began = trio.current_time()
            times: list[float] = []
            tick = Do(lambda actor: times.append(trio.current_time() - began))
            await ref.ask(Call(lambda actor: (actor.send_every(1, tick), actor.send_after(2.5, tick))))
            await trio.sleep(1.5)
            environment.epoch += jump
            await trio.sleep(2)
            assert times == pytest.approx([1, 2, 2.5, 3])
            assert ref.statistics().uptime == pytest.approx(3.5)
            await ref.stop()
            ref.tell(Note(1))
            [letter] = system.telemetry.dead_letters
            assert letter.at == environment.wall()

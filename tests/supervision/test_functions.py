"""Async functions as children: the same rules of groups A to E hold for them."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from sapwood.actors import Crashed, CrashReport, Exited, ExitReason, Killed, Normal, Shutdown, current_actor
from sapwood.errors import ChildFailed, StartError, StartTimeout
from sapwood.supervision import (
    DynamicSupervisor,
    Restart,
    Supervisor,
    child,
    start_child,
    supervisor_statistics,
    terminate_child,
    which_children,
)
from tests.supervision.kit import BoomError, Crash, Stage, states


class Service:
    """An async function under remote control."""

    def __init__(self) -> None:
        self.log: list[Any] = []
        self.gate = trio.Event()
        self.error: Exception | None = None
        self.cleanup = 0.0
        self.cleanup_error: Exception | None = None

    async def serve(self, *args: Any, **keywords: Any) -> str:
        self.log.append(("start", *args, *keywords.items()))
        try:
            await self.gate.wait()
            if self.error is not None:
                raise self.error
        finally:
            if self.cleanup:
                with trio.CancelScope(shield=True):
                    await trio.sleep(self.cleanup)
            self.log.append("clean")
            if self.cleanup_error is not None:
                raise self.cleanup_error
        return "returned"

    async def serve_when_ready(self, task_status: trio.TaskStatus[Any] = trio.TASK_STATUS_IGNORED) -> None:
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        task_status.started()
        self.log.append("ready")
        await trio.sleep_forever()


@pytest.fixture
def service() -> Service:
    return Service()


def end_of(stage: Stage, label: str) -> ExitReason:
    [reason] = [event.reason for event in stage.history if isinstance(event, Exited) and event.actor == label]
    return reason


@pytest.mark.row("B09")
async def test_a_function_runs_with_its_arguments_and_again_with_the_same_after_a_crash(
    autojump_clock: MockClock, stage: Stage, service: Service
) -> None:
    await stage.supervise(child(partial(service.serve, 1, deep=True), 2, id="s"))
    service.error = BoomError("broke")
    service.gate.set()
    service.gate, old = trio.Event(), service.gate
    assert old.is_set()
    await stage.settle()

    assert service.log == [("start", 1, 2, ("deep", True)), "clean", ("start", 1, 2, ("deep", True))]
    assert stage.events == ["-s BoomError", "+s"]


@pytest.mark.row("B01", "B02", "B03", "B04", "B06")
@pytest.mark.parametrize("error", [None, BoomError("broke")], ids=repr)
@pytest.mark.parametrize("restart", ["permanent", "transient", "temporary"])
async def test_the_end_of_a_function_is_treated_by_its_restart_type(
    autojump_clock: MockClock, stage: Stage, service: Service, error: Exception | None, restart: Restart
) -> None:
    again = restart == "permanent" or (restart == "transient" and error is not None)
    for top in (await stage.supervise(), await stage.system.spawn(DynamicSupervisor)):
        await start_child(top, child(service.serve, id="s", restart=restart))
        stage.forget()
        service.error = error
        gate, service.gate = service.gate, trio.Event()
        gate.set()
        await stage.settle()

        assert stage.events == [f"-s {'BoomError' if error else 'normal'}", *(["+s"] if again else [])]
        assert (await supervisor_statistics(top)).restarts == int(again)
        await top.stop()


async def test_a_crash_of_a_function_is_reported_with_the_place_it_came_from(
    autojump_clock: MockClock, stage: Stage, service: Service
) -> None:
    await stage.supervise(child(service.serve, id="s", restart="temporary"))
    service.error = BoomError("broke")
    service.gate.set()
    await stage.settle()

    [report] = [event for event in stage.history if isinstance(event, CrashReport)]
    assert isinstance(report.reason, Crashed)
    assert "serve" in [function for _, _, function in report.reason.frames]
    assert report.state == "function=serve"


@pytest.mark.row("E02", "E03", "E10")
@pytest.mark.parametrize(
    ("cleanup", "reason"),
    [(0.0, Shutdown()), (2.0, Shutdown()), (0.0, Crashed(BoomError("cleaning"))), (9.0, Killed())],
    ids=str,
)
async def test_a_function_that_is_stopped_is_cancelled_and_has_its_time_to_clean_up(
    autojump_clock: MockClock, stage: Stage, service: Service, cleanup: float, reason: ExitReason
) -> None:
    top = await stage.supervise(child(service.serve, id="s", shutdown=5.0))
    service.cleanup = cleanup
    if isinstance(reason, Crashed):
        service.cleanup_error = BoomError("cleaning")
    begun = stage.clock()

    await terminate_child(top, "s")

    assert stage.clock() - begun == cleanup
    assert type(end_of(stage, "s")) is type(reason)
    assert service.log[-1] == "clean"
    assert stage.reports == ([] if reason == Shutdown() else [("shutdown_error", "s", kind_of(stage))])


def kind_of(stage: Stage) -> str:
    reason = end_of(stage, "s")
    return type(reason.exception).__name__ if isinstance(reason, Crashed) else str(reason)


@pytest.mark.row("E04")
async def test_a_brutally_killed_function_is_killed(autojump_clock: MockClock, stage: Stage, service: Service) -> None:
    top = await stage.supervise(child(service.serve, id="s", shutdown="brutal_kill"))

    await terminate_child(top, "s")

    assert end_of(stage, "s") == Killed()
    assert stage.reports == []


@pytest.mark.row("E08")
async def test_a_function_that_failed_before_it_was_stopped_keeps_its_reason(
    autojump_clock: MockClock, stage: Stage, service: Service
) -> None:
    top = await stage.supervise(child(service.serve, id="s"))
    service.error = BoomError("just before")
    service.gate.set()

    await top.stop()

    assert isinstance(end_of(stage, "s"), Crashed)


async def test_a_function_that_returns_ends_normally(autojump_clock: MockClock, stage: Stage, service: Service) -> None:
    top = await stage.supervise(child(service.serve, id="s", restart="transient"))
    service.gate.set()
    await stage.settle()

    assert end_of(stage, "s") == Normal()
    assert await states(top) == {"s": "stopped"}


@pytest.mark.row("A01")
async def test_a_function_with_a_task_status_has_started_when_it_says_so(
    autojump_clock: MockClock, stage: Stage, service: Service
) -> None:
    stage.plan.script("b", "ok")
    async with trio.open_nursery() as nursery:
        specs = [child(service.serve_when_ready, id="s"), stage.worker("b")]
        nursery.start_soon(partial(stage.system.spawn, Supervisor, specs, strategy="one_for_one"))
        await stage.settle()
        assert stage.events == []
        service.gate.set()

    assert stage.events == ["+s", "+b", "+Supervisor#1"]
    assert service.log == ["ready"]


@pytest.mark.row("A03", "A05")
async def test_a_function_that_fails_before_it_has_started_fails_to_start(
    autojump_clock: MockClock, stage: Stage, service: Service
) -> None:
    top = await stage.supervise()
    service.error = BoomError("no port")
    service.gate.set()

    with pytest.raises(ChildFailed) as failed:
        await start_child(top, child(service.serve_when_ready, id="s", key=("s",)))

    assert isinstance(failed.value.reason, Crashed)
    assert failed.value.reason.exception is service.error
    assert "serve_when_ready" in [function for _, _, function in failed.value.reason.frames]
    assert await which_children(top) == []
    service.error = None
    assert await start_child(top, child(service.serve_when_ready, id="s", key=("s",)))


async def test_a_function_that_returns_without_having_started_fails_to_start(
    autojump_clock: MockClock, stage: Stage
) -> None:
    async def forgets(task_status: trio.TaskStatus[Any]) -> None:
        await trio.lowlevel.checkpoint()
        if stage.plan.attempts:
            task_status.started()

    top = await stage.supervise()

    with pytest.raises(ChildFailed) as failed:
        await start_child(top, child(forgets))

    assert isinstance(failed.value.reason, Crashed)
    assert isinstance(failed.value.reason.exception, StartError)
    assert "task_status.started()" in str(failed.value)


async def test_a_function_that_says_twice_that_it_has_started_crashes(autojump_clock: MockClock, stage: Stage) -> None:
    async def eager(task_status: trio.TaskStatus[Any]) -> None:
        task_status.started()
        await trio.sleep(1)
        task_status.started()

    top = await stage.supervise()
    ref = await start_child(top, child(eager, restart="temporary"))
    assert ref is not None
    await trio.sleep(2)

    assert isinstance(ref.exit_reason, Crashed)


async def test_a_function_that_starts_too_slowly_is_cancelled(
    autojump_clock: MockClock, stage: Stage, service: Service
) -> None:
    top = await stage.supervise()
    service.cleanup = 0

    with pytest.raises(StartTimeout):
        await start_child(top, child(service.serve_when_ready, id="s", start_timeout=3.0))

    assert stage.alive == ["Supervisor#1"]
    assert stage.clock() == 3.0


async def test_an_object_with_an_async_call_is_a_function_too(autojump_clock: MockClock, stage: Stage) -> None:
    calls: list[int] = []

    class Callable:
        async def __call__(self, number: int) -> None:
            calls.append(number)
            await trio.sleep_forever()

    top = await stage.supervise(child(Callable(), 7))

    assert calls == [7]
    assert await states(top) == {"Callable": "running"}


async def test_a_function_is_an_actor_to_others_and_may_use_actors(autojump_clock: MockClock, stage: Stage) -> None:
    labels: list[str] = []

    async def serve() -> None:
        me = current_actor()
        assert me is not None
        labels.append(me.label)
        await trio.sleep_forever()

    await stage.supervise(child(serve))
    [info] = await which_children(stage.ref("Supervisor#1"))

    assert labels == ["serve"]
    assert (info.label, info.type) == ("serve", "worker")
    assert current_actor() is None


async def test_messages_to_a_function_are_dead_letters(
    autojump_clock: MockClock, stage: Stage, service: Service
) -> None:
    await stage.supervise(child(service.serve, id="s"))

    stage.ref("s").tell(Crash())
    await stage.settle()

    assert stage.dead_letters == ["Crash"]
    assert stage.ref("s").alive


@pytest.mark.row("E14")
async def test_a_function_under_a_supervisor_that_is_killed_is_cancelled_before_that_ends(
    autojump_clock: MockClock, stage: Stage, service: Service
) -> None:
    top = await stage.supervise(child(service.serve, id="s"))
    service.cleanup = 2.0

    top.kill()
    await top.wait_stopped()

    assert service.log[-1] == "clean"
    assert end_of(stage, "s") == Killed()
    assert stage.alive == []

"""Children that do what a test tells them, and a stage that records what happens."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import attrs
import trio
import trio.testing

from sapwood.actors import (
    Actor,
    ActorSystem,
    Crashed,
    DeadLetter,
    Exited,
    ExitReason,
    Ignore,
    Normal,
    Ref,
    Refuse,
    Request,
    Spawned,
    Started,
    StartResult,
    SupervisorReport,
    TelemetryEvent,
    handle,
    message,
    open_system,
)
from sapwood.supervision import ChildInfo, ChildSpec, Offender, Supervisor, child, which_children
from sapwood.testing import simulate as run_simulation


class BoomError(Exception):
    """What children crash with."""


@message("test.supervision.crash")
class Crash:
    text: str = "boom"


@message("test.supervision.end")
class End:
    reason: Any = Normal()


@message("test.supervision.name")
class Name(Request[str]):
    pass


@message("test.supervision.block")
class Block:
    """Makes the actor wait for the event in its handler."""

    until: Any


@message("test.supervision.call")
class Call(Request[Any]):
    """Makes the actor await `function()` in its handler."""

    function: Any


@attrs.define
class Plan:
    """What the successive starts of each child come to; `ok` when there is nothing left.

    `fail` raises, `ignore` and `refuse` return that, `hang` never returns, `info:x` gives x to the starter, and a
    number waits for so many seconds first.
    """

    starts: defaultdict[str, deque[str]] = attrs.field(factory=lambda: defaultdict[str, deque[str]](deque))
    attempts: list[str] = attrs.field(factory=list[str])
    _waiting: list[tuple[int, trio.Event]] = attrs.field(factory=list[tuple[int, trio.Event]])

    def script(self, name: str, *outcomes: str) -> None:
        self.starts[name] = deque(outcomes)

    async def tried(self, count: int) -> None:
        """Wait until so many starts have been tried since the history was forgotten."""
        reached = trio.Event()
        self._waiting.append((count, reached))
        await reached.wait()

    def next(self, name: str) -> str:
        self.attempts.append(name)
        for count, reached in self._waiting:
            if len(self.attempts) >= count:
                reached.set()
        return self.starts[name].popleft() if self.starts[name] else "ok"


class Worker(Actor):
    """Does as it is told; takes stop requests at once."""

    def __init__(self, name: str, plan: Plan | None = None) -> None:
        self.name = name
        self.plan = plan

    async def on_start(self) -> StartResult:
        outcome = self.plan.next(self.name) if self.plan is not None else "ok"
        await trio.lowlevel.checkpoint()
        match outcome:
            case "ok":
                return None
            case "fail":
                raise BoomError(f"start of {self.name}")
            case "ignore":
                return Ignore()
            case "refuse":
                return Refuse("not today")
            case "late fail":
                await trio.sleep(1)
                raise BoomError(f"start of {self.name}")
            case "hang":
                await trio.sleep_forever()
            case "wrong":
                return 5  # type: ignore[return-value]  # what the test is about
            case _ if outcome.startswith("info:"):
                return Started(outcome.removeprefix("info:"))
            case _:
                await trio.sleep(float(outcome))
        return None

    @handle
    def crash(self, message: Crash) -> None:
        raise BoomError(message.text)

    @handle
    def end(self, message: End) -> None:
        self.stop(message.reason)

    @handle
    def tell_name(self, message: Name) -> str:
        return self.name

    @handle
    async def block(self, message: Block) -> None:
        await message.until.wait()

    @handle
    async def call(self, message: Call) -> Any:
        return await message.function()


class PlainWorker(Actor):
    """As a worker, with nothing async in it, so that its start never waits."""

    def __init__(self, name: str, plan: Plan | None = None) -> None:
        self.name = name
        self.plan = plan

    def on_start(self) -> StartResult:
        match self.plan.next(self.name) if self.plan is not None else "ok":
            case "fail":
                raise BoomError(f"start of {self.name}")
            case "ignore":
                return Ignore()
            case "refuse":
                return Refuse("not today")
            case _:
                return None

    @handle
    def crash(self, message: Crash) -> None:
        raise BoomError(message.text)

    @handle
    def end(self, message: End) -> None:
        self.stop(message.reason)


class SlowWorker(Worker):
    """Takes stop requests in turn, and so many seconds to clean up; `fails` raises in its clean-up."""

    def __init__(
        self,
        name: str,
        plan: Plan | None = None,
        *,
        cleanup: float = 0.0,
        log: list[str] | None = None,
        fails: bool = False,
    ) -> None:
        super().__init__(name, plan)
        self.cleanup = cleanup
        self.log = log if log is not None else []
        self.fails = fails

    async def on_stop(self, reason: ExitReason) -> None:
        self.log.append(f"stop {self.name} {reason}")
        await trio.sleep(self.cleanup)
        if self.fails:
            raise BoomError(f"stop of {self.name}")
        self.log.append(f"clean {self.name}")


class Stubborn(Worker):
    """Swallows cancellation in its handler of `Block`, until the event comes."""

    @handle
    async def block(self, message: Block) -> None:
        while not message.until.is_set():
            with suppress(trio.Cancelled):
                await message.until.wait()
            with trio.CancelScope(shield=True):
                await message.until.wait()


class Stage:
    """An actor system whose history is recorded."""

    def __init__(self, system: ActorSystem) -> None:
        self.system = system
        self.plan = Plan()
        self.history: list[TelemetryEvent] = []
        self.clock = trio.current_time
        system.telemetry.subscribe(self.history.append)

    # --- building ---------------------------------------------------------------------------------

    def worker(self, name: str, kind: Callable[..., Any] = Worker, **options: Any) -> ChildSpec:
        """Return the spec of a child that is called and registered by its name."""
        return child(kind, name, self.plan, id=name, **options)

    async def supervise(self, *children: ChildSpec, strategy: Any = "one_for_one", **options: Any) -> Ref:
        """Start a supervisor and forget the events of that."""
        top = await self.system.spawn(Supervisor, children, strategy=strategy, **options)
        await self.settle()
        self.forget()
        return top

    # --- acting -----------------------------------------------------------------------------------

    async def settle(self) -> None:
        """Let everything happen that can happen without time passing."""
        await trio.testing.wait_all_tasks_blocked()

    async def crash(self, *names: str, text: str = "boom") -> None:
        """Crash children, at one moment, and let that have its consequences."""
        for ref in [self.ref(name) for name in names]:
            ref.tell(Crash(text))
        await self.settle()

    async def end(self, name: str, reason: ExitReason | None = None) -> None:
        """Let a child end by itself."""
        self.ref(name).tell(End(reason if reason is not None else Normal()))
        await self.settle()

    async def kill(self, name: str) -> None:
        """Kill a child from outside."""
        self.ref(name).kill()
        await self.settle()

    def ref(self, name: str) -> Ref:
        """Return the live actor with this label."""
        [found] = [cell.ref for cell in self.system.actors if cell.label == name]
        return found

    def refs(self, *names: str) -> list[Ref]:
        """Return the live actors with these labels."""
        return [self.ref(name) for name in names]

    # --- looking ----------------------------------------------------------------------------------

    def forget(self) -> None:
        """Drop the history."""
        self.history.clear()
        self.plan.attempts.clear()

    @property
    def events(self) -> list[str]:
        """Starts and ends in order: `+a`, `-a shutdown`."""
        lines: list[str] = []
        for event in self.history:
            if isinstance(event, Spawned):
                lines.append(f"+{event.actor}")
            elif isinstance(event, Exited):
                lines.append(f"-{event.actor} {kind(event.reason)}")
        return lines

    @property
    def reports(self) -> list[tuple[str, str, str]]:
        """`(context, child id, reason)` of each supervisor report in order."""
        found: list[tuple[str, str, str]] = []
        for event in self.history:
            if isinstance(event, SupervisorReport):
                assert isinstance(event.offender, Offender)
                reason: Any = event.reason
                found.append((event.context, event.offender.id, kind(reason)))
        return found

    @property
    def dead_letters(self) -> list[str]:
        return [type(event.message).__name__ for event in self.history if isinstance(event, DeadLetter)]

    @property
    def alive(self) -> list[str]:
        """Labels of all live actors, in the order of their starts."""
        return [cell.label for cell in self.system.actors]


def kind(reason: object) -> str:
    """Name an exit reason or an error shortly: `normal`, `shutdown (x)`, `killed`, `BoomError`."""
    if isinstance(reason, Crashed):
        return type(reason.exception).__name__
    return type(reason).__name__ if isinstance(reason, Exception) else str(reason)


async def states(supervisor: Ref) -> dict[str | None, str]:
    """Return `{child id: state}` in start order."""
    return {info.id: info.state for info in await which_children(supervisor)}


async def info_of(supervisor: Ref, name: str) -> ChildInfo:
    """Return one line of `which_children`."""
    [found] = [info for info in await which_children(supervisor) if info.id == name]
    return found


async def live_refs(supervisor: Ref) -> dict[str | None, Ref]:
    """Return `{child id: ref}` of the children that have a process."""
    return {info.id: info.ref for info in await which_children(supervisor) if info.ref is not None}


def on_stage(act: Callable[[Stage], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
    """Make a program of an act, for `simulate`."""

    async def program() -> None:
        async with open_system() as system:
            await act(Stage(system))

    return program


def simulate(program: Callable[[], Awaitable[None]], seed: int) -> None:
    """Run a program on a virtual clock with the interleaving that belongs to a seed."""
    run_simulation(seed, program)

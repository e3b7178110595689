"""The workloads for everything but Sapwood, written once; a `Subject` says how its library does the steps."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from statistics import median
from typing import Any

from benchmarks.cells import common
from benchmarks.cells.common import Latch, Unsupported, clock

Jobs = Sequence[Callable[[], Awaitable[None]]]


class Subject:
    """A library under test. Its actors, as `start` returns them, have `tell(message)` and `async ask(message)`.

    Their handler counts `add` messages, returns the count on `total`, raises ValueError on `crash`, and on `hop(n)`
    sends `hop(n - 1)` on, or sets the event of the ring where n is 0.

    Attributes:
        scale: Divides the number of messages, for libraries that take tens of microseconds for each.
        population: Actors of W4 and W5.
        async_tell: Whether `tell` must be awaited.
        async_find: Whether a look-up must be awaited.
    """

    scale = 1
    population = common.POPULATION
    async_tell = False
    async_find = False
    add: Any = "add"
    total: Any = "total"
    crash: Any = "crash"

    def hop(self, left: int) -> Any:
        return left

    def run(self, main: Callable[[], Awaitable[dict[str, float]]]) -> dict[str, float]:
        """Run the workload on the library's loop, and clean up."""
        raise Unsupported("no loop")

    async def start(self, count: int) -> list[Any]:
        """Start actors, and return when all can take messages."""
        raise Unsupported("cannot start actors")

    async def stop(self, actors: list[Any]) -> None:
        """Stop actors, and return when they are gone."""
        raise Unsupported("cannot stop single actors")

    async def pause(self) -> None:
        """Let others run."""

    def event(self) -> Any:
        """Make an event: `set()` and `async wait()`."""
        raise Unsupported("an actor cannot reach the program")

    async def together(self, jobs: Jobs) -> None:
        """Run coroutine functions concurrently."""
        raise Unsupported("no concurrent callers")

    def aim(self, actor: Any, following: Any, done: Any) -> None:
        """Give an actor its successor in the ring, and the event."""
        actor.next = following
        actor.done = done

    async def ready(self, actors: list[Any]) -> None:
        """Do what `aim` could not, for it may not wait."""

    def finder(self, actors: list[Any]) -> tuple[Callable[[Any], Any], list[Any]]:
        """Return the library's look-up of an actor by name, and the names."""
        raise Unsupported("has no names")

    async def recover(self, actor: Any) -> None:
        """Let an actor crash, and return when it has answered again."""
        try:
            await actor.ask(self.crash)
        except ValueError:
            await actor.ask(self.total)


async def w1(subject: Subject) -> dict[str, float]:
    (actor,) = await subject.start(1)
    count = common.TELLS // subject.scale
    add, tell = subject.add, actor.tell
    begin = clock()
    if subject.async_tell:
        for _ in range(count):
            await tell(add)
    else:
        for number in range(count):
            tell(add)
            if not number % 1_000:
                await subject.pause()
    handled = await actor.ask(subject.total)
    assert handled == count, handled
    return {"W1 tell": (clock() - begin) / count * 1e6}


async def _ask(actor: Any, request: Any, count: int) -> None:
    for _ in range(count):
        await actor.ask(request)


async def w2a(subject: Subject) -> dict[str, float]:
    (actor,) = await subject.start(1)
    count = common.ASKS // subject.scale
    await actor.ask(subject.total)
    begin = clock()
    await _ask(actor, subject.total, count)
    return {"W2a ask": (clock() - begin) / count * 1e6}


async def w2b(subject: Subject) -> dict[str, float]:
    (actor,) = await subject.start(1)
    each = max(1, common.ASKS // subject.scale // common.CALLERS)
    await actor.ask(subject.total)

    async def caller() -> None:
        await _ask(actor, subject.total, each)

    begin = clock()
    await subject.together([caller] * common.CALLERS)
    return {"W2b ask, 100 callers": (clock() - begin) / (each * common.CALLERS) * 1e6}


async def w3(subject: Subject) -> dict[str, float]:
    actors = await subject.start(common.FAN)
    done = subject.event()
    latch = Latch(done, len(actors))
    for actor in actors:
        subject.aim(actor, None, latch)
    await subject.ready(actors)
    rounds = max(2, common.FAN_ROUNDS // subject.scale)
    begin = clock()
    for message in [subject.add] * (rounds - 1) + [subject.hop(0)]:
        for actor in actors:
            if subject.async_tell:
                await actor.tell(message)
            else:
                actor.tell(message)
    await done.wait()
    return {"W3 fan to 1,000": (clock() - begin) / (len(actors) * rounds) * 1e6}


async def w4(subject: Subject) -> dict[str, float]:
    begin = clock()
    actors = await subject.start(subject.population)
    figures = {"W4 start": (clock() - begin) / subject.population * 1e6}
    begin = clock()
    try:
        await subject.stop(actors)
    except Unsupported:
        return figures
    return {**figures, "W4 stop": (clock() - begin) / subject.population * 1e6}


async def w5(subject: Subject) -> dict[str, float]:
    before = common.resident_kb()
    actors = await subject.start(subject.population)
    used = common.resident_kb() - before
    del actors
    return {"W5 memory": used / subject.population}


async def w6(subject: Subject) -> dict[str, float]:
    find, names = subject.finder(await subject.start(min(common.NAMES, subject.population)))
    rounds = max(1, common.LOOKUPS // len(names) // subject.scale)
    found = None
    begin = clock()
    if subject.async_find:
        for _ in range(rounds):
            for name in names:
                found = await find(name)
    else:
        for _ in range(rounds):
            for name in names:
                found = find(name)
    assert found is not None
    return {"W6 lookup": (clock() - begin) / (rounds * len(names)) * 1e9}


async def w7(subject: Subject) -> dict[str, float]:
    (actor,) = await subject.start(1)
    times: list[float] = []
    for _ in range(common.CRASHES):
        begin = clock()
        await subject.recover(actor)
        times.append(clock() - begin)
    return {"W7 crash to answer": median(times) * 1e6}


async def w8(subject: Subject) -> dict[str, float]:
    actors = await subject.start(min(common.RING, subject.population))
    done = subject.event()
    for number, actor in enumerate(actors):
        subject.aim(actor, actors[(number + 1) % len(actors)], done)
    await subject.ready(actors)
    hops = common.HOPS // subject.scale
    begin = clock()
    told = actors[0].tell(subject.hop(hops))
    if subject.async_tell:
        await told
    await done.wait()
    return {"W8 ring of 1,000": (clock() - begin) / hops * 1e6}


WORKLOADS: dict[str, Callable[[Subject], Awaitable[dict[str, float]]]] = {
    "w1": w1,
    "w2a": w2a,
    "w2b": w2b,
    "w3": w3,
    "w4": w4,
    "w5": w5,
    "w6": w6,
    "w7": w7,
    "w8": w8,
}


def measure(subject: Subject, workload: str) -> dict[str, float]:
    """Run one workload in this process."""
    return subject.run(lambda: WORKLOADS[workload](subject))

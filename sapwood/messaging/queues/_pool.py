"""A pool of consumers that grows and shrinks with the depth of its queue."""

from __future__ import annotations

import math
from functools import partial
from typing import final

import attrs

from sapwood.actors import Actor, Ref, handle, message
from sapwood.errors import ActorDown, InvalidOption, PersistenceError, QueueError
from sapwood.messaging.queues._consumer import Consumer, Handler, Retire
from sapwood.messaging.queues._options import is_count, is_seconds
from sapwood.messaging.queues._queue import Queue
from sapwood.supervision import ChildSpec, DynamicSupervisor, child, start_child, supervisor


@attrs.frozen
class PoolOptions:
    """How a pool grows and shrinks.

    Attributes:
        minimum: Consumers that there always are.
        maximum: Consumers that there are at most.
        per_consumer: Unsettled messages for which there shall be one consumer.
        interval: Seconds between two looks at the queue.
        patience: Looks in a row that must find fewer consumers enough before one of them goes.
        prefetch: See `Consumer`.
        shutdown: Seconds that each consumer has to finish the message in hand when it is stopped.

    Raises:
        InvalidOption: naming the option that is out of its range.
    """

    minimum: int = 1
    maximum: int = 8
    per_consumer: int = 10
    interval: float = 1.0
    patience: int = 3
    prefetch: int = 1
    shutdown: float = 5.0

    def __attrs_post_init__(self) -> None:
        for name, fine, expected in (
            ("minimum", is_count(self.minimum, 0), "an int >= 0"),
            ("maximum", is_count(self.maximum, max(1, self.minimum)), "an int >= 1 and >= minimum"),
            ("per_consumer", is_count(self.per_consumer, 1), "an int >= 1"),
            ("interval", is_seconds(self.interval), "seconds > 0"),
            ("patience", is_count(self.patience, 1), "an int >= 1"),
            ("prefetch", is_count(self.prefetch, 1), "an int >= 1"),
            ("shutdown", is_seconds(self.shutdown), "seconds > 0"),
        ):
            if not fine:
                raise InvalidOption(f"pool option {name}: expected {expected}; got {getattr(self, name)!r}")

    def wanted(self, depth: int) -> int:
        """Return how many consumers a queue of this depth shall have (S2-042)."""
        return min(self.maximum, max(self.minimum, math.ceil(depth / self.per_consumer)))


@final
class WorkerPool:
    """Consumers of one queue under a supervisor, as many as its depth asks for (S2-042).

    Give `spec()` to a runtime or supervisor. The pool grows at once to what is wanted, and shrinks by one consumer
    at a time, which finishes the message in hand; that is how many there are, not which one gets a message:
    the queue serves waiting consumers in turn (S2-040).

    Args:
        queue: An open queue.
        handler: What to do with each message.
        options: How the pool grows and shrinks.
    """

    def __init__(self, queue: Queue, handler: Handler, options: PoolOptions | None = None) -> None:
        self.queue = queue
        self.options = options or PoolOptions()
        self._handler = handler
        self._home: _Home | None = None

    def spec(self, *, id: str | None = None) -> ChildSpec:
        """Return the child spec of the pool: a supervisor of the consumers and of the actor that counts them."""
        name = id or f"pool of {self.queue.name}"
        home = child(partial(_Home, self), id="consumers", type="supervisor", shutdown=None)
        return supervisor(
            [home, child(partial(_Scaler, self), id="scaler", restart="transient")], id=name, strategy="rest_for_one"
        )

    def consumers(self) -> list[Ref]:
        """Return the consumers that there are now, oldest first, those that are finishing included."""
        return [] if self._home is None else [cell.ref for cell in self._home.cells()]

    @property
    def size(self) -> int:
        """How many consumers there are now."""
        return len(self.consumers())

    def moved(self, home: _Home) -> None:
        """Note the supervisor of the consumers, anew after each of its restarts."""
        self._home = home

    async def grow(self, number: int) -> None:
        """Start so many consumers."""
        assert self._home is not None
        options = self.options
        make = partial(Consumer, self.queue, self._handler, options.prefetch)
        for _ in range(number):
            await start_child(self._home.ref, child(make, restart="transient", shutdown=options.shutdown))

    def shrink(self) -> None:
        """Ask the newest consumer to end after the message in hand."""
        self.consumers()[-1].tell(Retire())


class _Home(DynamicSupervisor):
    def __init__(self, pool: WorkerPool) -> None:
        super().__init__(restarts=10, period=10.0)
        self._pool = pool

    def on_start(self) -> None:
        self._pool.moved(self)


@message("queues.adjust")
class _Adjust:
    """Has the pool look at its queue."""


class _Scaler(Actor):
    def __init__(self, pool: WorkerPool) -> None:
        self._pool = pool
        self._patience = 0

    def on_start(self) -> None:
        self.ref.tell(_Adjust())
        self.send_every(self._pool.options.interval, _Adjust())

    @handle
    async def adjust(self, message: _Adjust) -> None:
        pool, options = self._pool, self._pool.options
        try:
            wanted = options.wanted(await pool.queue.depth())
            missing = wanted - pool.size
            if missing > 0:
                await pool.grow(missing)
        except QueueError:
            # The queue is closed or somebody else's: the consumers have ended, too.
            self.stop()
            return
        except (ActorDown, PersistenceError):
            return  # the next look may find the supervisor of the consumers, or the store, again
        self._patience = self._patience + 1 if missing < 0 else 0
        if self._patience >= options.patience:
            self._patience = 0
            pool.shrink()

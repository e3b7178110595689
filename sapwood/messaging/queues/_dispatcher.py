"""The dispatcher: one task of each queue takes messages and hands them to the receivers that wait."""

from __future__ import annotations

from collections import deque

import attrs
import trio

from sapwood.errors import PersistenceError, QueueClosed, QueueFenced
from sapwood.messaging.queues._core import Core, logger
from sapwood.messaging.queues._dead_rows import announced
from sapwood.messaging.queues._delivery import Delivery
from sapwood.messaging.queues._events import DeadLetterAlert, SenderNotice
from sapwood.messaging.queues._ledger import Lease
from sapwood.messaging.queues._taking import Taken
from sapwood.messaging.queues._times import Step, Stepped, advance

CALENDAR_CHECK = 1.0
"""Most seconds until a jump of the wall clock is seen while messages wait for a wall-clock time."""

RETRY_STORE = 1.0
"""Seconds until the dispatcher tries again after the store could not answer."""

RETRY_LISTENER = 60.0
"""Seconds until a listener that failed is told again of alerts and notices."""

LAPSED = "the visibility time-out passed"
GIVEN_UP = "its receiver ended while it was being handled"


class Leases:
    """The deliveries that are under way, and when each is over on the monotonic clock."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._until: dict[Lease, float] = {}
        self._given_up: list[tuple[Lease, bool]] = []

    @property
    def first_end(self) -> float:
        """Monotonic time at which the first one is over."""
        # A receiver holds a handful at a time, so there are few.
        return min(self._until.values(), default=float("inf"))

    @property
    def waiting(self) -> bool:
        """Whether some were given up."""
        return bool(self._given_up)

    def holds(self, lease: Lease) -> bool:
        """Whether a delivery is under way."""
        return lease in self._until

    def begin(self, lease: Lease, seconds: float) -> None:
        """Begin the visibility time-out of a delivery."""
        self._until[lease] = self._core.environment.monotonic() + seconds

    def extend(self, lease: Lease, seconds: float) -> bool:
        """Begin the time-out anew; False if the delivery is over."""
        if lease not in self._until:
            return False
        self.begin(lease, seconds)
        self._core.wake.set()
        return True

    def forget(self, lease: Lease) -> None:
        """Note that a delivery was settled."""
        self._until.pop(lease, None)

    def abandon(self, lease: Lease, *, started: bool) -> None:
        """Have the dispatcher bring the message back."""
        self._until.pop(lease, None)
        self._given_up.append((lease, started))
        self._core.wake.set()

    def collect(self) -> list[tuple[Lease, str | None]]:
        """Take out what is over, with the reason; None where no handler has seen the message."""
        now = self._core.environment.monotonic()
        over: list[tuple[Lease, str | None]] = [
            (lease, GIVEN_UP if started else None) for lease, started in self._given_up
        ]
        self._given_up = []
        for lease in [lease for lease, until in self._until.items() if until <= now]:
            del self._until[lease]
            over.append((lease, LAPSED))
        return over

    def put_back(self, over: list[tuple[Lease, str | None]]) -> None:
        """Have what could not be brought back brought back later."""
        self._given_up += [(lease, reason is not None) for lease, reason in over]


@attrs.define(eq=False)
class Receiver:
    """A receiver that waits.

    Attributes:
        limit: Most messages that it takes.
        visibility: Seconds that it has for each.
        waits: Whether it waits for the first message; otherwise the next step answers it.
    """

    limit: int
    visibility: float
    waits: bool
    deliveries: list[Delivery] = attrs.field(factory=list[Delivery])
    error: Exception | None = None
    answered: trio.Event = attrs.field(factory=trio.Event)


class Dispatcher:
    """Runs the steps of one queue. Receivers are served in the order in which they came, so idle ones share evenly."""

    def __init__(self, core: Core) -> None:
        self.leases = Leases(core)
        self.receivers: deque[Receiver] = deque()
        self.stopped = trio.Event()
        self._core = core
        self._leased = 0
        self._paused_until = 0.0
        self._announce_at = 0.0
        self._scheduled_at: float | None = None

    async def receive(self, limit: int, visibility: float, *, waits: bool) -> list[Delivery]:
        """Wait for messages. What a cancelled receiver was about to get goes back and counts as no attempt."""
        await self._core.check()
        receiver = Receiver(limit, visibility, waits)
        self.receivers.append(receiver)
        self._core.wake.set()
        try:
            await receiver.answered.wait()
        except trio.Cancelled:
            self._withdraw(receiver)
            raise
        if receiver.error is not None:
            raise receiver.error
        if not receiver.deliveries:
            self._core.check_nowait()
        return receiver.deliveries

    async def run(self) -> None:
        """Step whenever there is something to do, until the queue takes no more calls."""
        core = self._core
        try:
            while core.refusal is None:
                with trio.move_on_after(self._idle_time()):
                    await core.wake.wait()
                core.wake = trio.Event()
                if core.refusal is None and core.environment.monotonic() >= self._paused_until:
                    await self._try_step()
            for receiver in list(self.receivers):
                self._answer(receiver)
        finally:
            self.stopped.set()

    async def _try_step(self) -> None:
        over = self.leases.collect()
        try:
            await self._step(over)
        except (QueueFenced, QueueClosed):
            return
        except PersistenceError as error:
            logger.warning("queue %r: the store cannot answer: %s", self._core.head.name, error)
            self.leases.put_back(over)
            self._core.changed, self._core.timer = True, 0.0
            self._paused_until = self._core.environment.monotonic() + RETRY_STORE
            for receiver in list(self.receivers):
                self._answer(receiver, error)

    async def _step(self, over: list[tuple[Lease, str | None]]) -> None:
        core = self._core
        polled = [receiver for receiver in self.receivers if not receiver.waits]
        due = bool(over) or self._is_due()
        wanted = sum(receiver.limit for receiver in self.receivers) if due or core.changed else 0
        if due or wanted:
            core.changed = False
            core.timer = float("inf")
            step = Step(
                wanted=wanted,
                first_lease=self._leased + 1,
                released=tuple(lease for lease, reason in over if reason is None),
                lapsed=tuple((lease, reason) for lease, reason in over if reason is not None),
                announces=core.now() >= self._announce_at,
            )
            stepped = await core.write(lambda tx: advance(tx, step))
            self._leased += wanted
            core.changed = core.changed or stepped.more
            self._plan(stepped)
            self._note(stepped, len(step.released))
            self._hand_out(stepped.taken)
            await self._announce(stepped)
        for receiver in polled:
            self._answer(receiver)
        if core.changed and self.receivers:
            core.wake.set()

    def _is_due(self) -> bool:
        core = self._core
        at = self._scheduled_at
        return core.now() >= core.timer or (at is not None and core.environment.wall() >= at)

    def _idle_time(self) -> float:
        core, now = self._core, self._core.environment.monotonic()
        times = [self.leases.first_end - now, core.timer - core.now()]
        if self._scheduled_at is not None:
            times.append(min(self._scheduled_at - core.environment.wall(), CALENDAR_CHECK))
        idle = max(0.0, min(times))
        return max(idle, self._paused_until - now)

    def _plan(self, stepped: Stepped) -> None:
        core = self._core
        if stepped.due is not None:
            core.timer = min(core.timer, stepped.due)
        if self._announce_at > core.now():
            core.timer = min(core.timer, self._announce_at)
        self._scheduled_at = stepped.scheduled

    def _note(self, stepped: Stepped, released: int) -> None:
        core = self._core
        core.count("released", released)
        core.count("lapsed", stepped.lapsed)
        core.count("revived", stepped.revived)
        if stepped.buried:
            # The step itself knows the times of what it buried.
            timer = core.timer
            core.buried(stepped.buried)
            core.timer = timer

    def _hand_out(self, taken: list[Taken]) -> None:
        """Give the messages out one by one, to one receiver after the other, so that all get their share."""
        core = self._core
        for one in taken:
            while self.receivers and len(self.receivers[0].deliveries) >= self.receivers[0].limit:
                self._answer(self.receivers[0])
            if not self.receivers or core.refusal is not None:
                self.leases.abandon(one.lease, started=False)
                continue
            receiver = self.receivers[0]
            self.leases.begin(one.lease, receiver.visibility)
            delivery = Delivery(core, self.leases, one)
            receiver.deliveries.append(delivery)
            core.count("delivered")
            core.count("redelivered", delivery.redelivered)
            self.receivers.rotate(-1)
        for receiver in list(self.receivers):
            if receiver.deliveries:
                self._answer(receiver)

    async def _announce(self, stepped: Stepped) -> None:
        if not (stepped.alerts or stepped.notices):
            return
        core = self._core
        name = core.head.name
        told = [letter.seq for letter in stepped.alerts if core.tell(DeadLetterAlert(letter))]
        for letter in stepped.alerts:
            logger.warning("queue %r: dead letter %d needs somebody (%s)", name, letter.seq, letter.reason)
        noticed = [letter.seq for letter in stepped.notices if core.tell(SenderNotice(letter))]
        if len(told) < len(stepped.alerts) or len(noticed) < len(stepped.notices):
            self._announce_at = core.now() + RETRY_LISTENER
        await core.write(lambda tx: announced(tx, told, noticed))

    def _withdraw(self, receiver: Receiver) -> None:
        if receiver in self.receivers:
            self.receivers.remove(receiver)
        for delivery in receiver.deliveries:
            delivery.abandon(started=False)

    def _answer(self, receiver: Receiver, error: Exception | None = None) -> None:
        if receiver in self.receivers:
            self.receivers.remove(receiver)
        receiver.error = error
        receiver.answered.set()

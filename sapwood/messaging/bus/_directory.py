"""The directory: which participants a bus has, and which handlers each of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any, cast

import trio

from sapwood.actors import Priority, Ref, Reply
from sapwood.errors import InvalidOption
from sapwood.messaging.bus._options import BatchHandler, Handler, HandlerOptions
from sapwood.messaging.bus._reports import Answered
from sapwood.messaging.envelope import Envelope
from sapwood.messaging.queues import Queue
from sapwood.supervision import stable_hash


class Waiter:
    """Somebody who waits for what becomes of a stored message."""

    def __init__(self) -> None:
        self._answer: Answered | None = None
        self._settled = trio.Event()

    def settle(self, answer: Answered) -> None:
        """Say what became of it."""
        self._answer = answer
        self._settled.set()

    async def wait(self) -> Answered:
        """Wait for it."""
        await self._settled.wait()
        assert self._answer is not None
        return self._answer


class Consumer:
    """One handler of one participant, and the actors that run it.

    Args:
        participant: Name of the participant.
        number: Place among its handlers, from 1.
        function: The handler; None if an actor takes the messages itself.
        options: How it gets them.
        refs: The actor; or a place for each worker, which it fills when it starts.

    Attributes:
        running: Messages that each worker is handling.
        ready: Whether its workers have started; until then it gets nothing.
        removed: Whether it was unregistered; what still waits for it is not handled then.
        batches: By worker, the messages of a batch that is not full yet.
    """

    def __init__(
        self,
        participant: str,
        number: int,
        function: Handler | BatchHandler | None,
        options: HandlerOptions,
        refs: list[Ref | None],
    ) -> None:
        self.participant = participant
        self.number = number
        self.function = function
        self.options = options
        self.refs = refs
        self.running = [0] * len(refs)
        self.removed = False
        self.ready = function is None
        # Messages whose dead letter was made elsewhere than where their sender waits.
        self.lettered: deque[str] = deque(maxlen=1_000)
        self.batches: dict[int, list[tuple[Envelope[Any], Reply[Any]]]] = {}
        # With durable delivery: its queue while it is open; dead letters by id; and who waits for which message.
        self.queue: Queue | None = None
        self.served_elsewhere = False
        self.dead: dict[str, int] = {}
        self.errors: dict[str, Exception] = {}
        self.look: Callable[[], None] = lambda: None
        self._awaited: dict[str, list[Waiter]] = {}
        self._changed = trio.Event()

    @property
    def durable(self) -> bool:
        """Whether its messages are stored until they are handled."""
        return self.options.durable

    def open(self, queue: Queue | None) -> None:
        """Note that its queue is open, or that it will not be: it was unregistered, or is served elsewhere."""
        self.queue = queue
        self._changed.set()
        self._changed = trio.Event()

    def close(self, queue: Queue) -> None:
        """Note that its queue is not open any more."""
        if self.queue is queue:
            self.queue = None

    async def opened(self) -> Queue | None:
        """Wait until its queue is open; None if it will not be."""
        await trio.lowlevel.checkpoint()
        while self.queue is None and not self.removed and not self.served_elsewhere:
            await self._changed.wait()
        return self.queue

    @contextmanager
    def awaiting(self, message_id: str) -> Generator[Waiter]:
        """Wait for what becomes of a stored message, inside the block."""
        waiter = Waiter()
        self._awaited.setdefault(message_id, []).append(waiter)
        try:
            yield waiter
        finally:
            waiters = self._awaited[message_id]
            waiters.remove(waiter)
            if not waiters:
                del self._awaited[message_id]

    def settle(self, message_id: str, answer: Answered) -> None:
        """Tell those who wait for a stored message what became of it."""
        for waiter in self._awaited.get(message_id, ()):
            waiter.settle(answer)

    @property
    def target(self) -> object:
        """What was registered: the function or the actor."""
        return self.refs[0] if self.function is None else self.function

    @property
    def waiting(self) -> int:
        """Messages that wait at its live workers."""
        return sum(ref.statistics().waiting for ref in self.refs if ref is not None and ref.alive)

    def lane(self, envelope: Envelope[Any]) -> Priority:
        """Return the lane in which a message waits."""
        return envelope.lane if self.options.order == "priority" else Priority.NORMAL

    def worker_for(self, envelope: Envelope[Any]) -> Ref | None:
        """Return the worker that is to take a message; None if it has ended.

        Raises:
            Exception: what the user's `key` raises.
        """
        if self.options.key is not None:
            return _alive(self.refs[stable_hash(self.options.key(envelope)) % len(self.refs)])
        if len(self.refs) == 1:
            return _alive(self.refs[0])
        living = [
            (self._load(slot, ref), slot, ref) for slot, ref in enumerate(self.refs) if ref is not None and ref.alive
        ]
        return min(living, key=lambda one: one[:2])[2] if living else None

    def _load(self, slot: int, ref: Ref) -> int:
        return ref.statistics().waiting + self.running[slot]


class Directory:
    """Participants by name, in the order in which they came."""

    def __init__(self) -> None:
        self._participants: dict[str, list[Consumer]] = {}
        self._labels: dict[str, list[Consumer]] = {}

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and bool(self.consumers(name))

    def __iter__(self) -> Iterator[str]:
        return iter([name for name in self._participants if name in self])

    def consumers(self, name: str) -> tuple[Consumer, ...]:
        """Return the handlers of a participant that are ready; none if there is no such name."""
        return tuple(consumer for consumer in self._participants.get(name, ()) if consumer.ready)

    def all_consumers(self) -> list[Consumer]:
        """Return the handlers of all participants, those that are not ready yet included."""
        return [consumer for consumers in self._participants.values() for consumer in consumers]

    def add(self, name: str, target: object, options: HandlerOptions) -> Consumer:
        """Add a handler to a participant, which is made if it is new.

        Raises:
            InvalidOption: if the target can handle nothing, is registered already, or has options that do not fit it.
        """
        if not isinstance(name, str) or not name:
            raise InvalidOption(f"participant: expected a name that is text; got {name!r}")
        held = self._participants.get(name, [])
        if any(consumer.target is target for consumer in held):
            raise InvalidOption(f"participant {name!r}: this handler is registered already")
        number = max((consumer.number for consumer in held), default=0) + 1
        if isinstance(target, Ref):
            plain = HandlerOptions(order=options.order if options.order == "fifo" else "priority")
            if options != plain:
                raise InvalidOption(
                    f"participant {name!r}: an actor has its own mailbox, so only order= fits; got {options!r}"
                )
            consumer = Consumer(name, number, None, options, [target])
            self._label(target, consumer)
        elif callable(target):
            # One actor holds the queue of a durable handler, and runs all its workers.
            places: list[Ref | None] = [None] * (1 if options.durable else options.workers)
            consumer = Consumer(name, number, cast("Callable[..., Any]", target), options, places)
        else:
            raise InvalidOption(
                f"participant {name!r}: expected a function of one Envelope, or the Ref of an actor; got {target!r}"
            )
        self._participants.setdefault(name, []).append(consumer)
        return consumer

    def remove(self, name: str) -> tuple[Consumer, ...]:
        """Remove a participant; return its handlers."""
        gone = tuple(self._participants.pop(name, ()))
        for consumer in gone:
            self._forget(consumer)
        return gone

    def remove_consumer(self, consumer: Consumer) -> bool:
        """Remove one handler; say whether its participant has none left and so is gone."""
        held = self._participants.get(consumer.participant, [])
        if consumer in held:
            held.remove(consumer)
        self._forget(consumer)
        if not held:
            self._participants.pop(consumer.participant, None)
        return not held

    def note_worker(self, consumer: Consumer, slot: int, ref: Ref) -> None:
        """Note the present incarnation of a worker."""
        before = consumer.refs[slot]
        if before is not None:
            self._unlabel(before, consumer)
        consumer.refs[slot] = ref
        self._label(ref, consumer)

    def labelled(self, label: str, recipient: str | None = None) -> Consumer | None:
        """Return the handler that an actor of this label runs, that of the recipient if it runs several, or None."""
        found = self._labels.get(label, [])
        return next((consumer for consumer in found if consumer.participant == recipient), found[0] if found else None)

    def keeper_of(self, letter_id: str, target: str) -> tuple[Consumer, int] | None:
        """Return the handler whose queue keeps a dead letter, and its number there; None if none does."""
        for consumer in self._participants.get(target, ()):
            if letter_id in consumer.dead:
                return consumer, consumer.dead[letter_id]
        return None

    def run_by(self, ref: Ref) -> list[Consumer]:
        """Return the handlers that an actor runs, those of participants that are gone included."""
        return [consumer for consumer in self._labels.get(ref.label, ()) if ref in consumer.refs]

    def forget_ref(self, ref: Ref, consumer: Consumer) -> None:
        """Forget an actor that has ended for good."""
        self._unlabel(ref, consumer)

    def _forget(self, consumer: Consumer) -> None:
        # The labels of its actors go when these have ended, for what they leave unread must find its consumer.
        consumer.removed = True
        consumer.open(None)

    def _label(self, ref: Ref, consumer: Consumer) -> None:
        self._labels.setdefault(ref.label, []).append(consumer)

    def _unlabel(self, ref: Ref, consumer: Consumer) -> None:
        held = self._labels.get(ref.label, [])
        if consumer in held:
            held.remove(consumer)
        if not held:
            self._labels.pop(ref.label, None)


def _alive(ref: Ref | None) -> Ref | None:
    return ref if ref is not None and ref.alive else None

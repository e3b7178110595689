"""The directory: which participants a bus has, and which handlers each of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, cast

from sapwood.actors import Priority, Ref, Reply
from sapwood.errors import InvalidOption
from sapwood.messaging.bus._options import BatchHandler, Handler, HandlerOptions
from sapwood.messaging.envelope import Envelope
from sapwood.supervision import stable_hash


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
            consumer = Consumer(name, number, cast("Callable[..., Any]", target), options, [None] * options.workers)
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

    def run_by(self, ref: Ref) -> list[Consumer]:
        """Return the handlers that an actor runs, those of participants that are gone included."""
        return [consumer for consumer in self._labels.get(ref.label, ()) if ref in consumer.refs]

    def forget_ref(self, ref: Ref, consumer: Consumer) -> None:
        """Forget an actor that has ended for good."""
        self._unlabel(ref, consumer)

    def _forget(self, consumer: Consumer) -> None:
        # The labels of its actors go when these have ended, for what they leave unread must find its consumer.
        consumer.removed = True

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

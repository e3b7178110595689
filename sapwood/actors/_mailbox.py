"""The mailbox: four lanes of user messages, and notices that are never bounded, dropped or overtaken by later stops."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

import attrs
import trio

from sapwood.actors._messages import Priority
from sapwood.errors import InvalidOption, MailboxFull

if TYPE_CHECKING:
    from sapwood.actors._contexts import Values

Overflow: TypeAlias = Literal["reject", "drop_oldest", "drop_newest"]

OVERFLOWS: Final = ("reject", "drop_oldest", "drop_newest")

HIGH_WATER: Final = 10_000


@attrs.frozen
class MailboxOptions:
    """How a mailbox behaves when messages come faster than they are handled.

    Attributes:
        capacity: Most user messages that may wait; None for no limit, the default.
        overflow: What happens to one more: `reject` raises `MailboxFull` in the sender; `drop_newest` drops the
            new one; `drop_oldest` drops the oldest of the least urgent lane, or the new one if that is less
            urgent still. Every dropped message is one dead letter (BR-10). `Ref.send` waits for room under each.
        high_water: Length at which the `MailboxHighWater` event is told, once until it has halved.
    """

    capacity: int | None = None
    overflow: Overflow = "reject"
    high_water: int = HIGH_WATER

    def __attrs_post_init__(self) -> None:
        if self.capacity is not None and (type(self.capacity) is not int or self.capacity < 1):
            raise InvalidOption(f"mailbox capacity: expected None or an int >= 1; got {self.capacity!r}")
        if self.overflow not in OVERFLOWS:
            raise InvalidOption(f"mailbox overflow: expected one of {', '.join(OVERFLOWS)}; got {self.overflow!r}")
        if type(self.high_water) is not int or self.high_water < 1:
            raise InvalidOption(f"mailbox high_water: expected an int >= 1; got {self.high_water!r}")


UNBOUNDED: Final = MailboxOptions()


class Sender:
    """A task that waits for room, and the message that it wants to queue."""

    __slots__ = ("entry", "priority", "task")

    def __init__(self, entry: Any, priority: Priority) -> None:
        self.entry = entry
        self.priority = priority
        self.task = trio.lowlevel.current_task()


class Mailbox:
    """The full mailbox, made only when an actor is bounded or has seen another priority than NORMAL.

    Until then an actor's mailbox is one deque. Both offer `popleft` and `len`, so that the actor's loop need not
    know which one it drains. Entries are messages, asks, envelopes and notices.

    A notice waits behind everything that was queued before it: it is put at the end of the least urgent lane in
    use (OTP I28, J13). After `seal` nothing new is handled: it waits apart and becomes dead letters (OTP I21).

    Invariant: while a sender waits for room there is none, since whoever takes a message out hands the room over.
    """

    __slots__ = ("_after", "_lanes", "_senders", "_users", "options")

    def __init__(self, options: MailboxOptions, normal: deque[Any] | None = None) -> None:
        self.options = options
        self._lanes: list[deque[Any] | None] = [None, None, deque() if normal is None else normal, None]
        self._users = sum(1 for entry in normal or () if not is_notice(entry))
        self._after: list[Any] | None = None
        self._senders: deque[Sender] = deque()

    def __len__(self) -> int:
        return sum(len(lane) for lane in self._lanes if lane)

    @property
    def full(self) -> bool:
        """Whether one more user message would overflow."""
        return self.options.capacity is not None and self._users >= self.options.capacity

    def put(self, entry: Any, priority: Priority, target: str) -> Any:
        """Queue a user message; return the entry that was dropped for it, which may be itself, or None.

        Raises:
            MailboxFull: if the mailbox is full and rejects.
        """
        dropped = None
        if self.full:
            if self.options.overflow == "reject":
                raise MailboxFull(target, self.options.capacity or 0)
            dropped = entry if self.options.overflow == "drop_newest" else self._drop_oldest(entry, priority)
            if dropped is entry:
                return entry
        self._put(entry, priority)
        return dropped

    async def wait_room(self, entry: Any, priority: Priority) -> None:
        """Wait, in a full mailbox, until there is room for a user message; it is queued then.

        Senders are served first come, first served, whatever their priorities. A cancelled wait has queued nothing.
        A mailbox that is sealed or closed meanwhile takes the message as one that will not be handled.
        """
        sender = Sender(entry, priority)
        self._senders.append(sender)

        def abort(_raise_cancel: Any) -> trio.lowlevel.Abort:
            self._senders.remove(sender)
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    def put_notice(self, entry: Any) -> None:
        """Queue a notice behind everything that waits."""
        self._lane(Priority.LOW if self._lanes[Priority.LOW] else Priority.NORMAL).append(entry)

    def put_back(self, entry: Any) -> None:
        """Put an entry that was just taken back in front of everything."""
        self._lane(Priority.URGENT).appendleft(entry)
        if not is_notice(entry):
            self._users += 1

    def seal(self) -> None:
        """Let no later message be handled, those of waiting senders included."""
        if self._after is None:
            self._after = []
            self._admit_all()

    def popleft(self) -> Any:
        """Take the first entry of the most urgent lane; hand its room to the first sender that waits for it.

        Raises:
            IndexError: if nothing waits.
        """
        for lane in self._lanes:
            if lane:
                entry = lane.popleft()
                if not is_notice(entry):
                    self._users -= 1
                    if self._senders:
                        self._admit()
                return entry
        raise IndexError("the mailbox is empty")

    def extract(self, wanted: Callable[[Any], bool]) -> list[Any]:
        """Take the notices that fit out, leaving the rest in order."""
        return [entry for lane in self._lanes if lane for entry in extract(lane, wanted)]

    def waiting(self) -> Iterator[Any]:
        """Yield all that would be handled, in order, and leave it where it is."""
        for lane in self._lanes:
            yield from lane or ()

    def close(self) -> Iterator[Any]:
        """Give up all entries, in order, and release waiting senders."""
        self.seal()
        yield from self.waiting()
        yield from self._after or ()

    def _put(self, entry: Any, priority: Priority) -> None:
        (self._lane(priority) if self._after is None else self._after).append(entry)
        self._users += 1

    def _admit(self) -> None:
        sender = self._senders.popleft()
        self._put(sender.entry, sender.priority)
        trio.lowlevel.reschedule(sender.task)

    def _admit_all(self) -> None:
        while self._senders:
            self._admit()

    def _lane(self, priority: Priority) -> deque[Any]:
        lane = self._lanes[priority]
        if lane is None:
            lane = self._lanes[priority] = deque()
        return lane

    def _drop_oldest(self, entry: Any, priority: Priority) -> Any:
        # What waits behind a stop will not be handled, so nothing is dropped for it.
        for candidate in reversed(Priority):
            if candidate < priority or self._after is not None:
                break
            lane = self._lane(candidate)
            for index, waiting in enumerate(lane):
                if not is_notice(waiting):
                    del lane[index]
                    self._users -= 1
                    return waiting
        return entry


class Envelope:
    """A message together with who sent it and the context it was sent in; made where that must be known later."""

    __slots__ = ("message", "sender", "values")

    def __init__(self, message: Any, sender: str | None, values: Values | None) -> None:
        self.message = message
        self.sender = sender
        self.values = values


def is_notice(entry: Any) -> bool:
    """Say whether a mailbox entry is the kernel's own."""
    return getattr(cast("type[Any]", type(entry)), "__system__", False)


def extract(lane: deque[Any], wanted: Callable[[Any], bool]) -> list[Any]:
    """Take the entries that fit out of a deque; the rest keeps its order, and no two entries are compared (BR-11)."""
    entries = list(lane)
    taken = [entry for entry in entries if wanted(entry)]
    if taken:
        lane.clear()
        lane.extend(entry for entry in entries if not wanted(entry))
    return taken

"""The mailbox: four lanes of user messages, and notices that are never bounded, dropped or overtaken by later stops."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final, Literal, TypeAlias

import attrs
import trio

from sapwood.actors._messages import Priority
from sapwood.errors import InvalidOption, MailboxFull

Overflow: TypeAlias = Literal["reject", "drop_oldest", "drop_newest"]

OVERFLOWS: Final = ("reject", "drop_oldest", "drop_newest")


@attrs.frozen
class MailboxOptions:
    """How a mailbox behaves when messages come faster than they are handled.

    Attributes:
        capacity: Most user messages that may wait; None for no limit, the default.
        overflow: What happens to one more: `reject` raises `MailboxFull` in the sender; `drop_newest` drops the
            new one; `drop_oldest` drops the oldest of the least urgent lane, or the new one if that is less
            urgent still. Every dropped message is one dead letter.
        high_water: Length at which the `mailbox_high_water` event is told, once until it has halved.
    """

    capacity: int | None = None
    overflow: Overflow = "reject"
    high_water: int = 10_000

    def __attrs_post_init__(self) -> None:
        if self.capacity is not None and self.capacity < 1:
            raise InvalidOption(f"mailbox capacity: expected None or an int >= 1; got {self.capacity!r}")
        if self.overflow not in OVERFLOWS:
            raise InvalidOption(f"mailbox overflow: expected one of {', '.join(OVERFLOWS)}; got {self.overflow!r}")


UNBOUNDED: Final = MailboxOptions()


class Mailbox:
    """The full mailbox, made only when an actor is bounded or has seen another priority than NORMAL.

    Until then an actor's mailbox is one deque. Both offer `popleft` and `len`, so that the actor's loop need not
    know which one it drains. Entries are messages, asks, envelopes and notices.

    A notice waits behind everything that was queued before it: it is put at the end of the least urgent lane in
    use (OTP I28, J13). After `seal` nothing new is handled: it waits apart and becomes dead letters (OTP I21).
    """

    __slots__ = ("_after", "_lanes", "_options", "_users", "_waiting")

    def __init__(self, options: MailboxOptions, normal: deque[Any] | None = None) -> None:
        self._options = options
        self._lanes: list[deque[Any] | None] = [None, None, normal if normal is not None else deque(), None]
        self._users = sum(1 for entry in self._lanes[Priority.NORMAL] or () if not is_notice(entry))
        self._after: list[Any] | None = None
        self._waiting: deque[trio.lowlevel.Task] = deque()

    def __len__(self) -> int:
        return sum(len(lane) for lane in self._lanes if lane)

    @property
    def full(self) -> bool:
        """Whether one more user message would overflow."""
        return self._options.capacity is not None and self._users >= self._options.capacity

    def put(self, entry: Any, priority: Priority, target: str) -> Any:
        """Queue a user message; return the entry that was dropped for it, or None.

        Raises:
            MailboxFull: if the mailbox is full and rejects.
        """
        if self._after is not None:
            self._after.append(entry)
            return None
        dropped = None
        if self.full:
            if self._options.overflow == "reject":
                raise MailboxFull(target, self._options.capacity or 0)
            if self._options.overflow == "drop_newest":
                return entry
            dropped = self._drop_oldest(priority)
            if dropped is None:
                return entry
        self._lane(priority).append(entry)
        self._users += 1
        return dropped

    def put_notice(self, entry: Any) -> None:
        """Queue a notice behind everything that waits."""
        least_urgent = Priority.LOW if self._lanes[Priority.LOW] else Priority.NORMAL
        self._lane(least_urgent).append(entry)

    def put_back(self, entry: Any) -> None:
        """Put an entry that was just taken back in front of everything."""
        self._lane(Priority.URGENT).appendleft(entry)
        if not is_notice(entry):
            self._users += 1

    def seal(self) -> None:
        """Let no later message be handled."""
        if self._after is None:
            self._after = []

    def popleft(self) -> Any:
        """Take the first entry of the most urgent lane; wake a sender that waits for room.

        Raises:
            IndexError: if nothing waits.
        """
        for lane in self._lanes:
            if lane:
                entry = lane.popleft()
                if not is_notice(entry):
                    self._users -= 1
                    if self._waiting:
                        trio.lowlevel.reschedule(self._waiting.popleft())
                return entry
        raise IndexError("the mailbox is empty")

    async def wait_room(self) -> None:
        """Wait until a message has been taken out; first come, first served."""
        task = trio.lowlevel.current_task()
        self._waiting.append(task)

        def abort(_raise_cancel: Any) -> trio.lowlevel.Abort:
            self._waiting.remove(task)
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    def extract(self, wanted: Callable[[Any], bool]) -> list[Any]:
        """Take the entries that fit out, leaving the rest in order."""
        taken: list[Any] = []
        for lane in self._lanes:
            for entry in [entry for entry in lane or () if wanted(entry)]:
                assert lane is not None
                lane.remove(entry)
                taken.append(entry)
                self._users -= not is_notice(entry)
        return taken

    def close(self) -> Iterator[Any]:
        """Give up all entries, oldest first by lane, and release waiting senders."""
        while self._waiting:
            trio.lowlevel.reschedule(self._waiting.popleft())
        for lane in self._lanes:
            yield from lane or ()
        yield from self._after or ()

    def _lane(self, priority: Priority) -> deque[Any]:
        lane = self._lanes[priority]
        if lane is None:
            lane = self._lanes[priority] = deque()
        return lane

    def _drop_oldest(self, priority: Priority) -> Any:
        for candidate in (Priority.LOW, Priority.NORMAL, Priority.HIGH, Priority.URGENT):
            if candidate < priority:
                return None
            lane = self._lanes[candidate]
            for index, entry in enumerate(lane or ()):
                if not is_notice(entry):
                    del self._lane(candidate)[index]
                    self._users -= 1
                    return entry
        return None


class Envelope:
    """A message together with who sent it; made where that must be known later."""

    __slots__ = ("message", "sender")

    def __init__(self, message: Any, sender: str) -> None:
        self.message = message
        self.sender = sender


def is_notice(entry: Any) -> bool:
    """Say whether a mailbox entry is the kernel's own."""
    return getattr(type(entry), "__system__", False)

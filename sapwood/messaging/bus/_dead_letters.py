"""Dead letters: messages that nobody handled, kept until somebody looks after them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, Protocol, TypeAlias

import attrs

from sapwood.actors import Environment, record
from sapwood.messaging.envelope import Envelope

DeadReason: TypeAlias = Literal[
    "unknown_recipient",
    "recipient_down",
    "unread",
    "overflow",
    "unhandled",
    "handler_failed",
    "interrupted",
    "expired",
    "shed",
    "filtered",
    "no_route",
    "cycle",
    "not_stored",
]

TRANSIENT: Final[Mapping[DeadReason, bool]] = {
    "unknown_recipient": False,  # no participant has this name
    "recipient_down": True,  # its actor had ended
    "unread": True,  # it waited when its recipient ended
    "overflow": True,  # its recipient's mailbox was full
    "unhandled": False,  # its recipient has no handler for envelopes
    "handler_failed": False,  # the handler raised
    "interrupted": True,  # the handler was ended while it ran
    "expired": False,  # its time to live had passed before it was delivered
    "shed": True,  # its recipient was overloaded, and it was not urgent enough
    "filtered": False,  # a filter dropped it
    "no_route": False,  # no route matched it
    "cycle": False,  # delivering it would have closed a circle of waiting actors
    "not_stored": True,  # its recipient has durable delivery, and the store did not take it
}
"""Reason: whether sending it again, unchanged, may help."""

NOTICE: Final = "dead_letter_notice"
"""Header of messages about dead letters, which never become dead letters themselves (BR-44)."""


@record("messaging.dead_letter")
class DeadLetter:
    """A message that nobody handled; the one record for all parts of messaging (S3-110).

    The kernel's `sapwood.actors.DeadLetter` is the event of the moment, of any actor message; this one is kept, and can
    be sent again.

    Attributes:
        id: Unique; kept when the message is sent again and fails again.
        original: The message, as it was sent.
        target: Name of the participant that did not handle it; empty if none was found.
        reason: See `TRANSIENT`.
        detail: What exactly happened.
        first_seen: Wall clock of the first failure, in seconds since 1970 UTC.
        last_attempt: Wall clock of the last one.
        retry_count: How often it was sent again.
    """

    id: str
    original: Envelope[Any]
    target: str
    reason: DeadReason
    detail: str
    first_seen: float
    last_attempt: float
    retry_count: int = 0


class DeadLetterStore(Protocol):
    """Keeps dead letters beyond the end of the process."""

    async def open(self) -> None:
        """Make ready; called before anything else."""
        ...

    async def save(self, letter: DeadLetter) -> None:
        """Keep a letter, in place of an older one with its id."""
        ...

    async def remove(self, letter_id: str) -> None:
        """Forget a letter; one that is not there is no error."""
        ...

    async def load(self) -> list[DeadLetter]:
        """Return all letters, oldest first."""
        ...


@attrs.define(eq=False)
class _Held:
    letter: DeadLetter
    noticed: float
    alerted: bool = False
    # Lets it go where it is kept, for a letter that another part than the store of the office keeps.
    let_go: Callable[[], None] | None = None


Written: TypeAlias = tuple[Literal["save"], DeadLetter] | tuple[Literal["remove"], str]
"""One change that a store has to be told of."""

_Key: TypeAlias = tuple[str, str]


class DeadLetterOffice:
    """Holds the dead letters of one bus; made by the bus.

    Args:
        environment: Source of ids and time.
        capacity: Most letters in memory; beyond it the oldest leaves, which is counted.
        changed: Called with every change that a store must be told of; None without a store.

    Attributes:
        environment: Source of ids and time.
        total: Letters since the start.
        evicted: Letters that left because there was no room.
        suppressed: Notices about dead letters that could not be delivered; they are counted and dropped.
    """

    def __init__(
        self, environment: Environment, capacity: int, changed: Callable[[Written], None] | None = None
    ) -> None:
        self.environment = environment
        self._capacity = capacity
        self._changed = changed
        self._held: OrderedDict[str, _Held] = OrderedDict()
        # Letters that are on their way again, by message and target, so that a second failure goes on where they were.
        self._resent: OrderedDict[_Key, DeadLetter] = OrderedDict()
        self.total = 0
        self.evicted = 0
        self.suppressed = 0

    def add(self, original: Envelope[Any], target: str, reason: DeadReason, detail: str) -> DeadLetter | None:
        """Keep a message that was not handled; None for a notice about a dead letter, which is only counted."""
        if original.headers.get(NOTICE):
            self.suppressed += 1
            return None
        now = self.environment.wall()
        before = self._resent.pop((original.message_id, target), None)
        letter = DeadLetter(
            id=before.id if before else self.environment.new_id("dead_"),
            original=original,
            target=target,
            reason=reason,
            detail=detail,
            first_seen=before.first_seen if before else now,
            last_attempt=now,
            retry_count=before.retry_count + 1 if before else 0,
        )
        self.total += 1
        self._hold(_Held(letter, self.environment.monotonic()))
        self._tell(("save", letter))
        return letter

    def show(self, letter: DeadLetter, let_go: Callable[[], None]) -> bool:
        """Hold a letter that is kept elsewhere, in a durable queue; say whether it is new here.

        Args:
            letter: The letter; its id is the same whenever it is shown.
            let_go: Called when somebody discards it.
        """
        held = self._held.get(letter.id)
        if held is not None:
            held.let_go = let_go
            return False
        before = self._resent.pop((letter.original.message_id, letter.target), None)
        if before is not None:
            known: Any = letter  # mypy does not see an attrs class behind `@record`
            letter = attrs.evolve(known, first_seen=before.first_seen, retry_count=before.retry_count + 1)
        self.total += 1
        self._hold(_Held(letter, self.environment.monotonic(), let_go=let_go))
        return True

    def _hold(self, held: _Held) -> None:
        self._held[held.letter.id] = held
        while len(self._held) > self._capacity:
            # It leaves the memory only; a store keeps it.
            self._held.popitem(last=False)
            self.evicted += 1

    def inspect(
        self,
        *,
        reason: DeadReason | None = None,
        target: str | None = None,
        sender: str | None = None,
        limit: int | None = 100,
    ) -> list[DeadLetter]:
        """Return the newest letters that fit, newest last (S2-029)."""
        found = [
            held.letter
            for held in self._held.values()
            if (reason is None or held.letter.reason == reason)
            and (target is None or held.letter.target == target)
            and (sender is None or held.letter.original.sender == sender)
        ]
        return found if limit is None else found[-limit:] if limit > 0 else []

    def get(self, letter_id: str) -> DeadLetter | None:
        """Return a letter, or None if the office does not hold it."""
        held = self._held.get(letter_id)
        return held.letter if held is not None else None

    def discard(self, letter_id: str) -> bool:
        """Forget a letter for good; say whether it was there."""
        held = self._held.pop(letter_id, None)
        if held is None:
            return False
        if held.let_go is not None:
            held.let_go()
        else:
            self._tell(("remove", letter_id))
        return True

    def take(self, letter_id: str) -> DeadLetter | None:
        """Take a letter out to send it again; should that fail, it comes back with its id and a higher count."""
        held = self._held.pop(letter_id, None)
        if held is None:
            return None
        # A store keeps it until it has been handled: should the process end meanwhile, it is there again.
        letter = held.letter
        self._resent[letter.original.message_id, letter.target] = letter
        while len(self._resent) > self._capacity:
            self._resent.popitem(last=False)
        return letter

    def settle(self, message_id: str, target: str) -> None:
        """Note that a message that was sent again has been handled."""
        letter = self._resent.pop((message_id, target), None)
        if letter is not None:
            self._tell(("remove", letter.id))

    def restore_all(self, letters: list[DeadLetter]) -> None:
        """Take in the newest of the letters that a store had kept, as older than those that are here; called once."""
        now, room = self.environment.monotonic(), self._capacity - len(self._held)
        for letter in reversed(letters[-room:] if room > 0 else []):
            self._held[letter.id] = _Held(letter, now)
            self._held.move_to_end(letter.id, last=False)

    def overdue(self, seconds: float) -> list[DeadLetter]:
        """Return the letters that have waited so long without an alert; each is returned once (S3-111)."""
        now = self.environment.monotonic()
        late = [held for held in self._held.values() if not held.alerted and now - held.noticed >= seconds]
        for held in late:
            held.alerted = True
        return [held.letter for held in late]

    def _tell(self, change: Written) -> None:
        if self._changed is not None:
            self._changed(change)

    def __len__(self) -> int:
        return len(self._held)

"""Messages: typed, immutable, named; and the kernel's own notices."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, dataclass_transform

import attrs

from sapwood.actors._exits import ExitReason
from sapwood.actors._wire import Upcaster, record
from sapwood.errors import InvalidMessage

if TYPE_CHECKING:
    from sapwood.actors._asks import Ask
    from sapwood.actors._cell import Cell
    from sapwood.actors._ref import Ref
    from sapwood.actors._tasks import TaskRef

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Priority(IntEnum):
    """How urgent a message is. Within one priority messages keep their order."""

    URGENT = 0
    HIGH = 1
    NORMAL = 2
    LOW = 3


class Request(Generic[T_co]):
    """Base of messages that want an answer.

    `class Read(Request[int])` makes `await ref.ask(Read())` an `int` to type checkers.
    """

    __slots__ = ()


PRIORITY_EXPECTED: Final = "expected priority=Priority.URGENT, HIGH, NORMAL or LOW"


@dataclass_transform(frozen_default=True, field_specifiers=(attrs.field,))
def message(
    name: str,
    *,
    version: int = 1,
    upcasters: Mapping[int, Upcaster] | None = None,
    priority: Priority = Priority.NORMAL,
) -> Callable[[type[T]], type[T]]:
    """Make a class a message: a frozen, slotted attrs class with a unique wire name.

    Args:
        name: Unique dotted wire name, such as `"account.deposit"`.
        version: Raise it by one when the fields change their meaning.
        upcasters: How to read every older version, see `record`.
        priority: Priority of messages that are sent without one.

    Raises:
        DuplicateName: if another class has this wire name.
        InvalidMessage: if `priority` is no `Priority`, or a version lacks its upcaster.
    """
    if not isinstance(priority, Priority):
        raise InvalidMessage(f"message {name!r}: {PRIORITY_EXPECTED}; got {priority!r}")
    make = record(name, version=version, upcasters=upcasters)

    def decorate(cls: type[T]) -> type[T]:
        made = make(cls)
        made.__priority__ = priority  # type: ignore[attr-defined]  # read by the mailbox, never by users
        return made

    return decorate


def check_message(value: object) -> None:
    """Refuse what is not a message, with a hint what to write instead.

    Raises:
        InvalidMessage: if `value` is not an instance of a class made with `@message`.
    """
    if hasattr(type(value), "__priority__"):
        return
    what = repr(value)
    if isinstance(value, type):
        what = f"the class {value.__name__}; send an instance: {value.__name__}(...)"
    raise InvalidMessage(
        f"expected an instance of a class made with @message; got {what}\n"
        '    write   @message("account.deposit")\n'
        "            class Deposit:\n"
        "                cents: int\n"
        "    and     ref.tell(Deposit(cents=5))"
    )


# Notices are made by the kernel alone. They are never bounded, dropped or put before anything that was sent earlier,
# and they are not stored, so they have no wire name.


def notice(cls: type[T]) -> type[T]:
    """Mark a class as a notice of the kernel."""
    made: Any = cls
    made.__system__ = True
    made.__priority__ = Priority.NORMAL
    return cls


@notice
@attrs.frozen(eq=False)
class Monitor:
    """One watch on one actor; ends with one `Down`, or with `demonitor` (OTP J10)."""

    target: Ref
    watcher: Any = attrs.field(repr=False)


@notice
@attrs.frozen(eq=False)
class Down:
    """A monitored actor has ended: its key is free, and everything it sent before has arrived (OTP J10, J13, I28).

    Attributes:
        monitor: The monitor that this answers.
        ref: The dead actor.
        reason: Why it ended; None if it was dead already when the monitor was made (OTP J11).
    """

    monitor: Monitor
    ref: Ref
    reason: ExitReason | None


@notice
@attrs.frozen(eq=False)
class Exit:
    """A linked actor has ended; only actors that trap exits get this as a message (OTP J04).

    Attributes:
        ref: The linked actor, or the one that called `Ref.exit`; the receiver if that was called outside of actors.
        reason: Why it ended; None if it was dead already when the link was made (OTP J07).
    """

    ref: Ref
    reason: ExitReason | None


@notice
@attrs.frozen(eq=False)
class ChildExit:
    """A child of a supervisor has ended."""

    ref: Ref
    reason: ExitReason


@notice
@attrs.frozen(eq=False)
class TaskDone:
    """A task started with `start_task` has ended; its actor gets exactly one of these, unless it ends first.

    Attributes:
        task: The task.
        value: What it returned; None if it failed.
        reason: `Normal` if it returned, `Crashed` if it raised, `Killed` if it was cancelled.
    """

    task: TaskRef
    value: Any
    reason: ExitReason


@notice
@attrs.frozen(eq=False)
class Stop:
    """Asks the actor to stop when its turn comes; nothing that was sent later is handled (OTP I21)."""

    reason: ExitReason


@notice
@attrs.frozen(eq=False)
class SystemCall:
    """An introspection request: run in the actor's turn, also while it is suspended (OTP O03, O05)."""

    function: Callable[[Cell], Any]
    ask: Ask

"""Who waits for whom: the actor that runs here, and the search for circles of waiting actors."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING

from sapwood.errors import AskCycle

if TYPE_CHECKING:
    from sapwood.actors._cell import Cell
    from sapwood.actors._ref import Ref

CURRENT: ContextVar[Cell | None] = ContextVar("sapwood_current_actor", default=None)
"""The actor whose code runs here, tasks that it started included."""

BLOCKED: ContextVar[Cell | None] = ContextVar("sapwood_blocked_actor", default=None)
"""The actor that takes no other message while the code here waits; None in tasks started with `start_task`."""


def current_actor() -> Ref | None:
    """Return the actor whose code runs here, tasks that it started included; None outside of actors."""
    cell = CURRENT.get()
    return cell.ref if cell is not None else None


def blocked_actor() -> Ref | None:
    """Return the actor that takes no other message while the code here waits; None where no actor is held up."""
    cell = BLOCKED.get()
    return cell.ref if cell is not None else None


def current_label() -> str | None:
    """Return the label of the actor whose code runs here, or None outside of actors."""
    cell = CURRENT.get()
    return cell.label if cell is not None else None


def wait_for(target: Cell) -> Cell | None:
    """Note that the actor whose code runs here waits for another; return it, for `stop_waiting`."""
    caller = BLOCKED.get()
    if caller is not None:
        if caller.asking is None:
            caller.asking = []
        caller.asking.append(target)
    return caller


def stop_waiting(caller: Cell | None, target: Cell) -> None:
    """Take back what `wait_for` noted; an actor that has ended meanwhile has nothing to take back."""
    if caller is not None and caller.asking is not None:
        caller.asking.remove(target)


def check_cycle(caller: Cell, target: Cell) -> None:
    """Refuse an ask from a blocked actor whose target already waits, through others, for that actor.

    Raises:
        AskCycle: naming the actors in order, at once and not at the time-out (BR-14).
    """
    came_from: dict[Cell, Cell] = {}
    pending = [target]
    while pending:
        at = pending.pop()
        for next_one in at.asking or ():
            if next_one is caller:
                chain = [caller]
                while at is not target:
                    chain.append(at)
                    at = came_from[at]
                raise AskCycle([cell.label for cell in (caller, target, *reversed(chain))])
            if next_one is not target and next_one not in came_from:
                came_from[next_one] = at
                pending.append(next_one)


def check_branch(caller: Cell | None, through: Sequence[Cell], stopped: Cell) -> None:
    """Refuse a wait for the end of an actor by one that it supervises, at whatever depth (OTP E17).

    Args:
        caller: The actor that would wait; None if none does.
        through: Whom it asks for that.
        stopped: The actor that is to end.

    Raises:
        AskCycle: naming the actors in order; nothing has been stopped.
    """
    branch: list[Cell] = []
    at = caller
    while at is not None:
        branch.append(at)
        if at is stopped:
            assert caller is not None
            raise AskCycle([cell.label for cell in (caller, *through, *reversed(branch))])
        at = at.parent

"""The burial: what is told to whom, and in which order, when an actor has ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from sapwood.actors._asks import Ask
from sapwood.actors._exits import Crashed, ExitReason, Killed, is_fatal
from sapwood.actors._inbox import BUSY, NO_HANDLERS, NOTHING, Phase
from sapwood.actors._mailbox import Envelope
from sapwood.actors._messages import ChildExit, Down
from sapwood.actors._telemetry import CrashReport, Exited
from sapwood.errors import ActorDown

if TYPE_CHECKING:
    from sapwood.actors._cell import Cell

QUEUED_SHOWN: Final = 20
"""Most waiting messages that a crash report names."""


def bury(cell: Cell) -> None:
    """Announce the end of an actor, once: free the key first, then tell everybody (OTP J10, J13).

    Runs in the actor's own task, or in its supervisor's if it never had one. Nothing in here lets other code run.
    """
    if cell.reason is not None:
        return
    cell.reason = reason = cell.requested or cell.leaving or Killed()
    cell.phase = Phase.DEAD
    cell.queue = None
    if cell.task is not None and cell.mode == BUSY:
        cell.system.busy -= 1
    cell.mode = BUSY
    if not cell.ran and not cell.ignored and cell.start_error is None:
        cell.start_error = ActorDown(cell.label, reason)  # killed while it started
    if cell.key is not None:
        cell.system.registrar.release(cell.key, cell.ref)
    cell.system.forget(cell)
    if isinstance(reason, Crashed) and cell.requested is None:
        _report(cell, reason)  # its own crash, not that of a linked actor
    _leave_tables(cell)
    _fail_asks(cell, reason)
    _tell(cell, reason)
    # Nothing of the dead actor may be kept alive by refs to it (BR-79).
    cell.actor = cell.context = cell.box = cell.calls = cell.current = cell.asked = cell.taken = cell.held_reply = None
    cell.timers = cell.aimed = cell.tasks = cell.monitors = cell.watching = cell.waiters = cell.owed = cell.asking = (
        None
    )
    cell.task = cell.scope = cell.nursery = cell.idle = cell.debug = cell.enter = None
    cell.continuation = NOTHING
    cell.plain = cell.inline = NO_HANDLERS


def _leave_tables(cell: Cell) -> None:
    for timer in (*(cell.timers or ()), *(cell.aimed or ())):
        timer.drop()
    if cell.idle is not None:
        cell.idle.cancel()
    for monitor in cell.watching or ():
        watched: Cell = monitor.target._cell
        if watched.monitors is not None:
            watched.monitors.pop(monitor, None)


def _fail_asks(cell: Cell, reason: ExitReason) -> None:
    error = ActorDown(cell.label, reason)
    if cell.held_reply is not None:
        # The actor has wound down, so that now the answer is due; one that was killed meanwhile gives none (OTP I14).
        ask, value = cell.held_reply
        if cell.abrupt:
            ask.fail(error)
        else:
            ask.answer(value)
    if isinstance(cell.asked, Ask):
        cell.asked.fail(error)
    for ask in tuple(cell.owed or ()):
        ask.fail(error)
    cell.refuse_leftovers()


def _tell(cell: Cell, reason: ExitReason) -> None:
    for monitor in cell.monitors or ():
        watcher: Cell = monitor.watcher
        watcher.deliver_down(Down(monitor, cell.ref, reason))
    links, cell.links = cell.links, None
    for linked in links or ():
        if linked.links is not None:
            linked.links.pop(cell, None)
        linked.signal_exit(cell, reason)
    if cell.parent is not None and cell.ran:
        cell.parent.put_entry(ChildExit(cell.ref, reason))
    for waiter in cell.waiters or ():
        trio.lowlevel.reschedule(waiter)
    if Exited in cell.system.telemetry.wanted:
        cell.system.telemetry.tell(Exited(cell.label, cell.key, cell.parent_label, reason))
    cell.release_starter()


def _report(cell: Cell, reason: Crashed) -> None:
    """Tell listeners what was going on when an actor crashed (OTP P07, P08)."""
    if CrashReport not in cell.system.telemetry.wanted:
        return
    current, client = cell.current, None
    if isinstance(current, Ask):
        current, client = current.request, current.sender_label
    elif isinstance(current, Envelope):
        current = current.message
    queued = tuple(type(message).__name__ for message in cell.waiting())
    links = tuple(cell.links or ())
    cell.system.telemetry.tell(
        CrashReport(
            actor=cell.label,
            key=cell.key,
            parent=cell.parent_label,
            reason=reason,
            last_message=type(current).__name__ if current is not None else None,
            state=format_state(cell) if cell.ran else "",
            mailbox=len(cell.box or ()),
            incarnation=cell.incarnation,
            kind=cell.birth.name,
            ancestors=ancestors_of(cell),
            queued=queued[:QUEUED_SHOWN],
            links=tuple(linked.label for linked in links),
            falling=tuple(linked.label for linked in links if not linked.traps_exits),
            trap_exits=cell.traps_exits,
            client=client,
            log=tuple(cell.debug.log or ()) if cell.debug is not None else (),
        )
    )


def ancestors_of(cell: Cell) -> tuple[str, ...]:
    """Return the labels of the supervisors above an actor, nearest first."""
    labels: list[str] = []
    at = cell.parent
    while at is not None:
        labels.append(at.label)
        at = at.parent
    return tuple(labels)


def format_state(cell: Cell) -> str:
    """Describe the state as the actor's hook shows it; a hook that fails hides the state, not the crash (OTP O07)."""
    assert cell.actor is not None
    try:
        return cell.actor.format_state()
    except Exception as error:
        if is_fatal(error):
            raise
        return f"<format_state failed: {type(error).__name__}>"

"""The clerk: the actor that looks after dead letters, the last of a bus to stop."""

from __future__ import annotations

import inspect
from typing import Final

import trio

from sapwood.actors import Actor, ExitReason, handle, message, record
from sapwood.errors import CodecError, PersistenceError
from sapwood.messaging.bus._dead_letters import NOTICE, DeadLetter, DeadLetterStore
from sapwood.messaging.bus._delivery import post_all_nowait
from sapwood.messaging.bus._desk import Desk
from sapwood.messaging.bus._log import log_warning
from sapwood.messaging.envelope import make_envelope

LOOKS: Final = 10
"""Looks for overdue dead letters within the time after which they are overdue."""


@message("messaging.bus.look")
class Look:
    """Time to look for overdue dead letters."""


@message("messaging.bus.write")
class Write:
    """Dead letters have changed, and the store has to be told."""


@record("messaging.dead_letter_alert")
class DeadLetterAlert:
    """Tells the sender of a message that it was not handled and nobody has looked after it (S3-111).

    Attributes:
        letter_id: The dead letter.
        message_id: The message.
        target: Who did not handle it.
        reason: Why.
        seconds: How long ago it first failed.
    """

    letter_id: str
    message_id: str
    target: str
    reason: str
    seconds: float


class Clerk(Actor):
    """Hears of dead letters, writes them down, and raises alerts.

    Args:
        desk: The desk of the bus.
    """

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.write_waits = False
        self.opened = False

    async def on_start(self) -> None:
        desk = self.desk
        desk.attach(self._cell.system)
        desk.on_change = self._on_change
        self.send_every(desk.options.alert_after / LOOKS, Look())
        await self._write()

    async def on_stop(self, reason: ExitReason) -> None:
        await self._write()
        self.desk.detach()

    def _on_change(self) -> None:
        if not self.write_waits and self.ref.alive:
            self.write_waits = True
            self.ref.tell(Write())

    @handle
    async def write(self, message: Write) -> None:
        self.write_waits = False
        await self._write()

    async def _write(self) -> None:
        """Tell the store of all changes in order; what it does not take now is told again at the next look.

        A store that cannot answer, when the bus starts or later, costs the bus nothing else.
        """
        await trio.lowlevel.checkpoint()
        store = self.desk.options.store
        if store is not None:
            try:
                await self._tell(store)
            except PersistenceError as error:
                waiting = len(self.desk.unwritten)
                log_warning("dead letters are not written down yet", waiting=waiting, error=str(error))

    async def _tell(self, store: DeadLetterStore) -> None:
        desk = self.desk
        if not self.opened:
            await store.open()
            self.opened = True
        if not desk.loaded:
            desk.office.restore_all(await store.load())
            desk.loaded = True
        while desk.unwritten:
            change = desk.unwritten[0]
            if change[0] == "save":
                await self._save(store, change[1])
            else:
                await store.remove(change[1])
            desk.unwritten.popleft()

    async def _save(self, store: DeadLetterStore, letter: DeadLetter) -> None:
        try:
            await store.save(letter)
        except CodecError as error:
            # It will never fit, and those behind it must not wait for ever; the office still holds it.
            log_warning("a dead letter cannot be written down", letter=letter.id, error=str(error))

    @handle
    async def look(self, message: Look) -> None:
        for letter in self.desk.office.overdue(self.desk.options.alert_after):
            await self._alert(letter)
        await self._write()

    async def _alert(self, letter: DeadLetter) -> None:
        desk = self.desk
        seconds = desk.environment.wall() - letter.first_seen
        sender = letter.original.sender
        log_warning(
            "dead letter waits", letter=letter.id, source_agent=sender, target_agent=letter.target, reason=letter.reason
        )
        alert = DeadLetterAlert(letter.id, letter.original.message_id, letter.target, letter.reason, seconds)
        notice = make_envelope(
            desk.environment,
            alert,
            sender=desk.options.name,
            recipient=sender,
            correlation_id=letter.original.correlation_id,
            causation_id=letter.original.message_id,
            headers={NOTICE: True},
        )
        post_all_nowait(desk, notice, desk.directory.consumers(sender))
        if desk.options.on_alert is not None:
            try:
                done = desk.options.on_alert(letter)
                if inspect.isawaitable(done):
                    await done
            except (MemoryError, trio.TrioInternalError):
                raise
            except Exception as error:
                log_warning("the alert hook failed", letter=letter.id, error=repr(error))

"""The keeper: the actor that watches over participants, and the tree that it lives in."""

from __future__ import annotations

from functools import partial
from typing import Any

import trio

from sapwood.actors import Actor, Down, Monitor, Ref, TaskDone, handle, message
from sapwood.messaging.bus._clerk import Clerk
from sapwood.messaging.bus._desk import Desk
from sapwood.messaging.bus._directory import Consumer
from sapwood.messaging.bus._durable_hosts import host_spec
from sapwood.messaging.bus._workers import Retire, Workers, worker_spec
from sapwood.supervision import ChildSpec, child, start_child, supervisor


@message("messaging.bus.watch")
class Watch:
    """Tells the keeper of an actor that was registered."""

    ref: Ref


@message("messaging.bus.dismiss")
class Dismiss:
    """Tells the keeper to have a worker end whose handler was unregistered."""

    ref: Ref


class Keeper(Actor):
    """Watches registered actors, and starts the workers that are missing.

    Args:
        desk: The desk of the bus.
    """

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.watched: dict[Ref, Monitor] = {}

    async def on_start(self) -> None:
        desk = self.desk
        desk.ready, desk.keeper = False, self.ref
        for consumer in desk.directory.all_consumers():
            await self._tend(consumer)
        desk.ready = True
        await trio.lowlevel.checkpoint()

    async def _tend(self, consumer: Consumer) -> None:
        if consumer.function is None:
            self._watch(consumer.refs[0])
        else:
            await start_workers(self.desk, consumer)

    def _watch(self, ref: Ref | None) -> None:
        if ref is not None and ref not in self.watched:
            self.watched[ref] = self.monitor(ref)

    @handle
    def watch(self, message: Watch) -> None:
        self._watch(message.ref)

    @handle
    def dismiss(self, message: Dismiss) -> None:
        self._watch(message.ref)
        # In a task of its own, for the worker's mailbox may be full.
        self.start_task(message.ref.send, Retire())

    @handle
    def dismissed(self, message: TaskDone) -> None:
        """Do nothing: the end of the worker comes as `Down`."""

    @handle
    def down(self, message: Down) -> None:
        self.watched.pop(message.ref, None)
        directory = self.desk.directory
        for consumer in directory.run_by(message.ref):
            directory.forget_ref(message.ref, consumer)
            gone = consumer.function is None and not consumer.removed and directory.remove_consumer(consumer)
            if gone:
                self.desk.subscriptions.remove_all(consumer.participant)


async def start_workers(desk: Desk, consumer: Consumer) -> None:
    """Start the workers of a handler that do not run.

    Raises:
        ActorDown: if the supervisor of the workers is being restarted; the next keeper starts them.
    """
    assert desk.home is not None
    for slot, ref in enumerate(consumer.refs):
        if ref is None or not ref.alive:
            spec = host_spec(desk, consumer) if consumer.durable else worker_spec(desk, consumer, slot)
            await start_child(desk.home, spec)


def bus_tree(desk: Desk, *, restarts: int, period: float) -> ChildSpec:
    """Describe the tree of a bus; see `bus_child`."""
    workers = child(partial(Workers, desk, restarts=restarts, period=period), id="workers")
    keeper = child(Keeper, desk, id="keeper")
    limits: dict[str, Any] = {"restarts": restarts, "period": period}
    participants = supervisor([workers, keeper], strategy="rest_for_one", id="participants", **limits)
    return supervisor(
        [child(Clerk, desk, id="clerk"), participants], strategy="one_for_one", id=desk.options.name, **limits
    )

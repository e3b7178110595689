"""Event sourcing: an actor whose state is the fold of what has happened."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Generic, TypeVar

from sapwood.actors import Actor
from sapwood.errors import NotRunningInside
from sapwood.messaging.patterns._fold import FoldedLog, Snapshots
from sapwood.persistence import StoreEngine

S = TypeVar("S")


class EventSourced(Actor, ABC, Generic[S]):
    """An actor whose state is the fold of its durable log of events (S2-055).

    Derive, say what the state is before the first event (`initial`) and what each event makes of it (`evolve`), and
    handle commands: look at `self.state`, decide, and `await self.emit(event, ...)`. An event is durable before it is
    in the state. After a crash the actor is where it was: nothing that `emit` returned for is lost, and what it did
    not return for is there wholly or not at all. A client that does not know sends its command again; put the
    command's id into the event, and the state can tell the repeat.

    If two of them run on one log, the second `emit` of an outdated one is refused with `SequenceConflict`, with which
    it crashes and starts anew with the newest state.

    Class attributes:
        snapshot_every: Events after which the state, a `@record`, is saved for faster starts; None never saves it.
        snapshot_version: Raise it when `evolve` changes; snapshots of other versions are not read.

    Args:
        store: An open store.
        log: Name of its log; `LogReader` and `Projection` read it.
    """

    snapshot_every: ClassVar[int | None] = 100
    snapshot_version: ClassVar[int] = 1

    def __init__(self, store: StoreEngine, log: str) -> None:
        self._store = store
        self._log = log
        self._folded: FoldedLog[S] | None = None

    @abstractmethod
    def initial(self) -> S:
        """Return the state before the first event."""

    @abstractmethod
    def evolve(self, state: S, event: Any) -> S:
        """Return the state after an event. Pure: the same for ever, without a look at the world outside.

        An exception refuses the event, which is not stored then.
        """

    async def on_start(self) -> None:
        every = self.snapshot_every
        snapshots = None if every is None else Snapshots(every, self.snapshot_version)
        folded = FoldedLog(
            self._store,
            self.environment,
            self._log,
            initial=self.initial(),
            evolve=self.evolve,
            snapshots=snapshots,
        )
        await folded.load()
        self._folded = folded

    @property
    def state(self) -> S:
        """The state as of now; never change it, emit an event."""
        return self._running("state").state

    @property
    def seq(self) -> int:
        """Sequence number of the last event in the state; what a query that must see it asks a `Projection` for."""
        return self._running("seq").seq

    async def emit(self, *events: object, expected_seq: int | None = None) -> int:
        """Store events, all or none, and fold them into the state; return the new `seq` once they are durable.

        Args:
            *events: Instances of classes made with `@record`.
            expected_seq: `seq` of the state that was decided on; give it where the actor has taken other messages
                since, in a task, so that nothing they changed is overwritten (BR-53). None for the state as it is.

        Raises:
            SequenceConflict: if the state has gone on since `expected_seq`, or another actor has written to the log.
            CodecError, InvalidMessage: if an event cannot be stored.
            StoreUnavailable: if the store cannot write. In all these cases nothing was stored.
        """
        return await self._running("emit").append(*events, expected_seq=expected_seq)

    def format_state(self) -> str:
        folded = self._folded
        return f"log={self._log!r}" + ("" if folded is None else f", seq={folded.seq}, state={folded.state!r:.80}")

    def _running(self, what: str) -> FoldedLog[S]:
        if self._folded is None:
            raise NotRunningInside(
                f"{type(self).__name__}.{what}: expected an actor that has read its log; a class with an on_start of "
                "its own begins it with   await super().on_start()"
            )
        return self._folded

"""The publisher: numbered events of one agent, to any number of readers, none of whom can slow the agent down."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from typing import Any, Final, Self, TypeVar

import trio

from sapwood.actors import Environment, ExitReason
from sapwood.conversation import (
    LOSS,
    AgentShutdown,
    AssistantMessage,
    DebugNote,
    Gap,
    MessageCompleted,
    State,
    StatusChanged,
    StreamEvent,
    TextDiscarded,
    TextStreamed,
)
from sapwood.errors import SubscriptionLagged

E = TypeVar("E", bound=StreamEvent)

KEPT: Final = 1_000
WAITING: Final = 1_000
MOST_WAITING: Final = 10_000


class Publisher:
    """Events of one agent, over all incarnations of its server in this process.

    Publishing never blocks (S4-068). Each reader has a queue of its own: above `WAITING` events, those that may be
    dropped are, and a `Gap` says which; the others wait, and a reader with more than `MOST_WAITING` of them is cut off
    with `SubscriptionLagged` (C34). A reader may join at any time; the last `KEPT` events are replayed on request.

    Attributes:
        state: The conversation as its server last journaled it; None before the first server has loaded it.
        journal_seq: Sequence number in the journal that `state` belongs to; everything up to it was announced.
        up: Whether the agent's tree runs, so that more events can be expected.
        serving: Whether a server has started and not ended.
        failure: Why the last server could not start; None if it could.
        on_left: Called when the last viewer has left; None if nobody wants to know.
        last_exit: Why the last server that has ended did; None if none has.
        tree_exit: Why the agent's tree has ended; None while it runs.

    Args:
        agent_id: The agent.
        environment: Door to the wall clock.
        on_idle: Called when nobody needs this publisher any more: the tree has ended and the last reader has left.
    """

    def __init__(
        self, agent_id: str, environment: Environment, on_idle: Callable[[Publisher], None] = lambda _: None
    ) -> None:
        self.agent_id = agent_id
        self.state: State | None = None
        self.journal_seq = 0
        self.up = False
        self.serving = False
        self.failure: Exception | None = None
        self.last_exit: ExitReason | None = None
        self.tree_exit: ExitReason | None = None
        self.on_left: Callable[[], object] | None = None
        self._environment = environment
        self._on_idle = on_idle
        self._seq = 0
        self._half_said = False
        self._settled = trio.Event()
        self._kept: deque[StreamEvent] = deque(maxlen=KEPT)
        self._readers: dict[Subscription, None] = {}
        self._viewers: Counter[str] = Counter()

    @property
    def seq(self) -> int:
        """Number of the last event."""
        return self._seq

    @property
    def readers(self) -> int:
        """Number of subscriptions."""
        return len(self._readers)

    @property
    def viewers(self) -> tuple[str, ...]:
        """Names of those who watch without a subscription, sorted."""
        return tuple(sorted(self._viewers))

    @property
    def watched(self) -> bool:
        """Whether anybody subscribes or watches."""
        return bool(self._readers or self._viewers)

    def wall(self) -> float:
        """Return wall-clock seconds since 1970 UTC."""
        return self._environment.wall()

    # --- for the server ---------------------------------------------------------------------------

    def attach(self, state: State, epoch: int, journal_seq: int) -> int:
        """Take the state that a server has loaded; return how many events of its journal were never announced.

        Such events were journaled by a server that died before it could tell of them, or by another process.

        A publisher that has not published yet begins to count where no former process can have come with its epochs,
        so that a reader who comes back with an old number is told of a gap, and never waits for numbers to catch up.
        """
        untold = journal_seq - self.journal_seq if self.state is not None else 0
        self.state, self.journal_seq = state, journal_seq
        if self._seq == 0 and epoch > 1:
            self._seq = (epoch - 1) << 32
            for reader in tuple(self._readers):
                reader.jumped(self._seq)
        return untold

    def begin(self) -> None:
        """Note that a server has started, and announce its status (S4-069)."""
        assert self.state is not None
        self.serving = True
        self.failure = None
        self._settled.set()
        self.publish(StatusChanged, self._run_id, status=self.state.status, detail=self.state.error)

    def publish(self, kind: type[E], run_id: str, **fields: Any) -> E:
        """Make an event of a kind and hand it to all readers, in order."""
        self._seq += 1
        event = kind(agent_id=self.agent_id, run_id=run_id, seq=self._seq, at=self._environment.wall(), **fields)
        self._kept.append(event)
        if kind is TextStreamed:
            self._half_said = True
        elif kind is TextDiscarded or (kind is MessageCompleted and isinstance(fields["message"], AssistantMessage)):
            self._half_said = False
        for reader in tuple(self._readers):
            reader.offer(event)
        return event

    @property
    def debugged(self) -> bool:
        """Whether any reader wants notes for debugging; making them is no small work."""
        return any(reader.debug for reader in self._readers)

    def note(self, run_id: str, *, journal_seq: int, kind: str, source: str, data: dict[str, Any]) -> None:
        """Hand a note to those readers that debug; it takes no number and is not kept."""
        at = self._environment.wall()
        event = DebugNote(self.agent_id, run_id, self._seq, at, journal_seq, kind, source, data)
        for reader in tuple(self._readers):
            if reader.debug:
                reader.offer(event)

    def discard(self, run_id: str, reason: str) -> None:
        """Declare streamed text void of which the whole will not follow, if there is such a one."""
        if self._half_said:
            self.publish(TextDiscarded, run_id, reason=reason)

    def shut_down(self, reason: str) -> None:
        """Announce that the server has ended, once for each start, however it ended (S4-062, AR-22.27)."""
        if not self.serving:
            return
        self.serving = False
        self.on_left = None
        self._settled = trio.Event()
        state = self.state
        assert state is not None
        self.discard(self._run_id, reason)
        self.publish(
            AgentShutdown,
            self._run_id,
            reason=reason,
            status=state.status,
            open_interrupts=tuple(each.id for each in state.undecided),
            queued=len(state.queue),
        )

    def ended(self, reason: ExitReason | None = None) -> None:
        """Note that the agent's tree has ended: no more events until it is started again."""
        self.up = False
        self.tree_exit = reason
        self._settled.set()
        self._settled = trio.Event()
        for reader in tuple(self._readers):
            reader.wake()
        self._rest()

    async def wait_settled(self) -> None:
        """Wait until a server serves or the tree, if it runs, has ended; `serving` and `failure` tell which."""
        await trio.lowlevel.checkpoint()
        if self.up and not self.serving:
            await self._settled.wait()

    @property
    def _run_id(self) -> str:
        return self.state.run.id if self.state is not None and self.state.run is not None else ""

    # --- for readers ------------------------------------------------------------------------------

    def subscribe(self, after: int | None = None, *, snapshot: bool = False, debug: bool = False) -> Subscription:
        """Join; events reach the subscription from now on.

        Args:
            after: Replay kept events with higher numbers first; a `Gap` stands for those that are no longer kept.
                None replays nothing.
            snapshot: Begin with the present status, under the number of the last event (S4-069, AR-24.35).
            debug: Whether to tell of every change as it is journaled too (S4-070).
        """
        subscription = Subscription(self, after, debug=debug)
        if snapshot and self.serving and self.state is not None:
            subscription.offer(self._status(self.state))
        if after is not None and self._kept:
            subscription.jumped(self._kept[0].seq - 1)
            for event in self._kept:
                if event.seq > after:
                    subscription.offer(event)
        self._readers[subscription] = None
        return subscription

    def leave(self, subscription: Subscription) -> None:
        """Forget a reader."""
        if subscription in self._readers:
            del self._readers[subscription]
            self._left()

    def watch(self, viewer: str) -> None:
        """Note that somebody watches; the same viewer may do so several times, in several windows."""
        self._viewers[viewer] += 1

    def unwatch(self, viewer: str) -> None:
        """Note that somebody has left."""
        self._viewers[viewer] -= 1
        if not self._viewers[viewer]:
            del self._viewers[viewer]
        self._left()

    def _left(self) -> None:
        if not self.watched and self.on_left is not None:
            self.on_left()
        self._rest()

    def gap(self, first: int, last: int) -> Gap:
        """Make the event that stands for missing ones."""
        return Gap(
            agent_id=self.agent_id, run_id="", seq=last, at=self._environment.wall(), from_seq=first, to_seq=last
        )

    def _status(self, state: State) -> StatusChanged:
        return StatusChanged(
            agent_id=self.agent_id,
            run_id=self._run_id,
            seq=self._seq,
            at=self._environment.wall(),
            status=state.status,
            detail=state.error,
        )

    def _rest(self) -> None:
        if not self.up and not self.watched:
            self._on_idle(self)


class Subscription:
    """One reader's place: `with publisher.subscribe() as events: async for event in events: ...`.

    Iteration ends when the agent's tree has ended and everything was read; it can be taken up again when the agent
    was started again. For one task at a time.

    Attributes:
        debug: Whether it gets notes for debugging too.
    """

    def __init__(self, publisher: Publisher, after: int | None = None, *, debug: bool = False) -> None:
        self.debug = debug
        self._publisher = publisher
        self._after = after
        self._waiting: deque[StreamEvent] = deque()
        self._missed: tuple[int, int] | None = None
        self._arrived = trio.Event()
        self._lagged = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave; what waits is dropped."""
        self._publisher.leave(self)
        self._waiting.clear()

    def offer(self, event: StreamEvent) -> None:
        """Queue an event, or note that it was dropped."""
        if len(self._waiting) >= WAITING and LOSS[type(event)] == "may_be_dropped":
            self.missed(event.seq, event.seq)
            return
        if len(self._waiting) >= MOST_WAITING:
            self._lagged = True
            self._publisher.leave(self)
        elif not self._lagged:
            self._flush_gap()
            self._waiting.append(event)
        self.wake()

    def missed(self, first: int, last: int) -> None:
        """Note that events were dropped."""
        if self._missed is not None and self._missed[1] + 1 == first:
            first = self._missed[0]
        else:
            self._flush_gap()
        self._missed = (first, last)
        self.wake()

    def jumped(self, seq: int) -> None:
        """Note that the next event has a number above this one; a reader that resumes is told what it missed."""
        if self._after is not None and self._after < seq:
            self.missed(self._after + 1, seq)

    def _flush_gap(self) -> None:
        if self._missed is not None:
            self._waiting.append(self._publisher.gap(*self._missed))
            self._missed = None

    def wake(self) -> None:
        """Let the reader look."""
        self._arrived.set()

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> StreamEvent:
        """Return the next event.

        Raises:
            SubscriptionLagged: if this reader was cut off because it was too slow.
        """
        await trio.lowlevel.checkpoint()
        while True:
            if not self._waiting:
                self._flush_gap()
            if self._waiting:
                return self._waiting.popleft()
            if self._lagged:
                raise SubscriptionLagged(self._publisher.agent_id, self._publisher.seq)
            if not self._publisher.up:
                raise StopAsyncIteration
            self._arrived = trio.Event()
            await self._arrived.wait()

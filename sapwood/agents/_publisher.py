"""The publisher: numbered events of one agent, to any number of readers, none of whom can slow the agent down."""

from __future__ import annotations

from collections import deque
from typing import Any, Final, TypeVar

import trio

from sapwood.actors import Environment
from sapwood.conversation import LOSS, Gap, State, StreamEvent
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
        up: Whether the agent's tree runs, so that more events can be expected.
    """

    def __init__(self, agent_id: str, environment: Environment) -> None:
        self.agent_id = agent_id
        self.state: State | None = None
        self.up = False
        self._environment = environment
        self._seq = 0
        self._kept: deque[StreamEvent] = deque(maxlen=KEPT)
        self._readers: dict[Subscription, None] = {}

    @property
    def seq(self) -> int:
        """Number of the last event."""
        return self._seq

    @property
    def readers(self) -> int:
        """Number of subscriptions."""
        return len(self._readers)

    def publish(self, kind: type[E], run_id: str, **fields: Any) -> E:
        """Make an event of a kind and hand it to all readers, in order."""
        self._seq += 1
        event = kind(agent_id=self.agent_id, run_id=run_id, seq=self._seq, at=self._environment.wall(), **fields)
        self._kept.append(event)
        for reader in tuple(self._readers):
            reader.offer(event)
        return event

    def ended(self) -> None:
        """Note that the agent's tree has ended: no more events until it is started again."""
        self.up = False
        for reader in tuple(self._readers):
            reader.wake()

    def subscribe(self, after: int | None = None) -> Subscription:
        """Join; events reach the subscription from now on.

        Args:
            after: Replay kept events with higher numbers first; a `Gap` stands for those that are no longer kept.
                None replays nothing.
        """
        subscription = Subscription(self)
        if after is not None:
            oldest = self._kept[0].seq if self._kept else self._seq + 1
            if after + 1 < oldest:
                subscription.missed(after + 1, oldest - 1)
            for event in self._kept:
                if event.seq > after:
                    subscription.offer(event)
        self._readers[subscription] = None
        return subscription

    def leave(self, subscription: Subscription) -> None:
        """Forget a reader."""
        self._readers.pop(subscription, None)

    def gap(self, first: int, last: int) -> Gap:
        """Make the event that stands for missing ones."""
        return Gap(
            agent_id=self.agent_id, run_id="", seq=last, at=self._environment.wall(), from_seq=first, to_seq=last
        )


class Subscription:
    """One reader's place: `with publisher.subscribe() as events: async for event in events: ...`.

    Iteration ends when the agent's tree has ended and everything was read; it can be taken up again when the agent
    was started again. For one task at a time.
    """

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher
        self._waiting: deque[StreamEvent] = deque()
        self._missed: tuple[int, int] | None = None
        self._arrived = trio.Event()
        self._lagged = False

    def __enter__(self) -> Subscription:
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

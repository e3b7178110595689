"""Random programs of tells, sends, handling steps, stops and kills: a real actor's mailbox against a model."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import Any, Literal, TypeAlias

import attrs
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from sapwood.actors import Actor, DeadLetter, MailboxOptions, Priority, Ref, handle, message, open_system
from sapwood.errors import ActorDown, MailboxFull
from sapwood.testing import simulate
from tests.actors.kit import settle

State: TypeAlias = Literal["open", "stopping", "ended"]


@message("tests.actors.mailbox_model.numbered")
class Numbered:
    number: int


class Stepper(Actor):
    """Handles one message at each step that is granted."""

    def __init__(self, handled: list[int], steps: trio.Semaphore) -> None:
        self.handled = handled
        self.steps = steps

    @handle
    async def take(self, message: Numbered) -> None:
        await self.steps.acquire()
        self.handled.append(message.number)


@attrs.define
class Model:
    """A mailbox as four lists; `current` is the message in the handler, which takes no room any more."""

    capacity: int | None
    overflow: str
    lanes: list[list[int]] = attrs.field(factory=lambda: [[], [], [], []])
    current: int | None = None
    senders: deque[tuple[int, Priority]] = attrs.field(factory=deque[tuple[int, Priority]])
    after: list[int] = attrs.field(factory=list[int])
    state: State = "open"
    handled: list[int] = attrs.field(factory=list[int])
    dead: list[tuple[int, str]] = attrs.field(factory=list[tuple[int, str]])
    rejected: list[int] = attrs.field(factory=list[int])
    interrupted: list[int] = attrs.field(factory=list[int])

    @property
    def waiting(self) -> int:
        return sum(len(lane) for lane in self.lanes)

    @property
    def full(self) -> bool:
        return self.capacity is not None and self.waiting + len(self.after) >= self.capacity

    def tell(self, number: int, priority: Priority) -> None:
        if self.state == "ended":
            self.dead.append((number, "dead"))
        elif not self.full:
            self._put(number, priority)
        elif self.overflow == "reject":
            self.rejected.append(number)
        else:
            self._drop_for(number, priority)

    def send(self, number: int, priority: Priority) -> None:
        if self.state == "open" and self.full:
            self.senders.append((number, priority))
        else:
            self.tell(number, priority)

    def step(self) -> bool:
        """End the handling of the current message; say whether there was one."""
        self._take()
        if self.current is None:
            return False
        self.handled.append(self.current)
        self.current = None
        self._take()
        return True

    def settle(self) -> None:
        self._take()
        if self.state == "stopping" and self.current is None:
            self._end()

    def stop(self) -> None:
        if self.state == "open":
            self.state = "stopping"
            while self.senders:
                self.after.append(self.senders.popleft()[0])

    def kill(self) -> None:
        if self.state == "ended":
            return
        if self.current is not None:
            self.interrupted.append(self.current)
        self.current = None
        for number, _ in self.senders:
            self.after.append(number)
        self.senders.clear()
        self._end()

    def _end(self) -> None:
        left = [number for lane in self.lanes for number in lane] + self.after
        self.dead += [(number, "unread") for number in left]
        self.lanes = [[], [], [], []]
        self.after = []
        self.state = "ended"

    def _put(self, number: int, priority: Priority) -> None:
        (self.lanes[priority] if self.state == "open" else self.after).append(number)

    def _drop_for(self, number: int, priority: Priority) -> None:
        """Drop the oldest of the least urgent lane, unless the new one is to go or is less urgent still."""
        least = max((lane for lane in range(4) if self.lanes[lane]), default=-1)
        if self.overflow == "drop_newest" or least < priority or self.state != "open":
            self.dead.append((number, "overflow"))
            return
        self.dead.append((self.lanes[least].pop(0), "overflow"))
        self._put(number, priority)

    def _take(self) -> None:
        if self.current is not None or self.state == "ended":
            return
        for lane in self.lanes:
            if lane:
                self.current = lane.pop(0)
                if self.senders:
                    self._put(*self.senders.popleft())
                return


priorities = st.sampled_from(Priority)
steps = st.one_of(
    st.tuples(st.just("tell"), st.lists(priorities, min_size=1, max_size=5).map(tuple)),
    st.tuples(st.just("tell"), st.lists(priorities, min_size=1, max_size=5).map(tuple)),
    st.tuples(st.just("send"), st.lists(priorities, min_size=1, max_size=3).map(tuple)),
    st.tuples(st.just("handle"), st.integers(1, 4)),
    st.tuples(st.just("handle"), st.integers(1, 4)),
    st.tuples(st.sampled_from(["stop", "kill"]), st.just(0)),
)


class Comparison:
    """One program, carried out by both."""

    def __init__(self, capacity: int | None, overflow: Any) -> None:
        self.model = Model(capacity, overflow)
        self.options = MailboxOptions(capacity, overflow)
        self.handled: list[int] = []
        self.dead: list[tuple[int, str]] = []
        self.rejected: list[int] = []
        self.permits = trio.Semaphore(0)
        self.sent = 0

    async def run(self, program: list[tuple[str, Any]]) -> None:
        async with open_system() as system, trio.open_nursery() as nursery:
            system.telemetry.subscribe(self.hear)
            ref = await system.spawn(Stepper, self.handled, self.permits, mailbox=self.options)
            await settle()
            for what, argument in program:
                await self.carry_out(what, argument, ref, nursery)
                await settle()
                self.model.settle()
                self.compare(ref)
            ref.kill()
            self.model.kill()
            await settle()
            self.compare(ref)
        self.balance()

    async def carry_out(self, what: str, argument: Any, ref: Ref, nursery: trio.Nursery) -> None:
        match what:
            case "tell":
                for priority in argument:
                    self.tell(ref, priority)
            case "send":
                for priority in argument:
                    self.sent += 1
                    nursery.start_soon(self.send, ref, self.sent, priority)
                    self.model.send(self.sent, priority)
                    await settle()
                    self.model.settle()
            case "handle":
                for _ in range(argument):
                    if self.model.step():
                        self.permits.release()
                        await settle()
                        self.model.settle()
            case "stop":
                nursery.start_soon(self.stop, ref)
                self.model.stop()
            case _:
                ref.kill()
                self.model.kill()

    async def stop(self, ref: Ref) -> None:
        with suppress(ActorDown):
            await ref.stop()

    def tell(self, ref: Ref, priority: Priority) -> None:
        self.sent += 1
        try:
            ref.tell(Numbered(self.sent), priority=priority)
        except MailboxFull:
            self.rejected.append(self.sent)
        self.model.tell(self.sent, priority)

    async def send(self, ref: Ref, number: int, priority: Priority) -> None:
        try:
            await ref.send(Numbered(number), priority=priority)
        except MailboxFull:
            self.rejected.append(number)

    def hear(self, event: Any) -> None:
        if isinstance(event, DeadLetter):
            assert isinstance(event.message, Numbered)
            self.dead.append((event.message.number, event.reason))

    def compare(self, ref: Ref) -> None:
        model = self.model
        assert self.handled == model.handled
        assert self.dead == model.dead
        assert self.rejected == model.rejected
        assert ref.alive == (model.state != "ended")
        if ref.alive and model.state == "open":
            assert ref.statistics().waiting == model.waiting

    def balance(self) -> None:
        """Every message is handled, a dead letter, refused to its sender, or was in the handler at the kill."""
        model = self.model
        numbers = [*self.handled, *(number for number, _ in self.dead), *self.rejected, *model.interrupted]
        assert sorted(numbers) == list(range(1, self.sent + 1))


@pytest.mark.row("BR-10", "BR-11", "I21", "I27")
@settings(max_examples=400)
@given(
    program=st.lists(steps, max_size=14),
    capacity=st.one_of(st.none(), st.integers(1, 4)),
    overflow=st.sampled_from(["reject", "drop_oldest", "drop_newest"]),
    seed=st.integers(0, 2**32),
)
def test_a_mailbox_does_in_every_program_what_the_model_says(
    program: list[tuple[str, Any]], capacity: int | None, overflow: str, seed: int
) -> None:
    simulate(seed, lambda: Comparison(capacity, overflow).run(program))

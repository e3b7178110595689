"""Sharing a resource: leases that end with their holder."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

import attrs

from sapwood.actors import Actor, Down, Failure, Monitor, Ref, Reply, Request, Timer, current_actor, handle, message
from sapwood.errors import InvalidOption, LeaseUnavailable


@attrs.frozen(eq=False)
class Lease:
    """The right to use a resource, until it is released, its holder ends, or its time is over.

    Attributes:
        resource: Name of the resource.
        token: Grows from lease to lease of one keeper. Give it to the resource, which refuses a token below one that it
            has seen: then a holder that is late can do no harm.
        owner: The actor that holds it; None if it is not bound to one.
    """

    resource: str
    token: int
    owner: Ref | None


@message("patterns.lease.acquire")
class Acquire(Request[Lease]):
    """Asks for a lease; those who wait get it in turn. Better use `held`, which gives it back.

    Attributes:
        resource: Name of the resource; any name is one.
        owner: Actor with whose end the lease ends; None if it is not to be bound to one.
        wait: False fails with `LeaseUnavailable` at once if there is none to be had.
    """

    resource: str
    owner: Ref | None = None
    wait: bool = True


@message("patterns.lease.release")
class Release:
    """Gives a lease back; one that has ended already is no error."""

    lease: Lease


@message("patterns.lease.expire")
class Expire:
    """Tells the keeper that the time of a lease is over."""

    lease: Lease


@message("patterns.lease.holders")
class Holders(Request[tuple[Lease, ...]]):
    """Asks for the leases of a resource that are held, oldest first."""

    resource: str


SHORT: Final = 16
"""A waiting line that is not worth looking through."""


@attrs.define(eq=False)
class _Resource:
    held: dict[int, Lease] = attrs.field(factory=dict[int, Lease])
    line: deque[tuple[Ref | None, Reply[Lease]]] = attrs.field(factory=deque[tuple[Ref | None, Reply[Lease]]])
    trim_at: int = SHORT

    def add(self, owner: Ref | None, reply: Reply[Lease]) -> None:
        """Let somebody wait; those who have lost patience leave the line whenever it has doubled."""
        if len(self.line) >= self.trim_at:
            self.line = deque(each for each in self.line if each[1].waits)
            self.trim_at = max(SHORT, 2 * len(self.line))
        self.line.append((owner, reply))


class LeaseKeeper(Actor):
    """Lends resources out, each to at most `capacity` holders at a time, first come, first served (S2-058).

    A lease ends when it is released, and when its owner ends, however that came about: the keeper watches it. Leases
    live in the memory of the keeper; its own crash ends all, and new ones may be given while old holders still work.
    Where that matters the resource checks the `token` of each lease.

    Args:
        capacity: Leases of each resource: 1 is a lock, more is a semaphore.
        lease_for: Seconds after which a lease ends by itself; None for no limit.

    Raises:
        InvalidOption: if one of them is out of its range.
    """

    def __init__(self, capacity: int = 1, lease_for: float | None = None) -> None:
        if type(capacity) is not int or capacity < 1:
            raise InvalidOption(f"lease keeper capacity: expected an int >= 1; got {capacity!r}")
        if lease_for is not None and not lease_for > 0:
            raise InvalidOption(f"lease keeper lease_for: expected None or seconds > 0; got {lease_for!r}")
        self._capacity = capacity
        self._lease_for = lease_for
        self._resources: dict[str, _Resource] = {}
        self._monitors: dict[Ref, Monitor] = {}
        self._ends: dict[int, Timer] = {}

    def on_start(self) -> None:
        # Wall-clock milliseconds, so that the tokens of a restarted keeper are above those of the former one.
        self._token = int(self.environment.wall() * 1000) << 20

    def format_state(self) -> str:
        return f"capacity={self._capacity}, resources={len(self._resources)}"

    @handle
    def acquire(self, message: Acquire) -> Failure | None:
        resource = self._resources.setdefault(message.resource, _Resource())
        if not message.wait and len(resource.held) >= self._capacity:
            holders = ["nobody in particular" if lease.owner is None else lease.owner.label
                       for lease in resource.held.values()]  # fmt: skip
            return Failure(LeaseUnavailable(message.resource, holders))
        self._watch(message.owner)
        resource.add(message.owner, self.reply_later())
        self._serve(message.resource, resource)
        return None

    @handle
    def release(self, message: Release) -> None:
        self._end(message.lease)

    @handle
    def expire(self, message: Expire) -> None:
        self._end(message.lease)

    @handle
    def holders(self, message: Holders) -> tuple[Lease, ...]:
        resource = self._resources.get(message.resource)
        return () if resource is None else tuple(resource.held.values())

    @handle
    def down(self, message: Down) -> None:
        self._monitors.pop(message.ref, None)
        for name, resource in list(self._resources.items()):
            resource.line = deque(entry for entry in resource.line if entry[0] is not message.ref)
            for lease in [lease for lease in resource.held.values() if lease.owner is message.ref]:
                self._take_away(resource, lease)
            self._serve(name, resource)

    def _watch(self, owner: Ref | None) -> None:
        if owner is not None and owner not in self._monitors:
            self._monitors[owner] = self.monitor(owner)

    def _grant(self, name: str, resource: _Resource, owner: Ref | None) -> Lease:
        self._token += 1
        lease = Lease(name, self._token, owner)
        resource.held[lease.token] = lease
        if self._lease_for is not None:
            self._ends[lease.token] = self.send_after(self._lease_for, Expire(lease))
        return lease

    def _take_away(self, resource: _Resource, lease: Lease) -> bool:
        if resource.held.pop(lease.token, None) is None:
            return False
        end = self._ends.pop(lease.token, None)
        if end is not None:
            end.cancel()
        return True

    def _end(self, lease: Lease) -> None:
        resource = self._resources.get(lease.resource)
        if resource is None or not self._take_away(resource, lease):
            return
        self._serve(lease.resource, resource)
        self._unwatch(lease.owner)

    def _serve(self, name: str, resource: _Resource) -> None:
        while resource.line and len(resource.held) < self._capacity:
            owner, reply = resource.line.popleft()
            lease = self._grant(name, resource, owner)
            if not reply(lease):
                # It waits no longer, so it would never give it back.
                self._take_away(resource, lease)
                self._unwatch(owner)
        if not resource.held and not resource.line:
            self._resources.pop(name, None)

    def _unwatch(self, owner: Ref | None) -> None:
        monitor = self._monitors.get(owner) if owner is not None else None
        if monitor is None:
            return
        for resource in self._resources.values():
            if any(lease.owner is owner for lease in resource.held.values()):
                return
            if any(waiting is owner for waiting, _ in resource.line):
                return
        self.demonitor(monitor, flush=True)
        del self._monitors[monitor.target]


@asynccontextmanager
async def held(
    keeper: Ref, resource: str, *, owner: Ref | None = None, wait: bool = True, timeout: float | None = None
) -> AsyncGenerator[Lease]:
    """Hold a lease for the length of an `async with` block; it is given back however the block ends.

    Args:
        keeper: A `LeaseKeeper`.
        resource: Name of the resource.
        owner: Actor with whose end the lease ends too; None for the actor whose code this is, if there is one.
        wait: False does not wait for a lease that is held by others.
        timeout: Seconds to wait; None for ever.

    Raises:
        LeaseUnavailable: if there was none, and `wait` is False.
        AskTimeout: if there was none in time.
        ActorDown: if the keeper has ended.
    """
    lease = await keeper.ask(Acquire(resource, current_actor() if owner is None else owner, wait), timeout=timeout)
    try:
        yield lease
    finally:
        keeper.tell(Release(lease))

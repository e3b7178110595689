"""The collector: collections at an interval."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

import trio

from sapwood.errors import ReferenceUnavailable
from sapwood.references._protocol import ReferenceStore
from sapwood.references._retention import check_seconds
from sapwood.supervision import ChildSpec, child


async def collect_regularly(store: ReferenceStore, interval: float) -> None:
    """Collect every `interval` seconds, for ever.

    A store that is unavailable counts that in its statistics, tells its listener, and is tried again after the next
    interval; every other failure ends this.

    Raises:
        InvalidOption: if the interval is no number of seconds above 0.
    """
    check_seconds("interval", interval, optional=False)
    while True:
        await trio.sleep(interval)
        with suppress(ReferenceUnavailable):
            await store.collect()


def collector(store: ReferenceStore, interval: float, *, id: str = "reference-collector") -> ChildSpec:
    """Describe a child that collects at an interval, to be put under a supervisor (S0-014).

    Args:
        store: The store, which is open for as long as the child lives.
        interval: Seconds between collections.
        id: Name within the supervisor.

    Raises:
        InvalidOption: if the interval is no number of seconds above 0.
    """
    check_seconds("interval", interval, optional=False)
    return child(partial(collect_regularly, store, interval), id=id)

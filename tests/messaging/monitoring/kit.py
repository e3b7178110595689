"""A monitor in a runtime on the virtual clock, and a notifier that writes down what it is told."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import trio

from sapwood import Runtime, open_runtime
from sapwood.actors import SimulatedEnvironment, record
from sapwood.messaging.monitoring import AlertChange, Monitor, Rule, Snapshot


@record("test.monitoring.note")
class Note:
    text: str


@attrs.define
class Pager:
    """A notifier that keeps what it is told."""

    told: list[AlertChange] = attrs.field(factory=list[AlertChange])

    def __call__(self, change: AlertChange) -> None:
        self.told.append(change)

    @property
    def lines(self) -> list[str]:
        return [f"{one.status} {one.alert.rule} of {one.alert.subject} at {one.alert.value:g}" for one in self.told]


@asynccontextmanager
async def watched(
    rules: Sequence[Rule], pager: Pager, *, store: Path | str = ":memory:", **options: Any
) -> AsyncGenerator[tuple[Runtime, Monitor]]:
    """Open a runtime with a monitor that looks once a second."""
    given: dict[str, Any] = {"interval": 1.0, "notifiers": [pager], **options}
    monitor = Monitor(rules, **given)
    async with open_runtime(
        store=store, children=[monitor.spec()], environment=SimulatedEnvironment(), signals=False, log=False
    ) as runtime:
        monitor.watch(runtime)
        # Between two looks, so that no test races with one.
        await trio.sleep(0.25)
        yield runtime, monitor


def seen(monitor: Monitor) -> Snapshot:
    """Return what the last look found; fail if there was none."""
    assert monitor.snapshot is not None
    return monitor.snapshot

"""A bus in a runtime on the virtual clock, and handlers that write down what they get."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from sapwood import Actor, Request, Runtime, handle, open_runtime
from sapwood.actors import SimulatedEnvironment, record
from sapwood.messaging import Bus, BusOptions, Envelope


@record("test.bus.note")
class Note:
    text: str


@record("test.bus.number")
class Number:
    value: int


@record("test.bus.add")
class Add(Request[int]):
    left: int
    right: int


class Recorder:
    """A plain handler that keeps the texts of what it gets."""

    def __init__(self) -> None:
        self.envelopes: list[Envelope[Any]] = []

    def __call__(self, envelope: Envelope[Any]) -> None:
        self.envelopes.append(envelope)

    @property
    def texts(self) -> list[str]:
        return [one.payload.text for one in self.envelopes]


class Member(Actor):
    """An actor that is a participant."""

    def __init__(self) -> None:
        self.got: list[Envelope[Any]] = []

    @handle(Envelope)
    def take(self, message: Envelope[Any]) -> int:
        self.got.append(message)
        return len(self.got)


@asynccontextmanager
async def open_bus(seed: int = 0, **options: Any) -> AsyncGenerator[tuple[Bus, Runtime]]:
    environment = SimulatedEnvironment(seed)
    async with open_runtime(bus=BusOptions(**options), environment=environment, signals=False) as runtime:
        bus = runtime.bus
        yield bus, runtime

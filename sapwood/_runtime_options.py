"""How a runtime is built."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final, TypedDict

import attrs

from sapwood._collector import CollectorPolicy, check_policy
from sapwood.actors import Environment, check_variables
from sapwood.errors import InvalidChildSpec, InvalidOption
from sapwood.messaging import BusOptions
from sapwood.registry import LocalBackend
from sapwood.supervision import ChildSpec, Supervisor

STORE: Final = "store"
BUS: Final = "bus"
RESERVED: Final = (STORE, BUS, "core")
"""Ids of the runtime's own children."""


@attrs.frozen
class RuntimeOptions:
    """How a runtime is built; see `open_runtime`.

    Raises:
        InvalidOption, InvalidChildSpec: naming the option that cannot work; nothing has been started.
    """

    store: str | Path = ":memory:"
    children: tuple[ChildSpec, ...] = ()
    synchronous: str = "FULL"
    partitions: int = 4
    restarts: int = 10
    period: float = 5.0
    shutdown_timeout: float = 30.0
    log: bool = True
    gc_policy: CollectorPolicy = "python"
    propagate: tuple[ContextVar[Any], ...] = ()
    bus: BusOptions = attrs.field(factory=BusOptions)

    def __attrs_post_init__(self) -> None:
        timeout = self.shutdown_timeout
        if not isinstance(timeout, int | float) or not timeout > 0:
            raise InvalidOption(f"shutdown_timeout: expected seconds > 0; got {timeout!r}")
        if not isinstance(self.store, str | Path):
            raise InvalidOption(f'store: expected a path or ":memory:"; got {self.store!r}')
        check_policy(self.gc_policy)
        check_variables(self.propagate)
        LocalBackend(self.partitions)
        self.supervise(self.children)
        for spec in self.children:
            if spec.id in RESERVED:
                raise InvalidChildSpec("id", "an id other than store, bus and core", spec.id)

    def supervise(self, children: Sequence[ChildSpec]) -> Supervisor:
        """Make the root supervisor."""
        return Supervisor(children, strategy="rest_for_one", restarts=self.restarts, period=self.period)


class OpenOptions(TypedDict, total=False):
    """The options of `open_runtime`."""

    store: str | Path
    children: Sequence[ChildSpec]
    environment: Environment | None
    synchronous: str
    partitions: int
    restarts: int
    period: float
    shutdown_timeout: float
    log: bool
    gc_policy: CollectorPolicy
    propagate: Sequence[ContextVar[Any]]
    bus: BusOptions | None
    signals: bool | None

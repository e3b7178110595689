"""Python's garbage collector: kept from holding up the loop where many objects live long."""

from __future__ import annotations

import gc
import threading
from typing import Any, Final, Literal, TypeAlias, get_args

from sapwood.actors import Exited, Spawned, Telemetry, TelemetryEvent
from sapwood.errors import InvalidOption

CollectorPolicy: TypeAlias = Literal["python", "freeze"]

POLICIES: Final[tuple[str, ...]] = get_args(CollectorPolicy)

FULL_AFTER: Final = 4
"""Collections of the middle generation before a full one; Python's own number is 10."""

THAW_AFTER: Final = 10_000
"""Frozen actors that must have ended, at least, before a full collection looks at everything once."""


def check_policy(policy: object) -> None:
    """Refuse a policy that does not exist.

    Raises:
        InvalidOption: naming those that do.
    """
    if policy not in POLICIES:
        raise InvalidOption(f"gc_policy: expected {' or '.join(map(repr, POLICIES))}; got {policy!r}")


class Population:
    """Counts the actors of one runtime: those alive, and those that have ended after they were frozen.

    An actor that has ended is left to the collector, as it and its ref refer to each other; what is frozen, the
    collector does not look at.
    """

    def __init__(self) -> None:
        self.alive = 0
        self.ended_frozen = 0
        self._young: set[str] = set()

    def count(self, event: TelemetryEvent) -> None:
        """Take one event in."""
        if isinstance(event, Spawned):
            self.alive += 1
            self._young.add(event.actor)
        elif isinstance(event, Exited):
            if event.actor in self._young:
                self._young.discard(event.actor)
            else:
                self.ended_frozen += 1
            self.alive -= 1

    def froze(self) -> None:
        """Note that all that lives is frozen now."""
        self._young.clear()


class Freezer:
    """Freezes what survives a full collection, for as long as somebody holds it; process-wide.

    Each full collection then looks only at what has come since the one before it, so its length does not grow with
    what lives.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._populations: list[Population] = []
        self._before: tuple[int, int, int] = (0, 0, 0)
        self._during: tuple[int, int, int] = (0, 0, 0)
        self._frozen_before = False

    def hold(self, population: Population) -> None:
        """Begin with the first holder."""
        with self._lock:
            self._populations.append(population)
            if len(self._populations) == 1:
                self._begin()

    def release(self, population: Population) -> None:
        """Restore what was before with the last holder."""
        with self._lock:
            self._populations.remove(population)
            if not self._populations:
                self._end()

    def _begin(self) -> None:
        self._before = gc.get_threshold()
        self._frozen_before = gc.get_freeze_count() > 0
        gc.set_threshold(self._before[0], self._before[1], min(FULL_AFTER, self._before[2]))
        self._during = gc.get_threshold()
        gc.callbacks.append(self._collecting)
        gc.collect()

    def _end(self) -> None:
        gc.callbacks.remove(self._collecting)
        if gc.get_threshold() == self._during:
            gc.set_threshold(*self._before)
        gc.unfreeze()
        if self._frozen_before:
            # Somebody had frozen what lived then; it cannot be told from the rest any more.
            gc.collect()
            gc.freeze()

    def _collecting(self, phase: str, info: dict[str, Any]) -> None:
        # Runs within any allocation of any thread, also one that holds the lock.
        if info["generation"] < 2:
            return
        populations = tuple(self._populations)
        if phase == "start":
            ended = sum(population.ended_frozen for population in populations)
            if ended > max(THAW_AFTER, sum(population.alive for population in populations)):
                gc.unfreeze()
                for population in populations:
                    population.ended_frozen = 0
            return
        gc.freeze()
        for population in populations:
            population.froze()


_freezer: Final = Freezer()


class Collecting:
    """Applies a policy to the process while its block runs.

    Args:
        policy: `python` changes nothing; see `open_runtime` for `freeze`.
    """

    def __init__(self, policy: CollectorPolicy) -> None:
        self._population = Population() if policy == "freeze" else None

    def __enter__(self) -> None:
        if self._population is not None:
            _freezer.hold(self._population)

    def __exit__(self, *_: object) -> None:
        if self._population is not None:
            _freezer.release(self._population)

    def watch(self, telemetry: Telemetry) -> None:
        """Count the actors that a runtime's telemetry tells of."""
        if self._population is not None:
            telemetry.subscribe(self._population.count, Spawned, Exited)

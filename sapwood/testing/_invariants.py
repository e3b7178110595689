"""Invariants: what must hold at every moment of a run, checked from inside after every step of every task."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, cast

import attrs
import trio

from sapwood._runtime import Runtime
from sapwood.actors import Exited, Spawned, TelemetryEvent
from sapwood.errors import InvalidOption
from sapwood.registry import Key, NotRunning, Running
from sapwood.testing._effects import Effects

EFFECTS: Final = "effects_at_most_once"

KEPT: Final = 100
"""Violations that are kept; one cause tends to show at every step."""


@attrs.frozen
class Violation:
    """One moment at which an invariant did not hold.

    Attributes:
        invariant: Its name.
        at: Seconds on the virtual clock.
        problem: What was seen.
    """

    invariant: str
    at: float
    problem: str


class Invariants:
    """Watches a runtime and remembers every moment at which something that must hold did not.

    Built in, and checked after every step of every task:
        `no_two_live_per_key`: a registry key never has two live holders.
        `unavailable_is_never_not_running`: no lookup answers `NotRunning` while a holder lives, whatever was killed.
        `no_lookup_returns_the_dead`: no lookup returns a ref to an actor that has ended.
    Built in, and checked whenever a tool is called:
        `effects_at_most_once`: a tool that is not idempotent is called at most once for each call of the model, unless
            it has failed, or a person was asked (`crash_resume="ask"`); all attempts of a call have one idempotency
            key.
    `add` brings further ones, which are checked when they are asserted.

    Args:
        runtime: The runtime to watch.
    """

    def __init__(self, runtime: Runtime) -> None:
        self.violations: list[Violation] = []
        self.checks = 0
        self._runtime = runtime
        self._keys: set[Key] = set()
        self._added: dict[str, Callable[[], Iterable[str]]] = {}
        self._effects = Effects(runtime.environment)

    def add(self, name: str, check: Callable[[], Iterable[str]]) -> None:
        """Add an invariant: `check` returns a description of each violation, and nothing while it holds.

        Raises:
            InvalidOption: if there is one with this name.
        """
        if name in (*BUILT_IN, EFFECTS) or name in self._added:
            raise InvalidOption(f"invariant {name!r} is there already; choose another name")
        self._added[name] = check

    @contextmanager
    def watching(self) -> Generator[Invariants]:
        """Watch within this block."""
        unsubscribe = self._runtime.telemetry.subscribe(self._note)
        watch = StepWatch(self.check)
        trio.lowlevel.add_instrument(watch)
        try:
            with self._effects.watching():
                yield self
        finally:
            trio.lowlevel.remove_instrument(watch)
            unsubscribe()

    def check(self) -> None:
        """Check the built-in invariants at this moment."""
        self.checks += 1
        holders: dict[object, int] = {}
        for cell in self._runtime.system.actors:
            key = cell.ref.key
            if key is not None:
                holders[key] = holders.get(key, 0) + 1
        for name, look in BUILT_IN.items():
            for problem in look(self._runtime, self._keys, holders):
                if len(self.violations) < KEPT:
                    self.violations.append(Violation(name, trio.current_time(), problem))

    def assert_hold(self, *names: str) -> None:
        """Fail unless the named invariants have held all the time; without names, all of them.

        Raises:
            AssertionError: listing when what did not hold.
            InvalidOption: if there is no such invariant, naming those there are.
        """
        known = [*BUILT_IN, EFFECTS, *self._added]
        for name in names:
            if name not in known:
                raise InvalidOption(f"no invariant {name!r}; expected one of {', '.join(known)}")
        seen = self.violations + [Violation(EFFECTS, at, problem) for at, problem in self._effects.problems]
        found = [violation for violation in seen if not names or violation.invariant in names]
        for name, check in self._added.items():
            if not names or name in names:
                found += [Violation(name, trio.current_time(), problem) for problem in check()]
        if found:
            lines = [f"  {one.invariant} at {one.at:.3f} s: {one.problem}" for one in found[:10]]
            raise AssertionError(f"{len(found)} violations\n" + "\n".join(lines))

    def _note(self, event: TelemetryEvent) -> None:
        if isinstance(event, Spawned | Exited) and event.key is not None:
            self._keys.add(cast("Key", event.key))


class StepWatch(trio.abc.Instrument):
    """Calls a function after every step of every task; the function must not raise."""

    def __init__(self, check: Callable[[], None]) -> None:
        self._check = check

    def after_task_step(self, task: trio.lowlevel.Task) -> None:  # trio's own hook
        self._check()


def _no_two(_runtime: Runtime, _keys: Iterable[Key], holders: Mapping[object, int]) -> Iterator[str]:
    for key, count in holders.items():
        if count > 1:
            yield f"{key!r} has {count} live holders"


def _never_not_running(runtime: Runtime, _keys: Iterable[Key], holders: Mapping[object, int]) -> Iterator[str]:
    backend = runtime.registry.backend
    for key in holders:
        if isinstance(key, tuple) and isinstance(backend.lookup_nowait(cast("Key", key)), NotRunning):
            yield f"{key!r} lives, and a lookup answered NotRunning"


def _no_dead(runtime: Runtime, keys: Iterable[Key], _holders: Mapping[object, int]) -> Iterator[str]:
    backend = runtime.registry.backend
    for key in keys:
        found = backend.lookup_nowait(key)
        if isinstance(found, Running) and not found.ref.alive:
            yield f"a lookup of {key!r} returned {found.ref!r}"


BUILT_IN: Final[Mapping[str, Callable[[Runtime, Iterable[Key], Mapping[object, int]], Iterator[str]]]] = {
    "no_two_live_per_key": _no_two,
    "unavailable_is_never_not_running": _never_not_running,
    "no_lookup_returns_the_dead": _no_dead,
}

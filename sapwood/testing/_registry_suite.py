"""What every backend of the registry must do, as tests to derive from."""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

import attrs
import trio

from sapwood.actors import Actor, ActorSystem, Ref, open_system
from sapwood.errors import (
    ActorDown,
    AlreadyRegistered,
    AlreadyStarted,
    ChildFailed,
    InvalidKey,
    RegistryUnavailable,
)
from sapwood.registry import Key, NotRunning, Registry, RegistryBackend, Running, Unavailable
from sapwood.supervision import DynamicSupervisor, Supervisor, child, count_children, start_child, supervision_tree
from sapwood.testing._suite_kit import refusal

NO_KEYS: Final[tuple[Any, ...]] = (
    "agent",
    (),
    (1, "agent"),
    ["agent", 1],
    ("agent", 1.0),
    ("agent", True),
    ("agent", None),
    ("agent", ("nested", 2.0)),
    ("agent", ["list"]),
)


class Holder(Actor):
    """Holds a key, and does nothing."""


class Refusing(Actor):
    """Fails to start."""

    def on_start(self) -> None:
        raise ValueError("fails to start")


@attrs.frozen
class Bench:
    """A backend in a tree, with a supervisor for holders after it and one out of its reach.

    Attributes:
        system: The actors.
        backend: What is tested.
        registry: A registry on it.
        core: Supervisor of the backend's part and of `home`.
        home: Supervisor of holders that end with the backend's knowledge.
        outside: Supervisor of holders that live on.
    """

    system: ActorSystem
    backend: RegistryBackend
    registry: Registry
    core: Ref
    home: Ref
    outside: Ref

    async def start(self, key: Key, *, under: Ref | None = None) -> Ref:
        """Start a holder."""
        ref = await start_child(under or self.home, child(Holder, key=key, restart="temporary"))
        assert ref is not None
        return ref

    def part(self) -> list[Ref]:
        """Return the actors of the backend's own part of the tree, the deepest first."""
        tree = supervision_tree(self.system, self.core)
        return [node.ref for top in tree.children[:-1] for node in top.walk()][::-1]


class RegistryBackendSuite:
    """Tests that any registry backend must pass (S4-041).

    Derive a test class and say how to make a backend; run it with pytest-trio in trio mode:

        class TestMyBackend(RegistryBackendSuite):
            def make(self) -> RegistryBackend:
                return MyBackend()
    """

    def make(self) -> RegistryBackend:
        """Return a new backend that has no tree yet."""
        raise TypeError("write a method make() that returns a new backend")

    @asynccontextmanager
    async def bench(self) -> AsyncGenerator[Bench]:
        """Put a backend into a tree."""
        async with open_system() as system:
            backend = self.make()
            registry = Registry(system, backend)
            system.registrar = registry
            home = child(DynamicSupervisor, id="home")
            specs = [*backend.children(restarts=100, period=5.0), home]
            core = await system.spawn(partial(Supervisor, specs, strategy="rest_for_one", restarts=100, period=5.0))
            outside = await system.spawn(DynamicSupervisor)
            tree = supervision_tree(system, core)
            yield Bench(system, backend, registry, core, tree.children[-1].ref, outside)

    # --- answers ----------------------------------------------------------------------------------

    async def test_a_key_that_nobody_holds_is_not_running(self) -> None:
        async with self.bench() as bench:
            assert bench.backend.available
            assert bench.backend.lookup_nowait(("agent", 1)) == NotRunning()
            assert await bench.backend.lookup(("agent", 1)) == NotRunning()
            assert dict(bench.backend.running()) == {}
            assert bench.backend.statistics().keys == 0

    async def test_a_holder_is_found_from_its_start_to_its_end(self) -> None:
        async with self.bench() as bench:
            ref = await bench.start(("agent", 1))
            assert bench.backend.lookup_nowait(("agent", 1)) == Running(ref)
            assert await bench.backend.lookup(("agent", 1)) == Running(ref)
            assert dict(bench.backend.running()) == {("agent", 1): ref}
            assert bench.backend.statistics().keys == 1

            ref.kill()
            await ref.wait_stopped()
            assert bench.backend.lookup_nowait(("agent", 1)) == NotRunning()
            assert await bench.backend.lookup(("agent", 1)) == NotRunning()
            assert dict(bench.backend.running()) == {}

    async def test_a_start_that_fails_leaves_the_key_free(self) -> None:
        async with self.bench() as bench:
            with refusal(ChildFailed):
                await start_child(bench.home, child(Refusing, key=("agent", 1)))
            assert bench.backend.lookup_nowait(("agent", 1)) == NotRunning()
            await bench.start(("agent", 1))

    async def test_keys_are_told_apart_by_type_as_well_as_by_value(self) -> None:
        keys: list[Key] = [
            ("a", 1),
            ("a", "1"),
            ("a", b"1"),
            ("a", (1,)),
            ("a", "1", ""),
            ("a", 1, 1),
            ("a",),
            ("b", 1),
        ]
        async with self.bench() as bench:
            refs = {key: await bench.start(key) for key in keys}
            assert dict(bench.backend.running()) == refs
            for key, ref in refs.items():
                assert bench.backend.lookup_nowait(key) == Running(ref)

    async def test_what_is_no_key_is_refused_whether_or_not_something_equal_runs(self) -> None:
        async with self.bench() as bench:
            for key in (("agent", 1), ("agent", ("nested", 2))):
                await bench.start(key)
            for key in NO_KEYS:
                with refusal(InvalidKey):
                    bench.backend.lookup_nowait(key)
                with refusal(InvalidKey):
                    await bench.backend.lookup(key)
                with refusal(InvalidKey):
                    bench.backend.claim(key, bench.home)

    # --- claims -----------------------------------------------------------------------------------

    async def test_of_two_starts_under_one_key_the_second_never_begins(self) -> None:
        async with self.bench() as bench:
            first = await bench.start(("agent", 1))
            for under in (bench.home, bench.outside):
                with refusal(AlreadyStarted) as refused:
                    await start_child(under, child(Refusing, key=("agent", 1)))
                assert refused[0].ref is first
            assert bench.backend.lookup_nowait(("agent", 1)) == Running(first)

    async def test_a_key_is_claimed_once_also_by_its_holder(self) -> None:
        async with self.bench() as bench:
            ref = await bench.start(("agent", 1))
            with refusal(AlreadyRegistered) as refused:
                bench.backend.claim(("agent", 1), ref)
            assert refused[0].holder is ref

    async def test_nobody_claims_a_key_for_another_or_takes_one_from_the_living(self) -> None:
        async with self.bench() as bench:
            ref = await bench.start(("agent", 1))
            with refusal(InvalidKey):
                bench.backend.claim(("agent", 2), ref)
            bench.backend.release(("agent", 1), ref)
            bench.backend.release(("agent", 2), ref)
            assert bench.backend.lookup_nowait(("agent", 1)) == Running(ref)
            assert bench.backend.lookup_nowait(("agent", 2)) == NotRunning()

    async def test_the_dead_claim_nothing_and_release_nothing_that_is_not_theirs(self) -> None:
        async with self.bench() as bench:
            old = await bench.start(("agent", 1))
            old.kill()
            await old.wait_stopped()
            with refusal(ActorDown):
                bench.backend.claim(("agent", 1), old)
            new = await bench.start(("agent", 1))
            bench.backend.release(("agent", 1), old)
            assert bench.backend.lookup_nowait(("agent", 1)) == Running(new)

    # --- where it cannot tell ---------------------------------------------------------------------

    async def test_before_its_tree_stands_it_cannot_tell_and_grants_nothing(self) -> None:
        async with open_system() as system:
            backend = self.make()
            assert not backend.available
            assert isinstance(backend.lookup_nowait(("agent", 1)), Unavailable)
            assert isinstance(await backend.lookup(("agent", 1)), Unavailable)
            with refusal(RegistryUnavailable):
                backend.running()
            backend.statistics()
            ref = await system.spawn(Holder, key=("agent", 1))
            with refusal(RegistryUnavailable):
                backend.claim(("agent", 1), ref)
            backend.release(("agent", 1), ref)

    async def test_whatever_part_of_it_is_killed_a_live_holder_is_never_not_running(self) -> None:
        keys: list[Key] = [("agent", number) for number in range(16)]
        async with self.bench() as bench:
            for victim in range(len(bench.part())):
                outside = {key: await bench.start(key, under=bench.outside) for key in keys[:8]}
                home = supervision_tree(bench.system, bench.core).children[-1].ref
                inside = {key: await bench.start(key, under=home) for key in keys[8:]}
                bench.part()[victim].kill()
                await self._answers_again(bench, {**outside, **inside})
                for key, ref in outside.items():
                    assert bench.backend.lookup_nowait(key) == Running(ref)
                for ref in (*outside.values(), *inside.values()):
                    ref.kill()
                    await ref.wait_stopped()
                await self._answers_again(bench, {})

    async def _answers_again(self, bench: Bench, holders: dict[Key, Ref]) -> None:
        """Wait until the tree stands again, looking at every step on the way."""
        with trio.fail_after(30):
            for steps in itertools.count():
                await trio.lowlevel.checkpoint()
                self._look(bench, holders)
                counts = await count_children(bench.core)
                if steps > 50 and bench.backend.available and counts.active == counts.specs:
                    return

    def _look(self, bench: Bench, holders: dict[Key, Ref]) -> None:
        for key, ref in holders.items():
            found = bench.backend.lookup_nowait(key)
            assert not (ref.alive and isinstance(found, NotRunning)), f"{key!r} lives and was not found"
            assert not isinstance(found, Running) or found.ref.alive, f"{key!r} was found and is dead"

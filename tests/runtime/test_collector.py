"""The runtime's policy for Python's garbage collector: short full collections, and nothing of it left behind."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from trio.testing import MockClock

from sapwood import Actor, Runtime, child, open_runtime, start_in_thread
from sapwood import _collector as collector
from sapwood.actors import Ref, SimulatedEnvironment
from sapwood.errors import ChildFailed, InvalidOption


class Plain(Actor):
    pass


class Broken(Actor):
    def on_start(self) -> None:
        raise ValueError("broken")


class Loop:
    """Garbage that refers to itself once it is dropped."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def settings() -> Iterator[tuple[object, ...]]:
    """Check that every test leaves the process as it found it."""
    found = _settings()
    yield found
    assert _settings() == found


def _settings() -> tuple[object, ...]:
    return gc.get_threshold(), tuple(map(id, gc.callbacks)), gc.isenabled(), gc.get_freeze_count()


def freezing(**options: Any) -> Any:
    return open_runtime(gc_policy="freeze", environment=SimulatedEnvironment(), **options)


async def spawn(runtime: Runtime, count: int) -> list[Ref]:
    return [await runtime.spawn(Plain) for _ in range(count)]


async def test_by_default_the_settings_of_python_are_left_alone(
    autojump_clock: MockClock, settings: tuple[object, ...]
) -> None:
    async with open_runtime(environment=SimulatedEnvironment()):
        assert _settings() == settings
        gc.collect()
        assert gc.get_freeze_count() == 0


async def test_a_full_collection_looks_only_at_what_has_come_since_the_one_before(autojump_clock: MockClock) -> None:
    async with freezing() as runtime:
        refs = await spawn(runtime, 1_000)
        gc.collect()
        before = gc.get_freeze_count()

        await spawn(runtime, 10)
        waiting = len(gc.get_objects())
        gc.collect()

        assert before > 10 * len(refs)
        assert waiting < before / 10
        assert len(gc.get_objects()) < 100
        assert gc.get_freeze_count() > before


async def test_full_collections_that_come_by_themselves_freeze_as_well(autojump_clock: MockClock) -> None:
    async with freezing():
        before = gc.get_freeze_count()
        kept = [[number] for number in range(200_000)]

        assert gc.get_freeze_count() > before + len(kept) / 2


async def test_young_garbage_is_still_collected(autojump_clock: MockClock) -> None:
    async with freezing():
        gone = weakref.ref(Loop())
        gc.collect()

        assert gone() is None


async def test_everything_is_as_before_when_the_runtime_has_closed(
    autojump_clock: MockClock, settings: tuple[object, ...]
) -> None:
    async with freezing():
        assert _settings() != settings
    assert _settings() == settings

    with pytest.raises(LookupError):
        async with freezing():
            raise LookupError
    assert _settings() == settings

    with pytest.raises(ChildFailed):
        async with freezing(children=[child(Broken)]):
            pytest.fail("it opened")
    assert _settings() == settings


@pytest.mark.parametrize("first_out", [0, 1])
def test_of_several_runtimes_the_last_one_to_close_restores(first_out: int, settings: tuple[object, ...]) -> None:
    stacks = ExitStack(), ExitStack()
    for stack in stacks:
        stack.enter_context(start_in_thread(gc_policy="freeze"))
    during = gc.get_threshold(), list(gc.callbacks)

    stacks[first_out].close()
    assert (gc.get_threshold(), list(gc.callbacks)) == during
    before = gc.get_freeze_count()
    gc.collect()
    assert gc.get_freeze_count() >= before > 0

    stacks[1 - first_out].close()
    assert _settings() == settings


async def test_thresholds_that_somebody_sets_meanwhile_are_kept(autojump_clock: MockClock) -> None:
    before = gc.get_threshold()
    async with freezing():
        gc.set_threshold(1_234, 11, 12)

    assert gc.get_threshold() == (1_234, 11, 12)
    gc.set_threshold(*before)


async def test_what_was_frozen_before_the_runtime_stays_frozen(autojump_clock: MockClock) -> None:
    gc.freeze()
    async with freezing():
        pass

    assert gc.get_freeze_count() > 0
    gc.unfreeze()


async def test_actors_that_end_after_they_were_frozen_are_freed_when_more_have_ended_than_live(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collector, "THAW_AFTER", 40)
    async with freezing() as runtime:
        gone = await _live_and_end(runtime, 30)
        gc.collect()
        assert count(gone) >= 28

        gone += await _live_and_end(runtime, 30)
        gc.collect()
        assert count(gone) <= 3  # the last ones are still in frames of those who waited for them


async def test_actors_that_end_young_do_not_bring_a_long_collection_about(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collector, "THAW_AFTER", 40)
    async with freezing() as runtime:
        gone = await _live_and_end(runtime, 30)

        for ref in await spawn(runtime, 100):
            await ref.stop()
        gc.collect()

        assert count(gone) >= 28


def count(refs: list[weakref.ref[Ref]]) -> int:
    """Count those that are still there."""
    return sum(ref() is not None for ref in refs)


async def _live_and_end(runtime: Runtime, count: int) -> list[weakref.ref[Ref]]:
    refs = await spawn(runtime, count)
    gc.collect()
    for ref in refs:
        await ref.stop()
    return [weakref.ref(ref) for ref in refs]


async def test_a_policy_that_does_not_exist_is_refused_before_anything_starts(autojump_clock: MockClock) -> None:
    wrong: Any = "fast"
    with pytest.raises(InvalidOption, match="gc_policy: expected 'python' or 'freeze'; got 'fast'"):
        async with open_runtime(gc_policy=wrong, environment=SimulatedEnvironment()):
            pytest.fail("it opened")

"""What a refusal of a directory says: what was tried, with which key, and in which directory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from sapwood.actors import open_system
from sapwood.errors import InvalidOption, NotRunningInside, RegistryUnavailable
from sapwood.registry import UniqueDirectory
from tests.registry.directory_kit import KEY, Member, do, running

Deed = Callable[[UniqueDirectory[int]], Any]


def nothing(*_: object) -> None: ...


def anything(_: object) -> bool:
    return True


READS: list[tuple[str, Deed]] = [
    ("look up ('room', 1)", lambda directory: directory.lookup(KEY)),
    ("look up ('room', 1)", lambda directory: directory.match(KEY, anything)),
    ("look up ('room', 1)", lambda directory: directory.dispatch(KEY, nothing)),
    ("list values ('room', 1)", lambda directory: directory.values(KEY, None)),  # type: ignore[arg-type]  # not looked at
    ("select", lambda directory: directory.select(anything)),
    ("count", lambda directory: directory.count()),
    ("list keys", lambda directory: directory.keys(None)),  # type: ignore[arg-type]  # not looked at
]
WRITES: list[tuple[str, Deed]] = [
    ("register ('room', 1)", lambda directory: directory.register(KEY, 1)),
    ("unregister ('room', 1)", lambda directory: directory.unregister(KEY)),
    ("unregister ('room', 1)", lambda directory: directory.unregister_match(KEY, anything)),
    ("update the value of ('room', 1)", lambda directory: directory.update_value(KEY, lambda value: value)),
]
FROM_OUTSIDE: list[tuple[str, Deed]] = [
    ("register", lambda directory: directory.register(KEY, 1)),
    ("unregister", lambda directory: directory.unregister(KEY)),
    ("unregister", lambda directory: directory.unregister_match(KEY, anything)),
    ("update a value", lambda directory: directory.update_value(KEY, lambda value: value)),
    ("listen", lambda directory: directory.listen()),
    ("stop listening", lambda directory: directory.stop_listening()),
]


async def is_anything(_: object) -> bool:
    await trio.lowlevel.checkpoint()
    return True


# What a type checker refuses as well.
asynchronous: Any = is_anything


BAD: list[tuple[str, str, Deed]] = [
    ("match", "predicate", lambda directory: directory.match(KEY, asynchronous)),
    ("count_match", "predicate", lambda directory: directory.count_match(KEY, asynchronous)),
    ("select", "predicate", lambda directory: directory.select(asynchronous)),
    ("dispatch", "callback", lambda directory: directory.dispatch(KEY, asynchronous)),
    ("unregister_match", "predicate", lambda directory: directory.unregister_match(KEY, asynchronous)),
    ("update_value", "function", lambda directory: directory.update_value(KEY, asynchronous)),
]


def named(deeds: list[Any]) -> list[str]:
    return [f"{number} {deed[0]}" for number, deed in enumerate(deeds)]


@pytest.mark.row("K19")
@pytest.mark.parametrize(("operation", "deed"), READS + WRITES, ids=named(READS + WRITES))
async def test_a_directory_that_has_not_started_says_what_it_cannot_do(
    autojump_clock: MockClock, operation: str, deed: Deed
) -> None:
    directory: UniqueDirectory[int] = UniqueDirectory("rooms")
    async with open_system() as system:
        member = await system.spawn(Member)
        with pytest.raises(RegistryUnavailable) as caught:
            await do(member, deed, directory)
        with pytest.raises(RegistryUnavailable) as owner:
            directory.ref  # noqa: B018  # reading it raises

    assert caught.value.operation == f"{operation} in directory 'rooms'"
    assert owner.value.operation == "find the owner in directory 'rooms'"
    assert (caught.value.reason, owner.value.reason) == ("starting", "starting")


async def test_a_lock_of_a_directory_that_has_not_started_is_refused_with_its_key(autojump_clock: MockClock) -> None:
    directory: UniqueDirectory[int] = UniqueDirectory("rooms")
    with pytest.raises(RegistryUnavailable) as caught:
        async with directory.lock(KEY):
            pass
    assert caught.value.operation == "lock ('room', 1) in directory 'rooms'"


@pytest.mark.row("K09")
@pytest.mark.parametrize(("what", "deed"), FROM_OUTSIDE, ids=named(FROM_OUTSIDE))
async def test_what_only_an_actor_can_do_for_itself_is_refused_by_name(
    autojump_clock: MockClock, what: str, deed: Deed
) -> None:
    directory: UniqueDirectory[int] = UniqueDirectory("rooms")
    async with running(directory):
        with pytest.raises(NotRunningInside, match=f"^{what} in directory 'rooms'"):
            deed(directory)


@pytest.mark.parametrize(("where", "what", "deed"), BAD, ids=[one[0] for one in BAD])
async def test_a_function_that_would_need_to_be_awaited_is_refused_by_its_role(
    autojump_clock: MockClock, where: str, what: str, deed: Deed
) -> None:
    directory: UniqueDirectory[int] = UniqueDirectory("rooms")
    expected = where.removeprefix("count_")
    async with running(directory) as system:
        member = await system.spawn(Member)
        with pytest.raises(InvalidOption, match=f"^{expected}: expected {what} to be a plain function"):
            await do(member, deed, directory)

"""What a directory answers about many registrations at once."""

from __future__ import annotations

from typing import Any

import pytest

from sapwood.actors import Ref, current_actor
from sapwood.errors import InvalidOption
from sapwood.registry import Directory, DuplicateDirectory, Registration, UniqueDirectory
from tests.registry.directory_kit import KEY, OTHER, Member, do, pairs, running

pytestmark = pytest.mark.sapwood(seeds=2)


@pytest.mark.row("K14")
async def test_dispatch_calls_once_in_the_caller_with_all_entries() -> None:
    directory = DuplicateDirectory[int]("groups")
    async with running(directory) as system:
        members = [await system.spawn(Member) for _ in range(3)]
        for value, member in enumerate(members):
            await do(member, directory.register, KEY, value)
        await do(members[0], directory.register, OTHER, 9)
        calls: list[tuple[Ref | None, list[Any]]] = []

        def note(found: list[Registration[int]]) -> None:
            calls.append((current_actor(), sorted(pairs(found), key=lambda pair: int(pair[1]))))

        assert directory.dispatch(KEY, note) == 3
        assert await do(members[2], directory.dispatch, OTHER, note) == 1
        assert calls == [
            (None, [(members[0], 0), (members[1], 1), (members[2], 2)]),
            (members[2], [(members[0], 9)]),
        ]


@pytest.mark.row("K14")
async def test_dispatch_never_calls_with_nothing_and_lets_errors_out() -> None:
    directory = UniqueDirectory[int]("rooms")
    async with running(directory) as system:
        member = await system.spawn(Member)
        await do(member, directory.register, KEY, 1)

        def fail(found: list[Registration[int]]) -> None:
            raise ValueError(f"{len(found)} found")

        async def slow(found: list[Registration[int]]) -> None:
            pytest.fail("nobody would await this")

        with pytest.raises(ValueError, match="1 found"):
            directory.dispatch(KEY, fail)
        assert directory.dispatch(OTHER, fail) == 0
        callbacks: list[Any] = [slow, None, [fail]]
        for callback in callbacks:
            with pytest.raises(InvalidOption, match="callback"):
                directory.dispatch(KEY, callback)
        await do(member, directory.unregister, KEY)
        assert directory.dispatch(KEY, fail) == 0


@pytest.mark.row("K14")
async def test_a_callback_may_change_what_it_was_called_with() -> None:
    directory = DuplicateDirectory[int]("groups")
    async with running(directory) as system:
        member = await system.spawn(Member)
        for value in range(3):
            await do(member, directory.register, KEY, value)

        def clear(found: list[Registration[int]]) -> None:
            assert directory.unregister(KEY) == len(found)

        assert await do(member, directory.dispatch, KEY, clear) == 3
        assert directory.count() == 0


@pytest.mark.row("K15")
@pytest.mark.parametrize("kind", [UniqueDirectory, DuplicateDirectory])
async def test_queries_and_counts_agree_with_the_full_listing(kind: type[Directory[int]]) -> None:
    directory = kind("rooms")
    async with running(directory) as system:
        first, second = await system.spawn(Member), await system.spawn(Member)
        for number in range(6):
            await do(first if number % 2 else second, directory.register, ("room", number), number)
        if kind is DuplicateDirectory:
            await do(first, directory.register, ("room", 1), 7)
            await do(first, directory.register, ("room", 1), 7)
            await do(second, directory.register, ("room", 1), 8)
        everything = directory.select(lambda one: True)
        assert directory.count() == len(everything) == (9 if kind is DuplicateDirectory else 6)
        assert directory.count_select(lambda one: one.value > 3) == sum(one.value > 3 for one in everything)
        assert {(one.key, one.ref) for one in directory.select(lambda one: one.ref is second and one.value < 5)} == {
            (("room", number), second) for number in (0, 2, 4)
        }
        at_one = [one.value for one in everything if one.key == ("room", 1)]
        assert sorted(one.value for one in directory.match(("room", 1), lambda value: value > 1)) == sorted(
            value for value in at_one if value > 1
        )
        assert directory.count_match(("room", 1), lambda value: value == 7) == at_one.count(7)
        assert directory.match(("room", 9), lambda value: True) == []
        for ref in (first, second):
            own = [one for one in everything if one.ref is ref]
            assert sorted(directory.keys(ref)) == sorted(one.key for one in own)
            for key in {one.key for one in everything}:
                assert sorted(directory.values(key, ref)) == sorted(one.value for one in own if one.key == key)


@pytest.mark.row("K15")
async def test_what_is_no_predicate_is_refused_before_anything_is_looked_at() -> None:
    directory = DuplicateDirectory[int]("groups")
    async with running(directory) as system:
        member = await system.spawn(Member)
        await do(member, directory.register, KEY, 1)

        async def slow(value: Any) -> bool:
            return True

        predicates: list[Any] = [None, 1, [(":_", [], [":$_"])], slow]
        for predicate in predicates:
            for query in (directory.select, directory.count_select):
                with pytest.raises(InvalidOption, match="predicate"):
                    query(predicate)
            for matching in (directory.match, directory.count_match):
                with pytest.raises(InvalidOption, match="predicate"):
                    matching(KEY, predicate)


@pytest.mark.row("K15")
async def test_a_predicate_may_change_the_directory_that_it_is_asked_about() -> None:
    directory = DuplicateDirectory[int]("groups")
    async with running(directory) as system:
        member = await system.spawn(Member)
        for value in range(4):
            await do(member, directory.register, KEY, value)

        def shrink(one: Registration[int]) -> bool:
            return directory.unregister_match(KEY, lambda value: value == one.value) == 1

        assert len(await do(member, directory.select, shrink)) == 4
        assert directory.count() == 0

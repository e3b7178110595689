"""Registering, unregistering and changing values: each actor for itself."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from sapwood.actors import DeadLetter, Ref, TelemetryEvent, current_actor
from sapwood.errors import (
    ActorDown,
    AlreadyRegistered,
    AlreadyStarted,
    InvalidKey,
    InvalidMessage,
    InvalidOption,
    NotRegistered,
    NotRunningInside,
)
from sapwood.registry import Directory, DuplicateDirectory, Key, NotRunning, Running, UniqueDirectory
from sapwood.supervision import DynamicSupervisor, child, start_child
from tests.registry.directory_kit import KEY, OTHER, Member, Run, Work, do, pairs, running

pytestmark = pytest.mark.sapwood(seeds=3)


@pytest.mark.row("K04")
async def test_a_key_that_is_held_is_refused_to_everybody_and_keeps_its_value() -> None:
    directory = UniqueDirectory[int]("rooms")
    async with running(directory) as system:
        first, second = await system.spawn(Member), await system.spawn(Member)
        await do(first, directory.register, KEY, 1)
        for ref in (second, first):
            with pytest.raises(AlreadyRegistered) as caught:
                await do(ref, directory.register, KEY, 2)
            assert (caught.value.key, caught.value.holder) == (KEY, first)
        assert pairs(directory.lookup(KEY)) == [(first, 1)]


@pytest.mark.row("K03", "K05")
async def test_a_duplicate_key_has_all_its_entries_and_several_of_one_actor() -> None:
    directory = DuplicateDirectory[str]("groups")
    async with running(directory) as system:
        first, second = await system.spawn(Member), await system.spawn(Member)
        for ref, value in ((first, "a"), (second, "b"), (first, "c"), (first, "c")):
            registration = await do(ref, directory.register, KEY, value)
            assert (registration.key, registration.ref, registration.value) == (KEY, ref, value)
        await do(first, directory.register, OTHER, "d")
        assert sorted(pairs(directory.lookup(KEY)), key=lambda pair: str(pair[1])) == [
            (first, "a"),
            (second, "b"),
            (first, "c"),
            (first, "c"),
        ]
        assert pairs(directory.lookup(OTHER)) == [(first, "d")]


@pytest.mark.row("K06")
@pytest.mark.parametrize("kind", [UniqueDirectory, DuplicateDirectory])
async def test_keys_that_python_holds_for_equal_are_never_taken_for_one(kind: type[Directory[str]]) -> None:
    directory = kind("rooms")
    async with running(directory) as system:
        member = await system.spawn(Member)
        keys: list[Key] = [("k", 1), ("k", "1"), ("k", b"1"), ("k", ("1",)), ("k",)]
        for key in keys:
            await do(member, directory.register, key, repr(key))
        assert [[one.value for one in directory.lookup(key)] for key in keys] == [[repr(key)] for key in keys]
        bad: list[Any] = [("k", 1.0), ("k", True), ("k", None), ("k", ["1"]), "k", (1, "k"), ()]
        for key in bad:
            for call in (directory.lookup, directory.unregister, lambda key: directory.register(key, "")):
                with pytest.raises(InvalidKey):
                    await do(member, call, key)
        assert directory.count() == len(keys)


@pytest.mark.row("K09")
async def test_only_actors_register_and_each_for_itself_with_its_tasks() -> None:
    directory = DuplicateDirectory[str]("groups")
    async with running(directory) as system:
        for call in (lambda: directory.register(KEY, ""), lambda: directory.unregister(KEY), directory.listen):
            with pytest.raises(NotRunningInside, match="outside of actors"):
                call()
        first, second = await system.spawn(Member), await system.spawn(Member)
        await do(first, directory.register, KEY, "first")
        await do(second, directory.register, KEY, "second")
        assert await do(second, directory.unregister, KEY) == 1
        assert pairs(directory.lookup(KEY)) == [(first, "first")]

        async def beside() -> None:
            directory.register(OTHER, "task")

        await do(second, lambda: second._cell.actor.start_task(beside))  # type: ignore[union-attr]  # it lives
        await trio.testing.wait_all_tasks_blocked()
        assert pairs(directory.lookup(OTHER)) == [(second, "task")]


@pytest.mark.row("K09")
async def test_an_async_function_under_a_supervisor_registers_as_the_actor_that_it_is() -> None:
    directory = UniqueDirectory[str]("rooms")

    async def serve() -> None:
        directory.register(KEY, "function")
        await trio.sleep_forever()

    async with running(directory) as system:
        supervisor = await system.spawn(DynamicSupervisor)
        ref = await start_child(supervisor, child(serve))
        await trio.testing.wait_all_tasks_blocked()
        assert pairs(directory.lookup(KEY)) == [(ref, "function")]


@pytest.mark.row("K03", "K09")
async def test_the_code_of_an_actor_that_has_ended_registers_nothing() -> None:
    directory = UniqueDirectory[None]("rooms")
    failures: list[BaseException] = []
    async with running(directory) as system:

        async def linger() -> None:
            with trio.CancelScope(shield=True):
                await trio.sleep(1)
            for call in (lambda: directory.register(KEY, None), lambda: directory.unregister(KEY), directory.listen):
                with pytest.raises(ActorDown) as caught:
                    call()
                failures.append(caught.value)

        member = await system.spawn(Member)
        member.tell(Work(linger))
        await trio.sleep(0.5)
        member._cell.detach()
        await trio.sleep(1)
        assert len(failures) == 3
        assert directory.count() == 0


@pytest.mark.row("K03", "K04")
async def test_an_actor_that_finds_its_key_taken_in_its_on_start_is_not_started() -> None:
    directory = UniqueDirectory[int]("rooms")
    async with running(directory) as system:
        spec = child(Member, lambda: directory.register(KEY, 1))
        supervisor = await system.spawn(DynamicSupervisor)
        winner = await start_child(supervisor, spec)
        with pytest.raises(AlreadyStarted) as caught:
            await start_child(supervisor, spec)
        assert caught.value.ref is winner
        assert directory.find(KEY) == Running(winner)


@pytest.mark.row("K11")
@pytest.mark.parametrize("kind", [UniqueDirectory, DuplicateDirectory])
async def test_unregistering_removes_all_that_the_caller_has_under_that_key_alone(kind: type[Directory[int]]) -> None:
    directory = kind("rooms")
    async with running(directory) as system:
        first, second = await system.spawn(Member), await system.spawn(Member)
        assert await do(first, directory.unregister, KEY) == 0
        times = 3 if kind is DuplicateDirectory else 1
        for value in range(times):
            await do(first, directory.register, KEY, value)
        await do(first, directory.register, OTHER, 8)
        await do(second, directory.register, ("room", 3), 9)
        assert await do(second, directory.unregister, KEY) == 0
        assert await do(first, directory.unregister, KEY) == times
        assert await do(first, directory.unregister, KEY) == 0
        assert directory.lookup(KEY) == []
        assert directory.keys(first) == [OTHER]
        assert directory.keys(second) == [("room", 3)]


@pytest.mark.row("K12")
async def test_unregister_match_removes_only_own_entries_with_a_fitting_value() -> None:
    directory = DuplicateDirectory[int]("groups")
    async with running(directory) as system:
        first, second = await system.spawn(Member), await system.spawn(Member)
        for value in (1, 2, 3, 4):
            await do(first, directory.register, KEY, value)
        await do(second, directory.register, KEY, 2)
        await do(first, directory.register, OTHER, 2)
        assert await do(first, directory.unregister_match, KEY, lambda value: value % 2 == 0) == 2
        assert directory.values(KEY, first) == [1, 3]
        assert directory.values(KEY, second) == [2]
        assert directory.keys(first) == [KEY, KEY, OTHER]
        assert await do(first, directory.unregister_match, KEY, lambda value: value > 9) == 0
        with pytest.raises(InvalidOption, match="predicate"):
            await do(first, directory.unregister_match, KEY, 2)
        assert directory.values(KEY, first) == [1, 3]


@pytest.mark.row("K12")
async def test_a_predicate_that_unregisters_itself_is_not_counted_twice() -> None:
    directory = DuplicateDirectory[int]("groups")
    async with running(directory) as system:
        member = await system.spawn(Member)
        for value in (1, 2):
            await do(member, directory.register, KEY, value)
        inner: list[int] = []

        def predicate(value: int) -> bool:
            inner.append(directory.unregister(KEY))
            return True

        assert await do(member, directory.unregister_match, KEY, predicate) == 0
        assert inner == [2, 0]
        assert directory.count() == 0


@pytest.mark.row("K09", "K13")
async def test_a_holder_changes_its_own_value_and_nobody_elses() -> None:
    directory = UniqueDirectory[int]("rooms")
    async with running(directory) as system:
        holder, other = await system.spawn(Member), await system.spawn(Member)
        await do(holder, directory.register, KEY, 1)
        await do(holder, directory.register, OTHER, 5)
        assert await do(holder, directory.update_value, KEY, lambda value: value + 1) == (2, 1)
        assert await do(holder, directory.update_value, KEY, lambda value: value + 1) == (3, 2)
        called: list[int] = []
        for ref, key in ((other, KEY), (holder, ("room", 3))):
            with pytest.raises(NotRegistered) as caught:
                await do(ref, directory.update_value, key, called.append)
            assert (caught.value.key, caught.value.caller) == (key, ref)
        assert called == []
        assert pairs(directory.lookup(KEY)) == [(holder, 3)]
        assert pairs(directory.lookup(OTHER)) == [(holder, 5)]
        assert directory.count() == 2


@pytest.mark.row("K13")
async def test_a_value_stays_if_the_function_fails_and_goes_if_it_unregisters() -> None:
    directory = UniqueDirectory[int]("rooms")
    async with running(directory) as system:
        holder = await system.spawn(Member)
        await do(holder, directory.register, KEY, 1)

        def fail(value: int) -> int:
            raise InvalidOption("no")

        with pytest.raises(InvalidOption, match="no"):
            await do(holder, directory.update_value, KEY, fail)
        assert pairs(directory.lookup(KEY)) == [(holder, 1)]

        async def slow(value: int) -> int:
            return 7

        with pytest.raises(InvalidOption, match="plain function"):
            await do(holder, directory.update_value, KEY, slow)
        with pytest.raises(NotRegistered):
            await do(holder, directory.update_value, KEY, lambda value: directory.unregister(KEY) + 10)
        assert directory.lookup(KEY) == []
        assert directory.count() == 0


@pytest.mark.row("K10", "K19")
async def test_a_unique_key_takes_messages_and_requests_and_an_unknown_one_says_so() -> None:
    directory = UniqueDirectory[str]("rooms")
    letters: list[DeadLetter] = []

    def note(event: TelemetryEvent) -> None:
        if isinstance(event, DeadLetter):
            letters.append(event)

    async with running(directory) as system:
        system.telemetry.subscribe(note)
        member = await system.spawn(Member)
        await do(member, directory.register, KEY, "a value beside the name")
        assert await directory.ask(KEY, Run(current_actor)) is member
        seen: list[Ref | None] = []
        directory.tell(KEY, Run(lambda: seen.append(current_actor())))
        await trio.testing.wait_all_tasks_blocked()
        assert seen == [member]
        assert directory.whereis(KEY) is member
        assert directory.find(KEY) == Running(member)

        assert directory.whereis(OTHER) is None
        assert directory.find(OTHER) == NotRunning()
        with pytest.raises(ActorDown):
            await directory.ask(OTHER, Run(current_actor))
        not_a_message: object = {"run": current_actor}
        for key in (KEY, OTHER):
            with pytest.raises(InvalidMessage):
                directory.tell(key, not_a_message)
        assert letters == []
        unknown = Run(current_actor)
        directory.tell(OTHER, unknown)
        assert [(letter.key, letter.message, letter.reason) for letter in letters] == [(OTHER, unknown, "dead")]


@pytest.mark.row("K10", "K13")
@pytest.mark.parametrize("name", ["tell", "ask", "whereis", "find", "update_value"])
async def test_what_needs_one_holder_does_not_exist_where_there_may_be_many(name: str) -> None:
    with pytest.raises(AttributeError):
        getattr(DuplicateDirectory[None]("groups"), name)


@pytest.mark.parametrize("name", ["", None, 3, ("rooms",)])
async def test_a_directory_without_a_proper_name_is_refused(name: Any) -> None:
    with pytest.raises(InvalidOption, match="name of a directory"):
        UniqueDirectory[None](name)


async def test_a_directory_is_shown_with_its_kind_name_and_state() -> None:
    directory = DuplicateDirectory[None]("groups")
    assert repr(directory) == "<DuplicateDirectory 'groups' (starting)>"
    async with running(directory):
        assert repr(directory) == "<DuplicateDirectory 'groups' (up)>"
        assert directory.ref.label == "groups"
    assert repr(directory) == "<DuplicateDirectory 'groups' (down)>"

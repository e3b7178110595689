"""What becomes of registrations when actors end, and of actors when the directory's owner does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from sapwood.actors import (
    Actor,
    Crashed,
    Down,
    ExitReason,
    Killed,
    LookupUnavailable,
    Normal,
    Ref,
    Shutdown,
    SimulatedEnvironment,
    TelemetryEvent,
    handle,
    open_system,
)
from sapwood.errors import AlreadyRegistered, ChildFailed, InvalidMessage, RegistryUnavailable, WrongThread
from sapwood.registry import Directory, DuplicateDirectory, NotRunning, Running, Unavailable, UniqueDirectory
from sapwood.supervision import DynamicSupervisor, Supervisor, child, start_child, which_children
from tests.registry.directory_kit import (
    KEY,
    OTHER,
    Member,
    Run,
    Work,
    do,
    pairs,
    replace_owner,
    running,
    until,
)

pytestmark = pytest.mark.sapwood(seeds=5)

KINDS = pytest.mark.parametrize("kind", [UniqueDirectory, DuplicateDirectory])


class Watcher(Actor):
    """Looks around at the moment when it is told that an actor has ended."""

    def __init__(self, ref: Ref, look: Callable[[], Any]) -> None:
        self.watched = ref
        self.look = look
        self.seen: list[Any] = []

    def on_start(self) -> None:
        self.monitor(self.watched)

    @handle
    def ended(self, message: Down) -> None:
        self.seen.append(self.look())


# --- actors end --------------------------------------------------------------------------------------


@pytest.mark.row("K03", "K07", "J13")
@KINDS
async def test_all_entries_of_an_actor_are_gone_before_its_down_is_seen(kind: type[Directory[int]]) -> None:
    directory = kind("rooms")
    async with running(directory) as system:
        member, other = await system.spawn(Member), await system.spawn(Member)
        await do(member, directory.register, KEY, 1)
        await do(member, directory.register, OTHER, 2)
        await do(other, directory.register, ("room", 3), 3)

        def look() -> Any:
            everything = directory.select(lambda one: True)
            return (directory.lookup(KEY), directory.lookup(OTHER), directory.keys(member), pairs(everything))

        watcher = await system.spawn(Watcher, member, look)
        member.kill()
        await member.wait_stopped()
        assert look() == ([], [], [], [(other, 3)])
        await trio.testing.wait_all_tasks_blocked()
        state = await watcher.get_state()
        assert state["seen"] == [([], [], [], [(other, 3)])]


@pytest.mark.row("K07", "K08")
@KINDS
async def test_an_entry_of_a_dead_holder_is_never_returned_and_blocks_nobody(kind: type[Directory[int]]) -> None:
    directory = kind("rooms")
    async with running(directory) as system:
        old, new = await system.spawn(Member), await system.spawn(Member)
        await do(old, directory.register, KEY, 1)
        await do(old, directory.register, OTHER, 1)
        await directory.ref.suspend()  # it hears of no end
        old.kill()
        await old.wait_stopped()
        assert directory.lookup(KEY) == []
        assert directory.values(KEY, old) == []
        assert directory.count() == 0
        assert directory.dispatch(KEY, lambda found: pytest.fail(f"called with {found}")) == 0
        await do(new, directory.register, KEY, 2)
        assert pairs(directory.lookup(KEY)) == [(new, 2)]
        await directory.ref.resume()
        await trio.testing.wait_all_tasks_blocked()
        assert pairs(directory.lookup(KEY)) == [(new, 2)]
        assert directory.lookup(OTHER) == []
        if kind is UniqueDirectory:
            with pytest.raises(AlreadyRegistered):
                await do(new, directory.register, KEY, 3)


@pytest.mark.row("K07")
@KINDS
async def test_nothing_of_an_actor_that_has_ended_is_kept(kind: type[Directory[int]]) -> None:
    directory = kind("rooms")
    async with running(directory) as system:
        for number in range(20):
            member = await system.spawn(Member)
            await do(member, directory.register, KEY, number)
            await do(member, directory.register, OTHER, number)
            if number % 3 == 0:
                await do(member, directory.unregister, OTHER)
            if number % 4 == 0:
                await do(member, directory.unregister, KEY)
            member.kill()
            await member.wait_stopped()
        await trio.testing.wait_all_tasks_blocked()
        owner = directory._owner
        assert owner is not None
        assert (owner.table._by_key, owner.table._by_ref, owner._monitors) == ({}, {}, {})
        assert not owner._cell.links
        assert not owner._cell.watching


@pytest.mark.row("K17")
async def test_an_actor_is_watched_once_from_its_first_key_to_its_last() -> None:
    directory = DuplicateDirectory[int]("groups")
    async with running(directory) as system:
        member = await system.spawn(Member)
        owner = directory._owner
        assert owner is not None

        def watches() -> tuple[int, int]:
            return len(owner._cell.watching or ()), len(owner._cell.links or ())

        assert watches() == (0, 0)
        for key in (KEY, KEY, OTHER):
            await do(member, directory.register, key, 1)
            assert watches() == (1, 1)
        await do(member, directory.unregister, KEY)
        assert watches() == (1, 1)
        await do(member, directory.unregister, OTHER)
        assert watches() == (0, 0)


# --- the owner ends ----------------------------------------------------------------------------------


def as_killed(ref: Ref) -> ExitReason:
    ref.kill()
    return Killed()


def as_shut_down(ref: Ref) -> ExitReason:
    ref.exit(Shutdown("weary"))
    ref._cell.put_stop(Shutdown("weary"))
    return Shutdown("weary")


def as_done(ref: Ref) -> ExitReason:
    ref._cell.put_stop(Normal())
    return Shutdown("directory_down")


def as_crashed(ref: Ref) -> ExitReason:
    error = InvalidMessage("torn")
    ref._cell.crash = reason = Crashed.of(error)
    ref._cell.control = True
    ref._cell.wake()
    return reason


@pytest.mark.row("K17", "K18")
@KINDS
@pytest.mark.parametrize("end", [as_killed, as_shut_down, as_done, as_crashed])
async def test_the_end_of_the_owner_takes_down_all_that_hold_a_key_however_it_ends(
    kind: type[Directory[int]], end: Callable[[Ref], ExitReason]
) -> None:
    directory = kind("rooms")
    async with running(directory) as system:
        both, left, never = [await system.spawn(Member) for _ in range(3)]
        for ref, key in ((both, KEY), (both, OTHER), (left, ("room", 3))):
            await do(ref, directory.register, key, 0)
        await do(left, directory.unregister, ("room", 3))
        await do(both, directory.unregister, KEY)
        reason = end(directory.ref)
        assert await both.wait_stopped() == reason
        await trio.testing.wait_all_tasks_blocked()
        assert (left.alive, never.alive) == (True, True)
        assert directory.count() == 0


@pytest.mark.row("K17", "K18")
async def test_an_actor_that_traps_exits_is_told_once_and_may_register_again() -> None:
    directory = UniqueDirectory[int]("rooms")
    for end in (as_killed, as_done):
        async with running(directory) as system:
            member = await system.spawn(lambda: Member(traps=True))
            await do(member, directory.register, KEY, 1)
            owner = directory.ref
            reason = end(owner)
            await until(lambda owner=owner: directory.ref is not owner and directory.state == "up")  # type: ignore[misc]  # mypy finds no type for such a lambda
            await trio.testing.wait_all_tasks_blocked()
            exits = (await member.get_state())["exits"]
            assert [(exit_.ref, exit_.reason) for exit_ in exits][:1] == [(owner, reason)]
            assert len(exits) == 1
            assert directory.find(KEY) == NotRunning()
            await do(member, directory.register, KEY, 2)
            assert pairs(directory.lookup(KEY)) == [(member, 2)]


@pytest.mark.row("K18")
@KINDS
async def test_lost_names_come_back_only_when_their_restarted_owners_register_again(kind: type[Directory[int]]) -> None:
    directory = kind("rooms")
    specs = [directory.child_spec(), *(child(Member, lambda: directory.register(KEY, 1), id=name) for name in ("a",))]
    async with open_system(SimulatedEnvironment()) as system:
        tree = await system.spawn(Supervisor, specs, strategy="rest_for_one", restarts=1)
        first = directory.lookup(KEY)[0].ref
        await replace_owner(directory)
        await until(lambda: directory.count() == 1)
        second = directory.lookup(KEY)[0].ref
        assert (first.alive, second.alive, second is not first) == (False, True, True)
        assert second in [info.ref for info in await which_children(tree)]


@pytest.mark.row("K18")
async def test_a_lost_table_answers_nothing_until_all_that_stood_in_it_have_ended() -> None:
    directory = UniqueDirectory[int]("rooms")
    async with running(directory) as system:

        async def hang() -> None:
            with trio.CancelScope(shield=True):
                await trio.sleep(10)

        slow, quick, newcomer = [await system.spawn(Member) for _ in range(3)]
        await do(slow, directory.register, KEY, 1)
        await do(quick, directory.register, OTHER, 1)
        slow.tell(Work(hang))
        await trio.sleep(1)
        old = directory.ref
        old.kill()
        await until(lambda: directory.ref is not old)
        assert directory.state == "recovering"
        await quick.wait_stopped()
        for key in (KEY, OTHER):
            assert directory.find(key) == Unavailable("recovering")
            with pytest.raises(RegistryUnavailable) as caught:
                directory.lookup(key)
            assert caught.value.reason == "recovering"
            with pytest.raises(RegistryUnavailable):
                await do(newcomer, directory.register, key, 2)
        # A second death in the midst of it changes nothing.
        old = directory.ref
        old.kill()
        await until(lambda: directory.ref is not old)
        assert directory.state == "recovering"
        await slow.wait_stopped()
        assert directory.find(KEY) == NotRunning()
        await do(newcomer, directory.register, KEY, 2)
        assert directory.find(KEY) == Running(newcomer)


@pytest.mark.row("K18")
async def test_a_restart_that_falls_into_a_recovery_is_tried_again_at_no_cost() -> None:
    directory = UniqueDirectory[int]("rooms")
    async with running(directory) as system:

        async def hang() -> None:
            with trio.CancelScope(shield=True):
                await trio.sleep(10)

        slow = await system.spawn(Member)
        await do(slow, directory.register, KEY, 1)
        tree = await system.spawn(
            Supervisor,
            [child(Member, lambda: directory.register(OTHER, 1), id="quick")],
            strategy="one_for_one",
            restarts=1,
        )
        slow.tell(Work(hang))
        await trio.sleep(1)
        directory.ref.kill()
        await slow.wait_stopped()
        await trio.sleep(1)
        assert tree.alive
        assert [one.value for one in directory.lookup(OTHER)] == [1]


# --- a directory that cannot tell --------------------------------------------------------------------


def questions(directory: UniqueDirectory[int], ref: Ref) -> dict[str, Callable[[], Any]]:
    return {
        "lookup": lambda: directory.lookup(KEY),
        "match": lambda: directory.match(KEY, lambda value: True),
        "count_match": lambda: directory.count_match(KEY, lambda value: True),
        "select": lambda: directory.select(lambda one: True),
        "count_select": lambda: directory.count_select(lambda one: True),
        "count": directory.count,
        "keys": lambda: directory.keys(ref),
        "values": lambda: directory.values(KEY, ref),
        "dispatch": lambda: directory.dispatch(KEY, lambda found: None),
        "whereis": lambda: directory.whereis(KEY),
        "tell": lambda: directory.tell(KEY, Run(None)),
        "register": lambda: directory.register(KEY, 1),
        "unregister": lambda: directory.unregister(KEY),
        "unregister_match": lambda: directory.unregister_match(KEY, lambda value: True),
        "update_value": lambda: directory.update_value(KEY, lambda value: value),
    }


@pytest.mark.row("K19")
async def test_a_directory_that_was_never_started_or_is_down_answers_nothing_at_all() -> None:
    directory = UniqueDirectory[int]("rooms")
    async with open_system(SimulatedEnvironment()) as system:
        member = await system.spawn(Member)

        async def check(reason: Any) -> None:
            for name, question in questions(directory, member).items():
                with pytest.raises(RegistryUnavailable, match="'rooms'") as caught:
                    await do(member, question)
                assert caught.value.reason == reason, name
            with pytest.raises(RegistryUnavailable, match="'rooms'"):
                await directory.ask(KEY, Run(None))
            with pytest.raises(RegistryUnavailable, match="'rooms'"):
                async with directory.lock(KEY):
                    pytest.fail("entered")
            assert directory.find(KEY) == Unavailable(reason)

        await check("starting")
        with pytest.raises(RegistryUnavailable):
            _ = directory.ref
        supervisor = await system.spawn(DynamicSupervisor)
        owner = await start_child(supervisor, directory.child_spec())
        assert directory.ref is owner
        assert await do(member, directory.lookup, KEY) == []
        supervisor.kill()
        await supervisor.wait_stopped()
        await check("registry_down")
        assert directory.ref is owner


@pytest.mark.row("K19")
async def test_a_question_without_an_answer_is_told_to_telemetry() -> None:
    directory = UniqueDirectory[int]("rooms")
    events: list[LookupUnavailable] = []

    def note(event: TelemetryEvent) -> None:
        if isinstance(event, LookupUnavailable):
            events.append(event)

    async with open_system(SimulatedEnvironment()) as system:
        system.telemetry.subscribe(note)
        supervisor = await system.spawn(DynamicSupervisor)
        await start_child(supervisor, directory.child_spec())
        directory.lookup(KEY)
        supervisor.kill()
        await supervisor.wait_stopped()
        assert directory.find(KEY) == Unavailable("registry_down")
        assert events == [LookupUnavailable(KEY, "registry_down")]


async def test_a_directory_stands_in_one_place_of_one_tree() -> None:
    directory = DuplicateDirectory[int]("groups")
    async with running(directory) as system:
        supervisor = await system.spawn(DynamicSupervisor)
        with pytest.raises(ChildFailed):
            await start_child(supervisor, directory.child_spec())
        member = await system.spawn(Member)
        await do(member, directory.register, KEY, 1)
        assert pairs(directory.lookup(KEY)) == [(member, 1)]
    async with running(directory):
        assert directory.lookup(KEY) == []


def test_other_threads_are_sent_to_the_portal() -> None:
    directory = UniqueDirectory[int]("rooms")

    async def main() -> None:
        async with running(directory) as system:
            member = await system.spawn(Member)

            async def elsewhere() -> None:
                calls = questions(directory, member)
                for question in (*calls.values(), directory.listen, directory.stop_listening):
                    with pytest.raises(WrongThread, match=r"portal\.call"):
                        await trio.to_thread.run_sync(question)

            await member.ask(Work(elsewhere), timeout=None)

    trio.run(main)


# --- listeners ---------------------------------------------------------------------------------------


@pytest.mark.row("K16")
@KINDS
async def test_listeners_are_told_of_registering_and_unregistering_but_of_no_end(kind: type[Directory[str]]) -> None:
    directory = kind("rooms")
    async with running(directory) as system:
        listener, member, mortal = [await system.spawn(Member) for _ in range(3)]
        await do(member, directory.register, KEY, "before")
        await do(member, directory.unregister, KEY)
        await do(listener, directory.listen)
        await do(listener, directory.listen)
        assert await do(member, directory.unregister, KEY) == 0  # R15: nothing was removed
        await do(member, directory.register, KEY, "a")
        await do(mortal, directory.register, OTHER, "b")
        if isinstance(directory, UniqueDirectory):
            await do(mortal, directory.update_value, OTHER, lambda value: "changed")
        mortal.kill()
        await mortal.wait_stopped()
        await do(member, directory.register, OTHER, "c")
        await do(member, directory.unregister_match, KEY, lambda value: value == "other")
        await do(member, directory.unregister, KEY)
        await trio.testing.wait_all_tasks_blocked()
        assert (await listener.get_state())["told"] == [
            ("registered", KEY, "a"),
            ("registered", OTHER, "b"),
            ("registered", OTHER, "c"),
            ("unregistered", KEY, "a"),
        ]
        await do(listener, directory.stop_listening)
        await do(listener, directory.stop_listening)
        await do(member, directory.unregister, OTHER)
        assert len((await listener.get_state())["told"]) == 4


@pytest.mark.row("K16")
async def test_a_listener_hears_nothing_of_a_registration_that_was_refused() -> None:
    directory = UniqueDirectory[str]("rooms")
    async with running(directory) as system:
        listener, member = await system.spawn(Member), await system.spawn(Member)
        await do(member, directory.register, KEY, "a")
        await do(listener, directory.listen)
        with pytest.raises(AlreadyRegistered):
            await do(member, directory.register, KEY, "b")
        await trio.testing.wait_all_tasks_blocked()
        assert (await listener.get_state())["told"] == []


@pytest.mark.row("K16")
async def test_listening_outlives_the_directory_and_ends_with_the_listener() -> None:
    directory = DuplicateDirectory[str]("groups")
    async with open_system(SimulatedEnvironment()) as system:
        listener, dead, member = [await system.spawn(Member) for _ in range(3)]
        await do(listener, directory.listen)  # before it has started
        await do(dead, directory.listen)
        supervisor = await system.spawn(Supervisor, [directory.child_spec()], strategy="one_for_one")
        await do(member, directory.register, KEY, "a")
        dead.kill()
        await dead.wait_stopped()
        await do(member, directory.unregister, KEY)
        assert list(directory._listeners) == [listener]
        late = [await system.spawn(Member) for _ in range(2)]
        await do(late[0], directory.listen)
        late[0].kill()
        await late[0].wait_stopped()
        await do(late[1], directory.listen)
        assert list(directory._listeners) == [listener, late[1]]
        await replace_owner(directory)
        assert supervisor.alive
        await do(member, directory.register, KEY, "b")
        await trio.testing.wait_all_tasks_blocked()
        assert (await listener.get_state())["told"] == [
            ("registered", KEY, "a"),
            ("unregistered", KEY, "a"),
            ("registered", KEY, "b"),
        ]

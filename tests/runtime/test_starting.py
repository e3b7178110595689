"""Opening a runtime: the tree it builds, what it refuses, and what is left when it cannot start."""

# ruff: noqa: PT012  # that a block is left is what is tested

from __future__ import annotations

import sqlite3
import threading
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest
import trio

from sapwood import Runtime, open_runtime
from sapwood.actors import (
    Actor,
    Crashed,
    Exited,
    Ignore,
    Request,
    SimulatedEnvironment,
    TelemetryEvent,
    handle,
    message,
)
from sapwood.errors import (
    AlreadyStarted,
    ChildFailed,
    FutureVersion,
    InvalidChildSpec,
    InvalidKey,
    InvalidOption,
    RegistryUnavailable,
    RuntimeFailed,
    StartError,
    StartTimeout,
    StoreCorrupt,
    StoreUnavailable,
)
from sapwood.registry import NotRunning, Running, Unavailable
from sapwood.supervision import ChildSpec, child, supervisor


@message("starting.crash")
class Crash:
    pass


class Plain(Actor):
    @handle
    def crash(self, message: Crash) -> None:
        raise ValueError("crashes")


class Note(Actor):
    def __init__(self, events: list[str], name: str) -> None:
        self.events = events
        self.name = name

    def on_start(self) -> None:
        self.events.append(f"+{self.name}")

    def on_stop(self, reason: object) -> None:
        self.events.append(f"-{self.name}")


class Broken(Actor):
    def __init__(self, error: Exception) -> None:
        raise error


class Hang(Actor):
    async def on_start(self) -> None:
        await trio.sleep_forever()


def note(events: list[str], name: str) -> ChildSpec:
    return child(Note, events, name, id=name)


def run(connection: sqlite3.Connection, statement: str) -> None:
    connection.execute(statement)


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if not thread.daemon]


class TestTheTree:
    @pytest.mark.row("S4-050", "S4-055")
    async def test_it_stands_in_the_order_in_which_what_comes_later_needs_what_came_before(self) -> None:
        async with open_runtime(children=[child(Plain, id="mine")], partitions=2) as runtime:
            tree = runtime.tree()

        assert tree.render().splitlines() == [
            "runtime",
            "├── store",
            "├── bus",
            "│   ├── clerk",
            "│   └── participants",
            "│       ├── workers",
            "│       └── keeper",
            "├── core",
            "│   ├── registry",
            "│   │   ├── partition-0",
            "│   │   └── partition-1",
            "│   ├── registry-watcher",
            "│   ├── agents",
            "│   └── filesystems",
            "└── mine",
        ]

    @pytest.mark.row("S4-049")
    async def test_it_is_ready_only_when_everything_has_started_and_not_once_the_stop_has_begun(self) -> None:
        seen: list[object] = []

        class Late(Actor):
            def on_start(self) -> None:
                seen.append(("start", found["runtime"].ready()))

            def on_stop(self, reason: object) -> None:
                seen.append(("stop", found["runtime"].ready()))

        found: dict[str, Runtime] = {}

        class Early(Actor):
            def __init__(self) -> None:
                system = self._cell.system
                found["runtime"] = system.registrar._home.func.__self__  # type: ignore[attr-defined]  # the only way in

        async with open_runtime(children=[child(Early), child(Late)]) as runtime:
            assert found["runtime"] is runtime
            seen.append(("block", runtime.ready()))

        assert seen == [("start", False), ("block", True), ("stop", False)]
        assert not runtime.ready()

    async def test_children_register_keys_while_the_tree_starts(self) -> None:
        async with open_runtime(children=[child(Plain, key=("plain", 1))]) as runtime:
            assert isinstance(runtime.registry.lookup_nowait(("plain", 1)), Running)

    async def test_a_killed_core_brings_everything_back_in_order(self, autojump_clock: object) -> None:
        events: list[str] = []
        async with open_runtime(environment=SimulatedEnvironment(), children=[note(events, "mine")]) as runtime:
            found = await runtime.get_or_start(("plain", 1), child(Plain))
            assert isinstance(found, Running)
            next(node.ref for node in runtime.tree().children if node.label == "core").kill()
            await trio.sleep(1)

            assert runtime.ready()
            assert not found.ref.alive
            assert runtime.registry.lookup_nowait(("plain", 1)) == NotRunning()
            assert events == ["+mine", "-mine", "+mine"]

    async def test_a_killed_store_is_opened_again_and_keeps_what_was_written(
        self, tmp_path: Path, autojump_clock: object
    ) -> None:
        path = tmp_path / "store.db"
        environment = SimulatedEnvironment()
        async with open_runtime(store=path, environment=environment) as runtime:
            await runtime.store.write(lambda c: run(c, "create table mine (n)"))
            await runtime.store.write(lambda c: run(c, "insert into mine values (7)"))
            runtime.tree().children[0].ref.kill()
            with pytest.raises(StoreUnavailable, match="being opened"):
                while True:
                    _ = runtime.store
                    await trio.lowlevel.checkpoint()
            assert not runtime.ready()
            await trio.sleep(1)

            assert runtime.ready()
            assert await runtime.store.read(lambda c: c.execute("select n from mine").fetchall()) == [(7,)]
        with sqlite3.connect(path) as connection:
            assert connection.execute("select n from mine").fetchall() == [(7,)]
        connection.close()


class TestSpawn:
    async def test_it_starts_an_actor_next_to_the_agents(self) -> None:
        async with open_runtime() as runtime:
            ref = await runtime.spawn(Plain, key=("plain", 1))
            home = next(node for node in runtime.tree().walk() if node.label == "agents")

            assert [node.ref for node in home.children] == [ref]
            assert runtime.registry.whereis(("plain", 1)) is ref

    async def test_it_starts_an_async_function(self) -> None:
        done = trio.Event()

        async def work() -> None:
            await trio.lowlevel.checkpoint()
            done.set()

        async with open_runtime() as runtime:
            ref = await runtime.spawn(work)
            await ref.wait_stopped()
            assert done.is_set()

    @pytest.mark.row("K01", "K04")
    async def test_a_key_that_is_taken_is_refused_and_names_the_holder(self) -> None:
        async with open_runtime() as runtime:
            ref = await runtime.spawn(Plain, key=("plain", 1))
            with pytest.raises(AlreadyStarted) as refused:
                await runtime.spawn(Plain, key=("plain", 1))
            assert refused.value.ref is ref

    @pytest.mark.parametrize("key", ["plain", ("plain", 1.0), ("plain", True), [], ()])
    async def test_a_key_that_is_none_is_refused_before_anything_starts(self, key: Any) -> None:
        async with open_runtime() as runtime:
            with pytest.raises(InvalidKey):
                await runtime.spawn(Plain, key=key)
            assert sum(node.kind == "Plain" for node in runtime.tree().walk()) == 0

    async def test_one_that_fails_to_start_leaves_nothing(self) -> None:
        async with open_runtime() as runtime:
            with pytest.raises(ChildFailed, match="boom"):
                await runtime.spawn(Broken, ValueError("boom"), key=("broken", 1))
            assert runtime.registry.lookup_nowait(("broken", 1)) == NotRunning()

    async def test_one_that_has_nothing_to_do_is_an_error_since_there_is_nothing_to_return(self) -> None:
        class Idle(Actor):
            def on_start(self) -> Ignore:
                return Ignore()

        async with open_runtime() as runtime:
            with pytest.raises(StartError, match=r"Ignore\(\)"):
                await runtime.spawn(Idle)

    async def test_while_its_place_is_being_restarted_it_says_so(self, autojump_clock: object) -> None:
        async with open_runtime(environment=SimulatedEnvironment()) as runtime:
            next(node.ref for node in runtime.tree().walk() if node.label == "agents").kill()
            with pytest.raises(RegistryUnavailable, match="recovering"):
                while True:
                    await runtime.spawn(Plain)
            await trio.sleep(1)
            await runtime.spawn(Plain)


class TestWhatCannotStart:
    @pytest.mark.row("A05", "N07")
    async def test_a_child_that_fails_is_named_by_a_plain_error_and_the_others_are_stopped_in_order(self) -> None:
        events: list[str] = []
        before = threads()
        broken = child(Broken, ValueError("boom"), id="broken")
        with pytest.raises(ChildFailed) as failed:
            async with open_runtime(children=[note(events, "a"), note(events, "b"), broken, note(events, "c")]):
                events.append("block")

        assert failed.value.child == "broken"
        assert isinstance(failed.value.reason, Crashed)
        assert str(failed.value.reason.exception) == "boom"
        assert events == ["+a", "+b", "-b", "-a"]
        assert threads() == before

    async def test_a_start_that_takes_longer_than_it_may_fails(self, autojump_clock: object) -> None:
        hang = child(Hang, id="hang", start_timeout=3.0)
        with pytest.raises(StartTimeout, match="within 3 s"):
            async with open_runtime(environment=SimulatedEnvironment(), children=[hang]):
                pass
        assert trio.current_time() == pytest.approx(3)

    async def test_a_root_that_gives_up_during_the_start_is_a_failure(self, autojump_clock: object) -> None:
        class Killer(Actor):
            async def on_start(self) -> None:
                next(cell for cell in self._cell.system.actors if cell.label == "runtime").kill()
                await trio.sleep(10)

        with pytest.raises(RuntimeFailed, match="killed"):
            async with open_runtime(environment=SimulatedEnvironment(), children=[child(Killer)]):
                pytest.fail("the block ran")

    async def test_an_outer_deadline_ends_a_start_that_hangs(self, autojump_clock: object) -> None:
        events: list[str] = []
        with trio.move_on_after(2) as scope:
            async with open_runtime(environment=SimulatedEnvironment(), children=[note(events, "a"), child(Hang)]):
                events.append("block")

        assert scope.cancelled_caught
        assert events == ["+a", "-a"]
        assert trio.current_time() == pytest.approx(2)

    async def test_an_outer_deadline_ends_a_start_that_hangs_inside_a_supervisor(self, autojump_clock: object) -> None:
        events: list[str] = []
        inner = supervisor([note(events, "b"), child(Hang)], strategy="one_for_one", id="inner")
        with trio.move_on_after(2) as scope:
            async with open_runtime(environment=SimulatedEnvironment(), children=[note(events, "a"), inner]):
                events.append("block")

        assert scope.cancelled_caught
        assert events == ["+a", "+b", "-b", "-a"]

    async def test_a_cancelled_scope_around_it_starts_and_stops_it_without_running_the_block(self) -> None:
        with trio.CancelScope() as scope:
            scope.cancel()
            async with open_runtime():
                pytest.fail("the block ran")
        assert scope.cancelled_caught

    @pytest.mark.row("S4-050")
    async def test_a_store_path_that_is_a_directory_is_the_stores_own_error_and_changes_nothing(
        self, tmp_path: Path
    ) -> None:
        with pytest.raises(StoreUnavailable, match=str(tmp_path)) as failed:
            async with open_runtime(store=tmp_path):
                pytest.fail("the block ran")

        assert isinstance(failed.value.__cause__, ChildFailed)
        assert list(tmp_path.iterdir()) == []

    async def test_a_file_that_is_no_store_is_left_as_it_is(self, tmp_path: Path) -> None:
        path = tmp_path / "store.db"
        path.write_bytes(b"not a database, but text that somebody needs\n" * 100)
        before = path.read_bytes()
        with pytest.raises(StoreCorrupt):
            async with open_runtime(store=path):
                pytest.fail("the block ran")
        assert path.read_bytes() == before

    async def test_a_store_of_a_newer_sapwood_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "store.db"
        async with open_runtime(store=path) as runtime:
            future = (
                "insert into _sqlite_migrations (migration_set, name, applied_at) "
                "select migration_set, 'from_the_future', applied_at from _sqlite_migrations limit 1"
            )
            await runtime.store.write(lambda c: run(c, future))
        with pytest.raises(FutureVersion):
            async with open_runtime(store=path):
                pytest.fail("the block ran")


class TestOptions:
    @pytest.mark.parametrize(
        ("options", "problem"),
        [
            ({"partitions": 0}, "partitions: expected an int >= 1"),
            ({"partitions": True}, "partitions: expected an int >= 1"),
            ({"partitions": 2.0}, "partitions: expected an int >= 1"),
            ({"store": 7}, "store: expected a path"),
            ({"shutdown_timeout": 0}, "shutdown_timeout: expected seconds > 0"),
            ({"signals": "yes"}, "signals: expected True, False or None"),
            ({"synchronous": "OFF"}, "FULL"),
        ],
    )
    async def test_one_that_cannot_work_is_named(self, options: dict[str, Any], problem: str) -> None:
        with pytest.raises(InvalidOption, match=problem):
            async with open_runtime(**options):
                pytest.fail("the block ran")

    @pytest.mark.parametrize(
        ("options", "problem"),
        [
            ({"restarts": -1}, "restarts"),
            ({"period": 0}, "period"),
            ({"children": [child(Plain, id="a"), child(Plain, id="a")]}, "an id that no other child has"),
            ({"children": [child(Plain, id="core")]}, "an id other than store, bus and core"),
            ({"children": [Plain]}, "specs made with"),
            ({"children": [child(Plain, restart="temporary", significant=True)]}, "significant"),
        ],
    )
    async def test_a_spec_that_cannot_work_is_refused_before_anything_starts(
        self, options: dict[str, Any], problem: str, tmp_path: Path
    ) -> None:
        with pytest.raises(InvalidChildSpec, match=problem):
            async with open_runtime(store=tmp_path / "store.db", **options):
                pytest.fail("the block ran")
        assert list(tmp_path.iterdir()) == []

    async def test_an_option_that_does_not_exist_is_refused(self) -> None:
        with pytest.raises(TypeError, match="stores"):
            open_runtime(stores="x")  # type: ignore[call-arg]


@pytest.mark.row("S4-049", "AR-24.42")
async def test_ready_follows_every_step_of_a_recovery(autojump_clock: object) -> None:
    async with open_runtime(environment=SimulatedEnvironment()) as runtime:
        seen: list[tuple[bool, str]] = []

        class Slow(Actor):
            async def on_stop(self, reason: object) -> None:
                await trio.sleep(2)

        await runtime.get_or_start(("slow", 1), child(Slow))
        exits: list[str] = []

        def hear(event: TelemetryEvent) -> None:
            if isinstance(event, Exited):
                exits.append(event.actor)

        runtime.telemetry.subscribe(hear)
        for node in runtime.tree().walk():
            if node.label.startswith("partition"):
                node.ref.kill()
        assert runtime.ready()  # they live until their tasks run
        for _ in range(40):
            await trio.sleep(0.1)
            found = runtime.registry.lookup_nowait(("slow", 1))
            seen.append((runtime.ready(), found.reason if isinstance(found, Unavailable) else type(found).__name__))

        assert seen == [(False, "recovering")] * 19 + seen[19:21] + [(True, "NotRunning")] * 19
        assert "Slow(('slow', 1))" in exits


async def test_a_child_of_a_crashed_group_whose_partition_recovers_costs_no_restarts(autojump_clock: object) -> None:
    """A start that the registry refuses is tried again for as long as that takes; it is no failure of the child."""

    class Slow(Actor):
        async def on_stop(self, reason: object) -> None:
            await trio.sleep(4)

    keyed = child(Plain, key=("keyed", 1), id="keyed")
    async with open_runtime(environment=SimulatedEnvironment(), children=[keyed], restarts=4) as runtime:
        await runtime.spawn(Slow)
        for node in runtime.tree().walk():
            if node.label.startswith("partition"):
                node.ref.kill()
        ref = runtime.registry.whereis(("keyed", 1))
        assert ref is not None
        ref.tell(Crash())
        await trio.sleep(3)
        assert not ref.alive
        assert runtime.registry.lookup_nowait(("keyed", 1)) == Unavailable("recovering")
        await trio.sleep(3)

        assert runtime.ready()
        assert isinstance(runtime.registry.lookup_nowait(("keyed", 1)), Running)


async def test_signals_are_not_offered_where_python_cannot_handle_them() -> None:
    async def open_it() -> None:
        async with open_runtime(signals=True):
            pytest.fail("the block ran")

    def elsewhere() -> None:
        with pytest.raises(InvalidOption, match="signals: expected False or None outside the main thread"):
            trio.run(open_it)

    await trio.to_thread.run_sync(elsewhere)


trace: ContextVar[str] = ContextVar("trace", default="none")


@message("test.starting.trace")
class Trace(Request[str]):
    pass


class Tracer(Actor):
    @handle
    def get(self, message: Trace) -> str:
        return trace.get()


@pytest.mark.row("BR-70")
async def test_context_variables_of_the_hosts_choice_travel_with_messages() -> None:
    for variables, seen in (([trace], "t-1"), ([], "none")):
        async with open_runtime(propagate=variables) as runtime:
            ref = await runtime.spawn(Tracer)
            token = trace.set("t-1")
            assert await ref.ask(Trace()) == seen
            trace.reset(token)


async def test_what_is_no_context_variable_is_refused_before_anything_starts() -> None:
    with pytest.raises(InvalidOption, match="propagate: expected ContextVar objects"):
        async with open_runtime(propagate=["trace"]):  # type: ignore[list-item]  # what is refused
            raise AssertionError("it must not open")


async def test_a_spec_given_to_spawn_is_refused_with_a_word_on_what_to_write_instead() -> None:
    async with open_runtime() as runtime:
        with pytest.raises(InvalidChildSpec, match=r"start a spec with runtime.get_or_start\(key, spec\); got 'mine'"):
            await runtime.spawn(child(Plain, id="mine"))  # type: ignore[arg-type]  # what is refused

"""The runtime: the composition root that builds the tree from all layers, and stops it in order."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import trio

from sapwood._signals import SignalWatch
from sapwood.actors import ActorSystem, Environment, ExitReason, RealEnvironment, Ref, Telemetry, open_system
from sapwood.agents import Services, Sessions
from sapwood.errors import InvalidOption, RuntimeFailed, StartError, StoreUnavailable
from sapwood.files import FileBackend, FileService, Scope, SQLiteBackend
from sapwood.persistence import Journal, SnapshotPolicy, Store, open_store
from sapwood.registry import Key, LocalBackend, Registry, Running, Unavailable
from sapwood.supervision import (
    ChildSpec,
    DynamicSupervisor,
    Restart,
    Supervisor,
    TreeNode,
    child,
    start_child,
    supervision_tree,
    supervisor,
)


@attrs.frozen
class RuntimeOptions:
    """How a runtime is built; see `open_runtime`."""

    store: str | Path = ":memory:"
    synchronous: str = "FULL"
    partitions: int = 4
    restarts: int = 10
    period: float = 5.0
    shutdown_timeout: float = 30.0


class Runtime:
    """A running tree. Made by `open_runtime` only; its methods must be called in the thread that opened it."""

    def __init__(self, system: ActorSystem, options: RuntimeOptions) -> None:
        self._system = system
        self._options = options
        self._homes: dict[str, Ref] = {}
        self._store: Store | None = None
        self._root: Ref | None = None
        self._stopping = False
        self._backend = LocalBackend(options.partitions)
        self.registry = Registry(system, self._backend, home=partial(self._home, "agents"))
        self.files = FileService(self.registry, partial(self._home, "filesystems"), self._default_backend)
        services = Services(lambda: self.journal, self.files, system.environment.new_id("owner_"), SnapshotPolicy())
        self.sessions = Sessions(
            self.registry, partial(self._home, "agents"), services, system.environment, system.telemetry
        )

    @property
    def system(self) -> ActorSystem:
        """The actors' shared state."""
        return self._system

    @property
    def environment(self) -> Environment:
        """Time, randomness, ids and threads."""
        return self._system.environment

    @property
    def telemetry(self) -> Telemetry:
        """What happens in the tree, as it happens."""
        return self._system.telemetry

    @property
    def store(self) -> Store:
        """The store.

        Raises:
            StoreUnavailable: while it is being restarted, and after the end.
        """
        if self._store is None:
            raise StoreUnavailable(str(self._options.store), "is being opened; try again in a moment")
        return self._store

    @property
    def journal(self) -> Journal:
        """The journals of agents.

        Raises:
            StoreUnavailable: while the store is being restarted, and after the end.
        """
        return Journal(self.store, self.environment)

    def ready(self) -> bool:
        """Say whether requests can be served: the tree stands, nothing is being recovered, and no stop has begun.

        For a readiness probe, never for a liveness probe (S4-049).
        """
        homes = all(home.alive for home in self._homes.values())
        return (
            not self._stopping
            and self._root is not None
            and self._root.alive
            and homes
            and bool(self._homes)
            and self._store is not None
            and self.registry.available
        )

    @property
    def root(self) -> Ref:
        """The root supervisor."""
        assert self._root is not None
        return self._root

    def tree(self) -> TreeNode:
        """Return the supervision tree as it is now, read straight from memory."""
        return supervision_tree(self._system, self.root)

    async def spawn(
        self,
        start: Callable[..., Any],
        *args: Any,
        key: Key | None = None,
        restart: Restart = "temporary",
    ) -> Ref:
        """Start an actor (or an async function) in the tree, next to the agents.

        Args:
            start: An Actor class, a function that returns an Actor, or an async function.
            *args: Positional arguments for it.
            key: Registry key; None for none.
            restart: `temporary`, the default, never restarts it.

        Raises:
            StartError: if it fails to start; nothing of it is left.
            RegistryUnavailable: if it has a key and the registry cannot tell.
            StoreUnavailable: if the tree is being restarted; try again in a moment.
        """
        home = self._home("agents")
        if home is None or not home.alive:
            raise StoreUnavailable("runtime", "the tree is being restarted; try again in a moment")
        ref = await start_child(home, child(start, *args, key=key, restart=restart))
        if ref is None:
            raise StartError(f"spawn({start!r}): its on_start returned Ignore(), so there is nothing to refer to")
        return ref

    async def get_or_start(self, key: Key, spec: ChildSpec) -> Running[Ref] | Unavailable:
        """Return the actor that holds a key, or start it next to the agents; see `Registry.get_or_start`."""
        return await self.registry.get_or_start(key, spec)

    def _default_backend(self, scope: Scope) -> FileBackend:
        return SQLiteBackend(self.store, scope, self.environment)

    # --- for the tree -----------------------------------------------------------------------------

    def _home(self, name: str) -> Ref | None:
        return self._homes.get(name)

    def settle(self, name: str, ref: Ref) -> None:
        """Note the present incarnation of one of the dynamic supervisors."""
        self._homes[name] = ref

    async def serve_store(self, task_status: Any = None) -> None:
        """Keep the store open for as long as its place in the tree lives."""
        options = self._options
        async with open_store(options.store, self.environment, synchronous=options.synchronous) as store:
            self._store = store
            try:
                if task_status is not None:
                    task_status.started()
                await trio.sleep_forever()
            finally:
                self._store = None

    def begin_stop(self) -> None:
        """Refuse new work from now on."""
        self._stopping = True
        self.registry.drain()

    async def start(self, children: Sequence[ChildSpec]) -> Ref:
        """Start the root supervisor with everything below it."""
        options = self._options
        root = partial(
            Supervisor, self._specs(children), strategy="rest_for_one", restarts=options.restarts, period=options.period
        )
        self._root = await self._system.spawn(root)
        return self._root

    def _specs(self, children: Sequence[ChildSpec]) -> list[ChildSpec]:
        """Return the specs of the root's children, in start order (S4-050)."""
        options = self._options
        budget = {"restarts": options.restarts, "period": options.period}
        core = [
            *self._backend.children(restarts=options.restarts, period=options.period),
            child(partial(Home, self, "agents", **budget), id="agents", restart="permanent"),
            child(partial(Home, self, "filesystems", **budget), id="filesystems"),
        ]
        return [
            child(self.serve_store, id="store", shutdown=10.0),
            supervisor(core, strategy="rest_for_one", id="core", restarts=options.restarts, period=options.period),
            *children,
        ]


class Home(DynamicSupervisor):
    """A dynamic supervisor that the runtime always knows by name, in whatever incarnation."""

    def __init__(self, runtime: Runtime, name: str, *, restarts: int, period: float) -> None:
        super().__init__(restarts=restarts, period=period)
        self._runtime = runtime
        self._name = name

    async def on_start(self) -> None:
        await trio.lowlevel.checkpoint()
        self._runtime.settle(self._name, self.ref)


@asynccontextmanager
async def open_runtime(
    *,
    store: str | Path = ":memory:",
    children: Sequence[ChildSpec] = (),
    environment: Environment | None = None,
    synchronous: str = "FULL",
    partitions: int = 4,
    restarts: int = 10,
    period: float = 5.0,
    shutdown_timeout: float = 30.0,
    signals: bool | None = None,
) -> AsyncIterator[Runtime]:
    """Start a runtime in the present trio run, and stop it in order when the block is left, however that happens.

    Children stop in reverse start order, each within its own shutdown time; when `shutdown_timeout` is spent, what
    is left is cancelled. SIGINT and SIGTERM cancel the block and so start the same orderly stop, after which
    `SystemExit(128 + signal)` is raised; a second signal cancels at once, a third one ends the process (BR-73, BR-74).

    Args:
        store: Path of the SQLite file; `":memory:"`, the default, keeps nothing.
        children: The user's own children, started last, in this order, and stopped first.
        environment: Time, randomness, ids, threads; None for the real world.
        synchronous: `FULL` makes every journaled event survive a power loss; `NORMAL` only a crash of the process.
        partitions: Number of registry partitions.
        restarts: Most restarts within `period` that each supervisor of the runtime allows.
        period: Length of that window, in seconds.
        shutdown_timeout: Seconds for the whole orderly stop.
        signals: Whether to handle SIGINT and SIGTERM; None for yes in the main thread.

    Raises:
        ChildFailed: if the tree cannot be started; nothing of it is left.
        RuntimeFailed: if the root supervisor gives up; the block is cancelled and everything has been stopped.
        InvalidOption: if an option is out of its range.
    """
    if not shutdown_timeout > 0:
        raise InvalidOption(f"shutdown_timeout: expected seconds > 0; got {shutdown_timeout!r}")
    options = RuntimeOptions(store, synchronous, partitions, restarts, period, shutdown_timeout)
    tree = Tree(environment or RealEnvironment(), options, tuple(children))
    failure: Exception | None = None
    async with trio.open_nursery() as nursery:
        signal_watch = SignalWatch(tree.environment, on_first=nursery.cancel_scope.cancel, on_second=tree.cancel)
        try:
            runtime: Runtime = await nursery.start(tree.run)
            if signals or (signals is None and threading.current_thread() is threading.main_thread()):
                await nursery.start(signal_watch.run)
            nursery.start_soon(tree.watch_root, nursery.cancel_scope)
            yield runtime
        except Exception as error:
            # Raised again below, since the nursery would wrap it in a group.
            failure = unwrap(error)
        finally:
            await tree.stop()
            signal_watch.close()
            nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure
    if signal_watch.first is not None:
        raise SystemExit(128 + signal_watch.first)
    if tree.failed is not None:
        raise RuntimeFailed(tree.failed)


class Tree:
    """The task that holds the tree inside a shield, with its stop button outside.

    trio cancels everything below a scope at once, and an orderly stop goes one child at a time. So the tree runs in
    a shielded scope, and whatever ends the block around it presses `stop`; when the budget is spent the shield's own
    scope is cancelled (OTP Q09).
    """

    def __init__(self, environment: Environment, options: RuntimeOptions, children: tuple[ChildSpec, ...]) -> None:
        self.environment = environment
        self.options = options
        self.children = children
        self.runtime: Runtime | None = None
        self.failed: ExitReason | None = None
        self._shield = trio.CancelScope(shield=True)
        self._stop = trio.Event()
        self._stopped = trio.Event()
        self._stopped.set()

    async def run(self, task_status: trio.TaskStatus[Runtime] = trio.TASK_STATUS_IGNORED) -> None:
        """Start the tree and hold it until `stop`."""
        self._stopped = trio.Event()
        try:
            with self._shield:
                async with open_system(self.environment) as system:
                    runtime = self.runtime = Runtime(system, self.options)
                    system.registrar = runtime.registry
                    root = await runtime.start(self.children)
                    task_status.started(runtime)
                    await self._stop.wait()
                    if root.alive:
                        await root.stop()
        finally:
            self._stopped.set()

    async def watch_root(self, body: trio.CancelScope) -> None:
        """Cancel the block when the root supervisor gives up by itself."""
        assert self.runtime is not None
        reason = await self.runtime.root.wait_stopped()
        if not self._stop.is_set():
            self.failed = reason
            self.runtime.begin_stop()
            body.cancel()

    async def stop(self) -> None:
        """Stop the tree in order, within the total budget; goes on although the caller is cancelled."""
        if self.runtime is not None:
            self.runtime.begin_stop()
        self._stop.set()
        with trio.CancelScope(shield=True):
            with trio.move_on_after(self.options.shutdown_timeout):
                await self._stopped.wait()
            self.cancel()
            await self._stopped.wait()

    def cancel(self) -> None:
        """Cancel what is left of the tree, all at once."""
        self._shield.cancel()


def unwrap(error: Exception) -> Exception:
    """Take the only exception out of its groups."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error

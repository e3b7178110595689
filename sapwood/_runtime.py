"""The runtime: the composition root that builds the tree from all layers, and stops it in order."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any, Literal, Unpack

import attrs
import trio

from sapwood._collector import Collecting, CollectorPolicy
from sapwood._lifecycle import Tree, bare, includes_cancelled, only_cancelled, only_member
from sapwood._runtime_options import BUS, STORE, OpenOptions, RuntimeOptions
from sapwood._signals import handles_signals
from sapwood.actors import (
    ActorSystem,
    Birth,
    Cell,
    Crashed,
    Environment,
    Killed,
    LoopThread,
    Portal,
    RealEnvironment,
    Ref,
    Telemetry,
    log_events,
    start,
)
from sapwood.actors import start_in_thread as start_loop_in_thread
from sapwood.agents import DrainReport, Services, Sessions, StoredResults
from sapwood.errors import (
    ActorDown,
    ChildFailed,
    InvalidChildSpec,
    RegistryUnavailable,
    RuntimeClosed,
    RuntimeFailed,
    StartError,
    StoreUnavailable,
)
from sapwood.files import FileBackend, FileService, Scope, SQLiteBackend
from sapwood.messaging import Bus, BusOptions, bus_child
from sapwood.messaging.bus import StoredDeadLetters
from sapwood.persistence import Journal, SnapshotPolicy, Store, open_store
from sapwood.registry import Key, LocalBackend, Registry, Running, Unavailable, check_key
from sapwood.supervision import (
    ChildSpec,
    DynamicSupervisor,
    Restart,
    TreeNode,
    child,
    start_child,
    supervision_tree,
    supervisor,
)


class Runtime:
    """A running tree. Made by `open_runtime` only; its methods must be called in the thread that opened it."""

    def __init__(self, system: ActorSystem, options: RuntimeOptions) -> None:
        self._system = system
        self._options = options
        if options.log:
            log_events(system.telemetry)
        self._homes: dict[str, Ref] = {}
        self._store: Store | None = None
        self._root: Ref | None = None
        self._state: Literal["starting", "open", "draining", "stopping", "stopped"] = "starting"
        self._backend = LocalBackend(options.partitions)
        self.bus = Bus(self._with_store(options.bus))
        """Carries envelopes between named participants."""
        self.registry = Registry(system, self._backend, home=partial(self._home, "agents"))
        self.files = FileService(self.registry, partial(self._home, "filesystems"), self._default_backend)
        owner = system.environment.new_id("owner_")
        results = StoredResults(lambda: self.store)
        services = Services(lambda: self.journal, self.files, owner, SnapshotPolicy(), results)
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
    def portal(self) -> Portal:
        """The way in from other threads, from asyncio and from signal handlers."""
        return self._system.portal

    @property
    def store(self) -> Store:
        """The store.

        Raises:
            StoreUnavailable: while it is being restarted, and after the end.
        """
        if self._store is None:
            closed = self._state == "stopped"
            problem = "the runtime has stopped" if closed else "is being opened; try again in a moment"
            raise StoreUnavailable(str(self._options.store), problem)
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

        For a readiness probe, never for a liveness probe (S4-049). The user's own children are not asked.
        """
        return (
            self._state == "open"
            and self.root.alive
            and self._store is not None
            and all(home.alive for home in self._homes.values())
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
            ChildFailed: if it fails to start; nothing of it is left.
            StartError: if its `on_start` returned `Ignore()`.
            AlreadyStarted: if its key is taken.
            RegistryUnavailable: if it has a key and the registry cannot tell, or if the place where it belongs is
                being restarted; try again in a moment.
            RuntimeClosed: if the runtime is stopping.
            InvalidKey, InvalidChildSpec: if an argument cannot work.
        """
        if isinstance(start, ChildSpec):
            expected = "an Actor class or a function; start a spec with runtime.get_or_start(key, spec)"
            raise InvalidChildSpec("start", expected, start.id)
        spec = child(start, *args, key=key, restart=restart)
        if key is not None:
            check_key(key)
        home = self._home("agents")
        if self._state != "open":
            raise self._closed(spec.id)
        if home is None or not home.alive:
            raise RegistryUnavailable(f"spawn {spec.id}", "recovering")
        try:
            ref = await start_child(home, spec)
        except ActorDown as down:
            if self._state != "open":
                raise self._closed(spec.id) from down
            raise RegistryUnavailable(f"spawn {spec.id}", "recovering") from down
        if ref is None:
            raise StartError(f"spawn {spec.id}: its on_start returned Ignore(), so there is nothing to refer to")
        return ref

    def _closed(self, what: str) -> RuntimeClosed:
        return RuntimeClosed(f"spawn {what}: the runtime is {self._state}; nothing was started")

    async def get_or_start(self, key: Key, spec: ChildSpec) -> Running[Ref] | Unavailable:
        """Return the actor that holds a key, or start it next to the agents; see `Registry.get_or_start`.

        While the runtime is draining nothing is started: `Unavailable("draining")` if nothing runs.
        """
        if self._state == "draining" and not isinstance(self.registry.lookup_nowait(key), Running):
            await trio.lowlevel.checkpoint()
            return Unavailable("draining")
        return await self.registry.get_or_start(key, spec)

    def _with_store(self, options: BusOptions) -> BusOptions:
        """Give the bus the runtime's store: for durable messages, and for dead letters if it outlives the process."""
        letters, queues = options.store, options.queues
        if letters is None and str(self._options.store) != ":memory:":
            letters = StoredDeadLetters(lambda: self.store, options.name)
        return attrs.evolve(options, store=letters, queues=queues or (lambda: self.store))

    async def drain(self, deadline: float = 30.0) -> DrainReport:
        """Bring all agents to rest before the process ends, so that a deploy loses nothing; call it, then leave.

        From the first moment `ready()` is False and nothing new is started: `ensure_running` raises
        `RegistryUnavailable("draining")` for a conversation that does not run, lookups of it answer
        `Unavailable("draining")`, so does `get_or_start` for a key that nobody holds, and `spawn` raises
        `RuntimeClosed`. What runs can be found and used as before. Each run is left at its next boundary, with
        everything journaled; then its server stops and gives the conversation free to whoever claims it next, where
        the run goes on by itself.

        Args:
            deadline: Seconds for the runs to come to a boundary. Those that have not by then are stopped wherever they
                are; of these the model call in flight is lost, and tools are treated as after a crash.

        Raises:
            RegistryUnavailable: if it cannot be told which agents run; leave the block then, which stops them all.
        """
        if self._state == "open":
            self._state = "draining"
        return await self.sessions.drain(deadline)

    def _default_backend(self, scope: Scope) -> FileBackend:
        return SQLiteBackend(self.store, scope, self.environment)

    # --- for the tree -----------------------------------------------------------------------------

    def _home(self, name: str) -> Ref | None:
        return self._homes.get(name)

    def settle(self, name: str, ref: Ref) -> None:
        """Note the present incarnation of one of the dynamic supervisors."""
        self._homes[name] = ref

    async def serve_store(self, task_status: Any = trio.TASK_STATUS_IGNORED) -> None:
        """Keep the store open for as long as its place in the tree lives."""
        options = self._options
        async with open_store(options.store, self.environment, synchronous=options.synchronous) as store:
            self._store = store
            try:
                task_status.started()
                await trio.sleep_forever()
            finally:
                self._store = None

    def begin_stop(self) -> None:
        """Refuse new work from now on."""
        self._state = "stopping"
        self.registry.drain()

    def end_stop(self) -> None:
        """Note that nothing runs any more."""
        self._state = "stopped"

    async def start_root(self) -> Ref:
        """Start the root supervisor, without children."""
        root = Cell(self._system, Birth(self._options.supervise, ((),), title="runtime"), None)
        await start(root, self._system.nursery)
        self._root = root.ref
        return root.ref

    async def start_children(self) -> None:
        """Start everything below the root, in order; ends early, without an error, if the stop begins meanwhile.

        Raises:
            PersistenceError, InvalidOption: if the store cannot be opened.
            ChildFailed, StartTimeout, AlreadyStarted, RegistryUnavailable: if another child cannot be started.
            RuntimeFailed: if the root supervisor gave up meanwhile.
        """
        for spec in self.specs():
            if self._state != "starting":
                return
            try:
                await start_child(self.root, spec)
            except ChildFailed as failed:
                if spec.id == STORE and isinstance(failed.reason, Crashed):
                    raise failed.reason.exception from failed
                raise
            except ActorDown as down:
                raise RuntimeFailed(down.reason or Killed()) from down
        if self._state == "starting":
            self._state = "open"

    def abort_starts(self) -> None:
        """Kill the workers that are still starting, so that their supervisors undo what they have begun."""
        for cell in tuple(self._system.actors):
            if cell.nursery is None and cell.ref.statistics().phase == "starting":
                cell.kill()

    def specs(self) -> list[ChildSpec]:
        """Return the specs of the root's children, in start order (S4-050)."""
        options = self._options
        restarts, period = options.restarts, options.period
        core = [
            *self._backend.children(restarts=restarts, period=period),
            child(partial(Home, self, "agents", restarts=restarts, period=period), id="agents"),
            child(partial(Home, self, "filesystems", restarts=restarts, period=period), id="filesystems"),
        ]
        return [
            child(self.serve_store, id=STORE, shutdown=10.0),
            attrs.evolve(bus_child(self.bus, restarts=restarts, period=period), id=BUS),
            supervisor(core, strategy="rest_for_one", id="core", restarts=restarts, period=period),
            *options.children,
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
    log: bool = True,
    gc_policy: CollectorPolicy = "python",
    propagate: Sequence[ContextVar[Any]] = (),
    bus: BusOptions | None = None,
    signals: bool | None = None,
) -> AsyncGenerator[Runtime]:
    """Start a runtime in the present trio run, and stop it in order when the block is left, however that happens.

    Children stop in reverse start order, each within its own shutdown time; when `shutdown_timeout` is spent, what
    is left is cancelled all at once. SIGINT and SIGTERM cancel the block and so start the same orderly stop, after
    which `SystemExit(128 + signal)` is raised; a second signal cancels at once, a third one ends the process (BR-73,
    BR-74). What not even cancellation ends 5 s later is named in the log and in telemetry (`ChildStuck`); if a signal
    had asked for the end, the process ends then.

    An exception of the block comes out as it was. If the block is cancelled while the tree is still starting, what
    has started is stopped in order.

    Args:
        store: Path of the SQLite file; `":memory:"`, the default, keeps nothing.
        children: The user's own children, started last, in this order, and stopped first.
        environment: Time, randomness, ids, threads; None for the real world.
        synchronous: `FULL` makes every journaled event survive a power loss; `NORMAL` only a crash of the process.
        partitions: Number of registry partitions.
        restarts: Most restarts within `period` that each supervisor of the runtime allows.
        period: Length of that window, in seconds.
        shutdown_timeout: Seconds for the whole orderly stop.
        log: Whether crashes and what supervisors report are logged under `sapwood`, see `log_events`.
        gc_policy: `python`, the default, leaves Python's garbage collector as it is. `freeze` keeps it from holding up
            the loop where many actors live: what survives a full collection is frozen (`gc.freeze`), so that the
            next one looks only at what has come since. That holds for the whole process, until the last such
            runtime closes. What is frozen and becomes garbage later is freed at once as ever, unless it refers to
            itself; then it is freed when more frozen actors have ended than live (and at least 10,000), by one
            collection as long as Python's own; or after `gc.unfreeze(); gc.collect()`; or when the runtime closes.
        propagate: Context variables whose values travel with every message to the handlers that it causes, such as a
            trace context or the deadline of a call (BR-70); see `open_system`.
        bus: How `runtime.bus` behaves; None for the defaults. It keeps its dead letters in a store that is a file.
        signals: Whether to handle SIGINT and SIGTERM; None for yes in the main thread.

    Raises:
        ChildFailed, StartTimeout: if one of the children cannot be started; nothing of the tree is left.
        StoreUnavailable, StoreCorrupt, FutureVersion: if the store cannot be opened; likewise.
        RuntimeFailed: if the root supervisor gives up; the block is cancelled and everything has been stopped.
        SystemExit: after a signal.
        InvalidOption, InvalidChildSpec: if an option cannot work.
    """
    options = RuntimeOptions(
        store,
        tuple(children),
        synchronous,
        partitions,
        restarts,
        period,
        shutdown_timeout,
        log,
        gc_policy,
        tuple(propagate),
        BusOptions() if bus is None else bus,
    )
    take_signals = handles_signals(wanted=signals)
    block = trio.CancelScope()
    collecting = Collecting(gc_policy)

    def make(system: ActorSystem) -> Runtime:
        collecting.watch(system.telemetry)
        return Runtime(system, options)

    tree = Tree(environment or RealEnvironment(), make, shutdown_timeout, block, options.propagate)
    failure: BaseException | None = None
    unwrap = bare
    try:
        with collecting, tree.signals.receiving() if take_signals else nullcontext():
            async with trio.open_nursery() as nursery:
                for task in tree.tasks():
                    nursery.start_soon(task)
                try:
                    with block:
                        yield await tree.wait_started()
                except trio.Cancelled:
                    raise
                except BaseException as error:
                    # What comes from the block is raised below as it was, for the nursery would wrap it; only
                    # cancellation has to pass through.
                    if includes_cancelled(error):
                        unwrap = only_member
                        raise
                    failure = error
                finally:
                    tree.stop()
    except BaseExceptionGroup as group:
        if failure is None or not only_cancelled(group):
            failure = unwrap(group)
    tree.raise_outcome(failure)


def start_in_thread(*, name: str = "sapwood", **options: Unpack[OpenOptions]) -> LoopThread[Runtime]:
    """Open a runtime in a thread of its own, for programs without an event loop.

    ```
    with sapwood.start_in_thread(store="accounts.db") as loop:
        account = loop.portal.call(loop.value.spawn, Account)
        loop.portal.tell(account, Deposit(5))
        print(loop.portal.ask(account, Balance()))
    ```

    The block gets the thread. Its `portal` is the way in; its `value` is the runtime, whose methods belong to the
    loop's thread. Leaving the block stops the tree in order and waits for it. Signals are left to the main thread,
    where Ctrl-C raises KeyboardInterrupt and so leaves the block.

    Args:
        name: Name of the thread.
        **options: Those of `open_runtime`.

    Raises:
        BaseException: what `open_runtime` raises; the thread has ended then. What ends the runtime later is raised
            when the block is left.
    """
    return start_loop_in_thread(partial(open_runtime, **options), name=name)

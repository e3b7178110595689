"""The monitor: an actor that looks at figures again and again, and tells of what has gone wrong."""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Protocol, final

import trio

from sapwood.actors import Actor, ExitReason, Ref, Restarted, Telemetry, TelemetryEvent, get_logger, handle, message
from sapwood.errors import InvalidOption, PersistenceError
from sapwood.messaging.bus import Bus
from sapwood.messaging.monitoring._alerts import Alert, AlertChange, Alerts
from sapwood.messaging.monitoring._metrics import Reading
from sapwood.messaging.monitoring._notifiers import LOGGER, Notifier, log_alert, tell_all
from sapwood.messaging.monitoring._published import MONITORING_SCHEMA, Row, remove_row
from sapwood.messaging.monitoring._rules import BUILT_IN_RULES, Rule, check_rules
from sapwood.messaging.monitoring._snapshot import Snapshot, Unreadable
from sapwood.messaging.monitoring._sources import BusSource, QueueSource, read_actors
from sapwood.messaging.queues import Queue
from sapwood.persistence import StoreEngine
from sapwood.supervision import ChildSpec, child

WITHDRAW_SECONDS = 1.0
"""Seconds that a monitor may take at its end to remove its row from the store."""


class Watchable(Protocol):
    """What a monitor needs of a runtime."""

    @property
    def bus(self) -> Bus:
        """Its bus."""
        ...

    @property
    def store(self) -> StoreEngine:
        """Its store; raises `StoreUnavailable` while there is none."""
        ...


@final
class Monitor:
    """Watches the actors around it, buses and queues; tells notifiers of alerts, and others of its figures (S2-048).

    ```python
    monitor = Monitor()
    async with open_runtime(store="support.db", children=[monitor.spec()]) as runtime:
        monitor.watch(runtime)
    ```

    It looks at once, whenever something more is watched, and every `interval` seconds; `snapshot` is what the last
    look found. Alerts and what is
    still to be told outlive a restart of its actor, so a notifier is told of each change at least once, and twice only
    if the actor died while it told it. Notifiers are called one after the other; one that fails, or takes longer than
    10 s, is logged and counted, and keeps nothing from the others.

    What cannot be read (a closed queue, a store that is being restarted) is named as unreadable; its alerts stay as
    they were, since nobody knows better.

    Args:
        rules: Rules to look after; by default `BUILT_IN_RULES`.
        notifiers: Who is told; by default the log, see `log_alert`.
        interval: Seconds between two looks. A look counts the live messages of each queue.
        error_window: Seconds over which error rates are taken.

    Raises:
        InvalidOption, DuplicateName: if an option cannot work.
    """

    def __init__(
        self,
        rules: Sequence[Rule] = BUILT_IN_RULES,
        *,
        notifiers: Sequence[Notifier] = (log_alert,),
        interval: float = 5.0,
        error_window: float = 900.0,
    ) -> None:
        for name, seconds in (("interval", interval), ("error_window", error_window)):
            if not isinstance(seconds, int | float) or not seconds > 0:
                raise InvalidOption(f"Monitor {name}: expected seconds > 0; got {seconds!r}")
        for notifier in notifiers:
            if not callable(notifier):
                raise InvalidOption(f"Monitor: expected notifiers to be functions of one AlertChange; got {notifier!r}")
        self.rules = check_rules(rules)
        self.interval = interval
        self._notifiers = tuple(notifiers)
        self._error_window = error_window
        self._alerts = Alerts(self.rules)
        self._sources: dict[tuple[str, str], BusSource | QueueSource] = {}
        self._snapshot: Snapshot | None = None
        self._untold: deque[AlertChange] = deque()
        self._failures = 0
        self._restarts = 0
        self._heard: Telemetry | None = None
        self._runtime: Watchable | None = None
        self._name = ""
        self._looker: Ref | None = None

    # --- what is watched --------------------------------------------------------------------------

    def spec(self, *, id: str = "monitor") -> ChildSpec:
        """Return the child to start in a runtime's or supervisor's tree."""
        return child(partial(_Looker, self), id=id)

    def watch(self, runtime: Watchable) -> None:
        """Watch the bus of a runtime, and publish snapshots in its store, for `sapwood top FILE`."""
        self._runtime = runtime
        self.watch_bus(runtime.bus)

    def watch_bus(self, bus: Bus) -> None:
        """Watch a bus, in place of another one of its name."""
        self._sources["bus", bus.name] = BusSource(bus, self._error_window)
        self._look_soon()

    def watch_queue(self, queue: Queue) -> None:
        """Watch a queue, in place of another one of its name, such as a former opening."""
        self._sources["queue", queue.name] = QueueSource(queue, self._error_window)
        self._look_soon()

    def unwatch(self, watched: Bus | Queue) -> bool:
        """Watch a bus or queue no more; say whether it was watched. Its alerts clear."""
        for key, source in self._sources.items():
            if source.watched is watched:
                del self._sources[key]
                self._look_soon()
                return True
        return False

    def _look_soon(self) -> None:
        if self._looker is not None and self._looker.alive:
            self._looker.tell(_Look())

    # --- what was found ---------------------------------------------------------------------------

    @property
    def snapshot(self) -> Snapshot | None:
        """What the last look found; None before the first one has ended."""
        return self._snapshot

    def alerts(self) -> tuple[Alert, ...]:
        """Return pending and firing alerts, firing ones first."""
        return self._alerts.all()

    # --- for its actor ----------------------------------------------------------------------------

    def _hear(self, event: TelemetryEvent) -> None:
        if isinstance(event, Restarted):
            self._restarts += 1

    def _listen(self, telemetry: Telemetry) -> None:
        """Count restarts."""
        # A former actor that was killed has left it listening.
        self._listen_no_more()
        self._heard = telemetry
        telemetry.subscribe(self._hear, Restarted)

    def _listen_no_more(self) -> None:
        if self._heard is not None:
            self._heard.unsubscribe(self._hear)
            self._heard = None


@message("monitoring.look")
class _Look:
    """Time to look."""


class _Looker(Actor):
    def __init__(self, owner: Monitor) -> None:
        self.owner = owner
        self.prepared = False

    async def on_start(self) -> None:
        await trio.lowlevel.checkpoint()
        owner, environment = self.owner, self._cell.system.environment
        owner._listen(self._cell.system.telemetry)
        owner._name = owner._name or environment.new_id("monitor_")
        owner._looker = self.ref
        owner._look_soon()
        self.send_every(owner.interval, _Look())

    @handle
    async def look(self, message: _Look) -> None:
        owner, environment = self.owner, self._cell.system.environment
        readings, busiest = await read_actors(self._cell.system, self._cell.system.telemetry, owner._restarts)
        unreadable: list[Unreadable] = []
        for source in tuple(owner._sources.values()):
            found = await source.read(environment)
            if isinstance(found, Unreadable):
                unreadable.append(found)
            else:
                readings += found
            failed = float(isinstance(found, Unreadable))
            readings.append(Reading("unreadable", source.kind, source.name, failed))
        unknown = {(one.kind, one.name) for one in unreadable}
        wall = environment.wall()
        owner._untold += owner._alerts.look(readings, unknown, environment.monotonic(), wall)
        owner._snapshot = Snapshot(wall, tuple(readings), tuple(unreadable), owner.alerts(), busiest, owner._failures)
        await self._publish(owner._snapshot)
        while owner._untold:
            owner._failures += await tell_all(owner._notifiers, owner._untold[0])
            owner._untold.popleft()

    async def on_stop(self, reason: ExitReason) -> None:
        owner = self.owner
        owner._listen_no_more()
        if self.prepared and owner._runtime is not None:
            with trio.move_on_after(WITHDRAW_SECONDS, shield=True):
                try:
                    await owner._runtime.store.write(partial(remove_row, monitor=owner._name))
                except (PersistenceError, sqlite3.Error):
                    # The row stays, and its age tells; the next monitor on this file removes it.
                    return

    async def _publish(self, snapshot: Snapshot) -> None:
        owner = self.owner
        if owner._runtime is None:
            return
        row = Row(owner._name, owner.interval, snapshot)
        try:
            store = owner._runtime.store
            if not self.prepared:
                await store.migrate(MONITORING_SCHEMA)
                self.prepared = True
            await store.write(row.save)
        except PersistenceError as error:
            # Readers see by its age that the snapshot is old; alerts do not depend on it.
            self.prepared = False
            get_logger(LOGGER).warning("a snapshot was not published", error=str(error))

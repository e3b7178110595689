"""The runner of sagas: an actor that begins them, and goes on with those that a crash interrupted."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

import attrs
import trio

from sapwood.actors import Actor, ExitReason, Failure, Normal, Reply, Request, TaskDone, TaskRef, handle, message
from sapwood.errors import DuplicateName, PatternError, PersistenceError, SagaConflict, SagaUnknown
from sapwood.messaging.patterns._saga_events import SagaInput
from sapwood.messaging.patterns._saga_run import SagaRun
from sapwood.messaging.patterns._saga_steps import ENDED, Saga, SagaPhase, SagaReport
from sapwood.messaging.patterns._schema import PATTERNS_SCHEMA
from sapwood.messaging.queues import DeadLetters, Message
from sapwood.persistence import StoreEngine, decode, encode

logger = logging.getLogger("sapwood.patterns")

SagaListener: TypeAlias = Callable[[SagaReport], None]
"""Is told of a saga that is stuck, at least once, in the runner's task: quick, never blocking."""

Key: TypeAlias = tuple[str, str]


@message("patterns.saga.begin")
class Begin(Request[None]):
    """Asks the runner to begin a saga; it is durable when the answer comes. Repeating it changes nothing.

    Attributes:
        saga: Name of the definition.
        id: Id of the saga, unique within it.
        input: What its steps get; anything that the codec of the store takes.
    """

    saga: str
    id: str
    input: Any = None


@message("patterns.saga.outcome")
class Outcome(Request[SagaReport]):
    """Asks for the report of a saga once it has ended; ask with the time-out that you have the patience for."""

    saga: str
    id: str


@message("patterns.saga.look")
class Look(Request[SagaReport]):
    """Asks how a saga stands now."""

    saga: str
    id: str


@message("patterns.saga.list")
class Sagas(Request[dict[str, SagaPhase]]):
    """Asks for the sagas of one definition: id and phase, where `running` stands for `compensating` as well.

    Attributes:
        saga: Name of the definition.
        phase: The phase that they are in; None for those that are neither completed nor compensated.
    """

    saga: str
    phase: SagaPhase | None = None


@message("patterns.saga.retry")
class Retry(Request[None]):
    """Asks for the compensations of a stuck saga to be tried again; one that is not stuck stays as it is."""

    saga: str
    id: str


@message("patterns.saga.go_on")
class GoOn:
    """Tells the runner to go on with a saga."""

    key: Key


@attrs.frozen
class SagaOptions:
    """How a runner behaves.

    Attributes:
        on_stuck: Is told of a saga whose compensation failed for good. Without one it is only logged, as an error.
        dead_letters: Dead letters of the queue that gets such a report as well; None for none.
        again_after: Seconds after which a saga is taken up again that the store did not let go on.
    """

    on_stuck: SagaListener | None = None
    dead_letters: DeadLetters | None = None
    again_after: float = 5.0


class SagaRunner(Actor):
    """Runs the sagas of some definitions, each in a task of its own, and goes on with them after a crash.

    Before an action or a compensation runs, that it will is durable; so after a crash at any point the saga goes on
    where it was: forward, or back in reverse order. Several runners must not share a definition; should they,
    the writes of one are refused, and it takes the saga up again later.

    A saga that is stuck is never silent: it is logged, told to `on_stuck`, put into `dead_letters`, and stays in the
    list of `Sagas` until `Retry` succeeds.

    Args:
        store: An open store.
        sagas: The definitions.
        options: How it behaves; None for the defaults.

    Raises:
        DuplicateName: if two definitions have one name.
    """

    def __init__(self, store: StoreEngine, sagas: Sequence[Saga], options: SagaOptions | None = None) -> None:
        self._store = store
        self._sagas: dict[str, Saga] = {}
        for saga in sagas:
            if saga.name in self._sagas:
                raise DuplicateName("saga", saga.name, self._sagas[saga.name])
            self._sagas[saga.name] = saga
        self._options = options or SagaOptions()
        self._tasks: dict[TaskRef, Key] = {}
        self._running: set[Key] = set()
        self._waiting: dict[Key, list[Reply[SagaReport]]] = {}
        self._draining = trio.Event()
        self._idle = trio.Event()

    def format_state(self) -> str:
        return f"sagas={list(self._sagas)}, running={len(self._running)}"

    async def on_start(self) -> None:
        await self._store.migrate(PATTERNS_SCHEMA)
        for key in await self._store.read(self._open_ones):
            self._go_on(key)

    async def on_stop(self, reason: ExitReason) -> None:
        """Begin nothing new, and let the actions that run end, within the shutdown time of the supervisor."""
        self._draining.set()
        while self._running:
            self._idle = trio.Event()
            await self._idle.wait()

    # --- requests ---------------------------------------------------------------------------------

    @handle
    async def begin(self, message: Begin) -> Failure | None:
        key = message.saga, message.id
        try:
            self._definition(message.saga)
            body = encode(SagaInput(message.input))
            stored = await self._store.write(partial(_begin, key=key, at=self.environment.wall(), body=body))
        except (PatternError, PersistenceError) as error:
            return Failure(error)
        if stored != body:
            return Failure(SagaConflict(*key))
        self._go_on(key)
        return None

    @handle
    async def outcome(self, message: Outcome) -> SagaReport | Failure:
        report = await self._looked_at(message.saga, message.id)
        if isinstance(report, SagaReport) and report.phase not in ENDED:
            # Its end comes as a message, which waits until this handler has returned.
            self._waiting.setdefault((message.saga, message.id), []).append(self.reply_later())
        return report

    @handle
    async def look(self, message: Look) -> SagaReport | Failure:
        return await self._looked_at(message.saga, message.id)

    @handle
    async def list_sagas(self, message: Sagas) -> dict[str, SagaPhase] | Failure:
        wanted = {"running", "stuck"} if message.phase is None else {message.phase}
        try:
            self._definition(message.saga)
            rows = await self._store.read(partial(_list, saga=message.saga))
        except (PatternError, PersistenceError) as error:
            return Failure(error)
        return {id: phase for id, phase in rows if phase in wanted}

    @handle
    async def retry(self, message: Retry) -> Failure | None:
        key = message.saga, message.id
        try:
            run = await self._opened(key)
            if run.phase == "stuck" and key not in self._running:
                # In this order a crash in between makes it known once more that it is stuck.
                await self._store.write(partial(_set_phase, key=key, phase="running", told=False))
                await run.retry()
        except (PatternError, PersistenceError) as error:
            return Failure(error)
        self._go_on(key)
        return None

    @handle
    def go_on(self, message: GoOn) -> None:
        self._go_on(message.key)

    @handle
    def task_ended(self, message: TaskDone) -> None:
        key = self._tasks.pop(message.task)
        match message.reason:
            case Normal():
                report: SagaReport = message.value
                if report.phase in ENDED:
                    for reply in self._waiting.pop(key, ()):
                        reply(report)
            case reason:
                # Nothing is lost: what was to happen next stands in its log.
                logger.error("saga %s %s is interrupted, and goes on later: %s", *key, reason)
                self.send_after(self._options.again_after, GoOn(key))

    # --- inside -----------------------------------------------------------------------------------

    def _definition(self, name: str) -> Saga:
        saga = self._sagas.get(name)
        if saga is None:
            raise SagaUnknown(name, "", list(self._sagas))
        return saga

    def _go_on(self, key: Key) -> None:
        if key not in self._running:
            self._running.add(key)
            self._tasks[self.start_task(self._work, key, name=f"{key[0]} {key[1]}")] = key

    async def _work(self, key: Key) -> SagaReport:
        try:
            run = await self._opened(key)
            await run.go_on()
            report = run.report()
            if report.phase in ENDED:
                await self._close(key, report)
            return report
        finally:
            self._running.discard(key)
            if not self._running:
                self._idle.set()

    async def _opened(self, key: Key) -> SagaRun:
        saga = self._definition(key[0])
        body = await self._store.read(partial(_input_of, key=key))
        if body is None:
            raise SagaUnknown(*key)
        given: SagaInput = decode(body)
        run = SagaRun(self._store, self.environment, saga, key[1], given=given.value, draining=self._draining)
        await run.load()
        return run

    async def _looked_at(self, saga: str, id: str) -> SagaReport | Failure:
        try:
            return (await self._opened((saga, id))).report()
        except (PatternError, PersistenceError) as error:
            return Failure(error)

    async def _close(self, key: Key, report: SagaReport) -> None:
        told = False
        if report.phase == "stuck":
            await self._store.write(partial(_set_phase, key=key, phase="stuck", told=False))
            told = await self._tell(report)
        await self._store.write(partial(_set_phase, key=key, phase=report.phase, told=told))

    async def _tell(self, report: SagaReport) -> bool:
        """Tell of a saga that is stuck; say whether all heard it. If not, the next start tells again."""
        left = (*report.done, *report.pending)
        logger.error("saga %s %s is stuck, with %s not undone: %s", report.saga, report.id, left, report.error)
        if self._options.dead_letters is not None:
            letter = Message(report, sender=f"saga:{report.saga}")
            await self._options.dead_letters.add(letter, "rejected", report.error or "")
        if self._options.on_stuck is not None:
            try:
                self._options.on_stuck(report)
            except (MemoryError, trio.TrioInternalError):
                raise
            except Exception:
                logger.exception("the listener of stuck sagas failed")
                return False
        return True

    def _open_ones(self, connection: sqlite3.Connection) -> list[Key]:
        rows = connection.execute(
            "SELECT saga, id FROM pattern_sagas WHERE phase NOT IN ('completed', 'compensated')"
            " AND NOT (phase = 'stuck' AND told) ORDER BY begun_at"
        )
        return [(saga, id) for saga, id in rows if saga in self._sagas]


def _begin(connection: sqlite3.Connection, key: Key, at: float, body: bytes) -> bytes:
    """Make the row of a saga if there is none; return the input that is stored."""
    connection.execute(
        "INSERT OR IGNORE INTO pattern_sagas (saga, id, begun_at, phase, input) VALUES (?, ?, ?, 'running', ?)",
        (*key, at, body),
    )
    stored = _input_of(connection, key)
    assert stored is not None
    return stored


def _input_of(connection: sqlite3.Connection, key: Key) -> bytes | None:
    row = connection.execute("SELECT input FROM pattern_sagas WHERE saga = ? AND id = ?", key).fetchone()
    return None if row is None else bytes(row[0])


def _list(connection: sqlite3.Connection, saga: str) -> list[tuple[str, SagaPhase]]:
    return connection.execute(
        "SELECT id, phase FROM pattern_sagas WHERE saga = ? ORDER BY begun_at, id", (saga,)
    ).fetchall()


def _set_phase(connection: sqlite3.Connection, key: Key, *, phase: SagaPhase, told: bool) -> None:
    connection.execute("UPDATE pattern_sagas SET phase = ?, told = ? WHERE saga = ? AND id = ?", (phase, told, *key))

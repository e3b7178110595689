from __future__ import annotations

import resource
import sqlite3
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, TypeVarTuple

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from sapwood.actors import Environment, RealEnvironment, SimulatedEnvironment
from sapwood.errors import InvalidOption, StoreUnavailable
from sapwood.persistence import MigrationSet, Store, StoreEngine, open_store

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

NOTES = MigrationSet("notes")


@NOTES.step
def create_notes(db: Any) -> None:
    db.conn.execute("CREATE TABLE notes (text TEXT NOT NULL)")
    db.conn.execute("CREATE TABLE parents (id INTEGER PRIMARY KEY)")
    db.conn.execute("CREATE TABLE children (parent INTEGER REFERENCES parents DEFERRABLE INITIALLY DEFERRED)")


def adding(*texts: str) -> Callable[[sqlite3.Connection], int]:
    def operation(connection: sqlite3.Connection) -> int:
        return connection.executemany("INSERT INTO notes VALUES (?)", [(text,) for text in texts]).rowcount

    return operation


def all_notes(connection: sqlite3.Connection) -> list[str]:
    return [text for (text,) in connection.execute("SELECT text FROM notes ORDER BY rowid")]


def page_after(after: int, connection: sqlite3.Connection) -> list[int]:
    found = connection.execute("SELECT rowid FROM notes WHERE rowid > ? ORDER BY rowid LIMIT 50", (after,))
    return [rowid for (rowid,) in found]


def outsider_can_write(path: Path) -> bool:
    """Whether an independent connection with no patience can write at once."""
    connection = sqlite3.connect(path, timeout=0, isolation_level=None)
    try:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")
    except sqlite3.OperationalError:
        return False
    finally:
        connection.close()
    return True


@asynccontextmanager
async def writer_held(store: Store) -> AsyncGenerator[None]:
    """Hold the writer inside an operation, so that what is written meanwhile shares the next group."""
    release = threading.Event()

    def hold(connection: sqlite3.Connection) -> None:
        assert release.wait(10)

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.write, hold)
            await wait_all_tasks_blocked()
            try:
                yield
            finally:
                release.set()


async def outcome_of(call: Callable[[], Any], outcomes: list[Any]) -> None:
    try:
        outcomes.append(await call())
    except Exception as error:
        outcomes.append(error)


async def written_as_one_group(store: Store, *operations: Callable[[sqlite3.Connection], Any]) -> list[Any]:
    """Write operations in one group and return each one's result or exception."""
    outcomes: list[list[Any]] = [[] for _ in operations]
    commits = store.statistics().commits
    async with trio.open_nursery() as nursery, writer_held(store):
        for operation, outcome in zip(operations, outcomes, strict=True):
            nursery.start_soon(outcome_of, lambda operation=operation: store.write(operation), outcome)
            await wait_all_tasks_blocked()
    assert store.statistics().commits <= commits + 2
    return [outcome for (outcome,) in outcomes]


@pytest.fixture(params=["file", "memory"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> str | Path:
    return tmp_path / "store.db" if request.param == "file" else ":memory:"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
async def store(location: str | Path) -> AsyncGenerator[Store]:
    async with open_store(location, RealEnvironment(), migrations=[NOTES]) as store:
        yield store


# --- groups -----------------------------------------------------------------------------------------------


async def test_what_was_written_is_read_and_the_result_of_an_operation_is_returned(store: Store) -> None:
    engine: StoreEngine = store

    assert await engine.write(adding("a", "b")) == 2
    assert await engine.read(all_notes) == ["a", "b"]


@pytest.mark.row("UP-65")
async def test_many_waiting_writers_share_few_commits(store: Store) -> None:
    statements: list[str] = []
    await store.write(lambda connection: connection.set_trace_callback(statements.append))
    before = store.statistics()

    async def write_ten(name: str) -> None:
        for number in range(10):
            await store.write(adding(f"{name}-{number}"))

    async with trio.open_nursery() as nursery:
        for number in range(100):
            nursery.start_soon(write_ten, str(number))

    after = store.statistics()
    commits = statements.count("COMMIT")
    assert after.writes - before.writes == 1000
    assert after.commits - before.commits == commits - 1  # the trace began inside the first group
    assert commits <= 40
    assert after.largest_batch >= 50
    assert after.pending == 0
    assert len(await store.read(all_notes)) == 1000


@pytest.mark.row("UP-1")
async def test_writes_are_carried_out_in_the_order_of_the_calls(store: Store) -> None:
    outcomes = await written_as_one_group(store, *[adding(str(number)) for number in range(10)])

    assert outcomes == [1] * 10
    assert await store.read(all_notes) == [str(number) for number in range(10)]


@pytest.mark.row("BR-32")
async def test_a_failing_operation_is_undone_alone_and_only_its_caller_is_told(store: Store) -> None:
    def failing(connection: sqlite3.Connection) -> None:
        adding("half")(connection)
        raise ZeroDivisionError

    def wrong(connection: sqlite3.Connection) -> None:
        adding("half")(connection)
        connection.execute("INSERT INTO nowhere VALUES (1)")

    first, second, third, fourth = await written_as_one_group(store, adding("a"), failing, wrong, adding("b"))

    assert (first, fourth) == (1, 1)
    assert isinstance(second, ZeroDivisionError)
    assert isinstance(third, sqlite3.OperationalError)
    assert await store.read(all_notes) == ["a", "b"]
    assert store.statistics().failed_writes == 2


@pytest.mark.row("BR-32")
@pytest.mark.parametrize("statements", [0, 1, 2])
async def test_an_operation_that_fails_at_any_statement_leaves_no_transaction(path: Path, statements: int) -> None:
    def failing(connection: sqlite3.Connection) -> None:
        for number in range(statements):
            adding(str(number))(connection)
        raise ValueError("after some statements")

    async with open_store(path, RealEnvironment(), migrations=[NOTES]) as store:
        with pytest.raises(ValueError, match="after some statements"):
            await store.write(failing)

        assert outsider_can_write(path)
        await store.write(adding("next"))
        assert await store.read(all_notes) == ["next"]


async def test_a_commit_that_fails_is_told_to_everybody_in_the_group_and_nothing_of_it_is_stored(store: Store) -> None:
    def orphan(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO children VALUES (42)")

    outcomes = await written_as_one_group(store, adding("a"), orphan, adding("b"))

    assert [type(outcome) for outcome in outcomes] == [StoreUnavailable] * 3
    assert len({id(outcome) for outcome in outcomes}) == 3
    assert "FOREIGN KEY" in str(outcomes[0])
    assert await store.read(all_notes) == []
    await store.write(adding("c"))
    assert await store.read(all_notes) == ["c"]


async def test_an_operation_that_ends_the_transaction_itself_fails_the_group(store: Store) -> None:
    def meddling(connection: sqlite3.Connection) -> None:
        connection.rollback()

    outcomes = await written_as_one_group(store, adding("a"), meddling, adding("b"))

    assert [type(outcome) for outcome in outcomes] == [StoreUnavailable] * 3
    assert await store.read(all_notes) == []
    await store.write(adding("c"))


@pytest.mark.row("BR-35")
async def test_an_operation_may_not_return_something_unfinished(store: Store) -> None:
    async def coroutine(connection: sqlite3.Connection) -> None: ...

    def cursor(connection: sqlite3.Connection) -> sqlite3.Cursor:
        adding("a")(connection)
        return connection.execute("SELECT text FROM notes")

    for operation in (cursor, coroutine, lambda connection: iter([1])):
        for call in (store.write, store.read):
            with pytest.raises((InvalidOption, StoreUnavailable), match=r"finished data|tried to write"):
                await call(operation)
    assert await store.read(all_notes) == []


async def test_a_read_operation_cannot_write(store: Store) -> None:
    with pytest.raises(InvalidOption, match="use `write`"):
        await store.read(adding("a"))

    await store.write(adding("b"))
    assert await store.read(all_notes) == ["b"]


async def test_reads_go_on_while_the_writer_works(path: Path) -> None:
    async with open_store(path, RealEnvironment(), migrations=[NOTES], readers=2) as store:
        await store.write(adding("a"))
        async with writer_held(store):
            for _ in range(5):
                assert await store.read(all_notes) == ["a"]
            assert store.statistics().pending == 0
            with trio.move_on_after(0):
                await store.write(adding("b"))
    assert store.statistics().reads == 5


# --- failures of the disk ---------------------------------------------------------------------------------


async def test_a_full_store_is_unavailable_to_the_whole_group_and_works_again_when_there_is_space(store: Store) -> None:
    def limit(connection: sqlite3.Connection) -> None:
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages + 2}")

    await store.write(limit)
    small, large = await written_as_one_group(store, adding("a"), adding(*["x" * 1000] * 100))

    assert isinstance(large, StoreUnavailable)
    assert large.reason.startswith("is full")
    assert isinstance(small, StoreUnavailable)
    assert "is full" in small.reason
    assert await store.read(all_notes) == []
    assert await store.write(adding("b")) == 1
    await store.write(lambda connection: connection.execute("PRAGMA max_page_count = 1000000").fetchone())
    assert await store.write(adding(*["x" * 1000] * 100)) == 100


async def test_a_disk_that_refuses_the_commit_makes_the_store_unavailable_until_it_takes_it(path: Path) -> None:
    async with open_store(path, RealEnvironment(), migrations=[NOTES]) as store:
        await store.write(adding("a"))
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        wal = path.with_name("store.db-wal")
        resource.setrlimit(resource.RLIMIT_FSIZE, (wal.stat().st_size + 100, hard))
        try:
            outcomes = await written_as_one_group(store, adding("b"), adding("c" * 10_000))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

        assert [type(outcome) for outcome in outcomes] == [StoreUnavailable] * 2
        assert outsider_can_write(path)
        assert await store.read(all_notes) == ["a"]
        await store.write(adding("d"))
        assert await store.read(all_notes) == ["a", "d"]
    async with open_store(path, RealEnvironment(), migrations=[NOTES]) as store:
        assert await store.read(all_notes) == ["a", "d"]


async def test_a_lock_of_another_connection_is_waited_for_and_then_reported(path: Path) -> None:
    async with open_store(path, RealEnvironment(), migrations=[NOTES], busy_timeout=0.05) as store:
        outsider = sqlite3.connect(path, isolation_level=None)
        outsider.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="is locked"):
            await store.write(adding("a"))
        assert await store.read(all_notes) == []
        outsider.close()
        await store.write(adding("b"))
        assert await store.read(all_notes) == ["b"]


@pytest.mark.parametrize("replaced", [False, True])
async def test_a_file_that_is_removed_or_replaced_under_an_open_store_takes_no_more_writes(
    path: Path, *, replaced: bool
) -> None:
    async with open_store(path, RealEnvironment(), migrations=[NOTES]) as store:
        await store.write(adding("a"))
        kept = path.rename(path.with_name("elsewhere.db"))
        if replaced:
            path.write_bytes(b"")
        with pytest.raises(StoreUnavailable, match="removed or replaced"):
            await store.write(adding("b"))
        path.unlink(missing_ok=True)
        kept.rename(path)
        await store.write(adding("c"))
        assert await store.read(all_notes) == ["a", "c"]


@pytest.mark.row("BR-35")
async def test_the_write_ahead_log_stays_bounded_while_readers_come_and_go(path: Path) -> None:
    limit = 256 * 1024
    sizes: list[int] = []
    wal = path.with_name("store.db-wal")
    done = trio.Event()

    async def read_history(store: Store) -> None:
        after = 0
        while not done.is_set():
            page = await store.read(partial(page_after, after))
            after = page[-1] if page else 0
            await trio.lowlevel.checkpoint()

    async def write_many(store: Store) -> None:
        for number in range(400):
            await store.write(adding(f"{number} " + "x" * 100))
            sizes.append(wal.stat().st_size)

    async with open_store(path, RealEnvironment(), synchronous="NORMAL", migrations=[NOTES], wal_limit=limit) as store:
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(read_history, store)
            async with trio.open_nursery() as writers:
                for _ in range(50):
                    writers.start_soon(write_many, store)
            done.set()
        assert store.statistics().checkpoints > 0
    assert len(sizes) == 20_000
    assert max(sizes) < 2 * limit
    assert not wal.exists()


# --- cancellation and closing -----------------------------------------------------------------------------


async def test_an_operation_whose_caller_leaves_before_its_turn_is_not_run(store: Store) -> None:
    async with writer_held(store), trio.open_nursery() as nursery:
        nursery.start_soon(store.write, adding("a"))
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()

    assert await store.read(all_notes) == []


@pytest.mark.row("BR-32")
async def test_an_operation_whose_caller_leaves_while_it_runs_is_committed_whole(store: Store) -> None:
    running, release = threading.Event(), threading.Event()

    def slow(connection: sqlite3.Connection) -> None:
        adding("a")(connection)
        running.set()
        assert release.wait(10)
        adding("b")(connection)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.write, slow)
        await trio.to_thread.run_sync(running.wait)
        nursery.cancel_scope.cancel()
        await wait_all_tasks_blocked_or_cancelled()
        release.set()

    await store.write(adding("c"))
    assert await store.read(all_notes) == ["a", "b", "c"]


async def wait_all_tasks_blocked_or_cancelled() -> None:
    with trio.CancelScope(shield=True):
        await wait_all_tasks_blocked()


async def test_a_cancelled_block_still_carries_out_what_was_accepted_and_closes_the_file(path: Path) -> None:
    outcomes: list[Any] = []
    stores: list[Store] = []

    async def patient_writer() -> None:
        with trio.CancelScope(shield=True):
            await outcome_of(lambda: stores[0].write(adding("a")), outcomes)

    with trio.CancelScope() as scope:
        async with (
            trio.open_nursery() as outside,
            open_store(path, RealEnvironment(), migrations=[NOTES]) as store,
            writer_held(store),
        ):
            stores.append(store)
            outside.start_soon(patient_writer)
            await wait_all_tasks_blocked()
            scope.cancel()

    assert outcomes == [1]
    assert stores[0].statistics().state == "closed"
    assert sorted(file.name for file in path.parent.iterdir()) == ["store.db"]
    with closing(sqlite3.connect(path)) as connection:
        assert all_notes(connection) == ["a"]


@pytest.mark.row("BR-35")
async def test_after_the_block_the_log_is_gone_and_every_call_is_refused(location: str | Path) -> None:
    async with open_store(location, RealEnvironment(), migrations=[NOTES]) as store:
        await store.write(adding("a"))
        await store.read(all_notes)

    if isinstance(location, Path):
        assert [file.name for file in location.parent.iterdir()] == ["store.db"]
    assert store.statistics().state == "closed"
    for call in (store.write(all_notes), store.read(all_notes), store.migrate(NOTES)):
        with pytest.raises(StoreUnavailable, match="is closed"):
            await call


async def test_calls_that_wait_for_a_reader_when_the_store_closes_are_refused(path: Path) -> None:
    outcomes: list[Any] = []
    release = threading.Event()

    def slow(connection: sqlite3.Connection) -> str:
        assert release.wait(10)
        return "read"

    async with (
        trio.open_nursery() as nursery,
        open_store(path, RealEnvironment(), migrations=[NOTES], readers=1) as store,
    ):
        for _ in range(3):
            nursery.start_soon(outcome_of, partial(store.read, slow), outcomes)
            await wait_all_tasks_blocked()
        nursery.start_soon(set_when_blocked, release)

    assert outcomes[0] == "read"
    assert [type(outcome) for outcome in outcomes[1:]] == [StoreUnavailable] * 2


async def set_when_blocked(event: threading.Event) -> None:
    await wait_all_tasks_blocked()
    event.set()


class BreakingEnvironment(RealEnvironment):
    """Threads work until `broken` is set."""

    broken = False

    async def in_thread(self, function: Callable[[*Ts], T], *args: *Ts, abandon_on_cancel: bool = False) -> T:
        if self.broken and "commit" in getattr(function, "__name__", ""):
            raise ZeroDivisionError("no more threads")
        return await super().in_thread(function, *args, abandon_on_cancel=abandon_on_cancel)


async def test_a_writer_that_crashes_refuses_everybody_and_its_error_leaves_the_block_bare(path: Path) -> None:
    environment = BreakingEnvironment()
    outcomes: list[Any] = []
    stores: list[Store] = []

    async def use() -> None:
        async with open_store(path, environment, migrations=[NOTES]) as store:
            stores.append(store)
            environment.broken = True
            with trio.fail_after(30, shield=True):
                async with trio.open_nursery() as nursery:
                    for _ in range(3):
                        nursery.start_soon(outcome_of, partial(store.write, adding("a")), outcomes)
            await trio.sleep_forever()

    with pytest.raises(ZeroDivisionError, match="no more threads"):
        await use()

    assert [type(outcome) for outcome in outcomes] == [StoreUnavailable] * 3
    assert "its writer failed: ZeroDivisionError" in str(outcomes[0])
    assert stores[0].statistics().state == "failed"
    with pytest.raises(StoreUnavailable, match="its writer failed"):
        await stores[0].read(all_notes)
    assert [file.name for file in path.parent.iterdir()] == ["store.db"]


async def test_exceptions_of_the_block_come_out_as_they_are(location: str | Path) -> None:
    with pytest.raises(ZeroDivisionError):
        async with open_store(location, RealEnvironment()):
            raise ZeroDivisionError
    group = ExceptionGroup("mine", [ValueError(1), TypeError(2)])
    with pytest.raises(ExceptionGroup) as caught:
        async with open_store(location, RealEnvironment()):
            raise group
    assert (caught.value.message, caught.value.exceptions) == (group.message, group.exceptions)


async def test_a_store_has_no_life_outside_its_block_and_options_are_checked_before_the_file(path: Path) -> None:
    environment: Environment = RealEnvironment()
    wrong_options: list[dict[str, Any]] = [
        {"synchronous": "OFF"},
        {"busy_timeout": -1},
        {"wal_limit": 0},
        {"readers": 0},
    ]
    for options in wrong_options:
        with pytest.raises(InvalidOption, match=next(iter(options))):
            async with open_store(path, environment, **options):
                pass
    for wrong in ("", "a\x00b", 3):
        with pytest.raises(InvalidOption, match="store path"):
            async with open_store(wrong, environment):  # type: ignore[arg-type]
                pass
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize("synchronous", ["FULL", "NORMAL", "EXTRA"])
async def test_the_file_is_in_wal_mode_with_the_synchronous_setting_that_was_asked_for(
    path: Path, synchronous: str
) -> None:
    async with open_store(path, RealEnvironment(), synchronous=synchronous) as store:
        settings = await store.write(
            lambda connection: [
                connection.execute(f"PRAGMA {name}").fetchone()[0]
                for name in ("journal_mode", "synchronous", "foreign_keys", "application_id")
            ]
        )
    assert settings == ["wal", {"NORMAL": 1, "FULL": 2, "EXTRA": 3}[synchronous], 1, 0x53415057]


async def test_in_a_simulated_environment_everything_runs_without_threads(location: str | Path) -> None:
    threads: set[int] = set()

    def operation(connection: sqlite3.Connection) -> None:
        threads.add(threading.get_ident())

    async with open_store(location, SimulatedEnvironment(7)) as store:
        await store.write(operation)
        await store.read(operation)

    assert threads == {threading.get_ident()}


async def test_many_reads_at_once_each_have_a_connection_of_their_own(path: Path) -> None:
    async with open_store(path, RealEnvironment(), migrations=[NOTES], readers=8) as store:
        await store.write(adding("a"))

        async def read_often() -> None:
            for _ in range(50):
                assert await store.read(all_notes) == ["a"]

        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(read_often)
        assert store.statistics().reads == 1000

"""The monitor in a running tree: what it reads, whom it tells, and what it survives."""

from __future__ import annotations

import logging
import sqlite3
from contextlib import AbstractAsyncContextManager, closing
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from sapwood import Actor, Runtime, child, handle, message, open_runtime
from sapwood.actors import SimulatedEnvironment
from sapwood.errors import StoreUnavailable
from sapwood.messaging import Envelope
from sapwood.messaging.bus import HandlerOptions
from sapwood.messaging.monitoring import (
    BUILT_IN_RULES,
    METRICS,
    MONITORING_SCHEMA,
    AlertChange,
    Monitor,
    Rule,
    Snapshot,
    log_alert,
)
from sapwood.messaging.queues import Queue, open_queue
from sapwood.persistence import MigrationSet, Store, decode
from sapwood.supervision import restart_child, terminate_child
from tests.messaging.monitoring.kit import Note, Pager, seen, watched

NO_RULES: list[Rule] = []


def rules_on(*metrics: str) -> list[Rule]:
    return [rule for rule in BUILT_IN_RULES if rule.metric in metrics]


def queue_in(runtime: Runtime, name: str = "orders") -> AbstractAsyncContextManager[Queue]:
    return open_queue(runtime.store, runtime.environment, name)


async def fail(envelope: Envelope[Any]) -> None:
    raise ValueError("cannot")


@message("test.monitoring.hang")
class Hang:
    pass


class Sleeper(Actor):
    @handle
    async def hang(self, message: Hang) -> None:
        await trio.sleep_forever()


@message("test.monitoring.break")
class Break:
    pass


class Fragile(Actor):
    @handle
    def snap(self, message: Break) -> None:
        raise RuntimeError("broken")


# --- what it reads ------------------------------------------------------------------------------------


@pytest.mark.row("S2-047")
async def test_a_snapshot_tells_the_figures_of_actors_bus_and_queue(autojump_clock: MockClock) -> None:
    async with watched(NO_RULES, Pager()) as (runtime, monitor), queue_in(runtime) as queue:
        monitor.watch_queue(queue)
        hanging = trio.Event()

        async def wait(envelope: Envelope[Any]) -> None:
            await hanging.wait()

        await runtime.bus.register("bob", wait)
        alice = runtime.bus.client("alice")
        for text in ("1", "2", "x" * 2_000):
            alice.send_nowait("bob", Note(text))
        alice.send_nowait("nobody", Note("lost"))
        await queue.append_many([b"1", b"2", b"3"])
        (one, _) = await queue.poll(2)
        await one.reject("bad")
        await trio.sleep(60)
        found = seen(monitor)
        values = {
            ("depth", "bus:bus"): 2,
            ("consumer_lag", "bus:bus/bob"): 2,
            ("dead_letters", "bus:bus"): 1,
            ("oldest_dead_letter_seconds", "bus:bus"): 59.75,
            ("sent_total", "bus:bus"): 4,
            ("messages_by_size_total", "bus:bus/1024"): 3,
            ("messages_by_size_total", "bus:bus/10240"): 1,
            ("depth", "queue:orders"): 2,
            ("consumer_lag", "queue:orders"): 2,
            ("unserved", "queue:orders"): 2,
            ("dead_letters", "queue:orders"): 1,
            ("oldest_message_seconds", "queue:orders"): 59.75,
            ("unreadable", "queue:orders"): 0,
            ("mailbox", "actors"): 2,
        }
        assert {key: found.value(*key) for key in values} == pytest.approx(values)
        assert found.value("actors", "actors") == len(list(runtime.tree().walk()))
        assert found.value("supervisors", "actors") == sum(node.supervises for node in runtime.tree().walk())
        assert found.busiest[0].waiting == 2
        assert "bob" in found.busiest[0].label
        assert {reading.metric for reading in found.readings} == set(METRICS)
        assert found.value("depth", "queue:unknown") is None
        hanging.set()


async def test_each_reading_has_a_subject_of_a_kind_that_its_metric_names(autojump_clock: MockClock) -> None:
    async with watched(NO_RULES, Pager()) as (runtime, monitor), queue_in(runtime) as queue:
        monitor.watch_queue(queue)
        await runtime.bus.register("bob", fail)
        await trio.sleep(1)
        for reading in seen(monitor).readings:
            kind = "participant" if reading.part and reading.metric == "consumer_lag" else reading.kind
            assert kind in METRICS[reading.metric].subjects


async def test_restarts_are_counted_once_each_also_after_the_monitor_was_killed(autojump_clock: MockClock) -> None:
    pager = Pager()
    async with watched(NO_RULES, pager) as (runtime, monitor):
        fragile = await runtime.spawn(Fragile, restart="permanent")
        del fragile
        for _ in range(2):
            node = next(node for node in runtime.tree().walk() if node.label.startswith("Fragile"))
            node.ref.tell(Break())
            await trio.sleep(1.5)
        before = seen(monitor).value("restarts_total", "actors")
        assert before == 2
        next(node for node in runtime.tree().walk() if node.label.startswith("monitor")).ref.kill()
        await trio.sleep(2)
        node = next(node for node in runtime.tree().walk() if node.label.startswith("Fragile"))
        node.ref.tell(Break())
        await trio.sleep(2)
        assert seen(monitor).value("restarts_total", "actors") == 4, "two, the monitor's own, and one more"
        assert [one.incarnation for one in seen(monitor).busiest if one.label.startswith("Fragile")] == [4]


async def test_a_monitor_that_is_stopped_and_started_again_counts_each_restart_once(autojump_clock: MockClock) -> None:
    async with watched(NO_RULES, Pager()) as (runtime, monitor):
        await terminate_child(runtime.root, "monitor")
        await restart_child(runtime.root, "monitor")
        (await runtime.spawn(Fragile, restart="permanent")).tell(Break())
        await trio.sleep(2)
        assert seen(monitor).value("restarts_total", "actors") == 1


async def test_a_queue_whose_receiver_waits_or_works_is_not_without_consumers(autojump_clock: MockClock) -> None:
    async with watched(NO_RULES, Pager()) as (runtime, monitor), queue_in(runtime) as queue:
        monitor.watch_queue(queue)
        await queue.append_many([b"1", b"2"])
        await trio.sleep(1)
        assert seen(monitor).value("unserved", "queue:orders") == 2
        (one,) = await queue.poll()
        await trio.sleep(1)
        assert seen(monitor).value("in_flight", "queue:orders") == 1
        assert seen(monitor).value("unserved", "queue:orders") == 0
        await one.ack()
        await trio.sleep(1)
        assert seen(monitor).value("unserved", "queue:orders") == 1


# --- the built-in rules -------------------------------------------------------------------------------


@pytest.mark.row("S2-048", "S3-111")
async def test_dead_letters_are_an_alert_when_there_are_many_or_one_waits_too_long(autojump_clock: MockClock) -> None:
    pager = Pager()
    async with watched(rules_on("dead_letters", "oldest_dead_letter_seconds"), pager) as (runtime, _):
        alice = runtime.bus.client("alice")
        for number in range(51):
            alice.send_nowait("nobody", Note(str(number)))
        await trio.sleep(1.5)
        assert pager.lines == ["fired many dead letters of bus:bus at 51"]
        assert pager.told[0].alert.severity == "critical"
        await trio.sleep(300)
        assert [line.rpartition(" at ")[0] for line in pager.lines[1:]] == ["fired dead letter waits of bus:bus"]
        for letter in runtime.bus.dead_letters.inspect(limit=11):
            runtime.bus.dead_letters.discard(letter.id)
        await trio.sleep(1)
        assert pager.lines[2:] == ["cleared many dead letters of bus:bus at 40"]
        for letter in runtime.bus.dead_letters.inspect(limit=None):
            runtime.bus.dead_letters.discard(letter.id)
        await trio.sleep(1)
        assert pager.lines[3:] == ["cleared dead letter waits of bus:bus at 0"]
        await trio.sleep(1_000)
        assert len(pager.told) == 4


@pytest.mark.row("S2-048")
async def test_a_queue_without_consumers_that_grows_is_three_alerts_that_clear_when_somebody_comes(
    autojump_clock: MockClock,
) -> None:
    pager = Pager()
    rules = rules_on("depth", "consumer_lag", "unserved")
    async with watched(rules, pager) as (runtime, monitor), queue_in(runtime) as queue:
        monitor.watch_queue(queue)
        await queue.append_many([b"x"] * 101)
        await trio.sleep(1)
        assert pager.lines == ["fired deep queue of queue:orders at 101"]
        await trio.sleep(58)
        assert [(one.rule, one.state) for one in monitor.alerts()] == [
            ("deep queue", "firing"),
            ("consumer lags", "pending"),
            ("no consumers", "pending"),
        ]
        await trio.sleep(3)
        assert pager.lines[1:] == [
            "fired consumer lags of queue:orders at 101",
            "fired no consumers of queue:orders at 101",
        ]
        for delivery in await queue.poll(101):
            await delivery.ack()
        await trio.sleep(1)
        assert sorted(pager.lines[3:]) == [
            "cleared consumer lags of queue:orders at 0",
            "cleared deep queue of queue:orders at 0",
            "cleared no consumers of queue:orders at 0",
        ]
        assert monitor.alerts() == ()


@pytest.mark.row("S2-048")
async def test_an_error_rate_counts_the_last_fifteen_minutes_and_no_single_failure_of_a_quiet_hour(
    autojump_clock: MockClock,
) -> None:
    pager = Pager()
    async with watched(rules_on("error_rate"), pager, interval=5.0) as (runtime, monitor):
        await runtime.bus.register("bad", fail)
        await runtime.bus.register("good", lambda envelope: None)
        alice = runtime.bus.client("alice")
        await trio.sleep(5)
        alice.send_nowait("bad", Note("x"))
        await trio.sleep(5)
        assert seen(monitor).value("error_rate", "bus:bus") == 0.1, "one of 10 at least"
        for _ in range(2):
            alice.send_nowait("bad", Note("x"))
        await trio.sleep(5)
        assert pager.lines == ["fired many errors of bus:bus at 0.3"]
        for _ in range(27):
            alice.send_nowait("good", Note("x"))
        await trio.sleep(5)
        assert pager.lines[1:] == ["cleared many errors of bus:bus at 0.1"]
        await trio.sleep(900)
        assert seen(monitor).value("error_rate", "bus:bus") == 0.0
        assert runtime.bus.metrics().error_rate == 0.1, "that of the bus is since its start"


@pytest.mark.row("S2-048")
async def test_a_mailbox_above_its_mark_is_an_alert_that_names_the_actor(autojump_clock: MockClock) -> None:
    pager = Pager()
    async with watched(rules_on("mailbox"), pager) as (runtime, _):
        sleeper = await runtime.spawn(Sleeper)
        for _ in range(10_002):
            sleeper.tell(Hang())
        await trio.sleep(1)
        assert pager.lines == ["fired full mailbox of actors at 10001"]
        assert pager.told[0].alert.detail.startswith("Sleeper")
        sleeper.kill()
        await trio.sleep(1)
        assert pager.lines[1:] == ["cleared full mailbox of actors at 0"]


@pytest.mark.row("S2-048")
async def test_a_queue_that_cannot_be_read_keeps_its_alerts_and_becomes_one_itself(autojump_clock: MockClock) -> None:
    pager = Pager()
    async with watched(rules_on("depth", "unreadable"), pager) as (runtime, monitor):
        async with queue_in(runtime) as queue:
            monitor.watch_queue(queue)
            await queue.append_many([b"x"] * 101)
            await trio.sleep(1)
        await trio.sleep(70)
        assert pager.lines == [
            "fired deep queue of queue:orders at 101",
            "fired cannot be read of queue:orders at 1",
        ]
        (broken,) = seen(monitor).unreadable
        assert (broken.kind, broken.name) == ("queue", "orders")
        assert "closed" in broken.problem
        assert seen(monitor).value("depth", "queue:orders") is None
        assert [(one.rule, one.known) for one in monitor.alerts()] == [("deep queue", False), ("cannot be read", True)]
        async with queue_in(runtime) as again:
            monitor.watch_queue(again)
            await trio.sleep(1)
            assert pager.lines[2:] == ["cleared cannot be read of queue:orders at 0"]
            assert monitor.alerts()[0].known
            assert monitor.unwatch(again)
            assert not monitor.unwatch(again)
            await trio.sleep(1)
        assert [change.reason for change in pager.told[3:]] == ["there is no such value any more"]


async def test_a_participant_that_is_unregistered_takes_its_alert_along(autojump_clock: MockClock) -> None:
    pager = Pager()
    rules = [Rule("lag", "consumer_lag", above=1)]
    async with watched(rules, pager) as (runtime, _):

        async def hang(envelope: Envelope[Any]) -> None:
            await trio.sleep_forever()

        bob = await runtime.bus.register("bob", hang, HandlerOptions())
        for _ in range(3):
            bob.send_nowait("bob", Note("x"))
        await trio.sleep(1)
        bob.unregister()
        await trio.sleep(1)
        assert pager.lines == ["fired lag of bus:bus/bob at 2", "cleared lag of bus:bus/bob at 2"]


# --- whom it tells ------------------------------------------------------------------------------------


async def test_a_notifier_that_fails_or_hangs_keeps_nothing_from_the_others(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    pager = Pager()

    def broken(change: AlertChange) -> None:
        raise ConnectionError("no network")

    async def hanging(change: AlertChange) -> None:
        await trio.sleep_forever()

    rules = [Rule("letters", "dead_letters", above=0)]
    async with watched(rules, pager, notifiers=[broken, hanging, pager]) as (runtime, monitor):
        runtime.bus.client("alice").send_nowait("nobody", Note("x"))
        await trio.sleep(15)
        assert pager.lines == ["fired letters of bus:bus at 1"]
        assert seen(monitor).notifier_failures == 2
        assert runtime.ready()
    texts = [record.getMessage() for record in caplog.records if record.name == "sapwood.monitoring"]
    assert any("no network" in text for text in texts)
    assert any("took longer than 10 s" in text for text in texts)


async def test_what_was_not_told_when_the_monitor_was_killed_is_told_by_its_successor(
    autojump_clock: MockClock,
) -> None:
    pager = Pager()
    tried: list[str] = []

    async def slow(change: AlertChange) -> None:
        tried.append(change.status)
        await trio.sleep(5)

    rules = [Rule("letters", "dead_letters", above=0)]
    async with watched(rules, pager, notifiers=[slow, pager]) as (runtime, _):
        runtime.bus.client("alice").send_nowait("nobody", Note("x"))
        await trio.sleep(3)
        assert (tried, pager.told) == (["fired"], [])
        next(node for node in runtime.tree().walk() if node.label.startswith("monitor")).ref.kill()
        await trio.sleep(30)
        assert tried == ["fired", "fired"]
        assert pager.lines == ["fired letters of bus:bus at 1"]


async def test_the_log_is_told_by_default_with_fields_for_machines(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "sapwood.monitoring")
    async with watched([Rule("letters", "dead_letters", above=0)], Pager(), notifiers=[log_alert]) as (runtime, _):
        runtime.bus.client("alice").send_nowait("nobody", Note("x"))
        await trio.sleep(1)
        runtime.bus.dead_letters.discard(runtime.bus.dead_letters.inspect()[0].id)
        await trio.sleep(1)
    told: list[Any] = [record for record in caplog.records if record.name == "sapwood.monitoring"]
    assert [(record.levelname, record.getMessage().split()[1]) for record in told] == [
        ("WARNING", "fired"),
        ("INFO", "cleared"),
    ]
    assert told[0].sapwood["rule"] == "letters"
    assert told[1].sapwood["reason"] == "the value is back"


# --- what it publishes --------------------------------------------------------------------------------


def rows(store: Path) -> list[Any]:
    with closing(sqlite3.connect(store)) as connection:
        return connection.execute("SELECT monitor, at, every, snapshot FROM monitoring_snapshots").fetchall()


async def test_a_snapshot_is_published_in_the_store_and_taken_back_at_the_end(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    store = tmp_path / "a.db"
    async with watched(NO_RULES, Pager(), store=store) as (_, monitor):
        await trio.sleep(2.5)
        ((_, at, every, data),) = rows(store)
        published: Snapshot = decode(data)
        assert published == monitor.snapshot
        assert (at, every) == (published.at, 1.0)
    assert rows(store) == []


async def test_the_snapshot_of_a_process_that_died_is_removed_by_the_next_monitor(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    store = tmp_path / "a.db"
    async with watched(NO_RULES, Pager(), store=store):
        await trio.sleep(1)
    for age, kept in ((59, ["alive", "monitor"]), (61, ["monitor"])):
        at = SimulatedEnvironment().wall() - age
        with closing(sqlite3.connect(store)) as connection:
            connection.execute("INSERT OR REPLACE INTO monitoring_snapshots VALUES ('alive', 1, ?, 1.0, x'')", (at,))
            connection.commit()
        async with watched(NO_RULES, Pager(), store=store):
            assert sorted(row[0].partition("_")[0] for row in rows(store)) == kept


async def test_a_store_that_refuses_writes_costs_reports_and_neither_alerts_nor_the_runtime(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, pager = tmp_path / "a.db", Pager()
    migrate = Store.migrate

    async def refuse(self: Store, migrations: MigrationSet) -> None:
        if migrations is not MONITORING_SCHEMA:
            await migrate(self, migrations)
            return
        await trio.lowlevel.checkpoint()
        raise StoreUnavailable("a.db", "the disk is full")

    monkeypatch.setattr(Store, "migrate", refuse)
    rules = [Rule("letters", "dead_letters", above=0)]
    async with watched(rules, pager, store=store) as (runtime, _):
        runtime.bus.client("alice").send_nowait("nobody", Note("x"))
        await trio.sleep(3)
        assert pager.lines == ["fired letters of bus:bus at 1"]
        assert runtime.ready()
        monkeypatch.setattr(Store, "migrate", migrate)
        await trio.sleep(1)
        assert len(rows(store)) == 1


async def test_a_monitor_that_is_given_nothing_to_watch_looks_at_the_actors_around_it(
    autojump_clock: MockClock,
) -> None:
    monitor = Monitor(interval=1)
    assert monitor.snapshot is None
    environment = SimulatedEnvironment()
    async with open_runtime(
        children=[monitor.spec(), child(Sleeper)], environment=environment, signals=False, log=False
    ) as runtime:
        await trio.sleep(2)
        assert seen(monitor).value("actors", "actors") == len(list(runtime.tree().walk()))
        assert seen(monitor).value("depth", "bus:bus") is None


async def test_the_same_monitor_can_watch_a_second_runtime_after_the_first(autojump_clock: MockClock) -> None:
    pager = Pager()
    monitor = Monitor([Rule("letters", "dead_letters", above=0)], notifiers=[pager], interval=1.0)
    for _ in range(2):
        async with open_runtime(
            children=[monitor.spec()], environment=SimulatedEnvironment(), signals=False, log=False
        ) as runtime:
            monitor.watch(runtime)
            runtime.bus.client("alice").send_nowait("nobody", Note("x"))
            await trio.sleep(1)
            runtime.bus.dead_letters.discard(runtime.bus.dead_letters.inspect()[0].id)
            await trio.sleep(1)
    assert [change.status for change in pager.told] == ["fired", "cleared"] * 2

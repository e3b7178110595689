"""What the bus lets pass, and what it writes down about everything that happens."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import structlog
import trio
import trio.testing
from trio.testing import MockClock

from sapwood.actors import RealEnvironment
from sapwood.errors import (
    ContentRefused,
    InvalidOption,
    MessageTooLarge,
    NotAuthorized,
    RateLimitExceeded,
    SignatureRefused,
)
from sapwood.messaging import Bus, BusOptions, Envelope, make_envelope
from sapwood.messaging.bus import AuditRecord, PairCounters, RateLimit, Route
from sapwood.messaging.envelope import HMACKeys, KeyRing, PayloadCipher, Schemas, sign
from tests.messaging.bus.kit import Note, Number, Recorder, open_bus


@pytest.mark.row("S2-053")
async def test_a_sender_that_sends_too_fast_is_told_when_to_try_again(autojump_clock: MockClock) -> None:
    limits: dict[str, Any] = {
        "rate_limit": RateLimit(2.0, burst=3),
        "rate_limits": {"vip": RateLimit(1000.0, burst=100)},
    }
    async with open_bus(**limits) as (bus, _):
        got = Recorder()
        await bus.register("bob", got)
        alice = bus.client("alice")
        for number in range(3):
            alice.send_nowait("bob", Number(number))
        with pytest.raises(RateLimitExceeded) as caught:
            alice.send_nowait("bob", Number(3))
        assert caught.value.retry_after == pytest.approx(0.5)
        for number in range(50):
            bus.client("vip").send_nowait("bob", Number(number))
        await trio.sleep(caught.value.retry_after)
        alice.send_nowait("bob", Number(3))
        with pytest.raises(RateLimitExceeded):
            alice.send_nowait("bob", Number(4))
        await trio.testing.wait_all_tasks_blocked()
        assert [one.payload.value for one in got.envelopes if one.sender == "alice"] == [0, 1, 2, 3]
        assert bus.metrics().refused == 2


async def test_buckets_of_senders_that_paused_are_dropped(autojump_clock: MockClock) -> None:
    async with open_bus(rate_limit=RateLimit(10.0, burst=2)) as (bus, _):
        await bus.register("bob", Recorder())
        for number in range(3_000):
            bus.client(f"sender {number}").send_nowait("bob", Number(number))
            if number % 500 == 0:
                await trio.sleep(1)
        assert len(bus._desk.limiter) <= 1_500


@pytest.mark.parametrize("wrong", [(0, 1), (-1, 1), ("5", 1), (1, 0), (1, 1.5)], ids=str)
def test_a_rate_limit_that_cannot_work_is_refused(wrong: tuple[Any, Any]) -> None:
    with pytest.raises(InvalidOption, match="rate limit"):
        RateLimit(*wrong)


@pytest.mark.row("S2-050", "S2-054")
async def test_the_authorisation_hook_is_asked_before_every_operation_and_the_trail_shows_it(
    autojump_clock: MockClock,
) -> None:
    written: list[AuditRecord] = []

    def authorize(actor: str, operation: str, subject: str) -> bool | str:
        if actor == "mallory":
            return "mallory may do nothing" if operation == "send" else False
        if actor == "broken":
            raise KeyError(actor)
        return True

    async with open_bus(authorize=authorize, audit=written.append) as (bus, _):
        got = Recorder()
        await bus.register("bob", got, topics=["news"])
        mallory, alice = bus.client("mallory"), bus.client("alice")
        refusals: list[str] = []
        for attempt in (
            lambda: mallory.send("bob", Note("x")),
            lambda: mallory.publish("news", Note("x")),
            lambda: mallory.broadcast(Note("x")),
            lambda: mallory.multicast(["bob"], Note("x")),
            lambda: mallory.request("bob", Note("x")),
            lambda: bus.route(mallory.make(Note("x"))),
            lambda: bus.register("mallory", Recorder()),
            lambda: bus.client("broken").send("bob", Note("x")),
        ):
            with pytest.raises(NotAuthorized) as caught:
                await attempt()
            refusals.append(caught.value.operation)
        at_once: list[Callable[[], bool]] = [
            partial(mallory.subscribe, "news"), mallory.unregister, partial(mallory.unsubscribe, "news"),
        ]  # fmt: skip
        for attempt_now in at_once:
            with pytest.raises(NotAuthorized) as caught:
                attempt_now()
            refusals.append(caught.value.operation)
        assert refusals == [
            "send", "publish", "broadcast", "multicast", "request", "route", "register", "send", "subscribe",
            "unregister", "unsubscribe",
        ]  # fmt: skip
        await alice.send("bob", Note("fine"), wait=True)
        assert got.texts == ["fine"]
        assert bus.audit_trail() == written
        assert [one.operation for one in written if one.outcome == "refused"] == refusals
        assert written[1].detail == "mallory may do nothing"
        assert (written[-1].actor, written[-1].operation, written[-1].subject) == ("alice", "send", "bob")
        assert written[-1].detail == got.envelopes[0].message_id
        assert bus.participants() == ["bob"]
        assert bus.history(limit=None) == got.envelopes, "what was refused is not in the history"


@pytest.mark.row("S2-052", "S1-004")
async def test_content_is_refused_by_schema_and_by_validator_and_nothing_is_sent(autojump_clock: MockClock) -> None:
    def check(note: Note) -> str | None:
        return "expected text; got none" if not note.text else None

    async with open_bus(schemas=Schemas(Note), validators={Note: check}) as (bus, _):
        got = Recorder()
        await bus.register("bob", got)
        alice = bus.client("alice")
        with pytest.raises(ContentRefused, match=r"test.bus.number.*not among the schemas"):
            await alice.send("bob", Number(1))
        with pytest.raises(ContentRefused, match="expected text; got none"):
            await alice.send("bob", Note(""))
        await alice.send("bob", Note("fine"), wait=True)
        assert got.texts == ["fine"]


@pytest.mark.row("S2-006")
async def test_a_large_message_is_warned_of_and_a_larger_one_refused(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_bus(warn_bytes=1_000, max_bytes=10_000) as (bus, _):
        got = Recorder()
        await bus.register("bob", got)
        alice = bus.client("alice")
        await alice.send("bob", Note("x" * 500), wait=True)
        assert caplog.records == []
        await alice.send("bob", Note("x" * 5_000), wait=True)
        assert [vars(record)["sapwood"]["event"] for record in caplog.records] == ["large message"]
        with pytest.raises(MessageTooLarge):
            await alice.send("bob", Note("x" * 50_000))
        assert [len(text) for text in got.texts] == [500, 5_000]


@pytest.mark.row("S2-049")
async def test_a_bus_with_verifiers_takes_only_signed_messages_from_outside(autojump_clock: MockClock) -> None:
    keys = HMACKeys(KeyRing({"k1": bytes(32)}, senders={"k1": frozenset({"partner"})}))
    environment = RealEnvironment()
    async with open_bus(verifiers=(keys,)) as (bus, _):
        got = Recorder()
        await bus.register("bob", got)
        genuine = make_envelope(environment, Note("signed"), sender="partner", recipient="bob")
        forged = make_envelope(environment, Note("forged"), sender="bob", recipient="bob")
        report = await bus.receive(sign(genuine, keys), wait=True)
        assert (report.status, got.envelopes) == ("delivered", [genuine])
        with pytest.raises(SignatureRefused, match="may not sign for 'bob'"):
            await bus.receive(sign(forged, keys))
        with pytest.raises(SignatureRefused):
            await bus.receive(sign(genuine, keys)[:-1] + b"\0")
        for send in (bus.send, bus.request):
            with pytest.raises(NotAuthorized, match="signed form"):
                await send(genuine)
        assert (await bus.client("alice").send("bob", Note("from inside"), wait=True)).status == "delivered"
        assert got.texts == ["signed", "from inside"]
        assert [one.outcome for one in bus.audit_trail()].count("refused") == 4
    async with open_bus() as (bus, _):
        with pytest.raises(InvalidOption, match="verifiers"):
            await bus.receive(sign(genuine, keys))


@pytest.mark.row("S2-051")
async def test_an_encrypted_payload_passes_the_bus_unread(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    cipher = PayloadCipher(KeyRing({"k1": bytes(32)}))
    caplog.set_level(logging.INFO, "sapwood.messaging")
    async with open_bus() as (bus, runtime):
        read: list[str] = []
        await bus.register("bob", lambda envelope: read.append(cipher.decrypt(envelope).payload.text))
        alice = bus.client("alice")
        await bus.send(cipher.encrypt(alice.make(Note("at noon"), recipient="bob"), runtime.environment), wait=True)
        assert read == ["at noon"]
        assert "at noon" not in repr(bus.history()) + repr([vars(record) for record in caplog.records])


@pytest.mark.row("S2-016")
async def test_the_history_is_bounded_and_answers_by_agent_topic_kind_and_chain(autojump_clock: MockClock) -> None:
    async with open_bus(history=20) as (bus, _):
        for name in ("alice", "bob", "carol"):
            await bus.register(name, Recorder(), topics=["news"])
        alice, bob = bus.client("alice"), bus.client("bob")
        for number in range(30):
            await alice.send("bob", Number(number))
        await bob.send("carol", Number(100), kind="command")
        await alice.publish("news", Number(101))

        def values(**query: Any) -> list[int]:
            return [envelope.payload.value for envelope in bus.history(**query)]

        assert values() == [*range(22, 30), 100, 101]
        assert values(limit=None) == [*range(12, 30), 100, 101]
        assert values(agent="carol") == [100, 101]
        assert values(agent="bob", limit=3) == [29, 100, 101]
        assert values(kind="command") == [100]
        assert values(topic="news") == [101]
        assert values(correlation_id=bus.history(topic="news")[0].message_id) == [101]
        assert values(agent="nobody") == []
        for wrong in (0, -1, "5"):
            with pytest.raises(InvalidOption, match="limit"):
                bus.history(limit=wrong)  # type: ignore[arg-type]  # what a caller without types may do


def fail(envelope: Envelope[Any]) -> None:
    raise ValueError("no")


@pytest.mark.row("S1-057", "S2-046")
async def test_every_message_sent_and_received_is_one_structured_log_record(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "sapwood.messaging")
    inside = structlog.wrap_logger(
        logging.getLogger("test.inside"),
        processors=[structlog.contextvars.merge_contextvars, structlog.stdlib.render_to_log_kwargs],
    )

    async def slowly(envelope: Envelope[Any]) -> None:
        await trio.sleep(0.2)
        inside.warning("inside")

    async with open_bus() as (bus, _):
        await bus.register("bob", slowly)
        await bus.register("carol", fail)
        alice = bus.client("alice")
        await alice.send("bob", Note("x"), kind="command", wait=True)
        await alice.send("carol", Note("x"), wait=True)
        first, second = bus.history()
    found = [record for record in caplog.records if record.name == "sapwood.messaging"]
    records = [vars(record)["sapwood"] for record in found]
    names = ("direction", "source_agent", "target_agent", "message_type", "status")
    assert [tuple(one[name] for name in names) for one in records] == [
        ("sent", "alice", "bob", "command", "success"),
        ("received", "alice", "bob", "command", "success"),
        ("sent", "alice", "carol", "notification", "success"),
        ("received", "alice", "carol", "notification", "error"),
    ]
    assert [one["correlation_id"] for one in records] == [first.correlation_id] * 2 + [second.correlation_id] * 2
    assert [one["latency_ms"] for one in records[:2]] == [0.0, 200.0]
    assert "ValueError: no" in records[3]["error"]
    assert [record.levelname for record in found] == ["INFO", "INFO", "INFO", "WARNING"]
    (mine,) = [record for record in caplog.records if record.name == "test.inside"]
    assert vars(mine)["correlation_id"] == first.correlation_id


@pytest.mark.row("S1-058")
async def test_counters_are_kept_for_each_pair_of_participants(autojump_clock: MockClock) -> None:
    async with open_bus() as (bus, _):
        await bus.register("bob", Recorder())
        await bus.register("carol", fail)
        alice = bus.client("alice")
        for _ in range(3):
            await alice.send("bob", Note("x"), wait=True)
            await alice.send("carol", Note("x"), wait=True)
        await bus.client("dave").broadcast(Note("x"), wait=True)
        await bus.requeue(bus.dead_letters.inspect()[0].id)
        assert bus.pairs() == {
            ("alice", "bob"): PairCounters(sent=3, received=3),
            ("alice", "carol"): PairCounters(sent=3, failed=4, retried=1, dead_lettered=4),
            ("dave", "bob"): PairCounters(sent=1, received=1),
            ("dave", "carol"): PairCounters(sent=1, failed=1, dead_lettered=1),
        }
        bus.pairs()["alice", "bob"].sent = 99
        assert bus.pairs()["alice", "bob"].sent == 3


async def test_pairs_beyond_a_thousand_are_summed_up_and_none_is_lost(autojump_clock: MockClock) -> None:
    async with open_bus() as (bus, _):
        await bus.register("bob", Recorder())
        for number in range(1_200):
            bus.client(f"sender {number}").send_nowait("bob", Number(number))
            await trio.lowlevel.checkpoint()
        await trio.testing.wait_all_tasks_blocked()
        pairs = bus.pairs()
        assert len(pairs) == 1_001
        assert sum(one.sent for one in pairs.values()) == sum(one.received for one in pairs.values()) == 1_200


@pytest.mark.row("S2-047")
async def test_metrics_tell_rates_depths_latencies_errors_and_sizes(autojump_clock: MockClock) -> None:
    async def slowly(envelope: Envelope[Any]) -> None:
        await trio.sleep(1)
        if envelope.payload.text == "bad":
            raise ValueError("bad")

    async with open_bus() as (bus, _):
        await bus.register("bob", slowly)
        await bus.register("idle", Recorder())
        alice = bus.client("alice")
        for text in ("a", "b", "bad", "x" * 20_000):
            alice.send_nowait("bob", Note(text))
        await trio.testing.wait_all_tasks_blocked()
        before = bus.metrics()
        assert (before.sent, before.received, before.queue_depth, before.consumer_lag) == (
            4,
            0,
            3,
            {"bob": 3, "idle": 0},
        )
        await trio.sleep(10)
        after = bus.metrics()
        assert (after.sent, after.received, after.failed, after.dead_letters) == (4, 3, 1, 1)
        assert after.error_rate == 0.25
        assert (after.processing.count, after.processing.mean, after.processing.maximum) == (3, 1_000.0, 1_000.0)
        assert after.delivery.maximum == pytest.approx(3_000.0)
        assert after.delivery.median == pytest.approx(1_000.0)
        assert after.sent_per_second == pytest.approx(4 / 60)
        assert after.received_per_second == pytest.approx(3 / 60)
        assert after.sizes == {1024: 3, 10 * 1024: 0, 100 * 1024: 1, 1024 * 1024: 0, None: 0}
        await trio.sleep(120)
        assert bus.metrics().sent_per_second == 0.0


@pytest.mark.parametrize(
    "wrong", [{"history": 0}, {"max_bytes": 1.5}, {"shed_above": 0}, {"alert_after": 0}, {"name": ""}], ids=str
)
def test_bus_options_that_cannot_work_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption):
        Bus(BusOptions(**wrong))


def test_a_route_that_leads_nowhere_is_refused() -> None:
    for wrong in ((), "bob", ("",)):
        with pytest.raises(InvalidOption, match="route"):
            Route(when=lambda envelope: True, to=wrong)  # type: ignore[arg-type]  # what a caller without types may do
    with pytest.raises(InvalidOption, match="route"):
        Route(when=5, to=("a",))  # type: ignore[arg-type]  # as above


async def test_a_filter_that_returns_nonsense_is_refused_and_an_envelope_is_needed(autojump_clock: MockClock) -> None:
    async with open_bus(filters=(lambda envelope: 5,)) as (bus, _):
        await bus.register("bob", Recorder())
        with pytest.raises(InvalidOption, match="filter <lambda>"):
            await bus.client("alice").send("bob", Note("x"))
        with pytest.raises(InvalidOption, match="make_envelope"):
            await bus.send(Note("x"))  # type: ignore[arg-type]  # what a caller without types may do

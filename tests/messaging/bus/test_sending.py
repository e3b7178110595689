"""Every way to send: who gets what, in which order, and what the report says."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from sapwood import Actor, handle
from sapwood.actors import SimulatedEnvironment
from sapwood.errors import AskTimeout, CodecError, InvalidEnvelope, InvalidOption, Undeliverable, UnknownParticipant
from sapwood.messaging import Envelope, HandlerOptions
from sapwood.messaging.bus import BatchOptions, Route, header_is, kind_is, matches, payload_is
from tests.messaging.bus.kit import Add, Member, Note, Number, Recorder, open_bus


@pytest.mark.row("S1-013", "S1-014", "S1-015")
async def test_a_direct_message_reaches_all_handlers_of_its_recipient_and_nobody_else(
    autojump_clock: MockClock,
) -> None:
    async with open_bus() as (bus, _):
        first, second, other = Recorder(), Recorder(), Recorder()

        async def slowly(envelope: Envelope[Any]) -> None:
            await trio.sleep(0.25)
            second(envelope)

        alice = await bus.register("alice", Recorder())
        await bus.register("bob", first)
        await bus.register("bob", slowly)
        await bus.register("carol", other)
        report = await alice.send("bob", Note("hello"), wait=True)
        assert first.texts == second.texts == ["hello"]
        assert other.texts == []
        assert (report.status, report.targets_contacted, report.errors) == ("delivered", 1, ())
        assert report.message_id == report.correlation_id == first.envelopes[0].message_id
        assert report.latency_ms == 250.0
        assert [(one.recipient, one.handler, one.status) for one in report.deliveries] == [
            ("bob", 1, "handled"), ("bob", 2, "handled"),
        ]  # fmt: skip
        assert bus.delivery_log() == [report]


@pytest.mark.row("S2-009", "S2-035")
async def test_sending_without_waiting_returns_before_any_handler_has_run(autojump_clock: MockClock) -> None:
    async with open_bus() as (bus, _):
        got = Recorder()
        await bus.register("bob", got)
        report = bus.client("alice").send_nowait("bob", Note("hello"))
        assert (report.status, report.deliveries[0].status) == ("delivered", "queued")
        assert got.texts == []
        await trio.testing.wait_all_tasks_blocked()
        assert got.texts == ["hello"]
        assert [one.payload for one in bus.history(agent="bob")] == [Note("hello")]


@pytest.mark.row("S1-016", "S2-011")
async def test_a_broadcast_reaches_every_participant_but_the_sender(autojump_clock: MockClock) -> None:
    async with open_bus() as (bus, _):
        got = {name: Recorder() for name in ("alice", "bob", "carol")}
        alice, *_ = [await bus.register(name, handler) for name, handler in got.items()]
        report = await alice.broadcast(Note("to all"), wait=True)
        assert report.targets_contacted == 2
        assert {name: one.texts for name, one in got.items()} == {"alice": [], "bob": ["to all"], "carol": ["to all"]}
        sent = got["bob"].envelopes[0]
        assert (sent.kind, dict(sent.headers)) == ("notification", {"broadcast": True})


@pytest.mark.row("S2-008", "S2-010")
async def test_a_publication_reaches_each_subscriber_once_and_not_its_publisher(autojump_clock: MockClock) -> None:
    async with open_bus() as (bus, _):
        got = {name: Recorder() for name in ("alice", "bob", "carol", "dave")}
        alice, bob, carol, _ = [await bus.register(name, handler) for name, handler in got.items()]
        assert [alice.subscribe("news"), bob.subscribe("news"), bob.subscribe("news")] == [True, True, False]
        assert bob.subscribe("*")
        assert carol.subscribe("sport.*")
        report = await alice.publish("news", Note("rain"), wait=True)
        assert report.targets_contacted == 1
        assert {name: one.texts for name, one in got.items()} == {"alice": [], "bob": ["rain"], "carol": [], "dave": []}
        sent = got["bob"].envelopes[0]
        assert (sent.kind, sent.topic, dict(sent.headers)) == ("notification", "news", {"topic": "news"})

        assert bob.unsubscribe("news")
        assert not bob.unsubscribe("news")
        assert bob.unsubscribe("*")
        report = await alice.publish("news", Note("sun"), wait=True)
        assert (report.status, report.targets_contacted) == ("no_recipients", 0)


@pytest.mark.parametrize(
    ("pattern", "topics"),
    [
        ("a", {"a"}),
        ("a.b", {"a.b"}),
        ("a.*", {"a.b", "a.b.c", "a..c"}),
        ("a.b.*", {"a.b.c"}),
        ("*", {"a", "a.b", "a.b.c", "ab", "ab.c", "b", "a.", "a..c"}),
        ("ab", {"ab"}),
    ],
)
async def test_a_pattern_matches_the_topics_of_the_table(
    pattern: str, topics: set[str], autojump_clock: MockClock
) -> None:
    every = ["a", "a.b", "a.b.c", "ab", "ab.c", "b", "a.", "a..c"]
    async with open_bus() as (bus, _):
        got = Recorder()
        await bus.register("bob", got, topics=[pattern])
        for topic in every:
            await bus.client("alice").publish(topic, Note(topic), wait=True)
        assert set(got.texts) == topics
        assert {topic for topic in every if matches(pattern, topic)} == topics


@pytest.mark.parametrize("pattern", ["", "a*", "*.a", "a.*.b", ".*", "**", 5])
async def test_a_pattern_that_is_none_is_refused_and_nothing_is_registered(
    pattern: Any, autojump_clock: MockClock
) -> None:
    async with open_bus() as (bus, _):
        with pytest.raises(InvalidEnvelope, match="pattern"):
            await bus.register("bob", Recorder(), topics=[pattern])
        assert bus.participants() == []
        await bus.register("bob", Recorder())
        with pytest.raises(InvalidEnvelope):
            bus.subscribe("bob", pattern)
        with pytest.raises(UnknownParticipant):
            bus.subscribe("nobody", "a")


async def test_a_topic_with_a_star_cannot_be_published_on(autojump_clock: MockClock) -> None:
    async with open_bus() as (bus, _):
        with pytest.raises(InvalidEnvelope, match="topic"):
            await bus.client("alice").publish("a.*", Note("x"))


@pytest.mark.row("S2-012")
async def test_a_multicast_reaches_the_chosen_ones_each_once(autojump_clock: MockClock) -> None:
    async with open_bus() as (bus, _):
        got = {name: Recorder() for name in ("bob", "carol", "dave")}
        for name, handler in got.items():
            await bus.register(name, handler)
        alice = bus.client("alice")
        report = await alice.multicast(["bob", "carol", "bob", "erin"], Note("you"), wait=True)
        assert {name: one.texts for name, one in got.items()} == {"bob": ["you"], "carol": ["you"], "dave": []}
        assert (report.status, report.targets_contacted) == ("partly_delivered", 2)
        assert report.errors == ("No handler registered for agent 'erin'",)
        nothing: list[str] = []
        for wrong in (nothing, "bob"):
            with pytest.raises(InvalidOption, match="multicast"):
                await alice.multicast(wrong, Note("you"))


@pytest.mark.row("S2-013")
async def test_routes_choose_by_header_and_by_content_and_the_first_match_counts(autojump_clock: MockClock) -> None:
    routes = (
        Route(when=header_is("region", "eu"), to=("eu", "audit")),
        Route(when=payload_is(Number, lambda number: number.value > 100), to=("large",)),
        Route(when=kind_is("command"), to=("commands",)),
    )
    async with open_bus(routes=routes) as (bus, _):
        got = {name: Recorder() for name in ("eu", "audit", "large", "commands")}
        for name, handler in got.items():
            await bus.register(name, handler)
        alice = bus.client("alice")
        await alice.route(Number(500), headers={"region": "eu"}, wait=True)
        await bus.route(alice.make(Number(500)), wait=True)
        await bus.route(alice.make(Number(5), kind="command"), wait=True)
        lost = await bus.route(alice.make(Number(5)), wait=True)
        assert {name: len(one.envelopes) for name, one in got.items()} == {
            "eu": 1, "audit": 1, "large": 1, "commands": 1,
        }  # fmt: skip
        assert lost.status == "failed"
        assert [letter.reason for letter in bus.dead_letters.inspect()] == ["no_route"]


@pytest.mark.row("S2-013")
async def test_filters_change_or_drop_a_message_in_order(autojump_clock: MockClock) -> None:
    def shout(envelope: Envelope[Any]) -> Envelope[Any]:
        note = envelope.payload
        return envelope.follow(environment, Note(note.text.upper()), sender="filter", recipient=envelope.recipient)

    def no_swearing(envelope: Envelope[Any]) -> Envelope[Any] | None:
        return None if envelope.payload.text == "DRAT" else envelope

    async with open_bus(filters=(shout, no_swearing)) as (bus, runtime):
        environment = runtime.environment
        got = Recorder()
        await bus.register("bob", got)
        alice = bus.client("alice")
        await alice.send("bob", Note("hello"), wait=True)
        report = await alice.send("bob", Note("drat"), wait=True)
        assert got.texts == ["HELLO"]
        assert (report.status, report.deliveries[0].reason) == ("failed", "filtered")
        assert "no_swearing" in report.errors[0]
        assert [letter.reason for letter in bus.dead_letters.inspect()] == ["filtered"]


async def test_what_a_filter_made_of_a_message_is_checked_as_well(autojump_clock: MockClock) -> None:
    def break_it(envelope: Envelope[Any]) -> Envelope[Any]:
        return envelope.follow(SimulatedEnvironment(), Note(5), sender="filter", recipient="bob")  # type: ignore[arg-type]  # on purpose

    async with open_bus(filters=(break_it,)) as (bus, _):
        got = Recorder()
        await bus.register("bob", got)
        with pytest.raises(CodecError, match="text"):
            await bus.client("alice").send("bob", Note("fine"), wait=True)
        assert (got.envelopes, bus.history()) == ([], [])


async def test_subscribers_see_publications_in_one_order_also_when_one_of_them_publishes(
    autojump_clock: MockClock,
) -> None:
    async with open_bus() as (bus, _):
        seen: dict[str, list[int]] = {"first": [], "second": []}

        def react(envelope: Envelope[Any]) -> None:
            seen["first"].append(envelope.payload.value)

        async def echo(envelope: Envelope[Any]) -> None:
            if envelope.payload.value < 1_000:
                await reactor.publish("state", Number(envelope.payload.value + 1))

        reactor = await bus.register("reactor", echo, topics=["start", "state"])
        echoing = bus.client("outside")
        await bus.register("first", react, topics=["state"])
        await bus.register("second", lambda envelope: seen["second"].append(envelope.payload.value), topics=["state"])
        await echoing.publish("state", Number(1))
        for number in range(2, 50):
            await echoing.publish("state", Number(number))
        await trio.testing.wait_all_tasks_blocked()
        assert seen["first"] == seen["second"]
        assert len(seen["first"]) == 49 * 2


async def test_what_a_batch_handler_sends_begins_a_chain_of_its_own(autojump_clock: MockClock) -> None:
    async with open_bus() as (bus, _):
        got = Recorder()

        def handler(envelopes: tuple[Envelope[Any], ...]) -> None:
            sums.send_nowait("sink", Number(sum(one.payload.value for one in envelopes)))

        await bus.register("sink", got)
        sums = await bus.register_batch("sums", handler, BatchOptions(size=2))
        for number in (1, 2):
            bus.client("alice").send_nowait("sums", Number(number))
        await trio.testing.wait_all_tasks_blocked()
        (total,) = got.envelopes
        assert (total.payload, total.correlation_id) == (Number(3), total.message_id)


@pytest.mark.row("S1-019", "S2-024", "BR-11")
async def test_what_is_delivered_together_comes_by_priority_and_in_order_within_one(
    autojump_clock: MockClock,
) -> None:
    async with open_bus() as (bus, _):
        got = Recorder()
        await bus.register("bob", got)
        alice = bus.client("alice")
        names = ("low", "normal", "high", "urgent", "normal", "urgent", "low")
        for number, priority in enumerate(names):
            alice.send_nowait("bob", Note(f"{priority} {number}"), priority=priority)  # type: ignore[arg-type]  # names
        await trio.testing.wait_all_tasks_blocked()
        assert got.texts == ["urgent 3", "urgent 5", "high 2", "normal 1", "normal 4", "low 0", "low 6"]


@pytest.mark.row("S1-019")
async def test_many_messages_sent_at_once_start_with_the_most_urgent_and_none_goes_if_one_is_bad(
    autojump_clock: MockClock,
) -> None:
    async with open_bus() as (bus, _):
        got = Recorder()
        await bus.register("bob", got)
        await bus.register("carol", got)
        alice = bus.client("alice")
        batch = [
            alice.make(Note("b"), recipient="bob"),
            alice.make(Note("a"), recipient="carol", priority="urgent"),
            alice.make(Note("c"), recipient="nobody"),
        ]
        reports = await bus.send_many(batch, wait=True)
        assert got.texts == ["a", "b"]
        assert [report.status for report in reports] == ["delivered", "delivered", "failed"]
        assert [report.message_id for report in reports] == [one.message_id for one in batch]

        bad = alice.make(Note(5), recipient="bob")  # type: ignore[arg-type]  # what a caller without types may do
        with pytest.raises(CodecError):
            await bus.send_many([alice.make(Note("d"), recipient="bob"), bad], wait=True)
        seen = (len(bus.history(limit=None)), bus.dead_letters.total, len(bus.audit_trail()))
        with pytest.raises(CodecError):
            await alice.send_many([alice.make(Note("e"), recipient="nobody"), bad], wait=True)
        assert got.texts == ["a", "b"]
        assert (len(bus.history(limit=None)), bus.dead_letters.total) == seen[:2], "nothing of it was accepted"
        assert [one.outcome for one in bus.audit_trail()[seen[2] :]] == ["refused"]
        with pytest.raises(InvalidOption, match="from 'alice'; got one from 'mallory'"):
            await alice.send_many([bus.client("mallory").make(Note("f"), recipient="bob")])
        assert await bus.send_many([]) == []


@pytest.mark.row("S2-021", "S2-022")
async def test_a_request_brings_the_typed_answer_and_the_two_are_linked(autojump_clock: MockClock) -> None:
    async with open_bus() as (bus, _):
        await bus.register("adder", lambda envelope: envelope.payload.left + envelope.payload.right)
        alice = bus.client("alice")
        total: int = await alice.request("adder", Add(2, 3))
        assert total == 5
        request, answer = bus.history(agent="adder")
        assert (request.kind, answer.kind) == ("request", "response")
        assert (answer.sender, answer.recipient) == ("adder", "alice")
        assert answer.reply_to == request.message_id
        assert answer.correlation_id == request.correlation_id
        assert answer.payload.value == 5

        await bus.register("echo", lambda envelope: envelope.payload)
        assert await alice.request("echo", Note("hi")) == Note("hi")


@pytest.mark.row("S2-021", "S2-022")
async def test_a_hundred_requests_at_once_each_get_their_own_answer(autojump_clock: MockClock) -> None:
    async def add(envelope: Envelope[Any]) -> int:
        await trio.sleep(0.01)
        return int(envelope.payload.left + envelope.payload.right)

    async with open_bus() as (bus, _):
        await bus.register("adder", add, HandlerOptions(order="none", workers=4))
        alice = bus.client("alice")
        answers: dict[int, int] = {}

        async def ask(number: int) -> None:
            answers[number] = await alice.request("adder", Add(number, number))

        async with trio.open_nursery() as nursery:
            for number in range(100):
                nursery.start_soon(ask, number)
        assert answers == {number: 2 * number for number in range(100)}
        assert trio.current_time() < 0.3, "four workers share the work"


@pytest.mark.row("S1-053", "S2-033")
async def test_a_request_that_cannot_be_answered_says_why_with_a_type(autojump_clock: MockClock) -> None:
    class Refused(Exception):
        pass

    def refuse(envelope: Envelope[Any]) -> None:
        raise Refused("no")

    async def hang(envelope: Envelope[Any]) -> None:
        await trio.sleep(60)

    async with open_bus() as (bus, runtime):
        await bus.register("refuser", refuse)
        await bus.register("hanger", hang)
        alice = bus.client("alice")
        with pytest.raises(Refused):
            await alice.request("refuser", Add(1, 1))
        with pytest.raises(AskTimeout):
            await alice.request("hanger", Add(1, 1), timeout=0.5)
        with pytest.raises(UnknownParticipant, match="No handler registered for agent 'nobody'"):
            await alice.request("nobody", Add(1, 1))
        with pytest.raises(InvalidOption, match="recipient"):
            await bus.request(alice.make(Add(1, 1)))
        member = await runtime.spawn(Member)
        await bus.register("member", member)
        assert await alice.request("member", Add(1, 1)) == 1
        await member.stop()
        with pytest.raises((Undeliverable, UnknownParticipant)):
            await alice.request("member", Add(1, 1))


@pytest.mark.row("S2-023", "S2-019", "S2-020")
async def test_a_conversation_of_replies_stays_in_one_thread(autojump_clock: MockClock) -> None:
    async with open_bus() as (bus, _):
        thread: list[str] = []

        async def answer(envelope: Envelope[Any]) -> None:
            thread.append(f"bob got {envelope.payload.text}")
            await bob.reply(envelope, Note("fine"))

        async def listen(envelope: Envelope[Any]) -> None:
            thread.append(f"alice got {envelope.payload.text}")

        alice = await bus.register("alice", listen)
        bob = await bus.register("bob", answer)
        await alice.send("bob", Note("how are you?"))
        await trio.testing.wait_all_tasks_blocked()
        assert thread == ["bob got how are you?", "alice got fine"]
        question, reply = bus.history(correlation_id=bus.history()[0].correlation_id)
        assert (reply.kind, reply.reply_to, reply.causation_id) == (
            "response", question.message_id, question.message_id,
        )  # fmt: skip


@pytest.mark.row("S1-059")
async def test_what_a_handler_sends_belongs_to_the_chain_of_what_it_handles(autojump_clock: MockClock) -> None:
    async with open_bus() as (bus, _):
        last = Recorder()

        def second(envelope: Envelope[Any]) -> None:
            two.send_nowait("three", Note("third"))

        async def first(envelope: Envelope[Any]) -> None:
            await trio.sleep(1)
            await one.publish("step", Note("second"))

        one = await bus.register("one", first)
        two = await bus.register("two", second, topics=["step"])
        await bus.register("three", last)
        alice = bus.client("alice")
        for text in ("a", "b"):
            await alice.send("one", Note(text), headers={"traceparent": f"00-{text}"})
        await trio.sleep(5)
        chains = [envelope.correlation_id for envelope in last.envelopes]
        assert len(set(chains)) == 2
        assert [len(bus.history(correlation_id=chain)) for chain in chains] == [3, 3]
        assert [envelope.headers["traceparent"] for envelope in last.envelopes] == ["00-a", "00-b"]
        assert alice.make(Note("new")).correlation_id not in chains


class Caller(Actor):
    """An actor that publishes and waits, or does not; and can be asked."""

    def __init__(self, bus: Any, *, wait: bool) -> None:
        self.me = bus.client("a")
        self.wait = wait

    @handle(Envelope)
    async def take(self, message: Envelope[Any]) -> Any:
        if message.payload.text == "go":
            return await self.me.publish("topic", Note("event"), wait=self.wait)
        return message.payload.text


@pytest.mark.row("BR-14")
@pytest.mark.parametrize("wait", [True, False])
async def test_a_circle_through_the_bus_is_named_at_once_and_harms_nobody(
    *, wait: bool, autojump_clock: MockClock
) -> None:
    answers: list[object] = []

    async def ask_c(envelope: Envelope[Any]) -> None:
        answers.append(await bus.client("b").request("c", Note("from b"), timeout=30))

    async def ask_a(envelope: Envelope[Any]) -> object:
        return await bus.client("c").request("a", Note("back"), timeout=30)

    async with open_bus() as (bus, runtime):
        caller = await runtime.spawn(partial(Caller, bus, wait=wait))
        await bus.register("a", caller)
        await bus.register("b", ask_c, topics=["topic"])
        await bus.register("c", ask_a)
        report = await bus.client("main").request("a", Note("go"), timeout=60)
        await trio.testing.wait_all_tasks_blocked()
        assert trio.current_time() < 0.1
        if wait:
            assert report.status == "failed"
            assert "AskCycle: ask cycle: bus/c/1.1 -> Caller#1 -> bus/b/1.1 -> bus/c/1.1" in report.errors[0]
            assert answers == []
        else:
            assert report.status == "delivered"
            assert answers == ["back"]
        assert await bus.client("main").request("a", Note("still there")) == "still there"
        assert caller.alive

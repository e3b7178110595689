"""The envelope: its fields, kinds and priorities, and what is refused."""

from __future__ import annotations

from typing import Any, cast

import attrs
import pytest
import trio
from trio.testing import MockClock

from sapwood.actors import Priority, SimulatedEnvironment, record
from sapwood.errors import DuplicateName, InvalidEnvelope, InvalidMessage
from sapwood.messaging.envelope import (
    Envelope,
    Schemas,
    declare_kind,
    kind_named,
    make_envelope,
    message_kinds,
    priority_from_level,
    priority_from_rank,
    priority_named,
    schema_of,
)


@record("test.envelope.order", version=2, upcasters={1: lambda fields: {**fields, "cents": fields["cents"] * 100}})
class Order:
    cents: int
    note: str = ""


class StillEnvironment(SimulatedEnvironment):
    """A clock that is set by hand, for tests without an event loop."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def wall(self) -> float:
        return self.epoch + self.now


ENVIRONMENT = StillEnvironment()


def envelope(**fields: Any) -> Envelope[Order]:
    given: dict[str, Any] = {"sender": "alice", **fields}
    return make_envelope(ENVIRONMENT, Order(5), **given)


@pytest.mark.row("S1-006", "S1-009", "S2-001")
def test_an_envelope_has_the_fields_of_all_documents_and_never_changes() -> None:
    made = envelope(recipient="bob", headers={"tenant": "north"})
    assert {field.name for field in attrs.fields(cast("Any", Envelope))} == {
        "message_id", "payload", "sender", "created_at", "recipient", "topic", "kind", "correlation_id", "causation_id",
        "reply_to", "priority", "ttl", "deadline", "header_pairs",
    }  # fmt: skip
    assert made.created_at == 1_700_000_000_000_000_000
    for field in attrs.fields(cast("Any", Envelope)):
        with pytest.raises(AttributeError):
            setattr(made, field.name, None)
    with pytest.raises(TypeError, match="item assignment"):
        cast("Any", made.headers)["tenant"] = "south"


@pytest.mark.row("S1-007")
def test_the_correlation_id_of_a_first_message_is_its_own_id() -> None:
    first = envelope()
    assert first.correlation_id == first.message_id
    assert envelope(correlation_id="chain").correlation_id == "chain"


@pytest.mark.row("S1-001")
@pytest.mark.parametrize("payload", [{"cents": 5}, "text", 5, None, [1], Order], ids=repr)
def test_a_payload_that_is_no_record_is_refused_with_what_to_write(payload: object) -> None:
    with pytest.raises(InvalidEnvelope, match=r"@record\("):
        make_envelope(ENVIRONMENT, payload, sender="alice")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("sender", ""), ("sender", 5), ("recipient", ""), ("topic", 7), ("kind", None), ("causation_id", ""),
        ("ttl", 0), ("ttl", float("nan")), ("ttl", True), ("deadline", 1.5), ("message_id", ""), ("created_at", -1),
        ("created_at", True), ("created_at", 1.0),
    ],
)  # fmt: skip
def test_a_field_of_the_wrong_kind_is_refused_by_its_name(field: str, value: object) -> None:
    fields: dict[str, Any] = {"message_id": "m", "payload": Order(1), "sender": "alice", "created_at": 0, field: value}
    with pytest.raises(InvalidEnvelope) as caught:
        Envelope(**fields)
    assert caught.value.field == field


@pytest.mark.parametrize("headers", [{"": 1}, {"a": [1]}, {"a": float("inf")}, {5: "a"}, [1, 2], "text"], ids=repr)
def test_headers_hold_names_and_plain_values_only(headers: Any) -> None:
    with pytest.raises(InvalidEnvelope, match="headers"):
        envelope(headers=headers)


@pytest.mark.row("S1-005", "S2-002")
def test_the_kinds_of_all_three_documents_are_there_and_more_can_be_declared() -> None:
    names = {kind.name for kind in message_kinds()}
    assert names >= {
        "signal", "risk_check", "risk_result", "order", "fill_report", "position_update", "market_data",
        "system_heartbeat",
    }  # fmt: skip
    assert names >= {"request", "response", "notification", "command", "event"}
    assert names >= {"request", "response", "notification", "heartbeat", "cancel", "escalation"}

    shipment = declare_kind("shop.shipment", "goods have left the house")
    assert declare_kind("shop.shipment", "goods have left the house") == kind_named("shop.shipment") == shipment
    assert envelope(kind="shop.shipment").kind == "shop.shipment"
    with pytest.raises(DuplicateName):
        declare_kind("shop.shipment", "something else")
    with pytest.raises(InvalidEnvelope, match=r"shop\.shipment"):
        declare_kind("Not A Name", "")


@pytest.mark.row("S1-011")
def test_an_unknown_kind_is_refused_with_the_list_of_those_that_exist() -> None:
    with pytest.raises(InvalidEnvelope, match="Unknown MessageType: 'gossip'") as caught:
        envelope(kind="gossip")
    assert "notification" in caught.value.expected


@pytest.mark.row("S2-003")
@pytest.mark.parametrize(
    ("value", "lane"),
    [
        ("low", Priority.LOW), ("normal", Priority.NORMAL), ("high", Priority.HIGH), ("critical", Priority.URGENT),
        ("urgent", Priority.URGENT), ("URGENT", Priority.URGENT), (Priority.HIGH, Priority.HIGH),
    ],
)  # fmt: skip
def test_every_name_of_a_priority_leads_to_one_lane_of_the_kernel(value: Any, lane: Priority) -> None:
    assert envelope(priority=value).lane is lane


def test_the_two_scales_of_numbers_lead_to_the_one_scale() -> None:
    assert [priority_from_rank(rank) for rank in (1, 2, 3, 4)] == ["low", "normal", "high", "urgent"]
    assert [priority_from_level(level) for level in (-1, 0, 1, 2, 9)] == ["low", "normal", "high", "urgent", "urgent"]


@pytest.mark.row("BR-11")
@pytest.mark.parametrize("value", [None, float("nan"), "soon", 5, True, 99, object], ids=str)
def test_a_priority_that_is_none_is_refused_before_anything_is_made(value: Any) -> None:
    with pytest.raises(InvalidEnvelope):
        envelope(priority=value)
    with pytest.raises(InvalidEnvelope):
        priority_named(value)


@pytest.mark.parametrize("value", [None, 0.0, True, "1", 0, 5])
def test_a_rank_outside_of_one_to_four_is_refused(value: Any) -> None:
    with pytest.raises(InvalidEnvelope):
        priority_from_rank(value)


@pytest.mark.parametrize("value", [None, 0.0, True, "1"])
def test_a_level_that_is_no_whole_number_is_refused(value: Any) -> None:
    with pytest.raises(InvalidEnvelope):
        priority_from_level(value)


@pytest.mark.row("S2-020", "S2-023")
def test_an_answer_is_linked_to_its_question_and_goes_back_to_the_sender() -> None:
    question = envelope(recipient="bob", kind="request", priority="high", headers={"traceparent": "00-a", "x": 1})
    answer = question.answer(ENVIRONMENT, Order(6))
    assert (answer.sender, answer.recipient, answer.kind) == ("bob", "alice", "response")
    assert (answer.reply_to, answer.causation_id) == (question.message_id, question.message_id)
    assert answer.correlation_id == question.correlation_id
    assert answer.priority == "high"
    assert dict(answer.headers) == {"traceparent": "00-a"}


@pytest.mark.row("S1-059")
def test_a_message_that_follows_another_stays_in_its_chain_and_trace() -> None:
    first = envelope(headers={"traceparent": "00-a", "tracestate": "b", "private": True})
    second = first.follow(ENVIRONMENT, Order(1), sender="bob", topic="orders")
    third = second.follow(ENVIRONMENT, Order(2), sender="carol")
    assert first.correlation_id == second.correlation_id == third.correlation_id
    assert (second.causation_id, third.causation_id) == (first.message_id, second.message_id)
    assert third.reply_to is None
    assert dict(third.headers) == {"traceparent": "00-a", "tracestate": "b"}


def test_reply_to_stands_in_answers_only_and_never_names_the_message_itself() -> None:
    with pytest.raises(InvalidEnvelope, match="reply_to"):
        envelope(kind="request", reply_to="msg_1")
    with pytest.raises(InvalidEnvelope, match="reply_to"):
        Envelope("m1", Order(1), "alice", 0, kind="response", reply_to="m1")
    assert Envelope("m2", Order(1), "alice", 0, kind="response", reply_to="m1").reply_to == "m1"


def test_an_answer_to_a_message_for_no_one_needs_a_sender() -> None:
    published = envelope(topic="news")
    with pytest.raises(InvalidEnvelope, match="sender"):
        published.answer(ENVIRONMENT, Order(1))
    assert published.answer(ENVIRONMENT, Order(1), sender="bob").recipient == "alice"


@pytest.mark.row("S1-008")
async def test_age_and_expiry_are_told_by_the_clock_of_the_environment(autojump_clock: MockClock) -> None:
    environment = SimulatedEnvironment()
    made = make_envelope(environment, Order(1), sender="alice", ttl=2.0)
    await trio.sleep(1.5)
    assert made.age_ns(environment) == pytest.approx(1_500_000_000, abs=1_000)
    assert made.age_ms(environment) == pytest.approx(1_500.0, abs=0.001)
    assert not made.expired(environment)
    await trio.sleep(0.5)
    assert made.expired(environment)


def test_age_is_never_negative_where_clocks_differ() -> None:
    ahead = attrs.evolve(cast("Any", envelope()), created_at=1_700_000_100_000_000_000)
    assert ahead.age_ns(ENVIRONMENT) == 0


@pytest.mark.parametrize(
    ("ttl", "deadline", "end"),
    [(None, None, None), (1.5, None, 1_500_000_000), (None, 9, 9), (1.0, 9, 9), (1, 2**60, 10**9)],
)
def test_the_earlier_of_time_to_live_and_deadline_ends_a_message(
    ttl: float | None, deadline: int | None, end: int | None
) -> None:
    assert Envelope("m", Order(1), "alice", 0, ttl=ttl, deadline=deadline).expires_at == end


@pytest.mark.row("S1-002")
def test_a_schema_tells_name_version_fields_and_which_are_required() -> None:
    schema = schema_of(Order)
    assert (schema.name, schema.version, schema.upgrades) == ("test.envelope.order", 2, (1,))
    assert schema.fields == {"cents": "int", "note": "str"}
    assert schema.required == ("cents",)
    assert [one.name for one in Schemas(Order)] == ["test.envelope.order"]
    with pytest.raises(InvalidMessage):
        schema_of(int)

"""The written forms of an envelope: what goes in comes out, and everything else is refused."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.actors import record
from sapwood.errors import CodecError, FutureVersion, InvalidEnvelope, MessageTooLarge
from sapwood.messaging.envelope import (
    Envelope,
    check_size,
    checksum,
    from_bytes,
    from_dict,
    from_json,
    message_kinds,
    size_of,
    to_bytes,
    to_dict,
    to_json,
)


@record("test.forms.item")
class Item:
    name: str
    price: Decimal = Decimal("1.50")


@record(
    "test.forms.order",
    version=2,
    upcasters={1: lambda fields: {"cents": fields["euros"] * 100, "items": (), "extra": None}},
)
class Order:
    cents: int
    items: tuple[Item, ...] = ()
    extra: Any = None


def order(**fields: Any) -> Envelope[Order]:
    given: dict[str, Any] = {"message_id": "m1", "payload": Order(5), "sender": "alice", "created_at": 5, **fields}
    return Envelope(**given)


TEXT = st.text(min_size=1, max_size=8)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=5)
    | st.binary(max_size=5)
    | st.dates()
    | st.datetimes(timezones=st.sampled_from([UTC, ZoneInfo("Europe/Berlin")]))
    | st.decimals(allow_nan=False)
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.frozensets(st.integers(), max_size=3)
        | st.sets(st.text(max_size=3), max_size=3)
        | st.builds(Item, TEXT)
    ),
    max_leaves=8,
)
HEADERS = st.dictionaries(TEXT, st.none() | st.booleans() | st.integers() | st.text(max_size=5), max_size=3)


@st.composite
def envelopes(draw: st.DrawFn) -> Envelope[Any]:
    kind = draw(st.sampled_from(message_kinds()))
    return Envelope(
        message_id=draw(TEXT),
        payload=Order(draw(st.integers()), tuple(draw(st.lists(st.builds(Item, TEXT), max_size=2))), draw(VALUES)),
        sender=draw(TEXT),
        created_at=draw(st.integers(0, 4_000_000_000_000_000_000)),
        recipient=draw(st.none() | TEXT),
        topic=draw(st.none() | TEXT),
        kind=kind.name,
        correlation_id=draw(st.just("") | TEXT),
        causation_id=draw(st.none() | TEXT),
        reply_to="another message" if kind.answers else None,
        priority=draw(st.sampled_from(["low", "normal", "high", "urgent"])),
        ttl=draw(st.none() | st.floats(0.001, 1e6)),
        deadline=draw(st.none() | st.integers(0, 4_000_000_000_000_000_000)),
        headers=draw(HEADERS),  # type: ignore[arg-type]  # a mapping is converted
    )


@pytest.mark.row("S2-004", "S2-005", "S1-010")
@given(envelopes())
def test_every_envelope_comes_back_equal_from_both_forms(envelope: Envelope[Any]) -> None:
    assert from_json(to_json(envelope)) == envelope
    assert from_bytes(to_bytes(envelope)) == envelope
    assert type(from_json(to_json(envelope)).payload.extra) is type(envelope.payload.extra)


@pytest.mark.row("S2-004")
@given(envelopes())
def test_reading_a_dict_leaves_the_dict_as_it_was(envelope: Envelope[Any]) -> None:
    data = json.loads(to_json(envelope))
    before = copy.deepcopy(data)
    from_dict(data)
    assert data == before


def test_the_json_form_is_plain_and_times_are_iso_8601() -> None:
    form = to_dict(order(created_at=1_700_000_000_123_456_789, payload=Order(5, (Item("tea"),))))
    assert form["created_at"] == "2023-11-14T22:13:20.123456789Z"
    assert form["priority"] == "normal"
    assert form["payload"] == {
        "type": "test.forms.order",
        "version": 2,
        "fields": {
            "cents": 5,
            "extra": None,
            "items": {
                "@tuple": [
                    {
                        "@record": {
                            "type": "test.forms.item",
                            "version": 1,
                            "fields": {"name": "tea", "price": {"@decimal": "1.50"}},
                        }
                    }
                ]
            },
        },
    }


FORM = to_dict(order(recipient="bob", kind="request", headers={"a": 1}))


def changed(path: str, value: Any) -> dict[str, Any]:
    data = copy.deepcopy(FORM)
    at: Any = data
    *way, last = path.split(".")
    for step in way:
        at = at[step]
    if value is ...:
        del at[last]
    else:
        at[last] = value
    return data


@pytest.mark.row("S1-003", "S1-011", "S2-062")
@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("colour", "red", "colour"),
        ("sender", ..., "sender"),
        ("sender", 5, "sender"),
        ("kind", "gossip", "Unknown MessageType: 'gossip'"),
        ("kind", 5, "kind"),
        ("priority", 3, "priority_from_rank"),
        ("priority", "soon", "priority"),
        ("created_at", 5, "created_at"),
        ("created_at", "2023-13-14T22:13:20.000000000Z", "created_at"),
        ("created_at", "yesterday", "created_at"),
        ("deadline", "yesterday", "deadline"),
        ("ttl", "5", "ttl"),
        ("headers", [], "headers"),
        ("headers.a", {"b": 1}, "headers"),
        ("version", "1", "version"),
        ("version", ..., "version"),
        ("payload", [], "payload"),
        ("payload.type", "test.forms.nothing", "test.forms.nothing"),
        ("payload.type", 5, "payload.type"),
        ("payload.version", "2", "payload.version"),
        ("payload.version", 0, "payload.version"),
        ("payload.colour", "red", "colour"),
        ("payload.fields", [], "payload.fields"),
        ("payload.fields.cents", "5", "payload.cents"),
        ("payload.fields.cents", True, "payload.cents"),
        ("payload.fields.cents", 5.0, "payload.cents"),
        ("payload.fields.cents", ..., "payload.cents"),
        ("payload.fields.colour", "red", "colour"),
        ("payload.fields.items", [], "payload.items"),
        ("payload.fields.extra", {"@tuple": 5}, "@tuple"),
        ("payload.fields.extra", {"@bytes": "%"}, "@bytes"),
        ("payload.fields.extra", {"@decimal": "x"}, "@decimal"),
        ("payload.fields.extra", {"@set": [[1]]}, "@set"),
        ("payload.fields.extra", {"@map": [1]}, "@map"),
        ("payload.fields.extra", {"@float": "1.5"}, "@float"),
        ("payload.fields.extra", {"@what": 1}, "@what"),
        ("payload.fields.extra", {"@tuple": [], "b": 1}, "@tuple"),
        ("payload.fields.extra", {"@record": {"type": "test.forms.item", "version": 1, "fields": {}}}, "name"),
    ],
)
def test_a_form_with_anything_wrong_is_refused_and_says_where(path: str, value: Any, said: str) -> None:
    data = changed(path, value)
    before = copy.deepcopy(data)
    with pytest.raises((InvalidEnvelope, CodecError)) as caught:
        from_dict(data)
    assert said in str(caught.value)
    assert data == before


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "5", '{"version": NaN}', '{"version": 1, "version": 1}', "[" * 100_000]
)
def test_text_that_is_no_envelope_is_refused(text: str) -> None:
    with pytest.raises(InvalidEnvelope):
        from_json(text)


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x05", to_bytes(order())[:-1], to_bytes(order()) + b"\0"], ids=len)
def test_bytes_that_are_no_envelope_are_refused(data: bytes) -> None:
    with pytest.raises(CodecError):
        from_bytes(data)


def test_a_payload_nested_without_end_is_refused_and_not_a_crash() -> None:
    nested: Any = []
    for _ in range(5_000):
        nested = [nested]
    with pytest.raises(CodecError, match="nested"):
        from_dict(changed("payload.fields.extra", nested))


@pytest.mark.row("S1-003")
def test_an_older_payload_is_upgraded_and_a_newer_one_refused() -> None:
    old = changed("payload", {"type": "test.forms.order", "version": 1, "fields": {"euros": 3}})
    assert from_dict(old).payload == Order(300)
    with pytest.raises(FutureVersion):
        from_dict(changed("payload.version", 3))
    with pytest.raises(FutureVersion):
        from_dict(changed("version", 2))


@pytest.mark.row("S1-004")
def test_a_payload_that_does_not_fit_its_schema_is_refused_when_written() -> None:
    wrong = order(payload=Order("five"))  # type: ignore[arg-type]  # what a caller without a type checker may do
    for write in (to_json, to_bytes, to_dict, checksum, size_of):
        with pytest.raises(CodecError, match="cents"):
            write(wrong)


@pytest.mark.row("S1-012")
def test_the_checksum_is_the_start_of_the_sha_256_and_changes_with_every_field() -> None:
    one = order(recipient="bob", kind="response", reply_to="m0", headers={"a": 1})
    assert checksum(one) == hashlib.sha256(to_json(one).encode()).hexdigest()[:16]
    others: Mapping[str, Any] = {
        "message_id": "m2", "payload": Order(6), "sender": "carol", "created_at": 6, "recipient": "dave", "topic": "t",
        "kind": "fill_report", "correlation_id": "c", "causation_id": "c", "reply_to": "m9", "priority": "high",
        "ttl": 1.0, "deadline": 9, "headers": {"a": 2},
    }  # fmt: skip
    sums = {checksum(attrs.evolve(one, **{name: value})) for name, value in others.items()}  # type: ignore[misc]  # attrs
    assert len(sums | {checksum(one)}) == len(others) + 1


def test_equal_envelopes_have_equal_text_and_so_one_checksum() -> None:
    one = order(payload=Order(1, extra=[{"a": 1, "b": 2}, {1: "x", 2: "y"}, {"p", "q"}]), headers={"x": 1, "y": 2})
    two = order(payload=Order(1, extra=[{"b": 2, "a": 1}, {2: "y", 1: "x"}, {"q", "p"}]), headers={"y": 2, "x": 1})
    assert one == two
    assert to_json(one) == to_json(two)
    assert checksum(one) == checksum(two)


@pytest.mark.row("S2-006")
def test_a_message_above_the_limit_is_refused_with_its_size() -> None:
    large = order(payload=Order(1, extra=b"x" * 5_000))
    assert check_size(large, 10_000) == size_of(large) > 5_000
    with pytest.raises(MessageTooLarge) as caught:
        check_size(large, 5_000)
    assert (caught.value.size, caught.value.limit) == (size_of(large), 5_000)


def test_special_values_come_back_as_they_were() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    twice = [datetime(2024, 10, 27, 2, 30, tzinfo=berlin), datetime(2024, 10, 27, 2, 30, tzinfo=berlin, fold=1)]
    extra = [float("inf"), date(2024, 2, 29), b"\0\xff", "\ud83d", {"@tuple": 1}, {1: 2}, (), 2**70, *twice]
    back = from_json(to_json(order(payload=Order(1, extra=extra)))).payload.extra
    assert back == extra
    assert [when.utcoffset() for when in back[-2:]] == [when.utcoffset() for when in twice]

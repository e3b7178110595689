"""Agents that send each other data of any size."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from sapwood.actors import RealEnvironment, record
from sapwood.errors import CodecError, InvalidOption, ReferenceCorrupt, ReferenceNotFound, ReferenceUnavailable
from sapwood.persistence import decode, encode
from sapwood.references import (
    AlwaysReference,
    AlwaysValue,
    Courier,
    MemoryReferenceStore,
    Message,
    Payload,
    PolicyManager,
    Reference,
    ReferenceConfig,
    ReferenceStore,
    SQLiteConfig,
    decode_data,
    encode_data,
    open_reference_store,
    pack,
    unpack,
)
from sapwood.testing._suite_kit import SteppedEnvironment

KB10 = 10 * 1024


@record("courier.weather")
class Weather:
    place: str
    degrees: float
    raw: bytes


@asynccontextmanager
async def couriers(**options: Any) -> AsyncGenerator[tuple[Courier, Courier]]:
    environment = SteppedEnvironment()
    store = MemoryReferenceStore(environment)
    yield Courier("one", store, environment, **options), Courier("two", store, environment, **options)
    await store.close()


def text_of_size(size: int) -> str:
    """Return a text whose JSON has so many bytes."""
    return "x" * (size - 2)


@pytest.mark.row("S0-026", "S0-027", "S0-028", "S0-003")
async def test_a_control_message_carries_its_data_and_the_store_is_never_touched() -> None:
    touched: list[Any] = []
    store = MemoryReferenceStore(SteppedEnvironment(), listener=touched.append)
    one, two = (Courier(name, store, SteppedEnvironment()) for name in ("one", "two"))
    data = {"command": "start_processing", "priority": "high", "filling": "x" * 100_000}

    message = await one.send("two", "control", data)

    assert (message.sender, message.recipient, message.type) == ("one", "two", "control")
    assert message.payload.reference is None
    assert message.payload.value == json.dumps(data, separators=(",", ":")).encode()
    assert await two.receive(message) == data
    assert touched == []


@pytest.mark.row("S0-001", "S0-010", "S0-019", "S0-026", "S0-027")
async def test_session_state_travels_as_a_reference_however_small_and_is_there_in_a_later_session(
    tmp_path: Path,
) -> None:
    environment = RealEnvironment()
    config = ReferenceConfig(sqlite=SQLiteConfig(path=str(tmp_path / "refs.db")))
    data = {"session_id": "session-123", "conversation": [""] * 100, "metadata": {}}
    async with open_reference_store(config, environment=environment) as store:
        message = await Courier("one", store, environment).send("two", "session_state", data)

    assert message.payload.value is None
    reference = message.payload.reference
    assert reference is not None
    assert reference.id == sha256(json.dumps(data, separators=(",", ":")).encode()).hexdigest()
    assert (reference.type, reference.content_type) == ("session_state", "application/json")
    carried = decode(encode(message))
    assert isinstance(carried, Message)
    async with open_reference_store(config, environment=environment) as store:
        assert await Courier("two", store, environment).receive(carried) == data


@pytest.mark.row("S0-002")
@pytest.mark.parametrize(
    ("size", "stored"), [(3, False), (KB10 - 1, False), (KB10, False), (KB10 + 1, True), (15 * 1024, True)]
)
async def test_a_tool_result_above_ten_kilobytes_is_promoted_and_one_of_that_size_is_not(
    *, size: int, stored: bool
) -> None:
    async with couriers() as (one, two):
        message = await one.send("two", "tool_result", text_of_size(size))
        assert (message.payload.reference is not None) is stored
        assert (message.payload.value is None) is stored
        assert message.payload.size == size
        assert await two.receive(message) == text_of_size(size)


@pytest.mark.row("S0-025", "S0-028")
async def test_two_agents_may_have_policies_of_their_own_on_one_store() -> None:
    inline, stored = PolicyManager(), PolicyManager()
    inline.register_policy("session_state", AlwaysValue())
    stored.register_policy("ack", AlwaysReference())
    environment = SteppedEnvironment()
    store = MemoryReferenceStore(environment)
    one = Courier("one", store, environment, policies=inline)
    two = Courier("two", store, environment, policies=stored)
    for sender, receiver, kind, reference in (
        (one, two, "session_state", False),
        (one, two, "ack", False),
        (two, one, "session_state", True),
        (two, one, "ack", True),
    ):
        message = await sender.send(receiver.name, kind, {"kind": kind})
        assert (message.payload.reference is not None) is reference
        assert await receiver.receive(message) == {"kind": kind}


@pytest.mark.row("S0-043")
async def test_a_receiver_with_another_store_is_told_so() -> None:
    async with couriers() as (one, _), couriers() as (stranger, _):
        message = await one.send("two", "dataset", [1, 2, 3])
        with pytest.raises(ReferenceNotFound, match="another store: give the agents"):
            await stranger.receive(message)


@pytest.mark.row("S0-044")
async def test_what_was_processed_is_freed_by_hand_and_what_was_not_stays_for_its_time() -> None:
    async with couriers(hold=3600.0) as (one, two):
        first = await one.send("two", "dataset", [1])
        second = await one.send("two", "dataset", [2])
        assert await two.receive(first) == [1]
        assert await two.done(first) is True
        assert await two.done(first) is False
        assert (await one.store.collect()).references == 1
        assert await two.receive(second) == [2]
        with pytest.raises(ReferenceNotFound):
            await two.receive(first)
        inline = await one.send("two", "ack", None)
        assert await two.done(inline) is False


async def test_two_messages_with_equal_data_hold_it_apart() -> None:
    async with couriers(hold=3600.0) as (one, two):
        first, second = [await one.send("two", "dataset", ["same"]) for _ in range(2)]
        await two.done(first)
        await one.store.collect()
        assert await two.receive(second) == ["same"]
        assert (await one.store.stats()).references == 1


async def test_a_closed_store_refuses_what_must_be_stored_and_nothing_else() -> None:
    async with couriers() as (one, two):
        await one.store.close()
        message = await one.send("two", "ack", "inline")
        assert await two.receive(message) == "inline"
        with pytest.raises(ReferenceUnavailable):
            await one.send("two", "session_state", "small")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda parts: st.lists(parts) | st.dictionaries(st.text(), parts),
    max_leaves=20,
)


@pytest.mark.row("S0-026", "S0-027")
@given(JSON | st.binary() | st.builds(Weather, st.text(), st.floats(allow_nan=False), st.binary()))
def test_data_comes_out_equal_and_of_the_same_type(data: object) -> None:
    value, content_type = encode_data(data)
    again = decode_data(value, content_type)

    assert again == data
    assert repr(again) == repr(data)
    assert encode_data(again) == (value, content_type)


@pytest.mark.parametrize(
    ("data", "path", "problem"),
    [
        ({"a": [1, (2,)]}, "data['a'][1]", "tuple"),
        ({"a": {1: 2}}, "data['a']", "str keys"),
        ([b"bytes"], "data[0]", "bytes"),
        ({"x": {"y": float("nan")}}, "data['x']['y']", "finite"),
        ([float("inf")], "data[0]", "finite"),
        ({1, 2}, "data", "set"),
        (object(), "data", "object"),
        ([Weather("here", 1.0, b"")], "data[0]", "Weather"),
    ],
    ids=["tuple", "int key", "bytes", "nan", "infinity", "set", "object", "record inside"],
)
async def test_data_that_would_not_come_back_the_same_is_refused_with_its_path(
    data: object, path: str, problem: str
) -> None:
    async with couriers() as (one, _):
        with pytest.raises(CodecError, match=problem) as caught:
            await one.send("two", "dataset", data)
        assert caught.value.path == path
        assert await one.store.list() == ()


def test_data_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(CodecError, match="contains itself"):
        encode_data(loop)


@pytest.mark.parametrize(
    ("value", "content_type", "problem"),
    [(b"{", "application/json", "is not JSON"), (b"\xff", "application/json", "JSON"), (b"", "image/png", "unknown")],
)
def test_bytes_that_are_not_what_their_content_type_says_are_refused(
    value: bytes, content_type: str, problem: str
) -> None:
    with pytest.raises(CodecError, match=problem):
        decode_data(value, content_type)


def test_a_payload_has_exactly_one_of_value_and_reference() -> None:
    reference = Reference("0" * 64, "blob", "text/plain", 1, 0.0)
    with pytest.raises(InvalidOption, match="exactly one"):
        Payload()
    with pytest.raises(InvalidOption, match="exactly one"):
        Payload(b"", reference)
    assert (Payload(b"").size, Payload(reference=reference).size) == (0, 1)


async def test_who_may_not_wait_sends_and_receives_what_stays_in_its_message() -> None:
    async with couriers() as (one, two):
        message = one.send_nowait("two", "status", {"done": 0.5})
        assert two.receive_nowait(message) == await two.receive(message) == {"done": 0.5}
        with pytest.raises(trio.WouldBlock):
            one.send_nowait("two", "session_state", 1)
        stored = await one.send("two", "session_state", 1)
        with pytest.raises(trio.WouldBlock):
            two.receive_nowait(stored)
        assert len(await one.store.list()) == 1


async def test_sending_and_receiving_inline_let_others_run() -> None:
    async with couriers() as (one, two):
        with trio.testing.assert_checkpoints():
            message = await one.send("two", "ack", None)
        with trio.testing.assert_checkpoints():
            await two.receive(message)
        with trio.testing.assert_checkpoints():
            await two.done(message)


async def test_packing_works_without_couriers_and_on_any_store() -> None:
    environment = SteppedEnvironment()
    store: ReferenceStore = MemoryReferenceStore(environment)
    policies = PolicyManager()

    payload = await pack(Weather("here", 20.5, b"\x00"), "dataset", store=store, policies=policies, ttl=None)

    assert payload.reference is not None
    assert payload.content_type == "application/vnd.sapwood.record"
    assert (await store.describe(payload.reference)).kept_until is None
    assert await unpack(payload, store=store) == Weather("here", 20.5, b"\x00")
    assert await unpack(await pack(b"raw", "ack", store=store, policies=policies), store=store) == b"raw"


@pytest.mark.row("S0-021")
async def test_damaged_data_is_never_received() -> None:
    async with couriers() as (one, two):
        message = await one.send("two", "dataset", ["data"])
        store: Any = one.store
        (entry,) = store._shelf._entries.values()
        (piece,) = entry.pieces
        entry.pieces = [type(piece)(piece.encoding, piece.crc, b'["dada"]')]
        with pytest.raises(ReferenceCorrupt):
            await two.receive(message)
        with pytest.raises(ReferenceCorrupt):
            await two.receive(message)


@pytest.mark.parametrize("hold", [0, -1, True, float("inf"), "1"])
def test_a_hold_that_is_no_time_is_refused(hold: Any) -> None:
    environment = SteppedEnvironment()
    with pytest.raises(InvalidOption, match="hold"):
        Courier("one", MemoryReferenceStore(environment), environment, hold=hold)

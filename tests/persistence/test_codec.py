from __future__ import annotations

import math
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, NewType
from zoneinfo import ZoneInfo

import attrs
import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.actors import record
from sapwood.conversation import AssistantMessage, Message, ToolCall, ToolResult, UserMessage
from sapwood.errors import CodecError, FutureVersion
from sapwood.persistence import decode, describe, encode

Cents = NewType("Cents", int)


@record("test.holder")
class Holder:
    value: Any


@record("test.added")
class Added:
    message: Message
    run: str


@record("test.typed")
class Typed:
    number: int = 0
    flag: bool = False
    ratio: float = 0.0
    text: str = ""
    data: bytes = b""
    nothing: None = None
    maybe: int | None = None
    texts: list[str] = attrs.field(factory=list[str])
    pair: tuple[int, str] = (0, "")
    many: tuple[int, ...] = ()
    empty: tuple[()] = ()
    table: dict[str, list[int]] = attrs.field(factory=dict[str, list[int]])
    mapping: Mapping[int, str] = attrs.field(factory=dict[int, str])
    sequence: Sequence[int] = ()
    tags: frozenset[str] = frozenset()
    when: datetime | None = None
    day: date | None = None
    price: Decimal = Decimal(0)
    status: Literal["open", "done", 1] = "open"
    cents: Cents = Cents(0)
    noted: Annotated[int, "a note"] = 0
    anything: object = None


@record("test.tree")
class Tree:
    label: str
    children: tuple[Tree, ...] = ()


@record("test.base")
class Base:
    number: int


@record("test.derived")
class Derived(Base):
    text: str


class Undeclared(Base):
    """Inherits a wire name but declares none."""


@record("test.private")
class Private:
    _hidden: int
    shown: int = attrs.field(alias="visible", default=2)


def positive(instance: Checked, attribute: attrs.Attribute[int], value: int) -> None:
    if value <= 0:
        raise ValueError("number must be positive")


@record("test.checked")
class Checked:
    number: int = attrs.field(validator=positive)


class Colour(Enum):
    RED = 1


class OddZone(tzinfo):
    def utcoffset(self, dt: datetime | None) -> timedelta:
        return timedelta(hours=1)

    def tzname(self, dt: datetime | None) -> str:
        return "odd"

    def dst(self, dt: datetime | None) -> timedelta:
        return timedelta()


def untyped(cls: Callable[..., Any], *arguments: Any, **fields: Any) -> Any:
    """Make an instance past the type checkers."""
    return cls(*arguments, **fields)


def typed(**fields: Any) -> Typed:
    return Typed(**fields)


def forged(name: str, version: int, fields: dict[str, Any]) -> bytes:
    """Bytes as a record of another program, or of another version of this one, would have them."""
    return msgpack.packb(msgpack.ExtType(1, msgpack.packb([name, version, fields])))


def same(left: Any, right: Any) -> bool:
    """Equality that also compares types, order of keys, folds, and takes nan as equal to itself."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return len(left) == len(right) and all(
            same(one, other) for one, other in zip(left.items(), right.items(), strict=True)
        )
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(same(one, other) for one, other in zip(left, right, strict=True))
    if isinstance(left, float | Decimal):
        return repr(left) == repr(right)
    if isinstance(left, datetime):
        return repr(left) == repr(right) and left.fold == right.fold
    if attrs.has(type(left)):
        return same(attrs.asdict(left, recurse=False), attrs.asdict(right, recurse=False))
    return bool(left == right)


zones = st.one_of(
    st.none(),
    st.just(UTC),
    st.timedeltas(timedelta(hours=-23), timedelta(hours=23)).map(timezone),
    st.just(timezone(timedelta(hours=1), "CET")),
    st.sampled_from(["Europe/Berlin", "America/St_Johns", "UTC"]).map(ZoneInfo),
)
moments = st.builds(
    lambda moment, zone, fold: moment.replace(tzinfo=zone, fold=fold), st.datetimes(), zones, st.integers(0, 1)
)
texts = st.text(st.characters(exclude_categories=())) | st.sampled_from(
    ["ok \ud83d", "\ud83d\ude00", "a\x00b", "\udcff"]
)
leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(2**300), 2**300),
    st.sampled_from([2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1]),
    st.floats(),
    texts,
    st.binary(),
    moments,
    st.dates(),
    st.decimals() | st.just(Decimal("1.10")),
)
keys = st.one_of(
    st.integers(), texts, st.booleans(), st.binary(), st.dates(), st.tuples(st.integers(), texts), st.frozensets(texts)
)
values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner),
        st.lists(inner).map(tuple),
        st.dictionaries(keys, inner),
        st.sets(keys),
        st.frozensets(keys),
        st.builds(ToolCall, texts, texts, st.dictionaries(texts, inner)),
    ),
    max_leaves=20,
)


@pytest.mark.row("BR-29", "BR-31")
@given(values)
def test_every_supported_value_comes_back_equal_and_of_the_same_type(value: Any) -> None:
    assert same(decode(encode(Holder(value))).value, value)


@pytest.mark.row("BR-29")
@pytest.mark.parametrize(
    "value",
    [
        2**63,
        2**64,
        -(2**63) - 1,
        int.from_bytes(b"\xff" * 32, "big"),
        -(2**256),
        {1: "a", "1": "b"},
        {(1, "x"): 1, True: 2, b"k": 3},
        (1, [2, (3,)], {4}, frozenset({5})),
        b"a\x00b",
        Decimal("1.10"),
        Decimal("-0"),
        math.inf,
        -0.0,
        datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin")),
        datetime(2026, 10, 25, 2, 30, tzinfo=timezone(timedelta(hours=5, minutes=45, seconds=7), "odd")),
        datetime(2026, 10, 25, 2, 30),  # noqa: DTZ001 - naive on purpose
        date(1, 1, 1),
    ],
    ids=repr,
)
def test_the_values_that_codecs_usually_lose_are_kept(value: Any) -> None:
    back = decode(encode(Holder(value))).value

    assert same(back, value)
    if isinstance(value, datetime):
        assert (back.utcoffset(), back.tzname(), back.fold) == (value.utcoffset(), value.tzname(), value.fold)


@pytest.mark.row("BR-29")
def test_nan_comes_back_as_nan() -> None:
    assert math.isnan(decode(encode(Holder(math.nan))).value)


@pytest.mark.row("BR-31")
@pytest.mark.parametrize("text", ["ok \ud83d", "name-\udcff.txt", "a\x00b", "\ud83d\ude00", ""], ids=ascii)
def test_text_with_lone_surrogates_or_nul_comes_back_exactly(text: str) -> None:
    event = Added(ToolResult(call_id=text, name=text, content=text), run=text)

    assert decode(encode(event)) == event


def test_equal_sets_have_equal_bytes() -> None:
    names = [f"name-{number}" for number in range(50)]

    backwards = list(reversed(names))

    assert encode(Holder(set(names))) == encode(Holder(set(backwards)))


def test_a_nested_record_keeps_its_class_within_a_union() -> None:
    for message in (
        UserMessage("hello"),
        AssistantMessage("hm", tool_calls=(ToolCall("c1", "write", {"path": "a", "n": [1, (2,)]}),)),
        ToolResult("c1", "write", "done"),
    ):
        back = decode(encode(Added(message, "r1")))
        assert type(back.message) is type(message)
        assert back == Added(message, "r1")


def test_a_record_may_contain_records_of_its_own_class() -> None:
    tree = Tree("root", (Tree("left", (Tree("leaf"),)), Tree("right")))

    assert decode(encode(tree)) == tree


def test_every_kind_of_annotation_round_trips() -> None:
    typed = Typed(
        number=2**70,
        flag=True,
        ratio=1,
        text="t",
        data=b"d",
        maybe=3,
        texts=["a"],
        pair=(1, "b"),
        many=(1, 2),
        table={"a": [1]},
        mapping={1: "x"},
        sequence=[1],
        tags=frozenset({"a"}),
        when=datetime(2026, 1, 1, tzinfo=UTC),
        day=date(2026, 1, 1),
        price=Decimal("1.10"),
        status=1,
        cents=Cents(5),
        noted=6,
        anything={"x": Base(1)},
    )

    assert same(decode(encode(typed)), typed)


def test_an_int_where_a_float_is_annotated_stays_an_int() -> None:
    assert type(decode(encode(Typed(ratio=1))).ratio) is int


def test_a_subclass_is_stored_under_its_own_name() -> None:
    assert decode(encode(Derived(1, "x"))) == Derived(1, "x")


def test_private_and_renamed_fields_are_restored_through_the_constructor() -> None:
    private = untyped(Private, hidden=1, visible=3)

    assert decode(encode(private)) == private


@pytest.mark.parametrize(
    ("bad", "path", "problem"),
    [
        (typed(number="42"), ".number", "expected int; got str '42'"),
        (typed(number=True), ".number", "expected int; got bool True"),
        (typed(flag=1), ".flag", "expected bool; got int 1"),
        (typed(text=42), ".text", "expected str; got int 42"),
        (typed(ratio=True), ".ratio", "expected float; got bool True"),
        (typed(data=bytearray(b"x")), ".data", "expected bytes; got bytearray"),
        (typed(texts=("a",)), ".texts", "expected list; got tuple"),
        (typed(texts=["a", 1]), ".texts[1]", "expected str; got int 1"),
        (typed(many=[1]), ".many", "expected tuple; got list"),
        (typed(pair=(1, "b", 3)), ".pair", "expected a tuple of 2; got tuple"),
        (typed(pair=("a", "b")), ".pair[0]", "expected int; got str 'a'"),
        (typed(pair=(True, "b")), ".pair[0]", "expected int; got bool True"),
        (typed(maybe=False), ".maybe", "expected one of int, NoneType; got bool"),
        (typed(table={"a": [1, "2"]}), ".table.a[1]", "expected int; got str '2'"),
        (typed(table={1: []}), ".table[1]", "expected str; got int 1"),
        (typed(table=OrderedDict()), ".table", "expected dict; got collections.OrderedDict"),
        (typed(maybe="x"), ".maybe", "expected one of int, NoneType; got str"),
        (typed(status="lost"), ".status", "expected one of 'open', 'done', 1; got str 'lost'"),
        (typed(status=True), ".status", "expected one of 'open', 'done', 1; got bool True"),
        (typed(cents=Decimal(1)), ".cents", "expected int; got decimal.Decimal Decimal('1')"),
        (typed(when=date(2026, 1, 1)), ".when", "expected one of datetime, NoneType; got datetime.date"),
        (untyped(Added, "hi", "r"), ".message", "expected one of UserMessage, AssistantMessage, ToolResult; got str"),
        (Added(untyped(UserMessage, 3), "r"), ".message.text", "expected str; got int 3"),
        (Tree("a", (untyped(Tree, "b", (Base(1),)),)), ".children[0].children[0]", "expected record 'test.tree'"),
    ],
)
@pytest.mark.row("BR-29", "UP-70")
def test_a_value_that_does_not_fit_its_annotation_is_refused_with_its_path(
    bad: object, path: str, problem: str
) -> None:
    with pytest.raises(CodecError) as caught:
        encode(bad)

    assert caught.value.path.endswith(path)
    assert caught.value.path.startswith("test.")
    assert caught.value.problem.startswith(problem)


@pytest.mark.parametrize(
    "value",
    [
        object(),
        Colour.RED,
        Fraction(1, 3),
        PurePosixPath("a"),
        range(3),
        bytearray(b"x"),
        memoryview(b"x"),
        OrderedDict(),
        msgpack.ExtType(1, b"x"),
        msgpack.Timestamp(1),
        timedelta(1),
        datetime(2026, 1, 1, tzinfo=OddZone()),
        Undeclared(1),
        print,
        Holder,
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.row("BR-29")
def test_an_unsupported_value_is_refused_with_the_path_to_it(value: object) -> None:
    call = ToolCall("c1", "save", {"x": [0, {"y z": (1, value)}]})
    with pytest.raises(CodecError) as caught:
        encode(Added(AssistantMessage(tool_calls=(ToolCall("c0", "n"), call)), "r1"))

    assert caught.value.path == "test.added.message.tool_calls[1].arguments.x[1]['y z'][1]"


def test_a_value_that_cannot_even_be_shown_is_still_refused_with_its_path() -> None:
    huge = 10**5000  # Python refuses to print it
    for bad, path in ((typed(text=huge), "test.typed.text"), (Holder({huge: object()}), "test.holder.value[a int]")):
        with pytest.raises(CodecError) as caught:
            encode(bad)
        assert caught.value.path == path


def test_only_instances_of_declared_records_can_be_stored() -> None:
    for value in (1, {"a": 1}, Undeclared(1), Base, attrs.make_class("Plain", ["x"])(1)):
        with pytest.raises(CodecError, match="declared with @record"):
            encode(value)


def test_a_value_that_contains_itself_or_nests_too_deeply_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    tree = Tree("leaf")
    for _ in range(60):
        tree = Tree("node", (tree,))
    for value in (Holder(endless), tree):
        with pytest.raises(CodecError, match="nested deeper than 100 levels"):
            encode(value)


def test_the_deepest_value_that_is_written_can_be_read() -> None:
    deep: Any = 1
    for _ in range(99):
        deep = (deep,)

    assert decode(encode(Holder([deep]))).value == [deep]


def test_the_deepest_value_needs_little_stack() -> None:
    program = Path(__file__).parent / "programs" / "deep_on_small_stack.py"
    done = subprocess.run([sys.executable, str(program)], check=False, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_class_whose_annotation_cannot_be_checked_is_refused_by_name() -> None:
    @record("test.unresolved")
    class Unresolved:
        value: Missing  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(CodecError, match=r"test.unresolved: annotations cannot be resolved .*Missing"):
        encode(Unresolved(1))

    @record("test.derived_field")
    class DerivedField:
        value: int = attrs.field(init=False, default=1)

    with pytest.raises(CodecError, match=r"test.derived_field.value: is not an argument"):
        encode(DerivedField())


# --- reading --------------------------------------------------------------------------------------------


def upgrade_1(fields: dict[str, Any]) -> dict[str, Any]:
    return {"text": fields["body"], "kind": "plain"}


def upgrade_2(fields: dict[str, Any]) -> dict[str, Any]:
    return {**fields, "text": fields["text"].upper()}


@record("test.note", version=3, upcasters={1: upgrade_1, 2: upgrade_2})
class Note:
    text: str
    kind: str
    stars: int = 0


@record("test.book")
class Book:
    notes: dict[str, tuple[Note, ...]]


@pytest.mark.row("AR-22.16", "UP-68")
def test_an_old_record_is_upgraded_version_by_version_wherever_it_lies() -> None:
    assert decode(forged("test.note", 1, {"body": "hi"})) == Note("HI", "plain")
    assert decode(forged("test.note", 2, {"text": "hi", "kind": "x"})) == Note("HI", "x")
    assert decode(encode(Note("hi", "x", 2))) == Note("hi", "x", 2)

    old = msgpack.ExtType(1, msgpack.packb(["test.note", 1, {"body": "hi"}]))
    book = forged("test.book", 1, {"notes": {"a": msgpack.ExtType(3, msgpack.packb([old]))}})
    assert decode(book) == Book({"a": (Note("HI", "plain"),)})


def test_an_upcaster_that_fails_is_a_typed_error_with_its_version() -> None:
    with pytest.raises(CodecError, match=r"test.note: its upcaster from version 1 failed: KeyError\('body'\)"):
        decode(forged("test.note", 1, {}))


@pytest.mark.row("UP-68")
def test_a_record_of_a_future_version_is_refused_wherever_it_lies() -> None:
    future = msgpack.ExtType(1, msgpack.packb(["test.note", 4, {}]))
    for data in (forged("test.note", 4, {}), forged("test.holder", 1, {"value": [future]})):
        with pytest.raises(FutureVersion) as caught:
            decode(data)
        assert (caught.value.name, caught.value.found, caught.value.known) == ("test.note", 4, 3)


@pytest.mark.parametrize(
    ("data", "path", "problem"),
    [
        (forged("test.unknown", 1, {}), "test.unknown", "no class has the wire name 'test.unknown'"),
        (forged("test.base", 1, {}), "test.base.number", "is missing and has no default"),
        (forged("test.base", 1, {"number": 1, "extra": 2}), "test.base", "has unknown fields 'extra'"),
        (forged("test.base", 1, {"number": "1"}), "test.base.number", "expected int; got str '1'"),
        (forged("test.typed", 1, {"table": {"a": [1, "2"]}}), "test.typed.table.a[1]", "expected int; got str '2'"),
        (forged("test.checked", 1, {"number": 0}), "test.checked", "its class refused the fields: ValueError"),
        (b"", "record", "cannot be read"),
        (b"\xc1", "record", "cannot be read"),
        (encode(Base(1))[:-1], "record", "cannot be read"),
        (encode(Base(1)) + b"\x00", "record", "cannot be read"),
        (msgpack.packb({"a": 1}), "record", "the bytes hold a bare dict, not a record"),
        (msgpack.packb(msgpack.ExtType(99, b"")), "record", "cannot be read"),
        (forged("test.holder", 1, {"value": msgpack.ExtType(8, b"many")}), "record", "cannot be read"),
    ],
)
def test_bytes_that_are_no_fitting_record_are_refused_with_the_place(data: bytes, path: str, problem: str) -> None:
    with pytest.raises(CodecError) as caught:
        decode(data)

    assert caught.value.path == path
    assert caught.value.problem.startswith(problem)


def test_the_place_of_an_inner_record_that_cannot_be_read_is_a_whole_path() -> None:
    bad = msgpack.ExtType(1, msgpack.packb(["conversation.tool_call", 1, {"id": "c", "name": 7}]))
    calls = msgpack.ExtType(3, msgpack.packb([bad]))
    message = msgpack.ExtType(1, msgpack.packb(["conversation.assistant_message", 1, {"tool_calls": calls}]))

    with pytest.raises(CodecError) as caught:
        decode(forged("test.added", 1, {"message": message, "run": "r"}))

    assert caught.value.path == "test.added.message.tool_calls[0].name"


def test_a_missing_field_takes_its_default() -> None:
    assert decode(forged("test.note", 3, {"text": "a", "kind": "b"})) == Note("a", "b", 0)


@given(st.binary(max_size=60))
def test_any_bytes_at_all_give_a_record_or_a_typed_error(data: bytes) -> None:
    with suppress(CodecError, FutureVersion):
        decode(data)


@given(values, st.data())
def test_changed_bytes_give_a_record_or_a_typed_error(value: Any, data: st.DataObject) -> None:
    whole = bytearray(encode(Holder(value)))
    whole[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
    with suppress(CodecError, FutureVersion):
        decode(bytes(whole))


def test_a_record_can_be_described_without_its_class() -> None:
    data = forged("test.gone", 7, {"a": (1, {"b": b"c"}), "n": msgpack.ExtType(1, msgpack.packb(["x.y", 1, {}]))})

    assert describe(data) == {"@record": "test.gone/7", "a": [1, {"b": b"c"}], "n": {"@record": "x.y/1"}}
    with pytest.raises(CodecError):
        describe(b"\xc1")


def test_bytes_nested_beyond_any_stack_are_a_typed_error() -> None:
    data = msgpack.packb(1)
    for _ in range(3000):
        data = msgpack.packb(msgpack.ExtType(3, b"\x91" + data))
    for read in (decode, describe):
        with pytest.raises(CodecError, match="cannot be read"):
            read(data)

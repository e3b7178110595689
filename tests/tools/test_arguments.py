"""How a model's arguments are read: strictly, and with every problem at once."""

from __future__ import annotations

import enum
import json
from types import GenericAlias
from typing import Any, Literal, TypedDict

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.tools import Tool, tool


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@attrs.frozen
class Item:
    sku: str
    count: int = attrs.field(default=1, validator=attrs.validators.gt(0))
    _note: str = ""


class Address(TypedDict):
    city: str


def reader(annotation: Any) -> Tool[..., Any]:
    def function(value: Any) -> None: ...

    function.__annotations__["value"] = annotation
    return tool(function)


def read(annotation: Any, value: Any) -> Any:
    read, problems = reader(annotation).read({"value": value})
    assert problems == ()
    return read["value"]


def problem(annotation: Any, value: Any) -> str:
    _, problems = reader(annotation).read({"value": value})
    assert len(problems) == 1
    return problems[0]


@pytest.mark.parametrize(
    ("annotation", "value", "expected"),
    [
        (int, 3.0, 3),
        (int, 10**30, 10**30),
        (float, 3, 3.0),
        (bool, True, True),
        (tuple[int, ...], [1, 2.0], (1, 2)),
        (tuple[str, int], ["a", 1], ("a", 1)),
        (list[float], [1], [1.0]),
        (dict[str, int], {"a": 1.0}, {"a": 1}),
        (Colour, "red", Colour.RED),
        (Literal[1, "1"], "1", "1"),
        (int | float, 3.0, 3.0),
        (int | float, 3, 3),
        (float | int, 3, 3),
        (int | None, None, None),
        (Item, {"sku": "a", "note": "n"}, Item("a", 1, "n")),
        (list[Item] | None, [{"sku": "a", "count": 2.0}], [Item("a", 2)]),
        (Address, {"city": "Bern"}, {"city": "Bern"}),
        (Any, {"x": [1, None]}, {"x": [1, None]}),
    ],
)
def test_a_fitting_value_is_read_and_converted_only_where_nothing_is_lost(
    annotation: Any, value: Any, expected: Any
) -> None:
    got = read(annotation, value)

    assert got == expected
    assert type(got) is type(expected)


@pytest.mark.parametrize(
    ("annotation", "value", "text"),
    [
        (int, "75 dollars", "argument 'value': expected an integer, got '75 dollars'"),
        (int, "75", "argument 'value': expected an integer, got '75'"),
        (int, 2.5, "argument 'value': expected an integer, got 2.5"),
        (int, True, "argument 'value': expected an integer, got true"),
        (int, float("inf"), "argument 'value': expected an integer, got inf"),
        (float, False, "argument 'value': expected a finite number, got false"),
        (float, float("nan"), "argument 'value': expected a finite number, got nan"),
        (float, 10**400, "argument 'value': expected a finite number, got a very large integer"),
        (str, 5, "argument 'value': expected text, got 5"),
        (str, None, "argument 'value': expected text, got null"),
        (bool, 1, "argument 'value': expected true or false, got 1"),
        (None, 0, "argument 'value': expected null, got 0"),
        (list[int], "1,2", "argument 'value': expected a list (each item: an integer), got '1,2'"),
        (list[int], [1, "2"], "argument 'value[1]': expected an integer, got '2'"),
        (tuple[int, int], [1], "argument 'value': expected a list of 2, got a list of 1"),
        (dict[str, int], {"a": None}, "argument 'value.a': expected an integer, got null"),
        (dict[str, int], [], "argument 'value': expected an object (each value: an integer), got a list of 0"),
        (Literal["a", 1], True, "argument 'value': expected one of 'a', 1, got true"),
        (Colour, "RED", "argument 'value': expected one of 'red', 'blue', got 'RED'"),
        (int | str, [], "argument 'value': expected an integer or text, got a list of 0"),
        (Item, "a", "argument 'value': expected an object with sku, count, note, got 'a'"),
        (Item, {"sku": "a", "cuont": 1}, "argument 'value.cuont': unknown, did you mean 'count'?"),
        (Item | None, {"sku": 1}, "argument 'value.sku': expected text, got 1"),
        (Address, {}, "argument 'value.city': missing, expected text"),
        (str | int, {"x" * 100: 1}, "argument 'value': expected text or an integer, got an object"),
    ],
)
def test_a_value_that_does_not_fit_is_named_with_what_was_expected_and_got(
    annotation: Any, value: Any, text: str
) -> None:
    assert problem(annotation, value) == text


def test_a_class_that_refuses_its_values_gives_a_problem_with_its_place() -> None:
    assert problem(list[Item], [{"sku": "a", "count": 0}]).startswith("argument 'value[0]': 'count' must be > 0")


def test_a_class_whose_constructor_breaks_gives_a_problem_too() -> None:
    def explode(_: object, __: object, value: int) -> None:
        raise ZeroDivisionError(value)

    @attrs.frozen
    class Broken:
        value: int = attrs.field(validator=explode)

    Broken.__annotations__["value"] = int
    assert problem(Broken, {"value": 3}) == "argument 'value': 3"


def test_lack_of_memory_passes() -> None:
    def exhaust(_: object, __: object, value: int) -> None:
        raise MemoryError

    @attrs.frozen
    class Large:
        value: int = attrs.field(validator=exhaust)

    Large.__annotations__["value"] = int
    with pytest.raises(MemoryError):
        reader(Large).read({"value": {"value": 3}})


@tool
def refund(order: str, cents: int, reason: str = "") -> str:
    return f"{order}{cents}{reason}"


def test_all_problems_are_told_at_once() -> None:
    _, problems = refund.read({"ordr": "17", "cents": "many", "reason": None})

    assert problems == (
        "argument 'order': missing, expected text",
        "argument 'ordr': unknown, did you mean 'order'?",
        "argument 'cents': expected an integer, got 'many'",
        "argument 'reason': expected text, got null",
    )


def test_an_unknown_argument_that_looks_like_none_is_told_what_there_is() -> None:
    @tool
    def nothing() -> None: ...

    assert refund.read({"order": "1", "cents": 1, "zzz": 1})[1] == (
        "argument 'zzz': unknown, expected only 'order', 'cents', 'reason'",
    )
    assert nothing.read({"zzz": 1})[1] == ("argument 'zzz': unknown, expected only no arguments",)


def test_reading_leaves_the_arguments_of_the_model_as_they_are() -> None:
    arguments = {"order": "1", "cents": 1.0}

    refund.read(arguments)

    assert arguments == {"order": "1", "cents": 1.0}


# --- schema and reader agree ----------------------------------------------------------------------

Json = Any
scalars: st.SearchStrategy[Any] = st.sampled_from(
    [str, int, float, bool, None, Colour, Literal["a", "b", 3], Address, Item]
)
anything: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: st.one_of(
        inner.map(lambda each: GenericAlias(list, (each,))),
        inner.map(lambda each: GenericAlias(tuple, (each, Ellipsis))),
        inner.map(lambda each: GenericAlias(dict, (str, each))),
        st.tuples(inner, inner).map(lambda pair: GenericAlias(tuple, pair)),
        inner.map(lambda each: each | None if each is not None else None),
    ),
    max_leaves=4,
)
values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.sampled_from([1.0, 2.5, "red", "a", "b", ""])
    | st.fixed_dictionaries({"city": st.sampled_from(["Bern", 1])})
    | st.fixed_dictionaries({"sku": st.just("s")}, optional={"count": st.sampled_from([1, 2.0, "x"])}),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["city", "sku", "k"]), inner),
    max_leaves=6,
)


def fits(schema: dict[str, Any], value: Any) -> bool:
    """Say whether JSON Schema's rules, for the keywords in use here, accept the value."""
    if "anyOf" in schema:
        return any(fits(option, value) for option in schema["anyOf"])
    if "enum" in schema:
        return any(type(each) is type(value) and each == value for each in schema["enum"])
    match schema.get("type"):
        case "string":
            return isinstance(value, str)
        case "boolean" | "null":
            return isinstance(value, bool) if schema["type"] == "boolean" else value is None
        case "integer":
            return not isinstance(value, bool) and isinstance(value, int | float) and float(value).is_integer()
        case "number":
            return not isinstance(value, bool) and isinstance(value, int | float)
        case "array":
            return isinstance(value, list) and _fits_array(schema, value)
        case _:
            return isinstance(value, dict) and _fits_object(schema, value)


def _fits_array(schema: dict[str, Any], items: list[Any]) -> bool:
    if "prefixItems" in schema:
        places = schema["prefixItems"]
        return len(items) == schema["minItems"] == schema["maxItems"] and all(map(fits, places, items))
    return all(fits(schema["items"], item) for item in items)


def _fits_object(schema: dict[str, Any], entries: dict[str, Any]) -> bool:
    properties: dict[str, Any] = schema.get("properties", {})
    others = schema["additionalProperties"]
    return set(schema.get("required", ())) <= set(entries) and all(
        fits(properties[key], value) if key in properties else others is not False and fits(others, value)
        for key, value in entries.items()
    )


@given(anything, values)
def test_a_value_is_read_without_problems_exactly_if_the_schema_accepts_it(annotation: Any, value: Any) -> None:
    each = reader(annotation)
    schema: dict[str, Any] = each.spec.parameters["properties"]["value"]

    _, problems = each.read({"value": value})

    assert (problems == ()) == fits(schema, value)


@given(anything)
def test_every_schema_is_json(annotation: Any) -> None:
    schema = reader(annotation).spec.parameters

    assert json.loads(json.dumps(schema, allow_nan=False)) == schema


written = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(anything, st.dictionaries(st.sampled_from(["value", "other"]), written))
def test_no_arguments_whatever_make_the_reader_raise(annotation: Any, arguments: dict[str, Json]) -> None:
    _, problems = reader(annotation).read(arguments)

    assert all(isinstance(each, str) for each in problems)

"""From a function to a tool: schemas, descriptions, and what is refused."""

from __future__ import annotations

import enum
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, NewType, NotRequired, Required, TypedDict

import attrs
import pytest

from sapwood.errors import InvalidOption, InvalidTool
from sapwood.tools import ToolContext, tool

if TYPE_CHECKING:
    from decimal import Decimal


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@attrs.frozen
class Item:
    """One line of an order.

    Attributes:
        sku: Number of the article.
    """

    sku: str
    count: int = 1


class Options(TypedDict, total=False):
    """Options. gift: wrap it as a present."""

    gift: Required[bool]
    note: str


class Mixed(TypedDict):
    needed: int
    free: NotRequired[int]


@attrs.frozen
class Node:
    children: list[Node]


OrderId = NewType("OrderId", str)


def schema_of(annotation: Any) -> Any:
    def function(value: Any) -> None: ...

    function.__annotations__["value"] = annotation
    return tool(function).spec.parameters["properties"]["value"]


@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        (str, {"type": "string"}),
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (bool, {"type": "boolean"}),
        (None, {"type": "null"}),
        (Any, {}),
        (object, {}),
        (OrderId, {"type": "string"}),
        (list, {"type": "array", "items": {}}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (Sequence[int], {"type": "array", "items": {"type": "integer"}}),
        (tuple[str, ...], {"type": "array", "items": {"type": "string"}}),
        (
            tuple[str, int],
            {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "minItems": 2, "maxItems": 2},
        ),
        (dict, {"type": "object", "additionalProperties": {}}),
        (dict[str, float], {"type": "object", "additionalProperties": {"type": "number"}}),
        (Mapping[str, float], {"type": "object", "additionalProperties": {"type": "number"}}),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
        (Literal["a", 1], {"enum": ["a", 1]}),
        (Colour, {"type": "string", "enum": ["red", "blue"]}),
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        (int | str, {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
        (Annotated[int, "in cents"], {"type": "integer", "description": "in cents"}),
        (list[Annotated[int, "in cents"]], {"type": "array", "items": {"type": "integer", "description": "in cents"}}),
        (
            Item,
            {
                "type": "object",
                "properties": {
                    "sku": {"type": "string", "description": "Number of the article."},
                    "count": {"type": "integer", "default": 1},
                },
                "required": ["sku"],
                "additionalProperties": False,
            },
        ),
        (
            Options,
            {
                "type": "object",
                "properties": {
                    "gift": {"type": "boolean", "description": "wrap it as a present"},
                    "note": {"type": "string"},
                },
                "required": ["gift"],
                "additionalProperties": False,
            },
        ),
        (
            Mixed,
            {
                "type": "object",
                "properties": {"needed": {"type": "integer"}, "free": {"type": "integer"}},
                "required": ["needed"],
                "additionalProperties": False,
            },
        ),
    ],
)
def test_an_annotation_becomes_this_schema(annotation: object, schema: object) -> None:
    assert schema_of(annotation) == schema


def test_a_signature_becomes_an_object_with_the_parameters_that_have_no_default_required() -> None:
    @tool
    def order(items: list[str], colour: Colour = Colour.RED, *, note: str | None = None) -> None: ...

    assert order.spec.parameters == {
        "type": "object",
        "properties": {
            "items": {"type": "array", "items": {"type": "string"}},
            "colour": {"type": "string", "enum": ["red", "blue"], "default": "red"},
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
        },
        "required": ["items"],
        "additionalProperties": False,
    }


def test_a_default_that_json_cannot_say_is_not_shown() -> None:
    @tool
    def wait(seconds: float = float("inf")) -> None: ...

    assert wait.spec.parameters["properties"] == {"seconds": {"type": "number"}}
    assert wait.spec.parameters["required"] == []


def test_a_tool_is_named_and_described_by_its_function_unless_it_says_otherwise() -> None:
    @tool
    def refund(order: str, cents: int) -> str:
        """Refund part of an order. cents: amount in US cents."""
        return f"{cents} of {order}"

    @tool(name="pay-back", description="Give money back.")
    def other(cents: int) -> None:
        """Ignored. cents: amount."""

    assert (refund.name, refund.description) == ("refund", "Refund part of an order.")
    assert refund.spec.parameters["properties"]["cents"]["description"] == "amount in US cents"
    assert (other.name, other.description) == ("pay-back", "Give money back.")
    assert other.spec.parameters["properties"]["cents"]["description"] == "amount"


def test_the_section_form_of_a_docstring_describes_parameters_over_several_lines() -> None:
    @tool
    def search(pattern: str, limit: int, context: ToolContext) -> None:
        """Search all files.

        Slow for large ones.

        Args:
            pattern: What to look for,
                as a glob.
            limit (int): Most hits to return.
            context: Filled in.

        Returns:
            The hits.
        """

    assert search.description == "Search all files.\n\nSlow for large ones.\n\nReturns:\n    The hits."
    properties = search.spec.parameters["properties"]
    assert properties["pattern"]["description"] == "What to look for, as a glob."
    assert properties["limit"]["description"] == "Most hits to return."


def test_the_short_form_may_stand_on_lines_of_its_own() -> None:
    @tool
    def move(source: str, target: str) -> None:
        """Move a file.

        source: where it is;
        target: where it goes, which must
            not exist.
        """

    assert move.description == "Move a file."
    properties = move.spec.parameters["properties"]
    assert properties["source"]["description"] == "where it is"
    assert properties["target"]["description"] == "where it goes, which must not exist"


def test_an_annotation_describes_better_than_the_docstring() -> None:
    @tool
    def refund(cents: Annotated[int, "in US cents"]) -> None:
        """Refund. cents: amount."""

    assert refund.spec.parameters["properties"]["cents"]["description"] == "in US cents"


def test_the_context_is_hidden_from_the_model() -> None:
    @tool
    def whoami(context: ToolContext, name: str) -> None: ...

    assert list(whoami.spec.parameters["properties"]) == ["name"]


def test_a_bound_method_is_a_tool_without_self() -> None:
    class Account:
        def close(self, reason: str) -> str:
            return f"closed: {reason}"

    close = tool(Account().close)

    assert list(close.spec.parameters["properties"]) == ["reason"]
    assert close("why") == "closed: why"


def test_a_tool_can_be_called_like_its_function() -> None:
    @tool(idempotent=True)
    def double(number: int) -> int:
        return 2 * number

    result: int = double(4)
    assert result == 8
    assert double(number=3) == 6


def positional_only(value: str, /) -> None: ...
def var_positional(*values: str) -> None: ...
def var_keyword(**values: str) -> None: ...
def unannotated(value) -> None: ...  # type: ignore[no-untyped-def]  # noqa: ANN001
def takes_datetime(when: datetime) -> None: ...
def takes_set(values: set[str]) -> None: ...
def int_keys(values: dict[int, str]) -> None: ...
def callback(function: Callable[[], None]) -> None: ...
def recursive(node: Node) -> None: ...
def unresolved(amount: Decimal) -> None: ...
def two_contexts(one: ToolContext, two: ToolContext) -> None: ...
def optional_context(context: ToolContext | None = None) -> None: ...
def stale_docs(cents: int) -> None:
    """Refund.

    Args:
        cent: The amount.
    """


def generator(value: str) -> Iterator[str]:
    yield value


async def async_generator(value: str) -> AsyncIterator[str]:
    yield value


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (
            positional_only,
            "tool 'positional_only', parameter 'value': expected a named parameter; got a positional-only",
        ),
        (var_positional, "parameter 'values': expected a named parameter; got `*args`: take a list"),
        (var_keyword, "parameter 'values': expected a named parameter; got `**kwargs`: take a dict"),
        (unannotated, "parameter 'value': expected a type annotation; got none: write `value: str`"),
        (takes_datetime, "parameter 'when': expected str, int, float, bool, None, Any, list"),
        (takes_datetime, "got datetime: take a str or a dict and convert it"),
        (takes_set, "got set[str]"),
        (int_keys, "expected a dict with str keys, as in JSON; got dict[int, str]"),
        (callback, "got collections.abc.Callable"),
        (recursive, "field 'children' of Node: expected a type of finite depth; got Node in itself"),
        (unresolved, "tool 'unresolved': expected annotations that can be resolved; got name 'Decimal'"),
        (two_contexts, "expected one parameter of type ToolContext; got one, two"),
        (optional_context, "expected a parameter of exactly ToolContext"),
        (stale_docs, "its docstring describes 'cent', which is no parameter; did you mean 'cents'?"),
        (generator, "expected a function that returns once; got one that yields"),
        (async_generator, "expected a function that returns once; got one that yields"),
        (lambda: None, "tool '<lambda>': expected a name of 1 to 64"),
        (partial(takes_set), "expected a function for a tool"),
        ("refund", "expected a function for a tool; got 'refund': write `@tool` above a `def`"),
    ],
)
def test_a_function_that_no_model_can_call_is_refused(function: Any, problem: str) -> None:
    with pytest.raises(InvalidTool) as caught:
        tool(function)

    assert problem in str(caught.value)


class Account:
    def close(self, reason: str) -> None: ...


def test_a_method_without_its_object_is_refused_with_what_to_do() -> None:
    with pytest.raises(InvalidTool, match=r"parameter 'self': .* decorate the bound method instead"):
        tool(Account.close)


def plain() -> None: ...
async def waits(seconds: float) -> None: ...


@pytest.mark.parametrize(
    ("function", "options", "problem"),
    [
        (waits, {"timeout": 0.0}, "expected a timeout above 0 seconds, or None; got 0.0"),
        (waits, {"timeout": float("nan")}, "expected a timeout above 0 seconds"),
        (waits, {"editable": ("second",)}, "expected editable arguments from seconds; got 'second'"),
        (waits, {"crash_resume": "retry"}, "expected crash_resume of rerun, ask or fail; got 'retry'"),
        (plain, {"crash_resume": "rerun"}, "may act twice after a crash"),
        (waits, {"blocking": True}, "expected a plain function with blocking=True"),
        (plain, {"timeout": 1.0}, "a timeout cannot stop a plain function"),
        (plain, {"name": "pay back"}, "expected a name of 1 to 64"),
        (plain, {"name": "x" * 65}, "expected a name of 1 to 64"),
    ],
)
def test_an_option_that_cannot_work_is_refused(function: Any, options: dict[str, Any], problem: str) -> None:
    with pytest.raises((InvalidTool, InvalidOption)) as caught:
        tool(**options)(function)

    assert problem in str(caught.value)


def test_what_happens_after_a_crash_follows_from_whether_a_tool_is_idempotent() -> None:
    assert tool(plain).crash_resume == "fail"
    assert tool(idempotent=True)(plain).crash_resume == "rerun"
    assert tool(crash_resume="ask")(plain).crash_resume == "ask"
    assert tool(idempotent=True, crash_resume="fail")(plain).crash_resume == "fail"

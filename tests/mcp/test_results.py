"""What servers say, as it is read: listings, results and schemas."""

from __future__ import annotations

import base64
from typing import Any

import mcp_types as types
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.errors import CodecError, McpError
from sapwood.mcp import McpResult, McpTool
from sapwood.mcp._listing import PAGES, list_tools, read_tool
from sapwood.mcp._results import read_result
from sapwood.mcp._schemas import PROBLEMS, SchemaSignature


def result(*blocks: Any, **more: Any) -> McpResult:
    return read_result(types.CallToolResult(content=list(blocks), **more))


def text(value: str) -> types.TextContent:
    return types.TextContent(text=value)


# --- results ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "structured", "content"),
    [
        ("hello", None, "hello"),
        ("", None, "done"),
        ("", {"cents": 5}, {"cents": 5}),
        ('{"cents":5}', {"cents": 5}, {"cents": 5}),
        ("5", {"result": 5}, "5"),
        ("five", {"result": "five"}, "five"),
        ("nothing", {"result": None}, 'nothing\n{"result": null}'),
        ("five cents", {"cents": 5}, 'five cents\n{"cents": 5}'),
        ('{"cents": 6}', {"cents": 5}, '{"cents": 6}\n{"cents": 5}'),
    ],
)
def test_a_structured_result_is_told_once(said: str, structured: Any, content: Any) -> None:
    assert result(*([text(said)] if said else []), structured_content=structured).content == content


@given(st.binary(max_size=50))
def test_binary_parts_are_told_with_their_true_size(data: bytes) -> None:
    encoded = base64.b64encode(data).decode()
    shown = result(types.AudioContent(data=encoded, mime_type="audio/wav")).text
    assert shown == f"[audio audio/wav, {len(data)} bytes, not shown]"


def test_a_failure_without_words_tells_its_structured_part() -> None:
    assert result(structured_content={"why": "full"}, is_error=True).problem == '{"why": "full"}'


def test_a_structured_result_that_no_json_can_hold_is_refused() -> None:
    with pytest.raises(CodecError, match="expected a finite number"):
        result(structured_content={"cents": float("nan")})


# --- listings ---------------------------------------------------------------------------------------


class Pages:
    """A client that lists given pages."""

    def __init__(self, *pages: list[str], endless: bool = False) -> None:
        self.pages = pages
        self.endless = endless
        self.asked = 0

    async def list_tools(self, *, cursor: str | None) -> types.ListToolsResult:
        self.asked += 1
        index = int(cursor or 0)
        more = str(index + 1) if index + 1 < len(self.pages) else None
        page = [] if self.endless else self.pages[index]
        tools = [types.Tool(name=name, input_schema={"type": "object"}) for name in page]
        return types.ListToolsResult(tools=tools, next_cursor="0" if self.endless else more)


async def test_all_pages_of_a_listing_are_read_in_order() -> None:
    client: Any = Pages(["a", "b"], [], ["c"])
    assert [tool.name for tool in await list_tools(client, "tiny")] == ["a", "b", "c"]


async def test_a_listing_that_does_not_end_is_given_up() -> None:
    client: Any = Pages(endless=True)
    with pytest.raises(McpError, match="more than 100 pages"):
        await list_tools(client, "tiny")
    assert client.asked == PAGES


async def test_a_listing_with_one_name_twice_is_refused() -> None:
    client: Any = Pages(["a"], ["a"])
    with pytest.raises(McpError, match="two tools with the name 'a'"):
        await list_tools(client, "tiny")


def test_hints_that_a_server_does_not_give_are_the_cautious_ones() -> None:
    silent = read_tool(types.Tool(name="t", input_schema={}), "tiny")
    partly = types.Tool(name="t", input_schema={}, annotations=types.ToolAnnotations(idempotent_hint=True))
    read = read_tool(partly, "tiny")

    assert (silent.read_only, silent.destructive, silent.idempotent) == (False, True, False)
    assert (read.read_only, read.destructive, read.idempotent) == (False, True, True)


def test_a_tool_without_a_description_is_described_by_its_title() -> None:
    assert read_tool(types.Tool(name="t", title="Title", input_schema={}), "tiny").description == "Title"


# --- schemas ----------------------------------------------------------------------------------------


def signature(schema: dict[str, Any]) -> SchemaSignature:
    tool = McpTool("t", "", schema)
    return SchemaSignature(lambda: tool)


def test_every_problem_of_the_arguments_is_told_with_its_place() -> None:
    schema = {"type": "object", "properties": {"list": {"items": {"type": "integer"}}, "text": {"maxLength": 2}}}
    _, problems = signature(schema).read({"list": [1, "two"], "text": "long"})

    assert problems == ("argument 'list[1]': 'two' is not of type 'integer'", "argument 'text': 'long' is too long")


def test_problems_beyond_a_few_are_left_out() -> None:
    schema = {"type": "object", "additionalProperties": {"type": "integer"}}
    _, problems = signature(schema).read({f"n{index}": "text" for index in range(50)})

    assert len(problems) == PROBLEMS


@pytest.mark.parametrize("schema", [{"$ref": "#/nowhere"}, {"$ref": "http://127.0.0.1:9/schema"}, {"type": "strin"}])
def test_a_broken_schema_is_told_and_nothing_is_fetched_for_it(
    schema: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[object] = []
    monkeypatch.setattr("urllib.request.urlopen", fetched.append)
    _, problems = signature({"type": "object", "properties": {"text": schema}}).read({"text": "x"})

    assert len(problems) == 1
    assert fetched == []
    assert problems[0].startswith("they cannot be checked, since the server's schema is broken: ")


def test_arguments_of_a_tool_that_is_gone_pass_so_that_its_call_can_say_so() -> None:
    assert SchemaSignature(lambda: None).read({"any": 1}) == ({"any": 1}, ())


def test_arguments_that_no_json_can_hold_are_refused() -> None:
    given_, problems = signature({"type": "object"}).read({"n": float("inf")})

    assert given_ == {}
    assert "expected a finite number" in problems[0]


def test_a_changed_schema_is_the_one_that_counts() -> None:
    tools = [McpTool("t", "", {"type": "object", "required": ["old"]})]
    reader = SchemaSignature(lambda: tools[0])
    assert reader.read({"old": 1})[1] == ()
    tools[0] = McpTool("t", "", {"type": "object", "required": ["new"], "properties": {"new": {}}})

    assert reader.read({"old": 1})[1] == ("'new' is a required property",)
    assert reader.names == ("new",)

"""The offline model, driving tools that really do something."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from sapwood.conversation import AssistantMessage, Message, ToolCall, ToolResult, ToolSpec, UserMessage
from sapwood.errors import InvalidOption
from sapwood.models import ModelAnswer, ModelRequest, OfflineModel, TextDelta


def spec(tool_name: str, description: str, required: str = "", /, **properties: str | Mapping[str, Any]) -> ToolSpec:
    schemas = {name: {"type": kind} if isinstance(kind, str) else kind for name, kind in properties.items()}
    return ToolSpec(tool_name, description, {"type": "object", "properties": schemas, "required": required.split()})


BUILT_IN = (
    spec("ls", "List files.", pattern="string"),
    spec("read_file", "Read a file.", "path", path="string", start_line="integer", limit="integer"),
    spec("write_file", "Write a file.", "path content", path="string", content="string"),
    spec(
        "edit_file", "Replace text.", "path old new", path="string", old="string", new="string", replace_all="boolean"
    ),
    spec("delete_file", "Delete a file.", "path", path="string"),
    spec("search_text", "Search files.", "pattern", pattern="string", path="string"),
    spec("write_todos", "Write to-dos.", "todos", todos="array", merge="boolean"),
    spec("list_todos", "List to-dos."),
)


@attrs.define
class Desk:
    """Files and to-dos, with the tools for them as the middleware names them."""

    files: dict[str, str] = attrs.field(factory=dict[str, str])
    todos: dict[int, dict[str, Any]] = attrs.field(factory=dict[int, dict[str, Any]])
    calls: list[ToolCall] = attrs.field(factory=list[ToolCall])
    others: dict[str, Callable[..., str]] = attrs.field(factory=dict[str, Callable[..., str]])

    def run(self, call: ToolCall) -> ToolResult:
        self.calls.append(call)
        try:
            tool: Callable[..., str] = self.others.get(call.name) or getattr(self, call.name)
            return ToolResult(call.id, call.name, tool(**call.arguments))
        except (KeyError, ValueError) as error:
            return ToolResult(call.id, call.name, f"Error: {error.args[0]}", is_error=True)

    def ls(self, pattern: str = "**") -> str:
        return "\n".join(sorted(self.files)) or "no files"

    def read_file(self, path: str, start_line: int = 1, limit: int = 2000) -> str:
        if path not in self.files:
            raise ValueError(f"no file {path}")
        whole = self.files[path].split("\n")
        lines = whole[start_line - 1 : start_line - 1 + min(limit, 1500)]
        shown = [f"{start_line + at}\t{line}" for at, line in enumerate(lines)]
        last = start_line + len(lines) - 1
        more = [f"[lines {start_line} to {last} of {len(whole)}; go on with start_line={last + 1}]"]
        return "\n".join([*shown, *(more if last < len(whole) else [])]) or f"{path} has no lines"

    def write_file(self, path: str, content: str) -> str:
        self.files[path] = content
        return "written"

    def edit_file(self, path: str, old: str, new: str, replace_all: bool = False) -> str:  # noqa: FBT001, FBT002
        if old not in self.files[path]:
            raise ValueError(f"{old} does not occur")
        self.files[path] = self.files[path].replace(old, new, -1 if replace_all else 1)
        return "edited"

    def delete_file(self, path: str) -> str:
        if path not in self.files:
            raise ValueError(f"no file {path}")
        del self.files[path]
        return "deleted"

    def search_text(self, pattern: str, path: str = "**") -> str:
        return "\n".join(sorted(name for name, text in self.files.items() if pattern in text)) or "no match"

    def write_todos(self, todos: list[dict[str, Any]], merge: bool = True) -> str:  # noqa: FBT001, FBT002
        if not merge:
            self.todos = {}
        for todo in todos:
            number = todo.get("id") or max(self.todos, default=0) + 1
            self.todos[number] = {"content": todo["content"], "status": todo["status"]}
        return "ok"

    def list_todos(self) -> str:
        return "\n".join(f"{number} [{todo['status']}] {todo['content']}" for number, todo in self.todos.items())


async def talk(desk: Desk, text: str, *tools: ToolSpec, history: tuple[Message, ...] = ()) -> str:
    """Run one turn as an agent would; returns the final answer."""
    messages: list[Message] = [*history, UserMessage(text)]
    for _ in range(150):
        async with OfflineModel().stream(ModelRequest("", tuple(messages), BUILT_IN + tools)) as events:
            answer = [event async for event in events][-1]
        assert isinstance(answer, ModelAnswer)
        messages.append(answer.message)
        if not answer.message.tool_calls:
            return answer.message.text
        messages += [desk.run(call) for call in answer.message.tool_calls]
    raise AssertionError("the turn does not end")


# --- files


@pytest.mark.parametrize(
    ("text", "path", "content"),
    [
        ('write notes.txt with "hello world"', "notes.txt", "hello world"),
        ("write hello world to notes.txt", "notes.txt", "hello world"),
        ("Please create a file called notes.txt with the content hello.", "notes.txt", "hello"),
        ("create an empty file notes/a.md", "notes/a.md", ""),
        ('Save "1; then 2" as out/x.txt', "out/x.txt", "1; then 2"),
        ('write "a\\nb" to a.txt', "a.txt", "a\nb"),
        ("Write a.csv with:\nname,amount\ntea,1", "a.csv", "name,amount\ntea,1\n"),
        ('write x.py with\n```python\nprint("hi")\n```', "x.py", 'print("hi")\n'),
        ("write don't panic to a.txt", "a.txt", "don't panic"),
        ('write "my notes.txt" with "x"', "my notes.txt", "x"),
    ],
)
async def test_a_file_is_written_as_asked(text: str, path: str, content: str) -> None:
    desk = Desk()

    await talk(desk, text)

    assert desk.files == {path: content}


async def test_a_file_is_shown_whole_or_in_part_without_line_numbers() -> None:
    desk = Desk({"a.txt": "one\ntwo\nthree\nfour"})

    assert await talk(desk, "read a.txt") == "a.txt:\none\ntwo\nthree\nfour"
    assert await talk(desk, "What is in a.txt?") == "a.txt:\none\ntwo\nthree\nfour"
    assert await talk(desk, "show lines 2 to 3 of a.txt") == (
        "a.txt:\ntwo\nthree\n[lines 2 to 3 of 4; go on with start_line=4]"
    )
    part = await talk(desk, "show the first 2 lines of a.txt")
    assert part == "a.txt:\none\ntwo\n[lines 1 to 2 of 4; go on with start_line=3]"


async def test_files_are_listed_searched_edited_extended_and_deleted() -> None:
    desk = Desk({"a.txt": "red and red", "b.txt": "blue"})

    assert "a.txt\nb.txt" in await talk(desk, "list all files")
    assert "a.txt" in await talk(desk, "Which files mention red?")
    await talk(desk, 'replace "red" with "green" in a.txt')
    assert desk.files["a.txt"] == "green and red"
    await talk(desk, "change green to black in a.txt everywhere")
    assert desk.files["a.txt"] == "black and red"
    await talk(desk, 'append "white" to b.txt')
    assert desk.files["b.txt"] == "blue\nwhite\n"
    await talk(desk, "delete a.txt and b.txt")
    assert desk.files == {}


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("ls", "**"),
        ("ls notes/**", "notes/**"),
        ("list the files in data", "data/**"),
        ("show all csv files", "**/*.csv"),
    ],
)
async def test_files_are_listed_by_pattern(text: str, pattern: str) -> None:
    desk = Desk()

    await talk(desk, text)

    assert desk.calls[0].arguments == {"pattern": pattern}


async def test_a_long_file_is_read_page_by_page_before_it_is_counted_or_extended() -> None:
    desk = Desk({"long.txt": "line\n" * 4499 + "line"})

    assert await talk(desk, "How many lines are in long.txt?") == "long.txt has 4500 lines."
    await talk(desk, 'append "end" to long.txt')

    assert desk.files["long.txt"] == "line\n" * 4500 + "end\n"


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("sum the amount column of sales.csv", "The sum of amount in sales.csv is 3.75 (3 rows)."),
        ("What is the total of amount in sales.csv?", "The sum of amount in sales.csv is 3.75 (3 rows)."),
        ("average of amount in sales.csv", "The average of amount in sales.csv is 1.25 (3 rows)."),
        ("what is the highest amount in sales.csv", "The maximum of amount in sales.csv is 2.25 (3 rows)."),
        ("sum column 3 of sales.csv", "The sum of amount in sales.csv is 3.75 (3 rows)."),
    ],
)
async def test_a_column_is_computed(text: str, result: str) -> None:
    desk = Desk({"sales.csv": "name;year;amount\ntea;2020;1.5\nmilk;2021;2.25\ncake;2022;0\n"})

    assert await talk(desk, text) == result


async def test_cells_that_are_no_numbers_are_named_and_a_wrong_column_is_asked_for() -> None:
    desk = Desk({"a.csv": "x,y\n1,a\nn/a,b\n2,c"})

    assert await talk(desk, "sum x of a.csv") == (
        "The sum of x in a.csv is 3 (2 rows). Left out as no numbers: 1 of the cells, such as 'n/a'."
    )
    assert await talk(desk, "sum the z column of a.csv") == "There is no column 'z' in a.csv. The columns are: x, y."
    assert await talk(desk, "sum the y column of a.csv") == "The column y of a.csv holds no numbers."


# --- to-dos


@pytest.mark.parametrize(
    ("text", "contents"),
    [
        ("add a to-do: buy milk and eggs", ["buy milk and eggs"]),
        ("Add to-dos: buy milk, call Anna and write the report", ["buy milk", "call Anna", "write the report"]),
        ('add "a; b" and "c" to my to-do list', ["a; b", "c"]),
        ("add buy milk to my todo list", ["buy milk"]),
        ("remind me to call Anna and read the report", ["call Anna and read the report"]),
        ("Add these to-dos:\n- buy milk\n2. call Anna", ["buy milk", "call Anna"]),
        ("add a to-do: read notes.txt", ["read notes.txt"]),
    ],
)
async def test_to_dos_are_added(text: str, contents: list[str]) -> None:
    desk = Desk()

    await talk(desk, text)

    assert [todo["content"] for todo in desk.todos.values()] == contents
    assert {todo["status"] for todo in desk.todos.values()} == {"pending"}
    assert len(desk.calls) == 1


@pytest.mark.parametrize(
    ("text", "statuses"),
    [
        ("complete to-do 1", "completed pending pending"),
        ("complete 2", "pending completed pending"),
        ("mark to-do 3 as done", "pending pending completed"),
        ('mark "buy milk" as done', "completed pending pending"),
        ("finish the to-do about taxes", "pending pending completed"),
        ("check off call Anna", "pending completed pending"),
        ("start to-do 2", "pending in_progress pending"),
        ("cancel the first to-do", "cancelled pending pending"),
        ("complete to-dos 1 and 3", "completed pending completed"),
        ("complete all to-dos", "completed completed completed"),
    ],
)
async def test_a_to_do_is_looked_up_first_and_then_changed(text: str, statuses: str) -> None:
    desk = Desk()
    desk.write_todos([{"content": c, "status": "pending"} for c in ("buy milk", "call Anna", "file taxes for 2020")])

    await talk(desk, text)

    assert [call.name for call in desk.calls] == ["list_todos", "write_todos"]
    assert [todo["status"] for todo in desk.todos.values()] == statuses.split()


async def test_to_dos_are_listed_removed_and_cleared() -> None:
    desk = Desk()
    assert await talk(desk, "list my to-dos") == "There are no to-dos."
    desk.write_todos([{"content": c, "status": "pending"} for c in ("a", "b", "c")])

    assert await talk(desk, "What are my todos?") == "To-dos:\n1 [pending] a\n2 [pending] b\n3 [pending] c"
    await talk(desk, "remove to-do 2")
    assert list(desk.todos) == [1, 3]
    await talk(desk, "clear my to-dos")
    assert desk.todos == {}


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("complete the to-do xyz", "No to-do matches 'xyz'. There are: 1 buy milk; 2 buy bread."),
        ("complete to-do 7", "There is no to-do 7. There are: 1 buy milk; 2 buy bread."),
        ("complete the to-do buy", "Several to-dos match 'buy': 1 buy milk; 2 buy bread. Say the number."),
    ],
)
async def test_a_to_do_that_is_not_clear_is_asked_about_and_nothing_is_changed(text: str, answer: str) -> None:
    desk = Desk()
    desk.write_todos([{"content": c, "status": "pending"} for c in ("buy milk", "buy bread")])

    assert await talk(desk, text) == answer
    assert {todo["status"] for todo in desk.todos.values()} == {"pending"}


# --- any other tool

TOOLS = (
    spec(
        "refund", "Refund part of an order. cents: amount in US cents.", "order cents", order="string", cents="integer"
    ),
    spec("add", "Add two numbers.", "a b", a="integer", b="integer"),
    spec(
        "get_weather",
        "Current weather of a city.",
        "city",
        city="string",
        unit={"anyOf": [{"enum": ["celsius", "fahrenheit"]}, {"type": "null"}]},
    ),
    spec("send_email", "Send an e-mail.", "to subject body", to="string", subject="string", body="string"),
    spec("roll_dice", "Roll dice.", sides="integer", count={"type": ["integer", "null"]}),
    spec("sleep", "Wait for some time.", "seconds", seconds="number"),
    spec("translate", "Translate a text.", "text language", text="string", language="string"),
    spec("average_of", "Average of numbers.", "numbers", numbers={"type": "array", "items": {"type": "number"}}),
    spec("measure", "Measure it.", "_", _="number"),
    spec("cancel_order", "Cancel an order.", "order_id", order_id="string", force="boolean"),
)


@pytest.mark.parametrize(
    ("text", "tool", "arguments"),
    [
        ("Refund 75 dollars of order 17", "refund", {"order": "17", "cents": 7500}),
        ("please refund $7.50 of order #A-17", "refund", {"order": "A-17", "cents": 750}),
        ("Could you refund order 17, 1,234.56 USD?", "refund", {"order": "17", "cents": 123456}),
        ("refund 80 cents of order 17", "refund", {"order": "17", "cents": 80}),
        ("call refund with order=9 and cents=100", "refund", {"order": "9", "cents": 100}),
        ('use refund with {"order": "x", "cents": 5}', "refund", {"order": "x", "cents": 5}),
        ("sum 3 and 4", "add", {"a": 3, "b": 4}),
        ("add -3 to 4", "add", {"a": -3, "b": 4}),
        ("use the add tool with b = 2, a = 1", "add", {"a": 1, "b": 2}),
        ("What is the weather in Paris?", "get_weather", {"city": "Paris"}),
        ("weather in New York in Celsius", "get_weather", {"city": "New York", "unit": "celsius"}),
        (
            'send an email to bob@x.org with subject "Hi" and body "How are you?"',
            "send_email",
            {"to": "bob@x.org", "subject": "Hi", "body": "How are you?"},
        ),
        (
            "send a mail to bob@x.org about lunch saying see you at noon",
            "send_email",
            {"to": "bob@x.org", "subject": "lunch", "body": "see you at noon"},
        ),
        ("roll 2 dice with 20 sides", "roll_dice", {"sides": 20, "count": 2}),
        ("roll a die", "roll_dice", {}),
        ("wait 5 minutes", "sleep", {"seconds": 300}),
        ("sleep for 1.5 seconds", "sleep", {"seconds": 1.5}),
        ("translate good morning into French", "translate", {"text": "good morning", "language": "French"}),
        ('translate "a and b" to German', "translate", {"text": "a and b", "language": "German"}),
        ("average of 3, 4 and 5.5", "average_of", {"numbers": [3, 4, 5.5]}),
        ("measure 5", "measure", {"_": 5}),
        ("cancel order 17", "cancel_order", {"order_id": "17"}),
        ("cancel order 17 with force", "cancel_order", {"order_id": "17", "force": True}),
        ("cancel order 17 without force", "cancel_order", {"order_id": "17", "force": False}),
    ],
)
async def test_any_tool_is_driven_by_its_schema(text: str, tool: str, arguments: dict[str, Any]) -> None:
    desk = Desk(others={other.name: lambda **_: "it is done" for other in TOOLS})

    answer = await talk(desk, text, *TOOLS)

    assert [(call.name, call.arguments) for call in desk.calls] == [(tool, arguments)]
    assert answer == f"{tool}: it is done"


@pytest.mark.parametrize(
    ("text", "needed"),
    [
        ("refund order 17", "To use refund I need cents (integer: amount in US cents)."),
        ("refund 75 dollars", "To use refund I need order (string)."),
        ("refund order 17 for 75 euros", "To use refund I need cents (integer: amount in US cents)."),
        ("refund 1.005 dollars of order 17", "To use refund I need cents (integer: amount in US cents)."),
        ("add 3", "To use add I need b (integer)."),
    ],
)
async def test_what_is_missing_is_asked_for_and_nothing_is_called(text: str, needed: str) -> None:
    desk = Desk()

    answer = await talk(desk, text, *TOOLS)

    assert answer.startswith(needed)
    assert desk.calls == []


async def test_two_tools_that_fit_alike_are_asked_about() -> None:
    one, two = (spec(name, "Send it.", "text", text="string") for name in ("send_mail", "send_fax"))

    answer = await talk(Desk(), "send hello", one, two)

    assert answer == 'Several tools fit "send hello": send_mail, send_fax. Say which one to use.'


@pytest.mark.parametrize(
    "text", ["frobnicate the gizmo", "delete order 17", "delete it", "Write a poem about the sea."]
)
async def test_what_no_rule_fits_is_said_with_what_the_tools_can_do_and_nothing_is_called(text: str) -> None:
    desk = Desk({"a.txt": "x"}, {1: {"content": "write it", "status": "pending"}})

    answer = await talk(desk, text, *TOOLS)

    assert answer.startswith(f'I cannot do "{text.rstrip(".")}" with the tools I have.')
    assert "- refund: Refund part of an order." in answer
    assert desk.calls == []


async def test_it_says_what_it_is() -> None:
    for text in ("help", "What can you do?", ""):
        assert "not a language model" in await talk(Desk(), text)
    async with OfflineModel().stream(ModelRequest("", ())) as events:
        answer = [event async for event in events][-1]
    assert isinstance(answer, ModelAnswer)
    assert "I have no tools here" in answer.message.text


# --- several requests


@pytest.mark.parametrize(
    "text",
    [
        'write a.txt with "x", then read a.txt and then list all files; delete a.txt',
        'write a.txt with "x"\nread a.txt\nlist all files\ndelete a.txt',
        '1. write a.txt with "x" 2. read a.txt 3. list all files 4. delete a.txt',
        'Please do this:\n1. Write a.txt with "x".\n2. Read it.\n- list all files\n* Delete a.txt.',
        'Write a.txt with "x". Read it and list all files. Finally, delete a.txt.',
    ],
)
async def test_several_requests_are_carried_out_in_order(text: str) -> None:
    desk = Desk()

    await talk(desk, text)

    assert [call.name for call in desk.calls] == ["write_file", "read_file", "ls", "delete_file"]
    assert desk.files == {}


async def test_remarks_between_requests_are_named_as_not_understood_and_stop_nothing() -> None:
    desk = Desk({"a.txt": "x"})

    answer = await talk(desk, "Hello. I have two things for Dr. Who. List all files. Thanks. Delete a.txt.")

    assert [call.name for call in desk.calls] == ["ls", "delete_file"]
    assert 'I made nothing of "I have two things for Dr. Who".' in answer


async def test_a_sentence_that_no_rule_fits_is_not_passed_over() -> None:
    desk = Desk({"a.txt": "x"})

    answer = await talk(desk, "List all files. Frobnicate the gizmo. Delete a.txt.")

    assert 'I cannot do "Frobnicate the gizmo"' in answer
    assert answer.endswith('Not done because of that: "Delete a.txt".')
    assert desk.files == {"a.txt": "x"}


async def test_an_unknown_verb_after_and_is_not_passed_over() -> None:
    answer = await talk(Desk({"a.txt": "x"}), "read a.txt and summarize it")

    assert answer.startswith('a.txt:\nx\nI cannot do "summarize it"')


async def test_sentences_of_unquoted_content_stay_content() -> None:
    desk = Desk()

    await talk(desk, "Write a.txt with Hello World. This is fine")

    assert desk.files == {"a.txt": "Hello World. This is fine"}


async def test_a_later_request_may_refer_to_the_result_and_to_the_file_of_an_earlier_one() -> None:
    desk = Desk({"a.csv": "x\n1\n2"})

    answer = await talk(desk, "sum x of a.csv and write the total to total.txt, then show it and delete a.csv")

    assert desk.files == {"total.txt": "3"}
    assert answer.splitlines()[-3:] == ["total.txt:", "3", "Deleted a.csv."]


async def test_an_error_is_reported_and_the_requests_after_it_are_not_begun_and_named() -> None:
    desk = Desk({"b.txt": "x"})

    answer = await talk(desk, "list all files; read a.txt; delete b.txt then delete c.txt")

    assert answer.splitlines()[-2:] == [
        "Reading a.txt failed: no file a.txt",
        'Not done because of that: "delete b.txt"; "delete c.txt".',
    ]
    assert desk.files == {"b.txt": "x"}


async def test_a_failed_tool_of_any_kind_is_reported_in_its_own_words() -> None:
    def refuse(**_: object) -> str:
        raise ValueError("rejected by a person: too much")

    answer = await talk(Desk(others={"refund": refuse}), "refund 75 dollars of order 17", *TOOLS)

    assert answer == "refund failed: rejected by a person: too much"


async def test_only_the_newest_user_messages_count_and_earlier_turns_are_over() -> None:
    desk = Desk({"a.txt": "x"})
    done = (UserMessage("delete a.txt"), AssistantMessage("", (ToolCall("c", "delete_file", {"path": "a.txt"}),)))

    await talk(desk, "list all files", history=(*done, UserMessage("read a.txt")))

    assert [call.name for call in desk.calls] == ["read_file", "ls"]


async def test_a_plan_goes_on_after_calls_that_another_model_made_in_the_turn() -> None:
    desk = Desk({"a.txt": "x"})
    foreign = AssistantMessage("", (ToolCall("c", "search_text", {"pattern": "x"}),))
    history = (UserMessage("read a.txt"), foreign, ToolResult("c", "search_text", "a.txt"))

    async with OfflineModel().stream(ModelRequest("", history, BUILT_IN)) as events:
        answer = [event async for event in events][-1]

    assert isinstance(answer, ModelAnswer)
    assert [call.name for call in answer.message.tool_calls] == ["read_file"]
    assert desk.calls == []


async def test_a_turn_without_end_is_ended_after_fifty_calls() -> None:
    desk = Desk()
    desk.others["read_file"] = lambda **_: "\n".join(f"{at}\tx" for at in range(2000))

    answer = await talk(desk, "count the lines of a.txt")

    assert answer == "I stop here: this turn has taken 50 tool calls, which is my limit."


# --- as a model


async def test_the_same_request_always_gets_the_same_answer_and_call_ids_differ_between_turns() -> None:
    def ids(desk: Desk) -> list[str]:
        return [call.id for call in desk.calls]

    first, second, later = Desk({"a.txt": "x"}), Desk({"a.txt": "x"}), Desk({"a.txt": "x"})
    await talk(first, "read a.txt then ls")
    await talk(second, "read a.txt then ls")
    await talk(later, "read a.txt then ls", history=(UserMessage("hello"), AssistantMessage("Hello.")))

    assert ids(first) == ids(second)
    assert len({*ids(first), *ids(later)}) == 4


async def test_text_is_streamed_word_by_word_with_the_delay_asked_for(autojump_clock: MockClock) -> None:
    request = ModelRequest("", (UserMessage("hello"),))
    async with OfflineModel(word_delay=1.0).stream(request) as events:
        deltas = [event.text async for event in events if isinstance(event, TextDelta)]

    assert all(len(delta.split()) == 1 for delta in deltas)
    assert trio.current_time() == pytest.approx(len(deltas))


async def test_an_answer_is_cut_at_the_limit_of_tokens() -> None:
    async with OfflineModel().stream(ModelRequest("", (UserMessage("help"),), BUILT_IN, max_tokens=5)) as events:
        answer = [event async for event in events][-1]

    assert isinstance(answer, ModelAnswer)
    assert len(answer.message.text) == 20
    assert answer.message.stop_reason == "length"


def test_a_negative_delay_is_refused() -> None:
    with pytest.raises(InvalidOption, match="word_delay"):
        OfflineModel(word_delay=-1)


WORDS = re.findall(
    r"\S+",
    'write read list delete add sum refund complete the to-do to-dos file files a.txt b.csv "x y" it then and ; . : 17 '
    '$5 dollars order cents={} {"a": ``` \'q \' " column of in with to all \n 1. - \ud83d \0 =',
)


@given(st.lists(st.sampled_from([*WORDS, "\n", " "]), max_size=12))
async def test_no_message_breaks_it_and_every_turn_ends(words: list[str]) -> None:
    desk = Desk({"a.txt": "x", "b.csv": "a,b\n1,2\n"}, others={tool.name: lambda **_: "ok" for tool in TOOLS})

    assert await talk(desk, " ".join(words), *TOOLS)


@pytest.mark.parametrize(
    "unit",
    [
        "a",
        "a.",
        "a_",
        "a/",
        "1",
        "1,",
        " ",
        "\n",
        "'",
        '"',
        "`",
        "```",
        "then ",
        "and add ",
        "1. ",
        ". A",
        "; ",
        ":",
        "{",
        "to ",
    ],
)
@pytest.mark.parametrize("lead", ["", "write a.txt with ", "refund ", "add a to-do: ", "sum x of a.csv ", "read "])
async def test_a_long_message_is_read_in_reasonable_time(lead: str, unit: str) -> None:
    assert await talk(Desk(others={tool.name: lambda **_: "ok" for tool in TOOLS}), lead + unit * 1900, *TOOLS)


async def test_more_than_it_can_read_is_said_and_long_quoted_content_is_none_of_it() -> None:
    desk = Desk()

    assert "I read at most 2000 characters" in await talk(desk, "read " + "a" * 5000)
    await talk(desk, f'write a.txt with "{"x" * 50_000}"')

    assert len(desk.files["a.txt"]) == 50_000

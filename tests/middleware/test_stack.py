"""The stack: what it refuses, in which order it runs layers, and which hooks it sees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio

from sapwood import Agent, ScriptedModel
from sapwood.conversation import AssistantMessage, State, ToolCall, ToolResult
from sapwood.errors import DuplicateName, InvalidOption
from sapwood.middleware import (
    ContextEditing,
    FileSystem,
    Middleware,
    MiddlewareContext,
    ModelCall,
    ResultEviction,
    Stack,
    SubAgents,
    ToolRetry,
    overrides,
)
from sapwood.models import ModelRequest
from sapwood.tools import ToolOutcome

CONTEXT: Any = None


class Plain(Middleware):
    pass


class Prompting(Middleware):
    def __init__(self, text: str = "prompt") -> None:
        self.text = text

    def system_prompt(self, context: MiddlewareContext) -> str:
        return self.text


class Inheriting(Prompting):
    pass


class Tagging(Middleware):
    def __init__(self, tag: str) -> None:
        self.tag = tag

    async def before_model(self, state: State, context: MiddlewareContext) -> None:
        return None

    async def after_model(self, state: State, context: MiddlewareContext) -> None:
        return None

    async def around_model_call(
        self, request: ModelRequest, call_next: ModelCall, context: MiddlewareContext
    ) -> AssistantMessage:
        answer = await call_next(request)
        return AssistantMessage(f"{self.tag}({answer.text})")


class A(Tagging):
    pass


class B(Tagging):
    pass


@pytest.mark.row("S4-007")
def test_hooks_are_seen_from_the_class_inherited_ones_too() -> None:
    assert not overrides(Plain(), "system_prompt")
    assert overrides(Prompting(), "system_prompt")
    assert overrides(Inheriting(), "system_prompt")
    stack = Stack([Plain(), A("a"), B("b")])
    assert [layer.name for layer in stack.before_model] == ["A", "B"]
    assert [layer.name for layer in stack.after_model] == ["B", "A"]
    assert list(stack.starting) == []
    assert len(stack) == 3


def test_a_name_is_that_of_the_class_unless_the_class_says_otherwise() -> None:
    class Renamed(Prompting):
        name = "other"

    class Derived(Renamed):
        pass

    assert (Prompting().name, Renamed().name, Derived().name) == ("Prompting", "other", "Derived")
    stack = Stack([Prompting(), Renamed()])
    assert stack.get("other") is not None
    assert stack.get("Unknown") is None


@pytest.mark.parametrize("layers", [[Prompting], ["Prompting"], [None]])
def test_something_that_is_no_layer_is_refused(layers: Any) -> None:
    with pytest.raises(InvalidOption, match="expected instances of Middleware"):
        Stack(layers)


def test_one_name_twice_is_refused() -> None:
    with pytest.raises(DuplicateName, match="middleware 'Prompting'"):
        Stack([Prompting("a"), Prompting("b")])


@pytest.mark.row("S4-021")
def test_prompts_are_joined_in_order_and_blank_ones_left_out() -> None:
    stack = Stack([Prompting(" one \n"), Inheriting("  ")])
    assert stack.system_prompt("base", CONTEXT) == "base\n\none"
    assert stack.system_prompt("", CONTEXT) == "one"
    assert Stack().system_prompt("", CONTEXT) == ""


@pytest.mark.row("S4-008")
async def test_the_first_layer_is_the_outermost_around_a_model_call() -> None:
    call = Stack([A("a"), Plain(), B("b")]).around_model_call(answer, CONTEXT)
    assert (await call(ModelRequest("x", ()))).text == "a(b(x))"
    assert Stack([Plain()]).around_model_call(answer, CONTEXT) is answer


async def answer(request: ModelRequest) -> AssistantMessage:
    await trio.lowlevel.checkpoint()
    return AssistantMessage(request.system)


async def test_the_default_hooks_do_nothing_but_go_on() -> None:
    layer = Plain()
    ran: list[str] = []

    async def run() -> None:
        await trio.lowlevel.checkpoint()
        ran.append("run")

    async def invoke(call: ToolCall) -> ToolOutcome:
        await trio.lowlevel.checkpoint()
        return ToolOutcome(ToolResult(call.id, call.name, "x"))

    await layer.around_run(run, CONTEXT)
    assert ran == ["run"]
    assert (await layer.around_model_call(ModelRequest("x", ()), answer, CONTEXT)).text == "x"
    assert (await layer.around_tool_call(ToolCall("1", "a"), invoke, CONTEXT)).result.call_id == "1"
    assert await layer.before_model(State(), CONTEXT) is None
    assert await layer.after_model(State(), CONTEXT) is None
    assert await layer.handle_message("x", CONTEXT) is None
    assert await layer.on_server_start(CONTEXT) is None
    assert (layer.system_prompt(CONTEXT), layer.tools(CONTEXT)) == ("", ())


@pytest.mark.parametrize(
    ("make", "option"),
    [
        (lambda: ToolRetry(also="pay"), "ToolRetry also"),
        (lambda: ContextEditing(exclude="pay"), "ContextEditing exclude"),
        (lambda: ResultEviction(exclude="pay"), "ResultEviction exclude"),
        (lambda: FileSystem(enabled_tools="ls"), "FileSystem enabled_tools"),
        (lambda: SubAgents(clerk=Agent("clerk", model=ScriptedModel()), inherit="user"), "SubAgents inherit"),
    ],
)
def test_one_name_where_several_belong_is_not_taken_letter_by_letter(make: Callable[[], object], option: str) -> None:
    with pytest.raises(InvalidOption, match=f"{option}: expected several names"):
        make()

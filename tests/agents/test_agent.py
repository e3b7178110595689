"""The configuration: checked when it is made, never stored."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from sapwood import Agent, Limits, ScriptedModel, tool
from sapwood.errors import DuplicateName, InvalidOption
from sapwood.middleware import AgentInfo, FileSystem, HumanInTheLoop, Middleware, TodoList


@tool
def refund(order: str, cents: int) -> str:
    """Refund part of an order."""
    return f"refunded {cents} cents of {order}"


class Refusing(Middleware):
    def init(self, agent: AgentInfo) -> None:
        raise InvalidOption(f"{agent.name} has no licence")


class First(Middleware):
    pass


class Late(Middleware):
    runs_after = ("First",)


class Early(Middleware):
    runs_before = ("First",)


def make(**options: Any) -> Agent:
    return Agent("support", model=ScriptedModel(), **options)


@pytest.mark.parametrize(
    ("option", "near"), [("midleware", "middleware"), ("promt", "prompt"), ("limit", "limits"), ("tool", "tools")]
)
def test_an_option_that_does_not_exist_is_refused_with_the_nearest_one(option: str, near: str) -> None:
    with pytest.raises(InvalidOption, match=f"no option '{option}'; did you mean '{near}'"):
        make(**{option: None})


def test_an_option_that_looks_like_none_is_refused_with_the_list_of_those_there_are() -> None:
    with pytest.raises(InvalidOption, match="options are name, model, prompt, tools"):
        make(zebra=1)


@pytest.mark.parametrize("name", ["", None, 5])
def test_a_name_that_is_no_text_is_refused(name: Any) -> None:
    with pytest.raises(InvalidOption, match="Agent name: expected a text"):
        Agent(name, model=ScriptedModel())


def test_something_that_is_no_model_is_refused() -> None:
    not_a_model: Any = "gpt"
    with pytest.raises(InvalidOption, match="expected a chat model"):
        Agent("support", model=not_a_model)


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"model_calls": 0}, "limits.model_calls: expected an int >= 1; got 0"),
        ({"model_calls": True}, "limits.model_calls: expected an int >= 1; got True"),
        ({"parallel_tools": 1.5}, "limits.parallel_tools"),
        ({"output_tokens": 0}, "limits.output_tokens"),
    ],
)
def test_a_limit_out_of_its_range_is_refused(limits: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        Limits(**limits)


def test_a_temperature_out_of_its_range_is_refused() -> None:
    with pytest.raises(InvalidOption, match="from 0 to 1"):
        make(temperature=1.5)


@pytest.mark.row("S4-010")
def test_a_middleware_that_refuses_its_agent_refuses_it_when_it_is_made() -> None:
    with pytest.raises(InvalidOption, match="support has no licence"):
        make(middleware=[Refusing()])


def test_two_tools_or_two_layers_with_one_name_are_refused() -> None:
    with pytest.raises(DuplicateName, match="tool 'refund'"):
        make(tools=[refund, refund])
    with pytest.raises(DuplicateName, match="middleware 'TodoList'"):
        make(middleware=[TodoList(), TodoList()])


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ([Late(), First()], "expected First before Late"),
        ([First(), Early()], "expected Early before First"),
        ([HumanInTheLoop(refund=True), TodoList()], "expected HumanInTheLoop last"),
    ],
)
def test_an_order_that_a_layer_does_not_allow_is_refused(layers: list[Middleware], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        make(middleware=layers)


def test_an_order_that_every_layer_allows_is_taken() -> None:
    agent = make(middleware=[Early(), First(), Late(), FileSystem(), HumanInTheLoop(refund=True)])
    assert [layer.name for layer in agent.stack] == ["Early", "First", "Late", "FileSystem", "HumanInTheLoop"]


@pytest.mark.row("S4-002")
def test_an_agent_cannot_be_changed() -> None:
    agent = make(host={"key": "secret"})
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        agent.prompt = "other"  # type: ignore[misc]  # what the test is about
    host: Any = agent.host
    with pytest.raises(TypeError, match="does not support item assignment"):
        host["key"] = "other"


def test_what_the_host_gave_is_not_shown() -> None:
    assert "secret" not in repr(make(host={"key": "secret"}))


@pytest.mark.row("UP-69")
def test_the_definition_changes_with_what_shapes_the_conversation_and_with_nothing_else() -> None:
    plain = make().definition
    assert plain == make(limits=Limits(3), host={"key": 1}, temperature=0.5).definition
    assert len({plain, make(prompt="x").definition, make(tools=[refund]).definition}) == 3
    assert make(middleware=[TodoList()]).definition != plain

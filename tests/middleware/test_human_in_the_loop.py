"""HumanInTheLoop: which rules there are, and what it asks. How answers are carried out is in tests/agents."""

from __future__ import annotations

from typing import Any

import pytest

from sapwood import tool
from sapwood.actors import SimulatedEnvironment
from sapwood.conversation import AssistantMessage, Interrupt, State, ToolCall, UserMessage
from sapwood.errors import InvalidOption
from sapwood.middleware import Approval, HumanInTheLoop, Suspend
from sapwood.tools import Toolbox


@tool(editable=("cents",))
def pay(order: str, cents: int) -> str:
    """Pay."""
    return "paid"


@tool(name="delete-all")
def delete_all() -> str:
    """Delete everything."""
    return "gone"


class Needed:
    environment = SimulatedEnvironment()
    tools = Toolbox([pay, delete_all])


async def asked(layer: HumanInTheLoop, *calls: ToolCall) -> list[Interrupt]:
    import trio

    context: Any = Needed()
    state = State(messages=(UserMessage("go"), AssistantMessage("", calls)))
    await trio.lowlevel.checkpoint()
    found = await layer.after_model(state, context)
    return list(found.interrupts) if isinstance(found, Suspend) else []


def payment(cents: Any, call_id: str = "c1") -> ToolCall:
    return ToolCall(call_id, "pay", {"order": "17", "cents": cents})


@pytest.mark.row("S4-016")
@pytest.mark.parametrize(
    ("rule", "cents", "asks"),
    [
        (True, 1, True),
        (False, 1, False),
        (lambda args: args.cents > 5000, 5000, False),
        (lambda args: args.cents > 5000, 5001, True),
        (lambda args: args.dollars > 50, 1, True),
        (Approval(), 1, True),
        (Approval(when=lambda args: args.order == "18"), 1, False),
    ],
)
async def test_a_rule_says_which_calls_are_asked_about(rule: Any, cents: int, *, asks: bool) -> None:
    assert bool(await asked(HumanInTheLoop(pay=rule), payment(cents))) == asks


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"allowed": ("aprove",)}, "allowed: expected verdicts from approve, edit, reject, escalate; got 'aprove'"),
        ({"allowed": ()}, "allowed: expected a verdict that decides"),
        ({"allowed": ("escalate",)}, "allowed: expected a verdict that decides"),
        ({"allowed": "approve"}, "allowed: expected several names"),
        ({"editable": "cents"}, "editable: expected several names; got 'cents': write"),
        ({"on_expiry": "explode"}, "on_expiry: expected abort, escalate, queue; got 'explode'"),
        ({"expires_after": 0.0}, "expires_after: expected seconds above 0"),
        ({"expires_after": float("nan")}, "expires_after: expected seconds above 0"),
    ],
)
def test_an_approval_that_nobody_could_give_as_it_was_meant_is_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidOption, match=problem):
        Approval(**options)


async def test_only_protected_calls_that_can_run_are_asked_about() -> None:
    layer = HumanInTheLoop({"delete-all": True}, pay=True)
    calls = [
        payment(5),
        payment("much", "c2"),
        ToolCall("c3", "pay", malformed='{"order'),
        ToolCall("c4", "delete-all"),
        ToolCall("c5", "unknown"),
    ]
    assert [each.id for each in await asked(layer, *calls)] == ["c1", "c4"]
    assert await asked(layer) == []


async def test_a_question_says_everything_that_a_person_needs_to_decide() -> None:
    rule = Approval(allowed=("approve", "reject"), expires_after=60.0, policy="v7")
    [interrupt] = await asked(HumanInTheLoop(pay=rule), payment(5))
    now = interrupt.created_at
    assert interrupt == Interrupt(
        id="c1",
        kind="approval",
        call=payment(5),
        reason="pay needs approval",
        allowed=("approve", "reject"),
        editable=("cents",),
        created_at=now,
        expires_at=now + 60.0,
        patience=60.0,
        policy="v7",
    )
    [interrupt] = await asked(HumanInTheLoop(pay=Approval(editable=())), payment(5))
    assert interrupt.editable == ()


@pytest.mark.parametrize("rule", [5, "always", None])
def test_a_rule_that_is_none_is_refused(rule: Any) -> None:
    with pytest.raises(InvalidOption, match="expected True, a predicate or an Approval for pay"):
        HumanInTheLoop(pay=rule)


@pytest.mark.parametrize(("name", "near"), [("payy", "pay"), ("delete_all", "delete-all")])
async def test_a_rule_whose_tool_is_misspelt_is_refused_at_server_start(name: str, near: str) -> None:
    context: Any = Needed()
    with pytest.raises(InvalidOption, match=f"no tool '{name}'; did you mean '{near}'"):
        await HumanInTheLoop({name: True}).on_server_start(context)


async def test_rules_for_tools_of_other_agents_are_no_mistake() -> None:
    context: Any = Needed()
    assert await HumanInTheLoop(pay=True, send_mail=True, refund=True).on_server_start(context) == []

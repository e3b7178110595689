"""Families whose parent, or one of its sub-agents, dies at every append and between any two awaits."""

from __future__ import annotations

from pathlib import Path

import pytest

from sapwood import Agent, ToolContext, tool
from sapwood.agents import PendingApproval
from sapwood.middleware import HumanInTheLoop, SubAgents
from sapwood.models import call
from tests.agents.crashes import Scenario, World, crash_anywhere
from tests.agents.families import ask, parent, worker


async def approve(world: World, approval: PendingApproval) -> None:
    await approval.approve(by="ann")


def family(world: World) -> Agent:
    """Return an agent whose two sub-agents each pay, when somebody has allowed it, at the same time."""

    @tool(idempotent=True)
    async def pay(context: ToolContext, to: str) -> str:
        """Pay; the bank honours the key."""
        await world.act(f"pay {to}", context.idempotency_key)
        return f"paid {to}"

    def payer(to: str) -> Agent:
        return worker(call("pay", to=to), f"{to} has it", tools=[pay], middleware=[HumanInTheLoop(pay=True)])

    layer = SubAgents(ann=payer("ann"), bob=payer("bob"))
    return parent([ask("ann"), ask("bob")], call("pay", to="cy"), "All done.", layer=layer, tools=[pay])


@pytest.mark.row("S4-030", "UP-61", "BR-23")
@pytest.mark.parametrize("victim", ["c1", "c1/call_1"])
@pytest.mark.soak
def test_wherever_one_of_a_family_dies_the_questions_and_effects_of_all_are_the_same(
    tmp_path: Path, victim: str, request: pytest.FixtureRequest
) -> None:
    samples = None if request.config.getoption("--soak") else 12
    scenario = Scenario(family, {"pay ann": 1, "pay bob": 1, "pay cy": 1}, approve, victim)
    assert crash_anywhere(scenario, tmp_path, samples=samples) > 30

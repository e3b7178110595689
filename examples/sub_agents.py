"""A lead agent that has two others research at the same time, one of them with a person in the loop.

Shows: types of sub-agents, results of a given shape, approvals that come up, and what stays readable afterwards.
"""

from __future__ import annotations

import json

import attrs
import trio

from sapwood import Agent, Limits, ScriptedModel, open_runtime, tool
from sapwood.conversation import RunFinished, SubAgentFinished, ToolResult
from sapwood.middleware import HumanInTheLoop, SubAgent, SubAgents
from sapwood.models import call


@attrs.frozen
class Finding:
    """What a researcher hands in."""

    claim: str
    confidence: int


@tool(idempotent=True)
def buy_report(title: str, cents: int) -> str:
    """Buy a market report."""
    return f"{title}: demand rose by a fifth"


researcher = Agent(
    "researcher",
    model=ScriptedModel(
        call("submit_result", result={"claim": "Rates went up twice.", "confidence": "high"}),  # refused: not a number
        call("submit_result", result={"claim": "Rates went up twice.", "confidence": 90}),
    ),
)
analyst = Agent(
    "analyst",
    model=ScriptedModel(call("buy_report", title="Timber", cents=4900), "Demand rose by a fifth."),
    tools=[buy_report],
)
lead = Agent(
    "lead",
    model=ScriptedModel(
        [
            call("task", agent_type="researcher", description="How did the rates go this year?"),
            call("task", agent_type="analyst", description="How is the demand for timber?"),
        ],
        "Rates and demand both rose.",
    ),
    middleware=[
        SubAgents(
            researcher=SubAgent(researcher, description="finds facts", result=Finding),
            analyst=SubAgent(analyst, description="reads reports", limits=Limits(model_calls=5)),
        ),
        HumanInTheLoop(buy_report=lambda args: args.cents > 1000),
    ],
)


async def main() -> None:
    async with open_runtime() as runtime:
        session = await runtime.sessions.ensure_running(lead, "timber")
        async with session.send("What is the outlook?") as run:
            end = await run.finish()
        assert end is not None
        assert end.outcome == "interrupted", end

        [approval] = session.approvals
        print(" > ".join(approval.interrupt.path), "asks:", approval.interrupt.reason)
        with session.events() as events:
            await approval.approve(by="ann")
            async for event in events:
                if isinstance(event, SubAgentFinished):
                    print(event.sub_agent, event.outcome)
                if isinstance(event, RunFinished) and event.outcome == "completed":
                    print(event.text)
                    break

        results = [each for each in session.state.messages if isinstance(each, ToolResult)]
        assert json.loads(results[0].content) == {"claim": "Rates went up twice.", "confidence": 90}
        assert results[1].content == "Demand rose by a fifth."
        for sub_agent in session.state.sub_agents:
            work = await runtime.sessions.load(sub_agent.agent_id)
            print(f"{sub_agent.agent_id} ({sub_agent.agent}) said {len(work.messages)} messages")


if __name__ == "__main__":
    trio.run(main)

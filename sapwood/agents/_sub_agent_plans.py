"""How the agent of a sub-agent is made: configured or thought up, within what is left of its parent's limits."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import attrs

from sapwood.agents._agent import Agent
from sapwood.agents._submit_result import SUBMIT, submit_tool
from sapwood.conversation import Run
from sapwood.errors import InvalidOption, ToolError
from sapwood.middleware import HumanInTheLoop, Middleware, NewAgent, Stack, SubAgentPlan

NOTE: Final = (
    "You work for another agent, which reads nothing of what you do but {end}. Nobody answers questions in a text; "
    "finish the task, or say why it cannot be done."
)

_USED: Final[tuple[tuple[str, float, Callable[[Run], float]], ...]] = (
    ("model_calls", 1, lambda run: run.model_calls),
    ("steps", 1, lambda run: run.steps),
    ("tokens", 1, lambda run: run.usage.input_tokens + run.usage.output_tokens),
    ("tool_calls", 0, lambda run: run.tool_calls),
    ("seconds", 0.001, lambda run: run.seconds),
)
"""What a sub-agent takes over of its parent's limits, the least that it can work with, and what the parent used."""


def agent_of(plan: SubAgentPlan, parent: Agent) -> Agent:
    """Return the agent of a plan as it is configured.

    Raises:
        InvalidOption: if something else than an `Agent` was configured.
    """
    match plan.agent:
        case Agent() as agent:
            return agent
        case NewAgent(prompt, tools, model):
            return Agent("new", model=model or parent.model, prompt=prompt, tools=tools, retry=parent.retry)
        case other:
            raise InvalidOption(f"SubAgents: expected an Agent; got {other!r}")


def granted(parent: Agent, run: Run | None, plan: SubAgentPlan) -> dict[str, Any]:
    """Return what a sub-agent may use: the least of what is configured and what its parent's run has left (S3-105).

    Raises:
        ToolError: if nothing is left of one of the limits.
    """
    own = agent_of(plan, parent).limits
    most: dict[str, Any] = {}
    for name, least, used in _USED:
        configured = [getattr(each, name) for each in (own, *plan.limits)]
        left = getattr(parent.limits, name)
        if left is not None and run is not None:
            left -= used(run)
            if left < least:
                raise ToolError(f"the run has nothing left of its limit of {name}, so no sub-agent can work")
        values = [each for each in (*configured, left) if each is not None]
        most[name] = min(values) if values else None
    return most


def adapted(plan: SubAgentPlan, parent: Agent, limits: Mapping[str, Any]) -> Agent:
    """Return the agent that works: as configured, with its parent's rules and host values, within its limits.

    The configured agent's middleware is not set up a second time; it is the same.
    """
    agent = agent_of(plan, parent)
    tools = agent.tools if plan.result is None else (*agent.tools, submit_tool(plan.result))
    note = NOTE.format(end="your last answer" if plan.result is None else f"what you hand in with `{SUBMIT}`")
    middleware = _with_rules(agent.middleware, parent) if plan.approvals else agent.middleware
    changes = {
        "tools": tools,
        "prompt": f"{agent.prompt}\n\n{note}" if agent.prompt else note,
        "middleware": middleware,
        "stack": Stack(middleware),
        "limits": attrs.evolve(agent.limits, **limits),
        "host": {**parent.host, **agent.host},
        "stop_after": None,
    }
    made = copy.copy(agent)
    for name, value in changes.items():
        object.__setattr__(made, name, value)
    return made


def _with_rules(middleware: Sequence[Middleware], parent: Agent) -> tuple[Middleware, ...]:
    """Return layers that also hold the parent's rules about tools that need approval (S4-029, UP-20)."""
    inherited = _rules(parent.middleware)
    if not inherited:
        return tuple(middleware)
    own = _rules(middleware)
    others = (each for each in middleware if not isinstance(each, HumanInTheLoop))
    return (*others, HumanInTheLoop({**inherited, **own}))


def _rules(middleware: Sequence[Middleware]) -> dict[str, Any]:
    return {tool: rule for each in middleware if isinstance(each, HumanInTheLoop) for tool, rule in each.rules.items()}

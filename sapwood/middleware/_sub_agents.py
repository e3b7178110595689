"""SubAgents: lets the model hand work to other agents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Final

import attrs

from sapwood.conversation import SubAgent as SubAgentRecord
from sapwood.errors import InvalidOption, ToolError
from sapwood.middleware._context import AgentInfo, MiddlewareContext
from sapwood.middleware._contract import Middleware
from sapwood.middleware._names import several_names
from sapwood.middleware._sub_agent_host import NewAgent, RunLimits, SubAgentHost, SubAgentOrder, SubAgentPlan
from sapwood.models import ChatModel
from sapwood.tools import Pending, Tool, Toolbox, ToolContext, tool

NEW: Final = "new"
"""The type of the agents that a model thinks up."""

HOW: Final = (
    "Work that can be done on its own you can hand to sub-agents with `task`; several calls in one answer are done at "
    "the same time. They know nothing of this conversation, so say everything they need to know."
)

MOST_PROMPT: Final = 10_000
"""Characters of a prompt that a model may write."""


@attrs.frozen(kw_only=True)
class SubAgent:
    """One type of sub-agents.

    Attributes:
        agent: Its configuration.
        description: What it is for; the model reads it.
        result: What its result must look like, as an attrs class or a JSON schema of an object. The sub-agent gets a
            tool `submit_result`, and its work ends with an accepted call of it. None for the text of its last answer.
        limits: What one of its runs may use, beside its own limits.
        approvals: Whether the parent's rules about tools that need approval hold for its tools too (S4-029). Its own
            rules come first.

    Raises:
        InvalidOption: if one of them is none.
    """

    agent: AgentInfo = attrs.field(kw_only=False)
    description: str = ""
    result: type | Mapping[str, Any] | None = None
    limits: RunLimits | None = None
    approvals: bool = True

    def __attrs_post_init__(self) -> None:
        if not hasattr(self.agent, "stack"):
            raise InvalidOption(f"SubAgent: expected an Agent; got {self.agent!r}")
        shape: object = self.result
        if not (shape is None or isinstance(shape, Mapping) or (isinstance(shape, type) and attrs.has(shape))):
            raise InvalidOption(f"SubAgent result: expected an attrs class, a JSON schema or None; got {shape!r}")


def _toolbox(tools: Iterable[Tool[..., Any]]) -> Toolbox:
    return Toolbox(tools)


def _copy_models(models: Mapping[str, ChatModel]) -> Mapping[str, ChatModel]:
    return dict(models)


@attrs.frozen(kw_only=True)
class DynamicAgents:
    """Lets the model think up agents of its own: it writes their prompt, and chooses among these tools and models.

    They have no sub-agents, and stand under the parent's rules about tools that need approval.

    Attributes:
        tools: Tools that may be given to them.
        models: Models by the names that the model knows them by; without a choice it is the parent's.
        limits: What one of their runs may use.

    Raises:
        DuplicateName: if two tools have one name.
    """

    tools: Toolbox = attrs.field(factory=Toolbox, converter=_toolbox)
    models: Mapping[str, ChatModel] = attrs.field(factory=dict[str, ChatModel], converter=_copy_models)
    limits: RunLimits | None = None


class SubAgents(Middleware):
    """Offers `task`, with which the model hands work to sub-agents (S4-018).

    A sub-agent is an agent of its own: its conversation `parent/call id` has its own journal, middleware and limits,
    and runs below its parent (S4-028). The parent's run waits, without holding anything, until it has the result;
    several sub-agents work at the same time (S4-032). Only the final answer reaches the parent (S3-013). What people
    have to decide comes up to the parent's list of approvals, at any depth. A crash of either goes on where the
    journals end, and nothing is run twice.

    With `background=True` the call returns at once; `task_status` and `task_cancel` ask about it, and when it is done
    the agent is told with a message.

    Args:
        agents: Types by name, for names that are no Python identifiers.
        dynamic: Lets the model think up agents, with the tool `task_for_new_agent`; None for not.
        max_concurrent: Most sub-agents of one conversation that work at the same time; others wait for a place.
        limits: What one run of any of them may use. A sub-agent never gets more than is left of its parent's limits.
        inherit: Keys of the metadata that their conversations begin with.
        **types: Types by name: an `Agent`, or a `SubAgent` that says more about it.

    Raises:
        InvalidOption: if there is no type, one is none, or `inherit` is a single text.
    """

    def __init__(
        self,
        agents: Mapping[str, AgentInfo | SubAgent] | None = None,
        *,
        dynamic: DynamicAgents | None = None,
        max_concurrent: int = 4,
        limits: RunLimits | None = None,
        inherit: Sequence[str] = ("process_context",),
        **types: AgentInfo | SubAgent,
    ) -> None:
        given = {**(agents or {}), **types}
        if not given and dynamic is None:
            raise InvalidOption("SubAgents: expected a type of agents, such as researcher=Agent(...); got none")
        if type(max_concurrent) is not int or max_concurrent < 1:
            raise InvalidOption(f"SubAgents max_concurrent: expected an int >= 1; got {max_concurrent!r}")
        if NEW in given and dynamic is not None:
            raise InvalidOption(f"SubAgents: expected another name than {NEW!r}, which stands for dynamic agents")
        self.types = {name: each if isinstance(each, SubAgent) else SubAgent(each) for name, each in given.items()}
        self.dynamic = dynamic
        self.max_concurrent = max_concurrent
        self.limits = limits
        self.inherit = several_names(inherit, "SubAgents inherit")

    def system_prompt(self, context: MiddlewareContext) -> str:
        lines = [HOW]
        lines += [f"- {name}: {each.description or each.agent.name}" for name, each in self.types.items()]
        if self.dynamic is not None:
            tools = ", ".join(each.name for each in self.dynamic.tools) or "none"
            models = ", ".join(self.dynamic.models) or "none"
            lines.append(f"`task_for_new_agent` makes an agent as you need it. Tools: {tools}. Models: {models}.")
        return "\n".join(lines)

    def tools(self, context: MiddlewareContext) -> Sequence[Tool[..., Any]]:
        if context.sub_agents is None:
            raise InvalidOption("SubAgents: expected to work in the server of an agent; there is none here")
        desk = _Desk(self, context.sub_agents)
        offered: list[Tool[..., Any]] = []
        if self.types:
            offered.append(tool(idempotent=True, poll=desk.poll)(desk.task))
        if self.dynamic is not None:
            offered.append(tool(idempotent=True, poll=desk.poll)(desk.task_for_new_agent))
        return (*offered, tool(idempotent=True)(desk.task_status), tool(idempotent=True)(desk.task_cancel))

    def plan(self, record: SubAgentRecord) -> SubAgentPlan:
        """Return how a sub-agent is made.

        Raises:
            ToolError: if there is no such type (any more), or the call asks for what may not be given.
        """
        if record.agent == NEW and self.dynamic is not None:
            return self._plan_new(self.dynamic, record.call.arguments)
        kind = self.types.get(record.agent)
        if kind is None:
            known = ", ".join(self.types) or "none"
            raise ToolError(f"there is no agent type {record.agent!r}; there are: {known}")
        limits = tuple(each for each in (self.limits, kind.limits) if each is not None)
        return SubAgentPlan(kind.agent, kind.result, limits, self.inherit, kind.approvals)

    def _plan_new(self, dynamic: DynamicAgents, arguments: Mapping[str, Any]) -> SubAgentPlan:
        tools: list[Tool[..., Any]] = []
        for name in dict.fromkeys(arguments.get("tools") or ()):
            found = dynamic.tools.get(name)
            if found is None:
                known = ", ".join(each.name for each in dynamic.tools) or "none"
                raise ToolError(f"there is no tool {name!r} for it; there are: {known}")
            tools.append(found)
        chosen = arguments.get("model") or ""
        if chosen and chosen not in dynamic.models:
            raise ToolError(f"there is no model {chosen!r}; there are: {', '.join(dynamic.models) or 'none'}")
        prompt = str(arguments.get("prompt", ""))
        if not prompt.strip() or len(prompt) > MOST_PROMPT:
            raise ToolError(f"expected a prompt of 1 to {MOST_PROMPT} characters; got {len(prompt)}")
        limits = tuple(each for each in (self.limits, dynamic.limits) if each is not None)
        made = NewAgent(prompt, tuple(tools), dynamic.models.get(chosen))
        return SubAgentPlan(made, result=None, limits=limits, inherit=self.inherit, approvals=True)


class _Desk:
    """The tools of one conversation."""

    def __init__(self, layer: SubAgents, host: SubAgentHost) -> None:
        self._layer = layer
        self._host = host

    async def poll(self, poll_id: str) -> Pending | str:
        return await self._host.result(poll_id)

    async def task(
        self,
        context: ToolContext,
        agent_type: Annotated[str, "Which agent does it."],
        description: Annotated[str, "What it has to do, with everything it needs to know."],
        *,
        background: Annotated[bool, "Go on without waiting; you are told when it is done."] = False,
    ) -> Pending | str:
        """Hand work to a sub-agent, and get its final answer."""
        if agent_type not in self._layer.types:
            raise ToolError(f"there is no agent type {agent_type!r}; there are: {', '.join(self._layer.types)}")
        return await self._order(SubAgentOrder(agent_type, description, background), context)

    async def task_for_new_agent(
        self,
        context: ToolContext,
        description: Annotated[str, "What it has to do, with everything it needs to know."],
        prompt: Annotated[str, "Who it is and how it works: its system prompt."],
        tools: Annotated[list[str] | None, "Names of its tools."] = None,
        model: Annotated[str, "Name of its model; empty for the one that you are."] = "",
        *,
        background: Annotated[bool, "Go on without waiting; you are told when it is done."] = False,
    ) -> Pending | str:
        """Hand work to an agent made for it, and get its final answer."""
        return await self._order(SubAgentOrder(NEW, description, background), context)

    async def _order(self, order: SubAgentOrder, context: ToolContext) -> Pending | str:
        if not order.task.strip():
            raise ToolError("expected a description of what is to be done; got none")
        return await self._host.order(order, context)

    async def task_status(self, task_id: Annotated[str, "The id that `task` gave."]) -> str:
        """Say how far work in the background is."""
        report = await self._host.report(task_id)
        if report is None:
            raise ToolError(f"there is no task {task_id!r}")
        return f"{report.agent}: {report.status}" + (f"\n{report.text}" if report.text else "")

    async def task_cancel(self, task_id: Annotated[str, "The id that `task` gave."]) -> str:
        """Stop work in the background."""
        report = await self._host.report(task_id)
        if report is None:
            raise ToolError(f"there is no task {task_id!r}")
        return "it is being stopped" if await self._host.cancel(task_id) else f"it was over already: {report.status}"

"""What the tools of an agent do with its sub-agents: order work, ask about it, stop it."""

from __future__ import annotations

from typing import Final

import trio

from sapwood.agents._agent import Agent
from sapwood.agents._log import Log
from sapwood.agents._requests import GRACE
from sapwood.agents._sub_agent_homes import SubAgentHomes
from sapwood.agents._sub_agent_plans import adapted, granted
from sapwood.agents._sub_agent_work import ENDED, end_of
from sapwood.agents._sub_agents import SubAgentKeeper
from sapwood.conversation import State, SubAgent, evolve, journal
from sapwood.errors import ToolError
from sapwood.middleware import SubAgentOrder, SubAgentReport
from sapwood.tools import Pending, ToolContext

ASK_EVERY: Final = 3600.0
"""Seconds between two polls of a sub-agent, which tells by itself when it is done."""

NO_PLACE: Final = "waits until another sub-agent is done"


class SubAgentService:
    """Serves the tools of one conversation; see `SubAgentHost`.

    Args:
        agent: The parent.
        log: Its conversation.
        keeper: Keeps its sub-agents.
        homes: Where they live.
    """

    def __init__(self, agent: Agent, log: Log, keeper: SubAgentKeeper, homes: SubAgentHomes) -> None:
        self._agent = agent
        self._log = log
        self._keeper = keeper
        self._homes = homes

    @property
    def _state(self) -> State:
        return self._log.state

    async def order(self, order: SubAgentOrder, context: ToolContext) -> Pending | str:
        """Have a sub-agent work; see `SubAgentHost`."""
        known = self._keeper.get(context.call_id)
        if known is None:
            known = await self._note(order, context)
        # A server that is ending, and has cancelled this task, waits for whatever it starts now.
        await trio.lowlevel.checkpoint_if_cancelled()
        self._keeper.start_wanted()
        if known.background:
            return f"started as {known.id}; you are told when it is done"
        note = "" if self._keeper.attendant(known.id) is not None or known.outcome else NO_PLACE
        return Pending(known.id, every=ASK_EVERY, note=note)

    async def _note(self, order: SubAgentOrder, context: ToolContext) -> SubAgent:
        call = next(each.call for each in self._state.pending if each.call.id == context.call_id)
        agent_id = f"{self._log.agent_id}/{call.id}"
        sub_agent = SubAgent(call, context.idempotency_key, agent_id, order.agent, order.background)
        plan = self._keeper.plan(sub_agent)
        limits = granted(self._agent, self._state.run, plan)
        metadata = {key: self._state.metadata[key] for key in plan.inherit if key in self._state.metadata}
        made = adapted(plan, self._agent, limits)
        agent_id = await self._homes.prepare(made, agent_id, context.idempotency_key, metadata)
        sub_agent = evolve(sub_agent, agent_id=agent_id, limits=limits)
        await self._log.commit(journal.SubAgentStarted(sub_agent))
        return sub_agent

    async def result(self, sub_agent_id: str) -> Pending | str:
        """Return the result of a sub-agent; see `SubAgentHost`."""
        sub_agent = self._keeper.get(sub_agent_id)
        if sub_agent is None:
            raise ToolError(f"nothing is known of sub-agent {sub_agent_id!r} any more")
        if not sub_agent.outcome:
            return Pending(sub_agent_id, note=self._status(sub_agent))
        if sub_agent.outcome != "completed":
            raise ToolError(f"sub-agent {sub_agent.agent} {ENDED[sub_agent.outcome]}: {sub_agent.detail}")
        return await self._text(sub_agent)

    async def report(self, sub_agent_id: str) -> SubAgentReport | None:
        """Say how far a sub-agent is; see `SubAgentHost`."""
        sub_agent = self._keeper.get(sub_agent_id)
        if sub_agent is None:
            return None
        text = await self._text(sub_agent) if sub_agent.outcome == "completed" else sub_agent.detail
        return SubAgentReport(sub_agent.agent, sub_agent.outcome or self._status(sub_agent), text)

    async def cancel(self, sub_agent_id: str) -> bool:
        """Have a sub-agent stop; see `SubAgentHost`."""
        sub_agent = self._keeper.get(sub_agent_id)
        if sub_agent is None or sub_agent.outcome:
            return False
        await trio.lowlevel.checkpoint_if_cancelled()
        attendant = self._keeper.attendant(sub_agent_id)
        if attendant is None:
            await self._log.commit(journal.SubAgentEnded(sub_agent_id, "cancelled", "cancelled before it began"))
        else:
            self._keeper.dismiss(attendant, "cancelled by its parent", GRACE)
        return True

    async def _text(self, sub_agent: SubAgent) -> str:
        state = await self._homes.read(sub_agent.agent_id)
        end = None if state is None else end_of(state, submits=self._submits(sub_agent))
        return "" if end is None else end.text

    def _status(self, sub_agent: SubAgent) -> str:
        state = self._homes.publisher(sub_agent.agent_id).state
        return state.status if state is not None and self._keeper.attendant(sub_agent.id) is not None else "queued"

    def _submits(self, sub_agent: SubAgent) -> bool:
        try:
            return self._keeper.plan(sub_agent).result is not None
        except ToolError:
            return False  # its type is gone; what it said last is the best there is

"""Draining: bringing all agents of a process to rest before it ends."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress

import attrs
import trio

from sapwood.actors import Ref, Shutdown
from sapwood.agents._requests import HoldRun
from sapwood.errors import ActorDown

REASON = Shutdown("draining")


@attrs.frozen
class DrainReport:
    """What came of draining.

    Attributes:
        rested: Ids of the agents that had nothing at work, or whose run came to a boundary in time. Nothing is lost.
        cut: Ids of those that were still at work at the deadline. What they were doing (a model call, or tools) is
            lost or repeated as after a crash.
    """

    rested: tuple[str, ...]
    cut: tuple[str, ...]


def with_later(report: DrainReport, later: DrainReport) -> DrainReport:
    """Add what a later report says of other agents; what was first said of an agent stays true.

    A tree that takes a moment to end is met again, and the servers in it, dead by then, seem to rest.
    """
    rested = {*report.rested, *later.rested} - {*report.cut}
    cut = {*report.cut, *later.cut} - {*report.rested}
    return DrainReport(tuple(sorted(rested)), tuple(sorted(cut)))


async def drain_servers(servers: Mapping[str, Ref], top: Collection[str], deadline: float) -> DrainReport:
    """Hold the runs of all servers at their next boundary, then stop those that are no one's sub-agents.

    Args:
        servers: The servers, by the ids of their agents.
        top: Ids of those that are no sub-agents; the others stop with the agents above them.
        deadline: Seconds for the runs to come to a boundary; then all are stopped wherever they are.
    """
    rested: dict[str, None] = {}

    async def hold(agent_id: str, ref: Ref) -> None:
        with suppress(ActorDown):  # it has ended meanwhile, which is rest enough
            await ref.ask(HoldRun(), timeout=None)
        rested[agent_id] = None

    with trio.move_on_after(deadline):
        async with trio.open_nursery() as nursery:
            for agent_id, ref in servers.items():
                nursery.start_soon(hold, agent_id, ref)
    async with trio.open_nursery() as nursery:
        for agent_id, ref in servers.items():
            if agent_id in top:
                nursery.start_soon(_stop, ref)
    return DrainReport(tuple(sorted(rested)), tuple(sorted(set(servers) - set(rested))))


async def _stop(ref: Ref) -> None:
    with suppress(ActorDown):  # another reason than this one ended it
        await ref.stop(REASON)

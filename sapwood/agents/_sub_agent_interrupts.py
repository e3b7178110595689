"""Interrupts that come up from sub-agents: listed by the parent, decided by the sub-agent itself."""

from __future__ import annotations

from collections.abc import Sequence

from sapwood.conversation import Decision, Interrupt, State, SubAgent, evolve, journal, lift, lifted_from


def of_sub_agent(state: State, sub_agent_id: str) -> dict[str, Interrupt]:
    """Return what the parent lists for a sub-agent, by the ids that the interrupts have there."""
    found: dict[str, Interrupt] = {}
    for interrupt in state.interrupts:
        origin = lifted_from(interrupt)
        if origin is not None and origin[0] == sub_agent_id:
            found[origin[1]] = interrupt
    return found


def mirror(state: State, child: State, sub_agent: SubAgent, parent: str, now: float) -> list[journal.JournalEvent]:
    """Return the events after which the parent lists just what the sub-agent waits for.

    Args:
        state: The parent's conversation.
        child: That of the sub-agent.
        sub_agent: The sub-agent.
        parent: Name of the parent.
        now: Wall-clock seconds.
    """
    events: list[journal.JournalEvent] = []
    listed = of_sub_agent(state, sub_agent.id)
    wanted = {each.id: each for each in child.undecided}
    for inner_id, outer in listed.items():
        inner = wanted.get(inner_id)
        if inner is None:
            events += _closed(outer, child.decision(inner_id))
        else:
            passed_on = inner.escalations[len(outer.escalations) :]
            events += [journal.InterruptDecided(Decision(outer.id, "escalate", by=by, at=now)) for by in passed_on]
    raised = [lift(each, sub_agent, parent) for inner_id, each in wanted.items() if inner_id not in listed]
    return [*events, *map(journal.InterruptRaised, raised)]


def _closed(outer: Interrupt, decision: Decision | None) -> list[journal.JournalEvent]:
    if decision is None:
        return [journal.InterruptClosed(outer.id, "withdrawn")]
    # What was allowed for the rest of the sub-agent's run is not allowed for the parent's.
    taken = evolve(decision, interrupt_id=outer.id, scope="call")
    return [journal.InterruptDecided(taken), journal.InterruptClosed(outer.id, "carried_out")]


def withdrawn(state: State, sub_agent_id: str) -> Sequence[journal.JournalEvent]:
    """Return the events after which the parent lists nothing for a sub-agent."""
    return [journal.InterruptClosed(each.id, "withdrawn") for each in of_sub_agent(state, sub_agent_id).values()]

"""A chaos test: registry partitions and agents are killed while conversations go on.

Run it with pytest. One seed is one history, so a failure can be looked at again and again. It checks that no
conversation ever has two servers, that nobody is told "not running" of one that runs, and that every payment that an
agent was asked for is made once.
"""

from __future__ import annotations

from collections import Counter

import pytest
import trio

from sapwood import Agent, Runtime, ScriptedModel, ToolContext, open_runtime, tool
from sapwood.actors import SimulatedEnvironment
from sapwood.conversation import UserMessage
from sapwood.errors import ActorDown, RegistryUnavailable
from sapwood.middleware import PatchToolCalls
from sapwood.models import ModelRequest, Step, call
from sapwood.testing import Chaos, Invariants, simulate

CONVERSATIONS = 5


async def pay_all(runtime: Runtime, agent: Agent, conversation: str) -> None:
    """Ask for one payment and stay with it until it is made, whatever dies in between."""
    while True:
        try:
            session = await runtime.sessions.ensure_running(agent, conversation)
            # The same id every time: however often it is sent, the message counts once.
            await session.say("Pay 5 dollars", message_id=f"order-of-{conversation}")
            if session.state.status == "idle":
                return
        except RegistryUnavailable as unavailable:
            await trio.sleep(unavailable.retry_after / 10)
        except ActorDown:
            await trio.sleep(0.05)


def next_step(request: ModelRequest) -> Step:
    """Play the model: pay when asked to, and then say so."""
    return call("pay", cents=500) if isinstance(request.messages[-1], UserMessage) else "It is paid."


async def story(seed: int, payments: Counter[str]) -> None:
    @tool(idempotent=True)
    async def pay(context: ToolContext, cents: int) -> str:
        """Pay. cents: amount in US cents."""
        await trio.sleep(0.05)
        payments[context.idempotency_key] = 1  # as a payment service does that honours the key
        await trio.sleep(0.05)
        return f"paid {cents} cents"

    agent = Agent("cashier", model=ScriptedModel(then=next_step), tools=[pay], middleware=[PatchToolCalls()])
    async with (
        # Chaos kills far more often than life does, so the tree is given a larger budget of restarts.
        open_runtime(environment=SimulatedEnvironment(seed), restarts=1_000, signals=False) as runtime,
        trio.open_nursery() as nursery,
    ):
        with Invariants(runtime).watching() as invariants:
            chaos = Chaos(runtime, nursery)
            chaos.randomly(kill=("registry", "agents"), every=(0.01, 0.08))
            async with trio.open_nursery() as conversations:
                for number in range(CONVERSATIONS):
                    conversations.start_soon(pay_all, runtime, agent, f"conversation-{number}")
            chaos.stop()
            invariants.assert_hold()
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("seed", range(20))
def test_every_payment_is_made_once_by_one_server(seed: int) -> None:
    payments: Counter[str] = Counter()
    simulate(seed, story, seed, payments)
    assert sum(payments.values()) == CONVERSATIONS

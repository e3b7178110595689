"""Serves one conversation, talking to itself, until somebody else takes it over."""

from __future__ import annotations

import sys

import trio

from sapwood import Agent, ScriptedModel, open_runtime
from sapwood.conversation import AgentShutdown, UserMessage
from sapwood.errors import ActorDown, StaleEpoch
from sapwood.models import ModelRequest


def answer(request: ModelRequest) -> str:
    return f"answer {sum(isinstance(message, UserMessage) for message in request.messages)}"


async def main(path: str) -> None:
    agent = Agent("a", model=ScriptedModel(then=answer))
    async with open_runtime(store=path, signals=False) as runtime:
        session = await runtime.sessions.ensure_running(agent, "c1")
        with session.events() as events:
            try:
                while True:
                    sys.stdout.write(f"answered {(await session.say('next')).removeprefix('answer ')}\n")
                    sys.stdout.flush()
            except (StaleEpoch, ActorDown):
                pass
            async for event in events:
                if isinstance(event, AgentShutdown):
                    sys.stdout.write(f"shutdown {event.reason}\n")
                    sys.stdout.flush()


trio.run(main, sys.argv[1])

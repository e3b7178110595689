"""AutoGen's core: a send without an answer is a publication to a topic of one agent."""
# mypy: disable-error-code="import-not-found, misc, untyped-decorator"
# pyright: reportMissingImports=false, reportUntypedBaseClass=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# The library is installed only where its cell runs.

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import autogen_core

from benchmarks.cells import workloads
from benchmarks.cells.common import Unsupported
from benchmarks.cells.raw_asyncio import Asyncio

STATES: dict[str, Counter] = {}


@dataclass
class Add:
    pass


@dataclass
class Total:
    pass


@dataclass
class Hop:
    left: int


class Counter(autogen_core.BaseAgent):
    def __init__(self) -> None:
        super().__init__("counts")
        self.total = 0
        self.next: Handle | None = None
        self.done: Any = None
        STATES[self.id.key] = self

    async def on_message_impl(self, message: Any, ctx: Any) -> Any:
        if isinstance(message, Add):
            self.total += 1
        elif isinstance(message, Hop):
            if message.left:
                assert self.next is not None
                await self.publish_message(Hop(message.left - 1), topic_id=self.next.topic)
            else:
                self.done.set()
        else:
            return self.total
        return None


class Handle:
    def __init__(self, runtime: Any, key: str) -> None:
        self.runtime = runtime
        self.key = key
        self.id = autogen_core.AgentId("counter", key)
        self.topic = autogen_core.TopicId("bench", key)

    async def tell(self, message: Any) -> None:
        await self.runtime.publish_message(message, topic_id=self.topic)

    async def ask(self, message: Any) -> Any:
        return await self.runtime.send_message(message, recipient=self.id)


class Subject(Asyncio):
    scale = 40
    async_tell = True
    async_find = True
    add = Add()
    total = Total()

    def __init__(self) -> None:
        self.runtime = autogen_core.SingleThreadedAgentRuntime()

    def hop(self, left: int) -> Any:
        return Hop(left)

    async def start(self, count: int) -> list[Any]:
        await self.runtime.register_factory("counter", Counter, expected_class=Counter)
        await self.runtime.add_subscription(autogen_core.TypeSubscription("bench", "counter"))
        for kind in (Add, Total, Hop):
            self.runtime.add_message_serializer(autogen_core.try_get_known_serializers_for_type(kind))
        self.runtime.start()
        actors: list[Any] = []
        for number in range(count):
            await self.runtime.get("counter", key=f"bench-{number}", lazy=False)
            actors.append(Handle(self.runtime, f"bench-{number}"))
        return actors

    def aim(self, actor: Any, following: Any, done: Any) -> None:
        state = STATES[actor.key]
        state.next, state.done = following, done

    def finder(self, actors: list[Any]) -> tuple[Callable[[Any], Any], list[Any]]:
        def find(name: str) -> Awaitable[Any]:
            found: Awaitable[Any] = self.runtime.get("counter", key=name)
            return found

        return find, [actor.key for actor in actors]

    async def recover(self, actor: Any) -> None:
        raise Unsupported("restarts nothing")


def measure(workload: str) -> dict[str, float]:
    """Run one workload in this process."""
    return workloads.measure(Subject(), workload)

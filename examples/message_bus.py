"""Let agents talk over a bus: the seven ways, each with what must hold.

Shows: direct messages, requests to workers, topics, broadcasts, priorities, the history, and a threaded answer.
"""

from __future__ import annotations

from typing import Any

import trio

from sapwood import open_runtime
from sapwood.actors import record
from sapwood.messaging import Bus, Envelope


@record("examples.text")
class Text:
    text: str


@record("examples.task")
class Task:
    name: str


@record("examples.result")
class Result:
    result: str
    task: str


class Inbox:
    """A handler that keeps what it gets."""

    def __init__(self) -> None:
        self.got: list[Envelope[Any]] = []

    def __call__(self, envelope: Envelope[Any]) -> None:
        self.got.append(envelope)

    def texts(self) -> list[str]:
        return [envelope.payload.text for envelope in self.got]


async def point_to_point(bus: Bus) -> None:
    inbox = Inbox()
    await bus.register("agent-2", inbox)
    report = await bus.client("agent-1").send("agent-2", Text("good morning"), wait=True)
    assert (report.status, inbox.texts()) == ("delivered", ["good morning"])
    print("1. direct:", inbox.texts())


async def requests_to_workers(bus: Bus) -> None:
    async def work(envelope: Envelope[Task | Text]) -> Result | None:
        await trio.sleep(0.01)
        match envelope.payload:
            case Task(name=name):
                return Result(f"{envelope.recipient} did it", name)
            case Text():
                return None  # an announcement

    for name in ("worker-1", "worker-2"):
        await bus.register(name, work)
    coordinator = bus.client("coordinator")
    results: list[Result] = []

    async def delegate(worker: str, task: str) -> None:
        results.append(await coordinator.request(worker, Task(task)))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(delegate, "worker-1", "analyse")
        nursery.start_soon(delegate, "worker-2", "report")
        nursery.start_soon(delegate, "worker-1", "notify")
    assert {result.task for result in results} == {"analyse", "report", "notify"}
    for answer in bus.history(agent="coordinator", kind="response"):
        assert answer.reply_to is not None, "every answer names the request that it belongs to"
    print("2. requests:", sorted(result.task for result in results))


async def topics(bus: Bus) -> None:
    inboxes = {"reader-1": ["alerts"], "reader-2": ["alerts", "updates"], "reader-3": ["updates"]}
    got = {name: Inbox() for name in inboxes}
    for name, patterns in inboxes.items():
        await bus.register(name, got[name], topics=patterns)
    publisher = bus.client("publisher")
    alerts = await publisher.publish("alerts", Text("the disk is nearly full"), wait=True)
    updates = await publisher.publish("updates", Text("version 2 is out"), wait=True)
    assert (alerts.targets_contacted, updates.targets_contacted) == (2, 2)
    assert [len(inbox.got) for inbox in got.values()] == [1, 2, 1]
    print("3. topics:", {name: len(inbox.got) for name, inbox in got.items()})


async def broadcast(bus: Bus) -> None:
    report = await bus.client("coordinator").broadcast(Text("we close at six"))
    assert report.targets_contacted == len(bus.participants())
    print("4. broadcast to", report.targets_contacted)


async def priorities(bus: Bus) -> None:
    inbox = Inbox()
    await bus.register("busy", inbox)
    sender = bus.client("agent-1")
    sender.send_nowait("busy", Text("as usual"))
    sender.send_nowait("busy", Text("now"), kind="command", priority="urgent")
    await sender.send("busy", Text("when there is time"), priority="low", wait=True)
    assert inbox.texts() == ["now", "as usual", "when there is time"]
    print("5. priorities:", inbox.texts())


def history(bus: Bus) -> None:
    newest = bus.history(limit=5)
    assert len(newest) == 5
    assert [envelope.created_at for envelope in newest] == sorted(envelope.created_at for envelope in newest)
    print("6. history:", [f"{envelope.sender} -> {envelope.recipient or 'all'}" for envelope in newest])


async def threaded_answer(bus: Bus) -> None:
    answered = trio.Event()

    async def answer(envelope: Envelope[Text]) -> None:
        await bob.reply(envelope, Text("all is well"))

    def listen(envelope: Envelope[Text]) -> None:
        answered.set()

    alice = await bus.register("alice", listen)
    bob = await bus.register("bob", answer)
    await alice.send("bob", Text("how are things?"), kind="request")
    await answered.wait()
    question, reply = bus.history(agent="alice", limit=2)
    assert reply.reply_to == question.message_id
    assert reply.correlation_id == question.correlation_id
    print("7. thread:", question.payload.text, reply.payload.text)


async def main() -> None:
    async with open_runtime() as runtime:
        bus = runtime.bus
        await point_to_point(bus)
        await requests_to_workers(bus)
        await topics(bus)
        await broadcast(bus)
        await priorities(bus)
        history(bus)
        await threaded_answer(bus)

        lost = await bus.client("agent-1").send("nobody", Text("is anyone there?"))
        assert lost.errors == ("No handler registered for agent 'nobody'",)
        letters = bus.dead_letters.inspect()
        assert [letter.reason for letter in letters] == ["unknown_recipient"]
        print("and nothing is lost silently:", letters[0].detail)


if __name__ == "__main__":
    trio.run(main)

"""Spawn ten agents from a script, follow what they do, and leave cleanly.

Shows: agents from one configuration, their events merged into one stream, files shared by scope, the ordered stop.
"""

from __future__ import annotations

import trio

from sapwood import Agent, OfflineModel, Runtime, open_runtime
from sapwood.conversation import RunFinished, ToolFinished
from sapwood.middleware import FileSystem, PatchToolCalls, TodoList

clerk = Agent(
    name="clerk",
    model=OfflineModel(),
    prompt="You write reports.",
    middleware=[TodoList(), FileSystem(scope=("team", "reports")), PatchToolCalls()],
)


async def work(runtime: Runtime, number: int) -> None:
    session = await runtime.sessions.ensure_running(clerk, f"clerk-{number}")
    request = f"Add a to-do: report {number}; then write 'report {number} is done' to report-{number}.txt"
    async with session.send(request) as run:
        async for event in run:
            match event:
                case ToolFinished(result=result):
                    print(f"clerk-{number}: {result.name}: {result.content}")
                case RunFinished(outcome=outcome):
                    print(f"clerk-{number}: {outcome}")
                    assert outcome == "completed", event
                case _:
                    pass


async def main() -> None:
    async with open_runtime() as runtime:
        async with trio.open_nursery() as nursery:
            for number in range(10):
                nursery.start_soon(work, runtime, number)
        assert runtime.sessions.running() == sorted(f"clerk-{number}" for number in range(10))
        listed = await runtime.files.client(("team", "reports")).ls()
        assert [entry.path for entry in listed.entries] == sorted(f"report-{number}.txt" for number in range(10))
        print(runtime.tree().render())
    print("stopped, in order")


if __name__ == "__main__":
    trio.run(main)

"""An agent that uses another one over MCP, with the server killed in the middle of a call.

The program starts itself as the server: there it serves a librarian over standard input and output. Shows tools of an
MCP server beside the agent's own, what the model is told when the process dies, and that the next call works.
"""

from __future__ import annotations

import os
import signal
import sys

import trio

from sapwood import Agent, Running, ScriptedModel, open_runtime, tool
from sapwood.conversation import ToolResult
from sapwood.mcp import McpClient, McpTools, StdioServer, mcp_server, serve_agents
from sapwood.models import call
from sapwood.supervision import Backoff

PID = trio.Path("librarian.pid")


@tool
async def search(title: str) -> str:
    """Look a book up. title: what it is called."""
    await PID.write_text(str(os.getpid()))
    if title == "a slow one":
        await trio.sleep_forever()
    return f"{title}: shelf 3"


async def serve() -> None:
    """Be the server: a librarian that searches."""
    slow, quick = call("search", title="a slow one"), call("search", title="Walden")
    model = ScriptedModel(
        by=lambda request: "slow" if "slow" in str(request.messages) else "quick",
        scripts={"slow": [slow, "found"], "quick": [quick, "It stands on shelf 3."]},
    )
    async with open_runtime() as runtime:
        await serve_agents(runtime, [Agent("librarian", model=model, tools=[search])]).run_stdio()


async def kill_the_server() -> None:
    """Kill it as soon as it searches."""
    while not await PID.exists() or not await PID.read_text():  # noqa: ASYNC110  # another process writes it
        await trio.sleep(0.01)
    os.kill(int(await PID.read_text()), signal.SIGKILL)


async def main() -> None:
    description = StdioServer(sys.executable, [__file__, "serve"], env={"PYTHONPATH": os.environ.get("PYTHONPATH", "")})
    library = mcp_server("library", description, backoff=Backoff(initial=0.1))
    model = ScriptedModel(
        call("ask_librarian", conversation="c1", message="Find a slow one"),
        "The library broke down.",
        call("ask_librarian", conversation="c2", message="Find Walden"),
        "Look on shelf 3.",
    )
    reader = Agent("reader", model=model, middleware=[McpTools("library")])

    async with open_runtime(children=[library], log=False) as runtime:
        client = McpClient(runtime.registry, "library")
        print("tools:", ", ".join(each.name for each in client.tools()))
        session = await runtime.sessions.ensure_running(reader, "reading")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(kill_the_server)
            print("first:", await session.say("Find me something."))
        while not isinstance(client.lookup(), Running):  # noqa: ASYNC110  # a process has to start
            await trio.sleep(0.01)
        print("then:", await session.say("Try Walden."))

        lost, found = (each for each in session.state.messages if isinstance(each, ToolResult))
        print("the model read:", lost.content)
        assert lost.is_error
        assert "nobody knows whether it had its effect" in lost.content
        assert "It stands on shelf 3." in found.content


if __name__ == "__main__":
    trio.run(serve if sys.argv[1:] == ["serve"] else main)

"""A program that serves an agent over standard input and output, and prints what has no place there."""

from __future__ import annotations

import os
import subprocess
import sys

import trio

from sapwood import Agent, ScriptedModel, open_runtime, tool
from sapwood.mcp import serve_agents
from sapwood.models import call


@tool
def chatter() -> str:
    """Print in every way there is."""
    sys.stdout.write("printed\n")
    sys.stdout.flush()
    os.write(1, b"written\n")
    subprocess.run([sys.executable, "-c", "print('by a child')"], check=True, stdin=subprocess.DEVNULL)
    return f"read {sys.stdin.read()!r}"


async def main() -> None:
    sys.stderr.write("before\n")
    model = ScriptedModel(call("chatter"), "done", then="again")
    worker = Agent("worker", model=model, tools=[chatter])
    async with open_runtime() as runtime:
        await serve_agents(runtime, [worker]).run_stdio()


trio.run(main)

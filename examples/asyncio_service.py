"""Embed the runtime in an asyncio service through a portal; lookups map to 200, 404 and 503.

The runtime runs in a thread with a trio loop of its own; every request crosses over with `portal.acall`, and a request
that is cancelled cancels what it had started over there.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import httpx2
from hypercorn.asyncio import serve  # pyright: ignore[reportUnknownVariableType]  # parts of its signature are bare
from hypercorn.config import Config
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

import sapwood
from sapwood import Agent, NotRunning, OfflineModel, Running, Runtime, Unavailable
from sapwood.errors import RegistryUnavailable
from sapwood.middleware import PatchToolCalls, TodoList
from sapwood.registry import Partition

assistant = Agent(
    "assistant", model=OfflineModel(), prompt="You keep to-do lists.", middleware=[TodoList(), PatchToolCalls()]
)

Answer = tuple[int, dict[str, str]]


async def show(runtime: Runtime, conversation: str) -> Answer:
    """Say what a conversation is doing. Runs in the runtime's loop."""
    match await runtime.sessions.lookup(conversation):
        case Running(session):
            return 200, {"status": (await session.status()).status}
        case NotRunning():
            return 404, {"status": "asleep"}
        case Unavailable(reason):
            return 503, {"reason": reason}


async def say(runtime: Runtime, conversation: str, text: str) -> Answer:
    """Send a message, starting the conversation if nothing runs. Runs in the runtime's loop."""
    try:
        session = await runtime.sessions.ensure_running(assistant, conversation)
        return 200, {"answer": await session.say(text)}
    except RegistryUnavailable as unavailable:
        return 503, {"reason": unavailable.reason}


async def kill_registry(runtime: Runtime) -> None:
    for node in runtime.tree().walk():
        if node.kind == Partition.__name__:
            node.ref.kill()


def application(runtime: Runtime) -> Starlette:
    async def get(request: Request) -> Response:
        status, body = await runtime.portal.acall(show, runtime, request.path_params["id"])
        return JSONResponse(body, status)

    async def post(request: Request) -> Response:
        text = (await request.body()).decode()
        status, body = await runtime.portal.acall(say, runtime, request.path_params["id"], text)
        return JSONResponse(body, status)

    routes = [Route("/conversations/{id}", get, methods=["GET"]), Route("/conversations/{id}", post, methods=["POST"])]
    return Starlette(routes=routes)


async def use(url: str, runtime: Runtime) -> None:
    async with httpx2.AsyncClient(base_url=url) as client:
        assert (await client.get("/conversations/one")).status_code == 404
        answer = await client.post("/conversations/one", content="Add a to-do: water the plants")
        assert answer.status_code == 200, answer.text
        assert (await client.get("/conversations/one")).json() == {"status": "idle"}

        await runtime.portal.acall(kill_registry, runtime)
        seen: set[int] = set()
        while (status := (await client.post("/conversations/one", content="List my to-dos")).status_code) != 200:
            seen.add(status)
        assert seen <= {503}, seen
        answer = await client.post("/conversations/one", content="List my to-dos")
        assert "water the plants" in answer.json()["answer"], answer.text
        print("after recovery:", answer.json()["answer"])


async def main() -> None:
    with sapwood.start_in_thread() as thread:
        runtime = thread.value
        listener = socket.create_server(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        config = Config()
        config.bind = [f"fd://{listener.detach()}"]  # the server closes it
        config.accesslog = config.errorlog = None
        stop = asyncio.Event()
        served: Any = application(runtime)
        server = asyncio.create_task(serve(served, config, shutdown_trigger=stop.wait))
        await use(url, runtime)
        stop.set()
        await server
    print("stopped, in order")


if __name__ == "__main__":
    asyncio.run(main())

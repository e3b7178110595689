"""Embed the runtime in an ASGI service on trio; lookups map to 200, 404 and 503.

The HTTP server is the last child of the tree, so it starts last and stops first. Shows the three answers over HTTP
while a registry partition is killed, a readiness probe, and a conversation that goes on afterwards.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import httpx2
import trio
from hypercorn.config import Config
from hypercorn.trio import serve  # pyright: ignore[reportUnknownVariableType]  # parts of its signature are bare
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sapwood import Agent, NotRunning, OfflineModel, Running, Runtime, Unavailable, child, open_runtime
from sapwood.errors import RegistryUnavailable
from sapwood.middleware import PatchToolCalls, TodoList
from sapwood.registry import Partition

assistant = Agent(
    name="assistant", model=OfflineModel(), prompt="You keep to-do lists.", middleware=[TodoList(), PatchToolCalls()]
)


def cannot_tell(reason: str, retry_after: float) -> JSONResponse:
    return JSONResponse({"reason": reason}, 503, {"Retry-After": f"{retry_after:g}"})


def application(runtime: Runtime) -> Starlette:
    async def show(request: Request) -> Response:
        """Say what a conversation is doing, without starting it."""
        match await runtime.sessions.lookup(request.path_params["id"]):
            case Running(session):
                return JSONResponse({"status": (await session.status()).status})
            case NotRunning():
                return JSONResponse({"status": "asleep"}, 404)
            case Unavailable(reason, retry_after):
                return cannot_tell(reason, retry_after)

    async def say(request: Request) -> Response:
        """Send a message, starting the conversation if nothing runs."""
        try:
            session = await runtime.sessions.ensure_running(assistant, request.path_params["id"])
            return JSONResponse({"answer": await session.say((await request.body()).decode())})
        except RegistryUnavailable as unavailable:
            return cannot_tell(unavailable.reason, unavailable.retry_after)

    async def ready(_: Request) -> Response:
        return Response(status_code=200 if runtime.ready() else 503)

    return Starlette(
        routes=[
            Route("/conversations/{id}", show, methods=["GET"]),
            Route("/conversations/{id}", say, methods=["POST"]),
            Route("/readyz", ready),
        ]
    )


class Server:
    """The HTTP server as a child of the tree, on a free port of the loopback interface."""

    def __init__(self) -> None:
        self.runtime: Runtime | None = None
        self.url = ""

    async def run(self, task_status: Any = None) -> None:
        config = Config()
        config.bind = ["127.0.0.1:0"]
        config.accesslog = config.errorlog = None
        async with trio.open_nursery() as nursery:
            [self.url] = await nursery.start(partial(serve, self.late_application, config, mode="asgi"))
            task_status.started()

    async def late_application(self, *call: Any) -> None:
        assert self.runtime is not None, "requests come only after open_runtime has returned"
        await application(self.runtime)(*call)


async def main() -> None:
    server = Server()
    async with open_runtime(children=[child(server.run, id="http")]) as runtime:
        server.runtime = runtime
        async with httpx2.AsyncClient(base_url=server.url) as client:
            assert (await client.get("/readyz")).status_code == 200
            assert (await client.get("/conversations/one")).status_code == 404
            answer = await client.post("/conversations/one", content="Add a to-do: water the plants")
            assert answer.status_code == 200, answer.text
            assert (await client.get("/conversations/one")).json() == {"status": "idle"}

            # The partition that knows about the conversation dies; until the tree has recovered, nobody can tell.
            for node in runtime.tree().walk():
                if node.kind == Partition.__name__:
                    node.ref.kill()
            await trio.lowlevel.checkpoint()
            seen = {(await client.get("/conversations/one")).status_code}
            while not runtime.ready():
                seen.add((await client.get("/readyz")).status_code)
            print("status codes while the registry was down:", sorted(seen))

            assert (await client.get("/conversations/one")).status_code == 404
            answer = await client.post("/conversations/one", content="List my to-dos")
            assert "water the plants" in answer.json()["answer"], answer.text
            print("after recovery:", answer.json()["answer"])


if __name__ == "__main__":
    trio.run(main)

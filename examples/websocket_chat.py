"""Chat over a websocket: commands of the wire schema go in, a snapshot, events and outcomes come out.

The host is the function `chat`. Shows: a conversation that is started by a factory from its routing data, a snapshot
and then every event after it, commands that are checked, a client that comes back, and 503 in words.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import trio
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from sapwood import Agent, OfflineModel, Runtime, Session, open_runtime, tool
from sapwood.agents import Conversation, FactoryRouter, decode_command, refusal
from sapwood.conversation import event_to_json, outcome_to_json, snapshot_to_json
from sapwood.errors import SapwoodError
from sapwood.middleware import HumanInTheLoop, TodoList


@tool
def refund(order: str, cents: int) -> str:
    """Refund part of an order. cents: amount in US cents."""
    return f"refunded {cents} cents of order {order}"


def support(conversation: Conversation) -> Agent:
    return Agent(
        "support",
        model=OfflineModel(),
        prompt=f"You help customer {conversation.routing['customer']}.",
        tools=[refund],
        middleware=[TodoList(), HumanInTheLoop(refund=True)],
    )


router = FactoryRouter()
router.add("support", support)


def application(runtime: Runtime) -> Starlette:
    async def chat(socket: WebSocket) -> None:
        await socket.accept()
        customer, agent_id = socket.query_params["customer"], socket.path_params["id"]
        routing = {"factory": "support", "customer": customer}
        try:
            session = await runtime.sessions.ensure_running(router, agent_id, routing=routing)
        except SapwoodError as error:
            await socket.send_json(outcome_to_json(refusal(error)))
            await socket.close(1013)
            return
        async with trio.open_nursery() as nursery:
            nursery.start_soon(tell, socket, session)
            try:
                while True:
                    await socket.send_json(await answer(session, await socket.receive_text(), customer))
            except WebSocketDisconnect:
                nursery.cancel_scope.cancel()

    return Starlette(routes=[WebSocketRoute("/conversations/{id}", chat)])


async def tell(socket: WebSocket, session: Session) -> None:
    snapshot, events = session.join()
    with events:
        await socket.send_json(snapshot_to_json(snapshot))
        async for event in events:
            await socket.send_json(event_to_json(event))


async def answer(session: Session, text: str, customer: str) -> dict[str, Any]:
    try:
        command = decode_command(text)
    except SapwoodError as error:
        return outcome_to_json(refusal(error))
    return outcome_to_json(await session.execute(command, by=customer))


# --- a client, in the same process --------------------------------------------------------------------


class Client:
    """The other end of one websocket, connected to the application without a network."""

    def __init__(self) -> None:
        self._to_host, self._from_client = trio.open_memory_channel[dict[str, Any]](100)
        self._to_client, self._from_host = trio.open_memory_channel[dict[str, Any]](1_000)

    async def receive_from_client(self) -> dict[str, Any]:
        return await self._from_client.receive()

    async def send_to_client(self, message: Any) -> None:
        await self._to_client.send(dict(message))

    async def connect(self) -> None:
        await self._to_host.send({"type": "websocket.connect"})

    async def send(self, kind: str, **fields: Any) -> None:
        text = json.dumps({"version": 1, "type": kind, **fields})
        await self._to_host.send({"type": "websocket.receive", "text": text})

    async def read(self, kind: str, **wanted: Any) -> dict[str, Any]:
        """Read frames up to one of a kind with these values."""
        while True:
            message = await self._from_host.receive()
            frame: dict[str, Any] = json.loads(message["text"]) if "text" in message else {}
            if frame.get("type") == kind and wanted.items() <= frame.items():
                return frame

    async def leave(self) -> None:
        await self._to_host.send({"type": "websocket.disconnect", "code": 1000})


@asynccontextmanager
async def connected(app: Starlette, agent_id: str) -> AsyncGenerator[Client]:
    client = Client()
    scope: dict[str, Any] = {
        "type": "websocket",
        "path": f"/conversations/{agent_id}",
        "raw_path": f"/conversations/{agent_id}".encode(),
        "root_path": "",
        "scheme": "ws",
        "query_string": b"customer=ann",
        "headers": [],
        "subprotocols": [],
    }
    async with trio.open_nursery() as nursery:
        nursery.start_soon(app, scope, client.receive_from_client, client.send_to_client)
        await client.connect()
        yield client
        await client.leave()


async def main() -> None:
    async with open_runtime() as runtime:
        app = application(runtime)
        with trio.fail_after(30):
            async with connected(app, "one") as client:
                assert (await client.read("stream.snapshot"))["messages"] == []
                await client.send("command.sned", text="typo")
                refused = await client.read("outcome.refused")
                print("a typo:", refused["problem"])
                assert "command.send" in refused["problem"]

                await client.send("command.send", id="1", text="Add a to-do: water the plants")
                await client.read("outcome.taken", id="1")
                end = await client.read("stream.run_finished")
                print("answer:", end["text"])
                assert end["outcome"] == "completed", end

            # The client comes back later, with a snapshot of everything that was said meanwhile.
            async with connected(app, "one") as client:
                snapshot = await client.read("stream.snapshot")
                assert snapshot["todos"][0]["content"] == "water the plants", snapshot
                await client.send("command.status", id="2")
                status = await client.read("outcome.status", id="2")
                print("status:", status["status"], "after", status["messages"], "messages")

            runtime.registry.drain()
            async with connected(app, "two") as client:
                refused = await client.read("outcome.refused")
                print("while draining:", refused["reason"], "- again in", refused["retry_after"], "s")
                assert refused["reason"] == "unavailable", refused


if __name__ == "__main__":
    trio.run(main)

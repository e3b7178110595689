"""`FakeProvider`: a model provider on loopback that speaks the real wire formats and misbehaves on request."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from importlib.util import find_spec
from typing import Any

import attrs
import trio

from sapwood.errors import MissingExtra
from sapwood.testing._fake_wire import (
    FakeAnswer,
    FakeBody,
    FakeFailure,
    FakeReply,
    FakeSilence,
    WireFormat,
    answer_events,
    error_body,
    error_event,
    keep_alive,
)


@attrs.frozen
class FakeRequest:
    """A request as it arrived.

    Attributes:
        path: Its path.
        headers: Its headers, names in lower case.
        body: Its decoded JSON body.
    """

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


class FakeProvider:
    """A server of both wire formats, for tests; made by `open_fake_provider`.

    Each request takes the next reply of the script; one too many gets status 418. The format follows from the path.

    Attributes:
        port: Its port on 127.0.0.1.
        requests: Every request so far.
        disconnects: How many answers the client left before their end.
        open_connections: Connections that are open now.
        connections: Connections that were ever made.
    """

    def __init__(self, port: int, replies: tuple[FakeReply, ...]) -> None:
        self.port = port
        self.requests: list[FakeRequest] = []
        self.disconnects = 0
        self.open_connections = 0
        self.connections = 0
        self._replies = deque(replies)
        self._changed = trio.Event()

    @property
    def anthropic_url(self) -> str:
        """The `base_url` for `AnthropicModel`."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def openai_url(self) -> str:
        """The `base_url` for `OpenAIModel`."""
        return f"http://127.0.0.1:{self.port}/v1"

    def script(self, *replies: FakeReply) -> None:
        """Add replies to the end of the script."""
        self._replies.extend(replies)

    async def wait_for_disconnects(self, count: int = 1) -> None:
        """Wait until the client has left at least `count` answers before their end."""
        while self.disconnects < count:
            await self._changed.wait()
        await trio.lowlevel.checkpoint()

    async def wait_for_requests(self, count: int = 1) -> None:
        """Wait until at least `count` requests have arrived."""
        while len(self.requests) < count:
            await self._changed.wait()
        await trio.lowlevel.checkpoint()

    async def wait_until_idle(self) -> None:
        """Wait until no connection is open."""
        while self.open_connections:
            await self._changed.wait()
        await trio.lowlevel.checkpoint()

    def _note(self) -> None:
        changed, self._changed = self._changed, trio.Event()
        changed.set()

    async def _serve(self, stream: trio.SocketStream) -> None:
        self.open_connections += 1
        self.connections += 1
        try:
            async with stream:
                while await _Exchange(self, stream).run():
                    pass
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            self.open_connections -= 1
            self._note()

    def _next_reply(self) -> FakeReply:
        if self._replies:
            return self._replies.popleft()
        return FakeFailure(418, f"no reply in the script for request {len(self.requests)}", "invalid_request_error")


class _Exchange:
    """One request on one connection, and its answer."""

    def __init__(self, provider: FakeProvider, stream: trio.SocketStream) -> None:
        self._provider = provider
        self._stream = stream
        self._client_left = False

    async def run(self) -> bool:
        """Serve one request; returns whether the connection can be used for another."""
        request = await self._receive()
        if request is None:
            return False
        self._provider.requests.append(request)
        self._provider._note()
        wire: WireFormat = "anthropic" if request.path.endswith("/messages") else "openai"
        reusable = False
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch, nursery.cancel_scope)
            reusable = await self._answer(self._provider._next_reply(), wire)
            nursery.cancel_scope.cancel()
        if self._client_left:
            self._provider.disconnects += 1
            self._provider._note()
        return reusable

    async def _watch(self, answering: trio.CancelScope) -> None:
        """End the answering when the client leaves; it sends nothing while it is being answered."""
        with suppress(trio.BrokenResourceError):
            await self._stream.receive_some(1)
        self._client_left = True
        answering.cancel()

    async def _answer(self, reply: FakeReply, wire: WireFormat) -> bool:
        try:
            match reply:
                case FakeAnswer():
                    return await self._stream_answer(reply, wire)
                case FakeFailure():
                    extra = f"retry-after: {reply.retry_after}\r\n" if reply.retry_after else ""
                    await self._send(reply.status, "application/json", error_body(reply, wire), extra)
                case FakeBody():
                    await self._send(200, reply.content_type, reply.body)
                case FakeSilence():
                    await trio.sleep_forever()
        except trio.BrokenResourceError:
            self._client_left = True
            return False
        return True

    async def _stream_answer(self, answer: FakeAnswer, wire: WireFormat) -> bool:
        head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        await self._stream.send_all(head.encode())
        events = answer_events(answer, wire)
        for event in events if answer.ending == "complete" else events[: answer.after]:
            await self._send_chunk(event)
            await trio.sleep(answer.drip)
        match answer.ending:
            case "complete" | "close":
                pass
            case "disconnect":
                await self._stream.send_all(b"40\r\ndata: {")
                return False
            case "malformed":
                await self._send_chunk(b'data: {"type": oops\n\n')
            case "error":
                await self._send_chunk(error_event(wire))
            case "stall":
                await trio.sleep_forever()
            case "pings":
                while True:
                    await self._send_chunk(keep_alive(wire))
                    await trio.sleep(answer.drip or 0.01)
        await self._send_chunk(b"")
        return True

    async def _send_chunk(self, data: bytes) -> None:
        await self._stream.send_all(b"%x\r\n%s\r\n" % (len(data), data))

    async def _send(self, status: int, content_type: str, body: bytes, extra: str = "") -> None:
        head = f"HTTP/1.1 {status} Fake\r\ncontent-type: {content_type}\r\ncontent-length: {len(body)}\r\n{extra}\r\n"
        await self._stream.send_all(head.encode() + body)

    async def _receive(self) -> FakeRequest | None:
        import h11

        connection = h11.Connection(h11.SERVER)
        head: h11.Request | None = None
        body = bytearray()
        while True:
            event = connection.next_event()
            if event is h11.NEED_DATA:
                data = await self._stream.receive_some(65536)
                if not data:
                    return None
                connection.receive_data(data)
            elif isinstance(event, h11.Request):
                head = event
            elif isinstance(event, h11.Data):
                body += event.data
            else:
                break
        assert head is not None
        headers = {name.decode(): value.decode() for name, value in head.headers}
        return FakeRequest(head.target.decode(), headers, json.loads(bytes(body) or b"{}"))


@asynccontextmanager
async def open_fake_provider(*replies: FakeReply) -> AsyncGenerator[FakeProvider, None]:
    """Run a fake model provider on a free port of 127.0.0.1 until the block is left.

    ```python
    async with open_fake_provider(FakeAnswer(text="Hello.")) as provider:
        model = AnthropicModel("fake", base_url=provider.anthropic_url)
    ```

    Its sockets are real: use it without the virtual clock, which would jump while data is on its way.

    Args:
        replies: The script; more can be added with `script`.

    Raises:
        MissingExtra: if h11 is not installed, which comes with the providers' SDKs.
    """
    if find_spec("h11") is None:
        raise MissingExtra("FakeProvider", "h11", "llm")
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    provider = FakeProvider(listeners[0].socket.getsockname()[1], replies)
    failure: Exception | None = None
    async with trio.open_nursery() as nursery:
        await nursery.start(trio.serve_listeners, provider._serve, listeners)
        try:
            yield provider
        except Exception as error:
            failure = error  # Raised below, so that the nursery does not wrap it in a group.
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure

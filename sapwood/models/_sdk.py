"""What the models on the official SDKs share: the client of each trio run, and a stream that cannot stall or leak."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from types import ModuleType
from typing import Any, Protocol, Self, cast

import trio

from sapwood.actors import Environment, RealEnvironment
from sapwood.errors import InvalidOption, MissingExtra, ModelError, ModelProtocolError, ModelRefused, ModelUnavailable
from sapwood.models._assembly import AnswerAssembly, call_ids
from sapwood.models._protocol import ModelAnswer, ModelEvent, ModelRequest
from sapwood.models._sdk_errors import ErrorReader
from sapwood.models._sse import ServerEvent, ServerEventParser

_CLOSE_BUDGET = 1.0
"""Seconds within which a response must let itself be closed, whatever its peer does."""

_TAIL_BUDGET = 0.1
"""Seconds to wait for the end of a response whose answer is complete, so that its connection can be used again."""


class WireReader(Protocol):
    """Understands the events of one provider's stream and fills an `AnswerAssembly` with them."""

    stop_reason: str
    """What the provider said, in our words; empty until it said so. From then on the answer is whole."""

    finished: bool
    """Whether the provider's last event has come."""

    def read(self, data: Mapping[str, Any]) -> list[ModelEvent]:
        """Return what one event means; a field of the wrong type raises TypeError, ValueError or KeyError."""
        ...


class SdkModel(ABC):
    """Base of `AnthropicModel` and `OpenAIModel`; not for subclassing elsewhere.

    The client (a pool of connections) is made at the first call of each trio run and kept until `aclose`; runs in
    several threads have one each. The SDK is imported at the first call, in a thread, because that takes seconds.
    """

    provider: str
    package: str
    key_variable: str

    def __init__(
        self,
        name: str,
        *,
        api_key: str | None,
        base_url: str | None,
        max_tokens: int | None,
        stall_timeout: float,
        environment: Environment | None,
    ) -> None:
        if not name:
            raise InvalidOption(f"{type(self).__name__}: expected the name of a model; got an empty one")
        if base_url is not None and not base_url.startswith(("http://", "https://")):
            raise InvalidOption(f"base_url: expected a URL that begins with http:// or https://; got {base_url!r}")
        if max_tokens is not None and max_tokens < 1:
            raise InvalidOption(f"max_tokens: expected at least 1; got {max_tokens!r}")
        if not stall_timeout > 0:
            raise InvalidOption(f"stall_timeout: expected seconds above 0; got {stall_timeout!r}")
        if importlib.util.find_spec(self.package) is None:
            raise MissingExtra(type(self).__name__, self.package, "llm")
        self.model = name
        self._api_key = api_key
        self._base_url = base_url
        self._max_tokens = max_tokens
        self._stall_timeout = stall_timeout
        self._environment = environment or RealEnvironment()
        self._clients: dict[trio.lowlevel.TrioToken, Any] = {}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    @property
    def name(self) -> str:
        """`provider:model`."""
        return f"{self.provider}:{self.model}"

    @property
    def has_key(self) -> bool:
        """Whether calls can be made: a key is given or in the environment, or `base_url` names a server."""
        return bool(self._key())

    async def aclose(self) -> None:
        """Close the connections of this trio run; the next call opens new ones. Calls in progress fail."""
        client = self._clients.pop(trio.lowlevel.current_trio_token(), None)
        if client is not None:
            await client.close()
        else:
            await trio.lowlevel.checkpoint()

    async def __aenter__(self) -> Self:
        await trio.lowlevel.checkpoint()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[ModelEvent], None]:
        """Call the model; see `ChatModel.stream`.

        Entering the block sends the request and waits for the first bytes of the answer's head. Each wait for an
        event, and that one, takes `stall_timeout` seconds at most; the time that the consumer takes does not count.
        """
        errors = ErrorReader(self.name, self._secret())
        if not self._key():
            hint = f"pass api_key= or set {self.key_variable}"
            raise errors.make(ModelRefused, f"expected an API key; got none: {hint}")
        response = await self._send(self._make_body(request), errors)
        assembly = AnswerAssembly(call_ids(request.messages), lambda: self._environment.new_id("call_"))
        reader = self._make_reader(assembly, errors)
        async with aclosing(_EventStream(response, reader, assembly, errors, self._stall_timeout)) as events:
            _check_content_type(response, errors)
            yield events

    @abstractmethod
    def _make_client(self, sdk: ModuleType, **options: Any) -> Any:
        """Return a new asynchronous client of the SDK."""

    @abstractmethod
    def _make_body(self, request: ModelRequest) -> dict[str, Any]:
        """Return the arguments of the SDK's create function."""

    @abstractmethod
    def _make_reader(self, assembly: AnswerAssembly, errors: ErrorReader) -> WireReader:
        """Return a reader for one answer."""

    @abstractmethod
    async def _create(self, client: Any, body: dict[str, Any]) -> Any:
        """Send the request; returns the SDK's raw response with its body unread."""

    def _secret(self) -> str:
        return (self._api_key or os.environ.get(self.key_variable, "")).strip()

    def _key(self) -> str:
        # A server of one's own often wants no key, but the SDKs insist on one.
        return self._secret() or ("none" if self._base_url else "")

    async def _send(self, body: dict[str, Any], errors: ErrorReader) -> Any:
        client = await self._client()
        failure: ModelError | None = None
        with trio.move_on_after(self._stall_timeout) as scope:
            try:
                raw = await self._create(client, body)
                return raw.http_response
            except (TypeError, ValueError) as error:
                failure = errors.make(ModelRefused, f"the request cannot be sent: {error}")
            except Exception as error:
                failure = errors.read(error, wall=self._environment.wall())
        if scope.cancelled_caught or failure is None:
            failure = errors.make(ModelUnavailable, f"no answer within {self._stall_timeout:g} s")
        # Raised out here, so that no SDK error, which holds the request with its key, hangs on it as context.
        raise failure

    async def _client(self) -> Any:
        token = trio.lowlevel.current_trio_token()
        if token in self._clients:
            return self._clients[token]
        sdk = await self._environment.in_thread(importlib.import_module, self.package)
        for other in [other for other in self._clients if _has_ended(other)]:
            await _close_quietly(self._clients.pop(other))
        if token not in self._clients:
            self._clients[token] = self._make_client(
                sdk, api_key=self._key(), base_url=self._base_url, max_retries=0, timeout=None
            )
        return self._clients[token]


class _EventStream:
    """The events of one answer, read while somebody waits for the next one."""

    def __init__(
        self,
        response: Any,
        reader: WireReader,
        assembly: AnswerAssembly,
        errors: ErrorReader,
        stall_timeout: float,
    ) -> None:
        self._response = response
        self._chunks: AsyncGenerator[bytes, None] = response.aiter_bytes()
        self._reader = reader
        self._assembly = assembly
        self._errors = errors
        self._stall_timeout = stall_timeout
        self._parser = ServerEventParser()
        self._pending: list[ModelEvent] = []
        self._closed = False
        self._answered = False

    def __aiter__(self) -> AsyncIterator[ModelEvent]:
        return self

    async def __anext__(self) -> ModelEvent:
        await trio.lowlevel.checkpoint()
        while not self._pending:
            if self._closed:
                raise StopAsyncIteration
            try:
                self._pending = await self._read_some()
            except ModelError:
                self._closed = True
                raise
        return self._pending.pop(0)

    async def aclose(self) -> None:
        """Close the response and, unless its answer was read to the end, its connection."""
        self._closed = True
        try:
            if self._answered:
                with trio.move_on_after(_TAIL_BUDGET):
                    await _exhaust(self._chunks)
        finally:
            with trio.move_on_after(_CLOSE_BUDGET, shield=True):
                await self._response.aclose()
                # The HTTP library nests generators; running into the closed socket ends them all, here and now. Left
                # alone they would be finished by the garbage collector, outside this call and with a warning.
                await _exhaust(self._chunks)

    async def _read_some(self) -> list[ModelEvent]:
        events: list[ModelEvent] = []
        failure: ModelError | None = None
        ended = False
        with trio.move_on_after(self._stall_timeout) as scope:
            try:
                arrived: list[ServerEvent] = []
                while not arrived:
                    arrived = self._parser.feed(await anext(self._chunks))
                for event in arrived:
                    events += self._read_event(event)
            except StopAsyncIteration:
                ended = True
            except ModelError as error:
                failure = error
            except Exception as error:
                failure = self._errors.read(error, wall=0.0)
        if scope.cancelled_caught:
            failure = self._errors.make(ModelUnavailable, f"the stream stalled: no event for {self._stall_timeout:g} s")
        if self._reader.finished or (self._reader.stop_reason and (ended or failure is not None)):
            # What is missing after the stop reason is at most a closing formality; the answer itself is whole.
            return self._finish(events)
        if failure is not None:
            raise failure
        if ended:
            raise self._errors.make(ModelUnavailable, "the stream ended before the answer was complete")
        return events

    def _read_event(self, event: ServerEvent) -> list[ModelEvent]:
        if self._reader.finished:
            return []
        if event.data.startswith("[DONE]"):
            self._reader.finished = True
            return []
        try:
            data = json.loads(event.data)
            if isinstance(data, dict):
                return self._reader.read(cast("dict[str, Any]", data))
        except (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError) as error:
            raise self._errors.make(ModelProtocolError, f"an event that cannot be read: {error!r}") from None
        raise self._errors.make(ModelProtocolError, f"expected events that are JSON objects; got {event.data[:80]!r}")

    def _finish(self, events: list[ModelEvent]) -> list[ModelEvent]:
        self._closed = self._answered = True
        last, message = self._assembly.finish(self._reader.stop_reason or "end")
        return [*events, *last, ModelAnswer(message)]


async def _exhaust(chunks: AsyncGenerator[bytes, None]) -> None:
    try:
        async for _ in chunks:
            pass
    except Exception:
        return


async def _close_quietly(client: Any) -> None:
    """Close the client of a trio run that ended without `aclose`."""
    with trio.move_on_after(_CLOSE_BUDGET, shield=True):
        try:
            await client.close()
        except Exception:
            return


def _check_content_type(response: Any, errors: ErrorReader) -> None:
    found = str(response.headers.get("content-type", "")).partition(";")[0].strip().lower()
    if found != "text/event-stream":
        raise errors.make(ModelProtocolError, f"expected an answer of type text/event-stream; got {found or 'none'}")


def _has_ended(token: trio.lowlevel.TrioToken) -> bool:
    try:
        token.run_sync_soon(_nothing)
    except trio.RunFinishedError:
        return True
    return False


def _nothing() -> None:
    """Scheduled only to learn whether a trio run is over."""

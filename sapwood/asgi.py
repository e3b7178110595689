"""ASGI helpers: probes, and the mapping of "cannot tell" to 503. They need no web framework."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from math import ceil
from typing import Any, TypeAlias

from sapwood._lifecycle import bare
from sapwood._runtime import Runtime
from sapwood.errors import RegistryUnavailable, RuntimeClosed, StoreUnavailable
from sapwood.messaging.monitoring import CONTENT_TYPE, Monitor, prometheus_text
from sapwood.registry import Unavailable

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

CannotTell: TypeAlias = Unavailable | RegistryUnavailable | StoreUnavailable | RuntimeClosed


def service_unavailable(answer: CannotTell) -> tuple[int, dict[str, str], bytes]:
    """Return status 503, headers with `Retry-After`, and a JSON body, for any framework to make a response of.

    `Retry-After` is in whole seconds, rounded up, at least 1. The body is `{"reason": ..., "retry_after": ...}`, with
    the reason of the lookup, `store_unavailable` or `draining`; it names nothing of the inside (S4-045, S4-048).
    """
    reason: str
    retry_after: float
    match answer:
        case Unavailable():
            reason, retry_after = answer.reason, answer.retry_after
        case RegistryUnavailable():
            reason, retry_after = answer.reason, answer.retry_after
        case StoreUnavailable():
            reason, retry_after = "store_unavailable", 1.0
        case RuntimeClosed():
            reason, retry_after = "draining", 1.0
    seconds = max(1, ceil(retry_after))
    body = json.dumps({"reason": reason, "retry_after": seconds}).encode()
    headers = {"content-type": "application/json", "retry-after": str(seconds), "content-length": str(len(body))}
    return 503, headers, body


class Probes:
    """An application that answers `/livez` and `/readyz`, for an orchestrator or a load balancer (S4-048, S4-049).

    `/readyz` is 200 if `runtime.ready()`, else 503: while starting, recovering, draining and stopping. `/livez` is 200
    as long as the loop answers and the tree has not ended: a probe that restarted a process because its registry
    recovers would turn a second of doubt into an outage. Anything else is 404. It may be mounted below a path.

    Args:
        runtime: A function that returns the runtime, or None while there is none yet: then not ready, but alive.
    """

    def __init__(self, runtime: Callable[[], Runtime | None]) -> None:
        self._runtime = runtime

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        runtime = self._runtime()
        match path_in(scope):
            case "/livez":
                fine = runtime is None or runtime.root.alive
            case "/readyz":
                fine = runtime is not None and runtime.ready()
            case _:
                await respond(send, 404, {"content-type": "text/plain"}, b"not found")
                return
        await respond(send, 200 if fine else 503, {"content-type": "text/plain"}, b"ok" if fine else b"no")


class Metrics:
    """An application that answers any path with the last snapshot of a monitor, for Prometheus to read.

    It is 503 until the monitor has looked for the first time. Mount it where only your own network can reach it: the
    names of queues and participants are in it.

    Args:
        monitor: The monitor.
    """

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        snapshot = self._monitor.snapshot
        if snapshot is None:
            await respond(send, 503, {"content-type": "text/plain", "retry-after": "1"}, b"no figures yet")
            return
        await respond(send, 200, {"content-type": CONTENT_TYPE}, prometheus_text(snapshot).encode())


class AnswerUnavailable:
    """Middleware that turns "cannot tell", raised by the application, into 503 with `Retry-After`.

    It catches `RegistryUnavailable`, `StoreUnavailable` and `RuntimeClosed`, also where a nursery has wrapped one alone
    in a group. What is raised after the response has started goes on, for nothing can be taken back then.

    Frameworks answer 500 before they let an exception out, so it belongs inside one, as its middleware:
    `Starlette(middleware=[Middleware(AnswerUnavailable)])`, `FastAPI().add_middleware(AnswerUnavailable)`.

    Args:
        application: The application inside.
    """

    def __init__(self, application: Application) -> None:
        self._application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        started = False

        async def note(message: MutableMapping[str, Any]) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._application(scope, receive, note)
        except Exception as error:
            refusal = bare(error)
            if started or scope["type"] != "http" or not isinstance(refusal, CannotTell):
                raise
            await respond(send, *service_unavailable(refusal))


def path_in(scope: Scope) -> str:
    """Return the path of a request below the path that the application is mounted at."""
    path: str = scope["path"]
    mounted: str = scope.get("root_path", "")
    # Servers and routers do not agree on whether the path still has the prefix.
    return path.removeprefix(mounted) if path.startswith(f"{mounted}/") else path


async def respond(send: Send, status: int, headers: dict[str, str], body: bytes) -> None:
    """Send a whole response."""
    pairs = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    await send({"type": "http.response.body", "body": body})

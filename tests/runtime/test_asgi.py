from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import httpx2
import pytest
import trio
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route

from sapwood import Runtime, Unavailable, open_runtime
from sapwood.asgi import AnswerUnavailable, Metrics, Probes, service_unavailable
from sapwood.errors import RegistryUnavailable, RuntimeClosed, StoreUnavailable
from sapwood.messaging.monitoring import Monitor
from sapwood.registry import Partition

Application = Callable[[Any, Any, Any], Awaitable[None]]


async def get(application: Application, path: str) -> httpx2.Response:
    transport = httpx2.ASGITransport(application)
    async with httpx2.AsyncClient(transport=transport, base_url="http://service") as client:
        return await client.get(path)


@pytest.mark.row("S4-045", "S4-048")
@pytest.mark.parametrize(
    ("answer", "reason", "seconds"),
    [
        (Unavailable("recovering", 0.2), "recovering", 1),
        (RegistryUnavailable("look up", "draining", 2.5), "draining", 3),
        (StoreUnavailable("agents.db", "is being opened"), "store_unavailable", 1),
        (RuntimeClosed("spawn: the runtime is stopping"), "draining", 1),
    ],
    ids=["lookup", "registry", "store", "closed"],
)
def test_cannot_tell_becomes_503_with_the_seconds_to_wait(answer: Any, reason: str, seconds: int) -> None:
    status, headers, body = service_unavailable(answer)
    assert status == 503
    assert headers["retry-after"] == str(seconds)
    assert json.loads(body) == {"reason": reason, "retry_after": seconds}


@pytest.mark.row("S4-048", "S4-049")
async def test_a_lost_registry_makes_a_service_unready_but_never_dead() -> None:
    async with open_runtime() as runtime:
        probes = Probes(lambda: runtime)
        assert (await get(probes, "/readyz")).status_code == 200
        for node in runtime.tree().walk():
            if node.kind == Partition.__name__:
                node.ref.kill()
        await trio.lowlevel.checkpoint()
        unready = 0
        while not runtime.ready():
            await trio.lowlevel.checkpoint()
            unready += (await get(probes, "/readyz")).status_code == 503
            assert (await get(probes, "/livez")).status_code == 200
        assert unready
        assert (await get(probes, "/readyz")).status_code == 200
    assert (await get(probes, "/livez")).status_code == 503
    assert (await get(probes, "/elsewhere")).status_code == 404


async def test_a_service_without_a_runtime_yet_is_alive_and_not_ready() -> None:
    def none() -> Runtime | None:
        return None

    assert (await get(Probes(none), "/livez")).status_code == 200
    assert (await get(Probes(none), "/readyz")).status_code == 503


async def test_a_refusal_that_the_application_raises_becomes_503_also_out_of_a_nursery() -> None:
    async def application(scope: Any, receive: Any, send: Any) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.lowlevel.checkpoint)
            raise RegistryUnavailable("look up", "recovering", 4)

    answer = await get(AnswerUnavailable(application), "/")
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "4"


async def test_other_errors_and_refusals_after_the_first_byte_go_on() -> None:
    async def faulty(scope: Any, receive: Any, send: Any) -> None:
        raise ValueError("a bug")

    async def late(scope: Any, receive: Any, send: Callable[[MutableMapping[str, Any]], Awaitable[None]]) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise RegistryUnavailable("look up", "recovering", 4)

    with pytest.raises(ValueError, match="a bug"):
        await get(AnswerUnavailable(faulty), "/")
    with pytest.raises(RegistryUnavailable):
        await get(AnswerUnavailable(late), "/")


@pytest.mark.row("S4-048", "S4-049")
async def test_inside_a_web_framework_a_refusal_is_503_and_probes_can_be_mounted() -> None:
    async def endpoint(_: Request) -> Response:
        raise RegistryUnavailable("look up", "recovering", 4)

    async with open_runtime() as runtime:
        probes = Mount("/probes", app=Probes(lambda: runtime))
        routes = [Route("/conversations", endpoint), Mount("/api", routes=[probes]), probes]
        service = Starlette(routes=routes, middleware=[Middleware(AnswerUnavailable)])
        answer = await get(service, "/conversations")
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "4")
        for path in ("/probes/readyz", "/api/probes/readyz", "/probes/livez"):
            assert (await get(service, path)).status_code == 200
        for path in ("/probes/elsewhere", "/probes/probes/readyz", "/probesreadyz"):
            assert (await get(service, path)).status_code == 404
        runtime.registry.drain()
        assert (await get(service, "/probes/readyz")).status_code == 503


@pytest.mark.parametrize(
    ("path", "mounted", "status"),
    [
        ("/readyz", "", 200),
        ("/readyz", "/probes", 200),
        ("/probes/readyz", "/probes", 200),
        ("/probes/readyz", "", 404),
        ("/readyz/readyz", "/readyz", 200),
    ],
)
async def test_probes_find_their_path_whether_a_server_leaves_the_prefix_in_it_or_not(
    path: str, mounted: str, status: int
) -> None:
    sent: list[MutableMapping[str, Any]] = []

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    async def receive() -> MutableMapping[str, Any]:
        raise AssertionError("a probe reads no body")

    async with open_runtime() as runtime:
        await Probes(lambda: runtime)({"type": "http", "path": path, "root_path": mounted}, receive, send)
    assert sent[0]["status"] == status


async def test_the_last_look_of_a_monitor_is_there_for_prometheus() -> None:
    monitor = Monitor()
    metrics = Metrics(monitor)
    assert (await get(metrics, "/metrics")).status_code == 503
    async with open_runtime(children=[monitor.spec()]) as runtime:
        monitor.watch(runtime)
        while monitor.snapshot is None:
            await trio.lowlevel.checkpoint()
        answer = await get(metrics, "/metrics")
    assert answer.status_code == 200
    assert "sapwood_actors" in answer.text

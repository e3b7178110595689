from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import httpx2
import pytest
import trio

from sapwood import Runtime, Unavailable, open_runtime
from sapwood.asgi import AnswerUnavailable, Probes, service_unavailable
from sapwood.errors import RegistryUnavailable, RuntimeClosed, StoreUnavailable
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

"""Agents served as an MCP server, over standard input and output and over HTTP on the loopback."""

from __future__ import annotations

import functools
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
import trio
from mcp.server import Server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sapwood import Agent, Runtime, ScriptedModel, Session, Unavailable, tool
from sapwood.actors import RealEnvironment
from sapwood.conversation import ToolResult
from sapwood.errors import ActorDown, DuplicateName, InvalidOption, McpCallLost, McpUnavailable, RegistryUnavailable
from sapwood.mcp import HttpServer, McpClient, McpTools, StdioServer, mcp_server, serve_agents
from sapwood.mcp._stdio import LineReader, claimed
from sapwood.middleware import HumanInTheLoop
from sapwood.models import Stall, call
from tests.mcp.kit import QUICK, exists, http_server, opened, until

# The library leaves a broken stream of events to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator 'httpx2._sse.EventSource:ResourceWarning")

HERE = Path(__file__).parent
PROGRAM = StdioServer(sys.executable, (str(HERE / "served_agents.py"),), env={"PYTHONPATH": str(HERE.parents[1])})


@tool
def pay(cents: int) -> str:
    """Pay an amount."""
    return f"paid {cents}"


@asynccontextmanager
async def served(*agents: Agent) -> AsyncGenerator[tuple[Runtime, McpClient]]:
    """Open a runtime that serves agents over HTTP, and another one with a client of it."""
    async with opened() as home, http_server(serve_agents(home, agents).app()) as port:
        spec = mcp_server("home", HttpServer(f"http://127.0.0.1:{port}/mcp"), backoff=QUICK)
        async with opened(spec) as runtime:
            yield home, McpClient(runtime.registry, "home")


async def ask(client: McpClient, message: str, conversation: str = "c1", **more: Any) -> dict[str, Any]:
    """Ask the agent, and return the structured answer."""
    result = await client.call("ask_worker", {"conversation": conversation, "message": message, **more})
    told: dict[str, Any] = result.structured
    assert result.is_error == (told["status"] in ("failed", "cancelled", "refused", "unavailable", "stopped"))
    return told


def worker(*steps: Any, **options: Any) -> Agent:
    return Agent("worker", model=ScriptedModel(*steps), **options)


def works(session: Session) -> bool:
    """Say whether a conversation has an open run."""
    try:
        return session.state.run is not None
    except ActorDown:
        return False


# --- answers ----------------------------------------------------------------------------------------


async def test_each_agent_is_a_tool_that_answers_with_the_final_text() -> None:
    async with served(worker("hello", "and again"), Agent("other one", model=ScriptedModel("hi"))) as (home, client):
        assert [each.name for each in client.tools()] == ["ask_worker", "ask_other_one"]
        first = await client.call("ask_worker", {"conversation": "c1", "message": "go"})
        assert (first.text, first.structured["status"]) == ("hello", "completed")
        assert (await ask(client, "more"))["text"] == "and again"
        assert (await client.call("ask_other_one", {"conversation": "c1", "message": "go"})).text == "hi"
        assert home.sessions.running() == ["mcp:other one:c1", "mcp:worker:c1"]


async def test_a_run_that_waits_for_approval_says_so_and_its_message_gets_the_answer_afterwards() -> None:
    agent = worker(call("pay", cents=5), "paid", tools=[pay], middleware=[HumanInTheLoop(pay=True)])
    async with served(agent) as (home, client):
        told = await ask(client, "pay", message_id="m1")

        assert (told["status"], told["message_id"], told["conversation"]) == ("waiting_for_approval", "m1", "c1")
        assert [(each["kind"], each["tool"], each["arguments"]) for each in told["approvals"]] == [
            ("approval", "pay", {"cents": 5})
        ]
        session = home.sessions.session("mcp:worker:c1")
        await session.approvals[0].approve()
        await until(lambda: session.state.run is None)
        assert (await ask(client, "pay", message_id="m1"))["text"] == "paid"


async def test_a_run_that_failed_is_an_error_with_its_reason() -> None:
    async with served(worker(ValueError("out of ideas"))) as (_, client):
        told = await ask(client, "go")

    assert told["status"] == "failed"
    assert "out of ideas" in told["reason"]


async def test_a_registry_that_cannot_tell_is_an_error_that_is_worth_another_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def cannot_tell(*_: object) -> None:
        await trio.lowlevel.checkpoint()
        raise RegistryUnavailable("start agent 'c1'", "recovering", 2.0)

    async with served(worker("hello")) as (home, client):
        monkeypatch.setattr(home.sessions, "ensure_running", cannot_tell)
        told = await ask(client, "go")

    assert (told["status"], told["retryable"], told["retry_after"]) == ("unavailable", True, 2.0)


async def test_why_an_agent_cannot_start_is_told_to_the_log_and_not_to_the_client(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with served(worker("hello", middleware=[McpTools("no such server")])) as (_, client):
        told = await ask(client, "go")

    assert told["status"] == "failed"
    assert "no such server" not in str(told)
    assert "no such server" in caplog.text


async def test_a_message_that_was_sent_twice_counts_once() -> None:
    async with served(worker("hello")) as (home, client):
        first = await ask(client, "go", message_id="m1")
        second = await ask(client, "go", message_id="m1")

        assert (first["text"], second["text"]) == ("hello", "hello")
        assert len(home.sessions.session("mcp:worker:c1").state.messages) == 2


async def test_the_key_of_a_call_is_the_id_of_its_message() -> None:
    async with served(worker("hello")) as (home, client):
        for _ in range(2):
            result = await client.call("ask_worker", {"conversation": "c1", "message": "go"}, key="idem_1")
            assert (result.text, result.structured["message_id"]) == ("hello", "idem_1")
        assert len(home.sessions.session("mcp:worker:c1").state.messages) == 2


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"message": "go"}, "argument 'conversation': expected a text that is not blank; got None"),
        ({"conversation": "c1", "message": " "}, "argument 'message': expected a text that is not blank; got ' '"),
        ({"conversation": 1, "message": "go"}, "argument 'conversation': expected a text that is not blank; got 1"),
        ({"conversation": "c", "message": "go", "x": 1}, "argument 'x': unknown; there are: conversation, message,"),
    ],
)
async def test_arguments_that_cannot_work_are_refused_and_start_nothing(
    arguments: dict[str, Any], problem: str
) -> None:
    async with served(worker("hello")) as (home, client):
        result = await client.call("ask_worker", arguments)

        assert result.is_error
        assert problem in result.text
        assert home.sessions.running() == []


# --- cancelling -------------------------------------------------------------------------------------


async def test_a_client_that_cancels_its_call_cancels_the_run_that_the_call_began() -> None:
    async with served(worker(Stall())) as (home, client):
        session = home.sessions.session("mcp:worker:c1")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, client, "go")
            await until(lambda: works(session))
            nursery.cancel_scope.cancel()

        await until(lambda: session.state.run is None)
        assert session.state.messages[0].id


async def test_a_client_that_cancels_leaves_a_run_alone_that_somebody_else_began() -> None:
    async with served(worker(Stall())) as (home, client):
        session = await home.sessions.ensure_running(worker(Stall()), "mcp:worker:c1")
        async with session.send("mine") as run:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask, client, "theirs")
                await until(lambda: bool(session.queue))
                nursery.cancel_scope.cancel()

            await until(lambda: not session.queue)  # taken back
            assert session.state.run is not None
            assert session.state.run.id == run.receipt.run_id


async def test_a_client_that_cancels_leaves_a_run_alone_in_which_others_have_spoken_too() -> None:
    opens = trio.Event()

    async def gated(_: object) -> str:
        await opens.wait()
        return "first"

    agent = worker(gated, Stall(), "other")
    async with served(agent) as (home, client):
        session = await home.sessions.ensure_running(agent, "mcp:worker:c1")
        async with session.send("first"), session.send("mine"), trio.open_nursery() as nursery:
            nursery.start_soon(ask, client, "theirs")
            await until(lambda: len(session.queue) == 2)
            opens.set()
            await until(lambda: len(session.state.messages) == 4)
            nursery.cancel_scope.cancel()
        await ask(client, "go", "c2")  # answered after the cancellation has arrived

        assert works(session)


async def test_a_client_that_sends_a_message_again_and_cancels_leaves_its_run_alone() -> None:
    async with served(worker(Stall(), "other", "another")) as (home, client):
        session = home.sessions.session("mcp:worker:c1")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, client, "go")
            await until(lambda: works(session))
            said = session.state.messages[0].id
            async with trio.open_nursery() as again:
                again.start_soon(functools.partial(ask, client, "go", message_id=said))
                await ask(client, "go", "c2")  # answered after the other has arrived
                again.cancel_scope.cancel()
            await ask(client, "go on", "c2")  # answered after the cancellation has arrived

            assert session.state.run is not None
            nursery.cancel_scope.cancel()
        await until(lambda: not works(session))


# --- other agents -----------------------------------------------------------------------------------


async def test_an_agent_uses_another_runtimes_agent_over_http() -> None:
    async with opened() as home:
        expert = Agent("expert", model=ScriptedModel("forty-two"))
        async with http_server(serve_agents(home, [expert]).app()) as port:
            spec = mcp_server("experts", HttpServer(f"http://127.0.0.1:{port}/mcp"))
            async with opened(spec) as runtime:
                model = ScriptedModel(call("ask_expert", conversation="c1", message="why?"), "because")
                agent = Agent("worker", model=model, middleware=[McpTools("experts")])
                session = await runtime.sessions.ensure_running(agent, "c1")

                assert await session.say("go") == "because"
                results = [each for each in session.state.messages if isinstance(each, ToolResult)]
                assert "forty-two" in results[0].content
                assert not results[0].is_error


async def test_an_http_server_that_went_away_and_came_back_is_found_again() -> None:
    async with opened() as home, trio.open_nursery() as nursery:
        agents = [worker("one", "two")]
        async with http_server(serve_agents(home, agents).app()) as port:
            spec = mcp_server("home", HttpServer(f"http://127.0.0.1:{port}/mcp"), backoff=QUICK)
            runtime = await nursery.start(_keep_open, spec)
            client = McpClient(runtime.registry, "home")
            assert (await ask(client, "go"))["text"] == "one"

        with pytest.raises((McpCallLost, McpUnavailable)):
            await ask(client, "go")
        await until(lambda: client.lookup() == Unavailable("unreachable"))
        assert [each.name for each in client.tools()] == ["ask_worker"]

        async with http_server(serve_agents(home, agents).app(), port):
            await until(lambda: client.status().connected)
            assert (await ask(client, "go"))["text"] == "two"
            nursery.cancel_scope.cancel()


async def test_an_http_server_that_breaks_off_a_subscription_and_refuses_another_is_away_until_it_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sapwood.mcp._connection.LISTEN_AGAIN", 0.01)
    is_broken = False
    subscription = trio.CancelScope()
    listings = 0

    async def list_tools(ctx: object, params: object) -> types.ListToolsResult:
        nonlocal listings
        listings += 1
        return types.ListToolsResult(tools=[])

    server: Server[Any] = Server(
        "watched", on_list_tools=list_tools, on_subscriptions_listen=ListenHandler(InMemorySubscriptionBus())
    )
    app = server.streamable_http_app()

    async def breaking(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and is_broken:
            await Response(status_code=503)(scope, receive, send)
        elif (b"mcp-method", b"subscriptions/listen") in scope.get("headers", ()) and listings == 1:
            with subscription:
                await app(scope, receive, send)
        else:
            await app(scope, receive, send)

    async with http_server(breaking) as port:
        spec = mcp_server("watched", HttpServer(f"http://127.0.0.1:{port}/mcp"), backoff=QUICK)
        async with opened(spec) as runtime:
            client = McpClient(runtime.registry, "watched")
            await until(lambda: listings == 2)  # made again when the subscription stands
            is_broken = True
            subscription.cancel()
            await until(lambda: client.lookup() == Unavailable("unreachable"))

            is_broken = False
            await until(lambda: client.status().connected)


async def _keep_open(spec: Any, task_status: Any = trio.TASK_STATUS_IGNORED) -> None:
    async with opened(spec) as runtime:
        task_status.started(runtime)
        await trio.sleep_forever()


async def test_headers_with_credentials_reach_the_server_and_show_nowhere() -> None:
    seen: list[str] = []
    description = HttpServer("http://127.0.0.1:1/mcp?token=hunter33", headers={"Authorization": "Bearer hunter22"})
    assert "hunter" not in repr(description)

    async with opened() as home:
        app = serve_agents(home, [worker("hello")]).app()

        async def watching(scope: Any, receive: Any, send: Any) -> None:
            seen.extend(value.decode() for name, value in scope.get("headers", ()) if name == b"authorization")
            await app(scope, receive, send)

        async with http_server(watching) as port:
            spec = mcp_server("home", HttpServer(f"http://127.0.0.1:{port}/mcp", headers=description.headers))
            async with opened(spec) as runtime:
                client = McpClient(runtime.registry, "home")
                assert (await ask(client, "go"))["text"] == "hello"
                assert "hunter" not in f"{client.status()!r} {runtime.tree()!r} {spec!r}"
    assert set(seen) == {"Bearer hunter22"}


# --- standard input and output ----------------------------------------------------------------------


async def test_an_agent_is_served_over_standard_output_though_its_tools_print(
    capfd: pytest.CaptureFixture[str],
) -> None:
    async with opened(mcp_server("home", PROGRAM)) as runtime:
        client = McpClient(runtime.registry, "home")
        assert (await ask(client, "go"))["text"] == "done"

    error_output = capfd.readouterr().err
    for line in ("before", "printed", "written", "by a child"):
        assert line in error_output.splitlines()


async def test_a_program_that_serves_stops_at_once_when_it_is_asked_to() -> None:
    command = [sys.executable, *PROGRAM.args]
    with trio.fail_after(30):
        process = await trio.lowlevel.open_process(
            command, stdin=-1, stdout=-1, stderr=-1, env={**os.environ, **PROGRAM.env}
        )
        assert process.stderr is not None
        assert process.stdin is not None
        assert process.stdout is not None
        while b"before" not in await process.stderr.receive_some():
            pass
        async with process.stdin, process.stdout, process.stderr:
            await process.stdin.send_all(b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n')
            await process.stdout.receive_some()
            process.send_signal(signal.SIGTERM)
            assert await process.wait() == 128 + signal.SIGTERM
    assert not exists(process.pid)


async def test_standard_input_and_output_are_served_once_at_a_time() -> None:
    async with opened() as runtime:
        served_agents = serve_agents(runtime, [worker("hello")])
        with claimed(), pytest.raises(InvalidOption, match="this process serves them already"):
            await served_agents.run_stdio()


async def test_lines_are_read_whole_however_they_arrive() -> None:
    read_end, write_end = os.pipe()
    reader = LineReader(read_end, RealEnvironment())
    seen: list[str] = []
    for piece in (b"on", b"e\ntwo\nth", b"ree\n", b"", b"\xff\nrest"):
        if piece:
            os.write(write_end, piece)
        while len(seen) < {b"e\ntwo\nth": 2, b"ree\n": 3, b"\xff\nrest": 4}.get(piece, 0):
            seen.append(await anext(reader))
    os.close(write_end)

    assert seen == ["one", "two", "three", "\ufffd"]
    with pytest.raises(StopAsyncIteration):
        await anext(reader)
    os.close(read_end)


# --- sessions ---------------------------------------------------------------------------------------


class SessionServer:
    """A server that knows its sessions by a number, and forgets them all when the number changes."""

    def __init__(self) -> None:
        self.generation = 1

    async def answer(self, request: Request) -> Response:
        if request.method != "POST":
            return Response(status_code=405)
        message = await request.json()
        method = message["method"]
        number = str(self.generation)
        if method not in ("initialize", "server/discover") and request.headers.get("mcp-session-id") != number:
            return Response(status_code=404)
        if "id" not in message:
            return Response(status_code=202)
        answer = {"jsonrpc": "2.0", "id": message["id"]}
        match method:
            case "initialize":
                version = message["params"]["protocolVersion"]
                told = {"protocolVersion": version, "capabilities": {"tools": {}}}
                result: Any = {**told, "serverInfo": {"name": "old", "version": "1"}}
            case "tools/list":
                result = {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}
            case "tools/call":
                result = {"content": [{"type": "text", "text": number}]}
            case _:
                return JSONResponse({**answer, "error": {"code": -32601, "message": "unknown"}})
        return JSONResponse({**answer, "result": result}, headers={"mcp-session-id": number})


async def test_a_server_that_forgot_the_session_is_connected_to_anew_and_nothing_was_done() -> None:
    server = SessionServer()
    app = Starlette(routes=[Route("/mcp", server.answer, methods=["GET", "POST", "DELETE"])])
    async with http_server(app) as port:
        spec = mcp_server("old", HttpServer(f"http://127.0.0.1:{port}/mcp"), backoff=QUICK)
        async with opened(spec) as runtime:
            client = McpClient(runtime.registry, "old")
            assert (await client.call("echo", {})).text == "1"
            server.generation = 2
            with pytest.raises(McpUnavailable, match="it has been restarted"):
                await client.call("echo", {})

            await until(lambda: client.status().connections == 2)
            assert (await client.call("echo", {})).text == "2"


# --- what is refused --------------------------------------------------------------------------------


async def test_serving_needs_agents_whose_names_tell_them_apart() -> None:
    async with opened() as runtime:
        with pytest.raises(InvalidOption, match="expected at least one agent"):
            serve_agents(runtime, [])
        with pytest.raises(DuplicateName, match="ask_a_b"):
            serve_agents(runtime, [Agent("a b", model=ScriptedModel()), Agent("a.b", model=ScriptedModel())])


@pytest.mark.parametrize("url", ["ftp://example.org", "example.org/mcp", "", "http://"])
def test_an_address_that_is_no_http_url_is_refused(url: str) -> None:
    with pytest.raises(InvalidOption, match=r"HttpServer url: expected one such as 'https://example.org/mcp'"):
        HttpServer(url)


def test_credentials_in_an_address_are_refused_and_not_shown() -> None:
    with pytest.raises(InvalidOption, match="expected no credentials") as refused:
        HttpServer("https://user:hunter22@example.org/mcp")
    assert "hunter22" not in str(refused.value)


def test_a_header_or_variable_that_is_no_text_is_refused_and_not_shown() -> None:
    with pytest.raises(InvalidOption, match="HttpServer headers: expected text to text; got str to bytes") as refused:
        HttpServer("https://example.org/mcp", headers={"Authorization": b"hunter22"})  # type: ignore[dict-item]
    assert "hunter22" not in str(refused.value)
    with pytest.raises(InvalidOption, match=r"StdioServer args\[1\]: expected text; got int"):
        StdioServer("program", ("a", 22))  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match=r"expected several texts; got one: write args=\(\.\.\.,\)"):
        StdioServer("program", "--flag")
    with pytest.raises(InvalidOption, match="expected the name of a program; got ''"):
        StdioServer("")

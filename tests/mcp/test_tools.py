"""McpTools: agents that use the tools of an MCP server."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from sapwood import Agent, Crashed, Runtime, ScriptedModel, Session, tool
from sapwood.conversation import ToolResult
from sapwood.errors import ChildFailed, DuplicateName, InvalidOption, McpUnavailable
from sapwood.mcp import McpClient, McpTool, McpTools, StdioServer, mcp_server
from sapwood.models import ModelRequest, call
from sapwood.supervision import Backoff
from tests.agents.kit import server_of
from tests.mcp.kit import QUICK, notes, opened, tiny, until

SLOW = Backoff(initial=600.0, maximum=600.0)


def agent_with(model: ScriptedModel, *layers: McpTools, **options: Any) -> Agent:
    return Agent("worker", model=model, middleware=layers or (McpTools("tiny"),), **options)


@asynccontextmanager
async def running(
    folder: Path, model: ScriptedModel, *layers: McpTools, backoff: Backoff = QUICK, **options: Any
) -> AsyncGenerator[tuple[Runtime, Session]]:
    """Open a runtime with a tiny server and an agent that uses it."""
    async with opened(mcp_server("tiny", tiny(folder), backoff=backoff)) as runtime:
        yield runtime, await runtime.sessions.ensure_running(agent_with(model, *layers, **options), "c1")


def results(session: Session) -> list[ToolResult]:
    return [message for message in session.state.messages if isinstance(message, ToolResult)]


def offered(request: ModelRequest) -> list[str]:
    return [spec.name for spec in request.tools]


async def kill(runtime: Runtime) -> None:
    """Kill the process of the tiny server."""
    client = McpClient(runtime.registry, "tiny")
    os.kill(int((await client.call("pid", {})).text), signal.SIGKILL)
    await until(lambda: not client.status().connected)


async def failure_of(runtime: Runtime, agent: Agent) -> BaseException:
    with pytest.raises(ChildFailed) as failed:
        await runtime.sessions.ensure_running(agent, "c1")
    assert isinstance(failed.value.reason, Crashed)
    return failed.value.reason.exception


# --- offering and calling ---------------------------------------------------------------------------


async def test_an_agent_sees_the_tools_of_a_server_and_gets_their_results(tmp_path: Path) -> None:
    model = ScriptedModel(call("echo", text="hello"), call("structured"), "done")
    async with running(tmp_path, model) as (_, session):
        assert await session.say("go") == "done"

        assert [(result.name, result.content, result.is_error) for result in results(session)] == [
            ("echo", "hello", False),
            ("structured", '{"cents": 5}', False),
        ]
        spec = model.requests[0].tools[0]
        assert (spec.name, spec.description) == ("echo", "The tool echo.")
        assert spec.parameters == {
            "type": "object",
            "properties": {"text": {"type": "string"}},
            "required": ["text"],
        }


async def test_a_failure_that_the_server_tells_is_an_error_result(tmp_path: Path) -> None:
    async with running(tmp_path, ScriptedModel(call("fail", text="out of paper"), "done")) as (_, session):
        await session.say("go")

        assert [(result.content, result.is_error) for result in results(session)] == [("Error: out of paper", True)]


async def test_arguments_that_the_schema_refuses_never_reach_the_server(tmp_path: Path) -> None:
    model = ScriptedModel(call("echo", text=5), call("echo"), call("pid", more=1), "done")
    async with running(tmp_path, model) as (_, session):
        await session.say("go")

        assert [result.content for result in results(session)] == [
            "Error: echo was not run: argument 'text': 5 is not of type 'string'",
            "Error: echo was not run: 'text' is a required property",
            "Error: pid was not run: Additional properties are not allowed ('more' was unexpected)",
        ]
        assert {result.problem for result in results(session)} == {"invalid"}
        assert not [line for line in notes(tmp_path) if "begins" in line]


async def test_only_the_chosen_tools_are_offered_under_their_prefix(tmp_path: Path) -> None:
    model = ScriptedModel(call("tiny_echo", text="hello"), "done")
    async with running(tmp_path, model, McpTools("tiny", only=("pid", "echo"), prefix="tiny_")) as (_, session):
        await session.say("go")

        assert offered(model.requests[0]) == ["tiny_echo", "tiny_pid"]
        assert results(session)[0].content == "hello"


async def test_names_that_providers_do_not_take_are_spelled_in_letters_that_they_take(tmp_path: Path) -> None:
    listed = [{"name": name, "inputSchema": {"type": "object"}} for name in ("files.read/all", "x" * 70)]
    (tmp_path / "changed.json").write_text(json.dumps(listed))
    model = ScriptedModel("done")
    async with running(tmp_path, model) as (_, session):
        await session.say("go")

        first, second = offered(model.requests[0])
        assert first == "files_read_all"
        assert len(second) == 64
        assert second.startswith("x" * 55 + "_")


async def test_a_large_result_is_kept_elsewhere_as_that_of_any_tool(tmp_path: Path) -> None:
    async with running(tmp_path, ScriptedModel(call("echo", text="x" * 150_000), "done")) as (_, session):
        await session.say("go")

        result = results(session)[0]
        assert len(result.content) < 101_000
        assert result.reference


async def test_an_argument_may_have_any_name_that_a_schema_can_give_it(tmp_path: Path) -> None:
    parameters = {"type": "object", "properties": {"self": {}, "context": {}, "text": {"type": "string"}}}
    (tmp_path / "changed.json").write_text(json.dumps([{"name": "echo", "inputSchema": parameters}]))
    model = ScriptedModel(call("echo", self=1, context=2, text="hello"), "done")
    async with running(tmp_path, model) as (_, session):
        await session.say("go")

        assert results(session)[0].content == "hello"


async def test_the_server_gets_the_idempotency_key_of_the_call(tmp_path: Path) -> None:
    async with running(tmp_path, ScriptedModel(call("key"), "done")) as (_, session):
        await session.say("go")

        assert results(session)[0].content.startswith("idem_")


# --- three outcomes ---------------------------------------------------------------------------------


async def test_a_server_that_is_not_configured_refuses_the_agent_with_the_nearest_names(tmp_path: Path) -> None:
    async with opened(mcp_server("tiny", tiny(tmp_path))) as runtime:
        error = await failure_of(runtime, agent_with(ScriptedModel("done"), McpTools("tinny")))

    assert isinstance(error, InvalidOption)
    assert str(error) == "this runtime has no MCP server 'tinny'; did you mean 'tiny'?"


async def test_an_agent_cannot_start_before_its_server_was_ever_there() -> None:
    absent = mcp_server("tiny", StdioServer("/no/such/program"), backoff=QUICK, wait=False)
    async with opened(absent) as runtime:
        error = await failure_of(runtime, agent_with(ScriptedModel("done")))

    assert isinstance(error, McpUnavailable)


async def test_while_a_server_is_away_its_tools_stay_listed_and_a_call_says_that_it_is_unavailable(
    tmp_path: Path,
) -> None:
    model = ScriptedModel(call("echo", text="hello"), "done", "again")
    async with running(tmp_path, model, backoff=SLOW) as (runtime, session):
        await kill(runtime)
        await session.say("go")

        assert "echo" in offered(model.requests[0])
        result = results(session)[0]
        assert result.is_error
        assert "'tiny': unavailable (it closed the connection); nothing was done; try again in 1 s" in result.content


async def test_an_agent_can_start_while_a_server_is_away_that_was_there_before(tmp_path: Path) -> None:
    async with opened(mcp_server("tiny", tiny(tmp_path), backoff=SLOW)) as runtime:
        await kill(runtime)
        model = ScriptedModel("done")
        session = await runtime.sessions.ensure_running(agent_with(model), "c1")
        await session.say("go")

        assert "echo" in offered(model.requests[0])


async def test_a_server_killed_in_the_middle_of_a_call_leaves_an_honest_result_and_the_next_call_works(
    tmp_path: Path,
) -> None:
    model = ScriptedModel(call("wait"), "it broke", call("echo", text="back"), "done")
    async with running(tmp_path, model) as (runtime, session):
        client = McpClient(runtime.registry, "tiny")
        pid = int((await client.call("pid", {})).text)
        async with session.send("go") as run:
            await until(lambda: "wait begins" in notes(tmp_path))
            os.kill(pid, signal.SIGKILL)
            await run.finish()
        await until(lambda: client.status().connections == 2)
        await session.say("again")

        lost, back = results(session)
        assert lost.content == (
            "Error: MCP server 'tiny': the connection ended while 'wait' ran; nobody knows whether it had its effect"
        )
        assert back.content == "back"


# --- changes of the listing -------------------------------------------------------------------------


async def test_a_changed_schema_and_a_tool_that_is_gone_reach_the_model_with_its_next_call(tmp_path: Path) -> None:
    number = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}
    changed = json.dumps([{"name": "echo", "description": "New.", "inputSchema": number}])
    model = ScriptedModel("ready", call("echo", text="old"), call("pid"), "done")
    async with running(tmp_path, model) as (runtime, session):
        await session.say("go")
        client = McpClient(runtime.registry, "tiny")
        await client.call("change", {"text": changed})
        await until(lambda: len(client.tools()) == 1)
        await session.say("go on")

        assert "pid" in offered(model.requests[0])
        assert [(spec.name, spec.description, spec.parameters) for spec in model.requests[1].tools] == [
            ("echo", "New.", number)
        ]
        assert "'number' is a required property" in results(session)[0].content


# --- cancelling and crashing ------------------------------------------------------------------------


async def test_cancelling_a_run_tells_the_server(tmp_path: Path) -> None:
    async with running(tmp_path, ScriptedModel(call("wait"), "done")) as (_, session), session.send("go") as run:
        await until(lambda: "wait begins" in notes(tmp_path))
        await session.cancel(grace=0)
        await run.finish()

        await until(lambda: "wait cancelled" in notes(tmp_path))


async def test_a_tool_that_is_too_slow_is_given_up_and_says_so(tmp_path: Path) -> None:
    model = ScriptedModel(call("wait"), "done")
    async with running(tmp_path, model, McpTools("tiny", timeout=0.2)) as (_, session):
        await session.say("go")

        assert "'wait' did not answer within 0.2 s" in results(session)[0].content
        await until(lambda: "wait cancelled" in notes(tmp_path))


async def test_after_a_crash_in_the_middle_of_a_call_a_person_is_asked_what_came_of_it(tmp_path: Path) -> None:
    async with running(tmp_path, ScriptedModel(call("wait"), "done")) as (runtime, session):
        async with session.send("go"):
            await until(lambda: "wait begins" in notes(tmp_path))
            server_of(runtime).kill()
        await until(lambda: bool(session.approvals))

        assert [each.interrupt.kind for each in session.approvals] == ["reconcile"]
        assert notes(tmp_path).count("wait begins") == 1


async def test_a_call_that_an_orderly_stop_cut_off_is_taken_up_at_the_next_start_as_after_a_crash(
    tmp_path: Path,
) -> None:
    store = tmp_path / "store.db"
    agent = agent_with(ScriptedModel(call("wait"), "done"))
    async with opened(mcp_server("tiny", tiny(tmp_path)), store=store) as runtime:
        session = await runtime.sessions.ensure_running(agent, "c1")
        async with session.send("go"):
            await until(lambda: "wait begins" in notes(tmp_path))

    async with opened(mcp_server("tiny", tiny(tmp_path)), store=store) as runtime:
        session = await runtime.sessions.ensure_running(agent, "c1")
        await until(lambda: bool(session.approvals))

        assert [each.interrupt.kind for each in session.approvals] == ["reconcile"]
        assert results(session) == []


@pytest.mark.parametrize(
    ("read_only", "idempotent", "destructive", "resume"),
    [
        (True, False, True, "rerun"),
        (True, True, False, "rerun"),
        (False, True, False, "rerun"),
        (False, True, True, "ask"),
        (False, False, False, "ask"),
        (False, False, True, "ask"),
    ],
)
def test_a_call_is_repeated_after_a_crash_only_if_that_can_do_no_harm(
    *, read_only: bool, idempotent: bool, destructive: bool, resume: str
) -> None:
    tool = McpTool("t", "", {}, read_only=read_only, idempotent=idempotent, destructive=destructive)
    assert tool.crash_resume == resume


def test_a_tool_without_hints_counts_as_destructive() -> None:
    assert McpTool("t", "", {}).crash_resume == "ask"


# --- approvals --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layer", "asked"),
    [
        (McpTools("tiny"), []),
        (McpTools("tiny", approve="destructive"), ["secret"]),
        (McpTools("tiny", approve="writes"), ["structured", "secret"]),
        (McpTools("tiny", approve="always"), ["echo", "structured", "secret"]),
        (McpTools("tiny", approve="destructive", trust_hints=False), ["echo", "structured", "secret"]),
    ],
    ids=["never", "destructive", "writes", "always", "hints not trusted"],
)
async def test_a_person_is_asked_about_calls_by_what_the_server_says_of_its_tools(
    tmp_path: Path, layer: McpTools, asked: list[str]
) -> None:
    model = ScriptedModel([call("echo", text="hello"), call("structured"), call("secret")], "done")
    async with running(tmp_path, model, layer) as (_, session):
        async with session.send("go") as run:
            await run.finish()

        assert [approval.interrupt.call.name for approval in session.approvals] == asked


# --- what is refused --------------------------------------------------------------------------------


@tool
def echo(text: str) -> str:
    """Repeat a text."""
    return text


async def test_a_tool_that_is_named_like_one_of_the_agent_is_refused_with_what_to_write(tmp_path: Path) -> None:
    async with opened(mcp_server("tiny", tiny(tmp_path))) as runtime:
        error = await failure_of(runtime, agent_with(ScriptedModel("done"), tools=[echo]))

    assert isinstance(error, InvalidOption)
    assert str(error) == (
        "McpTools('tiny'): its tool 'echo' is named like one of agent 'worker'; pass prefix='tiny_', or leave it out "
        "with only=(...)"
    )


async def test_two_servers_with_tools_of_one_name_are_refused_unless_a_prefix_tells_them_apart(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    specs = mcp_server("tiny", tiny(tmp_path)), mcp_server("other", tiny(tmp_path / "other"))
    async with opened(*specs) as runtime:
        error = await failure_of(runtime, agent_with(ScriptedModel("done"), McpTools("tiny"), McpTools("other")))
        assert isinstance(error, DuplicateName)

        model = ScriptedModel([call("echo", text="one"), call("other_echo", text="two")], "done")
        agent = agent_with(model, McpTools("tiny"), McpTools("other", prefix="other_"))
        session = await runtime.sessions.ensure_running(agent, "c2")
        await session.say("go")
        assert [result.content for result in results(session)] == ["one", "two"]
        assert "echo begins" in notes(tmp_path / "other")


async def test_two_names_that_become_one_for_the_model_are_refused(tmp_path: Path) -> None:
    listed = [{"name": name, "inputSchema": {"type": "object"}} for name in ("a.b", "a/b")]
    (tmp_path / "changed.json").write_text(json.dumps(listed))
    async with opened(mcp_server("tiny", tiny(tmp_path))) as runtime:
        error = await failure_of(runtime, agent_with(ScriptedModel("done")))

    assert isinstance(error, InvalidOption)
    assert "the tools 'a.b' and 'a/b' are both 'a_b' to a model" in str(error)


async def test_a_chosen_tool_that_is_not_listed_is_refused_with_those_that_are(tmp_path: Path) -> None:
    async with opened(mcp_server("tiny", tiny(tmp_path))) as runtime:
        error = await failure_of(runtime, agent_with(ScriptedModel("done"), McpTools("tiny", only=("ecko",))))

    assert isinstance(error, InvalidOption)
    assert "the server has no tool 'ecko'; there are: echo, pid," in str(error)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"only": "echo"}, r"write only=\('echo',\)"),
        ({"prefix": "a b"}, "expected up to 32 of a-z"),
        ({"prefix": "x" * 33}, "expected up to 32 of a-z"),
        ({"timeout": 0}, "expected a timeout above 0 seconds, or None; got 0"),
        ({"approve": "sometimes"}, "expected never, destructive, writes, always; got 'sometimes'"),
    ],
)
def test_an_option_out_of_its_range_is_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidOption, match=problem):
        McpTools("tiny", **options)


async def test_tools_are_refused_outside_of_a_runtime() -> None:
    await trio.lowlevel.checkpoint()
    layer = McpTools("tiny")
    with pytest.raises(InvalidOption, match="an agent of a runtime opened with open_runtime"):
        layer.tools(None)  # type: ignore[arg-type]  # it is not looked at

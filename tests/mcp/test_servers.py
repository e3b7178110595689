"""MCP servers as supervised children: real processes that are started, called, killed and ended."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from mcp.client import stdio

from sapwood import Crashed, NotRunning, Running, Unavailable
from sapwood.errors import (
    ChildFailed,
    InvalidOption,
    McpCallLost,
    McpCallRefused,
    McpCallTimeout,
    McpUnavailable,
    MissingExtra,
)
from sapwood.mcp import HttpServer, McpClient, McpResult, StdioServer, mcp_server
from sapwood.mcp._descriptions import hide
from sapwood.supervision import ChildSpec, TreeNode
from tests.mcp.kit import PROGRAM, QUICK, connected, exists, notes, opened, script, tiny, until

TOOLS = ["echo", "pid", "wait", "fail", "structured", "parts", "change", "key", "secret"]


# --- starting and listing ---------------------------------------------------------------------------


async def test_the_runtime_starts_a_server_and_lists_all_pages_of_its_tools(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        found = client.lookup()

        assert isinstance(found, Running)
        status = found.ref
        assert (status.connected, status.reason, status.connections) == (True, "", 1)
        assert status.implementation == "tiny 1.2"
        assert [tool.name for tool in client.tools()] == TOOLS


async def test_a_change_of_the_tools_is_seen_without_a_new_connection(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        await client.call("change", {"text": '[{"name": "new", "inputSchema": {"type": "object"}}]'})
        await until(lambda: [tool.name for tool in client.tools()] == ["new"])

        assert client.status().connections == 1


async def test_a_server_that_cannot_be_started_keeps_the_runtime_from_starting_and_is_named() -> None:
    with pytest.raises(ChildFailed) as failed:
        async with opened(mcp_server("absent", StdioServer("/no/such/program"))):
            pass

    assert "absent" in str(failed.value)
    assert "/no/such/program" in str(failed.value)


async def test_a_server_that_does_not_answer_in_time_fails_to_start_and_its_process_is_ended(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    code = f"import os, sys; open({str(pid_file)!r}, 'w').write(str(os.getpid())); sys.stdin.read()"
    with pytest.raises(ChildFailed, match=r"did not answer within 0\.5 s"):
        async with opened(mcp_server("silent", script(code), start_timeout=0.5)):
            pass

    assert not exists(int(pid_file.read_text()))


async def test_a_server_that_need_not_be_there_is_unavailable_until_it_is(tmp_path: Path) -> None:
    program = tmp_path / "program"
    spec = mcp_server("late", StdioServer(str(program), tiny(tmp_path).args), backoff=QUICK, wait=False)
    async with opened(spec) as runtime:
        client = McpClient(runtime.registry, "late")
        await until(lambda: "No such file" in client.status().reason)

        assert client.lookup() == Unavailable("starting")
        with pytest.raises(McpUnavailable, match="No such file"):
            client.tools()
        with pytest.raises(McpUnavailable, match="No such file"):
            await client.call("echo", {"text": "hello"})

        program.write_text(f'#!/bin/sh\nexec "{tiny(tmp_path).command}" "$@"\n')
        program.chmod(0o755)
        await until(lambda: isinstance(client.lookup(), Running))
        assert (await client.call("echo", {"text": "hello"})).text == "hello"


async def test_a_name_that_no_server_has_is_not_running_and_the_nearest_is_told(tmp_path: Path) -> None:
    async with opened(mcp_server("tiny", tiny(tmp_path))) as runtime:
        client = McpClient(runtime.registry, "tinny")

        assert client.lookup() == NotRunning()
        with pytest.raises(InvalidOption, match=r"no MCP server 'tinny'; did you mean 'tiny'\?"):
            client.tools()
        with pytest.raises(InvalidOption, match=r"no MCP server 'other'; there are: tiny\. Give open_runtime"):
            await McpClient(runtime.registry, "other").call("echo", {})


def test_without_the_extra_the_error_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sapwood.mcp._extra.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"pip install 'sapwood\[mcp\]'"):
        mcp_server("tiny", StdioServer("program"))


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: mcp_server("", StdioServer("program")), "expected a text that is not empty; got ''"),
        (lambda: mcp_server("tiny", "program"), "expected a StdioServer or an HttpServer; got str"),  # type: ignore[arg-type]
        (lambda: mcp_server("tiny", StdioServer("p"), start_timeout=0), "expected a start_timeout above 0 seconds"),
    ],
    ids=["name", "description", "time-out"],
)
def test_a_server_that_cannot_be_described_is_refused(make: Callable[[], ChildSpec], problem: str) -> None:
    with pytest.raises(InvalidOption, match=problem):
        make()


# --- calls ------------------------------------------------------------------------------------------


async def test_results_of_all_kinds_come_back_as_text_that_a_model_can_read(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        assert await client.call("echo", {"text": "hello"}) == McpResult("hello")
        assert await client.call("fail", {"text": "no"}) == McpResult("no", is_error=True)
        assert (await client.call("structured", {})).content == {"cents": 5}
        assert (await client.call("parts", {})).text.splitlines() == [
            "before",
            "[image image/png, 8 bytes, not shown]",
            "[resource file:///note]",
            "inside",
            "[resource file:///blob: binary data, 8 bytes, not shown]",
            "[resource page: https://example.org/page]",
        ]


async def test_calls_run_at_the_same_time_over_one_connection(tmp_path: Path) -> None:
    async with connected(tmp_path) as client, trio.open_nursery() as nursery:
        nursery.start_soon(client.call, "wait", {})
        await until(lambda: "wait begins" in notes(tmp_path))

        assert (await client.call("echo", {"text": "meanwhile"})).text == "meanwhile"
        nursery.cancel_scope.cancel()


async def test_the_server_is_told_that_a_caller_was_cancelled(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.call, "wait", {})
            await until(lambda: "wait begins" in notes(tmp_path))
            nursery.cancel_scope.cancel()

        await until(lambda: "wait cancelled" in notes(tmp_path))
        assert (await client.call("echo", {"text": "still here"})).text == "still here"


async def test_a_call_that_takes_too_long_is_given_up_and_the_server_is_told(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        with pytest.raises(McpCallTimeout) as late:
            await client.call("wait", {}, timeout=0.2)

        assert (late.value.server, late.value.tool, late.value.seconds) == ("tiny", "wait", 0.2)
        await until(lambda: "wait cancelled" in notes(tmp_path))


async def test_an_error_of_the_protocol_is_a_refusal_with_its_code(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        with pytest.raises(McpCallRefused) as refused:
            await client.call("no such tool", {})

        assert (refused.value.code, refused.value.problem) == (-32601, "there is no no such tool")


async def test_the_idempotency_key_of_a_call_reaches_the_server(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        assert (await client.call("key", {}, key="idem_1")).text == "idem_1"
        assert (await client.call("key", {})).text == "None"


@pytest.mark.parametrize("timeout", [0.0, -1.0, float("nan"), float("inf")])
async def test_a_time_out_that_is_no_number_of_seconds_above_zero_is_refused(tmp_path: Path, timeout: float) -> None:
    async with connected(tmp_path) as client:
        with pytest.raises(InvalidOption, match="expected a timeout above 0 seconds, or None"):
            await client.call("echo", {"text": "hello"}, timeout=timeout)
        assert "echo begins" not in notes(tmp_path)


# --- death and return -------------------------------------------------------------------------------


@pytest.mark.row("UP-41")
async def test_a_process_killed_in_the_middle_of_a_call_is_replaced_and_the_next_call_works(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        pid = int((await client.call("pid", {})).text)
        lost: list[McpCallLost] = []

        async def wait_in_vain() -> None:
            with pytest.raises(McpCallLost) as caught:
                await client.call("wait", {})
            assert client.lookup() == Unavailable("unreachable")  # already now
            lost.append(caught.value)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait_in_vain)
            await until(lambda: "wait begins" in notes(tmp_path))
            os.kill(pid, signal.SIGKILL)

        assert [(error.server, error.tool) for error in lost] == [("tiny", "wait")]
        await until(lambda: client.status().connections == 2)
        assert int((await client.call("pid", {})).text) != pid
        assert not exists(pid)


async def test_the_death_of_an_idle_process_is_noticed_and_its_tools_stay_listed(tmp_path: Path) -> None:
    spec = mcp_server("tiny", tiny(tmp_path))  # with a delay that lets the gap be seen
    async with opened(spec) as runtime:
        client = McpClient(runtime.registry, "tiny")
        os.kill(int((await client.call("pid", {})).text), signal.SIGKILL)
        await until(lambda: not client.status().connected)

        assert client.lookup() == Unavailable("unreachable")
        assert [tool.name for tool in client.tools()] == TOOLS
        with pytest.raises(McpUnavailable) as away:
            await client.call("echo", {"text": "hello"})
        assert (away.value.server, away.value.retry_after) == ("tiny", 1.0)
        await until(lambda: client.status().connected)


async def test_a_server_that_keeps_dying_takes_nothing_else_down(tmp_path: Path) -> None:
    marker = tmp_path / "starts"
    code = f"open({str(marker)!r}, 'a').write('x')"
    spec = mcp_server("dying", script(code), backoff=QUICK, wait=False)
    async with opened(spec, mcp_server("tiny", tiny(tmp_path))) as runtime:
        await until(lambda: marker.exists() and len(marker.read_text()) >= 12)

        assert runtime.ready()
        assert McpClient(runtime.registry, "dying").lookup() == Unavailable("starting")
        assert McpClient(runtime.registry, "tiny").status().connections == 1


@pytest.mark.row("UP-41")
async def test_no_process_is_left_when_the_runtime_has_stopped(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        pid = int((await client.call("pid", {})).text)

    assert not exists(pid)


async def test_a_process_that_ignores_the_end_of_input_and_sigterm_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stdio, "PROCESS_TERMINATION_TIMEOUT", 0.1)
    monkeypatch.setattr(stdio, "FORCE_KILL_TIMEOUT", 0.1)
    async with connected(tmp_path, "stubborn") as client:
        pid = int((await client.call("pid", {})).text)

    assert not exists(pid)


@pytest.mark.row("UP-41")
async def test_a_caller_that_waits_when_the_runtime_stops_is_let_go(tmp_path: Path) -> None:
    outcomes: list[str] = []

    async def wait_in_vain(client: McpClient) -> None:
        with pytest.raises(McpCallLost):
            await client.call("wait", {})
        outcomes.append("lost")

    async with trio.open_nursery() as nursery, connected(tmp_path) as client:
        nursery.start_soon(wait_in_vain, client)
        await until(lambda: "wait begins" in notes(tmp_path))

    assert outcomes == ["lost"]


async def test_a_server_stands_in_the_tree_as_a_keeper_and_a_connection(tmp_path: Path) -> None:
    def kinds(node: TreeNode) -> list[tuple[str, object]]:
        return [(node.kind, node.key), *(kind for child in node.children for kind in kinds(child))]

    async with opened(mcp_server("tiny", tiny(tmp_path))) as runtime:
        found = kinds(runtime.tree())

    assert found[-3:] == [("McpServer", None), ("McpKeeper", ("mcp", "tiny")), ("McpConnection", None)]


# --- the protocol with subscriptions ----------------------------------------------------------------


async def test_a_server_made_with_the_library_is_called_cancelled_killed_and_replaced(tmp_path: Path) -> None:
    description = StdioServer(sys.executable, (str(PROGRAM.with_name("library_server.py")), str(tmp_path)))
    async with opened(mcp_server("library", description, backoff=QUICK)) as runtime:
        client = McpClient(runtime.registry, "library")
        assert [tool.name for tool in client.tools()] == ["echo", "pid", "wait", "structured", "parts", "grow"]
        assert (await client.call("structured", {})).content == {"cents": 5}
        assert (await client.call("parts", {})).text.splitlines()[1] == "[image image/png, 8 bytes, not shown]"

        with pytest.raises(McpCallTimeout):
            await client.call("wait", {}, timeout=0.2)
        await until(lambda: "wait cancelled" in notes(tmp_path))

        # A change is told to those who have subscribed, so it is made until the subscription stands.
        while "extra.tool" not in [tool.name for tool in client.tools()]:
            await client.call("grow", {})
            await trio.sleep(0.01)

        os.kill(int((await client.call("pid", {})).text), signal.SIGKILL)
        await until(lambda: client.status().connections == 2)
        assert (await client.call("echo", {"text": "back"})).text == "back"


# --- descriptions -----------------------------------------------------------------------------------


async def test_secrets_of_a_server_reach_it_and_show_nowhere_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    description = tiny(tmp_path, env={"TOKEN": "hunter22"})
    spec = mcp_server("tiny", description, backoff=QUICK)
    async with opened(spec) as runtime:
        client = McpClient(runtime.registry, "tiny")
        assert (await client.call("secret", {})).text == "hunter22"
        pid = int((await client.call("pid", {})).text)
        os.kill(pid, signal.SIGKILL)
        await until(lambda: client.status().connections == 2)
        shown = f"{description!r} {spec!r} {client.status()!r} {runtime.tree()!r}"

    output = capfd.readouterr()
    assert "hunter22" not in shown + caplog.text + output.out + output.err


async def test_a_secret_that_a_server_tells_in_an_error_is_hidden(tmp_path: Path) -> None:
    async with connected(tmp_path, env={"TOKEN": "hunter22"}) as client:
        with pytest.raises(McpCallRefused) as refused:
            await client.call("leak", {})

    assert refused.value.problem == "there is no ***"


def test_what_credentials_of_an_http_server_are_made_of_is_hidden_too() -> None:
    description = HttpServer("https://example.org/mcp?token=hunter33", headers={"Authorization": "Bearer hunter22"})
    text = "no hunter22 at https://example.org/mcp?token=hunter33, nor 'Bearer hunter22'"

    assert hide(text, description) == "no *** at https://example.org/mcp?***, nor '***'"


async def test_a_failed_start_does_not_show_the_secrets_of_its_arguments_or_environment(tmp_path: Path) -> None:
    description = StdioServer("/no/such/program", ["--key", "hunter22"], env={"TOKEN": "hunter33"})
    with pytest.raises(ChildFailed) as failed:
        async with opened(mcp_server("absent", description)):
            pass

    reason = failed.value.reason
    assert isinstance(reason, Crashed)
    assert "hunter" not in f"{failed.value} {failed.value!r} {reason!r} {reason.traceback()}"

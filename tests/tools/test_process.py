"""Tools in processes of their own, and what a cancellation does to a tool wherever it runs."""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
import trio

from sapwood.actors import RealEnvironment
from sapwood.conversation import State, ToolCall
from sapwood.errors import InvalidOption, InvalidTool
from sapwood.tools import Pending, Tool, Toolbox, ToolContext, ToolOutcome, tool
from tests.tools.process_tools import build, conclude, fail, hang, hangs, hangs_briefly, vanish, who_am_i


def context() -> ToolContext:
    return ToolContext("c1", "r1", "call_1", "idem_1", State(), {}, RealEnvironment())


async def invoke(each: Tool[..., Any], **arguments: Any) -> ToolOutcome:
    return await Toolbox([each]).invoke(ToolCall("call_1", each.name, arguments), context())


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_a_tool_runs_in_another_process_with_its_arguments_read_there() -> None:
    outcome = await invoke(who_am_i, speed="fast")
    answer = json.loads(outcome.result.content)
    assert answer["pid"] != os.getpid()
    assert answer["speed"] == "fast"
    assert (await invoke(who_am_i, speed="warp")).result.problem == "invalid"


async def test_an_exception_in_another_process_is_an_error_for_the_model() -> None:
    outcome = await invoke(fail, reason="no such thing")
    assert outcome.result.content == "Error: ValueError: no such thing"
    assert outcome.result.problem == "failed"


async def test_work_that_goes_on_after_its_process_is_pending_and_can_be_asked_about() -> None:
    outcome = await invoke(build, number=7)
    assert outcome.pending == Pending("build-7", every=2.0, note="queued")
    polled = await Toolbox([build]).poll(ToolCall("call_1", "build", {"number": 7}), "build-7", context())
    assert polled.result.content == "build-7 is built"


async def test_operations_that_cannot_leave_a_process_are_an_error_and_not_lost_in_the_answer() -> None:
    assert (await invoke(conclude, marked=False)).result.content == '{"done": true}'
    outcome = await invoke(conclude, marked=True)
    assert outcome.result.is_error
    assert outcome.operations == ()
    assert outcome.result.content.startswith("Error: conclude ran, but the operations in its ToolOutput")


@pytest.mark.parametrize(("code", "ending"), [(3, "exit code 3"), (-signal.SIGKILL, "SIGKILL")])
async def test_a_process_that_ends_without_a_result_is_an_error_with_its_last_words(code: int, ending: str) -> None:
    outcome = await invoke(vanish, code=code)
    expected = f"Error: the process of vanish ended without a result ({ending}): last words"
    assert outcome.result.content == expected


@pytest.mark.row("UP-33", "UP-40")
@pytest.mark.parametrize("polite", [True, False], ids=["ends when asked", "has to be killed"])
async def test_a_cancelled_caller_leaves_no_process_behind(tmp_path: Path, *, polite: bool) -> None:
    marker = tmp_path / "pid"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: invoke(hangs, marker=str(marker), polite=polite))
        while not marker.exists() or not marker.read_text(encoding="ascii"):  # noqa: ASYNC110  # another process
            await trio.sleep(0.02)
        nursery.cancel_scope.cancel()
    assert not is_alive(int(marker.read_text(encoding="ascii")))


async def test_a_process_that_takes_too_long_is_ended_and_the_model_is_told(tmp_path: Path) -> None:
    outcome = await invoke(hangs_briefly, marker=str(tmp_path / "pid"), polite=True)
    assert outcome.result.problem == "timeout"
    assert outcome.result.content.endswith("its process was ended and may have done a part")


async def test_a_thread_is_left_behind_by_a_cancelled_caller_and_its_result_discarded() -> None:
    began, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    @tool(blocking=True)
    def block() -> str:
        """Block."""
        began.set()
        go_on.wait(10)
        ended.set()
        return "late"

    outcomes: list[ToolOutcome] = []

    async def call() -> None:
        outcomes.append(await invoke(block))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(call)
        assert await trio.to_thread.run_sync(began.wait, 10)
        nursery.cancel_scope.cancel()
    assert not ended.is_set()
    go_on.set()
    assert await trio.to_thread.run_sync(ended.wait, 10)
    assert outcomes == []


def test_a_function_that_another_process_cannot_find_is_refused() -> None:
    def inner() -> str:
        """Stand inside a function."""
        return ""

    with pytest.raises(InvalidTool, match="expected a function at the top of an importable module"):
        tool(process=True)(inner)


def with_context(call: ToolContext) -> str:
    """Want a context."""
    return call.call_id


async def asynchronous() -> str:
    """Be async."""
    await trio.lowlevel.checkpoint()
    return ""


def test_what_cannot_go_into_another_process_is_refused() -> None:
    with pytest.raises(InvalidTool, match="a ToolContext cannot go into another process; drop 'call'"):
        tool(process=True)(with_context)
    with pytest.raises(InvalidTool, match="got an async one"):
        tool(process=True)(asynchronous)
    with pytest.raises(InvalidOption, match="got both: drop one"):
        tool(process=True, blocking=True)(hang)
    assert tool(process=True, timeout=5.0)(hang).timeout == 5.0

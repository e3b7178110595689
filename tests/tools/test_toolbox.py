"""Toolboxes: looking tools up and carrying out calls."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
import trio
import trio.testing

from sapwood.actors import RealEnvironment, SimulatedEnvironment
from sapwood.conversation import State, ToolCall, ToolSpec, UserMessage
from sapwood.errors import DuplicateName, FileMissing, InvalidOption, InvalidTool, ToolError
from sapwood.tools import Tool, Toolbox, ToolContext, ToolOutcome, tool


@tool
def refund(order: str, cents: int) -> str:
    """Refund part of an order."""
    return f"refunded {cents} cents of {order}"


@tool
async def lookup(order: str) -> str:
    """Look an order up."""
    await trio.lowlevel.checkpoint()
    return f"order {order}"


BOX = Toolbox([refund, lookup])


def context(**fields: Any) -> ToolContext:
    given: dict[str, Any] = {
        "agent_id": "conversation-1",
        "run_id": "run-1",
        "call_id": "c1",
        "idempotency_key": "idem_1",
        "state": State(messages=(UserMessage("hi"),)),
        "host": {"shop": "green"},
        "environment": SimulatedEnvironment(),
    }
    return ToolContext(**{**given, **fields})


async def invoke(box: Toolbox, name: str, arguments: dict[str, Any] | None = None, **fields: Any) -> ToolOutcome:
    return await box.invoke(ToolCall("c1", name, arguments or {}), context(**fields))


async def failing(error: BaseException) -> ToolOutcome:
    @tool
    async def fail() -> None:
        raise error

    return await invoke(Toolbox([fail]), "fail")


# --- the collection -------------------------------------------------------------------------------


def test_a_toolbox_keeps_its_tools_in_order_and_shows_them_to_the_model() -> None:
    assert [each.name for each in BOX] == ["refund", "lookup"]
    assert (len(BOX), "refund" in BOX, "fly" in BOX) == (2, True, False)
    assert BOX.get("refund") is refund
    assert BOX.get("fly") is None
    assert BOX.specs() == (refund.spec, lookup.spec)
    assert isinstance(BOX.specs()[0], ToolSpec)


def test_two_tools_with_one_name_are_refused() -> None:
    other = tool(name="refund")(lookup.function)

    with pytest.raises(DuplicateName, match="tool 'refund' is already taken"):
        Toolbox([refund, other])
    with pytest.raises(DuplicateName):
        BOX.with_tools([other])


def test_a_plain_function_is_refused_with_what_to_write() -> None:
    def plain() -> None: ...

    with pytest.raises(InvalidTool, match="write `@tool` above the function"):
        Toolbox([plain])  # type: ignore[list-item]


def test_more_tools_make_another_toolbox() -> None:
    @tool
    def extra() -> None: ...

    assert [each.name for each in BOX.with_tools([extra])] == ["refund", "lookup", "extra"]
    assert len(BOX) == 2


def test_a_limit_too_small_for_the_notice_is_refused() -> None:
    with pytest.raises(InvalidOption, match="text_limit of 200"):
        Toolbox(text_limit=10)


# --- calls ----------------------------------------------------------------------------------------


async def test_a_call_of_a_plain_and_of_an_async_tool_gives_its_result() -> None:
    first = await invoke(BOX, "refund", {"order": "17", "cents": 2500.0})
    second = await invoke(BOX, "lookup", {"order": "17"})

    assert (first.result.content, first.result.call_id, first.result.is_error) == (
        "refunded 2500 cents of 17",
        "c1",
        False,
    )
    assert second.result.content == "order 17"


async def test_a_tool_is_given_the_context_of_its_call() -> None:
    seen: list[ToolContext] = []

    @tool
    def look(context: ToolContext) -> str:
        seen.append(context)
        return context.idempotency_key

    outcome = await invoke(Toolbox([look]), "look")

    assert outcome.result.content == "idem_1"
    assert (seen[0].agent_id, seen[0].run_id, seen[0].state.messages) == (
        "conversation-1",
        "run-1",
        (UserMessage("hi"),),
    )
    assert seen[0].host["shop"] == "green"
    with pytest.raises(TypeError, match="does not support item assignment"):
        seen[0].host["shop"] = "red"  # type: ignore[index]


@pytest.mark.parametrize(
    ("call", "content"),
    [
        (ToolCall("c1", "refnd"), "Error: there is no tool 'refnd'; did you mean 'refund'?"),
        (ToolCall("c1", "zzz"), "Error: there is no tool 'zzz'; there are: refund, lookup"),
        (
            ToolCall("c1", "refund", {"order": "17", "cents": "75 dollars"}),
            "Error: refund was not run: argument 'cents': expected an integer, got '75 dollars'",
        ),
        (
            ToolCall("c1", "refund", malformed='{"order": '),
            (
                "Error: refund was not run: its arguments must be a JSON object, but they cannot be read "
                "(Expecting value: line 1 column 11 (char 10)): '{\"order\": '"
            ),
        ),
        (
            ToolCall("c1", "refund", malformed="[1, 2]"),
            "Error: refund was not run: its arguments must be a JSON object, but they are a list of 2",
        ),
    ],
)
@pytest.mark.row("S4-064")
async def test_a_call_that_cannot_run_is_an_error_for_the_model_that_says_how_to_mend_it(
    call: ToolCall, content: str
) -> None:
    outcome = await BOX.invoke(call, context())

    assert (outcome.result.content, outcome.result.is_error, outcome.result.call_id) == (content, True, "c1")
    assert BOX.check(call) == outcome


def test_a_call_that_can_run_passes_the_check() -> None:
    assert BOX.check(ToolCall("c1", "refund", {"order": "17", "cents": 1})) is None


@pytest.mark.parametrize("malformed", ["{" * 100_000, "[" * 100_000, "1" * 100_000, "\ud83d", '{"a": NaN'])
def test_no_malformed_arguments_whatever_raise(malformed: str) -> None:
    outcome = BOX.check(ToolCall("c1", "refund", malformed=malformed))

    assert outcome is not None
    assert len(outcome.result.content) < 500
    outcome.result.content.encode()


@pytest.mark.parametrize(
    ("error", "content"),
    [
        (ToolError("the shop is closed"), "Error: the shop is closed"),
        (FileMissing("/a", "does not exist"), "Error: '/a': does not exist"),
        (ValueError("bad"), "Error: ValueError: bad"),
        (KeyError("k"), "Error: KeyError: 'k'"),
        (RuntimeError(), "Error: RuntimeError"),
        (RecursionError("deep"), "Error: RecursionError: deep"),
        (ValueError("half \ud83d"), "Error: ValueError: half \\ud83d"),
        (ExceptionGroup("one", [ValueError("a")]), "Error: ValueError: a"),
        (
            ExceptionGroup("some", [ValueError("a"), ExceptionGroup("more", [ToolError("b"), OSError("c")])]),
            "Error: 3 errors: ValueError: a; b; OSError: c",
        ),
        (asyncio.CancelledError(), "Error: CancelledError"),
    ],
)
@pytest.mark.row("S4-064", "AR-22.18")
async def test_an_exception_is_an_error_for_the_model(error: BaseException, content: str) -> None:
    outcome = await failing(error)

    assert (outcome.result.content, outcome.result.is_error) == (content, True)
    assert outcome.exception is error
    assert outcome.operations == ()


async def test_an_exception_whose_text_cannot_be_made_is_named_by_its_class() -> None:
    class Broken(Exception):
        def __str__(self) -> str:
            raise ValueError

    assert (await failing(Broken())).result.content == "Error: Broken"


@pytest.mark.parametrize(
    "error",
    [
        KeyboardInterrupt(),
        SystemExit(1),
        MemoryError(),
        BaseExceptionGroup("several", [KeyboardInterrupt(), SystemExit(1)]),
        ExceptionGroup("memory", [MemoryError()]),
    ],
)
async def test_what_must_end_the_run_passes(error: BaseException) -> None:
    with pytest.raises(type(error)) as caught:
        await failing(error)

    assert caught.value is error


async def test_of_a_mixed_group_only_what_must_end_the_run_passes_and_the_rest_is_its_cause() -> None:
    mixed = BaseExceptionGroup("mixed", [ValueError("a"), KeyboardInterrupt()])

    with pytest.raises(BaseExceptionGroup) as caught:
        await failing(mixed)

    assert [type(each) for each in caught.value.exceptions] == [KeyboardInterrupt]
    assert caught.value.__cause__ is mixed


async def test_a_tool_that_fails_while_it_is_timed_out_is_an_error_too(autojump_clock: trio.testing.MockClock) -> None:
    @tool(timeout=2.0)
    async def untidy() -> None:
        async def clean_up_badly() -> None:
            try:
                await trio.sleep_forever()
            finally:
                raise ValueError("cannot clean up")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(clean_up_badly)
            nursery.start_soon(trio.sleep_forever)

    outcome = await invoke(Toolbox([untidy]), "untidy")

    assert outcome.result.content == "Error: ValueError: cannot clean up"


async def test_a_tool_that_fails_while_its_caller_is_cancelled_does_not_disturb_the_cancellation() -> None:
    @tool
    async def untidy() -> None:
        async def clean_up_badly() -> None:
            try:
                await trio.sleep_forever()
            finally:
                raise ValueError("cannot clean up")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(clean_up_badly)
            nursery.start_soon(trio.sleep_forever)
            scope.cancel()

    with trio.CancelScope() as scope:
        await invoke(Toolbox([untidy]), "untidy")

    assert scope.cancelled_caught


async def test_a_group_that_a_nursery_inside_a_tool_raises_is_told_by_its_leaves() -> None:
    @tool
    async def parallel() -> None:
        async def fail(text: str) -> None:
            raise ValueError(text)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail, "one")

    outcome = await invoke(Toolbox([parallel]), "parallel")

    assert outcome.result.content == "Error: ValueError: one"


# --- time and cancellation ------------------------------------------------------------------------


async def test_a_tool_that_takes_too_long_is_cancelled_and_an_error(autojump_clock: trio.testing.MockClock) -> None:
    ended: list[str] = []

    @tool(timeout=2.0)
    async def slow() -> None:
        try:
            await trio.sleep(60)
        finally:
            ended.append("ended")

    outcome = await invoke(Toolbox([slow]), "slow")

    assert outcome.result.is_error
    assert outcome.result.content == (
        "Error: slow did not finish within 2 s; it was cancelled and may have done a part"
    )
    assert ended == ["ended"]
    assert trio.current_time() == pytest.approx(2.0)


async def test_a_tool_that_is_in_time_is_not_disturbed(autojump_clock: trio.testing.MockClock) -> None:
    @tool(timeout=2.0)
    async def quick() -> str:
        await trio.sleep(1.9)
        return "in time"

    assert (await invoke(Toolbox([quick]), "quick")).result.content == "in time"


async def test_a_time_out_that_the_tool_raises_itself_is_its_own_error(autojump_clock: trio.testing.MockClock) -> None:
    @tool(timeout=60.0)
    async def impatient() -> None:
        with trio.fail_after(1):
            await trio.sleep_forever()

    assert (await invoke(Toolbox([impatient]), "impatient")).result.content.startswith("Error: TooSlowError")


async def test_cancelling_the_caller_passes_through_a_tool(autojump_clock: trio.testing.MockClock) -> None:
    @tool(timeout=60.0)
    async def slow() -> None:
        await trio.sleep_forever()

    with trio.move_on_after(1) as scope:
        await invoke(Toolbox([slow]), "slow")

    assert scope.cancelled_caught
    assert trio.current_time() == pytest.approx(1.0)


@pytest.mark.parametrize("name", ["act", "act_later"])
async def test_a_cancelled_caller_never_starts_a_tool(name: str) -> None:
    acted: list[str] = []

    @tool
    def act() -> None:
        acted.append("plain")

    @tool
    async def act_later() -> None:
        acted.append("async")

    with trio.CancelScope() as scope:
        scope.cancel()
        await invoke(Toolbox([act, act_later]), name)

    assert scope.cancelled_caught
    assert acted == []


async def test_what_a_plain_tool_did_is_reported_even_if_the_caller_is_cancelled_meanwhile() -> None:
    outcomes: list[ToolOutcome] = []
    with trio.CancelScope() as scope:

        @tool
        def act() -> str:
            scope.cancel()
            return "acted"

        outcomes.append(await invoke(Toolbox([act]), "act"))

    assert outcomes[0].result.content == "acted"


@pytest.mark.parametrize("name", ["refund", "nowhere"])
async def test_every_call_is_a_checkpoint(name: str) -> None:
    with trio.testing.assert_checkpoints():
        await invoke(BOX, name, {"order": "1", "cents": 1})


async def test_a_blocking_tool_runs_in_a_thread_of_the_environment() -> None:
    @tool(blocking=True)
    def where() -> bool:
        return threading.current_thread() is threading.main_thread()

    outcome = await invoke(Toolbox([where]), "where", environment=RealEnvironment())

    assert outcome.result.content == "false"


async def test_a_blocking_tool_that_takes_too_long_is_left_behind_and_the_model_is_told() -> None:
    release = threading.Event()
    ended = threading.Event()

    @tool(blocking=True, timeout=0.01)
    def stuck() -> None:
        release.wait(10)
        ended.set()

    try:
        outcome = await invoke(Toolbox([stuck]), "stuck", environment=RealEnvironment())
    finally:
        release.set()

    assert outcome.result.content == "Error: stuck did not finish within 0.01 s; its thread may still be running"
    assert ended.wait(10)


def test_a_tool_shows_its_options() -> None:
    shown: Tool[..., Any] = tool(timeout=3.0, idempotent=True, editable=("order",))(lookup.function)

    assert (shown.timeout, shown.idempotent, shown.crash_resume) == (3.0, True, "rerun")
    assert (shown.blocking, shown.editable) == (False, ("order",))

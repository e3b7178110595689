"""Results of tools: large ones, odd ones, late ones, and those of calls that a crash interrupted."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from sapwood import Agent, Limits, Runtime, ScriptedModel, ToolContext, tool
from sapwood.agents import StoredResults, read_result
from sapwood.conversation import InterruptRaised, RunFinished, ToolCall, ToolResult, ToolStarted
from sapwood.errors import InvalidOption, StoreUnavailable
from sapwood.middleware import Middleware, MiddlewareContext, ToolInvocation
from sapwood.models import call
from sapwood.tools import TEXT_LIMIT, ToolOutcome
from tests.agents.kit import assert_sendable, entries_of, events_in, opened, state_in, until

MEGABYTES = "0123456789" * 1024 * 1024


def results_of(session: Any) -> list[ToolResult]:
    return [each for each in session.state.messages if isinstance(each, ToolResult)]


@tool
def dump() -> str:
    """Return ten megabytes."""
    return MEGABYTES


# --- large ------------------------------------------------------------------------------------------


@pytest.mark.row("UP-66", "UP-67")
async def test_of_a_huge_result_the_model_sees_the_beginning_and_may_read_the_rest(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    def read_on(request: Any) -> Any:
        reference = request.messages[-1].reference
        return call("read_result", reference=reference, offset=10_485_750, length=20)

    model = ScriptedModel(call("dump"), read_on, "I see.")
    session = await runtime.sessions.ensure_running(Agent("a", model=model, tools=[dump, read_result]), "c1")
    assert await session.say("go") == "I see."
    first, second = results_of(session)
    assert len(first.content) < TEXT_LIMIT + 200
    assert first.content.startswith("0123456789")
    assert "10485760 characters" in first.content
    assert first.content.endswith(f"[the whole of it is kept as {first.reference}]")
    assert second.content == "0123456789\n[this is the end]"
    assert second.reference == ""
    # The journal holds what the model sees.
    assert sum(len(repr(entry.event)) for entry in await entries_of(runtime)) < 3 * TEXT_LIMIT
    assert await state_in(runtime) == session.state


@pytest.mark.row("UP-66")
async def test_a_kept_result_belongs_to_its_conversation_and_survives_a_restart(
    path: Path, autojump_clock: MockClock
) -> None:
    async with opened(path) as runtime:
        session = await runtime.sessions.ensure_running(
            Agent("a", model=ScriptedModel(call("dump"), "ok"), tools=[dump]), "c1"
        )
        await session.say("go")
        [result] = results_of(session)
    async with opened(path) as runtime:
        results = StoredResults(lambda: runtime.store)
        assert await results.get("c1", result.reference) == MEGABYTES
        assert await results.get("c2", result.reference) is None
        assert await results.get("c1", "res_0") is None
        # The last text of a call counts, so an attempt that a crash repeats leaves one.
        first = await results.put("c1", "idem_1", "text")
        again = await results.put("c1", "idem_1", "shorter")
        assert again == first != result.reference
        assert await results.get("c1", first) == "shorter"


@pytest.mark.parametrize(
    ("arguments", "content"),
    [
        ({"reference": "res_0"}, "this conversation has no result 'res_0'"),
        ({"reference": "res_0", "offset": -1}, "expected an offset from 0 and a length from 1; got -1 and 20000"),
    ],
)
async def test_reading_what_is_not_there_is_an_error_for_the_model(
    runtime: Runtime, autojump_clock: MockClock, arguments: dict[str, Any], content: str
) -> None:
    model = ScriptedModel(call("read_result", **arguments), "ok")
    session = await runtime.sessions.ensure_running(Agent("a", model=model, tools=[read_result]), "c1")
    await session.say("go")
    assert content in results_of(session)[0].content


@pytest.mark.row("UP-67")
async def test_a_result_that_cannot_be_kept_costs_only_its_rest(
    runtime: Runtime, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def put(self: Any, agent_id: str, key: str, text: str) -> str:
        await trio.lowlevel.checkpoint()
        raise StoreUnavailable("store.db", "is full")

    monkeypatch.setattr(StoredResults, "put", put)
    model = ScriptedModel(call("dump"), "ok")
    session = await runtime.sessions.ensure_running(Agent("a", model=model, tools=[dump]), "c1")
    assert await session.say("go") == "ok"
    [result] = results_of(session)
    assert (result.is_error, result.reference) == (False, "")
    assert "[the rest of it could not be kept: " in result.content


# --- odd --------------------------------------------------------------------------------------------


@pytest.mark.row("BR-29", "BR-31", "UP-70")
@pytest.mark.parametrize(
    ("value", "content"),
    [
        ("half \ud83d", "half \\ud83d"),
        ("a\x00b", "a\x00b"),
        (2**20_000, f'"{hex(2**20_000)}"'),
        ({"n": 2**64, "x": float("nan"), "y": float("-inf")}, '{"n": 18446744073709551616, "x": "nan", "y": "-inf"}'),
        (b"\xff\xfe", "[binary data, 2 bytes, not shown]"),
        ({"raw": b"text", "odd": "\udcff"}, '{"raw": "text", "odd": "\\udcff"}'),
        (None, "done"),
        ("", ""),
    ],
    ids=["surrogate", "nul", "huge integer", "odd numbers", "bytes", "nested", "nothing", "empty"],
)
async def test_whatever_a_tool_returns_is_stored_and_the_conversation_goes_on_after_a_restart(
    path: Path, autojump_clock: MockClock, value: Any, content: str
) -> None:
    @tool
    def odd() -> object:
        """Return something odd."""
        return value

    agent = Agent("a", model=ScriptedModel(call("odd"), "one", "two"), tools=[odd])
    async with opened(path) as runtime:
        session = await runtime.sessions.ensure_running(agent, "c1")
        assert await session.say("go") == "one"
        assert results_of(session)[0].content == content
    async with opened(path) as runtime:
        session = await runtime.sessions.ensure_running(agent, "c1")
        assert results_of(session)[0].content == content
        assert await session.say("again") == "two"
        assert_sendable(session.state)


@pytest.mark.row("BR-29")
async def test_arguments_with_huge_integers_and_odd_text_survive_a_restart(
    path: Path, autojump_clock: MockClock
) -> None:
    @tool
    def echo(number: int, text: str) -> str:
        """Return the arguments."""
        return f"{number} {text!r}"

    model = ScriptedModel(call("echo", number=2**70, text="a\ud83d\x00"), "one", "two")
    agent = Agent("a", model=model, tools=[echo])
    async with opened(path) as runtime:
        session = await runtime.sessions.ensure_running(agent, "c1")
        await session.say("go")
        first = results_of(session)[0].content
    async with opened(path) as runtime:
        session = await runtime.sessions.ensure_running(agent, "c1")
        assert results_of(session)[0].content == first
        assert first.startswith(str(2**70))
        assert await session.say("again") == "two"


# --- late -------------------------------------------------------------------------------------------


async def test_a_tool_that_takes_too_long_gives_a_typed_result_and_harms_no_other(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    @tool(timeout=5.0)
    async def slow() -> str:
        """Take too long."""
        await trio.sleep(100)
        return "never"

    @tool
    async def quick() -> str:
        """Be quick."""
        await trio.sleep(6)
        return "here"

    model = ScriptedModel([call("slow"), call("quick"), call("nothing")], "done")
    session = await runtime.sessions.ensure_running(Agent("a", model=model, tools=[slow, quick]), "c1")
    await session.say("go")
    assert [each.problem for each in results_of(session)] == ["timeout", "", "invalid"]
    assert results_of(session)[0].content == (
        "Error: slow did not finish within 5 s; it was cancelled and may have done a part"
    )


async def test_calls_begin_in_their_order_however_few_may_run_at_once(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    began: list[int] = []

    @tool
    async def work(number: int) -> str:
        """Work."""
        began.append(number)
        await trio.sleep(1)
        return ""

    model = ScriptedModel([call("work", number=number) for number in range(7)], "done")
    agent = Agent("a", model=model, tools=[work], limits=Limits(parallel_tools=1))
    await (await runtime.sessions.ensure_running(agent, "c1")).say("go")
    assert began == list(range(7))


# --- once -------------------------------------------------------------------------------------------


class Twice(Middleware):
    """Carries out every call twice, the second time with what a function makes of its arguments."""

    def __init__(self, change: Any) -> None:
        self.change = change

    async def around_tool_call(
        self, call: ToolCall, call_next: ToolInvocation, context: MiddlewareContext
    ) -> ToolOutcome:
        await call_next(call)
        return await call_next(ToolCall(call.id, call.name, self.change(call.arguments)))


@pytest.mark.row("S3-143", "BR-28")
@pytest.mark.parametrize(
    ("change", "content"),
    [
        (dict, "paid 5"),
        (lambda _: {"cents": 6}, "Error: pay has already run under this idempotency key, with other arguments"),
    ],
    ids=["same arguments", "other arguments"],
)
async def test_a_call_that_is_dispatched_again_under_its_key_gives_its_result_and_does_not_run_again(
    runtime: Runtime, autojump_clock: MockClock, change: Any, content: str
) -> None:
    paid: list[int] = []

    @tool
    def pay(cents: int) -> str:
        """Pay."""
        paid.append(cents)
        return f"paid {cents}"

    agent = Agent("a", model=ScriptedModel(call("pay", cents=5), "ok"), tools=[pay], middleware=[Twice(change)])
    session = await runtime.sessions.ensure_running(agent, "c1")
    await session.say("go")
    assert paid == [5]
    assert results_of(session)[0].content == content


@pytest.mark.row("S3-143", "S3-142")
async def test_a_result_that_is_journaled_is_not_computed_again_after_a_restart(
    path: Path, autojump_clock: MockClock
) -> None:
    keys: list[str] = []

    @tool(idempotent=True)
    def pay(context: ToolContext) -> str:
        """Pay."""
        keys.append(context.idempotency_key)
        return f"paid the {len(keys)}."

    def crash(request: Any) -> Any:
        raise ConnectionError("the process is about to end")

    agent = Agent("a", model=ScriptedModel(call("pay"), crash, "done"), tools=[pay])
    async with opened(path) as runtime:
        session = await runtime.sessions.ensure_running(agent, "c1")
        async with session.send("go") as run:
            await run.finish()
    async with opened(path) as runtime:
        session = await runtime.sessions.ensure_running(agent, "c1")
        assert await session.say("and?") == "done"
    assert len(keys) == 1
    assert keys[0].startswith("idem_")


@pytest.mark.row("S3-144", "S3-145", "UP-2")
async def test_a_person_is_asked_to_check_a_call_that_was_dispatched_and_may_not_have_completed(
    path: Path, autojump_clock: MockClock
) -> None:
    sent: list[str] = []

    @tool(crash_resume="ask")
    async def send_payment(context: ToolContext, cents: int) -> str:
        """Send a payment."""
        sent.append(context.idempotency_key)
        await trio.sleep_forever()
        return "never"

    agent = Agent("a", model=ScriptedModel(call("send_payment", cents=5), "done"), tools=[send_payment])
    async with opened(path) as runtime:
        session = await runtime.sessions.ensure_running(agent, "c1")
        async with session.send("go") as run:
            await until(run, ToolStarted)
            await trio.sleep(1)
    async with opened(path) as runtime:
        session = await runtime.sessions.ensure_running(agent, "c1")
        with session.events() as events:
            _, raised = await until(events, InterruptRaised)
            await until(events, RunFinished, outcome="interrupted")
            assert raised.interrupt.reason == (
                "Tool 'send_payment' was dispatched but we don't know if it completed. "
                "Please check manually and confirm the result."
            )
            assert raised.interrupt.details == {"idempotency_key": sent[0], "attempt": 1}
            await session.approvals[0].answer(result="it arrived", by="ann")
            await until(events, RunFinished)
        assert len(sent) == 1
        assert results_of(session)[0].content == "it arrived"


def test_a_tool_that_may_act_twice_needs_its_author_to_say_what_happens_after_a_crash() -> None:
    @tool
    def send() -> str:
        """Send."""
        return ""

    # Without a word it is never run again; whoever wants that has to say that it does no harm.
    assert (send.idempotent, send.crash_resume) == (False, "fail")
    with pytest.raises(InvalidOption, match="may act twice after a crash; pass idempotent=True"):
        tool(crash_resume="rerun")(send.function)
    assert tool(crash_resume="ask")(send.function).crash_resume == "ask"


def test_the_store_of_results_has_a_table_of_its_own(tmp_path: Path) -> None:
    async def fill() -> None:
        async with opened(tmp_path / "s.db") as runtime:
            await StoredResults(lambda: runtime.store).put("c1", "call_1", "text")
            assert await events_in(runtime) == []

    trio.run(fill)
    with sqlite3.connect(tmp_path / "s.db") as connection:
        assert connection.execute("SELECT agent_id, text FROM results").fetchall() == [("c1", "text")]
    connection.close()

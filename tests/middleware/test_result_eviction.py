"""ResultEviction: large results are kept elsewhere, and can be read from there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from sapwood import Agent, Runtime, ScriptedModel, Session, tool
from sapwood.conversation import ToolCall, ToolResult, check_pairs
from sapwood.errors import InvalidOption
from sapwood.files import Quota
from sapwood.middleware import FileSystem, Middleware, ResultEviction, message_tokens
from sapwood.models import ModelRequest, call
from tests.agents.kit import assert_sendable, opened, transcript

LINES = [f"line {number}: {'x' * 40}" for number in range(1, 101)]
LARGE = "\n".join(LINES)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@tool
def fetch(*, small: bool = False) -> str:
    """Fetch."""
    return "short" if small else LARGE


@tool
def huge() -> str:
    """Return more than any result may have."""
    return "\n".join("y" * 99 for _ in range(2_000))


@tool
def numbered(start: int) -> str:
    """Count from a number."""
    return "\n".join(f"number {number}" for number in range(start, start + 500))


class Shelf:
    """A store in memory."""

    def __init__(self, *, broken: bool = False) -> None:
        self.kept: dict[str, str] = {}
        self.broken = broken
        self.puts = 0

    async def put(self, agent_id: str, call_id: str, text: str) -> str:
        await trio.lowlevel.checkpoint()
        if self.broken:
            raise ConnectionError("no shelf")
        self.puts += 1
        self.kept[f"shelf:{agent_id}:{call_id}"] = text
        return f"shelf:{agent_id}:{call_id}"

    async def get(self, agent_id: str, reference: str) -> str | None:
        await trio.lowlevel.checkpoint()
        return self.kept.get(reference)


async def worked(runtime: Runtime, *steps: Any, layers: list[Middleware], agent_id: str = "c1") -> Session:
    agent = Agent("a", model=ScriptedModel(*steps, "ok"), tools=[fetch, huge], middleware=layers)
    session = await runtime.sessions.ensure_running(agent, agent_id)
    await session.say("go")
    assert_sendable(session.state)
    return session


def results(session: Session) -> list[ToolResult]:
    return [each for each in session.state.messages if isinstance(each, ToolResult)]


async def test_a_large_result_leaves_a_preview_and_is_read_on_from_its_file_after_a_restart_too(
    path: Path, autojump_clock: MockClock
) -> None:
    name = "tool-results/c1/call_1.txt"
    layers: list[Middleware] = [ResultEviction(500, preview_lines=2)]
    async with opened(path) as runtime:
        session = await worked(runtime, call("fetch"), call("fetch", small=True), layers=layers)
        large, small = results(session)
        assert small.content == "short"
        assert large.reference == name
        notice = (
            f"[{len(LARGE)} characters in 100 lines are kept as {name!r}; this is the beginning and the end. "
            "Read on with read_tool_result]"
        )
        assert large.content.splitlines() == [*LINES[:2], notice, *LINES[-2:]]
    async with opened(path, seed=1) as runtime:
        wish = call("read_tool_result", reference=name, start_line=3, limit=2)
        session = await worked(runtime, wish, layers=layers)
        assert results(session)[-1].content.splitlines() == [
            f"3\t{LINES[2]}",
            f"4\t{LINES[3]}",
            "[lines 3 to 4 of 100; go on with start_line=5]",
        ]


async def test_the_whole_text_is_kept_of_a_result_that_is_longer_than_any_may_be(
    path: Path, autojump_clock: MockClock
) -> None:
    shelf = Shelf()
    async with opened(path) as runtime:
        session = await worked(runtime, call("huge"), layers=[ResultEviction(store=shelf)])
        [result] = results(session)
        assert result.reference == "shelf:c1:call_1"
        assert "200" in result.content
    assert len(shelf.kept["shelf:c1:call_1"]) == 199_999


async def test_the_file_tools_of_the_same_scope_find_the_kept_results(path: Path, autojump_clock: MockClock) -> None:
    layers: list[Middleware] = [ResultEviction(500, scope=("user", 1)), FileSystem(("user", 1))]
    async with opened(path) as runtime:
        steps = [call("fetch"), call("search_text", pattern="line 77:"), call("ls")]
        session = await worked(runtime, *steps, layers=layers)
        assert results(session)[1].content.startswith("tool-results/c1/call_1.txt:77: line 77: ")
        assert results(session)[2].content == f"tool-results/c1/call_1.txt ({len(LARGE)} bytes)"


async def test_conversations_that_share_a_scope_do_not_overwrite_nor_read_each_others_results(
    path: Path, autojump_clock: MockClock
) -> None:
    layers: list[Middleware] = [ResultEviction(500, scope=("user", 1))]
    references: dict[str, str] = {}
    async with opened(path) as runtime:
        for agent_id in ("c1", "c2", "a/b", "a-b", "ü" * 100):
            session = await worked(runtime, call("fetch"), layers=layers, agent_id=agent_id)
            references[agent_id] = results(session)[0].reference
        assert len(set(references.values())) == 5
        wish = call("read_tool_result", reference=references["c1"])
        session = await worked(runtime, wish, layers=layers, agent_id="thief")
        assert results(session)[0].is_error


async def test_a_call_id_that_comes_again_does_not_replace_what_an_earlier_reference_stands_for(
    path: Path, autojump_clock: MockClock
) -> None:
    again = [ToolCall("call_0", "numbered", {"start": start}) for start in (1, 1_000, 1)]
    async with opened(path) as runtime:
        session = await runtime.sessions.ensure_running(
            Agent(
                "clerk",
                model=ScriptedModel(again[0], "one", again[1], "two", again[2], "three"),
                tools=[numbered],
                middleware=[ResultEviction(500)],
            ),
            "c1",
        )
        for text in ("first", "second", "third"):
            await session.say(text)
        first, second, third = [each.reference for each in results(session)]
        files = runtime.files.client(("agent", "c1"))
        assert (await files.read(first)).lines[0] == "number 1"
        assert (await files.read(second)).lines[0] == "number 1000"
        assert third == first


@tool
def page(size: int) -> str:
    """Return a page of so many characters."""
    return "\n".join("z" * 79 for _ in range(size // 80))


def size_of(request: ModelRequest) -> int:
    specs = sum(len(f"{each.name} {each.description} {json.dumps(dict(each.parameters))}") for each in request.tools)
    return sum(map(message_tokens, request.messages)) + (specs + len(request.system)) // 4


@pytest.mark.row("BR-64")
@pytest.mark.parametrize(
    ("sizes", "kept"),
    [
        ([6_000] * 20, 2),  # together too large
        ([6_000] * 2 + [48_000] + [6_000] * 2, 4),  # the largest first, which is enough
        ([60_000], 0),  # one that is larger than the window
        ([6_000] * 3, 3),
    ],
)
async def test_a_request_beyond_the_window_has_its_largest_results_moved_until_it_fits(
    path: Path, autojump_clock: MockClock, sizes: list[int], kept: int
) -> None:
    shelf = Shelf()
    model = ScriptedModel([call("page", size=size) for size in sizes], "Done.", "And again.")
    layers = [ResultEviction(100_000, window=12_800, store=shelf)]
    agent = Agent("a", model=model, prompt="p" * 20_480, tools=[page], middleware=layers)
    async with opened(path) as runtime:
        session = await runtime.sessions.ensure_running(agent, "c1")
        assert await session.say("go") == "Done."
        puts = shelf.puts
        assert await session.say("again") == "And again."
        assert [len(each.content) for each in results(session)] == [size - 1 for size in sizes]
    first, second = model.requests[1:]
    assert size_of(first) <= 12_800 + 10
    assert check_pairs(first.messages) == ()
    sent = [each for each in first.messages if isinstance(each, ToolResult)]
    assert len([each for each in sent if not each.reference]) == kept
    moved = [(each.reference, page(size)) for each, size in zip(sent, sizes, strict=True) if each.reference]
    assert moved == [(reference, shelf.kept[reference]) for reference, _ in moved]
    assert second.messages[: len(first.messages)] == first.messages
    assert shelf.puts == puts == len(sizes) - kept


@pytest.mark.parametrize("place", ["store", "files"])
async def test_a_result_that_cannot_be_kept_elsewhere_stays_as_it_is(
    path: Path, autojump_clock: MockClock, place: str
) -> None:
    layer = ResultEviction(500, store=Shelf(broken=True)) if place == "store" else ResultEviction(500)
    async with opened(path) as runtime:
        runtime.files.configure(("agent", "c1"), limits=Quota(max_file_bytes=100))
        session = await worked(runtime, call("fetch"), layers=[layer])
        [result] = results(session)
        assert (result.content, result.reference) == (LARGE, "")


async def test_results_of_excluded_tools_and_of_reading_stay_whatever_their_size(
    path: Path, autojump_clock: MockClock
) -> None:
    async with opened(path) as runtime:
        session = await worked(runtime, call("fetch"), layers=[ResultEviction(500, exclude=["fetch"])])
        assert results(session)[0].content == LARGE
        shelf = Shelf()
        shelf.kept["r"] = "\n".join("z" * 300 for _ in range(50))
        wish = call("read_tool_result", reference="r", limit=1000)
        session = await worked(runtime, wish, layers=[ResultEviction(500, store=shelf)], agent_id="c2")
        read = results(session)[0]
        assert read.reference == ""
        assert len(read.content) < 2000
        assert read.content.splitlines()[-1] == "[lines 1 to 3 of 50; go on with start_line=4]"


@pytest.mark.parametrize(
    ("wish", "told"),
    [
        ({"reference": "tool-results/c1/gone.txt"}, "Error: there is no result 'tool-results/c1/gone.txt' any more"),
        ({"reference": "secret.txt"}, "Error: there is no result 'secret.txt' any more"),
        ({"reference": "tool-results/c1/../../secret.txt"}, "Error: there is no result"),
        ({"reference": "tool-results/c2/call_1.txt"}, "Error: there is no result"),
        ({"reference": "tool-results/c1/call_1.txt", "start_line": 101}, "tool-results/c1/call_1.txt has 100"),
        ({"reference": "tool-results/c1/call_1.txt", "start_line": -5, "limit": 0}, f"1\t{LINES[0]}"),
    ],
)
async def test_only_kept_results_can_be_read_and_the_model_is_told_what_is_wrong(
    path: Path, autojump_clock: MockClock, wish: dict[str, Any], told: str
) -> None:
    async with opened(path) as runtime:
        await runtime.files.client(("agent", "c1")).write("secret.txt", "swordfish")
        session = await worked(runtime, call("fetch"), call("read_tool_result", **wish), layers=[ResultEviction(500)])
        assert transcript(session.state.messages)[4].startswith(f"read_tool_result: {told}")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"threshold": 99}, "threshold of 100"),
        ({"preview_lines": 0}, "1 preview line"),
        ({"window": 99}, "window of 100"),
        ({"scope": ("user", 1), "store": Shelf()}, "got both"),
    ],
    ids=["threshold", "lines", "window", "both"],
)
def test_an_option_out_of_its_range_is_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidOption, match=problem):
        ResultEviction(**options)

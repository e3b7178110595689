"""FileSystem: what the model can do with the files of a scope, and what it reads when something is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from trio.testing import MockClock

from sapwood import Agent, Running, Runtime, ScriptedModel, Session
from sapwood.errors import InvalidOption
from sapwood.files import DirectoryBackend, MemoryBackend, Quota
from sapwood.middleware import FileSystem
from sapwood.models import call
from tests.agents.kit import opened, transcript


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


async def working(runtime: Runtime, *steps: Any, agent_id: str = "c1", layer: FileSystem | None = None) -> Session:
    agent = Agent("a", model=ScriptedModel(*steps, "ok"), middleware=[layer or FileSystem(("user", 1))])
    session = await runtime.sessions.ensure_running(agent, agent_id)
    await session.say("go")
    return session


def results(session: Session) -> list[str]:
    """Return what the tools answered, without their names."""
    tools = ("ls", "read_file", "write_file", "edit_file", "delete_file", "search_text")
    lines = transcript(session.state.messages)
    return [line.partition(": ")[2] for line in lines if line.startswith(tuple(f"{name}: " for name in tools))]


@pytest.mark.row("S4-017", "S4-060")
async def test_the_model_writes_reads_edits_finds_lists_and_deletes_files(
    path: Path, autojump_clock: MockClock
) -> None:
    text = "".join(f"line {number}\n" for number in range(1, 6))
    async with opened(path) as runtime:
        session = await working(
            runtime,
            call("write_file", path="notes/a.md", content=text),
            call("read_file", path="notes/a.md", start_line=2, limit=2),
            call("edit_file", path="notes/a.md", old="line 3", new="third"),
            call("search_text", pattern="third"),
            call("ls"),
            call("delete_file", path="notes/a.md"),
            call("ls", pattern="*.md"),
        )
        assert results(session) == [
            "wrote notes/a.md (version 1, 35 bytes)",
            "2\tline 2\n3\tline 3\n[lines 2 to 3 of 5; go on with start_line=4]",
            "edited notes/a.md in 1 place, from line 3 (version 2)",
            "notes/a.md:3: third",
            "notes/a.md (34 bytes)",
            "deleted notes/a.md",
            "no files match *.md",
        ]


@pytest.mark.row("S4-064", "AR-22.18", "AR-22.20")
@pytest.mark.parametrize(
    ("wish", "expected"),
    [
        (
            call("read_file", path="none.md"),
            "Error: 'none.md': there is no such file; list the files to see their names",
        ),
        (call("write_file", path="../out.md", content="x"), "Error: '../out.md':"),
        (call("edit_file", path="a.md", old="q", new="x"), "Error: 'a.md': the text to replace does not occur"),
        (call("edit_file", path="a.md", old="a", new="x"), "Error: 'a.md': the text to replace occurs 2 times"),
        (call("write_file", path="big.md", content="x" * 5000), "Error: 'big.md':"),
        (call("search_text", pattern="zzz"), "no line in 1 files holds 'zzz'"),
        (call("read_file", path="a.md", start_line=9), "a.md has 1 lines; none from line 9"),
        (call("edit_file", path="a.md", old="a", new="b", replace_all=True), "edited a.md in 2 places, from line 1"),
    ],
)
async def test_what_cannot_be_done_is_told_to_the_model_in_words_that_help(
    path: Path, autojump_clock: MockClock, wish: Any, expected: str
) -> None:
    async with opened(path) as runtime:
        runtime.files.configure(("user", 1), limits=Quota(max_file_bytes=4000))
        session = await working(runtime, call("write_file", path="a.md", content="a a\n"), wish)
        assert results(session)[1].startswith(expected)
        assert (await runtime.files.client(("user", 1)).ls()).total == 1


@pytest.mark.row("S4-017")
async def test_only_the_chosen_tools_are_offered_and_spoken_of(path: Path, autojump_clock: MockClock) -> None:
    model = ScriptedModel("ok", "ok")
    async with opened(path) as runtime:
        few = Agent("a", model=model, middleware=[FileSystem(("user", 1), enabled_tools=["ls", "write_file"])])
        await (await runtime.sessions.ensure_running(few, "c1")).say("go")
        reading = Agent("a", model=model, middleware=[FileSystem(("user", 1), reading_only=True)])
        await (await runtime.sessions.ensure_running(reading, "c2")).say("go")
    assert [spec.name for spec in model.requests[0].tools] == ["ls", "write_file"]
    assert "delete_file" not in model.requests[0].system
    assert [spec.name for spec in model.requests[1].tools] == ["ls", "read_file", "search_text"]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"scope": "user"}, "expected a scope such as"),
        ({"scope": ()}, "expected a scope such as"),
        ({"scope": (1, "user")}, "expected a scope such as"),
        ({"scope": ("user", 1), "enabled_tools": ["ls", "rm"]}, "expected enabled_tools from ls, read_file"),
    ],
)
def test_a_wrong_option_is_refused_when_the_layer_is_made(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidOption, match=problem):
        FileSystem(**options)


def test_a_layer_without_a_tool_is_refused_by_its_agent() -> None:
    layer = FileSystem(enabled_tools=["write_file"], reading_only=True)
    with pytest.raises(InvalidOption, match="expected at least one tool"):
        Agent("a", model=ScriptedModel(), middleware=[layer])


# --- scopes -----------------------------------------------------------------------------------------


@pytest.mark.row("S4-058", "S4-059", "AR-24.55")
async def test_agents_of_one_scope_share_files_and_other_scopes_know_nothing_of_them(
    path: Path, autojump_clock: MockClock
) -> None:
    async with opened(path) as runtime:
        await working(runtime, call("write_file", path="a.md", content="shared"), agent_id="c1")
        same = await working(runtime, call("read_file", path="a.md"), agent_id="c2")
        other = await working(runtime, call("ls"), agent_id="c3", layer=FileSystem(("user", 2)))
        alone = await working(runtime, call("ls"), agent_id="c4", layer=FileSystem())
        assert (results(same), results(other)) == (["1\tshared"], ["no files match **"])
        assert results(alone) == ["no files match **"]
        running = sorted(map(repr, runtime.registry.running("files")))
        assert running == sorted(map(repr, [("files", "user", 1), ("files", "user", 2), ("files", "agent", "c4")]))


@pytest.mark.row("S4-059")
async def test_the_files_of_a_conversation_alone_are_its_own(path: Path, autojump_clock: MockClock) -> None:
    async with opened(path) as runtime:
        for agent_id in ("c1", "c2"):
            write = call("write_file", path="me.md", content=agent_id)
            await working(runtime, write, agent_id=agent_id, layer=FileSystem())
        for agent_id in ("c1", "c2"):
            assert (await runtime.files.client(("agent", agent_id)).read("me.md")).lines == (agent_id,)


@pytest.mark.row("S4-033", "S4-061", "AR-24.45", "AR-24.47", "AR-24.53")
async def test_files_are_there_again_in_the_next_process(path: Path, autojump_clock: MockClock) -> None:
    async with opened(path) as runtime:
        await working(
            runtime,
            call("write_file", path="a.md", content="kept"),
            call("write_file", path="empty.md", content=""),
            call("write_file", path="gone.md", content="x"),
            call("delete_file", path="gone.md"),
        )
    async with opened(path) as runtime:
        client = runtime.files.client(("user", 1))
        assert [(entry.path, entry.size) for entry in (await client.ls()).entries] == [("a.md", 4), ("empty.md", 0)]


@pytest.mark.row("S4-057", "S4-061")
async def test_the_host_chooses_how_a_scope_is_kept(path: Path, autojump_clock: MockClock, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    async with opened(path) as runtime:
        environment = runtime.environment
        runtime.files.configure(("user", 1), lambda scope: DirectoryBackend(root, environment))
        runtime.files.configure(("user", 2), lambda scope: MemoryBackend(environment))
        await working(runtime, call("write_file", path="a/b.md", content="on disk"))
        assert (root / "a" / "b.md").read_text() == "on disk"
        layer = FileSystem(("user", 2))
        session = await working(runtime, call("write_file", path="a.md", content="x"), agent_id="c2", layer=layer)
        assert results(session) == ["wrote a.md (version 1, 1 bytes)"]


# --- failures ---------------------------------------------------------------------------------------


@pytest.mark.row("S4-057", "AR-24.54", "AR-22.18")
async def test_a_filesystem_that_dies_costs_no_agent_and_no_file(path: Path, autojump_clock: MockClock) -> None:
    async with opened(path) as runtime:
        session = await working(
            runtime, call("write_file", path="a.md", content="kept"), call("read_file", path="a.md")
        )
        found = runtime.files.lookup(("user", 1))
        assert isinstance(found, Running)
        found.ref.kill()
        other = await working(runtime, call("read_file", path="a.md"), agent_id="c2")
        assert results(other) == ["1\tkept"]
        again = runtime.files.lookup(("user", 1))
        assert isinstance(again, Running)
        assert again.ref is not found.ref
        assert (await session.status()).epoch == 1


async def test_a_filesystem_that_cannot_be_started_is_an_error_for_the_model(
    path: Path, autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with opened(path) as runtime:
        missing = tmp_path / "missing"
        environment = runtime.environment
        runtime.files.configure(("user", 1), lambda scope: DirectoryBackend(missing, environment))
        session = await working(runtime, call("ls"))
        assert results(session)[0].startswith("Error: ")
        assert "missing" in results(session)[0]
        missing.mkdir()
        other = await working(runtime, call("ls"), agent_id="c2")
        assert results(other) == ["no files match **"]

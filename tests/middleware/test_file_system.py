"""FileSystem: what the model can do with the files of a scope, and what it reads when something is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from sapwood import Agent, Running, Runtime, ScriptedModel, Session
from sapwood.errors import InvalidOption, QuotaExceeded
from sapwood.files import DirectoryBackend, FileEntry, FilePath, MemoryBackend, Mount, Mounts, Quota, Saving
from sapwood.middleware import FileSystem
from sapwood.middleware._file_system import TOOLS
from sapwood.models import call
from tests.agents.kit import opened, transcript

COMPOSED = "\u00e9.md"
DECOMPOSED = "e\u0301.md"


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
    lines = transcript(session.state.messages)
    return [line.partition(": ")[2] for line in lines if line.startswith(tuple(f"{name}: " for name in TOOLS))]


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


async def test_a_search_may_be_a_pattern_show_the_lines_around_and_stop_early(
    path: Path, autojump_clock: MockClock
) -> None:
    text = "one\ntwo 22\nthree\nfour 44\nfive\n"
    async with opened(path) as runtime:
        session = await working(
            runtime,
            call("write_file", path="a.md", content=text),
            call("search_text", pattern=r"\d+", regular=True),
            call("search_text", pattern=r"\d+"),
            call("search_text", pattern="four", context_lines=1),
            call("search_text", pattern=r"\w+", regular=True, max_results=2),
            call("search_text", pattern="(", regular=True),
        )
        plain = "a.md:2: two 22\na.md:4: four 44"
        assert results(session)[1:5] == [
            plain,
            "no line in 1 files holds '\\\\d+'",
            "a.md-3- three\na.md:4: four 44\na.md-5- five",
            "a.md:1: one\na.md:2: two 22\n[stopped early: max_results]",
        ]
        assert results(session)[5].startswith("Error: ")


async def test_a_guarded_layer_overwrites_nothing_that_somebody_else_has_changed_meanwhile(
    path: Path, autojump_clock: MockClock
) -> None:
    layer = FileSystem(("user", 1), guarded=True)
    steps: list[Any] = [
        call("write_file", path=COMPOSED, content="mine\n"),
        "ok",
        call("write_file", path=DECOMPOSED, content="mine again\n"),
        call("edit_file", path=COMPOSED, old="yours", new="ours"),
        call("delete_file", path=COMPOSED),
        call("read_file", path=COMPOSED),
        call("edit_file", path=COMPOSED, old="yours", new="ours"),
        call("edit_file", path=COMPOSED, old="ours", new="all ours"),
        call("delete_file", path=COMPOSED),
        call("write_file", path=COMPOSED, content="new\n"),
        "ok",
    ]
    async with opened(path) as runtime:
        agent = Agent("a", model=ScriptedModel(*steps), middleware=[layer])
        session = await runtime.sessions.ensure_running(agent, "c1")
        await session.say("go")
        await runtime.files.client(("user", 1)).write(COMPOSED, "yours\n")
        await session.say("go on")
        told = results(session)
        conflict = f"Error: '{COMPOSED}': is at version 2, but version 1 was expected; read it again before changing it"
        assert told[1:4] == [conflict] * 3
        assert told[4] == "1\tyours"
        assert [line.split(" ")[0] for line in told[5:]] == ["edited", "edited", "deleted", "wrote"]


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
    assert [spec.name for spec in model.requests[1].tools] == ["ls", "read_file", "file_info", "search_text"]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"scope": "user"}, "expected a scope such as"),
        ({"scope": ()}, "expected a scope such as"),
        ({"scope": (1, "user")}, "expected a scope such as"),
        ({"scope": ("user", 1), "enabled_tools": ["ls", "rm"]}, "expected enabled_tools from ls, read_file"),
        ({"scope": ("user", 1), "descriptions": {"rm": "x"}}, "expected enabled_tools from ls, read_file"),
        ({"scope": ("user", 1), "max_characters": 999}, "expected max_characters to be a whole number from 1000"),
        ({"scope": ("user", 1), "max_characters": True}, "max_characters"),
    ],
)
def test_a_wrong_option_is_refused_when_the_layer_is_made(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidOption, match=problem):
        FileSystem(**options)


def test_a_layer_without_a_tool_is_refused_by_its_agent() -> None:
    layer = FileSystem(enabled_tools=["write_file"], reading_only=True)
    with pytest.raises(InvalidOption, match="expected at least one tool"):
        Agent("a", model=ScriptedModel(), middleware=[layer])


# --- lines, moves, versions -------------------------------------------------------------------------


@pytest.mark.row("S4-017")
async def test_the_model_edits_by_lines_moves_and_looks_at_versions(path: Path, autojump_clock: MockClock) -> None:
    async with opened(path) as runtime:
        session = await working(
            runtime,
            call("write_file", path="n/a.md", content="one\ntwo\nthree\n"),
            call("replace_lines", path="n/a.md", first=2, last=3, content="2\n3\n4"),
            call("insert_lines", path="n/a.md", after=0, content="zero"),
            call("replace_lines", path="n/a.md", first=1, last=1, content="0"),
            call("read_file", path="n/a.md"),
            call("move_file", source="n", target="old/notes"),
            call("file_info", path="old/notes/a.md"),
            call("search_text", pattern="ONE", case_sensitive=False),
            call("ls", limit=1),
        )
        assert results(session)[1:6] == [
            "replaced lines 2 to 3 of n/a.md (version 2, 10 bytes); the lines after them moved by +1",
            "inserted from line 1 of n/a.md (version 3, 15 bytes); the lines after them moved by +1",
            "replaced lines 1 to 1 of n/a.md (version 4, 12 bytes); the lines after them did not move",
            "1\t0\n2\tone\n3\t2\n4\t3\n5\t4",
            "moved 1 file from n to old/notes",
        ]
        assert results(session)[6].startswith("old/notes/a.md: version 5, 12 bytes, changed 20")
        assert results(session)[6].endswith(", saved")
        assert results(session)[7:] == ["old/notes/a.md:2: one", "old/notes/a.md (12 bytes)"]


async def test_lines_are_edited_only_at_the_version_whose_numbers_the_model_has_seen(
    path: Path, autojump_clock: MockClock
) -> None:
    steps: list[Any] = [
        call("replace_lines", path="a.md", first=1, last=1, content="x"),
        call("read_file", path="a.md"),
        "ok",
        call("insert_lines", path="a.md", after=1, content="x"),
        call("read_file", path="a.md"),
        call("insert_lines", path="a.md", after=1, content="x"),
        call("edit_file", path="a.md", old="x", new="y"),
        call("insert_lines", path="a.md", after=1, content="z"),
        "ok",
    ]
    async with opened(path) as runtime:
        client = runtime.files.client(("user", 1))
        await client.write("a.md", "theirs\n")
        agent = Agent("a", model=ScriptedModel(*steps), middleware=[FileSystem(("user", 1))])
        session = await runtime.sessions.ensure_running(agent, "c1")
        await session.say("go")
        await client.write("a.md", "new\ntheirs\n")
        await session.say("go on")
        told = results(session)
        unread = "read the file first; the numbers of its lines may have changed"
        assert unread in told[0]
        assert "is at version 2, but version 1 was expected; read it again" in told[2]
        assert told[4].startswith("inserted from line 2 of a.md (version 3,")
        assert unread in told[6]
        assert (await client.read("a.md")).lines == ("new", "y", "theirs")


async def test_a_guarded_move_keeps_what_was_seen_and_a_directory_is_to_be_read_again(
    path: Path, autojump_clock: MockClock
) -> None:
    steps: list[Any] = [
        call("write_file", path="d/a.md", content="mine\n"),
        call("move_file", source="d/a.md", target="d/b.md"),
        call("edit_file", path="d/b.md", old="mine", new="still mine"),
        "ok",
        call("move_file", source="d", target="e"),
        call("write_file", path="e/b.md", content="lost?"),
        call("read_file", path="e/b.md"),
        call("write_file", path="e/b.md", content="both"),
        "ok",
    ]
    async with opened(path) as runtime:
        layer = FileSystem(("user", 1), guarded=True)
        session = await runtime.sessions.ensure_running(
            Agent("a", model=ScriptedModel(*steps), middleware=[layer]), "c1"
        )
        await session.say("go")
        await runtime.files.client(("user", 1)).write("d/b.md", "theirs\n")
        await session.say("go on")
        told = results(session)
        assert told[2].startswith("edited d/b.md")
        assert "read it again before changing it" in told[4]
        assert told[5] == "1\ttheirs"
        assert told[6].startswith("wrote e/b.md")


async def test_a_long_file_is_shown_in_pieces_and_a_long_line_is_cut(path: Path, autojump_clock: MockClock) -> None:
    layer = FileSystem(("user", 1), max_characters=1000)
    async with opened(path) as runtime:
        client = runtime.files.client(("user", 1))
        await client.write("a.md", "".join(f"{'x' * 97}\n" for _ in range(30)))
        await client.write("b.md", "y" * 5000)
        session = await working(
            runtime,
            call("read_file", path="a.md"),
            call("read_file", path="a.md", start_line=11),
            call("read_file", path="b.md"),
            layer=layer,
        )
        first, second, long = results(session)
        assert first.endswith("\n[lines 1 to 9 of 30; go on with start_line=10]")
        assert "[lines 11 to 19 of 30" in second
        assert long == "1\t" + "y" * 998 + "... [4002 more characters in this line]"


async def test_a_description_may_be_the_hosts_own(path: Path, autojump_clock: MockClock) -> None:
    model = ScriptedModel("ok")
    layer = FileSystem(("user", 1), enabled_tools=["ls"], descriptions={"ls": "Show what lies in the archive."})
    async with opened(path) as runtime:
        session = await runtime.sessions.ensure_running(Agent("a", model=model, middleware=[layer]), "c1")
        await session.say("go")
    assert model.requests[0].tools[0].description == "Show what lies in the archive."


async def test_read_only_mounts_are_shown_and_their_refusal_is_told_by_name(
    path: Path, autojump_clock: MockClock
) -> None:
    async with opened(path) as runtime:
        environment = runtime.environment
        runtime.files.configure(
            ("user", 1),
            lambda scope: Mounts(
                {"": MemoryBackend(environment), "docs": Mount(MemoryBackend(environment), read_only=True)}
            ),
        )
        session = await working(
            runtime,
            call("ls"),
            call("write_file", path="docs/a.md", content="x"),
            call("write_file", path="a", content=""),
        )
        assert results(session) == [
            "no files match **\n[read-only: docs]",
            "Error: 'docs/a.md': the mount 'docs' is read-only",
            "wrote a (version 1, 0 bytes)",
        ]


@pytest.mark.row("AR-22.20", "AR-24.46")
async def test_the_tool_that_wrote_is_told_that_it_is_not_saved_yet_or_why_saving_fails(
    path: Path, autojump_clock: MockClock
) -> None:
    class Full(MemoryBackend):
        full = True

        async def write(
            self, path: FilePath, data: bytes, *, expected_version: int | None = None, version: int | None = None
        ) -> FileEntry:
            if expected_version and self.full:
                raise QuotaExceeded(path, "the disk has no room")
            return await super().write(path, data, expected_version=expected_version, version=version)

    steps: list[Any] = [
        call("write_file", path="a.md", content="one"),
        call("write_file", path="a.md", content="two"),
        "ok",
        call("edit_file", path="a.md", old="two", new="three"),
        call("file_info", path="a.md"),
        call("ls"),
        "ok",
        call("file_info", path="a.md"),
        "ok",
    ]
    async with opened(path) as runtime:
        backend = Full(runtime.environment)
        runtime.files.configure(("user", 1), lambda scope: backend, saving=Saving(debounce=1.0))
        agent = Agent("a", model=ScriptedModel(*steps), middleware=[FileSystem(("user", 1))])
        session = await runtime.sessions.ensure_running(agent, "c1")
        await session.say("go")
        await trio.sleep(2)
        await session.say("go on")
        backend.full = False
        await trio.sleep(120)
        await session.say("and now?")
        told = results(session)
        failing = "not saved: the disk has no room; it is tried again"
        assert told[0] == "wrote a.md (version 1, 3 bytes)"
        assert told[1] == "wrote a.md (version 2, 3 bytes; not saved yet)"
        assert told[2] == f"edited a.md in 1 place, from line 1 (version 3; {failing})"
        assert told[3].endswith(f", {failing}")
        assert told[4] == f"a.md (5 bytes; {failing})"
        assert told[5].endswith(", saved")


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

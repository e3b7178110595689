"""`sapwood chat`: through a pipe, and on a terminal with Ctrl-C."""

from __future__ import annotations

import io
import os
import signal
from pathlib import Path

import pytest
import trio

from sapwood import OfflineModel, Runtime, open_runtime
from sapwood.actors import RealEnvironment
from sapwood.console._chat import Chat, ChatOptions
from sapwood.console._chat_screen import ChatScreen
from sapwood.console._demo_story import partitions
from sapwood.console._lines import LineReader
from sapwood.console._stored import StoredAgent, read_stored
from sapwood.conversation import AssistantMessage, UserMessage
from tests.console.command import behind_a_pipe, on_a_terminal, run_sapwood

CHAT = ("chat", "trip", "--store", "a.db")
CHOICES = "  approve · edit NAME=VALUE ... · reject [REASON] · later"


def stored(folder: Path) -> StoredAgent:
    (agent,) = read_stored(folder / "a.db").agents
    return agent


def said(agent: StoredAgent) -> list[str]:
    assert agent.state is not None
    return [message.text for message in agent.state.messages if isinstance(message, UserMessage)]


def test_a_script_of_lines_is_talked_through_and_ends_with_0(tmp_path: Path) -> None:
    done = run_sapwood(
        *CHAT,
        folder=tmp_path,
        typed="Add a to-do: pack\n\nWrite 'hello' to notes.txt\n/files\n/todos\n/status\n/tree\n/help\n/qit",
    )

    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[:2] == [
        "conversation 'trip' in a.db begins; model offline:rules",
        "/help says what you can do here",
    ]
    assert lines[2:9] == [
        "> Add a to-do: pack",
        "→ write_todos(todos=[{content='pack', status='pending'}], merge=True)",
        "← 1 [pending] pack",
        "to-dos:",
        "  ☐ 1 pack",
        "Added 1 to-do: pack.",
        "> ",
    ]
    assert "\n→ write_file(path='notes.txt', content='hello')\n← wrote notes.txt" in done.out
    assert "> /files\nnotes.txt (5 bytes)\n> /todos\n☐ 1 pack\n> /status\nidle · 8 messages · epoch 1 · " in done.out
    assert "── server(('agent', 'trip'))" in done.out
    assert "/approvals  what waits for your decision" in done.out
    assert lines[-3].startswith("✗ there is no command /qit; expected one of /help, /status, /todos, ")
    assert lines[-1] == "left; the conversation is kept in a.db"


def test_a_conversation_goes_on_where_it_was_when_the_chat_is_started_again(tmp_path: Path) -> None:
    run_sapwood(*CHAT, folder=tmp_path, typed="Add to-dos: pack, leave\n")
    again = run_sapwood(*CHAT, folder=tmp_path, typed="Complete to-do 1\n/todos\n/quit\nAdd a to-do: never read\n")

    assert "goes on: 4 messages, 2 to-dos open" in again.out
    assert "> /todos\n☑ 1 pack\n☐ 2 leave\n> /quit\n" in again.out
    agent = stored(tmp_path)
    assert said(agent) == ["Add to-dos: pack, leave", "Complete to-do 1"]
    assert (agent.row.epoch, agent.row.released) == (2, True)


def test_approvals_are_asked_for_inline_and_decisions_are_carried_out(tmp_path: Path) -> None:
    script = (
        "Write 'a' to a.txt\nWrite 'b' to b.txt\n"
        "Delete a.txt\nperhaps\nreject keep it\n/files\n"
        "Delete a.txt\nedit path=b.txt\n/files\n"
        "Delete a.txt\napprove\n/files\n"
    )

    done = run_sapwood(*CHAT, folder=tmp_path, typed=script)

    assert done.code == 0
    question = "? delete_file(path='a.txt'): delete_file needs approval"
    assert f"> Delete a.txt\n{question}\n{CHOICES}\ndecide> perhaps\n✗ expected one of: approve" in done.out
    assert "decide> reject keep it\n· decided: reject by chat\n✗ Error: delete_file was not run" in done.out
    assert "rejected by chat: keep it" in done.out
    assert "decide> edit path=b.txt\n· decided: edit by chat\n→ delete_file(path='b.txt')\n← deleted b.txt" in done.out
    listings = [part.split("\n> ")[0].splitlines() for part in done.out.split("> /files\n")[1:]]
    assert listings == [["a.txt (1 byte)", "b.txt (1 byte)"], ["a.txt (1 byte)"], ["there are no files"]]


def test_an_approval_stays_open_at_the_end_of_the_input_and_is_asked_for_again(tmp_path: Path) -> None:
    first = run_sapwood(*CHAT, folder=tmp_path, typed="Write 'a' to a.txt\nDelete a.txt\n")
    assert first.code == 0
    assert "it stays open; start the chat again to decide" in first.out
    agent = stored(tmp_path)
    assert agent.state is not None
    assert [each.call.name for each in agent.state.undecided] == ["delete_file"]

    second = run_sapwood(*CHAT, folder=tmp_path, typed="approve\n")
    assert second.code == 0
    assert f"{CHOICES}\ndecide> approve\n· decided: approve by chat\n→ delete_file(path='a.txt')" in second.out


def test_an_approval_that_is_left_for_later_can_be_taken_up_again(tmp_path: Path) -> None:
    done = run_sapwood(*CHAT, folder=tmp_path, typed="Delete a.txt\nlater\n/approvals\nreject\n/approvals\n")

    assert "decide> later\nit stays open; /approvals asks again" in done.out
    assert done.out.count("? delete_file(path='a.txt')") == 2
    assert "> /approvals\nnothing waits for your decision\n" in done.out


def test_a_message_withdraws_what_was_left_open_and_is_followed_to_its_own_end(tmp_path: Path) -> None:
    done = run_sapwood(*CHAT, folder=tmp_path, typed="Delete a.txt\nlater\nAdd a to-do: pack\n/todos\n/approvals\n")

    assert "> Add a to-do: pack\n" in done.out
    assert "Added 1 to-do: pack.\n> /todos\n☐ 1 pack\n> /approvals\nnothing waits for your decision\n" in done.out
    assert done.out.count("delete_file needs approval") == 1


async def test_a_registry_that_dies_while_the_chat_waits_costs_no_message(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    out = io.StringIO()
    options = ChatOptions("trip", tmp_path / "a.db", OfflineModel())
    chat = Chat(options, ChatScreen(out, plain=True), LineReader(reading, RealEnvironment()), echo=True)
    codes: list[int] = []

    async def talk(runtime: Runtime) -> None:
        codes.append(await chat.talk(runtime))

    with trio.fail_after(30):
        async with open_runtime(store=options.store, signals=False) as runtime, trio.open_nursery() as nursery:
            nursery.start_soon(talk, runtime)
            os.write(writing, b"Add a to-do: pack\n")
            while True:
                if "pack.\n> " in out.getvalue():
                    break
                await trio.sleep(0.01)
            lost = partitions(runtime.tree())
            for partition in lost:
                partition.ref.kill()
            for partition in lost:
                await partition.ref.wait_stopped()
            os.write(writing, b"Add a to-do: leave\n/todos\n")
            os.close(writing)

    os.close(reading)
    assert codes == [0]
    assert "the agent is away" in out.getvalue()
    assert "> /todos\n☐ 1 pack\n☐ 2 leave\n" in out.getvalue()
    assert said(stored(tmp_path)) == ["Add a to-do: pack", "Add a to-do: leave"]


def test_files_of_a_directory_and_of_a_scope_are_used_as_asked(tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "old.txt").write_text("from before")

    on_disk = run_sapwood(*CHAT, "--files", "notes", folder=tmp_path, typed="Read old.txt\nWrite 'x' to new.txt\n")
    shared = run_sapwood("chat", "one", "--scope", "us", folder=tmp_path, typed="Write 'shared' to s.txt\n")
    other = run_sapwood("chat", "two", "--scope", "us", folder=tmp_path, typed="/files\n")

    assert "from before" in on_disk.out
    assert (folder / "new.txt").read_text() == "x"
    assert shared.code == 0
    assert "> /files\ns.txt (6 bytes)\n" in other.out


def test_what_an_agent_reads_cannot_drive_the_terminal(tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "evil.txt").write_text("before \x1b]0;owned\x07\x1b[2J after")

    done = run_sapwood(*CHAT, "--files", "notes", folder=tmp_path, typed="Read evil.txt\n")

    assert "\x1b" not in done.out
    assert "before \\x1b]0;owned\\x07\\x1b[2J after" in done.out


@pytest.mark.parametrize(
    ("arguments", "code", "problem"),
    [
        (["--model", "gpt"], 2, "model: expected offline, anthropic:NAME or openai:NAME; got 'gpt'"),
        (["--model", "anthropic:claude"], 2, "no API key; set ANTHROPIC_API_KEY"),
        (["--base-url", "http://localhost:1/v1"], 2, "the offline model takes no base URL"),
        (["--files", "nowhere"], 2, "--files nowhere: expected an existing directory"),
        (["--files", ".", "--scope", "us"], 2, "--files and --scope exclude each other"),
        ([" "], 2, "CONVERSATION: expected a name that is not empty"),
        (["--store", "."], 1, "is a directory; name a file inside it"),
        (["--store", "no/such/folder/a.db"], 1, "does not exist; create it first"),
    ],
)
def test_a_chat_that_cannot_begin_is_one_line_and_leaves_no_store(
    arguments: list[str], code: int, problem: str, tmp_path: Path
) -> None:
    done = run_sapwood("chat", *arguments, folder=tmp_path, typed="Hello\n")

    assert done.code == code
    assert problem in done.err
    assert done.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_cancels_a_run_once_and_leaves_at_the_prompt(tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "long.txt").write_text("\n".join(f"line {number} of a long text" for number in range(1500)))
    with on_a_terminal(*CHAT, "--files", "notes", folder=tmp_path) as talk:
        talk.expect("/help says")
        talk.type("Read long.txt\n")
        talk.expect("line 3 of a long text")
        talk.type("\x03")
        talk.expect("Ctrl-C cancels the run; what was done stays")
        talk.expect("the run has been cancelled: cancelled by the user")
        talk.type("Add a to-do: go on\n")
        talk.expect("Added 1 to-do: go on.")
        talk.expect("> ")
        talk.type("/quit")
        talk.type("\x03")
        assert talk.leave(20) == 0

    assert "line 1400" not in talk.output
    agent = stored(tmp_path)
    assert agent.state is not None
    assert said(agent) == ["Read long.txt", "Add a to-do: go on"]
    assert agent.state.status == "idle"
    assert agent.row.released


def test_ctrl_c_at_the_prompt_leaves_and_keeps_the_conversation(tmp_path: Path) -> None:
    with on_a_terminal(*CHAT, folder=tmp_path) as talk:
        talk.expect("/help says")
        talk.expect("> ")
        talk.type("\x03")
        assert talk.leave(20) == 0

    assert "left; the conversation is kept in a.db" in talk.output


def test_text_streams_to_a_terminal_word_by_word_and_ends_with_the_whole_answer(tmp_path: Path) -> None:
    with on_a_terminal(*CHAT, folder=tmp_path) as talk:
        talk.expect("/help says")
        talk.type("Add a to-do: pack\n")
        talk.expect("Added 1 to-do: pack.")
        talk.expect("> ")
        talk.type("\x04")
        assert talk.leave(20) == 0

    agent = stored(tmp_path)
    assert agent.state is not None
    last = agent.state.messages[-1]
    assert isinstance(last, AssistantMessage)
    assert talk.output.count(last.text) == 1


def test_a_termination_signal_stops_the_runtime_in_order(tmp_path: Path) -> None:
    with behind_a_pipe(*CHAT, folder=tmp_path) as talk:
        talk.expect("/help says")
        talk.type("Add a to-do: pack\n")
        talk.expect("Added 1 to-do: pack.\n> ")
        talk.process.send_signal(signal.SIGTERM)
        assert talk.leave(20) == 128 + signal.SIGTERM

    assert stored(tmp_path).row.released


def test_a_chat_whose_conversation_was_taken_over_says_so_and_ends_with_1(tmp_path: Path) -> None:
    with behind_a_pipe(*CHAT, folder=tmp_path) as older:
        older.expect("/help says")
        older.type("Add a to-do: pack\n")
        older.expect("Added 1 to-do: pack.")

        newer = run_sapwood(*CHAT, folder=tmp_path, typed="Add a to-do: leave\n")
        assert newer.code == 0

        older.type("Add a to-do: too late\n")
        older.expect("another process has taken this conversation over, so this one leaves")
        assert older.leave(20) == 1

    assert said(stored(tmp_path)) == ["Add a to-do: pack", "Add a to-do: leave"]


def test_a_run_that_a_crash_interrupted_goes_on_when_the_chat_is_started_again(tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "long.txt").write_text("\n".join(f"line {number} of a long text" for number in range(40)))
    with on_a_terminal(*CHAT, "--files", "notes", folder=tmp_path) as talk:
        talk.expect("/help says")
        talk.type("Read long.txt\n")
        talk.expect("line 3 of a long text")
        talk.process.kill()
        talk.leave(20)

    again = run_sapwood(*CHAT, "--files", "notes", folder=tmp_path, typed="/status\n")

    assert "a run was open, and goes on:\nlong.txt:\nline 0 of a long text\n" in again.out
    assert "line 39 of a long text" in again.out
    assert "> /status\nidle · 4 messages · epoch 2 · " in again.out

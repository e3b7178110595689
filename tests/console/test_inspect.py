"""`sapwood inspect` and `sapwood tree` on good and bad files."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from sapwood.actors import RealEnvironment
from sapwood.console import main
from sapwood.console._inspect import inspect_lines
from sapwood.console._tree import tree_lines
from sapwood.messaging.queues import Message, open_queue
from sapwood.persistence import open_store

Shown = pytest.CaptureFixture[str]


def change(store: Path, *statements: str) -> None:
    with closing(sqlite3.connect(store)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_inspect_shows_every_agent_with_its_epoch_and_the_end_of_its_journal(store: Path, capsys: Shown) -> None:
    assert main(["inspect", str(store), "--tail", "3"]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{store}: 2 agents, 0 records in quarantine"
    heads = [line for line in lines if line.startswith(("idle-1", "waiting-1"))]
    assert [re.sub(r"event \d+", "event N", line)[:-26] for line in heads] == [
        "idle-1  epoch 1 · event N · no snapshot · given up cleanly",
        "waiting-1  epoch 1 · event N · no snapshot · given up cleanly",
    ]
    assert len([line for line in lines if re.match(r"\s+\d+  e1  20", line)]) == 6
    (raised,) = [line for line in lines if " interrupt.raised " in line]
    assert "call=refund(order='17', cents=7500)" in raised


def test_inspect_shows_one_agent_alone_and_as_many_events_as_asked(store: Path, capsys: Shown) -> None:
    assert main(["inspect", str(store), "--agent", "waiting-1", "--tail", "1000"]) == 0

    shown = capsys.readouterr().out
    assert "idle-1" not in shown
    assert " conversation.created " in shown
    assert "message=user_message(text='Refund 75 dollars of order 17'" in shown


def test_inspect_of_an_unknown_agent_names_the_nearest_one(store: Path, capsys: Shown) -> None:
    assert main(["inspect", str(store), "--agent", "waiting1"]) == 1

    problem = f"{store} holds no agent 'waiting1'; did you mean 'waiting-1'?"
    assert capsys.readouterr().err == f"sapwood inspect: {problem}\n"


def test_neither_inspect_nor_tree_changes_a_byte_or_leaves_a_file(store: Path, capsys: Shown) -> None:
    before = contents(store.parent)

    assert main(["inspect", str(store)]) == 0
    assert main(["tree", str(store)]) == 0

    assert contents(store.parent) == before


def test_an_event_that_was_changed_is_named_as_unreadable(store: Path, capsys: Shown) -> None:
    change(store, "UPDATE journal SET epoch = 2 WHERE agent_id = 'idle-1' AND seq = 5")

    assert main(["inspect", str(store), "--tail", "100"]) == 0
    assert re.search(r"^ +5  e2 .*UNREADABLE: the checksum does not match", capsys.readouterr().out, re.MULTILINE)

    assert main(["tree", str(store)]) == 0
    shown = capsys.readouterr().out
    assert "idle-1 · UNREADABLE: event 5: the checksum does not match" in shown
    assert "waiting-1 · interrupted" in shown


def test_an_event_that_is_gone_is_missed_by_the_tree(store: Path, capsys: Shown) -> None:
    change(store, "DELETE FROM journal WHERE agent_id = 'idle-1' AND seq = 4")

    assert main(["tree", str(store)]) == 0

    assert "idle-1 · UNREADABLE: event 4 is missing, or does not belong there" in capsys.readouterr().out


def test_records_in_quarantine_are_listed_with_their_reason(store: Path, capsys: Shown) -> None:
    change(
        store,
        "INSERT INTO quarantine (source, agent_id, seq, at, reason, kind, record, found)"
        " VALUES ('journal', 'idle-1', 5, 0, 'the checksum does not match', 'run.started', x'0102', 1)",
    )

    assert main(["inspect", str(store), "--tail", "0"]) == 0

    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("quarantine")]
    assert line == (
        "quarantine  1970-01-01 00:00:00  journal 5 of idle-1 (run.started, 2 bytes): the checksum does not match"
    )


def test_the_tree_of_a_stored_runtime_says_what_the_journals_say(store: Path, capsys: Shown) -> None:
    assert main(["tree", str(store)]) == 0

    shown = re.sub(r"\d+ messages", "N messages", re.sub(r"event \d+", "event N", capsys.readouterr().out))
    assert shown.splitlines() == [
        f"{store}: no runtime publishes its tree here",
        "",
        "stored conversations: 2",
        "├── idle-1 · idle · agent support · N messages · epoch 1 · event N · given up cleanly",
        "│   ☐ 1 buy milk",
        "│   ☐ 2 call Anna",
        "└── waiting-1 · interrupted · agent support · N messages · epoch 1 · event N · given up cleanly",
        "    ? refund(order='17', cents=7500): refund needs approval",
    ]


def test_names_from_the_store_cannot_drive_the_terminal(store: Path, capsys: Shown) -> None:
    change(
        store,
        "PRAGMA foreign_keys = OFF",
        "UPDATE agents SET agent_id = char(27) || '[2J' || char(10) || 'x', owner = char(27), released = 0"
        " WHERE agent_id = 'idle-1'",
    )

    assert main(["inspect", str(store)]) == 0
    assert main(["tree", str(store)]) == 0

    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "\\x1b[2J x" in shown


def no_file(path: Path) -> None:
    """Leave nothing there."""


def a_directory(path: Path) -> None:
    path.mkdir()


def an_empty_file(path: Path) -> None:
    path.touch()


def a_text(path: Path) -> None:
    path.write_text("these are notes and no store\n" * 50)


def another_database(path: Path) -> None:
    change(path, "CREATE TABLE recipes (name TEXT)")


def a_future_store(path: Path) -> None:
    change(
        path,
        "INSERT INTO _sqlite_migrations (migration_set, name, applied_at) VALUES ('journal', 'from_tomorrow', '2099')",
    )


BAD_FILES: list[tuple[Callable[[Path], None], str]] = [
    (no_file, "there is no such file"),
    (a_directory, "is a directory; name a file inside it"),
    (an_empty_file, "the file is empty"),
    (a_text, "it is not an SQLite database; choose another path"),
    (another_database, "another application made it"),
    (a_future_store, "upgrade before opening it"),
]


@pytest.mark.parametrize("command", ["inspect", "tree"])
@pytest.mark.parametrize(("make", "problem"), BAD_FILES, ids=[make.__name__ for make, _ in BAD_FILES])
def test_a_file_that_cannot_be_read_is_one_line_and_exit_code_1(
    command: str, make: Callable[[Path], None], problem: str, store: Path, capsys: Shown
) -> None:
    path = store if make is a_future_store else store.with_name("other.db")
    make(path)
    before = contents(store.parent)

    assert main([command, str(path)]) == 1

    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith(f"sapwood {command}: ")
    assert problem in shown.err
    assert shown.err.count("\n") == 1
    assert contents(store.parent) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_one_line_and_exit_code_1(store: Path, capsys: Shown) -> None:
    store.chmod(0)

    assert main(["inspect", str(store)]) == 1
    assert "may not be read by this user" in capsys.readouterr().err


def test_a_published_tree_is_shown_with_its_age_and_called_crashed_when_it_is_old(store: Path) -> None:
    change(
        store,
        "CREATE TABLE running_trees"
        " (runtime TEXT PRIMARY KEY, pid INTEGER NOT NULL, at REAL NOT NULL, every REAL NOT NULL, tree TEXT NOT NULL)",
        "INSERT INTO running_trees VALUES ('runtime_1', 4242, 1000.0, 1.0, 'runtime' || char(10) || '└── store')",
    )

    assert tree_lines(store, 1000.5)[:3] == [
        "runtime of process 4242, as it was 0.5 s ago:",
        "  runtime",
        "  └── store",
    ]
    assert tree_lines(store, 1100.0)[0] == (
        "runtime of process 4242, silent for 100 s, so it has probably crashed; this was its tree:"
    )


async def test_rows_of_other_parts_are_counted_so_that_a_full_queue_does_not_look_like_nothing(tmp_path: Path) -> None:
    path = tmp_path / "queue.db"
    environment = RealEnvironment()
    async with open_store(path, environment) as store, open_queue(store, environment, "mail") as queue:
        for number in range(3):
            await queue.append(Message(str(number).encode()))
    assert any(line.startswith("other rows: ") and "3 in queue_entries" in line for line in inspect_lines(path))

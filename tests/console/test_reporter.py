"""The tree reporter: a running runtime seen from another process, and never harmed by being seen."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import trio

from sapwood import open_runtime
from sapwood.console import TreeReporter
from sapwood.console._stored import read_stored
from sapwood.errors import InvalidOption, StoreUnavailable
from sapwood.persistence import Store
from tests.console.command import behind_a_pipe, run_sapwood


async def until_published(path: Path) -> str:
    with trio.fail_after(20):
        while True:
            for tree in read_stored(path).trees:
                if "tree-reporter" in tree.tree:
                    return tree.tree
            await trio.sleep(0.01)


async def test_a_runtime_publishes_its_tree_and_takes_it_back_when_it_stops(tmp_path: Path) -> None:
    store = tmp_path / "a.db"
    reporter = TreeReporter(every=0.01)
    async with open_runtime(store=store, children=[reporter.spec()], signals=False) as runtime:
        reporter.watch(runtime)
        tree = await until_published(store)

    assert "── tree-reporter" in tree
    assert "partition-0" in tree
    assert read_stored(store).trees == ()


async def test_a_reporter_that_is_given_no_runtime_publishes_nothing_and_stops_at_once(tmp_path: Path) -> None:
    with trio.fail_after(20):
        async with open_runtime(store=tmp_path / "a.db", children=[TreeReporter().spec()], signals=False) as runtime:
            assert runtime.ready()

    assert read_stored(tmp_path / "a.db").trees == ()


async def test_a_store_that_refuses_writes_costs_reports_and_not_the_runtime(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "a.db"
    refused = trio.Event()
    migrate = Store.migrate

    async def refuse(self: Store, migrations: object) -> None:
        refused.set()
        await trio.lowlevel.checkpoint()
        raise StoreUnavailable("a.db", "the disk is full")

    monkeypatch.setattr(Store, "migrate", refuse)
    reporter = TreeReporter(every=0.01)
    async with open_runtime(store=store, children=[reporter.spec()], signals=False, restarts=0) as runtime:
        reporter.watch(runtime)
        with trio.fail_after(20):
            await refused.wait()
        monkeypatch.setattr(Store, "migrate", migrate)

        assert "tree-reporter" in await until_published(store)
        assert runtime.ready()


async def test_the_tree_of_a_process_that_died_is_removed_by_the_next_reporter(tmp_path: Path) -> None:
    store = tmp_path / "a.db"
    found: list[object] = []
    for _ in range(2):
        reporter = TreeReporter(every=0.01)
        async with open_runtime(store=store, children=[reporter.spec()], signals=False) as runtime:
            reporter.watch(runtime)
            await until_published(store)
        with closing(sqlite3.connect(store)) as connection:
            found = connection.execute("SELECT runtime FROM running_trees").fetchall()
            connection.execute("INSERT INTO running_trees VALUES ('dead', 1, 0.0, 1.0, 'runtime')")
            connection.commit()

    assert found == []


def test_seconds_between_reports_must_be_above_zero() -> None:
    with pytest.raises(InvalidOption, match="every > 0"):
        TreeReporter(every=0)


def test_the_tree_of_a_running_chat_is_seen_from_another_process(tmp_path: Path) -> None:
    with behind_a_pipe("chat", "trip", "--store", "a.db", folder=tmp_path) as talk:
        talk.expect("/help says")
        talk.type("Add a to-do: pack\n")
        talk.expect("Added 1 to-do: pack.")
        shown = ""
        for _ in range(50):
            shown = run_sapwood("tree", "a.db", folder=tmp_path).out
            if "('agent', 'trip')" in shown:
                break
        talk.type("/quit\n")
        assert talk.leave() == 0

    assert f"runtime of process {talk.process.pid}, as it was " in shown
    assert "server(('agent', 'trip'))" in shown
    assert "└── trip · idle · agent assistant" in shown
    assert "held by " in shown
    assert "no runtime publishes its tree here" in run_sapwood("tree", "a.db", folder=tmp_path).out

"""TodoList: the model's plan, in the state, announced when it changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from trio.testing import MockClock

from sapwood import Agent, Runtime, ScriptedModel, Session
from sapwood.conversation import Todo, TodosChanged
from sapwood.middleware import TodoList
from sapwood.models import call
from tests.agents.kit import events_in, of, opened, transcript, waiting_events


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def wish(*todos: dict[str, Any], **options: Any) -> Any:
    return call("write_todos", todos=list(todos), **options)


async def planned(runtime: Runtime, *steps: Any) -> Session:
    """Play the steps, one for each message, and return the session."""
    script: list[Any] = []
    for step in steps:
        script += [step, "ok"]
    agent = Agent("a", model=ScriptedModel(*script), middleware=[TodoList()])
    session = await runtime.sessions.ensure_running(agent, "c1")
    for number in range(len(steps)):
        await session.say(f"turn {number}")
    return session


@pytest.mark.row("S4-013")
async def test_todos_are_kept_in_the_state_over_restarts_and_every_change_is_announced(
    path: Path, autojump_clock: MockClock
) -> None:
    model = ScriptedModel(wish({"content": "plan"}, {"content": "do"}), "ok", call("list_todos"), "listed")
    agent = Agent("a", model=model, middleware=[TodoList()])
    async with opened(path) as runtime:
        session = await runtime.sessions.ensure_running(agent, "c1")
        with session.events() as events:
            await session.say("plan it")
            [changed] = of(await waiting_events(events), TodosChanged)
        assert changed.todos == (Todo(1, "plan"), Todo(2, "do"))
    async with opened(path) as runtime:
        session = await runtime.sessions.ensure_running(agent, "c1")
        assert session.state.todos == (Todo(1, "plan"), Todo(2, "do"))
        with session.events() as events:
            await session.say("show it")
            assert of(await waiting_events(events), TodosChanged) == []
        assert transcript(session.state.messages)[-2] == "list_todos: 1 [pending] plan\n2 [pending] do"
        assert "write_todos" in model.requests[0].system
        assert {spec.name for spec in model.requests[0].tools} == {"write_todos", "list_todos"}


@pytest.mark.row("S4-013", "AR-22.7")
async def test_new_entries_get_the_next_numbers_and_named_ones_are_changed(
    path: Path, autojump_clock: MockClock
) -> None:
    async with opened(path) as runtime:
        session = await planned(
            runtime,
            wish({"content": "one"}, {"content": "two"}),
            wish({"id": 1, "status": "completed", "content": "one"}, {"content": "three"}),
            wish({"id": 2, "content": "two", "status": "in_progress"}),
        )
        assert session.state.todos == (Todo(1, "one", "completed"), Todo(2, "two", "in_progress"), Todo(3, "three"))


async def test_without_merge_the_list_is_replaced(path: Path, autojump_clock: MockClock) -> None:
    async with opened(path) as runtime:
        session = await planned(runtime, wish({"content": "old"}), wish({"content": "new"}, merge=False))
        assert session.state.todos == (Todo(1, "new"),)


@pytest.mark.row("AR-24.59")
@pytest.mark.parametrize("status", ["completed", "cancelled"])
async def test_a_list_of_which_everything_is_resolved_clears_itself(
    path: Path, autojump_clock: MockClock, status: str
) -> None:
    async with opened(path) as runtime:
        session = await planned(
            runtime,
            wish({"content": "one"}, {"content": "two", "status": "completed"}),
            wish({"id": 1, "content": "one", "status": status}),
        )
        assert session.state.todos == ()
        assert "all to-dos are done; the list is empty" in transcript(session.state.messages)[-2]


@pytest.mark.parametrize(
    ("todo", "problem"),
    [
        ({"content": " "}, "expected text as content"),
        ({"content": "x" * 1001}, "expected at most 1000 characters"),
        ({"content": "x", "status": "someday"}, "status"),
        ({"id": -1, "content": "x"}, "expected a whole number from 0"),
    ],
)
async def test_an_entry_that_is_wrong_is_told_to_the_model_and_changes_nothing(
    path: Path, autojump_clock: MockClock, todo: dict[str, Any], problem: str
) -> None:
    async with opened(path) as runtime:
        session = await planned(runtime, wish({"content": "kept"}), wish(todo))
        assert session.state.todos == (Todo(1, "kept"),)
        assert problem in transcript(session.state.messages)[-2]


async def test_one_id_twice_in_a_call_is_refused(path: Path, autojump_clock: MockClock) -> None:
    async with opened(path) as runtime:
        session = await planned(runtime, wish({"id": 4, "content": "a"}, {"id": 4, "content": "b"}))
        assert session.state.todos == ()
        assert "expected every id once; got 4 more than once" in transcript(session.state.messages)[-2]


@pytest.mark.row("AR-22.7", "UP-45")
async def test_calls_of_one_answer_that_run_at_the_same_time_lose_no_entry(
    path: Path, autojump_clock: MockClock
) -> None:
    async with opened(path) as runtime:
        session = await planned(
            runtime,
            [wish({"content": content}) for content in "abcdef"],
            [wish({"content": content}) for content in "gh"],
        )
        assert sorted(todo.content for todo in session.state.todos) == list("abcdefgh")
        assert [todo.id for todo in session.state.todos] == list(range(1, 9))
        assert (await events_in(runtime)).count("ToolFinished") == 8

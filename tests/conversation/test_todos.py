"""The rules of to-do lists."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.conversation import Todo, TodoStatus, merge_todos, read_todos, replace_todos
from sapwood.errors import InvalidOption

statuses = st.sampled_from(["pending", "in_progress", "completed", "cancelled"])
todos = st.builds(Todo, st.integers(0, 9), st.sampled_from(["plan", "build", "test"]), statuses)
lists = st.lists(todos, max_size=6)


def model(current: list[Todo], incoming: list[Todo]) -> list[Todo]:
    """The rules, once more and as plainly as can be."""
    slots: list[Todo | None] = [None] * 10
    for todo in [*current, *incoming]:
        slots[todo.id] = todo
    kept = [todo for todo in slots if todo is not None]
    if {todo.status for todo in kept} <= {"completed", "cancelled"}:
        return []
    return kept


@given(lists, lists)
def test_merging_puts_todos_in_place_by_id_sorts_them_and_clears_a_resolved_list(
    current: list[Todo], incoming: list[Todo]
) -> None:
    assert list(merge_todos(current, incoming)) == model(current, incoming)


@given(lists)
def test_replacing_forgets_what_was_there(incoming: list[Todo]) -> None:
    assert list(replace_todos(incoming)) == model([], incoming)


@pytest.mark.row("AR-24.59")
@pytest.mark.parametrize("status", ["completed", "cancelled"])
def test_a_cancelled_todo_counts_as_resolved_like_a_completed_one(status: TodoStatus) -> None:
    assert merge_todos([Todo(1, "plan", "completed"), Todo(2, "build")], [Todo(2, "build", status)]) == ()


def test_ids_sort_as_numbers_and_not_as_text() -> None:
    assert [todo.id for todo in replace_todos([Todo(10, "b"), Todo(2, "a")])] == [2, 10]


def test_a_missing_or_strange_id_becomes_the_place_in_the_list() -> None:
    read = read_todos([{"content": "a"}, {"id": "7", "content": "b"}, {"id": "x", "content": "c"}])

    assert [(todo.id, todo.content) for todo in read] == [(1, "a"), (7, "b"), (3, "c")]


def test_a_place_that_is_taken_gives_way_to_the_next_free_number() -> None:
    read = read_todos([{"content": "a"}, {"id": 1, "content": "b"}, {"id": 2, "content": "c"}])

    assert [todo.id for todo in read] == [3, 1, 2]


def test_an_id_given_twice_is_refused() -> None:
    with pytest.raises(InvalidOption, match="got 4 more than once"):
        read_todos([{"id": 4, "content": "a"}, {"id": "4", "content": "b"}])


@pytest.mark.parametrize(
    ("item", "problem"),
    [
        ({"content": "x" * 1001}, "at most 1000 characters; got 1001"),
        ({"content": "  "}, "expected text as content"),
        ({"content": "a", "status": "done"}, "expected one of pending, in_progress, completed, cancelled"),
        ({"id": -1, "content": "a"}, "whole number from 0; got -1"),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(item: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidOption, match=problem):
        read_todos([item])


def test_content_of_exactly_the_limit_is_accepted() -> None:
    assert len(Todo(1, "x" * 1000).content) == 1000

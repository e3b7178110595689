"""To-dos: a short ordered list of steps that an agent keeps about its own work."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import Any, Literal, TypeAlias, get_args

import attrs

from sapwood.actors import record
from sapwood.errors import InvalidOption

TodoStatus: TypeAlias = Literal["pending", "in_progress", "completed", "cancelled"]
"""`pending` and `in_progress` are open; `completed` and `cancelled` are resolved."""

STATUSES: tuple[TodoStatus, ...] = get_args(TodoStatus)
RESOLVED: frozenset[TodoStatus] = frozenset(("completed", "cancelled"))
CONTENT_LIMIT = 1000


def _check_id(_: Todo, __: attrs.Attribute[int], value: int) -> None:
    if _number(value) is None or value < 0:
        raise InvalidOption(f"todo id: expected a whole number from 0; got {value!r}")


def _check_content(todo: Todo, _: attrs.Attribute[str], value: str) -> None:
    if not str(value).strip():
        raise InvalidOption(f"todo {todo.id}: expected text as content; got {value!r}")
    if len(value) > CONTENT_LIMIT:
        raise InvalidOption(
            f"todo {todo.id}: expected at most {CONTENT_LIMIT} characters; got {len(value)}: keep details elsewhere"
        )


def _check_status(todo: Todo, _: attrs.Attribute[TodoStatus], value: str) -> None:
    if value not in STATUSES:
        raise InvalidOption(f"todo {todo.id}: expected one of {', '.join(STATUSES)} as status; got {value!r}")


@record("conversation.todo")
class Todo:
    """One step of an agent's work.

    Attributes:
        id: Whole number from 0; names the step and gives its place in the list.
        content: What is to be done, 1 to 1,000 characters.
        status: `pending`, `in_progress`, `completed` or `cancelled`.

    Raises:
        InvalidOption: if an attribute is out of its range.
    """

    id: int = attrs.field(validator=_check_id)
    content: str = attrs.field(validator=_check_content)
    status: TodoStatus = attrs.field(default="pending", validator=_check_status)


def read_todos(items: Sequence[Mapping[str, Any]]) -> tuple[Todo, ...]:
    """Turn a model's list of `{id, content, status}` into to-dos, in the order given.

    An id may be a number or its digits. A missing or any other id becomes the place in the list, from 1, or the next
    number that is free.

    Raises:
        InvalidOption: if an item has no content, an id is given twice, or a value is out of its range.
    """
    ids = [_number(item.get("id")) for item in items]
    given = [number for number in ids if number is not None]
    twice = sorted({number for number in given if given.count(number) > 1})
    if twice:
        raise InvalidOption(f"todos: expected every id once; got {twice[0]} more than once")
    taken = set(given)
    todos: list[Todo] = []
    for place, (item, number) in enumerate(zip(items, ids, strict=True), start=1):
        todo_id = next(free for free in count(place) if free not in taken) if number is None else number
        taken.add(todo_id)
        todos.append(Todo(todo_id, item.get("content", ""), item.get("status", "pending")))
    return tuple(todos)


def _number(raw: object) -> int | None:
    if isinstance(raw, int) and not isinstance(raw, bool):
        return raw
    if isinstance(raw, str) and raw.strip().isdecimal():
        return int(raw)
    return None


def merge_todos(current: Iterable[Todo], incoming: Iterable[Todo]) -> tuple[Todo, ...]:
    """Return `current` with each incoming to-do put in place of the one with its id, or added; then settled."""
    by_id = {todo.id: todo for todo in (*current, *incoming)}
    return settle(by_id.values())


def replace_todos(incoming: Iterable[Todo]) -> tuple[Todo, ...]:
    """Return the incoming to-dos, settled; of two with one id the later counts."""
    return merge_todos((), incoming)


def settle(todos: Iterable[Todo]) -> tuple[Todo, ...]:
    """Return the to-dos sorted by id; none at all if every one of them is resolved."""
    ordered = tuple(sorted(todos, key=lambda todo: todo.id))
    return () if all(todo.status in RESOLVED for todo in ordered) else ordered

"""TodoList: lets the model plan in steps that everybody can see."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NotRequired, TypedDict

from sapwood.conversation import (
    AssistantMessage,
    SetTodos,
    State,
    Todo,
    merge_todos,
    read_todos,
    replace_todos,
)
from sapwood.errors import InvalidOption, ToolError
from sapwood.middleware._context import MiddlewareContext
from sapwood.middleware._contract import Middleware
from sapwood.tools import Tool, ToolContext, ToolOutput, tool


class TodoItem(TypedDict):
    """A to-do as the model writes it."""

    id: NotRequired[int]
    content: str
    status: NotRequired[Literal["pending", "in_progress", "completed", "cancelled"]]


class TodoList(Middleware):
    """Offers `write_todos` and `list_todos`; the list is part of the conversation's state (S4-013).

    A list of which everything is completed or cancelled clears itself. Subscribers get `TodosChanged`.
    """

    def system_prompt(self, context: MiddlewareContext) -> str:
        return (
            "For work of several steps, keep a to-do list with `write_todos`: one entry in progress at a time, each "
            "marked completed as soon as it is done. `list_todos` shows it with its numbers."
        )

    def tools(self, context: MiddlewareContext) -> Sequence[Tool[..., Any]]:
        writer = _Writer()
        return (tool(name="write_todos", idempotent=True)(writer.write_todos), list_todos)


class _Writer:
    """Writes to-dos for one conversation; calls of one answer that run at the same time give different numbers."""

    def __init__(self) -> None:
        self._answer: str = ""
        self._taken = 0

    def write_todos(self, context: ToolContext, todos: list[TodoItem], *, merge: bool = True) -> ToolOutput:
        """Add to-dos, or change those whose ids are given.

        todos: entries with a content; id names an existing one, status defaults to pending.
        merge: keep the entries that are not named here; otherwise the list is replaced.
        """
        current = context.state.todos
        try:
            written = read_todos(self._numbered(todos, current if merge else (), self._free(context.state)))
        except InvalidOption as error:
            raise ToolError(str(error)) from error
        self._taken = max((self._taken, *(todo.id for todo in written)))
        after = merge_todos(current, written) if merge else replace_todos(written)
        shown = _show(after) if after else "all to-dos are done; the list is empty"
        return ToolOutput(shown, [SetTodos(written, merge)])

    def _free(self, state: State) -> int:
        """Return the first number that no to-do has, not even one that a call beside this one is just adding."""
        answers = (each.id for each in reversed(state.messages) if isinstance(each, AssistantMessage))
        answer: str = next(answers, "")
        if answer != self._answer:
            self._answer, self._taken = answer, 0
        return self._taken + 1

    def _numbered(self, items: Sequence[TodoItem], current: tuple[Todo, ...], free: int) -> list[dict[str, Any]]:
        """Give new entries numbers after the existing ones; without that they would replace these."""
        free = max((free, *(todo.id + 1 for todo in current)))
        known = {todo.id: todo for todo in current}
        numbered: list[dict[str, Any]] = []
        for item in items:
            entry: dict[str, Any] = dict(item)
            if "id" not in entry:
                entry["id"] = free
                free += 1
            elif entry["id"] in known:
                todo = known[entry["id"]]
                entry = {"content": todo.content, "status": todo.status, **entry}
            numbered.append(entry)
        return numbered


@tool(idempotent=True)
def list_todos(context: ToolContext) -> str:
    """Show the to-do list, one entry a line after its number and its status."""
    return _show(context.state.todos) or "there are no to-dos"


def _show(todos: Sequence[Todo]) -> str:
    return "\n".join(f"{todo.id} [{todo.status}] {todo.content}" for todo in todos)

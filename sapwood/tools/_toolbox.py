"""Toolboxes: the tools of an agent, by name, and the carrying out of a model's calls."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, cast

import trio

from sapwood.conversation import Problem, ToolCall, ToolSpec
from sapwood.errors import DuplicateName, InvalidOption, InvalidTool, ToolError
from sapwood.tools._context import ToolContext
from sapwood.tools._results import TEXT_LIMIT, ToolOutcome, explain, failure, fatal_part, success
from sapwood.tools._shapes import nearest, show
from sapwood.tools._tool import Tool

_LEAST_LIMIT = 200

_ENDINGS = {
    "task": "it was cancelled and may have done a part",
    "thread": "its thread may still be running",
    "process": "its process was ended and may have done a part",
}
"""What the model is told about a call that took too long, by where it ran."""

POLL_WITHIN = 30.0
"""Seconds that one poll may take."""


class Toolbox:
    """An ordered, unchangeable collection of tools with unique names.

    Args:
        tools: The tools, in the order in which the model sees them.
        text_limit: Characters of a result that the model sees, at least 200; the rest is cut with a notice.

    Raises:
        DuplicateName: if two tools have one name.
        InvalidTool: if something else than a tool is given.
        InvalidOption: if the limit is out of its range.
    """

    def __init__(self, tools: Iterable[Tool[..., Any]] = (), *, text_limit: int = TEXT_LIMIT) -> None:
        if text_limit < _LEAST_LIMIT:
            raise InvalidOption(
                f"toolbox: expected a text_limit of {_LEAST_LIMIT} characters or more; got {text_limit}"
            )
        self.text_limit = text_limit
        self._tools: dict[str, Tool[..., Any]] = {}
        for each in tools:
            if not isinstance(cast("object", each), Tool):
                raise InvalidTool(f"toolbox: expected tools; got {each!r}: write `@tool` above the function")
            if each.name in self._tools:
                raise DuplicateName("tool", each.name, self._tools[each.name])
            self._tools[each.name] = each

    def __iter__(self) -> Iterator[Tool[..., Any]]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __repr__(self) -> str:
        return f"Toolbox({', '.join(self._tools)})"

    def get(self, name: str) -> Tool[..., Any] | None:
        """Return the tool with this name, or None if there is none."""
        return self._tools.get(name)

    def nearest(self, name: str) -> str | None:
        """Return the name of the tool that looks most like this one, or None if none does."""
        return nearest(name, self._tools)

    def with_tools(self, tools: Iterable[Tool[..., Any]]) -> Toolbox:
        """Return a toolbox with these tools after its own.

        Raises:
            DuplicateName: if two tools have one name.
        """
        return Toolbox((*self, *tools), text_limit=self.text_limit)

    def specs(self) -> tuple[ToolSpec, ...]:
        """Return the tools as a model sees them, in order."""
        return tuple(each.spec for each in self)

    def check(self, call: ToolCall) -> ToolOutcome | None:
        """Return the error outcome of a call that cannot run: unknown tool, malformed or invalid arguments; else None.

        Runs nothing, so it can come before an approval is asked for (C22).
        """
        found = self._prepare(call)
        return found if isinstance(found, ToolOutcome) else None

    async def invoke(self, call: ToolCall, context: ToolContext) -> ToolOutcome:
        """Carry out a call.

        Everything that goes wrong with it becomes an error result: an unknown tool, invalid arguments, an exception
        (of a group its leaves), a time-out, a result that cannot be shown. Only cancellation, KeyboardInterrupt,
        SystemExit, MemoryError and trio's internal errors pass (S4-064, AR-22.18).
        """
        await trio.lowlevel.checkpoint()
        found = self._prepare(call)
        if isinstance(found, ToolOutcome):
            return found
        each, arguments = found
        limit = float("inf") if each.timeout is None else each.timeout
        # The scope is inside, so that it takes its own cancellation out of a group before the group is judged.
        try:
            with trio.move_on_after(limit):
                return self._judged(
                    each, success(call, await each.run(arguments, context, raw=call.arguments), self.text_limit), call
                )
        except BaseException as error:  # noqa: ASYNC103  # `fatal_part` finds every cancellation
            fatal = fatal_part(error)
            if fatal is error:
                raise
            if fatal is not None:
                raise fatal from error  # noqa: ASYNC104  # the cancellation, taken out of its group
            return failure(call, explain(error), self.text_limit, error)  # noqa: ASYNC104  # no cancellation in it
        ending = _ENDINGS["process" if each.process else "thread" if each.blocking else "task"]
        late = f"{call.name} did not finish within {limit:g} s; {ending}"
        return failure(call, late, self.text_limit, kind="timeout")

    async def poll(self, call: ToolCall, poll_id: str, context: ToolContext) -> ToolOutcome:
        """Ask about the work of a call that returned `Pending`; its outcome may be pending again.

        Raises:
            Exception: what the poll function raised, but for `ToolError`, which is an error result: the work failed.
        """
        await trio.lowlevel.checkpoint()
        each = self._tools.get(call.name)
        if each is None or each.poller is None:
            return failure(call, f"there is no tool {show(call.name)} any more that could be asked", self.text_limit)
        try:
            with trio.move_on_after(POLL_WITHIN):
                return success(call, await each.poller.ask(poll_id, context), self.text_limit)
        except ToolError as error:
            return failure(call, str(error), self.text_limit, error)
        raise TimeoutError(f"{call.name} did not say within {POLL_WITHIN:g} s how far it is")

    def fail(self, call: ToolCall, problem: str, kind: Problem) -> ToolOutcome:
        """Return the error outcome of a call that was not carried out to its end."""
        return failure(call, problem, self.text_limit, kind=kind)

    def _prepare(self, call: ToolCall) -> tuple[Tool[..., Any], dict[str, Any]] | ToolOutcome:
        each = self._tools.get(call.name)
        if each is None:
            return failure(call, self._unknown(call.name), self.text_limit, kind="invalid")
        if call.malformed:
            problem = f"{call.name} was not run: its arguments must be a JSON object, but {_malformed(call.malformed)}"
            return failure(call, problem, self.text_limit, kind="invalid")
        arguments, problems = each.read(call.arguments)
        if problems:
            return failure(call, f"{call.name} was not run: " + "; ".join(problems), self.text_limit, kind="invalid")
        return each, arguments

    def _judged(self, each: Tool[..., Any], outcome: ToolOutcome, call: ToolCall) -> ToolOutcome:
        if outcome.pending is None or each.poller is not None:
            return outcome
        problem = f"{call.name} returned Pending, and has no way to be asked later; its author must pass poll="
        return failure(call, problem, self.text_limit)

    def _unknown(self, name: str) -> str:
        near = self.nearest(name)
        if near is not None:
            return f"there is no tool {show(name)}; did you mean {near!r}?"
        return f"there is no tool {show(name)}; there are: " + (", ".join(self._tools) or "none")


def _malformed(text: str) -> str:
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        return f"they cannot be read ({error}): {show(text)}"
    return f"they are {show(value)}"

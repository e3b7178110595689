"""Pending: what a tool returns whose work goes on elsewhere, and how the work is asked about."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import attrs

from sapwood.conversation import clean_text
from sapwood.errors import InvalidOption, InvalidTool
from sapwood.tools._annotations import hints_of
from sapwood.tools._context import ToolContext

POLL_EVERY = 30.0
"""Seconds between two polls, unless a tool says otherwise."""


def _check_id(_: Pending, __: attrs.Attribute[str], value: object) -> None:
    if not isinstance(value, str) or not value or clean_text(value) != value:
        raise InvalidOption(f"Pending.poll_id: expected a text that is not empty and can be stored; got {value!r}")


def _above_zero(_: Pending, attribute: attrs.Attribute[Any], value: float | None) -> None:
    if value is not None and not (math.isfinite(value) and value > 0):
        raise InvalidOption(f"Pending.{attribute.name}: expected seconds above 0; got {value!r}")


@attrs.frozen
class Pending:
    """Returned by a tool that has only started its work: an export, a build, a person in another system.

    The run does not go on before the work is done, and holds nothing meanwhile: the agent is `waiting`, also over
    restarts. The tool's `poll` function is called with `poll_id` from time to time; it returns another `Pending`, or
    the result.

    Attributes:
        poll_id: What the work is called where it goes on.
        every: Seconds until the next poll; None for what was said before, at first 30.
        give_up_after: Seconds after which the call counts as timed out, from the first `Pending`; None for never.
        note: How far it is, for whoever watches.

    Raises:
        InvalidOption: if a number of seconds is not above 0, or the id is empty.
    """

    poll_id: str = attrs.field(validator=_check_id)
    every: float | None = attrs.field(default=None, validator=_above_zero)
    give_up_after: float | None = attrs.field(default=None, validator=_above_zero)
    note: str = ""


@attrs.frozen
class Poller:
    """The function that asks about work that goes on elsewhere.

    Attributes:
        function: Takes the `poll_id`, and a `ToolContext` if it has a parameter for it.
        context_name: Name of that parameter; empty if there is none.
    """

    function: Callable[..., Any]
    context_name: str

    async def ask(self, poll_id: str, context: ToolContext) -> Any:
        """Ask about the work."""
        given = {self.context_name: context} if self.context_name else {}
        returned = self.function(poll_id, **given)
        return await returned if inspect.isawaitable(returned) else returned


def poller_of(function: Callable[..., Any], tool: str) -> Poller:
    """Return the poller of a function.

    Raises:
        InvalidTool: if it does not take the id of the work as its first parameter, or takes more than a context.
    """
    where = f"tool {tool!r}, poll"
    if not (inspect.isfunction(function) or inspect.ismethod(function)):
        raise InvalidTool(f"{where}: expected a function; got {function!r}")
    hints = hints_of(function, where)
    names = list(inspect.signature(function).parameters)
    contexts = [name for name in names if hints.get(name) is ToolContext]
    others = [name for name in names if name not in contexts]
    if len(others) != 1 or len(contexts) > 1 or names[0] in contexts:
        raise InvalidTool(
            f"{where}: expected (poll_id: str) or (poll_id: str, context: ToolContext); got ({', '.join(names)})"
        )
    return Poller(function, "".join(contexts))

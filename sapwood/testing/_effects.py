"""Effects: watches the functions of tools being called, and notes calls whose effects may happen twice."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Literal, TypeAlias

import attrs
import trio

from sapwood.actors import Environment
from sapwood.tools import Tool, ToolContext

CallKey: TypeAlias = tuple[str, str, str]
"""Conversation, run, call."""

Run: TypeAlias = Callable[..., Awaitable[Any]]

Ending: TypeAlias = Literal["goes on", "returned", "failed", "cut off"]

AGAIN: Final[Mapping[Ending, bool]] = {"goes on": False, "returned": False, "failed": True, "cut off": False}
"""Whether a call may be made again after it ended so, if nothing else allows it. What failed has said so itself, and
whoever repeats it has read that."""


@attrs.define
class Call:
    """What is known of one call."""

    key: str
    ending: Ending = "goes on"


class Effects:
    """Watches the calls of tools in one environment.

    A problem is:
        a tool that is not idempotent is called again although an earlier attempt of the same call has returned, was cut
        off, or still goes on (only a person may ask for that, where the tool has `crash_resume="ask"`);
        an attempt of a call has another idempotency key than the one before.

    Args:
        environment: Where the calls belong that are watched.
    """

    def __init__(self, environment: Environment) -> None:
        self.problems: list[tuple[float, str]] = []
        self._environment = environment
        self._calls: dict[CallKey, Call] = {}

    @contextmanager
    def watching(self) -> Generator[None]:
        """Watch within this block; blocks may stand in each other, and are left in reverse order."""
        effects = self
        before: Run = vars(Tool)["run"]

        # Tools are frozen and shared by many agents, so the method itself is what every call passes through.
        async def run(
            tool: Tool[..., Any],
            arguments: Mapping[str, Any],
            context: ToolContext,
            *,
            raw: Mapping[str, Any] | None = None,
        ) -> Any:
            if context.environment is not effects._environment:
                return await before(tool, arguments, context, raw=raw)
            await trio.lowlevel.checkpoint_if_cancelled()
            with effects._noting(tool, context):
                return await before(tool, arguments, context, raw=raw)

        _put(run)
        try:
            yield
        finally:
            _put(before)

    @contextmanager
    def _noting(self, tool: Tool[..., Any], context: ToolContext) -> Generator[None]:
        place = (context.agent_id, context.run_id, context.call_id)
        earlier = self._calls.get(place)
        call = self._calls[place] = Call(context.idempotency_key)
        if earlier is not None:
            self._judge(tool, place, earlier, call)
        try:
            yield
        except Exception:
            call.ending = "failed"
            raise
        except BaseException:
            call.ending = "cut off"
            raise
        call.ending = "returned"

    def _judge(self, tool: Tool[..., Any], place: CallKey, earlier: Call, call: Call) -> None:
        agent_id, _, call_id = place
        what = f"call {call_id!r} of tool {tool.name!r} in {agent_id!r}"
        was_asked = tool.crash_resume == "ask" and earlier.ending != "goes on"
        allowed = tool.idempotent or was_asked or AGAIN[earlier.ending]
        if not allowed:
            self._note(f"{what}, which is not idempotent, was made again; the earlier one: {earlier.ending}")
        if earlier.key != call.key:
            self._note(f"{what} was made under the key {earlier.key!r}, and then under {call.key!r}")

    def _note(self, problem: str) -> None:
        self.problems.append((trio.current_time(), problem))


def _put(run: Any) -> None:
    Tool.run = run  # type: ignore[method-assign]  # see above

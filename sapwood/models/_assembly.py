"""The assembly of an answer: text pieces and fragments of tool calls become one `AssistantMessage`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, NoReturn, cast

import attrs

from sapwood.conversation import AssistantMessage, Message, ToolCall, Usage
from sapwood.models._protocol import ModelEvent, TextDelta, ToolCallDelta, ToolCallStarted
from sapwood.models._surrogates import SurrogateJoiner, clean_value


def parse_arguments(text: str) -> dict[str, Any] | None:
    """Return the arguments that a JSON text holds, or None if it is no JSON object; empty text means no arguments."""
    if not text.strip():
        return {}
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", clean_value(value)) if isinstance(value, dict) else None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def call_ids(messages: Iterable[Message]) -> set[str]:
    """Return the ids of all tool calls in a conversation."""
    return {call.id for message in messages if isinstance(message, AssistantMessage) for call in message.tool_calls}


@attrs.define(eq=False)
class _Call:
    wire_id: str = ""
    id: str = ""
    name: str = ""
    arguments: str = ""
    announced: bool = False


class AnswerAssembly:
    """Puts one answer together and says what each piece means as `ModelEvent`s.

    Providers disagree on how they send tool calls, so pieces are matched leniently (BR-65): by index, else by id, else
    to the newest call; ids may come once, late, on every piece or never; a name may come in parts or over and over;
    a last piece that repeats the whole arguments adds nothing.

    Args:
        taken: Call ids of the conversation so far; a call with an id that is missing or taken gets a new one.
        new_id: Source of ids.
    """

    def __init__(self, taken: set[str], new_id: Callable[[], str]) -> None:
        self._taken = set(taken)
        self._new_id = new_id
        self._joiner = SurrogateJoiner()
        self._text: list[str] = []
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self.usage = Usage()

    @property
    def has_calls(self) -> bool:
        """Whether the answer holds a tool call so far."""
        return bool(self._calls)

    def add_text(self, piece: str) -> list[ModelEvent]:
        """Add a piece of text."""
        return self._pass_on(self._joiner.feed(piece))

    def add_call_piece(
        self, *, index: int | None = None, call_id: str = "", name: str = "", arguments: str = ""
    ) -> list[ModelEvent]:
        """Add a piece of a tool call; every part of it may be missing."""
        call = self._find(index, call_id, name)
        call.wire_id = call.wire_id or call_id
        if not call.announced and name != call.name:
            call.name += name
        if not arguments or _repeats(call.arguments, arguments):
            return []
        # The name is whole once arguments come: no provider sends a name after them.
        events = self._announce(call)
        call.arguments += arguments
        return [*events, ToolCallDelta(call.id, arguments)]

    def finish(self, stop_reason: str) -> tuple[list[ModelEvent], AssistantMessage]:
        """Close the answer; returns the events still due and the message.

        Args:
            stop_reason: What the provider said; `end` becomes `tools` if there are calls.
        """
        events = self._pass_on(self._joiner.finish())
        for call in self._calls:
            events += self._announce(call)
        if stop_reason == "end" and self._calls:
            stop_reason = "tools"
        calls = tuple(_finished(call) for call in self._calls)
        return events, AssistantMessage("".join(self._text), calls, stop_reason=stop_reason, usage=self.usage)

    def _pass_on(self, text: str) -> list[ModelEvent]:
        if not text:
            return []
        self._text.append(text)
        return [TextDelta(text)]

    def _find(self, index: int | None, call_id: str, name: str) -> _Call:
        if index is None:
            newest = self._calls[-1] if self._calls else None
            call = next((call for call in self._calls if call_id and call.wire_id == call_id), None)
            if call is None and newest is not None and (not call_id or not (newest.wire_id or name)):
                call = newest
        else:
            call = self._by_index.get(index)
            # Some servers number every call 0; a new id together with a name is a new call.
            if call is not None and name and call_id and call.wire_id and call_id != call.wire_id:
                call = None
        if call is None:
            call = _Call()
            self._calls.append(call)
        if index is not None:
            self._by_index[index] = call
        return call

    def _announce(self, call: _Call) -> list[ModelEvent]:
        if call.announced:
            return []
        call.announced = True
        call.id = call.wire_id
        if not call.id or call.id in self._taken:
            call.id = self._new_id()
        self._taken.add(call.id)
        return [ToolCallStarted(call.id, call.name)]


def _repeats(so_far: str, piece: str) -> bool:
    # The cheap test comes first: parsing what came so far at every piece would take quadratic time.
    if not (so_far.rstrip().endswith("}") and piece.lstrip().startswith("{")):
        return False
    whole = parse_arguments(so_far)
    return whole is not None and parse_arguments(piece) == whole


def _finished(call: _Call) -> ToolCall:
    arguments = parse_arguments(call.arguments)
    if arguments is None:
        return ToolCall(call.id, call.name, malformed=call.arguments)
    return ToolCall(call.id, call.name, arguments)

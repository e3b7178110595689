"""`ScriptedModel`: a model that answers from a script, for tests."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Hashable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any, TypeAlias

import attrs
import trio

from sapwood.conversation import AssistantMessage, ToolCall, Usage
from sapwood.errors import InvalidOption, ScriptExhausted
from sapwood.models._assembly import call_ids
from sapwood.models._protocol import (
    ModelAnswer,
    ModelEvent,
    ModelRequest,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
)
from sapwood.models._tokens import count_usage, encode_arguments


@attrs.frozen
class Delay:
    """A pause within an answer, in seconds; it passes at once under trio's virtual clock."""

    seconds: float


@attrs.frozen
class Stall:
    """The provider falls silent for good: the stream waits until it is cancelled."""


@attrs.frozen
class Stop:
    """The stop reason of the answer, where it is not the natural one: `length`, `refused`, `cancelled`."""

    reason: str


Part: TypeAlias = str | ToolCall | Delay | Stall | Stop | Usage | Exception
"""One thing that happens in an answer: text, a tool call, a pause, silence, an error, or what the answer carries."""

Step: TypeAlias = "Part | Sequence[Part] | Callable[[ModelRequest], Step] | Callable[[ModelRequest], Awaitable[Step]]"
"""What one model call does: a part, several in order, or a function that looks at the request and returns a step."""


def call(tool: str, /, **arguments: Any) -> ToolCall:
    """Return a tool call for a script; the model gives it an id when it is played."""
    return ToolCall("", tool, arguments)


class ScriptedModel:
    """A model whose answers are written down in advance; one step is played for each call, in order of the calls.

    ```python
    model = ScriptedModel(
        call("refund", order="17", cents=2500),     # first call: the model uses a tool
        "Done, you get 25 dollars.",                # second call: it answers
        ["Let me", Delay(2.0), ModelUnavailable("scripted", "connection lost")],
    )
    ```

    A step is text, a `ToolCall`, an exception to raise, a list of such parts with `Delay(seconds)`, `Stall()`,
    `Stop(reason)` and a `Usage` between them, or a function `(request) -> step`, sync or async. A tool call without
    an id gets `call_1`, `call_2` and so on: the first that the conversation has not used yet.

    Args:
        steps: The script.
        by: With `scripts`: returns the key of the script that a request belongs to, so that several agents can share
            one model and yet each have a script of its own.
        scripts: Scripts by key.
        then: Step that is played for every call after the end of the script; without it the model raises.
        name: Shown as `scripted:NAME`.
        chunk: Characters of text per delta.

    Attributes:
        requests: Every request so far, in the order of the calls.

    Raises:
        InvalidOption: if `by` and `scripts` are not given together, or both they and `steps`.
    """

    def __init__(
        self,
        *steps: Step,
        by: Callable[[ModelRequest], Hashable] | None = None,
        scripts: Mapping[Any, Sequence[Step]] | None = None,
        then: Step | None = None,
        name: str = "script",
        chunk: int = 12,
    ) -> None:
        if (by is None) != (scripts is None) or (by is not None and steps):
            raise InvalidOption("ScriptedModel: expected either steps, or by= together with scripts=")
        if chunk < 1:
            raise InvalidOption(f"chunk: expected at least 1 character; got {chunk!r}")
        self.requests: list[ModelRequest] = []
        self._by = by
        self._scripts: dict[Hashable, list[Step]] = {None: list(steps)}
        if scripts is not None:
            self._scripts = {key: list(script) for key, script in scripts.items()}
        self._played = dict.fromkeys(self._scripts, 0)
        self._then = then
        self._name = name
        self._chunk = chunk

    def __repr__(self) -> str:
        return f"<ScriptedModel {self.name}: {self.remaining} steps left>"

    @property
    def name(self) -> str:
        """`scripted:NAME`."""
        return f"scripted:{self._name}"

    @property
    def remaining(self) -> int:
        """Steps that have not been played yet, in all scripts together."""
        return sum(len(script) - self._played[key] for key, script in self._scripts.items())

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[ModelEvent], None]:
        """Play the next step; see `ChatModel.stream`. The step is taken when the block is entered.

        Raises:
            ScriptExhausted: if the script has no step left, or there is no script for the request.
            Exception: whatever the script says.
        """
        await trio.lowlevel.checkpoint()
        self.requests.append(request)
        async with aclosing(self._play(self._take(request), request)) as events:
            yield events

    def _take(self, request: ModelRequest) -> Step:
        key = self._by(request) if self._by else None
        script = self._scripts.get(key, [])
        at = self._played.get(key, 0)
        if at < len(script):
            self._played[key] = at + 1
            return script[at]
        if self._then is None:
            raise ScriptExhausted(self.name, repr(key) if self._by else "", len(script))
        return self._then

    async def _play(self, step: Step, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        text, calls, stop = "", list[ToolCall](), ""
        usage: Usage | None = None
        ids = call_ids(request.messages)
        for part in await _parts(step, request):
            match part:
                case str():
                    for start in range(0, len(part), self._chunk):
                        await trio.lowlevel.checkpoint()
                        yield TextDelta(part[start : start + self._chunk])
                    text += part
                case ToolCall():
                    made = ToolCall(part.id or _free_id(ids), part.name, part.arguments, part.malformed)
                    ids.add(made.id)
                    calls.append(made)
                    await trio.lowlevel.checkpoint()
                    yield ToolCallStarted(made.id, made.name)
                    yield ToolCallDelta(made.id, made.malformed or encode_arguments(made.arguments))
                case Delay():
                    await trio.sleep(part.seconds)
                case Stall():
                    await trio.sleep_forever()
                case Stop():
                    stop = part.reason
                case Usage():
                    usage = part
                case Exception():
                    raise part
        await trio.lowlevel.checkpoint()
        stop = stop or ("tools" if calls else "end")
        usage = usage or count_usage(request, text, calls)
        yield ModelAnswer(AssistantMessage(text, tuple(calls), stop_reason=stop, usage=usage))


async def _parts(step: Step, request: ModelRequest) -> Sequence[Part]:
    while callable(step):
        made = step(request)
        step = await made if inspect.isawaitable(made) else made
    if isinstance(step, str | ToolCall | Delay | Stall | Stop | Usage | Exception):
        return (step,)
    return step


def _free_id(taken: set[str]) -> str:
    number = 1
    while f"call_{number}" in taken:
        number += 1
    return f"call_{number}"

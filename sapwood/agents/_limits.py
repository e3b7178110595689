"""Limits: what one run may use, and what is left of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import attrs

from sapwood.conversation import Run
from sapwood.errors import InvalidOption, LimitReached


@attrs.frozen(kw_only=True)
class Limits:
    """What one run may use. A resumed run is the same run and keeps what it has used.

    A run that has used up one of the first four fails before its next model call, with `cause="limit"`: the answer to
    the last permitted call still counts, and its tools run. `seconds` ends the run wherever it is.

    Attributes:
        model_calls: Most model calls, repetitions and calls of fallback models included.
        steps: Most answers of the model; None for no limit.
        tokens: Tokens after which no further model call begins, failed attempts included; None for no limit.
        tool_calls: Most tool calls. Of an answer with more calls than are left the first ones run; the others get an
            error result, and the model goes on without (BR-55). None for no limit.
        seconds: Most seconds, without those in which the run was suspended or the process was down; None for no limit.
        self_started: Most runs in a row that the agent begins by itself, until a person says something (AR-24.6).
        parallel_tools: Most tool calls that run at once.
        output_tokens: Limit for one answer of the model in tokens; None for the model's own default.

    Raises:
        InvalidOption: if a limit is out of its range.
    """

    model_calls: int = attrs.field(default=50, kw_only=False)
    parallel_tools: int = attrs.field(default=8, kw_only=False)
    output_tokens: int | None = attrs.field(default=None, kw_only=False)
    steps: int | None = None
    tokens: int | None = None
    tool_calls: int | None = None
    seconds: float | None = None
    self_started: int = 10

    def __attrs_post_init__(self) -> None:
        for name, least, optional in _RANGES:
            value = getattr(self, name)
            if optional and value is None:
                continue
            if type(value) is not int or value < least:
                either = "None or an int" if optional else "an int"
                raise InvalidOption(f"limits.{name}: expected {either} >= {least}; got {value!r}")
        seconds = self.seconds
        if seconds is not None and not (type(seconds) in (int, float) and 0 < seconds < math.inf):
            raise InvalidOption(f"limits.seconds: expected None or seconds above 0; got {seconds!r}")

    def check(self, run: Run) -> None:
        """Say whether the run may call the model once more.

        Raises:
            LimitReached: if it may not.
        """
        for name, used, unit in _BEFORE_A_MODEL_CALL:
            limit: int | None = getattr(self, name)
            if limit is not None and used(run) >= limit:
                raise LimitReached(name, limit, unit)

    def calls_left(self, run: Run | None) -> float:
        """Return how many tool calls the run may still make."""
        if self.tool_calls is None or run is None:
            return math.inf
        return max(0, self.tool_calls - run.tool_calls)


_RANGES: Final = (
    ("model_calls", 1, False),
    ("parallel_tools", 1, False),
    ("self_started", 0, False),
    ("output_tokens", 1, True),
    ("steps", 1, True),
    ("tokens", 1, True),
    ("tool_calls", 0, True),
)

_BEFORE_A_MODEL_CALL: Final[tuple[tuple[str, Callable[[Run], int], str], ...]] = (
    ("model_calls", lambda run: run.model_calls, "model calls"),
    ("steps", lambda run: run.steps, "steps"),
    ("tokens", lambda run: run.usage.input_tokens + run.usage.output_tokens, "tokens"),
)

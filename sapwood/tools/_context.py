"""What a tool may know of the call that it carries out."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import attrs

from sapwood.actors import Environment
from sapwood.conversation import State
from sapwood.tools._result_store import ResultStore
from sapwood.tools._stop import StopSignal


def _read_only(values: Mapping[str, Any]) -> Mapping[str, Any]:
    return MappingProxyType(dict(values))


@attrs.frozen
class ToolContext:
    """The call that a tool carries out. A parameter annotated with it is filled in and hidden from the model.

    Attributes:
        agent_id: The agent that calls.
        run_id: Its run.
        call_id: The tool call.
        idempotency_key: The same for every attempt of this call; hand it to whatever must not act twice (C18).
        state: The conversation when the call began; read-only.
        host: Values that the host gave the agent for its tools, by name; read-only, never stored.
        environment: The only door to time, randomness, ids and threads.
        stop: Asked before a cancelled run cuts its tools off; a tool that looks at it can end in good order.
        results: Where whole results of this conversation are kept; None if nowhere.
    """

    agent_id: str
    run_id: str
    call_id: str
    idempotency_key: str
    state: State = attrs.field(repr=False)
    host: Mapping[str, Any] = attrs.field(converter=_read_only, repr=False)
    environment: Environment = attrs.field(repr=False)
    stop: StopSignal = attrs.field(factory=StopSignal, repr=False)
    results: ResultStore | None = attrs.field(default=None, repr=False)

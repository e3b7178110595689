"""The log of messages: one structured record for each that is sent, and each that is received (S1-057).

Records go to the logger `sapwood.messaging`, success at INFO, failure at WARNING; see `sapwood.actors.get_logger`.
"""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager
from functools import cache
from typing import Any, Final, Literal, cast

from sapwood.actors import get_logger
from sapwood.messaging.envelope import Envelope

LOGGER: Final = logging.getLogger("sapwood.messaging")


def log_message(
    direction: Literal["sent", "received"],
    envelope: Envelope[Any],
    target: str,
    latency_ms: float,
    *,
    error: str | None = None,
) -> None:
    """Write one record."""
    if not LOGGER.isEnabledFor(logging.WARNING if error else logging.INFO):
        return
    fields: dict[str, Any] = {
        "correlation_id": envelope.correlation_id,
        "message_id": envelope.message_id,
        "source_agent": envelope.sender,
        "target_agent": target,
        "message_type": envelope.kind,
        "payload_type": envelope.schema.name,
        "direction": direction,
        "latency_ms": round(latency_ms, 3),
        "status": "error" if error else "success",
    }
    if error:
        _logger().warning(
            f"{target!r} did not handle a message from {envelope.sender!r}: {error}", error=error, **fields
        )
    else:
        _logger().info(f"message {direction}", **fields)


@cache
def _logger() -> Any:
    # The library behind it is loaded with the first line.
    return get_logger(LOGGER.name)


def log_warning(text: str, **fields: Any) -> None:
    """Write a record about the bus itself."""
    _logger().warning(text, **fields)


def bound_to(envelope: Envelope[Any]) -> AbstractContextManager[None]:
    """Have everything that is logged through structlog inside the block carry the chain of a message (S1-059)."""
    import structlog

    bound = structlog.contextvars.bound_contextvars(
        correlation_id=envelope.correlation_id, message_id=envelope.message_id
    )
    return cast("AbstractContextManager[None]", bound)

"""Notifiers: who is told of alerts."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias

import trio

from sapwood.actors import get_logger
from sapwood.messaging.monitoring._alerts import AlertChange

Notifier: TypeAlias = Callable[[AlertChange], Awaitable[None] | None]
"""Told once that an alert has fired, and once that it has cleared; a plain one must not block."""

NOTIFIER_SECONDS: Final = 10.0
"""Seconds that a notifier may take before it is left."""

LOGGER: Final = "sapwood.monitoring"


def log_alert(change: AlertChange) -> None:
    """Write one record to the logger `sapwood.monitoring`: a warning if an alert fired, info if it cleared."""
    alert = change.alert
    logger = get_logger(LOGGER)
    write = logger.warning if change.status == "fired" else logger.info
    write(
        f"alert {change.status}",
        rule=alert.rule,
        subject=alert.subject,
        severity=alert.severity,
        metric=alert.metric,
        value=alert.value,
        limit=alert.limit,
        **({"detail": alert.detail} if alert.detail else {}),
        **({"reason": change.reason} if change.reason else {}),
    )


async def tell_all(notifiers: Sequence[Notifier], change: AlertChange) -> int:
    """Tell all notifiers, one after the other; return how many failed or took too long. That is logged."""
    failures = 0
    for notifier in notifiers:
        error: Exception | None = None
        with trio.move_on_after(NOTIFIER_SECONDS) as scope:
            try:
                done = notifier(change)
                if inspect.isawaitable(done):
                    await done
            except (MemoryError, trio.TrioInternalError):
                raise
            except Exception as raised:
                error = raised
        if error is not None or scope.cancelled_caught:
            failures += 1
            problem = repr(error) if error is not None else f"took longer than {NOTIFIER_SECONDS:g} s"
            get_logger(LOGGER).warning(
                "a notifier failed", notifier=repr(notifier), rule=change.alert.rule, error=problem
            )
    await trio.lowlevel.checkpoint()
    return failures

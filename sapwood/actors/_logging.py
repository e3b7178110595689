"""Logging: what happens in the tree, written through structlog to the standard library's loggers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

import attrs

from sapwood.actors._exits import Crashed
from sapwood.actors._telemetry import (
    ChildStuck,
    CrashReport,
    DeadLetter,
    Exited,
    ListenerFailed,
    LookupUnavailable,
    LoopHeldUp,
    MailboxHighWater,
    Restarted,
    Spawned,
    SupervisorReport,
    Telemetry,
    TelemetryEvent,
)

ROOT: Final = "sapwood"


def get_logger(name: str = ROOT) -> Any:
    """Return a structlog logger that ends in the standard library's logger of that name.

    The host decides where its lines go, and from which level, by configuring `logging`; what the host has configured
    for its own structlog plays no part. Each record's message is `event key=value ...`, and the same fields are in
    its attribute `sapwood`, a dict, for handlers that write JSON. Fields bound with `structlog.contextvars` are in
    both. All methods are synchronous.

    Args:
        name: `sapwood`, or a name below it such as `sapwood.bus`.
    """
    # It loads much, and most programs never log a line.
    import structlog

    return structlog.wrap_logger(
        logging.getLogger(name),
        processors=[structlog.stdlib.filter_by_level, structlog.contextvars.merge_contextvars, _render],
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )


def _render(_logger: Any, _method: str, fields: Any) -> Any:
    event = str(fields.pop("event"))
    text = " ".join([event, *(f"{name}={value}" for name, value in fields.items() if name != "traceback")])
    if "traceback" in fields:
        text += f"\n{fields['traceback']}"
    # The text is no format: it may hold percent signs.
    return ("%s", text), {"extra": {"sapwood": {"event": event, **fields}}}


LEVELS: Final[dict[type[TelemetryEvent], int]] = {
    CrashReport: logging.ERROR,
    ChildStuck: logging.ERROR,
    ListenerFailed: logging.ERROR,
    SupervisorReport: logging.WARNING,  # its own table is CONTEXTS
    MailboxHighWater: logging.WARNING,
    LoopHeldUp: logging.WARNING,
    DeadLetter: logging.INFO,
    Restarted: logging.INFO,
    Spawned: logging.DEBUG,
    Exited: logging.DEBUG,
    LookupUnavailable: logging.DEBUG,
}
"""How loud each kind of event is."""

CONTEXTS: Final = {
    "start_error": logging.ERROR,
    "shutdown": logging.ERROR,  # the supervisor gives up
    "shutdown_error": logging.WARNING,
    "child_terminated": logging.INFO,  # a crash has a report of its own
}
"""How loud each report of a supervisor is, by its context."""

TEXTS: Final[dict[type[TelemetryEvent], str]] = {
    CrashReport: "actor crashed",
    ChildStuck: "child goes on though it was killed",
    ListenerFailed: "telemetry listener raised and was removed",
    SupervisorReport: "supervisor reports",
    MailboxHighWater: "mailbox has passed its high-water mark",
    LoopHeldUp: "a task held the loop up",
    DeadLetter: "dead letter",
    Restarted: "child restarted",
    Spawned: "actor started",
    Exited: "actor ended",
    LookupUnavailable: "registry lookup cannot be answered",
}


def log_events(telemetry: Telemetry, logger: Any = None) -> Callable[[], None]:
    """Log what happens from now on (OTP P01, P07); return a function that stops it.

    Kinds of event below the level that the logger has now are not asked for, so that they cost nothing. No line shows
    what a message or the state of an actor holds, which may be secret; whoever wants that listens to telemetry.

    Args:
        telemetry: What to listen to.
        logger: Where to write; None for `get_logger()`.
    """
    quick: Any = logging.getLogger(ROOT) if logger is None else logger
    log = logger

    def write(event: TelemetryEvent) -> None:
        nonlocal log
        if isinstance(event, ChildStuck) and event.supervisor == "runtime":
            return  # of what even the end of the runtime cannot end; that is logged also where nothing else is
        level = CONTEXTS[event.context] if isinstance(event, SupervisorReport) else LEVELS[type(event)]
        if quick.isEnabledFor(level):
            if log is None:
                log = get_logger()
            log.log(level, TEXTS[type(event)], **_fields(event))

    loud = [kind for kind, level in LEVELS.items() if quick.isEnabledFor(level)]
    return telemetry.subscribe(write, *loud) if loud else lambda: None


def _fields(event: TelemetryEvent) -> dict[str, Any]:
    match event:
        case CrashReport():
            names: tuple[str, ...] = ("actor", "reason", "last_message", "client", "parent", "incarnation", "mailbox")
        case SupervisorReport():
            names = ("supervisor", "context", "reason")
        case DeadLetter():
            names = ("target", "sender", "reason")
        case _:
            names = tuple(field.name for field in attrs.fields(type(event)))
    fields: dict[str, Any] = {name: _plain(getattr(event, name)) for name in names}
    if isinstance(event, SupervisorReport):
        fields["child"] = event.offender.id
    elif isinstance(event, DeadLetter):
        fields["message_type"] = type(event.message).__name__
    elif isinstance(event, CrashReport) and isinstance(event.reason, Crashed):
        fields["traceback"] = event.reason.traceback()
    return fields


def _plain(value: object) -> object:
    return value if value is None or isinstance(value, str | int | float) else str(value)

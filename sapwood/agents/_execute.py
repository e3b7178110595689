"""Carrying out what a client in another process asks, and answering with something that can be sent back."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, TypeAlias

from sapwood.conversation import (
    Accepted,
    AlreadyDecided,
    CancelCommand,
    CancelQueuedCommand,
    Command,
    CommandOutcome,
    DecideCommand,
    Decided,
    Decision,
    DecisionOutcome,
    DismissCommand,
    Done,
    EditQueuedCommand,
    Invalid,
    NotifyCommand,
    PauseCommand,
    QueueOutcome,
    Refusal,
    Refused,
    ResetCommand,
    ResumeCommand,
    SendCommand,
    Stale,
    StatusCommand,
    StatusOutcome,
    Taken,
    command_from_json,
)
from sapwood.errors import (
    ActorDown,
    AskTimeout,
    CodecError,
    InvalidOption,
    MailboxFull,
    PersistenceError,
    RegistryUnavailable,
    RunInProgress,
)

if TYPE_CHECKING:
    from sapwood.agents._session import Session

REFUSALS: Final[tuple[tuple[type[Exception], Refusal], ...]] = (
    (InvalidOption, "invalid"),
    (CodecError, "invalid"),
    (RunInProgress, "busy"),
    (ActorDown, "not_running"),
    (RegistryUnavailable, "unavailable"),
    (PersistenceError, "unavailable"),
    (AskTimeout, "unavailable"),
    (MailboxFull, "unavailable"),
)
"""What each error means to a client; the first that fits counts. Everything else has `failed`."""

RETRY_AFTER: Final = 1.0
"""Seconds after which an unavailable command makes sense again, if the error does not say."""


def decode_command(data: object) -> Command:
    """Return the command in what a client has sent: JSON text, or what `json.loads` made of it.

    Raises:
        CodecError: if it is no JSON or no command; the text says what would be right, and where.
        FutureVersion: if it was written for a newer version.
    """
    if isinstance(data, str | bytes):
        try:
            data = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise CodecError("command", f"expected JSON; got something else: {error}") from error
    return command_from_json(data)


def refusal(error: Exception, command_id: str = "") -> Refused:
    """Return what a client is told of an error that kept a command, or a start, from being carried out."""
    fitting: list[Refusal] = [meaning for kind, meaning in REFUSALS if isinstance(error, kind)]
    reason = fitting[0] if fitting else "failed"
    retry_after = float(getattr(error, "retry_after", RETRY_AFTER)) if reason == "unavailable" else None
    return Refused(reason, f"{error}" or type(error).__name__, retry_after, command_id)


async def execute(session: Session, command: Command, by: str) -> CommandOutcome:
    """Carry out a command; whatever goes wrong is an outcome too."""
    try:
        return await _carry_out(session, command, by)
    except Exception as error:
        return refusal(error, command.id)


async def _carry_out(session: Session, command: Command, by: str) -> CommandOutcome:
    number = command.id
    match command:
        case SendCommand(text, message_id, delivery, while_running):
            receipt = await session.post(text, message_id=message_id, delivery=delivery, while_running=while_running)
            return Taken(receipt.message_id, receipt.run_id, receipt.queued, number)
        case DecideCommand(interrupt_id, verdict, arguments, reason, scope):
            decision = Decision(interrupt_id, verdict, arguments, reason, by, scope=scope)
            return _decided(await session.decide(decision), number)
        case EditQueuedCommand(message_id, text):
            return QueueOutcome(await session.edit_queued(message_id, text), number)
        case CancelQueuedCommand(message_id):
            return QueueOutcome(await session.cancel_queued(message_id), number)
        case StatusCommand():
            now = await session.status()
            return StatusOutcome(
                now.status, now.error, now.run_id, now.messages, now.queued, now.open_interrupts, number
            )
        case _:
            return Done(await _change(session, command), number)


Simple: TypeAlias = CancelCommand | PauseCommand | ResumeCommand | DismissCommand | NotifyCommand | ResetCommand
"""Commands whose outcome is whether there was anything to do."""


async def _change(session: Session, command: Simple) -> bool:
    match command:
        case CancelCommand(reason, grace):
            return await session.cancel(reason, grace=grace)
        case PauseCommand():
            return await session.pause()
        case ResumeCommand():
            return await session.resume()
        case DismissCommand(interrupt_id):
            return await session.dismiss(interrupt_id)
        case NotifyCommand(middleware, message):
            return await session.notify(middleware, message)
        case ResetCommand(keep_metadata):
            await session.reset(keep_metadata=keep_metadata)
            return True


def _decided(outcome: DecisionOutcome, number: str) -> Decided:
    match outcome:
        case Accepted():
            return Decided("accepted", id=number)
        case AlreadyDecided(by, verdict):
            return Decided("already_decided", by=by, verdict=verdict, id=number)
        case Stale(problem):
            return Decided("stale", problem, id=number)
        case Invalid(problem):
            return Decided("invalid", problem, id=number)

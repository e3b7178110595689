"""Errors of envelopes and of the bus that carries them."""

from __future__ import annotations

from collections.abc import Sequence

from sapwood.errors._root import SapwoodError


class InvalidEnvelope(SapwoodError, ValueError):
    """A field of an envelope is missing, unknown or of the wrong kind; nothing was sent.

    Attributes:
        field: The offending field.
        expected: What may stand there.
        got: What stood there, as text.
    """

    def __init__(self, field: str, expected: str, got: object, *, hint: str = "") -> None:
        shown = got if isinstance(got, str) else repr(got)
        tail = f"\n    {hint}" if hint else ""
        super().__init__(f"envelope field {field!r}: expected {expected}; got {shown}{tail}")
        self.field = field
        self.expected = expected
        self.got = shown


class MessagingError(SapwoodError):
    """A message could not be taken, read or delivered."""


class MessageTooLarge(MessagingError):
    """A message is larger than its bus accepts; nothing was sent. Put the payload into a reference store."""

    def __init__(self, message_id: str, size: int, limit: int) -> None:
        super().__init__(
            f"message {message_id} has {size} bytes; expected at most {limit}: store the payload and send a reference"
        )
        self.message_id = message_id
        self.size = size
        self.limit = limit


class SignatureRefused(MessagingError):
    """A message is not signed as it must be: no signature, an unknown key, or other bytes than were signed.

    Attributes:
        reason: `unsigned`, `unknown_key`, `wrong_sender` or `mismatch`.
        key_id: The key that the message names, or None.
    """

    def __init__(self, reason: str, key_id: str | None, detail: str) -> None:
        super().__init__(f"signature refused ({reason}): {detail}")
        self.reason = reason
        self.key_id = key_id


class DecryptionRefused(MessagingError):
    """A payload cannot be decrypted: its key is not there, or it or its header was changed.

    Attributes:
        reason: `unknown_key`, `malformed` or `tampered`.
        key_id: The key that the message names, or None.
    """

    def __init__(self, reason: str, key_id: str | None, detail: str) -> None:
        super().__init__(f"decryption refused ({reason}): {detail}")
        self.reason = reason
        self.key_id = key_id


class BusUnavailable(MessagingError):
    """The bus is not running, or is being restarted; nothing was sent. Try again in a moment, or start it."""

    def __init__(self, bus: str, state: str) -> None:
        super().__init__(
            f"bus {bus!r} is {state}; expected it to run: add bus_child(bus) to the children of a supervisor"
        )
        self.bus = bus
        self.state = state


class UnknownParticipant(MessagingError):
    """A name is not registered on the bus."""

    def __init__(self, bus: str, name: str, known: Sequence[str]) -> None:
        super().__init__(
            f"No handler registered for agent {name!r} on bus {bus!r}; registered: {', '.join(known) or 'none'}"
        )
        self.bus = bus
        self.name = name
        self.known = tuple(known)


class SendRefused(MessagingError):
    """The bus did not take a message or an operation; nothing was delivered.

    Attributes:
        sender: Who wanted it.
        operation: `send`, `publish`, `broadcast`, `multicast`, `route`, `request`, `register`, `subscribe`.
        reason: Why not.
    """

    def __init__(self, sender: str, operation: str, reason: str) -> None:
        super().__init__(f"{operation} by {sender!r} was refused: {reason}")
        self.sender = sender
        self.operation = operation
        self.reason = reason


class NotAuthorized(SendRefused):
    """The authorisation hook of the bus said no."""


class ContentRefused(SendRefused):
    """A validator of the bus, or its set of schemas, refused the payload."""


class MessageExpired(SendRefused):
    """The time to live of a message, or its deadline, had passed before it could be delivered."""


class Overloaded(SendRefused):
    """The recipient has so many messages waiting that the bus sheds those of this priority."""


class RateLimitExceeded(SendRefused):
    """A sender has spent its allowance; `retry_after` is the number of seconds until one more message fits."""

    def __init__(self, sender: str, operation: str, retry_after: float) -> None:
        super().__init__(sender, operation, f"rate limit exceeded; try again in {retry_after:.3f} s")
        self.retry_after = retry_after


class Undeliverable(MessagingError):
    """A request reached nobody who could answer it.

    Attributes:
        message_id: The request.
        reason: The reason of its dead letter.
    """

    def __init__(self, message_id: str, reason: str, detail: str) -> None:
        super().__init__(f"request {message_id} was not answered ({reason}): {detail}")
        self.message_id = message_id
        self.reason = reason

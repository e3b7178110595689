"""Commands: what a client in another process may ask of a conversation, and the outcomes it gets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

import attrs

from sapwood.actors import record
from sapwood.conversation._interrupts import Scope, Verdict
from sapwood.conversation._operations import Delivery
from sapwood.conversation._state import StatusName

WIRE_VERSION = 1
"""The version of all commands and outcomes, raised by one when the form of any of them changes."""

WhileRunning: TypeAlias = Literal["queue", "reject", "replace", "rollback"]
"""What a message does that comes while a run is open (UP-46).

`queue`: it waits. `reject`: it is refused with `RunInProgress`. `replace`: it ends the run and is answered instead.
`rollback`: likewise, and what was said in that run is taken back; what its tools did is not.
"""

QueueAnswer: TypeAlias = Literal["done", "delivered", "unknown"]
"""What became of a change to a message that waits: it was made, it came too late, or there is no such message."""


@record("command.send")
class SendCommand:
    """Say something.

    Attributes:
        text: What.
        message_id: Sent twice with one id, a message counts once.
        delivery: When it reaches the model if a run is open.
        while_running: What happens to a run that is open.
        id: Comes back in the outcome; of the client's own choice, as for every command.
    """

    text: str
    message_id: str = ""
    delivery: Delivery = "next_run"
    while_running: WhileRunning = "queue"
    id: str = ""


@record("command.decide")
class DecideCommand:
    """Decide about one interrupt. Who decides is not up to the client: the host says so.

    Attributes:
        interrupt_id: The interrupt.
        verdict: `approve`, `edit`, `reject`, `escalate` or `answer`.
        arguments: For `edit` the arguments to change, by name; for `answer` the answer.
        reason: Shown to the model, and kept.
        scope: `run` lets the other calls of this tool in the same run go ahead too.
        id: Comes back in the outcome.
    """

    interrupt_id: str
    verdict: Verdict
    arguments: dict[str, Any] = attrs.field(factory=dict[str, Any])
    reason: str = ""
    scope: Scope = "call"
    id: str = ""


@record("command.cancel")
class CancelCommand:
    """Cancel the open run.

    Attributes:
        reason: Why; the model reads it.
        grace: Seconds that running tools have to end by themselves.
        id: Comes back in the outcome.
    """

    reason: str = ""
    grace: float = 2.0
    id: str = ""


@record("command.pause")
class PauseCommand:
    """Pause the open run at the next safe boundary."""

    id: str = ""


@record("command.resume")
class ResumeCommand:
    """Let a paused run go on."""

    id: str = ""


@record("command.edit_queued")
class EditQueuedCommand:
    """Change the text of a message that still waits."""

    message_id: str
    text: str
    id: str = ""


@record("command.cancel_queued")
class CancelQueuedCommand:
    """Take back a message that still waits."""

    message_id: str
    id: str = ""


@record("command.dismiss")
class DismissCommand:
    """Dismiss a halt."""

    interrupt_id: str
    id: str = ""


@record("command.notify")
class NotifyCommand:
    """Hand an object to a middleware by its name."""

    middleware: str
    message: dict[str, Any]
    id: str = ""


@record("command.reset")
class ResetCommand:
    """Begin the conversation anew."""

    keep_metadata: bool = False
    id: str = ""


@record("command.status")
class StatusCommand:
    """Ask what the agent is doing."""

    id: str = ""


Command: TypeAlias = (
    SendCommand
    | DecideCommand
    | CancelCommand
    | PauseCommand
    | ResumeCommand
    | EditQueuedCommand
    | CancelQueuedCommand
    | DismissCommand
    | NotifyCommand
    | ResetCommand
    | StatusCommand
)
"""Everything that a client may ask."""


@record("outcome.taken")
class Taken:
    """A message was taken and is durable.

    Attributes:
        message_id: Its id.
        run_id: The run that it started; empty if it waits, or if that run is over.
        queued: Whether it waits.
        id: The id of the command.
    """

    message_id: str
    run_id: str
    queued: bool
    id: str = ""


@record("outcome.done")
class Done:
    """A command was carried out.

    Attributes:
        changed: Whether there was anything to do: an open run to cancel or pause, a paused one, an open halt, a
            middleware of that name.
        id: The id of the command.
    """

    changed: bool
    id: str = ""


@record("outcome.queue_changed")
class QueueOutcome:
    """What became of a change to a message that waits."""

    answer: QueueAnswer
    id: str = ""


@record("outcome.decided")
class Decided:
    """What became of a decision.

    Attributes:
        answer: `accepted`; or nothing changed, since it was `already_decided`, `stale` or `invalid`.
        problem: Why it was stale or invalid.
        by: Who was faster.
        verdict: What they said; empty if nobody was.
        id: The id of the command.
    """

    answer: Literal["accepted", "already_decided", "stale", "invalid"]
    problem: str = ""
    by: str = ""
    verdict: str = ""
    id: str = ""


@record("outcome.status")
class StatusOutcome:
    """What the agent is doing.

    Attributes:
        status: `idle`, `running`, `interrupted`, `paused`, `waiting`, `error` or `stopped`.
        error: Why the last run failed; empty if it did not.
        run_id: The open run; empty if there is none.
        messages: How many there are.
        queued: How many wait.
        open_interrupts: Ids of what people have to decide.
        id: The id of the command.
    """

    status: StatusName
    error: str
    run_id: str
    messages: int
    queued: int
    open_interrupts: tuple[str, ...]
    id: str = ""


Refusal: TypeAlias = Literal["invalid", "not_running", "busy", "failed", "unavailable"]

HTTP_STATUS: Final[Mapping[Refusal, int]] = {
    "invalid": 400,
    "not_running": 404,
    "busy": 409,
    "failed": 500,
    "unavailable": 503,
}
"""The HTTP status for each refusal. Only `unavailable` is worth the same request again (S4-048)."""


@record("outcome.refused")
class Refused:
    """A command was not carried out.

    Attributes:
        reason: `invalid`: it is wrong, and stays so. `not_running`: the agent does not run, or stopped before it
            answered. `busy`: a run is open that forbids it. `failed`: it broke something. `unavailable`: nobody can
            tell now where the agent is, or its store cannot be written.
        problem: What is wrong, in words.
        retry_after: Seconds after which the same command makes sense again; None if it never does by itself.
        id: The id of the command.
    """

    reason: Refusal
    problem: str
    retry_after: float | None = None
    id: str = ""

    @property
    def http_status(self) -> int:
        """The HTTP status that says the same."""
        return HTTP_STATUS[self.reason]


CommandOutcome: TypeAlias = Taken | Done | QueueOutcome | Decided | StatusOutcome | Refused
"""Everything that a client may be answered."""

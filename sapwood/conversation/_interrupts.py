"""Interrupts: what an agent waits for a person to say, and how their answers are judged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias, get_args

import attrs

from sapwood.actors import record
from sapwood.conversation._evolve import evolve
from sapwood.conversation._json import copy_json
from sapwood.conversation._messages import ToolCall
from sapwood.errors import InvalidOption

Scope: TypeAlias = Literal["call", "run"]
OnExpiry: TypeAlias = Literal["abort", "escalate", "queue"]
"""What happens when nobody has decided in time: the call is not run and the model is told, it is left to somebody else
once more, or it stays open and late answers count (S3-120)."""

EXPIRY: Final = "expiry"
"""Who passed an interrupt on if nobody did in time."""

InterruptKind: TypeAlias = Literal["approval", "question", "halt", "reconcile"]
Verdict: TypeAlias = Literal["approve", "edit", "reject", "escalate", "answer"]

VERDICTS: Mapping[InterruptKind, tuple[Verdict, ...]] = {
    "approval": ("approve", "edit", "reject", "escalate"),
    "question": ("answer", "reject", "escalate"),
    "reconcile": ("answer", "approve", "reject", "escalate"),
    "halt": (),
}
"""Verdicts that make sense for each kind.

`approval`: may the call run? `question`: what does the person say? `reconcile`: a call was started before a crash and
nobody knows whether it finished; `answer` gives its result, `approve` runs it again, `reject` leaves it unknown
(S3-145). `halt`: the agent stopped on purpose; it is dismissed or superseded by a message, never decided.
"""


def _all_verdicts(interrupt: Interrupt) -> tuple[Verdict, ...]:
    return VERDICTS.get(interrupt.kind, ())


def _check_kind(_: Interrupt, __: attrs.Attribute[InterruptKind], kind: str) -> None:
    if kind not in VERDICTS:
        raise InvalidOption(f"interrupt kind: expected one of {', '.join(VERDICTS)}; got {kind!r}")


def _check_allowed(interrupt: Interrupt, _: attrs.Attribute[tuple[Verdict, ...]], allowed: tuple[Verdict, ...]) -> None:
    wrong = [verdict for verdict in allowed if verdict not in VERDICTS[interrupt.kind]]
    if wrong:
        known = ", ".join(VERDICTS[interrupt.kind]) or "none"
        raise InvalidOption(f"interrupt of kind {interrupt.kind}: expected verdicts from {known}; got {wrong[0]!r}")


def _check_expiry(_: Interrupt, __: attrs.Attribute[OnExpiry], on_expiry: str) -> None:
    if on_expiry not in get_args(OnExpiry):
        raise InvalidOption(f"interrupt on_expiry: expected one of abort, escalate, queue; got {on_expiry!r}")


def _copy_details(details: dict[str, Any]) -> dict[str, Any]:
    copied: dict[str, Any] = copy_json(details, "details")
    return copied


@record("conversation.interrupt")
class Interrupt:
    """Something the agent may not do, or cannot know, without a person.

    Attributes:
        id: The id of the tool call it is about; unique among the open interrupts of an agent.
        kind: `approval`, `question`, `halt` or `reconcile`.
        call: The call, with the arguments that the model wrote.
        reason: Why a person is asked, or what the question is.
        allowed: Verdicts that will be accepted; by default all that make sense for the kind.
        editable: Names of the arguments that an edit may change, or None for all.
        created_at: Wall-clock seconds since 1970 UTC.
        expires_at: Wall-clock seconds from which answers are stale, or None for never.
        patience: Seconds that everybody has to whom it is passed on; None leaves the end as it is, and nobody to
            escalate to.
        on_expiry: What happens at `expires_at`.
        reason_required: Whether a rejection must give a reason (S3-124).
        policy: Version of the policy that asked; recorded, so that an answer can be judged later.
        path: Names of the agents from the top one to the sub-agent that waits; empty for the agent itself (BR-23).
        details: Anything else that a user interface needs, such as the options of a question; JSON-like.
        escalations: Who passed it on, in order; it stays open for the next person.

    Raises:
        InvalidOption: if the kind is unknown or a verdict makes no sense for it.
        CodecError: if the details are not JSON-like.
    """

    id: str
    kind: InterruptKind = attrs.field(validator=_check_kind)
    call: ToolCall
    reason: str = ""
    allowed: tuple[Verdict, ...] = attrs.field(
        default=attrs.Factory(_all_verdicts, takes_self=True), validator=_check_allowed
    )
    editable: tuple[str, ...] | None = None
    created_at: float = 0.0
    expires_at: float | None = None
    policy: str = ""
    path: tuple[str, ...] = ()
    details: dict[str, Any] = attrs.field(factory=dict[str, Any], converter=_copy_details)
    escalations: tuple[str, ...] = ()
    patience: float | None = None
    on_expiry: OnExpiry = attrs.field(default="abort", validator=_check_expiry)
    reason_required: bool = False


def _copy_arguments(arguments: dict[str, Any]) -> dict[str, Any]:
    copied: dict[str, Any] = copy_json(arguments, "arguments")
    return copied


@record("conversation.decision")
class Decision:
    """What a person said about one interrupt. It always names the interrupt it is for (UP-13).

    Attributes:
        interrupt_id: The id of the interrupt.
        verdict: `approve`, `edit`, `reject`, `escalate` or `answer`.
        arguments: For `edit` the arguments to change, by name; for `answer` the answer. JSON-like.
        reason: Shown to the model, and kept.
        by: Who decided.
        at: Wall-clock seconds since 1970 UTC.
        scope: `run` lets the other calls of this tool in the same run go ahead too; only for `approve`.
    """

    interrupt_id: str
    verdict: Verdict
    arguments: dict[str, Any] = attrs.field(factory=dict[str, Any], converter=_copy_arguments)
    reason: str = ""
    by: str = ""
    at: float = 0.0
    scope: Scope = "call"


@attrs.frozen
class Accepted:
    """The decision counts; journal it, then act on it. Other interrupts may still be open."""

    decision: Decision


@attrs.frozen
class AlreadyDecided:
    """Somebody was faster, or the same answer came twice; nothing changes."""

    by: str
    verdict: Verdict


@attrs.frozen
class Stale:
    """The interrupt is no longer open, or has expired; nothing changes."""

    problem: str


@attrs.frozen
class Invalid:
    """The decision does not fit the interrupt, which stays open as it was (AR-22.12)."""

    problem: str


DecisionOutcome: TypeAlias = Accepted | AlreadyDecided | Stale | Invalid
"""The four honest answers to a decision; only `Accepted` changes anything."""


def judge(
    interrupts: tuple[Interrupt, ...], decisions: tuple[Decision, ...], decision: Decision, now: float
) -> DecisionOutcome:
    """Say what becomes of a decision, given the open interrupts and the decisions that are remembered.

    Decisions are matched by interrupt id alone, so they may come one by one, together, and in any order.
    """
    interrupt = next((each for each in interrupts if each.id == decision.interrupt_id), None)
    earlier = next((each for each in decisions if each.interrupt_id == decision.interrupt_id), None)
    if earlier is not None:
        return AlreadyDecided(earlier.by, earlier.verdict)
    if interrupt is None:
        return Stale(f"no such interrupt: {decision.interrupt_id!r} was closed or withdrawn, has expired or never was")
    if interrupt.expires_at is not None and now >= interrupt.expires_at and interrupt.on_expiry != "queue":
        return Stale(f"interrupt {interrupt.id!r} expired {now - interrupt.expires_at:.0f} s ago")
    if decision.verdict == "escalate" and decision.by in interrupt.escalations:
        return AlreadyDecided(decision.by, "escalate")
    problem = _problem(interrupt, decision)
    return Accepted(decision) if problem is None else Invalid(f"interrupt {interrupt.id!r}: {problem}")


def _problem(interrupt: Interrupt, decision: Decision) -> str | None:
    if interrupt.kind == "halt":
        return "a halt takes no decision; dismiss it or send a message"
    if decision.verdict not in interrupt.allowed:
        return f"expected one of {', '.join(interrupt.allowed)}; got {decision.verdict!r}"
    if decision.verdict == "reject" and interrupt.reason_required and not decision.reason.strip():
        return "expected a reason for the rejection; got none"
    if decision.scope == "run" and (decision.verdict != "approve" or interrupt.kind != "approval"):
        return f"scope='run' goes with the approval of a call; got it with {decision.verdict!r}"
    match decision.verdict:
        case "edit":
            return _edit_problem(interrupt, decision.arguments)
        case "answer":
            return None if decision.arguments else "expected the answer in arguments; got none"
        case "approve" | "reject" | "escalate":
            return None if not decision.arguments else f"{decision.verdict} takes no arguments; use edit to change them"


def _edit_problem(interrupt: Interrupt, changes: dict[str, Any]) -> str | None:
    if not changes:
        return "expected the arguments to change; got none: use approve to leave them as they are"
    if interrupt.editable is None:
        return None
    locked = [
        name
        for name, value in changes.items()
        if name not in interrupt.editable and not _same(value, interrupt.call.arguments, name)
    ]
    if locked:
        return f"expected changes to {', '.join(interrupt.editable) or 'nothing'}; got one to {locked[0]!r}"
    return None


def _same(value: Any, arguments: dict[str, Any], name: str) -> bool:
    return name in arguments and type(arguments[name]) is type(value) and bool(arguments[name] == value)


def edited_call(interrupt: Interrupt, decision: Decision) -> ToolCall:
    """Return the call to run after an accepted decision: an edit changes arguments, never id or tool (UP-22)."""
    if decision.verdict != "edit":
        return interrupt.call
    return evolve(interrupt.call, arguments={**interrupt.call.arguments, **decision.arguments}, malformed="")

"""HumanInTheLoop: certain tool calls wait for a person."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from types import SimpleNamespace
from typing import Any, Final, TypeAlias, cast, get_args

import attrs

from sapwood.conversation import AssistantMessage, Interrupt, OnExpiry, State, ToolCall, Verdict
from sapwood.errors import InvalidOption
from sapwood.middleware._context import MiddlewareContext
from sapwood.middleware._contract import Change, HookResult, Middleware, Suspend
from sapwood.middleware._names import several_names

Predicate: TypeAlias = Callable[[Any], bool]
"""Says whether a call needs approval; gets the arguments as attributes: `lambda args: args.cents > 5000`."""


VERDICTS: Final[tuple[Verdict, ...]] = ("approve", "edit", "reject", "escalate")

SLIP: Final = 0.85
"""How alike two names are, from 0 to 1, if one counts as a slip of the pen: refnd, refund; not read_file, edit_file."""


@attrs.frozen
class Approval:
    """When and how a tool's calls are approved.

    Attributes:
        when: Which calls need approval; None for all.
        allowed: Verdicts that a person may give.
        editable: Names of the arguments that an edit may change; None for those that the tool itself names.
        expires_after: Seconds that everybody who is asked has; None for ever.
        on_expiry: What happens then: `abort` refuses the call and tells the model, `escalate` leaves it to somebody
            else once more and then aborts, `queue` keeps waiting (S3-120).
        reason_required: Whether a rejection must give a reason (S3-125).
        policy: Version of the policy, recorded with each question.

    Raises:
        InvalidOption: if a verdict or `on_expiry` is none that there is, none of the verdicts decides, `editable` is a
            single text, or `expires_after` is not above 0.
    """

    when: Predicate | None = None
    allowed: tuple[Verdict, ...] = VERDICTS
    editable: tuple[str, ...] | None = None
    expires_after: float | None = None
    on_expiry: OnExpiry = "abort"
    reason_required: bool = False
    policy: str = ""

    def __attrs_post_init__(self) -> None:
        several_names(self.allowed, "Approval allowed")
        several_names(self.editable or (), "Approval editable")
        unknown = [verdict for verdict in self.allowed if verdict not in VERDICTS]
        if unknown:
            raise InvalidOption(f"Approval allowed: expected verdicts from {', '.join(VERDICTS)}; got {unknown[0]!r}")
        if not set(self.allowed) - {"escalate"}:
            raise InvalidOption(f"Approval allowed: expected a verdict that decides; got {self.allowed!r}")
        if self.on_expiry not in get_args(OnExpiry):
            raise InvalidOption(f"Approval on_expiry: expected {', '.join(get_args(OnExpiry))}; got {self.on_expiry!r}")
        if self.expires_after is not None and not self.expires_after > 0:
            raise InvalidOption(
                f"Approval expires_after: expected seconds above 0, or None; got {self.expires_after!r}"
            )


Rule: TypeAlias = bool | Predicate | Approval


class HumanInTheLoop(Middleware):
    """Suspends the run when the model calls a protected tool, until somebody has decided (S4-016, S4-024).

    Calls of the same answer that need no approval run at once. Somebody may approve all further calls of a tool for the
    rest of the run (`approve(for_run=True)`); the next run asks again. A predicate that raises counts as "needs
    approval". Nobody is asked about a call that cannot run anyway: it gets its error result (C22).

    Args:
        rules: Tool names and rules, for names that are no Python identifiers.
        **tools: One rule for each protected tool: True for every call, a predicate on the arguments, or an `Approval`.

    Raises:
        InvalidOption: if a rule is none of these. At server start: if a rule names a tool that does not exist, and
            one whose name looks much like it has no rule; a slip of the pen must not leave a tool unprotected.
    """

    runs_last = True

    def __init__(self, rules: Mapping[str, Rule] | None = None, **tools: Rule) -> None:
        self.rules: dict[str, Approval] = {}
        for name, rule in {**(rules or {}), **tools}.items():
            approval = _approval(name, rule)
            if approval is not None:
                self.rules[name] = approval

    async def on_server_start(self, context: MiddlewareContext) -> list[Change]:
        for name in self.rules:
            if name in context.tools:
                continue
            unprotected = [each.name for each in context.tools if each.name not in self.rules]
            for near in get_close_matches(name, unprotected, n=1, cutoff=SLIP):
                raise InvalidOption(f"HumanInTheLoop: there is no tool {name!r}; did you mean {near!r}?")
        return []

    async def after_model(self, state: State, context: MiddlewareContext) -> HookResult:
        answer = next((each for each in reversed(state.messages) if isinstance(each, AssistantMessage)), None)
        now = context.environment.wall()
        interrupts: list[Interrupt] = []
        for call in answer.tool_calls if answer is not None else ():
            rule = self.rules.get(call.name)
            if state.run is not None and call.name in state.run.approved:
                continue
            if rule is not None and context.tools.check(call) is None and _needs_approval(rule, call):
                tool = context.tools.get(call.name)
                editable = rule.editable if rule.editable is not None or tool is None else tool.editable
                interrupts.append(_interrupt(call, rule, editable, now))
        return Suspend(tuple(interrupts)) if interrupts else None


def _interrupt(call: ToolCall, rule: Approval, editable: tuple[str, ...] | None, now: float) -> Interrupt:
    return Interrupt(
        id=call.id,
        kind="approval",
        call=call,
        reason=f"{call.name} needs approval",
        allowed=rule.allowed,
        editable=editable,
        created_at=now,
        expires_at=None if rule.expires_after is None else now + rule.expires_after,
        patience=rule.expires_after,
        on_expiry=rule.on_expiry,
        reason_required=rule.reason_required,
        policy=rule.policy,
    )


def _approval(name: str, rule: object) -> Approval | None:
    if isinstance(rule, Approval):
        return rule
    if isinstance(rule, bool):
        return Approval() if rule else None
    if callable(rule):
        return Approval(when=cast("Predicate", rule))
    raise InvalidOption(f"HumanInTheLoop: expected True, a predicate or an Approval for {name}; got {rule!r}")


def _needs_approval(rule: Approval, call: ToolCall) -> bool:
    if rule.when is None:
        return True
    try:
        return bool(rule.when(SimpleNamespace(**call.arguments)))
    except Exception:
        # Whoever protects a tool would rather be asked once too often.
        return True

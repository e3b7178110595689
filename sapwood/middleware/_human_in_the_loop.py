"""HumanInTheLoop: certain tool calls wait for a person."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, TypeAlias

import attrs

from sapwood.conversation import AssistantMessage, Interrupt, State, ToolCall, Verdict
from sapwood.errors import InvalidOption
from sapwood.middleware._context import MiddlewareContext
from sapwood.middleware._contract import HookResult, Middleware, Suspend

Predicate: TypeAlias = Callable[[Any], bool]
"""Says whether a call needs approval; gets the arguments as attributes: `lambda args: args.cents > 5000`."""


@attrs.frozen
class Approval:
    """When and how a tool's calls are approved.

    Attributes:
        when: Which calls need approval; None for all.
        allowed: Verdicts that a person may give.
        editable: Names of the arguments that an edit may change; None for all.
        expires_after: Seconds after which the question is stale; None for never.
        policy: Version of the policy, recorded with each question.
    """

    when: Predicate | None = None
    allowed: tuple[Verdict, ...] = ("approve", "edit", "reject", "escalate")
    editable: tuple[str, ...] | None = None
    expires_after: float | None = None
    policy: str = ""


Rule: TypeAlias = bool | Predicate | Approval


class HumanInTheLoop(Middleware):
    """Suspends the run when the model calls a protected tool, until somebody has decided (S4-016, S4-024).

    Calls of the same answer that need no approval run at once. A predicate that raises counts as "needs approval".

    Args:
        rules: Tool names and rules, for names that are no Python identifiers.
        **tools: One rule for each protected tool: True for every call, a predicate on the arguments, or an `Approval`.

    Raises:
        InvalidOption: if a rule is none of these.
    """

    runs_last = True

    def __init__(self, rules: Mapping[str, Rule] | None = None, **tools: Rule) -> None:
        self.rules: dict[str, Approval] = {}
        for name, rule in {**(rules or {}), **tools}.items():
            approval = _approval(name, rule)
            if approval is not None:
                self.rules[name] = approval

    async def after_model(self, state: State, context: MiddlewareContext) -> HookResult:
        last = state.messages[-1] if state.messages else None
        if not isinstance(last, AssistantMessage):
            return None
        now = context.environment.wall()
        interrupts = [
            self._interrupt(call, rule, now)
            for call in last.tool_calls
            if (rule := self.rules.get(call.name)) is not None and _needs_approval(rule, call)
        ]
        return Suspend(tuple(interrupts)) if interrupts else None

    def _interrupt(self, call: ToolCall, rule: Approval, now: float) -> Interrupt:
        return Interrupt(
            id=call.id,
            kind="approval",
            call=call,
            reason=f"{call.name} needs approval",
            allowed=rule.allowed,
            editable=rule.editable,
            created_at=now,
            expires_at=None if rule.expires_after is None else now + rule.expires_after,
            policy=rule.policy,
        )


def _approval(name: str, rule: object) -> Approval | None:
    if isinstance(rule, Approval):
        return rule
    if isinstance(rule, bool):
        return Approval() if rule else None
    if callable(rule):
        return Approval(when=rule)
    raise InvalidOption(f"HumanInTheLoop: expected True, a predicate or an Approval for {name}; got {rule!r}")


def _needs_approval(rule: Approval, call: ToolCall) -> bool:
    if rule.when is None or call.malformed:
        return not call.malformed
    try:
        return bool(rule.when(SimpleNamespace(**call.arguments)))
    except Exception:
        # Whoever protects a tool would rather be asked once too often.
        return True



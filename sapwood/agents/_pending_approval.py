"""What a person has to decide, with the means to do so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from sapwood.conversation import Decision, DecisionOutcome, Interrupt, Scope, Verdict

if TYPE_CHECKING:
    from sapwood.agents._session import Session


@attrs.frozen
class PendingApproval:
    """Something that a person has to decide, with the means to do so.

    Attributes:
        interrupt: What it is about.
    """

    interrupt: Interrupt
    _session: Session = attrs.field(alias="session", repr=False)

    async def approve(self, *, by: str = "", reason: str = "", for_run: bool = False) -> DecisionOutcome:
        """Let the call run as it is.

        Args:
            by: Who decides.
            reason: Why; kept.
            for_run: Whether later calls of this tool in the same run go ahead without being asked about.
        """
        scope: Scope = "run" if for_run else "call"
        return await self._session.decide(Decision(self.interrupt.id, "approve", {}, reason, by, scope=scope))

    async def edit(self, *, by: str = "", reason: str = "", **arguments: Any) -> DecisionOutcome:
        """Let the call run with some arguments changed; only editable ones may be.

        For an argument that is itself called `by` or `reason` use `Session.decide`.
        """
        return await self._decide("edit", by, reason, arguments)

    async def reject(self, reason: str = "", *, by: str = "") -> DecisionOutcome:
        """Refuse the call; the model reads the reason."""
        return await self._decide("reject", by, reason)

    async def escalate(self, reason: str = "", *, by: str = "") -> DecisionOutcome:
        """Leave it to somebody else; it stays open."""
        return await self._decide("escalate", by, reason)

    async def answer(self, *, by: str = "", **answer: Any) -> DecisionOutcome:
        """Answer a question, or give the result of a call that nobody knows the outcome of (`result=`)."""
        return await self._decide("answer", by, "", answer)

    async def dismiss(self) -> bool:
        """Dismiss a halt, which takes no decision; say whether it was open."""
        return await self._session.dismiss(self.interrupt.id)

    async def _decide(
        self, verdict: Verdict, by: str, reason: str, arguments: dict[str, Any] | None = None
    ) -> DecisionOutcome:
        return await self._session.decide(Decision(self.interrupt.id, verdict, arguments or {}, reason, by))

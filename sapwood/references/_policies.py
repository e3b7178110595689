"""Policies: which payloads travel in the message and which as a reference."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import attrs

from sapwood.errors import InvalidOption
from sapwood.references._reference import ReferenceType, checked_text, checked_type

DEFAULT_THRESHOLD: Final = 10 * 1024
"""Bytes up to which a payload stays in its message: 10 KB is 10,240 bytes, that size included (C4)."""

ALWAYS: Final = -1.0
NEVER: Final = math.inf


@attrs.frozen
class Policy:
    """What becomes of the payloads of one message type.

    Attributes:
        threshold: Bytes; a payload that is larger is stored and travels as a reference.
        reference_type: Type of the references.
    """

    threshold: float
    reference_type: str = attrs.field(default=ReferenceType.BLOB, converter=checked_type)

    def __attrs_post_init__(self) -> None:
        if (
            isinstance(self.threshold, bool)
            or not isinstance(self.threshold, int | float)
            or not self.threshold >= ALWAYS
        ):
            raise InvalidOption(f"threshold: expected bytes >= 0; got {self.threshold!r}")

    def uses_reference(self, size: int) -> bool:
        """Whether a payload of so many bytes is stored."""
        return size > self.threshold


@attrs.frozen
class AlwaysReference(Policy):
    """Every payload is stored, whatever its size (S0-001)."""

    threshold: float = attrs.field(default=ALWAYS, init=False)


@attrs.frozen
class AlwaysValue(Policy):
    """No payload is stored (S0-003)."""

    threshold: float = attrs.field(default=NEVER, init=False)


@attrs.frozen
class AutoPromote(Policy):
    """A payload above the threshold is stored (S0-002)."""

    # Both again: attrs puts an attribute that is defined anew behind those that are inherited.
    threshold: float = DEFAULT_THRESHOLD
    reference_type: str = attrs.field(default=ReferenceType.BLOB, converter=checked_type)


@attrs.frozen
class SessionState(AlwaysReference):
    """History and context of a session: always stored."""

    reference_type: str = attrs.field(default=ReferenceType.SESSION_STATE, converter=checked_type)


@attrs.frozen
class WorkflowContext(AlwaysReference):
    """State of a workflow: always stored."""

    reference_type: str = attrs.field(default=ReferenceType.WORKFLOW_CONTEXT, converter=checked_type)


@attrs.frozen
class ToolResult(AutoPromote):
    """What a tool returned: stored above the threshold."""

    reference_type: str = attrs.field(default=ReferenceType.TOOL_RESULT, converter=checked_type)


BUILT_IN: Final[Mapping[str, Policy]] = MappingProxyType(
    {
        # Tier 1: always a reference
        "session_state": SessionState(),
        "workflow_context": WorkflowContext(),
        "dataset": AlwaysReference(ReferenceType.DATASET),
        # Tier 2: by size
        "tool_result": ToolResult(),
        "api_response": AutoPromote(reference_type=ReferenceType.API_RESPONSE),
        "document_chunk": AutoPromote(reference_type=ReferenceType.DOCUMENT_CHUNK),
        # Tier 3: always in the message
        "start": AlwaysValue(),
        "stop": AlwaysValue(),
        "ack": AlwaysValue(),
        "control": AlwaysValue(),
        "status": AlwaysValue(),
        "progress": AlwaysValue(),
        "health": AlwaysValue(),
        "metadata": AlwaysValue(),
    }
)
"""Message type: its policy (S0-004)."""


class PolicyManager:
    """Knows the policy of each message type (S0-022).

    Args:
        default: Policy of the types that have none of their own (S0-024).
    """

    def __init__(self, default: Policy | None = None) -> None:
        self.default = _checked("default", AutoPromote() if default is None else default)
        self._policies = dict(BUILT_IN)
        self._thresholds = {name: policy.threshold for name, policy in BUILT_IN.items()}

    @property
    def policies(self) -> Mapping[str, Policy]:
        """The policies that are registered, by message type."""
        return MappingProxyType(self._policies)

    def get_policy(self, message_type: str) -> Policy:
        """Return the policy of a message type."""
        return self._policies.get(message_type, self.default)

    def should_use_reference(self, message_type: str, size: int) -> bool:
        """Whether a payload of so many bytes is stored."""
        return size > self._thresholds.get(message_type, self.default.threshold)

    def register_policy(self, message_type: str, policy: Policy) -> None:
        """Set the policy of a message type, also of one that has one (S0-025).

        Raises:
            InvalidOption: if it is no policy, or the type no text.
        """
        name = checked_text("message_type", message_type)
        self._policies[name] = _checked("policy", policy)
        self._thresholds[name] = policy.threshold


def _checked(what: str, policy: Policy) -> Policy:
    if isinstance(policy, Policy):
        return policy
    hint = f": write {policy.__name__}()" if isinstance(policy, type) and issubclass(policy, Policy) else ""
    raise InvalidOption(f"{what}: expected a Policy such as AutoPromote(10_240); got {policy!r}{hint}")

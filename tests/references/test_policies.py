"""Which payloads travel in the message: policies by message type and size."""

from __future__ import annotations

import math
from typing import Any

import pytest

from sapwood.errors import InvalidOption
from sapwood.references import (
    AlwaysReference,
    AlwaysValue,
    AutoPromote,
    Policy,
    PolicyManager,
    ReferenceType,
    SessionState,
    ToolResult,
    WorkflowContext,
)

KB10 = 10 * 1024
SIZES = (0, 1, KB10 - 1, KB10, KB10 + 1, 15 * 1024, 10**9)
NEVER = (False,) * 7
ALWAYS = (True,) * 7
BY_SIZE = (False, False, False, False, True, True, True)


@pytest.mark.row("S0-001", "S0-002", "S0-003", "S0-023", "S0-033")
@pytest.mark.parametrize(
    ("policy", "stored"),
    [
        (AlwaysReference(), ALWAYS),
        (AlwaysValue(), NEVER),
        (AutoPromote(), BY_SIZE),
        (AutoPromote(0), (False, True, True, True, True, True, True)),
        (AutoPromote(KB10 - 1), (False, False, False, True, True, True, True)),
        (AutoPromote(threshold=15 * 1024), (False, False, False, False, False, False, True)),
        (SessionState(), ALWAYS),
        (WorkflowContext(), ALWAYS),
        (ToolResult(), BY_SIZE),
        (ToolResult(10**9 - 1), (False, False, False, False, False, False, True)),
    ],
    ids=str,
)
def test_a_policy_decides_by_size_alone(policy: Policy, stored: tuple[bool, ...]) -> None:
    assert tuple(policy.uses_reference(size) for size in SIZES) == stored

    manager = PolicyManager()
    manager.register_policy("mine", policy)
    assert tuple(manager.should_use_reference("mine", size) for size in SIZES) == stored


@pytest.mark.row("S0-004", "S0-022", "S0-024")
@pytest.mark.parametrize(
    ("message_types", "stored"),
    [
        (("session_state", "dataset", "workflow_context"), ALWAYS),
        (("tool_result", "api_response", "document_chunk"), BY_SIZE),
        (("start", "stop", "ack", "control", "status", "progress", "health", "metadata"), NEVER),
        (("unregistered", "", "Session_State"), BY_SIZE),
    ],
    ids=["tier 1", "tier 2", "tier 3", "unregistered"],
)
def test_every_family_of_messages_has_its_tier(message_types: tuple[str, ...], stored: tuple[bool, ...]) -> None:
    manager = PolicyManager()
    for message_type in message_types:
        assert tuple(manager.should_use_reference(message_type, size) for size in SIZES) == stored
        assert manager.get_policy(message_type).uses_reference(KB10 + 1) == stored[4]


@pytest.mark.row("S0-025")
def test_a_registered_policy_overrides_a_built_in_one_in_this_manager_alone() -> None:
    manager, other = PolicyManager(), PolicyManager()
    manager.register_policy("session_state", AlwaysValue())
    manager.register_policy("ack", AutoPromote(5))

    assert not manager.should_use_reference("session_state", 10**9)
    assert manager.should_use_reference("ack", 6)
    assert manager.get_policy("ack") == manager.policies["ack"] == AutoPromote(5)
    assert other.should_use_reference("session_state", 1)
    assert not other.should_use_reference("ack", 6)


def test_another_default_holds_for_unregistered_types_alone() -> None:
    manager = PolicyManager(AlwaysReference())

    assert manager.should_use_reference("unregistered", 0)
    assert not manager.should_use_reference("ack", 10**6)


def test_references_carry_the_type_that_the_policy_names() -> None:
    manager = PolicyManager()
    manager.register_policy("report", AutoPromote(5, reference_type="report.monthly"))

    assert manager.get_policy("session_state").reference_type == ReferenceType.SESSION_STATE
    assert manager.get_policy("dataset").reference_type == "dataset"
    assert manager.get_policy("report").reference_type == "report.monthly"


@pytest.mark.parametrize("threshold", [-2, -1.5, math.nan, True, "10KB", None])
def test_a_threshold_that_is_no_size_is_refused(threshold: Any) -> None:
    with pytest.raises(InvalidOption, match="threshold: expected bytes >= 0"):
        AutoPromote(threshold)


def test_what_is_no_policy_is_refused_and_changes_nothing() -> None:
    manager: Any = PolicyManager()
    with pytest.raises(InvalidOption, match=r"write AlwaysValue\(\)"):
        manager.register_policy("ack", AlwaysValue)
    with pytest.raises(InvalidOption, match="expected a Policy"):
        manager.register_policy("session_state", 5)
    with pytest.raises(InvalidOption, match="message_type"):
        manager.register_policy("", AlwaysValue())
    assert dict(manager.policies) == dict(PolicyManager().policies)

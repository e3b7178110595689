"""Idempotency keys, and what a state knows of itself."""

from __future__ import annotations

import hashlib
from typing import Any, cast

import attrs
import pytest

from sapwood.conversation import State, evolve, idempotency_key


@pytest.mark.row("S3-142")
def test_the_idempotency_key_is_a_prefix_and_24_hex_digits_of_the_hash_of_its_parts() -> None:
    expected = hashlib.sha256(b"conversation-1:42:call_7").hexdigest()[:24]

    assert idempotency_key("conversation-1", 42, "call_7") == f"idem_{expected}"
    assert idempotency_key("conversation-1", 43, "call_7") != idempotency_key("conversation-1", 42, "call_7")


def test_a_key_can_be_made_of_an_id_that_is_no_valid_text() -> None:
    assert idempotency_key("t", 1, "\ud83d").startswith("idem_")


@pytest.mark.row("S4-034")
def test_a_state_has_no_place_for_configuration() -> None:
    names = {field.name for field in attrs.fields(cast("Any", State))}

    assert names == {
        "agent",
        "definition",
        "messages",
        "todos",
        "metadata",
        "interrupts",
        "decisions",
        "pending",
        "queue",
        "run",
        "usage",
        "error",
        "counters",
        "routing",
        "origin",
        "sub_agents",
    }


def test_a_changed_copy_leaves_the_original_and_refuses_unknown_fields() -> None:
    state = State()

    assert evolve(state, error="x").error == "x"
    assert state.error == ""
    with pytest.raises(TypeError, match="mesages"):
        evolve(state, mesages=())

"""Stream events."""

from __future__ import annotations

from typing import Any, cast

import attrs

from sapwood.actors import wire_of
from sapwood.conversation import LOSS, StatusChanged, StreamEvent, TextStreamed, ToolCallSeen


def kinds() -> list[type[StreamEvent]]:
    return StreamEvent.__subclasses__()


def test_every_kind_of_event_says_whether_it_may_be_dropped_and_only_deltas_may() -> None:
    assert set(LOSS) == set(kinds())
    assert {kind for kind, loss in LOSS.items() if loss == "may_be_dropped"} == {TextStreamed, ToolCallSeen}


def test_every_event_begins_with_agent_run_number_and_time_and_has_a_wire_name_of_its_own() -> None:
    names = [wire.name for kind in kinds() if (wire := wire_of(kind)) is not None]

    assert len(set(names)) == len(kinds())
    for kind in kinds():
        assert [field.name for field in attrs.fields(cast("Any", kind))][:4] == ["agent_id", "run_id", "seq", "at"]


def test_an_event_is_made_of_its_common_part_and_its_own() -> None:
    event = StatusChanged("agent-1", "run-1", 7, 1.5, "running")

    assert (event.agent_id, event.run_id, event.seq, event.at) == ("agent-1", "run-1", 7, 1.5)
    assert (event.status, event.detail) == ("running", "")

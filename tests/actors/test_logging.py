from __future__ import annotations

import logging
from typing import Any

import pytest
import structlog
from trio.testing import MockClock

from sapwood.actors import ActorSystem, Crashed, get_logger, log_events
from sapwood.actors._logging import CONTEXTS, LEVELS, TEXTS
from sapwood.actors._telemetry import KINDS, Spawned
from tests.actors.kit import Do, Note, Probe, end_of, raising


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.WARNING, "sapwood")
    return caplog


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    found: dict[str, Any] = vars(record)["sapwood"]
    return found


@pytest.mark.row("P01", "P07")
async def test_a_crash_is_logged_with_who_why_and_where(
    autojump_clock: MockClock, system: ActorSystem, lines: pytest.LogCaptureFixture
) -> None:
    log_events(system.telemetry)
    ref = await system.spawn(Probe)
    ref.tell(Do(raising(ValueError("100 % wrong"))))
    reason = await end_of(ref)
    [record] = lines.records
    assert record.levelno == logging.ERROR
    assert record.name == "sapwood"
    assert fields_of(record)["actor"] == ref.label
    assert fields_of(record)["reason"] == "crashed with ValueError: 100 % wrong"
    assert fields_of(record)["last_message"] == "Do"
    assert isinstance(reason, Crashed)
    assert reason.traceback() in record.getMessage()


async def test_no_line_shows_what_a_message_or_a_state_holds(
    autojump_clock: MockClock, system: ActorSystem, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "sapwood")
    log_events(system.telemetry)
    ref = await system.spawn(Probe)
    ref.tell(Note("sk-secret-in-the-state"))
    ref.tell(Do(raising(ValueError("no"))))
    ref.tell(Note("sk-secret-that-is-unread"))
    await end_of(ref)
    assert {fields_of(record)["event"] for record in caplog.records} == {
        "actor started",
        "actor crashed",
        "dead letter",
        "actor ended",
    }
    assert "sk-secret" not in caplog.text


async def test_what_is_too_quiet_for_the_logger_is_not_even_made(
    autojump_clock: MockClock, system: ActorSystem, lines: pytest.LogCaptureFixture
) -> None:
    stop = log_events(system.telemetry)
    assert Spawned not in system.telemetry.wanted
    stop()
    assert not system.telemetry.wanted


async def test_what_the_host_bound_for_structlog_is_in_every_line(
    autojump_clock: MockClock, system: ActorSystem, lines: pytest.LogCaptureFixture
) -> None:
    with structlog.contextvars.bound_contextvars(correlation_id="c-1"):
        get_logger("sapwood.bus").warning("refused", sender="a")
    [record] = lines.records
    assert record.getMessage() == "refused sender=a correlation_id=c-1"
    assert fields_of(record) == {"event": "refused", "sender": "a", "correlation_id": "c-1"}


def test_every_kind_of_event_has_a_level_and_a_text() -> None:
    assert set(LEVELS) == set(TEXTS) == set(KINDS)
    assert set(CONTEXTS) == {"start_error", "child_terminated", "shutdown_error", "shutdown"}

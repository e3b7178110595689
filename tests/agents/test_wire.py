"""The wire: what clients in other processes ask of a conversation and are told, as versioned JSON."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any, get_args

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from sapwood import Agent, Runtime, ScriptedModel, tool
from sapwood.actors import wire_of
from sapwood.agents import decode_command, refusal
from sapwood.conversation import (
    HTTP_STATUS,
    CancelCommand,
    CancelQueuedCommand,
    Command,
    CommandOutcome,
    DecideCommand,
    Decided,
    DismissCommand,
    Done,
    EditQueuedCommand,
    NotifyCommand,
    PauseCommand,
    QueueOutcome,
    Refused,
    ResetCommand,
    ResumeCommand,
    RunFinished,
    SendCommand,
    StatusCommand,
    StatusOutcome,
    Taken,
    command_to_json,
    event_to_json,
    outcome_from_json,
    outcome_to_json,
    snapshot_from_json,
    snapshot_to_json,
    wire_schema,
)
from sapwood.errors import (
    ActorDown,
    CodecError,
    FutureVersion,
    InvalidOption,
    RegistryUnavailable,
    RunInProgress,
    StaleEpoch,
    StoreUnavailable,
)
from sapwood.middleware import HumanInTheLoop, Middleware, MiddlewareContext
from sapwood.models import Delay, call
from tests.agents.kit import names, transcript, until, waiting_events

# Imported by name, since it has no types of its own.
Draft202012Validator: Any = importlib.import_module("jsonschema").Draft202012Validator
SCHEMA = wire_schema()
PUBLISHED = Path(__file__).parents[2] / "docs" / "wire-schema.json"


def validator(part: str) -> Any:
    return Draft202012Validator({**SCHEMA, "oneOf": [{"$ref": f"#/$defs/{part}"}]})


@tool
def refund(cents: int) -> str:
    """Refund. cents: how much."""
    return f"refunded {cents}"


class Listening(Middleware):
    """Notes what it is told."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    async def handle_message(self, message: Any, context: MiddlewareContext) -> None:
        await trio.lowlevel.checkpoint()
        if message == {"break": True}:
            raise ConnectionError("broken")
        self.heard.append(message)


# --- the schema -------------------------------------------------------------------------------------


def test_the_published_schema_is_the_one_of_the_code() -> None:
    assert json.loads(PUBLISHED.read_text(encoding="utf-8")) == json.loads(json.dumps(SCHEMA)), (
        "write json.dumps(wire_schema(), indent=2, sort_keys=True) into it"
    )
    Draft202012Validator.check_schema(SCHEMA)


def test_the_schema_names_every_command_and_outcome() -> None:
    for part, kinds in (("Command", get_args(Command)), ("CommandOutcome", get_args(CommandOutcome))):
        listed = [SCHEMA["$defs"][each["$ref"].rpartition("/")[2]] for each in SCHEMA["$defs"][part]["oneOf"]]
        wire_names = [wire.name for kind in kinds if (wire := wire_of(kind)) is not None]
        assert [each["properties"]["type"]["const"] for each in listed] == wire_names
    assert all(definition["description"] for definition in SCHEMA["$defs"].values())


texts = st.text(max_size=5)
COMMANDS: st.SearchStrategy[Command] = st.one_of(
    st.builds(SendCommand, texts, texts, st.sampled_from(["now", "next_turn", "next_run"]), id=texts),
    st.builds(DecideCommand, texts, st.sampled_from(["approve", "edit"]), st.dictionaries(texts, st.integers(-9, 9))),
    st.builds(CancelCommand, texts, st.floats(0, 10), texts),
    st.builds(PauseCommand, texts),
    st.builds(ResumeCommand, texts),
    st.builds(EditQueuedCommand, texts, texts, texts),
    st.builds(CancelQueuedCommand, texts, texts),
    st.builds(DismissCommand, texts),
    st.builds(NotifyCommand, texts, st.dictionaries(texts, st.booleans())),
    st.builds(ResetCommand, st.booleans()),
    st.builds(StatusCommand),
)


@given(COMMANDS, st.data())
def test_every_command_comes_back_as_it_was_and_may_leave_out_what_has_a_default(
    command: Command, data: st.DataObject
) -> None:
    written = json.loads(json.dumps(command_to_json(command)))
    check = validator("Command")
    assert decode_command(written) == decode_command(json.dumps(written)) == command
    check.validate(written)
    for key in data.draw(st.sets(st.sampled_from(sorted(written)))):
        shorter = {name: value for name, value in written.items() if name != key}
        if check.is_valid(shorter):
            decode_command(shorter)
            continue
        with pytest.raises(CodecError) as caught:
            decode_command(shorter)
        assert key in caught.value.path
    assert not check.is_valid({**written, "colour": "red"})


@pytest.mark.parametrize(
    ("bad", "error", "text"),
    [
        ("send", CodecError, "command: expected JSON"),
        (b"\xff", CodecError, "command: expected JSON"),
        ("[]", CodecError, 'expected an object such as {"version": 1'),
        ({"type": "command.send", "text": "hi"}, CodecError, "command.version: expected 1"),
        ({"version": "1", "type": "command.send", "text": "hi"}, CodecError, "command.version"),
        ({"version": 2, "type": "command.fly"}, FutureVersion, "knows up to 1"),
        ({"version": 1, "type": "command.sned"}, CodecError, "command.type: expected 'command.send'"),
        ({"version": 1}, CodecError, "command.type: expected one of command.send, "),
        ({"version": 1, "type": ["x"]}, CodecError, "command.type"),
        ({"version": 1, "type": "command.send"}, CodecError, "command.text: expected a value"),
        ({"version": 1, "type": "command.send", "txet": "hi"}, CodecError, "command.txet: expected 'text'"),
        ({"version": 1, "type": "command.send", "text": 7}, CodecError, "command.text: expected text; got int"),
        ({"version": 1, "type": "command.send", "text": "a", "delivery": "soon"}, CodecError, "now, next_turn"),
        ({"version": 1, "type": "command.decide", "interrupt_id": "i", "verdict": "ok"}, CodecError, "approve"),
        (
            {"version": 1, "type": "command.decide", "interrupt_id": "i", "verdict": "approve", "by": "me"},
            CodecError,
            "by",
        ),
        ({"version": 1, "type": "command.cancel", "grace": True}, CodecError, "command.grace"),
    ],
    ids=lambda value: None if isinstance(value, dict) else "",
)
def test_what_is_no_command_is_refused_with_what_would_be_right(bad: object, error: type[Exception], text: str) -> None:
    with pytest.raises(error) as caught:
        decode_command(bad)
    assert text in str(caught.value)
    if isinstance(bad, dict):
        assert not validator("Command").is_valid(bad)


# --- carrying out -----------------------------------------------------------------------------------


def ask(kind: str, **fields: Any) -> Command:
    return decode_command({"version": 1, "type": f"command.{kind}", "id": "7", **fields})


async def done(session: Any, kind: str, **fields: Any) -> CommandOutcome:
    """Execute a command as a client would, and check that its outcome can be sent."""
    outcome: CommandOutcome = await session.execute(ask(kind, **fields), by="ann")
    written = json.loads(json.dumps(outcome_to_json(outcome)))
    validator("CommandOutcome").validate(written)
    assert outcome_from_json(written) == outcome
    assert outcome.id == "7"
    return outcome


async def test_a_message_and_a_decision_are_carried_out_and_named(runtime: Runtime, autojump_clock: MockClock) -> None:
    model = ScriptedModel(call("refund", cents=7500), "Done.")
    agent = Agent("a", model=model, tools=[refund], middleware=[HumanInTheLoop(refund=True)])
    session = await runtime.sessions.ensure_running(agent, "c1")
    with session.events() as events:
        taken = await done(session, "send", text="Refund it", message_id="m1")
        assert isinstance(taken, Taken)
        assert (taken.message_id, taken.queued, bool(taken.run_id)) == ("m1", False, True)
        seen, finished = await until(events, RunFinished)
        assert finished.outcome == "interrupted"
        for event in seen:
            validator("StreamEvent").validate(json.loads(json.dumps(event_to_json(event))))
        [interrupt] = session.state.undecided
        wrong = await done(session, "decide", interrupt_id=interrupt.id, verdict="edit", arguments={"cents": "x"})
        assert isinstance(wrong, Decided)
        assert wrong.answer == "invalid"
        yes = await done(session, "decide", interrupt_id=interrupt.id, verdict="edit", arguments={"cents": 2500})
        assert yes == Decided("accepted", id="7")
        await until(events, RunFinished, outcome="completed")
    assert any(line.startswith("refund: refunded 2500") for line in transcript(session.state.messages))
    assert session.state.decisions[0].by == "ann"
    late = await done(session, "decide", interrupt_id=interrupt.id, verdict="approve")
    assert late == Decided("already_decided", by="ann", verdict="edit", id="7")
    never = await done(session, "decide", interrupt_id="nowhere", verdict="approve")
    assert isinstance(never, Decided)
    assert never.answer == "stale"


async def test_a_run_is_steered_by_commands(runtime: Runtime, autojump_clock: MockClock) -> None:
    model = ScriptedModel([Delay(10), "one"], then="two")
    session = await runtime.sessions.ensure_running(Agent("a", model=model), "c1")
    assert await done(session, "cancel") == Done(changed=False, id="7")
    await done(session, "send", text="hi")
    queued = await done(session, "send", text="anothr", message_id="m2")
    assert queued == Taken("m2", "", queued=True, id="7")
    assert await done(session, "edit_queued", message_id="m2", text="another") == QueueOutcome("done", "7")
    assert session.queue[0].message.text == "another"
    assert await done(session, "cancel_queued", message_id="m2") == QueueOutcome("done", "7")
    assert await done(session, "cancel_queued", message_id="m3") == QueueOutcome("unknown", "7")
    status = await done(session, "status")
    assert isinstance(status, StatusOutcome)
    assert (status.status, status.queued) == ("running", 0)
    refused = await done(session, "send", text="now", while_running="reject")
    assert isinstance(refused, Refused)
    assert (refused.reason, refused.http_status, refused.retry_after) == ("busy", 409, None)
    assert isinstance(await done(session, "reset"), Refused)
    assert await done(session, "pause") == Done(changed=True, id="7")
    assert await done(session, "resume") == Done(changed=True, id="7")
    assert await done(session, "dismiss", interrupt_id="x") == Done(changed=False, id="7")
    assert await done(session, "cancel", reason="enough", grace=0) == Done(changed=True, id="7")
    await trio.sleep(1)
    assert await done(session, "reset") == Done(changed=True, id="7")
    assert session.state.messages == ()


async def test_a_middleware_is_told_and_its_failure_is_an_outcome(runtime: Runtime, autojump_clock: MockClock) -> None:
    listening = Listening()
    session = await runtime.sessions.ensure_running(Agent("a", model=ScriptedModel(), middleware=[listening]), "c1")
    assert await done(session, "notify", middleware="Listening", message={"a": 1}) == Done(changed=True, id="7")
    assert await done(session, "notify", middleware="Nobody", message={}) == Done(changed=False, id="7")
    broken = await done(session, "notify", middleware="Listening", message={"break": True})
    assert broken == Refused("failed", "broken", None, "7")
    blank = await done(session, "send", text=" ")
    assert isinstance(blank, Refused)
    assert (blank.reason, blank.http_status) == ("invalid", 400)
    assert listening.heard == [{"a": 1}]


@pytest.mark.row("S4-044", "S4-045", "S4-048")
async def test_not_running_and_cannot_tell_are_different_outcomes(runtime: Runtime, autojump_clock: MockClock) -> None:
    await runtime.sessions.ensure_running(Agent("a", model=ScriptedModel()), "c1")
    session = runtime.sessions.session("c1")
    await runtime.sessions.stop("c1")
    absent = await done(session, "status")
    assert isinstance(absent, Refused)
    assert (absent.reason, absent.http_status, absent.retry_after) == ("not_running", 404, None)
    runtime.registry.drain()
    unknown = await done(session, "send", text="hi")
    assert isinstance(unknown, Refused)
    assert (unknown.reason, unknown.http_status) == ("unavailable", 503)
    assert unknown.retry_after is not None


@pytest.mark.row("S4-048")
@pytest.mark.parametrize(
    ("error", "status", "retry_after"),
    [
        (RegistryUnavailable("x", "recovering", 2.5), 503, 2.5),
        (StoreUnavailable("store.db", "is locked"), 503, 1.0),
        (StaleEpoch("c1", 1, 2), 503, 1.0),
        (ActorDown("agent 'c1'"), 404, None),
        (InvalidOption("x"), 400, None),
        (CodecError("a", "b"), 400, None),
        (RunInProgress("c1", "r1", "running"), 409, None),
        (ConnectionError("x"), 500, None),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_only_what_may_be_tried_again_maps_to_503(error: Exception, status: int, retry_after: float | None) -> None:
    refused = refusal(error)
    assert (refused.http_status, refused.retry_after) == (status, retry_after)
    assert set(HTTP_STATUS.values()) == {400, 404, 409, 500, 503}


# --- joining ----------------------------------------------------------------------------------------


@pytest.mark.row("AR-24.35")
async def test_who_joins_has_everything_up_to_a_number_and_every_event_after_it(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    model = ScriptedModel("one", ["half ", Delay(5), "and half"])
    session = await runtime.sessions.ensure_running(Agent("a", model=model), "c1")
    await session.say("hi")
    async with session.send("again"):
        await trio.sleep(1)
        snapshot, events = session.join()
        with events:
            assert snapshot.status == "running"
            assert transcript(snapshot.messages) == ["user: hi", "model: one", "user: again"]
            written = json.loads(json.dumps(snapshot_to_json(snapshot)))
            validator("Snapshot").validate(written)
            assert snapshot_from_json(written) == snapshot
            await trio.sleep(10)
            following = await waiting_events(events)
    assert following[0].seq == snapshot.seq + 1
    assert [event.seq for event in following] == list(range(snapshot.seq + 1, snapshot.seq + 1 + len(following)))
    assert names(following)[-1] == "RunFinished"


async def test_nobody_joins_a_conversation_that_no_server_has_loaded(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    with pytest.raises(ActorDown):
        runtime.sessions.session("c1").join()

"""The fold of the journal."""

from __future__ import annotations

import copy
import typing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.actors import wire_of
from sapwood.conversation import (
    AddMessage,
    AssistantMessage,
    Decision,
    Deferral,
    Interrupt,
    Message,
    Operation,
    Origin,
    PatchMetadata,
    QueuedMessage,
    QueueMessage,
    SetTodos,
    State,
    SubAgent,
    Todo,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
    Verdict,
    evolve,
    orphan_results,
)
from sapwood.conversation import journal as j
from sapwood.errors import CodecError, InvalidMessage, InvalidOption

CALLS = ("c1", "c2", "c3")


def user(text: str = "hello", message_id: str = "u") -> UserMessage:
    return UserMessage(text, message_id)


def asks(*ids: str, message_id: str = "a") -> AssistantMessage:
    calls = tuple(ToolCall(each, "tool", {"n": 1}) for each in ids)
    return AssistantMessage("", calls, message_id, "tools", Usage(10, 5))


def result(call_id: str, content: str = "ok", message_id: str = "") -> ToolResult:
    return ToolResult(call_id, "tool", content, id=message_id)


def intent(call_id: str, attempt: int = 1) -> j.ToolIntended:
    return j.ToolIntended(ToolCall(call_id, "tool", {"n": 1}), f"idem_{call_id}", attempt)


def asks_list(ids: list[str], message_id: str) -> AssistantMessage:
    return asks(*ids, message_id=message_id)


def setting(key: str, value: int) -> PatchMetadata:
    return PatchMetadata({key: value})


def removal(key: str) -> PatchMetadata:
    return PatchMetadata(remove=(key,))


def said_later(text: str) -> QueueMessage:
    return QueueMessage(user(text, f"m{text}"))


def queued(item_id: str, text: str) -> j.MessageQueued:
    return j.MessageQueued(QueuedMessage(item_id, user(text, f"m{item_id}")))


def answered(run_id: str, ids: list[str]) -> j.ModelAnswered:
    return j.ModelAnswered(run_id, asks(*ids))


def finished_with(call_id: str, some: tuple[Operation, ...]) -> j.ToolFinished:
    return j.ToolFinished(result(call_id), some)


def failed_attempt(run_id: str, following: j.AfterFailure) -> j.ModelAttemptFailed:
    return j.ModelAttemptFailed(run_id, "model", "busy", Usage(1, 1), following)


def raised(call_id: str) -> j.InterruptRaised:
    return j.InterruptRaised(Interrupt(call_id, "approval", ToolCall(call_id, "tool")))


def decided(call_id: str, verdict: Verdict) -> j.InterruptDecided:
    return j.InterruptDecided(Decision(call_id, verdict))


call_ids = st.sampled_from([*CALLS, "ghost"])
message_ids = st.sampled_from(["m1", "m2", "m3", ""])
keys = st.sampled_from(["title", "files"])
messages = st.one_of(
    st.builds(user, st.sampled_from(["x", "y"]), message_ids),
    st.builds(asks_list, st.lists(st.sampled_from(CALLS), unique=True), message_ids),
    st.builds(result, call_ids, st.sampled_from(["1", "2"]), message_ids),
)
operations = st.one_of(
    st.builds(AddMessage, messages),
    st.builds(SetTodos, st.lists(st.builds(Todo, st.integers(0, 3), st.just("do"))).map(tuple), st.booleans()),
    st.builds(setting, keys, st.integers()),
    st.builds(removal, keys),
    st.builds(said_later, st.sampled_from(["x", "y"])),
)
several = st.lists(operations, max_size=2).map(tuple)
outcomes = st.sampled_from(["completed", "failed", "cancelled", "interrupted", "paused", "waiting"])
runs = st.sampled_from(["r1", "r2"])
events: st.SearchStrategy[j.JournalEvent] = st.one_of(
    st.builds(j.ConversationCreated, st.just("agent")),
    st.builds(j.ConversationRouted, st.just({"user": 1})),
    st.builds(j.ConversationCopied, st.just(Origin("c0")), st.lists(messages, max_size=1).map(tuple)),
    st.builds(j.MessageAdded, messages),
    st.builds(queued, st.sampled_from(["q1", "q2"]), st.sampled_from(["x", "y"])),
    st.builds(j.MessageUnqueued, st.sampled_from(["q1", "q2"]), st.sampled_from(["delivered", "cancelled"])),
    st.builds(j.QueuedMessageEdited, st.sampled_from(["q1", "q2"]), st.just("edited")),
    st.builds(j.RunStarted, runs, st.sampled_from(["message", "queue", "self", "resume", "restart"])),
    st.builds(j.RunFinished, runs, outcomes, st.sampled_from(["", "why"])),
    st.builds(j.ModelCallStarted, runs),
    st.builds(answered, runs, st.lists(st.sampled_from(CALLS), unique=True)),
    st.builds(intent, call_ids, st.integers(1, 3)),
    st.builds(j.ToolStarted, call_ids),
    st.builds(j.ToolDeferred, call_ids, st.just(Deferral("job"))),
    st.builds(j.PauseAsked, runs),
    st.builds(failed_attempt, runs, st.sampled_from(["retry", "fallback", "fail", "stop"])),
    st.builds(finished_with, call_ids, several),
    st.builds(j.OperationsApplied, several),
    st.builds(
        j.MessagesReplaced,
        st.lists(message_ids, max_size=2).map(tuple),
        st.lists(messages, max_size=2).map(tuple),
        message_ids,
    ),
    st.builds(raised, call_ids),
    st.builds(decided, call_ids, st.sampled_from(["approve", "reject", "escalate"])),
    st.builds(j.InterruptClosed, call_ids),
    st.builds(j.StateReset, st.booleans()),
)
histories = st.lists(events, max_size=25)


def test_every_journal_event_has_a_change_in_the_table_and_a_wire_name() -> None:
    kinds = typing.get_args(j.JournalEvent)

    for kind in kinds:
        assert wire_of(kind) is not None
    assert {type(event) for event in _one_of_each()} == set(kinds)
    assert j.fold(State(), _one_of_each()).agent == "support"


def _one_of_each() -> list[j.JournalEvent]:
    interrupt = Interrupt("c1", "approval", ToolCall("c1", "tool"))
    return [
        j.ConversationCreated("support", "hash"),
        j.ConversationRouted({"user": 1}),
        j.ConversationCopied(Origin("c0")),
        j.MessageAdded(user()),
        j.MessageQueued(QueuedMessage("q1", user("later", "m"))),
        j.QueuedMessageEdited("q1", "sooner"),
        j.MessageUnqueued("q1"),
        j.RunStarted("r1"),
        j.ModelCallStarted("r1"),
        j.ModelAnswered("r1", asks("c1")),
        j.InterruptRaised(interrupt),
        j.InterruptDecided(Decision("c1", "approve")),
        intent("c1"),
        j.ToolStarted("c1"),
        j.ToolDeferred("c1", Deferral("job-1")),
        j.ToolFinished(result("c1")),
        j.PauseAsked("r1"),
        j.ModelAttemptFailed("r1", "model", "busy"),
        j.InterruptClosed("c1"),
        j.OperationsApplied((PatchMetadata({"title": "t"}),)),
        j.MessagesReplaced(("u",)),
        j.RunFinished("r1"),
        j.SubAgentStarted(SubAgent(ToolCall("c1", "task"), "key", "a/c1", "worker")),
        j.SubAgentEnded("c1", "completed"),
        j.StateReset(),
    ]


@given(histories, st.integers(0, 25))
def test_the_fold_is_deterministic_and_a_snapshot_anywhere_changes_nothing(
    history: list[j.JournalEvent], cut: int
) -> None:
    whole = j.fold(State(), history)
    snapshot = j.fold(State(), history[:cut])

    assert j.fold(snapshot, history[cut:]) == whole
    assert j.fold(State(), copy.deepcopy(history)) == whole


@given(histories)
@pytest.mark.row("UP-71")
def test_no_event_changes_the_state_it_is_applied_to(history: list[j.JournalEvent]) -> None:
    state = State()
    for event in history:
        before = copy.deepcopy(state)
        following = j.apply(state, event)
        assert state == before
        state = following


@given(histories)
def test_whatever_the_events_no_result_is_without_its_call_and_no_call_has_two(history: list[j.JournalEvent]) -> None:
    assert orphan_results(j.fold(State(), history).messages) == ()


@given(histories)
def test_whatever_the_events_ids_are_unique_and_todos_sorted(history: list[j.JournalEvent]) -> None:
    state = j.fold(State(), history)

    for ids in (
        [each.id for each in state.interrupts],
        [each.interrupt_id for each in state.decisions],
        [each.call.id for each in state.pending],
        [each.id for each in state.queue],
    ):
        assert len(set(ids)) == len(ids)
    assert [todo.id for todo in state.todos] == sorted({todo.id for todo in state.todos})


@given(histories)
def test_counts_never_go_down(history: list[j.JournalEvent]) -> None:
    state = State()
    for event in history:
        following = j.apply(state, event)
        assert following.counters.model_calls >= state.counters.model_calls
        assert following.counters.tool_calls >= state.counters.tool_calls
        assert following.usage.input_tokens >= state.usage.input_tokens
        state = following


def test_an_object_that_is_no_event_is_refused() -> None:
    with pytest.raises(InvalidMessage, match="expected a journal event; got UserMessage"):
        j.apply(State(), user())  # type: ignore[arg-type]


# --- tool calls -----------------------------------------------------------------------------------


@pytest.mark.row("UP-32")
def test_results_of_parallel_calls_stand_in_the_order_of_calls_whatever_finishes_first() -> None:
    state = j.fold(State(), [j.ModelAnswered("r", asks("c1", "c2", "c3")), *map(intent, CALLS)])

    state = j.fold(state, [j.ToolFinished(result(each)) for each in ("c3", "c1", "c2")])

    assert [message.call_id for message in state.messages if isinstance(message, ToolResult)] == ["c1", "c2", "c3"]
    assert state.pending == ()


def test_a_message_that_a_tool_adds_stays_after_the_results_of_its_siblings() -> None:
    state = j.fold(
        State(),
        [
            j.MessageAdded(asks("c1", "c2")),
            j.ToolFinished(result("c1"), (AddMessage(user("by the tool")),)),
            j.ToolFinished(result("c2")),
        ],
    )

    assert state.messages == (asks("c1", "c2"), result("c1"), result("c2"), user("by the tool"))


def test_a_call_is_pending_from_its_intent_to_its_result() -> None:
    state = j.fold(State(), [j.MessageAdded(asks("c1")), intent("c1")])
    assert [(each.key, each.attempt, each.phase) for each in state.pending] == [("idem_c1", 1, "intended")]

    state = j.apply(state, j.ToolStarted("c1"))
    assert state.pending[0].phase == "started"

    state = j.apply(state, intent("c1", attempt=2))
    assert [(each.attempt, each.phase) for each in state.pending] == [(2, "intended")]
    assert state.counters.tool_calls == 1

    assert j.apply(state, j.ToolFinished(result("c1"))).pending == ()


@pytest.mark.row("AR-22.7")
def test_a_second_result_and_its_operations_have_no_effect() -> None:
    finished = j.ToolFinished(result("c1"), (PatchMetadata({"count": 1}), AddMessage(user("once"))))
    state = j.fold(State(), [j.MessageAdded(asks("c1")), intent("c1"), finished])

    again = j.ToolFinished(result("c1", "other"), (PatchMetadata({"count": 2}), AddMessage(user("twice"))))

    assert j.apply(state, finished) == state
    assert j.apply(state, again) == state


def test_a_call_whose_message_was_summarized_away_keeps_its_effect_and_leaves_no_orphan() -> None:
    state = j.fold(
        State(),
        [
            j.MessageAdded(asks("c1", message_id="old")),
            intent("c1"),
            j.MessagesReplaced(("old",), (user("summary"),)),
            j.ToolFinished(result("c1"), (PatchMetadata({"done": True}),)),
        ],
    )

    assert state.messages == (user("summary"),)
    assert state.metadata == {"done": True}
    assert state.pending == ()


def test_a_call_that_is_tried_again_after_it_was_answered_does_not_act_a_second_time() -> None:
    state = j.fold(State(), [j.MessageAdded(asks("c1")), intent("c1"), j.ToolFinished(result("c1", "unknown"))])

    state = j.fold(state, [intent("c1", 2), j.ToolFinished(result("c1"), (PatchMetadata({"done": True}),))])

    assert state.messages == (asks("c1"), result("c1", "unknown"))
    assert state.metadata == {}
    assert state.pending == ()


def test_a_result_for_a_call_that_nobody_made_is_ignored() -> None:
    state = j.fold(State(), [j.MessageAdded(user())])

    assert j.apply(state, j.ToolFinished(result("ghost"), (PatchMetadata({"x": 1}),))) == state


# --- operations -----------------------------------------------------------------------------------


@pytest.mark.row("AR-22.7")
def test_an_operation_changes_what_it_names_and_leaves_everything_else() -> None:
    state = State(messages=(user(),), todos=(Todo(1, "plan"),), metadata={"title": "t", "files": {"a": 1}})

    patched = j.apply(state, j.OperationsApplied((PatchMetadata({"files": {"b": 2}}, ("absent",)),)))

    assert patched == evolve(state, metadata={"title": "t", "files": {"b": 2}})
    assert j.apply(state, j.OperationsApplied((PatchMetadata(remove=("title",)),))).metadata == {"files": {"a": 1}}


def test_todos_are_merged_or_replaced_as_the_operation_says() -> None:
    state = State(todos=(Todo(1, "plan"), Todo(2, "build")))

    merged = j.apply(state, j.OperationsApplied((SetTodos((Todo(2, "build", "completed"),), merge=True),)))
    replaced = j.apply(state, j.OperationsApplied((SetTodos((Todo(5, "ship"),)),)))

    assert merged.todos == (Todo(1, "plan"), Todo(2, "build", "completed"))
    assert replaced.todos == (Todo(5, "ship"),)


@pytest.mark.row("UP-71")
def test_metadata_is_isolated_from_the_value_it_was_made_of() -> None:
    value = {"list": [1]}
    state = j.apply(State(), j.OperationsApplied((PatchMetadata(value),)))
    value["list"].append(2)

    assert state.metadata == {"list": [1]}


@pytest.mark.row("UP-70")
def test_metadata_that_json_cannot_say_is_refused_before_anything_is_written() -> None:
    with pytest.raises(CodecError, match=r"metadata\.a\[1\]\.b: expected a JSON-like value; got set"):
        PatchMetadata({"a": [1, {"b": {1, 2}}]})


def test_a_key_that_is_set_and_removed_at_once_is_refused() -> None:
    with pytest.raises(InvalidOption, match="metadata key 'a'"):
        PatchMetadata({"a": 1}, ("a",))


# --- messages -------------------------------------------------------------------------------------


def test_messages_are_replaced_at_the_place_of_the_first_removed_one() -> None:
    state = State(messages=tuple(user(each, each) for each in "abcd"))

    new = j.apply(state, j.MessagesReplaced(("b", "c"), (user("summary", "s"),)))

    assert [message.id for message in new.messages] == ["a", "s", "d"]


def test_messages_are_inserted_before_a_named_one_or_at_the_end() -> None:
    state = State(messages=(user("a", "a"), user("b", "b")))
    new = user("new", "n")

    assert [each.id for each in j.apply(state, j.MessagesReplaced((), (new,), "b")).messages] == ["a", "n", "b"]
    assert [each.id for each in j.apply(state, j.MessagesReplaced((), (new,))).messages] == ["a", "b", "n"]


def test_removing_a_call_removes_its_results_too() -> None:
    conversation: tuple[Message, ...] = (user(), asks("c1"), result("c1", message_id="r"), user("next", "n"))

    state = j.apply(State(messages=conversation), j.MessagesReplaced(("a",)))

    assert state.messages == (user(), user("next", "n"))


def test_a_repair_puts_results_next_to_their_calls_and_settles_pending_ones() -> None:
    state = j.fold(State(), [j.MessageAdded(asks("c1", "c2")), intent("c1"), j.MessageAdded(user("after"))])

    state = j.apply(state, j.MessagesReplaced((), (result("c2"), result("c1"))))

    assert state.messages == (asks("c1", "c2"), result("c1"), result("c2"), user("after"))
    assert state.pending == ()


# --- queue ----------------------------------------------------------------------------------------


def test_a_queued_message_is_delivered_once_in_one_step() -> None:
    state = j.fold(State(), [j.MessageQueued(QueuedMessage("q1", user("hi", "m1")))])
    delivered = j.apply(state, j.MessageUnqueued("q1"))

    assert state.messages == ()
    assert delivered.messages == (user("hi", "m1"),)
    assert delivered.queue == ()
    assert j.apply(delivered, j.MessageUnqueued("q1")) == delivered


def test_a_queued_message_can_be_edited_and_cancelled_until_it_is_delivered() -> None:
    state = j.fold(State(), [j.MessageQueued(QueuedMessage(each, user("hi", each))) for each in ("q1", "q2")])

    edited = j.apply(state, j.QueuedMessageEdited("q2", "hello"))
    cancelled = j.apply(edited, j.MessageUnqueued("q1", "cancelled"))

    assert [(item.id, item.message.text) for item in cancelled.queue] == [("q2", "hello")]
    assert cancelled.messages == ()


# --- runs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        ("completed", "idle"),
        ("cancelled", "idle"),
        ("failed", "error"),
        ("interrupted", "interrupted"),
        ("paused", "paused"),
        ("waiting", "waiting"),
    ],
)
def test_the_status_follows_from_how_the_run_ended(outcome: j.RunOutcome, status: str) -> None:
    state = j.apply(State(), j.RunStarted("r1"))
    assert state.status == "running"

    assert j.apply(state, j.RunFinished("r1", outcome)).status == status


def test_a_failure_is_remembered_with_its_reason_until_the_next_run_and_the_conversation_stays() -> None:
    state = j.fold(State(), [j.MessageAdded(user()), j.RunStarted("r1"), j.RunFinished("r1", "failed", "overloaded")])

    assert (state.status, state.error, state.messages) == ("error", "overloaded", (user(),))
    assert j.apply(state, j.RunStarted("r2")).error == ""


def test_a_resumed_run_keeps_its_counts() -> None:
    calls: list[j.JournalEvent] = [j.ModelCallStarted("r1"), j.ModelAnswered("r1", asks("c1")), intent("c1")]
    state = j.fold(State(), [j.RunStarted("r1"), *calls, j.RunFinished("r1", "interrupted")])

    state = j.fold(state, [j.RunStarted("r1", "resume"), j.ModelCallStarted("r1")])

    assert state.run is not None
    assert (state.run.phase, state.run.model_calls, state.run.tool_calls) == ("running", 2, 1)
    assert state.run.usage == Usage(10, 5)
    assert (state.counters.runs, state.counters.model_calls) == (1, 2)


def test_the_late_end_of_a_superseded_run_changes_nothing() -> None:
    state = j.fold(State(), [j.RunStarted("r1"), j.RunStarted("r2")])

    assert j.apply(state, j.RunFinished("r1", "failed", "late")) == state


def test_runs_that_an_agent_starts_itself_are_counted_until_a_person_speaks() -> None:
    state = j.fold(State(), [j.RunStarted("r1", "self"), j.RunStarted("r2", "self"), j.RunStarted("r3", "restart")])
    assert state.counters.self_started == 2

    assert j.apply(state, j.RunStarted("r4", "message")).counters.self_started == 0


def test_a_reset_clears_the_conversation_and_keeps_what_was_consumed() -> None:
    full = j.fold(State(), [*_one_of_each()[:-1], j.RunStarted("r2")])

    reset = j.apply(full, j.StateReset())

    assert reset == State(
        agent="support",
        definition="hash",
        usage=full.usage,
        counters=full.counters,
        routing={"user": 1},
        origin=Origin("c0"),
    )
    assert j.apply(full, j.StateReset(keep_metadata=True)).metadata == {"title": "t"}

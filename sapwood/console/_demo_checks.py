"""What the demonstration promises, and the facts that say whether it held."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import attrs

from sapwood.console._demo_parts import (
    AUDITED,
    CONVERSATION,
    ORDERS,
    REFUND,
    REFUND_CENTS,
    TO_NOBODY,
    TOTAL,
    WORK,
    Payment,
)
from sapwood.console._demo_watch import RegistryWatch, Stop
from sapwood.console._narrator import Verdict
from sapwood.console._stored import StoredAgent
from sapwood.console._terminal import count
from sapwood.console._transcript import call_line
from sapwood.conversation import AlreadyDecided, DecisionOutcome, Interrupt, RunFinished, ToolCall, UserMessage, journal
from sapwood.persistence import Entry


@attrs.define
class Outage:
    """The loss of the registry, as it was seen.

    Attributes:
        run_id: The run that was open.
        in_flight: The call that was being carried out.
        server_lived: Whether the server was alive right after the kill.
        first_answer: What a lookup said right after it.
        refused: Why `ensure_running` refused to start a server then; empty if it did not refuse.
        seconds: From the kill to the registry's first certain answer.
        before: Labels in the tree before, without conversations and filesystems.
        after: The same, after it came back.
        incarnations: How often each partition had been started by then.
        ready: Whether the runtime said afterwards that it is ready.
        durable: The journal while no server ran.
    """

    run_id: str
    in_flight: ToolCall
    server_lived: bool
    first_answer: str
    refused: str = ""
    seconds: float | None = None
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    incarnations: tuple[int, ...] = ()
    ready: bool = False
    durable: tuple[Entry, ...] = ()


@attrs.define
class Facts:
    """What was observed; None where the story did not get so far.

    Attributes:
        broken: Why the story ended early; empty once it has been told to its end.
        files: Contents of the agent's files on the disk, by name.
        outage: The loss of the registry.
        run_end: The end of the run that it interrupted.
        watches: What was seen of the registry in each life of the runtime.
        asked: The approval that was asked for.
        stored: The conversation in the file while no runtime had it open.
        found: The approvals that were open after reopening.
        paid_early: Payments before the approval.
        paid: Payments at the end.
        second_approval: The answer to approving a second time.
        refused_append: Epochs (held, current) of the write that was refused; None if none was.
        fenced_exit: How the older runtime's server ended.
        answer_after: What the newer runtime's server said then.
        entries: The whole journal at the end.
        stops: How each runtime stopped, in order.
        final: The conversation in the file at the very end.
    """

    broken: str = "it was not told to its end"
    files: Mapping[str, str] | None = None
    outage: Outage | None = None
    run_end: RunFinished | None = None
    watches: list[RegistryWatch] = attrs.field(factory=list[RegistryWatch])
    asked: Interrupt | None = None
    stored: StoredAgent | None = None
    found: tuple[Interrupt, ...] | None = None
    paid_early: tuple[Payment, ...] | None = None
    paid: tuple[Payment, ...] | None = None
    second_approval: DecisionOutcome | None = None
    refused_append: tuple[int, int] | None = None
    fenced_exit: str | None = None
    answer_after: str | None = None
    entries: tuple[Entry, ...] | None = None
    stops: list[Stop] = attrs.field(factory=list[Stop])
    final: StoredAgent | None = None


class NotObservedError(Exception):
    """A check lacks a fact, so it cannot have held."""


Finding: TypeAlias = tuple[bool, str]
Check: TypeAlias = Callable[[Facts], Finding]

LIVES: Final = 3
"""Runtimes in the story: the first, the reopened one, and the one that takes over."""


def judge(facts: Facts) -> list[Verdict]:
    """Return what came of each promise, in order; what cannot be checked has not held."""
    return [_verdict(promise, check, facts) for promise, check in PROMISES.items()]


def _verdict(promise: str, check: Check, facts: Facts) -> Verdict:
    try:
        held, evidence = check(facts)
    except NotObservedError:
        return Verdict(promise, held=False, evidence="could not be checked: the story did not get so far")
    return Verdict(promise, held, evidence)


def _told(facts: Facts) -> Finding:
    return not facts.broken, facts.broken or "no step failed"


def _work(facts: Facts) -> Finding:
    if facts.files is None:
        raise NotObservedError
    expected = {"orders.csv": ORDERS, "report.txt": TOTAL, "audit.txt": AUDITED}
    return dict(facts.files) == expected, ", ".join(f"{name} {text!r}" for name, text in sorted(facts.files.items()))


def _killed_at_work(facts: Facts) -> Finding:
    outage = _outage(facts)
    opened = [entry.event for entry in outage.durable if isinstance(entry.event, journal.RunStarted)]
    closed = [entry.event for entry in outage.durable if isinstance(entry.event, journal.RunFinished)]
    was_open = bool(opened) and opened[-1].run_id == outage.run_id and not closed
    return was_open and outage.server_lived, f"{call_line(outage.in_flight)} was being carried out"


def _honest_answers(facts: Facts) -> Finding:
    outage, watch = _outage(facts), _first_watch(facts)
    unsure = {answer: times for answer, times in watch.answers.items() if answer.startswith("cannot tell")}
    held = bool(unsure) and not watch.denied and outage.first_answer.startswith("cannot tell")
    seen = ", ".join(f"{answer} {times} times" for answer, times in sorted(unsure.items())) or "never unsure"
    return held, f"looked {watch.steps} times: {seen}; a wrong 'not running' {count(watch.denied, 'time')}"


def _nothing_started(facts: Facts) -> Finding:
    reason = _outage(facts).refused
    return reason in {"registry_down", "recovering"}, f"ensure_running refused: {reason or 'no'}"


def _tree_back(facts: Facts) -> Finding:
    outage = _outage(facts)
    if outage.seconds is None:
        raise NotObservedError
    same = bool(outage.before) and outage.before == outage.after
    renewed = bool(outage.incarnations) and min(outage.incarnations) > 1
    return same and renewed and outage.ready, (
        f"{len(outage.after)} of {count(len(outage.before), 'actor')} are back after {outage.seconds * 1000:.1f} ms"
    )


def _one_server(facts: Facts) -> Finding:
    if len(facts.watches) < LIVES or not all(watch.steps for watch in facts.watches):
        raise NotObservedError
    most = [watch.most_live for watch in facts.watches]
    steps = sum(watch.steps for watch in facts.watches)
    return set(most) == {1}, f"most at once in each runtime: {', '.join(map(str, most))}, looking {steps} times"


def _went_on(facts: Facts) -> Finding:
    outage, entries = _outage(facts), _entries(facts)
    if facts.run_end is None or not outage.durable:
        raise NotObservedError
    kept = entries[: len(outage.durable)] == outage.durable
    ended = facts.run_end.run_id == outage.run_id and facts.run_end.outcome == "completed"
    return kept and ended, (
        f"all {count(len(outage.durable), 'durable event')} {'are' if kept else 'are NOT'} where they were; "
        f"the run ended as {facts.run_end.outcome}"
    )


def _nothing_doubled(facts: Facts) -> Finding:
    events = [entry.event for entry in _entries(facts)]
    said = Counter(
        event.message.text
        for event in events
        if isinstance(event, journal.MessageAdded) and isinstance(event.message, UserMessage)
    )
    wanted = [
        call.id for event in events if isinstance(event, journal.ModelAnswered) for call in event.message.tool_calls
    ]
    results = Counter(event.result.call_id for event in events if isinstance(event, journal.ToolFinished))
    failed = [event for event in events if isinstance(event, journal.ToolFinished) and event.result.is_error]
    once = set(results.values()) == {1} and len(set(wanted)) == len(wanted) and set(wanted) == set(results)
    held = once and not failed and said[WORK] == 1 and said[REFUND] == 1
    return held, (
        f"{count(len(wanted), 'tool call')}, {count(sum(results.values()), 'result')}, "
        f"{len(failed)} failed; {count(sum(said.values()), 'message')} taken once each"
    )


def _approval_survived(facts: Facts) -> Finding:
    if facts.asked is None or facts.stored is None or facts.found is None:
        raise NotObservedError
    in_file = facts.stored.state.undecided if facts.stored.state is not None else ()
    held = in_file == (facts.asked,) and facts.found == (facts.asked,)
    return held, f"{call_line(facts.asked.call)}: in the file {len(in_file)}, after reopening {len(facts.found)}"


def _not_paid_early(facts: Facts) -> Finding:
    if facts.paid_early is None or facts.asked is None:
        raise NotObservedError
    return not facts.paid_early, f"{count(len(facts.paid_early), 'payment')} in the ledger before the approval"


def _paid_once(facts: Facts) -> Finding:
    if facts.paid is None or facts.asked is None or facts.second_approval is None:
        raise NotObservedError
    call_id = facts.asked.call.id
    events = [entry.event for entry in _entries(facts)]
    started = [event for event in events if isinstance(event, journal.ToolStarted) and event.call_id == call_id]
    keys = {event.key for event in events if isinstance(event, journal.ToolIntended) and event.call.id == call_id}
    held = (
        [(payment.cents, payment.order) for payment in facts.paid] == [(REFUND_CENTS, "17")]
        and {payment.key for payment in facts.paid} == keys
        and len(started) == 1
        and isinstance(facts.second_approval, AlreadyDecided)
    )
    return held, (
        f"{count(len(facts.paid), 'payment')} of {sum(payment.cents for payment in facts.paid)} cents; "
        f"a second approval was answered {type(facts.second_approval).__name__}"
    )


def _fenced(facts: Facts) -> Finding:
    if facts.fenced_exit is None or facts.answer_after is None:
        raise NotObservedError
    leaked = [
        entry
        for entry in _entries(facts)
        if isinstance(entry.event, journal.MessageAdded)
        and isinstance(entry.event.message, UserMessage)
        and entry.event.message.text == TO_NOBODY
    ]
    refused = facts.refused_append
    held = refused is not None and refused[0] < refused[1] and facts.fenced_exit == "shutdown (fenced)" and not leaked
    held = held and TOTAL in facts.answer_after
    epochs = "no write was refused" if refused is None else f"epoch {refused[0]} was refused, {refused[1]} holds"
    return held, f"{epochs}; the older server ended: {facts.fenced_exit}; {count(len(leaked), 'event')} of it got in"


def _one_line_of_history(facts: Facts) -> Finding:
    entries = _entries(facts)
    numbers = [entry.seq for entry in entries]
    epochs = [entry.epoch for entry in entries]
    held = numbers == list(range(1, len(numbers) + 1)) and epochs == sorted(epochs) and len(set(epochs)) > LIVES
    return held, f"{count(len(numbers), 'event')} without a gap, epochs {', '.join(map(str, sorted(set(epochs))))}"


def _stopped_in_order(facts: Facts) -> Finding:
    if len(facts.stops) < LIVES or facts.final is None:
        raise NotObservedError
    orderly = all(stop.expected and stop.observed == stop.expected and not stop.killed for stop in facts.stops)
    ended = ", ".join(str(len(stop.observed)) for stop in facts.stops)
    killed = sum(len(stop.killed) for stop in facts.stops)
    released = facts.final.row.released
    given_up = "was given up cleanly" if released else "was NOT given up cleanly"
    return orderly and released, f"{ended} actors ended, {killed} were killed; {CONVERSATION} {given_up}"


def _outage(facts: Facts) -> Outage:
    if facts.outage is None:
        raise NotObservedError
    return facts.outage


def _first_watch(facts: Facts) -> RegistryWatch:
    if not facts.watches or not facts.watches[0].steps:
        raise NotObservedError
    return facts.watches[0]


def _entries(facts: Facts) -> tuple[Entry, ...]:
    if facts.entries is None:
        raise NotObservedError
    return facts.entries


PROMISES: Final[Mapping[str, Check]] = {
    "The story was told to its end": _told,
    "The agent did its work: the files on the disk are right": _work,
    "The registry was killed in the middle of a run": _killed_at_work,
    "While the registry could not tell, it said so": _honest_answers,
    "On that answer nothing was started": _nothing_started,
    "The tree came back by itself": _tree_back,
    "There was never more than one server in a runtime": _one_server,
    "The conversation went on from what was durable": _went_on,
    "Nothing was lost and nothing was doubled": _nothing_doubled,
    "The approval outlived its runtime": _approval_survived,
    "Nothing was paid before it was approved": _not_paid_early,
    "The payment was made exactly once": _paid_once,
    "A second runtime fenced the first one's server": _fenced,
    "The journal is one line of history": _one_line_of_history,
    "Every runtime stopped in reverse order": _stopped_in_order,
}
"""Every promise of the demonstration with its check."""

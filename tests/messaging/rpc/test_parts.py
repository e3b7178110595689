"""The parts of a call: retry policy, circuit breaker, bulkhead, deadlines, named failures, the table of outcomes."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from sapwood.actors import Killed, RealEnvironment, Ref, Request, SimulatedEnvironment, message
from sapwood.errors import (
    ActorDown,
    AskCycle,
    AskTimeout,
    BulkheadFull,
    CircuitOpen,
    DuplicateName,
    InvalidOption,
    MailboxFull,
    RegistryUnavailable,
    RemoteFailure,
)
from sapwood.messaging.rpc import (
    DEADLINE,
    VERDICTS,
    BreakerChanged,
    BreakerPolicy,
    BreakerState,
    Bulkhead,
    BulkheadPolicy,
    CallOutcome,
    Case,
    CircuitBreaker,
    FailureRecord,
    Hedge,
    Retry,
    case_of,
    deadline,
    describe_failure,
    failure,
    idempotent,
    remaining,
)
from sapwood.persistence import decode, encode

CLOSED, OPEN, HALF_OPEN = BreakerState.CLOSED, BreakerState.OPEN, BreakerState.HALF_OPEN


# --- retry ----------------------------------------------------------------------------------------


@pytest.mark.row("S1-050")
def test_waits_double_from_a_tenth_of_a_second_with_up_to_a_fifth_of_jitter_for_five_attempts() -> None:
    retry = Retry()
    for attempt, base in enumerate([0.1, 0.2, 0.4, 0.8], start=1):
        waits = [retry.wait_after(attempt, Random(seed)) for seed in range(200)]
        assert all(wait is not None and base <= wait <= base * 1.2 for wait in waits)
        assert len(set(waits)) > 100
    assert retry.wait_after(5, Random(0)) is None


@given(st.integers(1, 10**6), st.floats(0, 5), st.floats(1, 100), st.floats(0, 60))
def test_a_wait_never_exceeds_the_longest_one_and_its_jitter(
    attempt: int, base: float, factor: float, longest: float
) -> None:
    retry = Retry(attempts=10**7, base=base, factor=factor, max_wait=longest, jitter=0.2)
    wait = retry.wait_after(attempt, Random(attempt))
    assert wait is not None
    assert 0 <= wait <= longest * 1.2


def test_a_wait_is_as_long_as_the_target_asks() -> None:
    assert Retry(jitter=0).wait_after(1, Random(0), at_least=3.0) == 3.0


@pytest.mark.parametrize("option", ["attempts", "base", "factor", "max_wait", "jitter"])
@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), "many"], ids=str)
def test_a_retry_out_of_range_is_refused_by_name(option: str, value: Any) -> None:
    with pytest.raises(InvalidOption, match=f"Retry {option}: expected a number from"):
        Retry(**{option: value})


# --- circuit breaker ------------------------------------------------------------------------------


async def succeed() -> str:
    await trio.lowlevel.checkpoint()
    return "answer"


async def fail() -> str:
    await trio.lowlevel.checkpoint()
    raise ConnectionError("down")


def breaker(**options: Any) -> tuple[CircuitBreaker, list[BreakerChanged]]:
    changes: list[BreakerChanged] = []
    policy = BreakerPolicy(**{"failures": 3, "open_for": 10, **options})
    return CircuitBreaker("stock", SimulatedEnvironment(), policy, changes.append), changes


async def fail_times(subject: CircuitBreaker, times: int) -> None:
    for _ in range(times):
        with pytest.raises(ConnectionError):
            await subject.call(fail)


@pytest.mark.row("S1-052", "S2-034")
async def test_a_breaker_opens_after_failures_in_a_row_and_closes_after_a_probe(autojump_clock: MockClock) -> None:
    subject, changes = breaker()
    await fail_times(subject, 2)
    assert await subject.call(succeed) == "answer"
    await fail_times(subject, 3)
    assert subject.state is OPEN
    await trio.sleep(4)
    with pytest.raises(CircuitOpen, match=r"stock was not called: .* try again in 6 s") as caught:
        await subject.call(succeed)
    assert caught.value.target == "stock"
    assert caught.value.retry_after == pytest.approx(6)
    await trio.sleep(6)
    assert subject.state is HALF_OPEN
    assert await subject.call(succeed) == "answer"
    assert subject.state is CLOSED
    assert [(change.before, change.after) for change in changes] == [
        (CLOSED, OPEN),
        (OPEN, HALF_OPEN),
        (HALF_OPEN, CLOSED),
    ]
    statistics = subject.statistics()
    assert (statistics.succeeded, statistics.failed, statistics.refused, statistics.opened) == (2, 5, 1, 1)
    await fail_times(subject, 2)
    assert subject.state is CLOSED, "failures from before it closed must not count"


@pytest.mark.row("S1-052")
async def test_a_half_open_breaker_admits_a_bounded_number_and_opens_again_on_a_failure(
    autojump_clock: MockClock,
) -> None:
    subject, _ = breaker(probes=2, successes=2)
    await fail_times(subject, 3)
    await trio.sleep(10)
    first, second = subject.admit(), subject.admit()
    with pytest.raises(CircuitOpen) as caught:
        subject.admit()
    assert caught.value.retry_after == 0
    with first:
        first.succeeded()
    assert subject.state is HALF_OPEN
    with second:
        second.failed()
    assert subject.state is OPEN
    assert subject.statistics().retry_after == pytest.approx(10)
    await trio.sleep(10)
    for _ in range(2):
        await subject.call(succeed)
    assert subject.state is CLOSED


@pytest.mark.row("S1-052")
async def test_a_cancellation_is_neither_failure_nor_success_and_gives_the_probe_back(
    autojump_clock: MockClock,
) -> None:
    subject, _ = breaker(failures=1)
    for _ in range(5):
        with trio.move_on_after(1):
            await subject.call(trio.sleep_forever)
    assert subject.state is CLOSED
    await fail_times(subject, 1)
    await trio.sleep(10)
    with trio.move_on_after(1):
        await subject.call(trio.sleep_forever)
    assert subject.state is HALF_OPEN
    assert await subject.call(succeed) == "answer"
    assert subject.state is CLOSED
    assert subject.statistics().undecided == 6


@pytest.mark.row("S1-052")
async def test_a_call_from_before_the_breaker_opened_does_not_close_or_open_it_later(
    autojump_clock: MockClock,
) -> None:
    subject, _ = breaker(failures=1)
    late_success, late_failure = subject.admit(), subject.admit()
    await fail_times(subject, 1)
    await trio.sleep(10)
    probe = subject.admit()
    with late_success:
        late_success.succeeded()
    assert subject.state is HALF_OPEN
    with probe:
        probe.succeeded()
    with late_failure:
        late_failure.failed()
    assert subject.state is CLOSED


@pytest.mark.parametrize("option", ["failures", "open_for", "probes", "successes"])
def test_a_breaker_policy_out_of_range_is_refused_by_name(option: str) -> None:
    with pytest.raises(InvalidOption, match=f"BreakerPolicy {option}: expected"):
        BreakerPolicy(**{option: -1})


# --- bulkhead -------------------------------------------------------------------------------------


async def test_a_bulkhead_runs_some_lets_some_wait_in_order_and_refuses_the_rest(autojump_clock: MockClock) -> None:
    bulkhead = Bulkhead("stock", BulkheadPolicy(2, 2))
    done: list[int] = []

    async def work(number: int) -> None:
        async with bulkhead.slot():
            await trio.sleep(1)
            done.append(number)

    async with trio.open_nursery() as nursery:
        for number in range(4):
            nursery.start_soon(work, number)
            await trio.sleep(0.01)
        assert (bulkhead.running, bulkhead.waiting) == (2, 2)
        with pytest.raises(BulkheadFull, match="stock was not called: 2 calls run and 2 may wait") as caught:
            await work(9)
        assert (caught.value.max_concurrent, caught.value.max_waiting) == (2, 2)
    assert done == [0, 1, 2, 3]
    assert (bulkhead.running, bulkhead.waiting, bulkhead.refused) == (0, 0, 1)


async def test_a_cancelled_waiter_gives_its_place_up(autojump_clock: MockClock) -> None:
    bulkhead = Bulkhead("stock", BulkheadPolicy(1, 1))
    async with bulkhead.slot():
        with trio.move_on_after(1):
            async with bulkhead.slot():
                raise AssertionError
        assert bulkhead.waiting == 0
    async with bulkhead.slot():
        assert bulkhead.running == 1


@pytest.mark.parametrize("values", [(0, 1), (1, -1), (1.5, 1)], ids=str)
def test_a_bulkhead_policy_out_of_range_is_refused(values: tuple[Any, Any]) -> None:
    with pytest.raises(InvalidOption, match="BulkheadPolicy max_"):
        BulkheadPolicy(*values)


# --- deadlines ------------------------------------------------------------------------------------


@pytest.mark.row("S1-049")
async def test_an_inner_deadline_never_reaches_beyond_an_outer_one(autojump_clock: MockClock) -> None:
    environment = RealEnvironment()
    assert remaining(environment) is None
    with deadline(5, environment):
        with deadline(10, environment):
            assert remaining(environment) == pytest.approx(5)
        with deadline(2, environment):
            await trio.sleep(3)
            assert remaining(environment) == 0
        assert remaining(environment) == pytest.approx(2)
    assert DEADLINE.get() is None
    with pytest.raises(InvalidOption, match="expected seconds >= 0"), deadline(float("nan"), environment):
        raise AssertionError


# --- failures -------------------------------------------------------------------------------------


@failure("tests.rpc.sold_out", transient=True)
class SoldOut(Exception):
    """A failure with a name."""


@pytest.mark.row("S1-053")
def test_a_failure_is_told_by_its_declared_name_and_rebuilt_without_loading_a_class() -> None:
    told = describe_failure(SoldOut("no apples"))
    assert told == FailureRecord("tests.rpc.sold_out", "no apples", transient=True)
    assert decode(encode(told)) == told
    error = told.error("stock")
    assert type(error) is RemoteFailure
    assert str(error) == "stock answered with tests.rpc.sold_out: no apples"
    assert describe_failure(error) == told
    assert describe_failure(KeyError("k")) == FailureRecord("KeyError", "'k'")
    assert FailureRecord("os.system", "rm").error().kind == "os.system"


def test_a_failure_name_belongs_to_one_class() -> None:
    with pytest.raises(DuplicateName, match=r"failure 'tests\.rpc\.sold_out' is already taken"):
        failure("tests.rpc.sold_out")(type("Other", (Exception,), {}))


# --- outcomes -------------------------------------------------------------------------------------


@pytest.mark.row("S1-054")
@pytest.mark.parametrize(
    ("error", "sent", "by_key", "outcome", "repeat"),
    [
        (RegistryUnavailable("call", "recovering"), False, True, CallOutcome.TRANSIENT, "always"),
        (ActorDown("k"), False, True, CallOutcome.PERMANENT, "never"),
        (ActorDown("k", Killed()), False, True, CallOutcome.TRANSIENT, "always"),
        (ActorDown("k", Killed()), True, True, CallOutcome.TRANSIENT, "idempotent"),
        (ActorDown("k", Killed()), True, False, CallOutcome.PERMANENT, "never"),
        (AskTimeout("k", "Level", 1), True, True, CallOutcome.TRANSIENT, "idempotent"),
        (MailboxFull("k", 1), True, True, CallOutcome.TRANSIENT, "always"),
        (RemoteFailure("x", "", transient=True), True, True, CallOutcome.TRANSIENT, "always"),
        (RemoteFailure("x", ""), True, True, CallOutcome.PERMANENT, "never"),
        (CircuitOpen("k", 1), False, True, CallOutcome.TRANSIENT, "never"),
        (BulkheadFull("k", 1, 1), False, True, CallOutcome.TRANSIENT, "never"),
        (AskCycle(["a", "b"]), True, True, CallOutcome.PERMANENT, "never"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_every_error_has_one_of_three_outcomes_and_says_when_it_may_be_repeated(
    error: Exception, outcome: CallOutcome, repeat: str, *, sent: bool, by_key: bool
) -> None:
    verdict = VERDICTS[case_of(error, sent=sent, by_key=by_key)]
    assert (verdict.outcome, verdict.repeat) == (outcome, repeat)


@pytest.mark.row("S1-054")
def test_the_table_of_outcomes_has_a_row_for_every_case() -> None:
    assert set(VERDICTS) == set(Case)
    assert {verdict.outcome for verdict in VERDICTS.values()} == set(CallOutcome)


# --- hedging --------------------------------------------------------------------------------------


def test_only_request_classes_can_be_marked_idempotent() -> None:
    with pytest.raises(InvalidOption, match="expected a class that derives from Request"):
        idempotent(Ref)  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]
    with pytest.raises(InvalidOption, match="Hedge delay"):
        Hedge(0)
    with pytest.raises(InvalidOption, match="Hedge extra"):
        Hedge(1, extra=0)


def test_a_class_derived_from_an_idempotent_one_is_not_marked_itself() -> None:
    from sapwood.messaging.rpc._hedging import is_idempotent

    @idempotent
    @message("tests.rpc.marked")
    class Marked(Request[int]):
        pass

    @message("tests.rpc.derived")
    class Derived(Marked):
        pass

    assert is_idempotent(Marked())
    assert not is_idempotent(Derived())

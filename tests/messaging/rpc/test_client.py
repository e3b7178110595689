"""Calls from end to end: answers, retries, deadlines, restarts, failures, breakers, bulkheads and hedging."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from itertools import pairwise
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from sapwood import open_runtime
from sapwood.actors import (
    Actor,
    ActorSystem,
    Failure,
    MailboxOptions,
    Ref,
    Request,
    SimulatedEnvironment,
    handle,
    message,
    open_system,
)
from sapwood.errors import (
    ActorDown,
    AskCycle,
    AskTimeout,
    BulkheadFull,
    CircuitOpen,
    DeadlineExceeded,
    InvalidMessage,
    InvalidOption,
    MailboxFull,
    RegistryUnavailable,
    RemoteFailure,
    SelfAsk,
)
from sapwood.messaging.rpc import (
    DEADLINE,
    AttemptFailed,
    BreakerChanged,
    BreakerPolicy,
    BreakerState,
    BulkheadPolicy,
    CallEnded,
    CallEvent,
    CallOutcome,
    Hedge,
    HedgeStarted,
    Retry,
    RpcClient,
    deadline,
    failure,
    idempotent,
    remaining,
)
from sapwood.registry import Key, Lookup, NotRunning, Running, Unavailable
from sapwood.supervision import child
from sapwood.testing import simulate

KEY: Key = ("stock", "apples")
SECOND: Key = ("stock", "pears")


@failure("shop.sold_out")
class SoldOut(Exception):
    """A failure that stays."""


@failure("shop.closed", transient=True)
class Closed(Exception):
    """A failure that passes."""


@message("tests.rpc.level")
class Level(Request[int]):
    article: str = "red"


@idempotent
@message("tests.rpc.safe_level")
class SafeLevel(Request[int]):
    article: str = "red"


@message("tests.rpc.unknown")
class Unknown(Request[int]):
    pass


Script = Callable[["Stock"], Any]


class Stock(Actor):
    """Answers as the steps of a script say, the last one for ever."""

    def __init__(self, *steps: Script) -> None:
        self.steps = list(steps)
        self.calls = 0

    @handle
    async def level(self, message: Level | SafeLevel) -> Any:
        self.calls += 1
        step = self.steps.pop(0) if len(self.steps) > 1 else self.steps[0]
        answer = step(self)
        return await answer if hasattr(answer, "__await__") else answer


def answer(value: int) -> Script:
    return lambda _stock: value


def refuse(error: Exception) -> Script:
    return lambda _stock: Failure(error)


def after(seconds: float, value: int = 1) -> Script:
    async def wait(_stock: Stock) -> int:
        await trio.sleep(seconds)
        return value

    return wait


def crash(_stock: Stock) -> int:
    raise ValueError("crashed")


class Book:
    """A resolver whose answers a test writes; a list is used up, its last one stays."""

    def __init__(self, **entries: Any) -> None:
        self.entries: dict[Key, list[Any]] = {}
        self.lookups: list[float] = []

    def put(self, key: Key, *answers: Any) -> None:
        self.entries[key] = list(answers)

    async def lookup(self, key: Key) -> Lookup[Ref]:
        self.lookups.append(trio.current_time())
        await trio.lowlevel.checkpoint()
        answers = self.entries[key]
        found = answers.pop(0) if len(answers) > 1 else answers[0]
        if found == "hang":
            await trio.sleep_forever()
        return Running(found) if isinstance(found, Ref) else found


@pytest.fixture
async def system(autojump_clock: MockClock) -> AsyncIterator[ActorSystem]:
    assert trio.lowlevel.current_clock() is autojump_clock, "the test must take autojump_clock too"
    async with open_system(SimulatedEnvironment(), propagate=(DEADLINE,)) as opened:
        yield opened


@pytest.fixture
def book() -> Book:
    return Book()


def client_of(system: ActorSystem, book: Book, **options: Any) -> RpcClient:
    options = {"breaker": BreakerPolicy(failures=100), **options}
    return RpcClient(book, system.environment, **options)


async def put_stock(system: ActorSystem, book: Book, *steps: Script) -> Ref:
    ref = await system.spawn(Stock, *steps)
    book.put(KEY, ref)
    return ref


async def calls_of(ref: Ref) -> int:
    return int((await ref.get_state())["calls"])


# --- answers --------------------------------------------------------------------------------------


@pytest.mark.row("S1-048")
async def test_every_caller_gets_the_answer_to_its_own_request(
    system: ActorSystem, book: Book, autojump_clock: MockClock
) -> None:
    class Echo(Actor):
        @handle
        async def level(self, message: Level) -> Any:
            reply = self.reply_later()
            self.start_task(self.answer, reply, message)

        async def answer(self, reply: Any, message: Level) -> None:
            await trio.sleep(self.environment.random.random())
            reply(int(message.article))

    book.put(KEY, await system.spawn(Echo))
    client = client_of(system, book)
    answers: dict[int, int] = {}

    async def ask(number: int) -> None:
        answers[number] = await client.call(KEY, Level(str(number)))

    async with trio.open_nursery() as nursery:
        for number in range(50):
            nursery.start_soon(ask, number)
    assert answers == {number: number for number in range(50)}
    [statistics] = client.statistics()
    assert (statistics.calls, statistics.succeeded, statistics.retries) == (50, 50, 0)


@pytest.mark.row("S1-053")
@pytest.mark.parametrize(
    "case",
    [(SoldOut("no apples"), "shop.sold_out", 1), (Closed("until 9"), "shop.closed", 5), (KeyError("x"), "KeyError", 1)],
    ids=["permanent", "transient", "undeclared"],
)
async def test_a_failure_of_the_target_reaches_the_caller_by_name_and_the_target_goes_on(
    system: ActorSystem, book: Book, autojump_clock: MockClock, case: tuple[Exception, str, int]
) -> None:
    error, kind, attempts = case
    ref = await put_stock(system, book, refuse(error))
    with pytest.raises(RemoteFailure) as caught:
        await client_of(system, book).call(KEY, Level())
    assert (caught.value.kind, caught.value.text, caught.value.target) == (kind, str(error), ref.label)
    assert await calls_of(ref) == attempts
    assert ref.alive


async def test_a_wrong_call_is_refused_at_once_and_not_repeated(
    system: ActorSystem, book: Book, autojump_clock: MockClock
) -> None:
    client = client_of(system, book)
    await put_stock(system, book, answer(1))
    with pytest.raises(InvalidMessage, match="expected an instance of a class made with @message"):
        await client.call(KEY, {"article": "red"})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    for timeout in (0, -1, float("inf"), "5"):
        with pytest.raises(InvalidOption, match="timeout: expected seconds > 0, and no call without an end"):
            await client.call(KEY, Level(), timeout=timeout)  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="attempt_timeout"):
        RpcClient(book, system.environment, attempt_timeout=0)
    assert book.lookups == []


async def test_circles_of_calls_are_named_at_once_as_in_plain_asks(
    system: ActorSystem, book: Book, autojump_clock: MockClock
) -> None:
    client = client_of(system, book, hedge=Hedge(1))

    async def call_back(stock: Stock) -> int:
        return await client.call(KEY, Level())

    async def catch(stock: Stock) -> Any:
        caught: list[type[Exception]] = []
        for key in (KEY, SECOND):
            try:
                await client.call(key, SafeLevel())
            except (SelfAsk, RemoteFailure) as error:
                caught.append(type(error))
        return caught

    async def pass_on(stock: Stock) -> Any:
        try:
            return await call_back(stock)
        except AskCycle as error:
            return Failure(error)

    ref = await put_stock(system, book, catch)
    book.put(SECOND, await system.spawn(Stock, pass_on))
    assert await ref.ask(Level()) == [SelfAsk, RemoteFailure]  # type: ignore[comparison-overlap]
    assert trio.current_time() == 0


# --- retries and deadlines ------------------------------------------------------------------------


@pytest.mark.row("S1-050", "S1-054", "S2-028")
async def test_a_transient_failure_is_repeated_after_growing_waits_until_it_passes(
    system: ActorSystem, book: Book, autojump_clock: MockClock
) -> None:
    events: list[CallEvent] = []
    await put_stock(system, book, refuse(Closed("1")), refuse(Closed("2")), refuse(Closed("3")), answer(7))
    client = client_of(system, book, observer=events.append, retry=Retry(jitter=0))
    assert await client.call(KEY, Level()) == 7
    assert book.lookups == pytest.approx([0, 0.1, 0.3, 0.7])
    failed = [event for event in events if isinstance(event, AttemptFailed)]
    assert [(event.attempt, event.retry_in, event.outcome) for event in failed] == [
        (1, 0.1, CallOutcome.TRANSIENT),
        (2, 0.2, CallOutcome.TRANSIENT),
        (3, 0.4, CallOutcome.TRANSIENT),
    ]
    ended = events[-1]
    assert isinstance(ended, CallEnded)
    assert (ended.outcome, ended.attempts) == (CallOutcome.SUCCESS, 4)
    assert ended.seconds == pytest.approx(0.7)


@pytest.mark.row("S1-050")
def test_jitter_comes_from_the_environment_so_that_a_seed_repeats_it() -> None:
    async def scenario(seed: int) -> list[float]:
        async with open_system(SimulatedEnvironment(seed)) as system:
            book = Book()
            await put_stock(system, book, refuse(Closed("")))
            with pytest.raises(RemoteFailure):
                await client_of(system, book).call(KEY, Level())
            return book.lookups

    first, again, other = (simulate(1, scenario, seed) for seed in (1, 1, 2))
    assert first == again != other
    gaps = [later - earlier for earlier, later in pairwise(first)]
    assert [base <= gap <= base * 1.2 for base, gap in zip([0.1, 0.2, 0.4, 0.8], gaps, strict=True)] == [True] * 4


@pytest.mark.row("S1-051", "S1-049")
async def test_all_attempts_and_waits_together_end_before_the_deadline_of_the_call(
    system: ActorSystem, book: Book, autojump_clock: MockClock
) -> None:
    ref = await put_stock(system, book, refuse(Closed("still")))
    client = client_of(system, book, retry=Retry(attempts=1_000, base=1, factor=1, jitter=0))
    with pytest.raises(
        DeadlineExceeded, match=r"Level to \('stock', 'apples'\): the deadline passed after 4"
    ) as caught:
        await client.call(KEY, Level(), timeout=3.5)
    assert isinstance(caught.value.__cause__, RemoteFailure)
    assert await calls_of(ref) == 4
    assert trio.current_time() == pytest.approx(3), "a wait that ends after the deadline is not begun"


@pytest.mark.row("S1-049")
@pytest.mark.parametrize("stuck", ["handler", "lookup", "bulkhead", "ask in a full loop"])
async def test_a_call_ends_by_its_deadline_wherever_it_is_stuck(
    system: ActorSystem, book: Book, autojump_clock: MockClock, stuck: str
) -> None:
    client = client_of(system, book, bulkhead=BulkheadPolicy(1, 5), attempt_timeout=None)
    ref = await put_stock(system, book, after(1_000))
    if stuck == "lookup":
        book.put(KEY, "hang")
    elif stuck == "ask in a full loop":
        await put_stock(system, book, after(0.9), after(0.9), after(1_000))
    async with trio.open_nursery() as nursery:
        if stuck == "bulkhead":
            nursery.start_soon(lambda: suppressed(client.call(KEY, Level(), timeout=100)))
            await trio.lowlevel.checkpoint()
            await trio.lowlevel.checkpoint()
        if stuck == "ask in a full loop":
            for _ in range(2):
                assert await client.call(KEY, Level(), timeout=2) == 1
        begin = trio.current_time()
        with pytest.raises((DeadlineExceeded, AskTimeout)):
            await client.call(KEY, Level(), timeout=2)
        assert trio.current_time() - begin == pytest.approx(2)
        nursery.cancel_scope.cancel()
    assert ref.alive


async def suppressed(call: Any) -> None:
    try:
        await call
    except DeadlineExceeded:
        return


@pytest.mark.row("S1-049")
async def test_nested_calls_have_what_is_left_of_the_time_of_the_outer_one(
    system: ActorSystem, book: Book, autojump_clock: MockClock
) -> None:
    client = client_of(system, book)
    left: list[float | None] = []

    async def pass_on(stock: Stock) -> Any:
        await trio.sleep(2)
        left.append(remaining(stock.environment))
        try:
            return await client.call(SECOND, Level(), timeout=60)
        except DeadlineExceeded as error:
            return Failure(error)

    await put_stock(system, book, pass_on)
    second = await system.spawn(Stock, after(0.5, 3), after(100))
    book.put(SECOND, second)
    assert await client.call(KEY, Level(), timeout=5) == 3
    assert left == [pytest.approx(3)]
    with pytest.raises((DeadlineExceeded, RemoteFailure)):
        await client.call(KEY, Level(), timeout=5)
    await trio.sleep(0.1)
    assert trio.current_time() == pytest.approx(2.5 + 5 + 0.1)
    with deadline(1, system.environment):
        await trio.sleep(1)
        with pytest.raises(DeadlineExceeded, match="after 0 attempts"):
            await client.call(KEY, Level(), timeout=60)


@pytest.mark.row("S1-054")
@pytest.mark.parametrize(("request_", "attempts"), [(Level(), 1), (SafeLevel(), 3)], ids=["plain", "idempotent"])
async def test_a_request_that_may_have_been_carried_out_is_repeated_only_if_it_is_idempotent(
    system: ActorSystem, book: Book, autojump_clock: MockClock, request_: Request[int], attempts: int
) -> None:
    ref = await put_stock(system, book, after(2))
    client = client_of(system, book, attempt_timeout=1, retry=Retry(attempts=3))
    with pytest.raises(AskTimeout):
        await client.call(KEY, request_)
    await trio.sleep(10)
    assert await calls_of(ref) == attempts
    await put_stock(system, book, crash)
    with pytest.raises(ActorDown):
        await client.call(KEY, request_)


async def test_a_single_call_may_say_whether_it_is_idempotent(
    system: ActorSystem, book: Book, autojump_clock: MockClock
) -> None:
    ref = await put_stock(system, book, after(2), answer(5))
    client = client_of(system, book, attempt_timeout=1)
    assert await client.call(KEY, Level(), idempotent=True) == 5
    assert await calls_of(ref) == 2


async def test_a_cancelled_call_is_counted_and_leaves_nothing_behind(
    system: ActorSystem, book: Book, autojump_clock: MockClock
) -> None:
    await put_stock(system, book, after(100))
    client = client_of(system, book, breaker=BreakerPolicy(failures=1), hedge=Hedge(0.5))
    for _ in range(3):
        with trio.move_on_after(1):
            await client.call(KEY, SafeLevel())
    [statistics] = client.statistics()
    assert (statistics.calls, statistics.cancelled, statistics.running, statistics.waiting) == (3, 3, 0, 0)
    assert statistics.breaker.state is BreakerState.CLOSED
    assert DEADLINE.get() is None
    assert system.statistics().deadlines == 0


# --- lookups --------------------------------------------------------------------------------------


@pytest.mark.row("S1-054")
async def test_a_registry_that_cannot_tell_is_asked_again_and_never_taken_for_nothing_there(
    system: ActorSystem, book: Book, autojump_clock: MockClock
) -> None:
    ref = await put_stock(system, book, answer(7))
    book.put(KEY, Unavailable("recovering", 0.5), Unavailable("recovering", 0.5), ref)
    client = client_of(system, book, retry=Retry(jitter=0))
    assert await client.call(KEY, Level()) == 7
    assert book.lookups == pytest.approx([0, 0.5, 1.0])
    book.put(KEY, Unavailable("draining", 0.1))
    with pytest.raises(RegistryUnavailable, match="draining"):
        await client.call(KEY, Level())
    assert client.statistics()[0].transient == 1


@pytest.mark.row("S1-054")
@pytest.mark.parametrize(("wait", "lookups"), [(False, 1), (True, 3)], ids=["answer", "wait"])
async def test_a_key_under_which_nothing_runs_is_an_answer_unless_the_client_waits_for_a_start(
    system: ActorSystem, book: Book, autojump_clock: MockClock, lookups: int, *, wait: bool
) -> None:
    ref = await put_stock(system, book, answer(7))
    book.put(KEY, NotRunning(), NotRunning(), ref)
    client = client_of(system, book, wait_for_start=wait)
    if wait:
        assert await client.call(KEY, Level()) == 7
    else:
        with pytest.raises(ActorDown, match="no such actor") as caught:
            await client.call(KEY, Level())
        assert type(caught.value) is ActorDown
        assert client.statistics()[0].permanent == 1
    assert len(book.lookups) == lookups


async def test_a_ref_of_an_actor_that_has_ended_is_never_asked_again(
    system: ActorSystem, book: Book, autojump_clock: MockClock
) -> None:
    ref = await put_stock(system, book, answer(7))
    client = client_of(system, book)
    assert await client.call(ref, Level()) == 7
    ref.kill()
    await ref.wait_stopped()
    with pytest.raises(ActorDown, match="killed"):
        await client.call(ref, SafeLevel())
    assert client.statistics()[0].retries == 0


async def test_a_call_by_key_finds_the_restarted_target_in_a_real_registry(autojump_clock: MockClock) -> None:
    environment = SimulatedEnvironment()
    stock = child(Stock, crash_once(), key=KEY)
    async with open_runtime(environment=environment, children=[stock]) as runtime:
        client = RpcClient(runtime.registry, environment, retry=Retry(jitter=0), wait_for_start=True)
        assert await client.call(KEY, SafeLevel()) == 7
        [statistics] = client.statistics()
        assert (statistics.retries, statistics.breaker.failed) == (1, 1)
    with pytest.raises(DeadlineExceeded) as caught:
        await client.call(KEY, SafeLevel(), timeout=1.5)
    assert isinstance(caught.value.__cause__, RegistryUnavailable)


def crash_once() -> Script:
    crashed: list[bool] = []

    def step(_stock: Stock) -> int:
        if not crashed:
            crashed.append(True)
            raise ValueError("the first time")
        return 7

    return step


# --- breaker, bulkhead, mailbox -------------------------------------------------------------------


@pytest.mark.row("S1-052")
async def test_a_target_that_keeps_failing_is_left_alone_while_others_are_called(
    system: ActorSystem, book: Book, autojump_clock: MockClock
) -> None:
    events: list[CallEvent] = []
    ref = await put_stock(system, book, after(100), after(100), answer(7))
    book.put(SECOND, await system.spawn(Stock, answer(1)))
    client = client_of(
        system,
        book,
        attempt_timeout=1,
        retry=Retry(attempts=1),
        breaker=BreakerPolicy(failures=2, open_for=200),
        observer=events.append,
    )
    for _ in range(2):
        with pytest.raises(AskTimeout):
            await client.call(KEY, Level())
    with pytest.raises(CircuitOpen) as caught:
        await client.call(KEY, Level())
    assert caught.value.retry_after == pytest.approx(200)
    assert await client.call(SECOND, Level()) == 1
    assert len(book.lookups) == 3, "an open circuit costs the target nothing"
    await trio.sleep(200)
    assert await client.call(KEY, Level()) == 7
    assert await calls_of(ref) == 3
    changes = [event for event in events if isinstance(event, BreakerChanged)]
    assert [change.after for change in changes] == [BreakerState.OPEN, BreakerState.HALF_OPEN, BreakerState.CLOSED]
    first, second = client.statistics()
    assert (first.breaker.opened, first.breaker.refused, second.breaker.opened) == (1, 1, 0)


@pytest.mark.row("S1-052")
async def test_a_target_that_answers_with_a_permanent_failure_is_well(
    system: ActorSystem, book: Book, autojump_clock: MockClock
) -> None:
    await put_stock(system, book, refuse(SoldOut("x")))
    client = client_of(system, book, breaker=BreakerPolicy(failures=2))
    for _ in range(5):
        with pytest.raises(RemoteFailure):
            await client.call(KEY, Level())
    assert client.statistics()[0].breaker.state is BreakerState.CLOSED


async def test_a_circuit_that_opens_between_attempts_tells_what_opened_it(
    system: ActorSystem, book: Book, autojump_clock: MockClock
) -> None:
    await put_stock(system, book, refuse(Closed("until 9")))
    client = client_of(system, book, breaker=BreakerPolicy(failures=2))
    with pytest.raises(CircuitOpen) as caught:
        await client.call(KEY, Level())
    assert isinstance(caught.value.__cause__, RemoteFailure)


async def test_a_slow_target_takes_no_more_calls_than_its_bulkhead_has_room_for(
    system: ActorSystem, book: Book, autojump_clock: MockClock
) -> None:
    await put_stock(system, book, after(1))
    book.put(SECOND, await system.spawn(Stock, answer(1)))
    client = client_of(system, book, bulkhead=BulkheadPolicy(2, 1))
    refused: list[BulkheadFull] = []

    async def ask() -> None:
        try:
            assert await client.call(KEY, Level()) == 1
        except BulkheadFull as error:
            refused.append(error)

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(ask)
        await trio.sleep(0.5)
        assert await client.call(SECOND, Level()) == 1
        statistics = client.statistics()[0]
        assert (statistics.running, statistics.waiting, statistics.refused) == (2, 1, 2)
    assert len(refused) == 2
    assert client.statistics()[0].succeeded == 3


async def test_a_full_mailbox_is_tried_again(system: ActorSystem, book: Book, autojump_clock: MockClock) -> None:
    ref = await system.spawn(Stock, after(1), mailbox=MailboxOptions(capacity=1, overflow="reject"))
    book.put(KEY, ref)
    client = client_of(system, book, retry=Retry(base=1, jitter=0))
    async with trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(ref.ask, Level())
            await trio.sleep(0.1)
        with pytest.raises(MailboxFull):
            await ref.ask(Level())
        assert await client.call(KEY, Level()) == 1
    assert client.statistics()[0].retries >= 1


# --- hedging --------------------------------------------------------------------------------------


async def test_hedging_is_off_unless_asked_for_and_never_for_requests_that_are_not_idempotent(
    system: ActorSystem, book: Book, autojump_clock: MockClock
) -> None:
    ref = await put_stock(system, book, after(3, 7))
    assert await client_of(system, book).call(KEY, SafeLevel()) == 7
    assert await client_of(system, book, hedge=Hedge(0.1)).call(KEY, Level()) == 7
    assert await calls_of(ref) == 2


async def test_the_first_answer_wins_and_the_slow_attempt_is_given_up(
    system: ActorSystem, book: Book, autojump_clock: MockClock
) -> None:
    events: list[CallEvent] = []
    slow, fast = await system.spawn(Stock, after(50, 1)), await system.spawn(Stock, after(1, 2))
    book.put(KEY, slow, fast)
    client = client_of(system, book, hedge=Hedge(2), observer=events.append)
    assert await client.call(KEY, SafeLevel()) == 2
    assert trio.current_time() == pytest.approx(3)
    assert sum(isinstance(event, HedgeStarted) for event in events) == 1
    [statistics] = client.statistics()
    assert (statistics.hedges, statistics.running, statistics.retries) == (1, 0, 0)


async def test_a_hedged_call_fails_only_when_all_that_were_begun_have_failed(
    system: ActorSystem, book: Book, autojump_clock: MockClock
) -> None:
    async def fail_late(stock: Stock) -> Failure:
        await trio.sleep(3)
        return Failure(SoldOut("late"))

    failing, fine = await system.spawn(Stock, fail_late), await system.spawn(Stock, after(4, 2))
    book.put(KEY, failing, fine)
    client = client_of(system, book, hedge=Hedge(2))
    assert await client.call(KEY, SafeLevel()) == 2
    assert trio.current_time() == pytest.approx(6)
    book.put(KEY, failing)
    with pytest.raises(RemoteFailure, match="late"):
        await client.call(KEY, SafeLevel())


# --- bookkeeping ----------------------------------------------------------------------------------


async def test_an_observer_that_raises_is_dropped_and_harms_no_call(
    system: ActorSystem, book: Book, autojump_clock: MockClock
) -> None:
    told: list[CallEvent] = []

    def observe(event: CallEvent) -> None:
        told.append(event)
        raise RuntimeError("the observer itself")

    await put_stock(system, book, answer(7))
    client = client_of(system, book, observer=observe)
    assert [await client.call(KEY, Level()), await client.call(KEY, Level())] == [7, 7]
    assert len(told) == 1
    assert repr(client.observer_error) == "RuntimeError('the observer itself')"


async def test_targets_of_the_past_are_forgotten_unless_there_is_something_to_remember(
    system: ActorSystem, book: Book, autojump_clock: MockClock
) -> None:
    await put_stock(system, book, after(100))
    client = client_of(system, book, attempt_timeout=1, retry=Retry(attempts=1), breaker=BreakerPolicy(failures=1))
    with pytest.raises(AskTimeout):
        await client.call(KEY, Level())
    ref = await system.spawn(Stock, answer(1))
    for number in range(2_000):
        book.put(("n", number), ref)
        await client.call(("n", number), Level())
    kept = [statistics.target for statistics in client.statistics()]
    assert len(kept) <= 1_024
    assert kept[0] == repr(KEY)

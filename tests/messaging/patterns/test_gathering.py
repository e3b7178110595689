"""Asking many at once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from sapwood import Actor, Request, handle
from sapwood.actors import ActorSystem, Failure, Ref, SimulatedEnvironment, message, open_system
from sapwood.errors import ActorDown, AskCycle, InvalidOption, QuorumNotReached
from sapwood.messaging.patterns import Gathered, first_valid, gather_partial, majority, quorum, scatter


@message("test.patterns.price")
class Price(Request[int]):
    of: str = "oak"


class Seller(Actor):
    """Answers after a while: with a number, an error, its own death, or never."""

    def __init__(self, answer: Any, delay: float = 0.0) -> None:
        self.answer = answer
        self.delay = delay

    @handle
    async def price(self, request: Price) -> Any:
        await trio.sleep(self.delay)
        match self.answer:
            case "crash":
                raise RuntimeError("the till is on fire")
            case "silent":
                self.reply_later()
            case Exception() as error:
                return Failure(error)
            case cents:
                return cents if request.of == "oak" else cents * 2
        return None


@pytest.fixture
async def system(autojump_clock: MockClock) -> AsyncIterator[ActorSystem]:
    async with open_system(SimulatedEnvironment()) as made:
        yield made


async def sellers(system: ActorSystem, *answers: Any) -> dict[str, Ref]:
    """Start sellers "0", "1" …, each answering a second after the one before."""
    return {str(number): await system.spawn(Seller, answer, float(number)) for number, answer in enumerate(answers)}


@pytest.mark.row("S2-058")
async def test_a_partial_gathering_names_every_answer_every_error_and_everyone_who_is_missing(
    system: ActorSystem,
    autojump_clock: MockClock,
) -> None:
    refs = await sellers(system, 10, LookupError("sold out"), "crash", "silent", 14, 15)
    dead = await system.spawn(Seller, 1)
    await dead.stop()
    begun = trio.current_time()
    found = await gather_partial({**refs, "dead": dead}, Price(), timeout=4.5)
    assert trio.current_time() - begun == 4.5
    assert found.answers == {"0": 10, "4": 14}
    assert list(found.errors) == ["dead", "1", "2"]
    assert [type(error) for error in found.errors.values()] == [ActorDown, LookupError, ActorDown]
    assert found.missing == ("3", "5")
    assert not found.complete
    assert (await gather_partial({"0": refs["0"]}, Price())).complete
    assert await gather_partial({}, Price()) == Gathered()


@pytest.mark.row("S2-058")
async def test_scattered_parts_get_a_question_each_and_one_deadline_for_all(
    system: ActorSystem, autojump_clock: MockClock
) -> None:
    refs = await sellers(system, 10, 20, 30)
    found = await scatter({"a": (refs["0"], Price("oak")), "b": (refs["1"], Price("elm"))}, timeout=2)
    assert found.answers == {"a": 10, "b": 40}
    with pytest.raises(InvalidOption, match="seconds >= 0"):
        await scatter({}, timeout=float("nan"))


@pytest.mark.row("S2-058")
async def test_a_quorum_is_there_as_soon_as_enough_have_answered_and_fails_as_soon_as_it_cannot_be(
    system: ActorSystem,
    autojump_clock: MockClock,
) -> None:
    refs = await sellers(system, 10, 11, "crash", ValueError("no"), 14)
    begun = trio.current_time()
    found = await quorum(refs, Price(), 2)
    assert (found.answers, trio.current_time() - begun) == ({"0": 10, "1": 11}, 1.0)
    assert found.missing == ("2", "3", "4")

    refs = await sellers(system, 10, 11, "crash", ValueError("no"), 14)
    begun = trio.current_time()
    with pytest.raises(QuorumNotReached) as raised:
        await quorum(refs, Price(), 4)
    assert trio.current_time() - begun == 3.0, "with two failures four of five cannot be reached"
    assert (raised.value.need, raised.value.answers, raised.value.missing) == (4, {"0": 10, "1": 11}, ("4",))
    with pytest.raises(QuorumNotReached, match="nothing from"):
        await quorum(await sellers(system, 1, "silent"), Price(), 2, timeout=9)
    for need in (0, 6, True):
        with pytest.raises(InvalidOption, match="1 to the 5"):
            await quorum(refs, Price(), need)


@pytest.mark.row("S2-058")
async def test_a_majority_is_more_than_half_of_all_that_are_asked_and_known_as_soon_as_it_is(
    system: ActorSystem,
    autojump_clock: MockClock,
) -> None:
    begun = trio.current_time()
    assert await majority(await sellers(system, 7, 8, 7, 7, 9), Price()) == 7
    assert trio.current_time() - begun == 3.0
    assert await majority(await sellers(system, 71, 12, 72), Price(), key=lambda cents: cents // 10) == 71
    with pytest.raises(QuorumNotReached):
        await majority(await sellers(system, 7, 7, "silent", "crash"), Price(), timeout=10)
    begun = trio.current_time()
    with pytest.raises(QuorumNotReached):
        await majority(await sellers(system, 1, 2, 3, 4, 5), Price())
    assert trio.current_time() - begun == 3.0, "after four different answers of five nothing can win"
    with pytest.raises(InvalidOption, match="at least one"):
        await majority({}, Price())
    with pytest.raises(ZeroDivisionError):
        await majority(await sellers(system, 1), Price(), key=lambda cents: cents // 0)


@pytest.mark.row("S2-058")
async def test_the_first_valid_answer_wins_and_the_others_are_let_go(
    system: ActorSystem, autojump_clock: MockClock
) -> None:
    begun = trio.current_time()
    refs = await sellers(system, 90, "crash", 20, 10)
    assert await first_valid(refs, Price(), lambda cents: cents < 50) == ("2", 20)
    assert trio.current_time() - begun == 2.0
    with pytest.raises(QuorumNotReached) as raised:
        await first_valid(await sellers(system, 90, 80), Price(), lambda cents: cents < 50)
    assert raised.value.answers == {"0": 90, "1": 80}
    with pytest.raises(ZeroDivisionError):
        await first_valid(refs, Price(), lambda cents: 1 // 0 == 1)


async def test_a_circle_of_waiting_actors_through_a_gathering_is_named_and_the_others_still_answer(
    system: ActorSystem,
    autojump_clock: MockClock,
) -> None:
    class Broker(Actor):
        def __init__(self, others: dict[str, Ref]) -> None:
            self.others = others
            self.back = next(iter(others.values()))

        @handle
        async def price(self, request: Price) -> int:
            found = await gather_partial({**self.others, "back": self.back}, request)
            assert [type(error) for error in found.errors.values()] == [AskCycle]
            return sum(found.answers.values())

    class Asker(Actor):
        def __init__(self, broker: Ref) -> None:
            self.broker = broker

        @handle
        async def price(self, request: Price) -> int:
            return await self.broker.ask(request)

    broker = await system.spawn(Broker, await sellers(system, 3, 4))
    asker = await system.spawn(Asker, broker)
    await broker.replace_state(lambda state: {**state, "back": asker})
    assert await asker.ask(Price()) == 7


@settings(max_examples=60, deadline=None)
@given(answers=st.lists(st.sampled_from([1, 2, 3, "crash", "silent"]), min_size=1, max_size=7))
def test_what_a_majority_says_is_what_counting_all_answers_says(answers: list[Any]) -> None:
    best = max([0, *[answers.count(answer) for answer in (1, 2, 3)]])

    async def main() -> None:
        async with open_system(SimulatedEnvironment()) as system:
            refs = await sellers(system, *answers)
            if 2 * best > len(answers):
                assert answers.count(await majority(refs, Price(), timeout=60)) == best
            else:
                with pytest.raises(QuorumNotReached):
                    await majority(refs, Price(), timeout=60)

    trio.run(main, clock=MockClock(autojump_threshold=0))

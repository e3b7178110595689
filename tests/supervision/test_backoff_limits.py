"""The edges of backoff and intensity: huge delays, what errors say, and windows that have passed."""

from __future__ import annotations

import random
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from sapwood.errors import InvalidChildSpec
from sapwood.supervision import Backoff, supervisor_statistics
from tests.supervision.kit import Stage


@pytest.mark.parametrize("factor", [1e6, 10**6, float("inf")], ids=["float", "int", "infinity"])
def test_a_delay_that_no_float_can_hold_is_the_maximum(factor: float) -> None:
    backoff = Backoff(initial=1.0, factor=factor, maximum=30.0, jitter=0.0)

    assert backoff.delay(1, random.Random(0)) == 1.0
    assert {backoff.delay(failures, random.Random(0)) for failures in (2, 60, 70, 10_000, 10**9)} == {30.0}


def test_a_delay_that_grows_slowly_grows_until_it_is_the_maximum() -> None:
    backoff = Backoff(initial=1.0, factor=1.01, maximum=30.0, jitter=0.0)

    assert backoff.delay(201, random.Random(0)) == pytest.approx(1.01**200)
    assert backoff.delay(1_000, random.Random(0)) == 30.0


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"initial": 0}, "seconds > 0"),
        ({"factor": 0.5}, "a number >= 1"),
        ({"maximum": 0.05}, "seconds >= initial"),
        ({"jitter": 1.5}, "a number from 0 to 1"),
        ({"reset_after": -1}, "seconds >= 0"),
    ],
)
def test_a_refused_backoff_says_which_value_it_expected(options: dict[str, Any], expected: str) -> None:
    [(field, value)] = options.items()

    with pytest.raises(InvalidChildSpec) as caught:
        Backoff(**options)

    assert str(caught.value) == str(InvalidChildSpec(f"backoff.{field}", expected, value))


async def test_restarts_leave_the_statistics_when_the_window_has_passed_though_none_follows(
    autojump_clock: MockClock, stage: Stage
) -> None:
    top = await stage.supervise(stage.worker("a"), period=5.0)
    await stage.crash("a")
    await trio.sleep(5.0)
    assert (await supervisor_statistics(top)).restarts_in_window == 1

    await trio.sleep(0.5)

    assert (await supervisor_statistics(top)).restarts_in_window == 0
    assert (await supervisor_statistics(top)).restarts == 1

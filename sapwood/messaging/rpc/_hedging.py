"""Hedging: a second attempt beside one that takes unusually long, for requests that may be carried out twice."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import attrs
import outcome
import trio

from sapwood.actors import Request
from sapwood.errors import InvalidOption

R = TypeVar("R", bound=type[Request[object]])
T = TypeVar("T")


def idempotent(cls: R) -> R:
    """Mark a request class: carrying it out twice is the same as once, so it may be repeated and hedged.

    ```python
    @idempotent
    @message("stock.level")
    class Level(Request[int]):
        article: str
    ```

    Raises:
        InvalidOption: if it is no request class.
    """
    if not (isinstance(cls, type) and issubclass(cls, Request)):
        raise InvalidOption(f"idempotent: expected a class that derives from Request[...]; got {cls!r}")
    cls.__idempotent__ = True  # type: ignore[attr-defined]  # read below
    return cls


def is_idempotent(request: object) -> bool:
    """Say whether the class of a request is marked; inheritance does not count."""
    return bool(type(request).__dict__.get("__idempotent__"))


@attrs.frozen
class Hedge:
    """When further attempts are begun beside the first.

    Attributes:
        delay: Seconds without an answer after which one more is begun.
        extra: How many more at most, from 1.

    Raises:
        InvalidOption: if a value is out of its range.
    """

    delay: float
    extra: int = 1

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.delay, int | float) or not self.delay > 0:
            raise InvalidOption(f"Hedge delay: expected seconds > 0; got {self.delay!r}")
        if not isinstance(self.extra, int) or self.extra < 1:
            raise InvalidOption(f"Hedge extra: expected a whole number from 1; got {self.extra!r}")


async def run_hedged(hedge: Hedge, attempt: Callable[[], Awaitable[T]], begun: Callable[[], None]) -> T:
    """Run an attempt, and further ones as long as none has ended well; the first answer wins, the others are cancelled.

    Args:
        hedge: When to begin more.
        attempt: Runs one attempt.
        begun: Called before each further one.

    Raises:
        Exception: what the first of them failed with, if all that were begun have failed.
    """
    send, receive = trio.open_memory_channel[outcome.Outcome[T]](hedge.extra + 1)

    async def run() -> None:
        result: outcome.Outcome[T]
        try:
            result = outcome.Value(await attempt())
        except MemoryError:
            raise
        except Exception as error:
            result = outcome.Error(error)
        send.send_nowait(result)

    results: list[outcome.Outcome[T]] = []
    async with send, receive, trio.open_nursery() as nursery:
        nursery.start_soon(run)
        left = hedge.extra
        while len(results) <= hedge.extra - left and not any(map(_is_value, results)):
            with trio.move_on_after(hedge.delay if left else float("inf")) as patience:
                results.append(await receive.receive())
            if patience.cancelled_caught:
                begun()
                nursery.start_soon(run)
                left -= 1
        nursery.cancel_scope.cancel()
    return next(filter(_is_value, results), results[0]).unwrap()


def _is_value(result: outcome.Outcome[object]) -> bool:
    return isinstance(result, outcome.Value)

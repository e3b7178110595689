"""Circuit breakers: a target that keeps failing is left alone for a while (S1-052, S2-034)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import Enum
from types import TracebackType
from typing import Self, TypeVar, TypeVarTuple

import attrs

from sapwood.actors import Environment
from sapwood.errors import CircuitOpen, InvalidOption

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class BreakerState(Enum):
    """CLOSED: calls pass. OPEN: they are refused. HALF_OPEN: a few pass, to see whether the target is well again."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


@attrs.frozen(kw_only=True)
class BreakerPolicy:
    """When a circuit breaker opens, and when it closes again.

    Attributes:
        failures: Failures in a row that open it.
        open_for: Seconds for which it then refuses calls.
        probes: Calls that may run at once while it is half-open.
        successes: Successes in a row that close it then; one failure opens it again.

    Raises:
        InvalidOption: if a value is out of its range.
    """

    failures: int = 5
    open_for: float = 30.0
    probes: int = 1
    successes: int = 1

    def __attrs_post_init__(self) -> None:
        for option, least in (("failures", 1), ("open_for", 0), ("probes", 1), ("successes", 1)):
            value = getattr(self, option)
            if not isinstance(value, int | float) or not value >= least:
                raise InvalidOption(f"BreakerPolicy {option}: expected a number from {least} up; got {value!r}")


@attrs.frozen
class BreakerChanged:
    """A circuit breaker has changed its state."""

    target: str
    before: BreakerState
    after: BreakerState


@attrs.frozen
class BreakerStatistics:
    """What a circuit breaker has seen.

    Attributes:
        target: Whom it stands before.
        state: Its state now.
        failures_in_row: Failures since the last success.
        succeeded: Calls that succeeded.
        failed: Calls that failed.
        undecided: Calls that were cancelled or say nothing about the target.
        refused: Calls that were refused.
        opened: How often it opened.
        retry_after: Seconds until it is half-open; 0 unless it is open.
    """

    target: str
    state: BreakerState
    failures_in_row: int
    succeeded: int
    failed: int
    undecided: int
    refused: int
    opened: int
    retry_after: float


class CircuitBreaker:
    """Stands before one target, and counts what becomes of the calls that it lets through.

    A call that is cancelled is neither success nor failure. What a call that was let through before the breaker
    opened comes to later is counted and changes nothing any more.

    Args:
        target: The target's name, for errors.
        environment: Source of time.
        policy: When to open and to close; None for the defaults.
        observer: Told of every change of state, at once; must not raise.
    """

    def __init__(
        self,
        target: str,
        environment: Environment,
        policy: BreakerPolicy | None = None,
        observer: Callable[[BreakerChanged], None] | None = None,
    ) -> None:
        self.target = target
        self.policy = policy if policy is not None else BreakerPolicy()
        self._environment = environment
        self._observer = observer
        self._state = BreakerState.CLOSED
        self._era = 0
        self._failures = self._successes = 0
        self._probing = 0
        self._until = 0.0
        self._succeeded = self._failed = self._undecided = self._refused = self._opened = 0

    @property
    def state(self) -> BreakerState:
        """The state now; an open one whose time is over is half-open."""
        if self._state is BreakerState.OPEN and self._environment.monotonic() >= self._until:
            return BreakerState.HALF_OPEN
        return self._state

    @property
    def quiet(self) -> bool:
        """Whether it is closed and remembers no failure, so that a new one would be the same."""
        return self._state is BreakerState.CLOSED and not self._failures

    def admit(self) -> Passage:
        """Let one call through; say in the returned passage, as a context manager, what became of it.

        Raises:
            CircuitOpen: if the target is to be left alone.
        """
        if self.state is not self._state:
            self._change(BreakerState.HALF_OPEN)
        if self._state is BreakerState.OPEN:
            self._refused += 1
            raise CircuitOpen(self.target, self._until - self._environment.monotonic())
        if self._state is BreakerState.HALF_OPEN:
            if self._probing >= self.policy.probes:
                self._refused += 1
                raise CircuitOpen(self.target, 0.0)
            self._probing += 1
        return Passage(self, self._era)

    async def call(self, function: Callable[[*Ts], Awaitable[T]], *args: *Ts) -> T:
        """Run an async function; a return is a success, an exception a failure.

        Raises:
            CircuitOpen: if the target is to be left alone; the function was not called.
            Exception: what the function raises.
        """
        with self.admit() as passage:
            try:
                value = await function(*args)
            except Exception:
                passage.failed()
                raise
            passage.succeeded()
            return value

    def statistics(self) -> BreakerStatistics:
        """Return what it has seen."""
        state = self.state
        waits = self._until - self._environment.monotonic() if state is BreakerState.OPEN else 0.0
        return BreakerStatistics(
            target=self.target,
            state=state,
            failures_in_row=self._failures,
            succeeded=self._succeeded,
            failed=self._failed,
            undecided=self._undecided,
            refused=self._refused,
            opened=self._opened,
            retry_after=waits,
        )

    def _settle(self, era: int, success: bool | None) -> None:  # noqa: FBT001  # three outcomes, of which None is one
        self._succeeded += success is True
        self._failed += success is False
        self._undecided += success is None
        if era != self._era:
            return
        half_open = self._state is BreakerState.HALF_OPEN
        if half_open:
            self._probing -= 1
        if success is None:
            return
        if not success:
            self._failures += 1
            if half_open or self._failures >= self.policy.failures:
                self._until = self._environment.monotonic() + self.policy.open_for
                self._opened += 1
                self._change(BreakerState.OPEN)
            return
        self._failures = 0
        if half_open:
            self._successes += 1
            if self._successes >= self.policy.successes:
                self._change(BreakerState.CLOSED)

    def _change(self, state: BreakerState) -> None:
        before, self._state = self._state, state
        self._era += 1
        self._probing = 0
        self._successes = 0
        if state is BreakerState.CLOSED:
            self._failures = 0
        if self._observer is not None:
            self._observer(BreakerChanged(self.target, before, state))


class Passage:
    """One call that a breaker let through; leaving its block without a word means that nothing was learnt."""

    __slots__ = ("_breaker", "_era", "_success")

    def __init__(self, breaker: CircuitBreaker, era: int) -> None:
        self._breaker = breaker
        self._era = era
        self._success: bool | None = None

    def succeeded(self) -> None:
        """Say that the target is well."""
        self._success = True

    def failed(self) -> None:
        """Say that the target failed."""
        self._success = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._breaker._settle(self._era, self._success)

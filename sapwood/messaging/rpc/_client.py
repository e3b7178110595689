"""Calls: a typed request to an agent and its answer, with retries, a deadline, a circuit breaker and a bulkhead."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final, Protocol, TypeVar

import attrs
import trio

from sapwood.actors import Environment, Ref, Request, check_message
from sapwood.errors import (
    ActorDown,
    ActorError,
    AskCycle,
    CallError,
    DeadlineExceeded,
    InvalidMessage,
    InvalidOption,
    RegistryUnavailable,
    SapwoodError,
    WrongThread,
)
from sapwood.messaging.rpc._breaker import BreakerPolicy, CircuitBreaker
from sapwood.messaging.rpc._bulkhead import Bulkhead, BulkheadPolicy
from sapwood.messaging.rpc._deadlines import DEADLINE
from sapwood.messaging.rpc._downstream import Downstream
from sapwood.messaging.rpc._events import AttemptFailed, CallEnded, CallEvent, CallStatistics, HedgeStarted, Observer
from sapwood.messaging.rpc._failures import describe_failure
from sapwood.messaging.rpc._hedging import Hedge, is_idempotent, run_hedged
from sapwood.messaging.rpc._outcomes import VERDICTS, CallOutcome, Case, Verdict, case_of
from sapwood.messaging.rpc._retry import Retry
from sapwood.registry import Key, Lookup, NotRunning, Running, Unavailable

T = TypeVar("T")

KEPT: Final = 1_024
"""Targets above which those are forgotten of which there is nothing to remember but counters.

If more than half of them are left then, those go too that are not called now and whose breaker is not open, though it
may have counted failures. Only open breakers, which end, can make them more.
"""


class Resolver(Protocol):
    """Says what runs under a key; `Registry` is one."""

    async def lookup(self, key: Key) -> Lookup[Ref]:
        """Return one of the three answers."""
        ...


@attrs.define(eq=False)
class _Call:
    request: Request[Any]
    name: str
    target: Key | Ref
    end: float
    idempotent: bool
    attempts: int = 0
    outcome: CallOutcome = CallOutcome.TRANSIENT


class RpcClient:
    """Calls agents by key or ref: `await client.call(("stock", "apples"), Level("red"))` (S1-048).

    Every call ends by its deadline, whatever happens (S1-049, S1-051). Inside of that it is repeated as `retry` and the
    table `VERDICTS` say. Each attempt looks the key up anew, so a restarted target is found; it takes a slot of the
    target's bulkhead first, and then passes its circuit breaker. Targets share nothing.

    The client is used in the thread of the actors that it calls.

    Args:
        resolver: Says what runs under a key, with three answers.
        environment: Source of time and jitter.
        retry: When to repeat an attempt; None for the defaults.
        breaker: When to leave a target alone; None for the defaults.
        bulkhead: How many calls a target gets at once; None for the defaults.
        hedge: When to begin a second attempt beside a slow one, for requests marked idempotent; None for never.
        timeout: Seconds for a call that does not say: all attempts and waits together.
        attempt_timeout: Seconds for one attempt; None for what is left of the call.
        wait_for_start: Whether a key under which nothing runs is worth another attempt, as where the target is being
            restarted after a delay. False: it is an answer (`ActorDown`), and permanent.
        observer: Told of failed attempts, ended calls, hedges and breakers, at once. One that raises is not told any
            more; see `observer_error`.

    Raises:
        InvalidOption: if a time-out is no number of seconds > 0.
    """

    def __init__(
        self,
        resolver: Resolver,
        environment: Environment,
        *,
        retry: Retry | None = None,
        breaker: BreakerPolicy | None = None,
        bulkhead: BulkheadPolicy | None = None,
        hedge: Hedge | None = None,
        timeout: float = 30.0,
        attempt_timeout: float | None = None,
        wait_for_start: bool = False,
        observer: Observer | None = None,
    ) -> None:
        _check_seconds("timeout", timeout)
        if attempt_timeout is not None:
            _check_seconds("attempt_timeout", attempt_timeout)
        self.timeout: Final = timeout
        self.observer_error: Exception | None = None
        """What the observer raised, if it did."""
        self._resolver = resolver
        self._environment = environment
        self._retry = retry if retry is not None else Retry()
        self._breaker = breaker if breaker is not None else BreakerPolicy()
        self._bulkhead = bulkhead if bulkhead is not None else BulkheadPolicy()
        self._hedge = hedge
        self._attempt_timeout = attempt_timeout
        self._not_running = VERDICTS[Case.UNAVAILABLE if wait_for_start else Case.NOT_RUNNING]
        self._observer = observer
        self._downstreams: dict[Hashable, Downstream] = {}
        self._forget_at = KEPT

    async def call(
        self,
        target: Key | Ref,
        request: Request[T],
        *,
        timeout: float | None = None,
        idempotent: bool | None = None,
    ) -> T:
        """Send a request and wait for its answer.

        Args:
            target: The key of an actor, which survives its restarts, or a ref.
            request: An instance of a message class that derives from `Request[T]`.
            timeout: Seconds for everything together; None for that of the client. Less if the call is made in the
                course of another one that has less left.
            idempotent: Whether it may be carried out twice; None for what its class says.

        Raises:
            DeadlineExceeded: if the time is used up; the request may still be carried out.
            RemoteFailure: if the target answered with a failure (S1-053).
            CircuitOpen: if the target has failed too often of late.
            BulkheadFull: if too many calls to it run and wait.
            ActorDown: if nothing runs under the key, or the target ended before it answered.
            AskTimeout: if an attempt was not answered in time and may not be repeated.
            RegistryUnavailable: if the registry cannot tell what runs, after all attempts.
            MailboxFull: if the target has no room, after all attempts.
            SelfAsk, AskCycle, InvalidMessage, InvalidOption: if the call is wrong.
        """
        if timeout is not None:
            _check_seconds("timeout", timeout)
        check_message(request)
        if not isinstance(request, Request):
            name = type(request).__name__
            raise InvalidMessage(f"expected a request; got {name}: write   class {name}(Request[int])   or use tell")
        begin = self._environment.monotonic()
        end = begin + (self.timeout if timeout is None else timeout)
        outer = DEADLINE.get()
        end = end if outer is None else min(end, outer)
        safe = is_idempotent(request) if idempotent is None else idempotent
        call = _Call(request, type(request).__name__, target, end, safe)
        downstream = self._downstream(target)
        downstream.calls += 1
        downstream.open_calls += 1
        token = DEADLINE.set(end)
        try:
            value = await self._repeat(downstream, call)
        except Exception as error:
            # A call that its deadline ends is transient: with more time it might have succeeded.
            outcome = CallOutcome.TRANSIENT if isinstance(error, DeadlineExceeded) else call.outcome
            self._ended(downstream, call, begin, outcome, error)
            raise
        except BaseException:
            downstream.cancelled += 1
            raise
        finally:
            DEADLINE.reset(token)
            downstream.open_calls -= 1
        self._ended(downstream, call, begin, CallOutcome.SUCCESS, None)
        return value  # type: ignore[no-any-return]  # the answer to a Request[T] is a T

    def statistics(self) -> list[CallStatistics]:
        """Return what the calls to each target have come to, in the order in which targets were first called."""
        return [downstream.statistics() for downstream in self._downstreams.values()]

    # --- attempts ---------------------------------------------------------------------------------

    async def _repeat(self, downstream: Downstream, call: _Call) -> Any:
        tried = 0
        failure: Exception | None = None
        while True:
            earlier = failure
            if self._environment.monotonic() >= call.end:
                raise DeadlineExceeded(downstream.target, call.name, call.attempts) from failure
            tried += 1
            downstream.retries += tried > 1
            try:
                if self._hedge is None or not call.idempotent:
                    return await self._attempt(downstream, call)
                return await run_hedged(
                    self._hedge, lambda: self._attempt(downstream, call), lambda: self._hedged(downstream, call)
                )
            except (DeadlineExceeded, MemoryError):
                raise
            except Exception as error:
                verdict = self._verdict(error, call)
                failure = error.told() if isinstance(error, _NotSent) else error
            call.outcome = verdict.outcome
            wait = self._wait_after(tried, failure, verdict, call)
            now = self._environment.monotonic()
            late = wait is not None and now + wait >= call.end
            told = AttemptFailed(downstream.target, call.name, tried, verdict.outcome, failure, None if late else wait)
            self._tell(told)
            if wait is None:
                if now >= call.end:
                    raise DeadlineExceeded(downstream.target, call.name, call.attempts) from failure
                raise failure from (failure.__cause__ or earlier)
            if late:
                raise DeadlineExceeded(downstream.target, call.name, call.attempts) from failure
            await trio.sleep(wait)

    def _wait_after(self, tried: int, failure: Exception, verdict: Verdict, call: _Call) -> float | None:
        if verdict.repeat == "never" or (verdict.repeat == "idempotent" and not call.idempotent):
            return None
        asked = failure.retry_after if isinstance(failure, RegistryUnavailable) else 0.0
        return self._retry.wait_after(tried, self._environment.random, at_least=asked)

    async def _attempt(self, downstream: Downstream, call: _Call) -> Any:
        with trio.CancelScope(deadline=call.end) as waiting:
            async with downstream.bulkhead.slot():
                # From here on each step has a time-out of its own, which tells the breaker what happened.
                waiting.deadline = float("inf")
                with downstream.breaker.admit() as passage:
                    try:
                        value = await self._ask(call)
                    except MemoryError:
                        raise
                    except Exception as error:
                        health = self._verdict(error, call).health
                        if health is not None:
                            (passage.succeeded if health else passage.failed)()
                        raise
                    passage.succeeded()
                    return value
        raise DeadlineExceeded(downstream.target, call.name, call.attempts)

    async def _ask(self, call: _Call) -> Any:
        ref = await self._find(call)
        left = call.end - self._environment.monotonic()
        if left <= 0:
            raise DeadlineExceeded(ref.label, call.name, call.attempts)
        timeout = left if self._attempt_timeout is None else min(left, self._attempt_timeout)
        if not ref.alive:
            raise _NotSent(ref)
        call.attempts += 1
        try:
            return await ref.ask(call.request, timeout=timeout)
        except MemoryError:
            raise
        except Exception as error:
            if _is_about(error, ref):
                raise
            raise describe_failure(error).error(ref.label) from error

    async def _find(self, call: _Call) -> Ref:
        if isinstance(call.target, Ref):
            return call.target
        found: Lookup[Ref] | None = None
        with trio.CancelScope(deadline=call.end):
            found = await self._resolver.lookup(call.target)
        match found:
            case None:
                raise RegistryUnavailable(f"call {call.target!r}", "unreachable")
            case Running(ref):
                return ref
            case NotRunning():
                raise _NotSent(call.target)
            case Unavailable(reason, retry_after):
                raise RegistryUnavailable(f"call {call.target!r}", reason, retry_after)

    # --- bookkeeping ------------------------------------------------------------------------------

    def _verdict(self, error: Exception, call: _Call) -> Verdict:
        sent = not isinstance(error, _NotSent)
        case = case_of(error, sent=sent, by_key=not isinstance(call.target, Ref))
        return self._not_running if case is Case.NOT_RUNNING else VERDICTS[case]

    def _downstream(self, target: Key | Ref) -> Downstream:
        found = self._downstreams.get(target)
        if found is None:
            if len(self._downstreams) >= self._forget_at:
                self._forget()
            name = target.label if isinstance(target, Ref) else repr(target)
            breaker = CircuitBreaker(name, self._environment, self._breaker, self._tell)
            found = self._downstreams[target] = Downstream(name, breaker, Bulkhead(name, self._bulkhead))
        return found

    def _forget(self) -> None:
        kept = {key: one for key, one in self._downstreams.items() if not one.forgettable}
        if len(kept) > KEPT // 2:
            kept = {key: one for key, one in kept.items() if one.needed}
        self._downstreams = kept
        self._forget_at = max(KEPT, 2 * len(kept))

    def _hedged(self, downstream: Downstream, call: _Call) -> None:
        downstream.hedges += 1
        self._tell(HedgeStarted(downstream.target, call.name))

    def _ended(
        self, downstream: Downstream, call: _Call, begin: float, outcome: CallOutcome, error: Exception | None
    ) -> None:
        downstream.ended[outcome] += 1
        took = self._environment.monotonic() - begin
        self._tell(CallEnded(downstream.target, call.name, outcome, call.attempts, took, error))

    def _tell(self, event: CallEvent) -> None:
        if self._observer is None:
            return
        try:
            self._observer(event)
        except MemoryError:
            raise
        except Exception as error:
            self._observer = None
            self.observer_error = error


class _NotSent(ActorDown):
    """The target was not there when it was to be asked, so the request was certainly not carried out."""

    def __init__(self, target: Key | Ref) -> None:
        if isinstance(target, Ref):
            super().__init__(target.label, target.exit_reason)
        else:
            super().__init__(repr(target))

    def told(self) -> ActorDown:
        """Return what callers get."""
        return ActorDown(self.target, self.reason)


def _is_about(error: Exception, ref: Ref) -> bool:
    """Say whether an error is the kernel's word on this very ask, not a failure that the target answered with."""
    if isinstance(error, CallError) or not isinstance(error, SapwoodError):
        return False
    if isinstance(error, AskCycle):
        return error.chain[1] == ref.label
    if isinstance(error, ActorError):
        return getattr(error, "target", ref.label) == ref.label
    return isinstance(error, WrongThread)


def _check_seconds(what: str, value: object) -> None:
    if not isinstance(value, int | float) or not value > 0 or value == float("inf"):
        raise InvalidOption(f"{what}: expected seconds > 0, and no call without an end; got {value!r}")

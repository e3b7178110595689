"""The run of one saga: every intent is durable before it is acted on, every outcome before the next intent."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import attrs
import trio

from sapwood.actors import Environment
from sapwood.errors import CodecError, StepRefused
from sapwood.messaging.patterns._fold import FoldedLog
from sapwood.messaging.patterns._saga_events import (
    Compensated,
    Completed,
    Retried,
    SagaState,
    StepBegun,
    StepDone,
    StepFailed,
    Stuck,
    TurnedBack,
    UndoBegun,
    UndoFailed,
    Undone,
    evolve,
)
from sapwood.messaging.patterns._saga_steps import ENDED, Saga, SagaPhase, SagaReport, Step, StepContext
from sapwood.persistence import StoreEngine

logger = logging.getLogger("sapwood.patterns")


@attrs.frozen
class _Failure:
    text: str
    refused: bool = False


@attrs.frozen
class _Success:
    value: object


class SagaRun:
    """One saga being worked on, or only looked at.

    Args:
        store: The store that has its log.
        environment: Source of time, randomness and ids.
        saga: Its definition.
        id: Its id.
        given: What it was begun with.
        draining: Set when nothing new is to begin.
    """

    def __init__(
        self,
        store: StoreEngine,
        environment: Environment,
        saga: Saga,
        id: str,
        *,
        given: object,
        draining: trio.Event,
    ) -> None:
        self._environment = environment
        self._saga = saga
        self._id = id
        self._given = given
        self._draining = draining
        self._log = FoldedLog(store, environment, f"saga:{saga.name}:{id}", initial=SagaState(), evolve=evolve)

    @property
    def phase(self) -> SagaPhase:
        """Where it stands."""
        return self._log.state.phase

    async def load(self) -> None:
        """Read its log."""
        await self._log.load()

    def report(self) -> SagaReport:
        """Say how it stands."""
        state = self._log.state
        return SagaReport(
            saga=self._saga.name,
            id=self._id,
            phase=state.phase,
            done=tuple(name for name in state.begun if name in state.results),
            pending=tuple(name for name in state.begun if name not in state.results),
            results=dict(state.results),
            error=state.error,
        )

    async def go_on(self) -> None:
        """Work until it has ended, or nothing new is to begin."""
        while self.phase not in ENDED and not self._draining.is_set():
            if self.phase == "running":
                await self._forward()
            else:
                await self._back()

    async def retry(self) -> None:
        """Leave `stuck` for another try."""
        await self._log.append(Retried())

    # --- forward ----------------------------------------------------------------------------------

    async def _forward(self) -> None:
        state, append = self._log.state, self._log.append
        step = next((step for step in self._saga.steps if step.name not in state.results), None)
        if step is None:
            await append(Completed())
            return
        if state.attempts >= step.attempts:
            await append(TurnedBack(step.name, state.error or "the process ended while it ran", refused=False))
            return
        attempt = state.attempts + 1
        await append(StepBegun(step.name, attempt))
        outcome = await self._attempt(step, step.action, attempt, suffix="")
        if isinstance(outcome, _Success):
            try:
                await append(StepDone(step.name, outcome.value))
                return
            except CodecError as error:
                outcome = _Failure(f"{step.name} returned what cannot be stored: {error}")
        logger.warning("saga %s %s: %s", self._saga.name, self._id, outcome.text)
        if outcome.refused:
            # What an attempt before this one did, nobody knows.
            await append(TurnedBack(step.name, outcome.text, refused=attempt == 1))
            return
        await append(StepFailed(step.name, outcome.text))
        if attempt < step.attempts:
            await self._wait(step, attempt)

    # --- back -------------------------------------------------------------------------------------

    async def _back(self) -> None:
        state, append = self._log.state, self._log.append
        if not state.begun:
            await append(Compensated())
            return
        name = state.begun[-1]
        step = self._saga.step(name)
        if step is None:
            await append(Stuck(name, f"the definition has no step {name!r} any more, so nobody knows how to undo it"))
            return
        if step.compensation is None:
            await append(Undone(name))
            return
        attempt = state.attempts + 1
        await append(UndoBegun(name, attempt))
        outcome = await self._attempt(step, step.compensation, attempt, suffix=":undo")
        if isinstance(outcome, _Success):
            await append(Undone(name))
        elif attempt < step.compensation_attempts:
            logger.warning("saga %s %s: %s", self._saga.name, self._id, outcome.text)
            await append(UndoFailed(name, outcome.text))
            await self._wait(step, attempt)
        else:
            await append(UndoFailed(name, outcome.text), Stuck(name, outcome.text))

    # --- both -------------------------------------------------------------------------------------

    async def _attempt(
        self, step: Step, function: Callable[[StepContext], Awaitable[object]], attempt: int, *, suffix: str
    ) -> _Success | _Failure:
        key = f"{self._saga.name}:{self._id}:{step.name}{suffix}"
        context = StepContext(self._saga.name, self._id, step.name, key, attempt, self._given, self._log.state.results)
        what = f"{'the compensation of ' if suffix else ''}{step.name}"
        try:
            with trio.move_on_after(step.timeout):
                return _Success(await function(context))
        except (MemoryError, trio.TrioInternalError):
            raise
        except StepRefused as error:
            return _Failure(f"{what} refused: {error}", refused=not suffix)
        except Exception as error:
            return _Failure(f"{what} failed: {type(error).__name__}: {error}")
        return _Failure(f"{what} took longer than {step.timeout:g} s")

    async def _wait(self, step: Step, attempt: int) -> None:
        with trio.move_on_after(step.retry.delay(attempt, self._environment.random)):
            await self._draining.wait()

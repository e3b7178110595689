"""The master of one application: runs its hooks around the life of its root."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, TypeAlias

import attrs
import trio

from sapwood.actors import ChildExit, ExitReason, Normal, Ref, handle
from sapwood.errors import ChildFailed, InvalidApplication, StartError
from sapwood.supervision._application import ROOT, Application
from sapwood.supervision._base import BaseSupervisor, as_reason
from sapwood.supervision._children import Child
from sapwood.supervision._spec import ChildSpec, Restart

Ending: TypeAlias = Literal["normal", "other"]
Consequence: TypeAlias = Literal["report it", "stop all"]

ON_END: Final[Mapping[tuple[Restart, Ending], Consequence]] = {
    ("permanent", "normal"): "stop all",
    ("permanent", "other"): "stop all",
    ("transient", "normal"): "report it",
    ("transient", "other"): "stop all",  # also `Shutdown`, with which every supervisor ends
    ("temporary", "normal"): "report it",
    ("temporary", "other"): "report it",
}
"""What the end of an application that nobody stopped means for the others (OTP N06)."""


def consequence(application: Application, reason: ExitReason) -> Consequence:
    """Look up what the end of an application by itself leads to."""
    return ON_END[application.type, "normal" if isinstance(reason, Normal) else "other"]


class ApplicationMaster(BaseSupervisor[str]):
    """Runs one application; ends as its root ends."""

    def __init__(self, application: Application) -> None:
        super().__init__(restarts=0, period=1.0)
        self._application = application
        self._state: Any = application.configuration
        self._ended_by_itself = False

    @property
    def root(self) -> Ref | None:
        """The present root, or None if there is none."""
        return next((child.ref for child in self._children.values()), None)

    @property
    def holds(self) -> bool:
        """Whether it runs and has not begun to end."""
        roots = self._children.values()
        return not self._ended_by_itself and self._cell.stopping is None and all(root.alive for root in roots)

    def format_state(self) -> str:
        return f"application={self._application.name}"

    async def on_start(self) -> None:
        await trio.lowlevel.checkpoint()
        application = self._application
        if application.start is not None:
            self._state = await _call(application.start, application.configuration)
        failure: Exception | None = None
        try:
            await self._start_root()
        except (MemoryError, trio.TrioInternalError):
            raise
        except Exception as error:
            failure = error
        if failure is not None:
            failures = [failure, *await self._call_stop()]
            raise _as_one(f"application {application.name} failed to start, and its stop hook failed", failures)

    async def _start_root(self) -> None:
        root: Any = self._application.root
        if root is None:
            return
        spec = root if isinstance(root, ChildSpec) else await _call(root, self._state)
        if not isinstance(spec, ChildSpec):
            raise InvalidApplication(self._application.name, "root", ROOT, spec)
        child = Child(attrs.evolve(spec, restart="temporary", significant=False))
        outcome = await self._launch(child)
        if isinstance(outcome, Exception):
            self._report("start_error", outcome, child)
            raise outcome if isinstance(outcome, ChildFailed) else ChildFailed(spec.id, as_reason(outcome))
        if outcome.ref is None:
            raise StartError(f"application {self._application.name}: its root returned Ignore(), so nothing runs")
        self._children[spec.id] = child

    @handle
    def root_ended(self, message: ChildExit) -> None:
        for child in self._children.values():
            if child.cell is message.ref._cell:
                self._report_exit(child, message.reason)
                child.stopped()
                self._ended_by_itself = True
                self.stop(message.reason)

    async def on_stop(self, reason: ExitReason) -> None:
        failures: list[Exception] = []
        prep_stop = self._application.prep_stop
        if prep_stop is not None and not self._ended_by_itself:
            try:
                self._state = await _call(prep_stop, self._state)
            except (MemoryError, trio.TrioInternalError):
                raise
            except Exception as error:
                failures.append(error)
        await self._stop_children()
        failures += await self._call_stop()
        if failures:
            raise _as_one(f"both stop hooks of application {self._application.name} failed", failures)

    async def _stop_children(self) -> None:
        for child in self._children.values():
            await self._stop_child(child)

    async def _call_stop(self) -> list[Exception]:
        stop = self._application.stop
        if stop is None:
            return []
        try:
            await _call(stop, self._state)
        except (MemoryError, trio.TrioInternalError):
            raise
        except Exception as error:
            return [error]
        return []


def _as_one(text: str, failures: list[Exception]) -> Exception:
    return failures[0] if len(failures) == 1 else ExceptionGroup(text, failures)


async def _call(hook: Callable[..., Any], *args: Any) -> Any:
    await trio.lowlevel.checkpoint()
    result = hook(*args)
    return await result if inspect.isawaitable(result) else result

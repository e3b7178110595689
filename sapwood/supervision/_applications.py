"""The controller of a set of applications: starts them in the order of what they require, stops them in reverse."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from sapwood.actors import ChildExit, ExitReason, Failure, Ref, Shutdown, check_branch, handle
from sapwood.errors import (
    ActorDown,
    AlreadyStarted,
    ApplicationFailed,
    ApplicationNotFound,
    ApplicationNotRunning,
    AskCycle,
    DependencyNotRunning,
    InvalidOption,
)
from sapwood.supervision._application import Application, start_order, with_dependencies
from sapwood.supervision._application_master import ApplicationMaster, consequence
from sapwood.supervision._application_requests import (
    ApplicationInfo,
    EnsureAllStarted,
    StartApplication,
    StopApplication,
)
from sapwood.supervision._base import BaseSupervisor, as_reason
from sapwood.supervision._children import Child
from sapwood.supervision._spec import ChildSpec, Restart, ShutdownTime, child


class ApplicationController(BaseSupervisor[str]):
    """Supervises a set of applications; OTP's application controller.

    It starts them one after another, each after all that it requires, and stops them in reverse start order. It never
    restarts one: what the end of an application means is for its `type` to say, and if that is the end of all, the
    controller stops the others and ends with `Shutdown`, for its own supervisor to start everything afresh or to
    give up.

    Args:
        available: The set.
        start: Names of those to start with it, which takes those that they require along; None for all.

    Raises:
        InvalidApplication, DuplicateName, DependencyCycle, MissingDependency: see `applications`; nothing has started.
        ApplicationNotFound: if `start` names one that is not in the set.
    """

    def __init__(self, available: Sequence[Application], *, start: Sequence[str] | None = None) -> None:
        super().__init__(restarts=0, period=1.0)
        self._available = start_order(available)
        self._initial = self._check_names(self._available if start is None else start)
        self._ends: dict[str, ExitReason] = {}
        self._fallen: Shutdown | None = None

    def _check_names(self, names: Any) -> tuple[str, ...]:
        """Refuse names that are not in the set."""
        if isinstance(names, str):
            raise InvalidOption(f"start: expected a sequence of names; got {names!r}. Write [{names!r}]")
        for name in names:
            if name not in self._available:
                raise ApplicationNotFound(name, list(self._available))
        return tuple(names)

    def format_state(self) -> str:
        return f"running={', '.join(self._children)}"

    # --- starting ---------------------------------------------------------------------------------

    async def on_start(self) -> None:
        await self._start_missing(self._initial)

    async def _start_missing(self, names: Sequence[str]) -> list[str]:
        """Start what does not run of these and of all that they require; undo that if one fails (OTP N02, N03)."""
        begun: list[str] = []
        for name in with_dependencies(names, self._available):
            if name in self._children:
                continue
            failure = await self._start(name)
            if failure is not None:
                begun.reverse()
                for one in begun:
                    await self._stop_one(one)
                if isinstance(failure, ApplicationFailed):
                    failure = ApplicationFailed(name, failure.reason, begun)
                raise failure
            begun.append(name)
        return begun

    async def _start(self, name: str) -> ApplicationFailed | DependencyNotRunning | None:
        application = self._available[name]
        for required in application.requires:
            if self._master(required) is None:
                return DependencyNotRunning(name, required)
        spec = child(
            ApplicationMaster,
            application,
            id=name,
            restart="temporary",
            shutdown=application.shutdown,
            start_timeout=application.start_timeout,
        )
        started = Child(spec)
        outcome = await self._launch(started)
        if isinstance(outcome, Exception):
            self._report("start_error", outcome, started, started.last_cell)
            return ApplicationFailed(name, as_reason(outcome))
        self._children[name] = started
        self._ends.pop(name, None)
        return None

    def _master(self, name: str) -> ApplicationMaster | None:
        """Return the master of an application that runs and has not begun to end."""
        running = self._children.get(name)
        if running is None or running.cell is None or not running.alive:
            return None
        master = running.cell.actor
        return master if isinstance(master, ApplicationMaster) and master.holds else None

    # --- stopping ---------------------------------------------------------------------------------

    async def on_stop(self, reason: ExitReason) -> None:
        await self._stop_children()

    async def _stop_children(self) -> None:
        for name in reversed(tuple(self._children)):
            await self._stop_one(name)

    async def _stop_one(self, name: str) -> None:
        await self._stop_child(self._children.pop(name))

    @handle
    def child_ended(self, message: ChildExit) -> None:
        for name, one in self._children.items():
            if one.cell is message.ref._cell:
                self._note_end(name, one, message.reason)
                return

    async def _refusal(self, names: Sequence[str], caller: Ref | None) -> Failure | None:
        """Say why a request about these applications cannot be carried out.

        Waits for those that have begun to end, and takes in ends whose notice still waits, so that no request is
        answered as if they had not ended.
        """
        for name in names:
            ending = self._children.get(name)
            if ending is None or ending.cell is None or self._master(name) is not None:
                continue
            try:
                check_branch(caller._cell if caller is not None else None, (self._cell,), ending.cell)
            except AskCycle as error:
                return Failure(error)
            await ending.cell.ref.wait_stopped()
        return self._note_ends()

    def _note_ends(self) -> Failure | None:
        for name, one in tuple(self._children.items()):
            if one.cell is not None and one.cell.reason is not None:
                self._note_end(name, one, one.cell.reason)
        return Failure(ActorDown(self._cell.label, self._fallen)) if self._fallen is not None else None

    def _note_end(self, name: str, ended: Child, reason: ExitReason) -> None:
        self._report("child_terminated", reason, ended, ended.cell)
        del self._children[name]
        self._ends[name] = reason
        if consequence(self._available[name], reason) == "stop all" and self._fallen is None:
            self._fallen = Shutdown(f"application {name} ended: {reason}")
            self._report("shutdown", self._fallen.detail, ended, ended.last_cell)
            self.stop(self._fallen)

    # --- management -------------------------------------------------------------------------------

    @handle
    async def start_application(self, message: StartApplication) -> Ref | Failure:
        name = message.name
        if name not in self._available:
            return Failure(ApplicationNotFound(name, list(self._available)))
        refusal = await self._refusal(with_dependencies([name], self._available), message.caller)
        if refusal is not None:
            return refusal
        running = self._children.get(name)
        if running is not None and running.ref is not None:
            return Failure(AlreadyStarted(f"application {name}", running.ref))
        failure = await self._start(name)
        if failure is not None:
            return Failure(failure)
        started = self._children[name].ref
        assert started is not None
        return self._note_ends() or started

    @handle
    async def ensure_all_started(self, message: EnsureAllStarted) -> list[str] | Failure:
        try:
            names = self._check_names(message.names) if message.names else tuple(self._available)
            refusal = await self._refusal(with_dependencies(names, self._available), message.caller)
            if refusal is not None:
                return refusal
            begun = await self._start_missing(names)
        except (ApplicationFailed, ApplicationNotFound, DependencyNotRunning) as error:
            return Failure(error)
        return self._note_ends() or begun

    @handle
    async def stop_application(self, message: StopApplication) -> Failure | None:
        name, caller = message.name, message.caller
        if name not in self._available:
            return Failure(ApplicationNotFound(name, list(self._available)))
        refusal = await self._refusal([name], caller)
        if refusal is not None:
            return refusal
        running = self._children.get(name)
        if running is None or running.cell is None:
            return Failure(ApplicationNotRunning(name))
        try:
            check_branch(caller._cell if caller is not None else None, (self._cell,), running.cell)
        except AskCycle as error:
            return Failure(error)
        await self._stop_one(name)
        return None

    def describe(self) -> list[ApplicationInfo]:
        """Describe every application of the set, in an order in which they can start."""
        return [self._describe(application) for application in self._available.values()]

    def _describe(self, application: Application) -> ApplicationInfo:
        master = self._master(application.name)
        return ApplicationInfo(
            name=application.name,
            version=application.version,
            state="running" if master is not None else "stopped",
            type=application.type,
            requires=tuple(application.requires),
            root=master.root if master is not None else None,
            reason=self._ends.get(application.name),
        )


def applications(
    available: Sequence[Application],
    *,
    start: Sequence[str] | None = None,
    id: str = "applications",
    key: object = None,
    restart: Restart = "permanent",
    shutdown: ShutdownTime = None,
) -> ChildSpec:
    """Describe a set of applications as a child of a supervisor or of the runtime.

    ```python
    async with open_runtime(children=[applications([database, web], key=("applications", "all"))]) as runtime: ...
    ```

    Args:
        available: The applications, in any order.
        start: Names of those to start, which takes those that they require along; None for all.
        id: See `ChildSpec`.
        key: Registry key of the controller, through which it is found again after a restart.
        restart: What its supervisor does when the end of an application has brought all of them down: `permanent`
            starts everything afresh.
        shutdown: Seconds for stopping all of them; None, the default, leaves it to the times of each.

    Raises:
        InvalidApplication, DuplicateName, DependencyCycle, MissingDependency, ApplicationNotFound: if the set cannot
            work, before anything starts.
    """
    ApplicationController(available, start=start)  # refuses what cannot work
    make = partial(ApplicationController, tuple(available), start=None if start is None else tuple(start))
    return child(make, id=id, key=key, restart=restart, shutdown=shutdown)


def which_applications(controller: Ref) -> list[ApplicationInfo]:
    """List the applications of the set, each after all that it requires; reads the table directly, asking nobody.

    Raises:
        ActorDown: if the controller is dead.
        InvalidOption: if it is another kind of actor.
    """
    cell = controller._cell
    if cell.reason is not None:
        raise ActorDown(cell.label, cell.reason)
    if not isinstance(cell.actor, ApplicationController):
        raise InvalidOption(f"which_applications: expected the ref of an ApplicationController; got {controller!r}")
    return cell.actor.describe()

"""What one may ask of a supervisor, and the functions that ask it."""

from __future__ import annotations

from typing import Any, Literal, overload

import attrs

from sapwood.actors import Ref, Request, blocked_actor, message
from sapwood.errors import InvalidChildSpec
from sapwood.supervision._children import ChildCounts, ChildInfo, StartedChild
from sapwood.supervision._spec import ChildSpec


@attrs.frozen
class SupervisorStatistics:
    """A snapshot of a supervisor.

    Attributes:
        children: Retained specs.
        active: Children with a process.
        restarting: Children that are being restarted or wait for their delay.
        restarts: Restart attempts since the supervisor started.
        restarts_in_window: Restart attempts that count against the intensity now.
    """

    children: int
    active: int
    restarting: int
    restarts: int
    restarts_in_window: int


@message("supervision.start_child")
class StartChild(Request[StartedChild]):
    spec: ChildSpec


@message("supervision.terminate_child")
class TerminateChild(Request[None]):
    child: str | Ref
    caller: Ref | None = None


@message("supervision.restart_child")
class RestartChild(Request[StartedChild]):
    id: str


@message("supervision.delete_child")
class DeleteChild(Request[None]):
    id: str


@message("supervision.which_children")
class WhichChildren(Request[list[ChildInfo]]):
    pass


@message("supervision.count_children")
class CountChildren(Request[ChildCounts]):
    pass


@message("supervision.get_child_spec")
class GetChildSpec(Request[ChildSpec]):
    id: str


@message("supervision.get_statistics")
class GetStatistics(Request[SupervisorStatistics]):
    pass


@overload
async def start_child(supervisor: Ref, spec: ChildSpec) -> Ref | None: ...
@overload
async def start_child(supervisor: Ref, spec: ChildSpec, *, with_info: Literal[True]) -> tuple[Ref | None, Any]: ...
async def start_child(
    supervisor: Ref, spec: ChildSpec, *, with_info: bool = False
) -> Ref | tuple[Ref | None, Any] | None:
    """Start a child and add it at the end of the order; None if its `on_start` returned `Ignore()` (OTP G01, R04).

    Waits as long as the child takes to start. A failing start changes nothing and uses no budget (OTP G04).

    Args:
        supervisor: The supervisor.
        spec: The child.
        with_info: Return also what the child's `on_start` gave with `Started(info)`, or the async function with
            `task_status.started(info)`; None if it gave nothing (OTP A14).

    Raises:
        AlreadyStarted: if a child with this id runs (OTP G02), or its key is taken.
        AlreadyPresent: if there is a spec with this id that does not run (OTP G03).
        MaxChildren: if a dynamic supervisor is full (OTP H02).
        ChildFailed: if the child fails to start.
        RegistryUnavailable: if the child has a key and the registry cannot tell.
        InvalidChildSpec: if it is no spec, or the supervisor cannot have such a child.
        ActorDown: if the supervisor is dead (OTP G15).
    """
    check_spec(spec)
    started = await supervisor.ask(StartChild(spec), timeout=None)
    return (started.ref, started.info) if with_info else started.ref


async def terminate_child(supervisor: Ref, child: str | Ref) -> None:
    """Stop a child by its own shutdown setting; it is not restarted, and its siblings are left alone (OTP G05–G08).

    Args:
        supervisor: The supervisor.
        child: The child's id, or its ref under a dynamic supervisor (OTP H07).

    Raises:
        ChildNotFound: if there is no such child.
        AskCycle: if the calling actor is that child, or below it: it would wait for its own end (OTP E17).
        ActorDown: if the supervisor is dead.
    """
    await supervisor.ask(TerminateChild(child, blocked_actor()), timeout=None)


@overload
async def restart_child(supervisor: Ref, id: str) -> Ref | None: ...
@overload
async def restart_child(supervisor: Ref, id: str, *, with_info: Literal[True]) -> tuple[Ref | None, Any]: ...
async def restart_child(
    supervisor: Ref,
    id: str,
    *,
    with_info: bool = False,
) -> Ref | tuple[Ref | None, Any] | None:
    """Start a child that has a spec and no process (OTP G09, G10); see `start_child` for what it returns.

    Raises:
        ChildNotFound, ChildRunning, ChildRestarting: if it has no spec, runs, or is being restarted.
        ChildFailed: if it fails to start; it stays without a process.
        ActorDown: if the supervisor is dead.
    """
    started = await supervisor.ask(RestartChild(id), timeout=None)
    return (started.ref, started.info) if with_info else started.ref


async def delete_child(supervisor: Ref, id: str) -> None:
    """Drop the spec of a child that has no process (OTP G11).

    Raises:
        ChildNotFound, ChildRunning, ChildRestarting: if it has no spec, runs, or is being restarted.
        ActorDown: if the supervisor is dead.
    """
    await supervisor.ask(DeleteChild(id), timeout=None)


async def which_children(supervisor: Ref) -> list[ChildInfo]:
    """List every retained child in start order (OTP G12).

    Raises:
        ActorDown: if the supervisor is dead.
    """
    return await supervisor.ask(WhichChildren(), timeout=None)


async def count_children(supervisor: Ref) -> ChildCounts:
    """Count specs, processes, supervisors and workers (OTP G13).

    Raises:
        ActorDown: if the supervisor is dead.
    """
    return await supervisor.ask(CountChildren(), timeout=None)


async def get_child_spec(supervisor: Ref, id: str) -> ChildSpec:
    """Return a child's full spec, defaults filled in (OTP G14).

    Raises:
        ChildNotFound: if there is no such child.
        ActorDown: if the supervisor is dead.
    """
    return await supervisor.ask(GetChildSpec(id), timeout=None)


async def supervisor_statistics(supervisor: Ref) -> SupervisorStatistics:
    """Return a snapshot of the supervisor's counters.

    Raises:
        ActorDown: if the supervisor is dead.
    """
    return await supervisor.ask(GetStatistics(), timeout=None)


def check_spec(spec: object) -> None:
    """Refuse what is no spec, in the caller, whatever the supervisor is (OTP H06).

    Raises:
        InvalidChildSpec: saying how a spec is made.
    """
    if not isinstance(spec, ChildSpec):
        raise InvalidChildSpec("spec", "a spec made with child(...) or supervisor(...)", spec)

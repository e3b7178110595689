"""What one may ask of the controller of a set of applications, and the functions that ask it."""

from __future__ import annotations

from typing import Literal

import attrs

from sapwood.actors import ExitReason, Ref, Request, blocked_actor, message
from sapwood.supervision._spec import Restart


@attrs.frozen
class ApplicationInfo:
    """One line of `which_applications`.

    Attributes:
        name: Its name.
        version: Its version.
        state: `running` or `stopped`.
        type: What its end leads to, see `Application`.
        requires: Names of those that it requires.
        root: Ref of its root while it runs, if it has one.
        reason: How it ended by itself the last time; None if it has not since its last start.
    """

    name: str
    version: str
    state: Literal["running", "stopped"]
    type: Restart
    requires: tuple[str, ...]
    root: Ref | None
    reason: ExitReason | None


@message("supervision.start_application")
class StartApplication(Request[Ref]):
    name: str
    caller: Ref | None = None


@message("supervision.ensure_all_started")
class EnsureAllStarted(Request[list[str]]):
    names: tuple[str, ...]
    caller: Ref | None = None


@message("supervision.stop_application")
class StopApplication(Request[None]):
    name: str
    caller: Ref | None = None


async def start_application(controller: Ref, name: str) -> Ref:
    """Start one application whose dependencies run already; return the ref of its master (OTP N01).

    Raises:
        DependencyNotRunning: naming a dependency that does not run; nothing was started.
        ApplicationFailed: if it fails to start; nothing of it is left (OTP N07).
        AlreadyStarted: if it runs.
        ApplicationNotFound: if it is not in the set.
        AskCycle: if the calling actor belongs to an application whose end would have to be waited for.
        ActorDown: if the controller is dead, or ended because of another application.
    """
    return await controller.ask(StartApplication(name, blocked_actor()), timeout=None)


async def ensure_all_started(controller: Ref, *names: str) -> list[str]:
    """Start applications and all that they require, in order; return the names of those that did not run before.

    Those that run already are left alone (OTP N02).

    Args:
        controller: The controller.
        *names: The applications; without any, all of the set.

    Raises:
        ApplicationFailed: naming the one that failed, and its reason; those that this call had started have been
            stopped again, in reverse order (OTP N03).
        DependencyNotRunning: if one ended again before another that requires it could start; likewise.
        ApplicationNotFound: if one is not in the set; nothing was started.
        AskCycle: if the calling actor belongs to an application whose end would have to be waited for.
        ActorDown: if the controller is dead, or ended because of an application that ended meanwhile.
    """
    return await controller.ask(EnsureAllStarted(names, blocked_actor()), timeout=None)


async def stop_application(controller: Ref, name: str) -> None:
    """Stop one application, and wait until nothing of it runs; the others are left alone, whatever their type.

    Also those that require it go on (OTP N06).

    Raises:
        ApplicationNotRunning: if it does not run.
        ApplicationNotFound: if it is not in the set.
        AskCycle: if the calling actor belongs to it; it would wait for its own end.
        ActorDown: if the controller is dead.
    """
    await controller.ask(StopApplication(name, blocked_actor()), timeout=None)

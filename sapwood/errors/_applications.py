"""Errors of applications: specs that cannot work, and starts that failed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sapwood.errors._root import SapwoodError
from sapwood.errors._starting import StartError

if TYPE_CHECKING:
    from sapwood.actors import ExitReason


class InvalidApplication(SapwoodError, ValueError):
    """An application cannot work as described; `field` names the offending part."""

    def __init__(self, application: object, field: str, expected: str, got: object) -> None:
        super().__init__(f"application {application!r}, field {field!r}: expected {expected}; got {got!r}")
        self.application = application
        self.field = field
        self.expected = expected
        self.got = got


class MissingDependency(SapwoodError, ValueError):
    """An application requires one that is not in the set; `chain` leads from the one that nobody requires to it."""

    def __init__(self, chain: Sequence[str], known: Sequence[str]) -> None:
        *_, application, missing = chain
        super().__init__(
            f"application {application} requires {missing}, which is not in the set ({' → '.join(chain)}); "
            f"known are {', '.join(known)}. Add Application({missing!r}, ...), or take {missing!r} out of the requires "
            f"of {application}"
        )
        self.application = application
        self.missing = missing
        self.chain = tuple(chain)
        self.known = tuple(known)


class DependencyCycle(SapwoodError, ValueError):
    """Applications require one another, so none can be first; `chain` begins and ends with the same one."""

    def __init__(self, chain: Sequence[str]) -> None:
        super().__init__(
            f"these applications require one another: {' → '.join(chain)}. Take one name in this chain out of the "
            "requires before it, or move what both need into an application of its own"
        )
        self.chain = tuple(chain)


class DependencyNotRunning(StartError):
    """An application was not started because one that it requires does not run (OTP N01)."""

    def __init__(self, application: str, dependency: str) -> None:
        super().__init__(
            f"application {application} was not started: it requires {dependency}, which is not running. Start that "
            "first, or use ensure_all_started"
        )
        self.application = application
        self.dependency = dependency


class ApplicationFailed(StartError):
    """An application failed to start; those that the same call had started are stopped again (OTP N03).

    `reason` is its exit reason, in which the reason of the child that failed is nested (OTP N07). `stopped` names
    the others in the order in which they were stopped.
    """

    def __init__(self, application: str, reason: ExitReason, stopped: Sequence[str] = ()) -> None:
        undone = f"; stopped again: {', '.join(stopped)}" if stopped else ""
        super().__init__(f"application {application} failed to start: {reason}{undone}")
        self.application = application
        self.reason = reason
        self.stopped = tuple(stopped)


class ApplicationNotFound(SapwoodError, LookupError):
    """There is no application of this name in the set; nothing was started or stopped."""

    def __init__(self, application: str, known: Sequence[str]) -> None:
        super().__init__(f"there is no application {application}; known are {', '.join(known)}")
        self.application = application
        self.known = tuple(known)


class ApplicationNotRunning(SapwoodError):
    """The application to be stopped does not run."""

    def __init__(self, application: str) -> None:
        super().__init__(f"application {application} is not running, so there is nothing to stop")
        self.application = application

"""Misuse: the call was wrong."""

from __future__ import annotations

from sapwood.errors._root import SapwoodError


class InvalidOption(SapwoodError, ValueError):
    """An option does not exist, or its value is out of range."""


class InvalidMessage(SapwoodError, TypeError):
    """Something that is not a message was sent, or a message or handler is declared wrongly."""


class InvalidChildSpec(SapwoodError, ValueError):
    """A child spec or a supervisor option cannot work; `field` names the offending part."""

    def __init__(self, field: str, expected: str, got: object) -> None:
        super().__init__(f"child spec field {field!r}: expected {expected}; got {got!r}")
        self.field = field
        self.expected = expected
        self.got = got


class InvalidKey(SapwoodError, TypeError):
    """A registry key is no tuple of a kind and plain parts."""

    def __init__(self, key: object, expected: str) -> None:
        super().__init__(f"registry key: expected {expected}; got {key!r}")
        self.key = key
        self.expected = expected


class InvalidTool(SapwoodError, TypeError):
    """A function cannot be offered to a model as a tool."""


class DuplicateName(SapwoodError, ValueError):
    """A name that must be unique was used twice."""

    def __init__(self, kind: str, name: str, holder: object) -> None:
        super().__init__(f"{kind} {name!r} is already taken by {holder!r}; choose another name")
        self.kind = kind
        self.name = name


class MissingExtra(SapwoodError, ImportError):
    """A package that an optional part of Sapwood needs is not installed; `extra` names what to install."""

    def __init__(self, what: str, package: str, extra: str) -> None:
        super().__init__(f"{what} needs the package {package!r}: pip install 'sapwood[{extra}]'")
        self.what = what
        self.package = package
        self.extra = extra


class WrongThread(SapwoodError, RuntimeError):
    """A call was made outside the thread that runs the runtime; nothing was done."""


class NotOwner(SapwoodError, RuntimeError):
    """A task was awaited or stopped by another actor than the one that started it (OTP L06)."""

    def __init__(self, task: str, deed: str, owner: object, caller: object) -> None:
        super().__init__(f"{task} was started by {owner!r}; only that may {deed} it, and {caller!r} tried to")
        self.task = task
        self.owner = owner
        self.caller = caller


class NotRunningInside(SapwoodError, RuntimeError):
    """An attribute that only a started actor has was read before the runtime started it."""

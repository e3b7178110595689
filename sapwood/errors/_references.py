"""Errors of reference stores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sapwood.errors._root import SapwoodError

if TYPE_CHECKING:
    from collections.abc import Sequence


class ReferenceStoreError(SapwoodError):
    """Something about a reference store; `store` is what the store is called."""

    def __init__(self, store: str, problem: str) -> None:
        super().__init__(f"reference store {store}: {problem}")
        self.store = store
        self.problem = problem


class ReferenceNotFound(ReferenceStoreError):
    """The store answered: it does not have this reference, or not any more (S0-043).

    Attributes:
        id: The reference.
        causes: What may have happened, the likeliest first.
    """

    def __init__(self, store: str, id: str) -> None:
        self.id = id
        self.causes = (
            "it was collected, for nobody holds it and its time is over: acquire() it, or raise ttl or max_idle",
            "it was never stored: check the id",
            "it is in another store: give the agents that exchange references one store",
        )
        super().__init__(store, f"reference not found: {id}; " + "; or ".join(self.causes))


class ReferenceUnavailable(ReferenceStoreError):
    """The store cannot answer now (down, closed, locked, full). Must never be read as "not found"."""

    def __init__(self, store: str, reason: str) -> None:
        super().__init__(store, f"cannot answer: {reason}")
        self.reason = reason


class ReferenceCorrupt(ReferenceStoreError):
    """What is stored under the reference is not what its id says; it is in quarantine, not deleted.

    Storing the right bytes again mends it.

    Attributes:
        id: The reference.
        reason: What is wrong with the stored bytes.
    """

    def __init__(self, store: str, id: str, reason: str) -> None:
        super().__init__(store, f"reference {id} is damaged: {reason}; store its bytes again, or delete it")
        self.id = id
        self.reason = reason


class ReferenceInUse(ReferenceStoreError):
    """A reference that somebody holds is not deleted; nothing was changed.

    Attributes:
        id: The reference.
        owners: Who holds it.
    """

    def __init__(self, store: str, id: str, owners: Sequence[str]) -> None:
        named = ", ".join(repr(owner) for owner in owners[:5]) + (", ..." if len(owners) > 5 else "")
        super().__init__(store, f"reference {id} is held by {named}; release it before deleting it")
        self.id = id
        self.owners = tuple(owners)

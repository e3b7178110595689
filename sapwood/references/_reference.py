"""References: what stands for a payload that is kept in a store."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final

import attrs

from sapwood.actors import record
from sapwood.errors import InvalidOption

ID: Final = re.compile(r"[0-9a-f]{64}")
TYPE: Final = re.compile(r"[a-z][a-z0-9_.-]{0,63}")
LONGEST_TEXT: Final = 512


class ReferenceType(StrEnum):
    """What kinds of payload the runtime itself stores.

    The set is open: a store takes any name of 1 to 64 lower-case letters, digits and `_.-` that begins with a letter,
    also from an enum of your own (S0-006).
    """

    BLOB = "blob"
    SESSION_STATE = "session_state"
    WORKFLOW_CONTEXT = "workflow_context"
    DATASET = "dataset"
    TOOL_RESULT = "tool_result"
    API_RESPONSE = "api_response"
    DOCUMENT_CHUNK = "document_chunk"


@record("reference")
class Reference:
    """Stands for bytes in a store; small enough for any message (S0-007).

    Attributes:
        id: SHA-256 of the bytes, 64 hex digits; equal bytes have equal ids, in every store (S0-019).
        type: A `ReferenceType`, or another name.
        content_type: How the bytes are to be read, such as `application/json`.
        size: Bytes, uncompressed.
        created: When a store first got the bytes, in seconds since 1970 UTC.
    """

    id: str
    type: str
    content_type: str
    size: int
    created: float


@attrs.frozen
class Lease:
    """A hold on a reference: while it lasts, the reference is not collected and cannot be deleted.

    Attributes:
        id: The reference.
        owner: Who holds it. One owner has one lease on a reference; acquiring again renews it.
        expires: Wall clock at which it ends by itself, in seconds since 1970 UTC; None: only `release` ends it.
    """

    id: str
    owner: str
    expires: float | None


@attrs.frozen
class ReferenceInfo:
    """All that a store knows of a reference.

    Attributes:
        reference: The reference.
        leases: Who holds it now, by owner; their number is its reference count.
        kept_until: Until when it is kept though nobody holds it, in seconds since 1970 UTC; None: for ever.
        accessed: When it was last stored, acquired or resolved, in seconds since 1970 UTC.
        resolves: How often `resolve` returned it.
        stored_size: Bytes that it takes up, compressed where that pays.
        quarantined: Why it cannot be resolved; None if it can.
    """

    reference: Reference
    leases: tuple[Lease, ...]
    kept_until: float | None
    accessed: float
    resolves: int
    stored_size: int
    quarantined: str | None


def id_of(reference: Reference | str) -> str:
    """Return the id of a reference, given as such or as its id.

    Raises:
        InvalidOption: if it is neither.
    """
    found: object = reference.id if isinstance(reference, Reference) else reference
    if isinstance(found, str) and ID.fullmatch(found):
        return found
    raise InvalidOption(f"reference: expected a Reference or its id of 64 lower-case hex digits; got {found!r:.80}")


def checked_type(name: str) -> str:
    """Return the name of a reference type as a plain str.

    Raises:
        InvalidOption: if it cannot be one.
    """
    if isinstance(name, str) and TYPE.fullmatch(name):
        return str.__str__(name)
    raise InvalidOption(
        f"type: expected a ReferenceType, or 1 to 64 lower-case letters, digits and '_.-' with a letter first; "
        f"got {name!r:.80}"
    )


def checked_text(what: str, value: str) -> str:
    """Return an owner or a content type that every store can hold.

    Raises:
        InvalidOption: if it cannot be one.
    """
    if isinstance(value, str) and 0 < len(value) <= LONGEST_TEXT and "\x00" not in value and _is_utf8(value):
        return str.__str__(value)
    raise InvalidOption(f"{what}: expected 1 to 512 characters without NUL and lone surrogates; got {value!r:.80}")


def _is_utf8(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True

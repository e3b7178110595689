"""Tags: the keys by which JSON tells the members of a union from one another."""

from __future__ import annotations

from collections.abc import Mapping
from types import UnionType
from typing import Any, Union, get_args, get_origin

from sapwood.actors import wire_of
from sapwood.conversation._commands import Command, CommandOutcome
from sapwood.conversation._messages import AssistantMessage, ToolResult, UserMessage
from sapwood.conversation._operations import Operation
from sapwood.conversation._snapshot import Snapshot
from sapwood.conversation._stream import LOSS, StreamEvent

ROLES: Mapping[Any, str] = {UserMessage: "user", AssistantMessage: "assistant", ToolResult: "tool"}
TYPED: frozenset[Any] = frozenset(
    (*LOSS, *get_args(Operation), *get_args(Command), *get_args(CommandOutcome), Snapshot)
)


def tag_of(cls: Any) -> dict[str, str]:
    """Return `{"role": …}` of a message, `{"type": wire name}` of whatever else has a tag, else nothing."""
    if cls in ROLES:
        return {"role": ROLES[cls]}
    wire = wire_of(cls) if cls in TYPED else None
    return {"type": wire.name} if wire is not None else {}


def members_of(kind: Any) -> tuple[Any, ...]:
    """Return the classes of a union that have tags, every kind of event for `StreamEvent`, else nothing."""
    members: tuple[Any, ...] = ()
    if kind is StreamEvent:
        members = tuple(LOSS)
    elif get_origin(kind) in (Union, UnionType):
        members = get_args(kind)
    return members if all(map(tag_of, members)) else ()

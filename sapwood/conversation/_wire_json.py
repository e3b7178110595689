"""Commands, outcomes and snapshots as JSON-safe data: the other half of what clients read and write."""

from __future__ import annotations

import difflib
from typing import Any, Final, cast, get_args

import attrs

from sapwood.actors import wire_of
from sapwood.conversation._commands import WIRE_VERSION, Command, CommandOutcome
from sapwood.conversation._converter import json_converter
from sapwood.conversation._snapshot import Snapshot
from sapwood.conversation._versioned import read_versioned, write_versioned
from sapwood.errors import CodecError

_COMMANDS: Final[dict[str, Any]] = {wire.name: cls for cls in get_args(Command) if (wire := wire_of(cls)) is not None}


def command_to_json(command: Command) -> dict[str, Any]:
    """Return `{version, type, …}` with all fields of a command, JSON-safe and detached from it.

    Raises:
        CodecError: if it is no command, or a field is not what its annotation says; its path says which.
    """
    return write_versioned(command, Command, "command", WIRE_VERSION)


def command_from_json(data: object) -> Command:
    """Return the command in what a client has sent. Strict, but fields that have a default may be left out.

    Raises:
        CodecError: if the type or a key is unknown, a value is missing or has the wrong type; it says what would be
            right, and its path says where.
        FutureVersion: if it was written for a newer version.
    """
    if not isinstance(data, dict):
        raise CodecError("command", f'expected an object such as {{"version": 1, "type": …}}; got {_kind(data)}')
    given = dict(cast("dict[Any, Any]", data))
    if "version" not in given:
        raise CodecError("command.version", f"expected {WIRE_VERSION}, the version of the wire schema; got none")
    name = given.get("type")
    cls = _COMMANDS.get(name) if isinstance(name, str) else None
    if cls is None and given["version"] == WIRE_VERSION:
        raise CodecError("command.type", f"expected {_near(name, tuple(_COMMANDS))}; got {name!r:.80}")
    if cls is not None:
        fields = attrs.fields(attrs.resolve_types(cls))
        for key in given:
            known = ("version", "type", *(field.name for field in fields))
            if key not in known:
                raise CodecError(f"command.{key!s:.80}", f"expected {_near(key, known)}; got an unknown key")
        defaults = {field.name: _default(field) for field in fields if field.default is not attrs.NOTHING}
        given = {**defaults, **given}
    command: Command = read_versioned(given, Command, "command", WIRE_VERSION)
    return command


def outcome_to_json(outcome: CommandOutcome) -> dict[str, Any]:
    """Return `{version, type, …}` with all fields of an outcome, JSON-safe and detached from it.

    Raises:
        CodecError: if it is no outcome, or a field is not what its annotation says; its path says which.
    """
    return write_versioned(outcome, CommandOutcome, "outcome", WIRE_VERSION)


def outcome_from_json(data: object) -> CommandOutcome:
    """Return the outcome that `outcome_to_json` wrote. Strict: nothing is guessed or skipped.

    Raises:
        CodecError, FutureVersion: if it is none.
    """
    outcome: CommandOutcome = read_versioned(data, CommandOutcome, "outcome", WIRE_VERSION)
    return outcome


def snapshot_to_json(snapshot: Snapshot) -> dict[str, Any]:
    """Return `{version, type, …}` with all fields of a snapshot, JSON-safe and detached from it.

    Raises:
        CodecError: if a field is no JSON; its path says which.
    """
    return write_versioned(snapshot, Snapshot, "snapshot", WIRE_VERSION)


def snapshot_from_json(data: object) -> Snapshot:
    """Return the snapshot that `snapshot_to_json` wrote. Strict: nothing is guessed or skipped.

    Raises:
        CodecError, FutureVersion: if it is none.
    """
    snapshot: Snapshot = read_versioned(data, Snapshot, "snapshot", WIRE_VERSION)
    return snapshot


def _default(field: attrs.Attribute[Any]) -> Any:
    make = getattr(field.default, "factory", None)
    return json_converter().unstructure(field.default if make is None else make(), unstructure_as=field.type)


def _near(given: object, known: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(str(given), known, n=1)
    return f"{near[0]!r}" if near else f"one of {', '.join(known)}"


def _kind(value: object) -> str:
    return type(value).__qualname__

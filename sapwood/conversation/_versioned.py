"""The outermost object of a JSON form: its version, and the paths of what is wrong inside it."""

from __future__ import annotations

from typing import Any, cast

from sapwood.conversation._converter import json_converter
from sapwood.errors import CodecError, FutureVersion


def write_versioned(value: object, kind: Any, root: str, version: int) -> dict[str, Any]:
    """Return `{version, …}` with the fields of an instance of `kind`, JSON-safe and detached from it.

    Raises:
        CodecError: if a field does not hold what its annotation says; its path says which, `root` is the whole.
    """
    try:
        return {"version": version, **json_converter().unstructure(value, unstructure_as=kind)}
    except CodecError as error:
        raise _placed(root, error) from None


def read_versioned(data: object, kind: Any, root: str, version: int) -> Any:
    """Return the instance of `kind` that `write_versioned` took apart.

    Raises:
        CodecError: if a key is missing or unknown or a value does not fit; its path says which, `root` is the whole.
        FutureVersion: if the data has a newer version; it is not looked at further.
    """
    if not isinstance(data, dict):
        raise CodecError(root, f"expected an object; got {type(data).__qualname__}")
    fields = dict(cast("dict[Any, Any]", data))
    if "version" not in fields:
        raise CodecError(f"{root}.version", "expected a value; got none")
    found: object = fields.pop("version")
    if type(found) is not int:
        raise CodecError(f"{root}.version", f"expected a whole number; got {type(found).__qualname__}")
    if found > version:
        raise FutureVersion(f"conversation {root}", found, version)
    if found != version:
        raise CodecError(f"{root}.version", f"expected {version}; got {found}")
    try:
        return json_converter().structure(fields, kind)
    except CodecError as error:
        raise _placed(root, error) from None


def _placed(root: str, error: CodecError) -> CodecError:
    # A key of the whole is `export.todos`; what is deeper begins with that key: `todos[0].id`.
    deeper = "." in error.path[1:] or "[" in error.path
    return CodecError(error.path[1:] if deeper else root + error.path, error.problem)

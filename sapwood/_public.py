"""Gives public objects their public path."""

from __future__ import annotations

import inspect
from types import FunctionType
from typing import Any, get_type_hints


def publish(namespace: dict[str, Any]) -> None:
    """Set `__module__` of what a package re-exports to the package, the path that tracebacks and pickles show.

    A package's `__init__` calls it at its end with `globals()`. Only classes and functions that are defined in a
    private module below that package change; what another package published keeps its path.

    Args:
        namespace: The globals of the package.
    """
    package: str = namespace["__name__"]
    for name, value in namespace.items():
        if not name.startswith("_") and isinstance(value, type | FunctionType) and _is_private(value, package):
            if isinstance(value, type):
                _resolve_annotations(value)
            value.__module__ = package


def _is_private(value: type | FunctionType, package: str) -> bool:
    prefix = f"{package}."
    return value.__module__.startswith(prefix) and value.__module__.removeprefix(prefix).startswith("_")


def _resolve_annotations(cls: type) -> None:
    # `get_type_hints` looks the names in a class's annotations up in the module that `__module__` names. The names
    # are those of the private module, so annotations must be real objects before `__module__` changes.
    own = inspect.get_annotations(cls)
    if not any(isinstance(annotation, str) for annotation in own.values()):
        return
    try:
        hints = get_type_hints(cls, include_extras=True)
    except (AttributeError, NameError, TypeError):
        return  # a name that only type checkers import; nothing can read these annotations at run time
    cls.__annotations__ = {name: hints[name] for name in own}

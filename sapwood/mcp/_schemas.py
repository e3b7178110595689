"""Schemas: the arguments of a tool that has a JSON schema and no Python signature."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol, cast

from sapwood.conversation import copy_json
from sapwood.errors import CodecError
from sapwood.mcp._listing import McpTool

CONTEXT: Final = "sapwood:context"
"""Name under which the function of such a tool gets its `ToolContext`, beside the arguments of the schema."""

PROBLEMS: Final = 10
"""Most problems that are told at once."""


class Validator(Protocol):
    """Checks values against one schema."""

    def iter_errors(self, instance: Any) -> Iterable[Any]:
        """Yield what is wrong with a value."""
        ...


class SchemaSignature:
    """Reads a model's arguments by the schema that a server gave; in the place of a function's signature.

    Args:
        find: Returns the tool as it is listed now; None if it is listed no more.
    """

    context_name = CONTEXT

    def __init__(self, find: Callable[[], McpTool | None]) -> None:
        self._find = find
        self._compiled: tuple[McpTool, Validator] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the arguments that the schema lists."""
        tool = self._find()
        properties = tool.parameters.get("properties") if tool is not None else None
        return tuple(cast("Mapping[str, Any]", properties)) if isinstance(properties, Mapping) else ()

    def read(self, arguments: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Return the arguments, and every problem; with a problem the arguments mean nothing.

        Those of a tool that is not listed any more pass: its call says so.
        """
        try:
            given: dict[str, Any] = copy_json(dict(arguments), "arguments")
        except CodecError as error:
            return {}, (str(error),)
        tool = self._find()
        if tool is None:
            return given, ()
        problems = _problems(self._validator(tool), given)
        return ({}, problems) if problems else (given, ())

    def read_result(self, content: str, name: str) -> Any:
        """Return the text of a result as it is: nobody has said of what type it is."""
        return content

    def _validator(self, tool: McpTool) -> Validator:
        if self._compiled is None or self._compiled[0] is not tool:
            # Compiled once for each listing: that takes forty times as long as a validation.
            from jsonschema import validators
            from referencing import Registry

            cls: Any = validators.validator_for(tool.parameters, default=validators.Draft202012Validator)
            # With a registry of its own nothing that the schema refers to is fetched from anywhere.
            registry: Registry[Any] = Registry()
            self._compiled = (tool, cls(dict(tool.parameters), registry=registry))
        return self._compiled[1]


def _problems(validator: Validator, given: dict[str, Any]) -> tuple[str, ...]:
    problems: list[str] = []
    try:
        for error in validator.iter_errors(given):
            where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.absolute_path)
            problems.append(f"argument {where.lstrip('.')!r}: {error.message}" if where else error.message)
            if len(problems) == PROBLEMS:
                break
    except Exception as error:  # a schema from elsewhere may hold anything, such as references to nowhere
        return (f"they cannot be checked, since the server's schema is broken: {type(error).__name__}: {error}",)
    return tuple(problems)

"""The signature of a tool's function: what the model may pass, and what the runtime fills in."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from sapwood.errors import CodecError, InvalidTool
from sapwood.tools._annotations import hints_of, shape_of
from sapwood.tools._context import ToolContext
from sapwood.tools._docstring import read_docstring
from sapwood.tools._objects import Field, ObjectOf, shown_default
from sapwood.tools._shapes import nearest

_REFUSED_KINDS = {
    inspect.Parameter.POSITIONAL_ONLY: "a named parameter; got a positional-only one: remove the `/`",
    inspect.Parameter.VAR_POSITIONAL: "a named parameter; got `*args`: take a list instead",
    inspect.Parameter.VAR_KEYWORD: "a named parameter; got `**kwargs`: take a dict instead",
}


@attrs.frozen
class Signature:
    """What a function takes.

    Attributes:
        shape: The arguments that the model may pass.
        context_name: Name of the parameter that gets the `ToolContext`; empty if there is none.
        description: The docstring without what it says about single arguments.
        returns: The annotation of what it returns.
    """

    shape: ObjectOf
    context_name: str
    description: str
    returns: Any = None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the arguments that the model may pass, in order."""
        return tuple(field.name for field in self.shape.fields)

    def read(self, arguments: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Return the arguments for the function, and every problem; with a problem the arguments mean nothing."""
        problems: list[str] = []
        read = self.shape.read(dict(arguments), "", problems)
        return ({}, tuple(problems)) if problems else (read, ())

    def read_result(self, content: str, name: str) -> Any:
        """Return what the function returned, from the text that was made of it; see `Tool.read_result`."""
        if self.returns in (None, type(None)):
            return None
        shape = shape_of(self.returns, f"tool {name!r}, its result")
        if self.returns is str:
            return content
        try:
            value: Any = json.loads(content)
        except ValueError:
            value = content
        problems: list[str] = []
        read = shape.read(value, "", problems)
        if problems:
            raise CodecError(f"result of {name}", "; ".join(problems))
        return read


def signature_of(function: Callable[..., Any], name: str) -> Signature:
    """Return the signature of the function of a tool.

    Raises:
        InvalidTool: if a parameter has no annotation or one that no model can fill, cannot be passed by name, or is
            described but does not exist.
    """
    tool = f"tool {name!r}"
    hints = hints_of(function, tool)
    parameters = inspect.signature(function).parameters
    context_names = [each for each in parameters if hints.get(each) is ToolContext]
    if len(context_names) > 1:
        raise InvalidTool(f"{tool}: expected one parameter of type ToolContext; got {', '.join(context_names)}")
    own = [parameter for each, parameter in parameters.items() if each not in context_names]
    notes = read_docstring(inspect.getdoc(function), [parameter.name for parameter in own])
    for described in notes.section:
        if described not in parameters:
            near = nearest(described, parameters)
            hint = f"did you mean {near!r}?" if near else "remove it or name a parameter"
            raise InvalidTool(f"{tool}: its docstring describes {described!r}, which is no parameter; {hint}")
    for parameter in parameters.values():
        if parameter.kind in _REFUSED_KINDS:
            raise InvalidTool(f"{tool}, parameter {parameter.name!r}: expected {_REFUSED_KINDS[parameter.kind]}")
    fields = tuple(_field(parameter, hints, notes.parameters, tool) for parameter in own)
    returns = hints.get("return")
    return Signature(ObjectOf(fields), "".join(context_names), notes.description, returns)


def _field(parameter: inspect.Parameter, hints: Mapping[str, Any], notes: Mapping[str, str], tool: str) -> Field:
    name = parameter.name
    where = f"{tool}, parameter {name!r}"
    if name not in hints:
        write = "decorate the bound method instead" if name in ("self", "cls") else f"write `{name}: str`, for example"
        raise InvalidTool(f"{where}: expected a type annotation; got none: {write}")
    shape = shape_of(hints[name], where)
    required = parameter.default is inspect.Parameter.empty
    default = () if required else shown_default(parameter.default)
    return Field(name, shape, required, default, notes.get(name, ""))

"""The tool with which a sub-agent hands in a result of a given shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from sapwood.conversation import ToolSpec
from sapwood.errors import InvalidOption, ToolError
from sapwood.tools import Tool, tool

SUBMIT: Final = "submit_result"
MOST_PROBLEMS: Final = 5


def submit_tool(shape: type | Mapping[str, Any]) -> Tool[..., Any]:
    """Return the tool; a result of another shape is refused with what is wrong, so that the model can try again.

    Args:
        shape: An attrs class, or a JSON schema.

    Raises:
        InvalidTool: if the class has a field that no model can fill.
        InvalidOption: if it is no JSON schema, or JSON schemas cannot be checked here.
    """
    return _of_class(shape) if isinstance(shape, type) else _of_schema(dict(shape))


def _of_class(shape: type) -> Tool[..., Any]:
    def submit_result(result: Any) -> str:
        """Hand in the result of your task; that ends it."""
        return "accepted"

    submit_result.__annotations__ = {"result": shape, "return": str}
    return tool(name=SUBMIT, idempotent=True)(submit_result)


def _of_schema(shape: dict[str, Any]) -> Tool[..., Any]:
    validator = _validator(shape)

    def submit_result(result: dict[str, Any]) -> str:
        """Hand in the result of your task; that ends it."""
        errors = sorted(validator.iter_errors(result), key=lambda error: list(map(str, error.absolute_path)))
        if errors:
            shown = "; ".join(f"{error.json_path}: {error.message}" for error in errors[:MOST_PROBLEMS])
            raise ToolError(f"the result does not have the shape that is asked for: {shown}")
        return "accepted"

    made = tool(name=SUBMIT, idempotent=True)(submit_result)
    parameters: dict[str, Any] = {"type": "object", "properties": {"result": shape}, "required": ["result"]}
    parameters["additionalProperties"] = False
    return attrs.evolve(made, spec=ToolSpec(SUBMIT, made.description, parameters))


def _validator(shape: dict[str, Any]) -> Any:
    try:
        from jsonschema import SchemaError  # an extra
        from jsonschema.validators import validator_for  # an extra
    except ImportError as error:
        raise InvalidOption(
            "SubAgent result: a JSON schema needs jsonschema: pip install 'sapwood[mcp]', or give an attrs class"
        ) from error
    checker = validator_for(shape)
    try:
        checker.check_schema(shape)
    except SchemaError as error:
        raise InvalidOption(f"SubAgent result: expected a JSON schema; {error.message}") from error
    return checker(shape)

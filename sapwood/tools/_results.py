"""From whatever a tool returned or raised to the text that the model reads."""

from __future__ import annotations

import enum
import json
import math
import sys
from collections.abc import Iterable, Mapping
from datetime import date, time
from decimal import Decimal
from pathlib import PurePath
from typing import Any, cast
from uuid import UUID

import attrs
import trio

from sapwood.conversation import (
    AddMessage,
    Operation,
    PatchMetadata,
    Problem,
    QueueMessage,
    SetTodos,
    ToolCall,
    ToolResult,
    clean_text,
)
from sapwood.errors import InvalidTool, SapwoodError
from sapwood.tools._pending import Pending

TEXT_LIMIT = 100_000
"""Characters of a result that the model sees, unless the toolbox says otherwise."""

_DEPTH_LIMIT = 100
_DECIMAL_BITS = 14_000
_FATAL = (KeyboardInterrupt, SystemExit, MemoryError, GeneratorExit, trio.Cancelled, trio.TrioInternalError)


def _operations(operations: Iterable[Operation]) -> tuple[Operation, ...]:
    given = tuple(operations)
    for operation in given:
        if not isinstance(cast("object", operation), (AddMessage, QueueMessage, SetTodos, PatchMetadata)):
            got = type(operation).__qualname__
            raise InvalidTool(
                f"ToolOutput operations: expected AddMessage, QueueMessage, SetTodos or PatchMetadata; got {got}"
            )
    return given


@attrs.frozen
class ToolOutput:
    """What a tool returns if it changes the conversation as well as answering.

    Attributes:
        content: The answer: text, any JSON-like value, or None.
        operations: State operations, applied once and in order together with the result.

    Raises:
        InvalidTool: if an operation is none.
    """

    content: Any = None
    operations: tuple[Operation, ...] = attrs.field(default=(), converter=_operations)


@attrs.frozen
class ToolOutcome:
    """What came of a call.

    Attributes:
        result: The answer for the model.
        operations: State operations to apply with it; none if it is an error.
        whole: The complete text, if the result's was cut to the limit; else None.
        exception: What the tool raised, for logs; None if it raised nothing.
        pending: Where the work goes on, if it is not done yet; `result` only says so then. Else None.
    """

    result: ToolResult
    operations: tuple[Operation, ...] = ()
    whole: str | None = None
    exception: BaseException | None = None
    pending: Pending | None = None


def success(call: ToolCall, returned: Any, limit: int) -> ToolOutcome:
    """Return the outcome of a tool that returned a value."""
    if isinstance(returned, Pending):
        text = f"{call.name} goes on as {returned.poll_id}"
        return ToolOutcome(ToolResult(call_id=call.id, name=call.name, content=text), pending=returned)
    output = returned if isinstance(returned, ToolOutput) else ToolOutput(returned)
    try:
        whole = render(output.content)
    except (TypeError, ValueError, RecursionError) as error:
        return failure(call, f"{call.name} ran, but its result cannot be shown: {error}", limit, error)
    text = cut(whole, limit)
    kept = None if text == whole else whole
    return ToolOutcome(ToolResult(call_id=call.id, name=call.name, content=text), output.operations, kept)


def failure(
    call: ToolCall, problem: str, limit: int, exception: BaseException | None = None, *, kind: Problem = "failed"
) -> ToolOutcome:
    """Return the outcome of a call that failed: `Error: ` and the problem (S4-064)."""
    text = cut(clean_text(f"Error: {problem}"), limit)
    result = ToolResult(call_id=call.id, name=call.name, content=text, is_error=True, problem=kind)
    return ToolOutcome(result, exception=exception)


def cut(text: str, limit: int) -> str:
    """Return the text, or its beginning and a notice that says how much was left out."""
    if len(text) <= limit:
        return text
    notice = f"\n[cut: this is the beginning of {len(text)} characters; ask for less at a time]"
    return text[: max(0, limit - len(notice))] + notice


def render(content: Any) -> str:
    r"""Return the text of a result: text as it is, None as `done`, bytes as their size, anything else as JSON.

    Lone surrogates become escapes. In JSON, NaN and infinities become text, and so do integers of more than about
    4,200 digits, in hexadecimal.

    Raises:
        TypeError: if a part is nothing that JSON can say.
        ValueError: if it is nested deeper than 100 levels, or contains itself.
    """
    match content:
        case None:
            return "done"
        case str():
            return clean_text(str.__str__(content))
        case bytes() | bytearray():
            return _binary(content)
        case _:
            return clean_text(json.dumps(_plain(content, _DEPTH_LIMIT), ensure_ascii=False))


def _binary(content: bytes | bytearray) -> str:
    raw = bytes(content)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return f"[binary data, {len(raw)} bytes, not shown]"


def _plain(value: Any, depth: int) -> Any:
    if depth == 0:
        raise ValueError(f"it is nested deeper than {_DEPTH_LIMIT} levels, or contains itself")
    scalar = _scalar(value)
    if scalar is not _NO_SCALAR:
        return scalar
    cls = cast("type[object]", type(value))
    if attrs.has(cls):
        fields = cast("tuple[attrs.Attribute[Any], ...]", attrs.fields(cls))
        return {field.name: _plain(getattr(value, field.name), depth - 1) for field in fields}
    if isinstance(value, Mapping):
        entries = cast("Mapping[Any, Any]", value)
        return {str(_scalar_key(key)): _plain(item, depth - 1) for key, item in entries.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item, depth - 1) for item in cast("Iterable[Any]", value)]
    raise TypeError(f"expected a JSON-like value; got {type(value).__qualname__}: return text or a dict")


_NO_SCALAR = object()


def _scalar(value: Any) -> Any:
    match value:
        case enum.Enum():
            return _scalar(value.value)
        case None | bool():
            return value
        case str():
            return str.__str__(value)
        case int():
            return int(value) if value.bit_length() <= _DECIMAL_BITS else hex(value)
        case float():
            return float(value) if math.isfinite(value) else str(value)
        case bytes() | bytearray():
            return _binary(value)
        case date() | time():
            return value.isoformat()
        case Decimal() | UUID() | PurePath():
            return str(value)
        case _:
            return _NO_SCALAR


def _scalar_key(key: Any) -> Any:
    scalar = _scalar(key)
    if scalar is _NO_SCALAR:
        raise TypeError(f"expected text as a key; got {type(key).__qualname__}")
    return scalar


def leaves(error: BaseException) -> list[BaseException]:
    """Return the exceptions that a group holds at any depth; of any other exception itself."""
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return [leaf for each in group.exceptions for leaf in leaves(each)]
    return [error]


def fatal_part(error: BaseException) -> BaseException | None:
    """Return what of an exception the model may not hear of and must leave the tool; None if it may hear of all.

    Cancellation, interrupts, exits, lack of memory and trio's internal errors pass. A cancellation of asyncio means
    nothing to trio and is an error like any other (BR-26).
    """
    if not isinstance(error, BaseExceptionGroup):
        return None if _is_reportable(error) else error
    group = cast("BaseExceptionGroup[BaseException]", error)
    reportable, rest = group.split(_is_reportable)
    return group if reportable is None else rest


def _is_reportable(error: BaseException) -> bool:
    asyncio = sys.modules.get("asyncio")
    foreign: tuple[type[BaseException], ...] = (asyncio.CancelledError,) if asyncio is not None else ()
    return isinstance(error, (Exception, *foreign)) and not isinstance(error, (*_FATAL, BaseExceptionGroup))


def explain(error: BaseException) -> str:
    """Return the text of an exception, of a group those of its leaves."""
    texts = [_explain_one(leaf) for leaf in leaves(error)]
    return texts[0] if len(texts) == 1 else f"{len(texts)} errors: " + "; ".join(texts)


def _explain_one(error: BaseException) -> str:
    kind = type(error).__name__
    try:
        text = str(error)
    except Exception:  # it is foreign code too
        return kind
    if isinstance(error, SapwoodError) and text:
        return text
    return f"{kind}: {text}" if text else kind

"""Results: what a tool of an MCP server answered, as text that a model can read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs

from sapwood.conversation import copy_json
from sapwood.errors import CodecError

if TYPE_CHECKING:
    from mcp_types import CallToolResult, ContentBlock

EMPTY: Final = "done"


@attrs.frozen
class McpResult:
    """What a tool answered.

    Attributes:
        text: Its content as text; images, sounds and other binary parts are named with their type and size.
        structured: Its structured result as JSON values; None if there is none.
        is_error: Whether the tool says that it failed.
    """

    text: str
    structured: Any = None
    is_error: bool = False

    @property
    def content(self) -> Any:
        """What the model gets: the structured result, with the text before it unless that only repeats it."""
        if self.structured is None or _wraps(self.structured, self.text):
            return self.text or EMPTY
        if not self.text or self.structured == _read(self.text):
            return self.structured
        return f"{self.text}\n{json.dumps(self.structured, ensure_ascii=False)}"

    @property
    def problem(self) -> str:
        """What went wrong, for a failed call."""
        return self.text or (json.dumps(self.structured, ensure_ascii=False) if self.structured is not None else "")


def _wraps(structured: Any, text: str) -> bool:
    """Say whether a structured result only makes an object of a text or another plain value, as servers do."""
    return bool(text) and (structured == {"result": text} or structured == {"result": _read(text)})


def _read(text: str) -> object:
    """Return the JSON value of a text; the text itself if it is no JSON."""
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value


def read_result(result: CallToolResult) -> McpResult:
    """Return the result of a call.

    Raises:
        CodecError: if its structured part is nothing that JSON can say.
    """
    structured = None if result.structured_content is None else copy_json(result.structured_content, "result")
    return McpResult(_text(result.content), structured, bool(result.is_error))


def _text(blocks: Sequence[ContentBlock]) -> str:
    return "\n".join(_block(block) for block in blocks)


def _block(block: ContentBlock) -> str:
    match block.type:
        case "text":
            return block.text
        case "image" | "audio":
            return f"[{block.type} {block.mime_type}, {_size(block.data)} bytes, not shown]"
        case "resource_link":
            kind = f", {block.mime_type}" if block.mime_type else ""
            return f"[resource {block.name}: {block.uri}{kind}]"
        case "resource":
            held = block.resource
            text = getattr(held, "text", None)
            if isinstance(text, str):
                return f"[resource {held.uri}]\n{text}"
            kind = held.mime_type or "binary data"
            return f"[resource {held.uri}: {kind}, {_size(getattr(held, 'blob', ''))} bytes, not shown]"
        case _:
            raise CodecError("result", f"expected text, an image, audio or a resource; got {block.type!r}")


def _size(encoded: str) -> int:
    """Return how many bytes a base64 text stands for."""
    return len(encoded) * 3 // 4 - encoded[-2:].count("=")

"""Listings: what a server says of its tools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs

from sapwood.conversation import clean_text, copy_json
from sapwood.errors import CodecError, McpError
from sapwood.tools import CrashResume

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import Tool as WireTool

PAGES: Final = 100
"""Most pages of a listing; a server whose pages never end must not hold up its connection."""


@attrs.frozen
class McpTool:
    """A tool of an MCP server, as the server describes it.

    Attributes:
        name: Its name there.
        description: What it does, for the model.
        parameters: JSON schema of its arguments.
        read_only: Whether the server says that it changes nothing.
        destructive: Whether it may destroy something; yes, unless the server says no.
        idempotent: Whether the server says that the same call again has no further effect.
    """

    name: str
    description: str
    parameters: Mapping[str, Any] = attrs.field(repr=False, hash=False)
    read_only: bool = False
    destructive: bool = True
    idempotent: bool = False

    @property
    def crash_resume(self) -> CrashResume:
        """What happens to a call that the process died in: again only what can do no harm, else a person is asked.

        | read_only | idempotent | destructive |         |
        |-----------|------------|-------------|---------|
        | yes       | any        | any         | `rerun` |
        | no        | yes        | no          | `rerun` |
        | no        | yes        | yes         | `ask`   |
        | no        | no         | any         | `ask`   |
        """
        return "rerun" if self.read_only or (self.idempotent and not self.destructive) else "ask"


def read_tool(tool: WireTool, server: str) -> McpTool:
    """Return a tool from what the server sent.

    Raises:
        McpError: if its schema is nothing that JSON can say.
    """
    hints = tool.annotations
    description = tool.description or tool.title or ""
    try:
        schema = copy_json(tool.input_schema, f"tool {tool.name!r}")
    except CodecError as error:
        raise McpError(server, f"its tool {tool.name!r} has a schema that cannot be read: {error}") from None
    return McpTool(
        name=tool.name,
        description=clean_text(description),
        parameters=schema,
        read_only=hints is not None and hints.read_only_hint is True,
        destructive=hints is None or hints.destructive_hint is not False,
        idempotent=hints is not None and hints.idempotent_hint is True,
    )


async def list_tools(client: Client, server: str) -> tuple[McpTool, ...]:
    """Ask a server for all its tools, page by page, in its order.

    Raises:
        McpError: if the pages do not end, or two tools have one name.
        Exception: what the client raises.
    """
    found: dict[str, McpTool] = {}
    cursor: str | None = None
    for _ in range(PAGES):
        page = await client.list_tools(cursor=cursor)
        for each in page.tools:
            if each.name in found:
                raise McpError(server, f"it lists two tools with the name {each.name!r}")
            found[each.name] = read_tool(each, server)
        cursor = page.next_cursor
        if not cursor:
            return tuple(found.values())
    raise McpError(server, f"its listing of tools has more than {PAGES} pages")

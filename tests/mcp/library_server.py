"""An MCP server made with the library, which tells of changes to those who subscribe: `library_server.py FOLDER`.

It offers what `tiny_server.py` offers, in as far as the protocol differs between the two.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import mcp_types as types
import trio
from mcp.server import NotificationOptions, Server
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged

FOLDER = Path(sys.argv[1])
EXTRA = FOLDER / "extra"
CHANGES = InMemorySubscriptionBus()
TEXT: dict[str, Any] = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
NOTHING: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
PIXEL = "iVBORw0KGgo="


def note(what: str) -> None:
    with (FOLDER / "log").open("a") as log:
        log.write(what + "\n")


def hints(*, read_only: bool = False, idempotent: bool = False, destructive: bool = True) -> types.ToolAnnotations:
    return types.ToolAnnotations(read_only_hint=read_only, idempotent_hint=idempotent, destructive_hint=destructive)


def tool(name: str, schema: dict[str, Any], annotations: types.ToolAnnotations | None = None) -> types.Tool:
    return types.Tool(name=name, description=f"The tool {name}.", input_schema=schema, annotations=annotations)


def tools() -> list[types.Tool]:
    listed = [
        tool("echo", TEXT, hints(read_only=True)),
        tool("pid", NOTHING, hints(read_only=True)),
        tool("wait", NOTHING),
        tool("structured", NOTHING, hints(idempotent=True, destructive=False)),
        tool("parts", NOTHING, hints(idempotent=True)),
        tool("grow", NOTHING),
    ]
    return [*listed, tool("extra.tool", NOTHING)] if EXTRA.exists() else listed


async def list_tools(ctx: Any, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
    """Two pages, so that clients have to ask for the second."""
    listed = tools()
    if params is None or params.cursor is None:
        return types.ListToolsResult(tools=listed[:3], next_cursor="more")
    return types.ListToolsResult(tools=listed[3:])


def text(value: str, *, is_error: bool = False) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=value)], is_error=is_error)


async def call_tool(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    arguments = params.arguments or {}
    note(f"{params.name} begins")
    match params.name:
        case "echo":
            return text(arguments["text"])
        case "pid":
            return text(str(os.getpid()))
        case "wait":
            try:
                await trio.sleep_forever()
            finally:
                note("wait cancelled")
        case "structured":
            content = types.TextContent(text='{"cents": 5}')
            return types.CallToolResult(content=[content], structured_content={"cents": 5})
        case "parts":
            held = types.TextResourceContents(uri="file:///note", text="inside")
            return types.CallToolResult(
                content=[
                    types.TextContent(text="before"),
                    types.ImageContent(data=PIXEL, mime_type="image/png"),
                    types.EmbeddedResource(resource=held),
                    types.ResourceLink(name="page", uri="https://example.org/page"),
                ]
            )
        case "grow":
            EXTRA.touch()
            await CHANGES.publish(ToolsListChanged())
            return text("grown")
        case _:
            raise AssertionError(params.name)
    raise AssertionError


async def main() -> None:
    note(f"started {os.getpid()}")
    server: Server[Any] = Server(
        "tiny",
        version="1.2",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_subscriptions_listen=ListenHandler(CHANGES),
    )
    options = server.create_initialization_options(NotificationOptions(tools_changed=True))
    async with stdio_server() as (read, write):
        await server.run(read, write, options)


if __name__ == "__main__":
    trio.run(main)

"""A small MCP server over standard input and output, without a library: `python tiny_server.py FOLDER [stubborn]`.

It speaks the protocol with a handshake, and tells of changes without being asked. What reaches it is written to a log
in the folder. With `stubborn` it ends neither with its input nor by SIGTERM.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path(sys.argv[1])
STUBBORN: Final = sys.argv[2:] == ["stubborn"]
CHANGED: Final = FOLDER / "changed.json"
"""Tools that take the place of the usual ones, once there are any."""

TEXT: Final[dict[str, Any]] = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
NOTHING: Final[dict[str, Any]] = {"type": "object", "properties": {}, "additionalProperties": False}
PIXEL: Final = "iVBORw0KGgo="
PAGE: Final = 4


def note(what: str) -> None:
    with (FOLDER / "log").open("a") as log:
        log.write(what + "\n")


def send(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def tool(name: str, schema: dict[str, Any], **hints: bool) -> dict[str, Any]:
    return {"name": name, "description": f"The tool {name}.", "inputSchema": schema, "annotations": hints}


TOOLS: Final = [
    tool("echo", TEXT, readOnlyHint=True),
    tool("pid", NOTHING, readOnlyHint=True),
    tool("wait", NOTHING),
    tool("fail", TEXT),
    tool("structured", NOTHING, idempotentHint=True, destructiveHint=False),
    tool("parts", NOTHING, idempotentHint=True),
    tool("change", TEXT, destructiveHint=False),
    tool("key", NOTHING),
    tool("secret", NOTHING),
]


def list_tools(cursor: str | None) -> dict[str, Any]:
    listed = json.loads(CHANGED.read_text()) if CHANGED.exists() else TOOLS
    begin = int(cursor or 0)
    page = {"tools": listed[begin : begin + PAGE]}
    return page if begin + PAGE >= len(listed) else {**page, "nextCursor": str(begin + PAGE)}


def text(value: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": value}]}


def call_tool(params: dict[str, Any]) -> dict[str, Any] | None:
    """Return the result, or None if there will be none."""
    arguments = params.get("arguments", {})
    note(f"{params['name']} begins")
    match params["name"]:
        case "echo":
            return text(arguments["text"])
        case "pid":
            return text(str(os.getpid()))
        case "wait":
            return None
        case "fail":
            return {**text(arguments["text"]), "isError": True}
        case "structured":
            return {**text('{"cents": 5}'), "structuredContent": {"cents": 5}}
        case "parts":
            held = {"uri": "file:///note", "text": "inside"}
            blob = {"uri": "file:///blob", "blob": PIXEL}
            return {
                "content": [
                    {"type": "text", "text": "before"},
                    {"type": "image", "data": PIXEL, "mimeType": "image/png"},
                    {"type": "resource", "resource": held},
                    {"type": "resource", "resource": blob},
                    {"type": "resource_link", "name": "page", "uri": "https://example.org/page"},
                ]
            }
        case "change":
            CHANGED.write_text(arguments["text"])
            send(method="notifications/tools/list_changed")
            return text("changed")
        case "key":
            return text(str(params.get("_meta", {}).get("sapwood/idempotency-key")))
        case "secret":
            return text(os.environ.get("TOKEN", "none"))
        case "leak":
            raise KeyError(os.environ["TOKEN"])
        case other:
            raise KeyError(other)


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    match method:
        case "initialize":
            capabilities = {"tools": {"listChanged": True}}
            server = {"name": "tiny", "version": "1.2"}
            return {"protocolVersion": params["protocolVersion"], "capabilities": capabilities, "serverInfo": server}
        case "tools/list":
            return list_tools(params.get("cursor"))
        case "tools/call":
            return call_tool(params)
        case other:
            raise KeyError(other)


def serve() -> None:
    waiting: dict[Any, str] = {}
    for line in sys.stdin:
        message = json.loads(line)
        method, params = message.get("method", ""), message.get("params", {})
        if method == "notifications/cancelled":
            note(f"{waiting.pop(params['requestId'])} cancelled")
        elif "id" in message:
            try:
                result = answer(method, params)
            except KeyError as unknown:
                send(id=message["id"], error={"code": -32601, "message": f"there is no {unknown.args[0]}"})
                continue
            if result is None:
                waiting[message["id"]] = params["name"]
            else:
                send(id=message["id"], result=result)


if STUBBORN:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
serve()
while STUBBORN:
    signal.pause()

"""The other side of a tool that runs in a process of its own: reads a call, carries it out, writes the result."""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
from typing import Any, cast

import attrs

from sapwood.tools._pending import Pending
from sapwood.tools._results import ToolOutput, explain, render
from sapwood.tools._tool import Tool, tool


def main() -> None:
    """Carry out the call on standard input, and write its result as the last line of standard output."""
    order: dict[str, Any] = json.loads(sys.stdin.buffer.read())
    sys.path[:] = order["path"]
    # What the function prints must not be taken for its result.
    with contextlib.redirect_stdout(sys.stderr):
        answer = carry_out(order)
    sys.stdout.write("\n" + json.dumps(answer))


def carry_out(order: dict[str, Any]) -> dict[str, Any]:
    """Return the text of the result, or of the error."""
    try:
        found: Any = importlib.import_module(order["module"])
        for part in order["function"].split("."):
            found = getattr(found, part)
        each = cast("Tool[..., Any]", found if isinstance(found, Tool) else tool(found))
        arguments, problems = each.read(order["arguments"])
        if problems:
            return {"error": "; ".join(problems)}
        returned: object = each(**arguments)
        return answer_of(each.name, returned)
    except Exception as error:
        return {"error": explain(error)}


def answer_of(name: str, returned: object) -> dict[str, Any]:
    """Return what goes back for a value that a function returned."""
    match returned:
        case Pending():
            return {"pending": attrs.asdict(returned)}
        case ToolOutput(content=content, operations=()):
            return {"text": render(content)}
        case ToolOutput():
            return {
                "error": f"{name} ran, but the operations in its ToolOutput cannot leave its process and were dropped; "
                "its author must return the content alone, or drop process=True"
            }
        case _:
            return {"text": render(returned)}


if __name__ == "__main__":
    main()

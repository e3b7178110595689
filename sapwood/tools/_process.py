"""Tools in processes of their own: what they do can be ended, and nothing of it takes the runtime down."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

import trio

from sapwood.errors import InvalidTool, ToolError
from sapwood.tools._pending import Pending

GRACE: Final = 2.0
"""Seconds between the request to end (SIGTERM) and the end (SIGKILL) of a process whose call was cancelled."""

ERRORS_SHOWN: Final = 2_000
"""Characters of a failed process's standard error that the model reads, from its end."""


def check_importable(function: Callable[..., Any], name: str, context_name: str) -> None:
    """Check that another process can find a function.

    Raises:
        InvalidTool: if it is defined inside another function or in `__main__`, or takes a `ToolContext`.
    """
    if "<locals>" in function.__qualname__ or function.__module__ == "__main__":
        where = f"{function.__module__}.{function.__qualname__}"
        raise InvalidTool(
            f"tool {name!r}: expected a function at the top of an importable module with process=True; got {where}"
        )
    if context_name:
        raise InvalidTool(f"tool {name!r}: a ToolContext cannot go into another process; drop {context_name!r}")


async def run_in_process(function: Callable[..., Any], name: str, arguments: Mapping[str, Any]) -> str | Pending:
    """Carry out a call in a process of its own and return the text of its result, or where its work goes on.

    Raises:
        ToolError: if the function raised or returned operations on the conversation, or the process ended without a
            result.
    """
    order = json.dumps(
        {
            "module": function.__module__,
            "function": function.__qualname__,
            "arguments": dict(arguments),
            "path": sys.path,
        }
    )
    done = await trio.run_process(
        [sys.executable, "-m", "sapwood.tools._process_worker"],
        stdin=order.encode(),
        capture_stdout=True,
        capture_stderr=True,
        check=False,
        deliver_cancel=_end,
    )
    return _read(done, name)


async def _end(process: trio.Process) -> None:
    """End a process whose call was cancelled; trio shields this."""
    process.terminate()
    with trio.move_on_after(GRACE):
        await process.wait()
        return
    process.kill()


def _read(done: subprocess.CompletedProcess[bytes], name: str) -> str | Pending:
    try:
        answer = json.loads(done.stdout.rpartition(b"\n")[2])
    except ValueError:
        answer = None
    match answer:
        case {"text": str(text)}:
            return text
        case {"pending": dict()}:
            return Pending(**cast("dict[str, Any]", answer["pending"]))
        case {"error": str(error)}:
            raise ToolError(error)
        case _:
            said = done.stderr.decode(errors="backslashreplace").strip()[-ERRORS_SHOWN:]
            raise ToolError(
                f"the process of {name} ended without a result ({_ending(done.returncode)}){said and ': ' + said}"
            )


def _ending(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"

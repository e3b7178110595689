"""Tools that run in processes of their own; at the top of a module, where another process finds them."""

from __future__ import annotations

import enum
import os
import signal
import sys
from pathlib import Path

from sapwood.conversation import PatchMetadata
from sapwood.tools import Pending, ToolOutput, tool


class Speed(enum.Enum):
    SLOW = "slow"
    FAST = "fast"


@tool(process=True)
def who_am_i(speed: Speed) -> dict[str, object]:
    """Say which process this is, and print something that is no result."""
    print('{"text": "not the result"}')  # noqa: T201  # that is the point
    return {"pid": os.getpid(), "speed": speed}


@tool(process=True)
def fail(reason: str) -> str:
    """Fail."""
    raise ValueError(reason)


@tool(process=True)
def vanish(code: int) -> str:
    """End the process at once."""
    print("last words", file=sys.stderr, flush=True)  # noqa: T201  # that is the point
    if code < 0:
        os.kill(os.getpid(), -code)
    os._exit(code)


@tool(process=True)
def conclude(marked: bool) -> ToolOutput:  # noqa: FBT001  # arguments of a tool are named
    """Answer, and perhaps mark the conversation."""
    return ToolOutput({"done": True}, [PatchMetadata({"marked": True})] if marked else [])


def ask_builder(poll_id: str) -> str:
    """Say what came of a build."""
    return f"{poll_id} is built"


@tool(process=True, poll=ask_builder)
def build(number: int) -> Pending:
    """Start a build."""
    return Pending(f"build-{number}", every=2.0, note="queued")


def hang(marker: str, polite: bool) -> str:  # noqa: FBT001  # arguments of a tool are named
    """Write one's number into a file, and hang."""
    if not polite:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Path(marker).write_text(str(os.getpid()), encoding="ascii")
    while True:
        signal.pause()


hangs = tool(process=True, name="hangs")(hang)
hangs_briefly = tool(process=True, name="hangs_briefly", timeout=1.5)(hang)

"""Tool results that are kept elsewhere: their names in a filesystem, and the tool that reads them."""

from __future__ import annotations

import hashlib
from typing import Final

import trio

from sapwood.errors import FileExists, FileMissing, ToolError
from sapwood.files import FileClient
from sapwood.tools import ResultStore, ToolContext

FOLDER: Final = "tool-results"
LINES_AT_ONCE: Final = 2_000


def _safe(name: str) -> str:
    """Return a name for a file; different names give different ones."""
    safe = "".join(each if each.isascii() and (each.isalnum() or each in "-_") else "-" for each in name)[:60]
    return safe if safe == name else f"{safe}-{hashlib.sha256(name.encode(errors='backslashreplace')).hexdigest()[:8]}"


class FileResults:
    """Files of a scope as a store of results: `tool-results/CONVERSATION/CALL.txt`.

    A call whose id was used before, as some providers do, gets a file of its own: what an earlier reference stands for
    is never replaced.

    Args:
        files: The files.
    """

    def __init__(self, files: FileClient) -> None:
        self._files = files

    async def put(self, agent_id: str, call_id: str, text: str) -> str:
        """Write the file of a call, and return its path."""
        name = f"{FOLDER}/{_safe(agent_id)}/{_safe(call_id)}"
        path, digest = f"{name}.txt", hashlib.sha256(text.encode()).hexdigest()
        try:
            await self._files.write(path, text, expected_version=0)
        except FileExists:
            if await self._digest(path) != digest:
                path = f"{name}-{digest[:16]}.txt"
                await self._files.write(path, text)
        return path

    async def _digest(self, path: str) -> str:
        try:
            return (await self._files.stat(path)).sha256
        except FileMissing:  # a name that differs only by case is in the way
            return ""

    async def get(self, agent_id: str, reference: str) -> str | None:
        """Read a file of this conversation's folder; None if it is none of these, or not there."""
        folder, _, name = reference.rpartition("/")
        if folder != f"{FOLDER}/{_safe(agent_id)}" or name in {"", ".", ".."}:
            # Other files of the scope are for the tools that an agent was given for them.
            await trio.lowlevel.checkpoint()
            return None
        lines: list[str] = []
        total = 1
        try:
            while len(lines) < total:
                part = await self._files.read(reference, start_line=len(lines) + 1, limit=LINES_AT_ONCE)
                total = part.total_lines
                lines += part.lines
                if not part.lines:
                    break
        except FileMissing:
            return None
        return "\n".join(lines)


class ResultReader:
    """The tool that reads kept results, of its own conversation.

    Args:
        store: Where they are kept.
        room: Characters that one call shows at most.
    """

    def __init__(self, store: ResultStore, room: int) -> None:
        self._store = store
        self._room = room

    async def read(self, context: ToolContext, reference: str, start_line: int = 1, limit: int = 200) -> str:
        """Show lines of a large tool result, each after its number and a tab.

        reference: as the result names it.
        start_line: first line, from 1.
        limit: most lines to show.
        """
        text = await self._store.get(context.agent_id, reference)
        if text is None:
            raise ToolError(f"there is no result {reference!r} any more; call its tool again")
        lines = text.splitlines()
        chosen = lines[max(0, start_line - 1) : max(0, start_line - 1) + max(1, limit)]
        shown: list[str] = []
        room = self._room
        for number, line in enumerate(chosen, start=max(1, start_line)):
            if shown and len(line) > room:
                break
            shown.append(f"{number}\t{line[:room]}" + (" [line cut]" if len(line) > room else ""))
            room -= min(len(line), room)
        if not shown:
            return f"{reference} has {len(lines)} lines; none from line {start_line}"
        last = max(1, start_line) + len(shown) - 1
        if last < len(lines):
            shown.append(f"[lines {max(1, start_line)} to {last} of {len(lines)}; go on with start_line={last + 1}]")
        return "\n".join(shown)

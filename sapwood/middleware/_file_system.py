"""FileSystem: tools for the files of a scope, shared by all agents that name it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, cast

from sapwood.errors import InvalidOption
from sapwood.files import FileClient
from sapwood.middleware._context import AgentInfo, MiddlewareContext
from sapwood.middleware._contract import Middleware
from sapwood.tools import Tool, tool

TOOLS: Final = ("ls", "read_file", "write_file", "edit_file", "delete_file", "search_text")

_PURPOSE: Final = {
    "ls": "`ls` lists files",
    "read_file": "`read_file` shows numbered lines",
    "write_file": "`write_file` creates or replaces a file",
    "edit_file": "`edit_file` replaces a text that occurs once",
    "delete_file": "`delete_file` removes a file",
    "search_text": "`search_text` finds text in files",
}


class FileSystem(Middleware):
    """Offers tools on the files of one scope; finds the scope's filesystem or starts it when a tool needs it (S4-060).

    Args:
        scope: Whose files, such as `("user", 1)`; None for files of the conversation alone, `("agent", id)` (S4-059).
        enabled_tools: Which tools to offer; by default all (S4-017).
        reading_only: Offer only the tools that change nothing.

    Raises:
        InvalidOption: if the scope is none, or a tool does not exist.
    """

    def __init__(
        self,
        scope: tuple[Any, ...] | None = None,
        *,
        enabled_tools: Sequence[str] | None = None,
        reading_only: bool = False,
    ) -> None:
        is_scope = isinstance(cast("object", scope), tuple) and scope and isinstance(scope[0], str)
        if scope is not None and not is_scope:
            raise InvalidOption(f'FileSystem: expected a scope such as ("user", 1), or None; got {scope!r}')
        chosen = TOOLS if enabled_tools is None else tuple(enabled_tools)
        unknown = [name for name in chosen if name not in TOOLS]
        if unknown:
            raise InvalidOption(f"FileSystem: expected enabled_tools from {', '.join(TOOLS)}; got {unknown[0]!r}")
        if reading_only:
            chosen = tuple(name for name in chosen if name in {"ls", "read_file", "search_text"})
        self.scope = scope
        self.enabled_tools = chosen

    def init(self, agent: AgentInfo) -> None:
        if not self.enabled_tools:
            raise InvalidOption("FileSystem: expected at least one tool; got none: leave the middleware out instead")

    def system_prompt(self, context: MiddlewareContext) -> str:
        uses = "; ".join(_PURPOSE[name] for name in self.enabled_tools)
        return f"You can work with text files. Paths are relative, such as notes/plan.md. {uses}."

    def tools(self, context: MiddlewareContext) -> Sequence[Tool[..., Any]]:
        client = context.files.client(self.scope if self.scope is not None else ("agent", context.agent_id))
        made = _Tools(client)
        return [getattr(made, name) for name in self.enabled_tools]


class _Tools:
    """The tools of one conversation, bound to its scope. Errors of the filesystem reach the model as they are."""

    def __init__(self, files: FileClient) -> None:
        self._files = files
        self.ls = tool(name="ls", idempotent=True)(self._ls)
        self.read_file = tool(name="read_file", idempotent=True)(self._read_file)
        self.write_file = tool(name="write_file", idempotent=True)(self._write_file)
        self.edit_file = tool(name="edit_file")(self._edit_file)
        self.delete_file = tool(name="delete_file")(self._delete_file)
        self.search_text = tool(name="search_text", idempotent=True)(self._search_text)

    async def _ls(self, pattern: str = "**") -> str:
        """List files with their sizes.

        pattern: a glob such as *.md or notes/**; without one, all files.
        """
        found = await self._files.ls(pattern)
        if not found.entries:
            return f"no files match {pattern}"
        lines = [f"{entry.path} ({entry.size} bytes)" for entry in found.entries]
        if found.total > len(found.entries):
            lines.append(f"... and {found.total - len(found.entries)} more")
        return "\n".join(lines)

    async def _read_file(self, path: str, start_line: int = 1, limit: int = 2000) -> str:
        """Show lines of a file, each after its number and a tab.

        path: the file.
        start_line: first line, from 1.
        limit: most lines to show.
        """
        text = await self._files.read(path, start_line=start_line, limit=limit)
        if not text.lines:
            return f"{text.path} has {text.total_lines} lines; none from line {start_line}"
        lines = [f"{text.start_line + index}\t{line}" for index, line in enumerate(text.lines)]
        last = text.start_line + len(text.lines) - 1
        if last < text.total_lines:
            lines.append(f"[lines {text.start_line} to {last} of {text.total_lines}; go on with start_line={last + 1}]")
        return "\n".join(lines)

    async def _write_file(self, path: str, content: str) -> str:
        """Create a file, or replace all of its content.

        path: the file.
        content: the whole new text.
        """
        entry = await self._files.write(path, content)
        return f"wrote {entry.path} (version {entry.version}, {entry.size} bytes)"

    async def _edit_file(self, path: str, old: str, new: str, *, replace_all: bool = False) -> str:
        """Replace a text in a file; it must occur exactly once, unless replace_all.

        path: the file.
        old: the text to replace, exactly as it stands there.
        new: the text to put in its place.
        replace_all: replace every occurrence.
        """
        done = await self._files.edit(path, old, new, replace_all=replace_all)
        places = "1 place" if done.replacements == 1 else f"{done.replacements} places"
        return f"edited {done.entry.path} in {places}, from line {done.line} (version {done.entry.version})"

    async def _delete_file(self, path: str) -> str:
        """Remove a file.

        path: the file.
        """
        await self._files.delete(path)
        return f"deleted {path}"

    async def _search_text(self, pattern: str, path: str = "**") -> str:
        """Find lines that hold a text.

        pattern: the text to find; case counts.
        path: a glob of the files to search; without one, all files.
        """
        found = await self._files.search(pattern, path)
        lines = [f"{match.path}:{match.line}: {match.text}" for match in found.matches]
        lines += [f"not searched: {each.name} ({each.reason})" for each in found.skipped]
        if found.stopped != "end":
            lines.append(f"[stopped early: {found.stopped}]")
        return "\n".join(lines) if lines else f"no line in {found.files_searched} files holds {pattern!r}"

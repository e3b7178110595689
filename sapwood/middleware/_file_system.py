"""FileSystem: tools for the files of a scope, shared by all agents that name it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final, cast

from sapwood.errors import InvalidOption, ToolError
from sapwood.files import FileClient, FileEntry, FilePath, SearchMatch, normalise
from sapwood.middleware._context import AgentInfo, MiddlewareContext
from sapwood.middleware._contract import Middleware
from sapwood.middleware._names import several_names
from sapwood.tools import Tool, tool

TOOLS: Final = (
    "ls",
    "read_file",
    "file_info",
    "write_file",
    "edit_file",
    "replace_lines",
    "insert_lines",
    "move_file",
    "delete_file",
    "search_text",
)
_READING: Final = frozenset({"ls", "read_file", "file_info", "search_text"})

_LEAST_CHARACTERS: Final = 1000

_PURPOSE: Final = {
    "ls": "`ls` lists files",
    "read_file": "`read_file` shows numbered lines",
    "file_info": "`file_info` shows the version of a file and whether it is saved",
    "write_file": "`write_file` creates or replaces a file",
    "edit_file": "`edit_file` replaces a text that occurs once",
    "replace_lines": "`replace_lines` replaces lines by their numbers",
    "insert_lines": "`insert_lines` adds lines after a line",
    "move_file": "`move_file` renames a file or a directory",
    "delete_file": "`delete_file` removes a file",
    "search_text": "`search_text` finds text in files",
}


class FileSystem(Middleware):
    """Offers tools on the files of one scope; finds the scope's filesystem or starts it when a tool needs it (S4-060).

    Args:
        scope: Whose files, such as `("user", 1)`; None for files of the conversation alone, `("agent", id)` (S4-059).
        enabled_tools: Which tools to offer; by default all (S4-017).
        reading_only: Offer only the tools that change nothing.
        guarded: Refuse to replace, edit or delete a file that somebody else has changed since this conversation last
            read or wrote it; the model is told to read it again. What was seen is forgotten at a restart.
        max_characters: Most characters that `read_file` shows at once; it says how to go on. Default 200,000.
        descriptions: Other descriptions of tools for the model, by name.

    Edits by line numbers demand that this conversation has read the file, whether guarded or not, and are refused if it
    was changed since. If the scope puts saving off, the answer of each change says that it is not saved yet, or why
    saving the file fails so far (AR-22.20).

    Raises:
        InvalidOption: if the scope is none, a tool does not exist, or `max_characters` is less than 1,000.
    """

    def __init__(
        self,
        scope: tuple[Any, ...] | None = None,
        *,
        enabled_tools: Sequence[str] | None = None,
        reading_only: bool = False,
        guarded: bool = False,
        max_characters: int = 200_000,
        descriptions: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        is_scope = isinstance(cast("object", scope), tuple) and scope and isinstance(scope[0], str)
        if scope is not None and not is_scope:
            raise InvalidOption(f'FileSystem: expected a scope such as ("user", 1), or None; got {scope!r}')
        chosen = TOOLS if enabled_tools is None else several_names(enabled_tools, "FileSystem enabled_tools")
        unknown = [name for name in (*chosen, *descriptions) if name not in TOOLS]
        if unknown:
            raise InvalidOption(f"FileSystem: expected enabled_tools from {', '.join(TOOLS)}; got {unknown[0]!r}")
        if type(max_characters) is not int or max_characters < _LEAST_CHARACTERS:
            expected = f"max_characters to be a whole number from {_LEAST_CHARACTERS}"
            raise InvalidOption(f"FileSystem: expected {expected}; got {max_characters!r}")
        if reading_only:
            chosen = tuple(name for name in chosen if name in _READING)
        self.scope = scope
        self.enabled_tools = chosen
        self.guarded = guarded
        self.max_characters = max_characters
        self.descriptions = dict(descriptions)

    def init(self, agent: AgentInfo) -> None:
        if not self.enabled_tools:
            raise InvalidOption("FileSystem: expected at least one tool; got none: leave the middleware out instead")

    def system_prompt(self, context: MiddlewareContext) -> str:
        uses = "; ".join(_PURPOSE[name] for name in self.enabled_tools)
        return f"You can work with text files. Paths are relative, such as notes/plan.md. {uses}."

    def tools(self, context: MiddlewareContext) -> Sequence[Tool[..., Any]]:
        client = context.files.client(self.scope if self.scope is not None else ("agent", context.agent_id))
        made = _Tools(client, guarded=self.guarded, max_characters=self.max_characters, descriptions=self.descriptions)
        return [getattr(made, name) for name in self.enabled_tools]


class _Tools:
    """The tools of one conversation, bound to its scope. Errors of the filesystem reach the model as they are."""

    def __init__(
        self, files: FileClient, *, guarded: bool, max_characters: int, descriptions: Mapping[str, str]
    ) -> None:
        self._files = files
        self._guarded = guarded
        self._max_characters = max_characters
        self._seen: dict[FilePath, int] = {}
        # Versions whose numbers of lines the model can know; an unconditional edit may have changed another's version.
        self._counted: dict[FilePath, int] = {}
        told = descriptions.get
        self.ls = tool(name="ls", idempotent=True, description=told("ls"))(self._ls)
        self.read_file = tool(name="read_file", idempotent=True, description=told("read_file"))(self._read_file)
        self.file_info = tool(name="file_info", idempotent=True, description=told("file_info"))(self._file_info)
        self.write_file = tool(name="write_file", idempotent=True, description=told("write_file"))(self._write_file)
        self.edit_file = tool(name="edit_file", description=told("edit_file"))(self._edit_file)
        self.replace_lines = tool(name="replace_lines", description=told("replace_lines"))(self._replace_lines)
        self.insert_lines = tool(name="insert_lines", description=told("insert_lines"))(self._insert_lines)
        self.move_file = tool(name="move_file", description=told("move_file"))(self._move_file)
        self.delete_file = tool(name="delete_file", description=told("delete_file"))(self._delete_file)
        self.search_text = tool(name="search_text", idempotent=True, description=told("search_text"))(self._search_text)

    def _expected(self, path: str) -> int | None:
        """Return the version that a change of this file may replace; None for any."""
        return self._seen.get(normalise(path)) if self._guarded else None

    def _noted(self, entry: FileEntry) -> str:
        """Remember what this conversation wrote, and tell its version, size and whether it is saved."""
        self._seen[entry.path] = self._counted[entry.path] = entry.version
        return f"(version {entry.version}, {entry.size} bytes{_unsaved(entry)})"

    def _line_version(self, path: str) -> int:
        file = normalise(path)
        version = self._counted.get(file)
        if version is None:
            raise ToolError(f"{file!r}: read the file first; the numbers of its lines may have changed")
        return version

    async def _ls(self, pattern: str = "**", limit: int = 1000) -> str:
        """List files with their sizes.

        pattern: a glob such as *.md or notes/**; without one, all files.
        limit: most files to list.
        """
        found = await self._files.ls(pattern, limit=limit)
        lines = [f"{entry.path} ({entry.size} bytes{_unsaved(entry)})" for entry in found.entries]
        if not found.entries:
            lines.append(f"no files match {pattern}")
        if found.total > len(found.entries):
            lines.append(f"... and {found.total - len(found.entries)} more")
        refusing = [mount.prefix or "/" for mount in found.mounts if mount.read_only]
        if refusing:
            lines.append(f"[read-only: {', '.join(refusing)}]")
        return "\n".join(lines)

    async def _read_file(self, path: str, start_line: int = 1, limit: int = 2000) -> str:
        """Show lines of a file, each after its number and a tab.

        path: the file.
        start_line: first line, from 1.
        limit: most lines to show.
        """
        text = await self._files.read(path, start_line=start_line, limit=limit)
        self._seen[text.path] = self._counted[text.path] = text.version
        if not text.lines:
            return f"{text.path} has {text.total_lines} lines; none from line {start_line}"
        lines: list[str] = []
        room = self._max_characters
        for number, line in enumerate(text.lines, start=text.start_line):
            shown = f"{number}\t{line}"
            if lines and len(shown) >= room:
                break
            if len(shown) > room:
                shown = f"{shown[:room]}... [{len(shown) - room} more characters in this line]"
            lines.append(shown)
            room -= len(shown) + 1
        last = text.start_line + len(lines) - 1
        if last < text.total_lines:
            lines.append(f"[lines {text.start_line} to {last} of {text.total_lines}; go on with start_line={last + 1}]")
        return "\n".join(lines)

    async def _file_info(self, path: str) -> str:
        """Show the version of a file, its size, when it was last changed, and whether it is saved.

        path: the file.
        """
        entry = await self._files.stat(path)
        changed = datetime.fromtimestamp(entry.modified, UTC).isoformat(timespec="seconds")
        state = _unsaved(entry).removeprefix("; ") or "saved"
        return f"{entry.path}: version {entry.version}, {entry.size} bytes, changed {changed}, {state}"

    async def _write_file(self, path: str, content: str) -> str:
        """Create a file, or replace all of its content.

        path: the file.
        content: the whole new text.
        """
        entry = await self._files.write(path, content, expected_version=self._expected(path))
        return f"wrote {entry.path} {self._noted(entry)}"

    async def _edit_file(self, path: str, old: str, new: str, *, replace_all: bool = False) -> str:
        """Replace a text in a file; it must occur exactly once, unless replace_all.

        path: the file.
        old: the text to replace, exactly as it stands there.
        new: the text to put in its place.
        replace_all: replace every occurrence.
        """
        expected = self._expected(path)
        done = await self._files.edit(path, old, new, replace_all=replace_all, expected_version=expected)
        entry = done.entry
        self._seen[entry.path] = entry.version
        if expected is not None and self._counted.get(entry.path) == expected:
            self._counted[entry.path] = entry.version
        else:
            self._counted.pop(entry.path, None)
        places = "1 place" if done.replacements == 1 else f"{done.replacements} places"
        return f"edited {entry.path} in {places}, from line {done.line} (version {entry.version}{_unsaved(entry)})"

    async def _replace_lines(self, path: str, first: int, last: int, content: str) -> str:
        """Replace lines of a file by their numbers, as read_file shows them; read the file before.

        path: the file.
        first: first line to replace, from 1.
        last: last line to replace.
        content: the new lines; empty removes the old ones.
        """
        done = await self._files.replace_lines(path, first, last, content, expected_version=self._line_version(path))
        by = _shift(_count(content) - (last - first + 1))
        return f"replaced lines {first} to {last} of {done.entry.path} {self._noted(done.entry)}; {by}"

    async def _insert_lines(self, path: str, after: int, content: str) -> str:
        """Add lines to a file after a line, as read_file numbers them; read the file before.

        path: the file.
        after: number of the line that they come after; 0 puts them first.
        content: the new lines.
        """
        done = await self._files.insert_lines(path, after, content, expected_version=self._line_version(path))
        by = _shift(_count(content))
        return f"inserted from line {done.line} of {done.entry.path} {self._noted(done.entry)}; {by}"

    async def _move_file(self, source: str, target: str) -> str:
        """Rename a file, or a directory with everything below it; nothing is ever replaced.

        source: the file or directory.
        target: its new name, the whole path.
        """
        expected = self._expected(source)
        done = await self._files.move(source, target, expected_version=expected)
        for entry in done.entries:
            old = FilePath(done.source + entry.path[len(done.target) :])
            self._counted.pop(old, None)
            seen = self._seen.pop(old, None)
            if seen is not None:
                # Only a file moved at the version that was seen is known; any other has to be read before a change.
                self._seen[entry.path] = seen if expected is None else entry.version
        what = "1 file" if len(done.entries) == 1 else f"{len(done.entries)} files"
        return f"moved {what} from {done.source} to {done.target}"

    async def _delete_file(self, path: str) -> str:
        """Remove a file.

        path: the file.
        """
        await self._files.delete(path, expected_version=self._expected(path))
        self._seen.pop(normalise(path), None)
        self._counted.pop(normalise(path), None)
        return f"deleted {path}"

    async def _search_text(
        self,
        pattern: str,
        path: str = "**",
        *,
        regular: bool = False,
        case_sensitive: bool = True,
        context_lines: int = 0,
        max_results: int = 50,
    ) -> str:
        """Find lines that hold a text, or match a regular expression, in all files or some.

        pattern: what to find.
        path: a glob of the files to search; without one, all files.
        regular: read the pattern as a regular expression.
        case_sensitive: whether case counts.
        context_lines: how many lines above and below each to show as well.
        max_results: most lines to find.
        """
        found = await self._files.search(
            pattern,
            path,
            regular=regular,
            case_sensitive=case_sensitive,
            context_lines=context_lines,
            max_results=max_results,
        )
        lines = [line for match in found.matches for line in _shown(match)]
        lines += [f"not searched: {each.name} ({each.reason})" for each in found.skipped]
        if found.stopped != "end":
            lines.append(f"[stopped early: {found.stopped}]")
        return "\n".join(lines) if lines else f"no line in {found.files_searched} files holds {pattern!r}"


def _unsaved(entry: FileEntry) -> str:
    match entry.state:
        case "saved":
            return ""
        case "dirty":
            return "; not saved yet"
        case "failed":
            return f"; not saved: {entry.problem}; it is tried again"


def _count(content: str) -> int:
    return content.count("\n") + (content[-1:] not in {"", "\n"})


def _shift(lines: int) -> str:
    return f"the lines after them moved by {lines:+}" if lines else "the lines after them did not move"


def _shown(match: SearchMatch) -> list[str]:
    """Return a match and the lines around it, which have dashes in place of colons."""
    first = match.line - len(match.before)
    return [
        *(f"{match.path}-{number}- {text}" for number, text in enumerate(match.before, start=first)),
        f"{match.path}:{match.line}: {match.text}",
        *(f"{match.path}-{number}- {text}" for number, text in enumerate(match.after, start=match.line + 1)),
    ]

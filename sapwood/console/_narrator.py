"""Narrators: how the demonstration is told, on a terminal with a live tree or in plain lines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, TextIO

import attrs
import trio

from sapwood.console._terminal import is_plain, one_line, printable

if TYPE_CHECKING:
    from rich.text import Text

REFRESH_EVERY: Final = 0.1
"""Seconds between two looks at the tree."""

FRAME: Final = 0.08
"""Seconds that each moment of a replay is shown."""


@attrs.frozen
class Frame:
    """One moment of the tree's recovery, recorded as it happened.

    Attributes:
        after: Seconds since the kill.
        text: What happened.
        tree: The whole tree at that moment.
    """

    after: float
    text: str
    tree: str


@attrs.frozen
class Verdict:
    """What came of one promise.

    Attributes:
        promise: What must hold.
        held: Whether it did, as far as it could be checked; what could not be checked has not held.
        evidence: What was seen.
    """

    promise: str
    held: bool
    evidence: str


class Narrator(Protocol):
    """Tells the story; the story itself prints nothing."""

    def chapter(self, title: str) -> None:
        """Begin a chapter."""
        ...

    def say(self, text: str) -> None:
        """Tell what happens."""
        ...

    def act(self, text: str) -> None:
        """Show something that the agent does."""
        ...

    def watch(self, tree: Callable[[], str] | None) -> None:
        """Keep a tree in view from now on, drawn anew again and again; None for no more."""
        ...

    def show(self, caption: str, tree: str) -> None:
        """Show a tree as it was at one moment."""
        ...

    async def replay(self, frames: Sequence[Frame]) -> None:
        """Show a recovery that is over, moment by moment."""
        ...

    async def pause(self, seconds: float) -> None:
        """Give the reader time."""
        ...

    def verdicts(self, verdicts: Sequence[Verdict]) -> None:
        """Show what came of every promise."""
        ...


class PlainNarrator:
    """Tells the story in plain lines, without pauses.

    Args:
        out: Where to.
    """

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def _line(self, text: str = "") -> None:
        self._out.write(printable(text) + "\n")
        self._out.flush()

    def chapter(self, title: str) -> None:
        self._line()
        self._line(f"== {title}")

    def say(self, text: str) -> None:
        self._line(text)

    def act(self, text: str) -> None:
        self._line(f"  {one_line(text, 110)}")

    def watch(self, tree: Callable[[], str] | None) -> None:
        """Do nothing: lines cannot be drawn anew."""

    def show(self, caption: str, tree: str) -> None:
        self._line(caption)
        for line in tree.splitlines():
            self._line(f"  {line}")

    async def replay(self, frames: Sequence[Frame]) -> None:
        for frame in frames:
            self._line(f"  {frame.after * 1000:7.1f} ms  {frame.text}")
        await trio.lowlevel.checkpoint()

    async def pause(self, seconds: float) -> None:
        await trio.lowlevel.checkpoint()

    def verdicts(self, verdicts: Sequence[Verdict]) -> None:
        for verdict in verdicts:
            self._line(f"{'✓' if verdict.held else '✗'} {verdict.promise}")
            self._line(f"    {one_line(verdict.evidence)}")


class LiveNarrator:
    """Tells the story on a terminal, with the tree below it, drawn anew from the runtime's memory.

    Use it as `async with narrator: ...`; needs the extra `cli`.

    Args:
        out: The terminal.
        fast: No pauses, and no slow motion.
    """

    def __init__(self, out: TextIO, *, fast: bool) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = Console(file=out, highlight=False, markup=False, emoji=False)
        self._live: Any = Live(console=self._console, auto_refresh=False, transient=True)
        self._fast = fast
        self._tree: Callable[[], str] | None = None
        self._caption = ""
        self._frozen: str | None = None

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep the tree up to date until cancelled."""
        with self._live:
            task_status.started()
            while True:
                self._draw()
                await trio.sleep(REFRESH_EVERY)

    def _draw(self) -> None:
        from rich.text import Text

        if self._frozen is not None:
            picture = _coloured(self._frozen)
        elif self._tree is not None:
            picture = _coloured(self._tree())
        else:
            picture = Text()
        if self._caption:
            picture = Text.assemble((self._caption, "bold yellow"), "\n", picture)
        self._live.update(picture, refresh=True)

    def _print(self, text: str, style: str = "") -> None:
        from rich.text import Text

        self._console.print(Text(printable(text), style=style))

    def chapter(self, title: str) -> None:
        self._print("")
        self._print(title, "bold cyan")

    def say(self, text: str) -> None:
        self._print(text)

    def act(self, text: str) -> None:
        self._print(f"  {one_line(text, max(20, self._console.width - 4))}", "dim")

    def watch(self, tree: Callable[[], str] | None) -> None:
        self._tree = tree
        self._draw()

    def show(self, caption: str, tree: str) -> None:
        """Do nothing: the tree is in view."""

    async def replay(self, frames: Sequence[Frame]) -> None:
        if not self._fast:
            for frame in frames:
                self._frozen = frame.tree
                self._caption = f"slow motion, {frame.after * 1000:.1f} ms after the kill: {one_line(frame.text)}"
                self._draw()
                await trio.sleep(FRAME)
        self._frozen, self._caption = None, ""
        self._draw()
        await trio.lowlevel.checkpoint()

    async def pause(self, seconds: float) -> None:
        await trio.sleep(0 if self._fast else seconds)

    def verdicts(self, verdicts: Sequence[Verdict]) -> None:
        from rich.table import Table
        from rich.text import Text

        self.watch(None)
        table = Table(box=None, show_header=False, padding=(0, 1))
        for verdict in verdicts:
            mark = Text("✓", "bold green") if verdict.held else Text("✗", "bold red")
            table.add_row(mark, Text(verdict.promise), Text(one_line(verdict.evidence), "dim"))
        self._console.print(table)


def _coloured(tree: str) -> Text:
    from rich.text import Text

    picture = Text(printable(tree))
    picture.highlight_regex(r"· started \d+ times", "yellow")
    picture.highlight_regex(r"· (?:starting|stopping)", "red")
    picture.highlight_regex(r"[├└│─]+", "dim")
    return picture


def narrator_for(out: TextIO, *, fast: bool) -> PlainNarrator | LiveNarrator:
    """Return the narrator that suits where the output goes."""
    return PlainNarrator(out) if is_plain(out) else LiveNarrator(out, fast=fast)

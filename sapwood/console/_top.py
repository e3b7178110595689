"""`sapwood top`: the figures of running runtimes as tables, live or once. Needs the extra `cli`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final, TextIO

import attrs
import trio
import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table as RichTable
from rich.text import Text

from sapwood.actors import Environment, RealEnvironment
from sapwood.console._figures import Published, Table, headline, read_published, tables_of
from sapwood.console._stopping import until_stopped
from sapwood.console._terminal import one_line
from sapwood.errors import InvalidOption, SapwoodError, StoreUnavailable

NOBODY: Final = (
    "no monitor publishes figures here; add sapwood.messaging.monitoring.Monitor().spec() to a runtime's children"
)


def top(
    file: Annotated[Path, typer.Argument(help="The store file.")] = Path("sapwood.db"),
    *,
    once: Annotated[bool, typer.Option("--once", help="Print the figures once, and leave.")] = False,
    every: Annotated[float, typer.Option(help="Seconds between two looks.")] = 1.0,
) -> int:
    """Watch the figures of what runs on a store: actors, restarts, mailboxes, bus, queues, dead letters and alerts.

    A runtime listens on nothing, so nobody can ask it from outside. One that has a Monitor among its children writes
    what it found into the store; that is shown, with its age. Nothing is changed. Where the output is no terminal it is
    printed once, as with --once. What could not be read is shown as ?.

    \b
    Examples:
      sapwood top support.db
      sapwood top support.db --once
    """  # noqa: D301  # \b keeps the lines of a paragraph
    return run_top(file, sys.stdout, RealEnvironment(), once=once, every=every)


def run_top(path: Path, out: TextIO, environment: Environment, *, once: bool = False, every: float = 1.0) -> int:
    """Show the figures until somebody stops it, or once; return the exit code. Blocks.

    Args:
        path: The store file.
        out: Where to.
        environment: The clock, and what ends the process at a second signal.
        once: Print and leave; so it is on anything that is no terminal.
        every: Seconds between two looks.

    Raises:
        InvalidOption: if they are not above 0.
        SapwoodError: if it is to show figures once and no monitor publishes any.
        StoreUnavailable, StoreCorrupt, FutureVersion: if the file cannot be read at the beginning.
    """
    if not every > 0:
        raise InvalidOption(f"expected --every above 0 seconds; got {every!r}")
    shown = read_published(path)
    if once or not out.isatty():
        if not shown:
            raise SapwoodError(f"{path}: {NOBODY}")
        out.writelines(f"{line}\n" for line in top_lines(shown, environment.wall()))
        out.flush()
        return 0
    return trio.run(until_stopped, Screen(path, out, environment, every).run, environment)


def top_lines(shown: tuple[Published, ...], now: float) -> Iterator[str]:
    """Yield the figures of all monitors as plain lines, at a wall-clock time."""
    for published in shown:
        yield headline(published, now)
        for broken in published.snapshot.unreadable:
            yield _unreadable(broken.kind, broken.name, broken.problem)
        for table in tables_of(published.snapshot, now):
            yield ""
            yield from table.lines()


def _unreadable(kind: str, name: str, problem: str) -> str:
    return f"cannot be read: {kind} {one_line(name)}: {one_line(problem)}"


@attrs.frozen
class Screen:
    """The live view.

    Attributes:
        path: The store file.
        out: The terminal.
        environment: The clock, and threads to read in.
        every: Seconds between two looks.
    """

    path: Path
    out: TextIO
    environment: Environment
    every: float

    async def run(self) -> int:
        """Draw again and again."""
        console = Console(file=self.out)
        with Live(console=console, auto_refresh=False, screen=False) as live:
            while True:
                live.update(await self._drawn(), refresh=True)
                await trio.sleep(self.every)

    async def _drawn(self) -> RenderableType:
        try:
            shown = await self.environment.in_thread(read_published, self.path)
        except StoreUnavailable as error:
            # It may be there again at the next look.
            return Text(one_line(str(error)), style="red")
        if not shown:
            return Text(f"{one_line(str(self.path))}: {NOBODY}")
        return Group(*self._parts(shown))

    def _parts(self, shown: tuple[Published, ...]) -> Iterator[RenderableType]:
        now = self.environment.wall()
        for published in shown:
            yield Text(headline(published, now), style="bold")
            for broken in published.snapshot.unreadable:
                yield Text(_unreadable(broken.kind, broken.name, broken.problem), style="red")
            for table in tables_of(published.snapshot, now):
                yield _drawn_table(table)


def _drawn_table(table: Table) -> RichTable:
    drawn = RichTable(title=Text(table.title), title_justify="left", box=None, pad_edge=False)
    for place, column in enumerate(table.columns):
        drawn.add_column(Text(column), justify="left" if place == 0 else "right")
    for row in table.rows:
        firing = table.title == "alerts" and "FIRING" in row
        drawn.add_row(*map(Text, row), style="red" if firing else None)
    return drawn

"""What a chat shows: text as it comes, and everything else in short lines."""

from __future__ import annotations

from typing import Final, TextIO

from sapwood.console._terminal import printable
from sapwood.console._transcript import line_of, todo_lines
from sapwood.conversation import (
    AssistantMessage,
    InterruptRaised,
    MessageCompleted,
    StreamEvent,
    TextDiscarded,
    TextStreamed,
    TodosChanged,
)

DIM: Final = "\x1b[2m"
BOLD: Final = "\x1b[1m"
RESET: Final = "\x1b[0m"


class ChatScreen:
    """Writes a chat to a terminal or a pipe.

    Args:
        out: Where to.
        plain: No colours.
    """

    def __init__(self, out: TextIO, *, plain: bool) -> None:
        self._out = out
        self._plain = plain
        self._streamed = ""
        self._at_line_start = True

    def show(self, event: StreamEvent) -> None:
        """Show one event."""
        match event:
            case TextStreamed():
                self._streamed += event.text
                self._write(event.text)
            case MessageCompleted():
                if isinstance(event.message, AssistantMessage):
                    self._complete(event.message.text)
            case TodosChanged():
                self.lines("to-dos:", *(f"  {line}" for line in todo_lines(event.todos) or ["none left"]))
            case InterruptRaised():
                pass  # asked about when the run has come to rest
            case _:
                if isinstance(event, TextDiscarded):
                    self._streamed = ""
                line = line_of(event)
                if line is not None:
                    self.lines(line)

    def _complete(self, text: str) -> None:
        """End the text of an answer; deltas that were dropped are made up for."""
        if text.startswith(self._streamed):
            self._write(text[len(self._streamed) :])
        else:
            self._break()
            self._write(text)
        self._streamed = ""
        self._break()

    def lines(self, *lines: str) -> None:
        """Write lines of the program's own."""
        self._break()
        for line in lines:
            self._raw(self._styled(printable(line), DIM) + "\n")

    def prompt(self, text: str) -> None:
        """Ask for a line."""
        self._break()
        self._raw(self._styled(printable(text), BOLD))

    def answered(self, line: str | None, *, echo: bool) -> None:
        """Note that the person's line end has ended the prompt; without a terminal that shows it, show the line."""
        if echo:
            self._raw(f"{printable(line or '')}\n")
        else:
            self._at_line_start = line is not None

    def _write(self, text: str) -> None:
        if text:
            self._raw(printable(text))

    def _break(self) -> None:
        if not self._at_line_start:
            self._raw("\n")

    def _styled(self, text: str, style: str) -> str:
        return text if self._plain else f"{style}{text}{RESET}"

    def _raw(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()
        self._at_line_start = text.endswith("\n")

"""What a person may type in a chat besides messages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeAlias

import attrs

from sapwood._runtime import Runtime
from sapwood.agents import Session
from sapwood.console._terminal import count, one_line
from sapwood.console._transcript import todo_lines
from sapwood.files import Scope


@attrs.frozen
class Subject:
    """What commands are about.

    Attributes:
        runtime: The runtime.
        session: The conversation.
        files: The scope of its files.
    """

    runtime: Runtime
    session: Session
    files: Scope


Command: TypeAlias = Callable[[Subject], list[str] | Awaitable[list[str]]]


async def run_command(line: str, runtime: Runtime, session: Session, files: Scope) -> list[str]:
    """Carry out a command and return what to show.

    Raises:
        SapwoodError: if it cannot be answered.
    """
    name = line.strip()
    found = COMMANDS.get(name)
    if found is None:
        return [f"✗ there is no command {one_line(name)}; expected one of {', '.join(COMMANDS)}"]
    lines = found[1](Subject(runtime, session, files))
    return lines if isinstance(lines, list) else await lines


def _help(subject: Subject) -> list[str]:
    width = max(map(len, COMMANDS))
    return [
        "Anything else is a message to the agent. Ctrl-C cancels a run; at the prompt it leaves, as Ctrl-D does.",
        *(f"{name:<{width}}  {what}" for name, (what, _) in COMMANDS.items()),
    ]


async def _status(subject: Subject) -> list[str]:
    status = await subject.session.status()
    usage = subject.session.state.usage
    lines = [
        f"{status.status} · {count(status.messages, 'message')} · epoch {status.epoch} · {count(status.seq, 'event')}",
        f"tokens: {usage.input_tokens} in ({usage.cached_tokens} cached), {usage.output_tokens} out",
    ]
    if status.error:
        lines.append(f"the last run failed: {one_line(status.error)}")
    return lines


def _todos(subject: Subject) -> list[str]:
    return todo_lines(subject.session.state.todos) or ["there are no to-dos"]


async def _files(subject: Subject) -> list[str]:
    found = await subject.runtime.files.client(subject.files).ls()
    lines = [f"{one_line(entry.path)} ({count(entry.size, 'byte')})" for entry in found.entries]
    if found.total > len(found.entries):
        lines.append(f"… and {found.total - len(found.entries)} more")
    return lines or ["there are no files"]


def _approvals(subject: Subject) -> list[str]:
    # What waits is asked about before the next message.
    return [] if subject.session.state.undecided else ["nothing waits for your decision"]


def _tree(subject: Subject) -> list[str]:
    return subject.runtime.tree().render().splitlines()


def _quit(subject: Subject) -> list[str]:
    return []


COMMANDS: Final[Mapping[str, tuple[str, Command]]] = {
    "/help": ("this list", _help),
    "/status": ("what the agent is doing", _status),
    "/todos": ("its to-do list", _todos),
    "/files": ("its files", _files),
    "/approvals": ("what waits for your decision", _approvals),
    "/tree": ("the supervision tree", _tree),
    "/quit": ("leave", _quit),
}
"""Every command: what it does, and how."""

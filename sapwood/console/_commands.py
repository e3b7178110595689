"""The commands of `sapwood`. Needs the extra `cli`; imported by `main` alone, when it is there."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from sapwood.actors import RealEnvironment
from sapwood.console._chat import ChatOptions, run_chat
from sapwood.console._demo import run_demo
from sapwood.console._inspect import DEFAULT_TAIL, inspect_lines
from sapwood.console._terminal import is_plain, width_of
from sapwood.console._top import top
from sapwood.console._tree import tree_lines
from sapwood.errors import InvalidOption
from sapwood.models import ChatModel, OfflineModel, parse_model

DEFAULT_STORE = Path("sapwood.db")
WORD_DELAY = 0.02
"""Seconds between the words of the offline model on a terminal."""

EXIT_CODES = (
    "Exit codes: 0 all is well, 1 something failed or did not hold, 2 the command was wrong, 130 stopped by Ctrl-C."
)

app = typer.Typer(
    name="sapwood",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=EXIT_CODES,
)


def _show_version(wanted: bool) -> None:  # noqa: FBT001  # typer calls it so
    if wanted:
        sys.stdout.write(f"sapwood {version('sapwood')}\n")
        raise typer.Exit


@app.callback()
def sapwood(
    *,
    show_version: Annotated[
        bool, typer.Option("--version", help="Show the version and leave.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """A supervised runtime for agents: see it at work, talk to an agent, look into its store.

    \b
    Examples:
      sapwood demo                      see an agent survive the loss of its registry
      sapwood chat                      talk to an agent; needs no key
      sapwood tree sapwood.db           what runs on a store, and what is kept there
      sapwood inspect sapwood.db        its journal, event by event
      sapwood top sapwood.db            live figures of what runs on it
    """  # noqa: D301  # \b keeps the lines of a paragraph


@app.command(epilog=EXIT_CODES)
def demo(
    *,
    store: Annotated[
        Path | None,
        typer.Option(help="Keep the store, the files and the ledger at this path; nothing may be there yet."),
    ] = None,
    fast: Annotated[bool, typer.Option("--fast", help="Without pauses.")] = False,
) -> int:
    """See an agent survive the loss of its registry, a stop, and a second runtime.

    A runtime starts on a real store and an agent does real work. Its registry is killed, the tree comes back, the
    conversation goes on. An approval outlives its runtime and is carried out once. A second runtime takes over. Each
    promise is checked against what was observed, and the exit code is 0 only if all of them held.

    \b
    Examples:
      sapwood demo
      sapwood demo --fast
      sapwood demo --store demo.db && sapwood inspect demo.db
    """  # noqa: D301
    return run_demo(sys.stdout, store=store, fast=fast)


@app.command(epilog=EXIT_CODES)
def chat(
    conversation: Annotated[
        str, typer.Argument(help="Name of the conversation; it is continued if it exists.")
    ] = "main",
    *,
    store: Annotated[Path, typer.Option(help="The store file; it is made if there is none.")] = DEFAULT_STORE,
    model: Annotated[str, typer.Option(help="offline, anthropic:NAME or openai:NAME.")] = "offline",
    base_url: Annotated[str | None, typer.Option(help="Another server for anthropic and openai.")] = None,
    files: Annotated[
        Path | None, typer.Option(help="Let the agent use the files of this directory.", show_default=False)
    ] = None,
    scope: Annotated[
        str, typer.Option(help="Files in the store that all conversations with this scope share.", show_default=False)
    ] = "",
) -> int:
    """Talk to an agent that has files and a to-do list, and asks you before it deletes a file.

    The conversation is kept in the store, and goes on where it was when you come back. /help lists what else you can
    type. Ctrl-C cancels a run; at the prompt it leaves, as Ctrl-D does. Input may be a pipe of lines.

    The model `offline` follows fixed rules and needs no key; it is no language model. The others take their key from
    ANTHROPIC_API_KEY or OPENAI_API_KEY.

    \b
    Examples:
      sapwood chat
      sapwood chat trip --files ~/notes
      sapwood chat --model openai:qwen3 --base-url http://localhost:8080/v1
      echo "Add a to-do: buy milk" | sapwood chat shopping
    """  # noqa: D301
    if files is not None and scope:
        raise InvalidOption("--files and --scope exclude each other; give one of them")
    if files is not None and not files.is_dir():
        raise InvalidOption(f"--files {files}: expected an existing directory")
    if not conversation.strip():
        raise InvalidOption("CONVERSATION: expected a name that is not empty")
    chosen = _model(model, base_url)
    return run_chat(ChatOptions(conversation, store, chosen, files, scope), sys.stdout)


def _model(name: str, base_url: str | None) -> ChatModel:
    if name == "offline" and base_url is None and not is_plain(sys.stdout):
        return OfflineModel(word_delay=WORD_DELAY)
    return parse_model(name, base_url=base_url)


@app.command(epilog=EXIT_CODES)
def tree(
    file: Annotated[Path, typer.Argument(help="The store file.")] = DEFAULT_STORE,
) -> int:
    """Show what runs on a store, and the conversations that are kept in it.

    A runtime listens on nothing, so nobody can ask it from outside. One that has a TreeReporter among its children, as
    `sapwood chat` and `sapwood demo` do, writes its supervision tree into the store every second; that is shown, with
    its age. A runtime without one is not seen. Stored conversations are shown as their journals say, whoever holds
    them. Nothing is changed.

    \b
    Examples:
      sapwood tree
      sapwood tree support.db
    """  # noqa: D301
    return _print(tree_lines(file, RealEnvironment().wall()))


@app.command(epilog=EXIT_CODES)
def inspect(
    file: Annotated[Path, typer.Argument(help="The store file; it may be in use.")],
    agent: Annotated[str | None, typer.Option(help="Only this conversation.", show_default=False)] = None,
    tail: Annotated[int, typer.Option(min=0, help="Last events to show of each conversation.")] = DEFAULT_TAIL,
) -> int:
    """Show the agents of a store file with epochs, owners, snapshots and the end of their journals.

    Read-only: nothing is claimed, migrated or mended. Records that cannot be read are named as such, and so are those
    in quarantine.

    \b
    Examples:
      sapwood inspect sapwood.db
      sapwood inspect sapwood.db --agent main --tail 100
    """  # noqa: D301
    return _print(inspect_lines(file, agent=agent, tail=tail, width=width_of(sys.stdout)))


def _print(lines: Iterable[str]) -> int:
    try:
        for line in lines:
            sys.stdout.write(line + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read the output has enough. What is left in the buffer would raise again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


app.command(epilog=EXIT_CODES)(top)

"""The demonstration: the story, its narrator, and the verdict."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Final, TextIO

import trio

from sapwood.actors import Environment, RealEnvironment
from sapwood.console._causes import cause_of
from sapwood.console._demo_checks import Facts, judge
from sapwood.console._demo_parts import Place
from sapwood.console._demo_story import Story
from sapwood.console._narrator import LiveNarrator, Narrator, narrator_for
from sapwood.console._stopping import until_stopped
from sapwood.errors import InvalidOption

PACE: Final = 0.2
"""Seconds that the agent waits before every model call, so that people can follow."""

TOLD_WITHIN: Final = 90.0
"""Seconds after which the story counts as stuck."""


def run_demo(out: TextIO, *, store: Path | None = None, fast: bool = False) -> int:
    """Tell the story and return 0 if every promise held, 1 if not, 128 + the number of a signal that stopped it.

    Args:
        out: Where to tell it.
        store: Path of the store, which may not exist yet; None for a temporary one.
        fast: No pauses.

    Raises:
        InvalidOption: if something is there already.
        OSError: if the directory of the files cannot be made.
    """
    environment = RealEnvironment()
    narrator = narrator_for(out, fast=fast)
    pace = 0.0 if fast or not isinstance(narrator, LiveNarrator) else PACE
    with nullcontext() if store is not None else tempfile.TemporaryDirectory(prefix="sapwood-demo-") as folder:
        place = place_of(store or Path(str(folder), "demo.db"))
        work = partial(demonstrate, place, narrator, environment, pace=pace, kept=folder is None)
        return trio.run(until_stopped, work, environment)


def place_of(store: Path) -> Place:
    """Make the place of a demonstration.

    Raises:
        InvalidOption: if something is there already.
        OSError: if its directory cannot be made.
    """
    place = Place.at(store)
    for path in (place.store, place.files, place.ledger):
        if path.exists():
            raise InvalidOption(f"the demonstration needs a new file, and {path} is there already; name another one")
    place.files.mkdir()
    return place


async def demonstrate(
    place: Place,
    narrator: Narrator,
    environment: Environment,
    *,
    pace: float,
    kept: bool,
    observe: Callable[[Facts], None] = lambda facts: None,
) -> int:
    """Tell the story, judge it, and return the exit code.

    Args:
        place: A new place.
        narrator: Who tells it.
        environment: Time, ids, threads.
        pace: Seconds that the agent waits before every model call.
        kept: Whether the place stays, so that one may look at it.
        observe: Sees the facts before they are judged.
    """
    facts = Facts()
    async with trio.open_nursery() as nursery:
        if isinstance(narrator, LiveNarrator):
            await nursery.start(narrator.run)
        await _tell(Story(place, narrator, environment, facts, pace=pace), facts)
        observe(facts)
        verdicts = judge(facts)
        narrator.chapter("What was promised, and what was seen")
        nursery.cancel_scope.cancel()
    narrator.verdicts(verdicts)
    failed = sum(not verdict.held for verdict in verdicts)
    narrator.say("")
    if failed:
        narrator.say(f"{failed} of {len(verdicts)} promises did not hold.")
    else:
        narrator.say(f"All {len(verdicts)} promises held.")
    if kept:
        narrator.say(f"Look at what is left: sapwood inspect {place.store}")
    return 1 if failed else 0


async def _tell(story: Story, facts: Facts) -> None:
    try:
        with trio.fail_after(TOLD_WITHIN):
            await story.tell()
    except Exception as error:
        cause = cause_of(error)
        facts.broken = f"{type(cause).__name__}: {cause}" if str(cause) else type(cause).__name__

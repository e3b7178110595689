"""What watches the demonstration: the registry at every step, the tree at every event, the order of a stop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import contextmanager

import attrs
import trio

from sapwood._runtime import Runtime
from sapwood.actors import Exited, Killed, Restarted, Spawned, TelemetryEvent
from sapwood.console._narrator import Frame
from sapwood.registry import Key, NotRunning, Running, Unavailable
from sapwood.supervision import TreeNode


class RegistryWatch(trio.abc.Instrument):
    """Asks the registry for one key after every step of every task, and counts who lives under it.

    Attributes:
        steps: How often it looked.
        most_live: Most actors that were alive at once under the key.
        denied: How often the answer was "not running" although one was alive.
        answers: How often each answer was given.

    Args:
        runtime: The runtime.
        key: The key.
    """

    def __init__(self, runtime: Runtime, key: Key) -> None:
        self.steps = 0
        self.most_live = 0
        self.denied = 0
        self.answers: Counter[str] = Counter()
        self._runtime = runtime
        self._key = key

    @contextmanager
    def watching(self) -> Generator[RegistryWatch]:
        """Watch within this block."""
        trio.lowlevel.add_instrument(self)
        try:
            yield self
        finally:
            # trio drops an instrument that raised; then `steps` is too low to vouch for anything.
            try:
                trio.lowlevel.remove_instrument(self)
            except KeyError:
                self.steps = 0

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """Look."""
        live = sum(1 for cell in self._runtime.system.actors if cell.birth.key == self._key)
        answer = self._runtime.registry.backend.lookup_nowait(self._key)
        self.steps += 1
        self.most_live = max(self.most_live, live)
        self.denied += isinstance(answer, NotRunning) and live > 0
        self.answers[answer_text(answer)] += 1


def answer_text(answer: Running[object] | NotRunning | Unavailable) -> str:
    """Name an answer of the registry."""
    match answer:
        case Running():
            return "running"
        case NotRunning():
            return "not running"
        case Unavailable(reason):
            return f"cannot tell ({reason})"


class Recovery:
    """Records what the kernel and the supervisors do, with the tree at each moment.

    Attributes:
        frames: The moments, in order.
    """

    def __init__(self, runtime: Runtime) -> None:
        self.frames: list[Frame] = []
        self._runtime = runtime
        self._began = runtime.environment.monotonic()

    @contextmanager
    def recording(self) -> Generator[Recovery]:
        """Record within this block."""
        self._began = self._runtime.environment.monotonic()
        unsubscribe = self._runtime.telemetry.subscribe(self._note)
        try:
            yield self
        finally:
            unsubscribe()

    @property
    def seconds(self) -> float:
        """Seconds since the beginning."""
        return self._runtime.environment.monotonic() - self._began

    def _note(self, event: TelemetryEvent) -> None:
        match event:
            case Exited():
                text = f"{event.actor} has ended: {event.reason}"
            case Spawned():
                text = f"{event.actor} has started"
            case Restarted():
                text = f"{event.supervisor} has restarted {event.child}"
            case _:
                return
        self.frames.append(Frame(self.seconds, text, self._runtime.tree().render()))


@attrs.frozen
class Stop:
    """How a runtime stopped.

    Attributes:
        expected: Labels of all actors in the order in which they must end.
        observed: Labels in the order in which they ended.
        killed: Those that had to be killed.
    """

    expected: tuple[str, ...]
    observed: tuple[str, ...]
    killed: tuple[str, ...]


class StopWatch:
    """Records the ends of actors from the moment it is made until the runtime is gone.

    Args:
        runtime: A runtime that is about to stop.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._expected = tuple(stop_order(runtime.tree()))
        self._ends: list[Exited] = []
        runtime.telemetry.subscribe(self._note)

    def _note(self, event: TelemetryEvent) -> None:
        if isinstance(event, Exited):
            self._ends.append(event)

    def result(self) -> Stop:
        """Return what was seen."""
        killed = tuple(end.actor for end in self._ends if isinstance(end.reason, Killed))
        return Stop(self._expected, tuple(end.actor for end in self._ends), killed)


def stop_order(node: TreeNode) -> Iterator[str]:
    """Yield labels in the order of an orderly stop: the last child first, each supervisor after its children."""
    for child in reversed(node.children):
        yield from stop_order(child)
    yield node.label

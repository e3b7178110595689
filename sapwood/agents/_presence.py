"""Presence: a server that nobody watches and that has nothing to do stops by itself."""

from __future__ import annotations

from sapwood.actors import Actor, Shutdown, Timer, message
from sapwood.agents._log import Log
from sapwood.agents._publisher import Publisher
from sapwood.agents._run_keeper import RunKeeper
from sapwood.agents._watch import Watch


@message("agent.look_around")
class LookAround:
    """The last viewer has left, or it is time to see whether there are any.

    Attributes:
        left: Whether it is the former.
    """

    left: bool = False


class Presence:
    """Stops the server when it has neither viewers nor anything to do for some time (AR-22.24).

    It decides in the server's own task, between two messages: one that came before is answered, and the sender of one
    that comes after gets `ActorDown`, so none is lost on the way.

    Args:
        actor: The server.
        log: The conversation.
        runs: Keeps the run.
        watch: Knows whether time will bring something.
        publisher: Knows the viewers.
        after: Seconds; None for never.
    """

    def __init__(
        self, actor: Actor, log: Log, runs: RunKeeper, watch: Watch, *, publisher: Publisher, after: float | None
    ) -> None:
        self._actor = actor
        self._log = log
        self._runs = runs
        self._watch = watch
        self._publisher = publisher
        self._after = after
        self._timer: Timer | None = None
        if after is not None:
            ref = actor.ref
            publisher.on_left = lambda: ref.tell(LookAround(left=True))

    @property
    def needed(self) -> bool:
        """Whether somebody watches, or there is something to do now or later."""
        state = self._log.state
        return (
            self._publisher.watched
            or self._watch.waiting
            or self._runs.task is not None
            or state.run is not None
            or bool(state.queue)
            or bool(state.pending)
            or any(not each.outcome for each in state.sub_agents)
        )

    def set(self) -> None:
        """Begin to count anew, because something has happened; not while the server is needed."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._after is not None and not self.needed:
            self._timer = self._actor.send_after(self._after, LookAround())

    def look(self, message: LookAround) -> None:
        """Stop the server if its time has come. Whatever makes it needed calls `set` when it ends."""
        if message.left:
            self.set()
        elif not self.needed:
            self._actor.stop(Shutdown("no_viewers"))

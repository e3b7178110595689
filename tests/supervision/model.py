"""A pure model of an ordinary supervisor: what must happen, with no actors, no tasks and a clock that is a number."""

from __future__ import annotations

from collections import deque
from typing import Literal, TypeAlias

import attrs

State: TypeAlias = Literal["running", "dead", "restarting", "stopped"]
"""`dead` is a process whose end the supervisor has not noticed yet."""

INITIAL, FACTOR, MAXIMUM, RESET_AFTER = 1.0, 2.0, 4.0, 6.0
NEVER = float("inf")


@attrs.define(eq=False)
class ModelChild:
    id: str
    restart: str = "permanent"
    significant: bool = False
    backoff: bool = False
    state: State = "stopped"
    end: str = ""
    failures: int = 0
    born: float = 0.0
    due: float = 0.0
    starts: int = 0


@attrs.define
class Model:
    """The supervisor, its children in start order, and what is still to come of their starts."""

    strategy: str
    restarts: int
    period: float
    auto_shutdown: str = "never"
    children: list[ModelChild] = attrs.field(factory=list[ModelChild])
    scripts: dict[str, deque[str]] = attrs.field(factory=dict[str, deque[str]])
    now: float = 0.0
    alive: bool = True
    attempts: int = 0
    window: list[float] = attrs.field(factory=list[float])
    events: list[str] = attrs.field(factory=list[str])
    mailbox: deque[tuple[ModelChild, State, int]] = attrs.field(factory=deque[tuple[ModelChild, State, int]])

    # --- what is compared -------------------------------------------------------------------------

    @property
    def states(self) -> dict[str, str]:
        return {child.id: child.state for child in self.children}

    # --- operations -------------------------------------------------------------------------------

    def begin(self, children: list[ModelChild]) -> bool:
        """Start the supervisor; say whether that worked (A01, A02, A04, A12, A13)."""
        for child in children:
            self.children.append(child)
            if self._start(child) == "fail":
                self._stop_everything()
                return False
            if child.state == "stopped" and child.restart == "temporary":
                self.children.remove(child)
        return True

    def die(self, *ends: tuple[str, str]) -> None:
        """Let children end by themselves at one moment; the supervisor notices it in the given order."""
        fallen = [(self._find(name), end) for name, end in ends]
        for child, end in fallen:
            if child is not None and child.state == "running":
                child.state, child.end = "dead", end
                self.events.append(f"-{child.id} {end}")
                self._mail(child)
        self._settle()

    def start(self, child: ModelChild) -> str:
        present = self._find(child.id)
        if present is not None:
            return "AlreadyStarted" if present.state == "running" else "AlreadyPresent"
        outcome = self._start(child)
        if outcome == "fail":
            return "ChildFailed"
        if child.state == "running" or child.restart != "temporary":
            self.children.append(child)
        return outcome

    def terminate(self, name: str) -> str:
        child = self._find(name)
        if child is None:
            return "ChildNotFound"
        self._stop(child)
        if child.restart == "temporary":
            self.children.remove(child)
        return "ok"

    def restart(self, name: str) -> str:
        child = self._find(name)
        problem = self._not_at_rest(child)
        if child is None or problem:
            return problem
        outcome = self._start(child)
        return "ChildFailed" if outcome == "fail" else outcome

    def delete(self, name: str) -> str:
        child = self._find(name)
        problem = self._not_at_rest(child)
        if child is None or problem:
            return problem
        self.children.remove(child)
        return "ok"

    def advance(self, seconds: float) -> None:
        """Let time pass, and with it the delays of restarts."""
        end = self.now + seconds
        while self.alive:
            waiting = [child for child in self.children if child.state == "restarting" and child.due <= end]
            if not waiting:
                break
            child = min(waiting, key=lambda child: child.due)
            self.now, child.due = child.due, NEVER
            self._mail(child)
            self._settle()
        self.now = end

    # --- the rules --------------------------------------------------------------------------------

    def _mail(self, child: ModelChild) -> None:
        """Put the end of a child, or the next attempt to restart it, behind what waits already (C08)."""
        self.mailbox.append((child, child.state, child.starts))

    def _settle(self) -> None:
        while self.mailbox and self.alive:
            child, state, starts = self.mailbox.popleft()
            if child in self.children and (child.state, child.starts) == (state, starts):
                self._notice(child) if state == "dead" else self._restart(child)

    def _find(self, name: str) -> ModelChild | None:
        return next((child for child in self.children if child.id == name), None)

    def _not_at_rest(self, child: ModelChild | None) -> str:
        if child is None:
            return "ChildNotFound"
        return {"stopped": "", "restarting": "ChildRestarting"}.get(child.state, "ChildRunning")

    def _notice(self, child: ModelChild) -> None:
        orderly = child.end in ("normal", "shutdown")
        if child.restart == "permanent" or (child.restart == "transient" and not orderly):
            if child.backoff:
                self._put_off(child, lived=self.now - child.born)
            else:
                self._restart(child)
            return
        child.state = "stopped"
        if child.restart == "temporary":
            self.children.remove(child)
        if child.significant:
            others = [other for other in self.children if other.significant and other is not child]
            if self.auto_shutdown == "any_significant" or all(other.state == "stopped" for other in others):
                self._end("auto shutdown")

    def _put_off(self, child: ModelChild, lived: float = 0.0) -> None:
        if lived >= RESET_AFTER:
            child.failures = 0
        child.failures += 1
        child.state = "restarting"
        child.due = self.now + min(MAXIMUM, INITIAL * FACTOR ** (child.failures - 1))
        self._stop_group(child)

    def _restart(self, child: ModelChild) -> None:
        self.attempts += 1
        self.window = [time for time in self.window if time >= self.now - self.period] + [self.now]
        if len(self.window) > self.restarts:
            child.state = "stopped"
            self._end("reached max restart intensity")
            return
        child.state = "restarting"
        failed = self._start_group(self._stop_group(child))
        if failed is None:
            return
        if failed is not child and child.state == "restarting":
            child.state = "stopped"
        if failed.backoff:
            self._put_off(failed)
        else:
            failed.state, failed.due = "restarting", NEVER
            self._mail(failed)

    def _stop_group(self, child: ModelChild) -> list[ModelChild]:
        place = self.children.index(child)
        group = {"one_for_one": [child], "one_for_all": list(self.children), "rest_for_one": self.children[place:]}[
            self.strategy
        ]
        for sibling in reversed(group):
            if sibling is not child:
                self._stop(sibling)
                if sibling.restart == "temporary":
                    self.children.remove(sibling)
        return [member for member in group if member in self.children]

    def _start_group(self, group: list[ModelChild]) -> ModelChild | None:
        for member in group:
            if self._start(member) == "fail":
                return member
        return None

    def _start(self, child: ModelChild) -> str:
        child.starts += 1
        script = self.scripts.get(child.id)
        outcome = script.popleft() if script else "ok"
        if outcome == "ok":
            child.state, child.born = "running", self.now
            self.events.append(f"+{child.id}")
        elif outcome == "ignore":
            child.state = "stopped"
            self.events.append(f"-{child.id} normal")
        else:
            self.events.append(f"-{child.id} BoomError")
        return outcome

    def _stop(self, child: ModelChild) -> None:
        if child.state == "running":
            self.events.append(f"-{child.id} shutdown")
        child.state = "stopped"

    def _stop_everything(self) -> None:
        for child in reversed(self.children):
            self._stop(child)

    def _end(self, why: str) -> None:
        self._stop_everything()
        self.alive = False
        self.events.append(f"-Supervisor#1 shutdown ({why})")

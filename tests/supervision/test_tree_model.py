"""Random trees of supervisors: who lives, and how often each has been started, against a model."""

from __future__ import annotations

from collections import Counter
from typing import Any

import attrs
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from sapwood.actors import Normal, Ref, Shutdown, Spawned, open_system
from sapwood.supervision import ChildSpec, child, supervision_tree, supervisor
from sapwood.testing import simulate
from tests.supervision.kit import Crash, End, PlainWorker, Stage, Worker

ENDS = {"normal": End(Normal()), "shutdown": End(Shutdown()), "crash": Crash(), "kill": None}
ORDERLY = ("normal", "shutdown")


@attrs.define(eq=False)
class Node:
    """A worker, or a supervisor with what it supervises."""

    restart: str
    significant: bool
    plain: bool = False
    supervises: bool = False
    strategy: str = "one_for_one"
    restarts: int = 3
    period: float = 5.0
    auto_shutdown: str = "never"
    below: list[Node] = attrs.field(factory=list["Node"])
    name: str = ""

    def walk(self) -> list[Node]:
        return [self, *(node for child in self.below for node in child.walk())]

    def spec(self) -> ChildSpec:
        common: dict[str, Any] = {"id": self.name, "restart": self.restart, "significant": self.significant}
        if not self.supervises:
            return child(PlainWorker if self.plain else Worker, self.name, **common)
        options: dict[str, Any] = {
            "strategy": self.strategy,
            "restarts": self.restarts,
            "period": self.period,
            "auto_shutdown": self.auto_shutdown,
        }
        return supervisor([node.spec() for node in self.below], **common, **options)


@attrs.define
class Model:
    """The rules of restarting, applied to a whole tree at one moment; starts never fail here."""

    top: Node
    now: float = 0.0
    alive: set[str] = attrs.field(factory=set[str])
    starts: Counter[str] = attrs.field(factory=Counter[str])
    members: dict[str, list[Node]] = attrs.field(factory=dict[str, list[Node]])
    windows: dict[str, list[float]] = attrs.field(factory=dict[str, list[float]])

    def start(self, node: Node) -> None:
        self.starts[node.name] += 1
        self.alive.add(node.name)
        if node.supervises:
            self.members[node.name] = list(node.below)
            self.windows[node.name] = []
            for member in node.below:
                self.start(member)

    def stop(self, node: Node) -> None:
        """Stop a node and all below it, if they live."""
        for member in self.members.get(node.name, ()):
            self.stop(member)
        self.alive.discard(node.name)

    def end(self, node: Node, how: str) -> None:
        """Let a node end, and all below it with it; then its supervisor does what it must."""
        self.stop(node)
        parent = self.parent_of(node)
        if parent is None:
            return
        members = self.members[parent.name]
        if node.restart == "permanent" or (node.restart == "transient" and how not in ORDERLY):
            self.restart(parent, node)
            return
        if node.restart == "temporary":
            members.remove(node)
        others = [member for member in members if member.significant and member is not node]
        all_over = not any(member.name in self.alive for member in others)
        if node.significant and (parent.auto_shutdown == "any_significant" or all_over):
            self.end(parent, "shutdown")

    def restart(self, parent: Node, node: Node) -> None:
        window = [time for time in self.windows[parent.name] if self.now - time <= parent.period]
        self.windows[parent.name] = [*window, self.now]
        if len(window) >= parent.restarts:
            self.end(parent, "shutdown")
            return
        members = self.members[parent.name]
        place = members.index(node)
        group = {"one_for_one": [node], "one_for_all": list(members), "rest_for_one": members[place:]}[parent.strategy]
        for member in group:
            self.stop(member)
            if member is not node and member.restart == "temporary":
                members.remove(member)
        for member in group:
            if member in members:
                self.start(member)

    def parent_of(self, node: Node) -> Node | None:
        return next((parent for parent in self.top.walk() if node in parent.below), None)


def nodes(depth: int, auto_shutdown: str) -> Any:
    """Return a strategy for a node that its supervisor can have."""

    @st.composite
    def build(draw: st.DrawFn) -> Node:
        restart = draw(st.sampled_from(["permanent", "permanent", "transient", "temporary"]))
        significant = auto_shutdown != "never" and restart != "permanent" and draw(st.booleans())
        node = Node(restart, significant, plain=draw(st.booleans()))
        return draw(tops(depth, node)) if depth and draw(st.booleans()) else node

    return build()


@st.composite
def tops(draw: st.DrawFn, depth: int, node: Node) -> Node:
    """Make a supervisor of a node."""
    auto_shutdown = draw(st.sampled_from(["never", "never", "any_significant", "all_significant"]))
    return attrs.evolve(
        node,
        supervises=True,
        strategy=draw(st.sampled_from(["one_for_one", "one_for_all", "rest_for_one"])),
        restarts=draw(st.integers(0, 3)),
        period=draw(st.sampled_from([1.0, 5.0])),
        auto_shutdown=auto_shutdown,
        below=draw(st.lists(nodes(depth - 1, auto_shutdown), min_size=1, max_size=3)),
    )


@st.composite
def trees(draw: st.DrawFn) -> Node:
    """Make a tree of up to four levels whose nodes have names: `1`, `1.2`, `1.2.1`."""
    top = draw(tops(3, Node("permanent", significant=False)))

    def name(node: Node, text: str) -> None:
        node.name = text
        for number, below in enumerate(node.below, 1):
            name(below, f"{text}.{number}")

    name(top, "1")
    return top


class Comparison:
    """One tree and what happens in it, carried out by both."""

    def __init__(self, top: Node, stage: Stage) -> None:
        self.top = top
        self.model = Model(top)
        self.stage = stage
        self.starts: Counter[str] = Counter()

    async def run(self, deaths: list[tuple[int, str, float]]) -> None:
        self.stage.system.telemetry.subscribe(self.hear)
        root = await self.stage.supervise(self.top.spec(), restarts=0)
        # What ends the top of the random tree would end the root at once, and that is of no interest here.
        self.model.start(self.top)
        self.compare()
        for number, how, seconds in deaths:
            living = [node for node in self.top.walk() if node.name in self.model.alive]
            if not living:
                break
            self.end(living[number % len(living)], how)
            await self.stage.settle()
            self.compare()
            await trio.sleep(seconds)
            self.model.now += seconds
        if root.alive:
            await root.stop()
        assert self.stage.alive == []

    def end(self, node: Node, how: str) -> None:
        deed: Any = ENDS[how] if not node.supervises else None
        ref: Ref = self.stage.ref(node.name)
        if deed is None:
            ref.kill()
        else:
            ref.tell(deed)
        self.model.end(node, how if deed is not None else "kill")

    def hear(self, event: object) -> None:
        if isinstance(event, Spawned):
            self.starts[event.actor] += 1

    def compare(self) -> None:
        alive = {label for label in self.stage.alive if label.startswith("1")}
        assert alive == self.model.alive
        del self.starts["Supervisor#1"]
        assert self.starts == self.model.starts
        if "1" in alive:
            drawn = supervision_tree(self.stage.system, self.stage.ref("1"))
            assert [node.label for node in drawn.walk()] == [
                node.name for node in self.top.walk() if node.name in alive
            ]


@pytest.mark.row("C03", "C07", "D01", "D06", "F05", "F06")
@settings(max_examples=150)
@given(
    top=trees(),
    deaths=st.lists(
        st.tuples(st.integers(0, 99), st.sampled_from([*ENDS, "crash", "kill"]), st.sampled_from([0.0, 0.5, 2.0, 6.0])),
        max_size=10,
    ),
    seed=st.integers(0, 2**32),
)
def test_in_every_tree_those_live_that_the_rules_let_live(
    top: Node, deaths: list[tuple[int, str, float]], seed: int
) -> None:
    async def main() -> None:
        async with open_system() as system:
            await Comparison(top, Stage(system)).run(deaths)

    simulate(seed, main)

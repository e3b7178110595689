"""Random programs: the real supervisor against the model, step by step."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Awaitable
from typing import Any

import attrs
import pytest
import trio
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sapwood.actors import Normal, Ref, Shutdown
from sapwood.errors import ActorDown, ChildFailed, SapwoodError
from sapwood.supervision import (
    Backoff,
    ChildSpec,
    Supervisor,
    child,
    delete_child,
    restart_child,
    start_child,
    supervisor_statistics,
    terminate_child,
)
from tests.supervision.kit import Crash, End, PlainWorker, Stage, Worker, on_stage, simulate, states
from tests.supervision.model import FACTOR, INITIAL, MAXIMUM, RESET_AFTER, Model, ModelChild

NAMES = ("a", "b", "c", "d", "e")
BACKOFF = Backoff(initial=INITIAL, factor=FACTOR, maximum=MAXIMUM, jitter=0.0, reset_after=RESET_AFTER)
ENDS = {"normal": End(Normal()), "shutdown": End(Shutdown()), "BoomError": Crash(), "killed": None}


@attrs.frozen
class Program:
    """A supervisor's options, its first children, and what then happens to it."""

    strategy: str
    restarts: int
    period: float
    auto_shutdown: str
    children: tuple[ModelChild, ...]
    steps: tuple[tuple[Any, ...], ...]
    plain: bool


def children_named(names: Any, auto_shutdown: str) -> Any:
    def build(name: str, restart: str, significant: bool, backoff: bool) -> ModelChild:  # noqa: FBT001  # for builds()
        allowed = auto_shutdown != "never" and restart != "permanent"
        return ModelChild(name, restart, significant and allowed, backoff)

    restart = st.sampled_from(["permanent", "permanent", "transient", "temporary"])
    return st.builds(build, names, restart, st.booleans(), st.sampled_from([False, False, True]))


@st.composite
def programs(draw: st.DrawFn) -> Program:
    auto_shutdown = draw(st.sampled_from(["never", "never", "any_significant", "all_significant"]))
    name = st.sampled_from(NAMES)
    first = draw(
        st.lists(children_named(name, auto_shutdown), min_size=1, max_size=4, unique_by=lambda child: child.id)
    )
    outcomes = st.lists(st.sampled_from(["ok", "fail", "ignore", "fail"]), max_size=4).map(tuple)
    death = st.tuples(name, st.sampled_from([*ENDS, "BoomError"]))
    step = st.one_of(
        st.tuples(st.just("die"), death),
        st.tuples(st.just("die"), death, death).filter(lambda step: step[1][0] != step[2][0]),
        st.tuples(st.just("script"), name, outcomes),
        st.tuples(st.just("script"), name, outcomes),
        st.tuples(st.just("advance"), st.sampled_from([0.5, 1.0, 2.0, 5.0, 10.0])),
        st.tuples(st.just("start"), children_named(name, auto_shutdown)),
        st.tuples(st.sampled_from(["terminate", "restart", "delete"]), name),
    )
    return Program(
        strategy=draw(st.sampled_from(["one_for_one", "one_for_all", "rest_for_one"])),
        restarts=draw(st.sampled_from([0, 1, 2, 3, 5, 9])),
        period=draw(st.sampled_from([1.0, 5.0, 8.0])),
        auto_shutdown=auto_shutdown,
        children=tuple(first),
        steps=tuple(draw(st.lists(step, min_size=1, max_size=14))),
        plain=draw(st.booleans()),
    )


class Comparison:
    """One program, carried out by both."""

    def __init__(self, program: Program, stage: Stage) -> None:
        self.program = program
        self.stage = stage
        # Two deaths at one moment may be noticed in either order, so there may be more than one model.
        self.models = [Model(program.strategy, program.restarts, program.period, program.auto_shutdown)]
        self.top: Ref | None = None

    def spec(self, model: ModelChild) -> ChildSpec:
        kind: Any = PlainWorker if self.program.plain else Worker
        return child(
            kind,
            model.id,
            self.stage.plan,
            id=model.id,
            restart=model.restart,  # type: ignore[arg-type]  # drawn from the right names
            significant=model.significant,
            backoff=BACKOFF if model.backoff else None,
        )

    async def run(self) -> None:
        program = self.program
        children = [self.spec(model) for model in program.children]
        started = self.models[0].begin(copy.deepcopy(list(program.children)))
        options: Any = {"strategy": program.strategy, "auto_shutdown": program.auto_shutdown}
        try:
            self.top = await self.stage.system.spawn(
                Supervisor, children, restarts=program.restarts, period=program.period, **options
            )
        except ChildFailed:
            assert not started
            return
        assert started
        for step in program.steps:
            answers = self.expect(step)
            answer = await self.carry_out(step)
            await self.stage.settle()
            await self.compare(step, answer, answers)
        await self.finish()

    def expect(self, step: tuple[Any, ...]) -> list[str]:
        if step[0] == "die" and len(step) > 2:
            self.models += [copy.deepcopy(model) for model in self.models]
            half = len(self.models) // 2
            for index, model in enumerate(self.models):
                if model.alive:
                    model.die(*(step[1:] if index < half else reversed(step[1:])))
            return [""] * len(self.models)
        return [self.expect_from(model, step) for model in self.models]

    def expect_from(self, model: Model, step: tuple[Any, ...]) -> str:
        what, *args = step
        if what == "script":
            model.scripts[args[0]] = deque(args[1])
            return ""
        if what == "advance":
            model.advance(args[0])
            return ""
        if not model.alive:
            return "ActorDown" if what != "die" else ""
        answer = getattr(model, what)(*copy.deepcopy(args))
        return str(answer) if answer is not None else ""

    async def carry_out(self, step: tuple[Any, ...]) -> str:
        what, *args = step
        top = self.top
        assert top is not None
        match what:
            case "die":
                self.kill(args)
                return ""
            case "script":
                self.stage.plan.script(args[0], *args[1])
                return ""
            case "advance":
                await trio.sleep(args[0])
                return ""
            case "start":
                return await self.answer(start_child(top, self.spec(args[0])))
            case "terminate":
                return await self.answer(terminate_child(top, args[0]), found="ok")
            case "restart":
                return await self.answer(restart_child(top, args[0]))
            case _:
                return await self.answer(delete_child(top, args[0]), found="ok")

    def kill(self, deaths: list[tuple[str, str]]) -> None:
        for name, end in deaths:
            if name in self.stage.alive:
                deed: Any = ENDS[end]
                self.stage.ref(name).kill() if deed is None else self.stage.ref(name).tell(deed)

    async def answer(self, call: Awaitable[Any], found: str = "") -> str:
        try:
            value = await call
        except SapwoodError as error:
            return type(error).__name__
        return found or ("ok" if value is not None else "ignore")

    async def compare(self, step: tuple[Any, ...], answer: str, answers: list[str]) -> None:
        assert self.top is not None
        seen = [event for event in self.stage.events if event != "+Supervisor#1"]
        alive = self.top.alive
        listed: dict[Any, str] = await states(self.top) if alive else {}
        attempts = (await supervisor_statistics(self.top)).restarts if alive else -1
        fitting = [
            model
            for model, expected in zip(self.models, answers, strict=True)
            if (model.events, model.alive, expected) == (seen, alive, answer)
            and (not alive or (model.states, model.attempts) == (listed, attempts))
        ]
        assert fitting, (step, answer, answers, seen, listed, attempts, self.models)
        self.models = fitting

    async def finish(self) -> None:
        assert self.top is not None
        try:
            await self.top.stop()
        except ActorDown:
            assert not self.models[0].alive
        assert self.stage.alive == []


@pytest.mark.row(
    "C02", "C03", "C07", "C09", "C10", "C11", "C13", "D01", "D03", "D06", "D08", "F05", "F06", "G09", "BR-02"
)
@settings(max_examples=400)
@given(program=programs(), seed=st.integers(0, 2**32))
@example(
    program=Program(
        "rest_for_one",
        9,
        5.0,
        "never",
        tuple(ModelChild(name) for name in "abcd"),
        (("script", "c", ("fail", "fail")), ("die", ("b", "BoomError"), ("c", "killed")), ("terminate", "d")),
        plain=True,
    ),
    seed=1,
)
@example(
    program=Program(
        "one_for_all",
        9,
        8.0,
        "all_significant",
        (
            ModelChild("a", "transient", significant=True, backoff=True),
            ModelChild("b", "temporary", significant=True),
            ModelChild("c"),
        ),
        (("die", ("a", "killed")), ("restart", "c"), ("advance", 2.0), ("die", ("b", "normal"), ("c", "shutdown"))),
        plain=False,
    ),
    seed=2,
)
def test_a_supervisor_does_in_every_program_what_the_model_says(program: Program, seed: int) -> None:
    simulate(on_stage(lambda stage: Comparison(program, stage).run()), seed)

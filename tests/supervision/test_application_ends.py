"""Group N: what the end of one application means for the others, in every tree and in every order."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from sapwood import open_runtime
from sapwood.actors import Crashed, Normal, Ref, Shutdown, SimulatedEnvironment
from sapwood.errors import (
    ActorDown,
    ApplicationFailed,
    ChildFailed,
    DependencyCycle,
    RuntimeFailed,
)
from sapwood.registry import Running
from sapwood.supervision import (
    Application,
    ApplicationController,
    applications,
    child,
    ensure_all_started,
    start_application,
    stop_application,
    supervisor,
    which_applications,
)
from sapwood.supervision._application import start_order, with_dependencies
from tests.supervision.application_kit import Book, root_of, running, shop, waits
from tests.supervision.kit import Crash, End, Stage, kind, on_stage, simulate

ENDS: dict[str, Callable[[Ref], None]] = {
    "normal": lambda root: root.tell(End(Normal())),
    "shutdown": lambda root: root.tell(End(Shutdown("done"))),
    "crash": lambda root: root.tell(Crash()),
    "killed": lambda root: root.kill(),
}


class TestEndsByThemselves:
    @pytest.mark.row("N06")
    @pytest.mark.parametrize(
        ("kind_of_application", "end", "consequence"),
        [
            ("permanent", "normal", "stop all"),
            ("permanent", "shutdown", "stop all"),
            ("permanent", "crash", "stop all"),
            ("permanent", "killed", "stop all"),
            ("transient", "normal", "report it"),
            ("transient", "shutdown", "stop all"),
            ("transient", "crash", "stop all"),
            ("transient", "killed", "stop all"),
            ("temporary", "normal", "report it"),
            ("temporary", "shutdown", "report it"),
            ("temporary", "crash", "report it"),
            ("temporary", "killed", "report it"),
        ],
    )
    async def test_the_type_says_what_the_end_of_one_means_for_the_others(
        self, autojump_clock: MockClock, stage: Stage, kind_of_application: Any, end: str, consequence: str
    ) -> None:
        book = Book()
        controller = await stage.system.spawn(
            ApplicationController,
            [book.application("other"), book.application("one", "other", type=kind_of_application)],
        )
        await stage.settle()
        book.take()
        stage.forget()

        ENDS[end](root_of(controller, "one"))
        await stage.settle()

        assert [report[:2] for report in stage.reports if report[1] == "one"][:1] == [("child_terminated", "one")]
        assert "stop one" in book.take()
        assert controller.alive is (consequence == "report it")
        if consequence == "stop all":
            assert isinstance(controller.exit_reason, Shutdown)
            assert controller.exit_reason.detail.startswith("application one ended: ")
            assert stage.alive == []
        else:
            assert running(controller) == ["other"]
            assert which_applications(controller)[1].reason is not None

    @pytest.mark.row("N06")
    async def test_a_supervisor_that_gives_up_ends_a_transient_application_and_with_it_all(
        self, autojump_clock: MockClock, stage: Stage
    ) -> None:
        book = Book()
        top = supervisor([stage.worker("w")], strategy="one_for_one", id="top", restarts=0)
        controller = await stage.system.spawn(
            ApplicationController, [book.application("one", root=top, type="transient"), book.application("two")]
        )
        book.take()

        await stage.crash("w")

        assert book.take() == ["stop one", "end two", "stop two"]
        assert controller.exit_reason == Shutdown("application one ended: shutdown (reached max restart intensity)")

    @pytest.mark.row("N06")
    @pytest.mark.parametrize("kind_of_application", ["permanent", "transient", "temporary"])
    async def test_an_explicit_stop_never_affects_others(
        self, autojump_clock: MockClock, stage: Stage, kind_of_application: Any
    ) -> None:
        controller = await stage.system.spawn(ApplicationController, shop(Book(), type=kind_of_application))
        before = {info.name: info.root for info in which_applications(controller)}

        await stop_application(controller, "database")
        await stage.settle()

        assert running(controller) == ["session", "catalog", "web"]
        assert all(root_of(controller, name) is before[name] for name in running(controller))
        assert [info.reason for info in which_applications(controller)] == [None] * 4

    @pytest.mark.row("N04", "N06")
    async def test_prep_stop_is_for_stops_that_somebody_ordered(self, autojump_clock: MockClock, stage: Stage) -> None:
        book = Book()
        apps = [book.application(name, prep_stop=partial(book.prepare, name)) for name in ("two", "one")]
        controller = await stage.system.spawn(ApplicationController, apps)
        book.take()

        root_of(controller, "one").tell(Crash())
        await controller.wait_stopped()

        assert book.take() == ["end one", "stop one", "prepare two", "end two", "stop two"]

    async def test_how_one_ended_is_told_until_it_runs_again(self, autojump_clock: MockClock, stage: Stage) -> None:
        controller = await stage.system.spawn(ApplicationController, [Book().application("one", type="temporary")])
        await stage.crash("one-root")
        [info] = which_applications(controller)
        assert (info.state, info.root, kind(info.reason)) == ("stopped", None, "BoomError")

        await start_application(controller, "one")
        [info] = which_applications(controller)
        assert (info.state, info.root, info.reason) == ("running", stage.ref("one-root"), None)

    @pytest.mark.row("N01", "N02")
    async def test_a_call_waits_for_the_rest_of_an_end_that_has_begun(
        self, autojump_clock: MockClock, stage: Stage
    ) -> None:
        slow = Application("a", stage.worker("a-root"), stop=waits(3), type="temporary")
        controller = await stage.system.spawn(ApplicationController, [slow, Application("b", requires=["a"])])
        await stop_application(controller, "b")
        before = root_of(controller, "a")

        await stage.crash("a-root")

        assert running(controller) == []
        assert await ensure_all_started(controller, "b") == ["a", "b"]
        assert stage.clock() == 3.0
        assert root_of(controller, "a") is not before

    @pytest.mark.row("N06")
    async def test_a_call_that_meets_the_end_of_all_is_told_why(self, autojump_clock: MockClock, stage: Stage) -> None:
        slow = Application("a", stage.worker("a-root"), stop=waits(3))
        controller = await stage.system.spawn(ApplicationController, [slow])
        await stage.crash("a-root")

        for call in (ensure_all_started, start_application, stop_application):
            with pytest.raises(ActorDown) as down:
                await call(controller, "a")
            assert down.value.reason == Shutdown("application a ended: crashed with BoomError: boom")


class TestInATree:
    @pytest.mark.row("N02", "N05", "N06")
    async def test_below_a_supervisor_the_end_of_all_starts_everything_afresh(
        self, autojump_clock: MockClock, stage: Stage
    ) -> None:
        book = Book()
        await stage.supervise(applications(shop(book)))
        book.take()

        stage.ref("web-root").tell(Crash())
        await stage.settle()

        log = book.take()
        assert log.index("stop database") < log.index("start database")
        assert [line for line in log if line.startswith("stop ")] == [
            "stop web",
            "stop catalog",
            "stop session",
            "stop database",
        ]
        assert [label for label in stage.alive if label.endswith("-root")] == [
            "database-root",
            "session-root",
            "catalog-root",
            "web-root",
        ]

    @pytest.mark.row("N02", "N05")
    async def test_a_runtime_starts_them_with_its_children_and_stops_them_in_reverse(
        self, autojump_clock: MockClock
    ) -> None:
        book = Book()
        spec = applications(shop(book), key=("applications", "all"))
        async with open_runtime(children=[spec], environment=SimulatedEnvironment()) as runtime:
            found = runtime.registry.lookup_nowait(("applications", "all"))
            assert isinstance(found, Running)
            assert len(running(found.ref)) == 4
            lines = runtime.tree().render().splitlines()
            assert [line.strip("│├└─ ") for line in lines[-9:]] == [
                "applications(('applications', 'all'))",
                *(label for name in ("database", "session", "catalog", "web") for label in (name, f"{name}-root")),
            ]
            book.take()

        assert book.take() == [
            line for name in ("web", "catalog", "session", "database") for line in (f"end {name}", f"stop {name}")
        ]

    @pytest.mark.row("N03", "N07")
    async def test_a_runtime_whose_applications_cannot_start_does_not_open(self, autojump_clock: MockClock) -> None:
        book = Book()
        book.failing.add("run web")

        with pytest.raises(ChildFailed) as failed:
            async with open_runtime(children=[applications(shop(book))], environment=SimulatedEnvironment()):
                pytest.fail("it opened")

        assert isinstance(failed.value.reason, Crashed)
        assert isinstance(failed.value.reason.exception, ApplicationFailed)
        assert failed.value.reason.exception.application == "web"
        assert book.take()[-1] == "stop database"

    @pytest.mark.row("N06")
    async def test_an_application_that_keeps_ending_ends_the_runtime(self, autojump_clock: MockClock) -> None:
        async def gives_up() -> None:
            await trio.sleep(0.1)

        app = Application("app", child(gives_up))
        with pytest.raises(RuntimeFailed, match="reached max restart intensity"):
            async with open_runtime(children=[applications([app])], environment=SimulatedEnvironment(), restarts=2):
                await trio.sleep_forever()


NAMES = [f"app{number}" for number in range(8)]
GRAPHS = st.lists(
    st.tuples(st.sampled_from(range(8)), st.sampled_from(range(8))).filter(lambda edge: edge[0] != edge[1]), max_size=12
)


@given(edges=GRAPHS, wanted=st.sets(st.sampled_from(NAMES)))
def test_whatever_the_requirements_each_comes_after_its_own_or_a_real_cycle_is_named(
    edges: list[tuple[int, int]], wanted: set[str]
) -> None:
    requires = {name: sorted({NAMES[to] for at, to in edges if NAMES[at] == name}) for name in NAMES}
    apps = [Application(name, requires=requires[name]) for name in NAMES]
    try:
        order = start_order(apps)
    except DependencyCycle as cycle:
        chain = cycle.chain
        assert all(after in requires[before] for before, after in pairwise(chain))
        assert chain[0] == chain[-1]
        return
    names = list(order)
    assert sorted(names) == NAMES
    chosen = with_dependencies(wanted, order)
    assert wanted <= set(chosen)
    assert chosen == [name for name in names if name in chosen]
    for name in chosen:
        assert all(chosen.index(required) < chosen.index(name) for required in requires[name])


@pytest.mark.parametrize("seed", range(20))
def test_killing_anything_at_any_time_never_leaves_one_running_without_what_it_requires_having_run(seed: int) -> None:
    simulate(on_stage(partial(_storm, seed)), seed)


async def _storm(seed: int, stage: Stage) -> None:
    random = SimulatedEnvironment(seed).random
    book = Book()
    await stage.supervise(applications(shop(book)), restarts=1_000)
    for _ in range(30):
        cells = [
            cell for cell in stage.system.actors if cell.label in {*shop_names(), *(f"{n}-root" for n in shop_names())}
        ]
        if cells:
            random.choice(cells).kill()
        await trio.sleep(random.choice([0, 0.1]))
    await stage.settle()

    lives = [label for label in stage.alive if label.endswith("-root")]
    assert lives == ["database-root", "session-root", "catalog-root", "web-root"]
    up: list[str] = []
    for line in book.take():
        what, name = line.split()
        if what == "run":
            assert name not in up
            assert {"web": {"session", "catalog"}, "session": {"database"}, "catalog": {"database"}}.get(
                name, set()
            ) <= set(up)
            up.append(name)
        if what == "start":
            up = [one for one in up if one != name]


def shop_names() -> list[str]:
    return ["database", "session", "catalog", "web"]

"""Group N: applications start after what they require, and stop as they say; what cannot work is refused."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from sapwood.actors import Actor, Crashed, Ref
from sapwood.errors import (
    ActorDown,
    AlreadyStarted,
    ApplicationFailed,
    ApplicationNotFound,
    ApplicationNotRunning,
    AskCycle,
    ChildFailed,
    DependencyCycle,
    DependencyNotRunning,
    DuplicateName,
    InvalidApplication,
    InvalidOption,
    MissingDependency,
    StartTimeout,
)
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
from tests.supervision.application_kit import Book, root_of, running, shop, waits
from tests.supervision.kit import BoomError, Call, Crash, SlowWorker, Stage, Worker, kind


class TestStarting:
    @pytest.mark.row("N01")
    async def test_one_whose_dependency_does_not_run_is_refused_by_the_name_of_that(
        self, autojump_clock: MockClock, stage: Stage
    ) -> None:
        book = Book()
        controller = await stage.system.spawn(ApplicationController, shop(book), start=[])

        with pytest.raises(DependencyNotRunning) as refused:
            await start_application(controller, "session")

        assert (refused.value.application, refused.value.dependency) == ("session", "database")
        assert book.take() == []
        assert running(controller) == []

        await start_application(controller, "database")
        await start_application(controller, "session")
        assert book.take() == ["start database", "run database", "start session", "run session"]

    @pytest.mark.row("N01")
    async def test_one_that_has_stopped_counts_as_not_running_for_those_that_require_it(
        self, autojump_clock: MockClock, stage: Stage
    ) -> None:
        book = Book()
        controller = await stage.system.spawn(ApplicationController, shop(book, type="temporary"), start=["database"])
        root_of(controller, "database").tell(Crash())
        await stage.settle()
        with pytest.raises(DependencyNotRunning):
            await start_application(controller, "session")

        await start_application(controller, "database")
        await start_application(controller, "session")
        await stop_application(controller, "database")
        with pytest.raises(DependencyNotRunning):
            await start_application(controller, "catalog")
        assert running(controller) == ["session"]

    @pytest.mark.row("N01")
    async def test_one_that_runs_is_not_started_twice(self, autojump_clock: MockClock, stage: Stage) -> None:
        book = Book()
        controller = await stage.system.spawn(ApplicationController, shop(book))
        book.take()

        with pytest.raises(AlreadyStarted) as twice:
            await start_application(controller, "database")

        assert twice.value.ref.label == "database"
        assert book.take() == []

    @pytest.mark.row("N02")
    async def test_all_start_after_what_they_require_and_each_once(
        self, autojump_clock: MockClock, stage: Stage
    ) -> None:
        book = Book()

        controller = await stage.system.spawn(ApplicationController, shop(book))

        order = ["database", "session", "catalog", "web"]
        assert book.take() == [what for name in order for what in (f"start {name}", f"run {name}")]
        assert running(controller) == order

    @pytest.mark.row("N02")
    async def test_only_what_was_missing_is_started_and_named(self, autojump_clock: MockClock, stage: Stage) -> None:
        book = Book()
        controller = await stage.system.spawn(ApplicationController, shop(book), start=["session"])
        assert book.take() == ["start database", "run database", "start session", "run session"]
        before = root_of(controller, "database"), root_of(controller, "session")

        assert await ensure_all_started(controller, "catalog") == ["catalog"]
        assert await ensure_all_started(controller, "catalog", "session") == []
        assert await ensure_all_started(controller) == ["web"]

        assert book.take() == ["start catalog", "run catalog", "start web", "run web"]
        assert (root_of(controller, "database"), root_of(controller, "session")) == before

    @pytest.mark.row("N03")
    @pytest.mark.parametrize("broken", ["start web", "run web"])
    async def test_one_that_fails_takes_down_what_the_same_call_had_started_and_nothing_else(
        self, autojump_clock: MockClock, stage: Stage, broken: str
    ) -> None:
        book = Book()
        controller = await stage.system.spawn(ApplicationController, shop(book), start=["session"])
        before = stage.alive
        book.take()
        book.failing.add(broken)

        with pytest.raises(ApplicationFailed, match=r"web failed to start: .*; stopped again: catalog") as failed:
            await ensure_all_started(controller, "web")

        assert failed.value.application == "web"
        assert failed.value.stopped == ("catalog",)
        assert book.take()[-2:] == ["end catalog", "stop catalog"]
        assert running(controller) == ["database", "session"]
        assert stage.alive == before

        book.failing.clear()
        assert await ensure_all_started(controller, "web") == ["catalog", "web"]

    @pytest.mark.row("N03")
    async def test_a_failure_during_the_first_start_leaves_nothing_running(
        self, autojump_clock: MockClock, stage: Stage
    ) -> None:
        book = Book()
        book.failing.add("run catalog")

        with pytest.raises(ApplicationFailed) as failed:
            await stage.system.spawn(ApplicationController, shop(book))

        assert failed.value.application == "catalog"
        assert failed.value.stopped == ("session", "database")
        assert stage.alive == []
        assert book.take()[-5:] == ["stop catalog", "end session", "stop session", "end database", "stop database"]

    @pytest.mark.row("N07")
    async def test_the_reason_of_a_failed_start_holds_that_of_the_child_that_failed(
        self, autojump_clock: MockClock, stage: Stage
    ) -> None:
        stage.plan.script("leaf", "fail")
        top = supervisor([stage.worker("first"), stage.worker("leaf")], strategy="one_for_one", id="top")
        controller = await stage.system.spawn(ApplicationController, [Application("app", top)], start=[])
        await stage.settle()
        before = stage.alive

        with pytest.raises(ApplicationFailed) as failed:
            await start_application(controller, "app")

        names: list[str] = []
        reason: object = failed.value.reason
        while isinstance(reason, Crashed) and isinstance(reason.exception, ChildFailed):
            names.append(reason.exception.child)
            reason = reason.exception.reason
        assert names == ["top", "leaf"]
        assert kind(reason) == "BoomError"
        assert stage.alive == before
        assert ("start_error", "app", "ApplicationFailed") not in stage.reports
        assert [report[:2] for report in stage.reports] == [
            ("start_error", "leaf"),
            ("start_error", "top"),
            ("start_error", "app"),
        ]

    async def test_a_start_that_takes_too_long_fails_and_leaves_nothing(
        self, autojump_clock: MockClock, stage: Stage
    ) -> None:
        stage.plan.script("slow", "10")
        slow = Application("slow", stage.worker("slow"), start_timeout=2.0)
        controller = await stage.system.spawn(ApplicationController, [slow], start=[])

        with pytest.raises(ApplicationFailed) as failed:
            await start_application(controller, "slow")

        assert isinstance(failed.value.reason, Crashed)
        assert isinstance(failed.value.reason.exception, StartTimeout)
        assert stage.alive == [controller.label]

    async def test_a_root_that_has_nothing_to_run_fails_the_start(
        self, autojump_clock: MockClock, stage: Stage
    ) -> None:
        stage.plan.script("idle", "ignore")
        controller = await stage.system.spawn(ApplicationController, [Application("a", stage.worker("idle"))], start=[])

        with pytest.raises(ApplicationFailed, match="returned Ignore"):
            await start_application(controller, "a")


class TestStopping:
    @pytest.mark.row("N04")
    async def test_prep_stop_comes_before_the_ordered_teardown_and_stop_after_it(
        self, autojump_clock: MockClock, stage: Stage
    ) -> None:
        log: list[str] = []

        async def prep_stop(state: str) -> str:
            await trio.sleep(1)
            log.append(f"prep_stop {state}, {len(stage.alive)} alive")
            return f"prepared {state}"

        workers = [child(partial(SlowWorker, cleanup=2.0, log=log), name, id=name) for name in "ab"]
        app = Application(
            "app",
            lambda state: supervisor([stage.worker(state), *workers], strategy="one_for_one", id="top"),
            start=lambda configuration: configuration["name"],
            prep_stop=prep_stop,
            stop=lambda state: log.append(f"stop {state}, {len(stage.alive)} alive"),
            configuration={"name": "state"},
        )
        controller = await stage.system.spawn(ApplicationController, [app])
        assert stage.ref("state").alive

        await stop_application(controller, "app")

        assert log == [
            "prep_stop state, 6 alive",
            "stop b shutdown",
            "clean b",
            "stop a shutdown",
            "clean a",
            "stop prepared state, 2 alive",
        ]
        assert stage.clock() == 5.0
        assert stage.alive == [controller.label]

    @pytest.mark.row("N04")
    async def test_a_hook_that_fails_holds_up_nothing_and_is_reported(
        self, autojump_clock: MockClock, stage: Stage
    ) -> None:
        book = Book()

        def prep_stop(state: str) -> str:
            book.note(f"prep_stop {state}")
            raise BoomError("prep_stop")

        app = book.application("app", prep_stop=prep_stop, stop=lambda state: book.note(f"stop {state}"))
        controller = await stage.system.spawn(ApplicationController, [app])
        book.take()

        await stop_application(controller, "app")

        assert book.take() == ["prep_stop state of app", "end app", "stop state of app"]
        assert stage.reports == [("shutdown_error", "app", "BoomError")]

    @pytest.mark.row("N04")
    async def test_without_a_start_hook_the_configuration_is_the_state(
        self, autojump_clock: MockClock, stage: Stage
    ) -> None:
        given = {"port": 80}
        seen: list[object] = []
        app = Application("app", stop=seen.append, configuration=given)
        given["port"] = 90
        controller = await stage.system.spawn(ApplicationController, [app])

        await stop_application(controller, "app")

        assert seen == [{"port": 80}]

    @pytest.mark.row("N03", "N04")
    async def test_what_start_has_opened_is_closed_by_stop_if_the_root_cannot_start(
        self, autojump_clock: MockClock, stage: Stage
    ) -> None:
        book = Book()
        book.failing |= {"run app", "stop app"}

        with pytest.raises(ApplicationFailed) as failed:
            await stage.system.spawn(ApplicationController, [book.application("app")])

        assert book.take() == ["start app", "run app", "stop app"]
        assert isinstance(failed.value.reason, Crashed)
        group = failed.value.reason.exception
        assert isinstance(group, ExceptionGroup)
        assert [type(error) for error in group.exceptions] == [ChildFailed, BoomError]

    @pytest.mark.row("N04")
    async def test_one_that_does_not_stop_in_its_time_is_killed_without_its_stop_hook(
        self, autojump_clock: MockClock, stage: Stage
    ) -> None:
        book = Book()
        app = book.application("app", prep_stop=waits(100), shutdown=3.0)
        controller = await stage.system.spawn(ApplicationController, [app])
        book.take()

        await stop_application(controller, "app")

        assert stage.clock() == 3.0
        assert book.take() == []
        assert stage.alive == [controller.label]

    @pytest.mark.row("N05")
    async def test_the_end_of_the_set_stops_in_the_reverse_of_the_real_start_order(
        self, autojump_clock: MockClock, stage: Stage
    ) -> None:
        book = Book()
        controller = await stage.system.spawn(ApplicationController, shop(book))
        await stop_application(controller, "session")
        await start_application(controller, "session")
        book.take()

        await controller.stop()

        stopped = [line.removeprefix("stop ") for line in book.take() if line.startswith("stop ")]
        assert stopped == ["session", "web", "catalog", "database"]
        assert stage.alive == []

    async def test_what_does_not_run_cannot_be_stopped(self, autojump_clock: MockClock, stage: Stage) -> None:
        controller = await stage.system.spawn(ApplicationController, shop(Book()), start=[])

        with pytest.raises(ApplicationNotRunning):
            await stop_application(controller, "web")
        for call in (stop_application, start_application, ensure_all_started):
            with pytest.raises(ApplicationNotFound, match="no application wep; known are database, session"):
                await call(controller, "wep")

    async def test_an_actor_that_would_wait_for_its_own_end_is_refused(
        self, autojump_clock: MockClock, stage: Stage
    ) -> None:
        controller = await stage.system.spawn(ApplicationController, shop(Book()))

        async def refused() -> None:
            with pytest.raises(AskCycle):
                await stop_application(controller, "web")

        await root_of(controller, "web").ask(Call(refused))
        await root_of(controller, "web").ask(Call(partial(stop_application, controller, "session")))
        assert running(controller) == ["database", "catalog", "web"]

    async def test_code_that_would_wait_for_itself_through_the_controller_is_refused(
        self, autojump_clock: MockClock, stage: Stage
    ) -> None:
        found: list[Ref] = []

        async def stops_its_own(state: object) -> None:
            await stop_application(found[0], "ending")

        async def starts_others(configuration: object) -> None:
            await ensure_all_started(found[0], "other")

        apps = [
            Application("other"),
            Application("starting", start=starts_others),
            Application("ending", stage.worker("w"), stop=stops_its_own, type="temporary"),
        ]
        found.append(await stage.system.spawn(ApplicationController, apps, start=["ending"]))

        with pytest.raises(ApplicationFailed, match="ask cycle"):
            await start_application(found[0], "starting")
        await stage.crash("w")

        reason = {info.name: info.reason for info in which_applications(found[0])}["ending"]
        assert isinstance(reason, Crashed)
        assert isinstance(reason.exception, AskCycle)


def unchanged(**fields: Any) -> Application:
    fields.setdefault("name", "app")
    return Application(**fields)


class TestWhatIsRefused:
    @pytest.mark.row("N01")
    def test_a_missing_dependency_is_named_with_the_chain_that_leads_to_it(self) -> None:
        apps = [Application("shop", requires=["web"]), Application("web", requires=["database"])]

        with pytest.raises(MissingDependency, match="shop → web → database") as missing:
            applications(apps)

        assert missing.value.chain == ("shop", "web", "database")
        assert "known are shop, web" in str(missing.value)

    @pytest.mark.row("N01")
    def test_a_cycle_is_named_as_a_whole(self) -> None:
        apps = [
            Application("a", requires=["b"]),
            Application("b", requires=["c"]),
            Application("c", requires=["a"]),
            Application("d", requires=["a"]),
        ]

        with pytest.raises(DependencyCycle) as cycle:
            applications(apps)

        chain = cycle.value.chain
        required = {app.name: app.requires for app in apps}
        assert chain[0] == chain[-1]
        assert len(chain) == 4
        assert all(after in required[before] for before, after in pairwise(chain))
        with pytest.raises(DependencyCycle, match="me → me"):
            applications([Application("me", requires=["me"])])

    async def test_a_set_that_cannot_work_starts_nothing(self, autojump_clock: MockClock, stage: Stage) -> None:
        book = Book()
        with pytest.raises(MissingDependency):
            await stage.system.spawn(ApplicationController, [book.application("a"), book.application("b", "x")])

        assert book.take() == []
        assert stage.alive == []

    def test_names_are_unique_and_those_to_start_are_known(self) -> None:
        with pytest.raises(DuplicateName, match="application 'a'"):
            applications([Application("a"), Application("a")])
        with pytest.raises(ApplicationNotFound, match="no application b; known are a"):
            applications([Application("a")], start=["b"])
        with pytest.raises(InvalidOption, match=r"Write \['a'\]"):
            applications([Application("a")], start="a")
        with pytest.raises(InvalidApplication, match=r"Application\(\.\.\.\) objects"):
            applications([child(Actor)])  # type: ignore[list-item]  # what the test is about

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("name", ""),
            ("name", 5),
            ("root", "web"),
            ("requires", "database"),
            ("requires", [5]),
            ("requires", None),
            ("type", "forever"),
            ("configuration", ["port"]),
            ("version", 1),
            ("start", "start"),
            ("prep_stop", 1),
            ("stop", 1),
            ("start_timeout", 0),
            ("shutdown", -1),
        ],
    )
    def test_a_field_that_cannot_work_is_named(self, field: str, value: Any) -> None:
        with pytest.raises(InvalidApplication, match=f"field '{field}': expected ") as refused:
            unchanged(**{field: value})

        assert refused.value.field == field

    async def test_a_function_that_returns_no_spec_fails_the_start(
        self, autojump_clock: MockClock, stage: Stage
    ) -> None:
        wrong: Any = lambda state: Worker  # noqa: E731  # shorter than a function
        with pytest.raises(ApplicationFailed, match="field 'root'"):
            await stage.system.spawn(ApplicationController, [Application("a", wrong)])

    async def test_other_actors_are_no_controllers(self, autojump_clock: MockClock, stage: Stage) -> None:
        top = await stage.supervise()

        with pytest.raises(InvalidOption, match="ApplicationController"):
            which_applications(top)
        controller = await stage.system.spawn(ApplicationController, [])
        await controller.stop()
        with pytest.raises(ActorDown):
            which_applications(controller)

"""What holds where nothing is said, and what an error says where something impossible is said."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from sapwood.actors import SupervisorReport
from sapwood.errors import InvalidChildSpec
from sapwood.supervision import (
    Backoff,
    ChildSpec,
    DynamicSupervisor,
    PartitionSupervisor,
    Supervisor,
    TaskHandle,
    Tasks,
    child,
    start_child,
    supervisor,
)
from sapwood.supervision._base import RETRY_CLAIM
from sapwood.supervision._callers import KEPT
from sapwood.supervision._stopping import STUCK_AFTER
from tests.supervision.kit import Stage, Worker

DEFAULTS: list[tuple[Callable[..., Any], dict[str, Any]]] = [
    (Backoff, {"initial": 0.1, "factor": 2.0, "maximum": 30.0, "jitter": 0.2, "reset_after": 60.0}),
    (
        ChildSpec,
        {
            "restart": "permanent",
            "shutdown": 5.0,
            "type": "worker",
            "significant": False,
            "backoff": None,
            "start_timeout": None,
            "detach_stuck": False,
        },
    ),
    (Supervisor, {"restarts": 3, "period": 5.0, "auto_shutdown": "never"}),
    (
        supervisor,
        {
            "restarts": 3,
            "period": 5.0,
            "auto_shutdown": "never",
            "restart": "permanent",
            "shutdown": None,
            "significant": False,
            "detach_stuck": False,
        },
    ),
    (DynamicSupervisor, {"max_children": None, "restarts": 3, "period": 5.0, "extra_arguments": ()}),
    (PartitionSupervisor, {"partitions": None, "strategy": "one_for_one", "restarts": 3, "period": 5.0}),
    (Tasks.start_child, {"restart": "temporary", "shutdown": 5.0}),
    (Tasks.launch, {"shutdown": 5.0}),
    (Tasks.launch_nolink, {"shutdown": 5.0}),
    (Tasks.run, {"timeout": None}),
    (Tasks.stream, {"max_concurrency": 8, "ordered": True}),
    (TaskHandle.result, {"timeout": None}),
    (TaskHandle.poll, {"timeout": 0.0}),
    (TaskHandle.shutdown, {"timeout": 5.0}),
]


@pytest.mark.row("A09", "A11")
@pytest.mark.parametrize(("function", "expected"), DEFAULTS, ids=[one[0].__qualname__ for one in DEFAULTS])
def test_the_defaults_are_those_of_the_documentation(function: Callable[..., Any], expected: dict[str, Any]) -> None:
    parameters = inspect.signature(function).parameters
    assert {name: parameters[name].default for name in expected} == expected


@pytest.mark.row("A09", "A11")
def test_a_child_of_which_only_the_start_is_given_is_a_permanent_worker() -> None:
    spec = child(Worker)

    described = {name: getattr(spec, name) for name in attrs.fields_dict(ChildSpec) if name != "birth"}
    assert described == {
        "id": "Worker",
        "restart": "permanent",
        "shutdown": 5.0,
        "type": "worker",
        "significant": False,
        "backoff": None,
        "start_timeout": None,
        "detach_stuck": False,
    }
    assert (child(DynamicSupervisor).type, child(DynamicSupervisor).shutdown) == ("supervisor", None)


@pytest.mark.row("A09")
@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("id", "", "a string that is not empty"),
        ("id", 5, "a string that is not empty"),
        ("birth", Worker, "what child(...) makes of a start function"),
        ("restart", "always", "one of permanent, transient, temporary"),
        ("shutdown", -1, "seconds >= 0, None to wait for ever, or 'brutal_kill'"),
        ("type", "actor", "one of worker, supervisor"),
        ("significant", 1, "True or False"),
        ("significant", True, "False for a permanent child"),
        ("backoff", 1.0, "None or a Backoff"),
        ("start_timeout", 0, "None or seconds > 0"),
        ("detach_stuck", 1, "True or False"),
    ],
)
def test_a_refused_spec_says_what_was_expected_of_which_field(field: str, value: object, expected: str) -> None:
    changed: Any = {field: value}
    with pytest.raises(InvalidChildSpec) as caught:
        attrs.evolve(child(Worker), **changed)

    assert str(caught.value) == str(InvalidChildSpec(field, expected, value))


@pytest.mark.row("A09")
@pytest.mark.parametrize("start", [5, "Worker", dict, None], ids=repr)
def test_what_cannot_start_an_actor_is_refused_with_what_can(start: Any) -> None:
    expected = "an Actor class, a function that returns an Actor, or an async function"
    with pytest.raises(InvalidChildSpec) as caught:
        child(start)

    assert str(caught.value) == str(InvalidChildSpec("start", expected, start))


@pytest.mark.row("P02")
async def test_a_report_about_one_child_counts_one(autojump_clock: MockClock, stage: Stage) -> None:
    top = await stage.system.spawn(DynamicSupervisor)
    await start_child(top, stage.worker("a"))
    await stage.crash("a")
    await trio.sleep(1)

    reports: list[Any] = [event.offender for event in stage.history if isinstance(event, SupervisorReport)]
    assert [offender.count for offender in reports] == [1]


def test_the_numbers_that_the_documentation_names_are_those_of_the_code() -> None:
    assert KEPT == 32
    assert STUCK_AFTER == 5.0
    assert RETRY_CLAIM == 0.1


@pytest.mark.row("P05")
@pytest.mark.parametrize("restart", ["permanent", "transient", "temporary"])
@pytest.mark.parametrize("shutdown", ["brutal_kill", 5.0])
@pytest.mark.parametrize("kind", [Supervisor, DynamicSupervisor])
async def test_a_child_that_ends_as_it_was_told_to_is_reported_under_no_restart_type(
    autojump_clock: MockClock, stage: Stage, restart: Any, shutdown: Any, kind: Any
) -> None:
    spec = stage.worker("a", restart=restart, shutdown=shutdown)
    if kind is Supervisor:
        top = await stage.supervise(spec)
    else:
        top = await stage.system.spawn(DynamicSupervisor)
        await start_child(top, spec)
    await top.stop()

    assert stage.alive == []
    assert stage.reports == []

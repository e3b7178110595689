"""A pytest plugin: async tests that run in a simulation, once for each of many seeds.

```
@pytest.mark.sapwood(seeds=200)
async def test_no_conversation_ever_runs_twice(runtime, chaos, invariants):
    chaos.randomly(kill=("registry", "agents"), every=(0.1, 2.0))
    await drive_fifty_conversations(runtime)
    invariants.assert_hold("no_two_live_per_key", "unavailable_is_never_not_running")
```

Installed with Sapwood; no other plugin is needed. A failure names its seed, and `--sapwood-seed` runs that one alone.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from sapwood import Runtime
    from sapwood.testing import Chaos, Invariants


class Place:
    """Stands for what is made anew for every seed, until the test runs."""

    def __init__(self, name: str) -> None:
        self.name = name


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that choose seeds."""
    group = parser.getgroup("sapwood")
    group.addoption("--sapwood-seeds", type=int, metavar="N", help="run tests marked sapwood with N seeds each")
    group.addoption("--sapwood-seed", type=int, metavar="SEED", help="run tests marked sapwood with this seed alone")


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark."""
    config.addinivalue_line(
        "markers",
        "sapwood(seeds=1, **options): run an async test in a simulation, once for each seed; "
        "the options go to open_runtime",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put marked tests into a simulation."""
    for item in items:
        marks = list(item.iter_markers_with_node("sapwood"))
        if not marks or not isinstance(item, pytest.Function):
            continue
        node, mark = marks[0]
        if inspect.iscoroutinefunction(item.obj):
            item.obj = _in_simulation(item.obj, _seeds(config, mark), _options(item, mark))
        elif node is item:  # a mark of a whole module or class means its async tests
            raise pytest.UsageError(f"{item.nodeid}: a test marked sapwood is an async function")


@pytest.fixture
def runtime(request: pytest.FixtureRequest) -> Runtime:
    """A runtime in the simulation; for tests marked `sapwood`."""
    place: Runtime = _place(request)
    return place


@pytest.fixture
def chaos(request: pytest.FixtureRequest) -> Chaos:
    """Kills parts of `runtime`; for tests marked `sapwood`."""
    place: Chaos = _place(request)
    return place


@pytest.fixture
def invariants(request: pytest.FixtureRequest) -> Invariants:
    """Watches `runtime`; at its end the test fails if a built-in invariant did not hold. For tests marked `sapwood`."""
    place: Invariants = _place(request)
    return place


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """The seed of the simulation; for tests marked `sapwood`."""
    place: int = _place(request)
    return place


def _place(request: pytest.FixtureRequest) -> Any:
    name = request.fixturename
    assert name is not None
    if request.node.get_closest_marker("sapwood") is None:
        pytest.fail(f"the fixture {name!r} of sapwood needs a test marked with @pytest.mark.sapwood(seeds=...)")
    return Place(name)


def _seeds(config: pytest.Config, mark: pytest.Mark) -> Iterable[int]:
    only = config.getoption("--sapwood-seed")
    if only is not None:
        return (only,)
    number = config.getoption("--sapwood-seeds") or int(os.environ.get("SAPWOOD_SEEDS", "0"))
    return range(number or mark.kwargs.get("seeds", 1))


def _options(item: pytest.Item, mark: pytest.Mark) -> dict[str, Any]:
    if mark.args:
        raise pytest.UsageError(f"{item.nodeid}: write the options of the sapwood mark by name, as in seeds=200")
    return {name: value for name, value in mark.kwargs.items() if name != "seeds"}


def _in_simulation(
    function: Callable[..., Awaitable[None]], seeds: Iterable[int], options: dict[str, Any]
) -> Callable[..., None]:
    @functools.wraps(function)
    def run(**given: Any) -> None:
        from sapwood.testing import simulate

        for number in seeds:
            try:
                simulate(number, _drive, function, number, options, given)
            except BaseException as error:
                error.add_note(f"with seed {number}; run it alone with --sapwood-seed={number}")
                raise

    return run


async def _drive(
    function: Callable[..., Awaitable[None]], number: int, options: dict[str, Any], given: dict[str, Any]
) -> None:
    import trio

    from sapwood import open_runtime
    from sapwood.actors import SimulatedEnvironment
    from sapwood.testing import Chaos, Invariants

    places = {value.name for value in given.values() if isinstance(value, Place)}
    made: dict[str, Any] = {"seed": number}
    if not places - {"seed"}:
        await function(**_filled(given, made))
        return
    failure: BaseException | None = None
    options = {"environment": SimulatedEnvironment(number), "signals": False, **options}
    async with open_runtime(**options) as opened:
        watch = Invariants(opened)
        try:
            with watch.watching():
                async with trio.open_nursery() as nursery:
                    made |= {"runtime": opened, "chaos": Chaos(opened, nursery), "invariants": watch}
                    await function(**_filled(given, made))
                    nursery.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            failure = group.exceptions[0] if len(group.exceptions) == 1 else group
        if failure is not None:
            raise failure
        watch.assert_hold()


def _filled(given: dict[str, Any], made: dict[str, Any]) -> dict[str, Any]:
    return {name: made[value.name] if isinstance(value, Place) else value for name, value in given.items()}

"""Applications: what one needs, runs and cleans up, and the order in which several can start."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from types import MappingProxyType
from typing import Any, Final, cast

import attrs

from sapwood.errors import DependencyCycle, DuplicateName, InvalidApplication, MissingDependency
from sapwood.supervision._backoff import is_seconds
from sapwood.supervision._spec import RESTARTS, ChildSpec, Restart, ShutdownTime

ROOT: Final = "None, a spec made with child(...) or supervisor(...), or a function of the state that returns one"


def _freeze(value: object) -> Any:
    return MappingProxyType(dict(cast("Mapping[str, Any]", value))) if isinstance(value, Mapping) else value


def _listed(value: object) -> Any:
    return value if isinstance(value, str) or not isinstance(value, Iterable) else tuple(cast("Iterable[str]", value))


@attrs.frozen(eq=False)
class Application:
    """A part of a program that starts and stops as a whole, after what it requires and before what requires it.

    ```python
    database = Application("database", start=connect, root=pool, stop=disconnect)
    web = Application("web", requires=["database"], root=supervisor([child(serve)], strategy="one_for_one", id="web"))
    ```

    To start: `start(configuration)`, whose result is the application's *state*; then `root`. To stop:
    `prep_stop(state)`, whose result replaces the state; then all below `root`, in reverse order, each within its own
    time; then `stop(state)` (OTP N04). The hooks may be plain or async. `stop` undoes what `start` did, so it is also
    called if `root` fails to start, and if `root` ends by itself; `prep_stop` is not. If a hook of the stop raises,
    the rest of the stop goes on, and the application's exit reason is that crash. Killing runs no hooks.

    Attributes:
        name: Name in the set.
        root: What runs: the spec of one child, usually a supervisor, or a function that gets the state and returns
            one. It is never restarted by itself, whatever its restart type; see `type`. None if there are only hooks.
        requires: Names of the applications that must run before this one starts (OTP N01).
        type: What follows when `root` ends by itself: `permanent` stops the whole set; `transient` too, unless the
            reason is `Normal`, which is never that of a supervisor; `temporary` is only reported (OTP N06).
        configuration: What `start` gets; without `start` it is the state. Kept as a read-only copy.
        version: For people and tools.
        start: See above.
        prep_stop: See above.
        stop: See above.
        start_timeout: Seconds that starting may take; None for no limit.
        shutdown: Seconds for its whole stop, hooks included, before it is killed; None waits for ever.

    Raises:
        InvalidApplication: naming the field that cannot work.
    """

    name: str
    root: ChildSpec | Callable[[Any], ChildSpec] | None = None
    requires: Sequence[str] = attrs.field(default=(), converter=_listed)
    type: Restart = attrs.field(default="permanent", kw_only=True)
    configuration: Mapping[str, Any] = attrs.field(factory=dict[str, Any], converter=_freeze, kw_only=True)
    version: str = attrs.field(default="", kw_only=True)
    start: Callable[[Mapping[str, Any]], Any] | None = attrs.field(default=None, kw_only=True)
    prep_stop: Callable[[Any], Any] | None = attrs.field(default=None, kw_only=True)
    stop: Callable[[Any], Any] | None = attrs.field(default=None, kw_only=True)
    start_timeout: float | None = attrs.field(default=None, kw_only=True)
    shutdown: ShutdownTime = attrs.field(default=None, kw_only=True)

    def __attrs_post_init__(self) -> None:
        for field, fine, expected in _CHECKS:
            value: object = getattr(self, field)
            if not fine(value):
                raise InvalidApplication(self.name, field, expected, value)


def _is_hook(value: object) -> bool:
    return value is None or callable(value)


def _are_names(value: object) -> bool:
    return isinstance(value, tuple) and all(isinstance(name, str) and name for name in cast("tuple[object]", value))


HOOK: Final = "None, a function or an async function"

_CHECKS: Final[tuple[tuple[str, Callable[[Any], bool], str], ...]] = (
    ("name", lambda name: isinstance(name, str) and bool(name), "a string that is not empty"),
    ("root", lambda root: root is None or isinstance(root, ChildSpec) or callable(root), ROOT),
    ("requires", _are_names, "a sequence of names of applications"),
    ("type", lambda kind: kind in RESTARTS, f"one of {', '.join(RESTARTS)}"),
    ("configuration", lambda value: isinstance(value, Mapping), "a mapping"),
    ("version", lambda version: isinstance(version, str), "a string"),
    ("start", _is_hook, HOOK),
    ("prep_stop", _is_hook, HOOK),
    ("stop", _is_hook, HOOK),
    ("start_timeout", lambda limit: limit is None or (is_seconds(limit) and limit > 0), "None or seconds > 0"),
    (
        "shutdown",
        lambda time: time is None or time == "brutal_kill" or is_seconds(time),
        "seconds >= 0, None to wait for ever, or 'brutal_kill'",
    ),
)


def start_order(applications: Sequence[Application]) -> dict[str, Application]:
    """Return the applications by name, each after all that it requires, and otherwise in the order given.

    Raises:
        InvalidApplication: if something among them is none.
        DuplicateName: if two have one name.
        DependencyCycle, MissingDependency: naming the chain that leads nowhere.
    """
    named: dict[str, Application] = {}
    for application in applications:
        if not isinstance(application, Application):
            raise InvalidApplication("?", "applications", "Application(...) objects", application)
        if application.name in named:
            raise DuplicateName("application", application.name, named[application.name])
        named[application.name] = application
    for application in applications:
        for name in application.requires:
            if name not in named:
                raise MissingDependency([*_path_to(application.name, applications), name], list(named))
    try:
        order = TopologicalSorter({name: application.requires for name, application in named.items()}).static_order()
        return {name: named[name] for name in order}
    except CycleError as error:
        found: list[str] = error.args[1]
        raise DependencyCycle(found[::-1]) from None


def with_dependencies(names: Iterable[str], applications: Mapping[str, Application]) -> list[str]:
    """Return the names and those of all that they require, at whatever depth, in the order of the mapping."""
    wanted: set[str] = set()
    pending = list(names)
    while pending:
        name = pending.pop()
        if name not in wanted:
            wanted.add(name)
            pending.extend(applications[name].requires)
    return [name for name in applications if name in wanted]


def _path_to(name: str, applications: Sequence[Application]) -> list[str]:
    """Return a chain of names that leads to an application, from one that nobody requires if there is one."""
    path = [name]
    while True:
        above = next((one.name for one in applications if path[0] in one.requires and one.name not in path), None)
        if above is None:
            return path
        path.insert(0, above)

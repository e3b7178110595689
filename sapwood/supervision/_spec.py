"""Child specs: how a supervisor starts, restarts and stops one child."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal, TypeAlias, cast

import attrs

from sapwood.actors import Actor, Birth, MailboxOptions
from sapwood.errors import InvalidChildSpec
from sapwood.supervision._backoff import Backoff, is_seconds
from sapwood.supervision._functions import FunctionChild

Restart: TypeAlias = Literal["permanent", "transient", "temporary"]
ShutdownTime: TypeAlias = float | Literal["brutal_kill"] | None
Kind: TypeAlias = Literal["worker", "supervisor"]
Strategy: TypeAlias = Literal["one_for_one", "one_for_all", "rest_for_one"]
AutoShutdown: TypeAlias = Literal["never", "any_significant", "all_significant"]

RESTARTS: Final = ("permanent", "transient", "temporary")
TYPES: Final = ("worker", "supervisor")
STRATEGIES: Final = ("one_for_one", "one_for_all", "rest_for_one")
AUTO_SHUTDOWNS: Final = ("never", "any_significant", "all_significant")

DEFAULT: Final[Any] = object()
DEFAULT_SHUTDOWN: Final[Mapping[str, ShutdownTime]] = {"worker": 5.0, "supervisor": None}  # A11

STARTABLE: Final = "an Actor class, a function that returns an Actor, or an async function"


@attrs.frozen
class ChildSpec:
    """How a supervisor treats one child; made with `child` or `supervisor`.

    Attributes:
        id: Name within the supervisor; dynamic supervisors ignore it.
        birth: How the actor is made, anew at every start.
        restart: `permanent` always, `transient` after an abnormal end, `temporary` never (OTP B01–B04).
        shutdown: Seconds that the child gets to stop before it is killed; None waits for ever; `brutal_kill`
            kills at once.
        type: `worker` or `supervisor`.
        significant: Whether its orderly end may stop the supervisor, see `auto_shutdown`.
        backoff: Delays between restarts; None for none, as in OTP.
        start_timeout: Seconds that starting may take; None for no limit.
        detach_stuck: Whether the supervisor goes on without the child if that survives its kill by 5 s. The child
            is then fenced: its key is free, its ref is down, messages to it are dead letters; what its code still
            does cannot be taken back, and the run cannot end before it does. False waits for it (OTP Q03).

    Raises:
        InvalidChildSpec: naming the field that cannot work.
    """

    id: str
    birth: Birth
    restart: Restart = "permanent"
    shutdown: ShutdownTime = 5.0
    type: Kind = "worker"
    significant: bool = False
    backoff: Backoff | None = None
    start_timeout: float | None = None
    detach_stuck: bool = False

    def __attrs_post_init__(self) -> None:
        for field, fine, expected in _CHECKS:
            if not fine(self):
                raise InvalidChildSpec(field, expected, getattr(self, field))


# The types are checked as well, for callers without a type checker.
_CHECKS: Final[tuple[tuple[str, Callable[[ChildSpec], bool], str], ...]] = (
    ("id", lambda spec: isinstance(spec.id, str) and bool(spec.id), "a string that is not empty"),
    ("birth", lambda spec: isinstance(spec.birth, Birth), "what child(...) makes of a start function"),
    ("restart", lambda spec: spec.restart in RESTARTS, f"one of {', '.join(RESTARTS)}"),
    (
        "shutdown",
        lambda spec: _is_shutdown_time(spec.shutdown),
        "seconds >= 0, None to wait for ever, or 'brutal_kill'",
    ),
    ("type", lambda spec: spec.type in TYPES, f"one of {', '.join(TYPES)}"),
    ("significant", lambda spec: isinstance(spec.significant, bool), "True or False"),
    (
        "significant",
        lambda spec: not spec.significant or spec.restart != "permanent",
        "False for a permanent child",  # F02
    ),
    ("backoff", lambda spec: spec.backoff is None or isinstance(spec.backoff, Backoff), "None or a Backoff"),
    (
        "start_timeout",
        lambda spec: spec.start_timeout is None or _is_positive(spec.start_timeout),
        "None or seconds > 0",
    ),
    ("detach_stuck", lambda spec: isinstance(spec.detach_stuck, bool), "True or False"),
)


def child(
    start: Callable[..., Any],
    *args: Any,
    id: str | None = None,
    key: object = None,
    restart: Restart = "permanent",
    shutdown: ShutdownTime = DEFAULT,
    significant: bool = False,
    backoff: Backoff | None = None,
    start_timeout: float | None = None,
    detach_stuck: bool = False,
    mailbox: MailboxOptions | None = None,
    type: Kind | None = None,  # noqa: A002  # the field's name in OTP
) -> ChildSpec:
    """Describe a child: `child(Account, 100, key=("account", 1))`.

    Args:
        start: An Actor class, a function that returns an Actor, or an async function. Use `functools.partial` for
            keyword arguments. An async function with a `task_status` parameter has started when it calls
            `task_status.started()`.
        *args: Positional arguments for it, used again at every restart (OTP B09).
        id: Name within the supervisor; by default the key, or the name of `start`.
        key: Registry key that the child holds while it lives.
        restart: See `ChildSpec`.
        shutdown: See `ChildSpec`; by default 5 s for a worker and None for a supervisor (OTP A11).
        significant: See `ChildSpec`.
        backoff: See `ChildSpec`.
        start_timeout: See `ChildSpec`.
        detach_stuck: See `ChildSpec`.
        mailbox: Bounds of its mailbox; None for those of its class.
        type: `worker` or `supervisor`; None for what the class of `start` is, and a worker if it is a function. Say
            it for a function that returns a supervisor.

    Raises:
        InvalidChildSpec: naming the field that cannot work, what was expected, and what was got (OTP A09).
    """
    function, bound, keywords = _unwrap(start)
    found = _kind(function)
    kind = found if type is None else type
    name = _name(function)
    title = id if isinstance(id, str) else ""
    if _is_async(function):
        birth = Birth(FunctionChild(function, keywords), (*bound, *args), {}, key, mailbox, title=title or name)
    else:
        birth = Birth(function, (*bound, *args), keywords, key, mailbox, title=title)
    return ChildSpec(
        id=id if id is not None else name if key is None else repr(key),
        birth=birth,
        restart=restart,
        shutdown=DEFAULT_SHUTDOWN.get(kind) if shutdown is DEFAULT else shutdown,
        type=kind,
        significant=significant,
        backoff=backoff,
        start_timeout=start_timeout,
        detach_stuck=detach_stuck,
    )


def supervisor(
    children: Sequence[ChildSpec],
    *,
    strategy: Strategy,
    id: str,
    restarts: int = 3,
    period: float = 5.0,
    auto_shutdown: AutoShutdown = "never",
    key: object = None,
    restart: Restart = "permanent",
    shutdown: ShutdownTime = None,
    significant: bool = False,
    backoff: Backoff | None = None,
    detach_stuck: bool = False,
) -> ChildSpec:
    """Describe a supervisor as a child of another one; see `Supervisor` for its own options, `ChildSpec` for the rest.

    Raises:
        InvalidChildSpec: naming the field that cannot work.
    """
    from sapwood.supervision._supervisor import Supervisor

    options: dict[str, Any] = {
        "strategy": strategy,
        "restarts": restarts,
        "period": period,
        "auto_shutdown": auto_shutdown,
    }
    return child(
        partial(Supervisor, tuple(children), **options),
        id=id,
        key=key,
        restart=restart,
        shutdown=shutdown,
        significant=significant,
        backoff=backoff,
        detach_stuck=detach_stuck,
    )


def check_choice(field: str, value: object, choices: Sequence[str]) -> None:
    """Refuse a value that is not among the choices.

    Raises:
        InvalidChildSpec: naming the choices.
    """
    if value not in choices:
        raise InvalidChildSpec(field, f"one of {', '.join(choices)}", value)


def _unwrap(start: Any) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    if not isinstance(start, partial):
        return start, (), {}
    outer = cast("partial[Any]", start)
    function, bound, keywords = _unwrap(outer.func)
    return function, (*bound, *outer.args), {**keywords, **outer.keywords}


def _name(function: Any) -> str:
    name: str = getattr(function, "__name__", type(function).__name__)
    return name


def _kind(function: Any) -> Kind:
    if isinstance(function, type):
        cls = cast("type[Any]", function)
        if issubclass(cls, Actor):
            return "supervisor" if cls.__supervises__ else "worker"
    elif callable(function):
        return "worker"
    raise InvalidChildSpec("start", STARTABLE, function)


def _is_async(function: Any) -> bool:
    if isinstance(function, type):
        return False
    return inspect.iscoroutinefunction(function) or (
        not inspect.isroutine(function) and inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004  # its kind is asked for, not whether it is callable
    )


def _is_shutdown_time(value: object) -> bool:
    return value is None or value == "brutal_kill" or is_seconds(value)


def _is_positive(value: object) -> bool:
    return is_seconds(value) and value != 0

"""Child specs: how a supervisor starts, restarts and stops one child."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

import attrs

from sapwood.actors import Actor, Birth, MailboxOptions
from sapwood.errors import InvalidChildSpec

if TYPE_CHECKING:
    from sapwood.supervision._backoff import Backoff

Restart: TypeAlias = Literal["permanent", "transient", "temporary"]
Shutdown: TypeAlias = float | Literal["brutal_kill"] | None
Strategy: TypeAlias = Literal["one_for_one", "one_for_all", "rest_for_one"]
AutoShutdown: TypeAlias = Literal["never", "any_significant", "all_significant"]

RESTARTS: Final = ("permanent", "transient", "temporary")
TYPES: Final = ("worker", "supervisor")
STRATEGIES: Final = ("one_for_one", "one_for_all", "rest_for_one")
AUTO_SHUTDOWNS: Final = ("never", "any_significant", "all_significant")

DEFAULT: Final[Any] = object()


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
    """

    id: str
    birth: Birth
    restart: Restart = "permanent"
    shutdown: Shutdown = 5.0
    type: Literal["worker", "supervisor"] = "worker"
    significant: bool = False
    backoff: Backoff | None = None
    start_timeout: float | None = None

    def __attrs_post_init__(self) -> None:
        checks: tuple[tuple[str, bool, str], ...] = (
            ("id", isinstance(self.id, str) and bool(self.id), "a string that is not empty"),
            ("start", callable(self.birth.factory), "an Actor class, a function that returns an Actor, or an async function"),
            ("restart", self.restart in RESTARTS, f"one of {', '.join(RESTARTS)}"),
            ("shutdown", _is_shutdown(self.shutdown), "seconds >= 0, None to wait for ever, or 'brutal_kill'"),
            ("type", self.type in TYPES, f"one of {', '.join(TYPES)}"),
            ("significant", isinstance(self.significant, bool), "True or False"),
            ("significant", not (self.significant and self.restart == "permanent"), "False for a permanent child"),
            ("start_timeout", self.start_timeout is None or self.start_timeout > 0, "None or seconds > 0"),
        )
        for field, fine, expected in checks:
            if not fine:
                got = self.birth.factory if field == "start" else getattr(self, field)
                raise InvalidChildSpec(field, expected, got)


def child(
    start: Callable[..., Any],
    *args: Any,
    id: str | None = None,
    key: object = None,
    restart: Restart = "permanent",
    shutdown: Shutdown = DEFAULT,
    significant: bool = False,
    backoff: Backoff | None = None,
    start_timeout: float | None = None,
    mailbox: MailboxOptions | None = None,
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
        mailbox: Bounds of its mailbox; None for those of its class.

    Raises:
        InvalidChildSpec: naming the field that cannot work, what was expected, and what was got.
    """
    from sapwood.supervision._functions import FunctionActor

    if not callable(start):
        raise InvalidChildSpec("start", "an Actor class, a function that returns an Actor, or an async function", start)
    supervises = isinstance(start, type) and issubclass(start, Actor) and start.__supervises__
    if isinstance(start, type) and not issubclass(start, Actor):
        raise InvalidChildSpec("start", "a class that derives from Actor", start)
    if isinstance(start, partial):
        inner = cast("partial[Any]", start).func
        supervises = isinstance(inner, type) and issubclass(inner, Actor) and inner.__supervises__
    if inspect.iscoroutinefunction(start):
        birth = Birth(FunctionActor, (start, args), {}, key, mailbox, title=id or start.__name__)
    else:
        birth = Birth(start, args, {}, key, mailbox, title=id or "")
    return ChildSpec(
        id=id if id is not None else _default_id(start, key),
        birth=birth,
        restart=restart,
        shutdown=(None if supervises else 5.0) if shutdown is DEFAULT else shutdown,
        type="supervisor" if supervises else "worker",
        significant=significant,
        backoff=backoff,
        start_timeout=start_timeout,
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
    shutdown: Shutdown = None,
    significant: bool = False,
) -> ChildSpec:
    """Describe a supervisor as a child of another one; see `Supervisor` for its own options."""
    from sapwood.supervision._supervisor import Supervisor

    start = partial(
        Supervisor, tuple(children), strategy=strategy, restarts=restarts, period=period, auto_shutdown=auto_shutdown
    )
    return child(start, id=id, key=key, restart=restart, shutdown=shutdown, significant=significant)


def check_choice(field: str, value: object, choices: Sequence[str]) -> None:
    """Refuse a value that is not among the choices.

    Raises:
        InvalidChildSpec: naming the choices.
    """
    if value not in choices:
        raise InvalidChildSpec(field, f"one of {', '.join(choices)}", value)


def _default_id(start: Any, key: object) -> str:
    if key is not None:
        return repr(key)
    if isinstance(start, partial):
        start = cast("partial[Any]", start).func
    return getattr(start, "__name__", type(start).__name__)


def _is_shutdown(value: object) -> bool:
    if value is None or value == "brutal_kill":
        return True
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0

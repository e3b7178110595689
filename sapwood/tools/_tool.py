"""Tools: typed functions that a model may call."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Generic, Literal, ParamSpec, TypeAlias, TypeVar, get_args, overload

import attrs
import trio

from sapwood.conversation import ToolSpec
from sapwood.errors import InvalidOption, InvalidTool
from sapwood.tools._context import ToolContext
from sapwood.tools._pending import Poller, poller_of
from sapwood.tools._process import check_importable, run_in_process
from sapwood.tools._signature import Signature, signature_of

P = ParamSpec("P")
R = TypeVar("R")

CrashResume: TypeAlias = Literal["rerun", "ask", "fail"]
"""What happens to a call that was started when the process died: run it again, ask a person, or tell the model that
the outcome is unknown."""

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


@attrs.frozen(eq=False)
class Tool(Generic[P, R]):
    """A function that a model may call; made by `tool`. Calling it calls the function.

    Attributes:
        function: The function itself.
        spec: Name, description and JSON schema, as the model sees them.
        timeout: Seconds after which a call is cancelled, or None for no limit.
        idempotent: Whether running it again with the same idempotency key does no harm.
        crash_resume: What happens to a call that was started when the process died (S3-144, S3-146).
        blocking: Whether it runs in a thread.
        process: Whether it runs in a process of its own.
        editable: Names of the arguments that a person may edit before it runs, or None for all.
        poller: How to ask about work that it leaves behind as `Pending`; None if it never does.
    """

    function: Callable[P, R] = attrs.field(repr=False)
    spec: ToolSpec
    timeout: float | None
    idempotent: bool
    crash_resume: CrashResume
    blocking: bool
    process: bool
    editable: tuple[str, ...] | None
    poller: Poller | None
    _signature: Signature = attrs.field(alias="signature", repr=False)

    @property
    def name(self) -> str:
        """Its name; unique in a toolbox."""
        return self.spec.name

    @property
    def description(self) -> str:
        """What it does, for the model."""
        return self.spec.description

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function as it is, without validation, time limit or thread."""
        return self.function(*args, **kwargs)

    def read(self, arguments: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Return a model's arguments as the function takes them, and every problem with them; runs nothing."""
        return self._signature.read(arguments)

    def read_result(self, content: str) -> Any:
        """Return what the function returned, read from the text of its result.

        Raises:
            InvalidTool: if its return annotation is none that JSON can fill.
            CodecError: if the text is not what the annotation says.
        """
        return self._signature.read_result(content, self.name)

    async def run(
        self, arguments: Mapping[str, Any], context: ToolContext, *, raw: Mapping[str, Any] | None = None
    ) -> Any:
        """Run the function with arguments that `read` returned; `raw` are those that it was given.

        A cancelled caller never starts it. What becomes of one that runs depends on where it does: an async function
        is cancelled at its next checkpoint; a plain one is over before anybody can cancel it; a thread cannot be
        stopped, so the caller leaves at once, the thread ends by itself and its result is discarded; a process is
        asked to end (SIGTERM) and killed after 2 s.

        Raises:
            Exception: whatever the function raises.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        if self.process:
            return await run_in_process(self.function, self.name, raw if raw is not None else arguments)
        given = dict(arguments)
        if self._signature.context_name:
            given[self._signature.context_name] = context
        function: Callable[..., Any] = self.function
        if self.blocking:
            return await context.environment.in_thread(partial(function, **given), abandon_on_cancel=True)
        returned = function(**given)
        if inspect.isawaitable(returned):
            return await returned
        # A checkpoint here must not lose the result of something that has happened.
        await trio.lowlevel.cancel_shielded_checkpoint()
        return returned


@overload
def tool(function: Callable[P, R], /) -> Tool[P, R]: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    timeout: float | None = None,
    idempotent: bool = False,
    crash_resume: CrashResume | None = None,
    blocking: bool = False,
    process: bool = False,
    editable: tuple[str, ...] | None = None,
    poll: Callable[..., Any] | None = None,
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    timeout: float | None = None,
    idempotent: bool = False,
    crash_resume: CrashResume | None = None,
    blocking: bool = False,
    process: bool = False,
    editable: tuple[str, ...] | None = None,
    poll: Callable[..., Any] | None = None,
) -> Any:
    """Make a typed function, plain or async, a tool: `@tool`, `@tool(timeout=5.0)` or `tool(account.close)`.

    Its parameters become a JSON schema. Descriptions come from `Annotated[..., "text"]`, from an `Args:` section, or
    from `name: text` in the docstring, in this order.

    Args:
        function: The function; its parameters are annotated and can be passed by name.
        name: Name for the model, up to 64 characters of `[a-zA-Z0-9_-]`; by default the function's.
        description: What it does, for the model; by default the docstring.
        timeout: Seconds after which a call is cancelled and becomes an error result; by default never.
        idempotent: Running it again with the same idempotency key does no harm.
        crash_resume: What happens to a call that was started when the process died: `rerun` (idempotent tools only,
            and their default), `ask` a person, or `fail` (the default of others): tell the model that nobody knows.
        blocking: Run a plain function in a thread, because it would hold up the loop.
        process: Run a plain function in a process of its own, which can be killed and takes nothing down with it. The
            function has to stand at the top of an importable module; its arguments and its result travel as JSON, so
            it may return `Pending`, but no `ToolOutput` with operations.
        editable: Names of the arguments that a person may edit before it runs; by default all.
        poll: For a tool that returns `Pending`: a plain or async function `(poll_id)` or `(poll_id, context)` that
            returns another `Pending` or the result. It only looks, so it may be called any number of times.

    Raises:
        InvalidTool: if the function cannot be offered to a model.
        InvalidOption: if an option is out of its range.
    """

    def make(given: Callable[..., Any]) -> Tool[..., Any]:
        own_name = _check_function(given, name)
        signature = signature_of(given, own_name)
        _check_options(given, own_name, timeout=timeout, apart=blocking or process)
        if process and blocking:
            raise InvalidOption(f"tool {own_name!r}: expected blocking=True or process=True; got both: drop one")
        if process:
            check_importable(given, own_name, signature.context_name)
        _check_editable(own_name, signature, editable)
        text = signature.description if description is None else description
        return Tool(
            function=given,
            spec=ToolSpec(own_name, text, signature.shape.schema()),
            timeout=timeout,
            idempotent=idempotent,
            crash_resume=_crash_resume(own_name, crash_resume, idempotent=idempotent),
            blocking=blocking,
            process=process,
            editable=editable,
            poller=None if poll is None else poller_of(poll, own_name),
            signature=signature,
        )

    return make if function is None else make(function)


def _check_function(function: Any, name: str | None) -> str:
    if not (inspect.isfunction(function) or inspect.ismethod(function)):
        raise InvalidTool(f"expected a function for a tool; got {function!r}: write `@tool` above a `def`")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidTool(f"tool {function.__name__!r}: expected a function that returns once; got one that yields")
    own_name = function.__name__ if name is None else name
    if not _NAME.fullmatch(own_name):
        raise InvalidTool(f"tool {own_name!r}: expected a name of 1 to 64 of a-z, A-Z, 0-9, _ and -: pass name=")
    return own_name


def _check_options(function: Callable[..., Any], name: str, *, timeout: float | None, apart: bool) -> None:
    is_async = inspect.iscoroutinefunction(function)
    if apart and is_async:
        raise InvalidTool(
            f"tool {name!r}: expected a plain function with blocking=True or process=True; got an async one: drop it"
        )
    if timeout is None:
        return
    if not (math.isfinite(timeout) and timeout > 0):
        raise InvalidOption(f"tool {name!r}: expected a timeout above 0 seconds, or None; got {timeout!r}")
    if not is_async and not apart:
        raise InvalidTool(
            f"tool {name!r}: a timeout cannot stop a plain function; make it async, or pass blocking=True as well"
        )


def _check_editable(name: str, signature: Signature, editable: tuple[str, ...] | None) -> None:
    unknown = [each for each in editable or () if each not in signature.names]
    if unknown:
        known = ", ".join(signature.names) or "none, since it takes no arguments"
        raise InvalidOption(f"tool {name!r}: expected editable arguments from {known}; got {unknown[0]!r}")


def _crash_resume(name: str, chosen: CrashResume | None, *, idempotent: bool) -> CrashResume:
    if chosen is None:
        return "rerun" if idempotent else "fail"
    if chosen not in get_args(CrashResume):
        raise InvalidOption(f"tool {name!r}: expected crash_resume of rerun, ask or fail; got {chosen!r}")
    if chosen == "rerun" and not idempotent:
        raise InvalidOption(
            f"tool {name!r}: crash_resume='rerun' may act twice after a crash; pass idempotent=True if that does no "
            f"harm, else choose 'ask' or 'fail'"
        )
    return chosen

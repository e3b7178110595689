"""Context providers: how values that live in contexts of Python become data, and come back."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any, Generic, Protocol, TypeVar

from sapwood.errors import InvalidOption, MissingExtra

T = TypeVar("T")


class ContextProvider(Protocol):
    """One kind of context: it is captured where a host works, and restored where its agent does."""

    @property
    def name(self) -> str:
        """Unique among the providers of an agent; stored with the value."""
        ...

    @property
    def stored(self) -> bool:
        """Whether the value may be stored; one that may not is lost with the process."""
        ...

    def capture(self) -> Any:
        """Return the present value as JSON-like data, or None if there is none."""
        ...

    def restore(self, value: Any) -> AbstractContextManager[None]:
        """Return a context manager in which the captured value holds."""
        ...


class ContextVarProvider(Generic[T]):
    """Carries the value of a context variable.

    Args:
        variable: The variable.
        encode: Makes JSON-like data of a value; by default the value is such data.
        decode: Makes a value of that data.
        name: By default the variable's name.
        stored: Whether the value may be stored. Say False for a token or anything else that is secret or grows stale.

    Raises:
        InvalidOption: if something else than a `ContextVar` is given, or only one of `encode` and `decode`.
    """

    def __init__(
        self,
        variable: ContextVar[T],
        *,
        encode: Callable[[T], Any] | None = None,
        decode: Callable[[Any], T] | None = None,
        name: str = "",
        stored: bool = True,
    ) -> None:
        if not isinstance(variable, ContextVar):
            raise InvalidOption(f"ContextVarProvider: expected a ContextVar; got {variable!r}")
        if (encode is None) != (decode is None):
            raise InvalidOption("ContextVarProvider: expected encode together with decode; got one of them")
        self.variable = variable
        self.name = name or variable.name
        self.stored = stored
        self._encode: Callable[[T], Any] = encode or _same
        self._decode: Callable[[Any], T] = decode or _same

    def capture(self) -> Any:
        """Return the variable's value as data; None if it is not set here, or is None."""
        missing: Any = _MISSING
        value = self.variable.get(missing)
        return None if value is missing or value is None else self._encode(value)

    @contextmanager
    def restore(self, value: Any) -> Generator[None]:
        """Set the variable, and reset it at the end."""
        token = self.variable.set(self._decode(value))
        try:
            yield
        finally:
            self.variable.reset(token)


class TraceContextProvider:
    """Carries the trace context of OpenTelemetry, as W3C headers: spans of tools join the trace of the request.

    Args:
        stored: Whether it may be stored, so that spans after a restart join the same trace.

    Raises:
        MissingExtra: if OpenTelemetry is not installed.
    """

    name = "trace"

    def __init__(self, *, stored: bool = True) -> None:
        try:
            from opentelemetry import context, propagate
        except ImportError as error:
            raise MissingExtra("TraceContextProvider", "opentelemetry-api", "otel") from error
        self.stored = stored
        self._context = context
        self._propagate = propagate

    def capture(self) -> Any:
        """Return the headers that name the present span; None if there is none."""
        headers: dict[str, str] = {}
        self._propagate.inject(headers)
        return headers or None

    @contextmanager
    def restore(self, value: Any) -> Generator[None]:
        """Make the captured span the parent of those that begin inside."""
        token = self._context.attach(self._propagate.extract(value))
        try:
            yield
        finally:
            self._context.detach(token)


_MISSING = object()


def _same(value: Any) -> Any:
    return value

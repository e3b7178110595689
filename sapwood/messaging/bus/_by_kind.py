"""One function for each kind of message."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import trio

from sapwood.errors import InvalidOption
from sapwood.messaging.bus._options import Handler
from sapwood.messaging.envelope import Envelope, kind_named


class ByKind:
    """A handler made of one function, plain or async, for each kind of message (S2-017).

    A message of another kind goes to `default`; without one it is a dead letter.

    Args:
        handlers: `{kind: function}`.
        default: For every other kind; None for none.

    Raises:
        InvalidEnvelope: if a kind does not exist.
        InvalidOption: if a handler is no function.
    """

    def __init__(self, handlers: Mapping[str, Handler], default: Handler | None = None) -> None:
        for kind, function in handlers.items():
            kind_named(kind)
            if not callable(function):
                raise InvalidOption(f"handler of {kind!r}: expected a function of one Envelope; got {function!r}")
        self._handlers = dict(handlers)
        self._default = default

    async def __call__(self, envelope: Envelope[Any]) -> Any:
        """Hand a message to the function of its kind, and return what that returns.

        Raises:
            LookupError: if there is none, and no default.
        """
        function = self._handlers.get(envelope.kind, self._default)
        if function is None:
            raise LookupError(f"no handler for kind {envelope.kind!r}; there are {', '.join(self._handlers) or 'none'}")
        value = function(envelope)
        if inspect.isawaitable(value):
            return await value
        await trio.lowlevel.checkpoint()
        return value

"""ProcessContext: what holds where an agent is made holds where it works, in its tools, and after a restart."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, Final, cast

import attrs

from sapwood.conversation import PatchMetadata, copy_json
from sapwood.errors import DuplicateName, InvalidOption
from sapwood.middleware._context import AgentInfo, MiddlewareContext
from sapwood.middleware._context_providers import ContextProvider
from sapwood.middleware._contract import Change, Middleware, RunCall

KEY: Final = "process_context"
"""Where captured values are kept in the metadata, by the names of their providers."""


@attrs.frozen
class CapturedContext:
    """Values of a context as `ProcessContext.capture` found them; a message for it.

    Attributes:
        stored: Those that may be stored, by the names of their providers.
        unstored: Those that may not; never shown.
    """

    stored: Mapping[str, Any]
    unstored: Mapping[str, Any] = attrs.field(repr=False)


class ProcessContext(Middleware):
    """Carries context variables and trace context from the host into the runs of an agent, its hooks and its tools.

    Captured when the agent is made, kept in the conversation's metadata at its first start, restored around every run
    of it, also in a process that has never seen the request. What a conversation has, stays, until the host hands in
    something newer, which counts from the next run on:
    `await session.notify("ProcessContext", layer.capture())`.

    Values are data with a named provider, since a context cannot be stored itself; a provider with `stored=False`
    keeps secrets out of the store, and its value is the one captured in this process.

    A value that cannot be restored, as when its `decode` raises, fails the run. Put it first: layers before it work
    outside of the context.

    Args:
        *providers: What is carried.

    Raises:
        InvalidOption: if there is no provider.
        DuplicateName: if two have one name.
        CodecError: when the agent is made, if a captured value is not JSON-like.
    """

    def __init__(self, *providers: ContextProvider) -> None:
        if not providers:
            raise InvalidOption("ProcessContext: expected at least one provider; got none")
        self.providers: dict[str, ContextProvider] = {}
        for provider in providers:
            if provider.name in self.providers:
                raise DuplicateName("context provider", provider.name, self.providers[provider.name])
            self.providers[provider.name] = provider
        self._captured = CapturedContext({}, {})

    def init(self, agent: AgentInfo) -> None:
        self._captured = self.capture()

    def capture(self) -> CapturedContext:
        """Return what holds here and now.

        Raises:
            CodecError: if a value is not JSON-like; its path says where.
        """
        found = {name: provider.capture() for name, provider in self.providers.items()}
        values = {name: copy_json(value, f"context.{name}") for name, value in found.items() if value is not None}
        return CapturedContext(
            {name: value for name, value in values.items() if self.providers[name].stored},
            {name: value for name, value in values.items() if not self.providers[name].stored},
        )

    async def on_server_start(self, context: MiddlewareContext) -> list[Change]:
        context.local[self.name] = dict(self._captured.unstored)
        known = _known(context)
        values = {**self._captured.stored, **known}
        return [PatchMetadata({KEY: values})] if values != known else []

    async def handle_message(self, message: object, context: MiddlewareContext) -> list[Change]:
        """Take newer values; they count from the next run on.

        Raises:
            InvalidOption: if it is not what `capture` returned.
        """
        if not isinstance(message, CapturedContext):
            raise InvalidOption(f"ProcessContext: expected what capture() returned; got {message!r}")
        context.local[self.name] = {**context.local.get(self.name, {}), **message.unstored}
        return [PatchMetadata({KEY: {**_known(context), **message.stored}})]

    async def around_run(self, call_next: RunCall, context: MiddlewareContext) -> None:
        values: dict[str, Any] = {**_known(context), **context.local.get(self.name, {})}
        with ExitStack() as stack:
            for name, provider in self.providers.items():
                if name in values:
                    stack.enter_context(provider.restore(values[name]))
            await call_next()


def _known(context: MiddlewareContext) -> dict[str, Any]:
    stored: object = context.state.metadata.get(KEY)
    return dict(cast("Mapping[str, Any]", stored)) if isinstance(stored, Mapping) else {}

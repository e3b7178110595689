"""Tracing: OpenTelemetry spans of an agent's runs, model calls, tools and waits for people."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import trio

from sapwood.conversation import AssistantMessage, State, ToolCall
from sapwood.errors import MissingExtra
from sapwood.middleware._context import MiddlewareContext
from sapwood.middleware._contract import Middleware, ModelCall, RunCall, ToolInvocation
from sapwood.models import ModelRequest
from sapwood.tools import ToolOutcome

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

NANOSECONDS: Final = 1_000_000_000


class Tracing(Middleware):
    """Makes OpenTelemetry spans, named and attributed by the semantic conventions for generative AI.

    | what                | span                   | kind     |
    |---------------------|------------------------|----------|
    | a run               | `invoke_agent {agent}` | internal |
    | one model call      | `chat {model}`         | client   |
    | one tool call       | `execute_tool {tool}`  | internal |
    | a wait for a person | `approval_wait {tool}` | internal |

    Spans of calls are children of their run's, and a run's is a child of whatever is current where it starts: put
    `ProcessContext(TraceContextProvider(), ...)` before it to continue the trace of the request, also after a restart.
    A wait is made when it has ended, from the times in the conversation, so that it outlives the process in which it
    began.

    No text, argument or result is in any attribute. Errors are recorded by their type alone; a cancellation is no
    error. Where no SDK is configured, spans cost next to nothing.

    As the first of the list it times all other layers with the calls, as the last the calls alone.

    Args:
        tracer: Makes the spans; None for the global provider's tracer `sapwood`.

    Raises:
        MissingExtra: if OpenTelemetry is not installed.
    """

    def __init__(self, tracer: Tracer | None = None) -> None:
        try:
            from opentelemetry import trace
        except ImportError:
            raise MissingExtra("Tracing", "opentelemetry-api", "otel") from None
        self._trace: Any = trace
        self._tracer: Any = trace.get_tracer("sapwood") if tracer is None else tracer

    async def around_run(self, call_next: RunCall, context: MiddlewareContext) -> None:
        attributes = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": context.agent.name,
            "sapwood.run.id": context.run_id,
        }
        before = context.state.usage
        with self._span(f"invoke_agent {context.agent.name}", "INTERNAL", attributes, context) as span:
            self._waits(context)
            try:
                await call_next()
            finally:
                used = context.state.usage
                span.set_attribute("gen_ai.usage.input_tokens", used.input_tokens - before.input_tokens)
                span.set_attribute("gen_ai.usage.output_tokens", used.output_tokens - before.output_tokens)
                span.set_attribute("sapwood.status", context.state.status)

    async def around_model_call(
        self, request: ModelRequest, call_next: ModelCall, context: MiddlewareContext
    ) -> AssistantMessage:
        model = context.agent.model.name
        attributes = {"gen_ai.operation.name": "chat", "gen_ai.request.model": model}
        with self._span(f"chat {model}", "CLIENT", attributes, context) as span:
            answer = await call_next(request)
            span.set_attribute("gen_ai.response.finish_reasons", [answer.stop_reason])
            span.set_attribute("gen_ai.usage.input_tokens", answer.usage.input_tokens)
            span.set_attribute("gen_ai.usage.output_tokens", answer.usage.output_tokens)
            return answer

    async def around_tool_call(
        self, call: ToolCall, call_next: ToolInvocation, context: MiddlewareContext
    ) -> ToolOutcome:
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": call.name,
            "gen_ai.tool.call.id": call.id,
            "gen_ai.tool.type": "function",
        }
        with self._span(f"execute_tool {call.name}", "INTERNAL", attributes, context) as span:
            outcome = await call_next(call)
            if outcome.result.is_error:
                span.set_attribute("error.type", "tool_error")
                span.set_status(self._trace.StatusCode.ERROR)
            return outcome

    @contextmanager
    def _span(self, name: str, kind: str, attributes: Mapping[str, Any], context: MiddlewareContext) -> Generator[Span]:
        made = {"gen_ai.conversation.id": context.agent_id, **attributes}
        span_kind = self._trace.SpanKind[kind]
        # Exceptions are recorded below, without their text.
        quiet = {"record_exception": False, "set_status_on_exception": False}
        with self._tracer.start_as_current_span(name, kind=span_kind, attributes=made, **quiet) as span:
            try:
                yield span
            except trio.Cancelled:
                span.set_attribute("sapwood.cancelled", True)  # noqa: FBT003  # the value of an attribute
                raise
            except Exception as error:
                span.set_attribute("error.type", type(error).__qualname__)
                span.set_status(self._trace.StatusCode.ERROR)
                raise

    def _waits(self, context: MiddlewareContext) -> None:
        """Make the spans of the waits that the decisions since the last run have ended."""
        told: set[str] = context.local.setdefault(self.name, set())
        for call_id, name, kind, begin, end in _decided(context.state):
            if call_id not in told:
                told.add(call_id)
                attributes = {
                    "gen_ai.conversation.id": context.agent_id,
                    "gen_ai.tool.name": name,
                    "gen_ai.tool.call.id": call_id,
                    "sapwood.interrupt.kind": kind,
                }
                span = self._tracer.start_span(
                    f"approval_wait {name}", attributes=attributes, start_time=int(begin * NANOSECONDS)
                )
                span.end(end_time=int(end * NANOSECONDS))


def _decided(state: State) -> Iterator[tuple[str, str, str, float, float]]:
    """Yield call id, tool, kind, begin and end, in seconds since 1970, of each wait that has an end."""
    for interrupt in state.interrupts:
        decision = state.decision(interrupt.id)
        if decision is not None:
            yield interrupt.id, interrupt.call.name, interrupt.kind, interrupt.created_at, decision.at

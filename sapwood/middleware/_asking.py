"""Model calls that a middleware makes for itself."""

from __future__ import annotations

from sapwood.actors import Environment
from sapwood.conversation import AssistantMessage, UserMessage
from sapwood.errors import ModelProtocolError
from sapwood.models import ChatModel, ModelAnswer, ModelRequest, RetryPolicy, retrying


async def ask_model(
    model: ChatModel,
    environment: Environment,
    *,
    system: str,
    text: str,
    max_tokens: int | None = None,
    policy: RetryPolicy | None = None,
) -> AssistantMessage:
    """Return the model's answer to one message, without tools.

    Raises:
        ModelError: if it fails for good, or answers with nothing that can be used: no text, or a refusal.
    """
    request = ModelRequest(system, (UserMessage(text),), max_tokens=max_tokens)
    answer: AssistantMessage | None = None
    async with retrying(model, request, environment=environment, policy=policy) as events:
        async for event in events:
            if isinstance(event, ModelAnswer):
                answer = event.message
    if answer is None or not answer.text.strip() or answer.stop_reason == "refused":
        got = answer.stop_reason if answer is not None else "nothing"
        raise ModelProtocolError(model.name, f"expected a text; got none ({got})")
    return answer

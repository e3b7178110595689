"""Parents and sub-agents whose models go by the conversation alone."""

from __future__ import annotations

from typing import Any

from sapwood import Agent, ScriptedModel
from sapwood.conversation import AssistantMessage, ToolCall
from sapwood.middleware import SubAgents
from sapwood.models import ModelRequest, call


def turn(request: ModelRequest) -> int:
    """Return how often the model has answered; it has no memory, so a call that is made again goes the same way."""
    return sum(isinstance(message, AssistantMessage) for message in request.messages)


def scripted(*turns: Any) -> ScriptedModel:
    """Return a model that goes by the conversation, and not by how often it was called."""
    return ScriptedModel(then=lambda request: turns[turn(request)])


def worker(*turns: Any, name: str = "worker", **options: Any) -> Agent:
    return Agent(name, model=scripted(*turns), **options)


def parent(*turns: Any, layer: SubAgents, **options: Any) -> Agent:
    return Agent("boss", model=scripted(*turns), middleware=[layer], **options)


def ask(kind: str = "worker", text: str = "Do it", **options: Any) -> ToolCall:
    return call("task", agent_type=kind, description=text, **options)

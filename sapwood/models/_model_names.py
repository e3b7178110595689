"""Models by name, as a command line gives them."""

from __future__ import annotations

from collections.abc import Callable

from sapwood.errors import InvalidOption
from sapwood.models._anthropic import AnthropicModel
from sapwood.models._offline import OfflineModel
from sapwood.models._openai import OpenAIModel
from sapwood.models._protocol import ChatModel
from sapwood.models._sdk import SdkModel

_PROVIDERS: dict[str, Callable[[str, str | None], SdkModel]] = {
    "anthropic": lambda name, base_url: AnthropicModel(name, base_url=base_url),
    "openai": lambda name, base_url: OpenAIModel(name, base_url=base_url),
}


def parse_model(text: str, *, base_url: str | None = None) -> ChatModel:
    """Return the model that a text names: `offline`, `anthropic:NAME` or `openai:NAME`.

    Args:
        text: What a user wrote.
        base_url: Another server for `anthropic` and `openai`.

    Raises:
        InvalidOption: if the text names no model, the offline model is given a `base_url`, or there is no API key.
        MissingExtra: if the provider's SDK is not installed.
    """
    provider, _, name = text.partition(":")
    if text == "offline":
        if base_url is not None:
            raise InvalidOption("the offline model takes no base URL; write openai:NAME for a server of your own")
        return OfflineModel()
    if provider not in _PROVIDERS or not name:
        raise InvalidOption(f"model: expected offline, anthropic:NAME or openai:NAME; got {text!r}")
    model = _PROVIDERS[provider](name, base_url)
    if not model.has_key:
        raise InvalidOption(f"model {text}: no API key; set {model.key_variable}, or use the model offline")
    return model

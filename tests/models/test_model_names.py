"""Models by name, as a command line gives them."""

from __future__ import annotations

import pytest

from sapwood.errors import InvalidOption
from sapwood.models import AnthropicModel, OfflineModel, OpenAIModel, parse_model


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def test_each_name_gives_its_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key")

    assert isinstance(parse_model("offline"), OfflineModel)
    assert isinstance(parse_model("anthropic:claude-x"), AnthropicModel)
    assert parse_model("anthropic:claude-x").name == "anthropic:claude-x"
    local = parse_model("openai:org/model:7b", base_url="http://localhost:8080/v1")
    assert isinstance(local, OpenAIModel)
    assert local.name == "openai:org/model:7b"


@pytest.mark.parametrize("text", ["", "openai", "openai:", "gpt", "offline:x", "mistral:x"])
def test_a_text_that_names_no_model_is_refused_with_the_forms_that_do(text: str) -> None:
    with pytest.raises(InvalidOption, match="expected offline, anthropic:NAME or openai:NAME"):
        parse_model(text)


def test_a_provider_without_a_key_is_refused_at_once() -> None:
    with pytest.raises(InvalidOption, match="set OPENAI_API_KEY"):
        parse_model("openai:x")


def test_the_offline_model_takes_no_base_url() -> None:
    with pytest.raises(InvalidOption, match="no base URL"):
        parse_model("offline", base_url="http://localhost")

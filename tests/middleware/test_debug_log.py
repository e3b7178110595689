"""DebugLog: every hook leaves a line with its time, and no line tells a secret."""

from __future__ import annotations

import json
import logging
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from sapwood import Agent, Runtime, ScriptedModel, Session, tool
from sapwood.conversation import Usage
from sapwood.errors import ModelRefused, RunFailed
from sapwood.middleware import DebugLog, redact
from sapwood.models import Delay, Stall, call
from tests.agents.kit import opened

KEY = "sk-ant-api03-abcdefghijklmnop"


class Lines(logging.Handler):
    """Keeps the fields of what is logged, with the level."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.kept.append({**vars(record)["sapwood"], "log_level": record.levelname.lower()})


@contextmanager
def capture_logs() -> Generator[list[dict[str, Any]]]:
    logger = logging.getLogger("sapwood.debug")
    handler = Lines()
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield handler.kept
    finally:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@tool
async def fetch(url: str, api_key: str) -> str:
    """Fetch a page."""
    await trio.sleep(2)
    return f"page of {url} with {KEY}"


async def started(runtime: Runtime, layer: DebugLog, *steps: Any) -> Session:
    agent = Agent("a", model=ScriptedModel(*steps), tools=[fetch], middleware=[layer], host={"token": KEY})
    return await runtime.sessions.ensure_running(agent, "c1")


def steps() -> list[Any]:
    return [
        [Delay(1.5), call("fetch", url="https://me:pw@x.org", api_key=KEY), Usage(10, 5)],
        [Delay(0.5), f"Your key is {KEY}.", Usage(20, 6)],
    ]


async def test_every_hook_leaves_a_line_and_what_was_wrapped_its_seconds(path: Path, autojump_clock: MockClock) -> None:
    with capture_logs() as lines:
        async with opened(path) as runtime:
            session = await started(runtime, DebugLog(), *steps())
            await session.say("go")
    run = lines[1]["run"]
    assert all((line["agent"], line["conversation"], line["log_level"]) == ("a", "c1", "debug") for line in lines)
    assert [line["run"] for line in lines] == ["", *[run] * (len(lines) - 1)]
    assert run
    assert [(line["event"], line.get("seconds")) for line in lines] == [
        ("server_started", None),
        ("run_started", None),
        ("before_model", None),
        ("model_called", None),
        ("model_answered", 1.5),
        ("after_model", None),
        ("tool_called", None),
        ("tool_answered", 2.0),
        ("before_model", None),
        ("model_called", None),
        ("model_answered", 0.5),
        ("after_model", None),
        ("run_ended", 4.0),
    ]
    answered = lines[4]
    assert (answered["calls"], answered["input_tokens"], answered["output_tokens"]) == (["fetch"], 10, 5)
    assert lines[-1]["input_tokens"] == 30


@pytest.mark.parametrize("content", [False, True])
async def test_no_line_tells_a_secret_whether_content_is_logged_or_not(
    path: Path, autojump_clock: MockClock, *, content: bool
) -> None:
    with capture_logs() as lines:
        async with opened(path) as runtime:
            session = await started(runtime, DebugLog(content=content), *steps())
            await session.say("go")
    logged = json.dumps(lines)
    assert KEY not in logged
    assert "me:pw" not in logged
    assert ("Your key is [hidden]." in logged) == content
    called = next(line for line in lines if line["event"] == "tool_called")
    if content:
        assert called["arguments"] == {"url": "https://[hidden]@x.org", "api_key": "[hidden]"}
    else:
        assert called["arguments_size"] == 2


async def test_a_redaction_of_ones_own_comes_on_top_and_one_that_fails_logs_no_content(
    path: Path, autojump_clock: MockClock
) -> None:
    def hide_names(value: Any) -> Any:
        return value.replace("Ada", "somebody") if isinstance(value, str) else value

    def fail(value: Any) -> Any:
        raise KeyError("bug")

    for hide, shown in ((hide_names, {"text": "Hello somebody"}), (fail, {"text_size": 9})):
        with capture_logs() as lines:
            async with opened(path, seed=shown.__len__()) as runtime:
                session = await started(runtime, DebugLog(content=True, redact=hide), "Hello Ada")
                assert await session.say("hi") == "Hello Ada"
        [answered] = [line for line in lines if line["event"] == "model_answered"]
        assert {name: answered[name] for name in shown} == shown


async def test_what_failed_or_was_cancelled_leaves_a_line_as_well(path: Path, autojump_clock: MockClock) -> None:
    with capture_logs() as lines:
        async with opened(path) as runtime:
            layer = DebugLog(content=True)
            session = await started(runtime, layer, ModelRefused("scripted", f"key {KEY}"), [Stall()])
            with pytest.raises(RunFailed):
                await session.say("go")
            async with session.send("go on") as run:
                await trio.sleep(3)
                await session.cancel()
                await run.finish()
    failed = [line for line in lines if line["event"] == "model_failed"]
    assert [(line["event"], line["error"], line["seconds"]) for line in failed] == [
        ("model_failed", "ModelRefused", 0.0),
        ("model_failed", "Cancelled", 3.0),
    ]
    assert (lines[-1]["event"], lines[-1]["seconds"]) in {("run_stopped", 3.0), ("run_ended", 3.0)}
    assert failed[0]["reason"] == "scripted: key [hidden]"


async def test_a_logger_that_fails_never_reaches_the_agent(path: Path, autojump_clock: MockClock) -> None:
    class Broken:
        def debug(self, event: str, **fields: Any) -> None:
            raise OSError("disk full")

    async with opened(path) as runtime:
        session = await started(runtime, DebugLog(logger=Broken()), "Hello.")
        assert await session.say("hi") == "Hello."


async def test_a_log_that_is_switched_off_writes_nothing(path: Path, autojump_clock: MockClock) -> None:
    with capture_logs() as lines:
        async with opened(path) as runtime:
            session = await started(runtime, DebugLog(enabled=False), "Hello.")
            assert await session.say("hi") == "Hello."
    assert lines == []


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"password": "x", "user": "ada"}, {"password": "[hidden]", "user": "ada"}),
        ({"Api-Key": 5, "access token": "x"}, {"Api-Key": "[hidden]", "access token": "[hidden]"}),
        ({"a": [{"secret": {"b": 1}}]}, {"a": [{"secret": "[hidden]"}]}),
        ({"tokens": 5, "passage": "x", "author": "y"}, {"tokens": 5, "passage": "x", "author": "y"}),
        ("Authorization: Bearer abcdef123456==", "Authorization: [hidden]"),
        ("authorization: bearer abcdef123456==", "authorization: [hidden]"),
        ("the bearer of bad news, a bearer certificate", "the bearer of bad news, a bearer certificate"),
        ("-H 'Authorization: Basic dXNlcjpwYXNz'", "-H 'Authorization: [hidden]'"),
        ({"passwords": ["a"], "DB_PASSWORD_PROD": "q"}, {"passwords": "[hidden]", "DB_PASSWORD_PROD": "[hidden]"}),
        ('{"user": "ada", "password": "x"}', '{"user": "ada", "password": "[hidden]"}'),
        ('[{"api_key":"x"}]', '[{"api_key": "[hidden]"}]'),
        ('{"user":"ada"}', '{"user":"ada"}'),
        ("[" * 100_000 + "]" * 100_000, "[hidden]"),
        ('{"password": "x"', '{"password": "x"'),
        ("redis://:pw@db:6379 and amqp://ada:p@w@db", "redis://[hidden]@db:6379 and amqp://[hidden]@db"),
        ("ghp_abcdefghijklmnopqrst and xoxb-123456789012-abc", "[hidden] and [hidden]"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc", "[hidden]"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY-----.", "[hidden]."),
        ("postgres://ada:pw@db/x", "postgres://[hidden]@db/x"),
        ("a sky of risk-free pk values", "a sky of risk-free pk values"),
        ("x" * 600, "x" * 500 + "... (600 characters)"),
        ((1, 2.5, None, True), [1, 2.5, None, True]),
        (object(), "<object>"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_named_or_looks_like_a_secret_is_hidden(value: Any, shown: Any) -> None:
    assert redact(value) == shown

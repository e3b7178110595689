"""The demonstrations of messages and of the bus hold what they claim."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from programs import ROOT, run_example


@pytest.mark.row("S2-063", "S2-062")
def test_the_seven_demonstrations_of_message_passing_hold(tmp_path: Path) -> None:
    run_example(ROOT / "examples" / "message_bus.py", tmp_path)


@pytest.mark.row("S1-060")
def test_the_page_on_messaging_helps_to_choose_among_packages_that_exist() -> None:
    page = (ROOT / "docs" / "explain" / "messaging.md").read_text(encoding="utf-8")
    table = page.partition("## Which pattern")[2].partition("## ")[0]
    for name in ("bus", "events", "rpc", "shared", "queues"):
        assert f"`sapwood.messaging.{name}`" in table
        importlib.import_module(f"sapwood.messaging.{name}")
    assert "100,000 messages a" in table


@pytest.mark.row("S1-015", "S1-016")
def test_the_demonstration_of_structured_messages_holds(tmp_path: Path) -> None:
    run_example(ROOT / "examples" / "trading_messages.py", tmp_path)

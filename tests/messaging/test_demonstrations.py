"""The demonstrations of the four patterns of messaging: each runs as it stands and says what it has shown."""

from __future__ import annotations

import ast
import re
import runpy

import pytest
from programs import ROOT

CLAIMS = {
    "trading_messages.py": (
        r"^execution: BUY BTC-PERP, sent by strategy$",
        r"^written form: \d+ characters, checksum [0-9a-f]{16}$",
        r"^age: \d+\.\d ms$",
        r"^refused: .*payload type 'trading\.rumour' is not among the schemas .*: trading\.signal, trading\.heartbeat$",
        r"^refused: envelope field 'payload': expected an instance of a class made with @message or @record",
    ),
    "agent_events.py": (
        r"^re-evaluating positions for regime 'trending_high_volatility'$",
        r"^\[\('risk_monitor', 'success', 1\), \('event_logger', 'success', 1\), \('broken', 'error', 3\)\]$",
        r"events_published=3, events_handled=6, events_failed=3, .*dead_letter_count=1",
    ),
    "shared_positions.py": (
        r"^Version conflict on 'positions:BTC-PERP': agent 'late_agent' expected v0 but current is v1$",
        r"^portfolio_agent wrote positions:ETH-PERP version 0$",
        r"keys_count=5, .*conflicts=2,",
    ),
    "risk_calls.py": (
        r"answered with risk\.limit_exceeded: 150,000 is above 100,000$",
        r"did not answer Check within 0\.2 s; it may still carry it out$",
        r"was not called: it failed too often; try again in \d+",
        r"calls=4, succeeded=1, transient=2, permanent=1, .*opened=1",
    ),
}
"""What each example prints, line by line in this order; what it asserts besides, it asserts by itself."""


@pytest.mark.row("S1-061")
@pytest.mark.parametrize("name", CLAIMS)
def test_the_demonstration_of_a_pattern_holds_and_prints_what_it_claims(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    runpy.run_path(str(ROOT / "examples" / name), run_name="__main__")

    lines = capsys.readouterr().out.splitlines()
    for claim in CLAIMS[name]:
        found = next((at for at, line in enumerate(lines) if re.search(claim, line)), None)
        assert found is not None, f"expected a line like {claim!r} after what was found; got {lines}"
        del lines[: found + 1]


@pytest.mark.row("S1-061")
@pytest.mark.parametrize(
    ("name", "asserted"),
    [
        ("trading_messages.py", '(report.targets_contacted, report.status) == (1, "delivered")'),
        ("trading_messages.py", "report.targets_contacted == 2"),
        ("agent_events.py", "report.dispatched_count == 2"),
        ("agent_events.py", 'len(bus.get_history("trade.*", limit=50)) >= 1'),
        ("shared_positions.py", "entry.version == 0"),
        ("shared_positions.py", 'snapshot.agent_id == "portfolio_agent"'),
        ("shared_positions.py", "snapshot.version == 0"),
        ("shared_positions.py", 'again.value["quantity"] == 2.5'),
    ],
)
def test_each_assertion_of_the_specification_is_made_by_its_demonstration(name: str, asserted: str) -> None:
    tree = ast.parse((ROOT / "examples" / name).read_text(encoding="utf-8"))
    made = [ast.unparse(node.test) for node in ast.walk(tree) if isinstance(node, ast.Assert)]
    assert ast.unparse(ast.parse(asserted, mode="eval").body) in made

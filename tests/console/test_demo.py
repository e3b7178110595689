"""The demonstration: it holds, it says so honestly, and a promise that is broken shows."""

from __future__ import annotations

import copy
import io
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from sapwood.actors import RealEnvironment
from sapwood.console import _demo, _demo_story, main
from sapwood.console._demo import demonstrate, place_of
from sapwood.console._demo_checks import PROMISES, Facts, judge
from sapwood.console._narrator import PlainNarrator, Verdict
from sapwood.conversation import State, ToolCall, journal
from sapwood.middleware import HumanInTheLoop
from sapwood.persistence import Entry, Journal
from sapwood.registry import Key, Lookup, NotRunning, Unavailable
from sapwood.registry._local import LocalBackend
from sapwood.tools import Toolbox, ToolContext, ToolOutcome
from tests.console.command import on_a_terminal, run_python, run_sapwood

TOLD, WORK, KILLED, HONEST, REFUSED, BACK, ONE, WENT_ON, DOUBLED, APPROVAL, EARLY, ONCE, FENCED, LINE, STOPPED = (
    PROMISES
)


def tell(folder: Path) -> tuple[int, Facts, str]:
    """Tell the story in this process, quickly; return its exit code, its facts and its text."""
    seen: list[Facts] = []
    out = io.StringIO()
    place = place_of(folder / "demo.db")
    told = partial(demonstrate, pace=0.0, kept=True, observe=seen.append)
    code = trio.run(told, place, PlainNarrator(out), RealEnvironment())
    return code, seen[0], out.getvalue()


@pytest.fixture(scope="session")
def facts(tmp_path_factory: pytest.TempPathFactory) -> Facts:
    code, facts, text = tell(tmp_path_factory.mktemp("story"))
    assert code == 0, text
    return facts


def broken(verdicts: Sequence[Verdict]) -> list[str]:
    return [verdict.promise for verdict in verdicts if not verdict.held]


# --- as users run it --------------------------------------------------------------------------------


def test_the_demonstration_ends_with_0_and_lists_every_promise_as_held(tmp_path: Path) -> None:
    done = run_sapwood("demo", "--fast", folder=tmp_path)

    assert (done.code, done.err) == (0, "")
    assert [line[2:] for line in done.out.splitlines() if line.startswith("✓ ")] == list(PROMISES)
    assert "✗" not in done.out
    assert f"All {len(PROMISES)} promises held." in done.out
    assert list(tmp_path.iterdir()) == []


def test_on_a_terminal_the_tree_is_live_and_the_recovery_is_shown(tmp_path: Path) -> None:
    with on_a_terminal("demo", "--fast", folder=tmp_path) as talk:
        assert talk.leave() == 0

    assert "\x1b[" in talk.output
    assert "· started 2 times" in talk.output
    assert talk.output.count("✓") == len(PROMISES)
    assert talk.output.rindex("\x1b[?25h") > talk.output.rindex("\x1b[?25l"), "the cursor must come back"


def test_a_store_that_is_asked_for_is_kept_and_can_be_looked_at(tmp_path: Path) -> None:
    done = run_sapwood("demo", "--fast", "--store", "demo.db", folder=tmp_path)
    looked = run_sapwood("inspect", "demo.db", folder=tmp_path)

    assert done.code == 0
    assert "Look at what is left: sapwood inspect demo.db" in done.out
    assert looked.code == 0
    assert "order-17  epoch 4 · event " in looked.out
    assert (tmp_path / "demo.db.files" / "report.txt").read_text() == "17500"
    assert len((tmp_path / "demo.db.ledger").read_text().splitlines()) == 1


@pytest.mark.parametrize("taken", ["demo.db", "demo.db.files", "demo.db.ledger"])
def test_nothing_that_is_there_already_is_touched(
    taken: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / taken).write_text("mine")

    assert main(["demo", "--store", str(tmp_path / "demo.db")]) == 2

    assert f"{tmp_path / taken} is there already; name another one" in capsys.readouterr().err
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(taken, "mine")]


def test_a_folder_that_does_not_exist_is_one_line_and_exit_code_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", "--store", str(tmp_path / "no" / "demo.db")]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_ctrl_c_stops_the_demonstration_in_order_with_130(tmp_path: Path) -> None:
    with on_a_terminal("demo", "--store", "demo.db", folder=tmp_path) as talk:
        talk.expect("write_todos")
        talk.type("\x03")
        assert talk.leave(20) == 130

    assert "sapwood demo: stopped" in talk.output
    assert "Traceback" not in talk.output
    assert talk.output.rindex("\x1b[?25h") > talk.output.rindex("\x1b[?25l"), "the cursor must come back"
    assert "given up cleanly" in run_sapwood("inspect", "demo.db", folder=tmp_path).out


# --- facts that are not as promised -----------------------------------------------------------------

Change = Callable[[Facts], Facts]


def outage(facts: Facts, **changes: Any) -> Facts:
    assert facts.outage is not None
    return attrs.evolve(facts, outage=attrs.evolve(facts.outage, **changes))


def watch(facts: Facts, index: int, **changes: Any) -> Facts:
    watches = [copy.copy(each) for each in facts.watches]
    for name, value in changes.items():
        setattr(watches[index], name, value)
    return attrs.evolve(facts, watches=watches)


def entries(facts: Facts, change: Callable[[list[Entry]], list[Entry]]) -> Facts:
    return attrs.evolve(facts, entries=tuple(change(list(facts.entries or ()))))


def again(kind: type) -> Callable[[list[Entry]], list[Entry]]:
    """Journal the last event of a kind a second time, at the end."""

    def change(entries: list[Entry]) -> list[Entry]:
        found = next(entry for entry in reversed(entries) if isinstance(entry.event, kind))
        return [*entries, attrs.evolve(found, seq=entries[-1].seq + 1, epoch=entries[-1].epoch)]

    return change


def stop(facts: Facts, **changes: Any) -> Facts:
    return attrs.evolve(facts, stops=[*facts.stops[:2], attrs.evolve(facts.stops[2], **changes)])


ALTERATIONS: list[tuple[str, Change]] = [
    (TOLD, lambda facts: attrs.evolve(facts, broken="ValueError: boom")),
    (WORK, lambda facts: attrs.evolve(facts, files={**(facts.files or {}), "report.txt": "17501"})),
    (WORK, lambda facts: attrs.evolve(facts, files={})),
    (KILLED, lambda facts: outage(facts, server_lived=False)),
    (HONEST, lambda facts: outage(facts, first_answer="not running")),
    (HONEST, lambda facts: watch(facts, 0, denied=1)),
    (HONEST, lambda facts: watch(facts, 0, answers={"running": 5, "not running": 5})),
    (REFUSED, lambda facts: outage(facts, refused="")),
    (BACK, lambda facts: outage(facts, after=facts.outage.after[1:] if facts.outage else ())),
    (BACK, lambda facts: outage(facts, incarnations=(2, 2, 1, 2))),
    (BACK, lambda facts: outage(facts, ready=False)),
    (BACK, lambda facts: outage(facts, seconds=None)),
    (ONE, lambda facts: watch(facts, 2, most_live=2)),
    (ONE, lambda facts: watch(facts, 1, steps=0)),
    (WENT_ON, lambda facts: attrs.evolve(facts, run_end=None)),
    (WENT_ON, lambda facts: outage(facts, durable=(*facts.outage.durable[1:],) if facts.outage else ())),
    (DOUBLED, lambda facts: entries(facts, again(journal.ToolFinished))),
    (APPROVAL, lambda facts: attrs.evolve(facts, found=())),
    (APPROVAL, lambda facts: attrs.evolve(facts, stored=None)),
    (EARLY, lambda facts: attrs.evolve(facts, paid_early=facts.paid)),
    (ONCE, lambda facts: attrs.evolve(facts, paid=(*(facts.paid or ()), *(facts.paid or ())))),
    (ONCE, lambda facts: attrs.evolve(facts, paid=())),
    (ONCE, lambda facts: attrs.evolve(facts, second_approval=None)),
    (FENCED, lambda facts: attrs.evolve(facts, refused_append=None)),
    (FENCED, lambda facts: attrs.evolve(facts, fenced_exit="normal")),
    (FENCED, lambda facts: attrs.evolve(facts, answer_after="I cannot")),
    (LINE, lambda facts: entries(facts, lambda known: [*known[:-1], attrs.evolve(known[-1], epoch=1)])),
    (LINE, lambda facts: entries(facts, lambda known: [*known[:-1], attrs.evolve(known[-1], seq=999)])),
    (STOPPED, lambda facts: stop(facts, observed=facts.stops[2].observed[::-1])),
    (STOPPED, lambda facts: stop(facts, killed=("store",))),
    (STOPPED, lambda facts: attrs.evolve(facts, final=None)),
]


@pytest.mark.parametrize(("promise", "change"), ALTERATIONS)
def test_a_fact_that_is_not_as_promised_breaks_that_promise_and_no_other(
    promise: str, change: Change, facts: Facts
) -> None:
    assert broken(judge(facts)) == []
    assert broken(judge(change(facts))) == [promise]


def test_every_promise_has_a_fact_that_can_break_it() -> None:
    assert {promise for promise, _ in ALTERATIONS} == set(PROMISES)


def test_a_story_that_was_not_told_keeps_no_promise() -> None:
    assert broken(judge(Facts())) == list(PROMISES)


# --- sabotage of the real parts ---------------------------------------------------------------------


def test_a_payment_that_is_made_twice_is_found_and_gives_exit_code_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    invoke = Toolbox.invoke

    async def twice(self: Toolbox, call: ToolCall, context: ToolContext) -> ToolOutcome:
        if call.name == "refund":
            await invoke(self, call, context)
        return await invoke(self, call, context)

    monkeypatch.setattr(Toolbox, "invoke", twice)
    code, facts, text = tell(tmp_path)

    assert code == 1
    assert broken(judge(facts)) == [ONCE]
    assert f"✗ {ONCE}\n    2 payments of 15000 cents" in text
    assert "1 of 15 promises did not hold." in text


def test_a_registry_that_calls_what_it_lost_not_running_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lookup = LocalBackend.lookup_nowait

    def lie(self: LocalBackend, key: Key) -> Lookup[Any]:
        answer = lookup(self, key)
        return NotRunning() if isinstance(answer, Unavailable) else answer

    monkeypatch.setattr(LocalBackend, "lookup_nowait", lie)
    code, facts, _ = tell(tmp_path)

    assert code == 1
    assert HONEST in broken(judge(facts))


def test_a_store_that_fences_nobody_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append = Journal.append

    async def let_all_in(
        self: Journal, agent_id: str, *, epoch: int, expected_seq: int, events: Sequence[object]
    ) -> int:
        head = next((row for row in await self.agents() if row.agent_id == agent_id), None)
        now = (epoch, expected_seq) if head is None else (head.epoch, head.seq)
        return await append(self, agent_id, epoch=now[0], expected_seq=now[1], events=events)

    monkeypatch.setattr(Journal, "append", let_all_in)
    monkeypatch.setattr(_demo_story, "RECOVERS_WITHIN", 0.5)
    code, facts, _ = tell(tmp_path)

    assert code == 1
    assert {TOLD, FENCED} <= set(broken(judge(facts)))


def test_an_agent_that_asks_nobody_breaks_the_story_and_what_follows_is_not_called_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(self: HumanInTheLoop, state: State, context: object) -> None:
        await trio.lowlevel.checkpoint()

    monkeypatch.setattr(HumanInTheLoop, "after_model", never)
    code, facts, text = tell(tmp_path)

    assert code == 1
    assert {TOLD, APPROVAL, EARLY, ONCE, FENCED, LINE, STOPPED} <= set(broken(judge(facts)))
    assert "could not be checked: the story did not get so far" in text


def test_a_broken_promise_is_the_exit_code_of_the_process(tmp_path: Path) -> None:
    sabotage = (
        "import sys\n"
        "from sapwood.console import _demo_parts, main\n"
        "_demo_parts.Place.payments = lambda self: []\n"
        "sys.exit(main(['demo', '--fast']))\n"
    )

    done = run_python("-c", sabotage, folder=tmp_path)

    assert done.code == 1
    assert f"✗ {ONCE}" in done.out
    assert "1 of 15 promises did not hold." in done.out


def test_a_story_that_hangs_is_given_up_and_told_as_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def hang(*args: object) -> Awaitable[None]:
        await trio.sleep_forever()

    monkeypatch.setattr(_demo_story.Story, "_take_over", hang)
    monkeypatch.setattr(_demo, "TOLD_WITHIN", 3.0)
    code, facts, _ = tell(tmp_path)

    assert code == 1
    assert facts.broken == "TooSlowError"
    assert {TOLD, FENCED} <= set(broken(judge(facts)))

"""Scenarios whose server dies at every append and between any two awaits."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import attrs
import pytest

from sapwood import Agent, Runtime, ScriptedModel, ToolContext, tool
from sapwood.agents import PendingApproval
from sapwood.conversation import AssistantMessage, QueueMessage, ToolCall, ToolResult, UserMessage
from sapwood.middleware import FileSystem, HumanInTheLoop, TodoList
from sapwood.models import ModelRequest, Step, call
from sapwood.tools import Pending, Tool, ToolOutput
from tests.agents.crashes import Scenario, World, crash_anywhere, play


def turn(request: ModelRequest) -> int:
    """Return how often the model has answered; it has no memory, so a call that is made again goes the same way."""
    return sum(isinstance(message, AssistantMessage) for message in request.messages)


def tools_of(world: World) -> list[Tool[..., Any]]:
    @tool(idempotent=True)
    async def pay(context: ToolContext, cents: int) -> str:
        """Pay; the bank honours the key."""
        await world.act("pay", context.idempotency_key)
        return f"paid {cents}"

    @tool(crash_resume="ask")
    async def transfer(context: ToolContext, cents: int) -> str:
        """Transfer; a person can look it up."""
        await world.act("transfer", context.idempotency_key)
        return f"transferred {cents}"

    async def how_far(poll_id: str, context: ToolContext) -> str | Pending:
        world.jobs[poll_id] += 1
        return "rendered" if world.jobs[poll_id] > 2 else Pending(poll_id)

    @tool(idempotent=True, poll=how_far)
    async def render(context: ToolContext, scene: str) -> Pending:
        """Render elsewhere; the key names the job."""
        await world.act("render", context.idempotency_key)
        world.jobs.setdefault(context.idempotency_key, 0)
        return Pending(context.idempotency_key, every=1.0)

    @tool(idempotent=True)
    async def remind(context: ToolContext, text: str) -> ToolOutput:
        """Have oneself told something when the answer is given."""
        await world.act("remind", context.idempotency_key)
        return ToolOutput("noted", [QueueMessage(UserMessage(text), "next_turn")])

    return [pay, transfer, render, remind]


async def look_it_up(world: World, approval: PendingApproval) -> None:
    """Approve what is asked; where nobody knows whether it was done, look whether it was."""
    interrupt = approval.interrupt
    if interrupt.kind == "reconcile" and world.done(interrupt.call.name):
        await approval.answer(result=f"{interrupt.call.name}red {interrupt.call.arguments['cents']}", by="ann")
    else:
        await approval.approve(by="ann")


def scenario(*turns: Step, effects: dict[str, int], gated: bool = False) -> Scenario:
    def agent(world: World) -> Agent:
        layers = [TodoList(), HumanInTheLoop(pay=True)] if gated else [TodoList()]
        model = ScriptedModel(then=lambda request: turns[turn(request)])
        return Agent("clerk", model=model, tools=tools_of(world), middleware=layers)

    return Scenario(agent, effects, look_it_up)


SCENARIOS = {
    "plain tools": scenario(
        ["First. ", call("pay", cents=100), call("transfer", cents=300)],
        call("pay", cents=200),
        "All done.",
        effects={"pay": 2, "transfer": 1},
    ),
    "an approval in the middle": scenario(
        [call("transfer", cents=300), call("pay", cents=100)],
        "All done.",
        effects={"pay": 1, "transfer": 1},
        gated=True,
    ),
    "an asynchronous tool": scenario(
        [call("render", scene="a"), call("transfer", cents=300)],
        "All done.",
        effects={"render": 1, "transfer": 1},
    ),
    "a message that a tool leaves behind": scenario(
        call("remind", text="and the rest"), "So far.", "All done.", effects={"remind": 1}
    ),
}


# --- files --------------------------------------------------------------------------------------------

SCOPE = ("user", 1)


@attrs.frozen
class Change:
    """A change of a file, and how the model finds out whether it was made when nobody can tell it."""

    do: ToolCall
    look: ToolCall
    made: str

    def is_made(self, seen: str) -> bool:
        return self.made in seen


CHANGES = (
    Change(call("write_file", path="new.md", content="one\n"), call("ls"), "new.md"),
    # Each edit leaves what it looks for, so made twice it would be there twice.
    Change(call("edit_file", path="sum.md", old="1", new="1+1"), call("read_file", path="sum.md"), "1+1"),
    Change(call("edit_file", path="new.md", old="one", new="one two"), call("read_file", path="new.md"), "one two"),
    Change(call("delete_file", path="old.md"), call("ls", pattern="old*"), "no files match"),
)


def careful(request: ModelRequest) -> Step:
    """Make one change after the other; where nobody knows whether it was made, look before making it again."""
    made, in_doubt = 0, False
    for message in request.messages:
        if not isinstance(message, ToolResult):
            continue
        if in_doubt:
            in_doubt = False
            made += CHANGES[made].is_made(message.content)
        elif message.problem == "unknown":
            in_doubt = True
        else:
            assert not message.is_error, message
            made += 1
    if made == len(CHANGES):
        return "All done."
    return CHANGES[made].look if in_doubt else CHANGES[made].do


async def lay_out(runtime: Runtime) -> None:
    files = runtime.files.client(SCOPE)
    await files.write("sum.md", "1\n")
    await files.write("old.md", "gone soon\n")


async def files_in(runtime: Runtime) -> Counter[str]:
    """Return all files with their versions; a version more means that a change was made twice."""
    files = runtime.files.client(SCOPE)
    found: Counter[str] = Counter()
    for entry in (await files.ls()).entries:
        text = "\n".join((await files.read(entry.path)).lines)
        version = entry.version
        if entry.path == "new.md":
            # Writing the whole of it is idempotent, and may have been done twice.
            assert version in {2, 3}
            version = 2
        found[f"{entry.path} version {version}: {text}"] += 1
    return found


def without_doubts(lines: list[str]) -> list[str]:
    """Leave out what the model does about outcomes that nobody knows; how it all began and ended is left."""
    return [lines[0], lines[-1]]


def editor(_: World) -> Agent:
    return Agent("editor", model=ScriptedModel(then=careful), middleware=[FileSystem(SCOPE)])


SCENARIOS["file edits"] = Scenario(
    editor,
    {"sum.md version 2: 1+1": 1, "new.md version 2: one two": 1},
    prepare=lay_out,
    found=files_in,
    compared=without_doubts,
)


@pytest.mark.row("S3-144", "S4-027", "UP-1", "UP-2", "UP-3", "UP-6", "UP-59", "UP-63", "BR-26", "BR-28", "AR-22.0")
@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.soak
def test_wherever_the_server_dies_the_conversation_is_the_same_and_no_effect_is_lost_or_doubled(
    tmp_path: Path, name: str, request: pytest.FixtureRequest
) -> None:
    samples = None if request.config.getoption("--soak") else 12
    assert crash_anywhere(SCENARIOS[name], tmp_path, samples=samples) > 30


def test_a_tool_that_ignores_its_key_is_found_out(tmp_path: Path) -> None:
    def agent(world: World) -> Agent:
        @tool(idempotent=True)
        async def pay(context: ToolContext) -> str:
            """Claim to be idempotent and be not."""
            await world.act("pay", f"{context.idempotency_key} {len(world.effects)}")
            return "paid"

        model = ScriptedModel(then=lambda request: (call("pay"), "done")[turn(request)])
        return Agent("clerk", model=model, tools=[pay])

    careless = Scenario(agent, {"pay": 1})
    with pytest.raises(AssertionError):
        crash_anywhere(careless, tmp_path, samples=60)


def test_a_scenario_in_peace_strikes_nobody(tmp_path: Path) -> None:
    story = play(SCENARIOS["plain tools"], tmp_path / "s.db")
    assert not story.struck
    assert story.lines[-1] == "model: All done."
    assert story.steps > 100

"""A working agent in a child process that is killed fifty times; its file is checked after each kill.

`python work_until_killed.py FOLDER KILLS SEED`. Every server prints what it was told to be durable into a pipe that
outlives it; what stands in the file must agree with that.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import attrs
import trio

from sapwood import Agent, ScriptedModel, Session, ToolContext, open_runtime, tool
from sapwood.actors import SimulatedEnvironment
from sapwood.conversation import AssistantMessage, State, ToolResult, UserMessage, check_pairs, journal
from sapwood.middleware import FileSystem, PatchToolCalls, TodoList
from sapwood.models import ModelRequest, Step, call
from sapwood.persistence import Journal, SnapshotPolicy, encode, open_store

FOLDER = Path(sys.argv[1])
KILLS = int(sys.argv[2])
SEED = int(sys.argv[3])
STORE = FOLDER / "store.db"
EFFECTS = FOLDER / "effects.txt"
LONGEST = 0.25
"""Seconds after which a server is killed at the latest, from when it has claimed its conversation."""

APPEND = Journal.append


# --- the child --------------------------------------------------------------------------------------


def play(request: ModelRequest) -> Step:
    """Play the model: three calls for each message, then an answer."""
    turn = sum(isinstance(message, UserMessage) for message in request.messages)
    if isinstance(request.messages[-1], UserMessage):
        return [
            call("pay", turn=turn),
            call("charge", turn=turn),
            call("write_file", path=f"turn-{turn % 7}.txt", content=f"turn {turn}"),
            call("write_todos", todos=[{"id": 1, "content": f"turn {turn}"}]),
        ]
    return f"done {turn}"


def act(name: str, key: str) -> None:
    """Do something that cannot be undone, and that the death of this process does not take back."""
    with EFFECTS.open("a") as file:
        file.write(f"{name} {key}\n")


@tool(idempotent=True)
async def pay(context: ToolContext, turn: int) -> str:
    """Pay; the bank honours the key."""
    await trio.sleep(0.001)
    act("pay", context.idempotency_key)
    await trio.sleep(0.001)
    return f"paid {turn}"


@tool
async def charge(context: ToolContext, turn: int) -> str:
    """Charge; nobody can tell afterwards."""
    await trio.sleep(0.001)
    act("charge", context.idempotency_key)
    await trio.sleep(0.001)
    return f"charged {turn}"


def agent() -> Agent:
    layers = [PatchToolCalls(), TodoList(), FileSystem()]
    return Agent("worker", model=ScriptedModel(then=play), tools=[pay, charge], middleware=layers)


async def work(pipe: int, turns: int | None) -> None:
    """Work through turn after turn, or so many more, and report every acknowledgement."""

    async def append(self: Journal, agent_id: str, *, events: Any, **options: Any) -> int:
        seq = await APPEND(self, agent_id, events=events, **options)
        first = seq - len(events) + 1
        report = [f"durable {first + place} {zlib.crc32(encode(event))}" for place, event in enumerate(events)]
        os.write(pipe, "".join(f"{line}\n" for line in report).encode())
        return seq

    Journal.append = append  # type: ignore[method-assign]  # the child is a process of its own
    async with open_runtime(store=STORE, signals=False) as runtime:
        sessions = runtime.sessions
        sessions._services = attrs.evolve(sessions._services, snapshots=SnapshotPolicy(every=25))
        session = await sessions.ensure_running(agent(), "c1")
        os.write(pipe, b"up\n")
        await converse(session, pipe, turns)


async def converse(session: Session, pipe: int, turns: int | None) -> None:
    # The last message may not have been answered; sent again under its id, it counts once.
    turn = max(1, sum(isinstance(message, UserMessage) for message in session.state.messages))
    last = None if turns is None else turn + turns
    while last is None or turn <= last:
        text = await session.say(f"turn {turn}", message_id=f"t{turn}")
        os.write(pipe, f"answered {turn} {text}\n".encode())
        turn += 1


# --- the parent -------------------------------------------------------------------------------------


@attrs.define
class Known:
    """What has been acknowledged over all lives."""

    durable: dict[int, int] = attrs.field(factory=dict[int, int])
    answered: dict[int, str] = attrs.field(factory=dict[int, str])
    ups: int = 0

    def read(self, text: str) -> None:
        for line in text.splitlines():
            match line.split(maxsplit=2):
                case ["durable", seq, crc]:
                    assert self.durable.setdefault(int(seq), int(crc)) == int(crc), f"event {seq} was given twice"
                case ["answered", turn, answer]:
                    self.answered[int(turn)] = answer
                case _:
                    self.ups += 1


def live(known: Known, seconds: float | None, turns: int | None = None) -> None:
    """Let one server live, and kill it so many seconds after it is up; None lets it end by itself."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(reader)
            trio.run(work, writer, turns)
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.readline()
        while "up\n" not in text and (line := pipe.readline()):
            text += line
        if seconds is not None:
            time.sleep(seconds)  # the process is real, and so is the moment of its death
            os.kill(child, signal.SIGKILL)
        text += pipe.read()
    _, status = os.waitpid(child, 0)
    expected = signal.SIGKILL if seconds is not None else 0
    assert status == expected, f"the child ended with {status}"
    # The last line may be half a line, if the process died while it wrote.
    known.read(text.rpartition("\n")[0])


async def check(known: Known) -> State:
    environment = SimulatedEnvironment()
    async with open_store(STORE, environment) as store:
        journals = Journal(store, environment)
        claim = await journals.claim("c1", owner="checker")
    state = claim.snapshot if claim.snapshot is not None else State()
    for place, entry in enumerate(claim.tail, 1):
        assert entry.seq == claim.snapshot_seq + place
        if entry.seq in known.durable:
            assert zlib.crc32(encode(entry.event)) == known.durable[entry.seq], f"event {entry.seq} is another one"
        state = journal.apply(state, entry.event)
    assert claim.seq >= max(known.durable), "an acknowledged event is lost"
    # Everything up to the end was acknowledged, but for the append that was under way at a kill.
    assert min(known.durable) == 1
    compare(state, known)
    return state


def compare(state: State, known: Known) -> None:
    said = [message.id for message in state.messages if isinstance(message, UserMessage)]
    assert said == [f"t{number}" for number in range(1, len(said) + 1)]
    answers = [each.text for each in state.messages if isinstance(each, AssistantMessage) and not each.tool_calls]
    for turn, answer in known.answered.items():
        assert answer == f"done {turn}"
        assert answers.count(answer) == 1
    results = [message for message in state.messages if isinstance(message, ToolResult)]
    assert len({message.id for message in state.messages}) == len(state.messages)
    effects = (
        Counter(tuple(line.split()) for line in EFFECTS.read_text().splitlines()) if EFFECTS.exists() else Counter()
    )
    charges = {key: count for (name, key), count in effects.items() if name == "charge"}
    assert all(count == 1 for count in charges.values()), "something was charged twice"
    charged = [result for result in results if result.content.startswith("charged")]
    assert len(charged) <= len(charges) <= len(said)
    assert len({key for (name, key) in effects if name == "pay"}) <= len(said)


def main() -> None:
    rng = random.Random(SEED)
    known = Known()
    for _ in range(KILLS):
        live(known, rng.uniform(0.0, LONGEST))
        trio.run(check, known)
    killed_at = len(known.answered)
    live(known, None, turns=2)
    state = trio.run(check, known)
    assert state.status == "idle"
    assert check_pairs(state.messages) == ()
    paid = sum(isinstance(each, ToolResult) and each.content.startswith("paid") for each in state.messages)
    turns = sum(isinstance(message, UserMessage) for message in state.messages)
    assert paid == turns
    sys.stdout.write(f"survived {KILLS} kills, {killed_at} answers, {max(known.durable)} events, {turns} turns\n")


main()

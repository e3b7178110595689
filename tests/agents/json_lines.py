"""A second store of conversations: one file of JSON lines for each agent, written by one process."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import attrs
import trio

from sapwood.actors import Environment
from sapwood.errors import AgentExists, CodecError, RecordCorrupt, SequenceConflict, StaleEpoch
from sapwood.persistence import (
    AgentRow,
    Claim,
    Entry,
    LoadOutcome,
    Missing,
    NumberedLine,
    Stored,
    decode,
    encode,
)

END: Final = 2**62


@attrs.define
class Life:
    """What the lines of one file add up to; records are kept as they were encoded."""

    epoch: int = 0
    owner: str = ""
    at: float = 0.0
    base: int = 0
    seq: int = 0
    released: bool = False
    deleted: bool = False
    events: dict[int, tuple[int, float, bytes]] = attrs.field(factory=dict[int, "tuple[int, float, bytes]"])
    snapshots: dict[int, bytes] = attrs.field(factory=dict[int, bytes])
    lines: list[bytes] = attrs.field(factory=list[bytes])

    def apply(self, change: dict[str, Any]) -> None:
        """Let one line take effect."""
        self.at = change["at"]
        match change["do"]:
            case "claim":
                self.epoch, self.owner = self.epoch + 1, change["owner"]
                self.released = self.deleted = False
            case "append":
                for record in change["events"]:
                    self.seq += 1
                    self.events[self.seq] = (self.epoch, self.at, base64.b64decode(record))
                self.lines += map(base64.b64decode, change["lines"])
                self.released = False
            case "snapshot":
                self.snapshots[change["seq"]] = base64.b64decode(change["state"])
            case "compact":
                self.snapshots = {seq: state for seq, state in self.snapshots.items() if seq >= change["seq"]}
                self.events = {seq: event for seq, event in self.events.items() if seq > change["seq"]}
            case "release":
                self.released = True
            case "delete":
                self.epoch, self.base, self.deleted = self.epoch + 1, self.seq, True
                self.events, self.snapshots, self.lines = {}, {}, []
            case unknown:
                raise CodecError("do", f"expected a change that this store writes; got {unknown!r}")

    @property
    def empty(self) -> bool:
        """Whether nothing is stored."""
        return not self.events and not self.snapshots


def packed(records: Sequence[object]) -> list[str]:
    return [base64.b64encode(encode(each)).decode() for each in records]


class JsonLines:
    """Conversations in a folder.

    Args:
        folder: Where the files are.
        environment: Door to the wall clock.
    """

    def __init__(self, folder: Path, environment: Environment) -> None:
        folder.mkdir(exist_ok=True)
        self._folder = folder
        self._environment = environment
        self._lives: dict[str, Life] = {}
        for path in sorted(folder.glob("*.jsonl")):
            life = self._lives[bytes.fromhex(path.stem).decode()] = Life()
            for line in path.read_text(encoding="utf-8").splitlines():
                life.apply(json.loads(line))

    async def claim(self, agent_id: str, *, owner: str) -> Claim:
        await trio.lowlevel.checkpoint()
        life = self._lives.setdefault(agent_id, Life())
        snapshot, snapshot_seq, tail = self._read(agent_id, life)
        clean = life.released or life.deleted or life.epoch == 0
        self._write(agent_id, "claim", owner=owner)
        return Claim(agent_id, life.epoch, snapshot, snapshot_seq, tail, life.seq, fresh=life.empty, clean=clean)

    async def append(
        self,
        agent_id: str,
        *,
        epoch: int,
        expected_seq: int,
        events: Sequence[object],
        lines: Sequence[object] = (),
    ) -> int:
        await trio.lowlevel.checkpoint()
        change = {"events": packed(events), "lines": packed(lines)}
        life = self._held(agent_id, epoch)
        if life.seq != expected_seq:
            raise SequenceConflict(agent_id, expected_seq, life.seq)
        self._write(agent_id, "append", **change)
        return life.seq

    async def create(
        self, agent_id: str, *, owner: str, events: Sequence[object], lines: Sequence[object] = ()
    ) -> None:
        await trio.lowlevel.checkpoint()
        change = {"events": packed(events), "lines": packed(lines)}
        if not self._lives.setdefault(agent_id, Life()).empty:
            raise AgentExists(agent_id)
        self._write(agent_id, "claim", owner=owner)
        self._write(agent_id, "append", **change)
        self._write(agent_id, "release")

    async def save_snapshot(self, agent_id: str, *, epoch: int, seq: int, state: object) -> None:
        await trio.lowlevel.checkpoint()
        [record] = packed([state])
        life = self._held(agent_id, epoch)
        if not life.base <= seq <= life.seq or seq < max(life.snapshots, default=0):
            raise SequenceConflict(agent_id, seq, life.seq)
        self._write(agent_id, "snapshot", seq=seq, state=record)

    async def compact(self, agent_id: str, *, epoch: int, keep: int = 2) -> int:
        await trio.lowlevel.checkpoint()
        life = self._held(agent_id, epoch)
        kept = sorted(life.snapshots)[-keep:]
        before = len(life.events)
        if kept:
            self._write(agent_id, "compact", seq=kept[0])
        return before - len(life.events)

    async def load(self, agent_id: str) -> LoadOutcome:
        await trio.lowlevel.checkpoint()
        life = self._lives.get(agent_id)
        if life is None or life.empty:
            return Missing(agent_id)
        snapshot, snapshot_seq, tail = self._read(agent_id, life)
        return Stored(agent_id, life.epoch, snapshot, snapshot_seq, tail, life.seq)

    async def read(self, agent_id: str, *, after: int = 0, limit: int = 1000) -> list[Entry]:
        await trio.lowlevel.checkpoint()
        life = self._lives.get(agent_id, Life())
        return [self._entry(agent_id, life, seq) for seq in sorted(life.events) if seq > after][:limit]

    async def read_transcript(
        self, agent_id: str, *, after: int = 0, before: int | None = None, limit: int = 100, last: bool = False
    ) -> list[NumberedLine]:
        await trio.lowlevel.checkpoint()
        lines = self._lives.get(agent_id, Life()).lines
        wanted = [number for number in range(1, len(lines) + 1) if after < number < (before or END)]
        chosen = wanted[-limit:] if last else wanted[:limit]
        return [NumberedLine(number, self._decode(agent_id, number, lines[number - 1])) for number in chosen]

    async def agents(self) -> list[AgentRow]:
        await trio.lowlevel.checkpoint()
        return [
            AgentRow(
                agent_id, life.epoch, life.owner, life.seq, life.at, max(life.snapshots, default=None), life.released
            )
            for agent_id, life in sorted(self._lives.items())
            if life.epoch and not life.deleted
        ]

    async def release(self, agent_id: str, *, epoch: int) -> None:
        await trio.lowlevel.checkpoint()
        self._held(agent_id, epoch)
        self._write(agent_id, "release")

    async def delete(self, agent_id: str, *, epoch: int | None = None) -> bool:
        await trio.lowlevel.checkpoint()
        life = self._lives.get(agent_id)
        if epoch is not None:
            self._held(agent_id, epoch)
        if life is None or life.deleted or not life.epoch:
            return False
        self._write(agent_id, "delete")
        return True

    # --- within -----------------------------------------------------------------------------------

    def _held(self, agent_id: str, epoch: int) -> Life:
        life = self._lives.get(agent_id, Life())
        if life.epoch != epoch or life.deleted or not life.epoch:
            raise StaleEpoch(agent_id, epoch, life.epoch)
        return life

    def _write(self, agent_id: str, do: str, **fields: Any) -> None:
        change = {"do": do, "at": self._environment.wall(), **fields}
        with (self._folder / f"{agent_id.encode().hex()}.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(change) + "\n")
        self._lives[agent_id].apply(change)

    def _read(self, agent_id: str, life: Life) -> tuple[Any, int, tuple[Entry, ...]]:
        seq = max(life.snapshots, default=life.base)
        snapshot = self._decode(agent_id, seq, life.snapshots[seq]) if life.snapshots else None
        return snapshot, seq, tuple(self._entry(agent_id, life, each) for each in sorted(life.events) if each > seq)

    def _entry(self, agent_id: str, life: Life, seq: int) -> Entry:
        epoch, at, record = life.events[seq]
        return Entry(seq, epoch, at, self._decode(agent_id, seq, record))

    def _decode(self, agent_id: str, seq: int, record: bytes) -> Any:
        try:
            return decode(record)
        except CodecError as error:
            raise RecordCorrupt(agent_id, seq, "journal", str(error)) from error

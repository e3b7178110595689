"""Archives: a queue as a file of JSON lines, out and in."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from sqlite3 import Connection, connect
from typing import Any, Final

import attrs

from sapwood.actors import Environment
from sapwood.errors import ArchiveInvalid, CodecError, InvalidOption
from sapwood.messaging.queues._ledger import Transaction, check_epoch, unblock
from sapwood.messaging.queues._messages import checksum
from sapwood.messaging.queues._schema import State
from sapwood.persistence import StoreEngine

FORMAT: Final = "sapwood-queue"
VERSION: Final = 1

_LOG: Final = ("seq", "at", "id", "sender", "priority", "key", "ttl", "headers", "kind", "checksum", "settled_at")
_LIVE: Final = (
    "since",
    "due",
    "delay",
    "calendar",
    "expires",
    "attempts",
    "requeues",
    "seen",
    "first_at",
    "last_at",
    "alert_at",
)
_DEAD: Final = (
    "reason",
    "detail",
    "attempts",
    "requeues",
    "first_at",
    "last_at",
    "dead_at",
    "retry_at",
    "alert_at",
    "notify",
)


@attrs.frozen
class Archive:
    """What a file holds.

    Attributes:
        last_seq: Sequence number of the last message that the queue ever had.
        now: The queue's clock at the export.
        messages: The lines of the messages.
    """

    last_seq: int
    now: float
    messages: tuple[dict[str, Any], ...]


def export_lines(tx: Transaction) -> list[str]:
    """Return the lines of an archive: a head, the messages, and an end that says how many there are."""
    last_seq, _ = check_epoch(tx)
    head = {"format": FORMAT, "version": VERSION, "queue": tx.head.name, "last_seq": last_seq, "now": tx.now}
    live = _rows(tx, "queue_entries", _LIVE)
    dead = _rows(tx, "queue_dead", _DEAD)
    lines: list[str] = []
    for *columns, body in tx.execute(
        f"SELECT {', '.join(_LOG)}, body FROM queue_log WHERE queue_id = ? ORDER BY seq"  # noqa: S608  # constants
    ).fetchall():
        line: dict[str, Any] = dict(zip(_LOG, columns, strict=True))
        line["body"] = base64.b64encode(body).decode("ascii")
        line["live"] = live.get(line["seq"])
        line["dead"] = dead.get(line["seq"])
        lines.append(json.dumps(line))
    return [json.dumps(head), *lines, json.dumps({"end": len(lines)})]


def import_lines(tx: Transaction, archive: Archive) -> None:
    """Write an archive into a queue that has had no messages.

    Raises:
        InvalidOption: if it has had some.
    """
    last, _ = check_epoch(tx)
    if last:
        raise InvalidOption(f"queue {tx.head.name!r} has had messages; read the archive into a queue with a new name")
    # What waits for a time waits as long as it had still to wait at the export.
    shift = tx.now - archive.now
    queue_id = tx.head.queue_id
    for line in archive.messages:
        columns = {name: line[name] for name in _LOG}
        _shift(columns, ("settled_at",), shift)
        _insert(tx, "queue_log", {"queue_id": queue_id, **columns, "body": line["body"]})
        if line["live"] is not None:
            entry: dict[str, Any] = dict(line["live"])
            _shift(entry, ("since", "expires", "alert_at"), shift)
            if not entry["calendar"]:
                _shift(entry, ("due",), shift)
            fixed = {name: line[name] for name in ("seq", "priority", "key", "ttl")}
            rank = line["priority"] if tx.options.ordering == "priority" else 0
            state = _state(tx, entry, line["key"])
            _insert(tx, "queue_entries", {"queue_id": queue_id, "state": state, "rank": rank, **fixed, **entry})
        elif line["dead"] is not None:
            dead: dict[str, Any] = dict(line["dead"])
            _shift(dead, ("retry_at", "alert_at"), shift)
            _insert(tx, "queue_dead", {"queue_id": queue_id, "seq": line["seq"], **dead})
    tx.execute("UPDATE queues SET last_seq = ?2 WHERE queue_id = ?1", archive.last_seq)
    _line_up(tx)


def write_lines(path: Path, lines: Sequence[str]) -> None:
    """Write a file of lines so that it is there in full or not at all. Blocks."""
    beside = path.with_name(path.name + ".part")
    beside.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    beside.replace(path)


def read_lines(queue: str, path: Path) -> Archive:
    """Read and check a whole archive. Blocks.

    Raises:
        ArchiveInvalid: naming the first line that is wrong.
    """
    texts = path.read_text(encoding="utf-8", errors="replace").splitlines()
    lines = [_parse(queue, number, text) for number, text in enumerate(texts, 1)]
    if not lines or lines[0].get("format") != FORMAT or lines[0].get("version") != VERSION:
        raise ArchiveInvalid(queue, 1, f"expected the head of a {FORMAT} file of version {VERSION}")
    head, *messages = lines
    if not messages or messages[-1].get("end") != len(messages) - 1:
        raise ArchiveInvalid(queue, len(lines), "expected the end with the number of messages; the file was cut short")
    highest = 0
    for number, line in enumerate(messages[:-1], 2):
        _check(queue, number, line)
        if type(line["seq"]) is not int or line["seq"] <= highest:
            raise ArchiveInvalid(queue, number, f"seq: expected an int above {highest}; got {line['seq']!r}")
        highest = line["seq"]
    _check_head(queue, head, highest)
    return Archive(head["last_seq"], head["now"], tuple(messages[:-1]))


async def back_up(store: StoreEngine, environment: Environment, path: str | Path) -> None:
    """Copy a whole store, with all of its queues and journals, to a new file while it is in use (S2-045).

    The copy is of one moment and can be opened as a store.

    Raises:
        InvalidOption: if there is a file already.
        StoreUnavailable: if the store cannot be read.
    """
    target = Path(path)
    if await environment.in_thread(target.exists):
        raise InvalidOption(f"backup: expected a path without a file; {target} exists")

    def copy(connection: Connection) -> None:
        with closing(connect(target)) as copied:
            connection.backup(copied)

    await store.read(copy)


def _parse(queue: str, number: int, text: str) -> dict[str, Any]:
    try:
        line = json.loads(text)
    except ValueError as error:
        raise ArchiveInvalid(queue, number, f"is no JSON: {error}") from error
    if not isinstance(line, dict):
        raise ArchiveInvalid(queue, number, "expected an object")
    return line  # pyright: ignore[reportUnknownVariableType]  # objects of JSON have texts for keys


def _check_head(queue: str, head: dict[str, Any], highest: int) -> None:
    last, now = head.get("last_seq"), head.get("now")
    if type(last) is not int or last < highest:
        raise ArchiveInvalid(
            queue, 1, f"last_seq: expected an int >= {highest}, the highest number below; got {last!r}"
        )
    if type(now) not in (int, float):
        raise ArchiveInvalid(queue, 1, f"now: expected seconds on the queue's clock; got {now!r}")


def _check(queue: str, number: int, line: dict[str, Any]) -> None:
    missing = [name for name in (*_LOG, "body", "live", "dead") if name not in line]
    if missing:
        raise ArchiveInvalid(queue, number, f"has no {', '.join(missing)}")
    for name, columns in (("live", _LIVE), ("dead", _DEAD)):
        part = line[name]
        if part is not None and (not isinstance(part, dict) or set(part) != set(columns)):  # pyright: ignore[reportUnknownArgumentType]
            raise ArchiveInvalid(queue, number, f"{name}: expected the fields {', '.join(columns)}")
    try:
        line["body"] = base64.b64decode(line["body"], validate=True)
        found = checksum(line["seq"], line["id"], line["key"], line["headers"], line["body"])
    except (ValueError, TypeError, CodecError) as error:
        raise ArchiveInvalid(queue, number, f"its body cannot be read: {error}") from error
    if found != line["checksum"]:
        raise ArchiveInvalid(queue, number, "the checksum does not match: the bytes were changed")


def _rows(tx: Transaction, table: str, columns: Sequence[str]) -> dict[int, dict[str, Any]]:
    found = tx.execute(f"SELECT seq, {', '.join(columns)} FROM {table} WHERE queue_id = ?").fetchall()  # noqa: S608  # constants
    return {seq: dict(zip(columns, values, strict=True)) for seq, *values in found}


def _insert(tx: Transaction, table: str, values: dict[str, Any]) -> None:
    places = ", ".join("?" * len(values))
    tx.connection.execute(
        f"INSERT INTO {table} ({', '.join(values)}) VALUES ({places})",  # noqa: S608  # constants
        tuple(values.values()),
    )


def _shift(values: dict[str, Any], names: Sequence[str], seconds: float) -> None:
    for name in names:
        if values[name] is not None:
            values[name] += seconds


def _state(tx: Transaction, entry: dict[str, Any], key: str | None) -> State:
    if key is not None and tx.options.ordering == "partitioned":
        return State.BLOCKED
    if entry["due"] <= (tx.wall if entry["calendar"] else tx.now):
        return State.READY
    return State.SCHEDULED if entry["calendar"] else State.DELAYED


def _line_up(tx: Transaction) -> None:
    keys = tx.execute("SELECT DISTINCT key FROM queue_entries WHERE queue_id = ? AND state = 4").fetchall()
    for (key,) in keys:
        unblock(tx, key)

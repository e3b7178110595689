"""A process that edits files is killed again and again; after each kill, checks that nothing is torn or went back.

Arguments: the kind of backend, a directory to work in, and how often to kill.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from sapwood.actors import RealEnvironment
from sapwood.files import BufferedBackend, DirectoryBackend, FileTree, Mounts, Saving, SQLiteBackend
from sapwood.persistence import open_store

KIND, FOLDER, KILLS = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
ENVIRONMENT = RealEnvironment()
NAMES = ["a.md", "sub/b.md", "sub/deep/c.md", "other/d.md"]
MOVED = ["one/f.md", "two/f.md"]


@asynccontextmanager
async def opened() -> AsyncGenerator[FileTree]:
    async with open_store(FOLDER / "store.db", ENVIRONMENT) as store:
        directory = DirectoryBackend(FOLDER / "root", ENVIRONMENT)
        match KIND:
            case "sqlite":
                tree = FileTree(SQLiteBackend(store, ("user", 1), ENVIRONMENT), ENVIRONMENT)
            case "directory":
                tree = FileTree(directory, ENVIRONMENT)
            case "buffered":
                tree = FileTree(BufferedBackend(directory, ENVIRONMENT, Saving(debounce=0.02)), ENVIRONMENT)
            case _:
                sqlite = SQLiteBackend(store, ("user", 1), ENVIRONMENT)
                tree = FileTree(Mounts({"one": directory, "two": sqlite}), ENVIRONMENT)
        async with tree:
            yield tree


def content(number: int) -> str:
    """Return a text that shows whether it is whole."""
    return f"{number}\n" * 4000


def whole(data: bytes) -> int:
    """Return the number that a text was made from, after a look whether it is whole."""
    lines = data.decode().splitlines()
    assert len(lines) == 4000, f"a file of {len(lines)} lines"
    assert len(set(lines)) == 1, "a file of two writes"
    return int(lines[0])


async def edit_for_ever(seed: int, pipe: int) -> None:
    rng = random.Random(seed)
    async with opened() as tree, trio.open_nursery() as nursery:
        nursery.start_soon(tree.keep_saving)
        number = seed
        while True:
            number += 1
            there = [entry.path for entry in (await tree.ls()).entries]
            if KIND == "mounted":
                await move_to_and_fro(tree, there, number, pipe)
                continue
            path = rng.choice(NAMES)
            match rng.choice(["write", "write", "write", "move", "delete"]):
                case "move" if path in there:
                    target = next((name for name in NAMES if name not in there), None)
                    if target is not None:
                        (moved,) = (await tree.move(path, target)).entries
                        tell(pipe, f"moved {path} {target} {moved.version}")
                case "delete" if path in there:
                    await tree.delete(path)
                    tell(pipe, f"gone {path}")
                case _:
                    entry = await tree.write(path, content(number))
                    tell(pipe, f"wrote {path} {entry.version} {number}")


async def move_to_and_fro(tree: FileTree, there: Sequence[str], number: int, pipe: int) -> None:
    if not there:
        await tree.write(MOVED[0], content(number))
        tell(pipe, "made")
    elif len(there) == 2:
        await tree.delete(there[0])
    else:
        await tree.move(there[0], MOVED[MOVED.index(there[0]) - 1])
        tell(pipe, "moved")


def tell(pipe: int, line: str) -> None:
    os.write(pipe, f"{line}\n".encode())


class Known:
    """What the processes said they did."""

    def __init__(self) -> None:
        self.versions: dict[int, tuple[str, int]] = {}
        self.highest = 0
        self.written: dict[str, int] = {}
        self.lines = 0
        self.made = False

    def take(self, line: str) -> None:
        self.lines += 1
        match line.split():
            case ["wrote", path, version, number]:
                known = self.versions.setdefault(int(version), (path, int(number)))
                assert known == (path, int(number)) or known[0] != path, f"version {version} of {path} shown twice"
                self.highest = max(self.highest, int(version))
                self.written[path] = int(number)
            case ["moved", path, target, version]:
                self.highest = max(self.highest, int(version))
                self.written[target] = self.written.pop(path, 0)
            case ["gone", path]:
                self.written.pop(path, None)
            case _:
                self.made = True


async def check(known: Known) -> None:
    async with opened() as tree:
        entries = (await tree.ls()).entries
        assert (await tree.statistics()).skipped == ()
        numbers = {str(entry.path): whole((await tree.read_bytes(entry.path)).data) for entry in entries}
        if KIND == "mounted":
            assert numbers or not known.made, "a moved file is under neither name"
            assert len(set(numbers.values())) <= 1
            return
        if KIND != "buffered":
            # At most one change was made that nobody was told of.
            differing = {
                path for path in numbers.keys() | known.written if numbers.get(path) != known.written.get(path)
            }
            assert len(differing) <= 2, differing
        for path in numbers:
            # No version comes back: neither one that was shown and saved, nor one that was shown and lost.
            entry = await tree.write(path, content(0))
            known.take(f"wrote {path} {entry.version} 0")
        for path in numbers:
            await tree.delete(path)
        entry = await tree.write("anew", content(1))
        assert entry.version > known.highest, f"{entry.version} after {known.highest}"
        await tree.delete("anew")
        known.highest = max(known.highest, entry.version)
        known.written.clear()


def kill_once(seed: int, rng: random.Random, known: Known) -> None:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        trio.run(edit_for_ever, seed, writing)
        os._exit(1)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        for _ in range(rng.choice([1, 2, 5, 9])):
            line = pipe.readline()
            assert line, "the process ended by itself"
            known.take(line.decode())
        for _ in range(rng.randint(0, 300_000)):
            pass  # up to some milliseconds more
        os.kill(child, signal.SIGKILL)
        assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
        for line in pipe:
            if line.endswith(b"\n"):
                known.take(line.decode())


def main() -> None:
    (FOLDER / "root").mkdir()
    rng, known = random.Random(11), Known()
    for number in range(KILLS):
        kill_once((number + 1) * 1_000_000, rng, known)
        trio.run(check, known)
    sys.stdout.write(f"held after {KILLS} kills and {known.lines} changes\n")


main()

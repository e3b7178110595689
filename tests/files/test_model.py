"""Random calls on a tree over each backend, against a dictionary that does the same."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sapwood.actors import SimulatedEnvironment
from sapwood.errors import (
    EditMismatch,
    FileError,
    FileExists,
    FileMissing,
    InvalidOption,
    InvalidPath,
    PathDenied,
    QuotaExceeded,
    VersionConflict,
)
from sapwood.files import DirectoryBackend, FileBackend, FileTree, Glob, MemoryBackend, Quota, SQLiteBackend
from sapwood.persistence import open_store

LIMITS = Quota(max_file_bytes=12, max_files=4, max_total_bytes=30)
DENIED = "secret"

PATHS = st.sampled_from(
    ["a", "A", "a/b", "a/B", "a/b/c", "d/e", "D/f", "\xe9", "e\u0301", "/d/e", "Secret", "d/secret/x"]
)
TEXTS = st.text("ab\n", max_size=14)
VERSIONS = st.none() | st.integers(0, 6)

Call: TypeAlias = tuple[str, dict[str, Any]]
CALLS: st.SearchStrategy[Call] = st.one_of(
    st.tuples(st.just("write"), st.fixed_dictionaries({"path": PATHS, "content": TEXTS, "expected_version": VERSIONS})),
    st.tuples(st.just("create"), st.fixed_dictionaries({"path": PATHS, "content": TEXTS})),
    st.tuples(
        st.just("edit"),
        st.fixed_dictionaries(
            {
                "path": PATHS,
                "old": st.text("ab\n", max_size=2),
                "new": st.text("ab\n", max_size=3),
                "replace_all": st.booleans(),
                "expected_version": VERSIONS,
            }
        ),
    ),
    st.tuples(st.just("delete"), st.fixed_dictionaries({"path": PATHS, "expected_version": VERSIONS})),
    st.tuples(
        st.just("move"),
        st.fixed_dictionaries({"source": PATHS, "target": PATHS, "expected_version": VERSIONS}),
    ),
    st.tuples(
        st.just("insert_lines"),
        st.fixed_dictionaries(
            {
                "path": PATHS,
                "after": st.integers(0, 2),
                "content": st.text("ab\n", max_size=3),
                "expected_version": st.integers(1, 6),
            }
        ),
    ),
    st.tuples(st.just("reopen"), st.just({})),
)


@attrs.define
class Model:
    """What a tree must do, for names without special characters."""

    files: dict[str, tuple[int, str]] = attrs.field(factory=dict)
    floor: int = 0

    def call(self, name: str, **arguments: Any) -> type[Exception] | None:
        """Do what the call does; return the error it must raise."""
        if name == "insert_lines" and not arguments["content"]:
            return InvalidOption
        for each in ("path", "source", "target"):
            if each in arguments:
                path = arguments[each] = arguments[each].removeprefix("/").replace("e\u0301", "\xe9")
                if DENIED in path.casefold().split("/"):
                    return PathDenied
        expected: type[Exception] | None = getattr(self, name)(**arguments)
        return expected

    def move(self, source: str, target: str, expected_version: int | None) -> type[Exception] | None:
        if source != target and (target.startswith(f"{source}/") or source.startswith(f"{target}/")):
            return InvalidPath
        moving = {path: file for path, file in self.files.items() if path == source or path.startswith(f"{source}/")}
        if not moving:
            return VersionConflict if expected_version else FileMissing
        if expected_version is not None:
            if source not in moving:
                return InvalidOption
            if expected_version != moving[source][0]:
                return VersionConflict
        if source == target:
            return None
        if self._taken(source, target):
            return FileExists
        self.floor = max(self.floor, *(version for version, _ in moving.values()))
        for path, (_, text) in moving.items():
            del self.files[path]
            self.files[target + path[len(source) :]] = (self.floor + 1, text)
        return None

    def _taken(self, source: str, target: str) -> bool:
        if source.rpartition("/")[0] == target.rpartition("/")[0] and source.casefold() == target.casefold():
            return False
        return target in self.files or self._in_the_way(target)

    def insert_lines(self, path: str, after: int, content: str, expected_version: int) -> type[Exception] | None:
        version, text = self.files.get(path, (0, ""))
        if expected_version != version:
            return VersionConflict
        lines = text.splitlines(keepends=True)
        if after > len(lines):
            return InvalidOption
        if after and not lines[after - 1].endswith("\n"):
            lines[after - 1] += "\n"
        end = "" if content.endswith("\n") or after == len(lines) else "\n"
        return self.write(path, "".join([*lines[:after], content + end, *lines[after:]]))

    def write(self, path: str, content: str, expected_version: int | None = None) -> type[Exception] | None:
        version, old = self.files.get(path, (0, None))
        if old is None and self._in_the_way(path):
            return FileExists
        if self._over(path, content):
            return QuotaExceeded
        if expected_version is not None and expected_version != version:
            return VersionConflict if expected_version else FileExists
        self.files[path] = (max(version, self.floor) + 1, content)
        return None

    def create(self, path: str, content: str) -> type[Exception] | None:
        return self.write(path, content, 0)

    def edit(
        self, path: str, old: str, new: str, *, replace_all: bool, expected_version: int | None
    ) -> type[Exception] | None:
        version, text = self.files.get(path, (0, ""))
        if not version:
            return VersionConflict if expected_version else FileMissing
        if expected_version not in (None, version):
            return VersionConflict
        if not old or old == new:
            return InvalidOption
        starts = [at for at in range(len(text)) if text.startswith(old, at)]
        if not starts or (len(starts) > 1 and not replace_all):
            return EditMismatch
        return self.write(path, text.replace(old, new))

    def delete(self, path: str, expected_version: int | None) -> type[Exception] | None:
        version, _ = self.files.get(path, (0, ""))
        if not version and not expected_version:
            return FileMissing
        if expected_version not in (None, version):
            return VersionConflict
        del self.files[path]
        self.floor = max(self.floor, version)
        return None

    def _in_the_way(self, path: str) -> bool:
        for other in self.files:
            mine, theirs = path.split("/"), other.split("/")
            for depth in range(1, min(len(mine), len(theirs)) + 1):
                if [part.casefold() for part in mine[:depth]] != [part.casefold() for part in theirs[:depth]]:
                    break
                if depth in (len(mine), len(theirs)) or mine[:depth] != theirs[:depth]:
                    return True
        return False

    def _over(self, path: str, content: str) -> bool:
        old = len(self.files.get(path, (0, ""))[1].encode())
        new = len(content.encode())
        total = sum(len(text.encode()) for _, text in self.files.values()) - old + new
        return (
            new > max(LIMITS.max_file_bytes, old)
            or (path not in self.files and len(self.files) >= LIMITS.max_files)
            or (total > LIMITS.max_total_bytes and new > old)
        )


@asynccontextmanager
async def made(kind: str, folder: Path, environment: SimulatedEnvironment) -> AsyncGenerator[FileBackend]:
    match kind:
        case "memory":
            yield MemoryBackend(environment)
        case "sqlite":
            async with open_store(":memory:", environment) as store:
                yield SQLiteBackend(store, ("user", 1), environment)
        case _:
            yield DirectoryBackend(folder, environment)


async def check(tree: FileTree, model: Model) -> None:
    listed = (await tree.ls()).entries
    assert {entry.path: entry.version for entry in listed} == {
        path: version for path, (version, _) in model.files.items()
    }
    for path, (version, text) in model.files.items():
        read = await tree.read(path)
        assert ("\n".join(read.lines) + "\n" * read.ends_with_newline, read.version) == (text, version)
    statistics = await tree.statistics()
    assert statistics.total_bytes == sum(len(text.encode()) for _, text in model.files.values())
    assert statistics.skipped == ()


@pytest.mark.row("BR-37", "BR-38")
@pytest.mark.parametrize("kind", ["memory", "sqlite", "directory"])
@settings(max_examples=60)
@given(calls=st.lists(CALLS, max_size=25))
async def test_a_tree_does_what_a_dictionary_does(kind: str, calls: list[Call]) -> None:
    environment, model = SimulatedEnvironment(), Model()
    with tempfile.TemporaryDirectory() as folder:
        async with made(kind, Path(folder), environment) as backend:
            tree = FileTree(backend, environment, limits=LIMITS, deny=[DENIED])
            await tree.open()
            for name, arguments in calls:
                if name == "reopen":
                    await tree.close()
                    await tree.open()
                    continue
                raised: type[Exception] | None = None
                try:
                    await getattr(tree, name)(**arguments)
                except (FileError, InvalidOption) as error:
                    raised = type(error)
                assert raised == model.call(name, **arguments), (name, arguments)
                await check(tree, model)
            await tree.close()


@given(
    st.lists(st.sampled_from(["a", "b", "c.md"]), min_size=1, max_size=3),
    st.sampled_from(["**", "*/b", "**/*.md", "a"]),
)
async def test_ls_lists_exactly_what_its_glob_matches(parts: list[str], pattern: str) -> None:
    environment = SimulatedEnvironment()
    tree = FileTree(MemoryBackend(environment), environment)
    await tree.open()
    path = "/".join(parts)
    await tree.write(path, "")
    assert [entry.path for entry in (await tree.ls(pattern)).entries] == [path] * Glob(pattern).matches(path)

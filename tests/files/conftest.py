"""Every backend, open and empty."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sapwood.actors import RealEnvironment
from sapwood.files import (
    BufferedBackend,
    DirectoryBackend,
    FileBackend,
    FileTree,
    MemoryBackend,
    Mounts,
    SQLiteBackend,
)
from sapwood.persistence import open_store


@pytest.fixture
def environment() -> RealEnvironment:
    return RealEnvironment()


@pytest.fixture(params=["memory", "sqlite", "directory", "buffered", "mounted"])
async def backend(
    request: pytest.FixtureRequest, tmp_path: Path, environment: RealEnvironment
) -> AsyncIterator[FileBackend]:
    match request.param:
        case "memory":
            yield MemoryBackend(environment)
        case "sqlite":
            async with open_store(tmp_path / "store.db", environment) as store:
                made = SQLiteBackend(store, ("user", 1), environment)
                await made.open()
                yield made
        case "buffered":
            yield BufferedBackend(MemoryBackend(environment), environment)
        case "mounted":
            yield Mounts({"": MemoryBackend(environment), "elsewhere": MemoryBackend(environment)})
        case _:
            root = tmp_path / "root"
            root.mkdir()
            directory = DirectoryBackend(root, environment)
            await directory.open()
            yield directory
            await directory.close()


@pytest.fixture
async def tree(backend: FileBackend, environment: RealEnvironment) -> FileTree:
    made = FileTree(backend, environment)
    await made.open()
    return made

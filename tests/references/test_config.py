"""Configurations, and the stores that they open."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from sapwood.actors import RealEnvironment, SimulatedEnvironment
from sapwood.errors import InvalidOption, MissingExtra, ReferenceUnavailable
from sapwood.references import (
    MemoryConfig,
    MemoryReferenceStore,
    RedisConfig,
    ReferenceConfig,
    ReferenceStore,
    SQLiteConfig,
    SQLiteReferenceStore,
    load_config,
    open_reference_store,
    parse_config,
)

WHOLE = """
communication:
  backend: sqlite
  sqlite:
    path: ./elsewhere/references.db
    gc_interval: 60  # 1 minute
    cache_size: 65536
server:
  port: 8080
"""


@pytest.mark.row("S0-030")
@pytest.mark.parametrize(
    "given", [{}, {"communication": None}, {"communication": {}}, {"communication": {"sqlite": {}}}]
)
def test_what_is_not_given_has_its_default(given: dict[str, Any]) -> None:
    config = parse_config(given)

    assert config == ReferenceConfig()
    assert (config.backend, config.sqlite.path, config.sqlite.gc_interval) == (
        "sqlite",
        "./data/references.db",
        3600,
    )


@pytest.mark.row("S0-029")
def test_a_yaml_file_sets_backend_path_interval_and_knobs(tmp_path: Path) -> None:
    path = tmp_path / "server.yaml"
    path.write_text(WHOLE, encoding="utf-8")

    assert load_config(path) == ReferenceConfig(
        backend="sqlite",
        sqlite=SQLiteConfig(path="./elsewhere/references.db", gc_interval=60, cache_size=65536),
    )


@pytest.mark.row("S0-029")
def test_every_backend_has_a_section_of_its_own() -> None:
    given = {
        "backend": "memory",
        "memory": {"gc_interval": 5, "ttl": None, "max_idle": 3.5, "max_bytes": 10, "max_references": 2},
        "redis": {"url": "redis://host:1", "prefix": "p:", "timeout": 2},
    }
    assert parse_config({"communication": given}) == ReferenceConfig(
        backend="memory",
        memory=MemoryConfig(gc_interval=5, ttl=None, max_idle=3.5, max_bytes=10, max_references=2),
        redis=RedisConfig(url="redis://host:1", prefix="p:", timeout=2),
    )


@pytest.mark.row("S0-031", "S0-033")
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"backend": "sqllite"}, r"communication.backend: expected one of memory, sqlite, redis; .* mean 'sqlite'\?"),
        ({"backend": "postgres"}, "communication.backend: expected one of memory, sqlite, redis; got 'postgres'"),
        ({"backend": 5}, "communication.backend"),
        ({"bakend": "memory"}, r"communication: expected one of .*; got 'bakend'; did you mean 'backend'\?"),
        ({"sqlite": {"pth": "x"}}, r"communication.sqlite: .* did you mean 'path'\?"),
        ({"sqlite": {"gc_intervall": 1}}, r"did you mean 'gc_interval'\?"),
        ({"sqlite": "x.db"}, "communication.sqlite: expected a mapping"),
        ({"sqlite": {"path": 7}}, "communication.sqlite.path: expected a text"),
        ({"sqlite": {"path": ""}}, "communication.sqlite.path: expected a text"),
        ({"sqlite": {"gc_interval": "1h"}}, "communication.sqlite.gc_interval: expected a number or null"),
        ({"sqlite": {"gc_interval": 0}}, "communication.sqlite.gc_interval: expected None or seconds > 0"),
        ({"memory": {"ttl": -1}}, "communication.memory.ttl: expected None or seconds > 0"),
        ({"memory": {"max_bytes": 1.5}}, "communication.memory.max_bytes"),
        ({"redis": {"timeout": True}}, "communication.redis.timeout: expected a number"),
        ([], "communication: expected a mapping"),
    ],
    ids=str,
)
def test_what_cannot_be_right_is_refused_with_its_place_and_the_nearest_name(given: Any, message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        parse_config({"communication": given})


@pytest.mark.row("S0-031")
def test_a_configuration_without_the_section_is_refused_instead_of_taken_for_defaults() -> None:
    with pytest.raises(InvalidOption, match="expected a section 'communication'; got 'comunication'"):
        parse_config({"comunication": {"backend": "memory"}})


@pytest.mark.row("S0-031")
def test_an_unknown_backend_is_refused_also_in_code() -> None:
    with pytest.raises(InvalidOption, match=r"got 'memry'; did you mean 'memory'\?"):
        ReferenceConfig(backend="memry")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("communication: [", "is no YAML"),
        ("communication: {backend: a, backend: b}", "is no YAML"),
        (None, "cannot be"),
    ],
    ids=["broken", "twice", "no file"],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: str | None, problem: str) -> None:
    path = tmp_path / "server.yaml"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    with pytest.raises(InvalidOption, match=rf"server\.yaml: {problem}"):
        load_config(path)


def test_an_empty_file_means_the_defaults(tmp_path: Path) -> None:
    path = tmp_path / "server.yaml"
    path.write_text("# nothing yet\n", encoding="utf-8")
    assert load_config(path) == ReferenceConfig()


def test_without_the_package_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "ruamel", None)
    monkeypatch.setitem(sys.modules, "ruamel.yaml", None)
    with pytest.raises(MissingExtra, match=r"sapwood\[yaml\]"):
        load_config(tmp_path / "server.yaml")


@pytest.mark.row("S0-030", "S0-031")
async def test_the_default_store_is_a_file_below_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with open_reference_store(environment=RealEnvironment()) as store:
        assert isinstance(store, SQLiteReferenceStore)
        await store.store(b"data")
    assert (tmp_path / "data" / "references.db").is_file()


@pytest.mark.row("S0-018", "S0-031")
async def test_the_store_of_a_configuration_is_closed_when_the_block_is_left() -> None:
    config = parse_config({"communication": {"backend": "memory", "memory": {"max_references": 1}}})
    opened: list[ReferenceStore] = []

    async def use() -> None:
        async with open_reference_store(config, environment=SimulatedEnvironment()) as store:
            opened.append(store)
            assert isinstance(store, MemoryReferenceStore)
            await store.store(b"1")
            second = await store.store(b"2")
            assert await store.list() == (second,)
            raise KeyError("from the block")

    with pytest.raises(KeyError, match="from the block"):
        await use()
    with pytest.raises(ReferenceUnavailable):
        await opened[0].list()


async def test_a_directory_that_cannot_be_made_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    config = ReferenceConfig(sqlite=SQLiteConfig(path=str(tmp_path / "file" / "references.db")))
    with pytest.raises(ReferenceUnavailable):
        async with open_reference_store(config, environment=RealEnvironment()):
            pass

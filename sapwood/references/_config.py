"""Configuration of a reference store, from a dict or a YAML file."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import attrs

from sapwood.errors import InvalidOption, MissingExtra
from sapwood.references._retention import Retention, check_seconds

T = TypeVar("T")

SECTION: Final = "communication"


@attrs.frozen(kw_only=True)
class MemoryConfig:
    """Options of `MemoryReferenceStore`; `gc_interval` is seconds between collections, None for none."""

    gc_interval: float | None = 300.0
    ttl: float | None = 600.0
    max_idle: float | None = None
    max_bytes: int | None = None
    max_references: int | None = None


@attrs.frozen(kw_only=True)
class SQLiteConfig:
    """Options of `SQLiteReferenceStore` and of its store (S0-045).

    Attributes:
        path: Path of the file; missing directories are made. One on a RAM disk is faster, and lost with it.
        gc_interval: Seconds between collections, None for none.
        ttl: See `Retention`.
        max_idle: See `Retention`.
        max_bytes: See `Retention`.
        max_references: See `Retention`.
        cache_size: KiB of page cache for each connection; None for SQLite's own default.
        synchronous: `FULL`, or `NORMAL`: faster, but a power loss may take the last commits.
        busy_timeout: Seconds to wait for another process.
        wal_limit: Bytes above which the write-ahead log is emptied.
        readers: Read operations at once.
    """

    path: str = "./data/references.db"
    gc_interval: float | None = 3600.0
    ttl: float | None = 7 * 86_400.0
    max_idle: float | None = None
    max_bytes: int | None = None
    max_references: int | None = None
    cache_size: int | None = None
    synchronous: str = "FULL"
    busy_timeout: float = 5.0
    wal_limit: int = 16 * 1024 * 1024
    readers: int = 4


@attrs.frozen(kw_only=True)
class RedisConfig:
    """Options of `RedisReferenceStore`; `gc_interval` is seconds between collections, None for none."""

    url: str = "redis://localhost:6379/0"
    prefix: str = "sapwood:references:"
    gc_interval: float | None = 3600.0
    ttl: float | None = 86_400.0
    max_idle: float | None = None
    max_bytes: int | None = None
    max_references: int | None = None
    timeout: float = 5.0


@attrs.frozen(kw_only=True)
class ReferenceConfig:
    """Which store is opened, and how; options of the other backends are checked and not used (S0-029, S0-030).

    Attributes:
        backend: `memory`, `sqlite` or `redis`.
        memory: Options of the store in memory.
        sqlite: Options of the store in a file.
        redis: Options of the store in a server.
    """

    backend: str = "sqlite"
    memory: MemoryConfig = MemoryConfig()
    sqlite: SQLiteConfig = SQLiteConfig()
    redis: RedisConfig = RedisConfig()

    def __attrs_post_init__(self) -> None:
        if self.backend not in BACKENDS:
            raise InvalidOption(f"{SECTION}.backend: {_unknown(self.backend, BACKENDS)}")


BACKENDS: Final[dict[str, type[Any]]] = {"memory": MemoryConfig, "sqlite": SQLiteConfig, "redis": RedisConfig}


def parse_config(config: Mapping[str, Any]) -> ReferenceConfig:
    """Read the section `communication` of a server's configuration; other sections are other people's.

    Raises:
        InvalidOption: if there are other sections and not this one, or if a key, a backend or a value in it
            cannot be right. It names the place, and the nearest key there is (S0-031).
    """
    given = _mapping("configuration", config)
    if given and SECTION not in given:
        raise InvalidOption(f"configuration: expected a section {SECTION!r}; got {', '.join(map(repr, given))}")
    section = _mapping(SECTION, given.get(SECTION))
    _refuse_unknown(SECTION, section, ("backend", *BACKENDS))
    parts = {
        name: _options(f"{SECTION}.{name}", section.get(name), cls) for name, cls in BACKENDS.items() if name in section
    }
    return ReferenceConfig(**{**section, **parts})


def load_config(path: str | Path) -> ReferenceConfig:
    """Read a YAML 1.2 file; see `parse_config`. Needs the extra `yaml`. Blocks.

    Raises:
        InvalidOption: if the file cannot be read, is no YAML, or as `parse_config` says.
        MissingExtra: if ruamel.yaml is not installed.
    """
    try:
        from ruamel.yaml import YAML
        from ruamel.yaml.error import YAMLError
    except ImportError:
        raise MissingExtra("a configuration in YAML", "ruamel.yaml", "yaml") from None
    try:
        yaml: Any = YAML(typ="safe", pure=True)
        loaded: Any = yaml.load(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidOption(f"configuration {path}: cannot be read: {error}") from error
    except YAMLError as error:
        raise InvalidOption(f"configuration {path}: is no YAML: {error}") from error
    return parse_config({} if loaded is None else loaded)


def _options(place: str, given: object, cls: type[T]) -> T:
    options = _mapping(place, given)
    fields = {field.name: field for field in attrs.fields(cast("Any", cls))}
    _refuse_unknown(place, options, tuple(fields))
    for name, value in options.items():
        _check(f"{place}.{name}", value, fields[name].default)
    made = cls(**options)
    limits = {field.name: options.get(field.name) for field in attrs.fields(Retention)}
    try:
        Retention(**limits)
        check_seconds("gc_interval", options.get("gc_interval"))
    except InvalidOption as error:
        raise InvalidOption(f"{place}.{error}") from None
    return made


def _check(place: str, value: object, default: object) -> None:
    """Hold the type of a value against that of the default; further bounds are up to whoever takes it."""
    if isinstance(default, str):
        if not isinstance(value, str) or not value:
            raise InvalidOption(f"{place}: expected a text; got {value!r}")
    elif default is None or place.endswith((".ttl", ".gc_interval")):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise InvalidOption(f"{place}: expected a number or null; got {value!r}")
    elif isinstance(value, bool) or not isinstance(value, int if isinstance(default, int) else int | float):
        raise InvalidOption(f"{place}: expected a number such as {default!r}; got {value!r}")


def _mapping(place: str, given: object) -> dict[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InvalidOption(f"{place}: expected a mapping of options; got {given!r:.80}")
    return dict(cast("Mapping[str, Any]", given))


def _refuse_unknown(place: str, given: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for name in given:
        if name not in known:
            raise InvalidOption(f"{place}: {_unknown(name, known)}")


def _unknown(name: object, known: Mapping[str, Any] | tuple[str, ...]) -> str:
    near = get_close_matches(str(name), list(known), n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"expected one of {', '.join(known)}; got {name!r}{hint}"

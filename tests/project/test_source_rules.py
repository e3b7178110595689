"""The rules of the house that no linter knows."""

from __future__ import annotations

from pathlib import Path

import pytest
from source_rules import (
    PACKAGE,
    ROOT,
    Use,
    foreign_private_imports,
    names_of_tests,
    python_files,
    strangers_in_init,
    uses_past_the_environment,
)

MAX_LINES = 500
DOOR = PACKAGE / "actors" / "_environment.py"


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def test_no_module_is_longer_than_500_lines() -> None:
    lengths = {relative(path): len(path.read_text(encoding="utf-8").splitlines()) for path in python_files(PACKAGE)}

    assert {path: length for path, length in lengths.items() if length > MAX_LINES} == {}


def test_time_randomness_ids_threads_and_exit_are_reached_only_through_the_environment() -> None:
    uses = {
        relative(path): found
        for path in python_files(PACKAGE)
        if path != DOOR and (found := uses_past_the_environment(path.read_text(encoding="utf-8")))
    }

    assert uses == {}, "take an Environment and ask it (sapwood/actors/_environment.py)"
    assert uses_past_the_environment(DOOR.read_text(encoding="utf-8")) != []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import time\ntime.time()", [Use(2, "time.time")]),
        ("import time as clock\nnow = clock.monotonic", [Use(2, "time.monotonic")]),
        ("from time import perf_counter as tick\ntick()", [Use(2, "time.perf_counter")]),
        ("import random\nrandom.choice([1])", [Use(2, "random.choice")]),
        ("def f():\n    from uuid import uuid4\n    return uuid4()", [Use(3, "uuid.uuid4")]),
        ("import secrets\nsecrets.token_hex()", [Use(2, "secrets.token_hex")]),
        ("import os\nos._exit(1)", [Use(2, "os._exit")]),
        ("import trio\nawait trio.to_thread.run_sync(f)", [Use(2, "trio.to_thread.run_sync")]),
        ("from trio import to_thread\nto_thread.run_sync", [Use(2, "trio.to_thread.run_sync")]),
        ("import datetime\ndatetime.datetime.now(datetime.UTC)", [Use(2, "datetime.datetime.now")]),
        ("from datetime import datetime\ndatetime.now()", [Use(2, "datetime.datetime.now")]),
        ("import random\ndef f(r=random.Random(1)): ...", [Use(2, "random.Random")]),
    ],
)
def test_a_use_past_the_environment_is_found(source: str, expected: list[Use]) -> None:
    assert uses_past_the_environment(source) == expected


@pytest.mark.parametrize(
    "source",
    [
        "import random\ndef f(source: random.Random) -> random.Random: return source",
        "import random\nsource: random.Random",
        "from random import Random\ndef f(source: Random) -> Random: return source",
        "environment.random.choice([1])",
        "import time\ntime.strftime('%Y')",
        "import trio\ntrio.current_time()",
        "self.time.time()",
    ],
)
def test_a_type_or_a_namesake_is_no_use_past_the_environment(source: str) -> None:
    assert uses_past_the_environment(source) == []


def test_a_private_name_is_imported_only_inside_its_own_package() -> None:
    foreign = {
        relative(path): found
        for path in python_files(PACKAGE)
        if (found := foreign_private_imports(module_name(path), path.read_text(encoding="utf-8")))
    }
    assert foreign == {}, "import the public name from the package itself"


@pytest.mark.parametrize(
    ("module", "source", "expected"),
    [
        ("sapwood.files._memory", "from sapwood.actors._cell import Cell", ["sapwood.actors._cell.Cell"]),
        ("sapwood.files._memory", "from sapwood.actors import _cell", ["sapwood.actors._cell"]),
        ("sapwood._runtime", "from sapwood.actors._cell import Cell", ["sapwood.actors._cell.Cell"]),
        ("sapwood.actors._ref", "from sapwood.actors._cell import Cell, _helper", []),
        ("sapwood.files._memory", "from sapwood.actors import Ref", []),
        ("sapwood.actors.__init__", "from sapwood._public import publish as _publish", []),
        ("sapwood.conversation.journal._events", "from sapwood.conversation._messages import Message", []),
    ],
)
def test_an_import_of_what_is_private_to_another_package_is_found(
    module: str, source: str, expected: list[str]
) -> None:
    assert foreign_private_imports(module, source) == expected


def test_the_name_of_every_test_is_a_sentence_of_at_least_four_words() -> None:
    short = {
        f"{relative(path)}::{name}"
        for path in python_files(ROOT / "tests")
        if path.name.startswith("test_")
        for name in names_of_tests(path.read_text(encoding="utf-8"))
        if len(name.removeprefix("test_").strip("_").split("_")) < 4
    }
    assert short == set()


def test_a_statement_in_an_init_that_is_no_re_export_is_found() -> None:
    init = '"""A package."""\nfrom a import X as X\n__version__ = "1"\n_publish(globals())\nCACHE = {}\nprint(1)'

    assert strangers_in_init(init) == ["CACHE = {}", "print(1)"]

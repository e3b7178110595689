"""The files around the code agree with each other."""

from __future__ import annotations

import re
import sys
import tomllib
from importlib.metadata import packages_distributions

import pytest
from source_rules import PACKAGE, ROOT, imported_modules, python_files

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def pins(name: str) -> dict[str, str]:
    lines = (ROOT / "requirements" / name).read_text(encoding="utf-8").splitlines()
    wanted = [line for line in lines if line and not line.startswith(("#", "-r "))]
    matches = {line: re.fullmatch(r"([A-Za-z0-9_.-]+)==([0-9][A-Za-z0-9.]*)", line) for line in wanted}
    assert [line for line, match in matches.items() if match is None] == [], f"requirements/{name} pins exactly"
    return {normal(match[1]): match[2] for match in matches.values() if match}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def names(requirements: list[str]) -> set[str]:
    return {normal(re.split(r"[\[<>=!~; ]", requirement)[0]) for requirement in requirements}


def test_the_changelog_has_an_entry_for_the_current_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^## \[?v?([0-9][^\]\s]*)\]?.*\n((?:(?!## ).*\n?)*)", text, re.MULTILINE))

    assert sections.get(PROJECT["version"], "").strip(), f"CHANGELOG.md needs `## {PROJECT['version']}` with an entry"


def test_the_readme_names_the_two_commands_and_the_licence_is_there() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")

    assert "make run" in readme
    assert "make test" in readme
    assert "Apache License" in (ROOT / "LICENSE").read_text(encoding="utf-8")


def test_every_library_that_the_code_imports_is_declared() -> None:
    declared = names(PROJECT["dependencies"]).union(*map(names, PROJECT["optional-dependencies"].values()))
    distributions = packages_distributions()
    undeclared = {
        module
        for path in python_files(PACKAGE)
        for module in imported_modules(path.read_text(encoding="utf-8"))
        if module not in sys.stdlib_module_names | {"sapwood"}
        and declared.isdisjoint(map(normal, distributions.get(module, [])))
    }
    assert undeclared == set(), "declare it in pyproject.toml and pin it in requirements/"


def test_what_make_run_needs_is_pinned_for_make_run() -> None:
    wanted = names(PROJECT["dependencies"]) | names(PROJECT["optional-dependencies"]["cli"])

    assert wanted - set(pins("run.txt")) == set()


@pytest.mark.parametrize("extra", sorted(set(PROJECT["optional-dependencies"]) - {"all", "cli"}))
def test_the_libraries_of_an_extra_are_pinned_for_the_tests(extra: str) -> None:
    pinned = set(pins("run.txt")) | set(pins("dev.txt"))
    assert names(PROJECT["optional-dependencies"][extra]) - pinned == set()


def test_no_library_is_pinned_in_two_places() -> None:
    assert set(pins("run.txt")) & set(pins("dev.txt")) == set()


def test_the_extra_all_holds_every_other_extra() -> None:
    extras = PROJECT["optional-dependencies"]
    (everything,) = extras["all"]

    assert everything == f"sapwood[{','.join(sorted(set(extras) - {'all'}))}]"

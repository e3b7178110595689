"""Mutation testing: which changes are made, and that what tests notice and do not notice is told apart."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from mutant_sites import Mutant, mutants_of
from rows import ROOT

PROGRAM = ROOT / "tests" / "plugins" / "mutants.py"

CONFIGURATION = """
[tool.pytest.ini_options]
addopts = ["--import-mode=importlib"]
"""
MODULE = '''
"""A toy."""

from typing import cast

LIMIT = 3


class Toy:
    def __repr__(self) -> str:
        return "<" + "Toy" + ">"

    @property
    def size(self) -> int:
        """Return the size."""
        return cast("int", LIMIT)


def larger(a: int, b: int) -> int:
    if a > b:
        return a
    return b


def countdown(number: int) -> int:
    while number:
        number -= 1
    return number


def untested() -> int:
    return 17
'''
TESTS = """
from toy.thing import LIMIT, Toy, countdown, larger

def test_larger():
    assert larger(1, 2) == larger(2, 1) == 2

def test_size():
    assert Toy().size == 3

def test_countdown():
    assert countdown(1) == 0
"""
SAME = """
[[equivalent]]
file = "toy/thing.py"
where = "larger"
code = "if a > b:"
change = "a > b → a >= b"
reason = "of two equal numbers either is the larger one"
"""


def changes(source: str) -> list[str]:
    return [mutant.change for mutant in mutants_of(ast.parse(source), "module.py")]


class TestSites:
    @pytest.mark.parametrize(
        ("source", "expected"),
        [
            ("x = a < b", ["a < b → a <= b"]),
            ("x = a and not b", ["a and (not b) → a or not b", "not b → b"]),
            ("x = a + 1", ["a + 1 → a - 1", "1 → 2"]),
            ("x = min(a, True)", ["min(a, True) → max(a, True)", "True → False"]),
            ("x = 'text'", ["'text' → 'text!'"]),
            ("f(a)", ["f(a) → pass"]),
            ("a.b = c", ["a.b = c → pass"]),
            ("a += b", ["a += b → pass", "a += b → a -= b"]),
            ("x = [y for y in z if y]", ["for y in z if y → for y in z if not y"]),
            ("def f():\n    return a", ["return a → return None"]),
            ("def f():\n    return True", ["True → False"]),
            ("def f(a=1): ...", ["1 → 2"]),
            ("if a:\n    x = b", ["if a: x = b → if not a: x = b"]),
            ("if a is b:\n    x = b", ["a is b → a is not b"]),
            (
                "try:\n    x = a\nexcept (B, C):\n    x = d",
                [
                    "except (B, C): x = d → except (B, C): raise",
                    "except (B, C): x = d → except (C,): x = d",
                    "except (B, C): x = d → except (B,): x = d",
                ],
            ),
        ],
    )
    def test_what_can_be_wrong_is_changed(self, source: str, expected: list[str]) -> None:
        assert changes(source) == expected

    @pytest.mark.parametrize(
        "source",
        [
            '"""Text."""',
            "x: TypeAlias = A | B",
            'T = TypeVar("T", bound="A")',
            'x = cast("A", b)',
            'def f(a: "A" = b) -> "B": ...',
            "class P(Protocol):\n    def f(self) -> int:\n        return 1",
            "assert a > b, 'text'",
            "x = f'{a + 1}'",
            "class A:\n    def __repr__(self):\n        return 'A' + b",
            "if TYPE_CHECKING:\n    from a import b",
            "@decorate('name', version=1)\nclass A: ...",
        ],
    )
    def test_what_no_test_should_tell_is_not_changed(self, source: str) -> None:
        assert changes(source) == []

    def test_every_change_of_the_registry_can_be_made_and_taken_back_and_has_its_own_name(self) -> None:
        seen: set[str] = set()
        for path in (ROOT / "sapwood" / "registry").glob("*.py"):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            before = ast.unparse(tree)
            for mutant in mutants_of(tree, path.name):
                mutant.apply()
                compile(tree, path.name, "exec")
                mutant.undo()
                assert mutant.id not in seen
                seen.add(mutant.id)
            assert ast.unparse(tree) == before
        assert len(seen) > 300


def where(mutants: Sequence[Mutant]) -> list[str]:
    return [mutant.where for mutant in mutants]


def test_a_change_belongs_to_the_outermost_function_that_makes_it() -> None:
    source = (
        "def a(x=1):\n    def b():\n        return x\n    return b\nclass C:\n    y = 2\n    def d(self):\n        f()"
    )
    assert where(mutants_of(ast.parse(source), "module.py")) == ["", "a", "a", "", "C.d"]


class TestProgram:
    @pytest.fixture
    def project(self, tmp_path: Path) -> Path:
        for name, text in {
            "pyproject.toml": CONFIGURATION,
            "toy/__init__.py": "",
            "toy/thing.py": MODULE,
            "tests/test_thing.py": TESTS,
        }.items():
            path = tmp_path / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return tmp_path

    def run(self, project: Path, *options: str) -> subprocess.CompletedProcess[str]:
        arguments = [
            "--root",
            str(project),
            "--packages",
            "toy",
            "--tests",
            "tests",
            "--workers",
            "1",
            "--grace",
            "0.5",
        ]
        # Of the plugins of pytest only what the program asks for: the toy needs no other.
        plugins = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": "-p _hypothesis_pytestplugin"}
        return subprocess.run(
            [sys.executable, str(PROGRAM), *arguments, *options],
            env=os.environ | plugins,
            capture_output=True,
            text=True,
            check=False,
        )

    def test_it_counts_what_is_noticed_lists_what_is_not_and_goes_on_where_it_was(self, project: Path) -> None:
        first = self.run(project)
        assert first.returncode == 1, first.stderr
        lines = first.stdout.splitlines()
        assert lines[0] == "toy/thing.py    10/13    76.9 %, 3 by hanging", first.stdout + first.stderr
        survivors = {line.split(": ", 1)[1] for line in lines if line.startswith("toy/thing.py:")}
        assert survivors == {
            "a > b → a >= b",
            "return 17 → return None (no test runs it)",
            "17 → 18 (no test runs it)",
        }
        assert (project / "toy" / "thing.py").read_text(encoding="utf-8") == MODULE

        again = self.run(project)
        assert again.stdout.splitlines()[:-1] == lines[:-1]
        assert again.stdout.splitlines()[-1].startswith("0 tried in this run, 13 before")

        tests = project / "tests" / "test_thing.py"
        tests.write_text(TESTS.replace("import LIMIT,", "import LIMIT, untested,") + "    assert untested() == 17\n")
        third = self.run(project, "--at-least", "80")
        assert third.returncode == 0, third.stderr
        assert third.stdout.splitlines()[-1].startswith("3 tried in this run, 10 before")

    def test_what_is_listed_as_equivalent_is_left_out_and_the_list_is_kept_true(self, project: Path) -> None:
        listed = project / "tests" / "mutants_equivalent.toml"
        listed.write_text(SAME, encoding="utf-8")
        run = self.run(project, "--sample", "3", "--seed", "1")
        assert "1 equivalent ones left out" in run.stdout, run.stderr
        assert "3 tried in this run" in run.stdout

        listed.write_text(SAME.replace("a >= b", "a <= b"), encoding="utf-8")
        run = self.run(project)
        assert run.returncode == 2
        assert "nothing fits ('toy/thing.py'" in run.stderr

        listed.write_text(SAME.replace("of two equal numbers either is the larger one", " "), encoding="utf-8")
        run = self.run(project)
        assert run.returncode == 2
        assert "expected a reason" in run.stderr

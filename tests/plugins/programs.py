"""Runs programs of the project as a user would: in a process of their own, in an empty folder, within a limit."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import attrs
import pytest
from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[2]
DEFAULT_LIMIT = 60.0

RUN_BLOCKS = """
import sys
namespace = {"__name__": "__main__"}
for path in sys.argv[1:]:
    source = open(path, encoding="utf-8").read()
    exec(compile(source, path, "exec"), namespace)
"""


def run_program(arguments: Sequence[str], folder: Path, limit: float) -> None:
    """Run Python with these arguments in the folder; fail the test, with all output, unless it ends well in time.

    Args:
        arguments: What follows `python` on the command line.
        folder: Current folder of the program.
        limit: Seconds after which it is killed.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "SAPWOOD_"))}
    environment |= {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf-8"}
    try:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=limit,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        pytest.fail(f"still running after {limit:g} s; its output:\n{_text(error.stdout)}", pytrace=False)
    if done.returncode:
        pytest.fail(f"ended with exit code {done.returncode}; its output:\n{_text(done.stdout)}", pytrace=False)


def _text(output: bytes | None) -> str:
    return (output or b"").decode("utf-8", "replace")


def run_example(path: Path, folder: Path) -> None:
    """Run an example: a pytest file (`test_*.py`, `*_test.py`) through pytest, anything else as a script."""
    limit = limit_of(path.read_text(encoding="utf-8"))
    run_program(_pytest_arguments(path) if is_pytest_file(path) else [str(path)], folder, limit)


def is_pytest_file(path: Path) -> bool:
    return path.name.startswith("test_") or path.stem.endswith("_test")


def limit_of(source: str) -> float:
    """Return the seconds that a program may take: those in a line `# Time limit: 120 s`, or 60."""
    found = re.search(r"^# Time limit: (\d+) s$", source, re.MULTILINE)
    return float(found[1]) if found else DEFAULT_LIMIT


def _pytest_arguments(path: Path) -> list[str]:
    return ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml"), str(path)]


@attrs.frozen
class Block:
    """A Python block of a document.

    Attributes:
        line: Line of its first statement in the document, from 1.
        source: Its code.
        continues: True if it goes on in the namespace of the block before.
        reason: Why it is not run; empty if it is run.
    """

    line: int
    source: str
    continues: bool = False
    reason: str = ""


class BadMarkError(Exception):
    """A comment before a block that means nothing."""


def blocks_of(text: str) -> list[Block]:
    """Return the ```python blocks of a Markdown document with what the comment before each says.

    Raises:
        BadMarkError: if a `not run` comment gives no reason, or the first block continues.
    """
    blocks: list[Block] = []
    comment = ""
    for token in MarkdownIt().parse(text):
        if token.type == "fence" and token.info.split()[:1] == ["python"]:
            assert token.map is not None
            line = token.map[0] + 2
            reason = re.search(r"<!--\s*not run:(.*?)-->", comment, re.DOTALL)
            continues = re.search(r"<!--\s*continues\s*-->", comment) is not None
            if reason is not None and not reason[1].strip():
                raise BadMarkError(
                    f"line {line}: expected a reason, as in <!-- not run: needs an API key -->; got none"
                )
            if continues and not blocks:
                raise BadMarkError(f"line {line}: the first block continues nothing")
            blocks.append(Block(line, token.content, continues, reason[1].strip() if reason else ""))
        comment = token.content if token.type == "html_block" else ""
    return blocks


def programs_of(blocks: Sequence[Block]) -> list[list[Block]]:
    """Group the blocks that run in one namespace; blocks that are not run are left out."""
    programs: list[list[Block]] = []
    for block in blocks:
        if block.continues and programs:
            programs[-1].append(block)
        else:
            programs.append([block])
    running = [[block for block in program if not block.reason] for program in programs]
    return [program for program in running if program]


def run_blocks(document: Path, program: Sequence[Block], folder: Path) -> None:
    """Run the blocks one after another in one namespace; a program that defines tests is run through pytest."""
    files: list[Path] = []
    for block in program:
        # Blank lines before the code give tracebacks the line numbers of the document.
        path = folder / f"test_{document.stem.lower()}_line_{block.line}.py"
        path.write_text("\n" * (block.line - 1) + block.source, encoding="utf-8")
        files.append(path)
    if any(_defines_tests(block.source) for block in program):
        whole = folder / "test_blocks.py"
        whole.write_text("\n".join(block.source for block in program), encoding="utf-8")
        run_program(_pytest_arguments(whole), folder, DEFAULT_LIMIT)
    else:
        run_program(["-c", RUN_BLOCKS, *map(str, files)], folder, DEFAULT_LIMIT)


def _defines_tests(source: str) -> bool:
    return any(
        isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
        for node in ast.parse(source).body
    )

"""Every Python block of README.md and docs/ runs."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from programs import ROOT, BadMarkError, Block, blocks_of, programs_of, run_blocks

DOCUMENTS = [path for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))] if path.is_file()]
PROGRAMS = [
    pytest.param(path, program, id=f"{path.relative_to(ROOT)}:{program[0].line}")
    for path in DOCUMENTS
    for program in programs_of(blocks_of(path.read_text(encoding="utf-8")))
]


@pytest.mark.parametrize(("document", "program"), PROGRAMS)
def test_a_python_block_of_the_documentation_runs(document: Path, program: list[Block], tmp_path: Path) -> None:
    run_blocks(document, program, tmp_path)


def test_the_readme_has_a_first_program_that_is_run() -> None:
    assert programs_of(blocks_of((ROOT / "README.md").read_text(encoding="utf-8"))) != []


def document(text: str) -> str:
    return textwrap.dedent(text).strip("\n")


def test_blocks_are_found_with_their_line_and_other_languages_are_not() -> None:
    text = document("""
        # Title

        ```console
        $ make run
        ```

        ```python
        one = 1
        ```
        """)
    assert blocks_of(text) == [Block(8, "one = 1\n")]


def test_a_block_after_a_not_run_comment_is_left_out() -> None:
    text = document("""
        <!-- not run: needs an API key -->
        ```python
        one = 1
        ```

        ```python
        two = 2
        ```
        """)
    assert [block.reason for block in blocks_of(text)] == ["needs an API key", ""]
    assert programs_of(blocks_of(text)) == [[Block(7, "two = 2\n")]]


def test_a_block_that_continues_shares_a_program_with_the_one_before() -> None:
    text = document("""
        ```python
        one = 1
        ```
        text between
        <!-- continues -->
        ```python
        two = one + 1
        ```

        ```python
        three = 3
        ```
        """)
    assert [[block.line for block in program] for program in programs_of(blocks_of(text))] == [[2, 7], [11]]


@pytest.mark.parametrize("comment", ["<!-- not run: -->", "<!-- continues -->"])
def test_a_comment_that_means_nothing_is_refused(comment: str) -> None:
    with pytest.raises(BadMarkError, match="line 3"):
        blocks_of(f"{comment}\n```python\none = 1\n```\n")


def test_blocks_of_one_program_share_their_names_in_an_empty_folder(tmp_path: Path) -> None:
    blocks = [
        Block(3, "from __future__ import annotations\nimport trio\nasync def main() -> None:\n    open('seen', 'w')\n"),
        Block(9, "from __future__ import annotations\ntrio.run(main)\n"),
    ]
    run_blocks(Path("guide.md"), blocks, tmp_path)

    assert (tmp_path / "seen").exists()


def test_a_block_that_raises_fails_with_its_output_and_the_line_in_the_document(tmp_path: Path) -> None:
    with pytest.raises(pytest.fail.Exception, match=r"exit code 1(.|\n)*before(.|\n)*line 41"):
        run_blocks(Path("guide.md"), [Block(40, "print('before')\n1 / 0\n")], tmp_path)


def test_a_block_that_defines_a_test_runs_through_pytest(tmp_path: Path) -> None:
    passing = Block(1, "async def test_it(autojump_clock: object) -> None:\n    assert autojump_clock is not None\n")
    run_blocks(Path("guide.md"), [passing], tmp_path)

    with pytest.raises(pytest.fail.Exception, match="1 failed"):
        run_blocks(Path("guide.md"), [Block(1, "def test_it() -> None:\n    assert False\n")], tmp_path)

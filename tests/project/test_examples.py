"""Every file in examples/ runs as it stands and ends well."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import DEFAULT_LIMIT, ROOT, is_pytest_file, limit_of, run_example, run_program

EXAMPLES = sorted(path for path in (ROOT / "examples").rglob("*.py") if not path.name.startswith("_"))


@pytest.mark.parametrize("path", [pytest.param(path, id=path.name) for path in EXAMPLES])
def test_an_example_runs_and_ends_well_within_its_limit(path: Path, tmp_path: Path) -> None:
    run_example(path, tmp_path)


def test_there_is_an_example_for_every_kind_of_use() -> None:
    assert [path for path in EXAMPLES if is_pytest_file(path)], "expected a chaos test file in examples/"
    assert len([path for path in EXAMPLES if not is_pytest_file(path)]) >= 2, (
        "expected embedding and scripts in examples/"
    )


def test_a_program_that_fails_shows_its_output_and_exit_code(tmp_path: Path) -> None:
    with pytest.raises(pytest.fail.Exception, match="exit code 3; its output:\nsaid before\n"):
        run_program(["-c", "print('said before'); raise SystemExit(3)"], tmp_path, DEFAULT_LIMIT)


def test_a_program_that_outlives_its_limit_is_killed_and_shows_its_output(tmp_path: Path) -> None:
    with pytest.raises(pytest.fail.Exception, match="still running after 1 s; its output:\nsaid before\n"):
        run_program(["-c", "print('said before')\nwhile True: pass"], tmp_path, 1.0)


def test_an_example_states_its_limit_in_a_comment_or_has_60_seconds() -> None:
    assert limit_of('"""An example."""\n# Time limit: 120 s\n') == 120.0
    assert limit_of('"""An example."""\n') == 60.0


@pytest.mark.parametrize(
    ("name", "source"),
    [("test_chaos.py", "async def test_it(autojump_clock):\n    assert False\n"), ("script.py", "assert False\n")],
)
def test_an_example_that_does_not_hold_fails(name: str, source: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(source, encoding="utf-8")

    with pytest.raises(pytest.fail.Exception, match="exit code 1"):
        run_example(path, tmp_path)

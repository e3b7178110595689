"""The command line as such: help, errors in one line, exit codes, the missing extra."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from sapwood.console import _commands, main
from tests.console.command import environment_of, run_python, run_sapwood

COMMANDS = ("demo", "chat", "tree", "inspect")


def test_the_version_is_shown_by_the_module_and_by_the_entry_point(tmp_path: Path) -> None:
    expected = f"sapwood {version('sapwood')}\n"
    program = "import sys; from sapwood.console import main; sys.exit(main())"

    assert run_sapwood("--version", folder=tmp_path).out == expected
    assert run_python("-c", program, "--version", folder=tmp_path).out == expected


def test_help_without_a_command_names_every_command_and_counts_as_wrong_use(tmp_path: Path) -> None:
    done = run_sapwood(folder=tmp_path)

    assert done.code == 2
    assert all(f"\n  {command} " in done.out for command in COMMANDS)
    assert "sapwood demo  " in done.out


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_every_command_teaches_with_examples_and_exit_codes(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "--help"]) == 0

    shown = capsys.readouterr().out
    assert f"Examples:\n    sapwood {command}" in shown
    assert "Exit codes: 0 all is well" in shown


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["dmeo"], "sapwood: No such command 'dmeo'"),
        (["demo", "--quick"], "sapwood demo: No such option: --quick"),
        (["inspect"], "sapwood inspect: Missing argument"),
        (["inspect", "a.db", "--tail", "-1"], "sapwood inspect: Invalid value for '--tail'"),
        (["inspect", "a.db", "--tail", "many"], "sapwood inspect: Invalid value for '--tail'"),
        (["chat", "one", "two"], "sapwood chat: Got unexpected extra argument"),
    ],
)
def test_wrong_use_is_one_line_that_names_the_help_and_exit_code_2(
    arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2

    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith(problem)
    assert shown.err.count("\n") == 1
    assert shown.err.endswith(" --help\n")


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_the_extra_one_line_says_what_to_install(missing: str, tmp_path: Path) -> None:
    program = f"import sys; sys.modules[{missing!r}] = None; from sapwood.console import main; sys.exit(main())"

    done = run_python("-c", program, "demo", folder=tmp_path)

    assert (done.code, done.out) == (2, "")
    assert done.err == "sapwood: the command line needs more packages: pip install 'sapwood[cli]'\n"


def test_a_defect_is_one_line_and_shows_its_traceback_on_request(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def broken(*args: object, **kwargs: object) -> list[str]:
        raise ZeroDivisionError("two\nlines")

    monkeypatch.setattr(_commands, "inspect_lines", broken)

    assert main(["inspect", str(tmp_path / "a.db")]) == 1
    quiet = capsys.readouterr().err
    monkeypatch.setenv("SAPWOOD_TRACEBACK", "1")
    assert main(["inspect", str(tmp_path / "a.db")]) == 1
    loud = capsys.readouterr().err

    assert quiet.count("\n") == 1
    assert quiet.startswith("sapwood inspect: ZeroDivisionError: two lines; this is a defect of Sapwood")
    assert loud.startswith("Traceback")
    assert loud.endswith(quiet)


def test_ctrl_c_outside_of_a_run_is_one_line_and_exit_code_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped(*args: object, **kwargs: object) -> list[str]:
        raise KeyboardInterrupt

    monkeypatch.setattr(_commands, "tree_lines", stopped)

    assert main(["tree", "a.db"]) == 130
    assert capsys.readouterr().err == "sapwood tree: stopped\n"


def test_a_reader_who_has_seen_enough_is_no_error(tmp_path: Path) -> None:
    run_sapwood("chat", "--store", "a.db", folder=tmp_path, typed="Add a to-do: milk\n" * 12)
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "sapwood", "inspect", "a.db", "--tail", "1000"],
            cwd=tmp_path,
            env=environment_of({}),
            stdout=write_end,
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
        )
    finally:
        os.close(write_end)

    assert (done.returncode, done.stderr) == (0, b"")


def test_a_terminal_whose_encoding_lacks_the_marks_ends_nothing(tmp_path: Path) -> None:
    run_sapwood("chat", "--store", "a.db", folder=tmp_path, typed="Add a to-do: milk\n")

    done = run_sapwood("tree", "a.db", folder=tmp_path, PYTHONIOENCODING="ascii")

    assert (done.code, done.err) == (0, "")
    assert "? 1 milk" in done.out

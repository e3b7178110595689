"""The entry point of the command line: errors in one line, and exit codes that mean something."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from typing import Final

from sapwood.console._causes import cause_of
from sapwood.console._terminal import one_line
from sapwood.errors import InvalidOption, MissingExtra, SapwoodError

OK: Final = 0
FAILED: Final = 1
WRONG_USE: Final = 2
INTERRUPTED: Final = 130

TRACEBACK: Final = "SAPWOOD_TRACEBACK"
"""Environment variable that asks for the traceback of an error."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the `sapwood` command and return its exit code: 0 all is well, 1 failed, 2 the command was wrong.

    Errors are one line on standard error. Without the packages of the extra `cli` it says how to install them.

    Args:
        arguments: What follows the name of the command; None for those of the process.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        # A mark that the encoding of a terminal does not know must not end the program.
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")
    try:
        import rich
        import typer

        del rich, typer
    except ImportError:
        return _fail("sapwood", "the command line needs more packages: pip install 'sapwood[cli]'", WRONG_USE)
    command = next((word for word in given if not word.startswith("-")), "")
    return _run(given, f"sapwood {command}" if command else "sapwood")


def _run(given: list[str], name: str) -> int:
    from sapwood.console._commands import app

    try:
        returned = app(args=given or ["--help"], prog_name="sapwood", standalone_mode=False)
    except KeyboardInterrupt:
        returned = INTERRUPTED
    except SystemExit as leaving:
        # The option parser leaves so when nobody reads the output any more.
        returned = leaving.code
    except Exception as error:
        return _explain(name, cause_of(error))
    if not given:
        return WRONG_USE
    code = returned if isinstance(returned, int) else OK
    return _fail(name, "stopped", code) if code == INTERRUPTED else code


def _explain(name: str, error: Exception) -> int:
    if os.environ.get(TRACEBACK):
        traceback.print_exception(error)
    format_message = getattr(error, "format_message", None)
    if format_message is not None:
        # An error of the option parser, whose class has moved between its versions.
        path = getattr(getattr(error, "ctx", None), "command_path", "sapwood")
        return _fail(path, f"{one_line(format_message()).rstrip('.')}; see {path} --help", WRONG_USE)
    match error:
        case InvalidOption() | MissingExtra():
            return _fail(name, str(error), WRONG_USE)
        case SapwoodError() | OSError():
            return _fail(name, str(error), FAILED)
        case _:
            what = f"{type(error).__name__}: {error}; this is a defect of Sapwood, set {TRACEBACK}=1 for the traceback"
            return _fail(name, what, FAILED)


def _fail(name: str, problem: str, code: int) -> int:
    sys.stderr.write(f"{name}: {one_line(problem)}\n")
    return code

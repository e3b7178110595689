"""Runs tests against mutants: each mutant in a forked process, with only the tests that reach what it changes.

A mutant inside of a function is put into a process that has imported everything already: every function made from the
changed code gets its new code. Any other mutant has its module imported anew. No file is changed.
"""

from __future__ import annotations

import ast
import gc
import json
import os
import resource
import signal
import sys
import threading
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.abc import Loader
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from tempfile import TemporaryFile
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import IO, Any, Final, Literal, TypeAlias

import attrs
import hypothesis
import pytest
from mutant_sites import Mutant

Outcome: TypeAlias = Literal["killed", "timeout", "survived", "uncovered"]
Write: TypeAlias = Callable[["Verdict"], None]
Attempt: TypeAlias = Callable[[Mutant, Sequence[str], Write], None]
CodeKey: TypeAlias = tuple[str, int]

MEMORY: Final = 4 * 1024**3
"""Bytes of address space that a mutant gets: one that allocates without end must not take the machine along."""

# A failure is enough; a smaller counterexample is worth nothing here.
hypothesis.settings.register_profile(
    "mutants",
    derandomize=True,
    deadline=None,
    database=None,
    phases=(hypothesis.Phase.explicit, hypothesis.Phase.generate),
)


@attrs.frozen
class Verdict:
    """What became of a mutant; `test` is the one that noticed it, or in which it hung."""

    outcome: Outcome
    test: str = ""


@attrs.frozen
class Coverage:
    """What tests do without any mutant.

    Attributes:
        seconds: How long each passing test takes.
        lines: The lines that it runs, by file.
        broken: Tests that do not pass; they are not used.
    """

    seconds: dict[str, float]
    lines: dict[str, dict[str, list[int]]]
    broken: list[str]

    def tests_of(self, mutant: Mutant) -> list[str]:
        """Return the tests that run what a mutant changes; all of them, where it changes how a module is made."""
        if not mutant.where:
            return list(self.seconds)
        first, last = mutant.lines
        return [
            test
            for test, files in self.lines.items()
            if any(first <= line <= last for line in files.get(mutant.file, ()))
        ]


@attrs.frozen
class Project:
    """What is tested, and how.

    Attributes:
        root: Folder with the code and the tests; nothing in it is changed.
        files: The modules that are changed, relative to it.
        tests: Folders and files with tests, relative to it.
        log: Where the output of pytest goes.
        grace: Seconds that a test may take beyond ten times of what it takes without a mutant; then it counts as
            hanging.
    """

    root: Path
    files: tuple[str, ...]
    tests: tuple[str, ...]
    log: Path
    grace: float = 6.0

    def pytest(self, *plugins: object) -> int:
        """Run pytest in this process with its output in the log."""
        os.chdir(self.root)
        sys.path.insert(0, str(self.root))
        sys.dont_write_bytecode = True
        with self.log.open("ab", buffering=0) as log:
            for descriptor in (1, 2):
                os.dup2(log.fileno(), descriptor)
        options = ["-q", "-s", "--tb=line", "--assert=plain", "--hypothesis-profile=mutants", "-m", "not soak"]
        for name in ("randomly", "xdist", "cacheprovider"):
            options += ["-p", f"no:{name}"]
        return int(pytest.main([*options, *self.tests], plugins=plugins))


# ---------------------------------------------------------------- processes


def in_fork(work: Callable[[], object]) -> object:
    """Do something in a forked process and return its result, which must fit JSON; None if it dies."""
    with TemporaryFile() as results:
        process = os.fork()
        if not process:
            try:
                os.pwrite(results.fileno(), json.dumps(work()).encode(), 0)
            except BaseException:
                traceback.print_exc()
                raise
            finally:
                os._exit(0)
        os.waitpid(process, 0)
        content = results.read()
    return json.loads(content) if content else None


class Runner:
    """A pytest plugin that hands the collected tests to a function in place of running them all."""

    def __init__(self, work: Callable[[Runner], object]) -> None:
        self.items: dict[str, pytest.Item] = {}
        self.result: object = None
        self._work = work
        self._failed = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.items = {item.nodeid: item for item in session.items}
        if not session.testsfailed:
            self.result = self._work(self)
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._failed |= report.failed

    def passes(self, test: str, following: str | None = None) -> bool:
        """Run one test, with all that pytest does around it; say whether it passes."""
        self._failed = False
        item = self.items[test]
        item.ihook.pytest_runtest_protocol(item=item, nextitem=self.items[following] if following else None)
        return not self._failed

    def run(self, tests: Sequence[str], limits: Mapping[str, float], write: Write) -> None:
        """Run tests until one fails, and tell what came of it; a test that hangs ends the process with SIGALRM."""
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        for test, following in zip(tests, [*tests[1:], None], strict=True):
            write(Verdict("timeout", test))
            signal.setitimer(signal.ITIMER_REAL, limits[test])
            if not self.passes(test, following):
                write(Verdict("killed", test))
                return
        signal.setitimer(signal.ITIMER_REAL, 0)
        write(Verdict("survived"))


# ---------------------------------------------------------------- coverage


def measure(project: Project) -> Coverage:
    """Run all tests twice, for their times and for the lines they run.

    Raises:
        RuntimeError: if the tests cannot be collected.
    """

    def work() -> object:
        runner = Runner(lambda runner: _measure(project, runner))
        project.pytest(runner)
        return runner.result

    result: Any = in_fork(work)
    if result is None:
        raise RuntimeError(f"the tests cannot be collected without any mutant; see {project.log}")
    return Coverage(*result)


def _measure(project: Project, runner: Runner) -> list[Any]:
    """Run all tests in two processes, for what a test leaves behind must not change its second run."""
    tests = list(runner.items)
    files = {str(project.root / file): file for file in project.files}

    def time_all() -> dict[str, float]:
        seconds: dict[str, float] = {}
        for test in tests:
            begun = time.perf_counter()
            if runner.passes(test):
                seconds[test] = round(time.perf_counter() - begun, 4)
        return seconds

    def trace_all() -> dict[str, dict[str, list[int]]]:
        lines: dict[str, dict[str, list[int]]] = {}
        for test in tests:
            seen: dict[str, set[int]] = defaultdict(set)
            with _Tracing(files, seen):
                passed = runner.passes(test)
            if passed:
                lines[test] = {file: sorted(found) for file, found in seen.items()}
        return lines

    seconds: Any = in_fork(time_all) or {}
    lines: Any = in_fork(trace_all) or {}
    good = [test for test in tests if test in seconds and test in lines]
    broken = [test for test in tests if test not in good]
    return [{test: seconds[test] for test in good}, {test: lines[test] for test in good}, broken]


class _Tracing:
    """Notes which lines of some files are run inside the block, in all threads."""

    def __init__(self, files: Mapping[str, str], seen: dict[str, set[int]]) -> None:
        self._files = files
        self._seen = seen

    def __enter__(self) -> None:
        threading.settrace(self._call)
        sys.settrace(self._call)

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)
        threading.settrace(None)

    def _call(self, frame: FrameType, event: str, _argument: Any) -> Any:
        file = self._files.get(frame.f_code.co_filename)
        if file is None:
            return None
        note = self._seen[file].add

        def line(frame: FrameType, event: str, _argument: Any) -> Any:
            if event == "line":
                note(frame.f_lineno)
            return line

        return line


# ---------------------------------------------------------------- mutants in functions


class Functions:
    """All functions of some files that exist in this process, by the place of their code."""

    def __init__(self, files: Iterable[str]) -> None:
        wanted = frozenset(files)
        self._by_file: dict[str, list[FunctionType]] = defaultdict(list)
        for thing in gc.get_objects():
            if type(thing) is FunctionType and thing.__code__.co_filename in wanted:
                self._by_file[thing.__code__.co_filename].append(thing)

    def patch(self, file: str, tree: ast.Module, where: str) -> bool:
        """Give the functions of one outermost function their changed code; say whether that can be done."""
        codes = _codes_of(compile(tree, file, "exec"))
        patched = False
        for function in self._by_file[file]:
            old = function.__code__
            name = old.co_qualname
            if name != where and not name.startswith(f"{where}.<locals>."):
                continue
            new = codes.get((name, old.co_firstlineno))
            if new is None or new.co_freevars != old.co_freevars or new.co_flags != old.co_flags:
                return False
            function.__code__ = new
            patched |= name == where
        return patched


def _codes_of(code: CodeType) -> dict[CodeKey, CodeType]:
    codes: dict[CodeKey, CodeType] = {}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            codes[constant.co_qualname, constant.co_firstlineno] = constant
            codes |= _codes_of(constant)
    return codes


# ---------------------------------------------------------------- mutants of modules


class MutantFinder(PathFinder):
    """Imports one module from a changed tree."""

    def __init__(self, name: str, code: CodeType) -> None:
        self._name = name
        self._code = code

    def find_spec(  # type: ignore[override]  # an instance stands in sys.meta_path
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None:
            spec.loader = _MutantLoader(self._code)
        return spec


class _MutantLoader(Loader):
    def __init__(self, code: CodeType) -> None:
        self._code = code

    def exec_module(self, module: ModuleType) -> None:
        exec(self._code, module.__dict__)  # noqa: S102  # what every loader does


# ---------------------------------------------------------------- all mutants


class Campaign:
    """Tries mutants one after another, several at a time.

    Args:
        project: What is tested.
        coverage: What its tests do.
        trees: The tree of each file, in which the mutants were found.
        workers: Most processes at a time.
        tell: Called with each mutant and its verdict.
    """

    def __init__(
        self,
        project: Project,
        coverage: Coverage,
        trees: Mapping[str, ast.Module],
        *,
        workers: int,
        tell: Callable[[Mutant, Verdict], None],
    ) -> None:
        self._project = project
        self._coverage = coverage
        self._trees = trees
        self._workers = workers
        self._tell = tell
        self._limits = {test: project.grace + 10 * seconds for test, seconds in coverage.seconds.items()}
        self._kills: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)

    def run(self, mutants: Sequence[Mutant]) -> None:
        """Give every mutant its verdict."""
        reached: list[Mutant] = []
        for mutant in mutants:
            if self._coverage.tests_of(mutant):
                reached.append(mutant)
            else:
                self._tell(mutant, Verdict("uncovered"))
        in_functions = [mutant for mutant in reached if mutant.where]
        left = [mutant for mutant in reached if not mutant.where]
        if in_functions:
            refused = in_fork(lambda: self._serve(in_functions))
            if refused is None:
                raise RuntimeError(f"the process that forks for each mutant has died; see {self._project.log}")
            assert isinstance(refused, list)
            left += [in_functions[index] for index in refused]
        self._try_all(left, self._import_and_test)

    def _serve(self, mutants: Sequence[Mutant]) -> object:
        runner = Runner(lambda runner: self._serve_with(runner, mutants))
        self._project.pytest(runner)
        return runner.result

    def _serve_with(self, runner: Runner, mutants: Sequence[Mutant]) -> list[int]:
        """Try what can be tried by a change of functions; return the places of the rest."""
        refused: list[int] = []
        places = {mutant: index for index, mutant in enumerate(mutants)}
        functions = Functions(str(self._project.root / file) for file in self._project.files)
        # Shared by all files of temporary tests, so that no process removes what another one uses.
        runner.items[next(iter(runner.items))].config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # pytest's own
        gc.collect()
        gc.freeze()

        def attempt(mutant: Mutant, tests: Sequence[str], write: Write) -> None:
            mutant.apply()
            file = str(self._project.root / mutant.file)
            if functions.patch(file, self._trees[mutant.file], mutant.where):
                runner.run(tests, self._limits, write)

        self._try_all(mutants, attempt, lambda mutant: refused.append(places[mutant]))
        return refused

    def _import_and_test(self, mutant: Mutant, tests: Sequence[str], write: Write) -> None:
        mutant.apply()
        file = str(self._project.root / mutant.file)
        name = mutant.file.removesuffix(".py").replace("/", ".")
        sys.meta_path.insert(0, MutantFinder(name, compile(self._trees[mutant.file], file, "exec")))
        write(Verdict("killed", "import"))
        self._project.pytest(Runner(lambda runner: runner.run(tests, self._limits, write)))

    def _try_all(
        self,
        mutants: Sequence[Mutant],
        attempt: Attempt,
        refuse: Callable[[Mutant], None] | None = None,
    ) -> None:
        """Fork for each mutant; one whose process says nothing is refused."""
        running: dict[int, tuple[Mutant, IO[bytes]]] = {}
        waiting = list(reversed(mutants))
        while waiting or running:
            if waiting and len(running) < self._workers:
                mutant = waiting.pop()
                # A file, for nobody reads while it is written to.
                notes: IO[bytes] = TemporaryFile()  # noqa: SIM115  # closed when the process has ended
                running[self._fork(mutant, attempt, notes.fileno())] = mutant, notes
                continue
            process, status = os.wait()
            mutant, notes = running.pop(process)
            with notes:
                note = notes.read()
            if note:
                self._conclude(mutant, Verdict(*json.loads(note)), hung=os.WIFSIGNALED(status))
            elif refuse is not None:
                refuse(mutant)
            else:
                raise RuntimeError(f"no verdict on {mutant.id}; see {self._project.log}")

    def _fork(self, mutant: Mutant, attempt: Attempt, notes: int) -> int:
        def write(verdict: Verdict) -> None:
            note = json.dumps([verdict.outcome, verdict.test]).encode()
            os.pwrite(notes, note.ljust(1_000), 0)

        tests = self._order(mutant)
        process = os.fork()
        if process:
            return process
        try:
            attempt(mutant, tests, write)
        finally:
            os._exit(0)

    def _conclude(self, mutant: Mutant, verdict: Verdict, *, hung: bool) -> None:
        if verdict.outcome == "timeout" and not hung:
            verdict = Verdict("killed", verdict.test)  # the process has ended itself in the middle of the test
        if verdict.outcome == "killed":
            self._kills[mutant.file, mutant.where][verdict.test] += 1
        self._tell(mutant, verdict)

    def _order(self, mutant: Mutant) -> list[str]:
        """Return the tests of a mutant: first those that have killed its neighbours, then the fast ones."""
        kills = self._kills[mutant.file, mutant.where]
        seconds = self._coverage.seconds
        return sorted(self._coverage.tests_of(mutant), key=lambda test: (-kills[test], seconds[test]))

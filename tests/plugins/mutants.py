"""Mutation testing: changes the code in small ways, one at a time, and reports the changes that no test notices.

`make mutants` tries all of supervision and registry; `make mutants MUTANTS="--sample 100 --seed 7"` some of them.
`mutant_sites.py` says what is changed, `mutant_runs.py` how that is tried. The tree is copied first, so that it may be
edited meanwhile. Tests marked `soak` are left out. Verdicts are kept in `.mutants/`, and the next run goes on from
there: a mutant is tried again if its module has changed, or if it has survived and a test has changed.

A mutant that no test can kill, because the code does the same with it, may stand in `tests/mutants_equivalent.toml`
with the reason; one that stands there and no longer exists is an error.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import shutil
import sys
import tempfile
import time
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final, TextIO

import attrs
from mutant_runs import Campaign, Coverage, Project, Verdict, measure
from mutant_sites import Mutant, mutants_of

ROOT: Final = Path(__file__).parents[2]
PACKAGES: Final = ("sapwood/supervision", "sapwood/registry")
TESTS: Final = ("tests/supervision", "tests/registry")
EQUIVALENT: Final = "tests/mutants_equivalent.toml"
NOTICED: Final = ("killed", "timeout")


class MutantsError(Exception):
    """What makes a report impossible."""


@attrs.frozen
class Kept:
    """The verdicts of earlier runs, one JSON line each, appended as they are given.

    Attributes:
        path: The file.
        code: Digest of each module.
        tests: Digest of all tests.
    """

    path: Path
    code: Mapping[str, str]
    tests: str

    def read(self, *, whatever_tests: bool = False) -> dict[str, Verdict]:
        """Return the verdicts that still hold, by mutant; if asked, also those of other tests on what survived."""
        verdicts: dict[str, Verdict] = {}
        if not self.path.exists():
            return verdicts
        for line in self.path.read_text(encoding="utf-8").splitlines():
            entry: dict[str, Any] = json.loads(line)
            same_code = self.code.get(entry["file"]) == entry["code"]
            same_tests = whatever_tests or entry["tests"] == self.tests
            if same_code and (entry["outcome"] in NOTICED or same_tests):
                verdicts[entry["id"]] = Verdict(entry["outcome"], entry["test"])
        return verdicts

    def add(self, mutant: Mutant, verdict: Verdict) -> None:
        """Keep a verdict."""
        entry = {
            "id": mutant.id,
            "outcome": verdict.outcome,
            "test": verdict.test,
            "file": mutant.file,
            "code": self.code[mutant.file],
            "tests": self.tests,
        }
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")


# ---------------------------------------------------------------- what is equivalent


def read_equivalent(path: Path, mutants: Iterable[Mutant], sources: Mapping[str, Sequence[str]]) -> set[str]:
    """Return the ids of the mutants that a reviewed list calls equivalent.

    Raises:
        MutantsError: if an entry has no reason, or fits no mutant.
    """
    if not path.exists():
        return set()
    known: dict[tuple[str, str, str, str], list[str]] = defaultdict(list)
    for mutant in mutants:
        code = sources[mutant.file][mutant.line - 1].strip()
        known[mutant.file, mutant.where, code, mutant.change].append(mutant.id)
    found: set[str] = set()
    for entry in tomllib.loads(path.read_text(encoding="utf-8")).get("equivalent", []):
        place = entry["file"], entry["where"], entry["code"], entry["change"]
        fitting = known.get(place)
        if not fitting:
            raise MutantsError(f"{path.name}: nothing fits {place!r}")
        if not entry.get("reason", "").strip():
            raise MutantsError(f"{path.name}: expected a reason for {entry['code']!r}, {entry['change']!r}")
        found.update(fitting)
    return found


# ---------------------------------------------------------------- the report


def report(mutants: Sequence[Mutant], verdicts: Mapping[str, Verdict]) -> str:
    """Return the score of each module and of all, and the mutants that nothing has noticed."""
    by_file: dict[str, list[Mutant]] = defaultdict(list)
    for mutant in mutants:
        by_file[mutant.file].append(mutant)
    width = max((len(file) for file in by_file), default=0)
    lines = [f"{file.ljust(width)}  {_score(of_file, verdicts)}" for file, of_file in sorted(by_file.items())]
    lines.append(f"{'all'.ljust(width)}  {_score(mutants, verdicts)}")
    missed = [mutant for mutant in mutants if verdicts[mutant.id].outcome not in NOTICED]
    if missed:
        lines += ["", "survivors:"]
        lines += [f"{mutant.file}:{mutant.line}: {mutant.change}{_why(verdicts[mutant.id])}" for mutant in missed]
    return "\n".join(lines)


def share(mutants: Sequence[Mutant], verdicts: Mapping[str, Verdict]) -> float:
    """Return how many of a hundred mutants were noticed."""
    noticed = sum(verdicts[mutant.id].outcome in NOTICED for mutant in mutants)
    return 100 * noticed / len(mutants) if mutants else 100.0


def _score(mutants: Sequence[Mutant], verdicts: Mapping[str, Verdict]) -> str:
    outcomes = [verdicts[mutant.id].outcome for mutant in mutants]
    killed = sum(outcome in NOTICED for outcome in outcomes)
    hung = outcomes.count("timeout")
    return f"{killed:4}/{len(outcomes):<4} {share(mutants, verdicts):5.1f} %" + (f", {hung} by hanging" if hung else "")


def _why(verdict: Verdict) -> str:
    return " (no test runs it)" if verdict.outcome == "uncovered" else ""


# ---------------------------------------------------------------- the program


def main(arguments: Sequence[str] | None = None) -> int:
    """Try mutants and print the report; the exit code is 1 below the wanted score, 2 if there can be no report."""
    options = _options(arguments)
    root = Path(options.root).resolve()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = Path(folder).resolve()
        for name in ("pyproject.toml", *{Path(path).parts[0] for path in (*options.packages, *options.tests)}):
            _copy(root / name, copy / name)
        try:
            return _run(options, root, copy)
        except (MutantsError, RuntimeError) as error:
            print(error, file=sys.stderr)
            return 2


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="mutants", description="Mutation testing of supervision and registry.")
    parser.add_argument("--sample", type=int, metavar="N", help="try N mutants, chosen by --seed")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="which sample; 0 by default")
    parser.add_argument("--module", action="append", metavar="TEXT", help="only modules whose path contains it")
    parser.add_argument("--without", action="append", metavar="TEXT", help="no modules whose path contains it")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, metavar="N", help="processes at a time")
    parser.add_argument("--grace", type=float, default=6.0, metavar="SECONDS", help="what a slow test may take more; 6")
    parser.add_argument("--at-least", type=float, default=90.0, metavar="PERCENT", help="the wanted score; 90")
    parser.add_argument("--again", action="store_true", help="forget earlier verdicts")
    parser.add_argument("--report", action="store_true", help="try nothing, and report the last verdicts")
    parser.add_argument("--root", default=str(ROOT), help="folder of the project")
    parser.add_argument("--packages", nargs="+", default=list(PACKAGES), help="folders whose modules are changed")
    parser.add_argument("--tests", nargs="+", default=list(TESTS), help="folders and files with the tests")
    return parser.parse_args(arguments)


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    elif source.exists():
        shutil.copy(source, target)


def _run(options: argparse.Namespace, root: Path, copy: Path) -> int:
    folder = root / ".mutants"
    folder.mkdir(exist_ok=True)
    modules = [path for package in options.packages for path in sorted((copy / package).rglob("*.py"))]
    files = tuple(str(path.relative_to(copy)) for path in modules if path.name != "__init__.py")
    texts = {file: (copy / file).read_text(encoding="utf-8") for file in files}
    trees = {file: ast.parse(text) for file, text in texts.items()}
    every = [mutant for file in files for mutant in mutants_of(trees[file], file)]
    lines = {file: text.splitlines() for file, text in texts.items()}
    equivalent = read_equivalent(root / EQUIVALENT, every, lines)
    chosen = [mutant for mutant in every if mutant.id not in equivalent]
    if options.module:
        chosen = [mutant for mutant in chosen if any(text in mutant.file for text in options.module)]
    if options.without:
        chosen = [mutant for mutant in chosen if not any(text in mutant.file for text in options.without)]
    if options.sample is not None and options.sample < len(chosen):
        sample = {mutant.id for mutant in Random(options.seed).sample(chosen, options.sample)}
        chosen = [mutant for mutant in chosen if mutant.id in sample]

    tests = _digest(*(path for name in options.tests for path in _files(copy / name)))
    kept = Kept(folder / "verdicts.jsonl", {file: _digest(copy / file) for file in files}, tests)
    if options.again:
        kept.path.unlink(missing_ok=True)
    known = kept.read(whatever_tests=options.report)
    due = [mutant for mutant in chosen if mutant.id not in known]
    if options.report:
        chosen = [mutant for mutant in chosen if mutant.id in known]
        print(f"{len(due)} have no verdict and are not counted")
        due = []
    if due:
        project = Project(copy, files, tuple(options.tests), folder / "pytest.log", options.grace)
        project.log.unlink(missing_ok=True)
        digest = _digest(
            *(copy / file for file in files), *(path for name in options.tests for path in _files(copy / name))
        )
        coverage = _coverage(folder / "coverage.json", project, digest)
        for test in coverage.broken:
            print(f"left out, for it fails without any mutant: {test}", file=sys.stderr)
        with os.fdopen(os.dup(2), "w", buffering=1) as screen:
            progress = _Progress(kept, len(due), screen)
            Campaign(project, coverage, trees, workers=options.workers, tell=progress.tell).run(due)
        known = kept.read()
    verdicts = {mutant.id: known[mutant.id] for mutant in chosen}
    print(report(chosen, verdicts))
    before = len(chosen) - len(due)
    print(f"\n{len(due)} tried in this run, {before} before; {len(equivalent)} equivalent ones left out")
    return 0 if share(chosen, verdicts) >= options.at_least else 1


class _Progress:
    """Keeps each verdict, and says where the run is; works in every forked process."""

    def __init__(self, kept: Kept, total: int, screen: TextIO) -> None:
        self._kept = kept
        self._total = total
        self._screen = screen
        self._begun = time.monotonic()
        self._lines = len(kept.path.read_text(encoding="utf-8").splitlines()) if kept.path.exists() else 0

    def tell(self, mutant: Mutant, verdict: Verdict) -> None:
        self._kept.add(mutant, verdict)
        done = len(self._kept.path.read_text(encoding="utf-8").splitlines()) - self._lines
        if verdict.outcome not in NOTICED:
            self._screen.write(f"{verdict.outcome}: {mutant.file}:{mutant.line}: {mutant.change}\n")
        if done % 50 == 0:
            self._screen.write(f"{done} of {self._total} after {time.monotonic() - self._begun:.0f} s\n")


def _coverage(path: Path, project: Project, digest: str) -> Coverage:
    """Return what the tests do, measured once for the same sources."""
    try:
        entry: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if entry.pop("digest") == digest:
            return Coverage(**entry)
    except (FileNotFoundError, ValueError):
        pass
    print("measuring which test runs which line", file=sys.stderr)
    coverage = measure(project)
    path.write_text(json.dumps({"digest": digest, **attrs.asdict(coverage)}), encoding="utf-8")
    return coverage


def _files(path: Path) -> list[Path]:
    return sorted(path.rglob("*.py")) if path.is_dir() else [path]


def _digest(*paths: Path) -> str:
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


if __name__ == "__main__":
    sys.exit(main())

"""Traceability: which rows of the specification the passing tests show.

A test says which rows it shows with `@pytest.mark.row("A07", "S4-064")`. An id that is in none of the lists in
`tests/rows/` is a collection error. A complete run writes `.rows/results.json`; `make rows` reads it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Generator, Iterable, Mapping
from pathlib import Path
from typing import Any, TypedDict, cast

import pytest

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / ".rows" / "results.json"
LISTS = (
    "otp-must",
    "otp-should",
    "otp-nice",
    "seed-000",
    "seed-001",
    "seed-002",
    "seed-003",
    "seed-004",
    "bugs",
    "pains",
    "defects",
    "scenarios",
)


class RowError(Exception):
    """A list that cannot be read, or a mark that names an unknown row."""


def read_lists(folder: Path = ROOT / "tests" / "rows") -> dict[str, list[str]]:
    """Return `{list name: ids in order}`; a line holds an id and, after a tab, an optional description.

    Raises:
        RowError: if an id stands in two places.
    """
    lists: dict[str, list[str]] = {}
    seen: dict[str, str] = {}
    for name in LISTS:
        lines = (folder / f"{name}.txt").read_text(encoding="utf-8").splitlines()
        lists[name] = [line.split("\t")[0] for line in lines]
        for row in lists[name]:
            if row in seen:
                raise RowError(f"row {row!r} stands in {seen[row]}.txt and in {name}.txt; expected it once")
            seen[row] = name
    return lists


def rows_of(markers: Iterable[pytest.Mark], known: Iterable[str]) -> list[str]:
    """Return the sorted ids that the `row` marks of one test name.

    Raises:
        RowError: if a mark names nothing, or something that is not a known id.
    """
    known = frozenset(known)
    rows: set[str] = set()
    for marker in markers:
        if not marker.args or marker.kwargs:
            raise RowError('expected ids in a row mark, as in @pytest.mark.row("A07", "S4-064"); got none')
        for row in marker.args:
            if row not in known:
                raise RowError(f"unknown row {row!r} in a row mark; expected an id from the lists in tests/rows/")
            rows.add(row)
    return sorted(rows)


def shown_rows(outcomes: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return the rows with at least one passed and no failed test, from `{row: {test: outcome}}`."""
    return sorted(
        row for row, tests in outcomes.items() if "passed" in tests.values() and "failed" not in tests.values()
    )


def digest_of_sources(root: Path = ROOT) -> str:
    """Return a digest of everything whose change can change a result."""
    digest = hashlib.sha256()
    files = [path for folder in ("sapwood", "tests") for path in (root / folder).rglob("*") if path.is_file()]
    for path in sorted([*files, root / "pyproject.toml"]):
        if "__pycache__" not in path.parts:
            content = path.read_bytes()
            digest.update(f"{path.relative_to(root)}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


class Results(TypedDict):
    """What `.rows/results.json` holds.

    Attributes:
        digest: Digest of the sources that were run.
        complete: False if a file could not be collected or a worker died.
        rows: `{row: {test: outcome}}`.
    """

    digest: str
    complete: bool
    rows: dict[str, dict[str, str]]


def read_results(path: Path = RESULTS) -> Results | None:
    """Return what the last complete run recorded, or None if there is none."""
    try:
        results: Results = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    return results


class RowRecorder:
    """Collects the outcome of every marked test in the process that started the run, also under xdist."""

    def __init__(self, digest: str) -> None:
        self.digest = digest
        self.complete = True
        self.outcomes: dict[str, dict[str, str]] = {}

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.complete = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        properties = dict(report.user_properties)
        if "rows" not in properties:
            self.complete = False  # a worker died during this test and took the rows with it
        for row in str(properties.get("rows", "")).split():
            tests = self.outcomes.setdefault(row, {})
            tests[report.nodeid] = _merge(tests.get(report.nodeid), report)

    def write(self, path: Path = RESULTS) -> None:
        """Replace the results of the last complete run in one step."""
        path.parent.mkdir(exist_ok=True)
        results: Results = {"digest": self.digest, "complete": self.complete, "rows": self.outcomes}
        scratch = path.with_suffix(".tmp")
        scratch.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        scratch.replace(path)


def _merge(before: str | None, report: pytest.TestReport) -> str:
    if report.failed or before == "failed":
        return "failed"
    if report.skipped or before == "skipped":
        return "skipped"
    return "passed" if report.when == "call" or before == "passed" else "started"


def _is_whole_run(config: pytest.Config) -> bool:
    option: Any = config.option
    narrowed = option.keyword or option.markexpr or option.deselect or option.ignore or option.ignore_glob
    narrowed = narrowed or option.collectonly or option.maxfail or getattr(option, "lf", False)
    return config.args_source is pytest.Config.ArgsSource.TESTPATHS and not narrowed


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rows-only", action="store_true", help="run only tests that carry a row mark")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "row(*ids): the rows of the specification that this test shows")
    if not hasattr(config, "workerinput") and _is_whole_run(config):
        config.pluginmanager.register(RowRecorder(digest_of_sources()), "row-recorder")


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem(collector: pytest.Collector) -> Generator[None, object, object]:
    made = yield
    for item in _items(made):
        try:
            rows = rows_of(item.iter_markers("row"), _known_rows(collector.config))
        except RowError as error:
            raise collector.CollectError(f"{item.nodeid}: {error}") from error
        item.user_properties.append(("rows", " ".join(rows)))
    return made


def _items(made: object) -> list[pytest.Item]:
    # None, a class or another collector, or the list of items made from one function.
    return cast("list[pytest.Item]", made) if isinstance(made, list) else []


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.option.rows_only:
        others = [item for item in items if not next(item.iter_markers("row"), None)]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if item not in others]


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    recorder: RowRecorder | None = session.config.pluginmanager.get_plugin("row-recorder")
    ran_to_the_end = {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED}
    if recorder is not None and exitstatus in ran_to_the_end:
        recorder.write()


_known = pytest.StashKey[frozenset[str]]()


def _known_rows(config: pytest.Config) -> frozenset[str]:
    if _known not in config.stash:
        config.stash[_known] = frozenset(row for rows in read_lists().values() for row in rows)
    return config.stash[_known]

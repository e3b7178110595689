"""The lists of rows, the `row` mark and the report."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from row_report import report
from rows import LISTS, ROOT, Results, RowError, digest_of_sources, read_lists, read_results, rows_of, shown_rows

PLUGINS = ROOT / "tests" / "plugins"
PATTERNS = {
    "otp-must": r"[A-P]\d\d",
    "otp-should": r"[A-P]\d\d",
    "otp-nice": r"[A-P]\d\d",
    "seed-000": r"S0-\d{3}",
    "seed-001": r"S1-\d{3}",
    "seed-002": r"S2-\d{3}",
    "seed-003": r"S3-\d{3}",
    "seed-004": r"S4-\d{3}",
    "bugs": r"BR-\d\d",
    "pains": r"UP-\d+",
    "defects": r"AR-22\.\d+",
    "scenarios": r"AR-24\.\d+",
}
TOTALS = {
    "otp-must": 141,
    "otp-should": 63,
    "otp-nice": 16,
    "seed-000": 45,
    "seed-001": 61,
    "seed-002": 61,
    "seed-003": 195,
    "seed-004": 72,
    "bugs": 54,
    "pains": 86,
    "defects": 30,
    "scenarios": 60,
}


def marks(*rows: str) -> list[pytest.Mark]:
    return [pytest.mark.row(*rows).mark]


def test_the_lists_hold_every_row_once_in_the_form_of_its_list() -> None:
    lists = read_lists()

    assert {name: len(rows) for name, rows in lists.items()} == TOTALS
    strange = [row for name, rows in lists.items() for row in rows if not re.fullmatch(PATTERNS[name], row)]
    assert strange == []


def test_a_row_that_stands_in_two_lists_is_refused(tmp_path: Path) -> None:
    for name in LISTS:
        (tmp_path / f"{name}.txt").write_text(f"{name}\n")
    (tmp_path / "pains.txt").write_text("UP-1\nbugs\tagain\n")

    with pytest.raises(RowError, match=r"'bugs' stands in bugs\.txt and in pains\.txt"):
        read_lists(tmp_path)


def test_a_mark_gives_its_rows_sorted_and_once() -> None:
    assert rows_of([*marks("B02", "A01"), *marks("A01")], ["A01", "B02"]) == ["A01", "B02"]


@pytest.mark.parametrize("rows", [("A99",), ("A01", "a02"), (1,), ()])
def test_a_mark_without_a_known_row_is_refused(rows: tuple[str, ...]) -> None:
    with pytest.raises(RowError, match="row mark"):
        rows_of(marks(*rows), ["A01"])


def test_a_row_counts_only_if_a_test_passed_and_none_failed() -> None:
    outcomes = {
        "A01": {"one": "passed", "two": "skipped"},
        "A02": {"one": "passed", "two": "failed"},
        "A03": {"one": "skipped"},
        "A04": {"one": "started"},
    }
    assert shown_rows(outcomes) == ["A01"]


def test_the_report_has_one_line_per_list_and_the_missing_ids_indented_below() -> None:
    lists = {"otp-must": ["A01", "A02", "A03"], "bugs": ["BR-01"]}

    assert report(lists, ["A02", "BR-01"]) == "otp-must 1/3\n  A01 A03\nbugs 1/1"
    assert report({"x": ["A01", "A02", "A03"]}, [], width=9) == "x 0/3\n  A01 A02\n  A03"


def test_the_digest_follows_content_and_names_but_not_caches(tmp_path: Path) -> None:
    for folder in ("sapwood", "tests"):
        (tmp_path / folder).mkdir()
    (tmp_path / "pyproject.toml").write_text("")
    source = tmp_path / "tests" / "test_one.py"
    source.write_text("1")
    digests = [digest_of_sources(tmp_path)]

    source.write_text("2")
    digests.append(digest_of_sources(tmp_path))
    source.rename(tmp_path / "tests" / "test_two.py")
    digests.append(digest_of_sources(tmp_path))
    assert len(set(digests)) == 3

    cache = tmp_path / "tests" / "__pycache__"
    cache.mkdir()
    (cache / "test_two.pyc").write_text("cached")
    assert digest_of_sources(tmp_path) == digests[-1]


class TestRuns:
    """Whole runs in a small project of their own."""

    @pytest.fixture
    def project(self, tmp_path: Path) -> Path:
        for folder in ("sapwood", "tests/plugins", "tests/rows"):
            (tmp_path / folder).mkdir(parents=True)
        for name in ("rows.py", "row_report.py"):
            shutil.copy(PLUGINS / name, tmp_path / "tests" / "plugins" / name)
        for name in LISTS:
            (tmp_path / "tests" / "rows" / f"{name}.txt").write_text("")
        (tmp_path / "tests" / "rows" / "bugs.txt").write_text("BR-01\nBR-02\nBR-03\nBR-04\tdescribed\nBR-05\nBR-06\n")
        (tmp_path / "tests" / "conftest.py").write_text('pytest_plugins = ["rows"]\n')
        (tmp_path / "pyproject.toml").write_text(
            '[tool.pytest.ini_options]\ntestpaths = ["tests"]\npythonpath = ["tests/plugins"]\n'
            'addopts = ["--import-mode=importlib", "--strict-markers"]\n'
        )
        (tmp_path / "tests" / "test_rows.py").write_text(
            "import pytest\n"
            "row = pytest.mark.row\n"
            "@row('BR-01', 'BR-02')\n"
            "def test_passes(): pass\n"
            "@row('BR-02')\n"
            "@pytest.mark.parametrize('n', [1, 2])\n"
            "def test_fails_once(n): assert n == 1\n"
            "@row('BR-03')\n"
            "@pytest.mark.skip(reason='never')\n"
            "def test_is_skipped(): pass\n"
            "@row('BR-04')\n"
            "class TestGroup:\n"
            "    def test_passes(self): pass\n"
            "@row('BR-05')\n"
            "@pytest.mark.xfail(reason='not yet')\n"
            "def test_fails_as_expected(): assert False\n"
            "@pytest.fixture\n"
            "def broken(): yield; assert False\n"
            "@row('BR-06')\n"
            "def test_fails_in_teardown(broken): pass\n"
            "def test_without_a_mark(): pass\n"
        )
        return tmp_path

    def run(self, project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, *arguments], cwd=project, capture_output=True, text=True, check=False)

    def results(self, project: Path) -> Results:
        results = read_results(project / ".rows" / "results.json")
        assert results is not None
        return results

    @pytest.mark.parametrize("options", [[], ["-n", "2"]], ids=["one process", "two workers"])
    def test_a_complete_run_records_which_rows_its_passing_tests_show(
        self, project: Path, options: Sequence[str]
    ) -> None:
        self.run(project, "-m", "pytest", *options)

        results = self.results(project)
        assert results["complete"] is True
        assert shown_rows(results["rows"]) == ["BR-01", "BR-04"]

    @pytest.mark.parametrize("options", [["tests/test_rows.py"], ["-k", "passes"], ["-x"], ["--co"]])
    def test_a_partial_run_records_nothing(self, project: Path, options: Sequence[str]) -> None:
        self.run(project, "-m", "pytest", *options)

        assert not (project / ".rows").exists()

    @pytest.mark.parametrize("options", [[], ["-n", "2"]], ids=["one process", "two workers"])
    def test_an_unknown_row_is_a_collection_error_that_names_test_and_row(
        self, project: Path, options: Sequence[str]
    ) -> None:
        (project / "tests" / "test_more.py").write_text(
            "import pytest\n@pytest.mark.row('BR-99')\ndef test_it(): pass\n"
        )
        done = self.run(project, "-m", "pytest", *options)

        assert done.returncode != 0
        assert "test_more.py::test_it: unknown row 'BR-99'" in done.stdout

    def test_the_report_runs_the_marked_tests_once_and_again_after_a_change(self, project: Path) -> None:
        first = self.run(project, "tests/plugins/row_report.py")

        expected = [f"{name} 0/0" for name in LISTS]
        expected[LISTS.index("bugs")] = "bugs 2/6\n  BR-02 BR-03 BR-05 BR-06"
        assert first.stdout == "\n".join(expected) + "\n"
        assert "tests failed" in first.stderr
        assert "4 passed" in (project / ".rows" / "pytest.log").read_text(), "the test without a mark need not run"

        again = self.run(project, "tests/plugins/row_report.py")
        assert (again.stdout, again.stderr) == (first.stdout, "")

        test = project / "tests" / "test_rows.py"
        test.write_text(test.read_text().replace("assert n == 1", "pass"))
        assert "bugs 3/6\n  BR-03 BR-05 BR-06\n" in self.run(project, "tests/plugins/row_report.py").stdout

    def test_a_broken_test_file_costs_its_own_rows_and_no_others(self, project: Path) -> None:
        (project / "tests" / "test_broken.py").write_text("import nothing_of_this_name\n")

        done = self.run(project, "tests/plugins/row_report.py")

        assert "bugs 2/6\n" in done.stdout
        assert self.results(project)["complete"] is False

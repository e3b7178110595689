"""Prints, for each list of rows, how many the passing tests show and which are missing (`make rows`)."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Collection, Mapping, Sequence

from rows import RESULTS, ROOT, digest_of_sources, read_lists, read_results, shown_rows


def report(lists: Mapping[str, Sequence[str]], shown: Collection[str], *, width: int = 100) -> str:
    """Return one line per list, `NAME covered/total`, each followed by its missing ids, indented."""
    lines: list[str] = []
    for name, rows in lists.items():
        missing = [row for row in rows if row not in shown]
        lines.append(f"{name} {len(rows) - len(missing)}/{len(rows)}")
        lines += textwrap.wrap(
            " ".join(missing), width, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False
        )
    return "\n".join(lines)


def main() -> int:
    """Run the marked tests unless the last results are those of these sources, then print the report."""
    results = read_results()
    if results is None or results["digest"] != digest_of_sources() or not results["complete"]:
        RESULTS.parent.mkdir(exist_ok=True)
        log = RESULTS.with_name("pytest.log")
        options = ["-q", "-n", "2", "--rows-only", "--continue-on-collection-errors"]
        with log.open("wb") as output:
            RESULTS.unlink(missing_ok=True)
            run = subprocess.run(
                [sys.executable, "-m", "pytest", *options],
                cwd=ROOT,
                stdout=output,
                stderr=subprocess.STDOUT,
                check=False,
            )
        results = read_results()
        if results is None:
            print(f"the test run gave no results (exit code {run.returncode}); see {log}", file=sys.stderr)
            return 1
        if run.returncode:
            print(f"tests failed; the rows they show do not count; see {log}", file=sys.stderr)
    print(report(read_lists(), shown_rows(results["rows"])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
